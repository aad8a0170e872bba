"""How often the scripted teams win each battle: `python benchmarks/scripted.py --episodes 500`.

Prints the table of `docs/battle.md` and writes the figures as JSON, so that a change of the rules
shows. One standard error of a win rate p over n episodes is sqrt(p (1 - p) / n): 2.2 points at most
for 500.
"""

import argparse
import json
from pathlib import Path

import phalanx
from phalanx.registry import envs

TEAMS, KEYS = ("random", "heuristic"), ("win_rate", "return", "length")


def main() -> None:
    """Evaluate `random` and `heuristic` on every battle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("docs/data/battle_scripted.json"))
    parser.add_argument("maps", nargs="*", help="battles to play (default: all)")
    args = parser.parse_args()
    names = [f"battle/{name}" for name in args.maps] or [
        name for name in envs() if name.startswith("battle/")
    ]
    results = {}
    for name in names:
        scores = {team: phalanx.evaluate(team, name, episodes=args.episodes) for team in TEAMS}
        results[name] = {team: {key: score[key] for key in KEYS} for team, score in scores.items()}
        row = " | ".join(
            f"{100 * score['win_rate']:.1f} | {score['return']:.2f}" for score in results[name].values()
        )
        print(f"| `{name}` | {row} |", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    saved = {"episodes": args.episodes, "version": phalanx.__version__, "battles": results}
    args.out.write_text(json.dumps(saved, indent=1) + "\n")


if __name__ == "__main__":
    main()

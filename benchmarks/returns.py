"""What random, scripted and trained teams earn in the particle worlds; writes docs/data/mpe_returns.json.

    python benchmarks/returns.py [--episodes 1000] [--out results/returns]

Runs that are in the folder already are not trained again. Every team plays the same number of greedy
episodes, with its last parameters. A return is the mean over agents of the sum of their rewards; where
teams compete, there is one for each type of agent.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import phalanx
from phalanx import device

DATA = Path(__file__).parent.parent / "docs" / "data" / "mpe_returns.json"
# world, its options, and what was trained: algorithm, steps, options
TRAINED: list[tuple[str, dict[str, Any], list[tuple[str, float, dict[str, Any]]]]] = [
    (
        "simple_spread",
        {},
        [
            ("mappo", 2e6, {}),
            ("ippo", 2e6, {}),
            ("mappo", 2e6, {"network": "gru", "lr": 5e-4}),
            ("ippo", 2e6, {"network": "gru", "lr": 5e-4}),
        ],
    ),
    ("simple_speaker_listener", {}, [("mappo", 1.5e6, {}), ("ippo", 1.5e6, {})]),
    ("simple_reference", {}, [("mappo", 3e6, {}), ("ippo", 3e6, {})]),
    ("simple_tag", {}, [("mappo", 2e6, {}), ("ippo", 2e6, {})]),
    ("simple_tag", {"prey": "scripted"}, [("mappo", 3e6, {})]),
    ("simple_adversary", {}, [("mappo", 1e6, {})]),
    ("simple_adversary", {"adversary": "scripted"}, []),
    ("simple_push", {}, []),
    ("simple_crypto", {}, []),
    ("simple_world_comm", {}, []),
    ("simple", {}, []),
]


def earned(result: dict[str, Any]) -> dict[str, float]:
    """The returns of an evaluation: one, or one a type."""
    returns = {key: round(value, 2) for key, value in result.items() if key.startswith("return")}
    return {key: value for key, value in returns.items() if "/" in key} or returns


def main() -> None:
    """Play, train, and write down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/returns"), help="where runs are left")
    args = parser.parse_args()
    rows = []
    for world, options, runs in TRAINED:
        name = f"mpe/{world}"
        row: dict[str, Any] = {"world": world, "options": options, "episodes": args.episodes}
        for team in ("random", "heuristic"):
            played = phalanx.evaluate(team, name, episodes=args.episodes, env_options=options)
            row[team] = earned(played)
        row["trained"] = []
        for algorithm, steps, chosen in runs:
            label = "-".join([algorithm, world, *map(str, (options | chosen).values())])
            folder = args.out / label
            if not folder.exists():
                phalanx.train(
                    algorithm, name, steps=steps, env_options=options, out=folder, quiet=True, **chosen
                )
            played = phalanx.evaluate(folder, episodes=args.episodes, which="last")
            seconds = max(json.loads(line)["seconds"] for line in (folder / "metrics.jsonl").open())
            row["trained"].append(
                {
                    "algorithm": algorithm,
                    "options": chosen,
                    "steps": int(steps),
                    "seconds": round(seconds),
                    "earned": earned(played),
                }
            )
            print(json.dumps(row["trained"][-1]), flush=True)
        print(json.dumps(row), flush=True)
        rows.append(row)
    facts = {"device": device.describe(), "phalanx": phalanx.__version__, "rows": rows}
    DATA.write_text(json.dumps(facts, indent=1) + "\n")
    print(f"written to {DATA}")


if __name__ == "__main__":
    main()

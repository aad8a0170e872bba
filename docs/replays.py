"""Make the replays that pages of the site show: `python docs/replays.py`, part of `make docs`.

Scripted teams play, so that nothing has to be trained. Replays that exist are kept.
"""

from pathlib import Path

import phalanx

MADE = Path(__file__).parents[1] / "build" / "replays"
REPLAYS = {
    "battle": ("heuristic", "battle/2s3z"),
    "mpe": ("heuristic", "mpe/simple_spread"),
    "classic": ("random", "classic/CartPole-v1"),
}


def main() -> None:
    """Play and write the pages that are missing."""
    MADE.mkdir(parents=True, exist_ok=True)
    for name, (team, env) in REPLAYS.items():
        page = MADE / f"{name}.html"
        if not page.exists():
            phalanx.watch(team, env=env, episodes=2, out=page)
            print(page.name)


if __name__ == "__main__":
    main()

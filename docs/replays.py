"""Make the replays that pages of the site show: `python docs/replays.py`, part of `make docs`.

Scripted and random teams play. The corridor has no scripted team, so one is trained, in about a minute.
Replays that exist are kept.
"""

import tempfile
from pathlib import Path

import phalanx

MADE = Path(__file__).parents[1] / "build" / "replays"
REPLAYS = {
    "battle": ("heuristic", "battle/2s3z"),
    "smacv2": ("heuristic", "battle/v2_terran_5_vs_5"),
    "mpe": ("heuristic", "mpe/simple_spread"),
    "classic": ("random", "classic/CartPole-v1"),
    "switch": ("mappo", "switch/2"),
    "host": ("random", "pettingzoo/mpe2.simple_spread_v3"),
}
STEPS = {"mappo": 1.5e5}  # teams that are trained first


def make(team: str, env: str, page: Path) -> None:
    """Play two episodes and write the page that shows them."""
    if team not in STEPS:
        phalanx.watch(team, env=env, episodes=2, out=page)
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / team
        phalanx.train(team, env, steps=STEPS[team], out=out, quiet=True)
        phalanx.watch(out, episodes=1, out=page)  # every episode begins alike


def main() -> None:
    """Write the pages that are missing."""
    MADE.mkdir(parents=True, exist_ok=True)
    for name, (team, env) in REPLAYS.items():
        page = MADE / f"{name}.html"
        if not page.exists():
            make(team, env, page)
            print(page.name)


if __name__ == "__main__":
    main()

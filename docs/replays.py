"""Make the replays that pages of the site show: `python docs/replays.py`, part of `make docs`.

Scripted and random teams play. The corridor has no scripted team, so one is trained, in about a minute.
A replay is made again when any file of phalanx is newer: the viewer, the rules of the environment or the team
may have changed.
"""

import tempfile
from pathlib import Path

import phalanx

ROOT = Path(__file__).parents[1]
MADE = ROOT / "build" / "replays"
REPLAYS = {
    "battle": ("heuristic", "battle/2s3z"),
    "smacv2": ("heuristic", "battle/v2_terran_5_vs_5"),
    "mpe": ("heuristic", "mpe/simple_spread"),
    "classic": ("random", "classic/CartPole-v1"),
    "switch": ("mappo", "switch/2"),
    "compiled": ("random", "jaxmarl/smax_3m"),
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


def is_fresh(page: Path) -> bool:
    """Whether a page exists and is newer than all that it was made with."""
    sources = [Path(__file__), *(path for path in (ROOT / "phalanx").rglob("*.*") if path.suffix != ".pyc")]
    return page.exists() and page.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def main() -> None:
    """Write the pages that are missing or old."""
    MADE.mkdir(parents=True, exist_ok=True)
    for name, (team, env) in REPLAYS.items():
        page = MADE / f"{name}.html"
        if not is_fresh(page):
            make(team, env, page)
            print(page.name)


if __name__ == "__main__":
    main()

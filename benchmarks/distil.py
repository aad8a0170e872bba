"""What distillation buys: MAPPO-distil against the same without it; writes docs/data/distil.json and a plot.

    python benchmarks/distil.py [--jobs 1] [--out results/distil] [--only 3m]

On each map and at two learning rates, 5 seeds and 500,000 steps a seed: MAPPO-distil without sharing
(`distil`), the same without its distillation phase (`dual`), MAPPO without sharing (`mappo_ns`) and with
(`mappo`). Runs that are finished in the folder are not made again.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from wins import Plan, add_options, jobs, make, write

from phalanx.report.plots import COLOURS

DOCS = Path(__file__).parent.parent / "docs"
ARMS = {
    "distil": "mappo_distil battle/MAP --preset distil_ns --distil-lr LR",
    "dual": "mappo_distil battle/MAP --preset distil_ns --distil-epochs 0",
    "mappo_ns": "mappo battle/MAP --preset mappo_ns",
    "mappo": "mappo battle/MAP --preset mappo_ns --share all",
}
MAPS = "3m 2s_vs_1sc 2m_vs_1z"
RATES = ("3e-4", "5e-4")


def plan(rate: str) -> Plan:
    """All arms at one learning rate."""
    arms = {arm: f"{words} --lr LR --critic-lr LR".replace("LR", rate) for arm, words in ARMS.items()}
    return Plan(arms, MAPS, "--steps 5e5 --seeds 5 --eval-episodes 64")


def draw(rows: list[dict], path: Path) -> None:
    """A panel for each map and rate; lines are means over seeds, bands their range."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    maps = [name for name in MAPS.split() if any(row["map"] == name for row in rows)]
    figure, axes = plt.subplots(
        len(RATES), len(maps), figsize=(4 * len(maps), 5.5), sharex=True, squeeze=False, layout="constrained"
    )
    for row in rows:
        panel = axes[RATES.index(row["plan"].removeprefix("lr "))][maps.index(row["map"])]
        colour = COLOURS[list(ARMS).index(row["arm"])]
        steps, curves = np.array(row["steps"]) / 1e3, np.array(row["curves"])
        panel.plot(steps, curves.mean(0), color=colour, label=row["arm"])
        panel.fill_between(steps, curves.min(0), curves.max(0), color=colour, alpha=0.15, linewidth=0)
        panel.set(title=f"{row['map']}, {row['plan']}", ylim=(-0.02, 1.02))
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes[-1]:
        panel.set_xlabel("thousand env steps")
    for panel in axes[:, 0]:
        panel.set_ylabel("greedy win rate")
    axes[0][0].legend(frameon=False)
    figure.savefig(path, dpi=110)
    print(f"drawn in {path}")


def main() -> None:
    """Train all arms, write down and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser, Path("results/distil"))
    args = parser.parse_args()
    todo = [job for rate in RATES for job in jobs(f"lr {rate}", plan(rate), args.out, args.only)]
    data = DOCS / "data" / "distil.json"
    write(data, make(todo, args.jobs, args.minutes))
    draw(json.loads(data.read_text()), DOCS / "images" / "distil.png")


if __name__ == "__main__":
    main()

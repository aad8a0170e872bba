"""The curves on the pages of algorithms, from docs/data: `python docs/curves.py` draws them."""

import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from phalanx.report.plots import COLOURS

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
PAGES = {"ippo": ["ippo"], "mappo": ["mappo"], "a2c": ["ia2c", "maa2c"], "coma": ["coma"]}
PAGES |= {name: [name] for name in ("mappo_distil", "qmix", "vdn")}


def runs(battle: str) -> dict[str, dict[str, Any]]:
    """What each algorithm did on one battle, by `benchmarks/wins.py`."""
    rows = json.loads((HERE / "data" / "battle_wins.json").read_text())
    return {row["arm"]: row for row in rows if row["map"] == battle and row["arm"] != "mappo_512"}


def draw(page: str, battle: str = "3m") -> None:
    """Greedy wins on one battle: a page's own algorithms with every seed, the others in grey."""
    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    for arm, row in sorted(runs(battle).items(), key=lambda item: item[0] in PAGES[page]):
        steps, curves = np.array(row["steps"]) / 1e6, np.array(row["curves"])
        if arm in PAGES[page]:
            colour = COLOURS[PAGES[page].index(arm)]
            axes.plot(steps, curves.T, color=colour, alpha=0.35, linewidth=0.8)
            axes.plot(steps, curves.mean(0), color=colour, linewidth=2, label=arm)
        else:
            axes.plot(steps, curves.mean(0), color="#bbbbbb", linewidth=1)
    axes.plot([], [], color="#bbbbbb", linewidth=1, label="the others")
    shortest = min(row["steps"][-1] for row in runs(battle).values()) / 1e6
    axes.set(xlabel="million env steps", ylabel="greedy win rate", title=f"battle/{battle}")
    axes.set(xlim=(0, shortest), ylim=(-0.02, 1.02))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(HERE / "images" / f"curve_{page}.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    for each in PAGES:
        draw(each)

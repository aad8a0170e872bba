"""Learning curves: a line for the mean over seeds and a band for their range."""

from pathlib import Path
from typing import Any

import numpy as np

from phalanx.errors import PhalanxError
from phalanx.report import metrics

# Okabe and Ito's colours, which most colour-blind people can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
PANELS = {
    "eval/return": "greedy return",
    "eval/win_rate": "greedy win rate",
    "train/return": "sampled return while training",
}


def curve(rows: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Env steps (P,) and the metric of every seed (S, P); None when the run does not have it.

    Only points that all seeds have are kept.
    """
    by_seed: dict[int, dict[int, float]] = {}
    for row in rows:
        if row.get(name) is not None:
            by_seed.setdefault(row["seed"], {})[row["env_steps"]] = row[name]
    if not by_seed:
        return None
    steps = sorted(set.intersection(*(set(points) for points in by_seed.values())))
    return np.array(steps), np.array([[points[step] for step in steps] for points in by_seed.values()])


def label(folder: Path, among: list[Path]) -> str:
    """How a run is called in a legend: the part of its path that tells it from the others."""
    parts = folder.resolve().parts[-4:]
    others = [each.resolve().parts[-4:] for each in among]
    same = [
        i
        for i in range(len(parts))
        if len(parts) == 4 and all(len(o) == 4 and o[i] == parts[i] for o in others)
    ]
    return "/".join(part for i, part in enumerate(parts) if i not in same) or folder.name


def plot(folders: list[Path], out: Path) -> list[Path]:
    """Draw the curves of some runs into `out`.png and .svg; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = {folder: metrics.read(folder) for folder in folders}
    panels = [name for name in PANELS if any(curve(rows, name) is not None for rows in found.values())]
    if not panels:
        raise PhalanxError(f"nothing to plot yet in {', '.join(str(folder) for folder in folders)}")
    with plt.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(
            1, len(panels), figsize=(4.6 * len(panels), 3.4), squeeze=False, layout="constrained"
        )
        for axis, name in zip(axes[0], panels, strict=True):
            for i, (folder, rows) in enumerate(found.items()):
                points = curve(rows, name)
                if points is None:
                    continue
                steps, values = points
                colour = COLOURS[i % len(COLOURS)]
                seeds = f" ({len(values)} seeds)" if len(values) > 1 else ""
                axis.plot(steps, values.mean(0), color=colour, label=label(folder, folders) + seeds)
                if len(values) > 1:
                    axis.fill_between(
                        steps, values.min(0), values.max(0), color=colour, alpha=0.2, linewidth=0
                    )
            axis.set_title(PANELS[name])
            axis.set_xlabel("env steps")
            axis.xaxis.set_major_formatter(
                lambda x, _: f"{x / 1e6:g}M" if x >= 1e6 else f"{x / 1e3:g}k" if x else "0"
            )
            axis.grid(alpha=0.25)
            if name.endswith("win_rate"):
                axis.set_ylim(-0.03, 1.03)
        axes[0][0].legend(frameon=False, fontsize=8)
        files = [out.with_name(out.name + ending) for ending in (".png", ".svg")]
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            for file in files:
                figure.savefig(file, dpi=150)
        except OSError as error:
            raise PhalanxError(f"cannot write {out}: {error.strerror}") from None
        finally:
            plt.close(figure)
    return files

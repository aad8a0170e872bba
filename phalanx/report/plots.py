"""Learning curves: a line for the mean over seeds and a band for their range."""

from pathlib import Path
from typing import Any

import numpy as np

from phalanx.errors import PhalanxError
from phalanx.registry import read_toml
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


def thousands(count: float, _: Any = None) -> str:
    """A number of env steps, as axes show it: 500k, 2M."""
    return f"{count / 1e6:g}M" if count >= 1e6 else f"{count / 1e3:g}k" if count else "0"


def labels(folders: list[Path]) -> list[str]:
    """How a legend calls runs: algorithm and environment, and the folder where these are not enough."""
    named = []
    for folder in folders:
        run = read_toml(folder / "config.toml").get("run", {})
        named.append(f"{run.get('algorithm', '?')} {run.get('env', '?')}")
    return [
        name if named.count(name) == 1 else f"{name} {folder.name}"
        for name, folder in zip(named, folders, strict=True)
    ]


def plot(folders: list[Path], out: Path) -> list[Path]:
    """Draw the curves of some runs into `out`.png and .svg; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = list(zip(labels(folders), map(metrics.read, folders), strict=True))
    panels = [name for name in PANELS if any(curve(rows, name) is not None for _, rows in found)]
    if not panels:
        raise PhalanxError(f"nothing to plot yet in {', '.join(str(folder) for folder in folders)}")
    with plt.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(
            1, len(panels), figsize=(4.6 * len(panels), 3.4), squeeze=False, layout="constrained"
        )
        for axis, name in zip(axes[0], panels, strict=True):
            for i, (name_of_run, rows) in enumerate(found):
                points = curve(rows, name)
                if points is None:
                    continue
                steps, values = points
                colour = COLOURS[i % len(COLOURS)]
                seeds = f" ({len(values)} seeds)" if len(values) > 1 else ""
                axis.plot(steps, values.mean(0), color=colour, label=name_of_run + seeds)
                if len(values) > 1:
                    axis.fill_between(
                        steps, values.min(0), values.max(0), color=colour, alpha=0.2, linewidth=0
                    )
            axis.set_title(PANELS[name])
            axis.set_xlabel("env steps")
            axis.xaxis.set_major_formatter(thousands)
            axis.grid(alpha=0.25)
            if name.endswith("win_rate"):
                axis.set_ylim(-0.03, 1.03)
        axes[0][0].legend(frameon=False, fontsize=8)
        stem = out.with_suffix("") if out.suffix in (".png", ".svg") else out
        files = [stem.parent / f"{stem.name or 'curves'}{ending}" for ending in (".png", ".svg")]
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            for file in files:
                figure.savefig(file, dpi=150)
        except OSError as error:
            raise PhalanxError(f"cannot write {out}: {error.strerror}") from None
        finally:
            plt.close(figure)
    return files

"""Learning curves: a line for the mean over seeds and a band for their range."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phalanx.errors import PhalanxError, one_line, suggest
from phalanx.report import folder as run_folder
from phalanx.report import metrics

# Okabe and Ito's colours, which most colour-blind people can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
PANELS = {
    "eval/return": "greedy return",
    "eval/win_rate": "greedy win rate",
    "train/return": "sampled return while training",
}
COLUMNS = 3  # panels beside each other
INSIDE = 6  # lines whose legend fits inside a panel

Rows = list[dict[str, Any]]


class Line(NamedTuple):
    """One metric of one run."""

    label: str
    steps: np.ndarray
    """(P,)"""
    values: np.ndarray
    """(S, P)"""


class Panel(NamedTuple):
    """One picture: its title and its lines."""

    title: str
    lines: list[Line]


def curve(rows: Rows, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Env steps (P,) and the metric of every seed (S, P); None when the run does not have it.

    Only points that all seeds have are kept.
    """
    by_seed: dict[int, dict[int, float]] = {}
    for row in rows:
        if row.get(name) is not None:
            if not isinstance(row[name], int | float):
                raise PhalanxError(f"{name} of seed {row['seed']} is not a number: {str(row[name])[:60]!r}")
            by_seed.setdefault(row["seed"], {})[row["env_steps"]] = row[name]
    if not by_seed:
        return None
    steps = sorted(set.intersection(*(set(points) for points in by_seed.values())))
    return np.array(steps), np.array([[points[step] for step in steps] for points in by_seed.values()])


def thousands(count: float, _: Any = None) -> str:
    """A number of env steps, as axes show it: 500k, 2M."""
    return f"{count / 1e6:g}M" if count >= 1e6 else f"{count / 1e3:g}k" if count else "0"


def labels(folders: list[Path]) -> list[str]:
    """Names of runs for a legend: algorithm and environment, and the folder if these are not unique."""
    named = []
    for folder in folders:
        run = run_folder.config(folder).get("run", {})
        named.append(one_line(f"{run.get('algorithm', '?')} {run.get('env', '?')}"))
    return [
        name if named.count(name) == 1 else f"{name} {folder.name}"
        for name, folder in zip(named, folders, strict=True)
    ]


def plot(folders: list[Path], out: Path | None = None, wanted: Sequence[str] = ()) -> list[Path]:
    """Draw curves of some runs to .png and .svg; returns the files.

    `wanted` are metrics of metrics.jsonl, or patterns such as `learn/entropy/*` (default: returns and wins).
    `out` is a path without ending (default: in `plots/`).
    """
    runs = list(zip(labels(folders), map(metrics.read, folders), strict=True))
    if wanted:
        panels = [panel for each in wanted for panel in _panels(each, runs)]
    else:
        found = (Panel(title, _lines([name], runs)) for name, title in PANELS.items())
        panels = [panel for panel in found if panel.lines]
    if not panels:
        raise PhalanxError(f"nothing to plot yet in {', '.join(str(folder) for folder in folders)}")
    return _write(panels, out or _default(folders, wanted))


def _panels(wanted: str, runs: list[tuple[str, Rows]]) -> list[Panel]:
    """The pictures of a metric or a pattern: of one run all in one, of several runs one for each metric."""
    known = dict.fromkeys(name for _, rows in runs for row in rows for name in row if name != "seed")
    names = [wanted] if wanted in known else [name for name in known if fnmatchcase(name, wanted)]
    if not names:
        groups = {name: "/".join([*name.split("/")[:2], "*"]) for name in known if name.count("/") > 1}
        near = suggest(wanted, {*known, *groups.values()}) or suggest(
            wanted, {groups.get(name, name) for name in known}
        )
        raise PhalanxError(f"there is no metric {wanted!r} in these runs.{near}")
    if len(runs) == 1 and len(names) > 1:
        panels = [Panel(wanted.removesuffix("/*"), _lines(names, runs, wanted.partition("*")[0]))]
    else:
        panels = [Panel(PANELS.get(name, name), _lines([name], runs)) for name in names]
    for panel in panels:
        if not panel.lines:
            raise PhalanxError(f"{panel.title} has no values yet in these runs")
    return panels


def _lines(names: list[str], runs: list[tuple[str, Rows]], prefix: str | None = None) -> list[Line]:
    """A line for each run and metric with values, named after its run, or its metric without `prefix`."""
    lines = []
    for run, rows in runs:
        for name in names:
            if (points := curve(rows, name)) is not None:
                seeds = f" ({len(points[1])} seeds)" if len(points[1]) > 1 else ""
                lines.append(Line((run if prefix is None else name.removeprefix(prefix)) + seeds, *points))
    return lines


def _default(folders: list[Path], wanted: Sequence[str]) -> Path:
    """The default path of a picture: in the run's folder, named after its content."""
    name = re.sub(r"[^\w.]+", "-", "-".join(wanted)).strip("-")[:80] or "curves"
    return (folders[0] / "plots" if len(folders) == 1 else Path("plots")) / name


def _write(panels: list[Panel], out: Path) -> list[Path]:
    """Draw panels into `out`.png and .svg."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    stem = out.with_suffix("") if out.suffix in (".png", ".svg") else out
    files = [stem.parent / f"{stem.name or 'curves'}{ending}" for ending in (".png", ".svg")]
    style: dict[Any, Any] = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context({**style, "text.parse_math": False}):  # a name may hold dollar signs
        figure, axes = plt.subplots(
            rows, columns, figsize=(4.6 * columns, 3.4 * rows), squeeze=False, layout="constrained"
        )
        in_legend = []
        for axis, panel in zip(axes.flat, panels, strict=False):
            _draw(axis, panel)
            names = [line.label for line in panel.lines]
            if names not in in_legend:  # the same lines need no second legend
                _legend(axis, len(names))
                in_legend.append(names)
        for axis in axes.flat[len(panels) :]:
            axis.axis("off")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            for file in files:
                figure.savefig(file, dpi=150)
        except OSError as error:
            raise PhalanxError(f"cannot write {out}: {error.strerror}") from None
        finally:
            plt.close(figure)
    return files


def _draw(axis: Any, panel: Panel) -> None:
    for line, colour in zip(panel.lines, _colours(len(panel.lines)), strict=True):
        axis.plot(line.steps, line.values.mean(0), color=colour, label=line.label)
        if len(line.values) > 1:
            low, high = line.values.min(0), line.values.max(0)
            axis.fill_between(line.steps, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.set_title(panel.title)
    axis.set_xlabel("env steps")
    axis.xaxis.set_major_formatter(thousands)
    axis.grid(alpha=0.25)
    if panel.title.endswith(("win_rate", "win rate")):
        axis.set_ylim(-0.03, 1.03)


def _colours(lines: int) -> list[Any]:
    if lines <= len(COLOURS):
        return list(COLOURS[:lines])
    import matplotlib

    return [matplotlib.colormaps["viridis"](i / lines) for i in range(lines)]


def _legend(axis: Any, lines: int) -> None:
    if lines <= INSIDE:
        axis.legend(frameon=False, fontsize=8)
    else:
        axis.legend(
            frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), ncols=1 + (lines - 1) // 18
        )

"""The pictures of a result: learning curves, intervals, profiles; as files and as parts of a page."""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phalanx.errors import PhalanxError
from phalanx.report import statistics as st
from phalanx.report.compare import KINDS, Comparison
from phalanx.report.compare.model import Cell
from phalanx.report.plots import COLOURS, thousands

DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))  # arms differ also for who sees no colours
INK, FAINT = "#1a1a1a", "#b8b8b8"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.parse_math": False,  # a name may hold dollar signs
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.color": FAINT,
    "grid.alpha": 0.5,
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "lines.linewidth": 2,
    "lines.markersize": 7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "phalanx",
}
SIZE, WIDE = (4.6, 3.3), (6.0, 3.9)
INSIDE = 5  # arms that a legend inside of a picture has room for


class Panel(NamedTuple):
    """One picture: what it is called and how it is drawn on an axis."""

    title: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = SIZE


def metric_name(metric: str) -> str:
    """A readable name of a metric such as `eval/win_rate`."""
    kind, _, name = metric.partition("/")
    return f"{KINDS[kind]} {name.replace('_', ' ')}"


def curves(result: Comparison) -> list[Panel]:
    """Learning curves, a panel for each task: mean over seeds, its interval, and faintly each seed."""

    def panel(task: str) -> Panel:
        def draw(axis: Any) -> None:
            for i, arm in enumerate(result.arms):
                cell = result.cells[arm, task]
                colour, dash = look(i)
                counts = None if cell.curve_episodes is None else [cell.curve_episodes]
                found = st.bootstrap(st.mean, [cell.curve.T], counts, draws=st.DRAWS // 2)
                for seed in cell.curve:
                    axis.plot(cell.steps, seed, color=colour, alpha=0.22, linewidth=_relative(0.4))
                axis.fill_between(cell.steps, found.low, found.high, color=colour, alpha=0.18, linewidth=0)
                axis.plot(cell.steps, found.value, color=colour, linestyle=dash, label=arm)
            axis.set(xlabel="env steps", ylabel=metric_name(result.metric[task]))
            axis.xaxis.set_major_formatter(thousands)
            if result.metric[task].endswith("win_rate"):
                axis.set_ylim(-0.03, 1.03)
            else:
                axis.set_ylim(*limits([result.cells[arm, task] for arm in result.arms]))

        return Panel(task, draw)

    return [panel(task) for task in result.tasks]


def limits(cells: list[Cell]) -> tuple[float, float]:
    """Limits of returns. Untrained teams that are far off lie outside, or nothing else could be seen."""
    every = np.concatenate([cell.curve.ravel() for cell in cells])
    later = np.concatenate([cell.curve[:, cell.steps > cell.steps[-1] / 10].ravel() for cell in cells])
    every, later = every[np.isfinite(every)], later[np.isfinite(later)]
    if not len(every):
        return 0.0, 1.0
    later = later if len(later) else every
    low, high = later.min(), later.max()
    room = max(high - low, 1e-3 * abs(high), 1e-6)
    return max(every.min(), low - room) - room / 15, min(every.max(), high + room) + room / 15


def aggregates(result: Comparison) -> list[Panel]:
    """The figures over all tasks."""
    tall, taller = 1 + 0.75 * len(result.arms), 1 + 0.5 * len(result.pairs)
    panels = [
        Panel("Normalised score", lambda axis: _intervals(axis, result), (WIDE[0], max(WIDE[1], tall))),
        Panel(
            "Probability of improvement",
            lambda axis: _improvement(axis, result),
            (WIDE[0], max(WIDE[1], taller)),
        ),
        Panel("Performance profile", lambda axis: _profile(axis, result), WIDE),
    ]
    if len(result.tasks) > 1:
        panels.append(Panel("Sample efficiency over all tasks", lambda axis: _efficiency(axis, result), WIDE))
    return panels


def look(arm: int) -> tuple[str, Any]:
    """The colour and dashes of an arm: no two of the first 32 arms have both in common."""
    again, colour = divmod(arm, len(COLOURS))
    return COLOURS[colour], DASHES[(arm + again) % len(DASHES)]


def _relative(width: float) -> float:
    """A width as a multiple of the style's line width."""
    from matplotlib import rcParams

    return width * rcParams["lines.linewidth"]


def _whisker(axis: Any, y: float, interval: st.Interval, colour: str, marker: str = "o") -> None:
    if not np.isnan(interval.low):
        axis.plot(
            [interval.low, interval.high],
            [y, y],
            color=colour,
            linewidth=_relative(3),
            alpha=0.3,
            solid_capstyle="round",
        )
    axis.plot(interval.value, y, marker, color=colour)


def _intervals(axis: Any, result: Comparison) -> None:
    markers = {"IQM": "o", "mean": "D", "median": "s"}
    for i, arm in enumerate(result.arms):
        for j, (name, interval) in enumerate(result.aggregates[arm].items()):
            _whisker(axis, i + 0.26 * (j - 1), interval, look(i)[0], markers[name])
    for name, marker in markers.items():
        axis.plot([], [], marker, color=INK, label=name)
    axis.set(
        yticks=range(len(result.arms)),
        yticklabels=result.arms,
        ylim=(len(result.arms) - 0.4, -0.6),
    )
    axis.set_xlabel("over all tasks, with 95 % intervals")
    axis.grid(axis="y", visible=False)
    axis.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.15))


def _improvement(axis: Any, result: Comparison) -> None:
    axis.axvline(0.5, color=INK, linewidth=1, linestyle=(0, (2, 2)))
    for i, pair in enumerate(result.pairs):
        _whisker(axis, i, pair.improvement, look(result.arms.index(pair.better))[0])
    named = [f"{pair.better}\nover {pair.other}" for pair in result.pairs]
    axis.set(yticks=range(len(named)), yticklabels=named, ylim=(len(named) - 0.4, -0.6), xlim=(-0.03, 1.03))
    axis.set_xlabel("0.5 is no difference")
    axis.grid(axis="y", visible=False)


def _profile(axis: Any, result: Comparison) -> None:
    scores = np.concatenate([each for arm in result.arms for each in result.scores(arm)])
    thresholds = np.linspace(min(0, scores.min()), max(1, scores.max()), 101)
    for i, arm in enumerate(result.arms):
        colour, dash = look(i)
        found = st.profile_interval(result.scores(arm), thresholds)
        axis.fill_between(thresholds, found.low, found.high, color=colour, alpha=0.18, linewidth=0)
        axis.plot(thresholds, found.value, color=colour, linestyle=dash, label=arm)
    axis.set(xlabel="normalised score", ylabel="share of seeds above it", ylim=(-0.03, 1.03))


def _efficiency(axis: Any, result: Comparison) -> None:
    same = len(set(result.budgets)) == 1
    for i, arm in enumerate(result.arms):
        colour, dash = look(i)
        shares, found = result.efficiency(arm)
        x = shares * result.budgets[0] if same else 100 * shares
        axis.fill_between(x, found.low, found.high, color=colour, alpha=0.18, linewidth=0)
        axis.plot(x, found.value, color=colour, linestyle=dash, label=arm)
    axis.set(xlabel="env steps" if same else "% of each task's budget", ylabel="IQM of normalised score")
    if same:
        axis.xaxis.set_major_formatter(thousands)


@contextmanager
def drawing(
    rows: int, columns: int, size: tuple[float, float], style: Mapping[Any, Any] = STYLE
) -> Iterator[tuple[Any, Any]]:
    """A figure in the style of the reports, or in another one, and its axes, (rows, columns)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(dict(style)):
        figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        try:
            yield figure, axes
        finally:
            plt.close(figure)


def save(panels: list[Panel], stem: Path) -> list[Path]:
    """Draw panels into one picture, `stem`.png and .svg."""
    columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
    rows = -(-len(panels) // columns)
    width, height = (max(panel.size[i] for panel in panels) for i in (0, 1))
    files = [stem.with_name(stem.name + ending) for ending in (".png", ".svg")]
    with drawing(rows, columns, (width * columns, height * rows)) as (figure, axes):
        for axis, panel in zip(axes.flat, panels, strict=False):
            panel.draw(axis)
            axis.set_title(panel.title)
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        if len(labels) > INSIDE:
            figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 2 * columns))
        elif labels and not axes.flat[0].get_legend():
            axes.flat[0].legend()
        try:
            for file in files:
                figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
        except OSError as error:
            raise PhalanxError(f"cannot write {stem.parent}: {error.strerror}") from None
    return files


def inline(panel: Panel, name: str) -> str:
    """A panel as SVG for a page; it uses the page's colours, light or dark."""
    text = io.StringIO()
    with drawing(1, 1, panel.size) as (figure, axes):
        panel.draw(axes[0][0])
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r'width="[\d.]+pt" height="[\d.]+pt"',
        lambda _: f'role="img" aria-label="{escape(panel.title)}"',
        svg,
        count=1,
    )
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for hexadecimal, variable in {INK: "ink", FAINT: "faint"}.items():
        svg = svg.replace(hexadecimal.lower(), f"var(--{variable})")
    for i, colour in enumerate(COLOURS):
        svg = svg.replace(colour.lower(), f"var(--arm-{i})")
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)  # ids are of the whole page
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)

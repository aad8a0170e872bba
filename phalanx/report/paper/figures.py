"""The figures of a paper: vector graphics of one column's width, with serif fonts."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import PhalanxError
from phalanx.report import figures
from phalanx.report.compare import Comparison
from phalanx.report.paper.latex import printable

WIDTH = 3.3  # inches: a column of a page with two, or half of a page with one
LOW, SHRUNK = 2.1, 0.62  # the least height, and the height as a part of that in a report
LONGEST = 30  # characters of a name
LINE = 62  # characters of a legend that fit beside each other
STYLE = {
    **figures.STYLE,
    "font.family": "serif",
    "font.serif": ["STIXGeneral"],  # comes with Matplotlib, and looks like Times
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.handlelength": 2.2,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.1,
    "legend.borderpad": 0.1,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "axes.linewidth": 0.6,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.fonttype": "path",  # looks the same where the font is missing
}


class Figure(NamedTuple):
    """A figure that was written: its file without ending, and what it shows."""

    name: str
    title: str


def write(result: Comparison, folder: Path) -> tuple[list[Figure], list[Figure]]:
    """Draw all figures into a folder as .pdf and .svg: learning curves, and figures over all tasks."""
    result = _printable(result)
    names = _names("curve", result.tasks)
    curves = [_save(panel, folder, name) for panel, name in zip(figures.curves(result), names, strict=True)]
    panels = figures.aggregates(result)
    over = [
        _save(panel, folder, name)
        for panel, name in zip(panels, _names("all", [panel.title for panel in panels]), strict=True)
    ]
    return curves, over


def _printable(result: Comparison) -> Comparison:
    """The comparison with shorter names, in characters of the figures' font."""
    arms, tasks = _short(arm for arm, _ in result.cells), _short(task for _, task in result.cells)
    return Comparison(
        result.title,
        {(arms[arm], tasks[task]): cell for (arm, task), cell in result.cells.items()},
        {tasks[task]: metric for task, metric in result.metric.items()},
        {tasks[task]: bounds for task, bounds in result.bounds.items()},
        control=arms[result.control] if result.control else None,
        threshold=result.threshold,
    )


def _short(names: Iterable[str]) -> dict[str, str]:
    """Shorten names for figures; all stay different."""
    found: dict[str, str] = {}
    for i, name in enumerate(dict.fromkeys(names)):
        plain = printable(name)
        short = plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 3]}..."
        found[name] = short if short not in found.values() else f"{short} ({i})"
    return found


def _names(begin: str, titles: list[str]) -> Iterator[str]:
    """File names that are safe in LaTeX and on every disk, each only once."""
    seen: set[str] = set()
    for i, title in enumerate(titles):
        plain = "-".join([begin, *re.findall(r"[a-z0-9]+", title.lower())])[:60]
        name = plain if plain not in seen else f"{plain}-{i}"
        seen.add(name)
        yield name


def _save(panel: figures.Panel, folder: Path, name: str) -> Figure:
    """Draw a panel with its legend above it."""
    height = max(LOW, SHRUNK * panel.size[1])
    with figures.drawing(1, 1, (WIDTH, height), STYLE) as (drawn, axes):
        axis = axes[0][0]
        panel.draw(axis)
        axis.set_title(panel.title)
        _legend(drawn, axis)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            drawn.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None, "Title": panel.title})
            drawn.savefig(folder / f"{name}.svg", metadata={"Date": None})
        except OSError as error:
            raise PhalanxError(f"cannot write {folder}: {error.strerror}") from None
    return Figure(name, panel.title)


def _legend(drawn: Any, axis: Any) -> None:
    """Draw the legend above the axis, in as many columns as fit."""
    if own := axis.get_legend():
        own.remove()
    handles, names = axis.get_legend_handles_labels()
    if names:
        widths = [len(name) + 8 for name in names]  # in characters, with the line before the name
        fit = len(names) if sum(widths) <= LINE else max(1, LINE // max(widths))
        drawn.legend(handles, names, loc="outside upper center", ncols=fit)

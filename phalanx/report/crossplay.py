"""Cross-play as a table in the terminal, a picture, a file and one HTML page."""

import json
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phalanx.errors import PhalanxError
from phalanx.report import figures
from phalanx.report.comparison import STYLE
from phalanx.report.ratings import Table
from phalanx.report.statistics import Interval


class CrossPlay(NamedTuple):
    """Teams that played each other."""

    env: str
    sides: tuple[str, str]
    teams: list[str]
    episodes: int
    """games of each pair on each side"""
    table: Table
    returns: dict[tuple[int, int], tuple[Interval, Interval]]
    """mean return of the agents of the first and of the second side"""
    has_win: bool

    @property
    def rows(self) -> list[int]:
        """The teams that play the first side."""
        return sorted({i for i, _ in self.returns})

    @property
    def columns(self) -> list[int]:
        """The teams that play the second side."""
        return sorted({j for _, j in self.returns})

    def verdicts(self) -> list[str]:
        """One line for each pair of teams."""
        lines = []
        for (i, j), interval in self.table.pairs.items():
            rate = f"{_percent(interval)} of games"
            if interval.low > 0.5:
                lines.append(f"{self.teams[i]} beats {self.teams[j]}: {rate}")
            elif interval.high < 0.5:
                other = Interval(1 - interval.value, 1 - interval.high, 1 - interval.low)
                lines.append(f"{self.teams[j]} beats {self.teams[i]}: {_percent(other)} of games")
            else:
                lines.append(
                    f"no difference between {self.teams[i]} and {self.teams[j]} can be shown: {rate}"
                )
        return lines

    def cell(self, i: int, j: int, whole: bool = True) -> str:
        """The score of team i on the first side against team j; `whole`: with intervals."""
        if (i, j) not in self.returns:
            return "-"
        if not self.has_win:
            form = "{:.3g} [{:.3g}, {:.3g}]" if whole else "{:.3g}"
            return " / ".join(form.format(*side) for side in self.returns[i, j])
        rate = _percent(self.table.cells[i, j])
        return rate if whole else rate.partition(" [")[0]

    def ranking(self) -> list[tuple[str, Interval]]:
        """Teams and their ratings, the best first."""
        rated = zip(self.teams, self.table.ratings, strict=False)
        return sorted(rated, key=lambda one: -one[1].value)


def _percent(interval: Interval) -> str:
    return "{:.0f} % [{:.0f}, {:.0f}]".format(*(100 * each for each in interval))


def text(result: CrossPlay, width: int) -> Any:
    """The matrix as a table for a terminal; without intervals and with numbered columns if it is too wide."""
    from rich.table import Table as RichTable

    first, second = result.sides
    heads = [first, *(result.teams[j] for j in result.columns)]
    rows = [[result.teams[i], *(result.cell(i, j) for j in result.columns)] for i in result.rows]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    caption = None
    if sum(widths) + 3 * len(widths) + 1 > width:
        numbers = {team: str(n) for n, team in enumerate(heads[1:], 1)}
        shown = {row[0] for row in rows}
        others = [f"{number} {team}" for team, number in numbers.items() if team not in shown]
        caption = "; ".join([*others, "intervals are in the page"])
        heads = [first, *numbers.values()]
        rows = [
            [f"{numbers.get(name, '')} {name}".lstrip(), *(result.cell(i, j, False) for j in result.columns)]
            for i, (name, *_) in zip(result.rows, rows, strict=True)
        ]
    title = f"{result.env}: rows play {first}, columns play {second}"
    table = RichTable(*heads, title=title, caption=caption)
    for row in rows:
        table.add_row(*row)
    return table


def lines(result: CrossPlay) -> list[str]:
    """The lines below the table."""
    found = [
        f"rating {interval.value:+.0f} [{interval.low:+.0f}, {interval.high:+.0f}]  {name}"
        for name, interval in result.ranking()
    ]
    return [*found, *(result.verdicts() if result.has_win else [])]


def summary(result: CrossPlay) -> dict[str, Any]:
    """All figures, for other programs."""
    named = {
        f"{result.teams[i]} | {result.teams[j]}": {
            "returns": [_known(each.value) for each in result.returns[i, j]],
            "return_intervals": [[_known(each.low), _known(each.high)] for each in result.returns[i, j]],
            **({"score": result.table.cells[i, j]._asdict()} if result.has_win else {}),
        }
        for i, j in result.returns
    }
    return {
        "env": result.env,
        "sides": result.sides,
        "teams": result.teams,
        "episodes": result.episodes,
        "games": named,
        "ratings": {name: interval._asdict() for name, interval in result.ranking()},
        "verdicts": lines(result)[len(result.ranking()) :],
    }


def _known(value: float) -> float | None:
    """A number for JSON, which has no NaN: the script has no return."""
    return None if np.isnan(value) else value


def write(result: CrossPlay, out: Path, command: str) -> list[Path]:
    """Write the page, its picture and its data into a folder; the page first."""
    page = out / "crossplay.html"
    try:
        out.mkdir(parents=True, exist_ok=True)
        page.write_text(html(result, command), encoding="utf-8")
        (out / "crossplay.json").write_text(json.dumps(summary(result), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise PhalanxError(f"cannot write {out}: {error.strerror}") from None
    picture(result, out / "crossplay.png")
    return [page, out / "crossplay.png", out / "crossplay.json"]


def values(result: CrossPlay) -> np.ndarray:
    """(rows, columns): the score of the first side, NaN for pairs that did not play."""
    grid = np.full((len(result.rows), len(result.columns)), np.nan)
    for (i, j), (mine, _) in result.returns.items():
        place = result.rows.index(i), result.columns.index(j)
        grid[place] = result.table.cells[i, j].value if result.has_win else mine.value
    return grid


def picture(result: CrossPlay, path: Path) -> None:
    """The matrix as a picture."""
    grid = values(result)
    size = (2.5 + 0.9 * grid.shape[1], 2 + 0.7 * grid.shape[0])
    low, high = (0, 1) if result.has_win else (None, None)
    with figures.drawing(1, 1, size) as (figure, axes):
        axis = axes[0, 0]
        shown = axis.imshow(grid, cmap="RdYlBu", vmin=low, vmax=high)
        for i, j in np.argwhere(~np.isnan(grid)):
            label = f"{100 * grid[i, j]:.0f}" if result.has_win else f"{grid[i, j]:.3g}"
            dark = result.has_win and abs(grid[i, j] - 0.5) > 0.35
            axis.text(j, i, label, ha="center", va="center", color="white" if dark else "black")
        names = [[result.teams[k] for k in each] for each in (result.columns, result.rows)]
        axis.set_xticks(range(len(names[0])), names[0], rotation=30, ha="right")
        axis.set_yticks(range(len(names[1])), names[1])
        axis.grid(False)
        axis.set_xlabel(result.sides[1])
        axis.set_ylabel(result.sides[0])
        axis.set_title(f"{result.env}: {'wins %' if result.has_win else 'return'} of {result.sides[0]}")
        figure.colorbar(shown)
        figure.savefig(path, dpi=120)


def html(result: CrossPlay, command: str) -> str:
    """One page without scripts or network."""
    first, second = result.sides
    head = "".join(f"<th>{escape(result.teams[j])}</th>" for j in result.columns)
    body = "".join(
        f"<tr><th>{escape(result.teams[i])}</th>"
        + "".join(f"<td>{escape(result.cell(i, j))}</td>" for j in result.columns)
        + "</tr>"
        for i in result.rows
    )
    ratings = "".join(
        f"<tr><th>{escape(name)}</th><td>{r.value:+.0f} [{r.low:+.0f}, {r.high:+.0f}]</td></tr>"
        for name, r in result.ranking()
    )
    verdicts = "".join(f"<li>{escape(line)}</li>" for line in (result.verdicts() if result.has_win else []))
    what = "wins, draws as half" if result.has_win else f"mean returns of {first} / {second}"
    title = escape(f"Cross-play on {result.env}")
    rated = (
        f"<h2>Ratings</h2><p>Bradley-Terry, on the scale of Elo.</p><table>{ratings}</table>"
        if ratings
        else ""
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body><main><h1>{title}</h1>"
        f"<p>Rows play {escape(first)}, columns play {escape(second)}: {escape(what)}, of {result.episodes} "
        f"games for each pair and side, with 95 % intervals.</p>"
        f"<table><tr><th></th>{head}</tr>{body}</table><ul>{verdicts}</ul>{rated}"
        f"<h2>Command</h2><pre>{escape(command)}</pre></main></body></html>\n"
    )

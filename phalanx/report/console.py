"""The output of a running command: a progress bar in a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from phalanx.report import plots

MAIN_METRICS = ("return", "return_std", "win_rate", "length")  # what one line shows of an evaluation
MOST_TYPES = 4  # types or teams whose returns it shows as well
BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.-=+*#@"  # the levels of a curve in text; where blocks cannot be printed
WIDTH = 40  # characters of such a curve, at most


def number(value: float) -> str:
    """Short and readable: 1,234,567 or 0.0123."""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def megabytes(count: int) -> str:
    """Bytes as people read them."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Columns of text, aligned."""
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def main_metrics(values: Mapping[str, Any]) -> dict[str, float]:
    """The metrics for one line about an evaluation: the main ones, and returns by type if there are few."""
    by_type = [name for name in values if name.startswith("return/")]
    names = [*MAIN_METRICS, *by_type] if len(by_type) <= MOST_TYPES else MAIN_METRICS
    return {name: values[name] for name in names if name in values}


def text_curve(
    values: Sequence[float] | np.ndarray, low: float, high: float, encoding: str | None = "utf-8"
) -> str:
    """Values as a line of blocks between `low` and `high`; in plain ASCII if `encoding` has no blocks."""
    try:
        BLOCKS.encode(encoding or "ascii")
        levels = BLOCKS
    except (UnicodeEncodeError, LookupError):
        levels = PLAIN
    # Many values share a character: each shows the mean of its part.
    parts = np.array_split(np.asarray(values, float), min(len(values), WIDTH))
    heights = (np.array([part.mean() for part in parts]) - low) / max(high - low, 1e-12)
    return "".join(levels[round(height * (len(levels) - 1))] for height in np.clip(heights, 0, 1))


class Console:
    """Prints the progress of a run. With `quiet` it prints only warnings."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self._bar = None
        self._live = not quiet and sys.stdout.isatty()

    def say(self, *lines: str) -> None:
        """Print lines, above the progress bar if there is one."""
        if self.quiet:
            return
        for line in lines:
            if self._bar is not None:
                self._bar.console.print(line, markup=False, highlight=False)
            else:
                print(line, flush=True)

    def begin(self, done: int, total: int) -> None:
        """Start the progress bar."""
        if not self._live:
            return
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.fields[steps]}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:.0f}%  {task.fields[pace]}"),
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=total, completed=done, steps="", pace="")

    def progress(self, done: int, rate: float, left: float, shares: str = "") -> None:
        """Update the bar: env steps, env steps per second (all seeds), seconds left, shares of time."""
        if self._bar is not None:
            pace = f"{number(round(rate))} steps/s  {duration(left)} left" + (
                f"  ({shares})" if shares else ""
            )
            self._bar.update(self._task, completed=done, steps=f"{done:,} env steps", pace=pace)

    def evaluation(self, done: int, rate: float, left: float, metrics: Mapping[str, float]) -> None:
        """Report the means over seeds of one evaluation: a line, above the bar if there is one."""
        shown = "  ".join(f"{name} {number(value)}" for name, value in metrics.items())
        pace = f"{round(rate):>9,} steps/s  {duration(left):>7} left" if rate else " " * 31
        self.say(
            f"{done:>10,}  {shown}" if self._bar is not None else f"{done:>12,} env steps  {pace}  {shown}"
        )

    def curve(self, rows: list[dict[str, Any]]) -> None:
        """Print the curve of greedy evaluations, win rate or else return, as the mean over seeds."""
        for name in ("win_rate", "return"):
            found = plots.curve(rows, f"eval/{name}")
            if found is not None and len(found[0]):
                break
        else:
            return
        steps, values = found[0], found[1].mean(axis=0)
        low, high = (0, 1) if name == "win_rate" else (values.min(), values.max())
        drawn = text_curve(values, low, high, getattr(sys.stdout, "encoding", None))
        seeds = f", mean of {len(found[1])} seeds" if len(found[1]) > 1 else ""
        self.say(
            f"{name}  {number(float(values[0]))} {drawn} {number(float(values[-1]))}  "
            f"(greedy evaluations, {steps[0]:,} to {steps[-1]:,} env steps{seeds})"
        )

    def end(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

"""What a run says while it runs: a progress bar on a terminal, plain lines anywhere else."""

import sys
from collections.abc import Iterable, Mapping


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


class Console:
    """Shows a run. With `quiet` it says nothing but warnings."""

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

    def progress(self, done: int, rate: float, left: float) -> None:
        """Move the bar: env steps so far, env steps a second (all seeds), seconds left."""
        if self._bar is not None:
            pace = f"{number(round(rate))} steps/s  {duration(left)} left"
            self._bar.update(self._task, completed=done, steps=f"{done:,} env steps", pace=pace)

    def evaluation(self, done: int, rate: float, left: float, metrics: Mapping[str, float]) -> None:
        """Report the means over seeds of one evaluation: a line, above the bar if there is one."""
        shown = "  ".join(f"{name} {number(value)}" for name, value in metrics.items())
        pace = f"{round(rate):>9,} steps/s  {duration(left):>7} left" if rate else " " * 31
        self.say(
            f"{done:>10,}  {shown}" if self._bar is not None else f"{done:>12,} env steps  {pace}  {shown}"
        )

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

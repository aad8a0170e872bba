"""The plan of an experiment as a table for a terminal."""

from typing import Any

from phalanx.experiment.planner import Planned
from phalanx.report.console import duration, megabytes
from phalanx.report.plots import thousands


def seconds_left(planned: list[Planned], jobs: int) -> float | None:
    """For all runs, some at a time; None if one was never measured."""
    left = [row.seconds for row in planned if row.state != "done"]
    return None if None in left else sum(each or 0 for each in left) / jobs


def bill(planned: list[Planned], jobs: int, price: float) -> str:
    """What the rest of a plan costs at `price` an hour, as a sentence."""
    seconds = seconds_left(planned, jobs)
    if seconds is None:
        return "the cost is not known: some runs were never measured"
    hours = seconds / 3600
    return f"{hours:.2f} hours at {price:g} an hour: {hours * price:.2f}"


def table(planned: list[Planned], jobs: int) -> Any:
    """The plan for a terminal; its last row is the sum."""
    from rich.table import Table

    shown = Table()
    for name in ("arm", "environment", "state", "seeds x steps", "memory", "disk", "time left"):
        shown.add_column(name, overflow="fold")
    for row in planned:
        left = "-" if row.state == "done" else "?" if row.seconds is None else duration(row.seconds)
        steps, sizes = f"{row.seeds} x {thousands(row.steps)}", (megabytes(row.memory), megabytes(row.disk))
        shown.add_row(row.cell.arm, row.cell.env, row.state, steps, *sizes, left)
    todo = [row for row in planned if row.state != "done"]
    left = seconds_left(planned, jobs)
    memory = sum(sorted((row.memory for row in todo), reverse=True)[:jobs])
    shown.add_section()
    shown.add_row(
        f"{len(planned)} runs",
        f"{jobs} at a time" if jobs > 1 else "",
        f"{len(todo)} to do",
        thousands(sum(row.seeds * row.steps for row in planned)),
        megabytes(memory),
        megabytes(sum(row.disk for row in planned)),
        "?" if left is None else duration(left),
    )
    return shown

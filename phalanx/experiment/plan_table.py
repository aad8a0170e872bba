"""The plan of an experiment as a table for a terminal."""

from typing import Any

from phalanx.experiment.planner import Planned
from phalanx.report.console import duration, megabytes
from phalanx.report.plots import thousands


def bill(planned: list[Planned], jobs: int, price: float) -> str:
    """What is left of a plan costs at `price` an hour, as a sentence."""
    todo = [row for row in planned if row.state != "done"]
    if any(row.seconds is None for row in todo):
        return "the cost is not known: some runs were never measured"
    hours = sum(row.seconds or 0 for row in todo) / jobs / 3600
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
    unknown = any(row.seconds is None for row in todo)
    left = sum(row.seconds or 0 for row in todo) / jobs
    memory = sum(sorted((row.memory for row in todo), reverse=True)[:jobs])
    shown.add_section()
    shown.add_row(
        f"{len(planned)} runs",
        f"{jobs} at a time" if jobs > 1 else "",
        f"{len(todo)} to do",
        thousands(sum(row.seeds * row.steps for row in planned)),
        megabytes(memory),
        megabytes(sum(row.disk for row in planned)),
        "?" if unknown else duration(left),
    )
    return shown

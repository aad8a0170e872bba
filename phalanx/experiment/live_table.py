"""How the runs of an experiment stand, as a table for a terminal."""

from typing import Any

from phalanx.experiment.cell import Cell
from phalanx.experiment.lock import is_locked
from phalanx.experiment.runner import Runner
from phalanx.report import metrics
from phalanx.report.plots import thousands

TAIL = 1 << 16  # bytes of metrics that are read


def live_table(runner: Runner) -> Any:
    """The cells of an experiment while they are made."""
    from rich.table import Table

    shown = Table()
    for name in ("arm", "environment", "state", "env steps", "return", "wins"):
        shown.add_column(name, overflow="fold")
    for cell in runner.experiment.cells:
        seen = latest(cell)
        steps = thousands(int(seen["env_steps"])) if "env_steps" in seen else ""
        shown.add_row(
            cell.arm,
            cell.env,
            standing(runner, cell),
            steps,
            f"{seen['eval/return']:.3g}" if "eval/return" in seen else "",
            f"{seen['eval/win_rate']:.0%}" if "eval/win_rate" in seen else "",
        )
    return shown


def standing(runner: Runner, cell: Cell) -> str:
    """One word for how a cell stands."""
    if cell.name in runner.failures:
        return "failed"
    if cell.state == "done":
        return "done"
    if cell.lock.exists() and is_locked(cell.lock):
        return "running"
    return "queued" if cell.name in runner.submitted else "waiting"


def latest(cell: Cell) -> dict[str, float]:
    """The newest evaluation of a cell, as means over its seeds."""
    try:
        with (cell.folder / metrics.FILE).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    rows = [row for line in lines if (row := metrics.parse(line)) and "eval/return" in row]
    if not rows:
        return {}
    newest = [row for row in rows if row["env_steps"] == rows[-1]["env_steps"]]
    names = [name for name in ("env_steps", "eval/return", "eval/win_rate") if name in newest[0]]
    return {name: sum(row[name] for row in newest) / len(newest) for name in names}

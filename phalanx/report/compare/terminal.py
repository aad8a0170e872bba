"""A comparison as a table for a terminal."""

from typing import Any

from phalanx.report import statistics as st
from phalanx.report.compare.model import Comparison
from phalanx.report.compare.wording import between


def table(result: Comparison) -> Any:
    """The scores for a terminal: means over seeds on every task, and the IQM over all."""
    from rich.markup import escape  # names may hold brackets
    from rich.table import Table

    def stacked(interval: st.Interval) -> str:
        return between(interval).replace(" [", "\n[")

    title = escape(result.title)
    table = Table(
        "arm", *map(escape, result.tasks), "IQM", title=title, title_justify="left", title_style="bold"
    )
    for arm in result.arms:
        tasks = [result.mean(arm, task) for task in result.tasks]
        table.add_row(escape(arm), *map(stacked, [*tasks, result.aggregates[arm]["IQM"]]))
    return table

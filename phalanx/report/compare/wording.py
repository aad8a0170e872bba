"""The conclusions of a comparison, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from phalanx.report import statistics as st
from phalanx.report.statistics import Interval

if TYPE_CHECKING:
    from phalanx.report.compare.model import Pair


def many(count: int, what: str) -> str:
    """`1 seed`, `5 seeds`."""
    return f"{count} {what}" + "s" * (count != 1)


def between(interval: Interval, digits: int = 2) -> str:
    """`0.93 [0.81, 0.99]`; without the interval if it is unknown."""
    value, low, high = (f"{each:.{digits}f}" for each in interval)
    return value if np.isnan(interval.low) else f"{value} [{low}, {high}]"


def verdict(pair: Pair, seeds: int, tasks: int) -> str:
    """The conclusion about two arms, given the number of tasks and the least number of seeds on a task."""
    measure = f"probability of improvement {between(pair.improvement)}"
    if pair.shown:
        return f"{pair.better} is better than {pair.other}: {measure}"
    if seeds < st.FEWEST_SEEDS:
        few = many(seeds, "seed")
        return f"{pair.better} and {pair.other} cannot be told apart with {few}: train five or more"
    where = f" on {many(tasks, 'task')}" if tasks > 1 else ""
    return (
        f"no difference between {pair.better} and {pair.other} can be shown with "
        f"{many(seeds, 'seed')}{where}: {measure}"
    )

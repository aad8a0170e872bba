"""Successive halving (Jamieson and Talwalkar 2016, https://arxiv.org/abs/1502.07943).

All settings are trained to the first rung, the best of them to the next one, and so on. How many continue and
for how long is fixed before anything is trained.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Rung(NamedTuple):
    """Where settings are compared."""

    settings: int
    """that are trained up to here"""
    steps: int
    """env steps of each seed by then"""


def rungs(settings: int, steps: int, count: int, factor: int) -> list[Rung]:
    """Each rung has a `factor` fewer settings and `factor` times the steps of the one before.

    Once a single setting is left it goes on to the end.
    """
    return [
        Rung(max(1, settings // factor**i), max(1, steps // factor ** (count - 1 - i))) for i in range(count)
    ]


def cost(schedule: Sequence[Rung], seeds: int) -> int:
    """Env steps of all settings and seeds."""
    before = [0, *(rung.steps for rung in schedule)]
    return seeds * sum(
        rung.settings * (rung.steps - was) for rung, was in zip(schedule, before, strict=False)
    )


def most_settings(budget: int, price: Callable[[int], int]) -> int:
    """The largest number of settings whose price is within a budget; 0 if not even one is."""
    low, high = 0, budget + 1  # `low` is affordable, `high` is not: a setting takes at least a step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if price(middle) <= budget else (low, middle)
    return low


def rounds(settings: int, size: int) -> list[int]:
    """Cut settings into rounds of at most `size`."""
    full, rest = divmod(settings, size)
    return [size] * full + ([rest] if rest else [])


def halve(
    settings: Sequence[int],
    schedule: Sequence[Rung],
    train: Callable[[list[int], int], Mapping[int, Any]],
) -> None:
    """Train settings, named by numbers, rung by rung.

    `train` takes some to a rung and returns the score of each there, which can be compared; None where
    learning diverged, and such a setting never goes on.
    """
    left = list(settings)
    for number, rung in enumerate(schedule):
        left = left[: rung.settings]
        if not left:
            return
        scores = train(left, number)
        left = best_first(scores)


def best_first(scores: Mapping[int, Any]) -> list[int]:
    """The settings that have a score, the highest first; of equal ones the first."""
    found = {name: score for name, score in scores.items() if score is not None}
    return sorted(found, key=lambda name: found[name], reverse=True)

"""Which options mattered in a search: the share of the variance of scores that each explains alone.

Settings are sorted into groups by the value of an option. The share is the variance between the means of the
groups, as a part of all variance between settings: the main effect of a functional analysis of variance. It
is corrected for the number of groups (epsilon squared, Kelley 1935), so that an option that does nothing has
about 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from phalanx.report.statistics import holm

MOST_GROUPS, SMALLEST_GROUP = 5, 3  # of a range


class Effect(NamedTuple):
    """The effect of one option."""

    name: str
    share: float
    """of the variance between settings, 0 to 1"""
    chance: float
    """p value of no effect at all (Kruskal and Wallis), corrected for the number of options"""
    groups: list[list[int]]
    """settings of each group, in the order of the values"""


class Importance(NamedTuple):
    """The effects of all options."""

    effects: list[Effect]
    """the largest first"""
    seeds: float
    """share of the variance between settings that comes from their seeds: chance"""


def importance(
    names: Sequence[str], settings: Sequence[dict[str, Any]], scores: np.ndarray, listed: set[str]
) -> Importance:
    """From the scores (N, S) of the seeds of each setting; `listed` options have a group for each value."""
    means = scores.mean(1)
    grouped = {name: groups([each[name] for each in settings], name in listed) for name in names}
    chances = holm([_chance(means, grouped[name]) for name in names])
    effects = [
        Effect(name, share(means, grouped[name]), chance, grouped[name])
        for name, chance in zip(names, chances, strict=True)
    ]
    total = means.var(ddof=1) if len(means) > 1 else 0.0
    noise = scores.var(axis=1, ddof=1).mean() / scores.shape[1] if scores.shape[1] > 1 else 0.0
    return Importance(
        sorted(effects, key=lambda each: -each.share), float(min(1.0, noise / total)) if total > 0 else 0.0
    )


def groups(values: Sequence[Any], listed: bool) -> list[list[int]]:
    """Group settings by value: one group per value of a list, or equally large groups along a range."""
    if listed:
        known = list(dict.fromkeys(values))
        known = sorted(known) if all(isinstance(each, int | float) for each in known) else known
        return [[i for i, each in enumerate(values) if each == value] for value in known]
    order = np.argsort(np.asarray(values, float), kind="stable")
    count = int(np.clip(len(values) // SMALLEST_GROUP, 1, MOST_GROUPS))
    return [part.tolist() for part in np.array_split(order, count)]


def share(means: np.ndarray, grouped: Sequence[Sequence[int]]) -> float:
    """The corrected share of the variance of `means` (N,) between groups."""
    count, parts = len(means), len(grouped)
    total = ((means - means.mean()) ** 2).sum()
    if parts < 2 or count <= parts or total <= 0:
        return 0.0
    within = sum(((means[list(part)] - means[list(part)].mean()) ** 2).sum() for part in grouped)
    return float(max(0.0, 1 - (within / (count - parts)) / (total / (count - 1))))


def _chance(means: np.ndarray, grouped: Sequence[Sequence[int]]) -> float:
    if len(grouped) < 2 or np.ptp(means) == 0:
        return 1.0
    return float(stats.kruskal(*(means[list(part)] for part in grouped)).pvalue)

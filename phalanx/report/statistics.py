"""What the scores of some seeds on some tasks say, and how sure that is. Numbers in, numbers out.

The measures are those of Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice": interquartile mean, probability of improvement, performance profiles, each with a stratified
bootstrap interval. The scores of an arm are a list with an array (..., S) for each task, seeds last; tasks
may have different numbers of seeds.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Scores = Sequence[np.ndarray]

DRAWS = 2_000
SHUFFLES = 10_000
LEVEL = 0.95
FEWEST = 3  # seeds below which an interval would say more than is known


class Interval(NamedTuple):
    """A value and the interval around it; numbers, or arrays of one shape."""

    value: Any
    low: Any
    high: Any


def mean(scores: Scores) -> np.ndarray:
    """Mean over tasks of the mean over seeds: (...)."""
    return np.mean([each.mean(-1) for each in scores], axis=0)


def median(scores: Scores) -> np.ndarray:
    """Median over tasks of the mean over seeds: (...)."""
    return np.median([each.mean(-1) for each in scores], axis=0)


def iqm(scores: Scores) -> np.ndarray:
    """Interquartile mean: of the middle half of all scores, whatever their task: (...)."""
    together = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    count = together.shape[-1]
    cut = count // 4
    return together[..., cut : count - cut].mean(-1)


def improvement(scores: Scores, others: Scores) -> np.ndarray:
    """Probability that a seed of one arm scores above a seed of another, mean over tasks: (...).

    A tie counts half.
    """
    return np.mean([_wins(x, y) for x, y in zip(scores, others, strict=True)], axis=0)


def _wins(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The share of pairs from (..., S) and (..., S') that the first wins."""
    above = x[..., :, None] - y[..., None, :]
    return 0.5 + 0.5 * np.sign(above).mean((-2, -1))


def profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Performance profile: the share of all scores above each threshold (P,): (P, ...)."""
    together = np.concatenate(scores, axis=-1)
    return np.stack([(together > threshold).mean(-1) for threshold in thresholds])


def bootstrap(
    statistic: Callable[..., np.ndarray],
    *arms: Scores,
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """A statistic of one or more arms with its percentile interval.

    Seeds are drawn again within each task of each arm: stratified. With fewer than three seeds in a task the
    interval is not known (nan).
    """
    value = statistic(*arms)
    if min(each.shape[-1] for arm in arms for each in arm) < FEWEST:
        unknown = np.full_like(np.asarray(value, float), np.nan)[()]
        return Interval(value, unknown, unknown)
    rng = np.random.default_rng(seed)

    def again(scores: Scores) -> Scores:
        return [each[..., rng.integers(each.shape[-1], size=(draws, each.shape[-1]))] for each in scores]

    drawn = statistic(*map(again, arms))  # (..., R)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    return Interval(value, low, high)


def shuffled(scores: Scores, others: Scores, shuffles: int = SHUFFLES, seed: int = 0) -> float:
    """How often chance alone makes two arms differ as much as they do: a permutation test's p value.

    Labels are shuffled within each task (scores (S,) each); the measure is the probability of improvement.
    Unlike the bootstrap this holds what it promises with any number of seeds: with three on one task it
    cannot be below 0.1.
    """
    rng = np.random.default_rng(seed)
    chance = np.zeros(shuffles)
    for x, y in zip(scores, others, strict=True):
        together = np.concatenate([x, y])
        mixed = rng.permuted(np.broadcast_to(together, (shuffles, len(together))), axis=-1)
        chance += _wins(mixed[:, : len(x)], mixed[:, len(x) :]) / len(scores)
    apart = abs(float(improvement(scores, others)) - 0.5)
    as_far = np.abs(chance - 0.5) >= apart - 1e-9
    return float((1 + as_far.sum()) / (1 + shuffles))


def holm(chances: Sequence[float]) -> list[float]:
    """p values of several comparisons, corrected so that all of them together keep the level (Holm 1979)."""
    order = np.argsort(chances, kind="stable")
    scaled = np.asarray(chances)[order] * np.arange(len(chances), 0, -1)
    corrected = np.empty(len(chances))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return corrected.tolist()


def difference(scores: np.ndarray, others: np.ndarray, level: float = LEVEL) -> Interval:
    """The difference of the means of two samples (S,), (S',), with Welch's interval."""
    from scipy.stats import t

    apart = float(scores.mean() - others.mean())
    if min(len(scores), len(others)) < 2:
        return Interval(apart, np.nan, np.nan)
    parts = np.array([each.var(ddof=1) / len(each) for each in (scores, others)])
    error = parts.sum()
    if error == 0:
        return Interval(apart, apart, apart)
    freedom = error**2 / sum(
        part**2 / (len(each) - 1) for part, each in zip(parts, (scores, others), strict=True)
    )
    reach = float(t.ppf((1 + level) / 2, freedom) * np.sqrt(error))
    return Interval(apart, apart - reach, apart + reach)


def steps_to(steps: np.ndarray, curves: np.ndarray, threshold: float) -> np.ndarray:
    """Env steps (P,) at which each curve (S, P) is first at a threshold or above: (S,), inf if never."""
    reached = curves >= threshold
    return np.where(reached.any(-1), steps[reached.argmax(-1)], np.inf)

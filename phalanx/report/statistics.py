"""Statistics of scores of seeds on tasks, with confidence intervals and tests.

The measures are those of Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice": interquartile mean, probability of improvement, performance profiles. The intervals are made for
few seeds: their percentile bootstrap is too narrow there (`benchmarks/coverage.py`). The scores of an arm are
a list with an array (..., S) for each task, seeds last; tasks may have different numbers of seeds.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Scores = Sequence[np.ndarray]

DRAWS = 2_000
SHUFFLES = 10_000
LEVEL = 0.95
FEWEST_SEEDS = 3  # seeds below which an interval would say more than is known
GRID = np.linspace(0, 1, 1001)  # probabilities that may lie in an interval


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


def resample(scores: Scores, draws: int = DRAWS, seed: int = 0) -> Scores:
    """Draw seeds again within each task, with replacement: (..., R, S) for each task."""
    rng = np.random.default_rng(seed)
    return [each[..., rng.integers(each.shape[-1], size=(draws, each.shape[-1]))] for each in scores]


def bootstrap(
    statistic: Callable[[Scores], np.ndarray],
    scores: Scores,
    episodes: Sequence[int] | None = None,
    *,
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """A statistic of an arm with its interval: a stratified bootstrap, widened for few seeds.

    Scores that are win rates come with the episodes (T,) that each score is of. Their interval is at least
    as wide as the error of the episodes, stays within 0 and 1, and reaches further towards 0.5, because
    rates near 0 or 1 are skewed. With fewer than three seeds in a task the interval is not known (nan).
    """
    value = statistic(scores)
    if min(each.shape[-1] for each in scores) < FEWEST_SEEDS:
        return _unknown(value)
    errors = [np.zeros(each.shape[:-1]) for each in scores]
    if episodes is not None:
        errors = [_episode_error(each, count) for each, count in zip(scores, episodes, strict=True)]
    drawn = statistic(_widened(scores, resample(scores, draws, seed), errors, level, seed))  # (..., R)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    if episodes is not None:
        total = sum(count * each.shape[-1] for each, count in zip(scores, episodes, strict=True))
        low, high = _of_rate(value, low, high, total)
    return Interval(value, low, high)


def _unknown(value: Any) -> Interval:
    nothing = np.full_like(np.asarray(value, float), np.nan)[()]
    return Interval(value, nothing, nothing)


def _widened(
    scores: Scores, drawn: Scores, errors: Sequence[np.ndarray], level: float, seed: int
) -> list[np.ndarray]:
    """Move the seeds of each draw (..., R, S) so that the draws' means vary as much as they should.

    Resampled means vary too little by a factor of sqrt((S - 1) / S), and their quantiles are a normal's, not
    Student's t. With both put right the interval of a mean is Student's, with a bootstrap's skewness; over
    several tasks the degrees of freedom are Welch and Satterthwaite's. Where that leaves the means less
    spread than their `errors` (...), the rest is added as normal noise.
    """
    from scipy.special import ndtri, stdtrit

    rng = np.random.default_rng([seed, 1])
    variances = [each.var(-1, ddof=1) / each.shape[-1] for each in scores]
    parts = [np.maximum(each, 1e-300) for each in variances]
    weights = [part / np.sum(parts, axis=0) for part in parts]
    freedom = 1 / sum(w**2 / (each.shape[-1] - 1) for w, each in zip(weights, scores, strict=True))
    student = stdtrit(freedom, (1 + level) / 2) / ndtri((1 + level) / 2)
    moved = []
    for each, again, variance, error in zip(scores, drawn, variances, errors, strict=True):
        count, means = each.shape[-1], again.mean(-1)
        factor = student * np.sqrt(count / (count - 1))
        shift = (factor - 1)[..., None] * (means - each.mean(-1)[..., None])
        missing = np.sqrt(np.maximum(error**2 - student**2 * variance, 0))[..., None]
        moved.append(again + (shift + missing * rng.normal(size=means.shape[-1]))[..., None])
    return moved


def _episode_error(rates: np.ndarray, episodes: int) -> np.ndarray:
    """Standard error of the mean of win rates (..., S) of equal seeds; not 0 where all was won: (...)."""
    count = episodes * rates.shape[-1]
    rate = (rates.mean(-1) * count + 0.5) / (count + 1)
    return np.sqrt(rate * (1 - rate) / count)


def _of_rate(
    rate: np.ndarray, low: np.ndarray, high: np.ndarray, episodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Put the ends of a rate's interval as far from it on the scale arcsin(sqrt(rate)), if that is further.

    On this scale the variance of a rate is the same everywhere.
    """
    inside = np.clip(rate, 0.5 / episodes, 1 - 0.5 / episodes)
    angle, slope = np.arcsin(np.sqrt(inside)), 2 * np.sqrt(inside * (1 - inside))
    lower, upper = (np.sin(np.clip(angle + (end - rate) / slope, 0, np.pi / 2)) ** 2 for end in (low, high))
    return np.clip(np.minimum(low, lower), 0, 1), np.clip(np.maximum(high, upper), 0, 1)


def improvement_interval(scores: Scores, others: Scores, level: float = LEVEL) -> Interval:
    """Probability of improvement with its score interval (Newcombe 2006, method 5), for scores (S,).

    Its variance is that at the end of the interval, not at the estimate: so there is an interval also where
    all seeds of one arm are above all of the other. Over tasks it is a little too wide if they disagree.
    """
    value = improvement(scores, others)
    if min(len(each) for arm in (scores, others) for each in arm) < FEWEST_SEEDS:
        return _unknown(value)
    sizes = [(len(x), len(y)) for x, y in zip(scores, others, strict=True)]
    spread = (1 - GRID) / (2 - GRID) + GRID / (1 + GRID)
    variance = sum(
        GRID * (1 - GRID) * (1 + ((n + m) / 2 - 1) * spread) / (n * m * len(sizes) ** 2) for n, m in sizes
    )
    return _score_interval(value, np.asarray(variance), level)


def profile_interval(scores: Scores, thresholds: np.ndarray, level: float = LEVEL) -> Interval:
    """Performance profile at thresholds (P,) with Wilson's interval at each, for scores (S,)."""
    value = profile(scores, thresholds)
    if min(len(each) for each in scores) < FEWEST_SEEDS:
        return _unknown(value)
    return _score_interval(value, GRID * (1 - GRID) / sum(len(each) for each in scores), level)


def _score_interval(value: np.ndarray, variance: np.ndarray, level: float) -> Interval:
    """All probabilities of GRID that a value (...) is not too far from, given the variance at each (G,)."""
    from scipy.special import ndtri

    near = np.abs(np.asarray(value)[..., None] - GRID) <= ndtri((1 + level) / 2) * np.sqrt(variance) + 1e-9
    low, high = GRID[near.argmax(-1)], GRID[len(GRID) - 1 - near[..., ::-1].argmax(-1)]
    return Interval(value, np.minimum(low, value), np.maximum(high, value))


def shuffled(scores: Scores, others: Scores, shuffles: int = SHUFFLES, seed: int = 0) -> float:
    """The p value of a permutation test that two arms are equal.

    Labels are shuffled within each task (scores (S,) each); the measure is the probability of improvement.
    Unlike the bootstrap the test is valid for any number of seeds; with three seeds on one task p cannot be
    below 0.1.
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


def difference(
    scores: np.ndarray, others: np.ndarray, episodes: int | None = None, level: float = LEVEL
) -> Interval:
    """The difference of the means of two samples (S,), (S',), with Welch's interval.

    Win rates come with the episodes that each is of: their means have at least the error of these.
    """
    from scipy.stats import t

    apart = float(scores.mean() - others.mean())
    if min(len(scores), len(others)) < 2:
        return Interval(apart, np.nan, np.nan)
    parts = np.array([each.var(ddof=1) / len(each) for each in (scores, others)])
    if episodes is not None:
        parts = np.maximum(parts, [_episode_error(each, episodes) ** 2 for each in (scores, others)])
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


def drop(curves: np.ndarray) -> np.ndarray:
    """How far each curve (S, P) ends below its highest point: (S,), 0 or more."""
    return curves.max(-1) - curves[:, -1]


def spread(scores: np.ndarray) -> float:
    """Standard deviation of scores (S,) over seeds; NaN for a single one."""
    return float(scores.std(ddof=1)) if len(scores) > 1 else float("nan")

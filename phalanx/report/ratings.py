"""Win rates and Bradley-Terry ratings from games between teams, with intervals.

Scores are 1 for a win, 1/2 for a draw, 0 for a defeat, (S, S', E): E games of each seed of one team against
each seed of the other. Intervals resample the seeds of both teams and the games; they are 95 %.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from phalanx.report.statistics import LEVEL, Interval

DRAWS = 1_000
ELO = 400 / np.log(10)  # what a factor of e in strength is on the scale of Elo
PRIOR = 0.5  # wins that both of a pair have beforehand, as by one draw: who never lost has a rating too

Games = Mapping[tuple[int, int], np.ndarray]


class Table(NamedTuple):
    """All teams against all."""

    cells: dict[tuple[int, int], Interval]
    """the first team on the first side against the second on the second side"""
    pairs: dict[tuple[int, int], Interval]
    """the lower against the higher number, over the sides that they played"""
    ratings: list[Interval]
    """on the scale of Elo, with a mean of 0; empty where not all have played each other"""


def table(games: Games, teams: int, seed: int = 0) -> Table:
    """Win rates and ratings from the games of ordered pairs (first side, second side)."""
    rng = np.random.default_rng(seed)
    drawn = {pair: resampled(scores, rng) for pair, scores in games.items()}
    means = {pair: scores.mean() for pair, scores in games.items()}
    cells = {pair: _interval(means[pair], drawn[pair]) for pair in games}
    pairs = {}
    for low in range(teams):
        for high in range(low + 1, teams):
            sides = [(means[low, high], drawn[low, high])] if (low, high) in games else []
            sides += [(1 - means[high, low], 1 - drawn[high, low])] if (high, low) in games else []
            if sides:
                values, draws = zip(*sides, strict=True)
                pairs[low, high] = (np.mean(values), np.mean(draws, axis=0))
    whole = teams > 1 and len(pairs) == teams * (teams - 1) // 2
    shown = {pair: _interval(*found) for pair, found in pairs.items()}
    return Table(cells, shown, _ratings(pairs, games, teams) if whole else [])


def resampled(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(DRAWS,) means of scores (S, S', E) with seeds and games resampled."""
    rates, episodes = scores.mean(-1), scores.shape[-1]
    # As if each pair of seeds had won and lost one more game, so that 0 and 1 are unsure too.
    smooth = (rates * episodes + 1) / (episodes + 2)
    return _redrawn(rates, np.sqrt(smooth * (1 - smooth) / episodes), rng).clip(0, 1)


def mean_return(returns: np.ndarray, seed: int = 0) -> Interval:
    """The mean of returns (S, S', E), with an interval over seeds and games."""
    episodes = returns.shape[-1]
    error = returns.std(-1, ddof=min(1, episodes - 1)) / np.sqrt(episodes)
    return _interval(returns.mean(), _redrawn(returns.mean(-1), error, np.random.default_rng(seed)))


def _redrawn(means: np.ndarray, error: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(DRAWS,) means over resampled seeds, with the `error` (S, S') of the games of each pair of seeds."""
    one, other = means.shape
    rows = rng.integers(one, size=(DRAWS, one, 1))
    columns = rng.integers(other, size=(DRAWS, 1, other))
    noise = rng.standard_normal((DRAWS, one, other))
    return (means[rows, columns] + noise * error[rows, columns]).mean((1, 2))


def _interval(value: float, drawn: np.ndarray) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(float(value), float(min(low, value)), float(max(high, value)))


def bradley_terry(wins: np.ndarray, rounds: int = 200) -> np.ndarray:
    """Ratings, (T,): team i beats j with odds of 10 to the power of (rating i - rating j) / 400.

    `wins` (T, T) is how often i beat j, draws as half. Hunter 2004, "MM algorithms for generalized
    Bradley-Terry models".
    """
    wins = wins + PRIOR * (1 - np.eye(len(wins)))
    games, won = wins + wins.T, wins.sum(1)
    strength = np.ones(len(wins))
    for _ in range(rounds):
        strength = won / (games / (strength[:, None] + strength[None])).sum(1)
        strength /= np.exp(np.log(strength).mean())
    return ELO * np.log(strength)


def _ratings(pairs: Mapping[tuple[int, int], tuple], games: Games, teams: int) -> list[Interval]:
    played = {(i, j): sum(games[pair].size for pair in ((i, j), (j, i)) if pair in games) for i, j in pairs}

    def fit(rate) -> np.ndarray:
        wins = np.zeros((teams, teams))
        for (i, j), count in played.items():
            wins[i, j], wins[j, i] = rate(i, j) * count, (1 - rate(i, j)) * count
        return bradley_terry(wins)

    value = fit(lambda i, j: pairs[i, j][0])
    draws = np.array([fit(lambda i, j, d=d: pairs[i, j][1][d]) for d in range(DRAWS // 5)])
    return [_interval(value[k], draws[:, k]) for k in range(teams)]

"""How often the 95 % intervals of `compare` and `reproduce` hold the truth, and how often verdicts are wrong.

python benchmarks/coverage.py [--trials 1000]

Scores are simulated; win rates are of 256 episodes for each seed. The truth is that of 200,000 seeds. Before
each figure stands that of the plain percentile bootstrap. 1,000 trials leave an error of 0.7 points.
"""

import argparse
from collections.abc import Callable

import numpy as np

from phalanx import reproduce
from phalanx.report import compare
from phalanx.report import statistics as st

EPISODES, MANY_SEEDS, BATCH, DRAWS = 256, 200_000, 250, 400
SEEDS = (3, 5, 10)
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(mean: float = 0.0, deviation: float = 1.0) -> Draw:
    """Returns."""
    return lambda rng, shape: rng.normal(mean, deviation, shape)


def student(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns with heavy tails."""
    return rng.standard_t(3, shape)


def exponential(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns with a skewness of 2."""
    return rng.exponential(1, shape)


def wins(a: float, b: float, failures: float = 0.0) -> Draw:
    """Win rates of seeds whose true rates are Beta(a, b), but for failed seeds, which never win."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        rates = rng.beta(a, b, shape) * (rng.random(shape) >= failures)
        return rng.binomial(EPISODES, rates) / EPISODES

    return draw


def same(rate: float) -> Draw:
    """Win rates of seeds that do not differ: their scores vary by their episodes alone."""
    return lambda rng, shape: rng.binomial(EPISODES, rate, shape) / EPISODES


RETURNS: dict[str, list[Draw]] = {
    "returns, normal": [normal()],
    "returns, heavy tails (t, 3 degrees)": [student],
    "returns, skewed (exponential)": [exponential],
    "returns, normal, 5 tasks": [normal()] * 5,
    "returns, 3 unequal tasks": [normal(0, 1), normal(1, 0.2), normal(2, 0.5)],
}
WINS: dict[str, list[Draw]] = {
    "wins, all seeds at 50 %": [same(0.5)],
    "wins, all seeds at 98 %": [same(0.98)],
    "wins, all seeds at 99.9 %": [same(0.999)],
    "wins, 60 ± 15 %": [wins(6, 4)],
    "wins, 95 ± 4 %, skewed": [wins(30, 1.5)],
    "wins, 89 ± 10 %, skewed": [wins(8, 1)],
    "wins, 95 %, a seed in 5 at 0": [wins(40, 2, 0.2)],
    "wins, 3 unequal tasks": [wins(30, 1.5), wins(8, 1), wins(6, 4)],
}
PAIRS: dict[str, list[tuple[Draw, Draw]]] = {
    "equal": [(normal(), normal())],
    "half a deviation apart": [(normal(0.5), normal())],
    "one deviation apart": [(normal(1), normal())],
    "two deviations apart": [(normal(2), normal())],
    "one, and five times the spread": [(normal(1), normal(0, 0.2))],
    "wins 95 % and 89 %": [(wins(30, 1.5), wins(8, 1))],
    "wins 98 % and 96 %, seeds alike": [(same(0.98), same(0.96))],
    "one deviation, 5 tasks": [(normal(1), normal())] * 5,
    "apart by 2, 0 and -1 on 3 tasks": [(normal(2), normal()), (normal(), normal()), (normal(-1), normal())],
}
EQUAL: dict[str, list[Draw]] = {
    "returns, normal": [normal()],
    "wins, 95 ± 4 %": [wins(30, 1.5)],
    "wins, a seed in 5 at 0": [wins(40, 2, 0.2)],
    "returns, normal, 3 tasks": [normal()] * 3,
    "wins, 3 tasks": [wins(30, 1.5), wins(8, 1), wins(6, 4)],
}


def percentile(statistic: Callable[..., np.ndarray], *arms: st.Scores, seed: int) -> st.Interval:
    """The plain percentile bootstrap."""
    drawn = statistic(*(st.resample(arm, DRAWS, seed + i) for i, arm in enumerate(arms)))
    return st.Interval(statistic(*arms), *np.quantile(drawn, [0.025, 0.975], axis=-1))


def holds(interval: st.Interval, truth: float) -> float:
    """The share of intervals that hold the truth."""
    return float(np.mean((interval.low <= truth + 1e-9) & (truth - 1e-9 <= interval.high)))


def coverage(statistic, tasks: list[Draw], seeds: int, rates: bool, trials: int) -> tuple[float, float]:
    """How often the percentile interval and ours hold the truth."""
    rng = np.random.default_rng([seeds, len(tasks)])
    truth = float(statistic([draw(rng, (MANY_SEEDS,)) for draw in tasks]))
    episodes = [EPISODES] * len(tasks) if rates else None
    found = []
    for batch in range(max(1, trials // BATCH)):
        scores = [draw(rng, (BATCH, seeds)) for draw in tasks]
        ours = st.bootstrap(statistic, scores, episodes, draws=DRAWS, seed=batch)
        found.append((holds(percentile(statistic, scores, seed=batch), truth), holds(ours, truth)))
    old, new = np.mean(found, axis=0)
    return float(old), float(new)


def improvement_coverage(tasks: list[tuple[Draw, Draw]], seeds: int, trials: int) -> tuple[float, float]:
    """The same for the probability of improvement."""
    rng = np.random.default_rng([seeds, len(tasks), 1])
    pairs = [[draw(rng, (MANY_SEEDS,)) for draw in pair] for pair in tasks]
    truth = float(np.mean([0.5 + 0.5 * np.sign(x - y).mean() for x, y in pairs]))
    found = []
    for trial in range(trials // 2):
        x, y = ([pair[i](rng, (seeds,)) for pair in tasks] for i in (0, 1))
        old = percentile(st.improvement, x, y, seed=trial)
        found.append((holds(old, truth), holds(st.improvement_interval(x, y), truth)))
    old, new = np.mean(found, axis=0)
    return float(old), float(new)


def mistakes(tasks: list[Draw], seeds: int, trials: int) -> tuple[float, float]:
    """How often equal arms are called different: by `compare`, and by `reproduce` on the first task."""
    rng = np.random.default_rng([seeds, len(tasks), 2])
    better, differ = 0, 0
    for trial in range(trials):
        x, y = ([draw(rng, (seeds,)) for draw in tasks] for _ in range(2))
        low, high = st.improvement_interval(x, y)[1:]
        apart = low > 0.5 or high < 0.5
        better += apart and st.shuffled(x, y, shuffles=999, seed=trial) < compare.SHOWN
        told = {"scores": x[0].tolist(), "untrained": [x[0].mean() - 1], "metric": "eval/return"}
        differ += reproduce.judge(told, y[0].tolist()).sentence.startswith("differ")
    return better / trials, differ / trials


def table(title: str, names, measure) -> None:
    """A row for each name, two figures for each number of seeds."""
    print(f"\n| {title} | " + " | ".join(f"{seeds} seeds" for seeds in SEEDS) + " |")
    print("|---|" + "---|" * len(SEEDS))
    for name in names:
        pairs = (measure(name, seeds) for seeds in SEEDS)
        print(
            f"| {name} | " + " | ".join(f"{100 * a:.1f}, {100 * b:.1f}" for a, b in pairs) + " |", flush=True
        )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=1000, help="simulated comparisons for each figure")
    trials = parser.parse_args().trials
    print("Coverage in %: percentile bootstrap, then ours.")
    known = RETURNS | WINS
    for title, statistic in (("mean", st.mean), ("IQM", st.iqm), ("median over tasks", st.median)):
        names = [name for name in known if statistic is not st.median or len(known[name]) > 1]
        table(title, names, lambda n, s, f=statistic: coverage(f, known[n], s, n in WINS, trials))
    table("probability of improvement", PAIRS, lambda n, s: improvement_coverage(PAIRS[n], s, trials))
    print("\nEqual arms called different, in %: by `compare`, then by `reproduce`.")
    table("both arms", EQUAL, lambda n, s: mistakes(EQUAL[n], s, 2 * trials))


if __name__ == "__main__":
    main()

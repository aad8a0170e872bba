"""Statistics beside the reference library's on random data, beside closed forms, and in simulations."""

import json
from pathlib import Path

import numpy as np
import pytest

from phalanx.report import statistics as st

RECORDED = json.loads((Path(__file__).parent / "data" / "rliable.json").read_text())


@pytest.mark.parametrize("case", RECORDED["cases"])
def test_measures_and_resamples_are_those_of_rliable(case):
    """Our intervals are wider by design; the percentiles of our resamples are rliable's intervals."""
    x, y = ([np.array(task) for task in case[arm]] for arm in "xy")

    def require_percentiles(drawn, expected, within):
        width = expected[1] - expected[0]
        assert np.quantile(drawn, [0.025, 0.975]) == pytest.approx(expected, abs=within * width)

    again = st.resample(x, 10_000), st.resample(y, 10_000, seed=1)
    for i, statistic in enumerate((st.mean, st.median, st.iqm)):
        assert statistic(x) == pytest.approx(case["aggregates"][i])
        require_percentiles(statistic(again[0]), case["intervals"][i], within=0.06)
    assert st.improvement(x, y) == pytest.approx(case["improvement"])
    require_percentiles(st.improvement(*again), case["improvement_interval"], within=0.08)
    assert st.profile(x, np.array(RECORDED["thresholds"])) == pytest.approx(case["profile"])


def simulate(measure, seeds=10, tasks=5, trials=300):
    """How often `measure(rng, seeds, tasks)` is true."""
    rng = np.random.default_rng(7)
    return np.mean([measure(rng, seeds, tasks) for _ in range(trials)])


def normal_scores(rng, seeds, tasks, mean=0.0):
    return [rng.normal(mean, 1, seeds) for _ in range(tasks)]


EPISODES = 256
ARMS = {  # scores of many simulated arms on one task, and whether they are win rates
    "normal returns": (lambda rng, shape: rng.normal(0.5, 1, shape), False),
    "spread wins": (lambda rng, shape: rng.binomial(EPISODES, rng.beta(6, 4, shape)) / EPISODES, True),
    "skewed wins": (lambda rng, shape: rng.binomial(EPISODES, rng.beta(30, 1.5, shape)) / EPISODES, True),
}


@pytest.mark.parametrize("statistic", [st.mean, st.iqm])
@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_on_one_task_hold_the_truth_as_often_as_they_say(arm, seeds, statistic):
    draw, rates = ARMS[arm]
    rng = np.random.default_rng(7)
    truth = statistic([draw(rng, 200_000)])
    found = st.bootstrap(statistic, [draw(rng, (1000, seeds))], [EPISODES] if rates else None, draws=400)
    assert 0.9 <= np.mean((found.low <= truth) & (truth <= found.high)) <= 0.985


@pytest.mark.parametrize("statistic", [st.mean, st.median, st.iqm])
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_over_tasks_hold_the_truth_as_often_as_they_say(statistic, seeds):
    rng = np.random.default_rng(7)
    scores = [rng.normal(0.5, 1, (600, seeds)) for _ in range(5)]
    found = st.bootstrap(statistic, scores, draws=400)
    assert 0.92 <= np.mean((found.low <= 0.5) & (found.high >= 0.5)) <= 0.99


def test_the_interval_of_a_mean_is_students():
    """On a symmetric sample, where a bootstrap has no skewness to add."""
    from scipy.stats import t

    scores = np.array([-3.0, -2, -1, -0.5, 0.5, 1, 2, 3])
    found = st.bootstrap(st.mean, [scores], draws=20_000)
    reach = t.ppf(0.975, 7) * scores.std(ddof=1) / np.sqrt(8)
    assert (found.low, found.high) == pytest.approx((-reach, reach), rel=0.03)


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_equal_win_rates_leave_the_error_of_their_episodes(rate):
    found = st.bootstrap(st.iqm, [np.full(5, rate)], [EPISODES])
    error = np.sqrt(max(rate * (1 - rate), 0.5 / 1280) / 1280)
    assert 0 <= found.low <= rate <= found.high <= 1
    assert 1.8 * error <= found.high - found.low <= 5 * error
    assert st.bootstrap(st.iqm, [np.full(5, rate)]).low == rate, "returns may be equal"


def test_the_interval_of_improvement_holds_the_truth():
    from scipy.stats import norm

    for shift in (0.5, 2):
        truth = norm.cdf(shift / np.sqrt(2))

        def covers(rng, seeds, tasks, shift=shift, truth=truth):
            x, y = normal_scores(rng, seeds, tasks, mean=shift), normal_scores(rng, seeds, tasks)
            found = st.improvement_interval(x, y)
            return found.low <= truth <= found.high

        for seeds, tasks in ((5, 1), (10, 5)):
            assert 0.91 <= simulate(covers, seeds, tasks) <= 0.99


def test_the_interval_of_improvement_agrees_with_mann_and_whitney():
    """It excludes 0.5 where their z is above 1.96: the variance at 0.5 is (n + m + 1) / (12 n m)."""
    rng = np.random.default_rng(0)
    for n, m in ((4, 4), (5, 7), (10, 6)):
        for shift in (0.5, 1, 1.5, 3):
            x, y = [rng.normal(shift, 1, n)], [rng.normal(0, 1, m)]
            found = st.improvement_interval(x, y)
            z = (found.value - 0.5) / np.sqrt((n + m + 1) / (12 * n * m))
            assert (found.low > 0.5 or found.high < 0.5) == (abs(z) > 1.96)
            mirrored = st.improvement_interval(y, x)
            assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low))
    apart = st.improvement_interval([np.arange(5) + 10.0], [np.arange(5.0)])
    assert apart.high == 1
    assert 0.55 < apart.low < 0.8, "five seeds above five others prove no certainty"


def test_the_interval_of_a_profile_is_wilsons():
    from scipy.stats import binomtest

    scores, thresholds = [np.arange(4.0), np.arange(3.0)], np.array([-1, 0.5, 1.5, 5])
    found = st.profile_interval(scores, thresholds)
    for i, above in enumerate((7, 5, 3, 0)):
        expected = binomtest(above, 7).proportion_ci(method="wilson")
        assert (found.low[i], found.high[i]) == pytest.approx((expected.low, expected.high), abs=0.002)


def test_the_difference_of_two_means_covers_the_truth_with_three_seeds():
    def covers(rng, seeds, tasks):
        found = st.difference(rng.normal(1, 1, 3), rng.normal(0, 1, 3))
        return found.low <= 1 <= found.high

    assert 0.92 <= simulate(covers, trials=1000) <= 0.99


@pytest.mark.parametrize(("seeds", "tasks"), [(3, 1), (3, 3), (5, 1), (5, 3)])
def test_equal_arms_are_seldom_called_different(seeds, tasks):
    def differs(rng, seeds, tasks):
        x, y = normal_scores(rng, seeds, tasks), normal_scores(rng, seeds, tasks)
        return st.shuffled(x, y, shuffles=400, seed=int(rng.integers(2**31))) < 0.05

    assert simulate(differs, seeds, tasks) <= 0.08


def test_a_permutation_test_has_the_p_value_of_counting():
    """Five seeds all above five others: 2 of 252 ways to label them are as far apart."""
    low, high = np.arange(5.0), np.arange(5.0) + 10
    assert st.shuffled([high], [low], shuffles=100_000) == pytest.approx(2 / 252, rel=0.1)
    assert st.shuffled([high[:3]], [low[:3]]) == pytest.approx(0.1, rel=0.1)
    assert st.shuffled([low], [low]) == 1


def test_holm_corrects_for_the_number_of_comparisons():
    assert st.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert st.holm([0.9, 0.8]) == [1, 1]


def test_with_few_seeds_there_is_no_interval():
    found = st.bootstrap(st.mean, [np.array([0.2, 0.4])])
    assert found.value == pytest.approx(0.3)
    assert np.isnan([found.low, found.high]).all()
    assert np.isnan(st.improvement_interval([np.arange(2.0)], [np.arange(5.0)]).low)


def test_tasks_may_have_different_numbers_of_seeds():
    scores = [np.array([0.0, 1.0, 1.0]), np.full(6, 0.5)]
    assert st.mean(scores) == pytest.approx((2 / 3 + 0.5) / 2)
    assert st.iqm(scores) == 0.5
    assert st.bootstrap(st.mean, scores).low < st.mean(scores)


def test_spread_and_drop():
    assert st.spread(np.array([1.0, 2.0, 3.0])) == 1.0
    assert np.isnan(st.spread(np.array([1.0])))
    assert st.drop(np.array([[0, 0.75, 0.5], [0, 0.25, 1], [0.5, -1, 0]])).tolist() == [0.25, 0, 0.5]


def test_the_step_at_which_a_curve_first_arrives():
    steps = np.array([0, 10, 20, 30])
    curves = np.array([[0, 0.9, 0.1, 0.9], [0, 0, 0, 0.8], [0, 0, 0, 0.7]])
    assert st.steps_to(steps, curves, 0.8).tolist() == [10, 30, np.inf]

"""Statistics beside the reference library's on random data, beside closed forms, and in simulations."""

import json
from pathlib import Path

import numpy as np
import pytest

from phalanx.report import statistics as st

RECORDED = json.loads((Path(__file__).parent / "data" / "rliable.json").read_text())


@pytest.mark.parametrize("case", RECORDED["cases"])
def test_measures_and_intervals_are_those_of_rliable(case):
    x, y = ([np.array(task) for task in case[arm]] for arm in "xy")
    for i, statistic in enumerate((st.mean, st.median, st.iqm)):
        found = st.bootstrap(statistic, x, draws=10_000)
        assert found.value == pytest.approx(case["aggregates"][i])
        width = case["intervals"][i][1] - case["intervals"][i][0]
        assert (found.low, found.high) == pytest.approx(case["intervals"][i], abs=0.06 * width)
    better = st.bootstrap(st.improvement, x, y, draws=10_000)
    assert better.value == pytest.approx(case["improvement"])
    width = case["improvement_interval"][1] - case["improvement_interval"][0]
    assert (better.low, better.high) == pytest.approx(case["improvement_interval"], abs=0.08 * width)
    assert st.profile(x, np.array(RECORDED["thresholds"])) == pytest.approx(case["profile"])


def simulate(measure, seeds=10, tasks=5, trials=300):
    """How often `measure(rng, seeds, tasks)` is true."""
    rng = np.random.default_rng(7)
    return np.mean([measure(rng, seeds, tasks) for _ in range(trials)])


def normal_scores(rng, seeds, tasks, mean=0.0):
    return [rng.normal(mean, 1, seeds) for _ in range(tasks)]


@pytest.mark.parametrize("statistic", [st.mean, st.median, st.iqm])
def test_intervals_cover_the_truth_about_as_often_as_they_say(statistic):
    def covers(rng, seeds, tasks):
        scores = normal_scores(rng, seeds, tasks, mean=0.5)
        found = st.bootstrap(statistic, scores, draws=400, seed=int(rng.integers(2**31)))
        return found.low <= 0.5 <= found.high

    assert 0.88 <= simulate(covers) <= 0.985


def test_the_interval_of_improvement_covers_the_truth():
    from scipy.stats import norm

    truth = norm.cdf(0.5 / np.sqrt(2))

    def covers(rng, seeds, tasks):
        x, y = normal_scores(rng, seeds, tasks, mean=0.5), normal_scores(rng, seeds, tasks)
        found = st.bootstrap(st.improvement, x, y, draws=400, seed=int(rng.integers(2**31)))
        return found.low <= truth <= found.high

    assert 0.88 <= simulate(covers) <= 0.985


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


def test_tasks_may_have_different_numbers_of_seeds():
    scores = [np.array([0.0, 1.0, 1.0]), np.full(6, 0.5)]
    assert st.mean(scores) == pytest.approx((2 / 3 + 0.5) / 2)
    assert st.iqm(scores) == 0.5
    assert st.bootstrap(st.mean, scores).low < st.mean(scores)


def test_the_step_at_which_a_curve_first_arrives():
    steps = np.array([0, 10, 20, 30])
    curves = np.array([[0, 0.9, 0.1, 0.9], [0, 0, 0, 0.8], [0, 0, 0, 0.7]])
    assert st.steps_to(steps, curves, 0.8).tolist() == [10, 30, np.inf]

"""Masks, distributions, losses and normalisers (pitfalls C13 to C17, C24)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from conftest import LONG, build
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.algorithms.shared.exploration import Exploration, ExplorationConfig
from phalanx.data.normalise import RunningNorm
from phalanx.envs.batching import where_any
from phalanx.errors import PhalanxError
from phalanx.ops import distributions, losses, masks
from phalanx.ops.programs import at_size
from phalanx.ops.schedules import exponential
from phalanx.types import Clock

LOGITS = jnp.array([[1.0, -2.0, 0.5, 3.0], [0.0, 0.0, 0.0, 0.0]])
AVAIL = jnp.array([[True, False, True, True], [False, True, False, True]])


def test_probabilities_are_those_of_the_available_actions_alone():
    log_p = distributions.log_probs(LOGITS, AVAIL)
    for row, mask, ours in zip(LOGITS, AVAIL, log_p, strict=True):
        kept = np.asarray(row)[np.asarray(mask)].astype(np.float64)
        expected = np.exp(kept) / np.exp(kept).sum()
        np.testing.assert_allclose(np.exp(ours)[np.asarray(mask)], expected, rtol=1e-5)
        assert (np.exp(ours)[~np.asarray(mask)] == 0).all()


def test_entropy_equals_scipy():
    p = np.exp(np.asarray(distributions.log_probs(LOGITS, AVAIL), np.float64))
    np.testing.assert_allclose(
        distributions.entropy(LOGITS, AVAIL), [scipy.stats.entropy(row) for row in p], rtol=1e-5
    )


def test_sampling_follows_the_probabilities():
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = jax.vmap(lambda key: distributions.sample(key, LOGITS, AVAIL))(keys)
    p = np.exp(np.asarray(distributions.log_probs(LOGITS, AVAIL)))
    for row in range(2):
        seen = np.bincount(np.asarray(drawn[:, row]), minlength=4) / len(keys)
        np.testing.assert_allclose(seen, p[row], atol=0.02)


def test_a_forbidden_action_is_unreachable_in_millions_of_draws():
    """C15: extreme logits in favour of what is forbidden; a hundred million draws in the long tests."""
    millions = 100 if LONG else 10
    logits = jnp.tile(jnp.array([1e30, -30.0, 80.0]), (10**6, 1))
    avail = jnp.tile(jnp.array([False, True, False]), (10**6, 1))

    def draw(count, key):
        return count + (distributions.sample(key, logits, avail) != 1).sum(), None

    count, _ = jax.jit(lambda keys: jax.lax.scan(draw, 0, keys))(
        jax.random.split(jax.random.key(1), millions)
    )
    assert count == 0


@pytest.mark.parametrize("extreme", [3e38, -3e38, np.inf, -np.inf, np.nan])
def test_one_legal_action_is_always_taken(extreme):
    """C15: whatever the logits hold, and in the mode too."""
    for legal in range(3):
        logits = jnp.full(3, 50.0).at[legal].set(extreme)
        avail = jnp.zeros(3, bool).at[legal].set(True)
        assert distributions.mode(logits, avail) == legal
        assert distributions.sample(jax.random.key(0), logits, avail) == legal


def test_a_row_without_any_action_gives_finite_numbers():
    """C16: the dead are masked by `alive`; until then their numbers must not be NaN."""
    none = jnp.zeros(3, bool)

    def total(logits):
        return distributions.log_probs(logits, none)[0] + distributions.entropy(logits, none)

    value, grad = jax.value_and_grad(total)(jnp.array([1.0, 2.0, 3.0]))
    assert np.isfinite(value)
    assert np.isfinite(grad).all()


def test_gradients_do_not_reach_forbidden_logits():
    def total(logits):
        return distributions.log_probs(logits, AVAIL)[0, 0] + distributions.entropy(logits, AVAIL).sum()

    grad = np.asarray(jax.grad(total)(LOGITS))
    assert np.isfinite(grad).all()
    assert (grad[~np.asarray(AVAIL)] == 0).all()
    assert (grad[0][np.asarray(AVAIL[0])] != 0).all()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_masked_means_do_not_move_when_padding_is_added(seed, padding):
    """C17, with noise where nothing counts."""
    rng = np.random.default_rng(seed)
    x, mask = rng.normal(size=(6, 3)), rng.random((6, 3)) < 0.6
    more_x = np.vstack([x, 1e6 * rng.normal(size=(padding, 3))])
    more_mask = np.vstack([mask, np.zeros((padding, 3), bool)])
    membership = np.array([[1.0, 0, 1], [0, 1, 0]])
    np.testing.assert_allclose(masks.masked_mean(x, mask), masks.masked_mean(more_x, more_mask), rtol=1e-5)
    for fn in (masks.grouped_mean, masks.grouped_moments):
        few, many = fn(x, mask, membership), fn(more_x, more_mask, membership)
        np.testing.assert_allclose(few, many, rtol=1e-4)
    group = mask[:, [0, 2]]
    if group.any():
        np.testing.assert_allclose(
            masks.grouped_mean(x, mask, membership)[0], x[:, [0, 2]][group].mean(), rtol=1e-4, atol=1e-6
        )


def test_nothing_that_counts_gives_zero_and_no_nan():
    x, none = jnp.full((4, 2), jnp.nan), jnp.zeros((4, 2), bool)
    assert masks.masked_mean(x, none) == 0
    assert (masks.grouped_mean(x, none, jnp.eye(2)) == 0).all()
    assert (jax.grad(lambda y: masks.masked_mean(y, none))(x) == 0).all()


def test_standardised_groups_have_mean_0_and_deviation_1():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3)) * [1, 5, 20] + [0, 3, -4]
    mask = rng.random((500, 3)) < 0.7
    out = np.asarray(masks.standardise(x, mask, np.array([[1.0, 0, 1], [0, 1, 0]])))
    for agents in ([0, 2], [1]):
        kept = out[:, agents][mask[:, agents]]
        np.testing.assert_allclose([kept.mean(), kept.std()], [0, 1], atol=1e-3)


def test_clipped_surrogate_by_cases():
    ratio = jnp.array([1.0, 1.5, 1.5, 0.5, 0.5])
    advantage = jnp.array([2.0, 2.0, -2.0, 2.0, -2.0])
    # Only moves that would gain beyond the clip are cut; moves that must be undone are not.
    np.testing.assert_allclose(
        losses.clipped_surrogate(ratio, advantage, 0.2), [-2.0, -2.4, 3.0, -1.0, 1.6], rtol=1e-6
    )


def test_huber_is_quadratic_then_linear_and_smooth():
    error = jnp.array([0.5, -0.5, 3.0, -3.0])
    np.testing.assert_allclose(losses.huber(error, 1.0), [0.125, 0.125, 2.5, 2.5])
    np.testing.assert_allclose(jax.vmap(jax.grad(lambda e: losses.huber(e, 1.0)))(error), [0.5, -0.5, 1, -1])


def test_value_clipping_takes_the_larger_loss():
    loss = losses.clipped_value_loss(
        losses.squared, jnp.array([1.0, 0.1]), jnp.zeros(2), jnp.array([1.0, 1.0]), 0.2
    )
    np.testing.assert_allclose(loss, [0.5 * 0.8**2, 0.5 * 0.9**2], rtol=1e-5)


def test_running_norm_follows_its_groups_and_inverts():
    rng = np.random.default_rng(0)
    norm = RunningNorm.start(2)
    first = norm.update(jnp.array([5.0, -2.0]), jnp.array([4.0, 9.0]), 0.99)
    np.testing.assert_allclose(first.mean, [5, -2], rtol=1e-5)  # the first batch counts in full
    np.testing.assert_allclose(first.std, [2, 3], rtol=1e-4)
    for _ in range(400):
        data = rng.normal(size=(256, 2)) * [2, 30] + [100, -7]
        norm = norm.update(jnp.asarray(data.mean(0)), jnp.asarray(data.var(0)), 0.98)
    np.testing.assert_allclose(norm.mean, [100, -7], atol=1.5)
    np.testing.assert_allclose(norm.std, [2, 30], rtol=0.1)
    # A mean that is large beside the deviation must not swallow it.
    steady = RunningNorm.start(1)
    for mean in (9_999.5, 10_000.5) * 20:
        steady = steady.update(jnp.array([mean]), jnp.array([4.0]), 0.9)
    np.testing.assert_allclose(steady.std, [2.06], rtol=0.02)
    x = jnp.asarray(rng.normal(size=(4, 3)))
    groups = (1, 0, 1)
    np.testing.assert_allclose(norm.denormalise(norm.normalise(x, groups), groups), x, atol=1e-4)


def test_explained_variance_is_1_for_the_truth_and_0_for_a_constant():
    """Of each group apart, whatever the scale of the other."""
    targets = jnp.stack([jnp.arange(10.0), 1000 * jnp.arange(10.0)], axis=-1)
    values, everyone = targets.at[:, 0].set(4.0), jnp.ones(targets.shape, bool)
    np.testing.assert_allclose(
        losses.explained_variance(values, targets, everyone, np.eye(2)), [0, 1], atol=1e-6
    )
    together = losses.explained_variance(values, targets, everyone, np.ones((1, 2)))
    np.testing.assert_allclose(together, [1 - jnp.var(targets - values) / jnp.var(targets)], rtol=1e-6)
    spoilt = values.at[0, 1].set(1e6)
    some = losses.explained_variance(spoilt, targets, everyone.at[0, 1].set(False), np.eye(2))
    np.testing.assert_allclose(some, [0, 1], atol=1e-6)


def test_where_any_chooses_and_makes_nothing_in_vain():
    """Under vmap, however deep, the other branch is not computed while no entry of the batch needs it."""
    made = []

    def make(key):
        jax.debug.callback(lambda: made.append(1))
        return {"x": jax.random.uniform(key, (3,))}

    def choose(needed, key, old):
        return where_any(needed, make, key, {"x": old})["x"]

    keys = jax.random.split(jax.random.key(0), 6).reshape(2, 3)
    old = -jnp.arange(18.0).reshape(2, 3, 3)
    fresh = jax.vmap(jax.vmap(lambda key: jax.random.uniform(key, (3,))))(keys)
    twice = jax.jit(jax.vmap(jax.vmap(choose)))
    none = jnp.zeros((2, 3), bool)
    np.testing.assert_array_equal(twice(none, keys, old), old)
    jax.effects_barrier()
    assert not made
    some = none.at[1, 2].set(True)
    np.testing.assert_array_equal(twice(some, keys, old), jnp.where(some[..., None], fresh, old))
    jax.effects_barrier()
    assert made
    # One axis, no axis, and a batch in which not everything is batched.
    np.testing.assert_array_equal(jax.vmap(choose)(some[1], keys[1], old[1])[2], fresh[1, 2])
    np.testing.assert_array_equal(choose(True, keys[0, 0], old[0, 0]), fresh[0, 0])
    shared = jax.vmap(choose, (0, None, None))(some[1], keys[0, 0], old[0, 0])
    np.testing.assert_array_equal(shared, jnp.where(some[1][:, None], fresh[0, 0], old[0, 0]))


# Continuous actions (pitfall C26)

AVAIL_2 = jnp.array([[True, True], [True, False]])
OUT = jnp.array([[0.3, -1.2, 0.1, -0.7], [-0.4, 5.0, -1.0, 0.5]])  # two means, two log-deviations
MEAN, STD = np.asarray(OUT[:, :2], np.float64), np.exp(np.asarray(OUT[:, 2:], np.float64))


def continuous(squash, low=-1.0, high=3.0):
    return distributions.Gaussian(2, low, high, squash)


@pytest.mark.parametrize("squash", [False, True])
def test_continuous_log_probabilities_are_those_of_what_comes_out(squash):
    """Against scipy, by the change of variables; what is not the agent's own does not count."""
    dist = continuous(squash)
    drawn = np.array([[0.2, -0.9], [0.8, 3.0]])
    slope = 2.0 * (1 - np.tanh(drawn) ** 2) if squash else 2.0
    each = scipy.stats.norm.logpdf(drawn, MEAN, STD) - np.log(slope)
    expected = np.where(np.asarray(AVAIL_2), each, 0.0).sum(-1)
    np.testing.assert_allclose(dist.log_prob(OUT, AVAIL_2, jnp.asarray(drawn)), expected, rtol=1e-5)


@pytest.mark.parametrize("squash", [False, True])
def test_continuous_densities_integrate_to_one(squash):
    """Over the whole range of one entry, in the units of the environment."""
    dist = distributions.Gaussian(1, -1.0, 3.0, squash)
    drawn = jnp.linspace(-12, 12, 20_001)[:, None]
    out = jnp.broadcast_to(jnp.array([0.3, -0.2]), (20_001, 2))
    density = np.exp(np.asarray(dist.log_prob(out, jnp.ones((20_001, 1), bool), drawn), np.float64))
    where = np.asarray(-1.0 + 2.0 * (1 + (jnp.tanh(drawn) if squash else drawn)))[:, 0].astype(np.float64)
    assert abs(scipy.integrate.trapezoid(density, where) - 1) < 1e-3


@pytest.mark.parametrize("squash", [False, True])
def test_continuous_entropy_and_divergence_are_those_of_draws(squash):
    dist, n = continuous(squash), 200_000
    out, avail = (jnp.broadcast_to(x, (n, *x.shape)) for x in (OUT, AVAIL_2))
    other = out + jnp.array([0.3, -0.2, 0.2, -0.1])
    drawn = dist.sample(jax.random.key(0), out, avail)
    log_p = np.asarray(dist.log_prob(out, avail, drawn))
    np.testing.assert_allclose(dist.entropy(OUT, AVAIL_2), -log_p.mean(0), atol=0.02)
    log_q = np.asarray(dist.log_prob(other, avail, drawn))
    np.testing.assert_allclose(dist.kl(OUT, other[0], AVAIL_2), (log_p - log_q).mean(0), atol=0.02)


@pytest.mark.parametrize("squash", [False, True])
def test_continuous_actions_stay_in_their_range_and_gradients_finite(squash):
    dist = continuous(squash)
    extreme = jnp.array([[50.0, -50.0, 9.0, -40.0]])
    avail = jnp.ones((1, 2), bool)
    drawn = dist.sample(jax.random.key(1), extreme, avail)
    action = np.asarray(dist.action(drawn))
    assert (action >= -1).all()
    assert (action <= 3).all()
    for function in (dist.entropy, lambda out, avail: dist.log_prob(out, avail, drawn)):
        grads = jax.grad(lambda out, f=function: f(out, avail).sum())(extreme)
        assert np.isfinite(np.asarray(grads)).all()
    middle = dist.action(dist.mode(jnp.zeros((1, 4)), avail))
    np.testing.assert_allclose(middle, 1.0)


def test_divergence_of_discrete_policies():
    other = LOGITS[::-1] * 0.5
    p, q = (np.exp(np.asarray(distributions.log_probs(x, AVAIL), np.float64)) for x in (LOGITS, other))
    expected = np.where(np.asarray(AVAIL), p * np.log(np.maximum(p, 1e-30) / np.maximum(q, 1e-30)), 0).sum(-1)
    np.testing.assert_allclose(distributions.kl(LOGITS, other, AVAIL), expected, rtol=1e-5)
    np.testing.assert_allclose(distributions.kl(LOGITS, LOGITS, AVAIL), 0, atol=1e-7)


def test_at_size_takes_the_smallest_that_fits_and_one_for_a_whole_batch():
    sums = at_size((2, 4, 8), lambda size, x: (x[:size].sum(), jnp.int32(size)))
    x = jnp.arange(8.0)
    for needed, size in ((0, 2), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8)):
        total, used = jax.jit(sums)(jnp.int32(needed), x)
        assert used == size
        assert total == x[:size].sum()
    totals, used = jax.jit(jax.vmap(sums))(jnp.array([1, 3]), jnp.stack([x, 2 * x]))
    assert used.tolist() == [4, 4]
    assert totals.tolist() == [6, 12]
    totals, used = jax.vmap(sums, (0, None))(jnp.array([1, 2]), x)
    assert used.tolist() == [2, 2]
    program = jax.jit(jax.vmap(sums)).lower(jnp.array([1, 3]), jnp.stack([x, x])).as_text()
    assert "case" in program, "a switch that chooses, not one that computes all"


def test_exponential_decay_goes_by_equal_ratios_and_stays():
    steps = jnp.array([0.0, 25.0, 50.0, 100.0, 1000.0])
    found = exponential(0.8, 0.05, 100, steps)
    np.testing.assert_allclose(found, [0.8, 0.4, 0.2, 0.05, 0.05], rtol=1e-5)


def test_epsilon_decays_as_it_is_told_to_from_the_next_rollout_on():
    now = Clock(jnp.float32(40), jnp.float32(1))
    for kind, expected in (("linear", 0.8 - 0.5 * 0.75), ("exponential", 0.2)):
        config = ExplorationConfig(epsilon=0.8, epsilon_end=0.05, epsilon_steps=100, epsilon_decay=kind)
        np.testing.assert_allclose(Exploration(config).after(now, 10), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["iql", "coma"])
@pytest.mark.parametrize("ends", [{"epsilon": 0.0}, {"epsilon_end": 0.0}])
def test_no_ratio_leads_to_zero(name, ends):
    with pytest.raises(PhalanxError, match="choose both above 0, or epsilon_decay=linear"):
        build(name, "debug/roles", epsilon_decay="exponential", **ends)

"""Advantages and targets against loops that a reader can check by eye (pitfalls C1, C3 to C11, C21)."""

import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.ops import returns

GAMMA, LAM = 0.9, 0.7


def batch(seed, time=12, shape=(3, 2), end=0.15, cut=0.15):
    """Rewards, values, next values and flags; next values follow values except where an episode breaks."""
    rng = np.random.default_rng(seed)
    terminated = rng.random((time, *shape)) < end
    truncated = rng.random((time, *shape)) < cut  # both at once may happen, on purpose
    values, final = rng.normal(size=(2, time + 1, *shape)).astype(np.float32)
    broken = terminated | truncated
    next_values = np.where(broken, final[:-1], values[1:])
    rewards = rng.normal(size=(time, *shape)).astype(np.float32)
    return rewards, values[:-1], next_values, terminated, truncated


def slow_lambda(rewards, next_values, terminated, truncated, gamma, lam):
    """One column at a time, from the definition: a weighted sum of n-step returns up to the break."""
    time = len(rewards)
    out = np.zeros(time)
    for t in range(time):
        horizon = next((k for k in range(t, time) if terminated[k] or truncated[k]), time - 1) - t + 1
        n_step = [
            slow_n_step(rewards, next_values, terminated, truncated, gamma, n)[t]
            for n in range(1, horizon + 1)
        ]
        weights = [(1 - lam) * lam ** (n - 1) for n in range(1, horizon)] + [lam ** (horizon - 1)]
        out[t] = np.dot(weights, n_step)
    return out


def slow_n_step(rewards, next_values, terminated, truncated, gamma, n):
    out = np.zeros(len(rewards))
    for t in range(len(rewards)):
        total, discount = 0.0, 1.0
        for k in range(t, min(t + n, len(rewards))):
            total += discount * rewards[k]
            discount *= gamma
            if terminated[k]:
                discount = 0.0
            if terminated[k] or truncated[k]:
                break
        out[t] = total + discount * next_values[k]
    return out


def columns(fn, *arrays):
    """Apply a one-column function to every column of (T, ...) arrays."""
    flat = [np.asarray(a).reshape(len(a), -1) for a in arrays]
    outs = [fn(*(a[:, i] for a in flat)) for i in range(flat[0].shape[1])]
    return np.stack(outs, 1).reshape(np.asarray(arrays[0]).shape)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6))
def test_lambda_returns_equal_the_slow_twin(seed):
    rewards, _, next_values, terminated, truncated = batch(seed)
    fast = returns.lambda_returns(rewards, next_values, terminated, truncated, GAMMA, LAM)
    slow = columns(
        lambda r, v, e, c: slow_lambda(r, v, e, c, GAMMA, LAM), rewards, next_values, terminated, truncated
    )
    np.testing.assert_allclose(fast, slow, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 20])
def test_n_step_returns_equal_the_slow_twin(n):
    rewards, _, next_values, terminated, truncated = batch(n)
    fast = returns.n_step_returns(rewards, next_values, terminated, truncated, GAMMA, n)
    slow = columns(
        lambda r, v, e, c: slow_n_step(r, v, e, c, GAMMA, n), rewards, next_values, terminated, truncated
    )
    np.testing.assert_allclose(fast, slow, atol=1e-5)


def test_gae_equals_the_recursion_and_rlax_where_nothing_is_cut():
    rewards, values, next_values, terminated, _ = batch(3, shape=(), cut=0.0)
    advantage, target = returns.gae(
        rewards, values, next_values, terminated, np.zeros_like(terminated), GAMMA, LAM
    )
    # rlax knows only discounts: an end is a discount of 0, and next values must be the next entries.
    outside = rlax.truncated_generalized_advantage_estimation(
        jnp.asarray(rewards),
        jnp.asarray(GAMMA * (1.0 - terminated)),
        LAM,
        jnp.append(jnp.asarray(values), next_values[-1]),
    )
    np.testing.assert_allclose(advantage, outside, atol=1e-5)
    np.testing.assert_allclose(target, advantage + values, atol=1e-5)


def test_lambda_one_is_the_plain_discounted_return_and_zero_the_one_step_target():
    rewards, _, next_values, terminated, truncated = batch(4)
    plain = returns.lambda_returns(rewards, next_values, terminated, truncated, GAMMA, 1.0)
    slow = columns(
        lambda r, v, e, c: slow_n_step(r, v, e, c, GAMMA, 99), rewards, next_values, terminated, truncated
    )
    np.testing.assert_allclose(plain, slow, atol=1e-5)
    short = returns.lambda_returns(rewards, next_values, terminated, truncated, GAMMA, 0.0)
    np.testing.assert_allclose(
        short, returns.one_step_targets(rewards, next_values, terminated, GAMMA), atol=1e-6
    )


def all_kinds(rewards, values, next_values, terminated, truncated):
    args = (rewards, next_values, terminated, truncated, GAMMA)
    return {
        "lambda": returns.lambda_returns(*args, LAM),
        "n_step": returns.n_step_returns(*args, 3),
        "one_step": returns.one_step_targets(rewards, next_values, terminated, GAMMA),
        "gae": returns.gae(rewards, values, next_values, terminated, truncated, GAMMA, LAM)[1],
    }


def test_two_episodes_in_a_row_are_each_as_if_alone():
    """C3: neither an end nor a cut lets the second episode into the first; C5: nor does padding behind it."""
    for ending in ("terminated", "truncated"):
        rewards, values, next_values, terminated, truncated = batch(5, end=0, cut=0)
        {"terminated": terminated, "truncated": truncated}[ending][5] = True
        whole = all_kinds(rewards, values, next_values, terminated, truncated)
        alone = all_kinds(rewards[:6], values[:6], next_values[:6], terminated[:6], truncated[:6])
        for kind in whole:
            np.testing.assert_allclose(whole[kind][:6], alone[kind], atol=1e-6, err_msg=f"{kind} {ending}")


def test_ended_and_cut_at_once_is_ended():
    """C4, C6: nothing after the end is worth anything, and the last reward is kept (C8)."""
    rewards, values, next_values = np.array([[5.0]]), np.array([[0.0]]), np.array([[1000.0]])
    flag = np.array([[True]])
    for kind, target in all_kinds(rewards, values, next_values, flag, flag).items():
        assert target == 5.0, kind


def test_a_cut_is_bootstrapped_and_an_end_is_not():
    """C1: one a step for ever is worth 1/(1-gamma) when it is cut, and a finite sum when it ends."""
    time = 30
    rewards = np.ones((time, 1))
    worth = np.full((time, 1), 1 / (1 - GAMMA))
    last = (np.arange(time) == time - 1)[:, None]
    never = np.zeros_like(last)
    for kind, target in all_kinds(rewards, worth, worth, never, last).items():
        np.testing.assert_allclose(target, worth, rtol=1e-5, err_msg=kind)
    finite = (1 - GAMMA ** (time - np.arange(time)))[:, None] / (1 - GAMMA)
    next_finite = np.append(finite[1:], [[777.0]], axis=0)
    for kind, target in all_kinds(rewards, finite, next_finite, last, never).items():
        np.testing.assert_allclose(target, finite, rtol=1e-5, err_msg=kind)


def test_targets_are_bounded_by_what_can_be_earned():
    """C9: with values within r_max/(1-gamma), so are the targets."""
    rewards, values, next_values, terminated, truncated = batch(6)
    bound = 1 / (1 - GAMMA)
    clipped = [np.clip(rewards, -1, 1), *(np.clip(v, -bound, bound) for v in (values, next_values))]
    for kind, target in all_kinds(*clipped, terminated, truncated).items():
        assert np.abs(target).max() <= bound + 1e-5, kind


def test_each_agent_is_as_if_alone():
    """C21: agents that break at different times do not touch each other."""
    rewards, values, next_values, terminated, truncated = batch(7)
    together = all_kinds(rewards, values, next_values, terminated, truncated)
    alone = all_kinds(*(a[:, 1:2, 1:2] for a in (rewards, values, next_values, terminated, truncated)))
    for kind in together:
        np.testing.assert_allclose(together[kind][:, 1:2, 1:2], alone[kind], atol=1e-6)

"""Advantages and targets over rollouts with terminated and truncated episodes.

All arrays are (T, ...) with time first. `next_values[t]` is the value of the true observation after step t:
that of the old episode if one ended, never of the new one. After termination the value is 0; truncation is
bootstrapped; both stop the recursion, so that no value leaks from one episode into another.
"""

# JAX and Flax leave parts of their own signatures untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable

import jax
import jax.numpy as jnp

from phalanx.ops.programs import scan
from phalanx.types import Array

AT_A_TIME = 16  # steps of a loop on a GPU; see `scan`


def _backwards(step: Callable[..., Array], init: Array, inputs: tuple[Array, ...]) -> Array:
    """Scan from the last step to the first; outputs in order of time, (T, ...)."""

    def turn(later: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
        out = step(later, *now)
        return out, out

    return scan(turn, init, inputs, AT_A_TIME, reverse=True)[1]


def one_step_targets(rewards: Array, next_values: Array, terminated: Array, gamma: float) -> Array:
    """TD(0): r + gamma V(s'), and r alone at termination. All (T, ...)."""
    return rewards + gamma * jnp.where(terminated, 0.0, next_values)


def lambda_returns(
    rewards: Array, next_values: Array, terminated: Array, truncated: Array, gamma: float, lam: float
) -> Array:
    """TD(lambda): G_t = r_t + gamma ((1 - lam) V(s_t+1) + lam G_t+1). All (T, ...).

    At truncation, and after the last step, V(s_t+1) replaces G_t+1. With `lam` = 1 these are plain discounted
    returns, with 0 one-step targets.
    """

    def step(later: Array, reward: Array, next_value: Array, ended: Array, cut: Array) -> Array:
        onward = jnp.where(cut, next_value, (1 - lam) * next_value + lam * later)
        return reward + gamma * jnp.where(ended, 0.0, onward)

    return _backwards(step, next_values[-1], (rewards, next_values, terminated, truncated))


def gae(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    lam: float,
) -> tuple[Array, Array]:
    """Generalised advantage estimation (Schulman et al. 2016): (advantages, value targets), all (T, ...)."""
    targets = lambda_returns(rewards, next_values, terminated, truncated, gamma, lam)
    return targets - values, targets


def n_step_returns(
    rewards: Array, next_values: Array, terminated: Array, truncated: Array, gamma: float, n: int
) -> Array:
    """r_t + ... + gamma^(n-1) r_t+n-1 + gamma^n V(s_t+n), all (T, ...).

    At truncation and at the end of the rollout the sum is shorter and bootstrapped there; at termination it
    stops without a bootstrap.
    """
    last_step = jnp.arange(rewards.shape[0]) == rewards.shape[0] - 1
    stops = truncated | last_step.reshape(-1, *[1] * (rewards.ndim - 1))
    one_step = one_step_targets(rewards, next_values, terminated, gamma)

    def lengthen(_: Array, shorter: Array) -> Array:
        """From targets of k steps make those of k+1: r + gamma * (the next step's k-step target)."""
        following = jnp.concatenate([shorter[1:], shorter[-1:]])
        return jnp.where(terminated | stops, one_step, rewards + gamma * following)

    return jax.lax.fori_loop(0, n - 1, lengthen, one_step)


def returns_so_far(before: Array, first: Array, rewards: Array, gamma: float) -> tuple[Array, Array]:
    """Discounted returns up to each step: R_t = gamma R_t-1 + r_t, reset where an episode begins.

    From those of running episodes (B, A), `first` (T, B) and rewards (T, B, A). Returns the last, with which
    the next rollout continues, and all, (T, B, A).
    """

    def step(before: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        begins, reward = now
        so_far = jnp.where(begins[:, None], 0.0, gamma * before) + reward
        return so_far, so_far

    return scan(step, before, (first, rewards), AT_A_TIME)

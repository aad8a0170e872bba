"""Exploration of off-policy actors: noise, after a warm-up of random actions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from phalanx.ops import distributions
from phalanx.types import Array, PyTree


class NoisyPolicy(NamedTuple):
    """What acting needs."""

    params: PyTree
    noise: Array
    """() how much is explored; infinite in the warm-up, while actions are random"""


def explore_discrete(key: Array, logits: Array, avail: Array, noise: Array) -> Array:
    """Sample from a softmax policy mixed with a uniform one with weight `noise`: (..., U) -> (...)."""
    policy = jnp.exp(distributions.log_probs(logits, avail))
    log_policy = distributions.explored(policy, avail, jnp.minimum(noise, 1.0))
    return distributions.sample(key, log_policy, avail)


def explore(key: Array, code: Array, noise: Array) -> Array:
    """Actions in [-1, 1] with normal noise, clipped; uniform ones where the noise is infinite."""
    drawn = jax.random.normal(key, code.shape)
    random = jax.lax.erf(drawn / jnp.sqrt(2.0))  # uniform in [-1, 1], from the same draw
    warm_up = jnp.isinf(noise)
    return jnp.where(warm_up, random, (code + jnp.where(warm_up, 0.0, noise) * drawn).clip(-1.0, 1.0))

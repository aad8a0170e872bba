"""Losses, element by element: whoever calls them masks and averages."""

import jax.numpy as jnp

from phalanx.types import Array


def clipped_surrogate(ratio: Array, advantage: Array, clip: float) -> Array:
    """PPO's loss (Schulman et al. 2017, equation 7), to be minimised: (...) -> (...)."""
    clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
    return -jnp.minimum(ratio * advantage, clipped * advantage)


def squared(error: Array) -> Array:
    """Half the squared error."""
    return 0.5 * jnp.square(error)


def huber(error: Array, delta: float) -> Array:
    """Half the squared error up to `delta`, linear beyond."""
    size = jnp.abs(error)
    return jnp.where(size <= delta, 0.5 * jnp.square(error), delta * (size - 0.5 * delta))


def clipped_value_loss(loss, value: Array, old_value: Array, target: Array, clip: float) -> Array:
    """The larger loss of the value and of the value kept within `clip` of the old one.

    All (...), and all on one scale: with value normalisation, all normalised alike.
    """
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    return jnp.maximum(loss(value - target), loss(near - target))


def explained_variance(values: Array, targets: Array) -> Array:
    """1 when values tell targets exactly, 0 when they are no better than a constant; () ."""
    return 1.0 - jnp.var(targets - values) / jnp.maximum(jnp.var(targets), 1e-8)

"""Elementwise losses; the caller masks and averages them."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from phalanx.ops import masks
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


def clipped_value_loss(
    loss: Callable[[Array], Array], value: Array, old_value: Array, target: Array, clip: float
) -> Array:
    """The larger loss of the value and of the value kept within `clip` of the old one.

    All (...), and all on one scale: with value normalisation, all normalised alike.
    """
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    return jnp.maximum(loss(value - target), loss(near - target))


def explained_variance(values: Array, targets: Array, mask: Array, membership: Array | np.ndarray) -> Array:
    """Explained variance of each group's values (..., A): (G,), with `membership` (G, A) of 0 and 1.

    1 if values equal their targets, 0 if they are no better than a constant; only entries in `mask` count.
    """
    _, missed = masks.grouped_moments(targets - values, mask, membership)
    _, var = masks.grouped_moments(targets, mask, membership)
    return 1.0 - missed / jnp.maximum(var, 1e-8)

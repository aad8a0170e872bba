"""The one mask algebra: a number counts where its step is valid, its agent alive, its action available."""

import jax.numpy as jnp
import numpy as np

from phalanx.types import Array


def masked_mean(x: Array, mask: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """Mean of `x` where `mask`, both (...); 0 where nothing counts, never NaN."""
    kept = jnp.where(mask, x, 0.0)
    return kept.sum(axis) / jnp.maximum(mask.sum(axis), 1)


def grouped_mean(x: Array, mask: Array, membership: Array | np.ndarray) -> Array:
    """Mean of x (..., A) over each group's own agents: (G,), with `membership` (G, A) of 0 and 1."""
    leading = tuple(range(x.ndim - 1))
    membership = jnp.asarray(membership)
    sums = membership @ jnp.where(mask, x, 0.0).sum(leading)
    counts = membership @ mask.astype(jnp.float32).sum(leading)
    return sums / jnp.maximum(counts, 1)


def grouped_moments(x: Array, mask: Array, membership: Array | np.ndarray) -> tuple[Array, Array]:
    """Mean and variance of x (..., A) over each group's own agents: (G,), (G,)."""
    mean = grouped_mean(x, mask, membership)
    centred = x - mean @ membership
    return mean, grouped_mean(jnp.square(centred), mask, membership)


def standardise(x: Array, mask: Array, membership: Array | np.ndarray) -> Array:
    """Give x (..., A) mean 0 and deviation 1 over each group's own agents, among what counts."""
    mean, var = grouped_moments(x, mask, membership)
    return (x - mean @ membership) / jnp.sqrt(var @ membership + 1e-8)

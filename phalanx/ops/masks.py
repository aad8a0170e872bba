"""Masked means: a number counts if its step is valid, its agent alive, its action available."""

import jax.numpy as jnp
import numpy as np

from phalanx.types import Array


def masked_mean(x: Array, mask: Array) -> Array:
    """Mean of `x` where `mask`, both (...); 0 where nothing counts, never NaN."""
    return jnp.where(mask, x, 0.0).sum() / jnp.maximum(mask.sum(), 1)


def _by_group(x: Array, membership: Array | np.ndarray) -> Array:
    """Sum x (..., A) over all but its groups: (G,). Not by matrix products, which a GPU may round."""
    return (membership * x.sum(tuple(range(x.ndim - 1)))).sum(-1)


def _by_agent(per_group: Array, membership: Array | np.ndarray) -> Array:
    """Hand (G,) to each group's agents: (A,)."""
    return (membership * per_group[:, None]).sum(0)


def grouped_mean(x: Array, mask: Array, membership: Array | np.ndarray) -> Array:
    """Mean of x (..., A) over each group's own agents: (G,), with `membership` (G, A) of 0 and 1."""
    sums = _by_group(jnp.where(mask, x, 0.0), membership)
    counts = _by_group(mask.astype(jnp.float32), membership)
    return sums / jnp.maximum(counts, 1)


def grouped_moments(x: Array, mask: Array, membership: Array | np.ndarray) -> tuple[Array, Array]:
    """Mean and variance of x (..., A) over each group's own agents: (G,), (G,)."""
    mean = grouped_mean(x, mask, membership)
    centred = x - _by_agent(mean, membership)
    return mean, grouped_mean(jnp.square(centred), mask, membership)


def standardise(x: Array, mask: Array, membership: Array | np.ndarray) -> Array:
    """Give x (..., A) mean 0 and deviation 1 over each group's own agents, among what counts."""
    mean, var = grouped_moments(x, mask, membership)
    return (x - _by_agent(mean, membership)) / jnp.sqrt(_by_agent(var, membership) + 1e-8)

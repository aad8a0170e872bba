"""Values that change with the clock."""

import jax.numpy as jnp

from phalanx.types import Array


def linear(start: float, end: float, over: float, now: Array) -> Array:
    """From `start` to `end` in a straight line while `now` goes from 0 to `over`, and `end` afterwards."""
    return start + jnp.minimum(now / over, 1.0) * (end - start)


def exponential(start: float, end: float, over: float, now: Array) -> Array:
    """From `start` to `end` by equal ratios while `now` goes from 0 to `over`, and `end` afterwards.

    Both must be above 0.
    """
    return start * (end / start) ** jnp.minimum(now / over, 1.0)

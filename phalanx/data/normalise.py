"""Running normalisers: statistics that follow what they normalise, one set a group."""

from typing import NamedTuple

import jax.numpy as jnp

from phalanx.types import Array


class RunningNorm(NamedTuple):
    """Exponential averages of the first two moments of G groups, each (G,).

    They start at zero with no weight; dividing by the weight gathered so far removes that bias,
    as Adam does, so that the first batch already counts in full.
    """

    mean_sum: Array
    square_sum: Array
    weight: Array

    @classmethod
    def start(cls, groups: int) -> "RunningNorm":
        return cls(jnp.zeros(groups), jnp.zeros(groups), jnp.zeros(groups))

    def update(self, mean: Array, var: Array, decay: float) -> "RunningNorm":
        """Take in one batch's moments (G,)."""
        square = var + jnp.square(mean)
        return RunningNorm(
            decay * self.mean_sum + (1 - decay) * mean,
            decay * self.square_sum + (1 - decay) * square,
            decay * self.weight + (1 - decay),
        )

    @property
    def mean(self) -> Array:
        return self.mean_sum / jnp.maximum(self.weight, 1e-8)

    @property
    def std(self) -> Array:
        """1 before anything was seen; never so small that dividing by it blows up noise."""
        var = self.square_sum / jnp.maximum(self.weight, 1e-8) - jnp.square(self.mean)
        return jnp.where(self.weight > 0, jnp.sqrt(jnp.maximum(var, 1e-4)), 1.0)

    def normalise(self, x: Array, group_of: tuple[int, ...]) -> Array:
        """x (..., A) on the scale of each agent's group."""
        which = jnp.array(group_of)
        return (x - self.mean[which]) / self.std[which]

    def denormalise(self, x: Array, group_of: tuple[int, ...]) -> Array:
        """The inverse of `normalise`."""
        which = jnp.array(group_of)
        return x * self.std[which] + self.mean[which]

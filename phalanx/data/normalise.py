"""Running normalisers: statistics that follow what they normalise, one set a group."""

from typing import NamedTuple

import jax.numpy as jnp

from phalanx.types import Array


class RunningNorm(NamedTuple):
    """Exponentially decaying mean and variance of G groups, each (G,).

    Batches are merged with their weights, so that the first one counts in full and nothing is lost
    by subtracting large squares.
    """

    mean: Array
    var: Array
    weight: Array

    @classmethod
    def start(cls, groups: int) -> "RunningNorm":
        """Before anything was seen: mean 0 and deviation 1, with no weight."""
        return cls(jnp.zeros(groups), jnp.ones(groups), jnp.zeros(groups))

    def update(self, mean: Array, var: Array, decay: float) -> "RunningNorm":
        """Take in one batch's moments (G,)."""
        old, new = decay * self.weight, 1 - decay
        weight = jnp.maximum(old + new, 1e-8)
        merged = (old * self.mean + new * mean) / weight
        spread = old * (self.var + jnp.square(self.mean - merged)) + new * (var + jnp.square(mean - merged))
        return RunningNorm(merged, spread / weight, weight)

    @property
    def std(self) -> Array:
        """Never so small beside the mean that dividing by it blows up rounding errors."""
        return jnp.maximum(jnp.sqrt(self.var), 1e-4 * jnp.abs(self.mean) + 1e-6)

    def normalise(self, x: Array, group_of: tuple[int, ...]) -> Array:
        """x (..., A) on the scale of each agent's group."""
        which = jnp.array(group_of)
        return (x - self.mean[which]) / self.std[which]

    def denormalise(self, x: Array, group_of: tuple[int, ...]) -> Array:
        """The inverse of `normalise`."""
        which = jnp.array(group_of)
        return x * self.std[which] + self.mean[which]

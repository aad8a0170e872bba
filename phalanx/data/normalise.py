"""Running statistics for normalisation, one set for each group of agents."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from phalanx.ops.returns import returns_so_far
from phalanx.types import Array

MOST_DEVIATIONS = 10.0  # from the mean, of a normalised observation


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
        """The standard deviation, with a lower limit relative to the mean against rounding errors."""
        return jnp.maximum(jnp.sqrt(self.var), 1e-4 * jnp.abs(self.mean) + 1e-6)

    def normalise(self, x: Array, group_of: tuple[int, ...]) -> Array:
        """x (..., A) on the scale of each agent's group."""
        which = jnp.array(group_of)
        return (x - self.mean[which]) / self.std[which]

    def denormalise(self, x: Array, group_of: tuple[int, ...]) -> Array:
        """The inverse of `normalise`."""
        which = jnp.array(group_of)
        return x * self.std[which] + self.mean[which]


class Moments(NamedTuple):
    """Mean and variance of everything seen so far, each (G, F): F entries for each of G groups of agents."""

    mean: Array
    var: Array
    count: Array
    """float32: how many numbers were seen"""

    @classmethod
    def start(cls, groups: int, entries: int) -> "Moments":
        """Before anything was seen."""
        nothing = jnp.zeros((groups, entries))
        return cls(nothing, nothing, nothing)

    def update(self, x: Array, counted: Array, membership: np.ndarray) -> "Moments":
        """Take in those of x (..., A, F) that are `counted`, (..., A, F) or (..., A, 1) bool.

        `membership` (G, A) is 1 where an agent belongs to a group. Batches are merged as in Chan et al. 1979:
        nothing is lost by subtracting large squares.
        """
        axes = tuple(range(x.ndim - 2))
        counted = jnp.broadcast_to(counted, x.shape)
        number = counted.sum(axes).astype(jnp.float32)  # (A, F), as all that is of each agent
        mean = jnp.where(counted, x, 0.0).sum(axes) / jnp.maximum(number, 1)
        var = jnp.where(counted, jnp.square(x - mean), 0.0).sum(axes) / jnp.maximum(number, 1)

        def total(of_agent: Array) -> Array:
            # Not by a matrix product, which a GPU may round.
            return (membership[..., None] * of_agent).sum(1)

        count = total(number)
        group_mean = total(number * mean) / jnp.maximum(count, 1)
        spread = number * (var + jnp.square(mean - (membership[..., None] * group_mean[:, None]).sum(0)))
        return self._merge(Moments(group_mean, total(spread) / jnp.maximum(count, 1), count))

    def _merge(self, new: "Moments") -> "Moments":
        count = self.count + new.count
        share = new.count / jnp.maximum(count, 1)
        step = new.mean - self.mean
        var = self.var + share * (new.var - self.var + (1 - share) * jnp.square(step))
        return Moments(self.mean + share * step, var, count)

    @property
    def std(self) -> Array:
        """(G, F): infinite before anything was seen.

        It has a lower limit relative to the mean, against rounding errors.
        """
        least = jnp.maximum(1e-5 * jnp.abs(self.mean), 1e-8)
        return jnp.where(self.count > 0, jnp.maximum(jnp.sqrt(self.var), least), jnp.inf)

    def normalise(self, x: Array, group_of: tuple[int, ...], most: float = MOST_DEVIATIONS) -> Array:
        """x (..., A, F) with mean 0 and deviation 1, clipped at `most`; 0 before anything was seen."""
        which = np.array(group_of)
        return jnp.clip((x - self.mean[which]) / self.std[which], -most, most)


class ReturnStatistics(NamedTuple):
    """Statistics of discounted returns up to each step; rewards are divided by their standard deviation."""

    moments: Moments
    """(G, 1)"""
    returns: Array
    """(B, A): the return of each running episode so far"""

    @classmethod
    def start(cls, groups: int, envs: int, agents: int) -> "ReturnStatistics":
        """Before anything was seen."""
        return cls(Moments.start(groups, 1), jnp.zeros((envs, agents)))

    def update(
        self, first: Array, reward: Array, counted: Array, gamma: float, membership: np.ndarray
    ) -> "ReturnStatistics":
        """Take in a rollout: first (T, B), reward and counted (T, B, A), membership (G, A)."""
        last, returns = returns_so_far(self.returns, first, reward, gamma)
        moments = self.moments.update(returns[..., None], counted[..., None], membership)
        return ReturnStatistics(moments, last)

    def scaled(self, reward: Array, group_of: tuple[int, ...]) -> Array:
        """Rewards (..., A), each divided by the deviation of its group."""
        return reward / self.moments.std[np.array(group_of), 0]

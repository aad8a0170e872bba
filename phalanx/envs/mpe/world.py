"""The physics that all particle worlds share: discs that are pushed, damped, and repel each other.

The rules and constants are those of the `mpe2` package, version 1.1.1 (Terry et al., after Lowe et al.
2017, "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments",
https://arxiv.org/abs/1706.02275); `tests/test_mpe.py` runs both side by side.

Everything here is written with environments on the last axis, B (see `phalanx.envs.batching`); E counts the
bodies, agents first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.types import Array

DT = 0.1
DAMPING = 0.25  # the share of its velocity that a body loses in a step
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3  # how far around its edge a body is soft
# Left to itself, a body at velocity v comes to rest v * COAST further on.
COAST = DT / DAMPING
# stay, left, right, down, up
MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])

Color = tuple[float, float, float]
GREY: Color = (0.25, 0.25, 0.25)


@dataclass(frozen=True)
class Body:
    """A disc of mass 1."""

    name: str
    size: float = 0.05
    """its radius"""
    solid: bool = False
    """whether it repels other solid bodies"""
    color: Color = GREY


@dataclass(frozen=True)
class Agent(Body):
    """A body that acts."""

    type: str = "agent"
    team: str = "all"
    moves: bool = True
    speaks: bool = False
    accel: float = 5.0
    """the force of a full push"""
    max_speed: float = float("inf")

    def pull(self, way: Array, velocity: Array | float) -> Array:
        """How hard to push, per axis, in order to come to rest at the end of `way`; 1 is a full push."""
        return (way - COAST * velocity) / (self.accel * DT * COAST)


class Particles(NamedTuple):
    """The state of a particle world."""

    position: Array
    """(E, 2, B)"""
    velocity: Array
    """(A, 2, B); only agents move"""
    said: Array
    """(A, C, B): what each agent said last, zero for those that are silent"""
    drawn: Array
    """(K, B) int32: the landmarks that the scenario drew as goals"""


@dataclass(frozen=True)
class Bodies:
    """All that is in a world."""

    agents: tuple[Agent, ...]
    landmarks: tuple[Body, ...]
    words: int = 0
    """C: how many words a speaker has"""

    @cached_property
    def all(self) -> tuple[Body, ...]:
        return self.agents + self.landmarks

    @cached_property
    def sizes(self) -> np.ndarray:
        """(E,)"""
        return np.array([body.size for body in self.all])

    @cached_property
    def solids(self) -> int:
        """How many bodies, the first ones, repel each other."""
        solid = [body.solid for body in self.all]
        assert solid == sorted(solid, reverse=True), "solid bodies come first"
        return sum(solid)

    @cached_property
    def moves(self) -> np.ndarray:
        """(A,) bool"""
        return np.array([agent.moves for agent in self.agents])

    @cached_property
    def accels(self) -> np.ndarray:
        """(A,)"""
        return np.array([agent.accel for agent in self.agents])

    @cached_property
    def max_speeds(self) -> np.ndarray:
        """(A,)"""
        return np.array([agent.max_speed for agent in self.agents])

    def advance(self, now: Particles, push: Array, said: Array) -> Particles:
        """One step: bodies drift, lose speed, and are pushed by `push` (A, 2, B) and by what they touch."""
        n = len(self.agents)
        moves = self.moves[:, None, None]
        force = jnp.where(moves, self.accels[:, None, None] * push + self.contacts(now.position), 0.0)
        position = jnp.concatenate([now.position[:n] + now.velocity * DT, now.position[n:]])
        velocity = now.velocity * (1 - DAMPING) + force * DT
        if np.isfinite(self.max_speeds).any():
            speed = length(velocity)
            limit = self.max_speeds[:, None]
            # A limit only where one is broken: a body at rest has no direction to keep.
            slower = jnp.where(speed > limit, limit / jnp.where(speed > limit, speed, 1.0), 1.0)
            velocity = velocity * slower[:, None]
        return now._replace(position=position, velocity=velocity, said=said)

    def contacts(self, position: Array) -> Array | float:
        """The force on each agent from all solid bodies around it, (A, 2, B)."""
        if self.solids == 0:
            return 0.0
        n = len(self.agents)
        away = position[:n, None] - position[None, : self.solids]
        itself = np.eye(n, self.solids, dtype=bool)[..., None]
        distance = jnp.where(itself, 1.0, length(away))
        reach = (self.sizes[:n, None] + self.sizes[: self.solids])[..., None]
        # Overlap, rounded off within the margin: log(1 + exp(overlap / margin)) * margin.
        overlap = jnp.logaddexp(0.0, (reach - distance) / CONTACT_MARGIN) * CONTACT_MARGIN
        force = jnp.where(itself, 0.0, CONTACT_FORCE * overlap / distance)
        return total(away * force[:, :, None], 1)


def length(vectors: Array) -> Array:
    """(..., 2, B) -> (..., B)"""
    return jnp.sqrt(jnp.square(vectors[..., 0, :]) + jnp.square(vectors[..., 1, :]))


def total(x: Array, axis: int = 0) -> Array:
    """The sum over an axis of bodies."""
    return _chain(jnp.add, jnp.sum, x, axis)


def least(x: Array, axis: int = 0) -> Array:
    """The minimum over an axis of bodies."""
    return _chain(jnp.minimum, jnp.min, x, axis)


def _chain(pair: Callable[..., Array], all_at_once: Callable[..., Array], x: Array, axis: int) -> Array:
    """Reduce a short axis entry by entry, which XLA turns into vector code on a CPU, unlike a reduction."""
    count = x.shape[axis]
    if not 1 <= count <= 16:
        return all_at_once(x, axis)
    return reduce(pair, (jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in range(count)))


def without(x: Array, i: int) -> Array:
    """All but entry `i` of the first axis."""
    return jnp.concatenate([x[:i], x[i + 1 :]])


def beyond_edge(position: Array) -> Array:
    """What leaving the square costs, (..., 2, B) -> (..., B).

    Along each axis: nothing up to 0.9, rising to 1 at the edge, then steeply to 10.
    """
    x = jnp.abs(position)
    outside = jnp.minimum(jnp.exp(2 * jnp.minimum(x, 4.0) - 2), 10.0)
    cost = jnp.where(x < 0.9, 0.0, jnp.where(x < 1.0, (x - 0.9) * 10, outside))
    return cost[..., 0, :] + cost[..., 1, :]

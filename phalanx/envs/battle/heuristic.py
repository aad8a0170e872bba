"""The scripted team that SMAC brings along (its `heuristic_ai`)."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from phalanx.envs.battle.layout import NO_OP
from phalanx.envs.battle.observe import Observer
from phalanx.envs.battle.world import NOBODY
from phalanx.types import Array, Observation


class Rows(NamedTuple):
    """The state of one side's units, (B, units) each."""

    health: Array
    x: Array
    y: Array


@dataclass(frozen=True)
class NearestEnemy:
    """Attack the nearest enemy, however far, until it is dead; medivacs heal the nearest hurt ally.

    It sees the positions of all units, and may attack targets that the action mask excludes: an attack order
    pursues its target over any distance.
    """

    observer: Observer

    def memory(self, batch: int) -> Array:
        return jnp.full((batch, self.observer.world.allies), NOBODY, jnp.int32)

    def act(self, observation: Observation, first: Array, memory: Array) -> tuple[Array, Array]:
        ours, theirs, medic = self._read(observation.state)
        held = jnp.where(first[:, None], NOBODY, memory)
        foe = self._choose(held, ours, theirs, theirs.health > 0)
        target = foe
        if self.observer.world.can.heal:
            hurt = (ours.health > 0) & (ours.health < 1) & ~medic
            target = jnp.where(medic, self._choose(held, ours, ours, hurt), foe)
        acts = observation.alive & (target != NOBODY)
        return jnp.where(acts, self.observer.first_target + target, NO_OP), target

    def _choose(self, held: Array, ours: Rows, others: Rows, eligible: Array) -> Array:
        """(B, A): who is held while eligible, then the nearest one that is, or NOBODY."""
        square = (ours.x[:, :, None] - others.x[:, None]) ** 2 + (ours.y[:, :, None] - others.y[:, None]) ** 2
        square = jnp.where(eligible[:, None], square, jnp.inf)
        nearest = jnp.where(eligible.any(1)[:, None], jnp.argmin(square, axis=2), NOBODY)
        index = jnp.clip(held, 0, eligible.shape[1] - 1)
        keeps = (held != NOBODY) & jnp.take_along_axis(eligible, index, axis=1)
        return jnp.where(keeps, held, nearest)

    def _read(self, state: Array) -> tuple[Rows, Rows, Array]:
        """Both sides, and which allies are medivacs (B, A), from the global state (B, X)."""
        world, labels = self.observer.world, self.observer.labels[0]
        names = self.observer.state_features(tuple(map(str, range(world.allies))))
        column = {name: i for i, name in enumerate(names)}

        def take(side: str, count: int, entry: str) -> Array:
            return state[:, jnp.array([column[f"{side}{i}: {entry}"] for i in range(count)])]

        ours = Rows(*(take("", world.allies, entry) for entry in ("health", "x", "y")))
        theirs = Rows(*(take("enemy ", world.enemies, entry) for entry in ("health", "x", "y")))
        medic = jnp.zeros(ours.health.shape, bool)
        if "medivac" in labels:
            medic = take("", world.allies, "is medivac") > 0
        return ours, theirs, medic

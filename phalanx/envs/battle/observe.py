"""What agents see of a battle: SMAC's observations. Entries stand beside their names, in one order."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.battle import masks, sight
from phalanx.envs.battle import state as states
from phalanx.envs.battle.layout import DIRECTION_NAMES, FIRST_TARGET, NORTH, Extra, Layout, Parts, others
from phalanx.envs.battle.terrain import SIZE
from phalanx.envs.battle.world import Params, Units
from phalanx.types import Array

# Where the pathing and height options look, from the unit's cell.
PROBES = np.array([[0, 4], [0, -4], [4, 0], [-4, 0], [2, 2], [-2, -2], [2, -2], [-2, 2], [0, 0]])
PROBE_NAMES = ("north", "south", "east", "west", "northeast", "southwest", "southeast", "northwest", "here")


class View(NamedTuple):
    """What one look at the units gives: (A, O, B), (X, B) or (A, X, B), (A, U, B), (A, B)."""

    obs: Array
    state: Array
    avail: Array
    alive: Array


@dataclass(frozen=True)
class Observer(Layout):
    """How a battle is shown."""

    # Names

    def obs_features(self, names: tuple[str, ...], me: int) -> tuple[str, ...]:
        """The names of the entries of one agent's observation."""
        if self.open_loop:
            return ("own time",)
        move = tuple(f"can move {name}" for name in DIRECTION_NAMES)
        if self.pathing:
            move += tuple(f"walkable {name}" for name in PROBE_NAMES[:-1])
        if self.height:
            move += tuple(f"height {name}" for name in PROBE_NAMES)
        place = ("distance", "dx", "dy")
        enemy = ("can attack", *place, *self._vitals(1, self.all_health), *self.type_names(1))
        ally = ("visible", *place, *self._vitals(0, self.all_health), *self.type_names(0))
        if self.last_action:
            ally += self.did_names()
        own = self._vitals(0, self.own_health)
        own += (("x", "y") if self.own_position else ()) + (("facing x", "facing y") if self.cone else ())
        own += self.type_names(0) + (("time",) if self.timestep else ())
        return (
            *move,
            *(f"enemy {j}: {entry}" for j in range(self.world.enemies) for entry in enemy),
            *(f"{name}: {entry}" for i, name in enumerate(names) if i != me for entry in ally),
            *(f"own {entry}" for entry in own),
        )

    def _vitals(self, side: int, shown: bool) -> tuple[str, ...]:
        return ("health", *self.shield_name(side)) if shown else ()

    def state_features(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the entries of the state (of an agent's state, with `state="agent"`)."""
        return states.features(self, names)

    # Seeing

    def look(self, p: Params, kinds: Array | None, u: Units, extra: Extra) -> View:
        """Observations, state and masks of the units as they are."""
        world = self.world
        allies, enemies = world.sides
        alive, batch = u.health > 0, u.x.shape[1]
        seer = alive[allies]
        # From each agent to each unit, (A, N, B).
        dx, dy, distance, visible = self.in_sight(kinds, u, extra.facing)
        if extra.known is not None:
            visible = visible.at[:, enemies].min(extra.known)
        in_cone = True if extra.facing is None else sight.in_cone(dx, dy, extra.facing)
        reach, shoot = self.ranges(kinds)
        targets = masks.targets(self, p, alive[None] & seer[:, None] & (distance <= shoot) & in_cone)
        parts = Parts(
            health=u.health / p.health,
            shield=None if u.shield is None else u.shield / jnp.maximum(p.shield, 1.0),
            bits=(self.type_bits(0, kinds, batch), self.type_bits(1, kinds, batch)),
            did=jax.nn.one_hot(extra.last_action, self.n_actions, axis=1),
            place=(distance, dx, dy),
            visible=visible,
            avail=masks.available(self, u, seer, targets),
        )
        obs = jnp.where(seer[:, None], self._observations(u, extra, parts, reach, targets), 0.0)
        return View(obs, states.values(self, p, kinds, u, extra, parts), parts.avail, seer)

    def _observations(self, u: Units, extra: Extra, parts: Parts, reach: Any, targets: Array) -> Array:
        """(A, O, B): what living agents observe."""
        world, batch = self.world, u.x.shape[1]
        if self.open_loop:
            return self._time(extra, batch)
        enemy_mask = targets[:, : world.enemies].astype(jnp.float32)
        friends = self._seen(0, parts, reach, jnp.ones((world.allies, world.allies, batch)))
        flat = [
            self._move_features(u, parts.avail),
            self._seen(1, parts, reach, enemy_mask).reshape(world.allies, -1, batch),
            others(friends).reshape(world.allies, -1, batch),
            self._own(u, extra, parts),
        ]
        return jnp.concatenate(flat, axis=1)

    def _time(self, extra: Extra, batch: int) -> Array:
        return jnp.broadcast_to(extra.time, (self.world.allies, 1, batch))

    def in_sight(
        self, kinds: Array | None, u: Units, facing: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        """From each agent to each unit, (A, N, B): dx, dy, distance, and whether it sees it."""
        return sight.in_sight(self, kinds, u, facing)

    def ranges(self, kinds: Array | None) -> tuple[Any, Any]:
        """How far each agent sees and its attack mask reaches: numbers, or (A, 1, 1 or B)."""
        return sight.ranges(self, kinds)

    def _seen(self, side: int, parts: Parts, reach: Any, lead: Array) -> Array:
        """(A, units of the side, entries, B): what agents see of a side; `lead` is the first entry."""
        part = self.world.sides[side]
        planes = [lead, *(each[:, part] / reach for each in parts.place)]
        if self.all_health:
            planes.append(jnp.broadcast_to(parts.health[None, part], lead.shape))
            if self.shields[side] and parts.shield is not None:
                planes.append(jnp.broadcast_to(parts.shield[None, part], lead.shape))
        did = [parts.did] if side == 0 and self.last_action else []
        rest = [
            jnp.broadcast_to(each[None], (self.world.allies, *each.shape))
            for each in (*parts.bits[side], *did)
        ]
        entries = jnp.concatenate([jnp.stack(planes, axis=2), *rest], axis=2)
        return jnp.where(parts.visible[:, part, None], entries, 0.0)

    def _move_features(self, u: Units, avail: Array) -> Array:
        features = [avail[:, NORTH:FIRST_TARGET].astype(jnp.float32)]
        terrain, allies = self.world.terrain, self.world.sides[0]
        x, y = u.x[allies].astype(jnp.int32)[:, None], u.y[allies].astype(jnp.int32)[:, None]
        for wanted, grid, probes in (
            (self.pathing, terrain.walkable, PROBES[:-1]),
            (self.height, terrain.level / 4, PROBES),
        ):
            if wanted:
                at_x, at_y = x + probes[:, :1], y + probes[:, 1:]
                found = masks.look_up(self.world, grid, at_x, at_y, outside=True)
                features.append(found.astype(jnp.float32))
        return jnp.concatenate(features, axis=1)

    def _own(self, u: Units, extra: Extra, parts: Parts) -> Array:
        allies = self.world.sides[0]
        planes = []
        if self.own_health:
            planes.append(parts.health[allies])
            if self.shields[0] and parts.shield is not None:
                planes.append(parts.shield[allies])
        if self.own_position:
            planes += [u.x[allies] / SIZE, u.y[allies] / SIZE]
        if extra.facing is not None:
            planes += list(sight.direction(extra.facing))
        nothing = jnp.zeros((self.world.allies, 0, u.x.shape[1]))
        own = [jnp.stack(planes, axis=1) if planes else nothing, *parts.bits[0]]
        if self.timestep:
            own.append(self._time(extra, u.x.shape[1]))
        return jnp.concatenate(own, axis=1)

"""What agents and learners see: SMAC's observations, state and action masks, entry by entry.

Arrays have the environments last: units (N, B), observations (A, O, B), state (X, B), masks (A, U, B).
Each part of a vector is made beside the names of its entries, in the same order.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.battle.terrain import SIZE
from phalanx.envs.battle.units import ENERGY_MAX
from phalanx.envs.battle.world import Params, Units, World, of_side
from phalanx.types import Array

NO_OP, STOP, NORTH, SOUTH, EAST, WEST, FIRST_TARGET = range(7)
DIRECTIONS = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]], np.float32)  # north, south, east, west
DIRECTION_NAMES = ("north", "south", "east", "west")
MOVE = 2.0  # how far a move order points; the mask looks half as far
SIGHT, SHOOT = 9.0, 6.0
LEAST_SHOOT = 2.0  # SMACv2's floor of the attack mask
LOOKS = 12  # directions that a SMACv2 agent with a cone of view can look in
CONE = np.pi / 6
# Where the pathing and height options look, from the unit's cell.
PROBES = np.array([[0, 4], [0, -4], [4, 0], [-4, 0], [2, 2], [-2, -2], [2, -2], [-2, 2], [0, 0]])
PROBE_NAMES = ("north", "south", "east", "west", "northeast", "southwest", "southeast", "northwest", "here")


class View(NamedTuple):
    """What one look at the units gives: (A, O, B), (X, B) or (A, X, B), (A, U, B), (A, B)."""

    obs: Array
    state: Array
    avail: Array
    alive: Array


class Extra(NamedTuple):
    """What observations show besides the units."""

    last_action: Array
    """(A, B) int32, -1 before the first"""
    time: Array
    """(B,) the fraction of the time limit that is over"""
    facing: Array | None
    """(A, B) int32: which of the directions each agent looks in"""
    known: Array | None
    """(A, E, B) bool: which enemies each agent may see at all"""


@dataclass(frozen=True)
class Observer:
    """How a battle is shown."""

    world: World
    labels: tuple[tuple[str, ...], tuple[str, ...]]
    """for allies and enemies: the type names in the order of their one-hot bits; empty without bits"""
    shields: tuple[bool, bool]
    """whether allies and enemies show a shield"""
    unit_ranges: bool = False
    """SMACv2: sight and attack mask by unit type"""
    own_position: bool = False
    """SMACv2: own position in the observation"""
    cone: bool = False
    last_action: bool = False
    timestep: bool = False
    pathing: bool = False
    height: bool = False
    all_health: bool = True
    own_health: bool = True
    state_last_action: bool = True
    state_timestep: bool = False
    state: Literal["global", "agent"] = "global"

    # Sizes and names

    @cached_property
    def n_actions(self) -> int:
        world = self.world
        targets = world.enemies
        if world.drawn and world.can.heal:  # a medivac's targets are its friends
            targets = max(world.allies, world.enemies)
        return self.first_target + targets

    @property
    def first_target(self) -> int:
        return FIRST_TARGET + (LOOKS if self.cone else 0)

    def _bits(self, side: int) -> tuple[str, ...]:
        return tuple(f"is {label}" for label in self.labels[side])

    def _shield(self, side: int) -> tuple[str, ...]:
        return ("shield",) if self.shields[side] else ()

    def _vitals(self, side: int, shown: bool) -> tuple[str, ...]:
        return ("health", *self._shield(side)) if shown else ()

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions; a medivac's `target` is an ally, all others' an enemy."""
        looks = tuple(f"look {360 * k // LOOKS} degrees" for k in range(LOOKS)) if self.cone else ()
        moves = tuple(f"move {name}" for name in DIRECTION_NAMES)
        targets = tuple(f"target {j}" for j in range(self.n_actions - self.first_target))
        return ("no-op", "stop", *moves, *looks, *targets)

    def action_names(self, kind: str) -> tuple[str, ...]:
        """The same as an agent of this unit type would say them; as they are where types are drawn."""
        if self.world.drawn:
            return self.actions
        told = ("target ", "heal agent_" if kind == "medivac" else "attack enemy ")
        return tuple(name.replace(*told) for name in self.actions)

    def obs_features(self, names: tuple[str, ...], me: int) -> tuple[str, ...]:
        """The names of the entries of one agent's observation."""
        move = tuple(f"can move {name}" for name in DIRECTION_NAMES)
        if self.pathing:
            move += tuple(f"walkable {name}" for name in PROBE_NAMES[:-1])
        if self.height:
            move += tuple(f"height {name}" for name in PROBE_NAMES)
        place = ("distance", "dx", "dy")
        enemy = ("can attack", *place, *self._vitals(1, self.all_health), *self._bits(1))
        ally = ("visible", *place, *self._vitals(0, self.all_health), *self._bits(0))
        if self.last_action:
            ally += tuple(f"did {action}" for action in self.actions)
        own = self._vitals(0, self.own_health)
        own += (("x", "y") if self.own_position else ()) + (("facing x", "facing y") if self.cone else ())
        own += self._bits(0) + (("time",) if self.timestep else ())
        return (
            *move,
            *(f"enemy {j}: {entry}" for j in range(self.world.enemies) for entry in enemy),
            *(f"{name}: {entry}" for i, name in enumerate(names) if i != me for entry in ally),
            *(f"own {entry}" for entry in own),
        )

    def state_features(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the entries of the state (of an agent's state, with `state="agent"`)."""
        return self._agent_state_features(names) if self.state == "agent" else self._global_features(names)

    def _global_features(self, names: tuple[str, ...]) -> tuple[str, ...]:
        cone = ("facing x", "facing y") if self.cone else ()
        ally = ("health", "cooldown or energy", "x", "y", *self._shield(0), *cone, *self._bits(0))
        enemy = ("health", "x", "y", *self._shield(1), *self._bits(1))
        did = tuple(f"did {action}" for action in self.actions) if self.state_last_action else ()
        return (
            *(f"{name}: {entry}" for name in names for entry in ally),
            *(f"enemy {j}: {entry}" for j in range(self.world.enemies) for entry in enemy),
            *(f"{name}: {entry}" for name in names for entry in did),
            *(("time",) if self.state_timestep else ()),
        )

    def _agent_state_features(self, names: tuple[str, ...]) -> tuple[str, ...]:
        did = tuple(f"did {action}" for action in self.actions)
        place = ("distance", "dx", "dy")
        ally = ("visible", *place, "cooldown or energy", "health")
        ally += (*self._shield(0), "x", "y", *self._bits(0), *did)
        enemy = ("can attack", *place, "visible", "health", *self._shield(1), *self._bits(1), "x", "y")
        own = ("present", "nothing 1", "nothing 2", "nothing 3", "health", *self._shield(0), "x", "y")
        return (
            *(f"other ally {i}: {entry}" for i in range(self.world.allies - 1) for entry in ally),
            *(f"enemy {j}: {entry}" for j in range(self.world.enemies) for entry in enemy),
            *(f"can move {name}" for name in DIRECTION_NAMES),
            *(f"own {entry}" for entry in (*own, *self._bits(0), *did)),
            *(f"is {name}" for name in names),
        )

    # Seeing

    def look(self, p: Params, kinds: Array | None, u: Units, extra: Extra) -> View:
        """Observations, state and masks of the units as they are."""
        world = self.world
        allies, enemies = world.sides
        batch = u.x.shape[1]
        alive = u.health > 0
        seer = alive[allies]
        # From each agent to each unit, (A, N, B).
        dx, dy, distance, visible = self.in_sight(kinds, u, extra.facing)
        sight, shoot = self.ranges(kinds)
        present = alive[None] & seer[:, None]
        in_cone = True if extra.facing is None else _in_cone(dx, dy, extra.facing)
        if extra.known is not None:
            visible = visible.at[:, enemies].min(extra.known)
        aimable = present & (distance <= shoot) & in_cone
        targets = self._targets(p, aimable)
        avail = self._avail(u, seer, targets, batch)

        health = u.health / p.health
        shield = None if u.shield is None else u.shield / jnp.maximum(p.shield, 1.0)
        bits = (self._one_hot(0, kinds, batch), self._one_hot(1, kinds, batch))
        did = jax.nn.one_hot(extra.last_action, self.n_actions, axis=1)  # (A, U, B)
        place = [distance / sight, dx / sight, dy / sight]

        def shown(side: int, extra_planes: list[Array], lead: Array) -> Array:
            """(A, units of the side, entries, B)"""
            part = world.sides[side]
            planes = [lead, *(each[:, part] for each in place)]
            if self.all_health:
                planes.append(jnp.broadcast_to(health[None, part], lead.shape))
                if self.shields[side] and shield is not None:
                    planes.append(jnp.broadcast_to(shield[None, part], lead.shape))
            stacked = jnp.stack(planes, axis=2)
            rest = [
                jnp.broadcast_to(each[None], (world.allies, *each.shape))
                for each in (*bits[side], *extra_planes)
            ]
            return jnp.where(visible[:, part, None], jnp.concatenate([stacked, *rest], axis=2), 0.0)

        enemy_mask = targets[:, : world.enemies].astype(jnp.float32)
        seen_enemies = shown(1, [], enemy_mask)
        friends = shown(0, [did] if self.last_action else [], jnp.ones(dx[:, allies].shape))
        own = self._own(u, extra, health, shield, bits[0])
        flat = [
            self._move_features(u, avail),
            seen_enemies.reshape(world.allies, -1, batch),
            _others(friends).reshape(world.allies, -1, batch),
            own,
        ]
        obs = jnp.where(seer[:, None], jnp.concatenate(flat, axis=1), 0.0)
        if self.state == "agent":
            state = self._agent_state(p, kinds, u, avail, (distance, dx, dy), visible, shield, bits, did)
        else:
            state = self._global_state(p, kinds, u, extra, shield, bits, did)
        return View(obs, state, avail, seer)

    def in_sight(
        self, kinds: Array | None, u: Units, facing: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        """From each agent to each unit, (A, N, B): dx, dy, distance, and whether it sees it."""
        allies, alive = self.world.sides[0], u.health > 0
        dx, dy = u.x[None] - u.x[allies, None], u.y[None] - u.y[allies, None]
        distance = jnp.sqrt(dx * dx + dy * dy)
        sight, _ = self.ranges(kinds)
        # SMACv2 counts the limit in when it has cones, and else out.
        near = distance < sight
        if facing is not None:
            near = (distance <= sight) & _in_cone(dx, dy, facing)
        return dx, dy, distance, alive[None] & alive[allies, None] & near

    def ranges(self, kinds: Array | None) -> tuple[Any, Any]:
        """How far each agent sees and its attack mask reaches: numbers, or (A, 1, 1 or B)."""
        if not self.unit_ranges:
            return np.float32(SIGHT), np.float32(SHOOT)
        sight = self._of_type(kinds, [unit.sight for unit in self.world.types])
        shoot = self._of_type(kinds, [max(unit.shoots, LEAST_SHOOT) for unit in self.world.types])
        return sight[:, None], shoot[:, None]

    def _of_type(self, kinds: Array | None, values: list[float]) -> Any:
        """(A, 1 or B): what each agent's type has of `values`, one a type."""
        table = np.array(values, np.float32)
        if kinds is None:
            return table[list(self.world.kinds)][self.world.sides[0]][:, None]
        return jnp.asarray(table)[kinds[self.world.sides[0]]]

    def _targets(self, p: Params, aimable: Array) -> Array:
        """(A, targets, B): whom each agent may attack or, for a medivac, heal, by number."""
        allies, enemies = self.world.sides
        count = self.n_actions - self.first_target
        attack = _pad(aimable[:, enemies], count)
        if not self.world.can.heal:
            return attack
        heals = jnp.broadcast_to(p.heal, (self.world.n, p.heal.shape[-1]))[allies]
        patients = _pad(aimable[:, allies] & ~heals[None], self.world.allies)
        return jnp.where(heals[:, None], _pad(patients, count), attack)

    def _avail(self, u: Units, seer: Array, targets: Array, batch: int) -> Array:
        moves = jnp.stack([self._can_move(u, dx, dy) for dx, dy in DIRECTIONS], axis=1) & seer[:, None]
        always = [~seer[:, None], seer[:, None], moves]
        if self.cone:
            always.append(jnp.broadcast_to(seer[:, None], (self.world.allies, LOOKS, batch)))
        return jnp.concatenate([*always, targets], axis=1)

    def _can_move(self, u: Units, dx: float, dy: float) -> Array:
        """(A, B): whether the cell half a move ahead is walkable; cut toward zero, as SMAC's `int` does."""
        allies = self.world.sides[0]
        x = (u.x[allies] + 0.5 * MOVE * dx).astype(jnp.int32)
        y = (u.y[allies] + 0.5 * MOVE * dy).astype(jnp.int32)
        return self._ask(self.world.terrain.walkable, x, y, outside=False)

    def _ask(self, grid: np.ndarray, x: Array, y: Array, outside: bool) -> Array:
        """`grid[x, y]`, or `outside` off the map."""
        rectangle = self.world.terrain.rectangle
        inside = (x >= 0) & (x < SIZE) & (y >= 0) & (y < SIZE)
        if grid.dtype == bool and rectangle is not None:
            west, south, east, north = map(int, rectangle)
            value = (x >= west) & (x < east) & (y >= south) & (y < north)
        else:
            value = jnp.asarray(grid.reshape(-1))[x.clip(0, SIZE - 1) * SIZE + y.clip(0, SIZE - 1)]
        return jnp.where(inside, value, outside)

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
                features.append(self._ask(grid, at_x, at_y, outside=True).astype(jnp.float32))
        return jnp.concatenate(features, axis=1)

    def _one_hot(self, side: int, kinds: Array | None, batch: int) -> list[Array]:
        """[(units, bits, B)] or [] without bits."""
        labels = self.labels[side]
        if not labels:
            return []
        part, world = self.world.sides[side], self.world
        order = np.array([labels.index(unit.name) for unit in world.types])
        if kinds is None:
            bit = order[list(world.kinds)][part]
            rows = np.eye(len(labels), dtype=np.float32)[bit]
            return [jnp.broadcast_to(rows[..., None], (*rows.shape, batch))]
        bit = jnp.asarray(order)[kinds[part]]
        return [(bit[:, None] == np.arange(len(labels))[:, None]).astype(jnp.float32)]

    def _own(self, u: Units, extra: Extra, health: Array, shield: Array | None, bits: list[Array]) -> Array:
        allies = self.world.sides[0]
        planes = []
        if self.own_health:
            planes.append(health[allies])
            if self.shields[0] and shield is not None:
                planes.append(shield[allies])
        if self.own_position:
            planes += [u.x[allies] / SIZE, u.y[allies] / SIZE]
        if extra.facing is not None:
            planes += list(_direction(extra.facing))
        nothing = jnp.zeros((self.world.allies, 0, u.x.shape[1]))
        parts = [jnp.stack(planes, axis=1) if planes else nothing, *bits]
        if self.timestep:
            parts.append(jnp.broadcast_to(extra.time, (self.world.allies, 1, u.x.shape[1])))
        return jnp.concatenate(parts, axis=1)

    def _global_state(self, p, kinds, u: Units, extra: Extra, shield, bits, did) -> Array:
        allies, enemies = self.world.sides
        alive = (u.health > 0)[:, None]
        health, x, y = u.health / p.health, (u.x - SIZE / 2) / SIZE, (u.y - SIZE / 2) / SIZE
        facing = list(_direction(extra.facing)) if extra.facing is not None else []
        planes = [health[allies], self._readiness(p, kinds, u), x[allies], y[allies]]
        planes += [*([shield[allies]] if self.shields[0] else []), *facing]
        ours = jnp.concatenate([jnp.stack(planes, axis=1), *bits[0]], axis=1)
        planes = [health[enemies], x[enemies], y[enemies]]
        planes += [shield[enemies]] if self.shields[1] else []
        theirs = jnp.concatenate([jnp.stack(planes, axis=1), *bits[1]], axis=1)
        batch = u.x.shape[1]
        rows = [
            jnp.where(alive[allies], ours, 0.0).reshape(-1, batch),
            jnp.where(alive[enemies], theirs, 0.0).reshape(-1, batch),
        ]
        if self.state_last_action:
            rows.append(did.reshape(-1, batch))
        if self.state_timestep:
            rows.append(extra.time[None])
        return jnp.concatenate(rows)

    def _readiness(self, p: Params, kinds: Array | None, u: Units) -> Array:
        """(A, B): the weapon's cooldown over SMAC's scale of it, or a medivac's energy."""
        allies = self.world.sides[0]
        scale = self._of_type(kinds, [unit.cooldown_scale for unit in self.world.types])
        ready = jnp.maximum(u.cooldown[allies], 0.0) / scale
        if u.energy is None:
            return ready
        return jnp.where(of_side(p.heal, allies), u.energy[allies] / ENERGY_MAX, ready)

    def _agent_state(self, p, kinds, u: Units, avail, place, visible, shield, bits, did) -> Array:
        """(A, X, B): the state as one agent sees it, in the layout of MAPPO's authors' environment.

        Everything is told however far it is, and whether it is within sight.
        """
        world = self.world
        allies, enemies = world.sides
        alive, batch = u.health > 0, u.x.shape[1]
        count = world.allies
        x, y = (u.x - SIZE / 2) / SIZE, (u.y - SIZE / 2) / SIZE
        health = u.health / p.health
        present = (alive[None] & alive[allies, None])[:, :, None]

        def spread(each: Array, part: slice) -> Array:
            return jnp.broadcast_to(each[part][None], (count, *each[part].shape))

        place = [each / SIGHT for each in place]
        sees = visible.astype(jnp.float32)
        whose = _pad(self._readiness(p, kinds, u), world.n, axis=0)
        ours = [sees[:, allies], *(each[:, allies] for each in place)]
        ours += [spread(each, allies) for each in (whose, health)]
        ours += [spread(shield, allies)] if self.shields[0] else []
        ours += [spread(x, allies), spread(y, allies)]
        lead = avail[:, self.first_target :][:, : world.enemies].astype(jnp.float32)
        theirs = [lead, *(each[:, enemies] for each in place), sees[:, enemies]]
        theirs += [spread(health, enemies)]
        theirs += [spread(shield, enemies)] if self.shields[1] else []
        where = jnp.stack([spread(x, enemies), spread(y, enemies)], 2)
        friend_bits = [jnp.broadcast_to(each[None], (count, *each.shape)) for each in (*bits[0], did)]
        foe_bits = [jnp.broadcast_to(each[None], (count, *each.shape)) for each in bits[1]]
        friends = jnp.where(present[:, allies], jnp.concatenate([jnp.stack(ours, 2), *friend_bits], 2), 0.0)
        foes = jnp.where(
            present[:, enemies], jnp.concatenate([jnp.stack(theirs, 2), *foe_bits, where], 2), 0.0
        )
        one, nothing = jnp.ones((count, batch)), jnp.zeros((count, batch))
        own = [one, nothing, nothing, nothing, health[allies]]
        own += [shield[allies]] if self.shields[0] else []
        own += [x[allies], y[allies]]
        ids = jnp.broadcast_to(np.eye(count, dtype=np.float32)[..., None], (count, count, batch))
        seen = [
            _others(friends).reshape(count, -1, batch),
            foes.reshape(count, -1, batch),
            avail[:, NORTH:FIRST_TARGET].astype(jnp.float32),
            jnp.concatenate([jnp.stack(own, 1), *bits[0], did], axis=1),
        ]
        seen = jnp.where(alive[allies, None], jnp.concatenate(seen, axis=1), 0.0)
        return jnp.concatenate([seen, ids], axis=1)


def _pad(x: Array, count: int, axis: int = 1) -> Array:
    """Append zeros (False) until an axis has `count` entries."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, max(0, count - x.shape[axis]))
    return jnp.pad(x, widths)


def _others(x: Array) -> Array:
    """(A, A, ...) -> (A, A - 1, ...): what each agent sees of the others, itself left out.

    In the flattened square the diagonal stands at every (A + 1)th place.
    """
    count, rest = x.shape[0], x.shape[2:]
    flat = x.reshape(count * count, *rest)[1:]
    return flat.reshape(count - 1, count + 1, *rest)[:, :-1].reshape(count, count - 1, *rest)


def _direction(facing: Array) -> tuple[Array, Array]:
    """The unit vector of a direction to look in: 0 is east, then counter-clockwise."""
    angle = facing * np.float32(2 * np.pi / LOOKS)
    return jnp.cos(angle), jnp.sin(angle)


def _in_cone(dx: Array, dy: Array, facing: Array) -> Array:
    """(A, N, B): whether a unit lies within half the cone's width of where the agent looks."""
    fx, fy = _direction(facing)
    ahead = dx * fx[:, None] + dy * fy[:, None]
    return ahead >= jnp.sqrt(dx * dx + dy * dy) * np.float32(np.cos(CONE / 2)) - 1e-6

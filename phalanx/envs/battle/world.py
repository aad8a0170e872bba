"""The parts of a battle: sides, unit types and terrain, and the state of all units.

Arrays are (N, B): N units, allies first, B environments (see `envs.batching` for why B is last).
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.battle import units as data
from phalanx.envs.battle.terrain import Terrain
from phalanx.envs.battle.units import LOOPS_PER_SECOND, UnitType
from phalanx.types import Array, PyTree

NOBODY = -1
FAR = 4000.0  # where the dead are put, so that no distance test finds them
NEVER_GIVE_UP = 1000.0  # a target at this distance is still pursued; one at FAR is not
INDEX_BITS = 127  # the low bits of a distance that hold an index: see `nearest`
FEW_UNITS = 8  # up to so many, a CPU selects among them one by one
NO_ONE_NEAR = jnp.iinfo(jnp.int32).max


class Params(NamedTuple):
    """What each unit is, (N, 1), or (N, B) where types differ between environments. Times in loops."""

    health: Any
    shield: Any
    radius: Any
    body: Any
    range: Any
    slop: Any
    scan: Any
    period: Any
    windup: Any
    backswing: Any
    damage: Any
    bonus_light: Any
    bonus_armored: Any
    armour: Any
    light: Any
    armored: Any
    biological: Any
    speed: Any
    acceleration: Any
    regeneration: Any
    flying: Any
    strides: Any
    hits_air: Any
    instant: Any
    missile: Any
    double: Any
    beam: Any
    burst: Any
    heal: Any


def _row(unit: UnitType) -> Params:
    loop = 1 / LOOPS_PER_SECOND
    same = ("health", "shield", "radius", "body", "range", "slop", "scan", "damage", "armour")
    same += ("bonus_light", "bonus_armored")
    flags = ("light", "armored", "biological", "flying", "strides", "hits_air")
    return Params(
        **{name: float(getattr(unit, name)) for name in same},
        **{name: getattr(unit, name) for name in flags},
        period=unit.period / loop,
        windup=unit.windup / loop,
        backswing=unit.backswing / loop,
        speed=unit.speed * loop,
        acceleration=unit.acceleration * loop * loop,
        regeneration=unit.regeneration * loop,
        **{name: unit.delivery == name for name in ("instant", "missile", "double", "beam", "burst", "heal")},
    )


class Units(NamedTuple):
    """What changes, (N, B) each. From `shield` on, None where no unit of the scenario has any use for it."""

    x: Array
    y: Array
    health: Array
    cooldown: Array
    """loops until the weapon is ready"""
    swing: Array
    """loops that the attack in progress has taken so far; below 0, loops until the back-swing is over"""
    aim: Array
    """int32: the unit that is attacked, healed or pursued"""
    blocked: Array
    """-1 to 1: how much a unit's way was barred of late, and so how far it turns aside; left is positive"""
    fired: Array
    """bool: during the last step"""
    shield: Any
    calm: Any
    """loops since the last damage"""
    energy: Any
    pace: Any
    """speed of units that accelerate slowly"""
    flight: Any
    """loops until what was fired arrives, 0 when nothing is under way"""
    flight_at: Any
    """int32: whom it will hit"""
    beam: Any
    """(4, N, B): the middle of the line that a beam sweeps, and the direction of the shot"""
    burst: Any
    """bool: died in a chain of explosions, and will explode in the next loop"""


class BattleState(NamedTuple):
    """A battle between two steps."""

    units: Units
    kinds: Array | None
    """(N,) int32, where types are drawn anew for each episode"""
    memory: PyTree
    """the opponent's"""
    last_action: Array
    """(A,) int32, -1 before the first"""
    steps: Array
    facing: Array | None = None
    """(A,) int32: where each agent looks, with a cone of view"""
    known: Array | None = None
    """(A, E) bool: which enemies each agent may see"""
    lucky: Array | None = None
    """(A, E) bool: which enemies each agent may see though another saw them first"""


class Orders(NamedTuple):
    """What each unit is told for a step, (N, B) each."""

    aim: Array
    """int32: whom to attack, or heal"""
    goal_x: Array
    goal_y: Array
    walks: Array
    """bool: walk to the goal while there is no target"""
    keep: Array
    """how far the gap to the target may grow before it is given up"""


class Seen(NamedTuple):
    """The targets as the units see them, (N, B) each."""

    x: Array
    y: Array
    dx: Array
    dy: Array
    distance: Array
    gap: Array
    """from edge to edge"""
    has: Array
    """bool: there is a target, and it can be attacked"""


class Can(NamedTuple):
    """What any unit of a scenario can do."""

    shield: bool
    regenerate: bool
    armour: bool
    delay: bool
    beam: bool
    burst: bool
    heal: bool


@dataclass(frozen=True)
class World:
    """What stays the same: the sides, the types, the ground."""

    allies: int
    types: tuple[UnitType, ...]
    """the types that occur"""
    kinds: tuple[int, ...]
    """for each unit an index into `types`; where they are drawn anew each time, any"""
    drawn: bool
    """whether types are drawn anew for each episode"""
    terrain: Terrain
    enemies_acquire: bool
    """whether enemies look for targets by themselves"""

    @property
    def n(self) -> int:
        return len(self.kinds)

    @property
    def enemies(self) -> int:
        return self.n - self.allies

    @cached_property
    def sides(self) -> tuple[slice, slice]:
        return slice(0, self.allies), slice(self.allies, self.n)

    @cached_property
    def can(self) -> Can:
        ts = self.types
        return Can(
            shield=any(t.shield for t in ts),
            regenerate=any(t.regeneration for t in ts),
            armour=any(t.armour for t in ts),
            delay=any(t.delivery in ("missile", "double", "beam") for t in ts),
            beam=any(t.delivery == "beam" for t in ts),
            burst=any(t.delivery == "burst" for t in ts),
            heal=any(t.delivery == "heal" for t in ts),
        )

    def params(self, kinds: Array | None) -> Params:
        """The units' stats, (N, 1) constants or, for drawn kinds (N, B), arrays (N, B)."""
        table = [np.array(column) for column in zip(*map(_row, self.types), strict=True)]
        table = [column.astype(np.float32) if column.dtype == float else column for column in table]
        if kinds is None:
            return Params(*(column[list(self.kinds)][:, None] for column in table))
        return Params(*(_choose(column, kinds) for column in table))

    def members(self, side: slice, flag: str | None) -> np.ndarray:
        """The units of a side that can be of a type with this flag, or all."""
        units = np.arange(side.start, side.stop)
        if self.drawn or flag is None:
            return units
        return units[[getattr(_row(self.types[self.kinds[i]]), flag) for i in units]]


def _choose(column: np.ndarray, kinds: Array) -> Array | np.ndarray:
    """`column[kinds]` for very few types: a chain of selections, which fuses with what follows."""
    if (column == column[0]).all():
        return column[:1, None]
    value = jnp.full(kinds.shape, column[0])
    for k, entry in enumerate(column[1:], 1):
        value = jnp.where(kinds == k, entry, value)
    return value


def of_side(values: Any, side: slice) -> Any:
    """One side's part of (N, ...), or of a constant that all share, (1, 1)."""
    return values[side] if values.shape[0] > 1 else values


def pick(values: Any, index: Array) -> Any:
    """`values[index]` along the units: (N, B) or constants (N, 1), at (..., B)."""
    index = jnp.maximum(index, 0)
    if isinstance(values, np.ndarray):
        if (values == values.flat[0]).all():
            return values.flat[0]
        return jnp.asarray(values)[:, 0][index]
    gather = partial(jnp.take_along_axis, axis=0)
    if len(values) > FEW_UNITS:
        return gather(values, index)
    return jax.lax.platform_dependent(values, index, cpu=_select, default=gather)


def _select(values: Array, index: Array) -> Array:
    """The same as a chain of selections: a CPU does not vectorise a gather."""
    chosen = jnp.broadcast_to(values[0], index.shape)
    for k in range(1, len(values)):
        chosen = jnp.where(index == k, values[k], chosen)
    return chosen


def nearest(distance: Array, index: Array | int) -> Array:
    """Join a squared distance (>= 0) and an index into one int32 whose minimum is the nearest one's.

    The bits of a positive float sort as integers do; the lowest seven hold the index, which leaves
    the distance 5 digits. Ties go to the lower index.
    """
    bits = jax.lax.bitcast_convert_type(distance.astype(jnp.float32), jnp.int32)
    return (bits & ~INDEX_BITS) | index


def nearest_index(key: Array) -> Array:
    """The index within the least of such joined numbers, or NOBODY."""
    return jnp.where(key == NO_ONE_NEAR, NOBODY, key & INDEX_BITS)


def start(world: World, params: Params, x: Array, y: Array) -> Units:
    """All units alive and well at (N, B) places."""
    can = world.can
    zero = jnp.zeros_like(x)
    nobody = jnp.full(x.shape, NOBODY, jnp.int32)
    return Units(
        x=x,
        y=y,
        health=zero + params.health,
        cooldown=zero,
        swing=zero,
        aim=nobody,
        blocked=zero,
        fired=zero > 0,
        shield=zero + params.shield if can.shield else None,
        calm=zero + LOOPS_PER_SECOND * data.SHIELD_DELAY if can.shield else None,
        energy=zero + params.heal * data.ENERGY_START if can.heal else None,
        pace=zero if can.heal else None,
        flight=zero if can.delay else None,
        flight_at=nobody if can.delay else None,
        beam=jnp.zeros((4, *x.shape)) if can.beam else None,
        burst=zero > 0 if can.burst else None,
    )

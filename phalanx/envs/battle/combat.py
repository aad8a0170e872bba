"""The physics: what happens to all units during one game loop, of which an env step has eight.

Arrays are (N, B): N units, allies first, B environments (see `ops.batching` for why B is last). What
no unit of a scenario can do is not computed: `World.can` says what they can, and the parts of
`Units` that nobody needs are None.

A loop goes: look at the target, attack or walk, keep out of each other's way, let what was fired
arrive, heal and regenerate, and let units that act by themselves look for a target. Hits of one
loop are simultaneous.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.battle import units as data
from phalanx.envs.battle.terrain import SIZE, Terrain
from phalanx.envs.battle.units import LOOPS_PER_SECOND, UnitType
from phalanx.ops.batching import fold
from phalanx.types import Array

LOOPS = 8  # game loops in an env step
NOBODY = -1
FAR = 4000.0  # where the dead are put, so that no distance test finds them
NEVER_GIVE_UP = 1000.0  # a target at this distance is still pursued; one at FAR is not
ARRIVED = 0.01  # who is this close to its goal stays there
MOST_PUSH = 0.25  # cells that a crowd can move a unit in a loop
HESITATION = 0.5  # how much slower a unit walks whose way is wholly barred
PATIENCE = 0.75  # how much of its detour a unit that was barred keeps up, from loop to loop
NO_CONTACT = -1000.0
JITTER = (-1.0, 2.0)  # loops, added to each cooldown
INDEX_BITS = 127  # the low bits of a distance that hold an index: see `nearest`


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
    damage: Any
    hits: Any
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
    same = ("health", "shield", "radius", "body", "range", "slop", "scan", "damage", "hits", "armour")
    flags = ("light", "armored", "biological", "flying", "strides", "hits_air")
    return Params(
        **{name: float(getattr(unit, name)) for name in same},
        **{name: getattr(unit, name) for name in flags},
        bonus_light=unit.bonus_light,
        bonus_armored=unit.bonus_armored,
        period=unit.period / loop,
        windup=unit.windup / loop,
        speed=unit.speed * loop,
        acceleration=unit.acceleration * loop * loop,
        regeneration=unit.regeneration * loop,
        **{name: unit.delivery == name for name in ("instant", "missile", "double", "beam", "burst", "heal")},
    )


class Units(NamedTuple):
    """What changes, (N, B) each."""

    x: Array
    y: Array
    health: Array
    cooldown: Array
    """loops until the weapon is ready"""
    swing: Array
    """loops that the attack in progress has taken so far, 0 when there is none"""
    aim: Array
    """int32: the unit that is attacked, healed or pursued"""
    blocked: Array
    """0 to 1: how much a unit's way was barred of late, and so how far it turns aside"""
    fired: Array
    """bool: during the last step"""
    shield: Array | None
    calm: Array | None
    """loops since the last damage"""
    energy: Array | None
    pace: Array | None
    """speed of units that accelerate slowly"""
    flight: Array | None
    """loops until what was fired arrives, 0 when nothing is under way"""
    flight_at: Array | None
    """int32: whom it will hit"""
    beam: Array | None
    """(4, N, B): the middle of the line that a beam sweeps, and the direction of the shot"""
    burst: Array | None
    """bool: died in a chain of explosions, and will explode in the next loop"""


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

    def members(self, side: slice, flag: str) -> np.ndarray:
        """The units of a side that can be of a type with this flag."""
        units = np.arange(side.start, side.stop)
        if self.drawn:
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


def pick(values: Any, index: Array) -> Any:
    """`values[index]` along the units: (N, B) or constants (N, 1), at (..., B)."""
    index = jnp.maximum(index, 0)
    if isinstance(values, np.ndarray):
        if (values == values.flat[0]).all():
            return values.flat[0]
        return jnp.asarray(values)[:, 0][index]
    return jnp.take_along_axis(values, index, axis=0)


def nearest(distance: Array, index: Array | int) -> Array:
    """Join a squared distance (>= 0) and an index into one int32 whose minimum is the nearest one's.

    The bits of a positive float sort as integers do; the lowest seven hold the index, which leaves
    the distance 5 digits. Ties go to the lower index.
    """
    bits = jax.lax.bitcast_convert_type(distance.astype(jnp.float32), jnp.int32)
    return (bits & ~INDEX_BITS) | index


NO_ONE_NEAR = jnp.iinfo(jnp.int32).max


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


def advance(
    world: World, params: Params, units: Units, orders: Orders, jitter: Array, loops: int = LOOPS
) -> Units:
    """One env step: eight loops under the same orders. `jitter` (N, B) is added to the next cooldowns."""
    # An attack goes on only under the same order; a second blade is lost with it.
    same = units.aim == orders.aim
    units = units._replace(
        aim=orders.aim, swing=jnp.where(same, units.swing, 0.0), fired=jnp.zeros_like(units.fired)
    )
    if units.flight is not None and units.flight_at is not None:
        lost = params.double & (units.flight_at != orders.aim)
        units = units._replace(flight=jnp.where(lost, 0.0, units.flight))
    contact, sees = _contact(world, params), _sees(world, params)

    def loop(units: Units, _: None) -> tuple[Units, None]:
        return _loop(world, params, contact, sees, orders, jitter, units), None

    return jax.lax.scan(loop, units, None, loops)[0]


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


def _loop(world: World, p: Params, contact: Any, sees: Any, orders: Orders, jitter: Array, u: Units) -> Units:
    alive = u.health > 0
    seen = _look(world, p, orders, u, alive)
    reach = seen.has & (seen.gap <= p.range)

    begins = reach & (u.cooldown <= 0) & ~p.heal
    swings = ((u.swing > 0) & seen.has & (seen.gap <= p.range + p.slop)) | begins
    fires = swings & (u.swing >= p.windup)
    swing = jnp.where(swings & ~fires, u.swing + 1, 0.0)
    # What a cooldown is short of a whole loop is carried on, so that the mean rate is right.
    cooldown = u.cooldown + jnp.where(fires, p.period + jitter, 0.0)
    cooldown = jnp.where((cooldown > 0) | (swing > 0), cooldown - 1, 0.0)

    x, y, blocked, pace = _move(world, p, contact, orders, u, alive, seen, reach, swings)
    moved = u._replace(x=x, y=y, blocked=blocked, pace=pace, swing=swing, cooldown=cooldown)
    hurt = _strike(world, p, moved, seen, fires, alive)
    healed = _mend(world, p, hurt, reach)
    aim = jnp.where(seen.has, u.aim, NOBODY)
    if world.enemies_acquire:
        free = ~(reach | swings) & (orders.keep < NEVER_GIVE_UP)
        aim = _acquire(world, sees, healed, aim, free)
    return healed._replace(aim=aim, fired=u.fired | fires)


def _look(world: World, p: Params, orders: Orders, u: Units, alive: Array) -> Seen:
    tx = pick(jnp.where(alive, u.x, FAR), u.aim)
    ty = pick(jnp.where(alive, u.y, FAR), u.aim)
    dx, dy = tx - u.x, ty - u.y
    distance = jnp.sqrt(dx * dx + dy * dy)
    gap = distance - (p.radius + pick(p.radius, u.aim))
    keep = jnp.where(u.aim == orders.aim, orders.keep, p.scan)
    has = alive & (u.aim >= 0) & (gap <= keep)
    if world.can.heal:
        index = jnp.arange(world.n)[:, None]
        friend = (u.aim < world.allies) == (index < world.allies)
        flies = pick(p.flying, u.aim)
        weapon = ~friend & (p.hits_air | ~flies)
        heals = friend & ~flies & pick(p.biological, u.aim) & (u.aim != index)
        has &= jnp.where(p.heal, heals, weapon)
    return Seen(tx, ty, dx, dy, distance, gap, has)


# Walking


def _contact(world: World, p: Params) -> Any:
    """(N, N, 1 or B): how close the centres of two units can come; NO_CONTACT for those in two planes."""
    plane = p.flying + 2 * p.strides
    xp = np if isinstance(plane, np.ndarray) and isinstance(p.body, np.ndarray) else jnp
    touch = (plane[:, None] == plane[None]) & ~np.eye(world.n, dtype=bool)[..., None]
    return xp.where(touch, p.body[:, None] + p.body[None], NO_CONTACT).astype(np.float32)


def _move(world, p: Params, contact, orders: Orders, u: Units, alive, seen: Seen, reach, swings):
    """Where everybody stands after the loop, how barred their ways were, and their pace."""
    to_x = jnp.where(seen.has, seen.x, orders.goal_x)
    to_y = jnp.where(seen.has, seen.y, orders.goal_y)
    if world.terrain.rectangle is None:
        via, via_x, via_y = _waypoint(world.terrain, u.x, u.y, to_x, to_y)
        via = via & ~p.flying & ~p.strides
        to_x, to_y = jnp.where(via, via_x, to_x), jnp.where(via, via_y, to_y)
    dx, dy = to_x - u.x, to_y - u.y
    way = jnp.sqrt(dx * dx + dy * dy)
    wants = alive & (seen.has | orders.walks) & ~reach & ~swings & (p.speed > 0) & (way > ARRIVED)
    pace, speed = u.pace, p.speed
    if pace is not None:
        pace = jnp.where(wants, jnp.minimum(pace + p.acceleration, p.speed), 0.0)
        speed = pace
    length = jnp.minimum(speed, way)
    # Who was barred turns aside, half of the units to the left and half to the right.
    side = np.where(np.arange(world.n) % 2, 1.0, -1.0).astype(np.float32)[:, None] * u.blocked
    ahead = 1 - u.blocked
    scale = 1 / (jnp.maximum(way, ARRIVED) * jnp.sqrt(ahead * ahead + u.blocked * u.blocked))
    ux, uy = (ahead * dx - side * dy) * scale, (ahead * dy + side * dx) * scale
    length = jnp.where(wants, length * (1 - HESITATION * u.blocked), 0.0)
    vx, vy = ux * length, uy * length
    # Who stands is not pushed by enemies, and gives way to friends, but a little and only when idle.
    stands = jnp.where(wants, 0.0, 1.0)
    firm = jnp.where(wants, 0.0, jnp.where(reach | swings | (p.speed == 0), 1.0, 0.5))
    ours = np.arange(world.n) < world.allies
    foe = (ours[:, None] != ours[None])[..., None].astype(np.float32)

    def push(other):
        ox, oy, ovx, ovy, ofirm, ostands, foe, touch = other
        rx, ry = u.x - ox, u.y - oy
        square = rx * rx + ry * ry + 1e-6
        inverse = jax.lax.rsqrt(square)
        apart = (vx - ovx) * rx + (vy - ovy) * ry  # the speed at which they part, times the distance
        overlap = jnp.maximum(touch - (square + apart) * inverse, 0.0)
        resists = (ofirm - firm) + foe * ((ostands - ofirm) - (stands - firm))
        share = overlap * inverse * (0.5 + 0.5 * resists)
        return rx * share, ry * share

    far_x, far_y = jnp.where(alive, u.x, FAR), jnp.where(alive, u.y, FAR)
    px, py = fold(push, ("sum", "sum"), (far_x, far_y, vx, vy, firm, stands, foe, contact))
    mobile = alive & (p.speed > 0)
    x = u.x + jnp.where(mobile, vx + px.clip(-MOST_PUSH, MOST_PUSH), 0.0)
    y = u.y + jnp.where(mobile, vy + py.clip(-MOST_PUSH, MOST_PUSH), 0.0)
    x, y = _keep_inside(world.terrain, p, u.x, u.y, x, y)
    progress = (x - u.x) * ux + (y - u.y) * uy
    refused = 1 - progress / jnp.maximum(length, 1e-6)
    blocked = jnp.where(wants, jnp.maximum(refused.clip(0, 1), PATIENCE * u.blocked), 0.0)
    return x, y, blocked, pace


def _waypoint(terrain: Terrain, x, y, to_x, to_y):
    """Whether the way from one place to another goes round a corner, and where that corner is."""
    routes = terrain.routes

    def cell(x, y):
        at = jnp.floor(x).astype(jnp.int32).clip(0, SIZE - 1) * SIZE
        return jnp.asarray(routes.cell)[at + jnp.floor(y).astype(jnp.int32).clip(0, SIZE - 1)]

    via = jnp.asarray(routes.via)[cell(x, y) * routes.cells + cell(to_x, to_y)]
    return via > 0, jnp.asarray(routes.x)[via], jnp.asarray(routes.y)[via]


EDGE = 1e-3


def _keep_inside(terrain: Terrain, p: Params, old_x, old_y, x, y):
    """Let nobody leave its ground: what bars one axis leaves the other, so that units slide along walls."""
    inside_map = (x.clip(EDGE, SIZE - EDGE), y.clip(EDGE, SIZE - EDGE))
    if terrain.rectangle is not None:
        west, south, east, north = terrain.rectangle
        ground = x.clip(west + EDGE, east - EDGE), y.clip(south + EDGE, north - EDGE)
        if isinstance(p.flying, np.ndarray) and not p.flying.any():
            return ground
        return jnp.where(p.flying, inside_map[0], ground[0]), jnp.where(p.flying, inside_map[1], ground[1])
    walk = jnp.asarray(terrain.walkable.reshape(-1))
    stride = jnp.asarray(terrain.stridable.reshape(-1))

    def free(x, y):
        at = jnp.floor(x).astype(jnp.int32) * SIZE + jnp.floor(y).astype(jnp.int32)
        return p.flying | walk[at] | (p.strides & stride[at])

    x, y = inside_map
    x = jnp.where(free(x, old_y), x, old_x)
    return x, jnp.where(free(x, y), y, old_y)


# Damage


def _strike(world: World, p: Params, u: Units, seen: Seen, fires: Array, alive: Array) -> Units:
    """Let what was fired arrive."""
    can = world.can
    lands, at = fires & (p.instant | p.double), u.aim
    if u.flight is not None and u.flight_at is not None:
        flight = u.flight - 1
        # Missiles fly on when their sender dies; a blade or a beam does not.
        arrives = (u.flight > 0) & (flight <= 0) & (p.missile | alive)
        lands, at = lands | (arrives & ~p.beam), jnp.where(arrives, u.flight_at, u.aim)
        delay = jnp.where(
            p.missile,
            jnp.maximum(seen.distance - p.radius, 0.0) * (LOOPS_PER_SECOND / data.MISSILE_SPEED),
            jnp.where(p.double, data.SECOND_STRIKE, data.BEAM_DELAY) * LOOPS_PER_SECOND,
        )
        launches = fires & ~p.instant & ~p.burst
        flight = jnp.where(launches, jnp.maximum(delay, 1.0), jnp.maximum(flight, 0.0))
        u = u._replace(flight=flight, flight_at=jnp.where(launches, u.aim, u.flight_at))
        if can.beam:
            shot = jnp.stack([seen.x, seen.y, seen.dx / seen.distance, seen.dy / seen.distance])
            u = u._replace(beam=jnp.where(launches & p.beam, shot, u.beam))
    else:
        arrives = None
    raw, count = jnp.zeros_like(u.x), jnp.zeros_like(u.x)
    hits = []
    for attackers, defenders in (world.sides, world.sides[::-1]):
        target = jnp.arange(defenders.start, defenders.stop)[:, None]
        strength = _damage(p, attackers, defenders)

        def blow(attack, target=target):
            lands, at, strength = attack
            here = lands & (at == target)
            return jnp.where(here, strength, 0.0), here.astype(jnp.float32)

        columns = (lands[attackers], at[attackers], strength)
        hits.append(fold(blow, ("sum", "sum"), columns))
    raw, count = (jnp.concatenate([theirs, ours]) for ours, theirs in zip(*hits, strict=True))
    if can.beam and arrives is not None:
        more = _area(world, p, u, "beam", arrives & p.beam, alive)
        raw, count = raw + more[0], count + more[1]
    if not can.burst:
        return _hurt(world, p, u, raw, count)
    u = _hurt(world, p, u, raw, count)
    u = u._replace(health=jnp.where(fires & p.burst, 0.0, u.health))
    explodes = (alive & (u.health <= 0) & p.burst) | u.burst
    after = _hurt(world, p, u, *_area(world, p, u, "burst", explodes, u.health > 0))
    return after._replace(burst=(u.health > 0) & (after.health <= 0) & p.burst)


def _damage(p: Params, attackers: slice, defenders: slice) -> Any:
    """(K, D, 1 or B): one hit of each attacker on each defender, before shields and armour."""

    def part(values, side):
        return values[side] if values.shape[0] > 1 else values

    def each(values):
        return part(values, attackers)[:, None]

    xp = np if all(isinstance(v, np.ndarray) for v in p) else jnp
    full = (
        each(p.damage)
        + each(p.bonus_light) * part(p.light, defenders)[None]
        + each(p.bonus_armored) * part(p.armored, defenders)[None]
    )
    count = attackers.stop - attackers.start
    return xp.broadcast_to(full, (count, *full.shape[1:])).astype(np.float32)


def _area(world: World, p: Params, u: Units, flag: str, acts: Array, alive: Array) -> tuple[Array, Array]:
    """(N, B) damage and number of hits by all beams or bursts: whoever is an enemy, on the ground, in it."""
    raw, count = [], []
    for defenders, attackers in (world.sides, world.sides[::-1]):
        members = world.members(attackers, flag)
        if not len(members):
            nothing = jnp.zeros((defenders.stop - defenders.start, u.x.shape[1]))
            raw.append(nothing), count.append(nothing)
            continue
        target = jnp.arange(defenders.start, defenders.stop)[:, None]
        x, y = u.x[defenders], u.y[defenders]
        radius = _of(p.radius, defenders)
        hittable = alive[defenders] & ~_of(p.flying, defenders)
        strength = _damage(p, attackers, defenders)[members - attackers.start]
        hits = jnp.broadcast_to(jnp.asarray(p.hits, jnp.float32), (world.n, p.hits.shape[-1]))[members]
        if flag == "burst":

            def area(source, x=x, y=y, radius=radius, hittable=hittable):
                acts, sx, sy, strength = source
                dx, dy, far = x - sx, y - sy, data.BURST_RADIUS + radius
                here = acts & hittable & (dx * dx + dy * dy <= far * far)
                return jnp.where(here, strength, 0.0), here.astype(jnp.float32)

            columns = (acts[members], u.x[members], u.y[members], strength)
        else:
            assert u.beam is not None and u.flight_at is not None
            level = jnp.asarray(world.terrain.level.reshape(-1))
            flat = bool((world.terrain.level[world.terrain.stridable] == 1).all())

            def height(x, y, level=level, flat=flat):
                if flat:
                    return jnp.ones_like(x)
                return level[jnp.floor(x).astype(jnp.int32) * SIZE + jnp.floor(y).astype(jnp.int32)]

            def area(source, x=x, y=y, radius=radius, hittable=hittable, target=target, height=height):
                acts, at, line, strength, hits, line_height = source
                dx, dy = x - line[0], y - line[1]
                along, across = dx * line[2] + dy * line[3], dy * line[2] - dx * line[3]
                on_line = (jnp.abs(across) <= data.BEAM_HALF_LENGTH + radius) & (
                    jnp.abs(along) <= data.BEAM_HALF_WIDTH + radius
                )
                here = acts & hittable & ((at == target) | (on_line & (height(x, y) == line_height)))
                return jnp.where(here, hits * strength, 0.0), jnp.where(here, hits, 0.0)

            line = jnp.moveaxis(u.beam[:, members], 0, 1)
            columns = (
                acts[members],
                u.flight_at[members],
                line,
                strength,
                hits,
                height(line[:, 0], line[:, 1]),
            )
        some_raw, some_count = fold(area, ("sum", "sum"), columns)
        raw.append(some_raw), count.append(some_count)
    return jnp.concatenate(raw), jnp.concatenate(count)


def _of(values: Any, side: slice) -> Any:
    """One side's part of (N, ...) or of a constant that all share, (1, 1)."""
    return values[side] if values.shape[0] > 1 else values


def _hurt(world: World, p: Params, u: Units, raw: Array, count: Array) -> Units:
    """Take `count` hits of `raw` damage in all: first from the shield, then, less armour each, from health.

    Exact when the hits of one loop are equally strong; else the hits that pierce the shield are
    counted as if they were.
    """
    if u.shield is None:
        loss = raw
        if world.can.armour:
            loss = jnp.maximum(raw - p.armour * count, data.LEAST_DAMAGE * count)
        return u._replace(health=jnp.maximum(u.health - loss, 0.0))
    past = raw - jnp.minimum(raw, u.shield)
    absorbed = jnp.floor(u.shield * count / jnp.maximum(raw, 1e-6) + 1e-4)
    piercing = count - jnp.minimum(absorbed, count)
    loss = jnp.where(past > 0, jnp.maximum(past - p.armour * piercing, data.LEAST_DAMAGE * piercing), 0.0)
    return u._replace(
        health=jnp.maximum(u.health - loss, 0.0),
        shield=jnp.maximum(u.shield - raw, 0.0),
        calm=jnp.where(raw > 0, 0.0, u.calm),
    )


def _mend(world: World, p: Params, u: Units, reach: Array) -> Units:
    """Regenerate and heal the living."""
    alive = u.health > 0
    if u.shield is not None and u.calm is not None:
        rests = alive & (u.calm >= data.SHIELD_DELAY * LOOPS_PER_SECOND)
        shield = jnp.where(rests, u.shield + data.SHIELD_RATE / LOOPS_PER_SECOND, u.shield)
        u = u._replace(shield=jnp.minimum(shield, p.shield), calm=u.calm + 1)
    if world.can.regenerate:
        u = u._replace(health=jnp.where(alive, jnp.minimum(u.health + p.regeneration, p.health), u.health))
    if u.energy is None:
        return u
    heal = data.HEAL_RATE / LOOPS_PER_SECOND
    cost = heal * data.ENERGY_PER_HEALTH
    hurt = pick(u.health, u.aim) < pick(p.health, u.aim)
    heals = p.heal & alive & reach & hurt & (u.energy >= cost)
    given = []
    for side in world.sides:
        members = world.members(side, "heal")
        target = jnp.arange(side.start, side.stop)[:, None]

        def give(medic, target=target):
            heals, at = medic
            return (jnp.where(heals & (at == target), heal, 0.0),)

        if len(members):
            given += fold(give, ("sum",), (heals[members], u.aim[members]))
        else:
            given.append(jnp.zeros((side.stop - side.start, u.x.shape[1])))
    health = jnp.minimum(u.health + jnp.concatenate(given), p.health)
    energy = u.energy - jnp.where(heals, cost, 0.0) + data.ENERGY_RATE / LOOPS_PER_SECOND
    return u._replace(
        health=jnp.where(alive, health, u.health),
        energy=jnp.where(p.heal & alive, jnp.minimum(energy, data.ENERGY_MAX), 0.0),
    )


# Acting without being told


def _sees(world: World, p: Params) -> Any:
    """(A, E, 1 or B): the squared distance at which each enemy notices each ally; -1 for whom it cannot hit."""
    allies, enemies = world.sides
    reach = (_of(p.scan, enemies) + _of(p.radius, enemies))[None] + _of(p.radius, allies)[:, None]
    able = ~_of(p.heal, enemies)[None] & (_of(p.hits_air, enemies)[None] | ~_of(p.flying, allies)[:, None])
    xp = np if all(isinstance(v, np.ndarray) for v in (reach, able)) else jnp
    shape = (world.allies, world.enemies, max(reach.shape[-1], able.shape[-1]))
    return xp.broadcast_to(xp.where(able, reach * reach, -1.0), shape).astype(np.float32)


def _acquire(world: World, sees: Any, u: Units, aim: Array, free: Array) -> Array:
    """Enemies take the nearest ally that they notice, unless they fight already or were told whom to attack."""
    allies, enemies = world.sides
    x, y = u.x[enemies], u.y[enemies]
    living = u.health[allies] > 0

    def notice(ally):
        ax, ay, sees, index = ally
        dx, dy = x - ax, y - ay
        square = dx * dx + dy * dy
        return (jnp.where(square <= sees, nearest(square, index), NO_ONE_NEAR),)

    far_x, far_y = jnp.where(living, u.x[allies], FAR), jnp.where(living, u.y[allies], FAR)
    columns = (far_x, far_y, sees, jnp.arange(world.allies, dtype=jnp.int32))
    (key,) = fold(notice, ("min",), columns)
    held = aim[enemies]
    takes = ((held == NOBODY) | free[enemies]) & (key != NO_ONE_NEAR)
    return jnp.concatenate([aim[allies], jnp.where(takes, nearest_index(key), held)])

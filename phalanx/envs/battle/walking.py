"""Walking: towards a target or a goal, round corners and crowds, and never where one cannot stand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.batching import fold
from phalanx.envs.battle.terrain import SIZE, Terrain
from phalanx.envs.battle.world import FAR, Orders, Params, Seen, Units, World
from phalanx.types import Array

ARRIVED = 0.01  # who is this close to its goal stays there
MOST_PUSH = 0.25  # cells that a crowd can move a unit in a loop
HESITATION = 0.5  # how much slower a unit walks whose way is wholly barred
SURE = 0.1  # who is barred more than this does not change sides
SLIGHT = 1e-3  # a bar, or the sine of a push's angle, that may be nothing but rounding
PATIENCE = 0.75  # how much of its detour a unit that was barred keeps up, from loop to loop
NO_CONTACT = -1000.0
EDGE = 1e-3  # how close to the border of its ground a unit can come


def contact(world: World, p: Params) -> Any:
    """(N, N, 1 or B): how close the centres of two units can come; NO_CONTACT for those in two planes."""
    plane = p.flying + 2 * p.strides
    xp = np if isinstance(plane, np.ndarray) and isinstance(p.body, np.ndarray) else jnp
    touch = (plane[:, None] == plane[None]) & ~np.eye(world.n, dtype=bool)[..., None]
    return xp.where(touch, p.body[:, None] + p.body[None], NO_CONTACT).astype(np.float32)


def move(
    world: World,
    p: Params,
    contact: Any,
    orders: Orders,
    u: Units,
    alive: Array,
    seen: Seen,
    fights: Array,
) -> tuple[Array, Array, Array, Array | None]:
    """Where everybody stands after the loop, how barred their ways were, and their pace."""
    to_x = jnp.where(seen.has, seen.x, orders.goal_x)
    to_y = jnp.where(seen.has, seen.y, orders.goal_y)
    if world.terrain.rectangle is None:
        via, via_x, via_y = _waypoint(world.terrain, u.x, u.y, to_x, to_y)
        # Who is sent into a wall walks straight at it and slides along; a target there is walked round to.
        via = via & (seen.has | _stands_on(world.terrain.walkable, to_x, to_y)) & ~p.flying & ~p.strides
        to_x, to_y = jnp.where(via, via_x, to_x), jnp.where(via, via_y, to_y)
    dx, dy = to_x - u.x, to_y - u.y
    way = jnp.sqrt(dx * dx + dy * dy)
    wants = alive & (seen.has | orders.walks) & ~fights & (p.speed > 0) & (way > ARRIVED)
    pace, speed = u.pace, p.speed
    if pace is not None:
        pace = jnp.where(wants, jnp.minimum(pace + p.acceleration, p.speed), 0.0)
        speed = pace
    length = jnp.minimum(speed, way)
    # Who was barred turns aside.
    barred = jnp.abs(u.blocked)
    ahead, scale = 1 - barred, 1 / jnp.maximum(way, ARRIVED)
    turned = scale / jnp.sqrt(ahead * ahead + barred * barred)
    ux, uy = (ahead * dx - u.blocked * dy) * turned, (ahead * dy + u.blocked * dx) * turned
    length = jnp.where(wants, length * (1 - HESITATION * barred), 0.0)
    vx, vy = ux * length, uy * length
    idle = ~fights & (p.speed > 0)
    px, py = _pushes(world, contact, u, alive, wants, idle, vx, vy)
    mobile = alive & (p.speed > 0)
    x = u.x + jnp.where(mobile, vx + px.clip(-MOST_PUSH, MOST_PUSH), 0.0)
    y = u.y + jnp.where(mobile, vy + py.clip(-MOST_PUSH, MOST_PUSH), 0.0)
    progress = (x - u.x) * ux + (y - u.y) * uy  # what others left of it: a wall is no reason to turn aside
    x, y = _keep_inside(world.terrain, p, u.x, u.y, x, y)
    refused = (1 - progress / jnp.maximum(length, 1e-6)).clip(0, 1)
    left = _turns_left(world, u, dx, dy, px, py)
    more = jnp.maximum(refused, PATIENCE * barred)
    blocked = jnp.where(wants, jnp.where(left, more, -more), 0.0)
    return x, y, blocked, pace


def _turns_left(world: World, u: Units, dx: Array, dy: Array, px: Array, py: Array) -> Array:
    """(N, B) bool: the side that the barred turn to. (dx, dy) is the way, (px, py) how others push.

    It is the side that others push to, and then the same until the way is free.
    """
    barred, pushed = jnp.abs(u.blocked), dx * py - dy * px
    if not world.enemies_acquire:
        # In a mirror too: who is not pushed aside keeps to its side, or turns to the middle of the map. Under
        # the script rounding decides, or it turns left: results with version 4 of the rules are of that.
        aside = jnp.abs(pushed) > SLIGHT * jnp.sqrt((dx * dx + dy * dy) * (px * px + py * py))
        middle = dx * (SIZE / 2 - u.y) - dy * (SIZE / 2 - u.x)
        pushed = jnp.where(aside, pushed, jnp.where(barred > SLIGHT, u.blocked, middle))
    return jnp.where(barred > SURE, u.blocked, pushed) >= 0


def _pushes(
    world: World, contact: Any, u: Units, alive: Array, wants: Array, idle: Array, vx: Array, vy: Array
) -> tuple[Array, Array]:
    """(N, B) twice: how far others push each unit. Units that want to walk do so by (vx, vy).

    Who stands is not pushed by enemies, and gives way to friends, but a little and only when idle.
    """
    stands = jnp.where(wants, 0.0, 1.0)
    firm = jnp.where(wants, 0.0, jnp.where(idle, 0.5, 1.0))
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
    return px, py


def _cell(x: Array, y: Array) -> Array:
    """The place of a cell in a flattened grid."""
    column, row = jnp.floor(x).astype(jnp.int32), jnp.floor(y).astype(jnp.int32)
    return column.clip(0, SIZE - 1) * SIZE + row.clip(0, SIZE - 1)


def _stands_on(cells: np.ndarray, x: Array, y: Array) -> Array:
    """Whether places lie on some of the cells (32, 32)."""
    return jnp.asarray(cells.reshape(-1))[_cell(x, y)]


def _waypoint(terrain: Terrain, x, y, to_x, to_y):
    """Whether the way from one place to another goes round a corner, and where that corner is."""
    routes = terrain.routes
    here, there = (jnp.asarray(routes.cell)[cell] for cell in (_cell(x, y), _cell(to_x, to_y)))
    via = jnp.asarray(routes.via)[here * routes.cells + there]
    return via > 0, jnp.asarray(routes.x)[via], jnp.asarray(routes.y)[via]


def _keep_inside(terrain: Terrain, p: Params, old_x, old_y, x, y):
    """Let nobody leave its ground: what bars one axis leaves the other, so that units slide along walls."""
    inside_map = (x.clip(EDGE, SIZE - EDGE), y.clip(EDGE, SIZE - EDGE))
    if terrain.rectangle is not None:
        west, south, east, north = terrain.rectangle
        ground = x.clip(west + EDGE, east - EDGE), y.clip(south + EDGE, north - EDGE)
        if isinstance(p.flying, np.ndarray) and not p.flying.any():
            return ground
        return jnp.where(p.flying, inside_map[0], ground[0]), jnp.where(p.flying, inside_map[1], ground[1])

    def free(x: Array, y: Array) -> Array:
        walks = _stands_on(terrain.walkable, x, y)
        return p.flying | walks | (p.strides & _stands_on(terrain.stridable, x, y))

    x, y = inside_map
    x = jnp.where(free(x, old_y), x, old_x)
    return x, jnp.where(free(x, y), y, old_y)

"""One game loop. An env step has eight game loops.

Abilities that no unit of a scenario has are not computed: see `World.can`.

A loop goes: look at the target, attack or walk, keep out of each other's way, let what was fired
arrive, heal and regenerate, and let units that act by themselves look for a target. Hits of one
loop are simultaneous.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.batching import fold
from phalanx.envs.battle import damage, walking
from phalanx.envs.battle.world import (
    FAR,
    NO_ONE_NEAR,
    NOBODY,
    Orders,
    Params,
    Seen,
    Units,
    World,
    nearest,
    nearest_index,
    of_side,
    pick,
)
from phalanx.ops.programs import unroll
from phalanx.types import Array

LOOPS = 8  # game loops in an env step
UNROLL = 2  # game loops that are compiled one after the other, on a GPU
FEW_PAIRS = 2**16  # of units: up to so many, kernels take longer to launch than to run, so all are unrolled
JITTER = (-1.0, 2.0)  # loops, added to each cooldown


def advance(
    world: World, params: Params, units: Units, orders: Orders, jitter: Array, loops: int = LOOPS
) -> Units:
    """One env step: eight loops under the same orders. `jitter` (N, B) is added to the next cooldowns."""
    # An attack goes on only under the same order; a second blade is lost with it, a back-swing cut.
    same = (units.aim == orders.aim) & (orders.aim != NOBODY)
    units = units._replace(
        aim=orders.aim,
        swing=jnp.where(same, units.swing, 0.0),
        cooldown=jnp.where(same, units.cooldown, jnp.maximum(units.cooldown, 0.0)),
        fired=jnp.zeros_like(units.fired),
    )
    if world.can.delay:
        lost = params.double & (units.flight_at != orders.aim)
        units = units._replace(flight=jnp.where(lost, 0.0, units.flight))
    contact, noticed = walking.contact(world, params), sees(world, params)

    def loop(units: Units, _: None) -> tuple[Units, None]:
        return _loop(world, params, contact, noticed, orders, jitter, units), None

    few = world.n * units.x.size <= FEW_PAIRS
    return jax.lax.scan(loop, units, None, loops, unroll=unroll(loops if few else min(UNROLL, loops)))[0]


def _loop(world: World, p: Params, contact: Any, sees: Any, orders: Orders, jitter: Array, u: Units) -> Units:
    alive = u.health > 0
    seen = _look(world, p, orders, u, alive)
    reach = seen.has & (seen.gap <= p.range)

    begins = reach & (u.cooldown <= 0) & ~p.heal
    swings = ((u.swing > 0) & seen.has & (seen.gap <= p.range + p.slop)) | begins
    so_far = jnp.maximum(u.swing, 0.0)
    fires = swings & (so_far >= p.windup)
    rest = jnp.minimum(jnp.minimum(u.swing, 0.0) + 1, 0.0)
    swing = jnp.where(fires, -p.backswing, jnp.where(swings, so_far + 1, rest))
    # What a cooldown is short of a whole loop is carried on, so that the mean rate is right.
    cooldown = u.cooldown + jnp.where(fires, p.period + jitter, 0.0)
    cooldown = jnp.where((cooldown > 0) | (swing > 0), cooldown - 1, 0.0)

    fights = reach | swings | (u.swing < 0)
    x, y, blocked, pace = walking.move(world, p, contact, orders, u, alive, seen, fights)
    moved = u._replace(x=x, y=y, blocked=blocked, pace=pace, swing=swing, cooldown=cooldown)
    hurt = damage.strike(world, p, moved, seen, fires, alive)
    healed = damage.mend(world, p, hurt, reach)
    aim = jnp.where(seen.has, u.aim, NOBODY)
    if world.enemies_acquire:
        # A target is kept while it can be hit; else one looks again, unless it was told to pursue it.
        aim = _acquire(world, sees, healed, aim, ~fights & (orders.keep <= p.scan))
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


# Acting without being told


def sees(world: World, p: Params) -> Any:
    """(A, E, 1 or B): the square of how far off each enemy notices each ally; -1 for whom it cannot hit."""
    allies, enemies = world.sides

    def mine(values: Any) -> Any:
        return of_side(values, enemies)[None]

    def yours(values: Any) -> Any:
        return of_side(values, allies)[:, None]

    reach = mine(p.scan) + mine(p.radius) + yours(p.radius)
    able = ~mine(p.heal) & (mine(p.hits_air) | ~yours(p.flying))
    xp = np if all(isinstance(v, np.ndarray) for v in (reach, able)) else jnp
    shape = (world.allies, world.enemies, max(reach.shape[-1], able.shape[-1]))
    return xp.broadcast_to(xp.where(able, reach * reach, -1.0), shape).astype(np.float32)


def _acquire(world: World, sees: Any, u: Units, aim: Array, looks: Array) -> Array:
    """Enemies without a target, or that look for another one, take the nearest ally that they notice."""
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
    takes = ((held == NOBODY) | looks[enemies]) & (key != NO_ONE_NEAR)
    return jnp.concatenate([aim[allies], jnp.where(takes, nearest_index(key), held)])

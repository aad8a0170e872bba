"""Opponents, which command the enemies: the game's script, or a trained team in its place.

An opponent gives the enemies their orders once per step, as an agent's action does for an ally. The physics
depends only on whether its units look for targets by themselves (`acquires`).
"""

from typing import NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from phalanx.envs.batching import fold
from phalanx.envs.battle.combat import LOOPS, sees
from phalanx.envs.battle.units import LOOPS_PER_SECOND
from phalanx.envs.battle.world import (
    FAR,
    NEVER_GIVE_UP,
    NO_ONE_NEAR,
    NOBODY,
    Orders,
    Params,
    Units,
    World,
    nearest,
    nearest_index,
    of_side,
    pick,
)
from phalanx.types import Array, PyTree

HELP_RADIUS = 4.0
ALARM = 2.0 * LOOPS_PER_SECOND  # how long an attack is answered
LEASH = 21.0  # how far an attacker is pursued
FOLLOWING_GAP = 1.0  # how close a medivac keeps to whom it follows


class Opponent(Protocol):
    """What an opponent must be. Arrays are (E, B) for the enemies, (N, B) for all units."""

    acquires: bool

    def start(self, world: World, goal: Array) -> PyTree:
        """Its memory at the beginning of an episode; `goal` (2, B) is where the map sends the enemies."""
        ...

    def orders(self, world: World, p: Params, units: Units, memory: PyTree) -> tuple[Orders, PyTree]:
        """The enemies' orders for a step, and the new memory."""
        ...


class Alarms(NamedTuple):
    """What the script remembers: where to march, (2, B), and whom each ally hit how long ago, (A, B)."""

    goal: Array
    victim: Array
    alarm: Array
    """loops for which the attack is still answered"""


class Script(NamedTuple):
    """The game's own behaviour under SMAC's orders.

    Attack-move to a point (`march`), or attack the nearest ally wherever it is (`hunt`), or stay. A target is
    kept while it is within weapon range. A unit without such a target takes, of the allies within its scan
    range, the nearest that hit it during the last two seconds, or else the nearest (`combat` does the latter
    in each loop). If no ally is in scan range, it attacks the one that hit it, or that hit a friend within 4
    cells, up to 21 cells away. Medivacs heal the nearest damaged friend within scan range, or else follow the
    nearest one.
    """

    march: bool
    hunt: bool

    acquires = True

    def start(self, world: World, goal: Array) -> Alarms:
        shape = (world.allies, goal.shape[-1])
        return Alarms(goal, jnp.full(shape, NOBODY, jnp.int32), jnp.zeros(shape))

    def orders(self, world: World, p: Params, units: Units, memory: Alarms) -> tuple[Orders, Alarms]:
        allies, enemies = world.sides
        alive = units.health > 0
        x, y = units.x[enemies], units.y[enemies]
        far_x, far_y = jnp.where(alive, units.x, FAR), jnp.where(alive, units.y, FAR)
        index = jnp.arange(world.n, dtype=jnp.int32)
        own = index[enemies, None]
        hits = units.fired[allies] & (units.aim[allies] != NOBODY)
        victim = jnp.where(hits, units.aim[allies], memory.victim)
        alarm = jnp.where(hits, ALARM, jnp.maximum(memory.alarm - LOOPS, 0.0))

        def looks(ally):
            ax, ay, victim, sees, me = ally
            square = (x - ax) ** 2 + (y - ay) ** 2
            near = nearest(square, me)
            hit, close = (victim == own) & (square < FAR), square <= sees
            return tuple(jnp.where(mask, near, NO_ONE_NEAR) for mask in (hit, close, hit & close))

        # The nearest who hit this enemy, the nearest within its scan range, and the nearest who is both.
        columns = (far_x, far_y, jnp.where(alarm > 0, victim, NOBODY), sees(world, p), index)
        columns = tuple(column[allies] for column in columns)
        foe, close, both = map(nearest_index, fold(looks, ("min",) * 3, columns))
        answer = _calls(x, y, foe)
        held = units.aim[enemies]
        held = jnp.where(pick(alive, held), held, NOBODY)
        busy = (_gap(world, p, units, held) <= of_side(p.range, enemies)) | (units.swing[enemies] != 0)
        stays = (held != NOBODY) & (busy | self.hunt)
        answer = jnp.where(both != NOBODY, both, jnp.where(close != NOBODY, NOBODY, answer))
        answers = ~stays & (answer != NOBODY)
        aim = jnp.where(answers, answer, held)
        keep = jnp.where(answers, LEASH, of_side(p.scan, enemies))
        if self.hunt:
            aim = jnp.where(aim == NOBODY, _closest_ally(world, p, units, far_x, far_y), aim)
            keep = jnp.full_like(keep, NEVER_GIVE_UP)
        goal_x, goal_y = (jnp.broadcast_to(part, x.shape) for part in memory.goal)
        # A crowd has arrived when it stands around the goal as closely as it can.
        crowd = of_side(p.body, enemies) * np.float32(np.sqrt(world.enemies))
        walks = self.march & ((x - goal_x) ** 2 + (y - goal_y) ** 2 > crowd * crowd)
        orders = Orders(aim, goal_x, goal_y, walks, keep)
        if world.can.heal:
            orders = _medics(world, p, units, orders, far_x, far_y)
        return orders, Alarms(memory.goal, victim, alarm)


def _calls(x: Array, y: Array, foe: Array) -> Array:
    """(E, B): the attacker of the nearest enemy in need, from where the enemies are and who hits each, `foe`.

    A unit hears itself first of all; who has just been killed is still heard.
    """

    def calls(friend):
        fx, fy, foe = friend
        square = (x - fx) ** 2 + (y - fy) ** 2
        heard = (foe != NOBODY) & (square <= HELP_RADIUS**2)
        return (jnp.where(heard, nearest(square, jnp.maximum(foe, 0)), NO_ONE_NEAR),)

    (key,) = fold(calls, ("min",), (x, y, foe))
    return nearest_index(key)


def _gap(world: World, p: Params, units: Units, aim: Array) -> Array:
    """(E, B): how far each enemy is from its target `aim`, from edge to edge."""
    enemies = world.sides[1]
    dx, dy = pick(units.x, aim) - units.x[enemies], pick(units.y, aim) - units.y[enemies]
    return jnp.sqrt(dx * dx + dy * dy) - of_side(p.radius, enemies) - pick(p.radius, aim)


def _closest_ally(world: World, p: Params, units: Units, far_x: Array, far_y: Array) -> Array:
    """(E, B): the nearest ally that each enemy can hit, wherever it is."""
    allies, enemies = world.sides
    x, y = units.x[enemies], units.y[enemies]
    hits_air = of_side(p.hits_air, enemies)
    flying = jnp.broadcast_to(p.flying, (world.n, p.flying.shape[-1]))[allies]

    def looks(ally):
        ax, ay, flies, me = ally
        square = (x - ax) ** 2 + (y - ay) ** 2
        return (jnp.where((square < FAR) & (hits_air | ~flies), nearest(square, me), NO_ONE_NEAR),)

    index = jnp.arange(world.allies, dtype=jnp.int32)
    (key,) = fold(looks, ("min",), (far_x[allies], far_y[allies], flying, index))
    return nearest_index(key)


def _medics(world: World, p: Params, units: Units, orders: Orders, far_x: Array, far_y: Array) -> Orders:
    """Heal the nearest hurt friend within scan range, or follow the nearest friend that fights."""
    enemies = world.sides[1]
    shape = (world.n, units.x.shape[1])
    x, y = units.x[enemies], units.y[enemies]
    whole = jnp.broadcast_to(p.health, shape)
    fights = ~jnp.broadcast_to(p.heal, shape)
    heals = jnp.broadcast_to(p.heal, shape)[enemies]
    biological = jnp.broadcast_to(p.biological, shape)
    scan = (p.scan + p.radius) * jnp.ones(shape)
    reach, radius = scan[enemies], jnp.broadcast_to(p.radius, shape)
    index = jnp.arange(world.n, dtype=jnp.int32)

    def looks(friend):
        fx, fy, hurt, fights, radius, me = friend
        square = (x - fx) ** 2 + (y - fy) ** 2
        near = nearest(square, me)
        wounded = jnp.where(hurt & (square <= (reach + radius) ** 2), near, NO_ONE_NEAR)
        return wounded, jnp.where(fights & (square < FAR), near, NO_ONE_NEAR)

    hurt = (units.health < whole) & biological & fights
    columns = (far_x, far_y, hurt, fights, radius, index)
    wounded, leader = fold(looks, ("min", "min"), tuple(column[enemies] for column in columns))
    patient, leader = nearest_index(wounded), nearest_index(leader)
    follows = heals & (leader != NOBODY)
    lx, ly = pick(units.x, leader), pick(units.y, leader)
    away = (lx - x) ** 2 + (ly - y) ** 2 > FOLLOWING_GAP**2
    return Orders(
        aim=jnp.where(heals, patient, orders.aim),
        goal_x=jnp.where(follows, lx, orders.goal_x),
        goal_y=jnp.where(follows, ly, orders.goal_y),
        walks=jnp.where(follows, away, orders.walks),
        keep=jnp.where(heals, np.float32(NEVER_GIVE_UP), orders.keep),
    )

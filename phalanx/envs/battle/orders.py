"""From actions to orders."""

import jax.numpy as jnp

from phalanx.envs.battle.layout import DIRECTIONS, NORTH, WEST
from phalanx.envs.battle.masks import MOVE
from phalanx.envs.battle.observe import Observer
from phalanx.envs.battle.world import NEVER_GIVE_UP, NOBODY, Orders, Params, Units, of_side
from phalanx.types import Array


def ally_orders(observer: Observer, params: Params, units: Units, actions: Array) -> Orders:
    """What the agents' actions (A, B) order their units to do."""
    world = observer.world
    allies = world.sides[0]
    target = actions - observer.first_target
    first = world.allies
    if world.can.heal:
        heal = of_side(params.heal, allies)
        first = jnp.where(heal, 0, first)
    moves = (actions >= NORTH) & (actions <= WEST)
    step = MOVE * jnp.asarray(DIRECTIONS)
    which = jnp.where(moves, actions - NORTH, 0)
    return Orders(
        aim=jnp.where(target >= 0, target + first, NOBODY),
        goal_x=units.x[allies] + step[which, 0],
        goal_y=units.y[allies] + step[which, 1],
        walks=moves,
        keep=jnp.full(actions.shape, NEVER_GIVE_UP),
    )

"""Which actions each agent may take: SMAC's action masks, and what they ask of the terrain."""

import jax.numpy as jnp
import numpy as np

from phalanx.envs.battle.layout import DIRECTIONS, LOOKS, Layout, pad
from phalanx.envs.battle.terrain import SIZE
from phalanx.envs.battle.world import Params, Units, World
from phalanx.types import Array

MOVE = 2.0  # how far a move order points; the mask looks half as far


def targets(layout: Layout, p: Params, aimable: Array) -> Array:
    """(A, targets, B): whom each agent may attack or, for a medivac, heal, by number."""
    world = layout.world
    allies, enemies = world.sides
    count = layout.n_actions - layout.first_target
    attack = pad(aimable[:, enemies], count)
    if not world.can.heal:
        return attack
    heals = jnp.broadcast_to(p.heal, (world.n, p.heal.shape[-1]))[allies]
    patients = pad(aimable[:, allies] & ~heals[None], world.allies)
    return jnp.where(heals[:, None], pad(patients, count), attack)


def available(layout: Layout, u: Units, seer: Array, targets: Array) -> Array:
    """(A, U, B), from which agents are alive, (A, B), and whom they may target, (A, targets, B)."""
    world = layout.world
    moves = jnp.stack([_can_move(world, u, dx, dy) for dx, dy in DIRECTIONS], axis=1) & seer[:, None]
    always = [~seer[:, None], seer[:, None], moves]
    if layout.cone:
        always.append(jnp.broadcast_to(seer[:, None], (world.allies, LOOKS, u.x.shape[1])))
    return jnp.concatenate([*always, targets], axis=1)


def _can_move(world: World, u: Units, dx: float, dy: float) -> Array:
    """(A, B): whether the cell half a move ahead is walkable; cut toward zero, as SMAC's `int` does."""
    allies = world.sides[0]
    x = (u.x[allies] + 0.5 * MOVE * dx).astype(jnp.int32)
    y = (u.y[allies] + 0.5 * MOVE * dy).astype(jnp.int32)
    return look_up(world, world.terrain.walkable, x, y, outside=False)


def look_up(world: World, grid: np.ndarray, x: Array, y: Array, outside: bool) -> Array:
    """`grid[x, y]`, or `outside` off the map."""
    rectangle = world.terrain.rectangle
    inside = (x >= 0) & (x < SIZE) & (y >= 0) & (y < SIZE)
    if grid.dtype == bool and rectangle is not None:
        west, south, east, north = map(int, rectangle)
        value = (x >= west) & (x < east) & (y >= south) & (y < north)
    else:
        value = jnp.asarray(grid.reshape(-1))[x.clip(0, SIZE - 1) * SIZE + y.clip(0, SIZE - 1)]
    return jnp.where(inside, value, outside)

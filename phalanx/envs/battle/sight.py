"""Visibility in battles: ranges by unit type, and SMACv2's cones of view."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from phalanx.envs.battle.layout import LOOKS, Layout
from phalanx.envs.battle.world import Units, World
from phalanx.types import Array

SIGHT, SHOOT = 9.0, 6.0
LEAST_SHOOT = 2.0  # SMACv2's floor of the attack mask
CONE = np.pi / 6


def in_sight(
    layout: Layout, kinds: Array | None, u: Units, facing: Array | None
) -> tuple[Array, Array, Array, Array]:
    """From each agent to each unit, (A, N, B): dx, dy, distance, and whether it sees it."""
    allies, alive = layout.world.sides[0], u.health > 0
    dx, dy = u.x[None] - u.x[allies, None], u.y[None] - u.y[allies, None]
    distance = jnp.sqrt(dx * dx + dy * dy)
    sight, _ = ranges(layout, kinds)
    # SMACv2 counts the limit in when it has cones, and else out.
    near = distance < sight
    if facing is not None:
        near = (distance <= sight) & in_cone(dx, dy, facing)
    return dx, dy, distance, alive[None] & alive[allies, None] & near


def ranges(layout: Layout, kinds: Array | None) -> tuple[Any, Any]:
    """How far each agent sees and its attack mask reaches: numbers, or (A, 1, 1 or B)."""
    if not layout.unit_ranges:
        return np.float32(SIGHT), np.float32(SHOOT)
    types = layout.world.types
    sight = of_type(layout.world, kinds, [unit.sight for unit in types])
    shoot = of_type(layout.world, kinds, [max(unit.shoots, LEAST_SHOOT) for unit in types])
    return sight[:, None], shoot[:, None]


def of_type(world: World, kinds: Array | None, values: list[float]) -> Any:
    """(A, 1 or B): what each agent's type has of `values`, one a type."""
    table = np.array(values, np.float32)
    if kinds is None:
        return table[list(world.kinds)][world.sides[0]][:, None]
    return jnp.asarray(table)[kinds[world.sides[0]]]


def direction(facing: Array) -> tuple[Array, Array]:
    """The unit vector of a direction to look in: 0 is east, then counter-clockwise."""
    angle = facing * np.float32(2 * np.pi / LOOKS)
    return jnp.cos(angle), jnp.sin(angle)


def in_cone(dx: Array, dy: Array, facing: Array) -> Array:
    """(A, N, B): whether a unit lies within half the cone's width of where the agent looks."""
    fx, fy = direction(facing)
    ahead = dx * fx[:, None] + dy * fy[:, None]
    return ahead >= jnp.sqrt(dx * dx + dy * dy) * np.float32(np.cos(CONE / 2)) - 1e-6

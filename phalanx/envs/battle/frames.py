"""What a battle looks like: a frame for viewers."""

from typing import Any

import jax
import numpy as np

from phalanx.envs.battle.layout import LOOKS
from phalanx.envs.battle.observe import Observer
from phalanx.envs.battle.terrain import SIZE
from phalanx.envs.battle.world import NOBODY, BattleState, World

SHOWN = ("radius", "health", "shield")


def frame(world: World, observer: Observer, state: BattleState) -> dict[str, Any]:
    """All that a viewer draws."""
    units = state.units
    kinds = world.kinds if state.kinds is None else np.asarray(state.kinds)
    types = [world.types[int(k)] for k in kinds]
    wide = {name: np.array([getattr(unit, name) for unit in types]) for name in SHOWN}
    sight, shoot, facing, sees = _views(world, observer, state)
    return {
        "kind": "battle",
        "size": SIZE,
        "walkable": world.terrain.walkable,
        "level": world.terrain.level,
        "allies": world.allies,
        "types": [unit.name for unit in types],
        "x": units.x,
        "y": units.y,
        "radius": wide["radius"],
        "health": units.health,
        "max_health": wide["health"],
        "shield": units.shield if units.shield is not None else np.zeros(world.n),
        "max_shield": wide["shield"],
        "energy": units.energy if units.energy is not None else np.zeros(world.n),
        "target": np.where(np.asarray(units.health) > 0, units.aim, NOBODY),
        "fired": units.fired,
        "sight": sight,
        "shoot": shoot,
        "facing": facing,
        "sees": sees,
    }


def _views(
    world: World, observer: Observer, state: BattleState
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """How far agents see and may aim, (A,); where they look, (A,) degrees; whom they see, (A, N)."""
    one = jax.tree.map(lambda x: np.asarray(x)[..., None], (state.kinds, state.units, state.facing))
    kinds, units, facing = one
    *_, sees = (np.array(x)[..., 0] for x in observer.in_sight(kinds, units, facing))
    if state.known is not None:
        sees[:, world.sides[1]] &= np.asarray(state.known)
    sight, shoot = (np.broadcast_to(x, (world.allies, 1, 1))[:, 0, 0] for x in observer.ranges(kinds))
    degrees = None if state.facing is None else np.asarray(state.facing) * (360 / LOOKS)
    return sight, shoot, degrees, sees

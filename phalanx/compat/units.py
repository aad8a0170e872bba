"""The units of a battle in SMAC's interface: arrays by name, and objects like the game's."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from phalanx.envs.battle.env import Battle, BattleState
from phalanx.envs.battle.units import ENERGY_MAX, UnitType

# What the game calls the types of units.
TYPE_NUMBERS = {
    "colossus": 4, "baneling": 9, "marine": 48, "marauder": 51, "medivac": 54, "zealot": 73,
    "stalker": 74, "spine_crawler": 98, "zergling": 105, "hydralisk": 107,
}  # fmt: skip


class Snapshot(NamedTuple):
    """All units at one moment, the agents first: (N,) each."""

    types: list[str]
    x: np.ndarray
    y: np.ndarray
    health: np.ndarray
    max_health: np.ndarray
    shield: np.ndarray
    max_shield: np.ndarray
    energy: np.ndarray
    cooldown: np.ndarray
    """loops until the weapon is ready"""
    cooldown_scale: np.ndarray
    """what SMAC divides it by"""
    radius: np.ndarray


def snapshot(battle: Battle, state: BattleState) -> Snapshot:
    """Read the units of a battle."""
    world, units = battle.observer.world, jax.device_get(state.units)
    kinds = world.kinds if state.kinds is None else np.asarray(state.kinds)
    fixed = _fixed(tuple(world.types[int(kind)] for kind in kinds))
    none = np.zeros(world.n, np.float32)
    return Snapshot(
        types=list(fixed["name"]),
        x=units.x,
        y=units.y,
        health=np.maximum(units.health, 0),
        max_health=fixed["health"],
        shield=none if units.shield is None else units.shield,
        max_shield=fixed["shield"],
        energy=none if units.energy is None else units.energy,
        cooldown=np.maximum(units.cooldown, 0),
        cooldown_scale=fixed["cooldown_scale"],
        radius=fixed["radius"],
    )


@lru_cache(maxsize=256)
def _fixed(types: tuple[UnitType, ...]) -> dict[str, Any]:
    """The constant properties of units of these types: their names, and (N,) each."""
    names = ("health", "shield", "cooldown_scale", "radius")
    table = {name: np.array([getattr(each, name) for each in types], np.float32) for name in names}
    return {**table, "name": [each.name for each in types]}


class Point(NamedTuple):
    """The position of a unit, in cells from the map's south-west corner."""

    x: float
    y: float


class Unit(NamedTuple):
    """One unit, with the names of the game's interface; dead units have a health of 0."""

    tag: int
    owner: int
    """1 for agents, 2 for enemies"""
    unit_type: int
    """the game's number of its type, such as 48 for a marine"""
    pos: Point
    health: float
    health_max: float
    shield: float
    shield_max: float
    energy: float
    energy_max: float
    weapon_cooldown: float
    """loops until the weapon is ready"""
    radius: float


def unit(now: Snapshot, number: int, allies: int) -> Unit:
    """One unit by its number: agents come first, then enemies."""
    heals = now.types[number] == "medivac"
    return Unit(
        tag=number + 1,
        owner=1 if number < allies else 2,
        unit_type=TYPE_NUMBERS[now.types[number]],
        pos=Point(float(now.x[number]), float(now.y[number])),
        health=float(now.health[number]),
        health_max=float(now.max_health[number]),
        shield=float(now.shield[number]),
        shield_max=float(now.max_shield[number]),
        energy=float(now.energy[number]),
        energy_max=ENERGY_MAX if heals else 0.0,
        weapon_cooldown=float(now.cooldown[number]),
        radius=float(now.radius[number]),
    )


def one_hot(types: list[str], labels: tuple[str, ...]) -> np.ndarray:
    """(units, bits) float32: which of `labels` each is; no bits where there are none."""
    if not labels:
        return np.zeros((len(types), 0), np.float32)
    return np.eye(len(labels), dtype=np.float32)[[labels.index(name) for name in types]]

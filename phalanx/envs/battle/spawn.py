"""Where units stand when a battle begins.

The game creates a squad's units at one point, each pushed to the nearest free spot, so that they form
a tight blob. How it breaks ties is not known: here the spots lie on a fine lattice that is
turned by a random angle, anew for each of `STARTS` starts that are made beforehand. A battle then
begins with one of them, drawn at random, which costs next to nothing.
"""

from typing import NamedTuple

import numpy as np

from phalanx.envs.battle.scenarios import Scenario, Squad
from phalanx.envs.battle.terrain import SIZE, Terrain
from phalanx.envs.battle.units import INDEX_ORDER, LOOPS_PER_SECOND, UnitType

STARTS = 64
LOOPS_BEFORE = 2  # SMAC lets the game run this long before its first observation
LATTICE, REACH = 0.2, 7.0
GAP = 0.01


class Starts(NamedTuple):
    """The possible beginnings: (P, N) places, (P, 2) where the enemies march to."""

    x: np.ndarray
    y: np.ndarray
    goal: np.ndarray
    created: np.ndarray
    """(P, A) int32: the allies in the order in which they were created"""


def lattice(rng: np.random.Generator) -> np.ndarray:
    """(C, 2): the points of a hexagonal lattice, turned at random, the nearest first."""
    n = int(REACH / LATTICE) + 1
    i, j = np.mgrid[-n : n + 1, -n : n + 1]
    points = LATTICE * np.stack([i + 0.5 * j, np.sqrt(0.75) * j], -1).reshape(-1, 2)
    points = points[np.hypot(*points.T) < REACH]
    turn = rng.uniform(0, 2 * np.pi)
    points = points @ np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return points[np.argsort(np.hypot(*points.T), kind="stable")]


def pack(
    squads: list[Squad], types: dict[str, UnitType], terrain: Terrain, rng: np.random.Generator
) -> np.ndarray:
    """(n, 2): each unit, in order of creation, at the free walkable spot nearest to its squad's place."""
    placed: list[tuple[UnitType, np.ndarray]] = []
    for squad in squads:
        unit = types[squad.kind]
        spots = np.array(squad.place) + lattice(rng)
        cells = np.floor(spots).astype(int)
        inside = np.all((cells >= 0) & (cells < SIZE), axis=1)
        x, y = cells.clip(0, SIZE - 1).T
        free = inside & (terrain.walkable[x, y] | unit.flying)
        for other, at in placed:
            if (other.flying, other.strides) == (unit.flying, unit.strides):
                free = free & (np.hypot(*(spots - at).T) >= other.body + unit.body + GAP)
        for _ in range(squad.count):
            at = spots[np.argmax(free)]
            assert free.any(), f"no room for {squad}"
            placed.append((unit, at))
            free = free & (np.hypot(*(spots - at).T) >= 2 * unit.body + GAP)
    return np.array([at for _, at in placed])


def starts(scenario: Scenario, types: dict[str, UnitType], terrain: Terrain) -> Starts:
    """Make the possible beginnings of a scenario; always the same ones."""
    rng = np.random.default_rng(0)
    allies, enemies = scenario.squads
    ally_kinds = [squad.kind for squad in allies for _ in range(squad.count)]
    speeds = np.array([types[squad.kind].speed for squad in enemies for _ in range(squad.count)])
    xs, ys, goals, created = [], [], [], []
    for _ in range(STARTS):
        ours = pack(allies, types, terrain, rng)
        rank = [INDEX_ORDER.index(kind) for kind in ally_kinds]
        order = np.lexsort(np.stack([ours[:, 1], ours[:, 0], rank]))
        ours = ours[order]
        theirs = pack(enemies, types, terrain, rng)
        goal = _goal(scenario, rng)
        if scenario.march not in ("hunt", "stay"):
            theirs = _walk(theirs, goal, speeds * LOOPS_BEFORE / LOOPS_PER_SECOND, terrain)
        x, y = np.concatenate([ours, theirs]).T
        xs.append(x)
        ys.append(y)
        goals.append(goal)
        created.append(np.argsort(order))
    x, y, goal = (np.array(each, np.float32) for each in (xs, ys, goals))
    return Starts(x, y, goal, np.array(created, np.int32))


def _goal(scenario: Scenario, rng: np.random.Generator) -> np.ndarray:
    if isinstance(scenario.march, tuple):
        return np.array(scenario.march)
    places = np.array([squad.place for squad in scenario.squads[0]])
    if scenario.march == "between":
        return places[0] + rng.uniform() * (places[-1] - places[0])
    return places.mean(axis=0)


def _walk(at: np.ndarray, goal: np.ndarray, length: np.ndarray, terrain: Terrain) -> np.ndarray:
    """Move each unit towards the goal, if the way is open."""
    way = goal - at
    moved = at + way * (length / np.hypot(*way.T))[:, None]
    x, y = np.floor(moved).astype(int).T
    return np.where(terrain.walkable[x, y][:, None], moved, at)

"""Initial positions of units.

The game creates a squad's units at one point, each moved to the nearest free spot, so that they form a tight
cluster. How it breaks ties is not known. Here the spots lie on a fine lattice with a random rotation, and
ties are broken at random. `STARTS` initial states ("starts") are computed in advance, each with another
rotation. A battle draws one of them at random, which costs almost nothing.

Starts are the same on every machine: distances are compared as integers, and nothing depends on how a sine or
a matrix product is rounded.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from phalanx.envs.battle.scenarios import Scenario, Squad
from phalanx.envs.battle.terrain import SIZE, Terrain
from phalanx.envs.battle.units import INDEX_ORDER, LOOPS_PER_SECOND, UnitType

STARTS = 512
LOOPS_BEFORE = 2  # SMAC lets the game run this long before its first observation
LATTICE, REACH = 0.2, 7.0
GAP = 0.01
DRAWS = 2**16  # of what orders points at the same distance


class Starts(NamedTuple):
    """The possible beginnings: (P, N) places, (P, 2) where the enemies march to."""

    x: np.ndarray
    y: np.ndarray
    goal: np.ndarray
    created: np.ndarray
    """(P, A) int32: the allies in the order in which they were created"""


class Lattice(NamedTuple):
    """The points of a hexagonal lattice around (0, 0), the nearest first, (C,) each."""

    i: np.ndarray
    j: np.ndarray
    """int16: how many steps along each of its two axes"""
    x: np.ndarray
    y: np.ndarray


def _square(i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """The squared length of vectors of a hexagonal lattice of width 1: an integer."""
    return i * (i + j) + j * j


@cache
def _steps() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(C,) int16 each: the lattice's points within REACH, the nearest first, and their squared distances."""
    n = int(REACH / LATTICE * np.sqrt(4 / 3)) + 1
    i, j = np.mgrid[-n : n + 1, -n : n + 1].reshape(2, -1).astype(np.int16)
    square = _square(i, j)
    order = np.argsort(square, kind="stable")
    order = order[square[order] < (REACH / LATTICE) ** 2]
    return i[order], j[order], square[order]


def lattice(rng: np.random.Generator, reach: float = REACH) -> Lattice:
    """One that is turned at random; points at the same distance are in a random order."""
    i, j, square = _steps()
    count = int(np.searchsorted(square, (min(reach, REACH) / LATTICE) ** 2))
    draw = rng.integers(0, DRAWS, count)
    order = np.argsort(square[:count].astype(np.int64) * DRAWS + draw, kind="stable")
    i, j = i[order], j[order]
    x, y = LATTICE * (i + 0.5 * j), LATTICE * np.sqrt(0.75) * j
    c, s = _direction(rng)
    return Lattice(i, j, c * x + s * y, c * y - s * x)


def _direction(rng: np.random.Generator) -> np.ndarray:
    """(2,): a random direction of length 1, from a point drawn within a circle."""
    while True:
        point = rng.uniform(-1, 1, 2)
        square = point[0] * point[0] + point[1] * point[1]
        if 0.01 < square <= 1:
            return point / np.sqrt(square)


def pack(
    squads: list[Squad], types: dict[str, UnitType], terrain: Terrain, rng: np.random.Generator
) -> np.ndarray:
    """(n, 2): each unit, in order of creation, at the free walkable spot nearest to its squad's place."""
    placed: list[tuple[UnitType, float, float]] = []
    # Far enough even where walls leave only a quarter of the ground.
    reach = 1 + 2.5 * np.sqrt(sum(squad.count * types[squad.kind].body ** 2 for squad in squads))
    for squad in squads:
        unit = types[squad.kind]
        i, j, x, y = lattice(rng, reach)
        x, y = squad.place[0] + x, squad.place[1] + y
        column, row = np.floor(x).astype(int), np.floor(y).astype(int)
        inside = (np.minimum(column, row) >= 0) & (np.maximum(column, row) < SIZE)
        free = inside & (terrain.walkable[column.clip(0, SIZE - 1), row.clip(0, SIZE - 1)] | unit.flying)
        for other, ox, oy in placed:
            if (other.flying, other.strides) == (unit.flying, unit.strides):
                free &= (x - ox) ** 2 + (y - oy) ** 2 >= (other.body + unit.body + GAP) ** 2
        apart = ((2 * unit.body + GAP) / LATTICE) ** 2
        for _ in range(squad.count):
            first = int(np.argmax(free))
            assert free[first], f"no room for {squad}"
            placed.append((unit, x[first], y[first]))
            free &= _square(i - i[first], j - j[first]) >= apart
    return np.array([(x, y) for _, x, y in placed])


def starts(
    scenario: Scenario, types: dict[str, UnitType], terrain: Terrain, count: int = STARTS, seed: int = 0
) -> Starts:
    """Make `count` possible beginnings of a scenario; always the same ones for a seed."""
    rng = np.random.default_rng(seed)
    allies, enemies = scenario.squads
    ally_kinds = [squad.kind for squad in allies for _ in range(squad.count)]
    speeds = np.array([types[squad.kind].speed for squad in enemies for _ in range(squad.count)])
    xs, ys, goals, created = [], [], [], []
    for _ in range(count):
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

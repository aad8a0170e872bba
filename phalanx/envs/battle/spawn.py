"""Initial positions of units.

The game creates a squad's units at one point, each moved to the nearest free spot, so that they form a tight
cluster. How it breaks ties is not known. Here the spots lie on a fine hexagonal lattice. In a map's own
initial state ("start") one axis of the lattice points east and ties are broken counter-clockwise from there,
for both sides alike. More starts can be asked for: in these the lattice has a random rotation, and ties are
broken at random. All are computed in advance, and a battle draws one of them, which costs almost nothing.

Starts are the same on every machine: distances are compared as integers, and nothing depends on how a sine or
a matrix product is rounded.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from phalanx.envs.battle.scenarios import Scenario, Squad
from phalanx.envs.battle.terrain import SIZE, Terrain
from phalanx.envs.battle.units import INDEX_ORDER, LOOPS_PER_SECOND, UnitType

LOOPS_BEFORE = 2  # SMAC lets the game run this long before its first observation
LATTICE, REACH = 0.2, 7.0
GAP = 0.01
DRAWS = 2**16  # of what orders points at the same distance
GOALS = 64


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


def lattice(rng: np.random.Generator | None, reach: float = REACH) -> Lattice:
    """With `rng`, one that is rotated at random, with points at the same distance in a random order."""
    i, j, square = _steps()
    count = int(np.searchsorted(square, (min(reach, REACH) / LATTICE) ** 2))
    i, j, square = i[:count], j[:count], square[:count].astype(np.int64)
    x, y = LATTICE * (i + 0.5 * j), LATTICE * np.sqrt(0.75) * j
    if rng is None:
        # Points at the same distance are degrees apart, so it does not matter how their angles are rounded.
        order = np.lexsort([np.arctan2(y, x) % (2 * np.pi), square])
        return Lattice(i[order], j[order], x[order], y[order])
    order = np.argsort(square * DRAWS + rng.integers(0, DRAWS, count), kind="stable")
    i, j, x, y = i[order], j[order], x[order], y[order]
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
    squads: list[Squad], types: dict[str, UnitType], terrain: Terrain, rng: np.random.Generator | None
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
    scenario: Scenario, types: dict[str, UnitType], terrain: Terrain, count: int = 1, seed: int = 0
) -> Starts:
    """Make `count` possible beginnings of a scenario: the map's own, and others, the same ones for a seed.

    Where the map's script draws the enemies' goal, its own start is there once for each of `GOALS` goals.
    """
    rng = np.random.default_rng(seed)
    goals = (np.arange(GOALS) + 0.5) / GOALS if scenario.march == "between" else [0.5]
    own = [_start(scenario, types, terrain, None, along) for along in goals]
    drawn = [_start(scenario, types, terrain, rng, rng.uniform()) for _ in range(count - 1)]
    *places, created = (np.array(each) for each in zip(*own, *drawn, strict=True))
    x, y, goal = (each.astype(np.float32) for each in places)
    return Starts(x, y, goal, created.astype(np.int32))


def _start(
    scenario: Scenario,
    types: dict[str, UnitType],
    terrain: Terrain,
    rng: np.random.Generator | None,
    along: float,
) -> tuple[np.ndarray, ...]:
    """Where units stand, where enemies march to, and in which order allies were created: see `Starts`."""
    allies, enemies = scenario.squads
    ours = pack(allies, types, terrain, rng)
    rank = [INDEX_ORDER.index(squad.kind) for squad in allies for _ in range(squad.count)]
    order = np.lexsort(np.stack([ours[:, 1], ours[:, 0], rank]))
    theirs = pack(enemies, types, terrain, rng)
    goal = _goal(scenario, along)
    if scenario.march not in ("hunt", "stay"):
        speeds = np.array([types[squad.kind].speed for squad in enemies for _ in range(squad.count)])
        theirs = _walk(theirs, goal, speeds * LOOPS_BEFORE / LOOPS_PER_SECOND, terrain)
    return *np.concatenate([ours[order], theirs]).T, goal, np.argsort(order)


def _goal(scenario: Scenario, along: float) -> np.ndarray:
    if isinstance(scenario.march, tuple):
        return np.array(scenario.march)
    places = np.array([squad.place for squad in scenario.squads[0]])
    if scenario.march == "between":
        return places[0] + along * (places[-1] - places[0])
    return places.mean(axis=0)


def _walk(at: np.ndarray, goal: np.ndarray, length: np.ndarray, terrain: Terrain) -> np.ndarray:
    """Move each unit towards the goal, if the way is open."""
    way = goal - at
    moved = at + way * (length / np.hypot(*way.T))[:, None]
    x, y = np.floor(moved).astype(int).T
    return np.where(terrain.walkable[x, y][:, None], moved, at)

"""The grounds that battles are fought on: where units can walk, and how they find their way.

Cells are those of the map files' own flags, 32 x 32, `[x, y]` with y = 0 in the south.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

SIZE = 32

# For each ground: rows (from, to) and, in them, the walkable columns (from, to), all inclusive.
Rows = dict[tuple[int, int], tuple[tuple[int, int], ...]]
GROUNDS: dict[str, Rows] = {
    "lane": {(8, 23): ((0, 31),)},
    "open": {(0, 31): ((0, 31),)},
    "octagon": {
        (6, 7): ((10, 21),),
        (8, 9): ((8, 23),),
        (10, 21): ((6, 25),),
        (22, 23): ((8, 23),),
        (24, 25): ((10, 21),),
    },
    "room": {(8, 9): ((10, 19),), (10, 17): ((8, 21),), (18, 19): ((10, 19),)},
    "pentagon": {(8, 19): ((8, 19),), (20, 21): ((10, 17),), (22, 23): ((12, 15),)},
    # The map's flags leave a choke that touches both chambers only at corner points, which nothing
    # could pass: the four cells x 11..14 of rows 11..14 are opened, as its cliff levels suggest.
    "corridor": {
        (2, 10): ((2, 11),),
        (11, 11): ((2, 14),),
        (12, 13): ((11, 14),),
        (14, 14): ((11, 25),),
        (15, 15): ((14, 25),),
        (16, 17): ((14, 27),),
        (18, 21): ((12, 29),),
        (22, 23): ((14, 29),),
        (24, 25): ((16, 29),),
        (26, 27): ((18, 29),),
        (28, 29): ((20, 29),),
    },
    "pass": {
        (2, 3): ((2, 7),),
        (4, 7): ((2, 11),),
        (8, 11): ((4, 15),),
        (12, 15): ((8, 19),),
        (16, 17): ((10, 19),),
        (18, 21): ((14, 25),),
        (22, 23): ((16, 29),),
        (24, 27): ((20, 29),),
        (28, 29): ((22, 29),),
    },
    "ravine": {
        (6, 7): ((4, 27),),
        (8, 9): ((2, 29),),
        (10, 11): ((0, 31),),
        (12, 13): ((0, 3), (28, 31)),
        (14, 15): ((0, 31),),
        (16, 17): ((2, 29),),
        (18, 19): ((8, 23),),
    },
}
# Cells that only a colossus can cross.
CLIFFS: dict[str, Rows] = {"ravine": {(12, 13): ((4, 27),)}}
# Cells that lie higher (level 2), or between (ramps); all others are level 1.
PLATEAUS: dict[str, Rows] = {"ravine": {(13, 20): ((7, 24),)}}
RAMPS: dict[str, Rows] = {"ravine": {(13, 18): ((4, 6), (25, 27))}}

WAYPOINT_MARGIN = 0.4  # how far round a corner units steer
CLEARANCE = 0.15  # half the width of what must be free for a straight way


class Routes(NamedTuple):
    """Which point to walk to first on the way from one cell to another."""

    cell: np.ndarray
    """(1024,) int32: the number of each cell `32 x + y`, or of the nearest one that is walkable"""
    via: np.ndarray
    """(cells x cells,) int32: the waypoint, 0 for straight ahead"""
    x: np.ndarray
    y: np.ndarray
    """(waypoints + 1,) float32: where the waypoints are"""
    cells: int


def _paint(rows: Rows | None) -> np.ndarray:
    """(32, 32) bool [x, y]: the cells in the given rows and columns."""
    cells = np.zeros((SIZE, SIZE), bool)
    for (south, north), columns in (rows or {}).items():
        for west, east in columns:
            cells[west : east + 1, south : north + 1] = True
    return cells


@dataclass(frozen=True)
class Terrain:
    """One ground."""

    name: str

    @cached_property
    def walkable(self) -> np.ndarray:
        """(32, 32) bool: where ground units can stand, and what SMAC's move mask asks."""
        return _paint(GROUNDS[self.name])

    @cached_property
    def stridable(self) -> np.ndarray:
        """(32, 32) bool: where a colossus can stand."""
        return self.walkable | _paint(CLIFFS.get(self.name))

    @cached_property
    def level(self) -> np.ndarray:
        """(32, 32) float32: the cliff level, 1 or 2, and 1.5 on ramps; 0 where nothing can stand."""
        level = np.where(self.stridable, 1.0, 0.0)
        level[_paint(PLATEAUS.get(self.name))] = 2.0
        level[_paint(RAMPS.get(self.name))] = 1.5
        return level.astype(np.float32)

    @cached_property
    def rectangle(self) -> tuple[float, float, float, float] | None:
        """(west, south, east, north) when the walkable cells are one rectangle: no way is ever barred."""
        xs, ys = np.nonzero(self.walkable)
        west, east, south, north = xs.min(), xs.max() + 1, ys.min(), ys.max() + 1
        filled = (east - west) * (north - south) == self.walkable.sum()
        return (float(west), float(south), float(east), float(north)) if filled else None

    @cached_property
    def routes(self) -> Routes:
        """Shortest ways between all cells, round the corners of what is not walkable.

        A shortest way among obstacles turns only at their corners, so it is enough to know which
        corners see each other: straight ahead where the goal is in sight, else the corner in sight
        from which the rest of the way is shortest.
        """
        cells = np.argwhere(self.walkable)
        corners = _corners(self.walkable)
        here = cells + 0.5
        # Who stands in a corner's own cell looks from the corner, or it would never leave it.
        own_corner = np.full(len(cells), -1)
        for k, corner in enumerate(corners):
            at = np.flatnonzero((cells == np.floor(corner)).all(axis=1))
            here[at], own_corner[at] = corner, k
        to_corner = _ways(self.walkable, here, corners)
        between = _ways(self.walkable, corners, corners)
        for k in range(len(corners)):
            between = np.minimum(between, between[:, k : k + 1] + between[k : k + 1])
        centres = cells + 0.5
        onward = np.min(between[:, :, None] + _ways(self.walkable, corners, centres)[None], axis=1)
        to_corner[np.flatnonzero(own_corner >= 0), own_corner[own_corner >= 0]] = np.inf
        direct = _ways(self.walkable, here, centres)
        via = np.zeros((len(cells), len(cells)), np.int32)
        best = direct.copy()
        best[np.isfinite(direct)] = 0  # what is in sight is walked to straight
        for k in range(len(corners)):
            length = to_corner[:, k : k + 1] + onward[k : k + 1]
            better = length < best
            via[better], best[better] = k + 1, length[better]
        everywhere = np.argwhere(np.ones_like(self.walkable))
        away = np.square(everywhere[:, None] - cells[None]).sum(-1)
        number = away.argmin(1).astype(np.int32)
        x, y = np.concatenate([np.zeros((1, 2)), corners]).T.astype(np.float32)
        return Routes(number, via.reshape(-1), x, y, len(cells))


def _corners(walkable: np.ndarray) -> np.ndarray:
    """(K, 2): a point near each corner that sticks out into the walkable cells."""
    padded = np.pad(walkable, 1)
    found = []
    for x in range(SIZE + 1):
        for y in range(SIZE + 1):
            around = padded[x : x + 2, y : y + 2]
            if around.sum() == 3:
                blocked = np.argwhere(~around)[0]
                found.append(np.array([x, y]) + WAYPOINT_MARGIN * (1 - 2 * blocked))
    return np.array(found).reshape(-1, 2)


def _ways(walkable: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """(S, E): the length of each straight way, infinite where something bars it."""
    step = end[None] - start[:, None]
    length = np.hypot(step[..., 0], step[..., 1])
    side = np.stack([-step[..., 1], step[..., 0]], -1) / np.maximum(length, 1e-9)[..., None] * CLEARANCE
    free = np.ones(length.shape, bool)
    for part in np.linspace(0, 1, 2 * SIZE + 1):
        for sign in (-1, 1):
            at = np.floor(start[:, None] + part * step + sign * side).astype(int).clip(0, SIZE - 1)
            free &= walkable[at[..., 0], at[..., 1]]
    return np.where(free, length, np.inf)

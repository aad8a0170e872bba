"""Pictures: what is drawn is where it is, in its colour."""

import numpy as np
import pytest

import phalanx
from phalanx.envs.battle.terrain import SIZE, Terrain
from phalanx.envs.switch import HOMES, OPEN, STARTS, Switch
from phalanx.report import draw
from phalanx.report.draw import ALLY, BAR, ENEMY, HEALING, HEALTH, ROCK, SHIELD, WALL, WHITE, image
from phalanx.report.plots import COLOURS

CELL = 100


def rgb(code: str) -> tuple[int, ...]:
    return tuple(int(code[i : i + 2], 16) for i in (1, 3, 5))


def at(picture: np.ndarray, x: float, y: float) -> tuple[int, ...]:
    """The colour at a point, in pixels from the top left corner."""
    return tuple(picture[int(y), int(x)].tolist())


def places(picture: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    """(P, 2): x and y of all pixels of a colour."""
    return np.argwhere((picture == np.array(colour)).all(-1))[:, ::-1]


# Grids


def grid(**changes):
    """Switch's grid with two agents at their starts, 7 cells wide of CELL pixels."""
    frame = {
        "kind": "grid",
        "open": OPEN,
        "position": STARTS[:2],
        "target": HOMES[:2],
        "home": np.zeros(2, bool),
    }
    return image({**frame, **changes}, 7 * CELL)


def in_cell(picture: np.ndarray, row: int, column: int, across: float = 0.28, down: float = 0.5):
    """The colour at a place in a cell: where it is not said, on a disc but beside its number."""
    return at(picture, (column + across) * CELL, (row + down) * CELL)


def test_grid_shows_walls_and_agents():
    picture = grid()
    assert picture.shape == (3 * CELL, 7 * CELL, 3)
    assert picture.dtype == np.uint8
    for row, column in np.ndindex(OPEN.shape):
        middle = in_cell(picture, row, column, down=0.06, across=0.5)
        assert middle == (draw.OPEN if OPEN[row, column] else WALL)
    for agent, (row, column) in enumerate(STARTS[:2]):
        assert in_cell(picture, row, column) == rgb(COLOURS[agent])


def test_grid_agent_moves_in_the_picture():
    before, after = grid(), grid(position=np.array([[1, 1], STARTS[1]]))  # down
    assert in_cell(before, 1, 1) == in_cell(after, 0, 1) == draw.OPEN
    assert in_cell(after, 1, 1) == rgb(COLOURS[0])
    np.testing.assert_array_equal(before[:, 2 * CELL :], after[:, 2 * CELL :])


def test_grid_shows_homes_and_who_is_there():
    away = grid()
    for agent, (row, column) in enumerate(HOMES[:2]):
        assert in_cell(away, row, column, across=0.12) == rgb(COLOURS[agent])  # its outline
        assert in_cell(away, row, column) not in (rgb(COLOURS[agent]), draw.OPEN)
    there = {"position": np.array([HOMES[0], STARTS[1]])}
    passing, home = grid(**there), grid(**there, home=np.array([True, False]))
    assert in_cell(passing, 0, 6) == rgb(COLOURS[0])
    assert in_cell(home, 0, 6) == WHITE
    assert in_cell(home, 0, 6, across=0.16) == rgb(COLOURS[0])


def test_grid_of_the_environment_is_drawn():
    env = Switch(agents=3)
    state, _ = env.reset(None)  # type: ignore[arg-type]
    picture = image(env.frame(state))
    assert picture.shape == (274, 640, 3)  # even, for films
    for agent in range(3):
        x, y = places(picture, rgb(COLOURS[agent])).T
        row, column = STARTS[agent]
        there = (x // (640 / 7) == column) & (y // (640 / 7) == row)
        assert there.sum() > 1000


# Battles


PIXELS = 640


def battle(terrain="open", **changes):
    """An ally and an enemy of radius 1, west and east; on open ground 20 pixels a cell."""
    ground = Terrain(terrain)
    frame = {
        "kind": "battle",
        "size": SIZE,
        "walkable": ground.walkable,
        "level": ground.level,
        "allies": 1,
        "types": ["marine", "marine"],
        "x": np.array([8.0, 24.0]),
        "y": np.array([10.0, 10.0]),
        "radius": np.array([1.0, 1.0]),
        "health": np.array([40.0, 40.0]),
        "max_health": np.array([40.0, 40.0]),
        "shield": np.zeros(2),
        "max_shield": np.zeros(2),
        "target": np.array([-1, -1]),
        "fired": np.zeros(2, bool),
    }
    return image({**frame, **changes}, PIXELS)


def test_battle_shows_both_sides_where_they_are():
    picture = battle()
    for colour, x in ((ALLY, 8), (ENEMY, 24)):
        found = places(picture, colour)
        np.testing.assert_allclose((found.min(0) + found.max(0)) / 2, (20 * x, 20 * (SIZE - 10)), atol=1)
        width = np.ptp(found[:, 0])
        assert 34 < width < 40  # to scale, less the border
    small = battle(radius=np.array([0.5, 1.0]))
    assert 14 < np.ptp(places(small, ALLY)[:, 0]) < 20


def test_battle_has_north_above():
    south, north, east = battle(), battle(y=np.array([13.0, 10.0])), battle(x=np.array([9.0, 24.0]))
    here = places(south, ALLY).mean(0)
    np.testing.assert_allclose(places(north, ALLY).mean(0) - here, (0, -60), atol=0.5)
    np.testing.assert_allclose(places(east, ALLY).mean(0) - here, (20, 0), atol=0.5)


@pytest.mark.parametrize(
    ("name", "west", "north", "cells"),
    [("corridor", 0, 32, 32), ("ravine", 0, 23, 32), ("room", 6, 22, 18)],
)
def test_battle_ground_is_the_terrain(name, west, north, cells):
    """Each cell of the ground and two around; [x, y] with y = 0 in the south."""
    terrain = Terrain(name)
    nowhere = np.full(2, -100.0)
    picture = battle(name, x=nowhere, y=nowhere)
    cell = PIXELS / cells
    standable = terrain.walkable.sum()
    shown = 0
    for x, y in np.ndindex(SIZE, SIZE):
        across, down = (x - west + 0.5) * cell, (north - y - 0.5) * cell
        if not (0 <= across < picture.shape[1] and 0 <= down < picture.shape[0]):
            continue
        brightness = sum(at(picture, across, down))
        shown += bool(terrain.walkable[x, y])
        assert (brightness > 450) == terrain.walkable[x, y]
        if terrain.level[x, y] == 0:
            assert at(picture, across, down) == ROCK
    assert shown == standable


def test_battle_ground_is_lighter_on_high():
    picture = battle("ravine", x=np.full(2, -100.0), y=np.full(2, -100.0))
    shades = [sum(at(picture, 20 * x, 20 * (23 - y))) for x, y in ((3.5, 15.5), (5.5, 15.5), (15.5, 15.5))]
    assert shades[0] < shades[1] < shades[2]  # ground, ramp, plateau
    assert sum(at(picture, 20 * 15.5, 20 * (23 - 12.5))) < 0.6 * shades[0]  # a cliff


def test_battle_bars_say_how_much_is_left():
    def widths(colour, **changes):
        picture = battle(max_shield=np.array([80.0, 0.0]), **changes)
        found = places(picture, colour)
        return [len(np.unique(side[:, 0])) for side in (found[found[:, 0] < 320], found[found[:, 0] > 320])]

    assert widths(HEALTH) == [40, 40]
    assert widths(HEALTH, health=np.array([20.0, 10.0])) == [20, 10]
    assert widths(BAR, health=np.array([20.0, 10.0])) == [40, 30]  # the first has a bar for its shield too
    assert widths(SHIELD, shield=np.array([40.0, 0.0])) == [20, 0]


def test_battle_dead_are_faint():
    picture = battle(health=np.array([0.0, 40.0]))
    assert len(places(picture, ALLY)) == 0
    assert len(places(picture, HEALTH)) > 0
    assert len(np.unique(places(picture, HEALTH)[:, 0])) == 40  # only one has a bar
    nothing = battle(health=np.array([0.0, 40.0]), x=np.array([-100.0, 24.0]))
    different = np.argwhere((picture != nothing).any(-1))
    np.testing.assert_allclose(different.mean(0), (20 * (SIZE - 10), 160), atol=2)


def test_battle_shows_who_fires_at_whom():
    between = (16 * 20, 20 * (SIZE - 10))
    aims = {"target": np.array([1, -1])}
    ground = at(battle(), *between)
    assert at(battle(**aims), *between) == ground
    fires = at(battle(**aims, fired=np.array([True, False])), *between)
    assert fires[2] > fires[0] + 60  # in the ally's blue
    assert at(battle(fired=np.array([True, True])), *between) == ground  # at nobody
    heals = at(battle(**aims, fired=np.array([True, False]), allies=2), *between)
    assert heals[1] > heals[0] + 60
    assert np.abs(np.subtract(heals, HEALING)).max() < 60


# Particles


def particles(position, pixels=400, **changes):
    """Red agents and then blue landmarks, of radius 0.1."""
    position = np.array(position, float)
    count = len(position)
    agents = changes.get("agents", count)
    color = np.where(np.arange(count)[:, None] < agents, (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    frame = {
        "kind": "particles",
        "position": position,
        "radius": np.full(count, 0.1),
        "color": color,
        "agents": agents,
        "said": [],
        "rescale": True,
    }
    return image({**frame, **changes}, pixels)


RED, BLUE = (255, 0, 0), (0, 0, 255)


def middle(picture, colour):
    found = places(picture, colour)
    return (found.min(0) + found.max(0) + 1) / 2


def test_particles_are_where_they_are():
    picture = particles([[0.5, 0.5]])
    assert picture.shape == (400, 400, 3)
    np.testing.assert_allclose(middle(picture, RED), (200 + 90, 200 - 90), atol=1)
    np.testing.assert_allclose(middle(particles([[0.6, 0.5]]), RED), (200 + 108, 200 - 90), atol=1)
    assert at(picture, 200, 200) == at(picture, 0, 0) == WHITE
    assert at(particles([[0.5, 0.5]], color=[[0.2, 0.4, 1.0]]), 290, 110) == (51, 102, 255)


def test_particles_keep_all_in_sight():
    """The camera widens with the farthest coordinate, and bodies shrink only if they are rescaled."""
    near, far = particles([[0, 0], [1, 0]]), particles([[0, 0], [4, -4]])
    assert np.ptp(places(near, RED)[:, 0]) > 150
    np.testing.assert_allclose(middle(far[:300, :300], RED), (200, 200), atol=1)
    assert at(far, 380, 380) == RED  # 10 % from the edge
    widths = [
        np.ptp(places(particles([[0, 0], [extent, 0]], rescale=rescale)[:, :250], RED)[:, 0])
        for rescale, extent in ((True, 1), (True, 2), (False, 1), (False, 2))
    ]
    assert widths[0] == pytest.approx(2 * widths[1], abs=3)
    assert widths[2] == widths[3] == pytest.approx(40, abs=3)
    assert widths[0] == pytest.approx(36, abs=3)


def test_particles_agents_lie_over_landmarks():
    picture = particles([[0, 0], [0, 0]], agents=1, radius=[0.1, 0.3])
    assert at(picture, 200, 200) == RED
    assert at(picture, 200 + 36, 200) == BLUE
    picture = particles([[0, 0], [0, 0]], agents=1, radius=[0.3, 0.1])
    assert len(places(picture, BLUE)) == 0


def test_particles_too_small_to_see_are_seen():
    picture = particles([[0.5, -0.5]], radius=[1e-6])
    assert len(places(picture, RED)) >= 4
    np.testing.assert_allclose(middle(picture, RED), (290, 290), atol=1)


def test_particles_say_things_in_the_corner():
    silent, one, two = (particles([[0, 0]], said=said) for said in ([], ["A"], ["A", "agent_0 says B"]))

    def written(picture):
        return np.argwhere((picture != silent).any(-1))

    assert len(written(one)) > 10
    assert written(one).min(0)[0] > 370
    assert written(one).max(0)[1] < 60
    assert written(two).min(0)[0] < written(one).min(0)[0]  # the first stands above the last
    long = written(particles([[0, 0]], said=["word " * 40]))
    assert long.max(0)[1] < 398


def test_particles_have_lines_beneath_them():
    bare, lined = particles([[0, 0.5]]), particles([[0, 0.5]], lines=[[-0.5, 0.5, 0.5, 0.5], [0, 0, 0, -1]])
    assert at(bare, 280, 110) == (255, 255, 255)
    assert at(lined, 280, 110) == at(lined, 120, 110) == at(lined, 200, 370) == WALL
    assert at(lined, 200, 110) == at(bare, 200, 110)  # the body is over the line
    # Lines count for the camera, which would otherwise follow the body alone.
    np.testing.assert_allclose(middle(particles([[0, 0.5]], lines=[[-2, 0, 2, 0]]), RED), (200, 155), atol=1)


def test_particles_need_no_bodies():
    assert (particles(np.zeros((0, 2))) == 255).all()


# What cannot be drawn


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((None,), "there is nothing to draw: the environment's frame(state) gives None"),
        (({"kind": "gird"},), "cannot draw a frame of the kind 'gird'. Did you mean grid?"),
        (({},), "cannot draw a frame of the kind None. Known: battle, grid, particles, pictures."),
        (([1],), "cannot draw a frame of the kind 'list'."),
        (({"kind": "grid"}, 3), "pixels must be a whole number of at least 16, not 3"),
        (({"kind": "grid"}, 64.0), "pixels must be a whole number of at least 16, not 64.0"),
    ],
)
def test_refuses_what_cannot_be_drawn(arguments, line):
    with pytest.raises(phalanx.PhalanxError) as caught:
        image(*arguments)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)

"""The physics of battles against closed forms, on states set by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phalanx.envs.battle import combat
from phalanx.envs.battle.terrain import Terrain
from phalanx.envs.battle.units import LIBERTY, unit_types
from phalanx.envs.battle.world import NEVER_GIVE_UP, NOBODY, Orders, Units, World, start

TYPES = unit_types("liberty")


@dataclass(frozen=True)
class Order:
    """What one unit is told: attack or heal a unit, or walk to a place, or nothing."""

    aim: int = NOBODY
    goal: tuple[float, float] | None = None


def play(
    ours: list[str],
    theirs: list[str],
    at: list[tuple[float, float]],
    orders: list[Order],
    loops: int,
    terrain: str = "open",
    acquire: bool = False,
    **values: Any,
) -> Units:
    """Let units stand `at` places and follow one order each for some loops: (T, N), without jitter.

    `values` sets fields of the units at the start, such as `health`.
    """
    kinds = ours + theirs
    used = list(dict.fromkeys(kinds))
    world = World(
        allies=len(ours),
        types=tuple(TYPES[name] for name in used),
        kinds=tuple(used.index(kind) for kind in kinds),
        drawn=False,
        terrain=Terrain(terrain),
        enemies_acquire=acquire,
    )
    params = world.params(None)
    x, y = jnp.array(at, jnp.float32).T[..., None]
    units = start(world, params, x, y)
    units = units._replace(**{name: jnp.asarray(v, jnp.float32)[:, None] for name, v in values.items()})
    goals = jnp.array([order.goal or (0, 0) for order in orders], jnp.float32).T[..., None]
    told = Orders(
        aim=jnp.array([order.aim for order in orders], jnp.int32)[:, None],
        goal_x=goals[0],
        goal_y=goals[1],
        walks=jnp.array([order.goal is not None for order in orders])[:, None],
        keep=jnp.full((world.n, 1), 5.0 if acquire else NEVER_GIVE_UP),
    )
    turns = -(-loops // 128) * 128  # a program for each multiple, not for each number
    return jax.tree.map(lambda x: np.asarray(x)[:loops, :, 0], program(world, turns)(units, told))


@cache
def program(world: World, loops: int) -> Callable[[Units, Orders], Units]:
    """The compiled loops of a world, (T, N, 1)."""
    params = world.params(None)

    @jax.jit
    def run(units: Units, told: Orders) -> Units:
        def loop(units: Units, _: None) -> tuple[Units, Units]:
            # Who acquires a target keeps it from loop to loop, as it would within a step.
            now = told._replace(aim=jnp.where(told.aim == NOBODY, units.aim, told.aim))
            units = combat.advance(world, params, units, now, jnp.zeros((world.n, 1)), loops=1)
            return units, units

        return jax.lax.scan(loop, units, None, loops)[1]

    return run


IDLE = Order()


def fired(units: Units, who: int) -> list[int]:
    """The loops in which a unit fired."""
    return np.flatnonzero(units.fired[:, who]).tolist()


def test_marine_against_marine():
    units = play(["marine"], ["marine"], [(10, 10), (15, 10)], [Order(1), IDLE], 130)
    # 45 health, 6 a shot: the 8th kills. It begins every 13.7728 loops and fires one loop (0.8) later.
    shots = [int(np.ceil(13.7728 * k)) + 1 for k in range(8)]
    assert fired(units, 0) == shots
    np.testing.assert_allclose(units.health[shots, 1], [39, 33, 27, 21, 15, 9, 3, 0])
    assert (units.x[:, 0] == 10).all(), "in range: it stands"


def test_stalker_on_zealot_through_shield_and_armour():
    units = play(["stalker"], ["zealot"], [(10, 10), (16, 10)], [Order(1), IDLE], 420)
    drops = np.flatnonzero(np.diff(units.health[:, 1] + units.shield[:, 1], prepend=150) < 0)
    taken = -np.diff(units.health[:, 1] + units.shield[:, 1], prepend=150)[drops]
    np.testing.assert_allclose(taken, [10] * 5 + [9] * 11 + [1])  # 50 of shield, then 100 of health
    # The wind-up takes 2.67 loops, the missile flies from edge to centre, (6 - 0.625) / 18.75 s.
    flight = (6 - 0.625) / 18.75 * 16
    assert fired(units, 0)[0] == 3
    assert drops[0] == 3 + np.ceil(flight)


def test_hit_that_breaks_the_shield():
    units = play(
        ["stalker"], ["zealot"], [(10, 10), (16, 10)], [Order(1), IDLE], 10, shield=[80, 4], health=[80, 100],
        calm=[0, 0],
    )  # fmt: skip
    assert units.shield[-1, 1] == 0
    assert units.health[-1, 1] == 100 - (10 - 4 - 1)


def test_zealot_strikes_twice_and_armour_counts_each_time():
    units = play(
        ["zealot"],
        ["stalker"],
        [(10, 10), (11.2, 10)],
        [Order(1), IDLE],
        60,
        shield=[50, 8],
        health=[100, 80],
    )
    hits = np.flatnonzero(np.diff(units.health[:, 1] + units.shield[:, 1], prepend=88) < 0)
    assert hits.tolist() == [0, 5, 20, 25, 39, 44, 58]  # every 19.2 loops, and 4.48 after each
    assert units.shield[0, 1] == 0
    assert units.health[0, 1] == 80
    np.testing.assert_allclose(units.health[hits, 1], [80, 73, 66, 59, 52, 45, 38])


@pytest.mark.parametrize(("target", "loss"), [("marauder", 10 + 10 - 1), ("marine", 10), ("zealot", 10 - 1)])
def test_marauder_is_stronger_against_armour(target, loss):
    extra = {} if target != "zealot" else {"shield": [0, 0], "calm": [0, 0]}
    units = play(["marauder"], [target], [(10, 10), (15, 10)], [Order(1), IDLE], 10, **extra)
    assert LIBERTY[target].health - units.health[-1, 1] == loss


def test_medivac_heals_and_pays_with_energy():
    units = play(
        ["medivac", "marine"], ["marine"], [(10, 10), (12, 10), (30, 30)], [Order(1), IDLE, IDLE], 96,
        health=[150, 10, 45],
    )  # fmt: skip
    np.testing.assert_allclose(units.health[7, 1], 10 + 4.5, rtol=1e-6)  # a step of 8 loops
    np.testing.assert_allclose(units.energy[7, 0], 50 - 1.5 + 8 * 0.5625 / 16, rtol=1e-6)
    assert units.health[:, 1].max() == 45, "never above the maximum"
    spent = 50 + 96 * 0.5625 / 16 - units.energy[-1, 0]
    np.testing.assert_allclose(spent, 35 / 3, atol=0.2)  # and nothing more once all is healed


def test_medivac_without_energy_heals_nothing():
    units = play(
        ["medivac", "marine"], ["marine"], [(10, 10), (12, 10), (30, 30)], [Order(1), IDLE, IDLE], 4,
        health=[150, 10, 45], energy=[0, 0, 0],
    )  # fmt: skip
    assert (units.health[:, 1] == 10).all()


def test_shield_waits_ten_seconds_and_then_regenerates():
    units = play(["zealot"], ["marine"], [(10, 10), (30, 10)], [IDLE, IDLE], 200, shield=[20, 0], calm=[0, 0])
    assert (units.shield[:160, 0] == 20).all()
    np.testing.assert_allclose(units.shield[160:, 0], 20 + 0.125 * np.arange(1, 41))
    assert (units.health[:, 0] == 100).all()


def test_zerg_regenerate():
    units = play(["zergling"], ["marine"], [(10, 10), (30, 10)], [IDLE, IDLE], 8, health=[20, 45])
    np.testing.assert_allclose(units.health[-1, 0], 20 + 0.5 * 0.2734375, rtol=1e-6)


def test_colossus_burns_a_line_across_its_shot():
    # The shot goes east: the line runs north and south through the zergling in the middle.
    row = [(15.0, 16 + 0.76 * k) for k in range(-4, 5)]
    units = play(["colossus"], ["zergling"] * 9, [(10, 16), *row], [Order(5), *[IDLE] * 9], 12)
    dead = (units.health[-1, 1:] <= 0).tolist()
    # 1.4 long on each side, and whoever's circle of 0.375 touches it: up to 1.775 away.
    assert dead == [abs(k) * 0.76 <= 1.775 for k in range(-4, 5)]
    assert sum(dead) == 5
    assert (units.health[2 + 5, 1:] > 0).all(), "not before 6 loops after the shot"
    assert units.health[2 + 6, 5] <= 0


def test_colossus_beam_misses_who_stands_behind():
    units = play(["colossus"], ["zergling"] * 2, [(10, 16), (15, 16), (15.8, 16)], [Order(1), IDLE, IDLE], 12)
    assert units.health[-1, 1] <= 0 < units.health[-1, 2]


@pytest.mark.parametrize(("victim", "loss"), [("zealot", 35), ("stalker", 20), ("zergling", 35)])
def test_baneling_bursts_on_all_enemies_around(victim, loss):
    at = [(10, 10), (10.9, 10), (10, 12.4), (10, 13.3)]  # in reach; within 2.2 and a radius; beyond
    units = play(["baneling"], [victim] * 3, at, [Order(1), IDLE, IDLE, IDLE], 3)
    unit = TYPES[victim]
    vigour = units.health[-1, 1:] + (units.shield[-1, 1:] if units.shield is not None else 0)
    regrown = 3 * unit.regeneration / 16
    np.testing.assert_allclose(unit.health + unit.shield - vigour, [loss, loss, 0], atol=regrown + 1e-4)
    assert units.health[-1, 0] == 0, "it dies of it"


def test_baneling_bursts_when_killed_and_spares_its_friends():
    at = [(10, 10), (11, 10), (12, 10), (11, 11)]
    units = play(
        ["marine", "marine"], ["baneling", "zergling"], at, [Order(2), IDLE, IDLE, IDLE], 3,
        health=[45, 45, 3, 35],
    )  # fmt: skip
    assert units.health[-1].tolist() == [45 - 35, 45 - 35, 0, 35]


def test_bursts_chain():
    at = [(10, 10), (11, 10), (12, 10), (13, 10), (20, 20)]
    units = play(
        ["marine", "baneling"], ["baneling", "marine", "marine"], at, [Order(2), *[IDLE] * 4], 6,
        health=[45, 15, 3, 45, 45],
    )  # fmt: skip
    # The enemy baneling dies, its burst kills ours (15 health), whose burst hurts the marine beyond.
    assert units.health[-1].tolist() == [10, 0, 0, 10, 45]


@pytest.mark.parametrize(("gap", "reached"), [(0.09, True), (0.12, False)])
def test_melee_reach_is_from_edge_to_edge(gap, reached):
    distance = 0.5 + 0.375 + gap
    units = play(["zealot"], ["zergling"], [(10, 10), (10 + distance, 10)], [Order(1), IDLE], 1)
    assert bool(units.fired[0, 0]) == reached


STEPS = {
    "marine": 1.125, "marauder": 1.125, "zealot": 1.125, "colossus": 1.125, "hydralisk": 1.125,
    "stalker": 1.4765625, "zergling": 1.4765625, "baneling": 1.25, "spine_crawler": 0,
}  # fmt: skip


def test_each_unit_moves_its_distance_in_a_step():
    names = [*STEPS, "medivac"]
    at = [(4.0, 1.5 + 3 * i) for i in range(len(names))]
    orders = [Order(goal=(30, y)) for _, y in at]
    units = play(names, ["marine"], [*at, (31, 31)], [*orders, IDLE], 32)
    moved = units.x[7, :-1] - 4
    np.testing.assert_allclose(moved[:-1], list(STEPS.values()), atol=1e-5)
    # A medivac gains 2.3125 a second each second: v grows by a/256 a loop.
    a = 2.3125 / 256
    np.testing.assert_allclose(moved[-1], a * sum(range(1, 9)), atol=1e-5)
    top = units.x[-1, len(names) - 1] - units.x[-2, len(names) - 1]
    np.testing.assert_allclose(top, 2.75 / 16, atol=1e-5)


def test_kiting():
    """A stalker that steps back is not hit by the zealot that pursues it; one that stands is."""
    at = [(12, 16), (10, 16)]
    flees = play(["stalker"], ["zealot"], at, [Order(goal=(31, 16)), Order(0)], 90)
    assert (flees.shield[:, 0] == 80).all()
    assert flees.x[-1, 0] - flees.x[-1, 1] > 5
    stands = play(["stalker"], ["zealot"], at, [IDLE, Order(0)], 90)
    assert stands.health[-1, 0] + stands.shield[-1, 0] < 110


def test_another_order_cancels_a_wind_up():
    attack = play(["stalker"], ["zealot"], [(10, 10), (15, 10)], [Order(1), IDLE], 2)
    assert attack.swing[-1, 0] > 0
    away = play(["stalker"], ["zealot"], [(10, 10), (15, 10)], [Order(goal=(2, 10)), IDLE], 20, swing=[2, 0])
    assert not away.fired.any()
    assert (away.cooldown[:, 0] <= 0).all(), "and no cooldown is spent"


def test_shot_that_has_left_flies_on_when_its_sender_dies():
    at = [(10, 10), (16, 10), (10, 11)]
    units = play(["stalker"], ["zealot", "baneling"], at, [Order(1), IDLE, Order(0)], 30, health=[5, 100, 30],
                 shield=[0, 50, 0], cooldown=[0, 0, 5])  # fmt: skip
    died = int(np.argmin(units.health[:, 0] > 0))
    assert fired(units, 0)[0] < died
    assert units.shield[died, 1] == 50
    assert units.shield[-1, 1] == 40


def test_walls_of_units_hold():
    """Zealots side by side across the corridor's choke: nobody passes while they stand."""
    wall = [(11.4 + 0.8 * k, 12.5) for k in range(5)]
    lings = [(12.0 + 0.8 * (k % 4), 15.5 + 0.8 * (k // 4)) for k in range(8)]
    orders = [*[IDLE] * 5, *[Order(goal=(4.47, 4.33))] * 8]
    units = play(["zealot"] * 5, ["zergling"] * 8, [*wall, *lings], orders, 320, terrain="corridor")
    assert (units.y[-1, 5:] > 12.5).all()


def test_choke_is_the_only_way():
    lings = [(20 + 0.8 * (k % 3), 20 + 0.8 * (k // 3)) for k in range(6)]
    orders = [IDLE, *[Order(goal=(4.47, 4.33))] * 6]
    units = play(["zealot"], ["zergling"] * 6, [(28, 28), *lings], orders, 240, terrain="corridor")
    x, y = units.x[:, 1:], units.y[:, 1:]
    assert (np.hypot(x[-1] - 4.47, y[-1] - 4.33) < 2.5).all(), "all arrive"
    through = (y > 12) & (y < 14)
    assert ((x[through] > 11) & (x[through] < 15)).all()
    assert through.any(axis=0).all()


def test_surrounded_unit_cannot_leave():
    ring = [(16 + 0.78 * np.cos(a), 16 + 0.78 * np.sin(a)) for a in np.arange(6) * np.pi / 3]
    units = play(
        ["zealot"], ["zergling"] * 6, [(16, 16), *ring], [Order(goal=(30, 16)), *[Order(0)] * 6], 48,
        health=[1000] + [35] * 6,
    )  # fmt: skip
    assert np.hypot(units.x[-1, 0] - 16, units.y[-1, 0] - 16) < 0.3


def test_crowd_walks_round_to_the_front():
    """Two dozen zerglings come from one side; six or more of them end up around their target."""
    lings = [(24 + 0.8 * (k % 5), 14 + 0.8 * (k // 5)) for k in range(24)]
    units = play(["zealot"], ["zergling"] * 24, [(16, 16), *lings], [IDLE, *[Order(0)] * 24], 160)
    reach = 0.5 + 0.375 + 0.1
    away = np.hypot(units.x[:, 1:] - units.x[:, :1], units.y[:, 1:] - units.y[:, :1])
    fights = (away <= reach) & (units.health[:, :1] > 0)
    assert fights.sum(axis=1).max() >= 6
    alive = int((units.health[:, 0] > 0).sum()) - 1  # the last loop of the zealot
    x, y = units.x[alive], units.y[alive]
    apart = np.hypot(x[:, None] - x, y[:, None] - y) + 9 * np.eye(25)
    assert np.median(apart.min(axis=1)) > 0.6, "bodies of 0.375 may be pressed together, but little"


def test_colossus_crosses_the_cliff_and_a_zergling_walks_round():
    units = play(
        ["colossus"], ["zergling"], [(16, 16), (16, 10)],
        [Order(goal=(16, 9)), Order(goal=(16, 17))], 300, terrain="ravine",
    )  # fmt: skip
    assert abs(units.x[:, 0] - 16).max() < 0.1, "straight down"
    assert units.y[-1, 0] < 9.2
    x, y = units.x[:, 1], units.y[:, 1]
    assert np.hypot(x[-1] - 16, y[-1] - 17) < 0.5, "it arrives"
    on_band = (y > 12) & (y < 14)
    assert on_band.any()
    assert ((x[on_band] < 4) | (x[on_band] > 28)).all(), "by the flank"


def test_flyers_and_walkers_do_not_collide():
    units = play(
        ["medivac", "marine"], ["marine"], [(10, 10), (12, 10), (30, 30)],
        [Order(goal=(20, 10)), IDLE, IDLE], 80,
    )  # fmt: skip
    assert units.x[-1, 0] > 18
    assert (units.x[:, 1] == 12).all()
    assert (units.y[:, 0] == 10).all()


def test_ground_weapons_do_not_hit_flyers():
    for shooter, hits in (("marauder", False), ("marine", True)):
        units = play([shooter], ["medivac"], [(10, 10), (13, 10)], [Order(1), IDLE], 40)
        assert (units.health[-1, 1] < 150) == hits
        assert (units.x[:, 0] == 10).all()


@pytest.mark.parametrize(("distance", "noticed"), [(5 + 0.75 - 0.05, True), (5 + 0.75 + 0.05, False)])
def test_enemies_notice_within_their_scan_range(distance, noticed):
    units = play(["marine"], ["marine"], [(10, 10), (10 + distance, 10)], [IDLE, IDLE], 20, acquire=True)
    assert (units.health[-1, 0] < 45) == noticed
    assert units.health[-1, 1] == 45, "allies do nothing by themselves"


def test_enemies_take_the_nearest_and_stay_with_it_while_they_can_hit_it():
    at = [(10, 10), (14.5, 10), (14, 13.5)]
    units = play(["marine", "marine"], ["marine"], at, [Order(goal=(10, 20)), IDLE, IDLE], 3, acquire=True)
    assert units.aim[-1, 2] == 1
    # Another one comes closer; the target is kept.
    comes = play(
        ["marine", "marine"], ["marine"], [(10, 10), (14.5, 10), (14.5, 14)],
        [Order(goal=(14.5, 13)), IDLE, IDLE], 60, acquire=True,
    )  # fmt: skip
    assert (comes.aim[2:, 2] == 1).all()
    assert np.hypot(comes.x[-1, 0] - 14.5, comes.y[-1, 0] - 14) < 3


def test_who_cannot_hit_its_target_turns_to_whoever_is_nearer():
    """A zealot runs after a marine that it cannot catch, past another one: it turns to that one."""
    at = [(12, 10), (15, 11.2), (10, 10)]
    units = play(["marine", "marine"], ["zealot"], at, [Order(goal=(31, 10)), IDLE, IDLE], 60, acquire=True)
    (first, *_) = fired(units, 2)
    away = np.hypot(units.x[:, :2] - units.x[:, 2:], units.y[:, :2] - units.y[:, 2:])
    assert away[0].argmin() == 0
    np.testing.assert_array_equal(units.aim[:first, 2], away[:first].argmin(axis=1))
    assert (units.aim[first:, 2] == 1).all(), "which it can hit, and so keeps"
    assert units.health[-1].tolist()[:2] == [45, 45 - 2 * 16]


def test_threats_are_all_alike():
    """The game prefers targets that threaten. On these maps every unit threatens whoever can attack it
    (a medivac is flagged as a threat), so that preference never decides and is not modelled."""
    for mine in LIBERTY.values():
        for other in LIBERTY.values():
            attackable = mine.delivery != "heal" and (mine.hits_air or not other.flying)
            threatens = other.delivery == "heal" or other.hits_air or not mine.flying
            assert threatens or not attackable


def test_attacker_stands_still_after_its_blow():
    """A zealot's back-swing takes half a second: who walks away from it gains that much ground."""
    at = [(10.95, 16), (10, 16)]
    units = play(["marine"], ["zealot"], at, [Order(goal=(31, 16)), Order(0)], 60, cooldown=[0, 0])
    (blow,) = fired(units, 1)
    assert (units.x[blow : blow + 8, 1] == units.x[blow, 1]).all()
    assert units.x[blow + 9, 1] > units.x[blow, 1]
    # A marine runs as fast as a zealot: it is hit (twice, by both blades) once and never again.
    assert units.health[-1, 0] == 45 - 16


def test_cancelled_wind_up_is_not_credited():
    """A stalker that changes its target after two loops of winding up has to begin anew."""
    at = [(10, 10), (15, 10), (15, 12)]
    swung = play(["stalker"], ["zealot", "zealot"], at, [Order(1), IDLE, IDLE], 2)
    assert swung.cooldown[-1, 0] == -2
    other = play(["stalker"], ["zealot", "zealot"], at, [Order(2), IDLE, IDLE], 30, cooldown=[-2, 0, 0],
                 swing=[2, 0, 0])  # fmt: skip
    assert fired(other, 0) == [3, 27]


def test_new_order_cuts_the_back_swing():
    units = play(["marine"], ["marine"], [(10, 10), (15, 10)], [Order(goal=(2, 10)), IDLE], 2, swing=[-10, 0])
    assert units.x[0, 0] < 10


GROUNDS = ["corridor", "pass", "octagon", "room", "ravine"]


@pytest.mark.parametrize("name", GROUNDS)
def test_legal_moves_go_where_they_point(name):
    """From every cell, each move that SMAC's mask allows leads that way or along a wall, never elsewhere."""
    ground = Terrain(name).walkable
    cells = np.argwhere(ground)
    for dx, dy in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        x, y = (cells + np.array([dx, dy])).clip(0, 31).T
        legal = cells[ground[x, y]]
        at = [(float(x) + 0.4, float(y) + 0.6) for x, y in legal]
        moved = alone(name, at, [(x + 2.0 * dx, y + 2.0 * dy) for x, y in at], 8)
        way = (moved[:, -1] - np.array(at)) @ np.array([dx, dy])
        assert (way >= -1e-5).all()


@pytest.mark.parametrize("name", GROUNDS)
def test_every_place_can_be_reached_from_every_other(name):
    rng = np.random.default_rng(0)
    cells = np.argwhere(Terrain(name).walkable)
    within = rng.uniform(0.05, 0.95, (2, 400, 2))
    begin, goal = cells[rng.integers(len(cells), size=(2, 400))] + within
    walked = alone(name, begin, goal, 700)
    assert (np.hypot(*(walked[:, -1] - goal).T) < 0.1).all()


def alone(terrain: str, at, goals, loops: int) -> np.ndarray:
    """(B, T, 2): the ways of zergling-like walkers, each alone in its own world."""
    world = World(1, (TYPES["zergling"],), (0, 0), False, Terrain(terrain), False)
    params = world.params(None)
    at, goals = np.asarray(at, np.float32), np.asarray(goals, np.float32)
    x, y = (np.stack([at[:, i], np.full(len(at), 99.0)]).astype(np.float32) for i in (0, 1))
    units = start(world, params, jnp.asarray(x), jnp.asarray(y))
    units = units._replace(health=units.health.at[1].set(0.0))
    goal = [jnp.asarray(np.stack([goals[:, i]] * 2)) for i in (0, 1)]
    nobody = jnp.full(x.shape, NOBODY, jnp.int32)
    told = Orders(nobody, *goal, jnp.ones(x.shape, bool), jnp.zeros(x.shape))

    @jax.jit
    def run(units):
        def loop(units, _):
            units = combat.advance(world, params, units, told, jnp.zeros(x.shape), loops=1)
            return units, jnp.stack([units.x[0], units.y[0]], -1)

        return jax.lax.scan(loop, units, None, loops)[1]

    return np.asarray(run(units)).swapaxes(0, 1)

"""Battles as environments: starts, enemies, rewards, and what must hold whatever is played."""

import math
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import LONG

import phalanx
from phalanx import registry
from phalanx.envs import battle
from phalanx.envs.batching import batch_last, fold, fold_at_once, fold_in_turn
from phalanx.envs.battle import spawn
from phalanx.envs.battle.env import Battle
from phalanx.envs.battle.scenarios import RACES, SCENARIOS, V2_TEAMS
from phalanx.envs.battle.units import LOOPS_PER_SECOND, unit_types
from phalanx.envs.battle.world import NOBODY, Orders, World, nearest, nearest_index
from phalanx.envs.wrappers import prepare
from phalanx.registry import make_env

STOP, NORTH, SOUTH, EAST, WEST = range(1, 6)


@cache
def playing(name: str, **options: Any):
    """An environment with its compiled reset and step."""
    env = make_env(f"battle/{name}", options)
    return env, jax.jit(env.reset), jax.jit(env.step)


def play(name: str, policy, steps: int, change=None, seed: int = 0, **options: Any):
    """Play one battle with `policy(env, state) -> actions`; yields each state and time step."""
    env, reset, step = playing(name, **options)
    state, timestep = reset(jax.random.key(seed))
    if change is not None:
        state = state._replace(units=state.units._replace(**change(state.units)))
    trace = [(state, timestep)]
    for key in jax.random.split(jax.random.key(seed + 1), steps):
        state, timestep = step(key, state, jnp.asarray(policy(env, state), jnp.int32))
        trace.append((state, timestep))
        if bool(timestep.terminated):
            break
    return trace


def everyone(action: int):
    return lambda env, state: np.full(env.spec.n_agents, action)


def nearest_enemy(env, state):
    """Attack the nearest living enemy."""
    a, u = env._world.allies, state.units
    square = (u.x[:a, None] - u.x[None, a:]) ** 2 + (u.y[:a, None] - u.y[None, a:]) ** 2
    return env.observer.first_target + np.argmin(np.where(u.health[None, a:] > 0, square, np.inf), axis=1)


def enemies(trace, field: str) -> np.ndarray:
    """(T, E): a field of the enemies over time."""
    ours = trace[0][1].observation.alive.shape[0]
    return np.array([getattr(state.units, field) for state, _ in trace])[:, ours:]


# What there is


def test_every_scenario_has_a_name_and_every_name_a_scenario():
    v2 = [f"v2_{race}_{a}_vs_{e}" for race in RACES for a, e in V2_TEAMS]
    assert list(battle.NAMES) == [*SCENARIOS, *v2]
    assert len(SCENARIOS) == 24
    assert len(v2) == 15


def test_types_for_sharing():
    assert make_env("battle/MMM", {}).spec.agent_types == ("marauder",) * 2 + ("marine",) * 7 + ("medivac",)
    assert make_env("battle/1c3s5z", {}).spec.agent_types == (
        "colossus", *["stalker"] * 3, *["zealot"] * 5,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["3m", "MMM", "corridor", "so_many_baneling", "2c_vs_64zg", "bane_vs_bane"])
def test_starts_are_tight_blobs_of_units_that_do_not_overlap(name):
    env = Battle(name, starts=64)
    starts, world = env._starts, env._world
    types = [world.types[k] for k in world.kinds]
    body = np.array([unit.body for unit in types])
    plane = np.array([unit.flying + 2 * unit.strides for unit in types])
    for x, y in zip(starts.x[:8], starts.y[:8], strict=True):
        apart = np.hypot(x[:, None] - x, y[:, None] - y) - body[:, None] - body
        side = np.arange(world.n) < world.allies
        together = (plane[:, None] == plane) & (side[:, None] == side) & ~np.eye(world.n, dtype=bool)
        assert (apart[together] > -0.02).all()
        ground = plane == 0
        assert world.terrain.walkable[x[ground].astype(int), y[ground].astype(int)].all()
    assert len(np.unique(starts.x.sum(1))) > 32, "starts differ"
    ours = starts.x[:, : world.allies]
    kinds = np.array(world.kinds)[: world.allies]
    for kind in set(kinds):
        assert (np.diff(ours[:, kinds == kind], axis=1) >= 0).all(), (
            "agents of a type are numbered from the west"
        )


@pytest.mark.parametrize("name", ["3m", "MMM", "bane_vs_bane", "so_many_baneling"])
def test_starts_do_not_depend_on_how_a_processor_rounds(name, monkeypatch):
    def starts():
        env = Battle(name)
        return spawn.starts(env._scenario, unit_types(env.stats), env._world.terrain, count=8)

    expected = starts()
    rng = np.random.default_rng(1)

    def rounded(function):
        return lambda *args: (exact := function(*args)) * (1 + 1e-12 * rng.uniform(-1, 1, np.shape(exact)))

    for function in ("hypot", "sqrt", "cos", "sin", "square", "arctan2"):
        monkeypatch.setattr(np, function, rounded(getattr(np, function)))
    for here, there in zip(expected, starts(), strict=True):
        np.testing.assert_allclose(here, there, atol=1e-5)


def test_battles_begin_alike_unless_more_starts_are_asked_for():
    def places(**options):
        env = Battle("3m", **options)
        states = jax.vmap(lambda key: env.reset(key)[0].units.x)(jax.random.split(jax.random.key(0), 32))
        return np.unique(np.asarray(states), axis=0)

    own = places()
    assert len(own) == 1
    three, others = places(starts=3), places(starts=3, start_seed=1)
    assert len(three) == len(others) == 3
    assert sum(any((place == other).all() for other in others) for place in three) == 1, "only the map's own"
    assert any((own[0] == place).all() for place in three)
    with pytest.raises(phalanx.PhalanxError, match="start_seed is for random initial states"):
        Battle("3m", start_seed=1)
    assert {"starts", "start_seed"} <= set(registry.env_options("battle/3m", []))
    assert not {"starts", "start_seed"} & set(registry.env_options("battle/v2_terran_5_vs_5", []))


def test_in_its_own_start_both_sides_stand_in_the_same_pattern():
    """A slow twin: each marine at the free spot nearest to its squad's place, ties from the east on."""
    env = Battle("8m")
    (squad,), (other,) = env._scenario.squads
    apart = 2 * env._world.types[0].body + spawn.GAP
    steps = [(i, j) for i in range(-30, 31) for j in range(-30, 31)]
    points = [(spawn.LATTICE * (i + j / 2), spawn.LATTICE * 0.75**0.5 * j) for i, j in steps]
    points.sort(key=lambda at: (round(math.hypot(*at), 6), round(math.atan2(at[1], at[0]) % math.tau, 6)))
    placed: list[tuple[float, float]] = []
    while len(placed) < 8:
        placed.append(next(p for p in points if all(math.dist(p, q) >= apart - 1e-9 for q in placed)))
    starts, loop = env._starts, spawn.LOOPS_BEFORE / LOOPS_PER_SECOND
    ours = np.array(sorted(placed)) + squad.place
    np.testing.assert_allclose(np.stack([starts.x[0], starts.y[0]], 1)[:8], ours, atol=1e-5)
    theirs = np.array(placed) + other.place
    way = starts.goal[0] - theirs
    theirs += way / np.hypot(*way.T)[:, None] * env._world.types[0].speed * loop
    np.testing.assert_allclose(np.stack([starts.x[0], starts.y[0]], 1)[8:], theirs, atol=1e-4)


# Enemies


def away(places):
    """Put the allies somewhere else, and make them hard to kill."""

    def change(units):
        n = len(places)
        x, y = np.array(places, np.float32).T
        return {
            "x": units.x.at[:n].set(x),
            "y": units.y.at[:n].set(y),
            "health": units.health.at[:n].set(1e4),
        }

    return change


def test_enemies_march_and_then_stand():
    trace = play("3m", everyone(STOP), 50, away([(30, 9), (30, 10), (31, 9.5)]))
    x, y, aim = (enemies(trace, field) for field in ("x", "y", "aim"))
    assert (np.diff(x[:10], axis=0) < 0).all(), "west, to (9, 16)"
    assert (np.hypot(x[-1] - 9, y[-1] - 16) < 1).all()
    assert np.abs(np.diff(x[-4:], axis=0)).max() < 0.05, "they stand"
    assert (aim == NOBODY).all(), "nobody is near enough to be noticed"


def test_enemies_answer_who_hits_them_and_call_for_help():
    """A stalker outside their scan range shoots a zealot: it and its friends turn upon the stalker."""
    shoots = lambda env, state: np.array([6, STOP, STOP])  # noqa: E731
    trace = play("3s_vs_3z", shoots, 8, away([(23.0, 23.8), (2, 2), (2, 4)]))
    aim, fired = enemies(trace, "aim"), np.array([state.units.fired[0] for state, _ in trace])
    hit = int(np.argmax(fired))
    assert (aim[:hit] == NOBODY).all()
    assert (aim[hit + 1] == 0).all(), "all three stand together"
    silent = play("3s_vs_3z", everyone(STOP), 8, away([(23.0, 23.8), (2, 2), (2, 4)]))
    assert (enemies(silent, "aim") == NOBODY).all(), "without the shot nobody cares"


@pytest.mark.parametrize(
    ("first", "second", "turns"),
    [
        ("runs", "shoots", True),
        ("runs", "stands", False),
        ("is hit", "shoots", False),
        ("shoots", "shoots", False),
    ],
)
def test_enemy_that_hits_nobody_turns_to_who_hits_it(first, second, turns):
    """A zealot goes for the nearer of two marines; who shoots draws it away, if it is not in contact."""
    near = (16, 17.8) if first == "is hit" else (16, 16)
    actions = {"runs": SOUTH, "is hit": STOP, "shoots": 6, "stands": STOP}
    policy = lambda env, state: np.array([actions[first], actions[second]])  # noqa: E731
    trace = play("2m_vs_1z", policy, 4, away([near, (20, 18.7)]))
    aim = enemies(trace, "aim")[:, 0]
    assert aim[1] == 0
    assert aim[-1] == (1 if turns else 0)


def test_enemies_give_up_who_has_left_and_hits_no_more():
    def hits_then_runs(env, state):
        return np.array([6 if int(state.steps) < 1 else NORTH, STOP, STOP])

    trace = play("3s_vs_3z", hits_then_runs, 8, away([(22.0, 22.8), (2, 2), (2, 4)]))
    aim = enemies(trace, "aim")
    assert (aim == 0).all(1).any()
    assert (aim[-1] == NOBODY).all()


def test_zerglings_hunt_the_colossi_round_the_cliff():
    trace = play("2c_vs_64zg", everyone(STOP), 30)
    both_live = [i for i, (_, timestep) in enumerate(trace) if int(timestep.info["dead_allies"]) == 0]
    assert (enemies(trace, "aim")[1 : both_live[-1]] >= 0).all()
    y = enemies(trace, "y")
    assert y[0].max() < 12
    assert (y[-1] > 14).sum() > 10
    assert len(both_live) < len(trace), "and kill one of them, which does not resist"


def test_enemy_medivac_heals_and_follows():
    hurt = lambda units: {**away([(2 + i % 5, 9 + i // 5) for i in range(10)])(units),  # noqa: E731
                          "health": units.health.at[10].set(20.0)}  # fmt: skip
    trace = play("MMM", everyone(STOP), 20, hurt)
    assert enemies(trace, "health")[-1, 0] == 45
    assert enemies(trace, "energy")[1, -1] < 50
    x, y = enemies(trace, "x")[-1], enemies(trace, "y")[-1]
    assert np.hypot(x[:-1] - x[-1], y[:-1] - y[-1]).min() < 1.5, "it stays with its friends"
    assert x[-1] < 12, "and does not stay behind"


def test_zealot_of_2m_vs_1z_marches_between_the_marines():
    goals = Battle("2m_vs_1z")._starts.goal
    assert (goals[:, 1] == 12).all()
    assert goals[:, 0].min() < 14 < 18 < goals[:, 0].max()


class Idlers:
    """An opponent that never does anything: the seam that a trained team will use."""

    acquires = False

    def start(self, world: World, goal):
        return jnp.zeros((1, goal.shape[-1]))

    def orders(self, world: World, p, units, memory):
        x, y = units.x[world.sides[1]], units.y[world.sides[1]]
        nobody = jnp.full(x.shape, NOBODY, jnp.int32)
        return Orders(nobody, x, y, jnp.zeros(x.shape, bool), jnp.zeros(x.shape)), memory + 1


def test_opponent_is_a_value():
    env = Battle("3m", opponent=Idlers())
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    step = jax.jit(env.step)
    total, before = 0.0, state
    while not bool(timestep.terminated):
        state, timestep = step(
            jax.random.key(int(state.steps)), state, jnp.asarray(nearest_enemy(env, state))
        )
        total += float(timestep.reward[0])
    assert bool(timestep.info["won"])
    assert int(timestep.info["dead_allies"]) == 0
    np.testing.assert_allclose(total, 20, rtol=1e-5)
    assert float(state.memory[0]) == int(state.steps) > 0
    still = state.units.health[3:] > 0
    assert (np.asarray(state.units.x == before.units.x)[3:] | ~still).all()


# Rewards and endings


@pytest.mark.parametrize("name", ["3m", "5m_vs_6m"])
def test_clean_win_sums_to_twenty(name):
    strong = lambda units: {"health": units.health.at[: len(units.x) // 2].set(1e4)}  # noqa: E731
    trace = play(name, nearest_enemy, 60, strong)
    assert bool(trace[-1][1].info["won"])
    np.testing.assert_allclose(sum(float(timestep.reward[0]) for _, timestep in trace), 20, rtol=1e-5)


def taking_turns(env, state):
    """Both shoot; who could not bear another hit leaves the crawler's reach, and it turns to the other."""
    u = state.units
    away = np.hypot(u.x[:2] - u.x[2], u.y[:2] - u.y[2])
    left = np.asarray(u.health + u.shield)[:2]
    leaves = (left <= 29) & (int(u.aim[2]) == np.arange(2)) & (left[::-1] > 29)
    return np.where(leaves, SOUTH, np.where(away <= 6, 6, NORTH))


@pytest.mark.parametrize(("policy", "wins"), [(taking_turns, True), (nearest_enemy, False)])
def test_stalkers_must_take_turns_against_the_crawler(policy, wins):
    """SMAC calls the trick "alternating fire"; published returns of teams that win are 20.2 to 20.3."""
    trace = play("2s_vs_1sc", policy, 80)
    assert bool(trace[-1][1].info["won"]) == wins
    assert not wins or 20.1 < sum(float(timestep.reward[0]) for _, timestep in trace) < 20.35


def test_timeout_cuts_and_does_not_end():
    env = prepare(make_env("battle/2s_vs_1sc", {}))
    step = jax.jit(env.step)
    running, cut = env.reset(jax.random.key(0)), []
    for key in jax.random.split(jax.random.key(1), 300):
        running, timestep = step(key, running, jnp.full(2, STOP))
        cut.append((bool(timestep.terminated), bool(timestep.truncated)))
    assert cut == [(False, False)] * 299 + [(False, True)]


# SMACv2


def drawn(name: str, count: int = 512, **options: Any):
    env = make_env(f"battle/v2_{name}", options)
    return env, jax.tree.map(
        np.asarray, jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), count))
    )


def test_v2_draws_teams():
    _, (state, _) = drawn("terran_10_vs_11")
    ours, theirs = state.kinds[:, :10], state.kinds[:, 10:]
    assert (np.sort(ours) == np.sort(theirs[:, :10])).all(), "both teams are alike"
    np.testing.assert_allclose(np.bincount(ours.reshape(-1)) / ours.size, [0.45, 0.45, 0.1], atol=0.03)
    assert (np.diff(ours, axis=1) >= 0).all(), "agents are numbered by type"
    np.testing.assert_allclose(np.bincount(theirs[:, 10], minlength=3) / 512, [0.5, 0.5, 0], atol=0.07)


def test_v2_draws_starts():
    _env, (state, _) = drawn("protoss_5_vs_5")
    x, y = state.units.x, state.units.y
    mirrored = (np.abs(np.sort(x[:, :5]) + np.sort(x[:, 5:])[:, ::-1] - 32) < 1e-3).all(1)
    assert 0.4 < mirrored.mean() < 0.6
    assert (x[mirrored][:, :5] <= 16).all()
    assert (np.sort(y[mirrored][:, :5]) == np.sort(y[mirrored][:, 5:])).all()
    assert x[mirrored][:, 0].std() > 3
    ring = ~mirrored
    assert (np.hypot(x[ring][:, :5] - 16, y[ring][:, :5] - 16) < 2.5).all(), "allies in the middle"
    corner = (x[ring][:, 5:] > 16) + 2 * (y[ring][:, 5:] > 16)
    groups = np.array([len(set(row)) for row in corner])
    assert set(groups) == {1, 2, 3, 4}


def test_epo_shows_each_enemy_to_one_agent():
    env, (state, step) = drawn("zerg_5_vs_5", prob_obs_enemy=0.0)
    played = jax.jit(jax.vmap(env.step))
    for key in jax.random.split(jax.random.key(1), 12):
        state, step = played(jax.random.split(key, 512), state, jnp.full((512, 5), EAST))
    known = np.asarray(state.known)
    assert (known.sum(1) <= 1).all()
    assert known.any()
    distance = np.asarray(step.observation.obs)[:, :, 4:44].reshape(512, 5, 5, 8)[..., 1]
    assert ((distance > 0).sum(1) <= 1).all()
    assert (distance > 0).any()


def test_looking_turns_the_cone():
    env, (state, _) = drawn("terran_5_vs_5", count=4, conic_view=True)
    assert (state.facing == 0).all()
    state, _ = jax.jit(jax.vmap(env.step))(
        jax.random.split(jax.random.key(0), 4), state, jnp.full((4, 5), 6 + 3)
    )
    assert (np.asarray(state.facing)[np.asarray(state.units.health)[:, :5] > 0] == 3).all()


# Whatever is played

SOME = ["MMM2", "2c_vs_64zg", "bane_vs_bane", "6h_vs_8z", "v2_protoss_10_vs_11"]
STEPS = 10**6 if LONG else 3_200


def faults(world: World, state, timestep, was_alive):
    """(F,) which rules one battle breaks after a step, and what a side is told of it."""
    u = state.units
    p = world.params(None if state.kinds is None else state.kinds[:, None])
    flat = jax.tree.map(lambda v: jnp.asarray(v)[:, 0] if np.ndim(v) == 2 else v, p)
    alive = u.health > 0
    cell = jnp.floor(u.x).astype(int), jnp.floor(u.y).astype(int)
    ground = jnp.asarray(world.terrain.walkable)[cell]
    strides = flat.strides & jnp.asarray(world.terrain.stridable)[cell]
    seen = timestep.observation
    numbers = [u.x, u.y, u.health, u.cooldown, seen.obs, seen.state, timestep.reward]
    return jnp.array([
        ~jnp.stack([jnp.isfinite(x).all() for x in numbers]).all(),
        (u.health > flat.health + 1e-4).any() | (u.health < 0).any(),
        False if u.shield is None else (u.shield > flat.shield + 1e-4).any() | (u.shield < 0).any(),
        False if u.energy is None else (u.energy > 200).any() | (u.energy < 0).any(),
        ~(ground | flat.flying | strides).all(),
        (alive & ~was_alive).any(),
        (u.fired & ~was_alive).any(),
        ~(seen.avail.any(1).all()),
        (seen.avail[:, 0] != ~seen.alive).any(),
        (jnp.abs(seen.obs) > 40).any(),
    ])  # fmt: skip


@pytest.mark.parametrize("name", list(battle.NAMES) if LONG else SOME)
def test_what_always_holds(name):
    """Under random actions: finite numbers, bounds kept, the dead do nothing, nobody leaves the ground."""
    bare = make_env(f"battle/{name}", {})
    env, world = prepare(bare), bare._world
    envs = 1024 if LONG else 32

    def step(carry, _):
        running, key = carry
        key, act_key, env_key = jax.random.split(key, 3)
        avail = running.observation.avail
        action = jnp.argmax(jnp.where(avail, jax.random.uniform(act_key, avail.shape), -1.0), -1)
        inner = running.state.inner.inner.inner
        after, timestep = jax.vmap(env.env.step)(jax.random.split(env_key, envs), running.state, action)
        bad = jax.vmap(partial(faults, world))(after.inner.inner.inner, timestep, inner.units.health > 0).any(
            0
        )
        over = timestep.terminated | timestep.truncated
        fresh = jax.vmap(env.reset)(jax.random.split(env_key, envs))
        stays = env_running(after, timestep, over)
        select = lambda new, old: jnp.where(over.reshape(-1, *[1] * (old.ndim - 1)), new, old)  # noqa: E731
        return (jax.tree.map(select, fresh, stays), key), (bad, over.sum())

    def env_running(state, timestep, over):
        return type(running)(state, timestep.observation, jnp.zeros_like(over))

    running = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), envs))
    run = jax.jit(lambda carry: jax.lax.scan(step, carry, None, 100))
    carry, ended = (running, jax.random.key(1)), 0
    for _ in range(-(-STEPS // (100 * envs))):
        carry, (bad, over) = run(carry)
        assert not np.asarray(bad).any(0).any(), np.asarray(bad).any(0)
        ended += int(over.sum())
    assert ended > 0 or name in ("2c_vs_64zg", "2s_vs_1sc", "corridor")


# The batch on the last axis


def test_batch_last_joins_all_batch_axes():
    seen = []

    def add(x, y):
        seen.append((x.shape, y.shape))
        return {"sum": x + y[None]}

    f = batch_last(add)
    x, y = jnp.arange(24.0).reshape(2, 4, 3), jnp.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(f(x[0, 0], y[0, 0])["sum"], x[0, 0] + y[0, 0])
    out = jax.vmap(jax.vmap(f))(x, y)["sum"]
    np.testing.assert_array_equal(out, x + y[..., None])
    assert seen[-1] == ((3, 8), (8,))
    fixed = jax.vmap(jax.vmap(f, in_axes=(0, None)), in_axes=(None, 0))(x[0], y[:, 0])["sum"]
    np.testing.assert_array_equal(fixed, x[0][None] + y[:, :1, None])


def test_fold_is_the_same_in_turn_and_at_once():
    rows = jnp.arange(12.0).reshape(3, 4) % 5
    columns = (jnp.arange(20.0).reshape(5, 4) % 7, jnp.arange(5, dtype=jnp.int32))

    def pair(column):
        value, index = column
        distance = jnp.abs(rows - value)
        return distance, nearest(distance, index), distance

    kinds = ("sum", "min", "max")
    distance = np.abs(np.asarray(rows)[None] - np.asarray(columns[0])[:, None])
    for got in (
        fold(pair, kinds, columns),
        fold_in_turn(pair, kinds, columns),
        fold_in_turn(pair, kinds, columns, at_a_time=4),
        fold_in_turn(pair, kinds, columns, at_a_time=5),
        fold_at_once(pair, kinds, columns),
    ):
        np.testing.assert_allclose(got[0], distance.sum(0))
        np.testing.assert_array_equal(nearest_index(got[1]), distance.argmin(0))
        np.testing.assert_allclose(got[2], distance.max(0))


@pytest.mark.parametrize(
    ("units", "envs", "form"),
    [
        (6, 10_922, "at once"),
        (6, 10_923, "a chain"),
        (22, 8192, "a chain"),
        (33, 8192, "at once"),
        (57, 8192, "a loop"),
        (6, 2**19, "a loop"),
    ],
)
def test_a_gpu_folds_by_the_number_of_units_and_environments(units, envs, form):
    """Lowered for a GPU, which a CPU can do."""
    shape = jax.ShapeDtypeStruct((units, envs), jnp.float32)
    program = jax.jit(lambda rows: fold(lambda column: (rows - column[None],), ("sum",), rows))
    text = program.trace(shape).lower(lowering_platforms=("cuda",)).as_text()
    found = "a loop" if "stablehlo.while" in text else "at once" if "stablehlo.reduce" in text else "a chain"
    assert found == form

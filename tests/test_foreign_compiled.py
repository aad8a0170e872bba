"""Environments of JaxMARL, Jumanji and gymnax: step for step what the packages themselves give."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import phalanx
from phalanx import registry
from phalanx.envs import foreign
from phalanx.envs.wrappers import TimeLimit
from phalanx.errors import PhalanxError

B = 4
# Name and options. Time limits are short, so that several episodes end by them.
JAXMARL = {
    "jaxmarl/smax_3m": {},
    "jaxmarl/overcooked": {"time_limit": 100, "shaped": 0.5},
    "jaxmarl/overcooked_v2_cramped_room": {"time_limit": 100, "view": 2},
    "jaxmarl/hanabi": {},
    "jaxmarl/switch_riddle": {"agents": 4},
    "jaxmarl/coin_game": {"games": 3, "steps": 5},
    "jaxmarl/mpe_simple_tag": {},
    "jaxmarl/mpe_simple_world_comm": {},
}
JUMANJI = {
    "jumanji/LevelBasedForaging-v0": {"size": 6, "time_limit": 60},
    "jumanji/RobotWarehouse-v0": {"time_limit": 40},
    "jumanji/Connector-v3": {},
    "jumanji/Tetris-v0": {},
}
GYMNAX = {
    "gymnax/CartPole-v1": {"time_limit": 20},
    "gymnax/Pendulum-v1": {"time_limit": 20},
    "gymnax/Breakout-MinAtar": {},
}


@pytest.fixture(params=[*JAXMARL.items(), *JUMANJI.items(), *GYMNAX.items()], ids=lambda each: each[0])
def env(request):
    name, options = request.param
    return phalanx.make_env(name, **options)


def test_keeps_the_contract(env):
    assert phalanx.check_env(env) == []


def played(env, steps, theirs, seed=0):
    """Play `env` and what `theirs` steps from the same keys and actions; yield both after every step.

    `theirs` is reset(key) and step(key, state, actions), each of which gives a state and anything else.
    Episodes end as they do in phalanx, and both begin the next one from the same key.
    """
    limited = TimeLimit(env)
    ours = jax.jit(jax.vmap(limited.reset)), jax.jit(jax.vmap(limited.step))
    reset, step = jax.jit(jax.vmap(theirs[0])), jax.jit(jax.vmap(theirs[1]))
    rng = np.random.default_rng(seed)

    def keys(t):
        return jax.random.split(jax.random.fold_in(jax.random.key(seed), t), B)

    (state, now), (their_state, their_now) = ours[0](keys(0)), reset(keys(0))
    yield None, now, their_state, their_now
    for t in range(1, steps):
        actions = jnp.asarray(choose(rng, np.asarray(now.observation.avail), env.spec))
        before = their_state
        state, now = ours[1](keys(t), state, actions)
        their_state, their_now = step(keys(t), their_state, actions)
        yield before, now, their_state, their_now
        over = np.asarray(now.terminated | now.truncated)
        if over.any():
            again, first = ours[0](keys(10_000 + t)), reset(keys(10_000 + t))
            state, now = select(over, again, (state, now))
            their_state = select(over, first[0], their_state)


def select(over, a, b):
    """`a` where an episode is over."""
    return jax.tree.map(lambda x, y: jnp.where(over.reshape(B, *[1] * (x.ndim - 1)), x, y), a, b)


def choose(rng, avail, spec):
    noise = rng.random(avail.shape, np.float32)
    if spec.action_kind == "continuous":
        low, high = spec.action_range
        return low + noise * np.float32(high - low)
    return np.where(avail, noise, -1).argmax(-1).astype(np.int32)


def same(ours, theirs):
    np.testing.assert_allclose(
        np.asarray(ours, np.float32), np.asarray(theirs, np.float32), rtol=1e-5, atol=1e-5
    )


# JaxMARL


def jaxmarl_pair(env, **options):
    """JaxMARL's own environment, made by its `make` with its own defaults, and its `step_env`."""
    jaxmarl = foreign.package("jaxmarl")
    world = jaxmarl.make(**options)

    def step(key, state, actions):
        given = dict(zip(world.agents, env.hands.rows(actions), strict=True))
        obs, state, *rest = world.step_env(key, state, given)
        return state, (obs, *rest)

    def reset(key):
        obs, state = world.reset(key)
        return state, obs

    return world, (reset, step)


def rows(world, values):
    return np.stack([np.asarray(values[a]) for a in world.agents], axis=1)


def test_smax_is_jaxmarls():
    """Its `done` is our end or our cut. JaxMARL compares before it counts, so its 24 steps are 25."""
    env = phalanx.make_env("jaxmarl/smax_3m", time_limit=25)
    scenario = foreign.package("jaxmarl.environments.smax").map_name_to_scenario("3m")
    world, pair = jaxmarl_pair(env, env_id="HeuristicEnemySMAX", scenario=scenario, max_steps=24)
    ends = {"won": 0, "lost": 0, "cut": 0}
    for before, now, state, told in played(env, 260, pair):
        seen = now.observation
        raw = told if before is None else told[0]
        same(seen.obs, rows(world, raw))
        same(seen.state, raw["world_state"])
        same(seen.avail, rows(world, jax.vmap(world.get_avail_actions)(state)))
        if before is None:
            continue
        _, rewards, dones, _ = told
        same(now.reward, rows(world, rewards))
        same(~seen.alive, rows(world, {a: dones[a] for a in world.agents}))
        same(now.terminated | now.truncated, dones["__all__"])
        same(now.truncated, (state.state.step == 25) & ~now.terminated)
        # A win pays 1 and, in the same step, less than 1 for damage; nothing else pays so much.
        same(now.info["won"], now.reward[:, 0] >= 1)
        ends["won"] += int(now.info["won"].sum())
        ends["lost"] += int((now.terminated & ~now.info["won"]).sum())
        ends["cut"] += int(now.truncated.sum())
    assert ends["lost"] >= 1, ends
    assert ends["cut"] >= 1, ends


@pytest.mark.parametrize("id", ["overcooked", "overcooked_v2"])
def test_overcooked_is_jaxmarls(id):
    name = {"overcooked": "jaxmarl/overcooked", "overcooked_v2": "jaxmarl/overcooked_v2_cramped_room"}[id]
    env = phalanx.make_env(name, **JAXMARL[name])
    more = {"agent_view_size": 2} if id == "overcooked_v2" else {}
    world, pair = jaxmarl_pair(env, env_id=id, max_steps=100, **more)
    weight, shaped = JAXMARL[name].get("shaped", 0.0), 0.0
    for before, now, _, told in played(env, 401, pair):
        raw = told if before is None else told[0]
        # int8 holds all that JaxMARL's integers say.
        np.testing.assert_array_equal(now.observation.obs, rows(world, raw))
        if before is not None:
            _, rewards, dones, info = told
            extra = rows(world, info["shaped_reward"])
            shaped += np.abs(extra).sum()
            same(now.reward, rows(world, rewards) + weight * extra)
            same(now.truncated, dones["__all__"])
            assert not now.terminated.any()
    assert shaped > 0


def test_hanabi_is_jaxmarls():
    env = phalanx.make_env("jaxmarl/hanabi")
    world, pair = jaxmarl_pair(env, env_id="hanabi")
    ends = 0
    for before, now, state, told in played(env, 80, pair):
        raw = told if before is None else told[0]
        same(now.observation.obs, rows(world, raw))
        same(now.observation.avail, rows(world, jax.vmap(world.get_legal_moves)(state)))
        turn = np.asarray(now.observation.avail)[:, :, :-1].any(-1)
        over = np.asarray(now.terminated)
        assert (turn.sum(1) == 1)[~over].all()
        if before is not None:
            same(now.reward, rows(world, told[1]))
            same(now.terminated, told[2]["__all__"])
            ends += int(over.sum())
    assert ends >= B


def test_switch_riddle_is_jaxmarls():
    """The limit is a cut, and telling is the end, also in the last step."""
    env = phalanx.make_env("jaxmarl/switch_riddle", agents=4)
    world, pair = jaxmarl_pair(env, env_id="switch_riddle", num_agents=4)
    assert env.spec.time_limit == 10
    told_by_end = cut = 0
    for before, now, _, told in played(env, 150, pair):
        same(now.observation.obs, rows(world, told if before is None else told[0]))
        if before is not None:
            same(now.reward, rows(world, told[1]))
            same(now.terminated | now.truncated, told[2]["__all__"])
            same(now.terminated, now.reward[:, 0] != 0)
            told_by_end, cut = told_by_end + int(now.terminated.sum()), cut + int(now.truncated.sum())
    assert told_by_end > 0
    assert cut > 0


@pytest.mark.parametrize("name", ["jaxmarl/mpe_simple_tag", "jaxmarl/mpe_simple_world_comm"])
def test_particle_worlds_are_jaxmarls(name):
    """Unlike observations and actions are padded; JaxMARL's 25 steps are 26."""
    env = phalanx.make_env(name)
    world, pair = jaxmarl_pair(env, env_id=f"MPE_{name.removeprefix('jaxmarl/mpe_')}_v3")
    cut = 0
    for before, now, _, told in played(env, 60, pair):
        raw = told if before is None else told[0]
        for i, agent in enumerate(world.agents):
            own = len(env.spec.obs_features[i])
            same(now.observation.obs[:, i, :own], raw[agent])
            assert not np.asarray(now.observation.obs)[:, i, own:].any()
        if before is not None:
            same(now.reward, rows(world, told[1]))
            same(now.truncated, told[2]["__all__"])
            assert not now.terminated.any()
            cut += int(now.truncated.sum())
    assert cut == 2 * B
    assert set(env.spec.teams) == {"adversaries", "agents"}


def test_the_coin_game_is_jaxmarls():
    """JaxMARL begins a new game at the end of each, and so at the last; ours is cut at the same step."""
    env = phalanx.make_env("jaxmarl/coin_game", games=3, steps=5)
    world, pair = jaxmarl_pair(env, env_id="coin_game", num_inner_steps=5, num_outer_steps=3)
    for before, now, _, told in played(env, 40, pair):
        same(now.observation.obs, rows(world, told if before is None else told[0]))
        if before is not None:
            same(now.reward, rows(world, told[1]))
            same(now.truncated, told[2]["__all__"])


# Jumanji


@pytest.mark.parametrize("name", JUMANJI)
def test_jumanji_is_jumanjis(name):
    """Observations, masks, rewards and ends; Jumanji ends at its limit, where ours is cut."""
    jumanji = foreign.package("jumanji")
    options = dict(JUMANJI[name])
    env = phalanx.make_env(name, **options)
    if "LevelBasedForaging" in name:
        generator = foreign.package("jumanji.environments.routing.lbf.generator").RandomGenerator
        options = {
            "time_limit": options["time_limit"],
            "generator": generator(grid_size=6, fov=6, num_agents=2, num_food=2, force_coop=True),
        }
    world = jumanji.make(name.removeprefix("jumanji/"), **options)

    def step(key, state, actions):
        if name == "jumanji/Tetris-v0":
            actions = jnp.array([actions[0] // 10, actions[0] % 10])
        return world.step(state, actions)

    ends = cut = 0
    for before, now, _, told in played(env, 130, (world.reset, step)):
        seen, theirs = now.observation, told.observation
        same(np.asarray(seen.avail).reshape(B, -1), np.asarray(theirs.action_mask).reshape(B, -1))
        same_views(name, np.asarray(seen.obs), theirs)
        if before is None:
            continue
        same(now.reward, np.broadcast_to(np.asarray(told.reward).reshape(B, -1), now.reward.shape))
        same(now.terminated | now.truncated, told.last())
        ends, cut = ends + int(now.terminated.sum()), cut + int(now.truncated.sum())
    assert ends > 0 or name == "jumanji/LevelBasedForaging-v0"
    assert cut > 0 or name in ("jumanji/Connector-v3", "jumanji/Tetris-v0")


def same_views(name, obs, theirs):
    if name == "jumanji/Tetris-v0":
        parts = [np.asarray(theirs.grid).reshape(B, -1), np.asarray(theirs.tetromino).reshape(B, -1)]
        same(obs[:, 0], np.concatenate(parts, axis=1))
    elif name == "jumanji/Connector-v3":
        grid = np.asarray(theirs.grid)
        for agent in range(obs.shape[1]):
            for k in range(3):
                number = 3 * agent + 1 + k
                np.testing.assert_array_equal(obs[:, agent, ..., k], grid == number)
                others = (grid > 0) & ((grid - 1) % 3 == k) & (grid != number)
                np.testing.assert_array_equal(obs[:, agent, ..., 3 + k], others)
    else:
        same(obs, theirs.agents_view)


# gymnax


@pytest.mark.parametrize("name", GYMNAX)
def test_gymnax_is_gymnaxs(name):
    gymnax = foreign.package("gymnax")
    env = phalanx.make_env(name, **GYMNAX[name])
    world, params = gymnax.make(name.removeprefix("gymnax/"))
    params = params.replace(max_steps_in_episode=env.spec.time_limit)

    def step(key, state, actions):
        obs, state, *rest = world.step_env(key, state, actions[0], params)
        return state, (obs, *rest)

    def reset(key):
        obs, state = world.reset_env(key, params)
        return state, obs

    cut = ends = 0
    for before, now, state, told in played(env, 90, (reset, step)):
        same(now.observation.obs[:, 0], told if before is None else told[0])
        if before is not None:
            same(now.reward[:, 0], told[1])
            limit = np.asarray(state.time) >= env.spec.time_limit
            same(now.terminated | now.truncated, np.asarray(told[2]) | limit)
            cut, ends = cut + int(now.truncated.sum()), ends + int(now.terminated.sum())
    assert ends > 0 or name == "gymnax/Pendulum-v1"
    assert cut > 0 or name == "gymnax/Breakout-MinAtar"


# Names


def test_listing_imports_none_of_the_packages():
    code = (
        "import sys; from phalanx import registry; names = registry.envs();"
        "assert 'jaxmarl/smax_3m' in names and 'gymnax/CartPole-v1' in names;"
        "assert not {'jax', 'jaxmarl', 'jumanji', 'gymnax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jaxmarl/smax_3mm", "no SMAX scenario '3mm'. Did you mean .*3m"),
        ("jaxmarl/overcooked_cramped", "no layout 'cramped'. Did you mean cramped_room"),
        ("jaxmarl/hanaby", "jaxmarl has no 'hanaby'. Did you mean hanabi"),
        ("jaxmarl/mpe_simple_spreed", "jaxmarl has no 'mpe_simple_spreed'. Did you mean .*mpe_simple_spread"),
        ("jumanji/Conector-v3", "jumanji has no 'Conector-v3'. Did you mean Connector-v3"),
        ("jumanji/JobShop-v0", "16,679,880,978,201 actions; phalanx takes up to 10,000"),
        ("jumanji/SearchAndRescue-v0", "actions that phalanx does not support: BoundedArray"),
        ("gymnax/CartPole-v9", "gymnax has no 'CartPole-v9'. Did you mean CartPole-v1"),
        ("switch/9", "unknown environment 'switch/9'"),
        ("jaxmarl/", "unknown environment 'jaxmarl/'"),
    ],
)
def test_names_that_do_not_fit_are_refused_in_one_line(name, said):
    with pytest.raises(PhalanxError, match=said):
        phalanx.make_env(name).spec  # noqa: B018


def test_names_beyond_the_list():
    """Layouts and ids that only the package knows are built in too: their options and checks are ours."""
    assert "jumanji/Knapsack-v1" not in registry.envs()
    assert registry.is_built_in("jumanji/Knapsack-v1")
    assert phalanx.make_env("jumanji/Knapsack-v1").spec.action_counts == (50,)
    assert phalanx.make_env("jaxmarl/overcooked_forced_coord").spec.obs_shape == (5, 5, 26)
    assert "layout" in registry.env_options("jaxmarl/overcooked")
    assert "layout" not in registry.env_options("jaxmarl/overcooked_forced_coord")
    assert not registry.is_built_in("switch/9")


@pytest.mark.parametrize("name", ["jaxmarl", "jumanji", "gymnax"])
def test_a_missing_package_is_named_with_its_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PhalanxError, match=rf"needs the package {name}: pip install 'phalanx\[{name}\]'"):
        foreign.package(name)


def test_options_that_the_package_refuses():
    env = phalanx.make_env("jumanji/LevelBasedForaging-v0", size=5, food=9)
    with pytest.raises(PhalanxError, match="cannot build jumanji/LevelBasedForaging-v0: Ensure enough"):
        env.spec  # noqa: B018


def test_ranges_that_differ_are_scaled():
    """Actions in [-1, 1] reach the bounds of every entry; like ranges stay as they are."""
    box = type("Box", (), {})
    near, far = box(), box()
    near.low, near.high, near.shape = np.array([0.0, -2.0]), np.array([1.0, 2.0]), (2,)
    far.low, far.high, far.shape = -3.0, 3.0, (1,)
    hands = foreign.Hands.of("x", [near, far])
    assert hands.counts == (2, 1)
    assert hands.spec["action_range"] == (-1.0, 1.0)
    for value, expected in [
        (-1, ([0, -2], [-3])),
        (1, ([1, 2], [3])),
        (9, ([1, 2], [3])),
        (0, ([0.5, 0], [0])),
    ]:
        for row, wanted in zip(hands.rows(jnp.full((2, 2), float(value))), expected, strict=True):
            np.testing.assert_allclose(row, wanted)
    alone = foreign.Hands.of("x", [far])
    assert alone.spec["action_range"] == (-3.0, 3.0)
    np.testing.assert_allclose(alone.rows(jnp.full((1, 1), 2.5))[0], [2.5])

"""What other people's programs ask of SMAC's, SMACv2's and on-policy's classes, and how they start them."""

import json
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import phalanx
from phalanx import cli
from phalanx.compat import maps, on_policy, shim
from phalanx.compat.smac import StarCraft2Env
from phalanx.compat.smacv2 import StarCraft2Env as SMACv2Env
from phalanx.compat.smacv2 import StarCraftCapabilityEnvWrapper
from phalanx.compat.units import Snapshot

RECORDED = np.load(Path(__file__).parent / "data" / "smac_interface.npz")
STOP = 1


def told(key: str) -> dict[str, Any]:
    return json.loads(str(RECORDED[key]))


def python(code: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, which must not hang."""
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", code]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)


def refusal(make: Any) -> str:
    with pytest.raises(phalanx.PhalanxError) as caught:
        make()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Options


def test_options_by_position_and_as_numbers():
    by_name = StarCraft2Env("2s3z", seed=3, continuing_episode=True, obs_last_action=True)
    by_place = StarCraft2Env("2s3z", 8, 2, "7", None, 3, 1, True, True, 1)
    assert by_place._battle == by_name._battle
    assert (by_place.seed(), by_place.continuing_episode, by_place.obs_last_action) == (3, True, True)
    assert StarCraft2Env("3m", obs_last_action=np.bool_(True))._battle.obs_last_action is True
    line = refusal(lambda: StarCraft2Env("3m", 8, step_mul=8))
    assert line == "StarCraft2Env got step_mul twice, by position and by name"
    assert "must be True or False, not 2" in refusal(lambda: StarCraft2Env("3m", obs_last_action=2))


def test_seeds_beyond_32_bits():
    seeds = [7, 2**32 + 7, 50_000 * 123_456_789, 2**70]
    keys = [jax.random.key_data(StarCraft2Env("3m", seed=seed)._first_key()) for seed in seeds]
    assert len({np.asarray(key).tobytes() for key in keys}) == len(seeds)
    assert StarCraft2Env("3m", seed=seeds[-1]).seed() == 2**70


def test_maps_are_smacs_table():
    for name in ("3m", "MMM2", "bane_vs_bane", "2s_vs_1sc"):
        info, params = told(f"v1/{name}/info"), maps.get_map_params(name)
        assert (params["n_agents"], params["limit"]) == (info["n_agents"], info["episode_limit"])
    assert maps.get_map_params("MMM2") == {
        "n_agents": 10,
        "n_enemies": 12,
        "limit": 180,
        "a_race": "T",
        "b_race": "T",
        "unit_type_bits": 3,
        "map_type": "MMM",
    }
    assert maps.get_map_params("corridor")["b_race"] == "Z"
    assert maps.get_map_params("10gen_zerg")["map_type"] == "zerg_gen"
    assert "Did you mean 3m" in refusal(lambda: maps.get_map_params("3mm"))


# What callers read


def test_attributes_are_smacs():
    env = StarCraft2Env("2s3z", seed=0)
    assert env.agents == env.enemies == {}
    assert not env.last_action.any()
    env.reset()
    assert env.max_reward == told("v1/2s3z/info")["max_reward"] == 1020
    assert (env.n_actions_move, env.n_actions_no_attack, env.map_x, env.map_y) == (4, 6, 32, 32)
    assert (env.unit_sight_range(0), env.unit_shoot_range(0)) == (9, 6)
    assert env.get_agent_action(0, STOP) == "stop"
    with pytest.raises(AssertionError, match="no-op"):
        env.get_agent_action(0, 0)
    env.step([STOP] * 5)
    assert env.last_action.argmax(1).tolist() == [STOP] * 5
    unit, enemy = env.get_unit_by_id(4), env.enemies[0]
    assert (unit.unit_type, unit.health, unit.health_max, unit.shield_max) == (73, 100, 100, 50)
    assert (enemy.owner, unit.owner) == (2, 1)
    assert env.distance(0, 0, 3, 4) == 5
    dead = env._state.units.health.at[np.array([1, 6])].set(0)
    env._state = env._state._replace(units=env._state.units._replace(health=dead))
    assert env.death_tracker_ally.tolist() == [0, 1, 0, 0, 0]
    assert env.death_tracker_enemy.tolist() == [0, 1, 0, 0, 0]
    assert env.agents[1].health == 0
    env.full_restart()
    assert env.get_stats()["restarts"] == 1
    assert "call reset()" in refusal(lambda: env.step([STOP] * 5))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("MMM", {}),
        ("2s3z", {"obs_last_action": True, "obs_pathing_grid": True, "obs_terrain_height": True}),
        ("3m", {"obs_all_health": False, "obs_own_health": False, "obs_timestep_number": True}),
        ("v2_protoss_5_vs_5", {"conic_fov": True, "obs_own_pos": False}),
    ],
)
def test_parts_of_an_observation_sum_to_it(name, options):
    env = StarCraft2Env(name, **options)
    tables = env.get_obs_enemy_feats_size(), env.get_obs_ally_feats_size()
    parts = env.get_obs_move_feats_size() + sum(a * b for a, b in tables) + env.get_obs_own_feats_size()
    assert parts == env.get_obs_size()


def test_renders_and_a_saved_replay_is_played(tmp_path, capsys):
    env = StarCraft2Env("3m", seed=1, replay_dir=str(tmp_path))
    assert "call reset() first" in refusal(env.render)
    env.reset()
    first = env.render()
    assert first.dtype == np.uint8
    assert first.shape[2] == 3
    env.step([4] * 3)
    assert (env.render(mode="rgb_array") != first).any()
    assert "mode must be one of human, rgb_array, not 'text'" in refusal(lambda: env.render("text"))
    path = env.save_replay()
    assert cli.run(["watch", path]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert page == Path(path).with_suffix(".html")
    assert page.read_text("utf-8").lower().startswith("<!doctype html>")
    (tmp_path / "other.json").write_text("{}", "utf-8")
    for words, line in (
        ([path, "--seed", "3"], "is a replay, which is shown as it was saved"),
        ([str(tmp_path / "other.json")], "is not a replay that StarCraft2Env.save_replay() wrote"),
        ([str(tmp_path / "none.json")], "cannot read"),
    ):
        assert line in refusal(lambda words=words: cli.run(["watch", *words]))


# on-policy


def snapshot_of(env: on_policy.StarCraft2Env, at: str) -> tuple[Any, ...]:
    """The recorded units, masks and last actions."""
    world = env._battle.observer.world
    types = [world.types[kind] for kind in world.kinds]
    side = {key: RECORDED[f"{at}/{key}"] for key in ("ally_energy", "ally_cooldown", "last_action", "avail")}

    def both(key: str) -> np.ndarray:
        return np.concatenate([RECORDED[f"{at}/{who}_{key}"] for who in ("ally", "enemy")])

    def fixed(key: str) -> np.ndarray:
        return np.array([getattr(each, key) for each in types])

    def padded(key: str) -> np.ndarray:
        return np.concatenate([side[key], np.zeros(world.enemies)])

    units = Snapshot(
        types=[each.name for each in types],
        x=both("x"),
        y=both("y"),
        health=both("health"),
        max_health=fixed("health"),
        shield=both("shield"),
        max_shield=fixed("shield"),
        energy=padded("ally_energy"),
        cooldown=padded("ally_cooldown"),
        cooldown_scale=fixed("cooldown_scale"),
        radius=fixed("radius"),
    )
    did = (side["last_action"][:, None] == np.arange(env.n_actions)).astype(np.float32)
    return units, side["avail"], did


@pytest.mark.parametrize("name", ["3m", "3s5z", "MMM2", "corridor"])
def test_on_policy_sees_what_its_own_class_shows(name):
    env, info = on_policy.StarCraft2Env(SimpleNamespace(map_name=name)), told(f"onpolicy/{name}/info")
    assert env.get_obs_size() == info["obs_size"]
    assert env.get_state_size() == info["state_size"]
    for k in range(len(info["situations"])):
        at, views = f"onpolicy/{name}/{k}", env._views
        now = *snapshot_of(env, at), 0.0
        for key, view in (
            ("obs", views.observations),
            ("state_agent", views.agent_states),
            ("state", views.states),
        ):
            np.testing.assert_allclose(view(*now), RECORDED[f"{at}/{key}"], atol=1e-6)


VARIANTS = ["bare", "more", "dead", "instead", "common", "common_bare", "common_dead"]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["3s5z", "MMM2"])
def test_on_policy_honours_its_options(name, variant, monkeypatch):
    at = f"onpolicy_variant/{name}"
    info = told(f"{at}/{variant}/info")
    env = on_policy.StarCraft2Env(SimpleNamespace(map_name=name, **info["flags"]), **info["config"])
    assert env.get_obs_size() == info["obs_size"]
    assert env.get_state_size() == info["state_size"]
    units, avail, did = snapshot_of(env, at)
    monkeypatch.setattr(type(env), "_units", units)
    monkeypatch.setattr(type(env), "_seen", SimpleNamespace(avail=avail))
    monkeypatch.setattr(type(env), "last_action", did)
    env._episode_steps = info["t"]
    # Where nothing can stand, our maps know no height.
    env._views.heights = RECORDED["grid/lane/height"]
    np.testing.assert_allclose(env.get_obs(), RECORDED[f"{at}/{variant}/obs"], atol=1e-6)
    np.testing.assert_allclose(env._states(), RECORDED[f"{at}/{variant}/state"], atol=1e-6)


def test_on_policy_stacks_frames_as_its_own_class(monkeypatch):
    env = on_policy.StarCraft2Env(SimpleNamespace(map_name="3m", use_stacked_frames=True, stacked_frames=4))
    assert (env.observation_space[0][0], env.share_observation_space[0][0]) == (4 * 64, 4 * 81)
    seen = {
        key: RECORDED[f"onpolicy_stack/{key}"] for key in ("obs", "state", "stacked_obs", "stacked_state")
    }
    for t in range(len(seen["obs"])):
        monkeypatch.setattr(env, "_observations", lambda t=t: seen["obs"][t])
        monkeypatch.setattr(env, "_states", lambda t=t: seen["state"][t])
        obs, state = env._stacked()
        np.testing.assert_array_equal(obs, seen["stacked_obs"][t])
        np.testing.assert_array_equal(state, seen["stacked_state"][t])


def test_on_policy_plays_with_stacked_frames():
    env = on_policy.StarCraft2Env(
        SimpleNamespace(map_name="3m", use_stacked_frames=1, stacked_frames=2), seed=0
    )
    first, state, _ = env.reset()
    obs, share, *_ = env.step([[STOP]] * 3)
    assert (obs.shape, share.shape) == ((3, 128), (3, 162))
    np.testing.assert_array_equal(obs[:, :64], first[:, 64:])
    np.testing.assert_array_equal(share[:, :81], state[:, 81:])
    np.testing.assert_array_equal(obs[:, 64:], env.get_obs())


@pytest.mark.parametrize(
    ("args", "options", "line"),
    [
        ({"use_stacked_frames": True, "add_local_obs": True}, {}, "add_local_obs is not supported with"),
        ({"stacked_frames": 0}, {}, "stacked_frames must be a whole number of at least 1, not 0"),
        ({"use_mustalive": "yes"}, {}, "use_mustalive must be True or False, not 'yes'"),
        ({}, {"obs_instead_of_state": True}, "use --use_obs_instead_of_state"),
        ({}, {"state_pathing_grid": True}, "must be as obs_pathing_grid"),
        ({}, {"obs_agentid": True}, "has no option 'obs_agentid'. Did you mean obs_agent_id"),
        ({}, {"step_mul": 4}, "step_mul=4 is not supported"),
    ],
)
def test_on_policy_refuses_what_it_cannot_do(args, options, line):
    args = SimpleNamespace(map_name="3m", **args)
    assert line in refusal(lambda: on_policy.StarCraft2Env(args, **options))


# SMACv2


def v2_config(race: str, allies: int = 5, enemies: int = 5) -> dict[str, Any]:
    """As EPyMARL's and SMACv2's configurations have it."""
    types = {"terran": ["marine", "marauder", "medivac"], "zerg": ["zergling", "baneling", "hydralisk"]}[race]
    weights = {"terran": [0.45, 0.45, 0.1], "zerg": [0.45, 0.1, 0.45]}[race]
    exception = {"terran": ["medivac"], "zerg": ["baneling"]}[race]
    team = {"dist_type": "weighted_teams", "unit_types": types, "weights": weights, "observe": True}
    places = {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32}
    return {
        "n_units": allies,
        "n_enemies": enemies,
        "team_gen": {**team, "exception_unit_types": exception},
        "start_positions": places,
    }


def test_a_smacv2_configuration_plays_its_battle():
    options = {"obs_own_pos": True, "use_unit_ranges": True, "min_attack_range": 2, "num_fov_actions": 12}
    config = v2_config("terran")
    env = StarCraftCapabilityEnvWrapper(
        map_name="10gen_terran", capability_config=config, seed=1, kill_unit_step_mul=2, **options
    )
    assert env.env._battle == phalanx.make_env("battle/v2_terran_5_vs_5")
    smacs = told("v2/terran_5_vs_5/info")
    info = env.get_env_info()
    assert info == {name: smacs[name] for name in info}
    assert info["cap_shape"] == 3
    assert env.n_agents == 5
    obs, state = env.reset()
    assert (len(obs), state.shape) == (5, (smacs["state_shape"],))
    types = [env.env.agents[i].unit_type for i in range(5)]
    assert env.get_capabilities().reshape(5, 3).argmax(1).tolist() == [
        {48: 0, 51: 1, 54: 2}[t] for t in types
    ]
    assert env.get_capabilities_agent(4).argmax() == {48: 0, 51: 1, 54: 2}[types[4]]
    sight = {48: 9, 51: 10, 54: 11}
    assert env.unit_sight_range(0) == sight[types[0]]
    enemies = env.enemies.values()
    assert env.max_reward == 250 + sum(each.health_max for each in enemies)
    reward, terminated, _ = env.step([STOP] * 5)
    assert (reward, terminated) == (0, False)
    assert pickle.loads(pickle.dumps(env)).get_obs()[0].tolist() == env.get_obs()[0].tolist()


@pytest.mark.parametrize("race", ["terran", "zerg"])
def test_smacv2s_defaults_are_its_own(race):
    env = SMACv2Env(map_name=f"10gen_{race}", capability_config=v2_config(race))
    smacs = told(f"v2plain/{race}_5_vs_5/info")
    info = env.get_env_info()
    assert info == {name: smacs[name] for name in info}
    assert env.unit_sight_range(0) == 9
    assert SMACv2Env("3m")._battle == phalanx.make_env("battle/3m", reward="clamped")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"n_units": 4}, "there is no battle of n_units=4 and n_enemies=5; known: 5_vs_5"),
        ({"enemy_mask": {"dist_type": "mask"}}, "capability_config's 'enemy_mask' is not supported"),
        ({"start_positions": {"dist_type": "fixed"}}, "these start_positions are not supported"),
        ({"team_gen": {"dist_type": "all_teams"}}, "this team_gen is not supported"),
    ],
)
def test_smacv2_refuses_what_no_battle_is(change, line):
    config = {**v2_config("terran"), **change}
    make = lambda: StarCraftCapabilityEnvWrapper(map_name="10gen_terran", capability_config=config)  # noqa: E731
    assert line in refusal(make)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"fully_observable": True}, "fully_observable=True is not supported"),
        ({"num_fov_actions": 8}, "num_fov_actions=8 is not supported"),
        ({"action_mask": False}, "action_mask=False is not supported"),
        ({"map_name": "10gen_terran"}, "10gen_terran needs a capability_config"),
    ],
)
def test_smacv2_refuses_options_that_cannot_be_had(options, line):
    assert line in refusal(lambda: SMACv2Env(**options))


# Other processes


def test_pickled_objects_go_on_where_they_were():
    env = StarCraft2Env("3m", seed=5)
    unplayed = pickle.loads(pickle.dumps(env))
    env.reset()
    env.step([STOP] * 3)
    there = pickle.loads(pickle.dumps(env))
    unplayed.reset()
    unplayed.step([STOP] * 3)
    for each in (env, there, unplayed):
        each.step([4] * 3)
    np.testing.assert_array_equal(there.get_state(), env.get_state())
    np.testing.assert_array_equal(unplayed.get_state(), env.get_state())
    assert there.get_stats() == env.get_stats()
    np.testing.assert_array_equal(there.reset()[1], env.reset()[1])
    mine = on_policy.StarCraft2Env(SimpleNamespace(map_name="3m"), seed=1)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mine)).reset()[0], mine.reset()[0])


FORK = """
import multiprocessing
from phalanx.compat.smac import StarCraft2Env
from phalanx import device

device.PATIENCE = 20
env = StarCraft2Env("3m", seed=3)

def work(pipe):
    try:
        pipe.send(float(env.reset()[1].sum()))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")

def child():
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(there,))
    process.start()
    print(here.recv() if here.poll(60) else "hung")
    process.kill()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_environments_work_in_forked_children_or_say_why_not():
    """Made before the fork; reset in the child first, and then after the parent has used JAX."""
    ran = python(f"{FORK}\nchild()\nprint(float(env.reset()[1].sum()))\nchild()")
    in_child, in_parent, too_late = ran.stdout.splitlines()
    assert in_child == in_parent
    assert too_late.startswith("PhalanxError: JAX was started before this process was forked")
    assert "spawn" in too_late


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_parent_that_used_jax_without_us_is_noticed_too():
    ran = python(f"{FORK}\nimport jax\njax.jit(lambda x: x + 1)(1).block_until_ready()\nchild()")
    assert ran.stdout.startswith("PhalanxError: JAX was started before this process was forked")


# The packages that programs import


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shim")
    assert shim.main([str(folder)]) == 0
    return folder


def test_shim_is_written_again_but_not_over_others(packages, tmp_path, capsys):
    assert shim.main([str(packages)]) == 0
    assert f"PYTHONPATH={packages}" in capsys.readouterr().out
    (tmp_path / "smac").mkdir()
    (tmp_path / "smac" / "__init__.py").write_text("mine = 1\n", "utf-8")
    assert shim.main([str(tmp_path)]) == 2
    assert "is not ours: choose another folder" in capsys.readouterr().err
    assert shim.main([]) == 2
    assert max(len(path.read_text("utf-8").splitlines()) for path in packages.rglob("*.py")) < 30


def test_programs_import_what_they_always_did(packages, tmp_path):
    """The imports of EPyMARL, PyMARL2 and on-policy, whose own copies of SMAC's class need the game."""
    for name in ("envs/starcraft/StarCraft2Env.py", "onpolicy/envs/starcraft2/StarCraft2_Env.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("import pysc2\n", "utf-8")
    (tmp_path / "envs" / "starcraft" / "__init__.py").write_text("from .StarCraft2Env import StarCraft2Env\n")
    (tmp_path / "onpolicy" / "__init__.py").write_text("")
    code = """
import logging
logging.basicConfig(level=logging.DEBUG)
from smac.env import MultiAgentEnv, StarCraft2Env
from smac.env.multiagentenv import MultiAgentEnv as Parent
from smac.env.starcraft2.maps import get_map_params
from smac.env.starcraft2.starcraft2 import StarCraft2Env as Same
from smacv2.env import StarCraft2Env as Second
from smacv2.env.starcraft2.wrapper import StarCraftCapabilityEnvWrapper
from smacv2.env.starcraft2.maps import get_map_params as second_params
from envs.starcraft import StarCraft2Env as PyMARL2s
from onpolicy.envs.starcraft2.StarCraft2_Env import StarCraft2Env as on_policys
from onpolicy.envs.starcraft2.smac_maps import get_map_params as on_policys_params

assert StarCraft2Env is Same is PyMARL2s
assert issubclass(StarCraft2Env, MultiAgentEnv) and Parent is MultiAgentEnv
assert get_map_params("3m")["n_agents"] == on_policys_params("3m")["n_agents"] == 3
env = StarCraft2Env(map_name="3m", seed=0, difficulty="7", game_version=None)
env.reset()
env.step([1, 1, 1])
print(on_policys.__module__, Second.__module__, env.get_env_info()["obs_shape"])
"""
    ran = python(code, PYTHONPATH=f"{packages}:{tmp_path}")
    assert ran.stdout == "phalanx.compat.on_policy phalanx.compat.smacv2 30\n", ran.stderr
    assert "DEBUG:jax" not in ran.stderr


def test_loggers_of_jax_that_somebody_set_stay(monkeypatch):
    assert logging.getLogger("jax").level == logging.WARNING
    code = "import logging; logging.getLogger('jax').setLevel(10); import phalanx.compat.smac; "
    ran = python(code + "print(logging.getLogger('jax').level)")
    assert ran.stdout == "10\n"

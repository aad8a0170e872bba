"""The fronts for other programs: SMAC's class, and vectors of numpy arrays."""

import json
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import phalanx
from phalanx.compat import on_policy
from phalanx.compat.smac import StarCraft2Env
from phalanx.envs.battle import NAMES
from phalanx.types import EnvSpec

RECORDED = np.load(Path(__file__).parent / "data" / "smac_interface.npz")
STOP, EAST, FIRST_TARGET = 1, 4, 6


def told(key: str) -> dict[str, Any]:
    return json.loads(str(RECORDED[key]))


def random_actions(avail: Any, rng: np.random.Generator) -> np.ndarray:
    return (rng.random(np.shape(avail)) * np.asarray(avail)).argmax(-1)


def focus_fire(avail: Any) -> list[int]:
    """Everybody shoots the first enemy in reach, and walks towards them until there is one."""
    return [
        next((u for u in range(FIRST_TARGET, len(row)) if row[u]), EAST if row[EAST] else 0) for row in avail
    ]


# SMAC's class


@pytest.mark.parametrize("map_name", NAMES)
def test_info_is_smacs(map_name):
    if map_name == "2m_vs_1m":
        pytest.skip("SMAC has no map file of that name")
    key = f"v2/{map_name.removeprefix('v2_')}" if map_name.startswith("v2_") else f"v1/{map_name}"
    for ending, options in (("", {}), ("_conic", {"conic_fov": True})):
        if f"{key}{ending}/info" in RECORDED.files:
            info = StarCraft2Env(map_name, **options).get_env_info()
            smacs = told(f"{key}{ending}/info")
            assert info == {name: smacs[name] for name in info}
            left_out = set(smacs) - set(info)
            assert left_out <= {"max_reward", "grid", "situations", "cap_shape"}  # what the recording added


def test_info_counts_observations_in_place_of_the_state():
    env = StarCraft2Env("3m", obs_instead_of_state=True)
    obs, state = env.reset()
    assert env.get_state_size() == env.get_env_info()["state_shape"] == state.size == 3 * env.get_obs_size()
    np.testing.assert_array_equal(state, np.concatenate(obs))


def test_types_are_smacs():
    env = StarCraft2Env("3m", seed=3)
    obs, state = env.reset()
    assert type(obs) is list
    assert len(obs) == env.n_agents == 3
    assert env.n_enemies == 3
    assert all(type(each) is np.ndarray and each.dtype == np.float32 and each.shape == (30,) for each in obs)
    assert type(state) is np.ndarray
    assert state.dtype == np.float32
    assert state.shape == (48,)
    avail = env.get_avail_actions()
    assert all(type(bit) is int for row in avail for bit in row)
    assert [env.get_avail_agent_actions(i) for i in range(3)] == avail
    assert avail[0][:2] == [0, 1]
    assert {len(row) for row in avail} == {env.get_total_actions()} == {9}
    reward, terminated, info = env.step([STOP] * 3)
    assert (type(reward), type(terminated)) == (float, bool)
    assert info == {"battle_won": False, "dead_allies": 0, "dead_enemies": 0}
    assert [type(info[name]) for name in info] == [bool, int, int]
    assert (env.map_name, env.episode_limit, env.reward_scale_rate, env.obs_last_action) == (
        "3m",
        60,
        20,
        False,
    )
    env.get_obs()[0][:] = 7  # what is handed out is the caller's own
    env.get_state()[:] = 7
    assert 7 not in env.get_obs_agent(0)
    assert 7 not in env.get_state()
    env.close()


def test_plays_the_battle_of_the_same_seed():
    env, battle = StarCraft2Env("3m", seed=11), phalanx.make_env("battle/3m")
    begin, play = jax.jit(battle.reset), jax.jit(battle.step)
    key, rng = jax.random.key(11), np.random.default_rng(0)

    def assert_same(now: Any) -> None:
        seen = now.observation
        np.testing.assert_allclose(env.get_obs(), seen.obs, atol=1e-6)
        np.testing.assert_allclose(env.get_state(), seen.state, atol=1e-6)
        np.testing.assert_array_equal(env.get_avail_actions(), seen.avail)

    for _ in range(2):
        env.reset()
        key, now_key = jax.random.split(key)
        state, now = begin(now_key)
        assert_same(now)
        for _ in range(25):
            actions = random_actions(env.get_avail_actions(), rng)
            reward, terminated, info = env.step(actions)
            key, now_key = jax.random.split(key)
            state, now = play(now_key, state, jnp.asarray(actions))
            assert_same(now)
            assert reward == pytest.approx(float(now.reward[0]), abs=1e-6)
            assert terminated == now.terminated
            assert info["dead_allies"] == now.info["dead_allies"]
            if terminated:
                break


def test_seeds():
    def played(env: StarCraft2Env) -> np.ndarray:
        """The state after 16 steps: the seed decides the weapons' cooldowns, and so how the battle went."""
        env.reset()
        for _ in range(16):
            env.step(focus_fire(env.get_avail_actions()))
        return env.get_state()

    def first(seed: int) -> np.ndarray:
        return played(StarCraft2Env("3m", seed=seed))

    assert (first(5) == first(5)).all()
    assert any((first(5) != first(seed)).any() for seed in range(6, 12))
    drawn = [StarCraft2Env("3m") for _ in range(3)]
    assert len({env.seed() for env in drawn}) == 3  # three equal draws of 32 bits would be a bug
    assert (first(drawn[0].seed()) == played(drawn[0])).all()
    again = StarCraft2Env("3m", seed=5)
    again.reset()
    assert again.seed(6) == again.seed() == 6
    assert (played(again) == first(6)).all()


@pytest.mark.parametrize("map_name", ["3m", "MMM"])
def test_random_teams_lose_and_it_is_counted(map_name):
    """As PyMARL's runner plays: ask for everything before each step, and once more at the end."""
    env, rng = StarCraft2Env(map_name, seed=2, difficulty="A", game_version="4.10"), np.random.default_rng(1)
    assert env.get_stats()["win_rate"] == 0.0
    info_now = env.get_env_info()
    for played in (1, 2):
        env.reset()
        steps, terminated, env_info = 0, False, {}
        while not terminated:
            assert env.get_state().shape == (info_now["state_shape"],)
            assert np.shape(env.get_obs()) == (info_now["n_agents"], info_now["obs_shape"])
            _, terminated, env_info = env.step(random_actions(env.get_avail_actions(), rng))
            steps += 1
        assert steps < env.episode_limit
        assert terminated != env_info.get("episode_limit", False)
        assert not env_info["battle_won"]
        assert env_info["dead_allies"] >= env.n_agents - 1  # a medivac alone has lost
        gone = [row == [1] + [0] * (env.n_actions - 1) for row in env.get_avail_actions()]
        assert sum(gone) == env_info["dead_allies"]
        assert not np.any(np.array(env.get_obs())[gone])
        stats = env.get_stats()
        assert (stats["battles_game"], stats["battles_won"], stats["timeouts"]) == (played, 0, 0)
    with pytest.raises(phalanx.PhalanxError, match=r"there is no running episode: call reset\(\)"):
        env.step([0] * env.n_agents)


def fight(env: StarCraft2Env, steps_before: int = 0) -> tuple[float, dict[str, Any]]:
    """Play an episode that is made to believe that it has lasted for some steps; its return and last info."""
    env.reset()
    env._episode_steps = steps_before
    total, terminated, info = 0.0, False, {}
    while not terminated:
        reward, terminated, info = env.step(focus_fire(env.get_avail_actions()))
        total += reward
    return total, info


def test_wins_pay_and_are_counted():
    env = StarCraft2Env("8m", seed=0)
    won, battles = 0, 16
    for _ in range(battles):
        total, info = fight(env)
        won += info["battle_won"]
        assert env.win_counted == info["battle_won"] == (info["dead_enemies"] == 8)
        assert total == pytest.approx(20, abs=1e-3) if info["battle_won"] else total < 20 * 440 / 640
    stats = env.get_stats()
    assert 0 < won < battles
    assert won == stats["battles_won"]
    assert stats["win_rate"] == won / battles
    assert stats["battles_draw"] == stats["timeouts"] == stats["restarts"] == 0


def test_an_end_at_the_limit_is_no_time_out():
    env = StarCraft2Env("3m", seed=0, continuing_episode=True)
    _, info = fight(env)
    length = env._episode_steps
    env.seed(0)
    assert fight(env, env.episode_limit - length)[1] == info
    assert env._episode_steps == env.episode_limit
    assert env.get_stats()["timeouts"] == 0


@pytest.mark.parametrize("continuing", [False, True])
def test_a_time_out_ends_and_is_told_only_when_episodes_continue(continuing):
    env = StarCraft2Env("2s_vs_1sc", seed=0, continuing_episode=continuing)  # nobody comes for those who wait
    env.reset()
    for _ in range(env.episode_limit - 1):
        _, terminated, info = env.step([STOP, STOP])
        assert not terminated
        assert "episode_limit" not in info
    _, terminated, info = env.step([STOP, STOP])
    assert terminated is True
    assert info.get("episode_limit", False) is continuing
    assert not info["battle_won"]
    stats = env.get_stats()
    assert (stats["battles_game"], stats["battles_draw"], stats["timeouts"], stats["win_rate"]) == (
        1,
        1,
        1,
        0.0,
    )
    with pytest.raises(phalanx.PhalanxError, match="call reset"):
        env.step([STOP, STOP])


def test_options_arrive_at_the_battle():
    env = StarCraft2Env(
        "2s3z",
        obs_last_action=True,
        obs_pathing_grid=True,
        obs_terrain_height=True,
        obs_timestep_number=True,
        obs_all_health=False,
        obs_own_health=False,
        state_last_action=False,
        state_timestep_number=True,
        reward_death_value=1,
        reward_win=2,
        reward_defeat=-3,
        reward_negative_scale=0.25,
        reward_scale=False,
        reward_scale_rate=4,
        reward_only_positive=False,
    )
    assert env._battle == phalanx.make_env(
        "battle/2s3z",
        obs_last_action=True,
        obs_pathing=True,
        obs_height=True,
        obs_timestep=True,
        obs_all_health=False,
        obs_own_health=False,
        state_last_action=False,
        state_timestep=True,
        reward_death=1,
        reward_win=2,
        reward_defeat=-3,
        reward_negative_scale=0.25,
        reward_scale=False,
        reward_scale_rate=4,
        reward="signed",
    )
    assert StarCraft2Env("3m")._battle == phalanx.make_env("battle/3m")
    assert StarCraft2Env("3m", reward_sparse=True, reward_only_positive=False)._battle.reward == "sparse"
    assert StarCraft2Env("3m", obs_own_health=False)._battle.obs_own_health  # overruled by obs_all_health
    v2 = StarCraft2Env("v2_zerg_5_vs_5", conic_fov=True, prob_obs_enemy=0.0)
    assert v2._battle == phalanx.make_env("battle/v2_zerg_5_vs_5", conic_view=True, prob_obs_enemy=0.0)
    sizes = told("variant/2s3z/obs_timestep_number/info")
    assert StarCraft2Env("2s3z", obs_timestep_number=True).get_obs_size() == sizes["obs_shape"]


def test_smacv2_maps_play():
    env, rng = StarCraft2Env("v2_terran_5_vs_5", seed=0), np.random.default_rng(0)
    env.reset()
    assert set(env.get_unit_types()) <= {48, 51, 54}
    for _ in range(5):
        reward, terminated, _ = env.step(random_actions(env.get_avail_actions(), rng))
        assert reward >= 0
        assert not terminated


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"map_name": "3mm"}, "unknown map '3mm'. Did you mean 3m?"),
        ({"obs_lastaction": True}, "has no option 'obs_lastaction'. Did you mean obs_last_action"),
        ({"step_mul": 4}, "step_mul=4 is not supported: a step here is always 8 game loops"),
        ({"move_amount": 3}, "move_amount=3 is not supported"),
        ({"heuristic_ai": True}, "phalanx eval heuristic"),
        ({"conic_fov": True}, "8m has no conic_fov: only SMACv2's maps do"),
        ({"reward_sparse": "no"}, "reward_sparse must be True or False, not 'no'"),
        ({"reward_win": "much"}, "reward_win must be a number, not 'much'"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_refuses_what_it_cannot_do(options, line):
    with pytest.raises(phalanx.PhalanxError) as caught:
        StarCraft2Env(**options)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_accepts_what_cannot_matter():
    config = {
        "difficulty": "3",
        "window_size_x": 640,
        "debug": True,
        "step_mul": None,
        "heuristic_rest": True,
    }
    assert StarCraft2Env("3m", **config)._battle == phalanx.make_env("battle/3m")


def test_refuses_illegal_actions_by_name():
    env = StarCraft2Env("3m", seed=0)
    for before_reset in (env.get_obs, env.get_state, env.get_avail_actions, env.get_unit_types):
        with pytest.raises(phalanx.PhalanxError, match="call reset"):
            before_reset()
    with pytest.raises(phalanx.PhalanxError, match="call reset"):
        env.step([STOP] * 3)
    env.reset()
    available = ", ".join(str(u) for u, bit in enumerate(env.get_avail_agent_actions(2)) if bit)
    for exception in (phalanx.PhalanxError, AssertionError):
        with pytest.raises(exception) as caught:
            env.step([STOP, STOP, 7])
        line = f"agent 2 cannot take action 7 (attack enemy 1) now; available: {available}"
        assert str(caught.value) == line
    with pytest.raises(AssertionError, match=r"agent 0 cannot take action 0 \(no-op\) now"):
        env.step([0] * 3)
    for outside in (-1, 9):
        with pytest.raises(AssertionError, match=f"agent 0 cannot take action {outside}: there are 0 to 8"):
            env.step([outside, STOP, STOP])
    with pytest.raises(phalanx.PhalanxError, match="3m has 3 agents, and got 4 actions"):
        env.step([STOP] * 4)
    with pytest.raises(phalanx.PhalanxError, match="actions must be 3 whole numbers"):
        env.step(["stop"] * 3)
    assert env.get_stats()["battles_game"] == 0
    assert env.step([STOP] * 3)[1] is False  # refusals left the episode as it was


def test_a_medivac_is_told_that_it_heals():
    env = StarCraft2Env("MMM", seed=0)
    env.reset()
    with pytest.raises(AssertionError, match=r"agent 9 cannot take action 15 \(heal ally 9\) now"):
        env.step([STOP] * 9 + [15])


@pytest.mark.parametrize("map_name", ["3m", "MMM", "v2_terran_5_vs_5"])
def test_who_sees_whom(map_name):
    env = StarCraft2Env(map_name, seed=0)
    env.reset()
    at = f"v2/{map_name.removeprefix('v2_')}" if map_name.startswith("v2_") else f"v1/{map_name}"

    def both(key: str) -> np.ndarray:
        return np.concatenate([RECORDED[f"{at}/{key.format(side)}"] for side in ("ally", "enemy")])

    for k in range(len(told(f"{at}/info")["situations"])):
        types = both("{}_type" if at.startswith("v1") else f"{k}/{{}}_type")
        units = env._state.units._replace(**{name: both(f"{k}/{{}}_{name}") for name in ("x", "y", "health")})
        env._state = env._state._replace(units=units)
        if env._state.kinds is not None:
            env._state = env._state._replace(kinds=np.searchsorted([48, 51, 54], types))
        assert env.get_unit_types() == types.tolist()
        np.testing.assert_array_equal(env.get_visibility_matrix(), RECORDED[f"{at}/{k}/visible"])


def test_replay_is_a_file_of_frames(tmp_path, monkeypatch):
    env = StarCraft2Env("3m", seed=4, replay_dir=str(tmp_path / "replays"), replay_prefix="mine")
    with pytest.raises(phalanx.PhalanxError, match="nothing to save yet"):
        env.save_replay()
    for _ in range(2):  # the second episode alone is kept
        env.reset()
        for _ in range(3):
            env.step([STOP] * 3)
    path = Path(env.save_replay())
    replay = json.loads(path.read_text(encoding="utf-8"))
    assert path.parent == tmp_path / "replays"
    assert path.name.startswith("mine_")
    assert (replay["map"], replay["seed"], len(replay["frames"])) == ("3m", 4, 4)
    assert replay["actions"] == [[STOP] * 3] * 3
    scene, last = replay["scene"], replay["frames"][-1]
    assert scene["types"] == ["marine"] * 6
    assert len(scene["walkable"]) == 32
    assert not set(scene) & set(last), "what stays the same is told once"
    np.testing.assert_allclose((np.array(last["x"][:3]) - 16) / 32, env.get_state()[2:12:4], atol=1e-6)
    monkeypatch.chdir(tmp_path)
    plain = StarCraft2Env("3m", seed=4)
    plain.reset()
    assert Path(plain.save_replay()).parent == Path("replays"), "SMAC has a default folder too"


def test_serves_a_runner_like_on_policys():
    env, rng = on_policy.StarCraft2Env(SimpleNamespace(map_name="3m"), seed=2), np.random.default_rng(3)
    assert env.observation_space[0] == [64, [2, 14], [3, 5], [1, 4], [1, 17]]
    assert env.share_observation_space[0] == [81, [2, 17], [3, 8], [1, 4], [1, 19]]
    assert env.action_space[0].n == 9
    env.seed(1000)
    obs, share, avail = env.reset()
    lengths, length = [], 0
    while len(lengths) < 2:
        actions = random_actions(avail, rng)[:, None]  # (A, 1), as it keeps them
        obs, share, rewards, dones, infos, avail = env.step(actions)
        assert obs.shape == (3, 64)
        assert share.shape == (3, 81)
        assert rewards.shape == (3, 1)
        assert avail.shape == (3, 9)
        length += 1
        assert infos[0]["bad_transition"] == (length == 60)
        assert (dones | (share[:, :78] != 0).any(1)).all(), "the living see, the dead are done"
        if dones.all():
            lengths.append(length)
            obs, share, avail = env.reset()
            length = 0
    assert infos[0]["battles_game"] == 2


# Vectors


@dataclass(frozen=True)
class Fading(phalanx.Env):
    """Agent b dies at the first step, and then may take no action at all. Pays what a chooses.

    Agents see the time and a random number.
    """

    @cached_property
    def spec(self):
        return EnvSpec(
            name="fading",
            agents=("a", "b"),
            agent_types=("same", "same"),
            obs_features=(("time", "noise"), ("time", "noise")),
            state_features=("a:time", "a:noise", "b:time", "b:noise"),
            action_counts=(3, 2),
            time_limit=3,
        )

    def reset(self, key):
        return jnp.int32(0), self.timestep(self.look(key, 0))

    def look(self, key, time):
        return jnp.tile(jnp.stack([jnp.float32(time), jax.random.uniform(key)]), (2, 1))

    def step(self, key, state, actions):
        alive = jnp.array([True, False])
        avail = jnp.array([[True, True, True], [False, False, False]])
        obs, ends = self.look(key, state + 1), actions[0] == 2
        return state + 1, self.timestep(obs, reward=actions[0], terminated=ends, alive=alive, avail=avail)


def test_vector_keeps_the_last_observation_and_begins_anew():
    vec = phalanx.make_vec(Fading(), 2)
    with pytest.raises(phalanx.PhalanxError, match="call reset"):
        vec.step([[0, 0], [0, 0]])
    batch = vec.reset()
    assert not batch.reward.any()
    assert not batch.terminated.any()
    assert not batch.truncated.any()
    batch = vec.step([[1, 0], [0, 1]])
    assert batch.obs[:, 0, 0].tolist() == batch.final_obs[:, 0, 0].tolist() == [1, 1]
    assert batch.alive.tolist() == [[True, False]] * 2
    batch = vec.step([[1, 99], [2, -7]])  # what b sends no longer matters
    assert batch.terminated.tolist() == [False, True]
    assert not batch.truncated.any()
    assert batch.obs[:, 0, 0].tolist() == [2, 0]
    assert batch.final_obs[:, 0, 0].tolist() == [2, 2]
    assert batch.final_state[:, 0].tolist() == [2, 2]
    assert batch.state[:, 0].tolist() == [2, 0]
    assert not batch.final_avail[:, 1].any()
    assert batch.avail[:, 1].tolist() == [
        [False] * 3,
        [True, True, False],
    ]
    assert batch.info["return"][:, 0].tolist() == [2, 2]
    assert batch.info["length"].tolist() == [2, 2]
    batch = vec.step([[0, 0], [1, 0]])
    assert batch.truncated.tolist() == [True, False]
    assert not batch.terminated.any()
    assert batch.info["return"][:, 0].tolist() == [2, 1]
    assert batch.info["length"].tolist() == [3, 1]
    assert batch.final_obs[0, 0, 0] == 3
    assert batch.obs[0, 0, 0] == 0


def test_vector_draws_by_its_seed():
    """Environment i has a key of its own, split once a call, and by auto-reset once more."""

    def noise(n: int, seed: int) -> np.ndarray:
        vec, still = phalanx.make_vec(Fading(), n, seed), np.zeros((n, 2), int)
        return np.array([vec.reset().obs[:, 0, 1], *(vec.step(still).obs[:, 0, 1] for _ in range(3))])

    seen, key = noise(2, seed=7), jax.random.fold_in(jax.random.key(7), 1)
    for t in range(4):
        key, now = jax.random.split(key)
        if t > 0:
            step_key, reset_key = jax.random.split(now)
            now = step_key if t < 3 else reset_key
        assert seen[t, 1] == jax.random.uniform(now)
    np.testing.assert_array_equal(noise(1, seed=7)[:, 0], seen[:, 0])  # however many play beside it
    assert (noise(2, seed=8) != seen).all()


def test_vector_refuses_illegal_actions_by_name():
    vec = phalanx.make_vec(Fading(), 2)
    vec.reset()
    with pytest.raises(phalanx.PhalanxError) as caught:
        vec.step([[0, 0], [0, 2]])
    assert str(caught.value) == "environment 1: b cannot take action 2 now; available: 0, 1"
    for outside in (-1, 3):
        with pytest.raises(phalanx.PhalanxError, match=f"environment 0: a cannot take action {outside} now"):
            vec.step([[outside, 0], [0, 0]])
    with pytest.raises(phalanx.PhalanxError, match=r"actions must be \(2, 2\), .* not \(2,\)"):
        vec.step([0, 0])
    with pytest.raises(phalanx.PhalanxError, match="whole numbers, such as int64, not float64"):
        vec.step(np.zeros((2, 2)))
    with pytest.raises(phalanx.PhalanxError, match="cannot be read as a numpy array"):
        vec.step([[0], [0, 0]])
    assert vec.step(np.zeros((2, 2), np.int8)).info["length"].tolist() == [1, 1]


def test_vector_plays_what_the_environment_plays():
    """Against the bare environment, by hand: keys, time limit, auto-reset and all."""
    options = {"time_limit": 4, "clock": True}
    bare, vec = (
        phalanx.make_env("switch/2", **options),
        phalanx.make_vec("switch/2", 3, seed=9, options=options),
    )
    begin, play = jax.jit(bare.reset), jax.jit(bare.step)
    key, rng = jax.random.fold_in(jax.random.key(9), 1), np.random.default_rng(0)

    def next_key():
        nonlocal key
        key, now = jax.random.split(key)
        return now

    state, now = begin(next_key())
    batch = vec.reset()
    spec = vec.spec
    for t in range(1, 10):
        assert batch.obs.shape == (3, 2, spec.obs_size)
        assert batch.state.shape == (3, spec.state_size)
        assert batch.avail.shape == (3, 2, spec.n_actions)
        assert batch.avail.dtype == batch.alive.dtype == bool
        assert batch.reward.shape == (3, 2)
        assert batch.reward.dtype == batch.obs.dtype == np.float32
        assert batch.terminated.shape == batch.truncated.shape == (3,)
        assert all(each.flags.writeable for each in jax.tree.leaves(batch))
        np.testing.assert_array_equal(batch.obs[1], now.observation.obs)
        np.testing.assert_array_equal(batch.state[1], now.observation.state)
        actions = random_actions(batch.avail, rng)
        batch.avail[:] = False  # the caller may write into what is his
        batch = vec.step(actions)
        step_key, reset_key = jax.random.split(next_key())
        state, now = play(step_key, state, jnp.asarray(actions[1]))
        np.testing.assert_array_equal(batch.final_obs[1], now.observation.obs)
        np.testing.assert_allclose(batch.reward[1], now.reward)
        assert batch.truncated[1] == (t % 4 == 0)
        if t % 4 == 0:
            state, now = begin(reset_key)
            assert (batch.obs[1] != batch.final_obs[1]).any()  # the clock went back


def test_vector_of_battles():
    vec, rng = phalanx.make_vec("battle/3m", 4, options={"reward_win": 100.0}), np.random.default_rng(0)
    batch = vec.reset()
    with pytest.raises(phalanx.PhalanxError, match="environment 0: agent_0 cannot take action 0 now"):
        vec.step(np.zeros((4, 3), int))
    total, ended = np.zeros((4, 3)), 0
    while not ended:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            batch = vec.step(random_actions(batch.avail, rng))
        total += batch.reward
        over = batch.terminated | batch.truncated
        ended = over.sum()
    np.testing.assert_allclose(batch.info["return"], total, rtol=1e-5)
    assert batch.alive[over].all()
    assert (batch.info["dead_allies"][over] == 3).any()
    assert (batch.final_obs[over] != batch.obs[over]).any()
    assert "won" in batch.info


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("switch/2", 0), "n must be a whole number of at least 1, not 0"),
        (("switch/2", 2.0), "n must be a whole number of at least 1, not 2.0"),
        (("switch/2", 1, -1), "seed must be a whole number from 0 to 4294967295, not -1"),
        (("switch/22", 1), "unknown environment 'switch/22'. Did you mean switch/2"),
        (("switch/2", 1, 0, {"clok": True}), "has no option 'clok'. Did you mean clock"),
        ((Fading(), 1, 0, {"clock": True}), "options are for an environment given by name"),
        ((3, 1), "env must be a name or a phalanx.Env, not int"),
    ],
)
def test_vector_refuses_what_it_cannot_build(arguments, line):
    with pytest.raises(phalanx.PhalanxError) as caught:
        phalanx.make_vec(*arguments)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)

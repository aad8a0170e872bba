"""The adapter of Google football, on a stand-in with gfootball's interface."""

import sys

import numpy as np
import pytest
from stand_ins_gym import DURATION, Football, install_football

from phalanx.envs.host import football
from phalanx.errors import PhalanxError

NAME = "academy_3_vs_1_with_keeper"
IDLE = np.zeros(4, np.int32)


@pytest.fixture(autouse=True)
def package(monkeypatch):
    install_football(monkeypatch)


def test_the_spec():
    spec = football.Adapter(NAME).spec
    assert spec.name == f"football/{NAME}"
    assert spec.agents == ("player_0", "player_1", "player_2", "player_3")
    assert spec.agent_types == ("goalkeeper", *("central_midfield",) * 3)
    assert (spec.obs_size, spec.state_size, spec.n_actions, spec.time_limit) == (115, 115, 19, DURATION)
    assert spec.obs_features[0][88:94] == (
        "ball_x",
        "ball_y",
        "ball_z",
        "ball_move_x",
        "ball_move_y",
        "ball_move_z",
    )
    assert len(set(spec.obs_features[0])) == 115
    assert spec.action_names[2][0] == "idle"
    assert spec.common_reward
    assert spec.has_win


def test_one_player_has_arrays_too():
    env = football.Adapter("academy_empty_goal_close", players=1)
    assert env.spec.agent_types == ("player",)  # the game may give it any body
    env.reset(0)
    now = env.step(np.array([12]))
    assert now.observation.obs.shape == (1, 115)
    np.testing.assert_array_equal(now.reward, np.ones(1, np.float32))
    assert now.reward.dtype == np.float32


def test_a_goal_wins_and_terminates():
    env = football.Adapter(NAME)
    env.reset(0)
    steps = [env.step(IDLE), env.step(np.array([0, 12, 0, 0]))]
    assert [(s.terminated, s.truncated, s.won) for s in steps] == [(False, False, False), (True, False, True)]
    np.testing.assert_array_equal(steps[1].reward, np.ones(4, np.float32))
    env.reset(0)
    lost = env.step(np.array([13, 0, 0, 0]))
    assert (lost.terminated, lost.truncated, lost.won) == (True, False, False)


def test_the_end_of_the_time_truncates_unless_it_is_a_goal():
    env = football.Adapter(NAME)
    for last, end in ((0, (False, True, False)), (12, (True, False, True))):
        env.reset(0)
        steps = [env.step(IDLE) for _ in range(DURATION - 1)] + [env.step(np.full(4, last))]
        assert [s.terminated or s.truncated for s in steps] == [False] * (DURATION - 1) + [True]
        assert (steps[-1].terminated, steps[-1].truncated, steps[-1].won) == end


@pytest.mark.parametrize(
    ("representation", "stacked", "channels"),
    [("extracted", False, 4), ("extracted", True, 16), ("pixels", False, 3), ("pixels_gray", True, 4)],
)
def test_pictures(representation, stacked, channels):
    env = football.Adapter(NAME, representation=representation, stacked=stacked)
    spec, first = env.spec, env.reset(0)
    assert (spec.obs_shape, spec.obs_dtype, spec.obs_size) == ((72, 96, channels), "uint8", 0)
    assert first.observation.obs.shape == (4, 72, 96, channels)
    assert first.observation.obs.dtype == np.uint8
    assert first.observation.state.shape == (115,)
    assert env.get_state() is None
    if representation.startswith("pixels"):
        with pytest.raises(PhalanxError, match="renders one environment a process"):
            env.copy()
    env.close()


def test_a_seed_decides_an_episode():
    env = football.Adapter(NAME)

    def play(env, seed):
        env.reset(seed)
        return [env.step(IDLE).observation.state for _ in range(3)]

    one = play(env, 2**63 + 5)
    assert not np.array_equal(one, play(env, 6))
    np.testing.assert_array_equal(one, play(env, 2**63 + 5))
    np.testing.assert_array_equal(one, play(env.copy(), 2**63 + 5))


def test_a_running_game_can_be_saved():
    env, other = football.Adapter(NAME), football.Adapter(NAME)
    env.reset(3)
    now = env.step(IDLE)
    other.reset(4)
    restored = other.set_state(env.get_state())
    np.testing.assert_array_equal(restored.obs, now.observation.obs)
    np.testing.assert_array_equal(restored.state, now.observation.state)
    np.testing.assert_array_equal(other.step(IDLE).observation.obs, env.step(IDLE).observation.obs)


def test_rewards():
    env = football.Adapter(NAME, reward="checkpoints")
    env.reset(0)
    np.testing.assert_allclose(env.step(IDLE).reward, [0.1, 0, 0, 0])
    assert not env.spec.common_reward
    env = football.Adapter(NAME, reward="shaped")
    env.reset(0)
    steps = [env.step(IDLE), env.step(np.array([12, 0, 0, 0]))]
    speed = env._env.speed
    np.testing.assert_allclose(steps[0].reward, np.full(4, speed), rtol=1e-5)
    np.testing.assert_allclose(steps[1].reward, np.full(4, 1 + speed), rtol=1e-5)
    env.reset(0)
    np.testing.assert_allclose(env.step(np.array([13, 0, 0, 0])).reward, np.full(4, speed - 0.01), rtol=1e-4)


def test_a_reward_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "my_reward.py").write_text(
        "def ten_times(raw, reward, player):\n    return 10 * reward + player\n\nnumber = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    env = football.Adapter(NAME, reward="my_reward:ten_times")
    env.reset(0)
    np.testing.assert_array_equal(env.step(np.array([12, 0, 0, 0])).reward, [10, 11, 12, 13])
    for wrong, said in (
        ("my_reward:number", "is not a function"),
        ("my_reward:nothing", "cannot import the reward .*nothing"),
        ("no_such_module:f", "cannot import the reward .*No module named"),
        (
            "goals",
            "reward must be scoring, checkpoints, shaped or a function, my_module:function, not 'goals'",
        ),
    ):
        with pytest.raises(PhalanxError, match=said):
            football.Adapter(NAME, reward=wrong)


def test_mistakes_are_one_line(monkeypatch):
    with pytest.raises(PhalanxError, match=r"football has no scenario 'academy_corn'. Did you mean academy_"):
        football.Adapter("academy_corn")
    with pytest.raises(PhalanxError, match="has 4 players that can be controlled, not 5"):
        football.Adapter(NAME, players=5)
    with pytest.raises(PhalanxError, match="only pictures can be stacked"):
        football.Adapter(NAME, stacked=True)
    monkeypatch.setitem(sys.modules, "gfootball", None)
    with pytest.raises(
        PhalanxError, match=rf"^football/{NAME} needs the package gfootball.*docs/football.md"
    ):
        football.Adapter(NAME)


def test_close_closes_the_game():
    env = football.Adapter(NAME)
    before = Football.closed
    env.close()
    assert Football.closed == before + 1

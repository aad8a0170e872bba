"""The adapter of ma-gym, on a stand-in with gym 0.20's interface."""

import random
import sys

import numpy as np
import pytest
from stand_ins_gym import install_ma_gym

from phalanx.envs.host import ma_gym
from phalanx.errors import PhalanxError

RIGHT, STAY = np.ones(2, np.int32), np.full(2, 2, np.int32)


@pytest.fixture(autouse=True)
def package(monkeypatch):
    install_ma_gym(monkeypatch)


def test_the_spec_pads_unlike_agents():
    spec = ma_gym.Adapter("Switch2-v0").spec
    assert (spec.name, spec.agents, spec.action_counts) == (
        "ma_gym/Switch2-v0",
        ("agent_0", "agent_1"),
        (3, 4),
    )
    assert [len(names) for names in spec.obs_features] == [2, 3]
    assert (spec.state_size, spec.time_limit) == (5, 5)
    assert spec.action_names[1] == ("left", "right", "noop", "wave")
    assert spec.agents_end
    assert not spec.common_reward


def test_agents_end_one_by_one():
    env = ma_gym.Adapter("Switch2-v0")
    first = env.reset(1)
    assert first.observation.obs.shape == (2, 3)
    assert first.observation.obs[0, 2] == 0
    np.testing.assert_array_equal(first.observation.avail, [[True, True, True, False], [True] * 4])
    np.testing.assert_array_equal(
        first.observation.state, np.concatenate([first.observation.obs[0, :2], first.observation.obs[1]])
    )
    steps = [env.step(RIGHT) for _ in range(3)]
    np.testing.assert_allclose([s.reward for s in steps], [[-0.1, -0.1], [5, -0.1], [0, 5]], rtol=1e-6)
    np.testing.assert_array_equal(
        [s.agent_terminated for s in steps], [[False] * 2, [True, False], [True] * 2]
    )
    np.testing.assert_array_equal(
        [s.observation.alive for s in steps], [[True] * 2, [False, True], [False] * 2]
    )
    assert [(s.terminated, s.truncated) for s in steps] == [(False, False)] * 2 + [(True, False)]


def test_the_time_limit_truncates_those_who_had_not_ended():
    env = ma_gym.Adapter("Switch2-v0")
    env.reset(1)
    steps = [env.step(np.array([1, 2])) for _ in range(5)]
    assert [(s.terminated, s.truncated) for s in steps] == [(False, False)] * 4 + [(False, True)]
    np.testing.assert_array_equal(steps[-1].agent_terminated, [True, False])
    np.testing.assert_array_equal(steps[-1].observation.alive, [False, True])
    shorter = ma_gym.Adapter("Switch2-v0", time_limit=2)
    shorter.reset(1)
    assert [shorter.step(STAY).truncated for _ in range(2)] == [False, True]
    assert shorter.spec.time_limit == 2
    longer = ma_gym.Adapter("Switch2-v0", time_limit=7)
    longer.reset(1)
    assert [(s.terminated, s.truncated) for s in (longer.step(STAY) for _ in range(6))] == [
        (False, False)
    ] * 6
    assert ma_gym.Adapter("Switch2-v0", extra={"max_steps": 3}).spec.time_limit == 3


def test_a_seed_decides_an_episode():
    """Also in environments that draw from Python's global generator, whatever else draws from it."""
    env = ma_gym.Adapter("TrafficJunction4-v0")
    other = env.copy()

    def play(env, between):
        seen = [env.reset(2**63 + 5).observation.state]
        for _ in range(3):
            between()
            seen.append(env.step(STAY).observation.state)
        return seen

    one = play(env, lambda: None)
    other.reset(7)
    np.testing.assert_array_equal(one, play(env, lambda: other.step(STAY)))
    np.testing.assert_array_equal(one, play(ma_gym.Adapter("TrafficJunction4-v0"), random.random))
    drawn = [0, 2]  # from the environment's generator, and from the global one
    assert (one[0][drawn] != env.reset(6).observation.state[drawn]).all()


def test_lumberjacks_forget_the_episode_before():
    env = ma_gym.Adapter("Lumberjacks-v0")
    one, other, again = (env.reset(seed).observation.state[0] for seed in (1, 2, 1))
    assert one == again
    assert one != other


def test_mistakes_are_one_line(monkeypatch):
    with pytest.raises(PhalanxError, match="ma_gym/Switch9-v0: No registered env"):
        ma_gym.Adapter("Switch9-v0")
    with pytest.raises(PhalanxError, match="ma_gym/Switch2-v0: .*unexpected keyword argument 'cost'"):  # noqa: RUF043
        ma_gym.Adapter("Switch2-v0", extra={"cost": 1})
    with pytest.raises(PhalanxError, match="ma_gym/Switch2-v0: Number of Agents"):
        ma_gym.Adapter("Switch2-v0", extra={"n_agents": 9})
    with pytest.raises(PhalanxError, match="PongDuel-v0 has no time limit of its own"):
        ma_gym.Adapter("PongDuel-v0")
    assert ma_gym.Adapter("PongDuel-v0", time_limit=9).spec.time_limit == 9
    with pytest.raises(PhalanxError, match="mean the same, leave one out"):
        ma_gym.Adapter("Switch2-v0", time_limit=9, extra={"max_steps": 3})
    monkeypatch.setitem(sys.modules, "ma_gym", None)
    with pytest.raises(PhalanxError, match=r"^ma_gym/Switch2-v0 needs the package ma-gym.*docs/"):
        ma_gym.Adapter("Switch2-v0")

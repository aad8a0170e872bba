"""Check the adapters of SMAC and SMACv2 with their own classes, on a stand-in for the game.

Usage: python play_smac.py PACKAGE smac|smacv2, with the folder of phalanx, in a Python that has them.
Both do not go into one process: pysc2 refuses maps of the same name.
"""

import os
import subprocess
import sys
import types

import numpy as np

for name, path in (("phalanx", sys.argv[1]), ("phalanx.envs", os.path.join(sys.argv[1], "envs"))):
    sys.modules[name] = types.ModuleType(name)  # as a worker does: without JAX
    sys.modules[name].__path__ = [path]


def chosen(avail, attack):
    """An action for each agent: the last available one, an attack where it can, or the first."""
    return [int(np.flatnonzero(mask)[-1 if attack else 0]) for mask in avail]


def check_parity():
    from smac.env import StarCraft2Env

    from phalanx.envs.host.smac import Adapter

    env, real = Adapter("2s3z"), StarCraft2Env("2s3z", seed=11, continuing_episode=True)
    now = env.reset(11)
    real.reset()
    kinds = real.get_unit_types()[: real.n_agents]
    assert len(set(zip(kinds, env.spec.agent_types))) == len(set(kinds)) == 2  # noqa: B905
    over, rewards = False, 0
    while not over:
        np.testing.assert_array_equal(now.observation.obs, np.array(real.get_obs(), np.float32))
        np.testing.assert_array_equal(now.observation.state, np.array(real.get_state(), np.float32))
        np.testing.assert_array_equal(now.observation.avail, np.array(real.get_avail_actions(), bool))
        np.testing.assert_array_equal(now.observation.alive, [real.agents[i].health > 0 for i in range(5)])
        actions = chosen(now.observation.avail, True)
        now = env.step(np.array(actions))
        reward, over, info = real.step(actions)
        rewards += reward
        np.testing.assert_array_equal(now.reward, np.full(5, reward, np.float32))
        assert (now.terminated, now.truncated, now.won) == (over, False, info["battle_won"])
    assert rewards > 0
    env.close()
    real.close()
    return now.won


def episode(env, seed, attack=True):
    """The end of an episode, and all states of it."""
    now = env.reset(seed)
    states = [now.observation.state]
    while not (now.terminated or now.truncated):
        now = env.step(np.array(chosen(now.observation.avail, attack)))
        states.append(now.observation.state)
    return now, states


def check_episodes():
    from phalanx.envs.host.smac import Adapter

    env = Adapter("3m")
    first, states = episode(env, 3)
    again, others = episode(env, 3)
    assert first.terminated
    assert not np.array_equal(states[0], others[0]), "the game goes on, whatever the seed"
    assert games() == 1
    relaunched = Adapter("3m", relaunch=True)
    episode(relaunched, 4)
    np.testing.assert_array_equal(episode(relaunched, 3)[1], states)
    env.reset(5)
    env.step(np.ones(3, int))
    env.reset(6)
    assert games() == 2
    env.close()
    relaunched.close()
    return [first.won, again.won]


def check_smacv2():
    """Teams and starts are drawn by the seed of an episode, also in a running game and in another one."""
    from phalanx.envs.host.smacv2 import Adapter

    env = Adapter("10gen_terran", n_units=4, n_enemies=5)
    other = env.copy()
    first = env.reset(1).observation
    assert first.obs.shape == (4, env.spec.obs_size)
    assert first.state.shape == (env.spec.state_size,)
    assert first.avail.shape == (4, env.spec.n_actions)
    ends = [episode(env, seed) for seed in (2, 1)]
    # The game has fought for one loop when an episode begins, by its own random numbers.
    assert np.abs(ends[0][1][0] - first.state).max() > 0.1
    np.testing.assert_allclose(ends[1][1][0], first.state, atol=0.05)
    np.testing.assert_allclose(other.reset(1).observation.obs, first.obs, atol=0.05)
    assert games() == 2
    env.close()
    other.close()
    return [end.won for end, _ in ends]


def games():
    """How many games this process has running."""
    found = subprocess.run(["pgrep", "-P", str(os.getpid()), "SC2_x64"], stdout=subprocess.PIPE, check=False)
    return len(found.stdout.split())


wins = check_smacv2() if sys.argv[2] == "smacv2" else [check_parity(), *check_episodes()]
assert games() == 0
print("wins", wins)

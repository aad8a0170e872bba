"""Agents that end one by one: nothing is worth anything to them afterwards, and the team goes on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build

from phalanx.data import replay
from phalanx.envs.check import check
from phalanx.envs.debug import Leave

FAR = 100.0  # what all values are said to be


def rollout_of(loop, seed=1):
    """A rollout in which some agents leave before their mates."""
    carry = jax.jit(loop.init)(jnp.int32(seed))
    policy = loop.algorithm.policy(carry.learner)
    _, rollout = jax.jit(lambda: loop.collector.collect_one(policy, carry.actors, 16))()
    alone = rollout.agent_terminated & ~rollout.terminated[..., None]
    assert alone.any()
    assert not alone.all()
    return carry.learner, rollout


def slow_targets(rollout, gamma, n):
    """n-step targets of every agent, one step at a time, where every value is `FAR`."""
    reward, ended = np.asarray(rollout.reward), np.asarray(rollout.agent_terminated)
    cut, over = np.asarray(rollout.truncated), np.asarray(rollout.terminated)
    time, envs, agents = reward.shape
    out = np.zeros(reward.shape)
    for b in range(envs):
        for a in range(agents):
            for t in range(time):
                total, discount = 0.0, 1.0
                for k in range(t, min(t + n, time)):
                    total, discount = total + discount * reward[k, b, a], discount * gamma
                    if ended[k, b, a] or over[k, b] or cut[k, b]:
                        break
                out[t, b, a] = total + (0 if ended[k, b, a] or over[k, b] else discount * FAR)
    return out


@pytest.mark.parametrize(("algorithm", "n"), [("ippo", 999), ("ia2c", 3)])
def test_nothing_is_worth_anything_to_who_has_left(algorithm, n):
    options = {"gae_lambda": 1.0} if algorithm == "ippo" else {"n_steps": n}
    loop = build(algorithm, "debug/leave", **options)
    _, rollout = rollout_of(loop)
    values = jnp.full(rollout.reward.shape, FAR)
    _, target = loop.algorithm.advantages_and_targets(rollout, rollout.reward, values, values)
    np.testing.assert_allclose(target, slow_targets(rollout, loop.algorithm.config.gamma, n), rtol=1e-5)


def test_a_team_that_shares_its_reward_goes_on_until_it_ends():
    loop = build("mappo", "debug/leave", gae_lambda=0.0)
    _, rollout = rollout_of(loop)
    reward = loop.algorithm.rewards.of(rollout.reward)
    values = jnp.full(rollout.reward.shape, FAR)
    _, target = loop.algorithm.advantages_and_targets(rollout, reward, values, values)
    went_on = (rollout.agent_terminated & ~rollout.terminated[..., None])[:-1]
    assert (np.asarray(target)[:-1][np.asarray(went_on)] > 0.5 * FAR).all()


def test_values_of_actions_stop_where_their_agent_did():
    loop = build("iql", "debug/leave", buffer=64, episodes=4)
    learner, rollout = rollout_of(loop)
    kept = replay.add(learner.replay, rollout)
    batch = replay.take(kept, replay.draw(kept, jax.random.key(0), int(kept.count)))
    far = jax.tree.map(lambda x: x, learner.target)
    head = far.actor["head"]
    far = far._replace(actor={**far.actor, "head": {**head, "bias": head["bias"] + FAR}})
    q, after = loop.algorithm.q_values(far.actor, far.actor, batch)
    target = np.asarray(loop.algorithm.targets(q, after, far.mixer, batch))
    ended = (
        np.asarray(batch.agent_terminated | batch.terminated[..., None]) & np.asarray(batch.valid)[..., None]
    )
    np.testing.assert_allclose(target[ended], np.asarray(batch.reward)[ended])
    going_on = np.asarray(batch.observation.alive[:-1] & batch.valid[..., None]) & ~ended
    assert (target[going_on] > 0.5 * FAR).all()
    counted = np.asarray(loop.algorithm.counted(batch))
    assert (counted == (np.asarray(batch.valid)[..., None] & np.asarray(batch.observation.alive[:-1]))).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"agent_terminated": jnp.zeros(2, bool)}, "it must stay set"),
        ({"reward": jnp.ones(2)}, "got a reward at step"),
        ({"agent_terminated": None}, "must give agent_terminated"),
        ({"agent_terminated": jnp.ones(2, bool)}, "still lives"),
        ({"observation": {"alive": jnp.zeros(2, bool)}}, "is dead at step"),
    ],
)
def test_an_end_that_is_none_is_a_breach(change, said):
    class Broken(Leave):
        def step(self, key, state, actions):
            state, now = super().step(key, state, actions)
            late = state.steps > 2
            if "observation" in change:
                seen = now.observation
                gone = jnp.where(late, change["observation"]["alive"], seen.alive)
                return state, now._replace(observation=seen._replace(alive=gone))
            if change.get("agent_terminated") is None:
                return state, now._replace(**change)
            return state, jax.tree.map(
                lambda new, old: jnp.where(late, new, old), now._replace(**change), now
            )

    assert any(said in breach for breach in check(Broken())), check(Broken())


def test_in_pettingzoo_an_agent_leaves_with_its_own_end():
    from pettingzoo.test import parallel_api_test

    import phalanx

    env = phalanx.to_pettingzoo("debug/leave")
    parallel_api_test(env, num_cycles=30)
    env.reset(seed=0)
    seen, rewards, ended, cut, _ = env.step({"agent_0": 1, "agent_1": 0})
    assert ended == {"agent_0": True, "agent_1": False}
    assert not any(cut.values())
    assert rewards["agent_0"] > 0
    assert env.agents == ["agent_1"]
    seen, rewards, ended, *_ = env.step({"agent_1": 0})
    assert seen.keys() == rewards.keys() == ended.keys() == {"agent_1"}

"""The target critic of PPO, A2C and MAPPO-distil: an older critic that values what comes next."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, same, small
from test_ppo import CLOCK
from test_run import assert_same_end
from test_warm_start import drawn, setup_of

import phalanx
from phalanx.errors import PhalanxError
from phalanx.training.warm_start import start_from

EVERY, RATE = 2, 0.3
TARGET = {"target_every": EVERY, "target_rate": RATE}


def rollouts_of(loop, count):
    """A learner, and rollouts that follow each other."""

    @jax.jit
    def run():
        learner = loop.algorithm.init(jax.random.key(1), loop.collector.envs)
        actors = loop.collector.start_one(jax.random.key(2))
        _, steps = loop.collector.collect_one(loop.algorithm.policy(learner), actors, count * loop.length)
        return learner, steps

    learner, steps = run()
    length = loop.length
    return learner, [
        jax.tree.map(lambda x, k=k: x[k * length : (k + 1) * length], steps) for k in range(count)
    ]


def in_rewards(params, norm, popart):
    """A critic that speaks in rewards: popart's head without its statistics, which then never move it."""
    if not popart:
        return params
    head = params["head"]
    kernel = head["kernel"] * norm.std[:, None, None]
    bias = head["bias"] * norm.std[:, None] + norm.mean[:, None]
    return {**params, "head": {"kernel": kernel, "bias": bias}}


def slow_next_values(critic, params, rollout, memory):
    """One step after the other; also the memory at the end."""
    values, never = [], jnp.zeros(rollout.first.shape[1:], bool)

    @jax.jit
    def one(memory, seen, then, first):
        _, memories = critic.values(params, seen, memory, first)
        return memories[0], critic.values(params, then, memories[0], never[None])[0][0]

    for t in range(len(rollout.first)):
        seen, then = (
            jax.tree.map(lambda x, t=t: x[t : t + 1], each)
            for each in (rollout.observation, rollout.next_observation)
        )
        memory, value = one(memory, seen, then, rollout.first[t : t + 1])
        values.append(value)
    return np.stack(values), memory


def slow_returns(rollout, reward, after, config):
    """Lambda-returns of PPO, n-step returns of A2C: forwards from each step."""
    reward, ended, cut = (np.asarray(x) for x in (reward, rollout.terminated, rollout.truncated))
    steps, envs = ended.shape
    found = np.zeros_like(after)
    for env in range(envs):
        for t in reversed(range(steps)):
            if hasattr(config, "n_steps"):
                total, discount, k = 0.0, 1.0, t
                while True:
                    total, discount = total + discount * reward[k, env], discount * config.gamma
                    if ended[k, env]:
                        break
                    if cut[k, env] or k == steps - 1 or k - t == config.n_steps - 1:
                        total = total + discount * after[k, env]
                        break
                    k += 1
                found[t, env] = total
                continue
            onward = after[t, env]
            if not cut[t, env] and t < steps - 1:
                onward = (1 - config.gae_lambda) * onward + config.gae_lambda * found[t + 1, env]
            found[t, env] = reward[t, env] + config.gamma * (0 if ended[t, env] else onward)
    return found


@pytest.mark.parametrize(
    ("name", "env", "options"),
    [
        (
            "ippo",
            "debug/roles",
            {"network": "gru", "share": "type", "value_norm": "popart", "gae_lambda": 0.7},
        ),
        ("maa2c", "debug/roles", {"n_steps": 3}),
    ],
)
def test_next_values_are_those_of_an_older_critic(name, env, options):
    loop = build(name, env, env_options={"time_limit": 6}, standardise_advantages=False, **TARGET, **options)
    algorithm, critic = loop.algorithm, loop.algorithm.critic
    groups, popart = critic.groups.of_agent, algorithm.config.value_norm == "popart"
    learner, rollouts = rollouts_of(loop, 5)
    update, prepare = jax.jit(algorithm.update), jax.jit(algorithm.prepare_batch)
    twin, memory = in_rewards(learner.critic.params, learner.value_norm, popart), learner.critic_memory
    moves = 0
    for k, rollout in enumerate(rollouts):
        norm = learner.value_norm
        if k in (2, 4):  # after every second update
            live = in_rewards(learner.critic.params, norm, popart)
            twin = jax.tree.map(lambda old, new: old + RATE * (new - old), twin, live)
            moves += 1
        after, memory = slow_next_values(critic, twin, rollout, memory)
        after = after if popart else np.asarray(norm.denormalise(after, groups))
        reward = algorithm.rewards.of(rollout.reward)
        expected = slow_returns(rollout, reward, after, algorithm.config)
        values, _ = critic.values(
            learner.critic.params, rollout.observation, learner.critic_memory, rollout.first
        )
        baseline = np.asarray(norm.denormalise(values, groups))
        prepared, batch, _, _ = prepare(learner, rollout)
        found = prepared.value_norm.denormalise(batch.target, groups)
        split = algorithm.chunks.split
        np.testing.assert_allclose(found, split(expected), atol=1e-4)
        np.testing.assert_allclose(batch.advantage, split(expected - baseline), atol=1e-4)
        if k:
            live, _ = slow_next_values(critic, learner.critic.params, rollout, learner.critic_memory)
            assert np.abs(norm.denormalise(live, groups) - after).max() > 1e-3  # they differ by now
        learner, _ = update(learner, rollout, jax.random.key(k), CLOCK)
    assert moves == 2


def test_a_copy_after_every_update_is_no_target_critic():
    """The copy is then the critic itself; and without one there is nothing more to keep."""
    learnt = []
    for options in ({}, {"target_every": 1}):
        loop = build("ia2c", "debug/death", network="gru", **options)
        learner, rollouts = rollouts_of(loop, 3)
        assert bool(jax.tree.leaves(learner.target)) == bool(options)
        update = jax.jit(loop.algorithm.update)
        for k, rollout in enumerate(rollouts):
            learner, metrics = update(learner, rollout, jax.random.key(k), CLOCK)
        learnt.append((learner._replace(target=()), metrics))
    for one, two in zip(*map(jax.tree.leaves, learnt), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_a_rate_without_a_target_critic_is_refused():
    with pytest.raises(PhalanxError, match="needs a target critic: add target_every=1"):
        build("mappo", "debug/roles", target_rate=0.01)


def test_a_run_with_a_target_critic_resumes_to_the_bit(tmp_path):
    options = {"algorithm": "mappo_distil", "network": "mlp", "value_norm": "popart", **TARGET}
    whole = small(tmp_path / "whole", steps=512, **options)
    half = small(tmp_path / "half", steps=256, **options)
    phalanx.resume(half.folder, 512, quiet=True)
    assert_same_end(whole.folder, half.folder)


def test_a_run_that_starts_from_another_has_its_critic_as_target():
    source, target = setup_of("ippo"), setup_of("ippo", share="type", **TARGET)
    begun = start_from("SOURCE", source, drawn(source, 1), target)(drawn(target, 2)).learner
    assert same(begun.target.params, begun.critic.params)

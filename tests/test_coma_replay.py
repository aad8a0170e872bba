"""COMA on a replay of whole episodes (`--buffer`): what counts, when it begins, and that it resumes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, same, small
from test_ppo import CLOCK, rollout_of
from test_run import assert_same_end
from test_value import batch_of

import phalanx
from phalanx.algorithms.shared.off_policy import as_rollout
from phalanx.errors import PhalanxError
from phalanx.ops import distributions

REPLAY = {"buffer": 200, "episodes": 6, "critic_epochs": 2, "critic_minibatches": 2}
SOFT = {"target_every": 1, "target_rate": 0.01}


@pytest.fixture(scope="module")
def loop():
    options = {"network": "gru", "share": "type", "critic_share": "type", **REPLAY, **SOFT}
    return build("coma", "debug/roles", env_options={"time_limit": 6}, **options)


def learnt(loop):
    """A new learner, and what it learns from episodes."""
    algorithm = loop.algorithm
    learner = jax.jit(lambda: algorithm.init(jax.random.key(0), 4))()._replace(replay=None)

    @jax.jit
    def learn(batch):
        steps = as_rollout(batch, algorithm.actor.initial_memory(6))
        return algorithm.learn(learner, steps, batch.valid, jax.random.key(1), CLOCK)

    return learner, learn


def test_what_stands_behind_an_episode_counts_nowhere(loop):
    """Noise there, or other noise: the same actor, critic and metrics."""
    _, learn = learnt(loop)
    batch, length = batch_of(loop)
    noise, _ = batch_of(loop, seed=1)
    rows = jnp.arange(len(batch.valid) + 1)[:, None] <= length

    def mixed(keep):
        return lambda x, y: jnp.where(keep.reshape(*keep.shape, *[1] * (x.ndim - 2)), x, 9 * y)

    other = batch._replace(
        observation=batch.observation._replace(
            obs=mixed(rows)(batch.observation.obs, noise.observation.obs),
            state=mixed(rows)(batch.observation.state, noise.observation.state),
            alive=jnp.where(rows[..., None], batch.observation.alive, ~batch.observation.alive),
            avail=jnp.where(rows[..., None, None], batch.observation.avail, noise.observation.avail),
        ),
        reward=mixed(batch.valid)(batch.reward, noise.reward),
    )
    assert not same(batch, other)
    for one, two in zip(*map(jax.tree.leaves, (learn(batch), learn(other))), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_losses_are_means_over_the_steps_that_were_taken(loop):
    """A slow twin: each agent of each step of each episode, one after the other."""
    algorithm, (learner, _) = loop.algorithm, learnt(loop)
    batch, length = batch_of(loop)
    steps = as_rollout(batch, algorithm.actor.initial_memory(6))
    target = jax.random.normal(jax.random.key(3), batch.reward.shape)

    @jax.jit
    def compute():
        q = algorithm.q_values(learner.critic.params, steps.observation, steps.action)
        of_critic = algorithm.critic_loss(
            learner.critic.params, steps.observation, steps.action, target, batch.valid
        )[1]
        of_actor = algorithm.actor_loss(learner.actor.params, steps, q, jnp.float32(0.1), batch.valid)[1]
        logits, _ = algorithm.actor.outputs(
            learner.actor.params, steps.observation.obs, steps.memory[0], steps.first
        )
        policy = jax.nn.softmax(distributions.mask_logits(logits, steps.observation.avail))
        return q, policy, of_critic, of_actor

    q, policy, of_critic, of_actor = jax.device_get(compute())
    avail, alive = (np.asarray(x) for x in (steps.observation.avail, steps.observation.alive))
    action, target = np.asarray(steps.action), np.asarray(target)
    squares, gains = ([[] for _ in of_critic["value_loss"]] for _ in range(2))
    for episode, steps_taken in enumerate(length):
        for t in range(steps_taken):
            for agent in range(action.shape[-1]):
                at = (t, episode, agent)
                group, u = algorithm.actor_groups.of_agent[agent], action[at]
                squares[group].append((q[at][u] - target[at]) ** 2 / 2)
                mixed = 0.9 * policy[at] + 0.1 * avail[at] / avail[at].sum()
                if alive[at]:
                    advantage = q[at][u] - (mixed * q[at])[avail[at]].sum()
                    gains[group].append(-advantage * np.log(max(mixed[u], np.finfo(np.float32).tiny)))
    np.testing.assert_allclose(of_critic["value_loss"], [np.mean(each) for each in squares], rtol=1e-4)
    np.testing.assert_allclose(of_actor["policy_loss"], [np.mean(each) for each in gains], rtol=1e-3)


def test_learning_begins_when_there_are_episodes_enough(loop):
    algorithm = loop.algorithm
    learner, rollout = rollout_of(loop)
    update = jax.jit(algorithm.update)
    early, metrics = update(learner, jax.tree.map(lambda x: x[:2], rollout), jax.random.key(0), CLOCK)
    assert (early.updates, early.gradient_steps, metrics["replay_size"]) == (0, 0, early.replay.count)
    assert same(early.actor, learner.actor)
    assert same(early.target, learner.target)
    assert all(value == 0 for name, value in metrics.items() if name.startswith("value_loss"))
    later = learner
    for i in range(3):
        before, (later, metrics) = later, update(later, rollout, jax.random.key(i), CLOCK)
    assert metrics["replay_size"] >= 6
    assert later.gradient_steps == later.updates * 5
    assert later.updates >= 2
    soft = jax.tree.map(lambda old, new: 0.99 * old + 0.01 * new, before.target, later.critic.params)
    for one, two in zip(*map(jax.tree.leaves, (soft, later.target)), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((later, metrics)))


def test_a_run_with_a_replay_resumes_to_the_bit(tmp_path):
    """Observations are normalised too: the replay holds raw ones."""
    options = {"algorithm": "coma", "normalise_obs": True, "network": "gru", "buffer": 64, "episodes": 4}
    whole = small(tmp_path / "whole", **options)
    half = small(tmp_path / "half", steps=128, **options)
    phalanx.resume(half.folder, 256, quiet=True)
    assert_same_end(whole.folder, half.folder)
    assert whole.metrics()[-1]["learn/replay_size"] > 4
    assert whole.facts["memory_plan"]["replay"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"episodes": 8}, "add buffer=2000"),
        ({"buffer": 8, "episodes": 4}, "too small for rollouts of 16 steps in 4 environments: use buffer=64"),
        ({"buffer": 64, "episodes": 65}, "more than a buffer of 64 can hold"),
        ({"buffer": 64, "episodes": 4, "critic_minibatches": 16}, "use critic_minibatches=8"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, said):
    with pytest.raises(PhalanxError, match=said):
        build("coma", "debug/roles", env_options={"time_limit": 6}, **options)

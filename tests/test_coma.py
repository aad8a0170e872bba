"""COMA: the counterfactual advantage, its critic and its targets (pitfall C12)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, same
from test_ppo import CLOCK, rollout_of

from phalanx import registry
from phalanx.algorithms.coma import counterfactual_advantage, floored
from phalanx.algorithms.shared.minibatches import fit, minibatches
from phalanx.errors import PhalanxError
from phalanx.ops import distributions


def test_the_advantage_equals_enumeration_on_a_matrix_game():
    """Two agents, a random table of what each pair of actions is worth, random policies."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(3, 4))
    policies = [rng.dirichlet(np.ones(n)) for n in table.shape]
    for first in range(3):
        for second in range(4):
            # What the critic would say: all actions of one agent, the other's being fixed.
            for agent, (row, action) in enumerate([(table[:, second], first), (table[first], second)]):
                expected = table[first, second] - sum(
                    probability * worth for probability, worth in zip(policies[agent], row, strict=True)
                )
                found = counterfactual_advantage(
                    jnp.asarray(row), jnp.log(policies[agent]), jnp.ones(len(row), bool), jnp.int32(action)
                )
                np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_advantages_of_all_actions_average_to_zero_under_the_policy():
    key = jax.random.key(0)
    q, logits = jax.random.normal(key, (2, 50, 6)) * 3
    avail = jax.random.bernoulli(jax.random.key(1), 0.6, (50, 6)).at[:, 0].set(True)
    log_policy = floored(logits, avail, 0.1)
    each = jax.vmap(lambda action: counterfactual_advantage(q, log_policy, avail, jnp.full(50, action)))(
        jnp.arange(6)
    )
    mean = jnp.where(avail, jnp.exp(log_policy) * each.T, 0.0).sum(-1)
    np.testing.assert_allclose(mean, 0, atol=1e-5)


def test_the_floor_reaches_every_available_action_and_no_other():
    logits = jnp.array([[50.0, -50.0, 0.0, 3.0]])
    avail = jnp.array([[True, True, False, True]])
    for epsilon in (0.0, 0.3, 1.0):
        policy = np.exp(np.asarray(floored(logits, avail, epsilon)))[0]
        assert policy[2] < 1e-30
        assert policy[[0, 1, 3]].min() >= epsilon / 3 - 1e-6
        np.testing.assert_allclose(policy.sum(), 1, rtol=1e-6)


@pytest.fixture(scope="module")
def played():
    loop = build("coma", "debug/roles", env_options={"time_limit": 6}, network="gru", share="type")
    return loop, *rollout_of(loop)


def test_the_critic_does_not_see_the_agents_own_action(played):
    """Whatever an agent does, its own row stays, and the others' do not."""
    loop, _, rollout = played
    algorithm, n = loop.algorithm, loop.collector.spec.n_agents
    seen = algorithm.view(rollout.observation, rollout.action)
    for agent in range(n):
        other = algorithm.view(
            rollout.observation, rollout.action.at[..., agent].set((rollout.action[..., agent] + 1) % 2)
        )
        same_rows = np.asarray((seen == other).all(-1).all((0, 1)))
        assert same_rows[agent]
        assert not same_rows[np.arange(n) != agent].any()


def test_targets_are_td_lambda_from_what_was_done_next(played):
    """A slow twin: backwards through each environment, with an end worth nothing after it."""
    loop, learner, rollout = played
    algorithm, config = loop.algorithm, loop.algorithm.config
    target = np.asarray(jax.jit(algorithm.targets)(learner, rollout, jax.random.key(5)))
    q = algorithm.q_values(learner.target, rollout.observation, rollout.action)
    taken = np.asarray(distributions.chosen(q, rollout.action))
    reward = np.asarray(algorithm.rewards.of(rollout.reward))
    over = np.asarray(rollout.terminated | rollout.truncated)
    ended = np.asarray(rollout.terminated)
    assert over.any()
    for t in range(len(target) - 1):
        onward = (1 - config.td_lambda) * taken[t + 1] + config.td_lambda * target[t + 1]
        expected = reward[t] + config.gamma * onward
        np.testing.assert_allclose(target[t][~over[t]], expected[~over[t]], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(target[ended], reward[ended], rtol=1e-6)


def test_an_update_moves_actor_and_critic_and_copies_the_target_when_due(played):
    loop, learner, rollout = played
    update = jax.jit(loop.algorithm.update)
    for count in range(1, loop.algorithm.config.target_every + 1):
        before, (learner, metrics) = learner, update(learner, rollout, jax.random.key(count), CLOCK)
        due = count == loop.algorithm.config.target_every
        assert same(learner.target, before.target) != due
        assert same(learner.target, learner.critic.params) == due
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((learner, metrics)))
    for half in ("actor", "critic"):
        one, two = (jax.tree.leaves(getattr(each, half).params) for each in (played[1], learner))
        for a, b in zip(one, two, strict=True):
            moved = np.abs(np.asarray(a) - np.asarray(b)).reshape(a.shape[0], -1).max(1)
            assert (moved > 0).all()


def test_the_critic_learns_what_a_dead_agents_row_is_worth():
    """What the living earn after a death is part of what led to it, and is bootstrapped through that row."""
    loop = build("coma", "debug/death", critic_lr=1e-2)
    algorithm, optimiser = loop.algorithm, loop.algorithm.critic_optimiser
    learner, rollout = rollout_of(loop)
    dead = ~rollout.observation.alive
    assert dead.any()
    target = jnp.where(dead, 5.0, algorithm.targets(learner, rollout, jax.random.key(0)))

    def error(params):
        q = algorithm.q_values(params, rollout.observation, rollout.action)
        return jnp.abs(distributions.chosen(q, rollout.action) - target)[dead].mean()

    @jax.jit
    def fitted(critic):
        data = (rollout.observation, rollout.action, target)
        order = minibatches(jax.random.key(1), 1, epochs=300, parts=1)
        return fit(optimiser, critic, algorithm.critic_loss, lambda _: data, order, CLOCK)[0]

    assert error(fitted(learner.critic).params) < 0.2 * error(learner.critic.params)


def test_continuous_actions_are_refused():
    spec = registry.make_env("mpe/simple", {"continuous_actions": True}).spec
    with pytest.raises(PhalanxError, match="coma has no continuous actions"):
        registry.require_fit("coma", spec)

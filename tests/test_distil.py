"""MAPPO-distil: three phases, and a distillation that leaves the policy where it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, same
from test_ppo import CLOCK, rollout_of

from phalanx.algorithms.shared.minibatches import fit, minibatches, take
from phalanx.ops import masks


@pytest.fixture(
    scope="module", params=[("switch/3", {"share": "agent"}), ("debug/roles", {"network": "gru"})]
)
def played(request):
    env, options = request.param
    loop = build(
        "mappo_distil", env, distil_epochs=8, distil_lr=5e-3, env_options={"time_limit": 6}, **options
    )
    return loop, *rollout_of(loop)


def test_distillation_lowers_the_error_and_holds_the_policy(played):
    loop, learner, rollout = played
    algorithm = loop.algorithm

    @jax.jit
    def distil(learner, rollout):
        learner, batch, starts, _ = algorithm.prepare_batch(learner, rollout)
        seen = batch.observation
        target, _ = algorithm.critic.values(learner.critic.params, seen, starts.critic, batch.first)
        before, first_value, _ = algorithm.actor.heads(
            learner.actor.params, seen.obs, starts.actor, batch.first
        )
        actor, metrics, _ = fit(
            algorithm.distil_optimiser,
            learner.actor,
            algorithm.distil_loss,
            lambda numbers: take((batch, before, target), starts.actor, numbers),
            minibatches(jax.random.key(0), batch.first.shape[1], epochs=20, parts=2),
            CLOCK,
        )
        after, value, _ = algorithm.actor.heads(actor.params, seen.obs, starts.actor, batch.first)
        error = [masks.masked_mean(jnp.square(v - target), seen.alive) for v in (first_value, value)]
        moved = masks.masked_mean(algorithm.actor.distribution.kl(before, after, seen.avail), seen.alive)
        return error, moved, metrics, target, value

    (error_before, error_after), moved, metrics, target, value = distil(learner, rollout)
    assert value.shape == target.shape == (*value.shape[:2], loop.collector.spec.n_agents)
    assert error_after < 0.5 * error_before
    assert moved < 0.01
    assert moved < 5 * metrics["distil_kl"].mean() + 1e-4  # a KL for each group


def test_each_phase_trains_its_own_network(played):
    loop, learner, rollout = played
    after, metrics = jax.jit(loop.algorithm.update)(learner, rollout, jax.random.key(1), CLOCK)
    assert not same(after.actor.params, learner.actor.params)
    assert not same(after.critic.params, learner.critic.params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))
    c = loop.algorithm.config
    passes = c.epochs * c.minibatches + c.value_epochs * c.value_minibatches
    assert after.gradient_steps == passes + c.distil_epochs * c.distil_minibatches

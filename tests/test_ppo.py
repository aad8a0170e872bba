"""PPO's learner: what must hold for every torso, view and sharing (pitfalls C14, C17 to C24, C28, C29)."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, same

from phalanx.algorithms.shared.actor_critic import ActorCriticLearner, Batch
from phalanx.envs.debug import Death, Forever, Identity
from phalanx.errors import PhalanxError
from phalanx.training.loop import Loop
from phalanx.types import Array, Clock, PyTree, Transition

CLOCK = Clock(jnp.float32(0), jnp.float32(1))
# Between them every torso, view and sharing mode, on environments whose episodes end inside a rollout.
CASES = [
    ("mappo", "debug/roles", {"network": "mlp", "share": "type"}),
    ("mappo", "debug/death", {"network": "gru", "share": "all", "feature_norm": True, "last_action": True}),
    ("ippo", "debug/death", {"network": "gru", "share": "agent"}),
    ("ippo", "switch/3", {"network": "mlp", "share": "0,2;1", "activation": "relu"}),
    ("mappo", "switch/3", {"network": "gru", "share": "0,2;1", "critic_share": "agent"}),
    ("mappo", "debug/memory", {"network": "gru", "critic_view": "state+obs", "reward": "own"}),
]
IDS = [f"{algorithm}-{env}-{'-'.join(map(str, options.values()))}" for algorithm, env, options in CASES]


def rollout_of(loop, rollouts=2):
    """A learner and a rollout that begins in the middle of episodes."""

    @jax.jit
    def run():
        learner = loop.algorithm.init(jax.random.key(1), loop.collector.envs)
        actors = loop.collector.start_one(jax.random.key(2))
        policy = loop.algorithm.policy(learner)
        length = rollouts * loop.length
        _, rollout = loop.collector.collect_one(policy, actors, length)
        return learner, jax.tree.map(lambda x: x[-loop.length :], rollout)

    return run()


class Case(NamedTuple):
    """Everything that is computed of one case, by one compiled program."""

    loop: Loop
    learner: ActorCriticLearner
    rollout: Transition
    batch: Batch
    log_prob: Array
    values: Array
    next_values: Array
    next_values_without_memory: Array
    chunk_values: Array
    grads: PyTree
    after: ActorCriticLearner
    metrics: PyTree


@pytest.fixture(scope="module", params=CASES, ids=IDS)
def case(request):
    name, env, options = request.param
    loop = build(name, env, env_options={"time_limit": 6}, **options)
    learner, rollout = rollout_of(loop)
    algorithm = loop.algorithm

    @jax.jit
    def compute(learner, rollout):
        moved, batch, starts, _ = algorithm.prepare_batch(learner, rollout)
        seen = batch.observation
        out, _ = algorithm.actor.outputs(learner.actor.params, seen.obs, starts.actor, batch.first)
        critic = learner.critic.params
        values, memories = algorithm.critic.values(
            critic, rollout.observation, learner.critic_memory, rollout.first
        )
        alone, _ = algorithm.critic.values(
            critic, rollout.next_observation, learner.critic_memory, rollout.first
        )
        in_chunks, _ = algorithm.critic.values(critic, seen, starts.critic, batch.first)
        after, metrics = algorithm.update(learner, rollout, jax.random.key(3), CLOCK)
        return dict(
            batch=batch,
            log_prob=algorithm.actor.distribution.log_prob(out, seen.avail, batch.drawn),
            values=values,
            next_values=algorithm.critic.next_values(critic, rollout.next_observation, memories),
            next_values_without_memory=alone,
            chunk_values=in_chunks,
            grads=(
                jax.grad(lambda p: algorithm.actor_loss(p, batch, starts.actor)[0])(learner.actor.params),
                jax.grad(lambda p: algorithm.critic_loss(p, batch, starts.critic)[0])(moved.critic.params),
            ),
            after=after,
            metrics=metrics,
        )

    return Case(loop, *jax.device_get((learner, rollout)), **jax.device_get(compute(learner, rollout)))


def test_the_ratio_is_1_before_the_first_update(case):
    """C14, C18: log-probabilities computed again from stored memories are those of acting, on every step."""
    assert case.rollout.first[1:].any(), "the rollout must contain beginnings of episodes"
    ratio = np.exp(case.log_prob - case.batch.old_log_prob)[case.batch.observation.alive]
    np.testing.assert_allclose(ratio, 1.0, atol=2e-6)


def test_values_computed_in_chunks_are_those_of_the_whole_rollout(case):
    """C18, C19: the critic too begins each chunk with the memory it had."""
    np.testing.assert_allclose(case.chunk_values, case.batch.old_value, atol=1e-5)


def test_next_values_are_the_values_of_what_is_seen_next(case):
    """Within an episode the value after a step is the value at the next step."""
    over = case.rollout.terminated | case.rollout.truncated
    assert over.any()
    going_on = ~over[:-1]
    np.testing.assert_allclose(case.next_values[:-1][going_on], case.values[1:][going_on], atol=1e-5)
    if case.loop.algorithm.config.network == "mlp":  # at a cut it is that of the true last observation
        np.testing.assert_allclose(case.next_values, case.next_values_without_memory, atol=1e-5)


def test_every_parameter_of_every_group_gets_a_gradient(case):
    """C28: nothing is wired past."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(case.grads):
        per_group = np.abs(leaf).reshape(leaf.shape[0], -1).max(axis=1)
        assert (per_group > 0).all(), jax.tree_util.keystr(path)


def test_an_update_moves_every_network_and_stays_finite(case):
    learner, after, config = case.learner, case.after, case.loop.algorithm.config
    for before, now in ((learner.actor, after.actor), (learner.critic, after.critic)):
        moved = jax.tree.map(lambda a, b: bool((a != b).any()), before.params, now.params)
        assert all(jax.tree.leaves(moved))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after.actor, after.critic, case.metrics)))
    assert after.gradient_steps == config.epochs * config.minibatches


def test_chunks_keep_time_environment_and_agent_together():
    """C20: tag every entry with where it stands, and find it again."""
    algorithm = build("ippo", "switch/3", network="gru").algorithm
    time, envs, agents = 12, 5, 3
    tags = 10_000 * np.arange(time)[:, None, None] + 100 * np.arange(envs)[:, None] + np.arange(agents)
    chunks = np.asarray(algorithm.chunks.split(jnp.asarray(tags)))
    starts = np.asarray(algorithm.chunks.starts(jnp.asarray(tags)))
    for n in range(time // algorithm.chunks.length * envs):
        part, env = divmod(n, envs)
        for step in range(algorithm.chunks.length):
            t = part * algorithm.chunks.length + step
            assert chunks[step, n].tolist() == [10_000 * t + 100 * env + a for a in range(agents)]
        assert starts[n].tolist() == chunks[0, n].tolist()


def test_shuffling_chunks_moves_no_loss():
    """C19: a chunk takes its own memory, observations and advantages along wherever it is put."""
    loop = build("mappo", "debug/memory", network="gru")
    learner, rollout = rollout_of(loop)
    algorithm = loop.algorithm

    @jax.jit
    def losses(order):
        moved, batch, starts, _ = algorithm.prepare_batch(learner, rollout)
        batch = jax.tree.map(lambda x: x[:, order], batch)
        starts = jax.tree.map(lambda x: x[order], starts)
        grad = jax.grad(lambda p: algorithm.actor_loss(p, batch, starts.actor)[0])(learner.actor.params)
        return grad, algorithm.critic_loss(moved.critic.params, batch, starts.critic)[0]

    chunks = loop.collector.envs * loop.length // algorithm.chunks.length
    one, other = losses(jnp.arange(chunks)), losses(jax.random.permutation(jax.random.key(4), chunks))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_collected_rewards_belong_to_their_environments_and_agents():
    """C20, C21: in a rollout, what an agent did, saw and got stand at the same place."""
    loop = build("random", "debug/identity", envs=6, batch_steps=96)
    _, rollout = rollout_of(loop)
    target = rollout.observation.obs.argmax(-1)
    np.testing.assert_array_equal(rollout.reward, (rollout.action == target).astype(np.float32))
    over = np.asarray(rollout.terminated | rollout.truncated)
    assert over.any()
    # Where nothing ends the next observation is the next row; where it does, a new episode begins.
    going_on = ~over[:-1]
    np.testing.assert_array_equal(
        np.asarray(rollout.next_observation.obs)[:-1][going_on],
        np.asarray(rollout.observation.obs)[1:][going_on],
    )
    np.testing.assert_array_equal(np.asarray(rollout.first)[1:], over[:-1])


def test_a_common_critic_is_computed_once_an_environment():
    loop = build("mappo", "switch/3", share="all")
    observation = jax.eval_shape(loop.collector.prepared.reset, jax.random.key(0)).observation
    assert jax.eval_shape(loop.algorithm.critic.view, observation).shape == (
        1,
        loop.collector.spec.state_size,
    )


def advance(loop, updates):
    """One program for both, which compiles faster than two."""
    return jax.jit(lambda n: loop.advance(loop.init(jnp.int32(0)), n, jnp.float32(1e4)))(jnp.int32(updates))


@pytest.mark.parametrize("algorithm", ["ippo", "mappo"])
def test_what_stands_in_a_dead_agents_row_changes_nothing(algorithm):
    """C22: large noise or none there, the learner is the same to the bit."""

    @jax.jit  # one program for both
    def learner(garbage):
        return advance(build(algorithm, Death(garbage=garbage), network="gru"), 4).learner

    assert same(learner(300.0), learner(0.0))


def test_dead_agents_do_not_count_in_policy_loss_entropy_or_advantages():
    """C22: the gradient stays when the dead's actions, log-probabilities, masks and advantages are noise."""
    loop = build("mappo", Death())
    learner, rollout = rollout_of(loop)
    alive = rollout.observation.alive
    assert (~alive).any()

    def noisy(x, scale):
        mask = alive.reshape(*alive.shape, *[1] * (x.ndim - alive.ndim))
        return jnp.where(mask, x, (scale * jax.random.normal(jax.random.key(9), x.shape)).astype(x.dtype))

    other = rollout._replace(
        action=jnp.where(alive, rollout.action, 2),
        extras={
            "drawn": jnp.where(alive, rollout.action, 2),
            "log_prob": noisy(rollout.extras["log_prob"], 50),
        },
        observation=rollout.observation._replace(
            avail=jnp.where(alive[..., None], rollout.observation.avail, True)
        ),
    )

    @jax.jit
    def gradient(data):
        _, batch, starts, _ = loop.algorithm.prepare_batch(learner, data)
        grads = jax.grad(lambda p: loop.algorithm.actor_loss(p, batch, starts.actor)[0])(learner.actor.params)
        return grads, batch.advantage

    grads, advantage = gradient(rollout)
    assert same(grads, gradient(other)[0])
    living = np.asarray(advantage)[np.asarray(loop.algorithm.chunks.split(alive))]
    np.testing.assert_allclose([living.mean(), living.std()], [0, 1], atol=1e-2)


@dataclasses.dataclass(frozen=True)
class Scaled(Identity):
    """Identity with every reward multiplied."""

    scale: float = 1.0

    def step(self, key, state, actions):
        state, now = super().step(key, state, actions)
        return state, now._replace(reward=self.scale * now.reward)


@pytest.mark.parametrize("value_norm", ["running", "popart"])
def test_the_scale_of_rewards_does_not_move_the_policy(value_norm):
    """C24: values are compared with values, returns with returns; a thousandfold reward changes nothing."""

    @jax.jit  # one program for both
    def actor(scale):
        loop = build("ippo", Scaled(scale=scale), value_norm=value_norm)
        carry = loop.init(jnp.int32(0))
        # Before anything was seen values have no scale: begin at 0, which is 0 on every scale.
        params = carry.learner.critic.params
        params = {**params, "head": jax.tree.map(jnp.zeros_like, params["head"])}
        critic = carry.learner.critic._replace(params=params)
        carry = carry._replace(learner=carry.learner._replace(critic=critic))
        return loop.advance(carry, jnp.int32(5), jnp.int32(10)).learner.actor.params

    for one, thousand in zip(*map(jax.tree.leaves, (actor(1.0), actor(1000.0))), strict=True):
        np.testing.assert_allclose(one, thousand, atol=2e-4)


@pytest.mark.parametrize("value_norm", ["none", "running", "popart"])
def test_values_are_clipped_around_what_the_network_says_now(value_norm):
    """C24: before the first step new and old values are the same, so that no sample loses its gradient."""
    loop = build("ippo", Scaled(scale=50.0), value_norm=value_norm)
    learner, rollout = rollout_of(loop)

    @jax.jit
    def now_and_old(learner):
        moved, batch, starts, _ = loop.algorithm.prepare_batch(learner, rollout)
        value, _ = loop.algorithm.critic.values(
            moved.critic.params, batch.observation, starts.critic, batch.first
        )
        return value, batch.old_value

    np.testing.assert_allclose(*now_and_old(learner), atol=1e-5)


def test_popart_keeps_the_values_where_they_were():
    loop = build("ippo", "switch/2", share="agent", value_norm="popart")
    learner, rollout = rollout_of(loop)
    critics, groups = loop.algorithm.critic, loop.algorithm.critic.groups.of_agent
    target = 100.0 + 30.0 * jax.random.normal(jax.random.key(0), rollout.reward.shape) * jnp.array([1.0, 5.0])

    def raw(critic, norm):
        scaled, _ = critics.values(critic.params, rollout.observation, learner.critic_memory, rollout.first)
        return norm.denormalise(scaled, groups)

    counted = jnp.ones(target.shape, bool)
    critic, norm = critics.rescale(learner.critic, learner.value_norm, target, counted)
    assert norm.std[1] > 4 * norm.std[0]
    np.testing.assert_allclose(raw(critic, norm), raw(learner.critic, learner.value_norm), atol=1e-3)


@pytest.mark.parametrize("algorithm", ["ippo", "mappo"])
def test_value_of_a_cut_and_of_an_end_are_learnt(algorithm):
    """C1: one a step for ever is worth 1/(1-gamma) if it is only cut; ended, it is a finite sum."""
    gamma, length = 0.8, 4
    for ends in (False, True):
        options = {"gamma": gamma, "critic_lr": 5e-3, "epochs": 4, "gae_lambda": 0.9, "value_norm_decay": 0.9}
        loop = build(algorithm, Forever(ends=ends, time_limit=length), **options)

        @jax.jit
        def learnt(loop=loop):
            learner, rollout = advance(loop, 150).learner, rollout_of(loop)[1]
            values, _ = loop.algorithm.critic.values(
                learner.critic.params, rollout.observation, learner.critic_memory, rollout.first
            )
            return rollout, learner.value_norm.denormalise(values, (0, 0))

        rollout, values = jax.device_get(learnt())
        clock = np.round(np.asarray(rollout.observation.obs[..., 1]) * length)
        worth = (
            (1 - gamma ** (length - clock)) / (1 - gamma) if ends else np.full_like(clock, 1 / (1 - gamma))
        )
        np.testing.assert_allclose(values, worth, rtol=0.06)


def test_jit_equals_no_jit():
    """C29: no branch of returns, masks or losses depends on being traced."""
    loop = build("ippo", "debug/death", envs=2, batch_steps=8, epochs=1, minibatches=1, layers=1)
    learner, rollout = rollout_of(loop)

    def compute(learner, rollout):
        moved, batch, starts, metrics = loop.algorithm.prepare_batch(learner, rollout)
        actor = loop.algorithm.actor_loss(learner.actor.params, batch, starts.actor)
        critic = loop.algorithm.critic_loss(moved.critic.params, batch, starts.critic)
        return moved, batch, metrics, actor, critic

    fast = jax.jit(compute)(learner, rollout)
    with jax.disable_jit():
        slow = compute(learner, rollout)
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_separate_groups_learn_as_if_alone():
    """With share=agent an agent's parameters, optimiser and value scale depend on its own data only."""
    loop = build("ippo", "debug/identity", share="agent")
    learner, rollout = rollout_of(loop)
    other = rollout._replace(reward=rollout.reward.at[..., 1].multiply(-7.0))
    update = jax.jit(loop.algorithm.update)
    one, _ = update(learner, rollout, jax.random.key(0), CLOCK)
    two, _ = update(learner, other, jax.random.key(0), CLOCK)

    def agent(tree, index):
        return jax.tree.map(lambda x: x[index], (tree.actor, tree.critic, tree.value_norm))

    assert same(agent(one, 0), agent(two, 0))
    assert not same(agent(one, 1), agent(two, 1))


def test_learning_rates_fall_to_zero_over_the_budget():
    loop = build("ippo", "debug/identity", lr_decay=True)
    learner, rollout = rollout_of(loop)
    end = Clock(jnp.float32(100), jnp.float32(100))
    after, _ = jax.jit(loop.algorithm.update)(learner, rollout, jax.random.key(0), end)
    assert same(after.actor.params, learner.actor.params)
    assert not same(after.actor.optimiser, learner.actor.optimiser)


def test_a_state_critic_refuses_unlike_rewards_it_cannot_tell_apart():
    with pytest.raises(PhalanxError, match="choose reward=mean"):
        build("mappo", "switch/2", reward="own")
    build("mappo", "switch/2", reward="own", critic_share="agent")
    build("mappo", "debug/two_step", reward="own")


@pytest.mark.parametrize(
    ("options", "fits"), [({"batch_steps": 100}, "batch_steps="), ({"minibatches": 3}, "batch_steps=")]
)
def test_batches_that_cannot_be_cut_are_refused_with_one_that_can(options, fits):
    with pytest.raises(PhalanxError, match=fits) as refused:
        build("mappo", "switch/2", network="gru", **options)
    suggested = int(str(refused.value).split("use batch_steps=")[1].split(",")[0])
    build("mappo", "switch/2", network="gru", **{**options, "batch_steps": suggested})

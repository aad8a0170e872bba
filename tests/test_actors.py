"""What holds for every learner with actors, whatever the torso and the sharing (pitfalls C14, C18, C28)."""

from functools import partial
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import LONG, build
from test_ppo import CLOCK, rollout_of

from phalanx.algorithms.shared.optimiser import TrainState, make_rates
from phalanx.errors import PhalanxError
from phalanx.networks.sharing import partition
from phalanx.types import Clock

ALGORITHMS = ("ippo", "mappo", "ia2c", "maa2c", "coma", "mappo_distil")
ROLES = ("debug/roles", {"time_limit": 6})
SPEAK = ("mpe/simple_speaker_listener", {"max_cycles": 6, "continuous_actions": True})
# Between them each algorithm has both torsos and the three ways of sharing; `make test-long` has them all.
SOME = [
    ("ia2c", "mlp", "agent", ROLES),
    ("ia2c", "gru", "type", ROLES),
    ("maa2c", "gru", "all", ROLES),
    ("maa2c", "mlp", "type", SPEAK),
    ("coma", "gru", "all", ROLES),
    ("coma", "gru", "agent", ROLES),
    ("coma", "mlp", "type", ROLES),
    ("mappo_distil", "gru", "agent", ROLES),
    ("mappo_distil", "mlp", "all", ROLES),
    ("mappo_distil", "mlp", "type", SPEAK),
    ("ippo", "gru", "type", SPEAK),
]
OF_ACTORS = {"policy_loss", "entropy", "actor_lr", "actor_grad_norm"}
OF_CRITICS = {"value_loss", "explained_variance", "value_target", "value_target_std"}
OF_BOTH = OF_ACTORS | OF_CRITICS | {"critic_lr", "critic_grad_norm"}
OF_PPO = OF_BOTH | {"kl", "clip_fraction"}
# What each logs by group where there are several.
LOGGED = {
    "ippo": OF_PPO,
    "mappo": OF_PPO,
    "ia2c": OF_BOTH,
    "maa2c": OF_BOTH,
    "coma": OF_ACTORS | {"advantage_size"},  # its critic is one for all unless told otherwise
    "mappo_distil": OF_PPO | {"distil_error", "distil_kl", "distil_lr", "distil_grad_norm"},
}
ALL = [(*each, ROLES) for each in product(ALGORITHMS, ("mlp", "gru"), ("all", "type", "agent"))]


@pytest.mark.parametrize(("name", "network", "share", "env"), SOME + (ALL if LONG else []))
def test_the_ratio_is_1_and_every_parameter_gets_a_gradient(name, network, share, env):
    loop = build(name, env[0], env_options=env[1], network=network, share=share)
    algorithm = loop.algorithm
    learner, rollout = rollout_of(loop)

    @jax.jit
    def compute(learner, rollout):
        def acting(obs, memory, first):
            return algorithm.actor.outputs(learner.actor.params, obs[None], memory, first[None])[0][0]

        seen = rollout.observation
        acted = jax.vmap(acting)(seen.obs, rollout.memory, rollout.first)
        parts = jax.tree.map(algorithm.chunks.split, (seen.obs, rollout.first, acted))
        learnt, _ = algorithm.actor.outputs(
            learner.actor.params, parts[0], algorithm.chunks.starts(rollout.memory), parts[1]
        )
        return parts[2], learnt, algorithm.update(learner, rollout, jax.random.key(3), CLOCK)

    acted, learnt, (after, metrics) = jax.device_get(compute(learner, rollout))
    assert np.asarray(rollout.first)[1:].any()
    np.testing.assert_allclose(np.exp(learnt - acted), 1.0, atol=1e-5)
    if "log_prob" in rollout.extras:
        seen, extras = jax.tree.map(algorithm.chunks.split, (rollout.observation, rollout.extras))
        again = algorithm.actor.distribution.log_prob(learnt, seen.avail, extras["drawn"])
        ratio = np.exp(np.asarray(again - extras["log_prob"]))[np.asarray(seen.alive)]
        np.testing.assert_allclose(ratio, 1.0, atol=1e-5)
    trained = [each for each in after if isinstance(each, TrainState)]
    assert len(trained) == 2
    for network in trained:
        (adam,) = (part for part in network.optimiser if hasattr(part, "mu"))
        for path, leaf in jax.tree_util.tree_leaves_with_path(adam.mu):
            assert (np.abs(leaf).reshape(len(leaf), -1).max(1) > 0).all(), jax.tree_util.keystr(path)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))
    of_group = {metric for metric in metrics if "/" in metric}
    assert {metric.partition("/")[0] for metric in of_group} == (set() if share == "all" else LOGGED[name])
    if (
        env is ROLES and share != "all"
    ):  # a scout may do 2 things and a worker 4; both hardly know anything yet
        found = [metrics["entropy/scout"], metrics["entropy/worker"]]
        np.testing.assert_allclose(found, np.log([2, 4]), atol=0.1)


@pytest.mark.parametrize("name", ["mappo", "qmix", "masac"])
@pytest.mark.parametrize("normalise_obs", [False, True])
def test_parameters_are_cast_to_16_bits_once_and_not_at_every_step(normalise_obs, name):
    """A policy that is ready acts as it did, and the loop over steps gets its matrices in 16 bits."""
    options = {"network": "gru", "precision": "bfloat16", "normalise_obs": normalise_obs}
    options |= {"qmix": {"reward": "mean"}, "masac": {"burn_in": 0}}.get(name, {})
    loop = build(name, *ROLES[:1], env_options=ROLES[1], **options)
    collector, key = loop.collector, jax.random.key(0)
    learner = jax.jit(lambda: loop.algorithm.init(key, collector.envs))()
    policy, actor = loop.algorithm.policy(learner), loop.algorithm.actor
    actors = jax.jit(collector.start_one)(key)
    shown = actors.running.observation, actors.running.first, actors.memory
    acted = [jax.jit(partial(actor.act, greedy=True))(p, *shown, key) for p in (policy, actor.ready(policy))]
    jax.tree.map(np.testing.assert_array_equal, *acted)

    made = jax.make_jaxpr(partial(collector.collect_one, length=3))(policy, actors)
    (scan,) = (equation for equation in made.eqns if equation.primitive.name == "scan")
    constants = [v.aval for v in scan.invars[: scan.params["num_consts"]]]
    matrices = [each.dtype for each in constants if each.ndim == 3]
    assert len(matrices) >= 4, "of a group: two layers, the gru, the head"
    assert set(matrices) == {jnp.dtype("bfloat16")}


def test_what_an_actor_of_your_own_may_need_is_not_cast():
    class Policy(NamedTuple):
        params: dict
        seen: jax.Array
        key: jax.Array

    actor = build("ippo", *ROLES[:1], env_options=ROLES[1], precision="bfloat16").algorithm.actor
    policy = Policy({"w": jnp.ones(2)}, jnp.int32(2**24 + 1), jax.random.key(0))
    assert actor.ready(policy) is policy


def test_what_is_logged_of_a_group_is_the_mean_over_its_living_agents():
    """One network for all that is told of one agent alone, and the same network in a group for each agent."""
    together, apart = (build("ippo", *ROLES[:1], env_options=ROLES[1], share=s) for s in ("all", "agent"))
    learner, rollout = rollout_of(together)

    @jax.jit
    def compute(learner, rollout):
        _, batch, starts, _ = together.algorithm.prepare_batch(learner, rollout)
        moved = batch.old_log_prob + jax.random.normal(jax.random.key(3), batch.old_log_prob.shape) / 5
        seen = batch.observation
        alive = jax.random.bernoulli(jax.random.key(4), 0.7, seen.alive.shape)
        batch = batch._replace(old_log_prob=moved, observation=seen._replace(alive=alive))

        def alone(agent):
            only = batch._replace(
                observation=batch.observation._replace(alive=alive & (jnp.arange(2) == agent))
            )
            return together.algorithm.actor_loss(learner.actor.params, only, starts.actor)[1]

        each = jax.tree.map(lambda p: jnp.concatenate([p, p]), (learner.actor.params, learner.critic.params))
        critics = (
            loop.algorithm.critic_loss(params, batch, starts.critic)[1]["value_loss"]
            for loop, params in ((together, learner.critic.params), (apart, each[1]))
        )
        return [alone(0), alone(1)], apart.algorithm.actor_loss(each[0], batch, starts.actor)[1], *critics

    alone, logged, of_all, of_each = jax.device_get(compute(learner, rollout))
    assert logged.keys() == {"policy_loss", "entropy", "kl", "clip_fraction"}
    for name, values in logged.items():
        np.testing.assert_allclose(
            values, np.concatenate([one[name] for one in alone]), rtol=1e-5, err_msg=name
        )
        assert values[0] != values[1]
    np.testing.assert_allclose(of_each.mean(), of_all[0], rtol=1e-5)
    assert of_each[0] != of_each[1]


GROUPS = partition(["marine", "marine", "medivac"])


def at(these, progress):
    return np.asarray(these.at(Clock(jnp.float32(progress), jnp.float32(1))))


def test_groups_have_their_own_rates_and_decay():
    same = make_rates(1e-3, GROUPS)
    np.testing.assert_allclose(at(same, 0.5), [1e-3, 1e-3])
    falling = make_rates(1e-3, GROUPS, decay=True, by_name="medivac=4e-3:2e-3")
    np.testing.assert_allclose(at(falling, 0.0), [1e-3, 4e-3])
    np.testing.assert_allclose(at(falling, 0.5), [5e-4, 3e-3])
    np.testing.assert_allclose(at(falling, 1.0), [0.0, 2e-3], atol=1e-9)
    kept = make_rates(1e-3, GROUPS, by_name="marine=2e-3:0, medivac=5e-4")
    np.testing.assert_allclose(at(kept, 1.0), [0.0, 5e-4], atol=1e-9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("medevac=1e-3", "Did you mean medivac"),
        ("marine", "no group ''"),
        ("marine=fast", "not 'marine=fast'"),
        ("marine=0", "not 'marine=0'"),
        ("marine=1e-3:-1", "marine=1e-3:1e-4"),
        ("marine=nan", "not 'marine=nan'"),
    ],
)
def test_a_wrong_rate_is_refused_in_one_line(text, said):
    with pytest.raises(PhalanxError, match="group_lr") as refused:
        make_rates(1e-3, GROUPS, by_name=text)
    assert said in str(refused.value)


def test_a_group_learns_at_its_own_rate_which_is_logged():
    """At a thousandth of the rate a group moves a thousandth as far; both rates are in the metrics."""
    loop = build("mappo", "debug/roles", share="type", group_lr="scout=1e-6", epochs=1, minibatches=1)
    names = loop.algorithm.actor_groups.names
    assert "scout" in names
    learner, rollout = rollout_of(loop)
    after, metrics = jax.jit(loop.algorithm.update)(learner, rollout, jax.random.key(0), CLOCK)

    def moved(half):
        pairs = zip(jax.tree.leaves(half[0].params), jax.tree.leaves(half[1].params), strict=True)
        return np.max([np.abs(a - b).reshape(len(a), -1).max(1) for a, b in pairs], axis=0)

    distance = dict(zip(names, moved((learner.actor, after.actor)), strict=True))
    others = [distance[name] for name in names if name != "scout"]
    assert 0 < distance["scout"] < 0.01 * min(others)
    np.testing.assert_allclose(metrics["actor_lr/scout"], 1e-6)
    assert {f"actor_grad_norm/{name}" for name in names} < set(metrics)

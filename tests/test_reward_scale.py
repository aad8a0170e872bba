"""`reward_norm` of learners on rollouts: rewards by running statistics of single rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, same
from test_target_critic import rollouts_of
from test_warm_start import drawn, setup_of

from phalanx.algorithms.shared.reward_scale import REWARD_DECAY
from phalanx.errors import PhalanxError
from phalanx.training.warm_start import start_from


def normalised(rewards, kind):
    """The last of some rollouts' rewards, by statistics in which each rollout has a weight of its own."""
    weights = np.array([(1 - REWARD_DECAY) * REWARD_DECAY**age for age in reversed(range(len(rewards)))])
    weights /= weights.sum()
    mean = sum(w * r.mean() for w, r in zip(weights, rewards, strict=True))
    var = sum(w * ((r - mean) ** 2).mean() for w, r in zip(weights, rewards, strict=True))
    return (rewards[-1] - (mean if kind == "standardise" else 0)) / np.sqrt(var)


@pytest.mark.parametrize(("name", "kind"), [("ia2c", "standardise"), ("coma", "scale")])
def test_targets_are_those_of_normalised_rewards(name, kind):
    """Against the learner without the option, which is given rewards that were normalised by hand."""
    options = {"reward": "mean"} | ({"value_norm": "none"} if name == "ia2c" else {})
    loop, plain = (build(name, "debug/roles", reward_norm=norm, **options) for norm in (kind, "none"))
    learner, rollouts = rollouts_of(loop, 3)
    # Rewards of each rollout on a scale of its own.
    rollouts = [each._replace(reward=(1 + 2 * k) * each.reward + k) for k, each in enumerate(rollouts)]
    rewards = [np.asarray(loop.algorithm.rewards.of(each.reward)) for each in rollouts]

    def targets(algorithm, learner, rollout):
        if name == "coma":
            norm = algorithm.reward_scale.update(learner.reward_norm, algorithm.rewards.of(rollout.reward))
            learner = learner._replace(reward_norm=norm)
            return learner, algorithm.targets(learner, rollout, jax.random.key(0))
        learner, batch, _, _ = algorithm.prepare_batch(learner, rollout)
        return learner, batch.target

    with_norm, without = (
        jax.jit(lambda *data, a=each.algorithm: targets(a, *data)) for each in (loop, plain)
    )
    for k, rollout in enumerate(rollouts):
        by_hand = jnp.asarray(normalised(rewards[: k + 1], kind), jnp.float32)
        _, expected = without(learner._replace(reward_norm=()), rollout._replace(reward=by_hand))
        learner, found = with_norm(learner, rollout)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["mappo", "coma"])
def test_without_it_nothing_is_kept(name):
    learner = jax.eval_shape(lambda: build(name, "debug/roles").algorithm.init(jax.random.key(0), 4))
    assert not jax.tree.leaves(learner.reward_norm)


@pytest.mark.parametrize("name", ["ippo", "coma"])
def test_a_run_that_starts_from_another_takes_the_scale_of_its_rewards(name):
    setup = setup_of(name, share="type", reward_norm="scale")
    trained = drawn(setup, 1)
    begun = start_from("SOURCE", setup, trained, setup)(drawn(setup, 2)).learner
    assert same(begun.reward_norm, trained.learner.reward_norm)
    with pytest.raises(
        PhalanxError, match="reward_norm=scale, and this run has reward_norm=none: use the same"
    ):
        start_from("SOURCE", setup, trained, setup_of(name, share="type"))

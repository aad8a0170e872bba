"""Curiosity: a wrapper around an algorithm that adds an intrinsic reward for novel steps.

The bonus comes from a model in `novelty.py`, ICM or RND, times `curiosity_weight`. The model is a part of the
learner and not of the policy: acting, evaluations and exported teams do not use it.

The bonus of a rollout is computed before the model learns from that rollout. A replay buffer stores the
environment's rewards, and the bonus of a sample is computed with the newest model: a step that was new when
it was collected may be known by now.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from phalanx.algorithms.base import Algorithm, Learner, NetworkSummary
from phalanx.algorithms.shared.novelty import ICM, RND, Experience, Novelty
from phalanx.algorithms.shared.team import Rewards, TeamConfig, summary
from phalanx.algorithms.shared.wrapped import MappedReplay, Wrapped
from phalanx.data.replay import Episodes
from phalanx.errors import PhalanxError
from phalanx.ops import masks
from phalanx.ops.returns import returns_so_far
from phalanx.types import Array, Clock, Picture, PyTree, Transition

OPTIONS = ("curiosity_weight", "curiosity_lr", "curiosity_share")
WEIGHTS = {"icm": 0.01, "rnd": 1.0}  # as in the papers


def with_curiosity(algorithm: Algorithm, config: TeamConfig) -> Algorithm:
    """An algorithm with the curiosity that its options ask for, if any."""
    if config.icm and config.rnd:
        raise PhalanxError("icm and rnd are two kinds of curiosity: leave one out")
    if config.icm or config.rnd:
        return Curious(algorithm, config)
    defaults = {each.name: each.default for each in dataclasses.fields(config)}
    for name in OPTIONS:
        if getattr(config, name) != defaults[name]:
            raise PhalanxError(f"{name} is an option of curiosity: add icm or rnd, or leave it out")
    return algorithm


class CuriousLearner(NamedTuple):
    """A learner and the state of its curiosity model."""

    learner: Learner
    """of the algorithm inside, without its replay"""
    replay: PyTree
    novelty: PyTree
    """the state of the model"""
    returns: Array
    """(B, A): the sum of bonuses in each running episode so far"""
    last_return: Array
    """(G,): the mean of that over the episodes that ended last; 0 before the first"""

    @property
    def gradient_steps(self) -> Array:
        return self.learner.gradient_steps


class Curious(Wrapped):
    """An algorithm that learns from rewards plus a curiosity bonus."""

    options = "icm and rnd"

    def __init__(self, algorithm: Algorithm, config: TeamConfig):
        super().__init__(algorithm, config)
        other = getattr(config, "reward_norm", "none")
        if other != "none":
            raise PhalanxError(
                f"reward_norm={other} would also scale the bonus of curiosity: use normalise_reward instead"
            )
        spec, self.name = self.spec, "icm" if config.icm else "rnd"
        self.inputs = spec.obs_size - config.inputs["last_action"] * spec.n_actions
        self.novelty: Novelty = (ICM if config.icm else RND)(config, spec, self.inputs)
        self.weight = WEIGHTS[self.name] if config.curiosity_weight is None else config.curiosity_weight
        # Where a team has one reward it keeps one, which critics and mixers rely on: all get the mean bonus.
        self.rewards = Rewards("mean" if spec.common_reward else "own", spec)
        self.optimisers = (*algorithm.optimisers, self.novelty.optimiser)

    def init(self, key: Array, envs: int) -> CuriousLearner:
        learner, replay = self.init_inside(key, envs)
        return CuriousLearner(
            learner=learner,
            replay=replay,
            novelty=self.novelty.init(jax.random.fold_in(key, 1), envs),
            returns=jnp.zeros((envs, self.spec.n_agents)),
            last_return=jnp.zeros(self.novelty.groups.count),
        )

    def update(self, learner: CuriousLearner, rollout: Transition, key: Array, clock: Clock):
        # What comes for a replay is as it was played, and may be normalised only when it is sampled.
        as_sampled = self.replay.function(rollout) if isinstance(self.replay, MappedReplay) else rollout
        seen, groups = self._experience(as_sampled), self.novelty.groups
        before = self.novelty.observe(learner.novelty, rollout.first, seen)
        bonus = self.novelty.bonus(before, seen)
        novelty, of_model = self.novelty.train(before, seen, clock)
        learner = self._count(learner, rollout, bonus)._replace(novelty=novelty)
        if self.replay is None:
            rollout = self._rewarded(rollout, bonus)
        learner, metrics = self.update_inside(learner, rollout, key, clock, Partial(self._sampled, novelty))
        own = {
            **groups.mean({"intrinsic_reward": bonus}, seen.counted),
            "intrinsic_return": learner.last_return,
            **of_model,
        }
        return learner, {**metrics, **groups.named(own)}

    def _count(self, learner: CuriousLearner, rollout: Transition, bonus: Array) -> CuriousLearner:
        """Add the bonus (T, B, A) of a rollout to the returns."""
        running, returns = returns_so_far(learner.returns, rollout.first, bonus, gamma=1.0)
        ended = jnp.broadcast_to(rollout.completed[..., None], bonus.shape)
        mean = masks.grouped_mean(returns, ended, self.novelty.groups.membership)
        return learner._replace(
            returns=running, last_return=jnp.where(ended.any(), mean, learner.last_return)
        )

    def _sampled(self, novelty: PyTree, sample: Transition | Episodes) -> Any:
        return self._rewarded(sample, self.novelty.bonus(novelty, self._experience(sample)))

    def _rewarded(self, steps: Any, bonus: Array) -> Any:
        return steps._replace(reward=steps.reward + self.weight * self.rewards.of(bonus))

    def _experience(self, steps: Transition | Episodes) -> Experience:
        """Steps as models see them."""
        if isinstance(steps, Episodes):
            before = jax.tree.map(lambda x: x[:-1], steps.observation)
            after = jax.tree.map(lambda x: x[1:], steps.observation)
            taken = steps.valid
        else:
            before, after = steps.observation, steps.next_observation
            taken = jnp.ones_like(steps.terminated) if steps.broken is None else ~steps.broken
        return Experience(
            obs=self._seen(before.obs),
            action=steps.action,
            avail=before.avail,
            next_obs=self._seen(after.obs),
            counted=before.alive & after.alive & taken[..., None],
        )

    def _seen(self, obs: Any) -> Any:
        """An observation without the last action, which comes last."""
        if isinstance(obs, Picture):
            return obs._replace(features=obs.features[..., : self.inputs])
        return obs[..., : self.inputs]

    def summary(self) -> list[NetworkSummary]:
        shapes = jax.eval_shape(lambda: self.novelty.parameters(self.novelty.init(jax.random.key(0), 1)))
        size = sum(leaf.size for leaf in jax.tree.leaves(shapes)) // self.novelty.groups.count
        own = summary(self.name, self.novelty.network, self.novelty.groups, self.spec, "own observation")
        return [*super().summary(), own._replace(parameters_each=size)]

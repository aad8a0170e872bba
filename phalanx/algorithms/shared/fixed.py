"""Algorithms that do not learn: they play as their `actor` does."""

from typing import NamedTuple

import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm, AlgorithmConfig
from phalanx.types import Array, Clock, Transition


class FixedLearner(NamedTuple):
    """An empty learner."""

    gradient_steps: Array
    replay: None = None


class FixedPolicy(Algorithm):
    """A team that does not change. Subclasses make its `actor`."""

    Config = AlgorithmConfig
    action_kinds = frozenset({"discrete", "continuous"})

    def init(self, key: Array, envs: int):
        return FixedLearner(jnp.int32(0))

    def policy(self, learner: FixedLearner):
        return ()

    def update(self, learner: FixedLearner, rollout: Transition, key: Array, clock: Clock):
        return learner, {}

"""Algorithms that do not learn: they play as their `actor` does."""

from typing import NamedTuple

import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm, AlgorithmConfig
from phalanx.types import Array


class FixedLearner(NamedTuple):
    """There is nothing to keep."""

    gradient_steps: Array
    replay: None = None


class FixedPolicy(Algorithm):
    """A team that does not change. Subclasses make its `actor`."""

    Config = AlgorithmConfig
    action_kinds = frozenset({"discrete", "continuous"})

    def init(self, key, envs):
        return FixedLearner(jnp.int32(0))

    def policy(self, learner):
        return ()

    def update(self, learner, rollout, key, clock):
        return learner, {}

"""Random: every agent draws one of its available actions. The floor that learning must leave behind."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm
from phalanx.config import option
from phalanx.ops import distributions
from phalanx.types import Array


@dataclass(frozen=True)
class RandomConfig:
    """There is nothing to learn, so there is only the pace."""

    batch_steps: int = option(2048, "env steps between two looks at the clock", at_least=1)


class RandomLearner(NamedTuple):
    """Nothing."""

    gradient_steps: Array


class Random(Algorithm):
    """Uniform over the available actions, in evaluation too."""

    Config = RandomConfig
    action_kinds = frozenset({"discrete"})

    @property
    def steps_per_update(self) -> int:
        return self.config.batch_steps

    def init(self, key, envs):
        return RandomLearner(jnp.int32(0))

    def policy(self, learner):
        return ()

    def memory(self, batch):
        return jnp.zeros((batch, self.spec.n_agents, 0))

    def act(self, policy, observation, first, memory, key, greedy):
        logits = jnp.zeros(observation.avail.shape)
        return distributions.sample(key, logits, observation.avail), memory, {}

    def update(self, learner, rollout, key, clock):
        return learner, {}


ALGORITHM = Random

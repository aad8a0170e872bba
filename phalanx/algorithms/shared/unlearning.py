"""What algorithms that learn nothing have in common."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm
from phalanx.config import option
from phalanx.types import Array


@dataclass(frozen=True)
class UnlearningConfig:
    """There is nothing to learn, so there is only the pace."""

    batch_steps: int = option(2048, "env steps between two looks at the clock", at_least=1)


class Nothing(NamedTuple):
    """What is learnt."""

    gradient_steps: Array


class Unlearning(Algorithm):
    """A team that stays as it is."""

    Config = UnlearningConfig
    action_kinds = frozenset({"discrete", "continuous"})

    @property
    def steps_per_update(self) -> int:
        return self.config.batch_steps

    def init(self, key, envs):
        return Nothing(jnp.int32(0))

    def policy(self, learner):
        return ()

    def update(self, learner, rollout, key, clock):
        return learner, {}

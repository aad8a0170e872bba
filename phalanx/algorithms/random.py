"""Random: every agent samples one of its available actions. The baseline that learning must beat."""

import jax
import jax.numpy as jnp

from phalanx.algorithms.base import Actor, AlgorithmConfig
from phalanx.algorithms.shared.fixed import FixedPolicy
from phalanx.ops import distributions
from phalanx.types import Array, EnvSpec, Observation, PyTree

NAMES = {
    "random": "Random: every agent samples one of its available actions: what learning must beat.",
    "rand": "Another name of random.",
}


class RandomActor(Actor):
    """Uniform over the available actions, or over the range of continuous ones, in evaluation too."""

    def __init__(self, spec: EnvSpec):
        self.spec = spec

    def initial_memory(self, batch: int):
        return jnp.zeros((batch, self.spec.n_agents, 0))

    def act(
        self, policy: PyTree, observation: Observation, first: Array, memory: Array, key: Array, greedy: bool
    ):
        avail = observation.avail
        if self.spec.action_kind == "continuous":
            low, high = self.spec.action_range
            return jax.random.uniform(key, avail.shape, minval=low, maxval=high), memory, {}
        return distributions.sample(key, jnp.zeros(avail.shape), avail), memory, {}


class Random(FixedPolicy):
    """A team of random agents."""

    def __init__(self, config: AlgorithmConfig, spec: EnvSpec):
        super().__init__(config, spec)
        self.actor = RandomActor(spec)


ALGORITHM = Random

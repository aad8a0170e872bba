"""Random: every agent draws one of its available actions. The floor that learning must leave behind."""

import jax
import jax.numpy as jnp

from phalanx.algorithms.shared.unlearning import Unlearning
from phalanx.ops import distributions


class Random(Unlearning):
    """Uniform over the available actions, or over the range of continuous ones, in evaluation too."""

    def memory(self, batch):
        return jnp.zeros((batch, self.spec.n_agents, 0))

    def act(self, policy, observation, first, memory, key, greedy):
        avail = observation.avail
        if self.spec.action_kind == "continuous":
            low, high = self.spec.action_range
            return jax.random.uniform(key, avail.shape, minval=low, maxval=high), memory, {}
        return distributions.sample(key, jnp.zeros(avail.shape), avail), memory, {}


ALGORITHM = Random

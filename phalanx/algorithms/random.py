"""Random: every agent draws one of its available actions. The floor that learning must leave behind."""

import jax.numpy as jnp

from phalanx.algorithms.shared.unlearning import Unlearning
from phalanx.ops import distributions


class Random(Unlearning):
    """Uniform over the available actions, in evaluation too."""

    def memory(self, batch):
        return jnp.zeros((batch, self.spec.n_agents, 0))

    def act(self, policy, observation, first, memory, key, greedy):
        logits = jnp.zeros(observation.avail.shape)
        return distributions.sample(key, logits, observation.avail), memory, {}


ALGORITHM = Random

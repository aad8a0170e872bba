"""Stochastic policies: their options, and how they act."""

from dataclasses import dataclass

import jax.numpy as jnp

from phalanx.algorithms.shared.reward_scale import RewardScaleConfig
from phalanx.algorithms.shared.team import NetworkActor
from phalanx.config import option
from phalanx.networks.sharing import SharedNetwork
from phalanx.ops import distributions
from phalanx.ops.distributions import Distribution
from phalanx.types import Array, Observation, PyTree


@dataclass(frozen=True)
class PolicyConfig(RewardScaleConfig):
    """The options of every learner with a stochastic policy."""

    chunk: int = option(16, "steps of backpropagation through time in a gru", at_least=1)
    entropy: float = option(0.01, "weight of the entropy bonus", at_least=0)


class PolicyActor(NetworkActor):
    """A stochastic policy for each agent."""

    def __init__(self, network: SharedNetwork, distribution: Distribution):
        super().__init__(network)
        self.distribution = distribution

    def act(
        self, policy: PyTree, observation: Observation, first: Array, memory: Array, key: Array, greedy: bool
    ):
        out, memory = self.one_step(policy, observation.obs, memory, first)
        avail, dist = observation.avail, self.distribution
        drawn = dist.mode(out, avail) if greedy else dist.sample(key, out, avail)
        extras = {"drawn": drawn, "log_prob": dist.log_prob(out, avail, drawn)}
        return dist.action(drawn), memory, extras

    @property
    def preference(self) -> str:
        return "probability" if isinstance(self.distribution, distributions.Categorical) else ""

    def preferences(self, policy: PyTree, observation: Observation, first: Array, memory: Array):
        out, _ = self.one_step(policy, observation.obs, memory, first)
        return jnp.exp(distributions.log_probs(out, observation.avail))

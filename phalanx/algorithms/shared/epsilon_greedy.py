"""Epsilon-greedy acting on action values."""

from typing import Any

import jax

from phalanx.algorithms.shared.team import ExploringPolicy, NetworkActor
from phalanx.networks.sharing import SharedNetwork
from phalanx.ops import distributions
from phalanx.types import Array, Observation, PyTree


class EpsilonGreedy(NetworkActor):
    """Each agent takes its best action, or with probability epsilon a random one."""

    def __init__(self, network: SharedNetwork, dueling: bool):
        super().__init__(network)
        self.dueling = dueling

    def outputs(self, params: PyTree, obs: Any, memory: Array, first: Array) -> tuple[Array, Array]:
        out, memories = super().outputs(params, obs, memory, first)
        return self._values(out), memories

    def outputs_of_both(
        self, params: PyTree, frozen: PyTree, obs: Any, memory: Array, first: Array
    ) -> tuple[Array, Array]:
        """As `outputs`, without memories, of two sets of parameters; the second gets no gradient."""
        out, frozen_out = self.network.apply_both(params, frozen, obs, memory, first)
        return self._values(out), self._values(frozen_out)

    def _values(self, out: Array) -> Array:
        if not self.dueling:
            return out
        # Wang et al. 2016, https://arxiv.org/abs/1511.06581: the first output is the value of the state.
        advantage = out[..., 1:]
        return out[..., :1] + advantage - advantage.mean(-1, keepdims=True)

    def act(
        self,
        policy: ExploringPolicy,
        observation: Observation,
        first: Array,
        memory: Array,
        key: Array,
        greedy: bool,
    ):
        q, memory = self.one_step(policy.params, observation.obs, memory, first)
        best = distributions.mode(q, observation.avail)
        if greedy:
            return best, memory, {}
        # Drawn once, from the mixture of both: on a CPU a draw costs more than a small network.
        greedily = jax.nn.one_hot(best, q.shape[-1])
        log_policy = distributions.explored(greedily, observation.avail, policy.epsilon)
        return distributions.sample(key, log_policy, observation.avail), memory, {}

    @property
    def preference(self) -> str:
        return "Q-value"

    def preferences(self, policy: ExploringPolicy, observation: Observation, first: Array, memory: Array):
        return self.one_step(policy.params, observation.obs, memory, first)[0]

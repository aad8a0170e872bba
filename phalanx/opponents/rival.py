"""A team that acts for parameters that are given: what networks see is built here from bare observations."""

from typing import NamedTuple

import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm
from phalanx.envs.base import no_action
from phalanx.envs.wrappers import policy_input
from phalanx.types import Array, EnvSpec, Observation, PyTree


class RivalMemory(NamedTuple):
    """What a team remembers from step to step."""

    network: PyTree
    last_action: Array
    """(B, A) or (B, A, U); `no_action` before the first"""


class Rival:
    """How a team acts that was made for the bare environment `spec`."""

    def __init__(self, spec: EnvSpec, algorithm: Algorithm):
        self.spec, self.algorithm = spec, algorithm
        self._inputs = algorithm.config.inputs

    def start(self, batch: int) -> RivalMemory:
        """The memory before an episode."""
        none_yet = no_action(self.spec)
        last = jnp.broadcast_to(none_yet, (batch, *none_yet.shape))
        return RivalMemory(self.algorithm.actor.initial_memory(batch), last)

    def act(
        self,
        params: PyTree,
        observation: Observation,
        first: Array,
        memory: RivalMemory,
        key: Array,
        greedy: bool,
    ) -> tuple[Array, RivalMemory]:
        """Choose actions, (B, A) or (B, A, U), from observations as the environment gives them, (B, ...)."""
        none_yet = no_action(self.spec)
        begins = first.reshape(-1, *[1] * none_yet.ndim)
        seen = policy_input(
            observation.obs,
            observation.alive,
            jnp.where(begins, none_yet, memory.last_action),
            self.spec,
            self._inputs["agent_id"],
            self._inputs["last_action"],
        )
        action, network, _ = self.algorithm.actor.act(
            params, observation._replace(obs=seen), first, memory.network, key, greedy
        )
        return action, RivalMemory(network, action)

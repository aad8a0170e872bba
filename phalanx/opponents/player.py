"""A team that acts with given parameters. Network inputs are built here from plain observations."""

from typing import NamedTuple

import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm
from phalanx.envs.base import no_action
from phalanx.envs.wrappers import policy_input
from phalanx.types import Array, EnvSpec, Observation, PyTree


class PlayerMemory(NamedTuple):
    """What a team remembers from step to step."""

    network: PyTree
    last_action: Array
    """(B, A) or (B, A, U); `no_action` before the first"""


class Acted(NamedTuple):
    """One step of acting, (B, ...): those fields of `Transition` that the environment has no part in."""

    observation: Observation
    first: Array
    memory: PyTree
    action: Array
    extras: PyTree


class Player:
    """How a team acts that was made for the bare environment `spec`."""

    def __init__(self, spec: EnvSpec, algorithm: Algorithm):
        self.spec, self.algorithm = spec, algorithm
        self._inputs = algorithm.config.inputs

    def start(self, batch: int) -> PlayerMemory:
        """The memory before an episode."""
        none_yet = no_action(self.spec)
        last = jnp.broadcast_to(none_yet, (batch, *none_yet.shape))
        return PlayerMemory(self.algorithm.actor.initial_memory(batch), last)

    def act(
        self,
        params: PyTree,
        observation: Observation,
        first: Array,
        memory: PlayerMemory,
        key: Array,
        greedy: bool,
    ) -> tuple[Array, PlayerMemory]:
        """Choose actions, (B, A) or (B, A, U), from observations as the environment gives them, (B, ...)."""
        acted, memory = self.act_to_learn(params, observation, first, memory, key, greedy)
        return acted.action, memory

    def act_to_learn(
        self,
        params: PyTree,
        observation: Observation,
        first: Array,
        memory: PlayerMemory,
        key: Array,
        greedy: bool,
    ) -> tuple[Acted, PlayerMemory]:
        """As `act`, with everything that a learner keeps of a step."""
        none_yet = no_action(self.spec)
        begins = first.reshape(-1, *[1] * none_yet.ndim)
        seen = self.sees(observation, jnp.where(begins, none_yet, memory.last_action))
        action, network, extras = self.algorithm.actor.act(params, seen, first, memory.network, key, greedy)
        return Acted(seen, first, memory.network, action, extras), PlayerMemory(network, action)

    def sees(self, observation: Observation, last_action: Array) -> Observation:
        """What the networks see of observations, (..., A, O), after actions, (..., A) or (..., A, U)."""
        alive, inputs = observation.alive, self._inputs
        obs = policy_input(
            observation.obs, alive, last_action, self.spec, inputs["agent_id"], inputs["last_action"]
        )
        return observation._replace(obs=obs)

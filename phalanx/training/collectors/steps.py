"""What the hosted collector knows between two steps of its environments, and keeps of each."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from phalanx.envs.host.base import HostObservation, HostStep
from phalanx.envs.host.pool import PoolStep
from phalanx.types import Array, EnvSpec, Observation, PyTree


class HostedActors(NamedTuple):
    """What is known of B environments between two steps, without the environments themselves, (S, B, ...)."""

    observation: Observation
    """as the environments gave it"""
    first: Any
    last_action: Any
    memory: PyTree
    opponent: PyTree
    """the memory of those who play the other side, if anybody does"""
    key: Any
    """(S, 2) uint32: the two words of the key of each seed; words cost less to hand over than keys"""
    episode_seeds: Any
    """(S, B, 2) uint32: the two words of the seed of each running episode"""


class Draw(NamedTuple):
    """The random numbers of a step, as words."""

    act: Any
    """(S, 2) uint32: the key of acting"""
    next_seeds: Any
    """(S, B, 2) uint32: seeds of the next episodes, for environments that end with this step"""
    key: Any
    """(S, 2) uint32: the key that later steps are drawn from"""


class Decision(NamedTuple):
    """What `act` computes before the environments are stepped, (S, B, ...)."""

    action: Any
    memory: PyTree
    extras: PyTree
    opponent: PyTree = None
    """the memory of those who play the other side"""
    acted: PyTree = None
    """what they want to find in the rollout's `info`"""
    joint: Any = None
    """the actions of all agents, where these are not all the learner's"""

    @property
    def told(self) -> Any:
        """What the environments are told."""
        return self.action if self.joint is None else self.joint


class Step(NamedTuple):
    """A step of all environments, (S, B, ...) in numpy: what a transition is made of."""

    observation: Observation
    """as the environments gave it"""
    first: Any
    last_action: Any
    memory: PyTree
    action: Any
    extras: PyTree
    played: PoolStep
    """of all agents"""
    acted: PyTree = None


def seed_numbers(words: Array) -> np.ndarray:
    """The two words of each seed, (S, B, 2) uint32, as one number, (S * B,) uint64."""
    both = np.asarray(words).reshape(-1, 2).astype(np.uint64)
    return (both[:, 0] << np.uint64(32)) | both[:, 1]


def blank(spec: EnvSpec, rows: tuple[int, ...]) -> Observation:
    """An observation of environments with this spec, (..., A, ...): what it looks like."""
    agents = (*rows, spec.n_agents)
    state = (*agents, spec.state_size) if spec.agent_state else (*rows, spec.state_size)
    return Observation(
        obs=jnp.zeros((*agents, *spec.obs_array), spec.obs_dtype),
        state=jnp.zeros(state),
        avail=jnp.ones((*agents, spec.n_actions), bool),
        alive=jnp.ones(agents, bool),
    )


def blank_step(spec: EnvSpec, rows: tuple[int, ...]) -> PoolStep:
    """A step of environments with this spec, (..., A): what it looks like."""
    agents, no, seen = (*rows, spec.n_agents), jnp.zeros(rows, bool), HostObservation(*blank(spec, rows))
    ended = jnp.zeros(agents, bool) if spec.agents_end else None
    step = HostStep(seen, jnp.zeros(agents), no, no, no, ended)
    return PoolStep(step, jnp.zeros(agents), jnp.zeros(rows, jnp.int32), seen, no, no)

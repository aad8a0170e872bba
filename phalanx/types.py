"""The data types that every part of phalanx uses.

Axis letters, used in every docstring: S seeds, T time, B environments, A agents, O observation
entries, X state entries, U actions, G parameter groups, H memory entries.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from phalanx.spec import EnvSpec as EnvSpec
from phalanx.spec import ScriptedTeam as ScriptedTeam

Array = jax.Array
PyTree = Any


class Picture(NamedTuple):
    """What a network sees of an observation with a declared shape."""

    pixels: Array
    """(..., A, *obs_shape), of the spec's `obs_dtype`"""
    features: Array
    """(..., A, O) float32: what stands beside the picture, such as agent id and last action"""


class Observation(NamedTuple):
    """The input of an actor or critic: (..., A, O), (..., X), (..., A, U), (..., A)."""

    obs: Any
    """(..., A, O); of pictures (..., A, *obs_shape) as environments give them, a `Picture` for networks"""
    state: Array
    """(..., A, X) where the spec says `agent_state`"""
    avail: Array
    """bool: the actions an agent may take now; of a continuous one, the entries that are its own."""
    alive: Array
    """bool: agents that still act. Dead agents stay in the arrays; no policy learns from their actions. Their
    values are learnt if their team can still earn rewards: a sacrifice is worth what it earns later."""


class TimeStep(NamedTuple):
    """The result of one environment step. There is no `done`: termination and truncation are separate."""

    observation: Observation
    """The true one after the step, also at the end of an episode: never that of the next episode."""
    reward: Array
    """(..., A) float32"""
    terminated: Array
    """(...) bool: the task itself ended; the value after this step is 0."""
    truncated: Array
    """(...) bool: the episode was cut off; values are bootstrapped."""
    info: dict[str, PyTree]
    """Other facts of the step; `won` if the spec sets `has_win`."""
    agent_terminated: Array | None = None
    """(..., A) bool if the spec sets `agents_end`: agents whose own task is over, from the step that ended it
    on. Such an agent is dead and gets no more rewards, while the others continue."""


class Transition(NamedTuple):
    """One step of acting as learners see it; with a leading time axis it is a rollout (T, B, ...)."""

    observation: Observation
    """What the team saw before it acted."""
    first: Array
    """(..., ) bool: this observation begins an episode; a recurrent memory is cleared here."""
    memory: PyTree
    """The actor's memory before it saw the observation, (..., A, H)."""
    action: Array
    """(..., A) int32, or (..., A, U) float32 if continuous"""
    extras: PyTree
    """What `act` computed and the learner wants back, such as log-probabilities."""
    reward: Array
    """(..., A) float32"""
    terminated: Array
    """as in `TimeStep`"""
    truncated: Array
    """as in `TimeStep`"""
    next_observation: Observation
    """The true next observation, before any reset."""
    info: dict[str, PyTree]
    """as in `TimeStep`"""
    agent_terminated: Array | None = None
    """as in `TimeStep`"""
    broken: Array | None = None
    """(...,) bool: `truncated`, because the environment failed; None where that cannot happen"""

    @property
    def completed(self) -> Array:
        """(...,) bool: the step is the last of a whole episode."""
        over = self.terminated | self.truncated
        return over if self.broken is None else over & ~self.broken


def is_key(x: Any) -> bool:
    """Whether an array, or the shape of one, holds random keys rather than numbers."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


class Clock(NamedTuple):
    """Progress of the run in env steps, so that schedules do not depend on the number of environments."""

    env_steps: Array
    """() float32, for schedules"""
    budget: Array
    """() float32: the budget of the run in env steps; an algorithm that reads it must set
    `Algorithm.uses_budget`"""

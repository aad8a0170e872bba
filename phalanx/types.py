"""The words that every part of phalanx shares.

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
    """What can be seen before acting: (..., A, O), (..., X), (..., A, U), (..., A)."""

    obs: Any
    """(..., A, O); of pictures (..., A, *obs_shape) as environments give them, a `Picture` for networks"""
    state: Array
    """(..., A, X) where the spec says `agent_state`"""
    avail: Array
    """bool: the actions an agent may take now; of a continuous one, the entries that are its own."""
    alive: Array
    """bool: agents that still act. The dead stay in the arrays; no policy learns from what they do. Values of
    the dead are learnt where their team goes on to earn: a sacrifice is worth what it earns after it."""


class TimeStep(NamedTuple):
    """What one environment step says. There is no `done`: ending and being cut are two things."""

    observation: Observation
    """The true one after the step, also at the end of an episode: never that of the next episode."""
    reward: Array
    """(..., A) float32"""
    terminated: Array
    """(...) bool: the task itself ended; nothing is worth anything after this."""
    truncated: Array
    """(...) bool: the episode was cut; the future would have been worth something."""
    info: dict[str, PyTree]
    agent_terminated: Array | None = None
    """(..., A) bool where the spec says `agents_end`: whose own task is over, from the step on that ended it.
    Such an agent is dead and gets no more rewards, while the others go on."""


class Transition(NamedTuple):
    """One step of acting as learners see it; with a leading time axis it is a rollout (T, B, ...)."""

    observation: Observation
    first: Array
    """(..., ) bool: this observation begins an episode; a recurrent memory is cleared here."""
    memory: PyTree
    """The actor's memory before it saw the observation, (..., A, H)."""
    action: Array
    """(..., A) int32, or (..., A, U) float32 if continuous"""
    extras: PyTree
    """What `act` computed and the learner wants back, such as log-probabilities."""
    reward: Array
    terminated: Array
    truncated: Array
    next_observation: Observation
    """The true next observation, before any reset."""
    info: dict[str, PyTree]
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
    """Where the run stands, counted in env steps so that the number of environments is only speed."""

    env_steps: Array
    """() float32, for schedules"""
    budget: Array
    """() float32: env steps that the run has in all; who reads it must declare `Algorithm.uses_budget`"""

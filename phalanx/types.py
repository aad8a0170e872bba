"""The words that every part of phalanx shares.

Axis letters, used in every docstring: S seeds, T time, B environments, A agents, O observation
entries, X state entries, U actions, G parameter groups, H memory entries.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

Array = jax.Array
PyTree = Any


class ScriptedTeam(Protocol):
    """A team that an environment brings along, to measure learning against."""

    def memory(self, batch: int) -> PyTree:
        """What it remembers before an episode, (B, ...)."""
        ...

    def act(self, observation: "Observation", first: Array, memory: PyTree) -> tuple[Array, PyTree]:
        """Choose actions, (B, A) or (B, A, U); `first` (B,) says which observations begin an episode."""
        ...


@dataclass(frozen=True)
class EnvSpec:
    """What an environment says of itself before it is run.

    Agents with fewer observation entries or actions than the largest are padded: padded entries
    are zero, padded actions are never available.
    """

    name: str
    agents: tuple[str, ...]
    agent_types: tuple[str, ...]
    """One type an agent: what `share=type` groups by."""
    obs_features: tuple[tuple[str, ...], ...]
    """For each agent, a name for each of its observation entries (before padding); empty with `obs_shape`."""
    state_features: tuple[str, ...]
    action_counts: tuple[int, ...]
    """For each agent, how many actions it has, or how many entries its continuous one (before padding)."""
    time_limit: int
    """Steps after which an episode is cut (`truncated`)."""
    common_reward: bool = True
    """Whether every agent always gets the same reward."""
    has_win: bool = False
    """Whether `info["won"]` says that an episode was won."""
    agent_state: bool = False
    """Whether each agent has its own state, (A, X), rather than all one, (X,)."""
    action_kind: Literal["discrete", "continuous"] = "discrete"
    """Actions are (A,) int32, or (A, U) float32."""
    action_range: tuple[float, float] = (-1.0, 1.0)
    """Within which every entry of a continuous action lies; what is beyond is clipped."""
    teams: tuple[str, ...] = ()
    """One team an agent, where there is more than one: whose reward a team's mean or sum is taken over."""
    agents_end: bool = False
    """Whether agents end one by one, each with its own rewards: `TimeStep.agent_terminated` says who has."""
    script: ScriptedTeam | None = None
    """What `phalanx eval heuristic` plays."""
    action_names: tuple[tuple[str, ...], ...] = ()
    """For each agent, a name for each of its actions, or entries of a continuous one; empty without names."""
    obs_shape: tuple[int, ...] | None = None
    """The shape of each agent's observation if it is a picture: (height, width, channels). None: vectors."""
    obs_dtype: str = "float32"
    """The dtype of observations. Networks see uint8 scaled to [0, 1]; stored it stays as it is."""
    version: int = 1
    """Raised whenever the rules change, so that results of different rules are never compared."""

    @property
    def n_agents(self) -> int:
        return len(self.agents)

    @cached_property
    def obs_size(self) -> int:
        """Entries of an observation that is a vector; of a picture, those that stand beside it."""
        return max((len(names) for names in self.obs_features), default=0)

    @property
    def obs_array(self) -> tuple[int, ...]:
        """The shape of an agent's observation: (O,), or that of a picture."""
        return (self.obs_size,) if self.obs_shape is None else self.obs_shape

    @property
    def state_size(self) -> int:
        return len(self.state_features)

    @cached_property
    def n_actions(self) -> int:
        return max(self.action_counts)


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
    the dead are learnt where their team goes on to earn: what follows a death is what led to it was worth."""


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
    info: dict[str, Array]
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
    info: dict[str, Array]
    agent_terminated: Array | None = None
    """as in `TimeStep`"""


def is_key(x: Any) -> bool:
    """Whether an array, or the shape of one, holds random keys rather than numbers."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


class Clock(NamedTuple):
    """Where the run stands, counted in env steps so that the number of environments is only speed."""

    env_steps: Array
    """() float32, for schedules"""
    budget: Array
    """() float32: env steps that the run has in all; who reads it must declare `Algorithm.uses_budget`"""

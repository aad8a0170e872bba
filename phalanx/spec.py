"""The spec of an environment. It does not import JAX, because workers of Python environments import it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol


class ScriptedTeam(Protocol):
    """A scripted team that comes with an environment, as a baseline."""

    def memory(self, batch: int) -> Any:
        """What it remembers before an episode, (B, ...)."""
        ...

    def act(self, observation: Any, first: Any, memory: Any) -> tuple[Any, Any]:
        """Choose actions, (B, A) or (B, A, U), from a `phalanx.types.Observation` (B, ...).

        `first` (B,) says which observations begin an episode.
        """
        ...


@dataclass(frozen=True)
class EnvSpec:
    """Names, sizes and properties of an environment.

    Agents with fewer observation entries or actions than the largest are padded: padded entries
    are zero, padded actions are never available.
    """

    name: str
    """The name of the environment, such as `battle/3m`."""
    agents: tuple[str, ...]
    """The name of each agent."""
    agent_types: tuple[str, ...]
    """The type of each agent: `share=type` groups by it."""
    obs_features: tuple[tuple[str, ...], ...]
    """For each agent, a name for each of its observation entries (before padding); empty with `obs_shape`."""
    state_features: tuple[str, ...]
    """A name for each entry of the global state."""
    action_counts: tuple[int, ...]
    """For each agent, its number of discrete actions, or the size of its continuous action (before
    padding)."""
    time_limit: int
    """Steps after which an episode is truncated."""
    common_reward: bool = True
    """Whether every agent always gets the same reward."""
    has_win: bool = False
    """Whether `info["won"]` says that an episode was won."""
    agent_state: bool = False
    """Whether each agent has its own state, (A, X), instead of one common state, (X,)."""
    action_kind: Literal["discrete", "continuous"] = "discrete"
    """Actions are (A,) int32, or (A, U) float32."""
    action_range: tuple[float, float] = (-1.0, 1.0)
    """The range of every entry of a continuous action; values beyond it are clipped."""
    teams: tuple[str, ...] = ()
    """The team of each agent, if there is more than one: team rewards are means or sums over a team."""
    agents_end: bool = False
    """Whether agents' episodes end separately, with individual rewards: see `TimeStep.agent_terminated`."""
    script: ScriptedTeam | None = None
    """The scripted team that `phalanx eval heuristic` plays."""
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
        """Number of agents, A."""
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
        """Entries of the global state, X."""
        return len(self.state_features)

    @cached_property
    def n_actions(self) -> int:
        """Number of actions, or entries of a continuous one, of the agent with the most: U."""
        return max(self.action_counts)

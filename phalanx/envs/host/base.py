"""The interface of a Python environment: numpy in, numpy out, seeded by a number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.envs.host.pool import Pool
    from phalanx.spec import EnvSpec


class HostObservation(NamedTuple):
    """As `phalanx.types.Observation`, in numpy: (A, O), (X,), (A, U), (A,)."""

    obs: Any
    """(A, O) float32, or pictures (A, *obs_shape)"""
    state: Any
    """(X,) float32; (A, X) where the spec says `agent_state`"""
    avail: Any
    """(A, U) bool: the actions an agent may take now"""
    alive: Any
    """(A,) bool: agents that still act"""


class HostStep(NamedTuple):
    """As `phalanx.types.TimeStep`, in numpy."""

    observation: Any
    """the true one after the step, also at the end of an episode"""
    reward: Any
    """(A,) float32"""
    terminated: Any
    """bool: the task itself ended"""
    truncated: Any
    """bool: the episode was cut off"""
    won: Any = False
    """bool: the episode was won, where the spec says `has_win`"""
    agent_terminated: Any = None
    """(A,) bool where the spec says `agents_end`"""


class HostSource(ABC):
    """Where host environments come from: their spec, and pools of them."""

    @property
    @abstractmethod
    def spec(self) -> EnvSpec:
        """Names, sizes and properties of the environment."""

    @abstractmethod
    def pool(self, count: int) -> Pool:
        """Make `count` environments."""

    def film_pool(self, count: int) -> Pool:
        """Make `count` environments whose first episodes are filmed: see `Pool.films`."""
        raise PhalanxError(f"{self.spec.name} cannot be watched: it has no pictures and no frame")


class HostEnv(HostSource):
    """A task for A agents that holds its own state.

    A subclass defines `spec`, `reset` and `step`. It does not reset itself and need not count the time limit.
    """

    @abstractmethod
    def copy(self) -> HostEnv:
        """Another environment like this one, for a pool of them."""

    @abstractmethod
    def reset(self, seed: int) -> HostStep:
        """Begin an episode. `seed`, below 2**64, determines everything random in it."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> HostStep:
        """Play one step with `actions`, (A,) or continuous (A, U)."""

    def close(self) -> None:
        """Release what the environment holds."""

    def get_state(self) -> Any:
        """The whole state of a running episode, to be pickled; None if the environment cannot give it."""
        return None

    def set_state(self, state: Any) -> HostObservation:
        """Continue from what `get_state` gave; returns the observation there."""
        raise NotImplementedError

    def render(self) -> Any:
        """The current picture, (h, w, 3) uint8; None if the environment draws none."""
        return None

    def pool(self, count: int) -> Pool:
        """Make `count` copies, stepped in this process."""
        from phalanx.envs.host.pool import LocalPool

        return LocalPool(self.copy, self.spec, count)

    def film_pool(self, count: int) -> Pool:
        """The same, with the pictures of their first episodes."""
        from phalanx.envs.host.film import most_pictures
        from phalanx.envs.host.pool import LocalPool

        return LocalPool(self.copy, self.spec, count, most_pictures(count))

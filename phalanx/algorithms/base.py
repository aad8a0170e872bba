"""The algorithm contract: a frozen config and the pure functions `init`, `act` and `update`.

The training loop collects a rollout of `steps_per_update` env steps with `act`, passes it to `update`, and
repeats. An algorithm with a replay buffer keeps it in its learner and samples from it in `update`. `act` is
the same function in training, evaluation, recording and exported policies.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from phalanx.algorithms.shared.optimiser import Optimiser
from phalanx.config import option
from phalanx.networks.sharing import Groups
from phalanx.types import Array, Clock, EnvSpec, Observation, PyTree, Transition


@dataclass(frozen=True)
class AlgorithmConfig:
    """The options that every algorithm has; an algorithm's own config is a subclass."""

    batch_steps: int = option(2048, "env steps in each rollout, over all environments", at_least=1)

    @property
    def inputs(self) -> dict[str, bool]:
        """What the networks see besides the observation: see `phalanx.envs.wrappers.prepare`."""
        return {"agent_id": False, "last_action": False}

    @property
    def is_builtin(self) -> bool:
        """Whether no option names code outside of phalanx, such as the user's own network."""
        return True


L = TypeVar("L", bound="Learner")


class Learner(Protocol):
    """What an algorithm keeps from one update to the next: a NamedTuple of arrays with these fields.

    All of it is saved in a checkpoint. `Algorithm.policy` is the part of it that acting needs.
    """

    @property
    def gradient_steps(self) -> Array:
        """() int32: gradient steps taken so far"""
        ...

    @property
    def replay(self) -> PyTree:
        """The contents of the replay buffer; None without one.

        It is large and only needed to continue training, so it has its own file in a checkpoint.
        """
        ...

    def _replace(self, **changes: Any) -> Self: ...


def with_replay(learner: L, replay: PyTree) -> L:
    """A learner with another replay buffer."""
    return learner._replace(replay=replay)  # pyright: ignore[reportPrivateUsage]  (of a NamedTuple, it is public)


def without_replay(learner: L) -> L:
    """A learner without its replay buffer."""
    return with_replay(learner, None)


class Actor(ABC):
    """How a team chooses its actions. `policy` is a pytree: the parameters that acting needs."""

    @property
    def acts_on(self) -> frozenset[str]:
        """What `act` reads: `observation`, the global `state`, the `memory` of earlier steps."""
        return frozenset({"observation"})

    @abstractmethod
    def initial_memory(self, batch: int) -> PyTree:
        """The memory at the start of an episode, (B, A, H)."""

    @abstractmethod
    def act(
        self, policy: PyTree, observation: Observation, first: Array, memory: PyTree, key: Array, greedy: bool
    ) -> tuple[Array, PyTree, PyTree]:
        """Choose actions, (B, A) or (B, A, U), for observations (B, ...).

        Also returns the new memory, and extras for `Algorithm.update`. `first` (B,) marks observations that
        begin an episode: the memory is cleared there.
        """

    def ready(self, policy: PyTree) -> PyTree:
        """The same policy in the form that a loop over `act` computes with, made once before the loop."""
        return policy

    @property
    def preference(self) -> str:
        """What `preferences` are: `probability` or `Q-value`; empty if there are none."""
        return ""

    def preferences(self, policy: PyTree, observation: Observation, first: Array, memory: PyTree) -> Array:
        """The probability or value of each action for each agent, (B, A, U), shown by `phalanx watch`."""
        raise NotImplementedError(f"{type(self).__name__} has no preferences")


class NetworkSummary(NamedTuple):
    """One line of the table of networks that is printed before training."""

    role: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    """for each set of parameters: its name and the agents that share it"""
    parameters_each: int
    sees: str


class RoleParameters(NamedTuple):
    """Parameters of one role, such as the actor, that another run can start from."""

    groups: Groups
    """which agents share parameters"""
    parameters: PyTree
    """(G, ...)"""


class Algorithm(ABC):
    """How a team learns. Subclasses set `actor`, and `optimisers` if they have any."""

    Config: ClassVar[type[AlgorithmConfig]]
    """A frozen dataclass made of `phalanx.config.option` fields."""
    action_kinds: ClassVar[frozenset[str]]
    """The kinds of actions it supports: `discrete`, `continuous`."""
    actor: Actor
    """How the team chooses its actions."""
    optimisers: tuple[Optimiser, ...] = ()
    """They tell the training loop about the decay of learning rates."""
    replay: Any = None
    """The replay buffer that `update` samples from; see `phalanx.data.replay.EpisodeReplay`."""

    def __init__(self, config: Any, spec: EnvSpec):
        """`spec` is that of the environment as the networks see it, ids and last actions included."""
        self.config = config
        """The options, an object of `Config`."""
        self.spec = spec
        """Names and sizes of what the networks see and choose from."""

    @property
    def steps_per_update(self) -> int:
        """Env steps collected before each update, over all environments."""
        return self.config.batch_steps

    def check(self, envs: int) -> None:  # noqa: B027  (most algorithms take any number)
        """Refuse a number of environments that does not fit the config, and name ones that do."""

    @abstractmethod
    def init(self, key: Array, envs: int) -> Learner:
        """The learner before its first update."""

    @abstractmethod
    def policy(self, learner: Any) -> PyTree:
        """The part of the learner that `actor.act` needs. An exported policy contains nothing else."""

    @abstractmethod
    def update(
        self, learner: Any, rollout: Transition, key: Array, clock: Clock
    ) -> tuple[Learner, dict[str, Array]]:
        """Learn from a rollout (T, B, ...). Also returns scalars to log."""

    def with_replay(self, replay: Any) -> Self:
        """The same algorithm, which samples from another `replay`."""
        other = copy.copy(self)
        other.replay = replay
        return other

    @property
    def uses_budget(self) -> bool:
        """Whether updates depend on `Clock.budget`. If so, a run cannot be extended to a larger budget."""
        return any(each.rates.use_budget for each in self.optimisers)

    def networks(self, learner: Any) -> Mapping[str, RoleParameters]:
        """The parameters of a learner that another run can start from, by role."""
        return {}

    def with_networks(self, learner: Any, parameters: Mapping[str, PyTree]) -> Learner:
        """A new learner with other parameters for every role that `networks` names."""
        raise NotImplementedError(f"{type(self).__name__} cannot start from the parameters of another run")

    def summary(self) -> list[NetworkSummary]:
        """The table of networks that is printed before training."""
        return []

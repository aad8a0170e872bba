"""The algorithm contract: a frozen config and the pure functions `init`, `act` and `update`.

The loop calls `act` to collect a rollout of `steps_per_update` env steps and hands it to `update`,
for ever. An algorithm that learns from replay keeps its buffer in its learner state and samples
from it in `update`. `act` is one function for training, evaluation, recording and exported policies.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from phalanx.types import Array, Clock, EnvSpec, Observation, PyTree, Transition


class Networks(NamedTuple):
    """One line of the table of networks that is shown before training."""

    role: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    """for each set of parameters: its name and the agents that share it"""
    parameters_each: int
    sees: str


class Algorithm(ABC):
    """How a team learns. `learner` is any pytree with a field `gradient_steps`, a () int32."""

    Config: ClassVar[type]
    """A frozen dataclass made of `phalanx.config.option` fields."""
    action_kinds: ClassVar[frozenset[str]]
    """Which of `discrete` and `continuous` it can act with."""

    def __init__(self, config: Any, spec: EnvSpec):
        """`spec` is that of the environment as the networks see it, ids and last actions included."""
        self.config = config
        self.spec = spec

    @staticmethod
    def inputs(config: Any) -> dict[str, bool]:
        """What `wrappers.prepare` should add to the observations."""
        return {"agent_id": False, "last_action": False}

    @property
    @abstractmethod
    def steps_per_update(self) -> int:
        """Env steps collected before each update, over all environments."""

    def check(self, envs: int) -> None:  # noqa: B027  (most algorithms take any number)
        """Refuse a number of environments that does not fit the config, and name ones that do."""

    def check_budget(self, steps: int) -> None:  # noqa: B027
        """Refuse a budget of env steps that does not fit the config."""

    @abstractmethod
    def init(self, key: Array, envs: int) -> PyTree:
        """The learner before its first step."""

    @property
    def uses_budget(self) -> bool:
        """Whether updates depend on `Clock.budget`: then a run with a larger budget is another run."""
        return False

    @property
    def acts_on(self) -> frozenset[str]:
        """What `act` looks at: `observation`, the global `state`, the `memory` of earlier steps."""
        return frozenset({"observation"})

    def init_policy(self, key: Array) -> PyTree:
        """What `act` needs before the first update. Learners that hold much make it without the rest."""
        return self.policy(self.init(key, 1))

    @abstractmethod
    def policy(self, learner: PyTree) -> PyTree:
        """What `act` needs of the learner, and all that an exported policy holds."""

    @abstractmethod
    def memory(self, batch: int) -> PyTree:
        """The actors' empty memory, (B, A, H)."""

    @abstractmethod
    def act(
        self, policy: PyTree, observation: Observation, first: Array, memory: PyTree, key: Array, greedy: bool
    ) -> tuple[Array, PyTree, PyTree]:
        """Choose actions, (B, A) or (B, A, U), for observations (B, ...).

        Also the new memory, and extras for `update`. `first` (B,) says which observations begin an episode.
        """

    @property
    def prefers(self) -> str:
        """What `preferences` are: `probability` or `Q-value`; empty where there are none."""
        return ""

    def preferences(self, policy: PyTree, observation: Observation, first: Array, memory: PyTree) -> Array:
        """How much each action is worth to each agent when it acts, (B, A, U), for whoever watches."""
        raise NotImplementedError(f"{type(self).__name__} has no preferences")

    @abstractmethod
    def update(
        self, learner: PyTree, rollout: Transition, key: Array, clock: Clock
    ) -> tuple[PyTree, dict[str, Array]]:
        """Learn from a rollout (T, B, ...); also scalars to log."""

    def networks(self) -> list[Networks]:
        """What to say of the networks before training."""
        return []

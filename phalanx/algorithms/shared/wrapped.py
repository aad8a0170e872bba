"""Wrappers around algorithms that change their data: normalisation, or a curiosity bonus.

An on-policy algorithm gets a changed rollout. An off-policy one stores unchanged steps and gets changed
samples, so that each sample is changed by the newest statistics and models.
"""

from collections.abc import Mapping
from typing import Any

from jax.tree_util import Partial

from phalanx.algorithms.base import (
    Algorithm,
    Learner,
    NetworkSummary,
    RoleParameters,
    without_replay,
)
from phalanx.algorithms.shared.team import TeamConfig
from phalanx.errors import PhalanxError
from phalanx.types import Array, Clock, PyTree, Transition


class MappedReplay:
    """A replay whose samples are mapped by a function. The buffer itself holds unchanged steps."""

    def __init__(self, replay: Any, function: Partial):
        """`function` maps `Episodes` to `Episodes` and a `Transition` to a `Transition`."""
        self.replay, self.function = replay, function
        self.add, self.can_sample, self.draw = replay.add, replay.can_sample, replay.draw
        self.prioritised = getattr(replay, "prioritised", None)  # of steps only

    def take(self, buffer: PyTree, drawn: PyTree) -> Any:
        return self.function(self.replay.take(buffer, drawn))

    def taking(self) -> Partial:
        return Partial(_map_taken, self.replay.taking(), self.function)


def _map_taken(take: Partial, function: Partial, buffer: PyTree, drawn: PyTree) -> Any:
    return function(take(buffer, drawn))


class Wrapped(Algorithm):
    """An algorithm around another one.

    Its learner is a NamedTuple with the fields `learner`, which is that of the algorithm inside without its
    replay, `replay`, and what it adds.
    """

    Config = TeamConfig
    action_kinds = frozenset({"discrete", "continuous"})
    options: str
    """the options that ask for it, for errors"""

    def __init__(self, algorithm: Algorithm, config: TeamConfig):
        super().__init__(config, algorithm.spec)
        self.algorithm = algorithm
        self.actor = algorithm.actor
        self.optimisers = algorithm.optimisers
        self.replay = algorithm.replay

    @property
    def steps_per_update(self) -> int:
        return self.algorithm.steps_per_update

    def check(self, envs: int) -> None:
        self.algorithm.check(envs)

    def init_inside(self, key: Array, envs: int) -> tuple[Learner, PyTree]:
        """The learner of the algorithm inside, without its replay, and the replay."""
        learner = self.algorithm.init(key, envs)
        if learner.replay is not None and self.replay is None:
            raise PhalanxError(
                f"{type(self.algorithm).__name__} has a replay buffer, but no attribute `replay` to sample "
                "from it: "
                f"{self.options} cannot be used with it"
            )
        return without_replay(learner), learner.replay

    def update_inside(
        self, learner: Any, rollout: Transition, key: Array, clock: Clock, function: Partial
    ) -> tuple[Any, dict[str, Array]]:
        """Update the algorithm inside; `function` maps the samples of a replay."""
        algorithm = self.algorithm
        if self.replay is not None:
            algorithm = algorithm.with_replay(MappedReplay(self.replay, function))
        inside = learner.learner._replace(replay=learner.replay)
        inside, metrics = algorithm.update(inside, rollout, key, clock)
        return learner._replace(learner=without_replay(inside), replay=inside.replay), metrics

    def policy(self, learner: Any) -> PyTree:
        return self.algorithm.policy(learner.learner)

    @property
    def uses_budget(self) -> bool:
        return self.algorithm.uses_budget or super().uses_budget

    def networks(self, learner: Any) -> Mapping[str, RoleParameters]:
        return self.algorithm.networks(learner.learner)

    def with_networks(self, learner: Any, parameters: Mapping[str, PyTree]) -> Any:
        return learner._replace(learner=self.algorithm.with_networks(learner.learner, parameters))

    def summary(self) -> list[NetworkSummary]:
        return self.algorithm.summary()

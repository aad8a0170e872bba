"""The collector interface."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

import jax

from phalanx.algorithms.base import Algorithm, Learner
from phalanx.opponents.base import Opponents
from phalanx.types import Array, EnvSpec, Observation, PyTree, Transition

Keep = Callable[[Transition], Any]


def whole_transition(step: Transition) -> Transition:
    """Keep everything, as learners need it."""
    return step


class Collector(ABC):
    """Plays policies in B environments for each of S seeds. All arrays have a leading seed axis."""

    promise: Literal["exact", "replayable"]
    """What it can promise when a run is resumed.

    `exact`: the actors and `states` continue bit for bit. `replayable`: some running episodes start again
    from their recorded seeds; the steps collected in them so far have been learnt from.
    """
    env: Any
    """the environment, as it was given"""
    spec: EnvSpec
    """as the networks see it, ids and last actions included"""
    algorithm: Algorithm
    opponents: Opponents | None
    """who plays the other side, if anybody does; `env` is then that of the learner's side"""
    envs: int
    seeds: int
    seconds: dict[str, float]
    """where time went, if it can be told apart: environments, acting, learning"""
    faults: int = 0
    """how often an environment has failed"""

    @cached_property
    def first_learner(self) -> Callable[[Array], Learner]:
        """What makes the learner before its first update, from a key; traced once although used often."""
        return jax.jit(lambda key: self.algorithm.init(key, self.envs), inline=True)

    @abstractmethod
    def start(self, keys: Array) -> PyTree:
        """Begin an episode in every environment, from a key for each seed, (S,): the actors, (S, ...)."""

    @abstractmethod
    def collect(
        self,
        policy: PyTree,
        actors: PyTree,
        length: int,
        greedy: bool = False,
        keep: Keep = whole_transition,
        playing: PyTree = None,
    ) -> tuple[PyTree, Any]:
        """Play `length` steps in all environments with the policy of each seed, (S, ...).

        `playing` are the parameters of those who play the other side, (S, M, ...); without them, of those who
        do before anything is learnt. Also returns what `keep` keeps of each step, (S, T, B, ...); it sees the
        steps of one seed, (B, ...).
        """

    def first_episodes(
        self, policy: PyTree, actors: PyTree, greedy: bool, keep: Keep, playing: PyTree = None
    ) -> tuple[PyTree, Any]:
        """Play until every environment has completed an episode; as `collect`, with T as long as needed."""
        return self.collect(policy, actors, self.spec.time_limit, greedy, keep, playing)

    def first_playing(self, policy: PyTree) -> PyTree:
        """Of one seed: who plays the other side before anything is learnt, (M, ...); None if nobody does."""
        if self.opponents is None:
            return None
        return self.opponents.playing(self.opponents.init(policy, jax.random.key(0)), policy)

    @abstractmethod
    def shapes(self, length: int) -> tuple[PyTree, Transition]:
        """The shapes of the actors, (S, ...), and of a rollout, (S, T, B, ...)."""

    @abstractmethod
    def observation(self, actors: PyTree) -> Observation:
        """What the environments show now, (S, B, ...), to the learner."""

    @abstractmethod
    def others_observation(self, actors: PyTree) -> Observation:
        """What they show those who play the other side, (S, B, ...), as the environments give it."""

    def close(self) -> None:  # noqa: B027  (a compiled environment holds nothing)
        """Release the environments. They are created again when they are needed."""

    def states(self) -> list[bytes | None]:
        """The state of each running episode that is not in the actors; None if it cannot be saved."""
        return []

    def restored(self, actors: PyTree, states: Sequence[bytes | None]) -> tuple[PyTree, int]:
        """Actors from a checkpoint with its `states`, and how many episodes start again."""
        return actors, 0


def over_seeds(
    fn: Callable[..., Any], seeds: int, in_axes: tuple[int | None, ...] = (0,)
) -> Callable[..., Any]:
    """Map `fn` over the leading seed axis of those arguments whose entry in `in_axes` is 0.

    A single seed is not mapped: products with a batch axis of 1 cost a fifth of MAPPO's time on a CPU.
    """
    if seeds > 1:
        return jax.vmap(fn, in_axes, axis_size=seeds)

    def one_seed(*args: PyTree) -> PyTree:
        of_seed = [
            arg if axis is None else jax.tree.map(lambda x: x[0], arg)
            for arg, axis in zip(args, in_axes, strict=True)
        ]
        return jax.tree.map(lambda x: x[None], fn(*of_seed))

    return one_seed

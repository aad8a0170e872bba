"""Jumanji: environments of the package jumanji, compiled into the training program."""

import inspect
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.config import option
from phalanx.envs.base import Env, numbered
from phalanx.envs.foreign import Hands, Sight, building, like, package
from phalanx.errors import PhalanxError, suggest
from phalanx.types import Array, EnvSpec, PyTree, TimeStep

NAMES = {
    "LevelBasedForaging-v0": "Jumanji: agents of different levels collect food together",
    "RobotWarehouse-v0": "Jumanji: robots deliver requested shelves",
    "Connector-v3": "Jumanji: agents draw paths to their targets that must not cross",
    "Cleaner-v0": "Jumanji: agents clean a maze together",
    "Game2048-v1": "Jumanji: the game 2048, one agent",
    "Snake-v1": "Jumanji: the game snake, one agent",
    "Maze-v0": "Jumanji: one agent finds a target",
    "Tetris-v0": "Jumanji: the game tetris, one agent",
}
# All ids of the package whose observations and actions can be mapped.
OPEN = True

MOST_ACTIONS = 10_000
"""Joint actions of a single agent: more would make a network's last layer its largest by far."""
NO_LIMIT = 1000
"""Steps after which an episode is truncated where the package has no limit."""
NOT_SEEN = ("action_mask", "step_count")


class Space:
    """A discrete action space, as `Hands` reads it."""

    def __init__(self, n: int):
        self.n = n


@dataclass(frozen=True)
class Jumanji(Env):
    """An environment of Jumanji with one agent. It sees the observation, but not the clock, in a row.

    An action of several numbers (the rotation and the column of a tetromino) is one of their combinations.
    Where Jumanji's time limit would end an episode like the task itself, it is set one step beyond phalanx's.
    """

    of_another_package = True

    counts: ClassVar[bool] = False
    """Whether integers in pictures are counts and flags rather than intensities."""

    id: str = ""
    time_limit: int | None = option(
        None, "steps after which an episode is truncated (default: the package's limit, or 1000)", at_least=1
    )

    def arguments(self) -> dict[str, Any]:
        """Further arguments of the environment's class."""
        return {}

    @cached_property
    def _limit(self) -> int:
        """The time limit: given, or the package's default."""
        return self.time_limit or getattr(package("jumanji").make(self.id), "time_limit", NO_LIMIT)

    @cached_property
    def world(self) -> Any:
        """The environment of Jumanji."""
        jumanji = package("jumanji")
        with building(f"jumanji/{self.id}"):
            takes_limit = "time_limit" in inspect.signature(type(jumanji.make(self.id)).__init__).parameters
            limit = {"time_limit": self._limit + 1} if takes_limit else {}
            return jumanji.make(self.id, **limit, **self.arguments())

    @cached_property
    def _start(self) -> PyTree:
        return jax.eval_shape(self.world.reset, jax.random.key(0))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each number of an action has."""
        spec = self.world.action_spec
        if not hasattr(spec, "num_values"):
            raise PhalanxError(
                f"jumanji/{self.id} has actions that phalanx does not support: {type(spec).__name__}"
            )
        return tuple(np.atleast_1d(spec.num_values).tolist())

    @cached_property
    def names(self) -> tuple[str, ...]:
        return ("agent",)

    @cached_property
    def hands(self) -> Hands:
        joint = math.prod(self.sizes)
        if joint > MOST_ACTIONS:
            raise PhalanxError(
                f"jumanji/{self.id} has {joint:,} actions; phalanx takes up to {MOST_ACTIONS:,}"
            )
        return Hands((joint,))

    @cached_property
    def sight(self) -> Sight:
        return Sight.of(
            self.names, jax.eval_shape(self.views, self._start[1].observation), counts=self.counts
        )

    @cached_property
    def spec(self) -> EnvSpec:
        fields = {
            "name": f"jumanji/{self.id}",
            "agents": self.names,
            "agent_types": ("agent",) * len(self.names),
            "time_limit": self._limit,
            "common_reward": self._start[1].reward.ndim == 0,
        }
        return EnvSpec(**fields, **self.sight.spec, **self.hands.spec)

    def reset(self, key: Array) -> tuple[PyTree, TimeStep]:
        state, now = self.world.reset(key)
        return like(state, self._start[0]), self._tell(now)

    def step(self, key: Array, state: PyTree, actions: Array) -> tuple[PyTree, TimeStep]:
        # What is random after the start comes from a key that Jumanji keeps in its state.
        state, now = self.world.step(state, self.given(actions))
        ended = now.last() & (now.discount == 0).all()
        step = self._tell(now, reward=now.reward, terminated=ended, truncated=now.last() & ~ended)
        return like(state, self._start[0]), step

    def _tell(self, now: Any, **outcome: Any) -> TimeStep:
        mask = getattr(now.observation, "action_mask", None)
        avail = None if mask is None else mask.reshape(len(self.names), -1).astype(bool)
        return self.timestep(self.sight.array(self.views(now.observation)), avail=avail, **outcome)

    def views(self, seen: Any) -> list[PyTree]:
        """Each agent's observation."""
        return [{name: part for name, part in seen._asdict().items() if name not in NOT_SEEN}]

    def given(self, actions: Array) -> Array:
        """An action as Jumanji takes it."""
        if self.world.action_spec.shape == ():
            return actions[0]
        return jnp.stack(jnp.unravel_index(actions[0], self.sizes)).astype(jnp.int32)


@dataclass(frozen=True)
class Team(Jumanji):
    """An environment of Jumanji with a number in its action for each agent."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        return numbered("agent", len(self.sizes))

    @cached_property
    def hands(self) -> Hands:
        return Hands.of(f"jumanji/{self.id}", [Space(n) for n in self.sizes])

    def views(self, seen: Any) -> list[PyTree]:
        return list(seen.agents_view)

    def given(self, actions: Array) -> Array:
        return actions


@dataclass(frozen=True)
class Foraging(Team):
    """Level-based foraging. Each agent is paid by its level for the food it helped to load: 1 in all."""

    agents: int = option(2, "number of agents", at_least=1)
    food: int = option(2, "number of food items", at_least=1)
    size: int = option(8, "rows and columns of the grid", at_least=4)
    sight_range: int | None = option(
        None, "cells seen in each direction (default: the whole grid)", at_least=1
    )
    cooperative: bool = option(True, "all food needs all agents")
    penalty: float = option(0.0, "cost of loading food that is too heavy", at_least=0)

    def arguments(self) -> dict[str, Any]:
        generator = package("jumanji.environments.routing.lbf.generator").RandomGenerator(
            grid_size=self.size,
            fov=self.sight_range or self.size,
            num_agents=self.agents,
            num_food=self.food,
            force_coop=self.cooperative,
        )
        return {"generator": generator, "penalty": self.penalty}


@dataclass(frozen=True)
class Connector(Team):
    """Paths that must not cross. Each agent sees six pictures of the grid, of zeros and ones.

    They show its own path, head and target, and those of the others. Jumanji gives one grid of numbers, in
    which 3 i + 1, 3 i + 2 and 3 i + 3 are the path, the head and the target of agent i.
    """

    counts: ClassVar[bool] = True

    def views(self, seen: Any) -> list[PyTree]:
        part = (seen.grid - 1) % 3
        owner = jnp.where(seen.grid > 0, (seen.grid - 1) // 3, -1)
        parts = [part == k for k in range(3)]
        pictures = []
        for agent in range(len(self.names)):
            own, other = owner == agent, (owner != agent) & (owner >= 0)
            pictures.append(jnp.stack([each & who for who in (own, other) for each in parts], axis=-1))
        return pictures


@dataclass(frozen=True)
class Cleaner(Team):
    """A maze to clean. Each agent sees the maze, its own position and those of all."""

    def views(self, seen: Any) -> list[PyTree]:
        return [(seen.grid, own, seen.agents_locations) for own in seen.agents_locations]


TEAMS = {
    "LevelBasedForaging": Foraging,
    "RobotWarehouse": Team,
    "Connector": Connector,
    "Cleaner": Cleaner,
}


def entry(variant: str) -> tuple[type[Env], dict[str, Any]]:
    """The class behind `jumanji/VARIANT` and the fields that the name fixes."""
    cls = TEAMS.get(variant.partition("-v")[0], Jumanji)
    if variant not in NAMES:
        known = package("jumanji").registered_environments()
        if variant not in known:
            raise PhalanxError(f"jumanji has no {variant!r}.{suggest(variant, known)}")
    return cls, {"id": variant}

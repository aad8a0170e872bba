"""MountainCar: a car too weak for the hill before it must gather speed in the valley.

The task: Moore (1990), "Efficient memory-based learning for robot control", PhD thesis, University of
Cambridge; equations of motion as in Sutton & Barto (2018), "Reinforcement Learning: An Introduction",
example 10.1.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.config import option, with_default
from phalanx.envs.base import Env
from phalanx.envs.classic.control import drawing, require_range, spec_of_one
from phalanx.types import Array, EnvSpec, TimeStep

MIN_POSITION, MAX_POSITION = -1.2, 0.6
MAX_SPEED = 0.07
GRAVITY = 0.0025
FORCE = 0.001
POWER = 0.0015  # the force of a full continuous action
ACTION_COST = 0.1
GOAL_REWARD = 100.0
FEATURES = ("position", "velocity")
HILL = np.linspace(MIN_POSITION, MAX_POSITION, 37)


class Car(NamedTuple):
    """Each ()."""

    position: Array
    velocity: Array


@dataclass(frozen=True)
class MountainCar(Env):
    """Actions: push left, nothing, push right. Reward: -1 a step. Terminates at the top of the right hill."""

    goal_velocity: float = option(0.0, "least velocity at the goal")
    low: float = option(-0.6, "lower bound of the car's position at the start")
    high: float = option(-0.4, "upper bound of the car's position at the start")
    time_limit: int = option(200, "steps after which an episode is truncated", at_least=1)

    goal: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        require_range(self.low, self.high)

    @cached_property
    def spec(self) -> EnvSpec:
        return spec_of_one("MountainCar-v0", FEATURES, ("left", "nothing", "right"), self.time_limit)

    def reset(self, key: Array) -> tuple[Car, TimeStep]:
        state = Car(jax.random.uniform(key, minval=self.low, maxval=self.high), jnp.float32(0))
        return state, self.timestep(jnp.stack(state)[None])

    def step(self, key: Array, state: Car, actions: Array) -> tuple[Car, TimeStep]:
        state, arrived = self._drive(state, (actions[0] - 1) * FORCE)
        return state, self.timestep(jnp.stack(state)[None], reward=-1.0, terminated=arrived)

    def _drive(self, state: Car, push: Array) -> tuple[Car, Array]:
        """Where a push brings the car, and whether that is the goal."""
        velocity = state.velocity + push - GRAVITY * jnp.cos(3 * state.position)
        velocity = velocity.clip(-MAX_SPEED, MAX_SPEED)
        position = (state.position + velocity).clip(MIN_POSITION, MAX_POSITION)
        # The left end is a wall that takes all speed; the right one only holds the car.
        velocity = jnp.where((position <= MIN_POSITION) & (velocity < 0), 0.0, velocity)
        return Car(position, velocity), (position >= self.goal) & (velocity >= self.goal_velocity)

    def frame(self, state: Car) -> dict[str, Any]:
        hill = [_place(x) for x in HILL]
        lines = list(pairwise(hill))
        return drawing(_place(float(state.position)), lines, radius=0.06, goal=_place(self.goal))


@dataclass(frozen=True)
class MountainCarContinuous(MountainCar):
    """Action: a push from -1 to 1. Reward: 100 at the goal, minus a tenth of the squared action a step."""

    time_limit: int = with_default(MountainCar, "time_limit", 999)

    goal: ClassVar[float] = 0.45

    @cached_property
    def spec(self) -> EnvSpec:
        return spec_of_one("MountainCarContinuous-v0", FEATURES, ("push",), self.time_limit, continuous=True)

    def step(self, key: Array, state: Car, actions: Array) -> tuple[Car, TimeStep]:
        push = actions[0, 0].clip(-1.0, 1.0)
        state, arrived = self._drive(state, push * POWER)
        reward = jnp.where(arrived, GOAL_REWARD, 0.0) - ACTION_COST * push * push
        return state, self.timestep(jnp.stack(state)[None], reward=reward, terminated=arrived)


def _place(x: float) -> tuple[float, float]:
    """A position on the hill in the plane, with the middle of the valley's width at 0."""
    return x - (MIN_POSITION + MAX_POSITION) / 2, 0.45 * np.sin(3 * x)

"""Pendulum: a rod on a hinge, too heavy for its motor, must be swung up and held there.

Equations of motion of a rod that turns about one end, with moment of inertia m l^2 / 3; task and cost as
Gymnasium documents them.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.config import option
from phalanx.envs.base import Env
from phalanx.envs.classic.control import drawing, spec_of_one, wrapped
from phalanx.types import Array, EnvSpec, TimeStep

MASS = 1.0
LENGTH = 1.0
MAX_TORQUE = 2.0
MAX_SPIN = 8.0
DT = 0.05
SPIN_COST, TORQUE_COST = 0.1, 0.001


class PendulumState(NamedTuple):
    """Each (); the angle counts full turns, 0 is upright, positive leans left."""

    angle: Array
    spin: Array
    """angular velocity"""


@dataclass(frozen=True)
class Pendulum(Env):
    """Action: a torque, -1 to 1 for -2 to 2 Nm. Reward: minus weighted squares of angle, velocity, torque."""

    g: float = option(10.0, "acceleration of gravity in m/s^2")
    x_init: float = option(math.pi, "largest angle at the start, either way", at_least=0)
    y_init: float = option(1.0, "largest angular velocity at the start, either way", at_least=0)
    time_limit: int = option(200, "steps after which an episode is truncated", at_least=1)

    @cached_property
    def spec(self) -> EnvSpec:
        features = ("cos angle", "sin angle", "angular velocity")
        return spec_of_one("Pendulum-v1", features, ("torque",), self.time_limit, continuous=True)

    def reset(self, key: Array) -> tuple[PendulumState, TimeStep]:
        angle, spin = jax.random.uniform(key, (2,), minval=-1.0)
        state = PendulumState(self.x_init * angle, self.y_init * spin)
        return state, self.timestep(_seen(state))

    def step(self, key: Array, state: PendulumState, actions: Array) -> tuple[PendulumState, TimeStep]:
        angle, spin = state
        torque = MAX_TORQUE * actions[0, 0].clip(-1.0, 1.0)
        from_top = wrapped(angle)
        cost = from_top**2 + SPIN_COST * spin**2 + TORQUE_COST * torque**2
        weight = MASS * self.g * LENGTH / 2 * jnp.sin(angle)
        spin = spin + DT * (weight + torque) / (MASS * LENGTH**2 / 3)
        spin = spin.clip(-MAX_SPIN, MAX_SPIN)
        state = PendulumState(angle + DT * spin, spin)
        return state, self.timestep(_seen(state), reward=-cost)

    def frame(self, state: PendulumState) -> dict[str, Any]:
        angle = float(state.angle)
        end = (-LENGTH * np.sin(angle), LENGTH * np.cos(angle))
        return drawing(end, [((0.0, 0.0), end)], radius=0.1)


def _seen(state: PendulumState) -> Array:
    """(1, 3)"""
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.spin])[None]

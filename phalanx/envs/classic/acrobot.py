"""Acrobot: two links hang from a hinge; torque at the joint between them must swing the free end up.

The task: Sutton (1996), "Generalization in reinforcement learning: successful examples using sparse coarse
coding", NeurIPS 8; equations of motion as in Sutton & Barto (1998), "Reinforcement Learning: An
Introduction", section 11.3. A step is one of the classical Runge-Kutta method of fourth order.
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
from phalanx.envs.classic.control import drawing, require_range, spec_of_one, wrapped
from phalanx.types import Array, EnvSpec, TimeStep

GRAVITY = 9.8
LENGTH = 1.0  # of the first link, and of the second
CENTRE = 0.5  # of mass, from the joint at which a link hangs
MASS = 1.0
INERTIA = 1.0
TORQUE = 1.0
DT = 0.2
MAX_SPIN_1, MAX_SPIN_2 = 4 * math.pi, 9 * math.pi
GOAL = 1.0  # height of the free end over the hinge, in lengths of a link


class AcrobotState(NamedTuple):
    """Each (); `angle_1` 0 hangs down, `angle_2` is relative to the first link."""

    angle_1: Array
    angle_2: Array
    spin_1: Array
    """angular velocity"""
    spin_2: Array


@dataclass(frozen=True)
class Acrobot(Env):
    """Actions: torque -1, 0, 1. Reward: -1 a step, 0 on the one that swings the free end above the goal."""

    low: float = option(-0.1, "lower bound of every entry of the start")
    high: float = option(0.1, "upper bound of every entry of the start")
    time_limit: int = option(500, "steps after which an episode is truncated", at_least=1)

    def __post_init__(self) -> None:
        require_range(self.low, self.high)

    @cached_property
    def spec(self) -> EnvSpec:
        angles = tuple(
            f"{function} {angle}" for angle in ("angle 1", "angle 2") for function in ("cos", "sin")
        )
        features = (*angles, "angular velocity 1", "angular velocity 2")
        return spec_of_one("Acrobot-v1", features, ("torque -1", "torque 0", "torque 1"), self.time_limit)

    def reset(self, key: Array) -> tuple[AcrobotState, TimeStep]:
        state = AcrobotState(*jax.random.uniform(key, (4,), minval=self.low, maxval=self.high))
        return state, self.timestep(_seen(state))

    def step(self, key: Array, state: AcrobotState, actions: Array) -> tuple[AcrobotState, TimeStep]:
        torque = (actions[0] - 1) * TORQUE
        first = _rates(state, torque)
        second = _rates(_after(state, first, DT / 2), torque)
        third = _rates(_after(state, second, DT / 2), torque)
        fourth = _rates(_after(state, third, DT), torque)
        mean = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, first, second, third, fourth)
        angle_1, angle_2, spin_1, spin_2 = _after(state, mean, DT)
        state = AcrobotState(
            wrapped(angle_1),
            wrapped(angle_2),
            spin_1.clip(-MAX_SPIN_1, MAX_SPIN_1),
            spin_2.clip(-MAX_SPIN_2, MAX_SPIN_2),
        )
        up = -jnp.cos(state.angle_1) - jnp.cos(state.angle_1 + state.angle_2) > GOAL
        return state, self.timestep(_seen(state), reward=jnp.where(up, 0.0, -1.0), terminated=up)

    def frame(self, state: AcrobotState) -> dict[str, Any]:
        first, second = float(state.angle_1), float(state.angle_1) + float(state.angle_2)
        joint = (LENGTH * np.sin(first), -LENGTH * np.cos(first))
        end = (joint[0] + LENGTH * np.sin(second), joint[1] - LENGTH * np.cos(second))
        reach = 2 * LENGTH
        goal = ((-reach, GOAL * LENGTH), (reach, GOAL * LENGTH))
        return drawing(end, [goal, ((0.0, 0.0), joint), (joint, end)], radius=0.1)


def _rates(state: AcrobotState, torque: Array) -> AcrobotState:
    """How fast each entry changes: Newton's equations of both joints, solved for the accelerations."""
    angle_1, angle_2, spin_1, spin_2 = state
    sin, cos = jnp.sin(angle_2), jnp.cos(angle_2)
    coupling = MASS * LENGTH * CENTRE
    # The entries of the mass matrix.
    inner = MASS * CENTRE**2 + INERTIA
    both = inner + coupling * cos
    outer = 2 * inner + MASS * LENGTH**2 + 2 * coupling * cos
    # What gravity and the links' own motion pull at each joint.
    weight_2 = MASS * CENTRE * GRAVITY * jnp.sin(angle_1 + angle_2)
    weight_1 = MASS * (CENTRE + LENGTH) * GRAVITY * jnp.sin(angle_1) + weight_2
    pull_1 = weight_1 - coupling * sin * spin_2 * (spin_2 + 2 * spin_1)
    pull_2 = weight_2 + coupling * sin * spin_1 * spin_1
    speed_up_2 = (outer * (torque - pull_2) + both * pull_1) / (outer * inner - both * both)
    speed_up_1 = -(both * speed_up_2 + pull_1) / outer
    return AcrobotState(spin_1, spin_2, speed_up_1, speed_up_2)


def _after(state: AcrobotState, rates: AcrobotState, time: float) -> AcrobotState:
    return jax.tree.map(lambda x, rate: x + time * rate, state, rates)


def _seen(state: AcrobotState) -> Array:
    """(1, 6)"""
    angles = [f(angle) for angle in (state.angle_1, state.angle_2) for f in (jnp.cos, jnp.sin)]
    return jnp.stack([*angles, state.spin_1, state.spin_2])[None]

"""CartPole: a cart is pushed left or right so that the pole hinged on it stays upright.

Equations of motion: Barto, Sutton & Anderson (1983), "Neuronlike adaptive elements that can solve difficult
learning control problems", IEEE Transactions on Systems, Man, and Cybernetics 13, without friction.
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
from phalanx.envs.classic.control import drawing, require_range, spec_of_one
from phalanx.types import Array, EnvSpec, TimeStep

GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
HALF_POLE = 0.5  # from the hinge to the pole's centre of mass
FORCE = 10.0
DT = 0.02
MAX_POSITION = 2.4
MAX_ANGLE = math.radians(12)


class CartPoleState(NamedTuple):
    """Each (); angles in radians, 0 is upright, positive leans right."""

    position: Array
    velocity: Array
    angle: Array
    spin: Array
    """angular velocity"""


@dataclass(frozen=True)
class CartPole(Env):
    """Reward: 1 a step. Terminates when the pole leans more than 12 degrees or the cart leaves the track."""

    sutton_barto_reward: bool = option(
        False, "reward 0 a step and -1 at the end of the task, instead of 1 a step"
    )
    low: float = option(-0.05, "lower bound of every entry of the start")
    high: float = option(0.05, "upper bound of every entry of the start")
    time_limit: int = option(500, "steps after which an episode is truncated", at_least=1)

    def __post_init__(self) -> None:
        require_range(self.low, self.high)

    @cached_property
    def spec(self) -> EnvSpec:
        features = ("cart position", "cart velocity", "pole angle", "pole angular velocity")
        return spec_of_one("CartPole-v1", features, ("left", "right"), self.time_limit)

    def reset(self, key: Array) -> tuple[CartPoleState, TimeStep]:
        state = CartPoleState(*jax.random.uniform(key, (4,), minval=self.low, maxval=self.high))
        return state, self.timestep(jnp.stack(state)[None])

    def step(self, key: Array, state: CartPoleState, actions: Array) -> tuple[CartPoleState, TimeStep]:
        position, velocity, angle, spin = state
        mass, sin, cos = CART_MASS + POLE_MASS, jnp.sin(angle), jnp.cos(angle)
        push = jnp.where(actions[0] == 1, FORCE, -FORCE)
        # What the whole would be accelerated by if the pole did not turn faster or slower.
        drive = (push + POLE_MASS * HALF_POLE * spin * spin * sin) / mass
        inertia = HALF_POLE * (4 / 3 - POLE_MASS * cos * cos / mass)
        spin_up = (GRAVITY * sin - cos * drive) / inertia
        speed_up = drive - POLE_MASS * HALF_POLE * spin_up * cos / mass
        state = CartPoleState(
            position=position + DT * velocity,
            velocity=velocity + DT * speed_up,
            angle=angle + DT * spin,
            spin=spin + DT * spin_up,
        )
        fallen = (jnp.abs(state.position) > MAX_POSITION) | (jnp.abs(state.angle) > MAX_ANGLE)
        reward = jnp.where(fallen, -1.0, 0.0) if self.sutton_barto_reward else 1.0
        return state, self.timestep(jnp.stack(state)[None], reward=reward, terminated=fallen)

    def frame(self, state: CartPoleState) -> dict[str, Any]:
        x, angle = float(state.position), float(state.angle)
        tip = (x + 2 * HALF_POLE * np.sin(angle), 2 * HALF_POLE * np.cos(angle))
        track = ((-MAX_POSITION, 0.0), (MAX_POSITION, 0.0))
        return drawing((x, 0.0), [track, ((x, 0.0), tip)], radius=0.15)

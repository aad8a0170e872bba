"""Classic control: five tasks with one agent, step for step those of Gymnasium 1."""

from typing import Any

from phalanx.envs.base import Env
from phalanx.envs.classic.acrobot import Acrobot
from phalanx.envs.classic.cart_pole import CartPole
from phalanx.envs.classic.mountain_car import MountainCar, MountainCarContinuous
from phalanx.envs.classic.pendulum import Pendulum

NAMES = {
    "CartPole-v1": "classic control: balance a pole on a cart; 500 is the best return",
    "MountainCar-v0": "classic control: drive an underpowered car up a hill",
    "MountainCarContinuous-v0": "classic control: the same with continuous actions",
    "Acrobot-v1": "classic control: swing a double pendulum up",
    "Pendulum-v1": "classic control: swing a pendulum up and hold it, continuous actions",
}
TASKS: dict[str, type[Env]] = {
    "CartPole-v1": CartPole,
    "MountainCar-v0": MountainCar,
    "MountainCarContinuous-v0": MountainCarContinuous,
    "Acrobot-v1": Acrobot,
    "Pendulum-v1": Pendulum,
}


def entry(variant: str) -> tuple[type[Env], dict[str, Any]]:
    """The class behind `classic/VARIANT`; the name fixes no field."""
    return TASKS[variant], {}

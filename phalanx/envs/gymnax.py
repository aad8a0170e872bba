"""gymnax: environments of the package gymnax, one agent each, compiled into the training program."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax

from phalanx.config import option
from phalanx.envs.base import Env
from phalanx.envs.foreign import Hands, Sight, building, like, package
from phalanx.errors import PhalanxError, suggest
from phalanx.types import Array, EnvSpec, PyTree, TimeStep

NAMES = {
    "CartPole-v1": "gymnax: balance a pole on a cart",
    "Acrobot-v1": "gymnax: swing up two links",
    "MountainCar-v0": "gymnax: drive out of a valley",
    "MountainCarContinuous-v0": "gymnax: the same with continuous actions",
    "Pendulum-v1": "gymnax: swing up a pendulum, continuous actions",
    "Catch-bsuite": "gymnax: catch a falling ball",
    "DeepSea-bsuite": "gymnax: exploration, one rewarding path",
    "Asterix-MinAtar": "gymnax: MinAtar's Asterix, pictures",
    "Breakout-MinAtar": "gymnax: MinAtar's Breakout, pictures",
    "Freeway-MinAtar": "gymnax: MinAtar's Freeway, pictures",
    "SpaceInvaders-MinAtar": "gymnax: MinAtar's Space Invaders, pictures",
}
# All ids of the package.
OPEN = True


@dataclass(frozen=True)
class Gymnax(Env):
    """An environment of gymnax. Its own time limit is set one step beyond phalanx's and is never reached."""

    of_another_package = True

    id: str = ""
    time_limit: int | None = option(
        None, "steps after which an episode is truncated (default: the package's limit)", at_least=1
    )

    @cached_property
    def _made(self) -> tuple[Any, Any, int]:
        """The environment of gymnax, its parameters, and the time limit."""
        gymnax = package("gymnax")
        with building(f"gymnax/{self.id}"):
            world, params = gymnax.make(self.id)
        limit = self.time_limit or int(params.max_steps_in_episode)
        return world, params.replace(max_steps_in_episode=limit + 1), limit

    @cached_property
    def _start(self) -> PyTree:
        world, params, _ = self._made
        return jax.eval_shape(world.reset_env, jax.random.key(0), params)

    @cached_property
    def hands(self) -> Hands:
        world, params, _ = self._made
        return Hands.of(f"gymnax/{self.id}", [world.action_space(params)])

    @cached_property
    def sight(self) -> Sight:
        return Sight.of(("agent",), [self._start[0]])

    @cached_property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            name=f"gymnax/{self.id}",
            agents=("agent",),
            agent_types=("agent",),
            time_limit=self._made[2],
            **self.sight.spec,
            **self.hands.spec,
        )

    def reset(self, key: Array) -> tuple[PyTree, TimeStep]:
        world, params, _ = self._made
        obs, state = world.reset_env(key, params)
        return like(state, self._start[1]), self.timestep(self.sight.array([obs]))

    def step(self, key: Array, state: PyTree, actions: Array) -> tuple[PyTree, TimeStep]:
        world, params, _ = self._made
        (action,) = self.hands.rows(actions)
        obs, state, reward, terminated, _ = world.step_env(key, state, action, params)
        step = self.timestep(self.sight.array([obs]), reward=reward, terminated=terminated)
        return like(state, self._start[1]), step


def entry(variant: str) -> tuple[type[Env], dict[str, Any]]:
    """The class behind `gymnax/VARIANT` and the fields that the name fixes."""
    if variant not in NAMES:
        known = package("gymnax").registered_envs
        if variant not in known:
            raise PhalanxError(f"gymnax has no {variant!r}.{suggest(variant, known)}")
    return Gymnax, {"id": variant}

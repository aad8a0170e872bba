"""An environment as a user of phalanx would write it, outside of the package."""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp

from phalanx.config import option
from phalanx.envs.base import Env
from phalanx.types import EnvSpec


@dataclass(frozen=True)
class Agree(Env):
    """Two agents are paid when they choose the same."""

    pay: float = option(1.0, "what agreeing pays", above=0)

    @cached_property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            "custom/agree",
            ("a", "b"),
            ("same", "same"),
            (("one",),) * 2,
            ("one", "two"),
            (2, 2),
            time_limit=4,
        )

    def reset(self, key):
        return jnp.int32(0), self.timestep(jnp.ones((2, 1)))

    def step(self, key, state, actions):
        return state + 1, self.timestep(jnp.ones((2, 1)), reward=self.pay * (actions[0] == actions[1]))


class Unsound(Agree):
    """Its reward depends on nothing it was given."""

    def step(self, key, state, actions):
        state, now = super().step(key, state, actions)
        return state, now._replace(reward=now.reward[0])


class Steering(Agree):
    """Actions are numbers, which no algorithm here has."""

    @cached_property
    def spec(self) -> EnvSpec:
        import dataclasses

        return dataclasses.replace(super().spec, action_kind="continuous")


class NeedsArguments(Agree):
    """Cannot be built from the command line."""

    def __init__(self, size):
        super().__init__()
        self.size = jax.random.key(size)


class Raises(Agree):
    """Its constructor has a complaint of its own."""

    def __init__(self, **options):
        raise RuntimeError("no licence")


@dataclass(frozen=True)
class OddOption(Agree):
    """An option of a type that no command line can give."""

    sizes: tuple[int, ...] = option((1, 2), "sizes")

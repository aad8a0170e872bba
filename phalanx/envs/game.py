"""Matrix games of two sides, one step long: toys for opponents."""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np

from phalanx.envs.base import Env, joint_features
from phalanx.types import Array, EnvSpec, TimeStep

NAMES = {
    "pennies": "matching pennies: left wins if both choose the same",
    "rock_paper_scissors": "rock, paper, scissors",
}

PAYOFFS = {
    "pennies": [[1, -1], [-1, 1]],
    "rock_paper_scissors": [[0, -1, 1], [1, 0, -1], [-1, 1, 0]],
}
ACTIONS = {"pennies": ("heads", "tails"), "rock_paper_scissors": ("rock", "paper", "scissors")}
SIDES = ("left", "right")


@dataclass(frozen=True)
class MatrixGame(Env):
    """Both sides choose once; what one wins, the other loses."""

    game: str

    @cached_property
    def spec(self) -> EnvSpec:
        features = (("to play", "played"),) * 2
        return EnvSpec(
            name=f"game/{self.game}",
            agents=SIDES,
            agent_types=("player", "player"),
            teams=SIDES,
            obs_features=features,
            state_features=joint_features(SIDES, features),
            action_counts=(len(ACTIONS[self.game]),) * 2,
            action_names=(ACTIONS[self.game],) * 2,
            time_limit=1,
            common_reward=False,
        )

    def reset(self, key: Array) -> tuple[Array, TimeStep]:
        return jnp.int32(0), self.timestep(jnp.tile(jnp.array([1.0, 0.0]), (2, 1)))

    def step(self, key: Array, state: Array, actions: Array) -> tuple[Array, TimeStep]:
        won = jnp.asarray(np.array(PAYOFFS[self.game], np.float32))[actions[0], actions[1]]
        seen = jnp.tile(jnp.array([0.0, 1.0]), (2, 1))
        return state, self.timestep(seen, reward=jnp.stack([won, -won]), terminated=True)


def entry(variant: str) -> tuple[type[Env], dict[str, str]]:
    """The class behind `game/VARIANT` and the fields that the name fixes."""
    return MatrixGame, {"game": variant}

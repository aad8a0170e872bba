"""simple_reference: two agents, each knows which landmark is the other's goal, and can say one of ten words.

An agent's reward is minus the other's distance to its goal, mixed by `local_ratio` with the mean of both.
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.config import option
from phalanx.envs.mpe.particles import Intent, ParticleEnv, listed, plane
from phalanx.envs.mpe.simple_speaker_listener import colors_of, landmark_named
from phalanx.envs.mpe.world import Agent, Bodies, Body, length

FIRST_LANDMARK = 2
COLORS = np.full((3, 3), 0.25) + 0.5 * np.eye(3)


@dataclass(frozen=True)
class SimpleReference(ParticleEnv):
    """Two speakers that are listeners too."""

    name = "simple_reference"
    local_ratio: float = option(
        0.5, "weight of an agent's own reward relative to the mean of both", at_least=0, at_most=1
    )

    @cached_property
    def bodies(self):
        return Bodies(
            (Agent("agent_0", speaks=True), Agent("agent_1", speaks=True)),
            tuple(Body(f"landmark_{i}", color=tuple(color)) for i, color in enumerate(COLORS.tolist())),
            words=10,
        )

    @property
    def common_reward(self):
        return self.local_ratio == 0

    def drawn(self, key):
        return jax.random.randint(key, (2,), 0, 3)

    def sees(self, now, agent):
        return {
            "velocity": plane(now.velocity[agent]),
            "landmark": plane(now.position[FIRST_LANDMARK:] - now.position[agent]),
            "goal colour of the other": listed(colors_of(now.drawn[agent], COLORS)),
            "heard": listed(now.said[1 - agent]),
        }

    def rewards(self, now):
        goals = jnp.take_along_axis(now.position[FIRST_LANDMARK:], now.drawn[:, None], 0)
        brought_about = -length(jnp.flip(now.position[:2], 0) - goals)
        return self.local_ratio * brought_about + (1 - self.local_ratio) * brought_about.mean(0)

    def intent(self, agent, seen):
        """Name the other's goal by its number, and go where one is told."""
        word = seen["goal colour of the other"].argmax(-1)
        return Intent(landmark_named(seen["landmark"], seen["heard"]), seen["velocity"], word)

    def colors(self, state):
        colors = super().colors(state)
        colors[:2] = COLORS[np.asarray(state.drawn)[::-1]]
        return colors


SCENARIO = SimpleReference

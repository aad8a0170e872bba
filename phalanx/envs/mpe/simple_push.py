"""simple_push: an agent wants to reach its goal; an adversary that does not know the goal keeps it away.

The agent's reward is minus its distance to the goal; the adversary's is that distance minus its own.
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.mpe.particles import Intent, ParticleEnv, listed, pick, plane
from phalanx.envs.mpe.world import Agent, Bodies, Body, length

ADVERSARY, GOOD, FIRST_LANDMARK = 0, 1, 2
LANDMARK_COLORS = np.array([[0.1, 0.9, 0.1], [0.1, 0.1, 0.9]])
# The agent wears the colour of its goal, paler.
AGENT_COLORS = np.array([[0.25, 0.75, 0.25], [0.25, 0.25, 0.75]])


@dataclass(frozen=True)
class SimplePush(ParticleEnv):
    """Keep-away."""

    name = "simple_push"

    @cached_property
    def bodies(self):
        return Bodies(
            (
                Agent(
                    "adversary_0", solid=True, color=(0.75, 0.25, 0.25), type="adversary", team="adversary"
                ),
                Agent("agent_0", solid=True, type="good", team="good"),
            ),
            tuple(
                Body(f"landmark_{i}", color=tuple(color)) for i, color in enumerate(LANDMARK_COLORS.tolist())
            ),
        )

    @property
    def common_reward(self):
        return False

    def drawn(self, key):
        return jax.random.randint(key, (1,), 0, 2)

    def goal(self, now):
        """Where the goal is, (2, B)."""
        return jnp.where(now.drawn[0] == 0, now.position[FIRST_LANDMARK], now.position[FIRST_LANDMARK + 1])

    def sees(self, now, agent):
        own = now.position[agent]
        landmarks = plane(now.position[FIRST_LANDMARK:] - own)
        other = plane(now.position[1 - agent] - own)
        if agent == ADVERSARY:
            return {"velocity": plane(now.velocity[agent]), "landmark": landmarks, "other": other}
        batch = now.position.shape[-1]
        first = now.drawn[0] == 0
        return {
            "velocity": plane(now.velocity[agent]),
            "goal": plane(self.goal(now) - own),
            "own colour": listed(jnp.where(first, AGENT_COLORS[0][:, None], AGENT_COLORS[1][:, None])),
            "landmark": landmarks,
            "landmark colour": listed(jnp.broadcast_to(LANDMARK_COLORS.reshape(-1, 1), (6, batch))),
            "other": other,
        }

    def rewards(self, now):
        to_goal = length(now.position[:2] - self.goal(now))
        return jnp.stack([to_goal[GOOD] - to_goal[ADVERSARY], -to_goal[GOOD]])

    def intent(self, agent, seen):
        """The agent goes to its goal, the adversary to the landmark that the agent is nearest to."""
        if agent == GOOD:
            return Intent(seen["goal"], seen["velocity"])
        near = jnp.square(seen["landmark"] - seen["other"][:, None]).sum(-1).argmin(-1)
        return Intent(pick(seen["landmark"], near), seen["velocity"])

    def colors(self, state):
        colors = super().colors(state)
        colors[GOOD] = AGENT_COLORS[int(np.asarray(state.drawn)[0])]
        return colors


SCENARIO = SimplePush

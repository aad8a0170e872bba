"""simple_adversary: N agents know which of N landmarks is the goal; an adversary watches them to find out.

The agents' reward is the adversary's distance to the goal minus that of the nearest agent; the adversary's
reward is minus its own distance. With `adversary=scripted` the adversary is part of the environment, and the
agents are one team with one reward.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.config import option
from phalanx.envs.base import numbered
from phalanx.envs.mpe.particles import Intent, ParticleEnv, nearest, pick, plane
from phalanx.envs.mpe.world import Agent, Bodies, Body, least, length, without


@dataclass(frozen=True)
class SimpleAdversary(ParticleEnv):
    """Physical deception."""

    name = "simple_adversary"
    agents: int = option(2, "number of good agents, and of landmarks", at_least=1, at_most=64)
    adversary: Literal["learning", "scripted"] = option(
        "learning", "scripted: the adversary follows a fixed rule and is not an agent"
    )
    agent_neighbors: int | None = option(None, "observe only this many nearest agents", at_least=1)
    landmark_neighbors: int | None = option(None, "observe only this many nearest landmarks", at_least=1)

    @cached_property
    def bodies(self):
        return Bodies(
            (
                Agent("adversary_0", size=0.15, color=(0.85, 0.35, 0.35), type="adversary", team="adversary"),
                *(
                    Agent(name, size=0.15, color=(0.35, 0.35, 0.85), type="good", team="good")
                    for name in numbered("agent", self.agents)
                ),
            ),
            tuple(
                Body(name, size=0.08, color=(0.15, 0.15, 0.15)) for name in numbered("landmark", self.agents)
            ),
        )

    @property
    def common_reward(self):
        return self.adversary == "scripted"

    @property
    def puppets(self):
        return {0: self.guess} if self.adversary == "scripted" else {}

    def drawn(self, key):
        return jax.random.randint(key, (1,), 0, self.agents)

    def goal(self, now):
        """Where the goal is, (2, B)."""
        return jnp.take_along_axis(now.position[1 + self.agents :], now.drawn[None], 0)[0]

    def sees(self, now, agent):
        own = now.position[agent]
        landmarks = now.position[1 + self.agents :] - own
        others = without(now.position[: 1 + self.agents], agent) - own
        if self.landmark_neighbors is not None:
            (landmarks,) = nearest(landmarks, self.landmark_neighbors)
        if self.agent_neighbors is not None:
            (others,) = nearest(others, self.agent_neighbors)
        secret = {} if agent == 0 else {"goal": plane(self.goal(now) - own)}
        return secret | {"landmark": plane(landmarks), "other": plane(others)}

    def rewards(self, now):
        to_goal = length(now.position[: 1 + self.agents] - self.goal(now))
        good = to_goal[0] - least(to_goal[1:])
        return jnp.concatenate([-to_goal[:1], jnp.broadcast_to(good, (self.agents, *good.shape))])

    def guess(self, now):
        """The push of a scripted adversary: to the landmark that has an agent nearest to it."""
        agents, landmarks = now.position[1 : 1 + self.agents], now.position[1 + self.agents :]
        guarded = least(length(landmarks[:, None] - agents[None]), 1).argmin(0)
        way = jnp.take_along_axis(landmarks, guarded[None, None], 0)[0] - now.position[0]
        return self.bodies.agents[0].pull(way, now.velocity[0]).clip(-1.0, 1.0)

    def intent(self, agent, seen):
        """Agent i goes to landmark i, so that all are covered; the adversary to where an agent is nearest."""
        landmarks = seen["landmark"]
        if agent > 0:
            return Intent(landmarks[:, (agent - 1) % landmarks.shape[1]])
        there = landmarks.any(-1)[:, :, None] & seen["other"].any(-1)[:, None]
        between = jnp.square(landmarks[:, :, None] - seen["other"][:, None]).sum(-1)
        return Intent(pick(landmarks, jnp.where(there, between, jnp.inf).min(-1).argmin(-1)))

    def colors(self, state):
        colors = super().colors(state)
        colors[1 + self.agents + int(np.asarray(state.drawn)[0])] = (0.15, 0.65, 0.15)
        return colors


SCENARIO = SimpleAdversary

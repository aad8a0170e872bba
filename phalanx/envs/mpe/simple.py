"""simple: one agent goes to a landmark. Reward: minus the squared distance."""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp

from phalanx.envs.mpe.particles import Intent, ParticleEnv, plane
from phalanx.envs.mpe.world import Agent, Bodies, Body


@dataclass(frozen=True)
class Simple(ParticleEnv):
    """One agent, one landmark."""

    name = "simple"

    @cached_property
    def bodies(self):
        return Bodies((Agent("agent_0"),), (Body("landmark", color=(0.75, 0.25, 0.25)),))

    def sees(self, now, agent):
        return {
            "velocity": plane(now.velocity[0]),
            "landmark": plane(now.position[1] - now.position[0]),
        }

    def rewards(self, now):
        return -jnp.square(now.position[1:] - now.position[0]).sum(1)

    def intent(self, agent, seen):
        return Intent(seen["landmark"], seen["velocity"])


SCENARIO = Simple

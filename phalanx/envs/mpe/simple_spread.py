"""simple_spread: N agents cover N landmarks and are penalised for collisions.

All agents get the same reward for coverage (minus the distance from each landmark to its nearest agent). Each
gets -1 for every other agent that it overlaps. `local_ratio` weights the two.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phalanx.config import option
from phalanx.envs.base import numbered
from phalanx.envs.mpe.particles import Intent, ParticleEnv, listed, nearest, plane, shortest
from phalanx.envs.mpe.world import Agent, Bodies, Body, least, length, total, without

COVERED = 0.1  # within this distance of an agent a landmark is covered


@dataclass(frozen=True)
class SimpleSpread(ParticleEnv):
    """Cooperative navigation."""

    name = "simple_spread"
    agents: int = option(3, "number of agents, and of landmarks", at_least=1, at_most=64)
    local_ratio: float = option(0.5, "weight of own collisions relative to coverage", at_least=0, at_most=1)
    terminate_on_success: bool = option(False, "terminate when every landmark is covered")
    collision_penalty: bool = option(True, "penalise collisions; off is stage 0 of mpe2's curriculum")
    agent_neighbors: int | None = option(None, "observe only this many nearest agents", at_least=1)
    landmark_neighbors: int | None = option(None, "observe only this many nearest landmarks", at_least=1)

    @cached_property
    def bodies(self):
        n = self.agents
        return Bodies(
            tuple(
                Agent(name, size=0.15, solid=True, color=(0.35, 0.35, 0.85)) for name in numbered("agent", n)
            ),
            tuple(Body(name) for name in numbered("landmark", n)),
            words=2,  # nobody speaks, but the silence is seen
        )

    @property
    def common_reward(self):
        return self.local_ratio == 0 or not self.collision_penalty or self.agents == 1

    def sees(self, now, agent):
        own = now.position[agent]
        landmarks = now.position[self.agents :] - own
        others = without(now.position[: self.agents], agent) - own
        said = without(now.said, agent)
        if self.landmark_neighbors is not None:
            (landmarks,) = nearest(landmarks, self.landmark_neighbors)
        if self.agent_neighbors is not None:
            others, said = nearest(others, self.agent_neighbors, said)
        return {
            "velocity": plane(now.velocity[agent]),
            "position": plane(own),
            "landmark": plane(landmarks),
            "other": plane(others),
            "word": listed(said.reshape(-1, said.shape[-1])),
        }

    def to_landmarks(self, now):
        """From each landmark to the agent nearest to it, (L, B)."""
        between = now.position[: self.agents, None] - now.position[None, self.agents :]
        return least(length(between))

    def rewards(self, now):
        agents = now.position[: self.agents]
        touching = length(agents[:, None] - agents[None]) < 2 * self.bodies.sizes[0]
        collisions = total((touching & ~np.eye(self.agents, dtype=bool)[..., None]) * 1.0, 1)
        own = -collisions * self.collision_penalty
        return -total(self.to_landmarks(now)) * (1 - self.local_ratio) + own * self.local_ratio

    def over(self, now):
        return self.terminate_on_success & (self.to_landmarks(now) < COVERED).all(0)

    def intent(self, agent, seen):
        """Go to the nearest landmark, even if other agents go there too."""
        return Intent(shortest(seen["landmark"]), seen["velocity"])


SCENARIO = SimpleSpread

"""simple_world_comm: adversaries with a leader that sees all and speaks hunt prey among food and forests.

Who is in a forest is seen only from within it, and by the leader. Adversaries earn 5 for every pair of prey
and adversary that overlap, less a tenth of the distance to the nearest prey; prey pays 5 a catch, earns 2
for food, and pays for leaving the square and for being far from food.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate

import jax.numpy as jnp

from phalanx.config import option
from phalanx.envs.base import numbered
from phalanx.envs.mpe.particles import Block, Intent, ParticleEnv, listed, plane, shortest
from phalanx.envs.mpe.world import Agent, Bodies, Body, beyond_edge, least, length, total, without

LEADER = 0
WORDS = 4


@dataclass(frozen=True)
class SimpleWorldComm(ParticleEnv):
    """A hunt with a leader."""

    name = "simple_world_comm"
    good: int = option(2, "number of prey", at_least=1, at_most=64)
    adversaries: int = option(4, "number of adversaries, including the leader", at_least=1, at_most=64)
    obstacles: int = option(1, "number of obstacles", at_least=0, at_most=64)
    food: int = option(2, "number of food locations", at_least=1, at_most=64)
    forests: int = option(2, "number of forests", at_least=0, at_most=64)

    landmarks_within = 0.9

    @cached_property
    def bodies(self):
        hunter = partial(Agent, size=0.075, solid=True, team="adversary", accel=3.0, max_speed=1.0)
        prey = partial(Agent, size=0.045, solid=True, type="good", team="good", accel=4.0, max_speed=1.3)
        return Bodies(
            (
                hunter("leadadversary_0", type="leader", color=(0.65, 0.15, 0.15), speaks=True),
                *(
                    hunter(name, type="adversary", color=(0.95, 0.45, 0.45))
                    for name in numbered("adversary", self.adversaries - 1)
                ),
                *(prey(name, color=(0.45, 0.95, 0.45)) for name in numbered("agent", self.good)),
            ),
            (
                *(Body(name, size=0.2, solid=True) for name in numbered("obstacle", self.obstacles)),
                *(Body(name, size=0.03, color=(0.15, 0.15, 0.65)) for name in numbered("food", self.food)),
                *(Body(name, size=0.3, color=(0.6, 0.9, 0.6)) for name in numbered("forest", self.forests)),
            ),
            words=WORDS,
        )

    @property
    def common_reward(self):
        return False

    def touching(self, now, ours: slice, theirs: slice):
        """Which bodies overlap, (ours, theirs, B)."""
        sizes = self.bodies.sizes
        apart = length(now.position[ours, None] - now.position[None, theirs])
        return apart < (sizes[ours, None] + sizes[theirs])[..., None]

    @cached_property
    def where(self) -> dict[str, slice]:
        """Which bodies are what."""
        counts = {
            "hunters": self.adversaries,
            "prey": self.good,
            "obstacles": self.obstacles,
            "food": self.food,
            "forests": self.forests,
        }
        ends = accumulate(counts.values())
        return {
            name: slice(end - count, end) for (name, count), end in zip(counts.items(), ends, strict=True)
        }

    def sees(self, now, agent):
        n, own = self.adversaries + self.good, now.position[agent]
        inside = self.touching(now, slice(0, n), self.where["forests"])  # (A, forests, B)
        mine, others = inside[agent], without(inside, agent)
        visible = (mine & others).any(1) | (~mine.any(0) & ~others.any(1)) | (agent == LEADER)
        ways = jnp.where(visible[:, None], without(now.position[:n], agent) - own, 0.0)
        velocities = jnp.where(visible[:, None], without(now.velocity, agent), 0.0)
        in_forest = Block(jnp.where(mine, 1.0, -1.0), tuple(f" {i}" for i in range(self.forests)))
        first_prey = self.adversaries - (agent < self.adversaries)
        prey_velocity = {"prey velocity": plane(velocities[first_prey:])}
        seen = {
            "velocity": plane(now.velocity[agent]),
            "position": plane(own),
            "landmark": plane(now.position[n:] - own),
            "other": plane(ways),
        }
        if agent < self.adversaries:
            return seen | prey_velocity | {"in forest": in_forest, "leader's word": listed(now.said[LEADER])}
        return seen | {"in forest": in_forest} | prey_velocity

    def rewards(self, now):
        hunters, prey, food = (now.position[self.where[name]] for name in ("hunters", "prey", "food"))
        catches = self.touching(now, self.where["hunters"], self.where["prey"]) * 1.0
        to_prey = least(length(hunters[:, None] - prey[None]), 1)
        for_hunters = 5.0 * total(total(catches)) - 0.1 * to_prey
        eaten = total(self.touching(now, self.where["prey"], self.where["food"]) * 1.0, 1)
        to_food = least(length(prey[:, None] - food[None]), 1)
        for_prey = -5.0 * total(catches) - 2 * beyond_edge(prey) + 2 * eaten - 0.05 * to_food
        return jnp.concatenate([for_hunters, for_prey])

    def intent(self, agent, seen):
        """Hunters run at the nearest prey they see, or to the middle; prey goes to the nearest food.

        The leader says where the nearest prey is: left or right, below or above it.
        """
        if agent >= self.adversaries:
            food = seen["landmark"][:, self.obstacles : self.obstacles + self.food]
            return Intent(shortest(food), seen["velocity"])
        way = shortest(seen["other"][:, self.adversaries - 1 :])  # who is hidden seems to be here
        way = jnp.where(way.any(-1, keepdims=True), way, -seen["position"])
        word = (way[:, 0] > 0) + 2 * (way[:, 1] > 0) if agent == LEADER else None
        return Intent(way, 0.0, word)


SCENARIO = SimpleWorldComm

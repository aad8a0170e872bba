"""simple_tag: slow adversaries hunt fast prey among obstacles.

For every pair of prey and adversary that overlap all adversaries get 10 and that prey gets -10; prey is also
penalised for leaving the square. With `prey=scripted` the prey is part of the environment, and the
adversaries are one team with one reward.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import jax.numpy as jnp

from phalanx.config import option
from phalanx.envs.base import numbered
from phalanx.envs.mpe.particles import Intent, ParticleEnv, nearest, plane, shortest
from phalanx.envs.mpe.world import (
    COAST,
    DAMPING,
    DT,
    MOVES,
    Agent,
    Bodies,
    Body,
    beyond_edge,
    least,
    length,
    total,
    without,
)

CAUGHT = 10.0


@dataclass(frozen=True)
class SimpleTag(ParticleEnv):
    """Predators and prey."""

    name = "simple_tag"
    good: int = option(1, "number of prey", at_least=1, at_most=64)
    adversaries: int = option(3, "number of adversaries", at_least=1, at_most=64)
    obstacles: int = option(2, "number of obstacles", at_least=0, at_most=64)
    prey: Literal["learning", "scripted"] = option(
        "learning", "scripted: prey flees by a fixed rule and is not an agent"
    )
    prey_speed: float = option(
        1.0, "factor on the speed and force of prey (mpe2's curriculum: 0.5, 0.75, 1)", above=0
    )
    terminate_on_success: bool = option(False, "terminate when all prey is being caught")
    agent_neighbors: int | None = option(None, "observe only this many nearest agents", at_least=1)
    landmark_neighbors: int | None = option(None, "observe only this many nearest obstacles", at_least=1)

    landmarks_within = 0.9

    @cached_property
    def bodies(self):
        hunter = partial(Agent, size=0.075, solid=True, color=(0.85, 0.35, 0.35), accel=3.0, max_speed=1.0)
        prey = partial(Agent, size=0.05, solid=True, color=(0.35, 0.85, 0.35))
        accel, max_speed = 4.0 * self.prey_speed, 1.3 * self.prey_speed
        return Bodies(
            (
                *(
                    hunter(name, type="adversary", team="adversary")
                    for name in numbered("adversary", self.adversaries)
                ),
                *(
                    prey(name, type="good", team="good", accel=accel, max_speed=max_speed)
                    for name in numbered("agent", self.good)
                ),
            ),
            tuple(Body(name, size=0.2, solid=True) for name in numbered("obstacle", self.obstacles)),
        )

    @property
    def common_reward(self):
        return self.prey == "scripted"

    @property
    def puppets(self):
        if self.prey != "scripted":
            return {}
        hunters = slice(self.adversaries)
        return {
            i: lambda now, i=i: self.flee(now.position[i], now.velocity[i], now.position[hunters])
            for i in range(self.adversaries, self.adversaries + self.good)
        }

    def sees(self, now, agent):
        own, n = now.position[agent], self.adversaries + self.good
        obstacles = now.position[n:] - own
        others = without(now.position[:n], agent) - own
        # Only prey shows its velocity.
        velocities = without(now.velocity, agent)
        first_prey = self.adversaries - (agent < self.adversaries)
        if self.landmark_neighbors is not None:
            (obstacles,) = nearest(obstacles, self.landmark_neighbors)
        if self.agent_neighbors is None:
            velocities = velocities[first_prey:]
        else:
            velocities = velocities.at[:first_prey].set(0.0)
            others, velocities = nearest(others, self.agent_neighbors, velocities)
        return {
            "velocity": plane(now.velocity[agent]),
            "position": plane(own),
            "obstacle": plane(obstacles),
            "other": plane(others),
            "prey velocity": plane(velocities),
        }

    def catches(self, now):
        """1 where an adversary touches a prey, (adversaries, good, B)."""
        hunters, prey = now.position[: self.adversaries], now.position[self.adversaries :][: self.good]
        reach = self.bodies.sizes[0] + self.bodies.sizes[self.adversaries]
        return (length(hunters[:, None] - prey[None]) < reach) * 1.0

    def rewards(self, now):
        catches = self.catches(now)
        for_hunters = CAUGHT * total(total(catches))
        prey = now.position[self.adversaries :][: self.good]
        for_prey = -CAUGHT * total(catches) - beyond_edge(prey)
        hunters = jnp.broadcast_to(for_hunters, (self.adversaries, *for_hunters.shape))
        return jnp.concatenate([hunters, for_prey])

    def over(self, now):
        return self.terminate_on_success & (self.catches(now) > 0).any(0).all(0)

    def flee(self, position, velocity, hunters):
        """Where scripted prey runs, by its place and velocity (2, B) and those of hunters (n, 2, B): (2, B).

        Of the five moves it takes the one that brings it to rest farthest from the nearest adversary, less
        what it would pay for being beyond the edge.
        """
        moves = jnp.asarray(MOVES)[:, :, None] * 1.0
        faster = velocity * (1 - DAMPING) + self.bodies.agents[-1].accel * DT * moves
        rest = position + velocity * DT + COAST * faster  # (5, 2, B)
        nearest_hunter = least(length(rest[:, None] - hunters), 1)
        best = (nearest_hunter - beyond_edge(rest)).argmax(0)
        return jnp.take_along_axis(moves, best[None, None], 0)[0]

    def intent(self, agent, seen):
        """Adversaries run at the nearest prey, prey flees from them."""
        hunts = agent < self.adversaries
        others = seen["other"]
        if self.agent_neighbors is not None:
            # Who is who cannot be seen, but only prey shows a velocity.
            is_prey = seen["prey velocity"].any(-1, keepdims=True) == hunts
            others = jnp.where(is_prey, others, 0.0)
        else:
            first_prey = self.adversaries - hunts
            others = others[:, first_prey:] if hunts else others[:, :first_prey]
        if hunts:
            return Intent(shortest(others))  # at full speed
        # What is not there is far away.
        away = jnp.where(others.any(-1, keepdims=True), others, 1e3) + seen["position"][:, None]
        batch_last = [jnp.moveaxis(x, 0, -1) for x in (seen["position"], seen["velocity"], away)]
        return Intent(self.flee(*batch_last).T)


SCENARIO = SimpleTag

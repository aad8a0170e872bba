"""simple_crypto: Alice tells Bob one of two goals; Eve overhears her. Alice and Bob share a key.

Bob and Eve each name a goal; the error is the squared distance from the true one. Eve's reward is minus her
error, that of Alice and Bob is Eve's error minus Bob's.
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.mpe.particles import Intent, ParticleEnv, listed
from phalanx.envs.mpe.world import Agent, Bodies, Body

EVE, BOB, ALICE = 0, 1, 2
WORDS, GOALS = 4, 2


@dataclass(frozen=True)
class SimpleCrypto(ParticleEnv):
    """Covert communication."""

    name = "simple_crypto"

    @cached_property
    def bodies(self):
        return Bodies(
            (
                Agent(
                    "eve_0",
                    color=(0.75, 0.25, 0.25),
                    type="adversary",
                    team="adversary",
                    moves=False,
                    speaks=True,
                ),
                Agent("bob_0", type="listener", team="good", moves=False, speaks=True),
                Agent("alice_0", type="speaker", team="good", moves=False, speaks=True),
            ),
            (Body("landmark_0", color=(1.0, 0.0, 0.0)), Body("landmark_1", color=(0.0, 1.0, 0.0))),
            words=WORDS,
        )

    @property
    def common_reward(self):
        return False

    def drawn(self, key):
        """The goal and the key."""
        return jax.random.randint(key, (2,), 0, GOALS)

    def sees(self, now, agent):
        goal, key = (jax.nn.one_hot(now.drawn[i], WORDS, axis=0) for i in (0, 1))
        heard = {"heard": listed(now.said[ALICE])}
        return {
            EVE: heard,
            BOB: {"key": listed(key)} | heard,
            ALICE: {"goal": listed(goal), "key": listed(key)},
        }[agent]

    def rewards(self, now):
        goal = jax.nn.one_hot(now.drawn[0], WORDS, axis=0)
        guesses = now.said[: BOB + 1]
        # Who says nothing at all pays nothing.
        paid = jnp.where(guesses.any(1), jnp.square(guesses - goal).sum(1), 0.0)
        good = paid[EVE] - paid[BOB]
        return jnp.stack([-paid[EVE], good, good])

    def intent(self, agent, seen):
        """Alice says the goal, or the other one if the key says so; Bob undoes it, Eve believes her."""
        if agent == ALICE:
            return Intent(word=seen["goal"].argmax(-1) ^ seen["key"].argmax(-1))
        heard = seen["heard"][:, :GOALS].argmax(-1)
        return Intent(word=heard ^ seen["key"].argmax(-1) if agent == BOB else heard)

    def colors(self, state):
        """Bob wears the colour of the goal, Alice that of the key."""
        colors = super().colors(state)
        goal, key = np.asarray(state.drawn)
        colors[BOB], colors[ALICE] = colors[3 + goal], colors[3 + key]
        return colors


SCENARIO = SimpleCrypto

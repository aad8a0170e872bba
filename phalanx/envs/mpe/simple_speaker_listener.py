"""simple_speaker_listener: the speaker sees the goal's colour and can only speak; the listener must go there.

The reward of both is minus the squared distance from the listener to the goal.
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.mpe.particles import Intent, ParticleEnv, listed, pick, plane
from phalanx.envs.mpe.world import Agent, Bodies, Body

SPEAKER, LISTENER, FIRST_LANDMARK = 0, 1, 2
COLORS = np.full((3, 3), 0.15) + 0.5 * np.eye(3)


@dataclass(frozen=True)
class SimpleSpeakerListener(ParticleEnv):
    """Cooperative communication."""

    name = "simple_speaker_listener"

    @cached_property
    def bodies(self):
        return Bodies(
            (
                Agent("speaker_0", size=0.075, type="speaker", moves=False, speaks=True),
                Agent("listener_0", size=0.075, type="listener"),
            ),
            tuple(
                Body(f"landmark_{i}", size=0.04, color=tuple(color))
                for i, color in enumerate(COLORS.tolist())
            ),
            words=3,
        )

    def drawn(self, key):
        return jax.random.randint(key, (1,), 0, 3)

    def sees(self, now, agent):
        if agent == SPEAKER:
            return {"goal colour": listed(colors_of(now.drawn[0], COLORS))}
        return {
            "velocity": plane(now.velocity[LISTENER]),
            "landmark": plane(now.position[FIRST_LANDMARK:] - now.position[LISTENER]),
            "heard": listed(now.said[SPEAKER]),
        }

    def rewards(self, now):
        goal = jnp.take_along_axis(now.position[FIRST_LANDMARK:], now.drawn[None], 0)[0]
        apart = jnp.square(now.position[LISTENER] - goal).sum(0)
        return jnp.broadcast_to(-apart, (2, *apart.shape))

    def intent(self, agent, seen):
        """The speaker names the goal by its number, the listener goes where it is told."""
        if agent == SPEAKER:
            return Intent(word=seen["goal colour"].argmax(-1))
        return Intent(landmark_named(seen["landmark"], seen["heard"]), seen["velocity"])

    def colors(self, state):
        colors = super().colors(state)
        colors[LISTENER] = np.minimum(COLORS[int(np.asarray(state.drawn)[0])] + 0.45, 1.0)
        return colors


def colors_of(drawn, colors):
    """The colour of a drawn landmark: (B,), (L, 3) -> (3, B)."""
    return jnp.asarray(colors)[drawn].T


def landmark_named(landmarks, heard):
    """The way (B, 2) to the landmark (B, L, 2) that a word (B, C) names; none if nothing was said."""
    words = heard[:, : landmarks.shape[1]]
    return jnp.where(words.any(-1, keepdims=True), pick(landmarks, words.argmax(-1)), 0.0)


SCENARIO = SimpleSpeakerListener

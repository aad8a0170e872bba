"""What off-policy learners share: their options, and the updates of target networks.

Mixers and critics are defined elsewhere. A learner keeps a replay buffer (`phalanx.data.replay`), waits until
it `can_sample`, takes `gradient_steps` gradient steps on samples after every `batch_steps` env steps, and
updates its target networks with `moved`; see `ValueBased.update`.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from phalanx.algorithms.shared.reward_scale import RewardScaleConfig
from phalanx.config import option, with_default
from phalanx.data.replay import EpisodeReplay, Episodes
from phalanx.errors import PhalanxError
from phalanx.types import Array, PyTree, Transition


@dataclass(frozen=True)
class OffPolicyConfig(RewardScaleConfig):
    """The options of every learner on replay."""

    batch_steps: int = with_default(RewardScaleConfig, "batch_steps", 512)
    gradient_steps: int = option(4, "gradient steps after every batch_steps env steps", at_least=1)
    optimiser: Literal["adam", "rmsprop"] = option("adam", "optimiser")
    target_every: int = option(200, "gradient steps between updates of the target network", at_least=1)
    target_rate: float = option(
        1.0, "step size of an update of the target network; 1 copies the network", above=0, at_most=1
    )

    warm_up: int = option(0, "env steps before learning begins", at_least=0)
    priority: float = option(
        0.0, "exponent of prioritised replay of steps; 0: uniform sampling", at_least=0, at_most=1
    )
    priority_correction: float = option(
        0.4, "exponent of the importance weights of prioritised replay", at_least=0, at_most=1
    )

    @property
    def gradient_scale(self) -> optax.GradientTransformation:
        """What the optimiser does to a clipped gradient, before the learning rate."""
        if self.optimiser == "adam":
            return optax.scale_by_adam(eps=1e-5)
        return optax.scale_by_rms(decay=0.99, eps=1e-5, eps_in_sqrt=False)


def moved(target: PyTree, params: PyTree, count: Array, every: int, rate: float) -> PyTree:
    """A target network after `count` steps: every `every` steps it moves by `rate` towards `params`."""
    moves = (count % every == 0) * rate
    return jax.tree.map(lambda o, n: (1 - moves) * o + moves * n, target, params)


def when(condition: Array, new: PyTree, old: PyTree) -> PyTree:
    """`new` if the condition () holds, else `old`."""
    return jax.tree.map(lambda o, n: jnp.where(condition, n, o), old, new)


def require_places(replay: EpisodeReplay, batch_steps: int, episodes: int, envs: int) -> None:
    """Raise an error if the buffer is too small for a rollout, or for a batch of episodes."""
    steps = batch_steps // envs
    if replay.places(envs) <= steps:
        raise PhalanxError(
            f"a buffer of {replay.capacity} episodes is too small for rollouts of {steps} steps in "
            f"{envs} environments: use buffer={steps * envs}, or a smaller batch_steps"
        )
    if episodes > replay.capacity:
        raise PhalanxError(f"episodes={episodes} is more than a buffer of {replay.capacity} can hold")


def as_rollout(episodes: Episodes, memory: Array) -> Transition:
    """N whole episodes as a rollout (L, N, ...), whose first steps have the `memory` (N, A, H).

    Its steps that are not `episodes.valid` belong to no episode.
    """
    seen, then = (
        jax.tree.map(lambda x, rows=rows: x[rows], episodes.observation)
        for rows in (slice(None, -1), slice(1, None))
    )
    return Transition(
        observation=seen,
        first=episodes.first[:-1],
        memory=jnp.broadcast_to(memory, (len(episodes.valid), *memory.shape)),
        action=episodes.action,
        extras={},
        reward=episodes.reward,
        terminated=episodes.terminated,
        truncated=episodes.last & ~episodes.terminated,
        next_observation=then,
        info={},
        agent_terminated=episodes.agent_terminated,
    )

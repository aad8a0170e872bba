"""What learners on replay share: their options, the updates of target networks, the scale of rewards.

It knows nothing of mixers or critics. A learner keeps a replay buffer (`phalanx.data.replay`), waits until it
`can_sample`, takes `gradient_steps` gradient steps on samples after every `batch_steps` env steps, and moves
its target networks with `moved`; `ValueBased.update` does so.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from phalanx.algorithms.shared.team import TeamConfig
from phalanx.config import option, with_default
from phalanx.data.normalise import RunningNorm
from phalanx.types import Array, PyTree

REWARD_DECAY = 0.999  # of the running statistics of rewards, for each rollout


@dataclass(frozen=True)
class OffPolicyConfig(TeamConfig):
    """The options of every learner on replay."""

    batch_steps: int = with_default(TeamConfig, "batch_steps", 512)
    gradient_steps: int = option(4, "gradient steps after every batch_steps env steps", at_least=1)
    optimiser: Literal["adam", "rmsprop"] = option("adam", "optimiser")
    reward_norm: Literal["none", "scale", "standardise"] = option(
        "none",
        "scale divides rewards by their running standard deviation; standardise also subtracts their running "
        "mean, which changes the task where episodes differ in length",
    )
    target_every: int = option(200, "gradient steps between updates of the target network", at_least=1)
    target_rate: float = option(
        1.0, "step of the target network towards the network: 1 copies it", above=0, at_most=1
    )

    warm_up: int = option(0, "env steps before learning begins", at_least=0)
    priority: float = option(
        0.0, "exponent of prioritised replay of steps: 0 draws uniformly", at_least=0, at_most=1
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
    """A target network after `count` steps: every `every` of them it moves by `rate` towards `params`."""
    moves = (count % every == 0) * rate
    return jax.tree.map(lambda o, n: (1 - moves) * o + moves * n, target, params)


def when(condition: Array, new: PyTree, old: PyTree) -> PyTree:
    """`new` if the condition () holds, else `old`."""
    return jax.tree.map(lambda o, n: jnp.where(condition, n, o), old, new)


class RewardScale:
    """Running statistics of rewards, and rewards normalised by them."""

    def __init__(self, kind: str):
        self.kind = kind

    def update(self, norm: RunningNorm, reward: Array) -> RunningNorm:
        """Update the statistics with the rewards of a rollout (T, B, A)."""
        if self.kind == "none":
            return norm
        return norm.update(reward.mean()[None], reward.var()[None], REWARD_DECAY)

    def apply(self, reward: Array, norm: RunningNorm) -> Array:
        """Rewards (..., A) as they are learnt from."""
        if self.kind == "none":
            return reward
        mean = norm.mean[0] if self.kind == "standardise" else 0.0
        return (reward - mean) / norm.std[0]

"""Reward normalisation: rewards divided by their running standard deviation, or standardised."""

from dataclasses import dataclass
from typing import Literal

from phalanx.algorithms.base import RoleParameters
from phalanx.algorithms.shared.team import TeamConfig
from phalanx.config import option
from phalanx.data.normalise import RunningNorm
from phalanx.networks.sharing import partition
from phalanx.types import Array

REWARD_DECAY = 0.999  # of the running statistics of rewards, for each rollout
ROLE = "reward scale"  # for runs that start from another
Statistics = RunningNorm | tuple[()]


@dataclass(frozen=True)
class RewardScaleConfig(TeamConfig):
    """The options of every learner whose rewards can be normalised by statistics of single rewards."""

    reward_norm: Literal["none", "scale", "standardise"] = option(
        "none",
        "scale divides rewards by their running standard deviation; standardise also subtracts their running "
        "mean, which changes the task if episodes differ in length",
    )


class RewardScale:
    """Running statistics of rewards, and rewards normalised by them."""

    def __init__(self, kind: str):
        self.kind = kind

    def start(self) -> Statistics:
        """The statistics before anything was seen; nothing without normalisation."""
        return () if self.kind == "none" else RunningNorm.start(1)

    def update(self, norm: Statistics, reward: Array) -> Statistics:
        """Update the statistics with the rewards of a rollout (T, B, A)."""
        if self.kind == "none" or not isinstance(norm, RunningNorm):
            return norm
        return norm.update(reward.mean()[None], reward.var()[None], REWARD_DECAY)

    def apply(self, reward: Array, norm: Statistics) -> Array:
        """Rewards (..., A) as they are learnt from."""
        if self.kind == "none" or not isinstance(norm, RunningNorm):
            return reward
        mean = norm.mean[0] if self.kind == "standardise" else 0.0
        return (reward - mean) / norm.std[0]

    def networks(self, norm: Statistics) -> dict[str, RoleParameters]:
        """The statistics as a role of their own: values are on the scale of the rewards learnt from."""
        return {ROLE: RoleParameters(partition(["rewards"]), norm)} if norm else {}

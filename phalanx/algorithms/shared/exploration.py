"""Exploration with epsilon, the probability of a random action: its options and its schedule."""

from dataclasses import dataclass
from typing import Literal

from phalanx.config import option
from phalanx.errors import PhalanxError
from phalanx.ops import schedules
from phalanx.types import Array, Clock


@dataclass(frozen=True)
class ExplorationConfig:
    """The options of every learner that explores by epsilon."""

    epsilon: float = option(1.0, "initial exploration: probability of a random action", at_least=0, at_most=1)
    epsilon_end: float = option(0.05, "final exploration", at_least=0, at_most=1)
    epsilon_steps: int = option(50_000, "env steps over which exploration decays", at_least=1)
    epsilon_decay: Literal["linear", "exponential"] = option(
        "linear", "how exploration decays: by equal steps or by equal ratios"
    )


class Exploration:
    """Epsilon over time."""

    def __init__(self, config: ExplorationConfig):
        c = self.config = config
        if c.epsilon_decay == "exponential" and min(c.epsilon, c.epsilon_end) <= 0:
            raise PhalanxError(
                f"epsilon={c.epsilon:g} cannot decay exponentially to epsilon_end={c.epsilon_end:g}: choose "
                f"both above 0, or epsilon_decay=linear"
            )

    def after(self, clock: Clock, steps: int) -> Array:
        """Epsilon `steps` env steps from now, when the next rollout begins."""
        c = self.config
        decay = schedules.linear if c.epsilon_decay == "linear" else schedules.exponential
        return decay(c.epsilon, c.epsilon_end, c.epsilon_steps, clock.env_steps + steps)

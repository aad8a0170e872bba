"""MAPPO: PPO for a team, with a critic that sees the global state while training.

Yu et al. 2022, "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games",
https://arxiv.org/abs/2103.01955
"""

from dataclasses import dataclass

from phalanx.algorithms.shared.actor_critic import CriticView
from phalanx.algorithms.shared.agents import Reward
from phalanx.algorithms.shared.ppo import PPO, PPOConfig
from phalanx.config import with_default


@dataclass(frozen=True)
class MAPPOConfig(PPOConfig):
    """The critic sees the state and values the team's reward; the actors see only their own."""

    critic_view: CriticView = with_default(PPOConfig, "critic_view", "state")
    reward: Reward = with_default(PPOConfig, "reward", "mean")


class MAPPO(PPO):
    """PPO with a centralised critic."""

    Config = MAPPOConfig


ALGORITHM = MAPPO

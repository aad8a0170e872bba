"""IPPO: every agent runs PPO on its own observation and its own reward.

de Witt et al. 2020, "Is Independent Learning All You Need in the StarCraft Multi-Agent
Challenge?", https://arxiv.org/abs/2011.09533
"""

from phalanx.algorithms.shared.ppo import PPO, PPOConfig


class IPPO(PPO):
    """PPO whose critic sees what the actor sees; with `share=agent` the agents have nothing in common."""

    Config = PPOConfig


ALGORITHM = IPPO

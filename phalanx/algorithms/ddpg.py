"""DDPG: off-policy deterministic policy gradients. `ddpg` is independent, `maddpg` has centralised critics.

Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", https://arxiv.org/abs/1509.02971.
Lowe et al. 2017, "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments",
https://arxiv.org/abs/1706.02275. They differ in one default: what the critic sees.
"""

from dataclasses import dataclass

from phalanx.algorithms.shared.critic import CriticView
from phalanx.algorithms.shared.deterministic import Deterministic, DeterministicConfig
from phalanx.config import with_default

NAMES = {
    "ddpg": "DDPG: every agent learns a deterministic policy and the values of its own actions, off-policy.",
    "maddpg": "MADDPG: DDPG for a team, with critics that see the state and all agents' actions.",
}


@dataclass(frozen=True)
class MADDPGConfig(DeterministicConfig):
    """The critics see the global state, the agent's own observation and all actions."""

    critic_view: CriticView = with_default(DeterministicConfig, "critic_view", "state+obs")


class DDPG(Deterministic):
    """Each actor maximises its critic's value of its own action; the others' actions come from the replay."""


ALGORITHMS = {"ddpg": DDPG, "maddpg": DDPG}
CONFIGS = {"ddpg": DeterministicConfig, "maddpg": MADDPGConfig}
PRESETS = {"ddpg": "sac"}  # whose presets it has, besides its own

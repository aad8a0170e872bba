"""TD3: DDPG with twin critics, a delayed actor and smoothed targets. `matd3` has centralised critics.

Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods",
https://arxiv.org/abs/1802.09477. For teams: Ackermann et al. 2019, "Reducing Overestimation Bias in
Multi-Agent Domains Using Double Centralized Critics", https://arxiv.org/abs/1910.01465.
"""

from dataclasses import dataclass

import jax

from phalanx.algorithms.shared.critic import CriticView
from phalanx.algorithms.shared.deterministic import Deterministic, DeterministicConfig
from phalanx.algorithms.shared.off_policy_actor_critic import OffPolicyLearner
from phalanx.config import option, with_default
from phalanx.types import Array, Transition

NAMES = {
    "td3": "TD3: DDPG with twin critics, a delayed actor and smoothed targets.",
    "matd3": "MATD3: TD3 for a team, with critics that see the state and all agents' actions.",
}


@dataclass(frozen=True)
class TD3Config(DeterministicConfig):
    """Every option of TD3 and MATD3."""

    actor_every: int = with_default(DeterministicConfig, "actor_every", 2)
    target_noise: float = option(
        0.2,
        "standard deviation of the noise on the target policy's continuous actions, relative to half "
        "their range",
        at_least=0,
        at_most=1,
    )
    target_noise_clip: float = option(0.5, "where that noise is clipped", at_least=0)


@dataclass(frozen=True)
class MATD3Config(TD3Config):
    """The critics see the global state, the agent's own observation and all actions."""

    critic_view: CriticView = with_default(TD3Config, "critic_view", "state+obs")


class TD3(Deterministic):
    """DDPG whose target is the smaller value of two critics, at the target policy's action with noise."""

    Config = TD3Config
    config: TD3Config
    critics = 2

    def next_actions(self, learner: OffPolicyLearner, batch: Transition, key: Array) -> Array:
        actions = super().next_actions(learner, batch, key)
        if self.code.discrete:
            return actions
        c = self.config
        noise = (c.target_noise * jax.random.normal(key, actions.shape)).clip(
            -c.target_noise_clip, c.target_noise_clip
        )
        return (actions + noise * batch.next_observation.avail).clip(-1.0, 1.0)


ALGORITHMS = {"td3": TD3, "matd3": TD3}
CONFIGS = {"td3": TD3Config, "matd3": MATD3Config}
PRESETS = {"td3": "sac", "matd3": "maddpg"}  # whose presets it has, besides its own

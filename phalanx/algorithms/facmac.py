"""FACMAC: deterministic policies for a team, with a critic that is a mixture of the agents' own critics.

Peng et al. 2021, "FACMAC: Factored Multi-Agent Centralised Policy Gradients", https://arxiv.org/abs/2003.06709
"""

from dataclasses import dataclass

import jax

from phalanx.algorithms.shared import mixing
from phalanx.algorithms.shared.deterministic import Deterministic, DeterministicConfig
from phalanx.algorithms.shared.mixing import MixingConfig
from phalanx.algorithms.shared.team import Reward
from phalanx.config import with_default
from phalanx.types import Array, PyTree


@dataclass(frozen=True)
class FACMACConfig(MixingConfig, DeterministicConfig):
    """Every option of FACMAC."""

    reward: Reward = with_default(DeterministicConfig, "reward", "mean")


class FACMAC(Deterministic):
    """Each agent's critic values its own action, and a mixer combines these values into the team's value.

    All actors follow its gradient together: all actions come from the current policies, not from the replay.
    """

    Config = FACMACConfig
    config: FACMACConfig
    team_value = True

    def init_mixer(self, key: Array) -> PyTree:
        return mixing.init(key, self.config, self.spec)

    def mix(self, params: PyTree, values: Array, state: Array) -> Array:
        own = jax.tree.map(lambda x: x[0], params)
        return jax.vmap(lambda each: mixing.mix(self.config, own, each, state))(values)

    def joint(self, taken: Array, chosen: Array) -> Array:
        return chosen


ALGORITHM = FACMAC
PRESETS = {"facmac": "maddpg"}  # whose presets it has, besides its own

"""QMIX: the team's value is a monotonic mixture of the agents' values, with weights computed from the state.

Rashid et al. 2018, "QMIX: Monotonic Value Function Factorisation for Deep Multi-Agent Reinforcement
Learning", https://arxiv.org/abs/1803.11485; the fine-tuned settings are those of Hu et al. 2021,
https://arxiv.org/abs/2102.03479.
"""

from dataclasses import dataclass

import jax

from phalanx.algorithms.shared import mixing
from phalanx.algorithms.shared.mixing import MixingConfig
from phalanx.algorithms.shared.value_based import ValueBased, ValueBasedConfig
from phalanx.types import Array, PyTree


@dataclass(frozen=True)
class QMIXConfig(MixingConfig, ValueBasedConfig):
    """Every option of QMIX."""


class QMIX(ValueBased):
    """Q_tot = w2(s) elu(w1(s) Q + b1(s)) + v(s), with w1 and w2 positive."""

    Config = QMIXConfig
    config: QMIXConfig
    team_value = True
    needs_state = True

    def init_mixer(self, key: Array) -> PyTree:
        return mixing.init(key, self.config, self.spec)

    def mix(self, params: PyTree, chosen: Array, best: Array, action: Array, state: Array):
        return mixing.mix(self.config, jax.tree.map(lambda x: x[0], params), chosen, state)


ALGORITHM = QMIX

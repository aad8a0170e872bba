"""VDN: the team's value is the sum of the agents' values.

Sunehag et al. 2018, "Value-Decomposition Networks for Cooperative Multi-Agent Learning",
https://arxiv.org/abs/1706.05296
"""

from phalanx.algorithms.shared.value_based import ValueBased
from phalanx.types import Array, PyTree


class VDN(ValueBased):
    """Q_tot = sum of Q_i."""

    team_value = True

    def mix(self, params: PyTree, chosen: Array, best: Array, action: Array, state: Array):
        return chosen.sum(-1, keepdims=True)


ALGORITHM = VDN

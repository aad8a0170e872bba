"""VDN: the team's value is the sum of the agents' values.

Sunehag et al. 2018, "Value-Decomposition Networks for Cooperative Multi-Agent Learning",
https://arxiv.org/abs/1706.05296
"""

from phalanx.algorithms.shared.value_based import ValueBased


class VDN(ValueBased):
    """Q_tot = sum of Q_i."""

    team_value = True

    def mix(self, params, chosen, best, action, state):
        return chosen.sum(-1, keepdims=True)


ALGORITHM = VDN

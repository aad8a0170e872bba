"""IQL: every agent learns the values of its own actions and treats the others as part of the environment.

Tan 1993, "Multi-Agent Reinforcement Learning: Independent vs. Cooperative Agents"; with deep networks as in
Tampuu et al. 2017, https://arxiv.org/abs/1511.08779.
"""

from phalanx.algorithms.shared.value_based import ValueBased
from phalanx.types import Array, PyTree


class IQL(ValueBased):
    """No mixer: each agent learns the value of its own actions."""

    def mix(self, params: PyTree, chosen: Array, best: Array, action: Array, state: Array):
        return chosen


ALGORITHM = IQL

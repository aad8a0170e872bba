"""IQL: every agent learns the values of its own actions, as if the others were part of the world.

Tan 1993, "Multi-Agent Reinforcement Learning: Independent vs. Cooperative Agents"; with deep networks as
Tampuu et al. 2017, https://arxiv.org/abs/1511.08779, have it.
"""

from phalanx.algorithms.shared.value import Value


class IQL(Value):
    """No mixer: the value of what an agent did is what is learnt."""

    def mix(self, params, chosen, best, action, state):
        return chosen


ALGORITHM = IQL

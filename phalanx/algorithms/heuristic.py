"""Heuristic: the scripted team that an environment brings along. Learns nothing; a mark to beat."""

from phalanx.algorithms.shared.unlearning import Unlearning
from phalanx.errors import PhalanxError


class Heuristic(Unlearning):
    """`spec.script` plays."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        if spec.script is None:
            raise PhalanxError(
                f"{spec.name} has no scripted team here; particle worlds and battles with state=global do, "
                f"such as mpe/simple_spread and battle/3m"
            )
        self.script = spec.script

    @property
    def acts_on(self):
        return frozenset({"observation", "state", "memory"})

    def memory(self, batch):
        return self.script.memory(batch)

    def act(self, policy, observation, first, memory, key, greedy):
        action, memory = self.script.act(observation, first, memory)
        return action, memory, {}


ALGORITHM = Heuristic

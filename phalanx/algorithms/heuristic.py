"""Heuristic: the scripted team that comes with an environment. It does not learn; a baseline."""

from phalanx.algorithms.base import Actor, AlgorithmConfig
from phalanx.algorithms.shared.fixed import FixedPolicy
from phalanx.errors import PhalanxError
from phalanx.types import Array, EnvSpec, Observation, Picture, PyTree, ScriptedTeam


class ScriptedActor(Actor):
    """Plays a script, which may use the global state."""

    def __init__(self, script: ScriptedTeam):
        self.script = script

    @property
    def acts_on(self):
        return frozenset({"observation", "state", "memory"})

    def initial_memory(self, batch: int):
        return self.script.memory(batch)

    def act(
        self, policy: PyTree, observation: Observation, first: Array, memory: PyTree, key: Array, greedy: bool
    ):
        if isinstance(observation.obs, Picture):  # nothing stands beside it: a script sees what was given
            observation = observation._replace(obs=observation.obs.pixels)
        action, memory = self.script.act(observation, first, memory)
        return action, memory, {}


class Heuristic(FixedPolicy):
    """`spec.script` plays."""

    def __init__(self, config: AlgorithmConfig, spec: EnvSpec):
        super().__init__(config, spec)
        if spec.script is None:
            raise PhalanxError(
                f"{spec.name} has no scripted team here; particle worlds and battles with state=global do, "
                f"such as mpe/simple_spread and battle/3m"
            )
        self.actor = ScriptedActor(spec.script)


ALGORITHM = Heuristic

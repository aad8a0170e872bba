"""SMAX: JaxMARL's battles against its scripted enemy."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax.numpy as jnp

from phalanx.config import option
from phalanx.envs.foreign import package
from phalanx.envs.jaxmarl.world import World
from phalanx.errors import PhalanxError, suggest
from phalanx.types import Array, PyTree

STOP = 4
MOVES = ("move 0", "move 1", "move 2", "move 3", "stop")


@dataclass(frozen=True)
class Smax(World):
    """HeuristicEnemySMAX of a scenario. The global state is SMAX's `world_state`.

    JaxMARL's `max_steps=100` allows 101 steps, since it compares before it counts; so does the default here.
    A battle that both teams lose at the same moment is over and not won, as in SMAX's reward.
    """

    common_reward: ClassVar[bool] = True

    scenario: str = "3m"
    time_limit: int = option(101, "steps after which an episode is truncated", at_least=1)
    see_enemy_actions: bool = option(True, "observations contain the last actions of enemies in sight")
    walls_cause_death: bool = option(True, "units that touch the border of the map die")
    attack_mode: Literal["closest", "random"] = option("closest", "how the scripted enemy chooses its target")

    @property
    def name(self) -> str:
        return f"smax_{self.scenario}"

    def build(self) -> Any:
        smax = package("jaxmarl").environments.smax
        known = smax.smax_env.MAP_NAME_TO_SCENARIO
        if self.scenario not in known:
            near = suggest(self.scenario, known)
            raise PhalanxError(f"jaxmarl has no SMAX scenario {self.scenario!r}.{near}")
        return smax.HeuristicEnemySMAX(
            scenario=smax.map_name_to_scenario(self.scenario),
            max_steps=self.time_limit,
            see_enemy_actions=self.see_enemy_actions,
            walls_cause_death=self.walls_cause_death,
            attack_mode=self.attack_mode,
        )

    def details(self) -> dict[str, Any]:
        world = self.world
        allies, units = list(world.agents), list(world.all_agents)
        types = ("unit",) * len(allies)
        if not world.smacv2_unit_type_generation:
            types = tuple(world.unit_type_names[i] for i in world.scenario.tolist()[: len(allies)])
        seen = []
        for ally in allies:
            others = [unit for unit in units if unit != ally]
            of_others = [f"{unit}:{feature}" for unit in others for feature in world.unit_features]
            seen.append((*of_others, *(f"own:{feature}" for feature in world.own_features)))
        of_units = [f"{unit}:{feature}" for unit in units for feature in world.own_features]
        tags = [f"{unit}:{tag}" for tag in ("team", "type") for unit in units]
        attacks = tuple(f"attack {enemy}" for enemy in world.enemy_agents)
        return {
            "agent_types": types,
            "obs_features": tuple(seen),
            "state_features": (*of_units, *tags),
            "action_names": (MOVES + attacks,) * len(allies),
            "has_win": True,
        }

    def global_state(self, raw: PyTree) -> Array:
        return raw["world_state"]

    def actions(self, state: PyTree, actions: Array) -> Array:
        return jnp.where(self.alive(state), actions, STOP)

    def terminated(self, before: PyTree, actions: dict[Any, Array], after: PyTree, done: Array) -> Array:
        return ~self.alive(after).any() | ~self._enemies(after).any()

    def avail(self, state: PyTree) -> list[Array]:
        masks = self.world.get_avail_actions(state)
        return [masks[a] for a in self.world.agents]

    def alive(self, state: PyTree) -> Array:
        return state.state.unit_alive[: self.world.num_allies]

    def _enemies(self, state: PyTree) -> Array:
        return state.state.unit_alive[self.world.num_allies :]

    def info(self, state: PyTree) -> dict[str, Array]:
        return {"won": self.alive(state).any() & ~self._enemies(state).any()}

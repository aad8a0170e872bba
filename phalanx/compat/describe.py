"""The part of SMAC's class that describes a battle: sizes, units, masks and statistics."""

import math
from functools import cached_property
from typing import Any

import numpy as np

from phalanx.compat.maps import get_map_params
from phalanx.compat.units import TYPE_NUMBERS, Snapshot, Unit, one_hot, snapshot, unit
from phalanx.envs.battle.env import Battle
from phalanx.envs.battle.sight import LEAST_SHOOT
from phalanx.envs.battle.terrain import SIZE
from phalanx.envs.battle.units import unit_types
from phalanx.errors import PhalanxError
from phalanx.types import PyTree, TimeStep

NOTHING_YET = "there is nothing to see yet: call reset() first"
MOVES, PATHING, HEIGHTS = 4, 8, 9  # entries that say where an agent can move, and what is around it


class MultiAgentEnv:
    """The parent of SMAC's environment classes, for programs that import or annotate it."""


class Described(MultiAgentEnv):
    """The read-only part of SMAC's class."""

    _battle: Battle
    _state: PyTree
    _now: TimeStep | None
    _read: tuple[PyTree, Snapshot] | None = None
    map_name: str
    n_agents: int
    n_actions: int
    n_enemies: int
    episode_limit: int
    n_actions_move = MOVES
    n_obs_pathing, n_obs_height = PATHING, HEIGHTS
    map_x = map_y = max_distance_x = max_distance_y = SIZE

    # What is seen

    @property
    def _seen(self) -> Any:
        """The last `Observation`, of numpy arrays."""
        if self._now is None:
            raise PhalanxError(NOTHING_YET)
        return self._now.observation

    @property
    def _units(self) -> Snapshot:
        """The current units, read once per step."""
        if self._now is None:
            raise PhalanxError(NOTHING_YET)
        if self._read is None or self._read[0] is not self._state:
            self._read = self._state, snapshot(self._battle, self._state)
        return self._read[1]

    def get_avail_actions(self) -> list[list[int]]:
        """For each agent and action, 1 if it is available now, else 0."""
        return self._seen.avail.astype(int).tolist()

    def get_avail_agent_actions(self, agent_id: int) -> list[int]:
        """For each action, 1 if it is available to this agent now, else 0."""
        return self._seen.avail[agent_id].astype(int).tolist()

    def get_total_actions(self) -> int:
        """The number of actions of an agent."""
        return self.n_actions

    def get_visibility_matrix(self) -> np.ndarray:
        """(A, A + E) bool: which living units each living agent has within sight; never itself."""
        now, count = self._units, self.n_agents
        alive, sight = now.health > 0, np.array([self.unit_sight_range(agent) for agent in range(count)])
        distance = np.hypot(now.x - now.x[:count, None], now.y - now.y[:count, None])
        sees = (distance < sight[:, None]) & alive & alive[:count, None]
        # Of two agents the one with the lower number is asked, for both: it matters where sight differs.
        asked = np.triu(sees[:, :count], 1)
        sees[:, :count] = asked | asked.T
        return sees

    # Units

    @property
    def agents(self) -> dict[int, Unit]:
        """The agents' current units by number; empty before the first reset."""
        return self._side(0, self.n_agents)

    @property
    def enemies(self) -> dict[int, Unit]:
        """The enemies' current units by number; empty before the first reset."""
        return self._side(self.n_agents, self.n_enemies)

    def _side(self, first: int, count: int) -> dict[int, Unit]:
        if self._now is None:
            return {}
        now = self._units
        return {number: unit(now, first + number, self.n_agents) for number in range(count)}

    def get_unit_by_id(self, a_id: int) -> Unit:
        """An agent's unit."""
        return unit(self._units, range(self.n_agents)[a_id], self.n_agents)

    def get_unit_types(self) -> list[int]:
        """The game's numbers of the agents' and then the enemies' types, such as 48 for a marine.

        In SMAC agents are of types of their own, whose numbers depend on the map.
        """
        return [TYPE_NUMBERS[name] for name in self._units.types]

    def unit_sight_range(self, agent_id: int) -> float:
        """The sight range of an agent, in cells."""
        return self._range(agent_id, 0)

    def unit_shoot_range(self, agent_id: int) -> float:
        """The distance up to which an agent's attacks are available, in cells."""
        return self._range(agent_id, 1)

    def _range(self, agent_id: int, which: int) -> float:
        observer = self._battle.observer
        if not observer.unit_ranges:
            return float(observer.ranges(None)[which])
        name = self._units.types[range(self.n_agents)[agent_id]]
        of_type = unit_types(self._battle.stats)[name]
        return of_type.sight if which == 0 else max(of_type.shoots, LEAST_SHOOT)

    @staticmethod
    def distance(x1: float, y1: float, x2: float, y2: float) -> float:
        """The distance between two points."""
        return math.hypot(x2 - x1, y2 - y1)

    @property
    def last_action(self) -> np.ndarray:
        """(A, U) float32: what each agent did last; zeros before the first step."""
        done = np.full(self.n_agents, -1) if self._now is None else np.asarray(self._state.last_action)
        return (done[:, None] == np.arange(self.n_actions)).astype(np.float32)

    @property
    def death_tracker_ally(self) -> np.ndarray:
        """(A,) float32: 1 for the dead."""
        return self._dead[: self.n_agents]

    @property
    def death_tracker_enemy(self) -> np.ndarray:
        """(E,) float32: 1 for the dead."""
        return self._dead[self.n_agents :]

    @property
    def _dead(self) -> np.ndarray:
        if self._now is None:
            return np.zeros(self.n_agents + self.n_enemies, np.float32)
        return (self._units.health <= 0).astype(np.float32)

    @property
    def max_reward(self) -> float:
        """The return of a victory without regeneration, before scaling."""
        battle = self._battle
        if not battle.observer.world.drawn:
            return battle.max_reward
        most = battle.reward_death * self.n_enemies + battle.reward_win
        if self._now is None:
            return most
        now, theirs = self._units, slice(self.n_agents, None)
        return most + float((now.max_health + now.max_shield)[theirs].sum())

    # Sizes and names

    @property
    def map_type(self) -> str:
        """SMAC's name for this kind of map, such as `marines`."""
        return get_map_params(self.map_name)["map_type"]

    @property
    def n_actions_no_attack(self) -> int:
        """The number of actions before the first attack action."""
        return self._battle.observer.first_target

    @cached_property
    def unit_type_bits(self) -> int:
        """The number of entries that encode a unit's type; 0 if all agents have the same type."""
        return len(self._battle.observer.labels[0])

    @cached_property
    def shield_bits_ally(self) -> int:
        """1 if observations of agents have a shield entry, else 0."""
        return int(self._battle.observer.shields[0])

    @cached_property
    def shield_bits_enemy(self) -> int:
        """1 if observations of enemies have a shield entry, else 0."""
        return int(self._battle.observer.shields[1])

    def get_obs_move_feats_size(self) -> int:
        """The number of observation entries about where the agent can move."""
        observer = self._battle.observer
        return MOVES + PATHING * observer.pathing + HEIGHTS * observer.height

    def get_obs_enemy_feats_size(self) -> tuple[int, int]:
        """The number of enemies in an observation, and of entries for each."""
        vitals = (1 + self.shield_bits_enemy) * self._battle.observer.all_health
        return self.n_enemies, 4 + vitals + self.unit_type_bits

    def get_obs_ally_feats_size(self) -> tuple[int, int]:
        """The number of other agents in an observation, and of entries for each."""
        observer = self._battle.observer
        vitals = (1 + self.shield_bits_ally) * observer.all_health
        did = self.n_actions * observer.last_action
        return self.n_agents - 1, 4 + vitals + self.unit_type_bits + did

    def get_obs_own_feats_size(self) -> int:
        """The number of observation entries about the agent itself."""
        observer = self._battle.observer
        vitals = (1 + self.shield_bits_ally) * observer.own_health
        place = 2 * observer.own_position + 2 * observer.cone
        return vitals + place + self.unit_type_bits + observer.timestep

    @property
    def ally_state_attr_names(self) -> list[str]:
        """The names of the state's entries for each agent."""
        observer = self._battle.observer
        shield, facing = ["shield"] * observer.shields[0], ["fov_x", "fov_y"] * observer.cone
        return ["health", "energy/cooldown", "rel_x", "rel_y", *shield, *facing, *self._type_names]

    @property
    def enemy_state_attr_names(self) -> list[str]:
        """The names of the state's entries for each enemy."""
        shield = ["shield"] * self._battle.observer.shields[1]
        return ["health", "rel_x", "rel_y", *shield, *self._type_names]

    @property
    def _type_names(self) -> list[str]:
        return [f"type_{bit}" for bit in range(self.unit_type_bits)]

    # What SMACv2 adds

    def get_capabilities(self) -> np.ndarray:
        """(A * bits,) float32: each agent's type."""
        return one_hot(self._units.types[: self.n_agents], self._battle.observer.labels[0]).reshape(-1)

    def get_capabilities_agent(self, agent_id: int) -> np.ndarray:
        """(bits,) float32: an agent's type."""
        return self.get_capabilities().reshape(self.n_agents, -1)[agent_id]

    def get_cap_size(self) -> int:
        """The number of entries that encode an agent's type."""
        return self.unit_type_bits

    def get_obs_feature_names(self) -> list[str]:
        """A name for each entry of the first agent's observation."""
        return list(self._battle.spec.obs_features[0])

    def get_state_feature_names(self) -> list[str]:
        """A name for each entry of the state."""
        return list(self._battle.spec.state_features)

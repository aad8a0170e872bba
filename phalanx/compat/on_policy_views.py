"""Observations and states in the layouts of on-policy's environment class, made from the units with numpy.

Axis letters: A agents, N all units (agents first), U actions.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from phalanx.compat.units import Snapshot, one_hot
from phalanx.envs.battle.env import Battle
from phalanx.envs.battle.layout import FIRST_TARGET, NORTH
from phalanx.envs.battle.observe import PROBES
from phalanx.envs.battle.sight import SIGHT
from phalanx.envs.battle.terrain import SIZE
from phalanx.envs.battle.units import ENERGY_MAX

Parts = list[list[int]]


class Views:
    """on-policy's observations and states for its options `obs_...`, `state_...`, `add_...` and `use_...`."""

    def __init__(self, battle: Battle, chosen: Mapping[str, Any]):
        world = battle.observer.world
        self.allies, self.enemies, self.n_actions = world.allies, world.enemies, battle.spec.n_actions
        self.labels, self.shields = battle.observer.labels, battle.observer.shields
        self.walkable, self.heights = world.terrain.walkable, world.terrain.level / 4
        self._last: tuple[Snapshot, _Moment] | None = None
        self.on = {name: value for name, value in chosen.items() if isinstance(value, bool)}

    # Sizes

    def _vitals(self, side: int, shown: bool) -> int:
        return (1 + self.shields[side]) * shown

    def _moves(self, what: str) -> int:
        return 4 + 8 * self.on[f"{what}_pathing_grid"] + 9 * self.on[f"{what}_terrain_height"]

    @property
    def own_size(self) -> int:
        """The number of observation entries about the agent itself, without its id and the time."""
        on, bits = self.on, len(self.labels[0])
        return 4 + bits + self._vitals(0, on["obs_own_health"]) + self.n_actions * on["obs_last_action"]

    @property
    def obs_parts(self) -> Parts:
        """The parts of an observation as (units, entries): other agents, enemies, moves, the agent itself."""
        on, bits = self.on, len(self.labels[0])
        ally = 4 + bits + self._vitals(0, on["obs_all_health"]) + self.n_actions * on["obs_last_action"]
        enemy = 4 + bits + self._vitals(1, on["obs_all_health"])
        own = self.own_size + self.allies * on["obs_agent_id"] + on["obs_timestep_number"]
        return [[self.allies - 1, ally], [self.enemies, enemy], [1, self._moves("obs")], [1, own]]

    @property
    def agent_state_parts(self) -> Parts:
        """The same for an agent-specific state."""
        on, bits = self.on, len(self.labels[0])
        place, did = 2 * on["add_center_xy"], self.n_actions * on["state_last_action"]
        ally = 5 + bits + self._vitals(0, on["obs_all_health"]) + did + place
        enemy = 5 + bits + self._vitals(1, on["obs_all_health"]) + place
        own = 4 + bits + self._vitals(0, on["obs_own_health"]) + did + place
        own += self.allies * on["state_agent_id"] + on["state_timestep_number"]
        return [[self.allies - 1, ally], [self.enemies, enemy], [1, self._moves("obs")], [1, own]]

    @property
    def state_parts(self) -> Parts:
        """The same for the global state: agents, enemies, the rest."""
        on, bits = self.on, len(self.labels[0])
        more = 2 * on["add_center_xy"] + on["add_distance_state"] + 2 * on["add_xy_state"]
        more += on["add_visible_state"] + self.n_actions * on["state_last_action"]
        rest = self._moves("state") * on["add_move_state"] + on["state_timestep_number"]
        rest += self.allies * on["add_agent_id"]
        rest += sum(count * size for count, size in self.obs_parts) * on["add_local_obs"]
        return [
            [self.allies, 2 + self.shields[0] + bits + more],
            [self.enemies, 1 + self.shields[1] + bits + more + on["add_enemy_action_state"]],
            [1, rest],
        ]

    # What is shown

    def _moment(self, now: Snapshot, avail: np.ndarray) -> "_Moment":
        """The data from which observations and states are built, computed once for both."""
        if self._last is None or self._last[0] is not now:
            self._last = now, _Moment(self, now, avail)
        return self._last[1]

    def observations(self, now: Snapshot, avail: np.ndarray, did: np.ndarray, time: float) -> np.ndarray:
        """(A, O) float32; `avail` and `did` are (A, U), `time` a fraction of the limit."""
        on, at = self.on, self._moment(now, avail)
        ours, theirs = at.sides
        acted = [did[None]] * on["obs_last_action"]
        friends = [at.ones(ours), *ours.relative, *ours.vitals * on["obs_all_health"], ours.bits, *acted]
        foes = [at.aims, *theirs.relative, *theirs.vitals * on["obs_all_health"], theirs.bits]
        own = [at.itself, *ours.vitals * on["obs_own_health"], ours.bits, *acted]
        rows = [
            _others(_table(friends, ours.seen)),
            _flat(_table(foes, theirs.seen)),
            at.moves(on["obs_pathing_grid"], on["obs_terrain_height"]),
            np.concatenate(own, 2)[0],
        ]
        seen = np.where(at.living, np.concatenate(rows, 1), 0)
        return self._with_id_and_time(seen, on["obs_agent_id"], on["obs_timestep_number"], time)

    def agent_states(self, now: Snapshot, avail: np.ndarray, did: np.ndarray, time: float) -> np.ndarray:
        """(A, X) float32: agent-specific states. They contain all living units, at any distance."""
        on, at = self.on, self._moment(now, avail)
        ours, theirs = at.sides
        acted = [did[None]] * on["state_last_action"]
        centre = [side.centre * on["add_center_xy"] for side in at.sides]
        friends = [*at.from_the_living(ours.visible, *ours.relative), ours.ready]
        friends += [*ours.vitals * on["obs_all_health"], *centre[0], ours.bits, *acted]
        foes = at.from_the_living(at.aims, *theirs.relative, theirs.visible)
        foes += [*theirs.vitals * on["obs_all_health"], theirs.bits, *centre[1]]
        own = [at.itself, *ours.vitals * on["obs_own_health"], *centre[0], ours.bits, *acted]
        moves = at.moves(on["state_pathing_grid"], on["state_terrain_height"])
        # As many entries as in an observation, also where the state does not show what is around.
        rest = np.zeros((self.allies, self._moves("obs") - moves.shape[1]), np.float32)
        rows = [_others(_table(friends, ours.alive)), _flat(_table(foes, theirs.alive)), moves, rest]
        told = self._must_live(at, [*rows, np.concatenate(own, 2)[0]])
        return self._with_id_and_time(told, on["state_agent_id"], on["state_timestep_number"], time)

    def states(self, now: Snapshot, avail: np.ndarray, did: np.ndarray, time: float) -> np.ndarray:
        """(A, X) float32: the global state, with the entries that each agent adds to it."""
        on, at = self.on, self._moment(now, avail)
        tables = []
        for number, side in enumerate(at.sides):
            distance, dx, dy = side.relative
            added = [distance] * on["add_distance_state"] + [dx, dy] * on["add_xy_state"]
            added += [side.visible] * on["add_visible_state"]
            added += [at.aims] * (number == 1 and on["add_enemy_action_state"])
            # Enemies have as many entries for actions as agents, though theirs are not known.
            actions = did if number == 0 else np.zeros((self.enemies, self.n_actions), np.float32)
            added += [actions[None]] * on["state_last_action"]
            health, *shield = side.vitals
            columns = [health, *[side.ready] * (number == 0), *side.centre * on["add_center_xy"]]
            columns += [*shield, side.bits, *at.from_the_living(*added)]
            tables.append(_flat(_table(columns, side.alive)))
        told = self._must_live(at, tables)
        if on["add_move_state"]:
            moves = at.moves(on["state_pathing_grid"], on["state_terrain_height"])
            told = np.concatenate([told, self._must_live(at, [moves])], 1)
        if on["add_local_obs"]:
            told = np.concatenate([told, self.observations(now, avail, did, time)], 1)
        clock = [np.full((self.allies, 1), time)] * on["state_timestep_number"]
        number = [np.eye(self.allies)] * on["add_agent_id"]
        return np.concatenate([told, *clock, *number], 1).astype(np.float32)

    def _must_live(self, at: "_Moment", rows: list[np.ndarray]) -> np.ndarray:
        """With `use_mustalive` rows of dead agents are 0."""
        told = np.concatenate(rows, 1)
        return np.where(at.living, told, 0) if self.on["use_mustalive"] else told

    def _with_id_and_time(self, rows: np.ndarray, number: bool, clock: bool, time: float) -> np.ndarray:
        """Append the agent's id and the time, for dead agents too."""
        more = [np.eye(self.allies)] * number + [np.full((self.allies, 1), time)] * clock
        return np.concatenate([rows, *more], 1).astype(np.float32)


class _Side(NamedTuple):
    """The M units of one side. Columns of tables are (A or 1, M, entries)."""

    alive: np.ndarray
    """(A, M) bool: who lives, whoever looks"""
    seen: np.ndarray
    """(A, M) bool: who lives and is within the sight of a living agent"""
    visible: np.ndarray
    relative: list[np.ndarray]
    """distance, dx and dy, in ranges of sight"""
    vitals: list[np.ndarray]
    """health and, where the side has any, shield"""
    ready: np.ndarray
    """a weapon's cooldown, or a medivac's energy"""
    centre: list[np.ndarray]
    """x and y from the map's centre"""
    bits: np.ndarray


class _Moment:
    """The data from which all three layouts are built."""

    def __init__(self, views: Views, now: Snapshot, avail: np.ndarray):
        self._views, self._now, count = views, now, views.allies
        self.aims = avail[:, FIRST_TARGET:][:, : views.enemies, None].astype(np.float32)
        self._can_move = avail[:, NORTH:FIRST_TARGET].astype(np.float32)
        self.living = (now.health > 0)[:count, None]
        self.itself = np.eye(1, 4, dtype=np.float32)[None].repeat(count, 1)
        self.sides = self._side(0, slice(0, count)), self._side(1, slice(count, None))

    def _side(self, number: int, part: slice) -> _Side:
        views, count = self._views, self._views.allies
        now = Snapshot(*(each[part] for each in self._now))  # type: ignore[arg-type]
        x, y = self._now.x[:count, None], self._now.y[:count, None]
        dx, dy = now.x - x, now.y - y
        distance, lives = np.hypot(dx, dy), now.health > 0
        seen = (distance < SIGHT) & lives & self.living
        medics = np.array([name == "medivac" for name in now.types])
        ready = np.where(medics, now.energy / ENERGY_MAX, now.cooldown / now.cooldown_scale)
        vitals = [
            now.health / now.max_health,
            *[now.shield / np.maximum(now.max_shield, 1)] * views.shields[number],
        ]
        return _Side(
            alive=np.broadcast_to(lives, distance.shape),
            seen=seen,
            visible=seen[..., None].astype(np.float32),
            relative=[each[..., None] / SIGHT for each in (distance, dx, dy)],
            vitals=[each[None, :, None] for each in vitals],
            ready=ready[None, :, None],
            centre=[(each[None, :, None] - SIZE / 2) / SIZE for each in (now.x, now.y)],
            bits=one_hot(now.types, views.labels[number])[None],
        )

    def ones(self, side: _Side) -> np.ndarray:
        """A column of ones, which marks units that are shown."""
        return np.ones_like(side.visible)

    def from_the_living(self, *columns: np.ndarray) -> list[np.ndarray]:
        """The columns with rows of dead agents set to 0."""
        return [np.where(self.living[..., None], each, 0) for each in columns]

    def moves(self, pathing: bool, heights: bool) -> np.ndarray:
        """(A, entries): where each agent can move, and which cells around it are walkable and how high."""
        count, now = self._views.allies, self._now
        x, y = (
            each[:count].astype(int)[:, None] + PROBES[:, axis] for axis, each in enumerate((now.x, now.y))
        )
        inside = (x >= 0) & (x < SIZE) & (y >= 0) & (y < SIZE)
        rows = [self._can_move]
        for wanted, grid, probes in ((pathing, self._views.walkable, 8), (heights, self._views.heights, 9)):
            if wanted:
                around = np.where(inside, grid[x.clip(0, SIZE - 1), y.clip(0, SIZE - 1)], 1)
                rows.append(around[:, :probes].astype(np.float32))
        return np.concatenate(rows, 1)


def _table(columns: list[np.ndarray], told: np.ndarray) -> np.ndarray:
    """(A, M, entries): columns beside each other, and 0 where a unit is not `told`, (A, M) bool."""
    ends = np.cumsum([each.shape[2] for each in columns])
    table = np.empty((*told.shape, ends[-1]), np.float32)
    for each, end in zip(columns, ends, strict=True):
        table[..., end - each.shape[2] : end] = each
    table[~told] = 0
    return table


def _flat(table: np.ndarray) -> np.ndarray:
    return table.reshape(len(table), -1)


def _others(table: np.ndarray) -> np.ndarray:
    """(A, (A - 1) * entries): a table of agents without each agent's own row."""
    count = len(table)
    return table[~np.eye(count, dtype=bool)].reshape(count, -1)

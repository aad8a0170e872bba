"""Record `smac_interface.npz` from the Python code of SMAC itself.

StarCraft II is not needed: a stand-in for the game's controller shows units that this script invents, and
SMAC's own `reset`, `step`, `get_obs`, `get_state`, `get_avail_actions`, ... do the rest. Recorded from

    oxwhirl/smac             d6aab33f76abc3849c50463a8592a84f59a5ef84   (keys v1, variant, reward, end)
    oxwhirl/smacv2           577ab5a2cff2391f8df582da5731ea9cd6adf3c6   (keys v2, v2plain, end2)
    marlbenchmark/on-policy  de66d7a4b23fac2513f56f96f73b3f5cb96695ac   (keys onpolicy*)

in an environment of its own (Python 3.11), given a checkout of each:

    python -m venv smac && . smac/bin/activate
    pip install 'protobuf<3.21' 'numpy<2' absl-py s2clientprotocol gym==0.26.2
    pip install --no-deps pysc2==4.0.0 websocket-client portpicker six
    python tests/data/record_smac.py SMAC SMACV2 ON_POLICY

The walkable cells and heights of the maps (keys grid) are inputs: they are taken over from the file that is
there already, or read from a table with `--terrain`.
"""

import argparse
import csv
import importlib
import json
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from s2clientprotocol import raw_pb2

SIZE = 32
RL_BASE = 2005  # The allies' unit types are numbered from here, the enemies' are the game's own.
GOES_ON = 9  # Recorded in place of None, the end code of a battle that goes on.
# name: (type number, health, shield, energy)
UNITS = {
    "colossus": (4, 200, 150, 0),
    "baneling": (9, 30, 0, 0),
    "marine": (48, 45, 0, 0),
    "marauder": (51, 125, 0, 0),
    "medivac": (54, 150, 0, 200),
    "zealot": (73, 100, 50, 0),
    "stalker": (74, 80, 80, 0),
    "spine_crawler": (98, 300, 0, 0),
    "zergling": (105, 35, 0, 0),
    "hydralisk": (107, 80, 0, 0),
}
# map: (grid, allies in the order of their types, enemies in the order of their creation)
MAPS = {
    "3m": ("lane", "3 marine", "3 marine"),
    "8m": ("lane", "8 marine", "8 marine"),
    "25m": ("lane", "25 marine", "25 marine"),
    "5m_vs_6m": ("lane", "5 marine", "6 marine"),
    "8m_vs_9m": ("lane", "8 marine", "9 marine"),
    "10m_vs_11m": ("lane", "10 marine", "11 marine"),
    "27m_vs_30m": ("lane", "27 marine", "30 marine"),
    "MMM": ("lane", "2 marauder 7 marine 1 medivac", "7 marine 2 marauder 1 medivac"),
    "MMM2": ("lane", "2 marauder 7 marine 1 medivac", "8 marine 3 marauder 1 medivac"),
    "2s3z": ("lane", "2 stalker 3 zealot", "2 stalker 3 zealot"),
    "3s5z": ("lane", "3 stalker 5 zealot", "3 stalker 5 zealot"),
    "3s5z_vs_3s6z": ("lane", "3 stalker 5 zealot", "3 stalker 6 zealot"),
    "3s_vs_3z": ("open", "3 stalker", "3 zealot"),
    "3s_vs_4z": ("open", "3 stalker", "4 zealot"),
    "3s_vs_5z": ("open", "3 stalker", "5 zealot"),
    "1c3s5z": ("lane", "1 colossus 3 stalker 5 zealot", "1 colossus 3 stalker 5 zealot"),
    "2m_vs_1z": ("octagon", "2 marine", "1 zealot"),
    "corridor": ("corridor", "6 zealot", "24 zergling"),
    "6h_vs_8z": ("6h_vs_8z", "6 hydralisk", "8 zealot"),
    "2s_vs_1sc": ("2s_vs_1sc", "2 stalker", "1 spine_crawler"),
    "so_many_baneling": ("so_many_baneling", "7 zealot", "32 baneling"),
    "bane_vs_bane": ("octagon", "4 baneling 20 zergling", "20 zergling 4 baneling"),
    "2c_vs_64zg": ("2c_vs_64zg", "2 colossus", "64 zergling"),
}
# Points where probing the cell ahead is delicate: the rim of the map, the wall, whole numbers.
RIM = {
    "lane": [(0.25, 8.5), (0, 12), (31.5, 23.75), (0.999, 9), (31, 15.5), (16.5, 8), (30.99, 22.99), (7, 23)],
    "open": [(0.4, 0.7), (0, 0), (31.75, 31.75), (1, 1), (0.999, 31), (31, 0.5), (30.999, 0.999), (16, 0.25)],
}
# Distances of exactly 6 (may be shot) and 9 (not seen), and next to them.
BOUNDARY = (
    [(10, 16), (19, 16), (10, 19)],
    [(16, 16), (10, 10), (16 + 2**-10, 19)],
)
BOUNDARY_NEAR = (
    [(10, 16), (19 - 2**-10, 16), (10, 16 + 2**-9)],
    [(16 - 2**-10, 16), (10, 10), (19, 16)],
)
VARIANTS: dict[str, dict] = {
    "obs_last_action": {"obs_last_action": True},
    "obs_timestep_number": {"obs_timestep_number": True},
    "obs_pathing_grid": {"obs_pathing_grid": True},
    "obs_terrain_height": {"obs_terrain_height": True},
    "state_timestep_number": {"state_timestep_number": True},
    "no_state_last_action": {"state_last_action": False},
    "no_obs_all_health": {"obs_all_health": False},
    "no_obs_health": {"obs_all_health": False, "obs_own_health": False},
    "everything": {
        "obs_last_action": True,
        "obs_pathing_grid": True,
        "obs_terrain_height": True,
        "state_timestep_number": True,
    },
}
REWARDS: dict[str, dict] = {
    "default": {},
    "signed": {"reward_only_positive": False},
    "sparse": {"reward_sparse": True},
    "unscaled": {"reward_scale": False},
    "own_numbers": {
        "reward_only_positive": False,
        "reward_death_value": 7,
        "reward_win": 150,
        "reward_defeat": -30,
        "reward_negative_scale": 0.25,
        "reward_scale_rate": 15,
    },
}
ON_POLICY_FLAGS = {
    "add_move_state": False,
    "add_local_obs": False,
    "add_distance_state": False,
    "add_enemy_action_state": False,
    "add_agent_id": False,
    "add_visible_state": False,
    "add_xy_state": False,
    "use_state_agent": True,
    "use_mustalive": True,
    "add_center_xy": True,
    "use_stacked_frames": False,
    "stacked_frames": 1,
    "use_obs_instead_of_state": False,
}
# name: (arguments in place of the flags above, options of the constructor)
ON_POLICY_VARIANTS = {
    "bare": (
        {"add_center_xy": False},
        dict.fromkeys(
            ("obs_all_health", "obs_own_health", "obs_last_action", "obs_agent_id", "state_last_action",
             "state_agent_id"),
            False,
        ),
    ),
    "more": (
        {},
        dict.fromkeys(
            ("obs_timestep_number", "state_timestep_number", "obs_pathing_grid", "obs_terrain_height",
             "state_pathing_grid", "state_terrain_height"),
            True,
        ),
    ),
    "dead": ({"use_mustalive": False}, {"obs_pathing_grid": True}),
    "instead": ({"use_obs_instead_of_state": True}, {}),
    "common": (
        {"use_state_agent": False, "add_xy_state": True, "add_agent_id": True},
        {"state_timestep_number": True, "state_pathing_grid": True},
    ),
    "common_bare": ({"use_state_agent": False, "add_center_xy": False}, {"state_last_action": False}),
    "common_dead": (
        {
            **dict.fromkeys(("use_state_agent", "use_mustalive"), False),
            **{name: True for name in ON_POLICY_FLAGS if name.startswith("add_")},
        },
        {},
    ),
}  # fmt: skip
V2_TYPES = {
    "terran": ("marine", "marauder", "medivac"),
    "protoss": ("stalker", "zealot", "colossus"),
    "zerg": ("zergling", "hydralisk", "baneling"),
}
V2_SIZES = ((5, 5), (10, 10), (10, 11), (20, 20), (20, 23))
# The order of the nine allied types in SMACv2's maps.
V2_ORDER = sorted(unit for types in V2_TYPES.values() for unit in types)


@dataclass(frozen=True)
class Side:
    """The units of one side, in index order; the dead have no health."""

    kinds: list[str]
    x: np.ndarray
    y: np.ndarray
    health: np.ndarray
    shield: np.ndarray
    energy: np.ndarray
    cooldown: np.ndarray

    def without(self, dead: np.ndarray) -> "Side":
        return replace(self, health=np.where(dead, 0, self.health))

    @property
    def alive(self) -> np.ndarray:
        return self.health > 0


Battle = tuple[Side, Side]


class StandIn:
    """Answers in place of the game: whatever is ordered, it shows the units it was told to show."""

    def __init__(self):
        self.units: list = []

    def show(self, battle: Battle, ally_types: dict[str, int], rng: np.random.Generator | None = None):
        allies, enemies = (
            [self._unit(side, i, owner, ally_types) for i in range(len(side.kinds)) if side.alive[i]]
            for owner, side in ((1, battle[0]), (2, battle[1]))
        )
        if rng is not None:  # SMAC sorts the allies at the start.
            allies = [allies[i] for i in rng.permutation(len(allies))]
        self.units = allies + enemies

    @staticmethod
    def _unit(side: Side, i: int, owner: int, ally_types: dict[str, int]) -> raw_pb2.Unit:
        kind = side.kinds[i]
        number, health, shield, energy = UNITS[kind]
        unit = raw_pb2.Unit(
            tag=1000 * owner + i,
            owner=owner,
            unit_type=ally_types[kind] if owner == 1 else number,
            health=side.health[i],
            health_max=health,
            shield=side.shield[i],
            shield_max=shield,
            energy=side.energy[i],
            energy_max=energy,
            weapon_cooldown=side.cooldown[i],
        )
        unit.pos.x, unit.pos.y, unit.pos.z = side.x[i], side.y[i], 0
        return unit

    def observe(self):
        return SimpleNamespace(observation=SimpleNamespace(raw_data=SimpleNamespace(units=self.units)))

    def data(self):
        return SimpleNamespace(units=[None] * (RL_BASE + len(V2_ORDER)))

    def actions(self, request):
        pass

    def step(self, loops):
        pass

    def debug(self, commands):
        pass


class Bench:
    """A real environment in front of the stand-in."""

    def __init__(self, env: Any, grids: tuple[np.ndarray, np.ndarray], ally_types: dict[str, int]):
        self.env, self.grids, self.ally_types = env, grids, ally_types
        self.game = StandIn()
        self.end_code = GOES_ON
        env._launch = self._launch
        update = env.update_units

        def watched():
            code = update()
            self.end_code = GOES_ON if code is None else code
            return code

        env.update_units = watched

    def _launch(self):
        self.env._controller = self.game
        self.env.map_x = self.env.map_y = self.env.max_distance_x = self.env.max_distance_y = SIZE
        self.env.pathing_grid, self.env.terrain_height = self.grids

    def reset(self, battle: Battle, rng: np.random.Generator, *config):
        self.game.show(battle, self.ally_types, rng)
        result = self.env.reset(*config)
        assert [unit.tag % 1000 for unit in self.env.agents.values()] == list(range(self.env.n_agents))
        return result

    def step(self, battle: Battle, actions: Iterable[int]):
        self.game.show(battle, self.ally_types)
        return self.env.step(list(actions))

    def random_actions(self, rng: np.random.Generator) -> list[int]:
        return [int(rng.choice(np.flatnonzero(legal))) for legal in self.env.get_avail_actions()]


# Inventing battles.


def team(text: str) -> list[str]:
    words = text.split()
    return [kind for count, kind in zip(words[::2], words[1::2], strict=True) for _ in range(int(count))]


def snap(values) -> np.ndarray:
    """The game keeps positions in multiples of 1/4096, which float32 holds exactly on a map of this size."""
    return np.round(np.asarray(values, np.float64) * 4096) / 4096


def walkable(grid: np.ndarray, points: np.ndarray) -> np.ndarray:
    cells = np.floor(points).astype(int)
    inside = ((cells >= 0) & (cells < SIZE)).all(-1)
    cells = np.clip(cells, 0, SIZE - 1)
    return inside & grid[cells[..., 0], cells[..., 1]]


def near(rng: np.random.Generator, grid: np.ndarray, centre, spread: float) -> np.ndarray:
    """A random walkable point near another."""
    while True:
        point = snap(np.asarray(centre) + rng.normal(0, spread, 2))
        if walkable(grid, point):
            return point


def somewhere(rng: np.random.Generator, cells: np.ndarray) -> np.ndarray:
    return snap(cells[rng.integers(len(cells))] + rng.random(2) * 0.999)


def place(rng: np.random.Generator, grid: np.ndarray, how: str, kinds: Battle | tuple, rim: list) -> list:
    """Positions of both sides: `cluster` (a melee), `spread` (anywhere), `rim` (next to walls)."""
    allies, enemies = (len(side) for side in kinds)
    cells = np.argwhere(grid)
    padded = np.pad(grid, 1)
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    outer_cells = np.argwhere(grid & ~inner)
    centre = somewhere(rng, cells)
    if how == "cluster":
        places = [[near(rng, grid, centre, 3.5) for _ in range(n)] for n in (allies, enemies)]
    elif how == "spread":
        places = [[somewhere(rng, cells) for _ in range(n)] for n in (allies, enemies)]
    else:
        ally_points = [snap(rim[i]) for i in rng.permutation(len(rim))][:allies]
        ally_points += [somewhere(rng, outer_cells) for _ in range(allies - len(ally_points))]
        enemy_points = [near(rng, grid, ally_points[rng.integers(allies)], 3.5) for _ in range(enemies)]
        places = [ally_points, enemy_points]
    for points, side in zip(places, kinds, strict=True):
        for i, kind in enumerate(side):
            if kind == "medivac" and how == "rim":  # Flies over what others cannot walk on.
                points[i] = snap(rng.random(2) * [SIZE, 8])
    return places


def side(rng: np.random.Generator, kinds: list[str], points, *, full: bool = False) -> Side:
    most = np.array([UNITS[kind][1:] for kind in kinds], float)
    health, shield, energy = most.T
    cooldown = np.zeros(len(kinds))
    if not full:
        n = len(kinds)
        share = np.where(rng.random(n) < 0.25, 1, rng.uniform(0.03, 1, n))
        health = np.ceil(health * share * 16) / 16
        shield = np.round(shield * np.clip(rng.uniform(-0.3, 1.3, n), 0, 1) * 16) / 16
        energy = np.round(energy * rng.random(n) * 16) / 16
        cooldown = np.round(np.clip(rng.uniform(-8, 26, n), 0, None) * 16) / 16
        cooldown[[kind == "medivac" for kind in kinds]] = 0
    x, y = np.asarray(points, float).T
    return Side(kinds, x, y, health, shield, energy, cooldown)


def in_order(allies: Side, ally_types: dict[str, int]) -> Side:
    """Sort a fresh team the way SMAC numbers its agents."""
    order = np.lexsort((allies.y, allies.x, [ally_types[kind] for kind in allies.kinds]))
    columns = ("x", "y", "health", "shield", "energy", "cooldown")
    return Side([allies.kinds[i] for i in order], **{name: getattr(allies, name)[order] for name in columns})


def some_dead(rng: np.random.Generator, kinds: list[str], dead: np.ndarray, rate: float) -> np.ndarray:
    """More dead, but one that can fight stays, and healers mostly do."""
    fighters = [i for i in rng.permutation(len(kinds)) if kinds[i] != "medivac" and not dead[i]]
    more = rng.random(len(kinds)) < [rate / 4 if kind == "medivac" else rate for kind in kinds]
    more[fighters[:1]] = False
    return dead | more


# Recording.


def unit_inputs(env: Any) -> dict[str, np.ndarray]:
    """The units as the environment holds them."""
    found = {}
    for name, units in (("ally", env.agents), ("enemy", env.enemies)):
        of = [units[i] for i in range(len(units))]
        found[f"{name}_x"] = [unit.pos.x for unit in of]
        found[f"{name}_y"] = [unit.pos.y for unit in of]
        found[f"{name}_health"] = [unit.health for unit in of]
        found[f"{name}_shield"] = [unit.shield for unit in of]
    found["ally_energy"] = [unit.energy for unit in env.agents.values()]
    found["ally_cooldown"] = [unit.weapon_cooldown for unit in env.agents.values()]
    found = {key: np.array(value, np.float32) for key, value in found.items()}
    found["last_action"] = np.where(env.last_action.any(1), env.last_action.argmax(1), -1).astype(np.int16)
    return found


def before(env: Any) -> dict[str, np.ndarray]:
    """Health and shield of all units, by the names of what a step starts from."""
    inputs = unit_inputs(env)
    keys = [f"{who}_{what}" for who in ("ally", "enemy") for what in ("health", "shield")]
    return {f"prev_{key}": inputs[key] for key in keys}


def outputs(env: Any) -> dict[str, np.ndarray]:
    return {
        "obs": np.array(env.get_obs(), np.float32),
        "state": np.array(env.get_state(), np.float32),
        "avail": np.array(env.get_avail_actions(), np.uint8),
        "visible": env.get_visibility_matrix(),
    }


def as_json(value: dict) -> np.ndarray:
    return np.array(json.dumps(value, default=lambda x: x.item()))


def kinds_of(kinds: list[str]) -> np.ndarray:
    return np.array([UNITS[kind][0] for kind in kinds], np.int16)


class Recorder:
    def __init__(self, grids: dict[str, tuple[np.ndarray, np.ndarray]]):
        self.grids = grids
        self.data: dict[str, np.ndarray] = {}
        for name, (pathing, height) in grids.items():
            self.add(f"grid/{name}", {"pathing": pathing, "height": height})

    def add(self, prefix: str, arrays: dict[str, np.ndarray]):
        self.data.update({f"{prefix}/{key}": np.asarray(value) for key, value in arrays.items()})

    def save(self, path: Path):
        np.savez_compressed(path, **self.data)
        print(f"{path.name}: {len(self.data)} arrays, {path.stat().st_size / 1e6:.2f} MB")


def v1_types(name: str) -> dict[str, int]:
    kinds = list(dict.fromkeys(team(MAPS[name][1])))
    return {kind: RL_BASE + i for i, kind in enumerate(kinds)}


def v1_bench(recorder: Recorder, env: Any, name: str) -> Bench:
    return Bench(env, recorder.grids[MAPS[name][0]], v1_types(name))


def fresh(rng: np.random.Generator, recorder: Recorder, name: str) -> Battle:
    """All units unhurt, at random places."""
    kinds = tuple(team(text) for text in MAPS[name][1:])
    places = place(rng, recorder.grids[MAPS[name][0]][0], "cluster", kinds, [])
    allies, enemies = (side(rng, k, p, full=True) for k, p in zip(kinds, places, strict=True))
    return in_order(allies, v1_types(name)), enemies


def invent(rng: np.random.Generator, recorder: Recorder, name: str, how: str) -> Battle:
    kinds = tuple(team(text) for text in MAPS[name][1:])
    grid, special = MAPS[name][0], {"boundary": BOUNDARY, "boundary_near": BOUNDARY_NEAR}
    places = special.get(how) or place(rng, recorder.grids[grid][0], how, kinds, RIM.get(grid, []))
    allies, enemies = (side(rng, k, p) for k, p in zip(kinds, places, strict=True))
    return allies, enemies


def two_steps(
    rng: np.random.Generator, bench: Bench, middle: Battle, final: Battle, act: Callable, rate: float = 0.15
) -> tuple[dict, Any]:
    """From a fresh battle through one in the middle to the last one, units dying on the way.

    Returns what the last step started from and what it returned.
    """
    dead = [np.zeros(len(s.kinds), bool) for s in middle]

    def go(battle: Battle):
        nonlocal dead
        dead = [some_dead(rng, s.kinds, d, rate) for s, d in zip(battle, dead, strict=True)]
        return bench.step(tuple(s.without(d) for s, d in zip(battle, dead, strict=True)), act(rng))

    go(middle)
    bench.env.get_obs()  # As a learner would: SMACv2 remembers who saw whom.
    bench.env._episode_steps = int(rng.integers(1, bench.env.episode_limit - 1))
    start = before(bench.env)
    return start, go(final)


def step_record(bench: Bench, result: tuple) -> dict:
    reward, terminated, info = result
    found = {"t": bench.env._episode_steps, "reward": float(reward), "max_reward": bench.env.max_reward}
    return found | {"end_code": bench.end_code, "terminated": terminated, **info}


def record_situation(recorder: Recorder, prefix: str, env: Any, name: str, how: str, seed: list):
    rng = np.random.default_rng(seed)
    bench = v1_bench(recorder, env, name)
    bench.reset(fresh(rng, recorder, name), rng)
    if how != "reset":
        middle, final = (invent(rng, recorder, name, h) for h in ("cluster", how))
        rate = 0 if how.startswith("boundary") else 0.15
        start, result = two_steps(rng, bench, middle, final, bench.random_actions, rate)
        recorder.add(prefix, {**start, "step": as_json(step_record(bench, result))})
    recorder.add(prefix, {**unit_inputs(bench.env), **outputs(bench.env)})


def record_v1(recorder: Recorder, env_class: type):
    for number, (name, (grid, allies, enemies)) in enumerate(MAPS.items()):
        bench = v1_bench(recorder, env_class(map_name=name), name)
        info = bench.env.get_env_info()
        bench.reset(fresh(np.random.default_rng(0), recorder, name), np.random.default_rng(0))
        hows = ["reset", "cluster", "spread", "rim", "rim"]
        hows += ["boundary", "boundary_near"] if name == "3m" else []
        info |= {"max_reward": bench.env.max_reward, "grid": grid, "situations": hows}
        types = {"ally_type": kinds_of(team(allies)), "enemy_type": kinds_of(team(enemies))}
        recorder.add(f"v1/{name}", {"info": as_json(info), **types})
        for k, how in enumerate(hows):
            record_situation(recorder, f"v1/{name}/{k}", env_class(map_name=name), name, how, [9, number, k])


def record_variants(recorder: Recorder, env_class: type):
    for number, name in enumerate(("2s3z", "MMM")):
        for k, (variant, options) in enumerate(VARIANTS.items()):
            env, prefix = env_class(map_name=name, **options), f"variant/{name}/{variant}"
            recorder.add(prefix, {"info": as_json({**env.get_env_info(), "options": options})})
            how = "rim" if "grid" in variant or "height" in variant or variant == "everything" else "cluster"
            record_situation(recorder, prefix, env, name, how, [2, number, k])


def reward_battles(rng: np.random.Generator, start: Battle) -> dict[str, Battle]:
    """What a battle may look like a step later."""

    def change(team: Side, hurt: float, die: float, regrow: bool = False) -> Side:
        most = np.array([UNITS[kind][1:3] for kind in team.kinds], float)
        if regrow:
            health = np.where(team.alive, np.minimum(team.health + 1, most[:, 0]), 0)
            return replace(team, health=health, shield=np.minimum(team.shield + 1, most[:, 1]))
        loss = np.round(rng.uniform(0, hurt, len(team.kinds)) * 16) / 16
        shield = np.maximum(team.shield - loss, 0)
        health = np.maximum(team.health - (loss - (team.shield - shield)), 1 / 16)
        dead = ~team.alive | (rng.random(len(team.kinds)) < die)
        return replace(team, health=np.where(dead, 0, health), shield=shield)

    allies, enemies = start
    nobody = [team.without(np.ones(len(team.kinds), bool)) for team in start]
    return {
        "damage": (change(allies, 9, 0), change(enemies, 9, 0)),
        "trade": (change(allies, 15, 0.4), change(enemies, 15, 0.4)),
        "regrowth": (allies, change(enemies, 0, 0, regrow=True)),
        "allies_hurt": (change(allies, 15, 0.3), change(enemies, 0, 0, regrow=True)),
        "win": (change(allies, 15, 0.1), nobody[1]),
        "loss": (nobody[0], change(enemies, 9, 0.1)),
        "nobody_left": (nobody[0], nobody[1]),
        "timeout": (change(allies, 9, 0), change(enemies, 9, 0.1)),
    }


def record_rewards(recorder: Recorder, env_class: type):
    for number, name in enumerate(("3m", "MMM", "2s3z", "bane_vs_bane", "corridor")):
        rng = np.random.default_rng([3, number])
        first = fresh(rng, recorder, name)
        for k in range(8):
            start = invent(rng, recorder, name, "cluster")
            start = tuple(s.without(some_dead(rng, s.kinds, ~s.alive, 0.2)) for s in start)
            case, end = list(reward_battles(rng, start).items())[k]
            prefix, results = f"reward/{name}/{k}", {}
            for setting, options in REWARDS.items():
                bench = v1_bench(recorder, env_class(map_name=name, **options), name)
                bench.reset(first, np.random.default_rng(0))
                bench.step(start, bench.random_actions(np.random.default_rng(0)))
                if case == "timeout":
                    bench.env._episode_steps = bench.env.episode_limit - 1
                recorder.add(prefix, before(bench.env))
                result = bench.step(end, bench.random_actions(np.random.default_rng(0)))
                after = {key.removeprefix("prev_"): value for key, value in before(bench.env).items()}
                recorder.add(prefix, after)
                results[setting] = {"options": options, **step_record(bench, result)}
            recorder.add(prefix, {"results": as_json({"case": case, **results})})


def living_sets(allies: list[str], enemies: list[str], rng: np.random.Generator) -> list:
    """Who lives, for either side: all, none, only healers, healers and one more, one fighter, random."""

    def sets(kinds: list[str]) -> list[np.ndarray]:
        healer = np.array([kind == "medivac" for kind in kinds])
        one = np.zeros(len(kinds), bool)
        one[np.flatnonzero(~healer)[-1]] = True
        found = [np.ones(len(kinds), bool), np.zeros(len(kinds), bool), one, rng.random(len(kinds)) < 0.5]
        if healer.any():
            first = np.arange(len(kinds)) == np.flatnonzero(healer)[0]
            found += [healer, first, healer | one]
        return found

    return [(a, e) for a in sets(allies) for e in sets(enemies)]


def record_ends(recorder: Recorder, prefix: str, start: Callable[[], tuple[Bench, Battle]]):
    """The end codes for sets of living units; `start` gives a fresh battle that was just reset."""
    _, battle = start()
    keys = ("ally_alive", "enemy_alive", "end_code", "reward", "terminated", "won")
    found: dict[str, list] = {key: [] for key in keys}
    for alive in living_sets(battle[0].kinds, battle[1].kinds, np.random.default_rng(4)):
        bench, battle = start()
        end = tuple(s.without(~a) for s, a in zip(battle, alive, strict=True))
        reward, terminated, info = bench.step(end, bench.random_actions(np.random.default_rng(0)))
        row = (*alive, bench.end_code, reward, terminated, info["battle_won"])
        for key, value in zip(found, row, strict=True):
            found[key].append(value)
    recorder.add(prefix, {key: np.array(value) for key, value in found.items()})
    types = (kinds_of(s.kinds) for s in battle)
    recorder.add(prefix, dict(zip(("ally_type", "enemy_type"), types, strict=True)))


def record_v1_ends(recorder: Recorder, env_class: type):
    for name in ("3m", "MMM", "MMM2"):

        def start(name=name):
            bench = v1_bench(recorder, env_class(map_name=name), name)
            battle = fresh(np.random.default_rng(5), recorder, name)
            bench.reset(battle, np.random.default_rng(5))
            return bench, battle

        record_ends(recorder, f"end/{name}", start)


def record_on_policy(recorder: Recorder, env_class: type):
    def make(name: str):
        return env_class(SimpleNamespace(map_name=name, **ON_POLICY_FLAGS))

    for number, name in enumerate(("3m", "3s5z", "MMM2", "corridor")):
        hows = ["reset", "cluster", "spread", "rim"]
        env = make(name)
        info = {
            "n_agents": env.n_agents,
            "n_actions": env.n_actions,
            "obs_size": env.get_obs_size(),
            "state_size": env.get_state_size(),
            "flags": ON_POLICY_FLAGS,
            "situations": hows,
        }
        types = (kinds_of(team(text)) for text in MAPS[name][1:])
        recorder.add(f"onpolicy/{name}", dict(zip(("ally_type", "enemy_type"), types, strict=True)))
        recorder.add(f"onpolicy/{name}", {"info": as_json(info)})
        for k, how in enumerate(hows):
            rng = np.random.default_rng([6, number, k])
            prefix = f"onpolicy/{name}/{k}"
            bench = v1_bench(recorder, make(name), name)
            obs, state_agent, avail = bench.reset(fresh(rng, recorder, name), rng)
            if how != "reset":
                middle, final = (invent(rng, recorder, name, h) for h in ("cluster", how))
                start, result = two_steps(rng, bench, middle, final, bench.random_actions)
                obs, state_agent, rewards, dones, infos, avail = result
                recorder.add(prefix, {**start, "rewards": np.array(rewards), "dones": dones})
                recorder.add(prefix, {"step": as_json({"t": bench.env._episode_steps, "info": infos[0]})})
            shared = [bench.env.get_state(agent) for agent in range(bench.env.n_agents)]
            arrays = {"obs": obs, "state_agent": state_agent, "state": shared}
            recorder.add(prefix, {key: np.array(value, np.float32) for key, value in arrays.items()})
            recorder.add(prefix, {"avail": np.array(avail, np.uint8), **unit_inputs(bench.env)})


def record_on_policy_variants(recorder: Recorder, env_class: type):
    """One situation a map, with some dead, as each variant shows it."""
    for number, name in enumerate(("3s5z", "MMM2")):
        for variant, (flags, config) in ON_POLICY_VARIANTS.items():
            rng = np.random.default_rng([9, number])
            env = env_class(SimpleNamespace(map_name=name, **ON_POLICY_FLAGS | flags), **config)
            bench = v1_bench(recorder, env, name)
            bench.reset(fresh(rng, recorder, name), rng)
            middle, final = (invent(rng, recorder, name, h) for h in ("cluster", "spread"))
            obs, state, *_, avail = two_steps(rng, bench, middle, final, bench.random_actions, rate=0.3)[1]
            sizes = {"obs_size": env.get_obs_size(), "state_size": env.get_state_size()}
            info = {"flags": flags, "config": config, "t": env._episode_steps, **sizes}
            prefix = f"onpolicy_variant/{name}"
            recorder.add(prefix, {"avail": np.array(avail, np.uint8), **unit_inputs(env)})
            recorder.add(f"{prefix}/{variant}", {"info": as_json(info), "obs": np.array(obs, np.float32)})
            recorder.add(f"{prefix}/{variant}", {"state": np.array(state, np.float32)})


def record_on_policy_stacks(recorder: Recorder, env_class: type):
    """Six steps with stacked frames, on into a second episode."""
    flags = ON_POLICY_FLAGS | {"use_stacked_frames": True, "stacked_frames": 4}
    env, rng = env_class(SimpleNamespace(map_name="3m", **flags)), np.random.default_rng(10)
    bench, found = v1_bench(recorder, env, "3m"), []
    for _ in range(2):
        results = [bench.reset(fresh(rng, recorder, "3m"), rng)[:2]]
        single = [(env.get_obs(), [env.get_state_agent(agent) for agent in range(3)])]
        for _ in range(3):
            results.append(bench.step(invent(rng, recorder, "3m", "cluster"), bench.random_actions(rng))[:2])
            single.append((env.get_obs(), [env.get_state_agent(agent) for agent in range(3)]))
        env._episode_count += 1
        found += [(*now, *stacked) for now, stacked in zip(single, results, strict=True)]
    for key, rows in zip(
        ("obs", "state", "stacked_obs", "stacked_state"), zip(*found, strict=True), strict=True
    ):
        recorder.add("onpolicy_stack", {key: np.array(rows, np.float32)})


# SMACv2.


def v2_config(race: str, allies: int, enemies: int) -> dict:
    """The settings of SMACv2's example configurations."""
    counts = {"n_units": allies, "n_enemies": enemies}
    square = {"map_x": SIZE, "map_y": SIZE}
    weights = {"unit_types": list(V2_TYPES[race]), "weights": [0.45, 0.45, 0.1], "observe": True}
    return {
        "map_name": f"10gen_{race}",
        "obs_own_pos": True,
        "use_unit_ranges": True,
        "min_attack_range": 2,
        "num_fov_actions": 12,
        "prob_obs_enemy": 1.0,
        "capability_config": {
            **counts,
            "team_gen": {"dist_type": "weighted_teams", **weights, **counts},
            "start_positions": {"dist_type": "surrounded_and_reflect", "p": 0.5, **square, **counts},
        },
    }


def v2_battle(
    rng: np.random.Generator, grid: np.ndarray, kinds: tuple, how: str, full: bool = False
) -> Battle:
    places = place(rng, grid, how, kinds, RIM["open"])
    allies, enemies = (side(rng, k, p, full=full) for k, p in zip(kinds, places, strict=True))
    return allies, enemies


def v2_start(recorder: Recorder, env_class: type, config: dict, rng: np.random.Generator, kinds: tuple):
    ally_types = {kind: RL_BASE + i for i, kind in enumerate(V2_ORDER)}
    bench = Bench(env_class(**config), recorder.grids["open"], ally_types)
    allies, enemies = v2_battle(rng, recorder.grids["open"][0], kinds, "cluster", full=True)
    battle = (in_order(allies, ally_types), enemies)
    positions = [{"item": np.stack([s.x, s.y], 1)} for s in battle]
    episode = {
        "team_gen": {"ally_team": battle[0].kinds, "enemy_team": battle[1].kinds},
        "ally_start_positions": positions[0],
        "enemy_start_positions": positions[1],
    }
    bench.reset(battle, rng, episode)
    return bench, battle


def look_around(bench: Bench, final: Battle, rng: np.random.Generator) -> list[int]:
    """Like random actions, but most agents turn to where an enemy is going to be."""
    actions = bench.random_actions(rng)
    for i, unit in bench.env.agents.items():
        if unit.health > 0 and rng.random() < 0.8:
            target = rng.integers(len(final[1].kinds))
            angle = np.arctan2(final[1].y[target] - final[0].y[i], final[1].x[target] - final[0].x[i])
            actions[i] = 6 + round(angle / (2 * np.pi) * bench.env.n_fov_actions) % bench.env.n_fov_actions
    return actions


def v2_outputs(env: Any, seed: int) -> dict[str, np.ndarray]:
    """What the environment says, and what its observations depend on besides the units.

    SMACv2 goes through the agents in a random order and keeps who has seen which enemy: `obs` is the first
    answer in a situation, `obs_again` a second one, and `obs_all_known` the one when each enemy counts as
    known to all agents, that is, by sight alone.
    """
    order = list(range(env.n_agents))
    random.seed(seed)
    random.shuffle(order)
    found = {"order": np.array(order, np.int16), "known_before": env.obs_enemies.astype(bool)}
    random.seed(seed)
    found |= outputs(env)
    found |= {"known_after": env.obs_enemies.astype(bool), "obs_again": np.array(env.get_obs(), np.float32)}
    env.obs_enemies[:] = 1
    env.enemy_tags = [0] * env.n_enemies
    found |= {"obs_all_known": np.array(env.get_obs(), np.float32)}
    return found | {"fov": env.fov_directions.astype(np.float32)}


def record_v2_situation(recorder: Recorder, prefix: str, env_class: type, config: dict, how: str, seed: list):
    rng = np.random.default_rng(seed)
    random.seed(seed[-1])
    grid = recorder.grids["open"][0]
    counts = config["capability_config"]
    types = counts["team_gen"]["unit_types"]
    allies = [*types, *rng.choice(types, counts["n_units"] - len(types), p=[0.4, 0.4, 0.2])]
    enemies = [*allies, *rng.choice(types, counts["n_enemies"] - len(allies), p=[0.4, 0.4, 0.2])]
    kinds = [[str(kind) for kind in rng.permutation(side)] for side in (allies, enemies)]
    bench, battle = v2_start(recorder, env_class, config, rng, tuple(kinds))
    kinds = [s.kinds for s in battle]
    if how != "reset":
        middle, final = (v2_battle(rng, grid, tuple(kinds), h) for h in ("cluster", how))
        act = partial(look_around, bench, final) if bench.env.conic_fov else bench.random_actions
        start, result = two_steps(rng, bench, middle, final, act)
        recorder.add(prefix, {**start, "step": as_json(step_record(bench, result))})
    recorder.add(prefix, {**unit_inputs(bench.env), **v2_outputs(bench.env, seed[-1])})
    recorder.add(prefix, {"ally_type": kinds_of(kinds[0]), "enemy_type": kinds_of(kinds[1])})


def record_v2(recorder: Recorder, env_class: type):
    for number, race in enumerate(V2_TYPES):
        for allies, enemies in V2_SIZES:
            for conic in (False, True):
                config = v2_config(race, allies, enemies) | {"conic_fov": conic}
                name = f"v2/{race}_{allies}_vs_{enemies}{'_conic' if conic else ''}"
                hows = ["reset", "cluster", "cluster"] if conic else ["reset", "cluster", "spread", "rim"]
                if (allies, enemies) not in (((5, 5),) if conic else ((5, 5), (10, 11))):
                    hows = []  # Only the sizes.
                info = {**env_class(**config).get_env_info(), "situations": hows, "grid": "open"}
                recorder.add(name, {"info": as_json(info)})
                for k, how in enumerate(hows):
                    seed = [7, number, allies, int(conic), k]
                    record_v2_situation(recorder, f"{name}/{k}", env_class, config, how, seed)

    for number, race in enumerate(V2_TYPES):  # SMACv2's defaults, which its example configurations change
        config = v2_config(race, 5, 5) | {"obs_own_pos": False, "use_unit_ranges": False}
        recorder.add(f"v2plain/{race}_5_vs_5", {"info": as_json(env_class(**config).get_env_info())})
        for k, how in enumerate(("cluster", "spread")):
            record_v2_situation(
                recorder, f"v2plain/{race}_5_vs_5/{k}", env_class, config, how, [11, number, k]
            )

    kinds = (team("1 marauder 2 marine 2 medivac"), team("1 marauder 2 marine 2 medivac"))
    config = v2_config("terran", 5, 5)
    record_ends(
        recorder,
        "end2/terran_5_vs_5",
        lambda: v2_start(recorder, env_class, config, np.random.default_rng(8), kinds),
    )


# The maps.


def runs(text: str) -> list[int]:
    """The numbers in "2-5 8-9"; "-" has none."""
    bounds = [part.split("-") for part in text.split() if part != "-"]
    return [x for low, high in bounds for x in range(int(low), int(high) + 1)]


def read_terrain(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Walkable cells and heights (a quarter per cliff level) from a table of rows."""
    grids: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    with path.open(newline="") as file:
        for group, y, cells, *levels in list(csv.reader(file))[1:]:
            empty = np.zeros((SIZE, SIZE), bool), np.zeros((SIZE, SIZE), np.float32)
            pathing, height = grids.setdefault(group.split()[0], empty)
            pathing[runs(cells), int(y)] = True
            for level, text in zip((1, 2, 1.5), levels, strict=False):
                height[runs(text), int(y)] = level / 4
    grids["corridor"][0][11:15, 11:15] = True  # As it stands in the table, nobody could pass.
    return grids


def stored_terrain(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    with np.load(path) as data:
        names = sorted({key.split("/")[1] for key in data.files if key.startswith("grid/")})
        return {name: (data[f"grid/{name}/pathing"], data[f"grid/{name}/height"]) for name in names}


def load(folder: Path, module: str) -> type:
    sys.path.insert(0, str(folder))
    return importlib.import_module(module).StarCraft2Env


def main():
    parser = argparse.ArgumentParser(description="Record how SMAC's Python code sees battles")
    for checkout in ("smac", "smacv2", "on_policy"):
        parser.add_argument(checkout, type=Path, help="a checkout of its source")
    parser.add_argument("--terrain", type=Path, help="a table of the maps' cells, to read them anew")
    args = parser.parse_args()
    path = Path(__file__).with_name("smac_interface.npz")
    recorder = Recorder(read_terrain(args.terrain) if args.terrain else stored_terrain(path))

    smac = load(args.smac, "smac.env.starcraft2.starcraft2")
    record_v1(recorder, smac)
    record_variants(recorder, smac)
    record_rewards(recorder, smac)
    record_v1_ends(recorder, smac)
    recorder.save(path)
    on_policy = load(args.on_policy / "onpolicy" / "envs", "starcraft2.StarCraft2_Env")
    record_on_policy(recorder, on_policy)
    record_on_policy_variants(recorder, on_policy)
    record_on_policy_stacks(recorder, on_policy)
    record_v2(recorder, load(args.smacv2, "smacv2.env.starcraft2.starcraft2"))
    recorder.save(path)


if __name__ == "__main__":
    main()

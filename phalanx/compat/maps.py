"""SMAC's table of maps, with its interface."""

from functools import cache
from typing import Any

from phalanx.compat.options import build
from phalanx.envs.battle import NAMES
from phalanx.envs.battle.scenarios import RACES
from phalanx.errors import PhalanxError, suggest

RACE_LETTERS = {
    "marine": "T", "marauder": "T", "medivac": "T", "stalker": "P", "zealot": "P", "colossus": "P",
    "zergling": "Z", "baneling": "Z", "hydralisk": "Z", "spine_crawler": "Z",
}  # fmt: skip
# What SMAC calls the kinds of maps, by the agents' types.
MAP_TYPES = {
    ("marine",): "marines",
    ("marauder", "marine", "medivac"): "MMM",
    ("stalker", "zealot"): "stalkers_and_zealots",
    ("stalker",): "stalkers",
    ("colossus", "stalker", "zealot"): "colossi_stalkers_zealots",
    ("zealot",): "zealots",
    ("hydralisk",): "hydralisks",
    ("baneling", "zergling"): "bane",
    ("colossus",): "colossus",
}


@cache
def _params(map_name: str) -> dict[str, Any]:
    battle = build(f"battle/{map_name}", {})
    observer, spec = battle.observer, battle.spec
    world = observer.world
    names = [world.types[kind].name for kind in world.kinds]
    race = next((race for race in RACES if map_name.startswith(f"v2_{race}_")), None)
    allies = tuple(sorted(set(names[: world.allies])))
    return {
        "n_agents": world.allies,
        "n_enemies": world.enemies,
        "limit": spec.time_limit,
        "a_race": RACE_LETTERS[names[0]],
        "b_race": RACE_LETTERS[names[-1]],
        "unit_type_bits": len(observer.labels[0]),
        "map_type": f"{race}_gen" if race else MAP_TYPES[allies],
    }


def get_map_params(map_name: str) -> dict[str, Any]:
    """The entry of a map in SMAC's table: `n_agents`, `n_enemies`, `limit`, races, type bits and kind.

    For SMACv2's `10gen_RACE` it is the map with ten agents against ten.
    """
    name = f"v2_{map_name.removeprefix('10gen_')}_10_vs_10" if map_name.startswith("10gen_") else map_name
    if name not in NAMES:
        raise PhalanxError(f"unknown map {map_name!r}.{suggest(str(map_name), NAMES)}")
    return dict(_params(name))


def get_smac_map_registry() -> dict[str, dict[str, Any]]:
    """All maps by name, with the entries of `get_map_params`."""
    return {name: get_map_params(name) for name in NAMES}

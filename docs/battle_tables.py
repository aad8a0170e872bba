"""The tables of `battle.md`, made from the code: `python docs/battle_tables.py` writes them into the page."""

import json
import re
from pathlib import Path

from phalanx.envs.battle.env import Battle
from phalanx.envs.battle.scenarios import SCENARIOS
from phalanx.envs.battle.units import LIBERTY, LOTV, UnitType, unit_types
from phalanx.registry import envs, make_env

PAGE = Path(__file__).parent / "battle.md"
SCRIPTED = Path(__file__).parent / "data" / "battle_scripted.json"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def number(value: float) -> str:
    """A figure; a dash for nothing."""
    return f"{value:g}" if value else "-"


def units() -> str:
    """Every unit type, as it fights on SMAC's maps."""
    head = ["unit", "health", "shield", "armour", "attributes", "speed", "radius / body", "range", "damage"]
    head += ["period", "wind-up", "back-swing", "scan", "how it hits"]
    rows = []
    for unit in unit_types("liberty").values():
        flags = [flag for flag in ("light", "armored", "biological", "flying") if getattr(unit, flag)]
        bonus = [f"+{unit.bonus_light:g} light"] * bool(unit.bonus_light)
        bonus += [f"+{unit.bonus_armored:g} armored"] * bool(unit.bonus_armored)
        rows.append(
            [
                unit.name,
                *map(number, (unit.health, unit.shield, unit.armour)),
                ", ".join(flags) or "-",
                number(unit.speed),
                f"{unit.radius:g} / {unit.body:g}",
                number(unit.range),
                " ".join([number(unit.damage), *bonus]),
                *map(number, (unit.period, unit.windup, unit.backswing, unit.scan)),
                _delivery(unit),
            ]
        )
    return table(head, rows)


def _delivery(unit: UnitType) -> str:
    how = {
        "instant": "at once",
        "missile": "by missile",
        "double": "twice, 0.28 s apart",
        "beam": "a line across the shot, twice, 0.375 s later",
        "burst": "all around within 2.2, and dies",
        "heal": "heals 9 a second for 3 energy",
    }[unit.delivery]
    return how + (", also flyers" if unit.hits_air else "")


def lotv() -> str:
    """What `stats=lotv` changes."""
    rows = []
    for name, unit in LOTV.items():
        for field in ("damage", "bonus_light", "bonus_armored", "period", "range", "speed"):
            old, new = getattr(LIBERTY[name], field), getattr(unit, field)
            if old != new:
                rows.append([name, field.replace("_", " "), number(old), number(new)])
    return table(["unit", "figure", "liberty", "lotv"], rows)


def maps() -> str:
    """Every scenario and its sizes."""
    head = [
        "battle",
        "allies",
        "enemies",
        "ground",
        "limit",
        "actions",
        "observation",
        "state",
        "most reward",
    ]
    rows = []
    for name, scenario in SCENARIOS.items():
        env = Battle(name)
        spec = env.spec
        allies, enemies = (re.sub(r" @\S+", "", side) for side in (scenario.allies, scenario.enemies))
        sizes = (spec.time_limit, spec.n_actions, spec.obs_size, spec.state_size, env.max_reward)
        rows.append([f"`{name}`", allies, enemies, scenario.terrain, *map(number, sizes)])
    return table(head, rows)


def drawn_maps() -> str:
    """The sizes of SMACv2's scenarios."""
    rows = []
    for name in envs():
        if name.startswith("battle/v2_"):
            spec = make_env(name, {}).spec
            sizes = (spec.n_agents, spec.n_actions, spec.obs_size, spec.state_size)
            rows.append([f"`{name.removeprefix('battle/')}`", *map(number, sizes)])
    return table(["battle", "agents", "actions", "observation", "state"], rows)


def scripted() -> str:
    """How the scripted teams fare, from the figures of `benchmarks/scripted.py`."""
    battles = json.loads(SCRIPTED.read_text())["battles"]
    rows = [
        [f"`{name.removeprefix('battle/')}`"]
        + [f"{100 * s['win_rate']:.1f} | {s['return']:.2f} | {s['length']:.0f}" for s in teams.values()]
        for name, teams in battles.items()
    ]
    head = ["battle", "random wins %", "return", "steps", "heuristic wins %", "return", "steps"]
    return "\n".join([table(head, []), *("| " + " | ".join(row) + " |" for row in rows)])


TABLES = {"units": units, "lotv": lotv, "maps": maps, "v2": drawn_maps, "scripted": scripted}


def fill(page: str) -> str:
    """The page with each table, between its two markers, made anew."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        before, rest = page.split(begin)
        page = before + begin + "\n" + make() + "\n" + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

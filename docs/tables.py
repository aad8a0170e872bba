"""The tables of these pages, made from code and data: `python docs/tables.py` writes them into the pages."""

import json
import re
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from phalanx.envs.battle.env import RULES, Battle
from phalanx.envs.battle.scenarios import SCENARIOS
from phalanx.envs.battle.units import LIBERTY, LOTV, UnitType, unit_types
from phalanx.registry import envs, make_env
from phalanx.report import statistics

HERE = Path(__file__).parent
SCRIPTED = HERE / "data" / "battle_scripted.json"
RETURNS = HERE / "data" / "mpe_returns.json"
WINS = HERE / "data" / "battle_wins.json"
YARDSTICKS = HERE / "data" / "yardsticks.json"
CROSSPLAY = HERE / "data" / "crossplay.json"
SEARCH = HERE / "data" / "mappo_search.json"
PUBLISHED = HERE / "data" / "published.json"
STUDIES = ("sharing", "distil", "qmix", "coma_switch", "coma_particles")
VALUE_RETURNS = HERE / "data" / "value_returns.json"
AGREES = 5  # points between two medians that count as agreement
OTHERS = (
    "others",
    "ippo",
    "ippo_memory",
    "ippo_long",
    "ippo_hard",
    "ippo_hard_short",
)  # plans of the table of other algorithms
NEAR = 10  # points between two means in SMACv2, whose published figures are of few seeds


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


def yardsticks() -> str:
    """How well teams fight that do not learn, beside those that do."""
    teams = ("nearest", "focus", "kite", "plan")
    trained: dict[tuple[str, str], list[float]] = {}
    for row in json.loads(WINS.read_text()):
        key = row["arm"].removesuffix("_signed"), row["map"]
        if row["rules"] == RULES and "wins" in row:
            trained[key] = max(trained.get(key, [0.0]), row["wins"], key=median)

    def best(algorithm: str, where: str) -> str:
        wins = trained.get((algorithm, where))
        return f"{100 * median(wins):.0f}, best seed {100 * max(wins):.0f}" if wins else "-"

    return table(
        ["battle", *(f"`{team}`" for team in teams), "MAPPO", "QMIX"],
        [
            [
                f"`{where}`",
                *(f"{100 * found[team]['wins']:.0f}" if team in found else "-" for team in teams),
                *(best(algorithm, where) for algorithm in ("mappo", "qmix")),
            ]
            for where, found in json.loads(YARDSTICKS.read_text())["battles"].items()
        ],
    )


def worlds() -> str:
    """Every particle world and its sizes."""
    rows = []
    for name in envs():
        if name.startswith("mpe/"):
            spec, vector = (make_env(name, {"continuous_actions": kind}).spec for kind in (False, True))
            kinds = [f"{spec.agent_types.count(kind)} {kind}" for kind in dict.fromkeys(spec.agent_types)]
            sizes = [[len(seen) for seen in spec.obs_features], spec.action_counts, vector.action_counts]
            by_type = [dict(zip(spec.agent_types, size, strict=True)).values() for size in sizes]
            rows.append([f"`{name}`", ", ".join(kinds), *(", ".join(map(str, size)) for size in by_type)])
    return table(["world", "agents", "observation", "actions", "continuous"], rows)


def returns() -> str:
    """What teams earn, from the figures of `benchmarks/returns.py`."""
    rows = []
    for row in json.loads(RETURNS.read_text())["rows"]:
        world = " ".join([f"`{row['world']}`", *(f"{key}={value}" for key, value in row["options"].items())])
        trained = [f"{_earned(each['earned'])} ({_how(each)})" for each in row["trained"]] or ["-"]
        rows.append([world, _earned(row["random"]), _earned(row["heuristic"]), "<br>".join(trained)])
    return table(["world", "random", "scripted", "trained (one seed)"], rows)


def _earned(result: dict[str, float]) -> str:
    if "return" in result:
        return f"{result['return']:.2f}"
    return ", ".join(f"{kind.removeprefix('return/')} {value:.1f}" for kind, value in result.items())


def _how(trained: dict[str, Any]) -> str:
    options = [f"{key}={value}" for key, value in trained["options"].items()]
    steps = f"{trained['steps'] / 1e6:g}M steps, {trained['seconds']} s"
    return ", ".join([trained["algorithm"], *options, steps])


def wins() -> str:
    """How often MAPPO wins each battle, by `benchmarks/wins.py`, beside what is published."""
    by_others, transformer = _published("mappo"), _published("mat")
    classes = ["easy", "hard", "super hard"]
    made = [row for row in json.loads(WINS.read_text()) if row["arm"] == "mappo" and not _is_v2(row)]
    rows = [(_class(row), row) for row in made]
    rows.sort(key=lambda row: (classes.index(row[0]), row[1]["map"].lower()))
    head = ["battle", "class", "steps a seed", "wins % of each seed", "median", "mean (95 %)"]
    return table(
        [*head, f"published ({' / '.join(by_others)})", "verdict", "MAT", "seconds"],
        [
            [
                f"`{row['map']}`",
                group,
                *_outcome(row),
                " / ".join(str(wins.get(row["map"], "-")) for wins in by_others.values()),
                _verdict(row, by_others),
                str(transformer["MAT"].get(row["map"], "-")),
                str(row["seconds"]),
            ]
            for group, row in rows
        ],
    )


def _published(algorithm: str, benchmark: str = "SMAC") -> dict[str, dict[str, float]]:
    """Published wins in per cent of an algorithm in the game, by who published them, and by map."""
    return {
        row["by"]: row["wins"]
        for row in json.loads(PUBLISHED.read_text())
        if row["algorithm"] == algorithm and row.get("benchmark", "SMAC") == benchmark
    }


def _is_v2(row: dict[str, Any]) -> bool:
    """Whether a row is about a scenario of SMACv2."""
    return row["map"].startswith("v2_")


def v2() -> str:
    """How often teams win scenarios of SMACv2, beside the curves that its authors publish."""
    known = {arm: _published(arm, "SMACv2")["Ellis"] for arm in ("mappo", "qmix", "mappo_open")}
    made = {(row["map"], row["arm"]): row for row in json.loads(WINS.read_text()) if _is_v2(row)}
    rows = []
    for scenario in (name.removeprefix("battle/") for name in envs()):
        for arm in known:
            if row := made.get((scenario, arm)):
                ours, theirs = round(100 * mean(row["wins"])), known[arm][scenario]
                cells = [f"`{scenario}`", f"`{arm}`", _steps(row), _percents(row["wins"]), _interval(row)]
                rows.append([*cells, str(theirs), _difference(ours - theirs, NEAR), str(row["seconds"])])
    head = ["battle", "algorithm", "steps a seed", "wins % of each seed", "mean (95 %)", "published"]
    return table([*head, "verdict", "seconds"], rows)


def _outcome(row: dict[str, Any]) -> list[str]:
    """Steps, wins of each seed, median and mean."""
    return [_steps(row), _percents(row["wins"]), f"{100 * median(row['wins']):.0f}", _interval(row)]


def many_starts() -> str:
    """How often MAPPO wins if battles begin from one of 512 starts, beside the map's own."""
    rows = json.loads(WINS.read_text())
    one = {row["map"]: row["wins"] for row in rows if row["arm"] == "mappo"}
    return table(
        ["battle", "steps a seed", "wins % of each seed", "median", "median with one start", "seconds"],
        [
            [
                f"`{row['map']}`",
                _steps(row),
                _percents(row["wins"]),
                f"{100 * median(row['wins']):.0f}",
                f"{100 * median(one[row['map']]):.0f}",
                str(row["seconds"]),
            ]
            for row in sorted(rows, key=lambda row: row["map"].lower())
            if row["arm"] == "mappo_512"
        ],
    )


def crossplay() -> str:
    """Teams trained against four kinds of opponents, and scripts, against each other."""
    trained, others = ("script", "self", "past", "pool"), ("random", "heuristic", "the game's script")
    rows = [
        [f"`{battle}`", arm]
        + [f"{100 * of['games'][f'{arm} | {enemy}'][0]:.0f}" for enemy in (*trained, *others)]
        + ["{:+} [{:+}, {:+}]".format(*of["ratings"][arm])]
        for battle, of in json.loads(CROSSPLAY.read_text())["battles"].items()
        for arm in trained
    ]
    return table(["battle", "trained against", *trained, *others, "rating"], rows)


def predators(world: str) -> str:
    """Mean returns of the predators of a particle world against each kind of prey."""
    games = json.loads(CROSSPLAY.read_text())["worlds"][world]
    hunters, prey = (list(dict.fromkeys(name.split(" | ")[side] for name in games)) for side in (0, 1))
    rows = [
        [one] + ["{:g} [{:g}, {:g}]".format(*games[f"{one} | {other}"][0]) for other in prey]
        for one in hunters
    ]
    return table(["trained against", *(f"against {other}" for other in prey)], rows)


def best_response() -> str:
    """How often teams win against a best response to them, and against scripts."""
    games = json.loads(CROSSPLAY.read_text())["best_response"]

    def cell(of: dict[str, list[float]], pair: str) -> str:
        return "{:.0f} [{:.0f}, {:.0f}]".format(*(100 * value for value in of[pair]))

    def worse(of: dict[str, list[float]]) -> str:
        value, low, high = (100 - 100 * each for each in of["best_response | team"])
        return f"{value:.0f} [{high:.0f}, {low:.0f}]"

    others = ("heuristic", "script", "random")
    rows = [
        [arm, cell(of, "team | best_response"), worse(of), *(cell(of, f"team | {other}") for other in others)]
        for arm, of in games.items()
    ]
    head = ["trained against", "wins % against its best response, as allies", "as enemies"]
    return table([*head, "SMAC's scripted team", "the game's script", "random"], rows)


def _class(row: dict[str, Any]) -> str:
    """The group of maps that a plan is for, from its name."""
    return re.sub("_(short|long)$", "", row["plan"]).replace("_", " ")


def _interval(row: dict[str, Any]) -> str:
    """The mean over seeds and its interval, which two seeds do not have."""
    mean, low, high = statistics.bootstrap(statistics.mean, [np.array(row["wins"])], [row["episodes"]])
    interval = f" ({100 * low:.0f} to {100 * high:.0f})" if np.isfinite(low) else ""
    return f"{100 * mean:.0f}{interval}"


def _verdict(row: dict[str, Any], published: dict[str, dict[str, float]]) -> str:
    """Whether a median agrees with the best that is published of the algorithm on this map."""
    known = [wins[row["map"]] for wins in published.values() if row["map"] in wins]
    if not known:
        return "-"
    return _difference(round(100 * median(row["wins"])) - max(known), AGREES)


def _difference(points: float, agrees: float) -> str:
    """A verdict in words."""
    if abs(points) <= agrees:
        return "agrees"
    return f"{'ahead' if points > 0 else 'behind'} by {abs(points)}"


def search() -> str:
    """What was tried for MAPPO's presets, by `benchmarks/search.py`."""
    return table(
        ["battle", "network", "arm", "steps a seed", "wins % of each seed", "return", "length"],
        [
            [
                f"`{row['map']}`",
                "gru" if row["options"]["preset"] == "battle_memory" else "mlp",
                row["arm"],
                _steps(row),
                _percents(row["wins"]),
                f"{mean(row['returns']):.1f}",
                f"{mean(row['lengths']):.0f}",
            ]
            for row in json.loads(SEARCH.read_text())
        ],
    )


def others() -> str:
    """How often the other algorithms win."""
    rows = [row for row in json.loads(WINS.read_text()) if row["plan"] in OTHERS]
    rows.sort(key=lambda row: (row["arm"], row["map"].lower()))
    head = ["algorithm", "battle", "rules", "steps a seed", "wins % of each seed", "median", "mean (95 %)"]
    return table(
        [*head, "published", "verdict", "seconds"],
        [[f"`{row['arm']}`", f"`{row['map']}`", str(row["rules"]), *_beside(row)] for row in rows],
    )


def _beside(row: dict[str, Any]) -> list[str]:
    """An outcome beside the published one of the same algorithm; `qmix_signed` is QMIX, `ippo_hard` IPPO."""
    algorithm = row["arm"].removesuffix("_signed").removesuffix("_hard").removesuffix("_memory")
    published = _published(algorithm)
    known = [str(wins[row["map"]]) for wins in published.values() if row["map"] in wins]
    return [*_outcome(row), " / ".join(known) or "-", _verdict(row, published), str(row["seconds"])]


def study(name: str) -> str:
    """What an experiment found (`benchmarks/studies.py`): every seed, how stable arms are, and verdicts."""
    data = json.loads((HERE / "data" / "studies" / f"{name}.json").read_text(encoding="utf-8"))
    rows = {(row["arm"], row["task"]): row for row in data["rows"]}
    arms, tasks = (list(dict.fromkeys(key)) for key in zip(*rows, strict=True))
    kinds = {metric.endswith("win_rate") for metric in data["metric"].values()}
    wins = kinds == {True}
    if len(kinds) > 1:
        raise SystemExit(f"{name}: win rates and returns have no common spread")
    cell = _studied_wins if wins else lambda row: ", ".join(f"{score:.1f}" for score in row["scores"])
    lines = []
    for arm in arms:
        here = [rows[arm, task] for task in tasks]
        stable = [mean(row[key] for row in here) for key in ("spread", "drop")]
        shown = [f"{100 * x:.0f}" if wins else f"{x:.1f}" for x in stable]
        lines.append([arm, *map(cell, here), *shown])
    seconds, devices = sum(row["seconds"] for row in data["rows"]), {row["device"] for row in data["rows"]}
    made = f"{len(rows)} runs on {', '.join(sorted(devices))}: {seconds / 60:.0f} minutes, added up."
    head = ["arm", *(f"`{task}`" for task in tasks), "spread", "drop"]
    said = [f"- {text.replace('no diff', 'No diff')}." for text in data["verdicts"]]
    said += [f"- Note: {text}." for text in data["notes"]]
    return "\n".join([table(head, lines), "", *said, "", made])


def _studied_wins(row: dict[str, Any]) -> str:
    never = float("inf")
    steps = median(never if step is None else step for step in row["solved"])
    return _percents(row["scores"]) + (f"<br>90 % at {steps / 1e6:.2f}M" if steps < never else "")


def values() -> str:
    """How often learners of values win, beside what is published."""
    rows = [row for row in json.loads(WINS.read_text()) if row["plan"].startswith("value_")]
    rows.sort(key=lambda row: (row["map"].lower(), row["arm"], row["steps"][-1]))
    head = ["battle", "algorithm", "rules", "steps a seed", "wins % of each seed", "median", "mean (95 %)"]
    return table(
        [*head, "published", "verdict", "seconds"],
        [[f"`{row['map']}`", f"`{row['arm']}`", str(row["rules"]), *_beside(row)] for row in rows],
    )


def pymarl() -> str:
    """QMIX with the settings of PyMARL and of PyMARL2, as they are."""
    rows = [row for row in json.loads(WINS.read_text()) if row["plan"].startswith("pymarl")]
    return table(
        [
            "battle",
            "preset",
            "steps a seed",
            "wins % of each seed",
            "median",
            "90 % of evaluations at",
            "seconds",
        ],
        [
            [
                f"`{row['map']}`",
                f"`{row['plan']}`",
                _steps(row),
                _percents(row["wins"]),
                f"{100 * median(row['wins']):.0f}",
                ", ".join(_first(row["steps"], curve) for curve in row["curves"]),
                str(row["seconds"]),
            ]
            for row in sorted(rows, key=lambda row: (row["map"], row["plan"]))
        ],
    )


def _first(steps: list[int], curve: list[float]) -> str:
    return next((f"{step / 1e6:.1f}M" for step, wins in zip(steps, curve, strict=True) if wins >= 0.9), "-")


def cost() -> str:
    """How long the runs of each table took, on each device."""
    sums: dict[tuple[str, str], list[float]] = {}
    for row in json.loads(WINS.read_text()):
        of = sums.setdefault((_table_of(row["plan"]), row["device"]), [0.0, 0.0, 0.0])
        for i, value in enumerate((1, len(row["wins"]) * row["steps"][-1] / 1e6, row["seconds"] / 60)):
            of[i] += value
    rows = [
        [name, device, *(f"{value:,.0f}" for value in sums[name, device])] for name, device in sorted(sums)
    ]
    return table(["table", "device", "runs", "million env steps of all seeds", "minutes, added up"], rows)


def _table_of(plan: str) -> str:
    """The table that a plan is in, in words."""
    if plan in OTHERS:
        return "the other algorithms"
    starts = {
        "many_starts": "more initial states",
        "v2": "SMACv2",
        "value_": "value-based algorithms",
        "pymarl": "PyMARL's settings",
    }
    return next((name for start, name in starts.items() if plan.startswith(start)), "MAPPO on SMAC's maps")


def value_returns() -> str:
    """What learners of values earn elsewhere, by `benchmarks/value.py`."""
    rows = json.loads(VALUE_RETURNS.read_text())
    return table(
        ["environment", "algorithm", "steps a seed", "return of each seed", "command"],
        [
            [
                f"`{row['map']}`",
                f"`{row['arm']}`",
                _steps(row),
                ", ".join(f"{value:.2f}" for value in row["returns"]),
                f"`{row['command']}`",
            ]
            for row in sorted(rows, key=lambda row: (row["map"], row["arm"]))
        ],
    )


def _steps(row: dict[str, Any]) -> str:
    return f"{max(row['steps']) / 1e6:.1f}M"


def _percents(shares: list[float]) -> str:
    numbers = [f"{100 * share:.0f}" for share in shares]
    return ", ".join(numbers) if len(set(numbers)) > 1 else f"{numbers[0]} ({len(numbers)} seeds)"


PAGES = {
    "results.md": {
        "wins": wins,
        "v2": v2,
        "many starts": many_starts,
        "others": others,
        "values": values,
        "pymarl": pymarl,
        "value returns": value_returns,
        "cost": cost,
    },
    "search.md": {"search": search},
    "studies.md": {name: partial(study, name) for name in STUDIES},
    "opponents.md": {
        "crossplay": crossplay,
        "tag": lambda: predators("mpe/simple_tag"),
        "adversary": lambda: predators("mpe/simple_adversary"),
        "best response": best_response,
    },
    "battle.md": {
        "units": units,
        "lotv": lotv,
        "maps": maps,
        "v2": drawn_maps,
        "scripted": scripted,
        "yardsticks": yardsticks,
    },
    "mpe.md": {"worlds": worlds, "returns": returns},
}


def fill(file: str) -> str:
    """A page with each table, between its two markers, made anew."""
    page = (HERE / file).read_text(encoding="utf-8")
    for name, make in PAGES[file].items():
        begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        before, rest = page.split(begin)
        page = before + begin + "\n" + make() + "\n" + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    for each in PAGES:
        (HERE / each).write_text(fill(each), encoding="utf-8")

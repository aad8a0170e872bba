"""Search files: what is searched, over which values, and how much is spent; read and checked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from phalanx import registry
from phalanx.config import convert, option, options_of
from phalanx.errors import PhalanxError, suggest
from phalanx.search.halving import Rung, cost, most_settings, rounds, rungs

TABLES = ("plan", "fixed", "search")
NEEDED = ("algorithm", "env")

Setting = dict[str, Any]
"""a value for each searched option"""


@dataclass(frozen=True)
class Plan:
    """The table [plan] of a search file."""

    algorithm: str
    env: str
    preset: str = option("auto", "preset that the fixed options override, as --preset")
    settings: int | None = option(
        None,
        "settings to try (default: all of a grid of lists, or as many as the budget allows)",
        at_least=1,
        at_most=100_000,
    )
    seeds: int = option(2, "seeds of each setting", at_least=1, at_most=10_000)
    seed: int = option(0, "first random seed; all settings have the same seeds", at_least=0)
    steps: int = option(1_000_000, "env steps of each seed at the last rung", at_least=1)
    rungs: int = option(
        1, "how often settings are compared; 1: none is stopped early", at_least=1, at_most=16
    )
    factor: int = option(
        4,
        "reduction factor: after each rung one setting in this many continues, for this many times the steps",
        at_least=2,
    )
    budget: int | None = option(
        None,
        "maximum number of env steps in training, over all settings and seeds; --budget overrides it",
        at_least=1,
    )
    sampler: Literal["spread", "tpe"] = option(
        "spread",
        "spread: evenly over the space, or the whole grid; tpe: in rounds, each guided by earlier results "
        "(needs the extra search)",
    )
    round: int = option(16, "settings of a round of tpe", at_least=1)
    draw: int = option(0, "random seed of the settings", at_least=0)
    at_once: int | None = option(
        None, "maximum number of settings trained at once (default: all of one shape)", at_least=1
    )
    metric: Literal["auto", "win_rate", "return"] = option(
        "auto", "score: greedy win_rate or return (auto: win_rate where there is one)"
    )


def schedule(plan: Plan, settings: int) -> list[list[Rung]]:
    """The rungs of each round."""
    sizes = rounds(settings, plan.round) if plan.sampler == "tpe" else [settings]
    return [rungs(size, plan.steps, plan.rungs, plan.factor) for size in sizes]


def price(plan: Plan, settings: int) -> int:
    """The most env steps that so many settings take, over all seeds."""
    return sum(cost(each, plan.seeds) for each in schedule(plan, settings))


class Axis(NamedTuple):
    """One searched option: a list of values, or a range."""

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    """whether values of the range are whole numbers"""

    def at(self, share: float) -> Any:
        """The value at a share of the axis, in [0, 1)."""
        if self.values:
            return self.values[int(share * len(self.values))]
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else float(f"{value:.6g}")  # short enough to be typed


class Space(NamedTuple):
    """A search file, read."""

    path: Path
    out: Path
    plan: Plan
    fixed: Mapping[str, Any]
    """options of the run and the algorithm"""
    fixed_env: Mapping[str, Any]
    axes: tuple[Axis, ...]
    same: Mapping[str, str]
    """options that have the value of another one"""
    settings: int
    grid: bool

    @property
    def schedule(self) -> list[list[Rung]]:
        """The rungs of each round."""
        return schedule(self.plan, self.settings)

    @property
    def env_steps(self) -> int:
        """The most that it takes, over all settings and seeds."""
        return price(self.plan, self.settings)

    def complete(self, setting: Setting) -> Setting:
        """A setting with the options that have the value of another one."""
        return {**setting, **{name: setting[other] for name, other in self.same.items()}}

    def options(self, setting: Setting) -> tuple[dict[str, Any], dict[str, Any]]:
        """All options of a setting: of run and algorithm, and of the environment."""
        env = {name[4:]: value for name, value in setting.items() if name.startswith("env.")}
        rest = {name: value for name, value in setting.items() if not name.startswith("env.")}
        return {**self.fixed, **rest}, {**self.fixed_env, **env}


def read(path: Path, budget: str | None = None, out: Path | None = None) -> Space:
    """Read a search file; say in one line what is wrong with it. `budget` is that of the command line."""
    tables = {table: {} for table in TABLES} | registry.read_toml(path, TABLES)
    try:
        return _space(path, tables, budget, out or Path("results", "search", path.stem))
    except PhalanxError as error:
        raise PhalanxError(f"{path}: {error}") from None


def _space(path: Path, tables: Mapping[str, Any], budget: str | None, out: Path) -> Space:
    for table in tables:
        if table not in TABLES:
            raise PhalanxError(f"unknown table [{table}].{suggest(table, TABLES)}")
    plan = _plan(tables["plan"], budget)
    fixed = {name: value for name, value in tables["fixed"].items() if name != "env"}
    fixed_env = tables["fixed"].get("env", {})
    if not isinstance(fixed_env, Mapping):
        raise PhalanxError("env in [fixed] must be a table of options: env = { time_limit = 100 }")
    axes, same = _axes(plan, tables["search"])
    for name in fixed:
        _require_free(name)
    for name in [axis.name for axis in axes] + list(same):
        _require_free(name)
        if name in fixed or (name.startswith("env.") and name[4:] in fixed_env):
            raise PhalanxError(f"{name} is in [fixed] and in [search]: leave one out")
    settings, grid = _count(plan, axes)
    space = Space(path, out, plan, fixed, fixed_env, axes, same, settings, grid)
    if plan.budget is not None and space.env_steps > plan.budget:
        most = most_settings(plan.budget, partial(price, plan))
        raise PhalanxError(
            f"{settings} settings take {space.env_steps:,} env steps, more than the budget of "
            f"{plan.budget:,}: "
            + (f"use settings = {most}, or a larger budget" if most else "use fewer steps or seeds")
        )
    return space


def _plan(given: Mapping[str, Any], budget: str | None) -> Plan:
    known = options_of(Plan)
    for name in given:
        if name not in {*known, *NEEDED}:
            raise PhalanxError(f"unknown option {name!r} in [plan].{suggest(name, {*known, *NEEDED})}")
    for name in NEEDED:
        if not isinstance(given.get(name), str):
            example = {"algorithm": "mappo", "env": "battle/3m"}[name]
            raise PhalanxError(f'[plan] must say {name} = "{example}" or another')
    values = {name: convert(known[name], raw, "[plan]") for name, raw in given.items() if name in known}
    if budget is not None:
        values["budget"] = convert(known["budget"], budget, "command line")
    return Plan(algorithm=given["algorithm"], env=given["env"], **values)


def _require_free(name: str) -> None:
    """Refuse options that the plan itself sets."""
    plain = name.rpartition(".")[2]
    if not name.startswith("env.") and plain in ("steps", "seeds", "seed", "preset"):
        raise PhalanxError(f"{plain} belongs in [plan]")
    if name == "devices":
        raise PhalanxError("devices is an option of the command: phalanx search FILE --devices INT|all")


def _axes(plan: Plan, given: Mapping[str, Any]) -> tuple[tuple[Axis, ...], dict[str, str]]:
    """What is searched, and what has the value of another option."""
    entries = {name: entry for name, entry in given.items() if name != "env"}
    nested = given.get("env", {})
    if not isinstance(nested, Mapping):
        raise PhalanxError("env in [search] must be a table of options: env.reward = [...]")
    entries |= {f"env.{name}": entry for name, entry in nested.items()}
    same = {name: entry for name, entry in entries.items() if isinstance(entry, str)}
    axes = tuple(_axis(name, entry) for name, entry in entries.items() if name not in same)
    if not axes:
        raise PhalanxError("it searches nothing: [search] needs a line such as lr = [1e-4, 3e-4, 1e-3]")
    for name, other in same.items():
        names = [axis.name for axis in axes]
        if other not in names:
            raise PhalanxError(
                f'{name} = "{other}" must name another searched option.{suggest(other, names)}'
            )
    return axes, same


def _axis(name: str, entry: Any) -> Axis:
    if isinstance(entry, list):
        if not entry or any(isinstance(each, list | dict) for each in entry):
            raise PhalanxError(f"{name} must be a list of values, not {entry!r}")
        if len({repr(each) for each in entry}) < len(entry):
            raise PhalanxError(f"{name} names a value twice")
        return Axis(name, tuple(entry))
    known = {"low", "high", "log"}
    if not isinstance(entry, Mapping) or not {"low", "high"} <= entry.keys() <= known:
        raise PhalanxError(
            f"{name} must be a list of values or a range such as {{ low = 1e-4, high = 1e-2, log = true }}"
        )
    low, high, log = entry["low"], entry["high"], entry.get("log", False)
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in (low, high)) or low >= high:
        raise PhalanxError(f"low and high of {name} must be numbers, low the smaller one")
    if not isinstance(log, bool) or (log and low <= 0):
        raise PhalanxError(f"log of {name} must be true or false, and low above 0 where it is true")
    whole = isinstance(low, int) and isinstance(high, int)
    return Axis(name, (), low, high, log, whole)


def _count(plan: Plan, axes: tuple[Axis, ...]) -> tuple[int, bool]:
    """How many settings there are, and whether they are the whole grid."""
    everything = math.prod(len(axis.values) for axis in axes)  # 0 with a range
    wanted = plan.settings
    if wanted is None and plan.budget is None and not everything:
        raise PhalanxError("say how many settings to try: settings in [plan], or a budget")
    if wanted is None and plan.budget is not None:
        wanted = most_settings(plan.budget, partial(price, plan))
        if not wanted:
            raise PhalanxError(
                f"the budget of {plan.budget:,} env steps is less than the "
                f"{plan.steps * plan.seeds:,} of one setting"
            )
    grid = bool(everything) and plan.sampler == "spread" and (wanted is None or wanted >= everything)
    return (everything, True) if grid else (wanted or everything, False)

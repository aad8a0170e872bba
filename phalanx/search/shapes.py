"""Groups settings by program: which options are arguments of one program, and which need another program."""

import dataclasses
from typing import Any, NamedTuple

from phalanx import registry, runs
from phalanx.config import Layer
from phalanx.envs.base import Env
from phalanx.errors import PhalanxError
from phalanx.search.space import Setting, Space
from phalanx.training.lanes import Lane, own_program
from phalanx.training.setup import Setup


class Shape(NamedTuple):
    """What settings of one program have in common."""

    key: str
    setup: Setup
    lane: Lane
    names: tuple[str, ...]
    """options of the algorithm that are arguments of the program"""


class Shapes:
    """Sorts settings into programs."""

    def __init__(self, space: Space, first: Setting):
        """`first` is any setting: options are tried on it."""
        self.space = space
        self.known: dict[str, Shape] = {}
        self.sorted: dict[str, tuple[Shape, dict[str, float]]] = {}
        tables = {name: self._table(name) for name in first}
        mine = {name: plain for name, (table, plain) in tables.items() if table == "algorithm"}
        others = [name for name in first if name not in mine]
        self.reasons = {name: f"it is an option of the {_whose(tables[name][0])}" for name in others}
        setup = self.setup(first)
        self._require_trainable(setup)
        own, idle = own_program(self._lane(setup), list(mine.values()))
        self.reasons |= {name: own[plain] for name, plain in mine.items() if plain in own}
        for name in (name for name, plain in mine.items() if plain in idle):
            if not self.reasons:
                raise PhalanxError(f"{name} has no effect with these options: leave it out of [search]")
            self.reasons[name] = "it has an effect only with other options"
        self.names = {name: plain for name, plain in mine.items() if name not in self.reasons}
        """options that are numbers of one program, and their plain names"""

    def _table(self, name: str) -> tuple[str, str]:
        """Whose option it is, and its plain name."""
        if name.startswith("env."):
            return "env", name[4:]
        tables = runs.tables_of(self.space.plan.algorithm, {name: None}, {})
        return next((table, plain) for table, options in tables.items() for plain in options)

    def setup(self, setting: Setting) -> Setup:
        """Put the parts of a setting together, refusing values that do not fit."""
        plan, (options, env_options) = self.space.plan, self.space.options(setting)
        options = {**options, "run.steps": plan.steps, "run.seeds": 1, "run.seed": plan.seed}
        layer = Layer("search", runs.tables_of(plan.algorithm, options, env_options))
        return runs.resolve(plan.algorithm, plan.env, layer, preset=plan.preset)

    def _require_trainable(self, setup: Setup) -> None:
        if not isinstance(setup.env, Env):
            raise PhalanxError(
                f"{self.space.plan.env} is a Python program, and a search trains compiled environments: "
                f"use an experiment"
            )
        if setup.loop.opponents is not None or setup.config.init_from:
            raise PhalanxError("a search has no opponent and no init_from: use an experiment")
        steps = self.space.schedule[0][0].steps
        if steps < setup.algorithm.steps_per_update:
            raise PhalanxError(
                f"the first rung has {steps:,} env steps per seed, less than the "
                f"{setup.algorithm.steps_per_update:,} of an update: use fewer rungs or more steps"
            )

    def _lane(self, setup: Setup) -> Lane:
        run, env = setup.config, setup.env
        assert isinstance(env, Env)
        return Lane(
            registry.algorithm(run.algorithm), setup.resolved.algorithm, env, run.envs, run.eval_episodes
        )

    def of(self, setting: Setting) -> tuple[Shape, dict[str, float]]:
        """The program of a setting, and its numbers there."""
        if repr(setting) not in self.sorted:
            self.sorted[repr(setting)] = self._sort(setting)
        return self.sorted[repr(setting)]

    def _sort(self, setting: Setting) -> tuple[Shape, dict[str, float]]:
        setup = self.setup(setting)
        key = repr({name: value for name, value in setting.items() if name in self.reasons})
        if key not in self.known:
            self._require_trainable(setup)
            self.known[key] = Shape(key, setup, self._lane(setup), tuple(self.names.values()))
        config = dataclasses.asdict(setup.resolved.algorithm)
        return self.known[key], {plain: config[plain] for plain in self.names.values()}


def _whose(table: str) -> str:
    return {"env": "environment"}.get(table, table)


def told(setup: Setup) -> dict[str, dict[str, Any]]:
    """What a preset must say to train like this: every value that is no default."""
    resolved = setup.resolved
    values = {
        "run": {name: getattr(resolved.run, name) for name in ("envs",)},
        "algorithm": dataclasses.asdict(resolved.algorithm),
        "env": dict(resolved.env),
    }
    return {
        table: {
            name: value
            for name, value in entries.items()
            if resolved.origins[table].get(name, "default") != "default" and value is not None
        }
        for table, entries in values.items()
    }

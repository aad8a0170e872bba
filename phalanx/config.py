"""Configuration: frozen dataclasses whose fields describe themselves.

A field made with `option` carries its help text and its bounds. From these the command line and its help are
generated, and every value is checked, whether it comes from a preset, a file, a command line or Python.
Values are merged in layers, and the last one wins: defaults in the dataclass, preset, the user's file,
command line. Configs are never modified.
"""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from phalanx.errors import PhalanxError, suggest

BOUNDS = ("at_least", "at_most", "above", "below")


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    alone: str | None = None,
    words: Mapping[str, int] | None = None,
) -> Any:
    """A dataclass field with a help text and, for a number, its bounds.

    `alone` is what its flag means on a command line without a value, `words` are names of some numbers.
    """
    bounds = {"at_least": at_least, "at_most": at_most, "above": above, "below": below}
    return field(default=default, metadata={"help": help, "alone": alone, "words": words or {}, **bounds})


def with_default(cls: type, name: str, default: Any) -> Any:
    """The field `name` of a dataclass again, with another default, for a subclass of it."""
    (original,) = (each for each in dataclasses.fields(cls) if each.name == name)
    return field(default=default, metadata=original.metadata)


@dataclass(frozen=True)
class RunConfig:
    """Options of every run, independent of the algorithm and the environment."""

    algorithm: str
    env: str
    steps: int = option(1_000_000, "training budget in env steps, for each seed", at_least=1)
    seeds: int = option(1, "number of seeds, trained in one compiled program", at_least=1, at_most=100_000)
    seed: int = option(0, "first random seed; further seeds count up from it", at_least=0, at_most=2**31 - 1)
    envs: int = option(
        64,
        "parallel environments for each seed; more are faster. They share the batch_steps of a rollout",
        at_least=1,
        at_most=2**24,
    )
    devices: int = option(
        1,
        "devices (GPUs, or cores of a CPU) that share the run, or all: first the seeds, then environments",
        at_least=0,
        at_most=4096,
        words={"all": 0},
    )
    eval_every: int | None = option(None, "env steps between evaluations (default: steps / 20)", at_least=1)
    eval_episodes: int = option(32, "greedy episodes per evaluation, for each seed", at_least=1)
    final_episodes: int = option(
        256, "greedy episodes in the final evaluation of the last and of the best parameters", at_least=1
    )
    save_every: int | None = option(
        None, "env steps between checkpoints, written after an evaluation (default: after each)", at_least=1
    )
    workers: int | None = option(
        None,
        "processes that step Python environments (default: one per core); 0: this process",
        at_least=0,
        at_most=4096,
    )
    worker_python: str = option("", "Python interpreter of the workers, if not this one")
    ray: str | None = option(
        None,
        "step Python environments in --workers Ray actors: address of a cluster (auto, HOST:PORT, "
        "ray://HOST:PORT); without an address, Ray is started on this machine (needs the extra ray)",
        alone="local",
    )
    step_timeout: float = option(
        60.0, "seconds after which a worker that hangs in a step is replaced", above=0
    )
    opponent: str = option(
        "",
        "who plays the other side in training: self, past (earlier checkpoints of the learner, or of the "
        "second learner with --opponent-algorithm), random, heuristic, script, a run folder, an exported "
        "team, or a pool of these, FILE.toml (default: the environment's own script, or all sides learn)",
    )
    opponent_algorithm: str = option(
        "",
        "let the other side learn too, with this algorithm and its preset (if it is the algorithm of the "
        "run: with the same options); beside --opponent it plays in a quarter of the environments",
    )
    side: str = option("", "the side that learns, with an opponent (default: the first)")
    opponent_greedy: bool = option(False, "opponents act greedily instead of sampling their actions")
    opponent_pool: int = option(
        16, "number of earlier checkpoints to keep as opponents", at_least=1, at_most=4096
    )
    opponent_draw: Literal["uniform", "newest", "hard"] = option(
        "uniform",
        "how they are drawn: uniform; newest: half of the time the newest; hard: more "
        "often those that win more",
    )
    opponents_at_once: int = option(4, "earlier checkpoints that play in one rollout", at_least=1)
    snapshot_every: int = option(
        50_000, "env steps between the checkpoints that are kept as opponents", at_least=1
    )
    keep: int = option(2, "number of latest checkpoints to keep, in addition to the best", at_least=1)
    save_buffer: bool = option(True, "store the replay buffer in checkpoints, for an exact resume")
    init_from: str = option("", "run folder to take the initial networks from (its last parameters)")
    tensorboard: bool = option(True, "also log to TensorBoard")
    wandb: str = option("", "also log to this Weights & Biases project (needs the extra wandb)")
    mlflow: str = option("", "also log to this MLflow experiment (needs the extra mlflow)")


class Option(NamedTuple):
    """One configurable value: a dataclass field, seen from outside."""

    name: str
    kind: Any
    """bool, int, float, str, or object for any of them"""
    choices: tuple[str, ...]
    optional: bool
    default: Any
    help: str
    bounds: Mapping[str, float | None]
    alone: str | None = None
    words: Mapping[str, int] = types.MappingProxyType({})
    """names of some numbers"""

    @property
    def shape(self) -> str:
        """How help texts show what the option takes."""
        if self.choices or self.words:
            return "|".join(self.choices or ("INT", *self.words))
        return {bool: "", int: "INT", float: "FLOAT", str: "TEXT", object: "VALUE"}[self.kind]


def options_of(cls: type) -> dict[str, Option]:
    """List the configurable fields of a dataclass (none for a class that is no dataclass)."""
    if not dataclasses.is_dataclass(cls):
        return {}
    hints = typing.get_type_hints(cls)
    found = {}
    for each in dataclasses.fields(cls):
        if "help" not in each.metadata:
            continue
        kind, choices, optional = hints[each.name], (), False
        parts = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        if typing.get_origin(kind) in (types.UnionType, typing.Union) and len(parts) == 1:
            kind, optional = parts[0], True
        if typing.get_origin(kind) is typing.Literal:
            choices = typing.get_args(kind)
            kind = str if all(isinstance(choice, str) for choice in choices) else kind
        if kind not in (bool, int, float, str):
            raise PhalanxError(
                f"{cls.__name__}.{each.name} cannot be an option: its type must be bool, int, "
                f"float, str or a Literal of strings, or one of these or None"
            )
        bounds = {k: each.metadata[k] for k in BOUNDS}
        found[each.name] = Option(
            each.name,
            kind,
            choices,
            optional,
            each.default,
            each.metadata["help"],
            bounds,
            each.metadata["alone"],
            each.metadata["words"],
        )
    return found


def passed_on(name: str) -> Option:
    """An option that only the environment itself knows."""
    return Option(name, object, (), True, None, "passed on to the environment", {})


def _number(raw: Any) -> int | float | None:
    """What a text or a value is as a number; 2e6 is one. None if it is not."""
    if isinstance(raw, str):
        for read in (int, float):
            try:
                return read(raw)
            except ValueError:
                pass
    if isinstance(raw, numbers.Real) and not isinstance(raw, bool):
        return int(raw) if isinstance(raw, numbers.Integral) else float(raw)
    return None


def convert(opt: Option, raw: Any, origin: str) -> Any:
    """Convert a value from a command line, a file or Python to the option's type, or raise an error."""
    if raw is None and opt.optional:
        return None
    if opt.kind is object:
        return _as_it_reads(raw)
    value, wrong = (_number_for if opt.kind in (int, float) else _word_for)(opt, raw)
    if wrong:
        raise PhalanxError(f"{opt.name} {wrong}, not {raw!r} ({origin})")
    return value


def _as_it_reads(raw: Any) -> Any:
    """A value whose type nobody declared: true, false, numbers and lists as in JSON; else the text."""
    if not isinstance(raw, str):
        return raw
    number = _number(raw)
    if number is not None and math.isfinite(number):
        return number
    try:
        return json.loads(raw) if raw[:1] in ("t", "f", "[", "{", '"') else raw
    except ValueError:
        return raw


def _word_for(opt: Option, raw: Any) -> tuple[Any, str | None]:
    """The value of a text or yes-or-no option, and what is wrong with it."""
    if opt.kind is bool:
        return raw, None if isinstance(raw, bool) else "must be true or false"
    if isinstance(raw, PurePath):
        raw = str(raw)
    if not isinstance(raw, str):
        return raw, "must be text"
    return raw, f"must be one of {', '.join(opt.choices)}" if opt.choices and raw not in opt.choices else None


def _number_for(opt: Option, raw: Any) -> tuple[Any, str | None]:
    """The value of a numeric option, and what is wrong with it."""
    number = opt.words.get(raw) if isinstance(raw, str) and raw in opt.words else _number(raw)
    if number is None:
        kind = "a whole number" if opt.kind is int else "a number"
        return raw, " or ".join([f"must be {kind}", *opt.words])
    if isinstance(number, float) and not math.isfinite(number):
        return raw, "must be a finite number"
    if opt.kind is int and abs(number) > LARGEST_NUMBER:
        return raw, f"must be at most {LARGEST_NUMBER:g}"
    if opt.kind is int and number != int(number):
        return raw, "must be a whole number"
    return opt.kind(number), _beyond(opt, number)


def _beyond(opt: Option, number: float) -> str | None:
    """Which of an option's bounds a number is beyond."""
    low, high, above, below = (opt.bounds.get(name) for name in BOUNDS)
    if low is not None and number < low:
        return f"must be at least {low:g}"
    if above is not None and number <= above:
        return f"must be above {above:g}"
    if below is not None and number >= below:
        return f"must be below {below:g}"
    if high is not None and number > high:
        return f"must be at most {high:g}"
    return None


LARGEST_NUMBER = 1e18


class Layer(NamedTuple):
    """Values from one source: `values[table][name]`, tables being run, algorithm and env."""

    origin: str
    values: Mapping[str, Mapping[str, Any]]
    tuning: Mapping[str, Any] = {}
    """what the search spent that found these values, if one did"""


TABLES = ("run", "algorithm", "env")


# Of `phalanx train` itself: an algorithm's option of such a name takes the prefix.
COMMAND_OPTIONS = frozenset({"config", "preset", "out", "help"})


def renamed(options: Mapping[str, Any]) -> dict[str, Any]:
    """An algorithm's options as version 0.1.0 wrote them, under today's names."""
    options = dict(options)
    if "standardise_rewards" in options:
        options["reward_norm"] = "standardise" if options.pop("standardise_rewards") else "none"
    return options


def clashes(algorithm_config: type) -> set[str]:
    """Options that the run and an algorithm both have: their table must be given."""
    return options_of(RunConfig).keys() & options_of(algorithm_config).keys()


def by_table(algorithm: str, algorithm_config: type, options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort options into those of the run and those of the algorithm.

    `run.NAME` and `algorithm.NAME` say which is meant; a plain name that both have is refused.
    """
    known = {"run": options_of(RunConfig), "algorithm": options_of(algorithm_config)}
    tables: dict[str, dict[str, Any]] = {table: {} for table in known}
    for name, value in options.items():
        prefix, _, plain = name.rpartition(".")
        owners = [table for table in known if plain in known[table] and prefix in ("", table)]
        if not owners:
            near = suggest(plain, {*known["run"], *known["algorithm"]})
            raise PhalanxError(f"{algorithm} has no option {name!r}.{near}")
        if len(owners) > 1:
            raise PhalanxError(both_have(plain, algorithm))
        if plain in tables[owners[0]]:
            raise PhalanxError(f"{plain} is given twice, as {plain} and as {owners[0]}.{plain}")
        tables[owners[0]][plain] = value
    return tables


def both_have(name: str, algorithm: str, dashes: str = "") -> str:
    """What to say of an option whose owner is not clear."""
    return (
        f"{dashes}{name} is an option of the run and of {algorithm}: "
        f"say {dashes}run.{name} or {dashes}algorithm.{name}"
    )


class Resolved(NamedTuple):
    """The merged configuration of a run and where each value came from."""

    run: RunConfig
    algorithm: Any
    """the algorithm's own frozen dataclass"""
    env: Mapping[str, Any]
    """the environment's options"""
    origins: Mapping[str, Mapping[str, str]]
    tuning: Mapping[str, Any] = {}
    """what the search spent that found its preset, if one did"""


def merge(
    run: tuple[str, str], algorithm_config: type, env_options: Mapping[str, Option], layers: list[Layer]
) -> Resolved:
    """Lay `layers` over the defaults, the last one winning, and check every value."""
    known = {"run": options_of(RunConfig), "algorithm": options_of(algorithm_config), "env": env_options}
    values = {table: {name: opt.default for name, opt in known[table].items()} for table in TABLES}
    origins = {table: dict.fromkeys(known[table], "default") for table in TABLES}
    for layer in layers:
        for table, entries in layer.values.items():
            if table not in known:
                raise PhalanxError(f"unknown table [{table}] ({layer.origin}).{suggest(table, TABLES)}")
            for name, raw in entries.items():
                if table == "run" and name in ("algorithm", "env"):
                    continue  # said by the command itself; a run's own config.toml names them too
                if name not in known[table]:
                    raise PhalanxError(
                        f"unknown option {name!r} in [{table}] ({layer.origin}).{suggest(name, known[table])}"
                    )
                values[table][name] = convert(known[table][name], raw, layer.origin)
                origins[table][name] = layer.origin
    algorithm, env = run
    return Resolved(
        run=RunConfig(algorithm=algorithm, env=env, **values["run"]),
        algorithm=algorithm_config(**values["algorithm"]),
        env=values["env"],
        origins=origins,
        tuning=next((layer.tuning for layer in layers if layer.tuning), {}),
    )


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def to_toml(resolved: Resolved) -> str:
    """Write the merged configuration with the origin of every value behind it."""
    run = dataclasses.asdict(resolved.run)
    tables = {"run": run, "algorithm": dataclasses.asdict(resolved.algorithm), "env": resolved.env}
    lines = ["# The merged configuration of this run. The comment after each value is its origin."]
    for table, values in tables.items():
        lines += ["", f"[{table}]"]
        for name, value in values.items():
            origin = resolved.origins[table].get(name, "command line")
            if value is None:
                lines.append(f"# {name} is not set  # {origin}")
            else:
                lines.append(f"{name} = {toml_value(value)}  # {origin}")
    return "\n".join(lines) + "\n"

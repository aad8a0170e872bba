"""Build the parts of a run, and describe what will run."""

import dataclasses
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from phalanx import device, registry
from phalanx.algorithms.base import Algorithm, AlgorithmConfig, NetworkSummary
from phalanx.algorithms.shared.normalised import build
from phalanx.algorithms.shared.optimiser import require_learning
from phalanx.config import Resolved, RunConfig, convert, options_of
from phalanx.envs.base import Env
from phalanx.envs.battle.env import Battle
from phalanx.envs.host.base import HostSource
from phalanx.envs.host.task import HostTask
from phalanx.envs.sides import HostedSide, OneSide, Side
from phalanx.envs.wrappers import policy_spec
from phalanx.errors import PhalanxError
from phalanx.opponents.make import Load, learners_env, opponents_of, side_of, yardstick
from phalanx.report.console import table
from phalanx.training import kept
from phalanx.training.collectors import collector_for
from phalanx.training.collectors.base import Collector
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.devices import Layout
from phalanx.training.evaluate import Against
from phalanx.training.loop import Loop

# Options of a run that say where host environments are stepped, and the fields of a `Placement` for them.
PLACEMENT = {"workers": "workers", "worker_python": "python", "step_timeout": "step_timeout", "ray": "ray"}
MOST_UPDATES = 2**31 - 1  # counters and seeds are 32-bit integers


class Setup(NamedTuple):
    """A run that can be compiled."""

    resolved: Resolved
    env: Env | HostSource
    algorithm: Algorithm
    loop: Loop
    evaluation: Collector
    """plays the episodes of an evaluation"""
    against: Against | None = None
    """plays the learner against its opponents, where it has some"""

    @property
    def config(self) -> RunConfig:
        return self.resolved.run

    @property
    def seeds(self) -> list[int]:
        return [self.config.seed + i for i in range(self.config.seeds)]

    @property
    def total_updates(self) -> int:
        return math.ceil(self.config.steps / self.algorithm.steps_per_update)

    def close(self) -> None:
        """Release the environments."""
        for collector in self.collectors:
            collector.close()

    @property
    def collectors(self) -> list[Collector]:
        """Who has environments: training and evaluations."""
        faced = [] if self.against is None else [self.against.collector]
        return [self.loop.collector, self.evaluation, *faced]

    @property
    def updates_between_evaluations(self) -> int:
        assert self.config.eval_every is not None
        return max(1, round(self.config.eval_every / self.algorithm.steps_per_update))


def set_up(resolved: Resolved, env: Env | HostSource, load: Load | None = None) -> Setup:
    """Build the parts of a run, with errors if they do not fit. Nothing is compiled or written yet.

    `load` loads a team that plays the other side.
    """
    run = resolved.run
    env = _placed(env, run, resolved.origins["run"])
    side = _learning_side(run, env)
    if side is not None:
        env = learners_env(env, side)
    registry.require_fit(run.algorithm, env.spec)
    cls = registry.algorithm(run.algorithm)
    if side is not None and load is not None:
        parts = _make_parts_with_opponents(cls, resolved.algorithm, env, side, run, load)
    else:
        made_from = cls, resolved.algorithm, env, run.envs, run.seeds, run.eval_episodes
        fixed = _is_fixed(cls, resolved.algorithm, env)
        parts = (_make_parts_once if fixed else _make_parts)(*made_from)
        if fixed:
            parts.loop.keep(kept.find(*made_from))
        _require_sizes(run, parts.algorithm)
    parts.algorithm.check(run.envs)
    require_learning(parts.algorithm.optimisers, run.steps)
    if run.eval_every is None:
        run = dataclasses.replace(run, eval_every=max(1, run.steps // 20))
    return Setup(resolved._replace(run=run), env, *parts)


def _learning_side(run: RunConfig, env: Env | HostSource) -> OneSide | HostedSide | None:
    """The side that learns, if somebody else plays the other one."""
    if run.opponent == "script" and not isinstance(env, Battle):
        raise PhalanxError(f"{run.env} has no script for one side: use self, past, random or a team")
    if run.opponent == "script" and run.opponent_algorithm:
        raise PhalanxError(
            f"opponent=script and opponent_algorithm={run.opponent_algorithm} cannot play in one run: leave "
            f"out one of them"
        )
    if run.opponent in ("", "script") and not run.opponent_algorithm:
        if run.side:
            raise PhalanxError("side is for a run with an opponent: add --opponent, as in --opponent random")
        return None
    return side_of(env, run)


def _placed(env: Env | HostSource, run: RunConfig, origins: Mapping[str, str]) -> Env | HostSource:
    """A host environment with the workers that the run asks for."""
    given = {name: getattr(run, name) for name in PLACEMENT if origins.get(name, "default") != "default"}
    return place(env, given, run.env)


def place(env: Env | HostSource, given: Mapping[str, Any], name: str) -> Env | HostSource:
    """An environment with these options of `PLACEMENT`; refused where there are no workers."""
    given = {option: value for option, value in given.items() if value is not None}
    if not given:
        return env
    if not isinstance(env, HostTask):
        what = "an object, stepped in this process" if isinstance(env, HostSource) else "compiled"
        raise PhalanxError(
            f"{next(iter(given))} is for Python environments that are given by name; {name} is {what}"
        )
    options = options_of(RunConfig)
    values = {PLACEMENT[each]: convert(options[each], value, "argument") for each, value in given.items()}
    return dataclasses.replace(env, placement=dataclasses.replace(env.placement, **values))


class Parts(NamedTuple):
    """What is compiled."""

    algorithm: Algorithm
    loop: Loop
    evaluation: Collector
    against: Against | None = None


def _make_parts(
    cls: type[Algorithm], config: Any, env: Env | HostSource, envs: int, seeds: int, eval_episodes: int
) -> Parts:
    algorithm = build(cls, config, policy_spec(env.spec, **config.inputs))
    collector = collector_for(env, algorithm, envs, seeds)
    if isinstance(collector, Compiled) and collector.opponents is None:
        return Parts(algorithm, Loop(collector), collector.with_sizes(eval_episodes, seeds))
    return Parts(algorithm, Loop(collector), _evaluation(env, algorithm, envs, seeds, eval_episodes))


def _evaluation(
    env: Env | HostSource, algorithm: Algorithm, envs: int, seeds: int, episodes: int
) -> Collector:
    """Plays the episodes of an evaluation."""
    # Host environments cost memory each: evaluations take no more of them, and several rounds.
    at_once = min(episodes, envs) if isinstance(env, HostSource) else episodes
    return collector_for(env, algorithm, at_once, seeds)


def _make_parts_with_opponents(
    cls: type[Algorithm],
    config: Any,
    env: Env | HostSource,
    side: OneSide | HostedSide,
    run: RunConfig,
    load: Load,
) -> Parts:
    """Training plays against the opponents of the run, evaluations against always the same."""
    algorithm = build(cls, config, policy_spec(side.spec, **config.inputs))
    _require_sizes(run, algorithm)  # first: those of a second learner follow from them
    opponents = opponents_of(run, side, algorithm, load)
    loop = Loop(collector_for(side, algorithm, run.envs, run.seeds, opponents=opponents))
    evaluation = _evaluation(env, algorithm, run.envs, run.seeds, run.eval_episodes)
    # A random team is another yardstick, unless it is the one of evaluations anyway.
    others = {} if isinstance(env, Side) else {"random": yardstick(side, run.eval_episodes)}
    return Parts(algorithm, loop, evaluation, Against(loop, others))


# Runs that differ only in seeds, budget and folder have the same programs, which are kept with the parts.
_make_parts_once = lru_cache(maxsize=4)(_make_parts)


def _is_fixed(cls: type[Algorithm], config: AlgorithmConfig, env: Env | HostSource) -> bool:
    """Whether compiled programs can be reused in this process: built-in code and a frozen environment."""
    frozen = dataclasses.is_dataclass(env) and type(env).__hash__ is not None and isinstance(env, Env)
    ours = all(each.__module__.startswith("phalanx.") for each in (cls, type(env)))
    return frozen and ours and config.is_builtin


def _require_sizes(run: RunConfig, algorithm: Algorithm) -> None:
    """Refuse numbers of environments, steps and seeds that do not fit."""
    steps = algorithm.steps_per_update
    if steps < run.envs:
        raise PhalanxError(
            f"envs={run.envs} is more than the {steps} env steps of an update: "
            f"use at most that many, or a larger batch_steps"
        )
    if steps % run.envs:
        raise PhalanxError(
            f"the {steps} env steps of an update cannot be cut into {run.envs} "
            f"environments: use another number of envs, or another batch_steps"
        )
    if run.steps / steps > MOST_UPDATES:
        raise PhalanxError(
            f"steps={run.steps} is more than {MOST_UPDATES:,} updates: use a larger batch_steps"
        )
    if run.seed + run.seeds - 1 > MOST_UPDATES:
        raise PhalanxError(f"the last of {run.seeds} seeds from {run.seed} is beyond {MOST_UPDATES:,}")


def statement(setup: Setup, layout: Layout) -> list[str]:
    """What will run, before it runs."""
    run, spec, algorithm = setup.config, setup.env.spec, setup.algorithm
    kinds = [f"{spec.agent_types.count(kind)} {kind}" for kind in dict.fromkeys(spec.agent_types)]
    agents = f"{spec.n_agents} agents" + (f" ({', '.join(kinds)})" if len(kinds) > 1 else "")
    origins = {origin for table in setup.resolved.origins.values() for origin in table.values()}
    preset = "".join(f", with {origin}" for origin in sorted(origins) if origin.startswith("preset"))
    steps = setup.total_updates * algorithm.steps_per_update
    updates = f"{setup.total_updates:,} updates of {algorithm.steps_per_update:,}"
    seeds = f"seed {run.seed}" if run.seeds == 1 else f"seeds {run.seed} to {setup.seeds[-1]} together"
    return table(
        [
            ("run", f"{run.algorithm} on {run.env}: {agents}{preset}"),
            ("budget", f"{steps:,} env steps per seed ({updates}), {seeds}"),
            ("device", f"{device.describe()}, {run.envs} environments per seed"),
            *([("layout", layout.describe(run.seeds, run.envs))] if layout.devices > 1 else []),
            *([("kernel", "no effect: it is for one GPU")] if _kernel_unused(setup.env, layout) else []),
            *(_network_row(network) for network in algorithm.summary()),
            *([("start", f"the networks of {run.init_from}")] if run.init_from else []),
            *([("opponent", _opponent_row(setup))] if setup.loop.opponents is not None else []),
        ]
    )


def _kernel_unused(env: Env | HostSource, layout: Layout) -> bool:
    """Whether a battle should be one GPU kernel and is not."""
    return isinstance(env, Battle) and env.kernel and (device.first().platform != "gpu" or layout.devices > 1)


def _opponent_row(setup: Setup) -> str:
    run, evaluated = setup.config, isinstance(setup.env, Side)
    known = {
        "self": "the learner itself",
        "past": f"{run.opponent_pool} earlier checkpoints of {run.opponent_algorithm or 'this run'}, drawn "
        f"{run.opponent_draw}",
    }
    learning = f"{run.opponent_algorithm}, which learns too" if run.opponent_algorithm else ""
    who = ", and ".join(filter(None, (learning, known.get(run.opponent, run.opponent))))
    against = "a random team" if evaluated else "the script"
    return f"{who}; evaluations are against {against}"


def _network_row(network: NetworkSummary) -> tuple[str, str]:
    size = f"{network.parameters_each:,} parameters"
    if len(network.groups) == 1:
        return network.role, f"{size}, shared by all agents, sees {network.sees}"
    groups = "; ".join(
        name if agents == (name,) else f"{name} ({', '.join(agents)})" for name, agents in network.groups
    )
    return network.role, f"{size} x {len(network.groups)}, one for each of {groups}; sees {network.sees}"

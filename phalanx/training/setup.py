"""Before a run: put its parts together, count its memory, say what will happen."""

import dataclasses
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from phalanx import device, registry
from phalanx.algorithms.base import Algorithm, Networks
from phalanx.config import Resolved, RunConfig
from phalanx.envs.base import Env
from phalanx.envs.wrappers import prepare
from phalanx.errors import PhalanxError
from phalanx.report.console import megabytes, table
from phalanx.training.collect import collect
from phalanx.training.loop import Loop, without_replay

MOST_UPDATES = 2**31 - 1  # counters and seeds are 32-bit integers


class Setup(NamedTuple):
    """A run that can be compiled."""

    resolved: Resolved
    env: Env
    algorithm: Algorithm
    loop: Loop

    @property
    def config(self) -> RunConfig:
        return self.resolved.run

    @property
    def seeds(self) -> list[int]:
        return [self.config.seed + i for i in range(self.config.seeds)]

    @property
    def total_updates(self) -> int:
        return math.ceil(self.config.steps / self.algorithm.steps_per_update)

    @property
    def updates_between_evaluations(self) -> int:
        assert self.config.eval_every is not None
        return max(1, round(self.config.eval_every / self.algorithm.steps_per_update))


def setup(resolved: Resolved, env: Env) -> Setup:
    """Put the parts together, refusing those that do not fit. Nothing is compiled or written yet."""
    cls = registry.algorithm(resolved.run.algorithm)
    registry.require_fit(cls, env.spec)
    prepared = prepare(env, **cls.inputs(resolved.algorithm))
    algorithm = cls(resolved.algorithm, prepared.spec)
    run = resolved.run
    if algorithm.steps_per_update < run.envs:
        raise PhalanxError(
            f"envs={run.envs} is more than the {algorithm.steps_per_update} env steps of an update: "
            f"use at most that many, or a larger batch_steps"
        )
    if algorithm.steps_per_update % run.envs:
        raise PhalanxError(
            f"the {algorithm.steps_per_update} env steps of an update cannot be cut into {run.envs} "
            f"environments: use another number of envs, or another batch_steps"
        )
    algorithm.check(run.envs)
    algorithm.check_budget(run.steps)
    if run.steps / algorithm.steps_per_update > MOST_UPDATES:
        raise PhalanxError(
            f"steps={run.steps} is more than {MOST_UPDATES:,} updates: use a larger batch_steps"
        )
    if run.seed + run.seeds - 1 > MOST_UPDATES:
        raise PhalanxError(f"the last of {run.seeds} seeds from {run.seed} is beyond {MOST_UPDATES:,}")
    if run.eval_every is None:
        run = dataclasses.replace(run, eval_every=max(1, run.steps // 20))
    return Setup(
        resolved._replace(run=run), env, algorithm, Loop(prepared, algorithm, run.envs, run.eval_episodes)
    )


def memory_parts(this: Setup) -> dict[str, int]:
    """Bytes of what the run holds on its device, for all seeds, from shapes alone."""
    loop, seeds = this.loop, this.config.seeds
    carry = jax.eval_shape(loop.init, jnp.int32(0))
    policy = jax.eval_shape(loop.algorithm.policy, carry.learner)
    _, rollout = jax.eval_shape(
        lambda p, a: collect(loop.env, loop.algorithm, p, a, loop.length, greedy=False), policy, carry.actors
    )
    replay = getattr(carry.learner, "replay", None)
    held = {
        "learner": (without_replay(carry).learner, carry.best),
        **({"replay": replay} if replay else {}),
        "environments": carry.actors,
        "rollout": rollout,
    }
    return {name: seeds * device.bytes_of(tree) for name, tree in held.items()}


def require_memory(this: Setup, parts: Mapping[str, int], needed: int) -> None:
    """Refuse what does not fit on the device, and say what might."""
    free = device.free_bytes()
    if free is not None and needed > free:
        raise PhalanxError(
            f"this run needs {megabytes(needed)} of memory and {megabytes(free)} are free: "
            f"{_smaller(this.config, parts, free / needed)}"
        )


def require_disk(this: Setup, parts: Mapping[str, int], folder: Path) -> int:
    """Refuse what cannot be saved, and say what might; else the bytes that checkpoints will take.

    There are `keep` of them and the one that is being written; the best has no replay.
    """
    each = sum(size for name, size in parts.items() if name != "rollout")
    needed = (this.config.keep + 1) * each
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    taken = sum(path.stat().st_size for path in folder.glob("checkpoints/*/*"))  # by a run that goes on
    free = shutil.disk_usage(there).free + taken
    if needed > free:
        replay = ", a smaller buffer" if "replay" in parts else ""
        raise PhalanxError(
            f"checkpoints of this run need {megabytes(needed)} and {megabytes(free)} are free in {there}: "
            f"try --keep 1{replay}, or another --out"
        )
    return needed


def _smaller(run: RunConfig, parts: Mapping[str, int], share: float) -> str:
    """What to ask for, when only a `share` of what was asked for fits."""
    if run.seeds * share >= 1:
        return f"try --seeds {int(run.seeds * share)}"
    largest = max(parts, key=lambda part: parts[part])
    if largest == "learner":
        return "try smaller networks"
    if largest == "replay":
        return f"try a buffer {math.ceil(1 / share)} times smaller"
    return f"try a batch {math.ceil(1 / share)} times smaller, or fewer environments"


def statement(this: Setup) -> list[str]:
    """What will run, before it runs."""
    run, spec, algorithm = this.config, this.env.spec, this.algorithm
    kinds = [f"{spec.agent_types.count(kind)} {kind}" for kind in dict.fromkeys(spec.agent_types)]
    agents = f"{spec.n_agents} agents" + (f" ({', '.join(kinds)})" if len(kinds) > 1 else "")
    origins = {origin for table in this.resolved.origins.values() for origin in table.values()}
    preset = "".join(f", with {origin}" for origin in sorted(origins) if origin.startswith("preset"))
    steps = this.total_updates * algorithm.steps_per_update
    updates = f"{this.total_updates:,} updates of {algorithm.steps_per_update:,}"
    seeds = f"seed {run.seed}" if run.seeds == 1 else f"seeds {run.seed} to {this.seeds[-1]} together"
    return table(
        [
            ("what", f"{run.algorithm} on {run.env}: {agents}{preset}"),
            ("how long", f"{steps:,} env steps a seed ({updates}), {seeds}"),
            ("where", f"{device.describe()}, {run.envs} environments a seed"),
            *(_network_row(network) for network in algorithm.networks()),
        ]
    )


def _network_row(network: Networks) -> tuple[str, str]:
    size = f"{network.parameters_each:,} parameters"
    if len(network.groups) == 1:
        return network.role, f"{size}, shared by all agents, sees {network.sees}"
    groups = "; ".join(
        name if agents == (name,) else f"{name} ({', '.join(agents)})" for name, agents in network.groups
    )
    return network.role, f"{size} x {len(network.groups)}, one for each of {groups}; sees {network.sees}"

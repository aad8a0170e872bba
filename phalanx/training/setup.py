"""Before a run: put its parts together, count its memory, say what will happen."""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from phalanx import registry
from phalanx.algorithms.base import Algorithm, Networks
from phalanx.config import Resolved, RunConfig
from phalanx.envs.base import Env
from phalanx.envs.wrappers import prepare
from phalanx.errors import PhalanxError
from phalanx.report.console import megabytes, table
from phalanx.training import device
from phalanx.training.collect import collect
from phalanx.training.loop import Loop


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
    algorithm.check(run.envs)
    if run.eval_every is None:
        run = dataclasses.replace(run, eval_every=max(1, run.steps // 20))
    return Setup(
        resolved._replace(run=run), env, algorithm, Loop(prepared, algorithm, run.envs, run.eval_episodes)
    )


class Plan(NamedTuple):
    """Planned bytes on the device, for all seeds."""

    parts: Mapping[str, int]
    total: int


def plan(this: Setup) -> Plan:
    """Count what the run will hold on its device, from shapes alone; refuse what does not fit."""
    loop, seeds = this.loop, this.config.seeds
    carry = jax.eval_shape(loop.init, jnp.int32(0))
    policy = jax.eval_shape(loop.algorithm.policy, carry.learner)
    rollout = jax.eval_shape(
        lambda p, a: collect(loop.env, loop.algorithm, p, a, loop.length, greedy=False)[1],
        policy,
        carry.actors,
    )
    parts = {
        "learner": seeds * device.bytes_of((carry.learner, carry.best)),
        "environments": seeds * device.bytes_of(carry.actors),
        "rollout": seeds * device.bytes_of(rollout),
    }
    # While learning, a rollout is held three times: as collected, as chunks, and as activations.
    total = parts["learner"] * 2 + parts["environments"] * 2 + parts["rollout"] * 3
    free = device.free_bytes()
    if free is not None and total > free:
        largest = max(parts, key=lambda part: parts[part])
        raise PhalanxError(
            f"this run needs about {megabytes(total)} of memory, most of it {largest}, and "
            f"{megabytes(free)} are free: {_smaller(this.config, free / total)}"
        )
    return Plan(parts, total)


def _smaller(run: RunConfig, share: float) -> str:
    """What to ask for, when only a `share` of what was asked for fits."""
    if run.seeds > 1:
        return f"try --seeds {max(1, int(run.seeds * share))}"
    return f"try a batch {math.ceil(1 / share)} times smaller, or fewer environments"


def statement(this: Setup, planned: Plan) -> list[str]:
    """What will run, before it runs."""
    run, spec, algorithm = this.config, this.env.spec, this.algorithm
    kinds = ", ".join(f"{spec.agent_types.count(kind)} {kind}" for kind in dict.fromkeys(spec.agent_types))
    origins = {origin for table in this.resolved.origins.values() for origin in table.values()}
    preset = "".join(f", with {origin}" for origin in sorted(origins) if origin.startswith("preset"))
    steps = this.total_updates * algorithm.steps_per_update
    updates = f"{this.total_updates:,} updates of {algorithm.steps_per_update:,}"
    seeds = f"seed {run.seed}" if run.seeds == 1 else f"seeds {run.seed} to {this.seeds[-1]} together"
    parts = ", ".join(f"{name} {megabytes(size)}" for name, size in planned.parts.items())
    return table(
        [
            ("what", f"{run.algorithm} on {run.env}: {spec.n_agents} agents ({kinds}){preset}"),
            ("how long", f"{steps:,} env steps a seed ({updates}), {seeds}"),
            ("where", f"{device.describe()}, {run.envs} environments a seed"),
            *(_network_row(network) for network in algorithm.networks()),
            ("memory", f"about {megabytes(planned.total)} ({parts})"),
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

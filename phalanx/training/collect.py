"""The only scan over `env.step`: training, evaluation and recording all collect with it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm
from phalanx.envs.wrappers import AutoReset, Running
from phalanx.types import Array, PyTree, Transition


class Actors(NamedTuple):
    """B environments between two steps, and what the agents in them remember."""

    running: Running
    memory: PyTree
    key: Array


def start(env: AutoReset, algorithm: Algorithm, key: Array, envs: int) -> Actors:
    """Reset B environments and begin with empty memories."""
    reset_key, act_key = jax.random.split(key)
    running = jax.vmap(env.reset)(jax.random.split(reset_key, envs))
    return Actors(running, algorithm.memory(envs), act_key)


def everything(transition: Transition) -> Transition:
    """Keep the whole transition, as learners need it."""
    return transition


def collect(
    env: AutoReset,
    algorithm: Algorithm,
    policy: PyTree,
    actors: Actors,
    length: int,
    greedy: bool,
    keep: Callable[[Transition], Any] = everything,
) -> tuple[Actors, Any]:
    """Play `length` steps in all environments; returns what `keep` keeps of each, (T, B, ...)."""

    def step(actors: Actors, _) -> tuple[Actors, Any]:
        running, memory, key = actors
        key, act_key, env_key = jax.random.split(key, 3)
        action, next_memory, extras = algorithm.act(
            policy, running.observation, running.first, memory, act_key, greedy
        )
        env_keys = jax.random.split(env_key, running.first.shape[0])
        next_running, timestep = jax.vmap(env.step)(env_keys, running, action)
        transition = Transition(
            observation=running.observation,
            first=running.first,
            memory=memory,
            action=action,
            extras=extras,
            reward=timestep.reward,
            terminated=timestep.terminated,
            truncated=timestep.truncated,
            next_observation=timestep.observation,
            info=timestep.info,
            agent_terminated=timestep.agent_terminated,
        )
        return Actors(next_running, next_memory, key), keep(transition)

    return jax.lax.scan(step, actors, None, length)


class Episodes(NamedTuple):
    """Sums over the episodes that ended, each (...)."""

    count: Array
    returns: Array
    """(..., A)"""
    length: Array
    won: Array

    def __add__(self, other: "Episodes") -> "Episodes":  # type: ignore[override]
        return jax.tree.map(jnp.add, self, other)


def ended(over: Array, info: dict[str, Array]) -> Episodes:
    """Sum up the episodes that end where `over` (...), from the statistics in `info`."""
    won = info.get("won", jnp.zeros_like(over))
    return Episodes(
        count=over.sum(),
        returns=jnp.where(over[..., None], info["return"], 0.0).sum(tuple(range(over.ndim))),
        length=jnp.where(over, info["length"], 0).sum().astype(jnp.float32),
        won=(over & won).sum().astype(jnp.float32),
    )


def no_episodes(n_agents: int) -> Episodes:
    """Before any episode ended."""
    return Episodes(jnp.int32(0), jnp.zeros(n_agents), jnp.float32(0), jnp.float32(0))

"""What the benchmarks share: simulators as one kind of thing, played at random and timed in turn."""

import argparse
import importlib
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from phalanx import registry
from phalanx.envs.wrappers import prepare


class Game(NamedTuple):
    """A simulator, for one environment; what it carries is its state and what is seen of it."""

    reset: Callable[..., Any]
    """key -> carried"""
    avail: Callable[..., Any] | None
    """carried -> (A, U), above 0 where an action is available; None: all always are"""
    step: Callable[..., Any]
    """key, carried, (A,) actions -> carried, rewards; a new episode begins when one ends"""
    seen: Callable[..., Any]
    """carried -> observations and state"""
    counts: tuple[int, ...]
    """how many actions each agent has"""


def ours(name: str, **options: Any) -> Game:
    """An environment of phalanx."""
    env = prepare(registry.make_env(name, options))

    def step(key, running, actions):
        running, seen = env.step(key, running, actions)
        return running, seen.reward

    return Game(
        reset=env.reset,
        avail=lambda running: running.observation.avail,
        step=step,
        seen=lambda running: (running.observation.obs, running.observation.state),
        counts=env.spec.action_counts,
    )


def from_jaxmarl(module: str) -> Any:
    """A module of JaxMARL, which prints as it is imported, and undoes a redirected `sys.stdout`."""
    with mock.patch("builtins.print"):
        return importlib.import_module(module)


def peer(env: Any, **others: Any) -> Game:
    """An environment of JaxMARL, which speaks in dictionaries by agent; `others` says what differs."""

    def step(key, carried, actions):
        actions = dict(zip(env.agents, actions, strict=True))
        obs, state, rewards, _, _ = env.step(key, carried[1], actions)
        return (obs, state), stacked(env, rewards)

    counts = tuple(env.action_space(agent).n for agent in env.agents)
    return Game(reset=env.reset, step=step, counts=counts, **others)


def stacked(env: Any, by_agent: Any) -> jax.Array:
    """A dictionary of JaxMARL as one array, (A, ...)."""
    return jnp.stack([by_agent[agent] for agent in env.agents])


class Rollout:
    """Many environments with random actions: compiled, warm, and to be timed call by call."""

    def __init__(self, make: Callable[[], Game], envs: int, steps: int, devices: int = 1):
        self.env_steps = envs * steps
        begin = time.perf_counter()
        game, envs = make(), envs // devices
        making = time.perf_counter() - begin

        def choose(chance, avail):
            """One of the actions that are available, from one random number for each agent."""
            if game.avail is None:
                return (chance * np.array(game.counts)).astype(jnp.int32)
            order = jnp.cumsum(avail > 0, axis=-1)
            return (order > (chance * order[..., -1]).astype(jnp.int32)[..., None]).argmax(-1)

        def step(carried, drawn):
            chance, keys = drawn
            avail = jax.vmap(game.avail)(carried) if game.avail else ()
            actions = choose(chance.reshape(envs, -1), avail)
            carried, rewards = jax.vmap(game.step)(keys, carried, actions)
            consumed = (jax.vmap(game.seen)(carried), avail, rewards)
            return carried, sum(leaf.sum() for leaf in jax.tree.leaves(consumed))

        def start(keys):
            return jax.vmap(game.reset)(jax.random.split(keys[0], envs))

        def play(carried, keys):
            # Drawn before the loop, where a CPU needs least time for it: this is no part of a simulator.
            action_key, step_key = jax.random.split(keys[0])
            chances = jax.random.uniform(action_key, (steps, envs * len(game.counts)))
            return jax.lax.scan(step, carried, (chances, jax.random.split(step_key, (steps, envs))))

        def divided(fn):
            """Each device has its own environments and its own key."""
            if devices == 1:
                return jax.jit(fn)
            mesh = Mesh(np.array(jax.devices()[:devices]), ("devices",))
            here = PartitionSpec("devices")
            return jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=here, out_specs=here, check_vma=False))

        self.keys = jax.random.split(jax.random.key(0), devices)
        start, play = divided(start), divided(play)
        self.carried = jax.block_until_ready(start(self.keys))
        begin = time.perf_counter()
        self.play = play.lower(self.carried, self.keys).compile()
        self.compiling = making + time.perf_counter() - begin
        self.seconds = math.inf
        self.call()

    def call(self) -> float:
        """Play on; the seconds it took."""
        self.keys = jax.block_until_ready(jax.vmap(lambda key: jax.random.split(key)[0])(self.keys))
        begin = time.perf_counter()
        self.carried, consumed = jax.block_until_ready(self.play(self.carried, self.keys))
        seconds = time.perf_counter() - begin
        if not jnp.isfinite(consumed).all():
            raise SystemExit("something that was observed is not finite")
        return seconds

    @property
    def rate(self) -> float:
        """Env steps a second, in the fastest call that was timed."""
        return self.env_steps / self.seconds


def require_gpu(parser: argparse.ArgumentParser, kernel: bool) -> None:
    """An error for `--kernel` where it changes nothing."""
    if kernel and jax.default_backend() != "gpu":
        parser.error("--kernel needs a GPU")


class Timed(Protocol):
    """Something that is timed call by call."""

    seconds: float
    """of its fastest call so far"""

    def call(self) -> float:
        """Do it once more; the seconds it took."""
        ...


def take_turns(programs: Sequence[Timed], repeats: int) -> None:
    """Time them one after the other, again and again, so that a busy spell hits all."""
    for _ in range(repeats):
        for each in programs:
            each.seconds = min(each.seconds, each.call())


def load() -> str:
    """How busy the machine was in the last minute."""
    return f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"

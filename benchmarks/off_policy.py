"""How fast actor-critics on replay train: SAC on Pendulum beside that of others, MADDPG on simple_spread.

    python benchmarks/off_policy.py [--repeats 3] [--steps 4000] [--seeds 1] [--buffer 100000]

One gradient step on 256 transitions for each env step, two hidden layers of 256, after a warm-up of 1,000
steps: the settings of Stable-Baselines3. It and SBX, its networks in JAX, step one environment of Gymnasium;
phalanx and rejax, in which environments are compiled too, step `--envs` and then learn as often. Rejax moves
its target networks once for all of these gradient steps, the others after each. Compiling is not counted. All
take turns; the best turn counts. `pip install stable-baselines3 sbx-rl rejax` adds the comparisons; each is
left out where it is not installed. The size of the buffer matters to rejax, which draws batches without
replacement by sorting all of it. With `--seeds N` compiled programs train N seeds at once; steps are then
those of all seeds together.
"""

import argparse
import os
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp

from phalanx import registry
from phalanx.algorithms.shared.normalised import build
from phalanx.envs.wrappers import policy_spec
from phalanx.training.collectors import collector_for
from phalanx.training.loop import Loop

OURS = "SAC, phalanx"
SIZES = {"hidden": 256, "batch_size": 256, "warm_up": 1000, "buffer": 100_000}


def ours(algorithm: str, env: str, steps: int, seeds: int, envs: int) -> Callable[[], float]:
    """Training of `steps` env steps with as many gradient steps: seconds of a turn."""
    options: dict[str, Any] = {**SIZES, "batch_steps": envs, "gradient_steps": envs}
    config = registry.algorithm_config(algorithm)(**options)
    bare = registry.make_env(env, {})
    learner = build(registry.algorithm(algorithm), config, policy_spec(bare.spec, **config.inputs))
    loop = Loop(collector_for(bare, learner, envs))
    budget = jnp.int32(10**6)
    advance = jax.jit(
        jax.vmap(lambda carry, updates: loop.advance(carry, updates, budget), in_axes=(0, None)),
        donate_argnums=0,
    )
    carry = jax.jit(jax.vmap(loop.init))(jnp.arange(seeds))
    carry = jax.block_until_ready(advance(carry, jnp.int32(2000 // envs)))

    def turn() -> float:
        nonlocal carry
        begin = time.perf_counter()
        carry = jax.block_until_ready(advance(carry, jnp.int32(steps // envs)))
        return time.perf_counter() - begin

    return turn


def rejax(steps: int, seeds: int, envs: int) -> Callable[[], float]:
    """SAC of rejax, on gymnax's Pendulum."""
    from rejax import SAC  # pyright: ignore[reportMissingImports]

    sizes = {"hidden_layer_sizes": (SIZES["hidden"],) * 2, "batch_size": SIZES["batch_size"]}
    sizes |= {"fill_buffer": SIZES["warm_up"], "buffer_size": SIZES["buffer"]}
    learner = SAC.create(env="Pendulum-v1", num_envs=envs, num_epochs=envs, **sizes)

    def iterate(state: Any, updates: Any) -> Any:
        return jax.lax.fori_loop(0, updates, lambda _, each: learner.train_iteration(each), state)

    if seeds == 1:  # unmapped, a warm-up that is over costs nothing
        state, advance = jax.jit(learner.init_state)(jax.random.key(0)), jax.jit(iterate, donate_argnums=0)
    else:
        state = jax.jit(jax.vmap(learner.init_state))(jax.random.split(jax.random.key(0), seeds))
        advance = jax.jit(jax.vmap(iterate, in_axes=(0, None)), donate_argnums=0)
    state = jax.block_until_ready(advance(state, jnp.int32(2000 // envs)))

    def turn() -> float:
        nonlocal state
        begin = time.perf_counter()
        state = jax.block_until_ready(advance(state, jnp.int32(steps // envs)))
        return time.perf_counter() - begin

    return turn


def stable_baselines(package: str, steps: int) -> Callable[[], float]:
    """SAC of Stable-Baselines3 or SBX on the CPU, with its defaults."""
    options: dict[str, Any] = {"learning_starts": 1000, "buffer_size": SIZES["buffer"], "device": "cpu"}
    model = import_module(package).SAC("MlpPolicy", "Pendulum-v1", **options)
    model.learn(1500)

    def turn() -> float:
        begin = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        return time.perf_counter() - begin

    return turn


def contestants(steps: int, seeds: int, envs: int) -> dict[str, tuple[Callable[[], float], int]]:
    """Who takes turns, with how many seeds: phalanx, and those that are installed."""
    turns = {OURS: (ours("sac", "classic/Pendulum-v1", steps, seeds, envs), seeds)}
    if find_spec("stable_baselines3"):
        turns["SAC, Stable-Baselines3"] = (stable_baselines("stable_baselines3", steps), 1)
    if find_spec("sbx"):
        turns["SAC, SBX"] = (stable_baselines("sbx", steps), 1)
    if find_spec("rejax"):
        turns["SAC, rejax"] = (rejax(steps, seeds, envs), seeds)
    turns["MADDPG on simple_spread, phalanx"] = (
        ours("maddpg", "mpe/simple_spread", steps, seeds, envs),
        seeds,
    )
    return turns


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--buffer", type=int, default=SIZES["buffer"])
    args = parser.parse_args()
    SIZES["buffer"] = args.buffer
    turns = contestants(args.steps, args.seeds, args.envs)
    print(f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    best = dict.fromkeys(turns, float("inf"))
    for _ in range(args.repeats):
        for name, (turn, _) in turns.items():
            best[name] = min(best[name], turn())
    speed = {name: seeds * args.steps / best[name] for name, (_, seeds) in turns.items()}
    for name, steps in speed.items():
        print(f"{name}: {steps:,.0f} env steps and gradient steps a second")
    for name, steps in speed.items():
        if name.startswith("SAC") and name != OURS:
            print(f"phalanx / {name.removeprefix('SAC, ')}: {speed[OURS] / steps:.1f}")
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()

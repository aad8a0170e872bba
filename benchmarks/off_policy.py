"""How fast actor-critics on replay train: SAC on Pendulum beside SB3's, MADDPG on simple_spread.

    python benchmarks/off_policy.py [--repeats 3] [--steps 4000] [--seeds 1]

One gradient step on 256 transitions for each env step, two hidden layers of 256, after a warm-up of 1,000
steps: the settings of Stable-Baselines3, which steps one environment, as here. Compiling is not counted. Ours
and theirs take turns; the best turn counts. `pip install stable-baselines3` adds the comparison. With
`--seeds N` our program trains N seeds at once; steps are then those of all seeds together.
"""

import argparse
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp

from phalanx import registry
from phalanx.algorithms.shared.normalised import build
from phalanx.envs.wrappers import policy_spec
from phalanx.training.collectors import collector_for
from phalanx.training.loop import Loop

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


def stable_baselines(steps: int) -> Callable[[], float]:
    """SAC of Stable-Baselines3 on the CPU, with its defaults."""
    from stable_baselines3 import SAC  # pyright: ignore[reportMissingImports]

    model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=1000, buffer_size=SIZES["buffer"], device="cpu")
    model.learn(1500)

    def turn() -> float:
        begin = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        return time.perf_counter() - begin

    return turn


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--envs", type=int, default=8)
    args = parser.parse_args()
    pendulum = "classic/Pendulum-v1"
    turns = {"SAC, phalanx": (ours("sac", pendulum, args.steps, args.seeds, args.envs), args.seeds)}
    if find_spec("stable_baselines3"):
        turns["SAC, Stable-Baselines3"] = (stable_baselines(args.steps), 1)
    spread = ours("maddpg", "mpe/simple_spread", args.steps, args.seeds, args.envs)
    turns["MADDPG on simple_spread, phalanx"] = (spread, args.seeds)
    print(f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    best = dict.fromkeys(turns, float("inf"))
    for _ in range(args.repeats):
        for name, (turn, _) in turns.items():
            best[name] = min(best[name], turn())
    speed = {name: seeds * args.steps / best[name] for name, (_, seeds) in turns.items()}
    for name, steps in speed.items():
        print(f"{name}: {steps:,.0f} env steps and gradient steps a second")
    if "SAC, Stable-Baselines3" in speed:
        print(f"phalanx / Stable-Baselines3: {speed['SAC, phalanx'] / speed['SAC, Stable-Baselines3']:.1f}")


if __name__ == "__main__":
    main()

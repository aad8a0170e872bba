"""How many env steps a second: environments alone, and training; with compile time.

    python benchmarks/speed.py [--envs 64 1024] [--repeats 3]

Every figure is the best of some repeats in a warm process, beside the machine's load. The ratio of
each line is against the first line of its table, measured in the same run.
"""

import argparse
import os
import time

import jax
import jax.numpy as jnp

from phalanx import device, registry
from phalanx.config import Layer, merge
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.programs import compile_programs
from phalanx.training.setup import set_up


def best(repeats: int, work) -> float:
    """The shortest of some repeats, in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - begin)
    return min(times)


def environment_alone(name: str, envs: int, repeats: int, length: int = 200) -> tuple[float, float]:
    """Env steps a second with random actions and auto-reset, all outputs consumed; and compile seconds."""
    env, cls = registry.make_env(name, {}), registry.algorithm("random")
    collector = Compiled(env, cls(cls.Config(), env.spec), envs)

    def consumed(step):
        return sum(x.sum() for x in jax.tree.leaves((step.next_observation, step.reward)))

    def play(key):
        return collector.collect_one((), collector.start_one(key), length, keep=consumed)[1].sum()

    begin = time.perf_counter()
    program = jax.jit(play).lower(jax.random.key(0)).compile()
    compiling = time.perf_counter() - begin
    return envs * length / best(repeats, lambda: program(jax.random.key(1))), compiling


def training(
    algorithm: str, name: str, options: dict, repeats: int, updates: int = 10, **run
) -> tuple[float, float]:
    """Env steps a second of whole training, all seeds together; and compile seconds."""
    layer = Layer("benchmark", {"algorithm": options, "run": run})
    resolved = merge(
        (algorithm, name), registry.algorithm_config(algorithm), registry.env_options(name), [layer]
    )
    setup = set_up(resolved, registry.make_env(name, resolved.env))
    begin = time.perf_counter()
    programs = compile_programs(setup.loop, setup.evaluation).complete()
    compiling = time.perf_counter() - begin
    carry = [programs.init(jnp.array(setup.seeds, jnp.int32))]

    def work():
        carry[0] = programs.advance(carry[0], jnp.int32(updates), jnp.float32(1e6))
        return carry[0].updates

    steps = updates * setup.algorithm.steps_per_update * setup.config.seeds
    return steps / best(repeats, work), compiling


def show(title: str, rows: list[tuple[str, float, float]]) -> None:
    """Print a table; ratios are against its first line."""
    print(f"\n{title:<52} {'env steps/s':>12} {'ratio':>7} {'compile':>9}")
    for name, rate, compiling in rows:
        print(f"  {name:<50} {rate:>12,.0f} {rate / rows[0][1]:>6.2f}x {compiling:>7.1f} s", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--envs", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{device.describe()}, jax {jax.__version__}{load}; best of {args.repeats}")
    show(
        "switch/2 alone, random actions",
        [(f"{envs} environments", *environment_alone("switch/2", envs, args.repeats)) for envs in args.envs],
    )
    rows = []
    for network in ("mlp", "gru"):
        for seeds in (1, 4):
            settings = {"network": network, "batch_steps": 2048}
            measured = training("mappo", "switch/2", settings, args.repeats, seeds=seeds)
            rows.append((f"{network} 64, 64 environments, {seeds} seed{'s' if seeds > 1 else ''}", *measured))
    show("mappo on switch/2, 2,048 steps x 4 epochs x 4 minibatches", rows)


if __name__ == "__main__":
    main()

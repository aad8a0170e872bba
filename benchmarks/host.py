"""How fast Python environments are stepped: our workers, Gymnasium's AsyncVectorEnv and SB3's SubprocVecEnv.

    python benchmarks/host.py [--workers 2] [--envs 16] [--repeats 5] [--only CartPole-v1 ...]

Three questions:

- Stepping alone, with actions that are drawn beforehand. Each stepper has its processes up at the same time,
  and they take turns; of each the best turn counts. The others start a process for every environment.
- The overhead of a step: environments that compute nothing.
- Environments of 1 ms a step, with MAPPO acting: against what as many workers would do if acting and talking
  cost nothing. They sleep, as one does that waits for a game; with `--busy` they compute, and then acting
  needs a core of its own.

Run it from the root of the repository. `pip install 'gymnasium[box2d]'` adds LunarLander, `pip install
stable-baselines3` its row.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium
import jax
import numpy as np
from idle import EPISODE, Idle

from phalanx import registry
from phalanx.envs.host.task import Placement
from phalanx.envs.wrappers import policy_spec
from phalanx.training.collectors.hosted import Hosted

Stepper = Callable[[int], None]
Close = Callable[[], None]


def make_gym(name: str) -> gymnasium.Env:
    """An environment by its name; `idle` computes nothing."""
    return Idle() if name == "idle" else gymnasium.make(name)


def our_env(name: str, workers: int, **options: Any) -> Any:
    """The same, as phalanx steps it in worker processes."""
    if name == "idle":
        options = {"time_limit": EPISODE, **options}
    known = "benchmarks.idle:Idle" if name == "idle" else f"gym/{name}"
    return replace(registry.make_env(known, options), placement=Placement(workers=workers))


def ours(name: str, envs: int, workers: int) -> tuple[Stepper, Close]:
    """Our pool: one part of the environments steps while the other is told what to do."""
    pool = our_env(name, workers).pool(envs)
    pool.begin(np.arange(envs, dtype=np.uint64))
    actions = np.random.default_rng(0).integers(0, 2, (64, envs, 1))
    seeds = np.arange(envs, dtype=np.uint64)
    rows = [slice(part.start, part.stop) for part in pool.parts]

    def play(steps: int) -> None:
        for part, which in enumerate(rows):
            pool.send(part, actions[0, which], seeds[which])
        for t in range(1, steps + 1):
            for part, which in enumerate(rows):
                pool.receive(part)
                if t < steps:
                    pool.send(part, actions[t % 64, which], seeds[which])

    return play, pool.close


def gymnasiums(name: str, envs: int) -> tuple[Stepper, Close]:
    """Gymnasium's vector environment: a process for each environment, observations in shared memory."""
    vector = gymnasium.vector.AsyncVectorEnv([partial(make_gym, name)] * envs, context="spawn")
    vector.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, (64, envs))

    def play(steps: int) -> None:
        for t in range(steps):
            vector.step(actions[t % 64])

    return play, vector.close


def stable_baselines(name: str, envs: int) -> tuple[Stepper, Close]:
    """Stable-Baselines3's: a process for each environment, everything through pipes."""
    from stable_baselines3.common.vec_env import (  # pyright: ignore[reportMissingImports]
        SubprocVecEnv,
    )

    vector = SubprocVecEnv([partial(make_gym, name)] * envs, start_method="spawn")
    vector.reset()
    actions = np.random.default_rng(0).integers(0, 2, (64, envs))

    def play(steps: int) -> None:
        for t in range(steps):
            vector.step(actions[t % 64])

    return play, vector.close


def take_turns(
    steppers: dict[str, Stepper], envs: int, repeats: int, seconds: float = 1.0
) -> dict[str, float]:
    """The best rate of each in environment steps a second."""
    steps = {}
    for label, play in steppers.items():
        begun = time.perf_counter()
        play(20)
        steps[label] = max(20, int(20 * seconds / (time.perf_counter() - begun)))
    best = dict.fromkeys(steppers, 0.0)
    for _ in range(repeats):
        for label, play in steppers.items():
            begun = time.perf_counter()
            play(steps[label])
            best[label] = max(best[label], envs * steps[label] / (time.perf_counter() - begun))
    return best


def compare(name: str, envs: int, workers: int, repeats: int) -> None:
    """Stepping alone, all steppers in turn."""
    made = {"phalanx": ours(name, envs, workers), "AsyncVectorEnv": gymnasiums(name, envs)}
    if find_spec("stable_baselines3"):
        made["SubprocVecEnv"] = stable_baselines(name, envs)
    try:
        best = take_turns({label: play for label, (play, _) in made.items()}, envs, repeats)
    finally:
        for _, close in made.values():
            close()
    mine = best["phalanx"]
    for label, rate in best.items():
        ratio = "" if label == "phalanx" else f"   phalanx is {mine / rate:.1f} times as fast"
        print(f"  {name:16} {label:15} {rate:9,.0f} steps/s, {1e6 * envs / rate:6.0f} us{ratio}")


def acting(envs: int, workers: int, repeats: int, busy: bool) -> None:
    """MAPPO acts in environments of 1 ms a step."""
    env = our_env("idle", workers, seconds=1e-3, busy=busy)
    config = registry.algorithm_config("mappo")()
    algorithm = registry.algorithm("mappo")(config, policy_spec(env.spec, **config.inputs))
    collector = Hosted(env, algorithm, envs)
    keys = jax.random.split(jax.random.key(0), 1)
    policy = jax.vmap(lambda key: algorithm.policy(algorithm.init(key, envs)))(keys)
    actors = collector.start(keys)

    def play(steps: int) -> None:
        nonlocal actors
        for _ in range(max(1, steps // 64)):
            actors, _ = collector.collect(policy, actors, 64)

    one = Idle(1e-3, busy)
    one.reset()

    def alone(steps: int) -> None:
        for _ in range(steps):
            one.step(0)

    try:
        play(64)
        own = take_turns({"alone": alone}, 1, 1)["alone"]
        best = 0.0
        for _ in range(repeats):
            begun = time.perf_counter()
            play(128)
            best = max(best, envs * 128 / (time.perf_counter() - begun))
    finally:
        collector.close()
    kind = "computes" if busy else "waits"
    print(f"  1 ms, {kind}: one environment {own:,.0f} steps/s, {workers} workers {best:,.0f} steps/s")
    print(f"  that is {best / (workers * own):.2f} of {workers} times one environment's own rate")


def main() -> None:
    """Ask the three questions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--busy", action="store_true", help="environments of 1 ms compute instead of waiting")
    parser.add_argument("--only", nargs="*", default=["CartPole-v1", "LunarLander-v3"])
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{args.envs} environments, {args.workers} workers, {os.cpu_count()} cores, load {load:.1f}")
    print("stepping alone:")
    for name in args.only:
        if name.startswith("LunarLander") and not find_spec("Box2D"):
            print(f"  {name} needs Box2D: pip install 'gymnasium[box2d]'")
            continue
        compare(name, args.envs, args.workers, args.repeats)
    print("environments that compute nothing:")
    compare("idle", args.envs, args.workers, args.repeats)
    print("MAPPO acting:")
    acting(args.envs, args.workers, args.repeats, args.busy)


if __name__ == "__main__":
    main()

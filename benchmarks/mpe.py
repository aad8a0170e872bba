"""How many env steps a second of a particle world: ours beside JaxMARL's, and beside one process of mpe2.

    pip install '.[bench]'
    python benchmarks/mpe.py [--worlds simple_spread simple_tag] [--envs 128 1024] [--repeats 5]

The two compiled sides draw random actions, reset by themselves, and have their observations, state and
rewards summed up, so that nothing is left out of the compiled program. They take turns, and each figure is
the best of some repeats in a warm process: compare ratios. mpe2 plays with random actions too, one
environment in one Python process, which is all it offers.
"""

import argparse
import importlib
import importlib.util
import time
from importlib.metadata import version

import jax
import jax.numpy as jnp
from rollout import Game, Rollout, from_jaxmarl, load, ours, peer, take_turns

import phalanx
from phalanx import device
from phalanx.envs.mpe import NAMES

# What JaxMARL and mpe2 call the same worlds.
SUFFIX = {"simple_speaker_listener": "_v4"}
WORLDS = [name for name in NAMES if name != "simple_crypto"]  # JaxMARL's has continuous actions


def theirs(name: str) -> Game:
    """The same world of JaxMARL."""
    env = from_jaxmarl("jaxmarl").make(f"MPE_{name}{SUFFIX.get(name, '_v3')}")

    return peer(
        env,
        avail=None,
        # Its world state is all observations in a row, as ours is.
        seen=lambda carried: (carried[0], jnp.concatenate([carried[0][agent] for agent in env.agents])),
    )


def original(name: str, seconds: float = 3.0) -> float:
    """Env steps a second of one process of mpe2."""
    env = importlib.import_module(f"mpe2.{name}{SUFFIX.get(name, '_v3')}").parallel_env()
    env.reset(seed=0)
    spaces = {agent: env.action_space(agent) for agent in env.possible_agents}
    best, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        begin = time.perf_counter()
        steps = 0
        for _ in range(10):
            env.reset()
            while env.agents:
                env.step({agent: spaces[agent].sample() for agent in env.agents})
                steps += 1
        best = max(best, steps / (time.perf_counter() - begin))
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--worlds", nargs="+", default=["simple_spread"], choices=WORLDS, metavar="WORLD")
    parser.add_argument("--envs", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--steps", type=int, default=250, help="steps a call")
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    missing = [name for name in ("jaxmarl", "mpe2") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"this needs the packages {' and '.join(missing)}: pip install '.[bench]'")
        raise SystemExit(2)
    jax.config.update("jax_enable_compilation_cache", False)
    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "jaxmarl", "mpe2"))
    print(f"{device.describe()}, phalanx {phalanx.__version__}, {packages}, {load()}; best of {args.repeats}")
    print(f"\n{'':<24} {'':>6} {'env steps/s':>33} {'ratio to':>17} {'compile':>17}")
    print(
        f"{'world':<24} {'envs':>6} {'mpe2':>9} {'JaxMARL':>11} {'phalanx':>11} {'JaxMARL':>8} {'mpe2':>8}"
        f" {'JaxMARL':>8} {'phalanx':>8}"
    )
    for name in args.worlds:
        slow = original(name)
        for envs in args.envs:
            mine = Rollout(lambda name=name: ours(f"mpe/{name}")._replace(avail=None), envs, args.steps)
            other = Rollout(lambda name=name: theirs(name), envs, args.steps)
            take_turns([mine, other], args.repeats)
            print(
                f"{name:<24} {envs:>6} {slow:>9,.0f} {other.rate:>11,.0f} {mine.rate:>11,.0f}"
                f" {mine.rate / other.rate:>7.2f}x {mine.rate / slow:>7,.0f}x"
                f" {other.compiling:>6.1f} s {mine.compiling:>6.1f} s",
                flush=True,
            )
    print(f"\n{load()} at the end")


if __name__ == "__main__":
    main()

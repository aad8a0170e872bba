"""How many env steps a second of a battle: ours beside JaxMARL's SMAX, and how ours grows with the map.

    pip install '.[bench]'
    python benchmarks/battle.py [--maps 3m 2s3z] [--envs 128 1024] [--repeats 5] [--kernel] [--devices 2]

Both sides draw random available actions, reset by themselves, and have their observations, state,
rewards and available actions summed up, so that nothing is left out of the compiled program. They
take turns, and each figure is the best of some repeats in a warm process: compare ratios. The rules
differ: SMAX is a game of its own, ours follows StarCraft's figures; both run 8 game loops a step.
With `--devices 2` there is a second line, with the environments of both divided over two devices, as
`phalanx train --devices 2` divides them; on a CPU these are its cores.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
from rollout import Game, Rollout, from_jaxmarl, load, ours, peer, require_gpu, stacked, take_turns

import phalanx
from phalanx import device, registry
from phalanx.envs.battle.env import BattleState
from phalanx.envs.battle.scenarios import SCENARIOS
from phalanx.envs.wrappers import prepare

MAPS = ("3m", "2s3z", "5m_vs_6m", "27m_vs_30m")
GROWTH = (
    *("2m_vs_1m", "3m", "8m", "2s3z", "MMM", "10m_vs_11m"),
    *("25m", "27m_vs_30m", "corridor", "bane_vs_bane", "2c_vs_64zg"),
)


def our_battle(name: str, kernel: bool = False) -> Game:
    """The battle of phalanx."""
    return ours(f"battle/{name}", kernel=kernel)


def smax_maps() -> dict[str, Any]:
    """The scenarios of JaxMARL."""
    return from_jaxmarl("jaxmarl.environments.smax.smax_env").MAP_NAME_TO_SCENARIO


def smax(name: str) -> Game:
    """The same battle of JaxMARL, against its scripted enemy."""
    env = from_jaxmarl("jaxmarl").make("HeuristicEnemySMAX", scenario=smax_maps()[name])

    return peer(
        env,
        avail=lambda carried: stacked(env, env.get_avail_actions(carried[1])),
        seen=lambda carried: carried[0],  # "world_state" is among the observations
    )


def units(name: str) -> int:
    """How many units fight."""
    return sum(squad.count for side in SCENARIOS[name].squads for squad in side)


def rollout(
    name: str, envs: int, steps: int, make: Callable[[str], Game] = our_battle, devices: int = 1
) -> Rollout:
    """A battle to be timed; on larger maps fewer steps a call, lest a slow simulator take minutes."""
    return Rollout(lambda: make(name), envs, max(1, steps * 6 // max(6, units(name))), devices)


def first_step(envs: int) -> float:
    """Seconds from nothing to the first step of a batch of 3m, compilation included."""
    keys = jax.block_until_ready(jax.random.split(jax.random.key(0), envs))
    begin = time.perf_counter()
    env = prepare(registry.make_env("battle/3m", {}))
    running = jax.jit(jax.vmap(env.reset))(keys)
    stop = jnp.ones((envs, env.spec.n_agents), jnp.int32)
    jax.block_until_ready(jax.jit(jax.vmap(env.step))(keys, running, stop))
    return time.perf_counter() - begin


def compare(args: argparse.Namespace) -> None:
    """Print ours beside SMAX."""
    known = smax_maps() if args.smax else {}
    make = partial(our_battle, kernel=args.kernel)
    counts = sorted({1, args.devices})
    print(f"\n{'':<11} {'':>6} {'':>7} {'env steps/s':>23} {'':>7} {'compile':>17}")
    head = f"{'map':<11} {'envs':>6} {'devices':>7} {'SMAX':>11} {'phalanx':>11} {'ratio':>7} {'SMAX':>8}"
    print(f"{head} {'phalanx':>8}" + f" {'to SMAX on one':>15}" * (len(counts) > 1))
    for name in args.maps:
        for envs in args.envs:
            mine = [rollout(name, envs, args.steps, make, count) for count in counts]
            theirs = [rollout(name, envs, args.steps, smax, count) for count in counts if name in known]
            take_turns([*mine, *theirs], args.repeats)
            for count, our, other in zip_longest(counts, mine, theirs):
                rate, ratio, compiling, to_one = "-", "-", "-", ""
                if other:
                    rate, ratio = f"{other.rate:,.0f}", f"{our.rate / other.rate:.2f}x"
                    compiling = f"{other.compiling:.1f} s"
                    to_one = f" {our.rate / theirs[0].rate:>14.2f}x" * (len(counts) > 1)
                print(
                    f"{name:<11} {envs:>6} {count:>7} {rate:>11} {our.rate:>11,.0f} {ratio:>7} {compiling:>8}"
                    f" {our.compiling:>6.1f} s{to_one}",
                    flush=True,
                )


def state_bytes(carried: Any) -> int:
    """Bytes of the battles themselves, without what the wrappers keep and without observations."""
    is_battle = lambda x: isinstance(x, BattleState)  # noqa: E731
    return device.bytes_of([x for x in jax.tree.leaves(carried, is_leaf=is_battle) if is_battle(x)])


def growth(envs: int, steps: int, repeats: int) -> None:
    """Print how the cost of ours grows from the smallest map to the largest."""
    rollouts = {name: rollout(name, envs, steps) for name in GROWTH}
    take_turns(list(rollouts.values()), repeats)
    print(f"\nphalanx, {envs} environments")
    print(
        f"{'map':<13} {'units':>5} {'env steps/s':>12} {'us a step':>10} {'of 3m':>7} {'bytes':>7}"
        f" {'compile':>9}"
    )
    for name, each in rollouts.items():
        cost = f"{1e6 / each.rate:>10.2f} {rollouts['3m'].rate / each.rate:>6.1f}x"
        print(
            f"{name:<13} {units(name):>5} {each.rate:>12,.0f} {cost} {state_bytes(each.carried) // envs:>7,}"
            f" {each.compiling:>7.1f} s"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--maps", nargs="+", default=list(MAPS), choices=list(SCENARIOS), metavar="MAP")
    parser.add_argument("--envs", type=int, nargs="+", default=[128, 1024], help="growth takes the first")
    parser.add_argument("--steps", type=int, default=100, help="steps a call on 3m; fewer on larger maps")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--smax", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--growth", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--devices", type=int, default=1, help="also with the environments divided over so many"
    )
    parser.add_argument("--kernel", action="store_true", help="step ours in one GPU kernel (small maps only)")
    args = parser.parse_args()
    device.configure(args.devices)
    require_gpu(parser, args.kernel)
    have = len(jax.devices())
    if not 1 <= args.devices <= have:
        parser.error(f"--devices {args.devices}: JAX has {have} here")
    if any(envs % args.devices for envs in args.envs):
        parser.error(f"--envs: use multiples of the {args.devices} devices")
    if args.smax and importlib.util.find_spec("jaxmarl") is None:
        print("SMAX needs the package jaxmarl: pip install '.[bench]' (or --no-smax)")
        raise SystemExit(2)
    jax.config.update("jax_enable_compilation_cache", False)
    packages = f"phalanx {phalanx.__version__}, jax {jax.__version__}"
    packages += f", jaxmarl {version('jaxmarl')}" if args.smax else ""
    print(f"{device.describe()}, {packages}, {load()}; best of {args.repeats}")
    # Before anything else has compiled.
    print(
        f"battle/3m, {args.envs[0]} environments, first step after {first_step(args.envs[0]):.1f} s",
        flush=True,
    )
    compare(args)
    if args.growth:
        growth(args.envs[0], args.steps, args.repeats)
    print(f"\n{load()} at the end")


if __name__ == "__main__":
    main()

"""How fast MAPPO trains: the work of JaxMARL's `mappo_rnn_smax` on our `battle/3m`.

    python benchmarks/training.py [--jaxmarl CHECKOUT] [--envs 128 4096] [--seeds 1 8] [--repeats 3] [--parts]
                                  [--precision float32 bfloat16] [--devices 1] [--kernel]

Rollouts of 128 steps, networks of two linear layers and a gru of 128, four epochs of four minibatches.
With a checkout of https://github.com/FLAIROx/JaxMARL (and `pip install '.[bench]'`) its own script is timed
in the same run, call by call in turn, on its own simulation of the map; ratios are against it. It unrolls its
gru over all 128 steps of a rollout, ours over chunks of `--chunk`, each from the memory that was held when it
was played. Ours is timed with every `--precision`, and with `--kernel` also with a step of its battles as one
GPU kernel. `--parts` also says where the time of an update goes. Many seeds are trained with the first of
`--envs` only.
"""

import argparse
import importlib.util
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from rollout import load, require_gpu, take_turns

from phalanx import device, registry
from phalanx.algorithms.shared.actor_critic import ActorCritic
from phalanx.config import Layer, merge
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.devices import lay_out
from phalanx.training.programs import compile_programs
from phalanx.training.setup import set_up
from phalanx.types import Clock

STEPS = 128
SAME_WORK = {
    "network": "gru",
    "hidden": 128,
    "layers": 2,
    "activation": "relu",
    "epochs": 4,
    "minibatches": 4,
}


class Timed:
    """A compiled training program, to be timed call by call."""

    def __init__(self, env_steps: int, work):
        self.env_steps, self.work = env_steps, work
        self.seconds = math.inf
        self.call()

    def call(self) -> float:
        """Train on; the seconds it took."""
        begin = time.perf_counter()
        jax.block_until_ready(self.work())
        return time.perf_counter() - begin

    @property
    def rate(self) -> float:
        """Env steps a second over all seeds, in the fastest call that was timed."""
        return self.env_steps / self.seconds


def our_setup(envs: int, seeds: int, env: str = "battle/3m", kernel: bool = False, **options):
    """A run with the sizes that are compared."""
    settings = {**SAME_WORK, "batch_steps": STEPS * envs, **options}
    given = {"algorithm": settings, "run": {"envs": envs, "seeds": seeds}}
    layer = Layer("benchmark", given | ({"env": {"kernel": True}} if kernel else {}))
    resolved = merge(("mappo", env), registry.algorithm_config("mappo"), registry.env_options(env), [layer])
    return set_up(resolved, registry.make_env(env, resolved.env))


def ours(envs: int, seeds: int, updates: int, devices: int = 1, **options) -> Timed:
    """The training program of phalanx, as `phalanx train` runs it."""
    setup = our_setup(envs, seeds, **options)
    layout = lay_out(setup.loop, devices)
    programs = compile_programs(setup.loop, setup.evaluation, layout).complete()
    carry = [programs.init(jnp.array(setup.seeds, jnp.int32))]

    def work():
        carry[0] = programs.advance(carry[0], jnp.int32(updates), jnp.float32(1e6))
        return carry[0].updates

    return Timed(updates * STEPS * envs * seeds, work)


def script_of(checkout: Path, path: str) -> Any:
    """A training script of JaxMARL as a module, without its logging."""
    script = checkout / "baselines" / path
    if not script.exists():
        raise SystemExit(f"{checkout} is no checkout of JaxMARL: {script} is missing")
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    for unused in ("hydra", "omegaconf", "wandb"):
        sys.modules.setdefault(unused, mock.MagicMock())
    with mock.patch("builtins.print"):
        spec.loader.exec_module(module)
    return module


def jaxmarl(checkout: Path, envs: int, seeds: int, updates: int) -> Timed:
    """JaxMARL's own script, without its logging."""
    module = script_of(checkout, "MAPPO/mappo_rnn_smax.py")
    config = {
        "LR": 0.002,
        "NUM_ENVS": envs,
        "NUM_STEPS": STEPS,
        "TOTAL_TIMESTEPS": updates * STEPS * envs,
        "FC_DIM_SIZE": 128,
        "GRU_HIDDEN_DIM": 128,
        "UPDATE_EPOCHS": 4,
        "NUM_MINIBATCHES": 4,
        "GAMMA": 0.99,
        "GAE_LAMBDA": 0.95,
        "CLIP_EPS": 0.2,
        "SCALE_CLIP_EPS": False,
        "ENT_COEF": 0.0,
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.25,
        "ACTIVATION": "relu",
        "OBS_WITH_AGENT_ID": True,
        "MAP_NAME": "3m",
        "ENV_KWARGS": {"see_enemy_actions": True, "walls_cause_death": True, "attack_mode": "closest"},
        "ANNEAL_LR": True,
    }
    train = module.make_train(config)
    keys = jax.random.split(jax.random.key(0), seeds)
    program = jax.jit(jax.vmap(train) if seeds > 1 else lambda keys: train(keys[0])).lower(keys).compile()
    return Timed(updates * STEPS * envs * seeds, lambda: program(keys))


def parts(envs: int, repeats: int, **options) -> None:
    """Say where the time of an update goes: each part compiled alone."""
    loop = our_setup(envs, 1, **options).loop
    algorithm, collector = loop.algorithm, loop.collector
    assert isinstance(algorithm, ActorCritic)
    assert isinstance(collector, Compiled)
    carry = jax.jit(loop.init)(jnp.int32(0))
    policy = algorithm.policy(carry.learner)

    def play(policy, actors):
        return collector.collect_one(policy, actors, loop.length)

    _, rollout = jax.jit(play)(policy, carry.actors)
    clock = Clock(jnp.float32(0), jnp.float32(1))
    pieces = {
        "acting and simulating": (play, (policy, carry.actors)),
        "values and advantages": (lambda c, r: algorithm.prepare_batch(c, r)[0], (carry.learner, rollout)),
        "values, advantages and all gradient steps": (
            lambda c, r: algorithm.update(c, r, jax.random.key(0), clock),
            (carry.learner, rollout),
        ),
    }
    print_parts(f"an update of {envs} environments x {STEPS} steps", pieces, repeats)


def print_parts(whole: str, pieces: dict[str, tuple[Callable, tuple]], repeats: int) -> None:
    """Time functions, each compiled alone and called with its arguments."""
    print(f"\nWhere the time of {whole} goes (parts compiled alone)")
    for name, (fn, args) in pieces.items():
        program = jax.jit(fn)
        jax.block_until_ready(program(*args))
        seconds = math.inf
        for _ in range(repeats):
            begin = time.perf_counter()
            jax.block_until_ready(program(*args))
            seconds = min(seconds, time.perf_counter() - begin)
        print(f"  {name:<44} {1e3 * seconds:>9.1f} ms", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jaxmarl", type=Path, help="a checkout of JaxMARL to compare with")
    parser.add_argument("--envs", type=int, nargs="+", default=[128])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--updates", type=int, default=2, help="updates in each timed call")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chunk", type=int, default=8, help="steps that our gru is unrolled for")
    parser.add_argument("--precision", nargs="+", default=["float32"], help="of our networks")
    parser.add_argument("--devices", type=int, default=1, help="that share our run")
    parser.add_argument("--parts", action="store_true", help="say where the time of an update goes")
    parser.add_argument("--kernel", action="store_true", help="ours also with battles in one GPU kernel")
    args = parser.parse_args()
    device.configure(args.devices)
    require_gpu(parser, args.kernel)
    cases = [(envs, 1) for envs in args.envs] + [(args.envs[0], n) for n in args.seeds if n > 1]
    print(f"{device.describe()}, jax {jax.__version__}, {load()}; best of {args.repeats}")
    print(f"\n{'MAPPO, gru 128, on 3m':<42} {'JaxMARL':>12} {'ours':>12} {'ratio':>7}")
    for envs, seeds in cases:
        options = {"devices": args.devices, "chunk": args.chunk}
        runs = {
            precision + ", kernel" * kernel: ours(
                envs, seeds, args.updates, precision=precision, kernel=kernel, **options
            )
            for precision in args.precision
            for kernel in (False, True)[: 1 + args.kernel]
        }
        peer = jaxmarl(args.jaxmarl, envs, seeds, args.updates) if args.jaxmarl else None
        take_turns([*runs.values(), *([peer] if peer else [])], args.repeats)
        for variant, run in runs.items():
            name = f"{envs:,} environments" + (f", {seeds} seeds" if seeds > 1 else "")
            name += f", {variant}" if len(runs) > 1 else ""
            theirs, ratio = f"{'-':>12}", f"{'-':>7}"
            if peer:
                theirs, ratio = f"{peer.rate:>12,.0f}", f"{run.rate / peer.rate:>6.1f}x"
            print(f"  {name:<40} {theirs} {run.rate:>12,.0f} {ratio}", flush=True)
    if args.parts:
        for envs in args.envs:
            parts(envs, args.repeats, chunk=args.chunk, kernel=args.kernel)
    print(f"\n{load()} at the end")


if __name__ == "__main__":
    main()

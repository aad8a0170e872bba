"""What dividing a CPU into a device for each core gains: a run on one device and on several, in turn.

    python benchmarks/cores.py [--cases "mappo battle/3m 1" "qmix battle/3m 2"] [--devices 2] [--repeats 5]

A case is an algorithm, an environment and a number of seeds, with the presets of `phalanx train`.
"""

import argparse

import jax
import jax.numpy as jnp
from rollout import load, take_turns
from training import Timed

from phalanx import device
from phalanx.config import Layer
from phalanx.runs import resolve
from phalanx.training.devices import lay_out
from phalanx.training.programs import compile_programs

CASES = [
    "mappo battle/3m 1",
    "mappo battle/3m 2",
    "mappo battle/3m 4",
    "qmix battle/3m 1",
    "qmix battle/3m 2",
    "qmix battle/3m 4",
]


def training(algorithm: str, env: str, seeds: int, devices: int, updates: int) -> Timed:
    """A training on so many devices, whose replay holds enough to learn from."""
    layer = Layer("benchmark", {"run": {"seeds": seeds, "devices": devices}, "algorithm": {}, "env": {}})
    setup = resolve(algorithm, env, layer)
    layout = lay_out(setup.loop, devices)
    programs = compile_programs(setup.loop, setup.evaluation, layout).complete()
    carry = [programs.init(jnp.array(setup.seeds, jnp.int32))]

    def work() -> jax.Array:
        carry[0] = programs.advance(carry[0], jnp.int32(updates), jnp.float32(1e6))
        return carry[0].updates

    for _ in range(3):
        jax.block_until_ready(work())
    return Timed(updates * seeds * setup.algorithm.steps_per_update, work)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="'ALGORITHM ENV SEEDS'")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--updates", type=int, default=8, help="in each timed call")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    device.configure(args.devices)
    print(f"{device.describe()}, jax {jax.__version__}, {load()}; env steps/s, best of {args.repeats}")
    print(f"\n{'':<24} {'1 device':>10} {f'{args.devices} devices':>10} {'ratio':>6}")
    for case in args.cases:
        algorithm, env, seeds = case.split()
        one, several = (
            training(algorithm, env, int(seeds), devices, args.updates) for devices in (1, args.devices)
        )
        take_turns([one, several], args.repeats)
        name = f"{algorithm} {env}, {seeds} seed{'s' * (seeds != '1')}"
        print(
            f"{name:<24} {one.rate:>10,.0f} {several.rate:>10,.0f} {several.rate / one.rate:>5.2f}x",
            flush=True,
        )
    print(f"\n{load()} at the end")


if __name__ == "__main__":
    main()

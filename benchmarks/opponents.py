"""What a learnt opponent costs: training against the script, a frozen team, itself, past selves, a learner.

    python benchmarks/opponents.py [--env battle/3m] [--algorithm mappo] [--envs 128] [--repeats 5]

All programs are compiled first and then take turns; of each the best turn counts. The cost is the time of an
env step against that of training against the script, in the same run.
"""

import argparse
import os
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from phalanx import device
from phalanx.config import Layer
from phalanx.runs import resolve
from phalanx.training.programs import advance_program

OPPONENTS = {
    "script": {},
    "random": {"opponent": "random"},
    "itself": {"opponent": "self"},
    "past selves, 4 at once": {"opponent": "past"},
    "a second learner": {"opponent_algorithm": ""},
}


def prepared(algorithm: str, env: str, envs: int, options: dict[str, str]) -> tuple[Callable[[], None], int]:
    """What trains for a second or so, and its env steps."""
    if "opponent_algorithm" in options:
        options = {"opponent_algorithm": algorithm}
    layer = Layer("benchmark", {"run": {"envs": envs, **options}, "algorithm": {}, "env": {}})
    setup = resolve(algorithm, env, layer)
    carry = [jax.jit(jax.vmap(setup.loop.init))(jnp.array(setup.seeds, jnp.int32))]
    advance, budget = advance_program(setup.loop), jnp.float32(setup.config.steps)
    updates = 1

    def train() -> None:
        carry[0] = advance(carry[0], jnp.int32(updates), budget)
        jax.block_until_ready(carry[0].updates)

    train()  # compiles
    begun = time.perf_counter()
    train()
    updates = max(1, round(1.0 / (time.perf_counter() - begun)))
    return train, updates * setup.algorithm.steps_per_update


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="battle/3m")
    parser.add_argument("--algorithm", default="mappo")
    parser.add_argument("--envs", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    device.configure()
    made = {
        name: prepared(args.algorithm, args.env, args.envs, options) for name, options in OPPONENTS.items()
    }
    best = dict.fromkeys(made, 0.0)
    for _ in range(args.repeats):
        for name, (train, steps) in made.items():
            begun = time.perf_counter()
            train()
            best[name] = max(best[name], steps / (time.perf_counter() - begun))
    print(
        f"{args.algorithm} on {args.env}, {args.envs} environments, {device.describe()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    for name, rate in best.items():
        print(f"  against {name:24} {rate:10,.0f} env steps/s   {best['script'] / rate:.2f} times the cost")


if __name__ == "__main__":
    main()

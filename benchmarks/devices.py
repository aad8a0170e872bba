"""What a run on several devices moves between them: weak scaling over simulated devices.

    python benchmarks/devices.py [--env switch/2] [--devices 1 2 4 8] [--seconds]

Each device gets as much work as the first one had: a seed more, or as many environments more. The compiled
program says what it moves: its collectives, the bytes of each, and the loops that they stand in. A ring sends
2 (n - 1) / n of what n devices add up, and (n - 1) / n of what they gather, from each device. Beside it is
what is expected: of an update of MAPPO all gradients and, once, the rollout; of QMIX the gradients and the
samples. Devices of a CPU share its cores, so the seconds of an update (`--seconds`) say nothing of scaling.
"""

import argparse
import os
import re
import time
from typing import Any, NamedTuple, cast

if __name__ == "__main__" and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=8".strip()

import jax
import jax.numpy as jnp
import numpy as np

from phalanx import device, registry
from phalanx.algorithms.shared.actor_critic import ActorCriticLearner
from phalanx.config import Layer, merge
from phalanx.training.devices import Layout, lay_out
from phalanx.training.programs import advance_program, carry_shapes
from phalanx.training.setup import Setup, set_up

COLLECTIVE = re.compile(
    r"= (?P<shape>.*?) (?P<kind>all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)"
    r"(-start)?\("
)
SHAPE = re.compile(r"(pred|[a-z]+\d+)\[([\d,]*)\]")
STEPS, ENVS = 128, 16  # of an update, and environments, on each device
OPTIONS: dict[str, dict[str, Any]] = {
    "mappo": {"network": "gru", "hidden": 64, "epochs": 4, "minibatches": 4, "chunk": 8},
    "qmix": {"hidden": 64, "reward": "mean", "buffer": 2048, "episodes": 32, "gradient_steps": 4},
}
STEP_LOOPS = {"mappo": 3, "qmix": 2}  # updates, epochs and minibatches; updates and gradient steps
GRADIENT_STEPS = {"mappo": 16, "qmix": 4}


class Collective(NamedTuple):
    """One that a compiled program makes."""

    kind: str
    shape: str
    """of its result, as the compiler writes it"""
    loops: int
    """that it stands in"""

    @property
    def bytes(self) -> int:
        """Of its result."""
        total = 0
        for kind, sizes in SHAPE.findall(self.shape):
            bits = 8 if kind == "pred" else int(re.sub(r"\D", "", kind))
            total += bits // 8 * int(np.prod([int(size) for size in sizes.split(",") if size]))
        return total

    def sent(self, devices: int) -> float:
        """Bytes that each device sends, in a ring."""
        return self.bytes * (devices - 1) / devices * (2 if self.kind == "all-reduce" else 1)


def collectives(program: Any) -> list[Collective]:
    """All collectives of a compiled program."""
    found = []
    for line in program.as_text().splitlines():
        match = COLLECTIVE.search(line)
        if match:
            name = re.search(r'op_name="([^"]*)"', line)
            loops = name.group(1).count("while/body") if name else 0
            found.append(Collective(match["kind"], match["shape"], loops))
    return found


def put_together(algorithm: str, env: str, seeds: int, envs: int, steps: int) -> Setup:
    """A run of so many seeds and environments."""
    options = {**OPTIONS[algorithm], "batch_steps": steps}
    layer = Layer("benchmark", {"algorithm": options, "run": {"seeds": seeds, "envs": envs}})
    known = registry.algorithm_config(algorithm), registry.env_options(env)
    resolved = merge((algorithm, env), *known, [layer])
    return set_up(resolved, registry.make_env(env, resolved.env))


def expected(algorithm: str, setup: Setup, layout: Layout) -> float:
    """Bytes that each device should send in an update: gradients, and rollout or samples."""
    if layout.parts == 1:
        return 0.0
    share, carry = (layout.parts - 1) / layout.parts, carry_shapes(setup.loop)
    networks = setup.algorithm.networks(carry.learner).values()
    gradients = 2 * GRADIENT_STEPS[algorithm] * sum(device.bytes_of(each.parameters) for each in networks)
    if algorithm == "mappo":
        # Not next observations, rewards and ends; instead advantages, targets and values.
        rollout, learner = setup.loop.shapes[1], cast(ActorCriticLearner, carry.learner)
        seen = device.bytes_of((rollout.observation, rollout.extras, rollout.first))
        chunks = device.bytes_of((rollout.memory, learner.critic_memory)) // OPTIONS["mappo"]["chunk"]
        return share * (gradients + seen + 3 * device.bytes_of(rollout.reward) + chunks)
    replay = carry.learner.replay
    episode = device.bytes_of(replay) // replay.length.size
    return share * (gradients + 2 * GRADIENT_STEPS["qmix"] * OPTIONS["qmix"]["episodes"] * episode)


def measure(algorithm: str, env: str, devices: int, over: str, with_seconds: bool) -> str:
    """A row of the table."""
    seeds, scale = (devices, 1) if over == "seeds" else (1, devices)
    setup = put_together(algorithm, env, seeds, ENVS * scale, STEPS * scale)
    layout = lay_out(setup.loop, devices)
    carry = carry_shapes(setup.loop, layout)
    program = advance_program(setup.loop, layout).lower(carry, jnp.int32(1), jnp.float32(1e6)).compile()
    found = collectives(program)
    times = [GRADIENT_STEPS[algorithm] if each.loops == STEP_LOOPS[algorithm] else 1 for each in found]
    sent = sum(each.sent(devices) * count for each, count in zip(found, times, strict=True))
    row = f"{algorithm:<6} {over:<13} {devices:>7} {sum(times):>12} {sent / 1e3:>12,.0f} "
    row += f"{expected(algorithm, setup, layout) / 1e3:>12,.0f}"
    if with_seconds:
        init = jax.jit(layout.over_seeds(setup.loop.init, seeds), out_shardings=layout.shardings(carry))
        begun = program(init(jnp.arange(seeds, dtype=jnp.int32)), jnp.int32(1), jnp.float32(1e6))
        jax.block_until_ready(begun)
        start = time.perf_counter()
        jax.block_until_ready(program(begun, jnp.int32(4), jnp.float32(1e6)))
        row += f" {(time.perf_counter() - start) / 4:>9.3f}"
    return row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="switch/2")
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--algorithms", nargs="+", default=["mappo", "qmix"], choices=list(OPTIONS))
    parser.add_argument("--over", nargs="+", default=["seeds", "environments"])
    parser.add_argument("--seconds", action="store_true", help="also time an update")
    args = parser.parse_args()
    device.configure()
    print(f"{device.describe()}, {args.env}; one program, an update of it, of each device:")
    print(f"{'':<6} {'more':<13} {'devices':>7} {'collectives':>12} {'kB sent':>12} {'expected':>12}")
    for algorithm in args.algorithms:
        for over in args.over:
            for devices in args.devices:
                print(measure(algorithm, args.env, devices, over, args.seconds), flush=True)


if __name__ == "__main__":
    main()

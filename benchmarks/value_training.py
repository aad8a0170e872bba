"""How fast QMIX trains: the work of JaxMARL's `qmix_rnn` on our `battle/3m` and `mpe/simple_spread`.

    python benchmarks/value_training.py [--jaxmarl CHECKOUT] [--tasks simple_spread] [--episodes 32]
                                        [--repeats 3] [--parts] [--devices 1]
                                        [--precision float32 bfloat16] [--kernel]

Sizes are those of JaxMARL's own configurations: on 3m 16 environments x 128 steps, a gru of 512 and 8
gradient steps, on simple_spread 8 x 26, a gru of 64 and one. With a checkout of
https://github.com/FLAIROx/JaxMARL (and `pip install .[bench]`) its own script is timed in the same run, call
by call in turn; ratios are against it. It draws 32 rollouts of 128 (26) steps, in which one episode follows
another; ours 32 episodes. Since those are shorter, there is a second line with as many steps in a draw as
JaxMARL has. Ours is timed with every `--precision`, and with `--kernel` also with a step of its battles as
one GPU kernel. `--parts` also says where the time of an update goes.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
from rollout import load, require_gpu, take_turns
from training import Timed, print_parts, script_of

from phalanx import device, registry
from phalanx.algorithms.shared.value_based import ValueBased, Weights
from phalanx.config import Layer, merge
from phalanx.data import replay
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.devices import lay_out
from phalanx.training.programs import compile_programs
from phalanx.training.setup import Setup, set_up
from phalanx.types import Array, PyTree

DRAWN = 32


class Task(NamedTuple):
    """One piece of work, ours and JaxMARL's."""

    env: str
    envs: int
    steps: int
    gradient_steps: int
    options: dict[str, Any]
    peer: dict[str, Any]
    updates: int
    """in each timed call"""

    @property
    def env_steps(self) -> int:
        """Of a timed call."""
        return self.updates * self.envs * self.steps


TASKS = {
    "3m": Task(
        "battle/3m",
        envs=16,
        steps=128,
        gradient_steps=8,
        options={"hidden": 512, "mixer_hidden": 64, "hyper_hidden": 256, "target_every": 80},
        peer={
            "ENV_NAME": "HeuristicEnemySMAX",
            "MAP_NAME": "3m",
            "ENV_KWARGS": {"see_enemy_actions": True, "walls_cause_death": True, "attack_mode": "closest"},
            "HIDDEN_SIZE": 512,
            "MIXER_EMBEDDING_DIM": 64,
            "MIXER_HYPERNET_HIDDEN_DIM": 256,
            "TARGET_UPDATE_INTERVAL": 10,
            "REW_SCALE": 10.0,
        },
        updates=1,
    ),
    "simple_spread": Task(
        "mpe/simple_spread",
        envs=8,
        steps=26,
        gradient_steps=1,
        options={
            "hidden": 64,
            "mixer_hidden": 32,
            "hyper_hidden": 128,
            "target_every": 200,
            "reward": "mean",
        },
        peer={
            "ENV_NAME": "MPE_simple_spread_v3",
            "ENV_KWARGS": {},
            "HIDDEN_SIZE": 64,
            "MIXER_EMBEDDING_DIM": 32,
            "MIXER_HYPERNET_HIDDEN_DIM": 128,
            "TARGET_UPDATE_INTERVAL": 200,
        },
        updates=50,
    ),
}


def our_setup(task: Task, episodes: int, kernel: bool = False, precision: str = "float32") -> Setup:
    """Our loop for a task."""
    settings = {
        "network": "gru",
        "batch_steps": task.envs * task.steps,
        "gradient_steps": task.gradient_steps,
        "episodes": episodes,
        "buffer": 5000,
        "precision": precision,
        **task.options,
    }
    given = {"algorithm": settings, "run": {"envs": task.envs}}
    layer = Layer("benchmark", given | ({"env": {"kernel": True}} if kernel else {}))
    qmix = registry.algorithm_config("qmix")
    resolved = merge(("qmix", task.env), qmix, registry.env_options(task.env), [layer])
    return set_up(resolved, registry.make_env(task.env, resolved.env))


def ours(task: Task, episodes: int, devices: int = 1, **variant: Any) -> Timed:
    """The training program of phalanx, as `phalanx train` runs it, with a replay that has something in it."""
    setup = our_setup(task, episodes, **variant)
    layout = lay_out(setup.loop, devices)
    programs = compile_programs(setup.loop, setup.evaluation, layout).complete()
    carry = [programs.init(jnp.array([0], jnp.int32))]

    def work():
        carry[0] = programs.advance(carry[0], jnp.int32(task.updates), jnp.float32(1e6))
        return carry[0].updates

    while not carry[0].learner.gradient_steps.all():
        work()
    return Timed(task.env_steps, work)


def parts(task: Task, repeats: int) -> None:
    """Say where the time of `task.updates` updates goes; each part is done as often.

    On a GPU what goes through the agents' networks may go through the target networks in the same loop.
    """
    loop = our_setup(task, DRAWN).loop
    algorithm, collector = loop.algorithm, loop.collector
    assert isinstance(algorithm, ValueBased)
    assert isinstance(collector, Compiled)
    carry = jax.jit(loop.advance)(jax.jit(loop.init)(jnp.int32(0)), *[jnp.int32(10 * task.updates)] * 2)
    learner, policy = carry.learner, algorithm.policy(carry.learner)
    batch = replay.take(learner.replay, replay.draw(learner.replay, jax.random.key(0), DRAWN))
    batch = batch._replace(reward=algorithm.rewards.of(batch.reward))
    weights = Weights(learner.actor.params, learner.mixer.params)

    def often(work: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
        return lambda start: jax.lax.fori_loop(0, task.updates, lambda _, x: work(x), start)

    def learnt_by(loss: Callable[[Weights], Array]) -> Callable[[PyTree], PyTree]:
        """Each step from other weights, so that none can be left out."""
        return often(lambda w: jax.tree.map(lambda p, g: p - 1e-9 * g, w, jax.grad(loss)(w)))

    def play(actors):
        return collector.collect_one(policy, actors, loop.length)[0]

    def values(w):
        return algorithm.q_values(w.actor, learner.target.actor, batch)[0].mean()

    pieces = {
        "acting and simulating": (often(play), (carry.actors,)),
        "gradients": (learnt_by(lambda w: algorithm.loss(w, learner.target, batch)[0]), (weights,)),
        "forwards and backwards through agents": (learnt_by(values), (weights,)),
        "forwards through agents": (
            often(lambda w: jax.tree.map(lambda p: p + 1e-12 * values(w), w)),
            (weights,),
        ),
    }
    print_parts(f"{task.updates} updates of {task.envs} environments x {task.steps} steps", pieces, repeats)


def jaxmarl(checkout: Path, task: Task) -> Timed:
    """JaxMARL's own script, which here learns from its first update on."""
    module = script_of(checkout, "QLearning/qmix_rnn.py")
    config = {
        "NUM_ENVS": task.envs,
        "NUM_STEPS": task.steps,
        "TOTAL_TIMESTEPS": task.env_steps,
        "BUFFER_SIZE": 5000,
        "BUFFER_BATCH_SIZE": DRAWN,
        "MIXER_INIT_SCALE": 0.001,
        "EPS_START": 1.0,
        "EPS_FINISH": 0.05,
        "EPS_DECAY": 0.1,
        "MAX_GRAD_NORM": 10,
        "TAU": 1.0,
        "NUM_EPOCHS": task.gradient_steps,
        "LR": 0.0005,
        "LEARNING_STARTS": 0,
        "GAMMA": 0.99,
        "TEST_DURING_TRAINING": False,
        "TEST_NUM_ENVS": 1,
        "WANDB_MODE": "disabled",
        **task.peer,
    }
    make_buffer = module.fbx.make_trajectory_buffer
    with mock.patch.object(
        module.fbx,
        "make_trajectory_buffer",
        lambda **options: make_buffer(**{**options, "min_length_time_axis": 1}),
    ):
        env, _ = module.env_from_config(config)
        key = jax.random.PRNGKey(0)
        program = jax.jit(module.make_train(config, env)).lower(key).compile()
    return Timed(task.env_steps, lambda: program(key))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jaxmarl", type=Path, help="a checkout of JaxMARL to compare with")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--episodes", type=int, nargs="+", help="in our draws, instead of these two numbers")
    parser.add_argument("--parts", action="store_true", help="also where the time of an update goes")
    parser.add_argument("--devices", type=int, default=1, help="that share our run")
    parser.add_argument("--precision", nargs="+", default=["float32"], help="of our networks")
    parser.add_argument("--kernel", action="store_true", help="ours also with battles in one GPU kernel")
    args = parser.parse_args()
    device.configure(args.devices)
    require_gpu(parser, args.kernel)
    print(f"{device.describe()}, jax {jax.__version__}, {load()}; best of {args.repeats}")
    print(f"\n{'QMIX, env steps/s':<54} {'JaxMARL':>12} {'ours':>12} {'ratio':>7}")
    for name in args.tasks:
        task = TASKS[name]
        limit = registry.make_env(task.env, {}).spec.time_limit
        kernels = (False, True) if args.kernel and task.env.startswith("battle/") else (False,)
        runs = {
            f"{n} episodes in a draw, {precision}" + ", kernel" * kernel: ours(
                task, n, args.devices, kernel=kernel, precision=precision
            )
            for n in args.episodes or (DRAWN, math.ceil(DRAWN * task.steps / limit))
            for precision in args.precision
            for kernel in kernels
        }
        peer = jaxmarl(args.jaxmarl, task) if args.jaxmarl else None
        take_turns([*runs.values(), *([peer] if peer else [])], args.repeats)
        for variant, run in runs.items():
            theirs = f"{peer.rate:>12,.0f}" if peer else f"{'-':>12}"
            ratio = f"{run.rate / peer.rate:>6.1f}x" if peer else f"{'-':>7}"
            print(f"  {f'{name}, {variant}':<52} {theirs} {run.rate:>12,.0f} {ratio}", flush=True)
        if args.parts:
            parts(task, args.repeats)
    print(f"\n{load()} at the end")


if __name__ == "__main__":
    main()

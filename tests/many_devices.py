"""Runs on four simulated devices: what `test_devices.py` checks, in a process of its own.

JAX has as many devices as it started with, so that one process trains on one, two and four of them. It writes
what it found to a JSON file.
"""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from conftest import build, small
from devices import collectives

import phalanx
from phalanx.training.checkpoint import ARRAYS, REPLAY
from phalanx.training.devices import lay_out, over_lanes
from phalanx.training.lanes import Lane, compile_lanes
from phalanx.training.programs import advance_program, carry_shapes
from phalanx.types import is_key

BUDGET = jnp.float32(1e4)


class StopAtHalf(phalanx.Callback):
    """Ends a run after 2 of its 4 updates."""

    def on_evaluation(self, evaluation):
        if evaluation.env_steps >= 128:
            raise phalanx.StopTraining("half is enough")


def last_arrays(run):
    folder = max((run.folder / "checkpoints").glob("[0-9]*"))
    found = {}
    for name in (ARRAYS, REPLAY):
        if (folder / name).is_file():
            with np.load(folder / name) as arrays:
                found |= {f"{name}: {key}": arrays[key] for key in arrays.files}
    return found


def furthest(one, other):
    """How far two sets of arrays are apart, relative to 1 or to their size; and where."""
    assert one.keys() == other.keys()
    far = {}
    for name, x in one.items():
        x, y = x.astype(np.float64), other[name].astype(np.float64)
        finite = np.isfinite(x)
        assert (finite == np.isfinite(y)).all(), name
        x, y = x[finite], y[finite]
        far[name] = float((np.abs(x - y) / np.maximum(1, np.abs(x))).max(initial=0.0))
    worst = max(far, key=far.get)
    return far[worst], worst


def through_the_driver(folder):
    """A run on four devices, one on one device, and one that was resumed on two and on one."""
    runs = {devices: small(folder / str(devices), seeds=2, devices=devices) for devices in (1, "all")}
    small(folder / "half", seeds=2, devices=4, callbacks=[StopAtHalf()])
    whole = last_arrays(runs[1])
    found = {"4 against 1": furthest(whole, last_arrays(runs["all"]))}
    for devices in (2, 1):
        copy = shutil.copytree(folder / "half", folder / f"half on {devices}")
        resumed = phalanx.resume(copy, devices=devices, quiet=True)
        found[f"4, then {devices}, against 1"] = furthest(whole, last_arrays(resumed))
    rows = {devices: run.metrics() for devices, run in runs.items()}
    same = [(a["eval/return"], b["eval/return"]) for a, b in zip(rows[1], rows["all"], strict=True)]
    found["eval"] = max(abs(a - b) for a, b in same)
    return found


def advanced(loop, devices, seeds, updates):
    """The carry after some updates, and the program that made them."""
    loop.collector.seeds = len(seeds)
    for cached in ("shapes", "carry"):
        loop.__dict__.pop(cached, None)
    layout = lay_out(loop, devices)
    carry = carry_shapes(loop, layout)
    init = jax.jit(layout.over_seeds(loop.init, len(seeds)), out_shardings=layout.shardings(carry))
    program = advance_program(loop, layout).lower(carry, jnp.int32(1), BUDGET).compile()
    return program(init(jnp.array(seeds, jnp.int32)), jnp.int32(updates), BUDGET), program


def arrays_of(carry):
    leaves = jax.tree_util.tree_leaves_with_path(carry)
    return {
        jax.tree_util.keystr(path): np.asarray(jax.random.key_data(x) if is_key(x) else x)
        for path, x in leaves
    }


def over_seeds():
    """Four seeds on four devices, two of them on two devices, all on one."""
    loop = build("mappo", "switch/2", network="gru")
    four, program = advanced(loop, 4, [0, 1, 2, 3], 6)
    two, _ = advanced(loop, 2, [2, 3], 6)
    one, _ = advanced(loop, 1, [0, 1, 2, 3], 6)
    four, two, one = map(arrays_of, (four, two, one))
    return {
        "same bits on 4 and on 2": all((four[name][2:] == two[name]).all() for name in four),
        "4 against 1": furthest(one, four),
        "collectives": collectives(program),
    }


def over_environments(algorithm, updates, **options):
    """One seed whose environments are on four devices, and on one."""
    loop = build(algorithm, "switch/2", envs=8, **options)
    four, program = advanced(loop, 4, [0], updates)
    one, _ = advanced(loop, 1, [0], updates)
    shards = {
        jax.tree_util.keystr(path): (list(x.shape), [list(each.data.shape) for each in x.addressable_shards])
        for path, x in jax.tree_util.tree_leaves_with_path(four)
    }
    return {
        "4 against 1": furthest(arrays_of(one), arrays_of(four)),
        "gradient steps": int(four.learner.gradient_steps[0]),
        "shards": shards,
        "collectives": collectives(program),
    }


def of_a_search():
    """Eight lanes on four devices and on one."""
    made = build("mappo", "switch/2", network="gru")
    lane = Lane(type(made.algorithm), made.algorithm.config, made.collector.env, made.collector.envs, 4)
    seeds = jnp.arange(8, dtype=jnp.int32)
    numbers = {"lr": jnp.linspace(1e-4, 3e-3, 8), "gamma": jnp.linspace(0.8, 0.99, 8)}
    carries, returns = {}, {}
    for devices in (1, 4):
        programs = compile_lanes(lane, 8, numbers, devices)
        carry = programs.advance(programs.init(seeds, numbers), numbers, jnp.int32(6), BUDGET)
        played = programs.play(
            (carry.without_replay().learner, numbers), jax.random.split(jax.random.key(3), 8)
        )
        carry = programs.track_best(carry, numbers, played.length[:, 0].astype(jnp.float32))
        carries[devices], returns[devices] = arrays_of(carry), np.asarray(played.returns)
    return {
        "4 against 1": furthest(carries[1], carries[4]),
        "shards": len(carry.updates.addressable_shards),
        "returns": float(np.abs(returns[1] - returns[4]).max()),
        "groups": [over_lanes(lanes, 4).groups for lanes in (8, 6, 7)],
    }


def rollout():
    """The collectives of a rollout in battles: resets, packed environments and random actions included."""
    loop = build("mappo", "battle/3m", envs=8)
    layout = lay_out(loop, 4)
    carry = carry_shapes(loop, layout)
    policy = layout.placed(jax.eval_shape(jax.vmap(loop.algorithm.policy), carry.learner))

    def collect(policy, actors):
        return loop.collector.collect_one(policy, actors, 4)[0]

    program = jax.jit(layout.over_seeds(collect, 1, (0, 0)), out_shardings=layout.shardings(carry.actors))
    return collectives(program.lower(policy, carry.actors).compile())


if __name__ == "__main__":
    assert jax.device_count() == 4
    out = Path(sys.argv[1])
    value = {"reward": "mean", "buffer": 80, "episodes": 8, "gradient_steps": 2}
    found = {
        "driver": through_the_driver(out),
        "seeds": over_seeds(),
        "mappo": over_environments("mappo", 6, network="gru"),
        "qmix": over_environments("qmix", 12, **value),
        "lanes": of_a_search(),
        "rollout": rollout(),
    }
    (out / "found.json").write_text(json.dumps(found))

"""Many settings in one program: the same as each alone, and options that cannot be numbers are found."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import same, small_for

from phalanx import registry
from phalanx.config import options_of
from phalanx.training.lanes import Lane, compile_lanes, own_program

ENVS = 4
# What MAPPO's learning reads as a number, and what decides shapes or what Python does.
NUMBERS = {"gamma", "lr", "max_grad_norm", "entropy", "critic_lr", "gae_lambda", "clip", "value_norm_decay"}
SHAPES = {"hidden", "layers", "batch_steps", "epochs", "minibatches", "target_every", "network", "share"}
OTHER = {  # values that are not the defaults, within bounds
    "gamma": 0.9,
    "lr": 2e-3,
    "critic_lr": 3e-3,
    "max_grad_norm": 0.3,
    "entropy": 0.05,
    "gae_lambda": 0.8,
    "clip": 0.1,
    "value_norm_decay": 0.9,
    "huber_delta": 0.1,
    "lr_horizon": 512,
    "target_rate": 0.3,
    "target_every": 2,
    "warm_up": 70,
    "temperature": 0.4,
    "target_noise": 0.4,
    "epsilon": 0.7,
    "epsilon_end": 0.3,
    "epsilon_steps": 200,
    "td_lambda": 0.3,
    "noise": 0.4,
}


def lane(algorithm="mappo", env="switch/2", **options):
    config = registry.algorithm_config(algorithm)(**{**small_for(algorithm), **options})
    return Lane(registry.algorithm(algorithm), config, registry.make_env(env, {}), ENVS, 4)


def trained(programs, seeds, numbers, updates=3):
    seeds = jnp.array(seeds, jnp.int32)
    carry = programs.advance(programs.init(seeds, numbers), numbers, jnp.int32(updates), jnp.float32(512))
    keys = jax.random.split(jax.random.key(3), len(seeds))
    return carry, programs.play((carry.without_replay().learner, numbers), keys)


def close(a, b):
    floats = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    for x, y in floats:
        if jnp.issubdtype(x.dtype, jnp.floating):
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-3, atol=2e-5)


def test_options_that_are_numbers_are_told_from_those_that_need_another_program():
    own, idle = own_program(lane(), [*NUMBERS, *SHAPES, "chunk"])
    assert set(own) == SHAPES
    assert own["network"] == "it is not a number"
    assert idle == {"chunk"}  # an mlp has no memory


def test_options_are_judged_in_company_of_others():
    assert own_program(lane(network="gru"), ["lr", "gamma"]) == ({}, set())
    own, idle = own_program(lane(network="gru"), ["chunk"])
    assert set(own) == {"chunk"}
    assert not idle


def test_lanes_learn_as_they_would_alone():
    """Sums of a mapped program may round differently from those of one lane: close, not equal."""
    numbers = {"lr": jnp.float32([1e-4, 3e-3, 1e-3]), "gamma": jnp.float32([0.9, 0.99, 0.5])}
    together, played = trained(compile_lanes(lane(), 3, numbers), [0, 1, 0], numbers)
    alone = compile_lanes(lane(), 1, numbers)
    for i, seed in enumerate([0, 1, 0]):
        mine = {name: value[i : i + 1] for name, value in numbers.items()}
        carry, ended = trained(alone, [seed], mine)
        own = jax.tree.map(lambda x, i=i: x[i : i + 1], (together.learner, together.actors, played))
        close(own, (carry.learner, carry.actors, ended))


def test_a_lane_does_not_depend_on_its_neighbours():
    programs = compile_lanes(lane(), 2, ["lr", "entropy"])
    numbers = {"lr": jnp.float32([1e-3, 1e-4]), "entropy": jnp.float32([0.01, 0.0])}
    others = {"lr": jnp.float32([1e-3, jnp.nan]), "entropy": jnp.float32([0.01, 9.0])}
    (one, _), (other, _) = trained(programs, [0, 1], numbers), trained(programs, [0, 7], others)
    first, second = (jax.tree.map(lambda x: x[0], each) for each in (one, other))
    assert same(first, second)
    assert not same(jax.tree.map(lambda x: x[1], one), jax.tree.map(lambda x: x[1], other))


@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [
        ("mappo", "switch/2", {"lr_decay": True}),
        ("vdn", "debug/identity", {"reward": "mean", "buffer": 32, "episodes": 4, "gradient_steps": 2}),
        ("sac", "switch/2", {"batch_size": 16}),
        ("td3", "switch/2", {"batch_size": 16}),
    ],
)
def test_every_number_does_in_a_lane_what_it_does_in_a_run(algorithm, env, options):
    """All at once, with values that are not the defaults: one that is ignored would show."""
    plain = lane(algorithm, env, **options)
    names = [name for name in options_of(type(plain.config)) if name in OTHER]
    own, idle = own_program(plain, names)
    names = [name for name in names if name not in own and name not in idle]
    assert {"lr", "gamma", "max_grad_norm"} <= set(names)
    values = {name: OTHER[name] for name in names}
    numbers = {
        name: jnp.array([value], jnp.int32 if isinstance(value, int) else jnp.float32)
        for name, value in values.items()
    }
    varied, _ = trained(compile_lanes(plain, 1, names), [0], numbers)
    fixed = Lane(plain.cls, dataclasses.replace(plain.config, **values), plain.env, ENVS, 4)
    run, _ = trained(compile_lanes(fixed, 1, []), [0], {})
    close(varied.learner, run.learner)
    default, _ = trained(compile_lanes(plain, 1, []), [0], {})
    assert not same(default.learner, run.learner)

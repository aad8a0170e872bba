"""What the tests share: a compilation cache, and small runs that are made once."""

import dataclasses
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests compile many small programs and run each for a moment: cheap code sooner is what they want.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

import jax
import pytest

from phalanx import device, registry
from phalanx.envs.wrappers import policy_spec
from phalanx.training.collectors import collector_for
from phalanx.training.evaluate import play
from phalanx.training.loop import Loop
from phalanx.types import is_key

device.configure()

# `make test-long` repeats what is random in the world (kills) or rare (draws) more often.
LONG = bool(os.environ.get("PHALANX_LONG"))
SMALL = {"batch_steps": 64, "hidden": 8, "epochs": 2, "minibatches": 2, "chunk": 4}


def small_for(algorithm):
    """Those of `SMALL` that an algorithm knows; a random team learns nothing."""
    known = {each.name for each in dataclasses.fields(registry.algorithm_config(algorithm))}
    return {} if algorithm == "random" else {key: value for key, value in SMALL.items() if key in known}


def build(algorithm, env, envs=4, env_options=None, **options):
    """A loop of a small algorithm in an environment, by name or as an object."""
    config = registry.algorithm_config(algorithm)(**{**small_for(algorithm), **options})
    bare = registry.make_env(env, env_options or {}) if isinstance(env, str) else env
    learner = registry.algorithm(algorithm)(config, policy_spec(bare.spec, **config.inputs))
    learner.check(envs)
    return Loop(collector_for(bare, learner, envs))


def greedy_episodes(loop, policy, episodes):
    """Greedy episodes of one seed, for use in a compiled program."""
    evaluation = collector_for(loop.collector.env, loop.algorithm, episodes)
    played = play(evaluation, jax.tree.map(lambda x: x[None], policy), jax.random.key(7)[None])
    return jax.tree.map(lambda x: x[0], played)


def same(a, b) -> bool:
    """Whether two trees are identical to the bit."""

    def data(x):
        return jax.random.key_data(x) if is_key(x) else x

    return all(jax.tree.leaves(jax.tree.map(lambda x, y: bool((data(x) == data(y)).all()), a, b)))


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """MAPPO with a gru on switch/2: 6 updates of 64 steps, 2 seeds, evaluated every 2 updates."""
    import phalanx

    out = tmp_path_factory.mktemp("runs") / "small"
    return phalanx.train(
        "mappo",
        "switch/2",
        steps=384,
        seeds=2,
        envs=4,
        eval_every=128,
        eval_episodes=4,
        final_episodes=6,
        keep=3,
        network="gru",
        out=out,
        quiet=True,
        **SMALL,
    )

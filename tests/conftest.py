"""What the tests share: a compilation cache, and small runs that are made once."""

import dataclasses
import gc
import os
import shutil
from collections import Counter
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests compile many small programs and run each for a moment: cheap code sooner is what they want.
# Without fusion emitters compiling takes half the time; jaxlib 0.11 and later have nothing else, and stop at
# the flag because they do not know it.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + (" --xla_cpu_use_fusion_emitters=false" if int(version("jaxlib").split(".")[1]) < 11 else ""),
)

import jax
import pytest

from phalanx import device, registry
from phalanx.algorithms.shared.normalised import build as make
from phalanx.envs.wrappers import policy_spec
from phalanx.ops import kernels
from phalanx.training.collectors import collector_for
from phalanx.training.evaluate import play
from phalanx.training.loop import Loop
from phalanx.types import is_key

device.configure()
# Tracing makes many objects that live on: collect rarely, and not what importing left. Programs need no line
# numbers. Together about a tenth of the time of tracing and lowering.
gc.freeze()
gc.set_threshold(100_000, 20, 20)
jax.config.update("jax_traceback_in_locations_limit", 0)

# `make test-long` repeats what is random in the world (kills) or rare (draws) more often.
LONG = bool(os.environ.get("PHALANX_LONG"))
# Those of other packages have tests of their own: tests/test_foreign_compiled.py.
OWN_ENVS = [
    name
    for name in registry.compiled_envs()
    if name.partition("/")[0] not in ("jaxmarl", "jumanji", "gymnax")
]
CAN_LOWER_KERNELS = kernels.LOWEST <= jax.__version_info__ < (0, 11)  # which needs a GPU for it
SMALL = {"batch_steps": 64, "hidden": 8, "epochs": 2, "minibatches": 2, "chunk": 4}


def pytest_collection_modifyitems(items):
    """Mark what `make test-fast` leaves out: slow.txt, which weigh.py writes from measured times."""
    listed = Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").splitlines()
    slow = {line.split()[0] for line in listed}
    for item in items:
        if f"{item.path.stem}::{item.originalname}" in slow:
            item.add_marker("slow")


def small_for(algorithm):
    """Those of `SMALL` that an algorithm knows; a random team learns nothing."""
    known = {each.name for each in dataclasses.fields(registry.algorithm_config(algorithm))}
    return {} if algorithm == "random" else {key: value for key, value in SMALL.items() if key in known}


def build(algorithm, env, envs=4, env_options=None, **options):
    """A loop of a small algorithm in an environment, by name or as an object."""
    config = registry.algorithm_config(algorithm)(**{**small_for(algorithm), **options})
    bare = registry.make_env(env, env_options or {}) if isinstance(env, str) else env
    learner = make(registry.algorithm(algorithm), config, policy_spec(bare.spec, **config.inputs))
    learner.check(envs)
    return Loop(collector_for(bare, learner, envs))


def greedy_episodes(loop, policy, episodes):
    """Greedy episodes of one seed, for use in a compiled program."""
    evaluation = collector_for(loop.collector.env, loop.algorithm, episodes)
    played = play(evaluation, jax.tree.map(lambda x: x[None], policy), jax.random.key(7)[None])
    return jax.tree.map(lambda x: x[0], played)


def small(out, algorithm="ippo", env="debug/identity", **options):
    """A run of 4 updates of 64 steps, evaluated every 2."""
    import phalanx

    settings = {"steps": 256, "envs": 4, "eval_every": 128, "eval_episodes": 4, "final_episodes": 4}
    return phalanx.train(algorithm, env, out=out, quiet=True, **settings | small_for(algorithm) | options)


def calls(monkeypatch, *methods):
    """How often methods are called from here on, by name; each is given as a class and its name."""
    counts = Counter()

    def counted(cls, name):
        original = getattr(cls, name)
        monkeypatch.setattr(cls, name, lambda *args, **more: counts.update([name]) or original(*args, **more))

    for cls, name in methods:
        counted(cls, name)
    return counts


def same(a, b) -> bool:
    """Whether two trees are identical to the bit."""

    def data(x):
        return jax.random.key_data(x) if is_key(x) else x

    return all(jax.tree.leaves(jax.tree.map(lambda x, y: bool((data(x) == data(y)).all()), a, b)))


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """A small run with two checkpoints, which no test may change."""
    return small(tmp_path_factory.mktemp("kept") / "run", keep=2)


@pytest.fixture
def two_checkpoints(kept, tmp_path):
    """A copy of it that a test may break or go on with."""
    from phalanx.api import Run

    return Run(shutil.copytree(kept.folder, tmp_path / "run"))


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

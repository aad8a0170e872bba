"""Traced programs that are kept between processes: nothing is traced again, and no number changes."""

import os
import shutil
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import calls, small

import phalanx
from phalanx import cli, device, registry
from phalanx.algorithms.iql import IQL
from phalanx.algorithms.ppo import PPO
from phalanx.envs.debug import Identity
from phalanx.ops import kernels
from phalanx.training import checkpoint, kept, setup
from phalanx.training.programs import compile_programs


def threads_end():
    """Wait until all programs are written."""
    for thread in threading.enumerate():
        if thread.name == "keep programs":
            thread.join()


def new_process():
    """Forget what this process has traced."""
    threads_end()
    setup._make_parts_once.cache_clear()
    compile_programs.cache_clear()


@pytest.fixture
def keeping(tmp_path, monkeypatch):
    """The folder of programs, which are kept as by the command `phalanx train`."""
    new_process()
    monkeypatch.setattr(kept, "_since", time.time())
    monkeypatch.setenv("PHALANX_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "traced"
    new_process()


def carry(run):
    """The last checkpoint, to the bit."""
    return checkpoint.choose(run.folder / "checkpoints").sha256


@pytest.mark.parametrize(
    ("algorithm", "learner", "options"), [("ippo", PPO, {"network": "gru"}), ("iql", IQL, {"seeds": 2})]
)
def test_a_second_run_traces_nothing_and_is_the_same(
    algorithm, learner, options, keeping, tmp_path, monkeypatch
):
    counts = calls(monkeypatch, (learner, "update"), (Identity, "step"))
    runs = {}
    for name in ("first", "second"):
        runs[name] = small(tmp_path / name, algorithm, **options)
        new_process()
        assert len(list(keeping.iterdir())) == 1
        assert counts == {"update": 1, "step": 1}, name
    monkeypatch.setenv("PHALANX_CACHE", "off")
    runs["traced"] = small(tmp_path / "traced", algorithm, **options)
    assert counts["update"] == 2
    assert len({carry(run) for run in runs.values()}) == 1
    assert len({str(run.facts["final"]) for run in runs.values()}) == 1


def test_programs_with_kernels_can_be_kept(tmp_path):
    """JAX refuses to write calls of other things, because they may be different in another version."""

    def trace(target):
        def job(x):
            return jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

        return kept.Kept(tmp_path / "none").trace("job", jax.jit(job), (jnp.ones(2),)).exported

    for target in kernels.TARGETS:
        assert target in trace(target).mlir_module()
    with pytest.raises(ValueError, match="custom calls"):
        trace("another")


def test_a_run_goes_on_with_kept_programs(keeping, tmp_path):
    whole = small(tmp_path / "whole")
    new_process()
    half = small(tmp_path / "half", steps=128)
    new_process()
    half = phalanx.resume(half.folder, steps=256, quiet=True)
    assert len(list(keeping.iterdir())) == 1  # a budget is no part of a program
    assert carry(half) == carry(whole)


def test_damaged_files_are_written_again(keeping, tmp_path):
    small(tmp_path / "first")
    new_process()
    (file,) = keeping.iterdir()
    whole = file.read_bytes()
    middle = len(whole) // 2
    for damaged in (b"", whole[:1000], b"nothing", whole[:middle] + bytes(64) + whole[middle + 64 :]):
        file.write_bytes(damaged)
        small(tmp_path / f"run{len(damaged)}")
        new_process()
        assert file.read_bytes() == whole
        assert list(keeping.iterdir()) == [file]


def test_a_cache_that_cannot_be_written(tmp_path, keeping):
    keeping.parent.mkdir()
    keeping.write_text("a file, not a folder")
    assert small(tmp_path / "run").facts["final"]


def files(keeping, tmp_path, **options):
    """Programs in the folder after a run with these options."""
    small(tmp_path / str(len(list(tmp_path.iterdir()))), **{"steps": 64, **options})
    new_process()
    return len(list(keeping.iterdir()))


def test_what_programs_are_found_by(keeping, tmp_path, monkeypatch):
    assert files(keeping, tmp_path) == 1
    assert files(keeping, tmp_path, seed=3, steps=128) == 1
    assert files(keeping, tmp_path, gamma=0.5) == 2
    assert files(keeping, tmp_path, envs=2) == 3
    assert files(keeping, tmp_path, env_options={"time_limit": 4}) == 4
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
    assert files(keeping, tmp_path) == 5
    monkeypatch.setenv("PHALANX_KERNELS", "off")
    assert files(keeping, tmp_path) == 6
    before = jax.config.values["jax_default_matmul_precision"]
    jax.config.update("jax_default_matmul_precision", "bfloat16")
    try:
        assert files(keeping, tmp_path) == 7
    finally:
        jax.config.update("jax_default_matmul_precision", before)


def test_a_change_of_any_file_of_phalanx_is_noticed(keeping, tmp_path, monkeypatch):
    package = tmp_path / "phalanx"
    shutil.copytree(os.path.dirname(phalanx.__file__), package, ignore=shutil.ignore_patterns("__pycache__"))
    before = kept.find("options").file
    monkeypatch.setattr(phalanx, "__file__", str(package / "__init__.py"))
    time.sleep(0.05)
    monkeypatch.setattr(kept, "_since", time.time())
    assert kept.find("options").file == before
    for file in (package / "algorithms" / "ppo.py", next(package.rglob("*.json"))):
        time.sleep(0.05)
        file.write_text(file.read_text() + "\n")
        assert kept.find("options") is None  # this process may have read the file before
        time.sleep(0.05)
        monkeypatch.setattr(kept, "_since", time.time())
        after = kept.find("options").file
        assert after != before
        before = after
    monkeypatch.setattr(device, "versions", lambda: {"jax": "another"})
    assert kept.find("options").file != before


def test_a_change_while_a_run_starts_is_noticed(keeping, tmp_path, monkeypatch):
    small(tmp_path / "first")
    new_process()
    (file,) = keeping.iterdir()
    file.unlink()
    write = kept.Kept.write

    def changed(*args):
        monkeypatch.setattr(kept, "_since", 0.0)  # as if a file had changed just now
        write(*args)

    monkeypatch.setattr(kept.Kept, "write", changed)
    small(tmp_path / "second")
    threads_end()
    assert not list(keeping.iterdir())


class Mine(Identity):
    """An environment of a user."""


def test_only_what_is_phalanxs_own_is_kept(keeping, tmp_path):
    config = registry.algorithm_config("ippo")()
    assert kept.find(PPO, config, Identity()) is not None
    assert kept.find(PPO, config, Mine()) is None
    assert kept.find(PPO, config, lambda: None) is None
    for name in ("jaxmarl/smax_3m", "jumanji/LevelBasedForaging-v0", "gymnax/CartPole-v1"):
        assert kept.find(PPO, config, registry.make_env(name, {})) is None, name
    assert kept.find(PPO, small) is None  # a function, by its name
    small(tmp_path / "run", env=Mine())
    assert not keeping.exists()


def test_a_program_that_jax_cannot_write_is_not_kept(keeping, tmp_path):
    def called(x):
        return jax.pure_callback(lambda v: np.asarray(v) + 1, x, x)

    programs, shape = kept.Kept(keeping / "programs"), jax.ShapeDtypeStruct((3,), jnp.float32)
    for name, job in (("called", called), ("plain", jnp.sin)):
        compiled = programs.job(name, jax.jit(job)).lower(shape).compile()
        assert compiled(jnp.ones(3))[0] == (2 if name == "called" else jnp.sin(1.0))
    programs.write("carry", "rollout")
    new_process()
    again = kept.Kept(keeping / "programs")
    assert again.shapes == ("carry", "rollout")
    assert isinstance(again.job("plain", None), kept.Traced)
    assert again.job("called", "as it is") == "as it is"


def test_python_programs_keep_nothing(monkeypatch, tmp_path):
    """They may have changed phalanx in memory."""
    monkeypatch.setattr(kept, "_since", 1.0)
    with pytest.raises(phalanx.PhalanxError):
        cli.run(["train", "ippo", "debug/identity", "--preset", str(tmp_path / "none.toml")])
    assert kept._since is None


def test_the_command_keeps_programs(tmp_path):
    environment = {**os.environ, "PHALANX_CACHE": str(tmp_path / "cache")}
    words = [
        "train",
        "ippo",
        "debug/identity",
        "--steps",
        "64",
        "--envs",
        "4",
        "--batch-steps",
        "64",
        "--out",
    ]
    for name in ("first", "second"):
        command = [sys.executable, "-m", "phalanx", *words, str(tmp_path / name)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        assert len(list((tmp_path / "cache" / "traced").iterdir())) == 1

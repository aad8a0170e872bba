"""Pools of host environments: the same episodes whoever steps them, and faults that cost an episode."""

import gc
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import LONG
from troubled import SPEC, Troubled

import phalanx
from phalanx import cli, registry
from phalanx.envs.host.pool import Faults, HostFailure
from phalanx.envs.host.task import HostTask, Placement
from phalanx.errors import PhalanxError

ENVS = 6


def task(workers=1, timeout=60.0, python="", **options):
    where = Placement(workers, python, timeout)
    return HostTask("troubled", "troubled:Troubled", options, where)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Workers find the environment as a user's would be found: beside the program that trains."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


def played(pool, steps=40, after=None):
    """What a pool gives for fixed seeds and actions."""
    rng, found = np.random.default_rng(0), [pool.begin(np.arange(ENVS, dtype=np.uint64))]
    for t in range(steps):
        if after is not None:
            after(t)
        actions = rng.integers(0, 3, (ENVS, 2)).astype(np.int32)
        found.append(pool.step(actions, np.arange(ENVS, dtype=np.uint64) + np.uint64(100 * t)))
    return found


def assert_same(one, two):
    if isinstance(one, tuple):
        for a, b in zip(one, two, strict=True):
            assert_same(a, b)
    else:
        np.testing.assert_array_equal(one, two)


def processes(pool):
    return [each.process for each in pool.processes]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_what_is_played_does_not_depend_on_the_workers(workers):
    alone, pool = task(workers=0).pool(ENVS), task(workers).pool(ENVS)
    assert len(pool.processes) == workers
    for one, two in zip(played(alone), played(pool), strict=True):
        assert_same(one, two)
    running = processes(pool)
    pool.close()
    assert all(each.poll() is not None for each in running)


def test_an_episode_is_as_the_environment_plays_it():
    """Ends, cuts, the last observation and the first of the next episode, against a loop by hand."""
    pool, env, seed = task(workers=0).pool(1), Troubled(), 3
    pool.begin(np.array([seed], np.uint64))
    env.reset(seed)
    length, total, ends = 0, np.zeros(2, np.float32), []
    for t in range(60):
        got = pool.step(np.ones((1, 2), np.int32), np.array([100 + t], np.uint64))
        step = env.step(np.ones(2, np.int32))
        length, total = length + 1, total + step.reward
        over = step.terminated or length == SPEC.time_limit
        assert_same(tuple(x[0] for x in got.step.observation), step.observation)
        assert (got.step.terminated[0], got.step.truncated[0]) == (
            step.terminated,
            over and not step.terminated,
        )
        assert (got.first[0], got.length[0], got.broken[0]) == (over, length, False)
        np.testing.assert_allclose(got.returns[0], total, rtol=1e-5)
        if over:
            ends.append(step.terminated)
            then = env.reset(100 + t)
            assert_same(tuple(x[0] for x in got.observation), then.observation)
            length, total = 0, np.zeros(2, np.float32)
    assert {True, False} == set(ends)


@pytest.mark.parametrize("fault", ["kill", "raise", "leave", "shape", "nan", "mask", "print"])
def test_faults_cost_episodes_and_nothing_else(fault, monkeypatch):
    monkeypatch.setattr(Faults, "MOST_IN_A_ROW", 1000)
    pool = task(workers=2, fault=fault, often=0.1).pool(ENVS)
    steps = played(pool, 60)[1:]
    broken = np.stack([each.broken for each in steps])
    if fault == "print":
        assert not broken.any()
    else:
        assert pool.faults.total >= 20
        assert broken.any(0).all()
    for each in steps:
        assert (each.step.truncated & each.first)[each.broken].all()
        assert not each.step.terminated[each.broken].any()
        assert np.isfinite(each.step.reward).all()
        assert np.isfinite(each.observation.obs).all()
        assert (each.observation.obs[each.broken] == 0).all()  # a new episode
    pool.close()


def test_a_worker_that_hangs_is_replaced(monkeypatch):
    monkeypatch.setattr(Faults, "MOST_IN_A_ROW", 1000)
    pool = task(workers=2, timeout=0.5, fault="hang", often=0.05).pool(ENVS)
    begun = time.monotonic()
    steps = played(pool, 120 if LONG else 30)[1:]
    assert pool.faults.total >= (20 if LONG else 1)
    assert "within 0.5 s" in pool.faults.last
    assert np.stack([each.broken for each in steps]).any()
    assert time.monotonic() - begun < 300
    pool.close()


def test_slow_steps_of_many_environments_are_no_hang():
    """Together they take longer than the time-out of one."""
    pool = task(workers=1, timeout=1.2, seconds=0.45).pool(ENVS)
    played(pool, 1)
    assert pool.faults.total == 0
    pool.close()


@pytest.mark.parametrize("part", [0, 1])
def test_a_killed_worker_is_replaced_at_any_moment(part, monkeypatch):
    """Others play on as if nothing had happened."""
    rng = np.random.default_rng(part)
    moments = set(rng.choice(60, 20, replace=False).tolist())
    pool, alone = task(workers=2).pool(ENVS), task(workers=0).pool(ENVS)
    monkeypatch.setattr(Faults, "MOST_IN_A_ROW", 1000)

    def kill(t):
        if t in moments:
            processes(pool)[0].kill()

    found = played(pool, 60, kill)[1:]
    assert pool.faults.total == len(moments)
    unhurt = [row for share in pool.shares[1] for row in share]
    for one, two in zip(found, played(alone, 60)[1:], strict=True):
        np.testing.assert_array_equal(one.step.reward[unhurt], two.step.reward[unhurt])
    broken = np.stack([each.broken for each in found])
    assert not broken[:, unhurt].any()
    assert broken.any(1).sum() == len(moments)
    pool.close()


def test_failures_in_a_row_end_the_run():
    for workers in (0, 1):
        pool = task(workers, fault="raise", often=1.0).pool(ENVS)
        with pytest.raises(HostFailure, match=r"troubled failed 20 times in a row, .* a unit is missing"):
            played(pool, 20)
        pool.close()


def test_what_cannot_be_started_is_one_line(tmp_path):
    with pytest.raises(PhalanxError, match="cannot start a worker with /no/python: No such file"):
        _ = task(python="/no/python").spec
    stub = tmp_path / "python"
    stub.write_text("#!/bin/sh\necho no numpy here\nexit 1\n")
    stub.chmod(0o755)
    with pytest.raises(PhalanxError, match=r"no worker could be started with .* no numpy here"):
        _ = task(python=str(stub)).spec
    wrong = HostTask("wrong", "troubled:Nothing", {}, Placement(1))
    with pytest.raises(PhalanxError, match="wrong cannot be made: AttributeError"):
        _ = wrong.spec


def test_no_worker_stays_when_the_pool_is_forgotten():
    pool = task(workers=2).pool(ENVS)
    running = processes(pool)
    del pool
    gc.collect()
    assert all(each.poll() is not None for each in running)


@pytest.mark.parametrize("moment", np.random.default_rng(2).choice(60, 20 if LONG else 1, replace=False))
def test_a_pool_whose_worker_cannot_be_started_again_is_closed(moment):
    """A descriptor is closed once: its number may be somebody else's by then."""
    pool = task(workers=2).pool(ENVS)

    def lose_python(t):
        if t == moment:
            pool.python = "/no/python"
            processes(pool)[t % 2].kill()

    with pytest.raises(PhalanxError, match="cannot start a worker with /no/python"):
        played(pool, 60, lose_python)
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    pool.close()
    for descriptor in taken:
        os.close(descriptor)  # OSError if the pool had closed it


def test_file_descriptors_do_not_grow(monkeypatch):
    pool, folder = task(workers=1, fault="kill", often=0.05).pool(ENVS), Path("/proc/self/fd")
    monkeypatch.setattr(Faults, "MOST_IN_A_ROW", 1000)
    played(pool, 5)
    before = len(list(folder.iterdir()))
    played(pool, 60)
    assert pool.faults.total > 5
    assert len(list(folder.iterdir())) == before
    pool.close()


def test_workers_know_no_jax():
    pool = task(workers=1).pool(2)
    maps = Path(f"/proc/{processes(pool)[0].pid}/maps").read_text()
    assert "numpy" in maps
    assert "jaxlib" not in maps
    pool.close()


OPTIONS = {
    "steps": 512,
    "batch_steps": 128,
    "envs": 4,
    "eval_every": 256,
    "eval_episodes": 4,
    "final_episodes": 4,
}


def test_a_run_survives_its_workers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).parent)
    run = phalanx.train(
        "ippo",
        "troubled:Troubled",
        out=tmp_path / "run",
        hidden=8,
        workers=2,
        env_options={"fault": "kill", "often": 0.02},
        **OPTIONS,
    )
    facts = run.facts
    assert facts["status"] == "finished"
    assert facts["faults"] > 0
    assert run.metrics()[-1]["env_steps"] == 512
    assert run.metrics()[-1]["faults"] > 0
    said = capsys.readouterr().out
    assert "time in training: environments" in said
    assert phalanx.evaluate(run.folder, episodes=4)["episodes"] == 4
    resumed = phalanx.resume(run.folder, 768)
    assert resumed.facts["status"] == "finished"


def test_a_run_that_cannot_go_on_is_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.setattr(Faults, "MOST_IN_A_ROW", 3)
    with pytest.raises(PhalanxError, match="failed 3 times in a row"):
        phalanx.train(
            "ippo",
            "troubled:Troubled",
            out=tmp_path / "run",
            hidden=8,
            workers=1,
            quiet=True,
            env_options={"fault": "raise", "often": 0.3},
            **OPTIONS | {"eval_episodes": 1},
        )
    facts = phalanx.api.Run(tmp_path / "run").facts
    assert facts["status"].startswith("failed: troubled:Troubled failed 3 times")
    assert facts["faults"] >= 3


def test_workers_are_refused_where_there_are_none_to_start():
    with pytest.raises(PhalanxError, match=r"workers is for Python environments.* battle/3m is compiled"):
        phalanx.train("ippo", "battle/3m", workers=2)
    with pytest.raises(PhalanxError, match="max_velocity"):
        _ = registry.make_env("gym/CartPole-v1", {"max_velocity": 3}).spec


def test_an_untrained_team_is_evaluated_and_checked_by_the_workers_that_are_asked_for(monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).parent)
    evaluate, check = (
        ["eval", "random", "troubled:Troubled", "--episodes", "2"],
        ["check-env", "troubled:Troubled"],
    )
    for command in (evaluate, check):
        assert cli.run([*command, "--workers", "0"]) == 0
    with pytest.raises(PhalanxError, match="cannot start a worker with /no/python"):
        cli.run([*evaluate, "--worker-python", "/no/python"])
    assert cli.run([*check, "--worker-python", "/no/python"]) == 2
    assert "cannot start a worker with /no/python" in capsys.readouterr().err
    with pytest.raises(PhalanxError, match="workers is for Python environments"):
        cli.run(["check-env", "switch/2", "--workers", "1"])


def test_check_env_says_what_is_wrong(monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).parent)
    assert cli.run(["check-env", "troubled:Troubled"]) == 0
    assert cli.run(["check-env", "troubled:Troubled", "--env.fault", "nan", "--env.often", "0.5"]) == 2
    assert "playing it fails at step" in capsys.readouterr().err


def test_another_python_needs_nothing_of_ours(tmp_path):
    """A worker in a Python that has numpy and neither phalanx nor JAX on its path."""
    import numpy

    stub = tmp_path / "python"
    site = tmp_path / "site"
    site.mkdir()
    for name in ("numpy", "numpy.libs"):
        source = Path(numpy.__file__).parents[1] / name
        if source.exists():
            (site / name).symlink_to(source)
    (site / "troubled.py").symlink_to(Path(__file__).parent / "troubled.py")
    stub.write_text(f'#!/bin/sh\nexport PYTHONPATH={site}\nexec {sys.executable} -S "$@"\n')
    stub.chmod(0o755)
    described = task(python=str(stub)).spec
    assert described.agents == SPEC.agents

"""States of hosted environments in checkpoints: where they can be had, a resumed run is the same run."""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_run import as_users_have_it, resume_process, rows
from test_workers import ENVS, assert_same, importable, task  # noqa: F401  (the fixture is used by all)

import phalanx
from phalanx.api import Run
from phalanx.envs.host import rows as host_rows
from phalanx.envs.host.pool import HostFailure, LocalPool, Pool
from phalanx.training import checkpoint

SEEDS = np.arange(ENVS, dtype=np.uint64)


def play(pool, steps, start=0):
    """Steps with actions and seeds of their number alone."""
    found = []
    for t in range(start, start + steps):
        actions = np.random.default_rng(t).integers(0, 3, (ENVS, 2)).astype(np.int32)
        found.append(pool.step(actions, SEEDS + np.uint64(100 * t)))
    return found


def pool_at(steps=5, workers=0, **options):
    pool = task(workers, **options).pool(ENVS)
    pool.begin(SEEDS)
    played = play(pool, steps)
    return pool, played


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 1), (1, 0)])
def test_a_resumed_pool_plays_on_whoever_steps_it(before, after):
    """Through ends and time limits, with returns and lengths of whole episodes."""
    pool, played = pool_at(20, before, state="given")
    states = pool.get_states()
    assert all(isinstance(state, bytes) for state in states)
    went_on = play(pool, 30, 20)
    other = task(after, state="given").pool(ENVS)
    seen, continued = other.resume(SEEDS, states)
    assert continued.all()
    assert_same(seen, played[-1].observation)
    for one, two in zip(went_on, play(other, 30, 20), strict=True):
        assert_same(one, two)
    pool.close(), other.close()


def test_a_pool_that_cannot_ask_begins_anew():
    """What a pool need not define."""
    pool, _ = pool_at()
    assert Pool.get_states(pool) == pool.get_states() == [None] * ENVS
    for resume in (Pool.resume, type(pool).resume):
        seen, continued = resume(
            pool, SEEDS, [b"not read"] * ENVS if resume is Pool.resume else [None] * ENVS
        )
        assert not continued.any()
        assert (seen.obs == 0).all()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("state", "said"),
    [("raise", "ValueError: no state now"), ("leave", "SystemExit: 3"), ("unpicklable", "lambda")],
)
def test_a_state_that_cannot_be_given_is_said_once(workers, state, said, caplog):
    pool, _ = pool_at(workers=workers, state=state)
    with caplog.at_level(logging.WARNING):
        assert pool.get_states() == [None] * ENVS == pool.get_states()
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "states of troubled cannot be saved" in line and said in line]) == 1
    assert pool.faults.total == 0
    assert not any(step.broken.any() for step in play(pool, 3))
    pool.close()


def test_states_that_are_too_large_are_left_out(caplog):
    pool, _ = pool_at(workers=2, state="large")
    assert pool.get_states() == [None] * ENVS
    assert "they take more than 64 MB" in caplog.text
    assert host_rows.MOST_STATES == 64 * 2**20
    pool.close()


def test_a_worker_that_dies_of_giving_its_state_is_replaced(caplog):
    pool, _ = pool_at(workers=2, state="kill")
    assert pool.get_states() == [None] * ENVS
    assert pool.faults.total == 2  # a worker each
    assert "SIGKILL" in pool.faults.last
    step = play(pool, 1)[0]
    assert step.broken.all()
    assert not play(pool, 1)[0].broken.any()
    pool.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_that_is_refused_costs_the_episode(workers, caplog):
    given, _ = pool_at(state="given")
    states = [*given.get_states()[:3], b"broken", None, given.get_states()[5]]
    pool = task(workers, state="given").pool(ENVS)
    seen, continued = pool.resume(SEEDS, states)
    np.testing.assert_array_equal(continued, [True, True, True, False, False, True])
    assert (seen.obs[~continued] == 0).all()
    assert (seen.obs[continued] != 0).all()
    assert "saved states of troubled cannot be restored" in caplog.text
    pool.close()
    pool = task(workers, state="refused").pool(ENVS)
    assert not pool.resume(SEEDS, given.get_states())[1].any()
    assert "KeyError: 'of another version'" in caplog.text
    fresh = task(workers).pool(ENVS)
    fresh.begin(SEEDS)
    for one, two in zip(play(pool, 5), play(fresh, 5), strict=True):
        assert_same(one, two)
    pool.close(), fresh.close()


def test_a_worker_that_dies_of_a_state_begins_anew():
    given, _ = pool_at(state="given")
    pool = task(2, state="deadly").pool(ENVS)
    _, continued = pool.resume(SEEDS, given.get_states())
    assert not continued.any()
    assert 2 <= pool.faults.total <= 4
    play(pool, 3)
    pool.close()


# Runs

OPTIONS = {
    "envs": 4,
    "batch_steps": 128,
    "hidden": 8,
    "network": "gru",
    "last_action": True,
    "preset": "none",
    "eval_every": 256,
    "eval_episodes": 4,
    "final_episodes": 4,
}


def start(out, **more):
    """A training of CartPole in a process, as a user would start it."""
    options = {**OPTIONS, "steps": 2560, **more}
    words = [word for name, value in options.items() for word in _option(name, value)]
    command = [sys.executable, "-m", "phalanx.cli", "train", "ippo", "gym/CartPole-v1", "--out", str(out)]
    return subprocess.Popen(
        [*command, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=as_users_have_it(),
    )


def _option(name, value):
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def carry(out):
    with np.load(checkpoint.choose(out / "checkpoints").path / checkpoint.ARRAYS) as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files}


def test_killed_and_resumed_with_other_workers_equals_never_stopped_to_the_bit(tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    process = start(killed, workers=2)
    while not (killed / "metrics.jsonl").exists() or (killed / "metrics.jsonl").read_text().count("\n") < 4:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    facts = Run(killed).facts
    assert (facts["status"], facts["resume"]) == ("running", "exact")
    said = resume_process(killed, "--workers", "1")
    assert "begin again" not in said
    whole = start(straight, workers=0)
    output, _ = whole.communicate()
    assert whole.returncode == 0, output
    assert rows(Run(straight)) == rows(Run(killed))
    assert carry(straight) == carry(killed)
    resumed = Run(killed).facts["resumed"][-1]
    assert resumed["episodes_begun_again"] == 0
    assert resumed["env_steps"] > 0


def trained(out, monkeypatch, **more):
    monkeypatch.chdir(Path(__file__).parent)
    options = {**OPTIONS, "steps": 256, "eval_every": 128, "workers": 0, "quiet": True, **more}
    return phalanx.train("ippo", "troubled:Troubled", out=out, **options)


def test_an_environment_without_a_state_begins_anew_and_the_run_says_so(tmp_path, monkeypatch, capsys):
    run = trained(tmp_path / "run", monkeypatch)
    assert run.facts["resume"] == "replayable"
    assert not list(run.folder.glob("checkpoints/*/environments.npz"))
    phalanx.resume(run.folder, 384)
    assert "4 running episodes begin again" in " ".join(capsys.readouterr().out.split())
    assert run.facts["resumed"][-1]["episodes_begun_again"] == 4


@pytest.mark.parametrize("how", ["changed", "removed"])
def test_states_that_are_damaged_on_disk_are_not_used(tmp_path, monkeypatch, how, caplog):
    run = trained(tmp_path / "run", monkeypatch, env_options={"state": "given"})
    assert run.facts["resume"] == "exact"
    for file in run.folder.glob("checkpoints/*/environments.npz"):
        os.remove(file) if how == "removed" else file.write_bytes(b"something else")
    phalanx.resume(run.folder, 384, quiet=True)
    assert "environments.npz is not what was written: running episodes begin again" in caplog.text
    assert run.facts["resumed"][-1]["episodes_begun_again"] == 4
    assert run.facts["status"] == "finished"


def test_a_run_that_failed_keeps_no_states_of_a_later_moment(tmp_path, monkeypatch):
    """Its environments have played on since the update that is saved."""
    receive, calls = LocalPool.receive, []

    def fails(pool, part):
        calls.append(part)
        if (
            len(calls) == 55
        ):  # an evaluation of at most 12 steps, an update of 32, and in the middle of another
            raise HostFailure("enough")
        return receive(pool, part)

    monkeypatch.setattr(LocalPool, "receive", fails)
    with pytest.raises(HostFailure):
        trained(tmp_path / "run", monkeypatch, eval_every=256, env_options={"state": "given"})
    first, last = checkpoint.listing(tmp_path / "run" / "checkpoints")
    assert (first.updates, last.updates) == (0, 1)
    assert first.states_sha256
    assert last.states_sha256 is None
    assert Run(tmp_path / "run").facts["resume"] == "replayable"

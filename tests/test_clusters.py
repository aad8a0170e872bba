"""Experiments whose runs are made in a cluster: by SLURM (submitit's local jobs), and by Ray on two nodes."""

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_experiment import ONE_ENV, evaluations, rows, write
from test_run import assert_same_end

from phalanx import cli, experiment
from phalanx.api import Run
from phalanx.errors import PhalanxError
from phalanx.experiment import elsewhere, places
from phalanx.experiment.cell import Cell
from phalanx.experiment.elsewhere import Job, follow, stop_file
from phalanx.experiment.live_table import latest, live_table, standing

ROOT = Path(__file__).parents[1]
ONE_ARM = ONE_ENV[: ONE_ENV.index('[arms."the other"]')]
# Longer than a machine needs to be lost in the middle.
LONGER = ONE_ARM.replace("steps = 640", "steps = 6400")


def start(path, out, *words, mark=""):
    environment = dict(os.environ, PHALANX_TEST_MARK=mark, PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", "phalanx", "experiment", str(path), "--out", str(out), *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def trainings(mark):
    """The processes that train a run which was started with this mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            if b"experiment.child" in words and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def wait_until(true, process, seconds=300.0):
    end = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory):
    """The run of an experiment on this machine, never interrupted."""
    folder = tmp_path_factory.mktemp("alone")
    process = start(write(folder, LONGER), folder / "out")
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return folder / "out" / "one" / "debug-identity"


def assert_ended_alike(alone, other):
    assert_same_end(alone, other)
    assert rows(Run(alone)) == rows(Run(other))


def test_slurm_restarts_a_job_that_is_lost_and_stops_when_asked(left_alone, tmp_path):
    path, out, mark = write(tmp_path, LONGER), tmp_path / "out", secrets.token_hex(8)
    process = start(path, out, "--slurm", "local", mark=mark)
    wait_until(lambda: evaluations(out) > 3, process)
    # The whole job, as when its machine is gone: submitit's processes and ours.
    (training,) = trainings(mark)
    keeper = int(Path(f"/proc/{training}/stat").read_text().rpartition(")")[2].split()[1])
    for number in (keeper, training):
        os.kill(number, signal.SIGKILL)
    before = evaluations(out)
    wait_until(lambda: evaluations(out) > before + 2, process)
    process.terminate()
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "stopped and saved; continue with" in said
    folder = out / "one" / "debug-identity"
    assert Run(folder).facts["status"] == "interrupted"
    assert "was lost; it is submitted again" in folder.with_name("debug-identity.log").read_text()
    assert trainings(mark) == []
    assert not list(out.rglob("*.stop"))
    assert start(path, out, "--slurm", "local").wait(300) == 0
    assert_ended_alike(left_alone, folder)


def test_ray_moves_a_run_whose_machine_is_lost(left_alone, tmp_path, monkeypatch):
    mark = secrets.token_hex(8)
    for name, value in (
        ("RAY_AUTH_MODE", "token"),
        ("RAY_AUTH_TOKEN", secrets.token_hex(32)),
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("PHALANX_TEST_MARK", mark),
        ("PYTHONPATH", str(ROOT)),
    ):
        monkeypatch.setenv(name, value)
    nodes = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "two_nodes.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert nodes.stdin
    assert nodes.stdout
    try:
        address = nodes.stdout.readline().strip()
        path, out = write(tmp_path, LONGER), tmp_path / "out"
        process = start(path, out, "--ray", address, mark=mark)
        wait_until(lambda: evaluations(out) > 3, process)
        (training,) = trainings(mark)
        nodes.stdin.write(f"{training}\n")
        nodes.stdin.flush()
        assert nodes.stdout.readline() == "removed\n"
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
    finally:
        nodes.stdin.close()
        nodes.wait(60)
    folder = out / "one" / "debug-identity"
    assert "was lost; it is submitted again" in folder.with_name("debug-identity.log").read_text()
    assert_ended_alike(left_alone, folder)
    assert trainings(mark) == []


def test_a_run_that_is_lost_again_and_again_fails(tmp_path, capsys):
    """Three times without anything new; what was saved since begins the count anew."""
    folder, lock = tmp_path / "run", tmp_path / ".run.lock"
    submitted = []

    def submit():
        submitted.append(1)
        if len(submitted) == 3:
            (folder / "checkpoints" / "0000000004").mkdir(parents=True)
            (folder / "checkpoints" / "0000000004" / "manifest.json").write_text("{}")
        return Job(lambda: True, lambda: None, lambda: None)

    assert follow(submit, folder, lock, every=0.01) == 1
    assert len(submitted) == 2 + elsewhere.TRIES
    assert "lost 3 times in a row" in capsys.readouterr().out
    assert follow(lambda: Job(lambda: True, lambda: 2, lambda: None), folder, lock) == 2


def test_a_stop_reaches_what_is_queued_and_what_runs(tmp_path):
    lock, cancelled = tmp_path / ".run.lock", []

    def submit():
        os.kill(os.getpid(), signal.SIGTERM)
        return Job(lambda: bool(cancelled), lambda: None, lambda: cancelled.append(stop_file(lock).exists()))

    assert follow(submit, tmp_path / "run", lock, every=0.01) == 130
    assert cancelled == [True]
    assert not stop_file(lock).exists()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--slurm", "--ray", "auto"], "--slurm or --ray, not both"),
        (["--slurm", "here"], "--slurm takes nothing or 'local', not 'here'"),
        (["--ray", "auto", "--resources", "gpus=1"], "Ray knows no resource 'gpus': give one of num_cpus"),
        (["--slurm", "--resources", "long"], "--resources takes NAME=VALUE"),
        (["--resources", "num_gpus=1"], "--resources is for --slurm and --ray"),
    ],
)
def test_mistakes_are_said_in_one_line(tmp_path, words, match):
    with pytest.raises(PhalanxError, match=match):
        cli.run(["experiment", str(write(tmp_path, ONE_ARM)), "--out", str(tmp_path / "out"), *words])


@pytest.mark.parametrize(("option", "package"), [("slurm", "submitit"), ("ray", "ray")])
def test_missing_packages_are_named(monkeypatch, option, package):
    monkeypatch.setattr(places.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PhalanxError, match=rf"--{option} needs the package {package}: pip install 'phalanx"):
        getattr(experiment, option)("auto", {})


def test_what_a_cluster_refuses_is_said_and_noted(tmp_path):
    """Such as SLURM where there is none."""
    process = start(write(tmp_path, ONE_ARM), tmp_path / "out", "--slurm")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert re.search("failed: one on debug/identity: SLURM does not take this: .*srun", said), said


def test_the_table_shows_how_runs_stand(left_alone, tmp_path):
    this = experiment.read(write(tmp_path, LONGER), tmp_path / "out")
    (cell,) = this.cells
    runner = experiment.Runner(this, 1, print)
    assert standing(runner, cell) == "waiting"
    assert latest(cell) == {}
    runner.submitted.add(cell.name)
    assert standing(runner, cell) == "queued"
    with experiment_lock(cell):
        assert standing(runner, cell) == "running"
    runner.failures[cell.name] = "no"
    assert standing(runner, cell) == "failed"
    seen = latest(Cell(*cell[:-1], left_alone))
    last = [row for row in Run(left_alone).metrics() if row["env_steps"] == 6400 and "eval/return" in row]
    assert seen["env_steps"] == 6400
    assert seen["eval/return"] == pytest.approx(sum(row["eval/return"] for row in last) / len(last))
    assert live_table(runner).row_count == 1


def experiment_lock(cell):
    from phalanx.experiment.lock import lock

    cell.lock.parent.mkdir(parents=True, exist_ok=True)
    return lock(cell.lock)

"""Experiments: files, plans, failures, interrupts, and references."""

import json
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import LONG
from test_run import assert_same_end, rows

from phalanx import cli, experiment, registry, reproduce
from phalanx.api import Run
from phalanx.errors import PhalanxError
from phalanx.experiment.lock import is_locked, lock
from phalanx.report import compare

ROOT = Path(__file__).parents[1]
SMALL = """
[experiment]
title = "Small"
envs = ["debug/identity", "switch/2"]

[all]
steps = 640
seeds = 2
envs = 4
eval_every = 64
eval_episodes = 4
final_episodes = 4
tensorboard = false
batch_steps = 64
hidden = 8
epochs = 2
minibatches = 2

[on."switch/2"]
env = { time_limit = 20 }

[arms.one]
algorithm = "ippo"
preset = "none"

[arms."the other"]
algorithm = "ippo"
preset = "none"
share = "agent"
"""
ONE_ENV = SMALL.replace(', "switch/2"', "").replace('[on."switch/2"]\nenv = { time_limit = 20 }\n', "")


def write(folder, text=SMALL):
    path = folder / "small.toml"
    path.write_text(text)
    return path


def test_a_file_is_arms_times_environments(tmp_path):
    cells = experiment.read(write(tmp_path), tmp_path / "out").cells
    assert [(cell.arm, cell.env) for cell in cells] == [
        ("one", "debug/identity"),
        ("the other", "debug/identity"),
        ("one", "switch/2"),
        ("the other", "switch/2"),
    ]
    last = cells[-1]
    assert last.folder == tmp_path / "out" / "the-other" / "switch-2"
    words = " ".join(last.command)
    assert words.startswith("train ippo switch/2 --preset none --steps 640 --seeds 2")
    assert "--no-tensorboard" in words
    assert "--share agent --env.time-limit 20 --out" in words
    assert "--env.time-limit" not in cells[0].command


def test_the_command_of_a_cell_gives_its_configuration(tmp_path, monkeypatch):
    cell = experiment.read(write(tmp_path), tmp_path / "out").cells[-1]
    begun = []
    monkeypatch.setattr("phalanx.api.train_setup", lambda setup, *_: begun.append(setup) or Run(tmp_path))
    assert cli.run(cell.command) == 0
    assert experiment.settings(begun[0]) == experiment.settings(cell.setup())


def test_a_preset_may_be_for_all_for_an_environment_or_for_an_arm(tmp_path):
    text = SMALL.replace("[all]", '[all]\npreset = "for_all"', 1)
    text = text.replace('[on."switch/2"]', '[on."switch/2"]\npreset = "for_switch"')
    text = text.replace('[arms.one]\nalgorithm = "ippo"\npreset = "none"', '[arms.one]\nalgorithm = "ippo"')
    presets = [cell.preset for cell in experiment.read(write(tmp_path, text), tmp_path / "out").cells]
    assert presets == ["for_all", "none", "for_switch", "none"]


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("[all]", "[al]", r"unknown table \[al\]. Did you mean all"),
        ("title =", "tilte =", "unknown option 'tilte'.*title"),
        ("hidden = 8", "hiden = 8", "one on debug/identity: ippo has no option 'hiden'. Did you mean hidden"),
        ("hidden = 8", "hidden = -8", "hidden must be at least"),
        ("envs = 4", "envs = 48", "one on debug/identity: .*cannot be cut into 48 environments"),
        ('algorithm = "ippo"\npreset = "none"\nshare', "share", r"\[arms.the other\] must say algorithm"),
        ("[all]", '[all]\nalgorithm = "mappo"', r"algorithm belongs to an arm.*not in \[all\]"),
        ("[all]", '[on]\n"debug/identity" = 3\n[all]', r"\[on.'debug/identity'\] must be a table of options"),
        ("env = { time_limit = 20 }", "env = 3", "env in it one too"),
        ("[all]", "[all]\npreset = 3", r"preset in \[all\] must be a name or FILE.toml, not 3"),
        ('[on."switch/2"]', '[on."switch/3"]', "is for an environment that is not in envs"),
        ("[all]", '[bounds]\n"switch/2" = [3, 1]\n[all]', "the lower first"),
    ],
)
def test_mistakes_in_a_file_are_said_in_one_line(tmp_path, old, new, match):
    assert old in SMALL
    path = write(tmp_path, SMALL.replace(old, new, 1))
    with pytest.raises(PhalanxError, match=match):
        experiment.plan(experiment.read(path, tmp_path / "out"), measure=False)


def ready(path):
    """Whether all algorithms that a file names are here."""
    return all(arm["algorithm"] in registry.algorithms() for arm in registry.read_toml(path)["arms"].values())


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_the_experiments_that_come_along_can_be_run(path, tmp_path):
    this = experiment.read(path, tmp_path)
    if not ready(path):
        pytest.skip("its algorithms are not here yet")
    for cell in this.cells:
        cell.setup()


def start(path, out):
    command = [sys.executable, "-m", "phalanx", "experiment", str(path), "--out", str(out), "--jobs", "2"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def evaluations(out):
    return sum(file.read_text().count("\n") for file in out.glob("*/*/metrics.jsonl"))


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory):
    """A small experiment, never interrupted."""
    folder = tmp_path_factory.mktemp("alone")
    process = start(write(folder, ONE_ENV), folder / "out")
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "2 runs" in said
    return folder


def test_interrupted_at_random_moments_it_ends_as_if_left_alone(left_alone, tmp_path):
    """Killed, all processes or the experiment without its runs, or asked to stop; then left to end."""
    path, out = write(tmp_path, ONE_ENV), tmp_path / "out"
    how_to_stop = ("kill all", "kill the experiment", "ask")
    stops = 3 * how_to_stop if LONG else [random.choice(how_to_stop)]
    for how in stops:
        process = start(path, out)
        target = evaluations(out) + random.randint(1, 12)
        while evaluations(out) < target and process.poll() is None:
            time.sleep(0.005)
        if how == "kill all":
            os.killpg(process.pid, signal.SIGKILL)
        elif how == "kill the experiment":
            process.kill()  # its runs live on, and those of the next experiment wait for them
        else:
            process.terminate()  # the experiment alone: it tells its runs
        said, _ = process.communicate()
        if how == "ask" and process.returncode:
            assert process.returncode == 130
            assert "continue with:  phalanx experiment" in said
    process = start(path, out)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    for arm in ("one", "the-other"):
        alone, stopped = (each / "out" / arm / "debug-identity" for each in (left_alone, tmp_path))
        assert_same_end(alone, stopped)
        assert rows(Run(alone)) == rows(Run(stopped))
        assert Run(alone).facts["final"] == Run(stopped).facts["final"]


def test_what_is_done_is_skipped_and_a_changed_file_refused(left_alone, capsys, monkeypatch):
    monkeypatch.setattr(experiment.Runner, "child", lambda *_: pytest.fail("nothing is to be made"))
    path, out = left_alone / "small.toml", left_alone / "out"
    assert cli.run(["experiment", str(path), "--out", str(out)]) == 0
    assert f"phalanx compare {out}" in capsys.readouterr().out
    changed = write(
        left_alone / "out", ONE_ENV.replace('preset = "none"\nshare', 'preset = "none"\nlr = 1e-4\nshare')
    )
    with pytest.raises(PhalanxError, match=r"the-other.debug-identity was made with lr = .*now says 0.0001"):
        cli.run(["experiment", str(changed), "--out", str(out)])


def test_an_experiment_is_compared_by_its_folder(left_alone, capsys):
    assert cli.run(["compare", str(left_alone / "out")]) == 0
    assert "one and the other" in re.sub("the other and one", "one and the other", capsys.readouterr().out)
    assert (left_alone / "out" / "report" / "report.html").exists()


def test_a_failure_is_written_down_and_the_others_go_on(tmp_path, capsys, monkeypatch):
    """With a stand-in for the processes: the first arm's always fails."""
    from test_compare import write_run

    def child(self, words, log, lock):
        folder = Path(words[words.index("--out") + 1])
        if "one" in folder.parts:
            log.write_text("something\nphalanx: no memory left\n")
            return 2
        write_run(folder, "ippo", words[2])
        return 0

    monkeypatch.setattr(experiment.Runner, "child", child)
    path, out = write(tmp_path), tmp_path / "out"
    assert cli.run(["experiment", str(path), "--out", str(out)]) == 1
    assert "failed: one on switch/2: no memory left" in capsys.readouterr().err
    told = {
        (cell["arm"], cell["env"]): cell
        for cell in json.loads((out / "experiment.json").read_text())["cells"]
    }
    assert told["one", "switch/2"]["failed"] == "no memory left"
    assert told["the other", "switch/2"]["state"] == "done"
    with pytest.raises(PhalanxError, match="there is only one arm"):
        compare.gather([str(out)])


def test_what_was_killed_before_its_first_checkpoint_is_cleared_and_nothing_else(tmp_path):
    for name in ("config.toml", "notes.txt"):
        (tmp_path / name).write_text("")
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
    experiment.clear(tmp_path)
    assert (tmp_path / "notes.txt").exists()
    (tmp_path / "notes.txt").unlink()
    experiment.clear(tmp_path)
    assert not tmp_path.exists()


# Locks

HOLD = """
import sys, time
from pathlib import Path
from phalanx.experiment.lock import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_keeps_others_out_until_its_process_ends_or_is_killed(tmp_path):
    path = tmp_path / ".cell.lock"
    assert not is_locked(path)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    locked = is_locked(path)
    holder.kill()
    holder.communicate()
    assert locked
    with lock(path, every=0.01):
        assert is_locked(path)
    assert not is_locked(path)


def test_a_lock_on_windows_is_made_by_msvcrt(tmp_path, monkeypatch):
    """With a stand-in for the module, which raises what the real one does when a lock is taken."""
    taken = []

    def locking(file, mode, count):
        assert (mode, count) == (2, 1)
        if taken:
            raise PermissionError(13, "Permission denied")
        taken.append(file)

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    monkeypatch.setitem(sys.modules, "fcntl", None)  # importing it would fail
    monkeypatch.setattr(sys, "platform", "win32")
    windows = runpy.run_path(str(ROOT / "phalanx" / "experiment" / "lock.py"))
    path = tmp_path / ".cell.lock"
    with windows["lock"](path):
        assert windows["is_locked"](path)
        assert len(taken) == 1


def test_a_run_waits_for_its_lock_and_then_sees_what_is_left_to_do(tmp_path):
    """The other process finishes the cell meanwhile: nothing is trained a second time."""
    from test_compare import write_run

    folder, path = tmp_path / "cell", tmp_path / ".cell.lock"
    words = ["train", "nothing-of-this-name", "switch/2", "--out", str(folder)]
    command = [sys.executable, "-m", "phalanx.experiment.child", str(path), *words]
    with lock(path):
        waiting = subprocess.Popen(command)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=6)  # without the lock it has failed by then
        write_run(folder)
    assert waiting.wait() == 0
    shutil.rmtree(folder)
    failed = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert failed.returncode == 2
    assert "nothing-of-this-name" in failed.stderr


# References


def test_every_reference_can_be_run_again_and_is_of_these_rules(tmp_path):
    assert registry.references()
    for name in registry.references():
        reference = reproduce.read(name)
        cell = reproduce.again(reference, None, None, tmp_path)
        this = cell.setup()
        assert this.env.spec.version == reference["env_version"], (
            f"{name} was made with other rules: make it again"
        )
        assert reproduce.changes(reference, experiment.settings(this)) == []
        assert not set(this.seeds) & set(reference["seeds"])


REFERENCE = {
    "scores": [0.95, 0.97, 0.96, 0.99],
    "untrained": [0.0],
    "metric": "eval/win_rate",
    "episodes": 256,
    "seeds": [0, 1, 2, 3],
}


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([0.96, 0.95, 0.98, 0.97], "agree"),
        ([0.7, 0.72, 0.69, 0.71], "differ"),
        ([0.2, 0.99, 0.99, 0.9], "cannot tell"),
    ],
)
def test_new_seeds_agree_or_differ(scores, verdict):
    judged = reproduce.judge(REFERENCE, scores)
    assert judged.sentence.startswith(f"{verdict}: greedy win rate {np.mean(scores):.3g} with 4 fresh seeds")
    assert judged.agree == (verdict == "agree")


def test_equal_win_rates_still_leave_the_error_of_their_episodes():
    judged = reproduce.judge(REFERENCE | {"scores": [1.0] * 4}, [1.0] * 4)
    assert judged.sentence.startswith("agree: ")
    assert "difference +0 [-0.00" in judged.sentence


def test_a_reference_is_reproduced_from_nothing(left_alone, tmp_path, monkeypatch, capsys):
    cell = experiment.read(left_alone / "small.toml", left_alone / "out").cells[0]
    reference = reproduce.describe(cell, compare.read(cell.folder))
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "small.json").write_text(json.dumps(reference))
    monkeypatch.setattr(registry, "references", lambda: {"small": ""})
    monkeypatch.setattr(reproduce, "FOLDER", tmp_path / "references")
    code = cli.run(["reproduce", "small", "--out", str(tmp_path / "run")])
    said = capsys.readouterr().out.strip().splitlines()[-1]
    assert said.split(":")[0] == {0: "agree"}.get(code, said.split(":")[0])
    assert "with 2 fresh seeds" in said
    assert Run(tmp_path / "run").facts["seeds"] == [2, 3]
    with pytest.raises(PhalanxError, match="no reference result 'smal'"):
        cli.run(["reproduce", "smal"])

"""Plans of experiments, and `benchmarks/plans.py`, which compares them with runs."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_experiment import ONE_ENV, write

from phalanx import cli, experiment
from phalanx.errors import PhalanxError
from phalanx.experiment import planner, trial
from phalanx.training.footprint import memory_parts, require_disk

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import plans

ONE_ARM = ONE_ENV.split('[arms."the other"]')[0]


def test_a_plan_says_how_long_from_a_measured_rate(tmp_path, capsys):
    text = ONE_ENV.replace("steps = 640", "steps = 64e4").split('[arms."the other"]')[0]
    assert cli.run(["experiment", str(write(tmp_path, text)), "--plan", "--out", str(tmp_path / "out")]) == 0
    said, progress = capsys.readouterr()
    assert progress == "trying run 1 of 1: one on debug/identity\n"
    assert "2 x 640k" in said
    assert "1.28M" in said
    assert "?" not in said
    assert not (tmp_path / "out").exists()
    # On a CPU memory is that of the process; the arrays of so small a run are 20 kB of it.
    size, unit = re.findall(r"([\d.]+) ([kMG])B", said)[0]
    assert float(size) * {"k": 1e3, "M": 1e6, "G": 1e9}[unit] > 1e8


def test_a_plan_has_a_price():
    def row(state, seconds):
        return experiment.Planned(None, state, 1, 1, 0, 0, seconds)

    rows = [row("new", 3600.0), row("begun", 5400.0), row("done", 0.0)]
    assert experiment.bill(rows, 2, 3.0) == "1.25 hours at 3 an hour: 3.75"
    assert "not known" in experiment.bill([*rows, row("new", None)], 2, 3.0)
    for words in (["--price", "2"], ["--plan", "--price", "0"]):
        with pytest.raises(PhalanxError, match=r"--price"):
            cli.run(["experiment", "any.toml", *words])


def test_a_trial_finds_its_programs_compiled_as_its_run_will(tmp_path, monkeypatch):
    asked = []

    class Pool:
        def __init__(self, *given, max_tasks_per_child):
            assert max_tasks_per_child == 1  # nothing is left of the process that compiled

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def submit(self, task, *given):
            asked.append(task.__name__)
            return SimpleNamespace(result=lambda: planner.Trial(1.0, 0.5, 0.25, 7))

    monkeypatch.setattr(planner, "ProcessPoolExecutor", Pool)
    (row,) = experiment.plan(experiment.read(write(tmp_path, ONE_ARM), tmp_path / "out"), measure=True)
    assert asked == ["prepare", "try_out"]
    assert row.memory == 7
    assert row.seconds == 1.0 + 10 * 0.5 + 13 * 0.25  # 10 updates, 11 evaluations and two final ones


def test_a_plan_is_of_the_devices_of_its_runs(tmp_path):
    text = ONE_ARM.replace("steps = 640", "steps = 640\ndevices = 3")
    with pytest.raises(PhalanxError, match="2 seeds cannot be spread over 3 devices"):
        experiment.plan(experiment.read(write(tmp_path, text), tmp_path / "out"), measure=False)
    text = text.replace("devices = 3", "devices = 2")
    (cell,) = experiment.read(write(tmp_path, text), tmp_path / "out").cells
    for task in (lambda: trial.prepare(cell), lambda: trial.try_out(cell, 0.0)):
        with pytest.raises(PhalanxError, match="devices=2: JAX has started with 1 device"):
            task()


def test_a_plan_counts_the_disk_that_a_run_asks_for(tmp_path):
    text = ONE_ENV.split("batch_steps")[0] + '[arms.q]\nalgorithm = "iql"\npreset = "none"\nbuffer = 512\n'
    grid = experiment.read(write(tmp_path, text), tmp_path / "out")
    (row,) = experiment.plan(grid, measure=False)
    setup = grid.cells[0].setup()
    parts = memory_parts(setup)
    rows = 2 * (2 + setup.total_updates // setup.updates_between_evaluations)
    assert parts["replay"] > 0
    assert row.disk == require_disk(setup, parts, tmp_path) + rows * planner.BYTES_OF_A_ROW


def test_a_row_has_what_was_predicted_what_was_measured_and_their_ratio():
    cells = plans.row("mine", plans.Taken(10, 2e6, 0), plans.Taken(15, 1e6, 5e5))
    assert cells == ["mine", "10.0 s", "15.0 s", "1.50", "2.0 MB", "1.0 MB", "0.50", "0.0 MB", "0.5 MB", "-"]
    lines = list(plans.markdown([cells]))
    assert len(lines) == 3
    assert {line.count("|") for line in lines} == {len(cells) + 1}


PROGRAM = """
import pathlib, sys, time
held, folder = bytearray(50_000_000), pathlib.Path(sys.argv[1])
folder.mkdir()
(folder / "file").write_bytes(bytes(3_000))
time.sleep(0.3)
(folder / "file").unlink()
"""


def test_a_followed_command_is_measured_from_outside(tmp_path):
    folder = tmp_path / "run"
    taken = plans.follow([sys.executable, "-c", PROGRAM, str(folder)], folder)
    assert taken.seconds > 0.3
    assert taken.memory > 50_000_000
    assert taken.disk == 3_000  # the most at once, not what is left

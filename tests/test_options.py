"""Options of run, algorithm and environment are three namespaces; a clash is resolved by the prefix."""

import tomllib
from dataclasses import dataclass

import pytest
from conftest import SMALL

import phalanx
from phalanx import cli
from phalanx.algorithms.ppo import PPO, PPOConfig
from phalanx.config import by_table, option
from phalanx.errors import PhalanxError
from phalanx.experiment import Cell, over

MINE = "test_options:Mine"
BRIEF = {"steps": 64, "envs": 4, "eval_episodes": 2, "final_episodes": 2}


@dataclass(frozen=True)
class MineConfig(PPOConfig):
    """Fields named like options of the run and of the command."""

    keep: int = option(7, "mine")
    tensorboard: bool = option(False, "mine")
    out: int = option(1, "mine")


class Mine(PPO):
    """A user's algorithm."""

    Config = MineConfig


def config(folder):
    values = tomllib.loads((folder / "config.toml").read_text())
    names = ("keep", "tensorboard")
    return {
        f"{table}.{name}": values[table][name] for table in ("run", "algorithm") for name in names
    }, values


def test_each_value_goes_where_it_belongs_from_python(tmp_path):
    run = phalanx.train(
        MINE,
        "debug/identity",
        out=tmp_path / "run",
        quiet=True,
        run_options={"keep": 3},
        algorithm_options={"keep": 5, "tensorboard": True, "out": 4},
        **BRIEF,
        **SMALL,
    )
    found, values = config(run.folder)
    assert found == {
        "run.keep": 3,
        "run.tensorboard": True,
        "algorithm.keep": 5,
        "algorithm.tensorboard": True,
    }
    assert values["algorithm"]["out"] == 4


def test_each_value_goes_where_it_belongs_from_the_shell(tmp_path, capsys):
    words = ["train", MINE, "debug/identity", "--out", str(tmp_path / "run")]
    words += [word for name, value in (BRIEF | SMALL).items() for word in (f"--{name}", str(value))]
    words += ["--run.keep", "3", "--algorithm.keep=5", "--run.no-tensorboard", "--algorithm.out", "4"]
    words += ["--run.seed", "2", "--algorithm.lr", "1e-3"]  # a prefix is never wrong
    assert cli.run(words) == 0
    found, values = config(tmp_path / "run")
    assert found == {
        "run.keep": 3,
        "run.tensorboard": False,
        "algorithm.keep": 5,
        "algorithm.tensorboard": False,
    }
    assert (values["run"]["seed"], values["algorithm"]["lr"], values["algorithm"]["out"]) == (2, 1e-3, 4)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--keep", "--keep is an option of the run and of .*: say --run.keep or --algorithm.keep"),
        ("--no-tensorboard", "--run.no-tensorboard or --algorithm.no-tensorboard"),
        ("--run.lr", "has no option 'run.lr'"),
        ("--algorithm.seeds", "has no option 'algorithm.seeds'"),
        ("--other.lr", "has no option 'other.lr'"),
    ],
)
def test_a_clash_or_a_wrong_prefix_is_refused_on_the_command_line(flag, said):
    with pytest.raises(PhalanxError, match=said):
        cli.run(["train", MINE, "debug/identity", flag, "3"])


def test_a_clash_is_refused_from_python(tmp_path):
    with pytest.raises(PhalanxError, match=r"keep is an option of the run and of .*: say run.keep or"):
        phalanx.train(MINE, "debug/identity", keep=3, out=tmp_path / "run", quiet=True)
    with pytest.raises(PhalanxError, match="lr is given twice"):
        phalanx.train(MINE, "debug/identity", lr=1e-3, algorithm_options={"lr": 1e-2}, quiet=True)
    assert not (tmp_path / "run").exists()


def test_help_shows_the_prefix_where_it_is_needed(capsys):
    assert cli.run(["train", MINE, "debug/identity", "--help"]) == 0
    shown = capsys.readouterr().out
    for flag in ("--run.keep", "--algorithm.keep", "--algorithm.out", "--steps", "--lr "):
        assert flag in shown
    assert "--run.steps" not in shown


def test_an_experiment_tells_them_apart(tmp_path):
    options = {"run.keep": 3, "algorithm.keep": 5, "run.tensorboard": False, "out": 4, "steps": 64}
    cell = Cell("arm", "debug/identity", MINE, "auto", options, {}, tmp_path / "run")
    assert (cell.setup().config.keep, cell.setup().resolved.algorithm.keep) == (3, 5)
    # What the plan accepts its command does, too.
    sizes = [f"--{name}={value}" for name, value in (BRIEF | SMALL).items() if name != "steps"]
    assert cli.run([*cell.command, *sizes]) == 0
    found, values = config(tmp_path / "run")
    assert found["run.tensorboard"] is False
    assert (found["run.keep"], found["algorithm.keep"], values["algorithm"]["out"]) == (3, 5, 4)


def test_later_tables_of_an_experiment_win_whatever_the_prefix():
    assert over({"steps": 1, "run.keep": 2}, {"run.steps": 3}) == {"run.keep": 2, "run.steps": 3}
    assert over({"run.steps": 1}, {"steps": 2}) == {"steps": 2}
    assert over({"run.keep": 1}, {"algorithm.keep": 2}) == {"run.keep": 1, "algorithm.keep": 2}
    with pytest.raises(PhalanxError, match="steps is given twice"):
        by_table(MINE, MineConfig, {"steps": 1, "run.steps": 2})

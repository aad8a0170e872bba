"""The examples of docs/extend.md are whole files that run."""

import importlib
import re
import shlex
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_run import small

import phalanx
from phalanx import cli

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FILES = {re.match(r"# (\w+)\.py\n", block)[1]: block for kind, block in BLOCKS if kind == "python"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The examples, saved under their names in a folder on the path."""
    folder = tmp_path_factory.mktemp("extend")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        for name, block in FILES.items():
            (folder / f"{name}.py").write_text(block)
        yield folder
    for name in FILES:
        sys.modules.pop(name, None)


def test_examples_are_short():
    assert FILES.keys() >= {"agree", "residual", "reinforce", "time_limit"}
    for name, block in FILES.items():
        code = [line for line in block.splitlines() if line.strip() and not line.strip().startswith("#")]
        assert len(code) < 40, name
        assert max(map(len, code)) <= 110


def test_the_environment_is_sound_and_trains(files):
    assert cli.run(["check-env", "agree:Agree"]) == 0
    run = small(files / "agree", "mappo", "agree:Agree", steps=128, env_options={"pay": 2.0})
    assert run.metrics()[-1]["eval/return"] <= 8.0


def test_the_network_learns(files):
    options = {"steps": 6_400, "eval_every": 6_400, "eval_episodes": 32, "batch_steps": 256, "envs": 16}
    run = small(
        files / "residual", "mappo", network="residual:Residual", hidden=16, layers=3, lr=0.01, **options
    )
    first, last = (row["eval/return"] for row in run.metrics())
    assert first < 5
    assert last > 7


def test_the_algorithm_learns(files):
    """A random team earns a third of the 8 targets of an episode."""
    run = small(
        files / "reinforce",
        "reinforce:Reinforce",
        steps=12_800,
        eval_every=12_800,
        eval_episodes=32,
        batch_steps=256,
        envs=16,
        hidden=16,
        lr=0.01,
    )
    first, last = (row["eval/return"] for row in run.metrics())
    assert first < 5
    assert last > 7
    assert "learn/policy_loss" in run.metrics()[-1]


def test_the_callback_stops_a_run(files, capsys):
    run = small(files / "stopped", callbacks=[importlib.import_module("time_limit").TimeLimit(hours=0)])
    assert run.facts["stopped_early"] == "0 hours are over"
    assert "0 env steps: return " in capsys.readouterr().out


def test_the_script_with_the_callback_is_right(files, monkeypatch):
    given = {}
    monkeypatch.setattr(phalanx, "train", lambda *names, **options: given.update(options), raising=False)
    exec(compile(FILES["time_limit"], "time_limit.py", "exec"), {"__name__": "__main__"})
    limit, stopping = given["callbacks"]
    assert isinstance(limit, phalanx.Callback)
    assert isinstance(stopping, phalanx.EarlyStopping)


def commands():
    return [line for kind, block in BLOCKS if not kind for line in block.splitlines() if " train " in line]


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_page_would_run(files, line, monkeypatch):
    begun = []
    monkeypatch.setattr(
        "phalanx.api.train_setup", lambda setup, *_: begun.append(setup) or SimpleNamespace(folder="RUN")
    )
    words = shlex.split(line, comments=True)
    assert cli.run(words[1:]) == 0
    assert len(begun) == ("--help" not in words)


def test_the_package_names_groups_and_classes_that_there_are():
    (block,) = (block for kind, block in BLOCKS if kind == "toml")
    groups = tomllib.loads(block)["project"]["entry-points"]
    assert set(groups) == {"phalanx.algorithms", "phalanx.envs", "phalanx.presets"}
    source = (ROOT / "phalanx" / "registry.py").read_text(encoding="utf-8")
    assert all(f"`{group}`" in source for group in groups)
    for target in (*groups["phalanx.algorithms"].values(), *groups["phalanx.envs"].values()):
        module, _, name = target.partition(":")
        assert f"class {name}(" in FILES[module.rpartition(".")[2]]


def test_other_pages_link_to_this_one():
    for page in ("README.md", "docs/contracts.md", "docs/algorithms/README.md"):
        assert "extend.md" in (ROOT / page).read_text(encoding="utf-8"), page

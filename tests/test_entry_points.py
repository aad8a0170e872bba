"""Algorithms, environments and presets of installed packages, found by their entry points."""

import logging
import sys

import pytest

import phalanx
from phalanx import cli, registry
from phalanx.errors import PhalanxError

ENTRY_POINTS = """
[phalanx.algorithms]
lazy = lazy_team:Lazy
absent = lazy_team:Absent
gone = no_such_module:Team
shapeless = lazy_team

[phalanx.envs]
cards/agree = lazy_team:Cards
cards = lazy_team:Cards
broken/agree = broken_team:Cards

[phalanx.presets]
lazy = lazy_presets
gone = no_such_module.presets
"""
MODULE = """
from dataclasses import dataclass

from custom_env import Agree
from phalanx.algorithms.base import AlgorithmConfig
from phalanx.algorithms.random import Random
from phalanx.config import option


@dataclass(frozen=True)
class LazyConfig(AlgorithmConfig):
    rest: int = option(1, "how long to rest")


class Lazy(Random):
    Config = LazyConfig


class Cards(Agree):
    pass
"""


def clear():
    """Forget what is installed, as a new process would."""
    for each in vars(registry).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()


def install(folder, name, entry_points):
    """What pip leaves behind, as far as entry points go."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    clear()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages on the path, with one called phalanx-lazy."""
    (tmp_path / "lazy_team.py").write_text(MODULE)
    (tmp_path / "broken_team.py").write_text("raise RuntimeError('no licence')\n")
    presets = tmp_path / "lazy_presets" / "lazy"
    presets.mkdir(parents=True)
    (presets / "cards.toml").write_text("# rested\n[algorithm]\nrest = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    install(tmp_path, "phalanx-lazy", ENTRY_POINTS)
    yield tmp_path
    monkeypatch.undo()
    for name in ("lazy_team", "lazy_presets"):
        sys.modules.pop(name, None)
    clear()


def test_they_are_listed_without_being_imported(site, capsys):
    assert cli.run(["list"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "lazy lazy_team:Lazy, of the package phalanx-lazy" in lines
    assert "cards/agree lazy_team:Cards, of the package phalanx-lazy" in lines
    assert "lazy/cards rested (of the package phalanx-lazy)" in lines
    assert any(line.startswith("mappo MAPPO") for line in lines)
    assert "lazy_team" not in sys.modules


def test_a_run_by_their_names_trains_resumes_and_loads(site):
    sizes = {"steps": 16, "envs": 4, "batch_steps": 16, "eval_episodes": 2, "final_episodes": 2}
    run = phalanx.train(
        "lazy", "cards/agree", out=site / "run", env_options={"pay": 2.0}, quiet=True, **sizes
    )
    text = (run.folder / "config.toml").read_text()
    assert 'algorithm = "lazy"' in text
    assert 'env = "cards/agree"' in text
    assert "rest = 7  # preset lazy/cards" in text
    assert "pay = 2.0" in text
    phalanx.resume(run.folder, 32, quiet=True)
    assert run.metrics()[-1]["env_steps"] == 32
    assert type(phalanx.load(run.folder).algorithm).__name__ == "Lazy"


def test_names_without_a_family_and_objects_are_found_too(site):
    env = phalanx.make_env("cards", pay=3.0)
    assert (type(env).__name__, env.pay) == ("Cards", 3.0)
    assert not registry.is_built_in("cards")


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda: registry.algorithm("lasy"), "unknown algorithm 'lasy'. Did you mean lazy"),
        (lambda: registry.make_env("card/agree", {}), "unknown environment .* Did you mean cards/agree"),
        (lambda: registry.preset("lazy", "cards", "card"), "lazy has no preset 'card'. Did you mean cards"),
        (
            lambda: registry.algorithm("gone"),
            "cannot import algorithm 'no_such_module:Team' of the package phalanx-lazy: No module named",
        ),
        (
            lambda: registry.make_env("broken/agree", {}),
            "'broken_team:Cards' of the package phalanx-lazy: RuntimeError: no licence",
        ),
        (
            lambda: registry.algorithm("absent"),
            "module 'lazy_team' of the package phalanx-lazy has no 'Absent'",
        ),
        (
            lambda: registry.algorithm("shapeless"),
            "'lazy_team' of the package phalanx-lazy is not of the form package.module:Class",
        ),
    ],
)
def test_a_wrong_name_and_a_broken_package_are_one_line(site, use, said):
    with pytest.raises(PhalanxError, match=said) as refused:
        use()
    assert "\n" not in str(refused.value)


def test_presets_that_cannot_be_found_are_said_to_be_left_out(site, caplog):
    with caplog.at_level(logging.WARNING):
        layer = registry.preset("lazy", "cards/agree", "auto")
    assert layer is not None
    assert layer.values == {"algorithm": {"rest": 7}}
    (warning,) = caplog.messages
    assert warning.startswith("the presets of the package phalanx-lazy are left out: No module named")


def test_a_name_that_is_built_in_is_refused_when_it_is_used(site, capsys):
    clash = "[phalanx.algorithms]\nippo = lazy_team:Lazy\n[phalanx.envs]\nswitch/2 = lazy_team:Cards\n"
    install(site, "phalanx-rival", f"{clash}[phalanx.presets]\nsame = lazy_presets\n")
    said = "is defined by phalanx and by phalanx-rival: write lazy_team:Lazy for the latter, or uninstall"
    with pytest.raises(PhalanxError, match=f"'ippo' {said}"):
        registry.algorithm("ippo")
    with pytest.raises(PhalanxError, match="'switch/2' is defined by phalanx and by phalanx-rival"):
        phalanx.make_env("switch/2")
    with pytest.raises(
        PhalanxError, match="preset lazy/cards is defined by phalanx-lazy and by phalanx-rival"
    ):
        registry.preset("lazy", "cards", "auto")
    assert registry.algorithm("mappo").__name__ == "PPO"
    assert registry.algorithm("lazy_team:Lazy").__name__ == "Lazy"
    assert cli.run(["list", "algorithms"]) == 0
    assert said in capsys.readouterr().out

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import build, small

import phalanx
from phalanx import device
from phalanx.config import RunConfig, convert, options_of
from phalanx.errors import PhalanxError
from phalanx.training.devices import _divided, env_axes, lay_out

TESTS = Path(__file__).parent
ROUNDING = 1e-4  # of sums over devices, after some updates; a wrong sum is far beyond it


@pytest.fixture(scope="session")
def found(tmp_path_factory):
    """What runs on four simulated devices found: see `many_devices.py`."""
    out = tmp_path_factory.mktemp("devices")
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, str(TESTS / "many_devices.py"), str(out)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads((out / "found.json").read_text())


def test_a_run_on_four_devices_equals_one_on_one(found):
    for case in (found["driver"], found["seeds"], found["mappo"], found["qmix"]):
        far, where = case["4 against 1"]
        assert far < ROUNDING, where
    assert found["driver"]["eval"] < ROUNDING
    assert found["qmix"]["gradient steps"] > 2


def test_a_run_goes_on_with_other_numbers_of_devices(found):
    for devices in (2, 1):
        far, where = found["driver"][f"4, then {devices}, against 1"]
        assert far < ROUNDING, where


def test_seeds_do_not_depend_on_those_of_other_devices(found):
    assert found["seeds"]["same bits on 4 and on 2"]
    assert found["seeds"]["collectives"] == []


def test_lanes_of_a_search_are_divided(found):
    lanes = found["lanes"]
    far, where = lanes["4 against 1"]
    assert far < ROUNDING, where
    assert lanes["returns"] < ROUNDING
    assert lanes["shards"] == 4
    assert lanes["groups"] == [4, 3, 1], "as many devices as divide the lanes"


def test_environments_and_their_replay_are_divided_and_networks_are_not(found):
    divided = 0
    for algorithm in ("mappo", "qmix"):
        for name, (whole, parts) in found[algorithm]["shards"].items():
            assert len(parts) == 4
            of_envs = ".running." in name or ".actors.memory" in name or ".replay" in name
            of_envs = of_envs or name.endswith(".critic_memory")
            wanted = [whole[0], whole[1] // 4, *whole[2:]] if of_envs else whole
            assert parts == [wanted] * 4, name
            divided += of_envs
    assert divided > 20


def test_a_rollout_needs_no_other_device(found):
    assert found["rollout"] == []


def in_gradient_steps(collectives, loops):
    """Those in gradient steps, which stand in so many loops."""
    return [each for each in collectives if each[2] == loops]


def test_a_gradient_step_adds_up_gradients_once(found):
    steps = in_gradient_steps(found["mappo"]["collectives"], 3)  # updates, epochs, minibatches
    assert [kind for kind, *_ in steps] == ["all-reduce", "all-reduce"]
    # The rollout is put together once an update, because minibatches are drawn from all of it.
    assert {kind for kind, *_ in found["mappo"]["collectives"]} == {"all-reduce", "all-gather"}


def test_a_sample_is_added_up_and_the_replay_stays(found):
    sizes = {name: whole for name, (whole, _) in found["qmix"]["shards"].items() if ".replay" in name}
    places, rows = sizes[".learner.replay.action"][2:4]
    gathered = [shape for kind, shape, _ in found["qmix"]["collectives"] if kind == "all-gather"]
    assert gathered
    for shape in gathered:
        assert f",{places},{rows}" not in shape
    steps = in_gradient_steps(found["qmix"]["collectives"], 2)
    sample = f"f32[8,{rows + 1},"  # 8 episodes
    assert any(kind == "all-reduce" and sample in shape for kind, shape, _ in steps)


@pytest.mark.parametrize(
    ("count", "seeds", "envs", "expected"),
    [(4, 4, 3, (4, 1)), (4, 8, 3, (4, 1)), (4, 2, 6, (2, 2)), (4, 1, 8, (1, 4)), (6, 3, 8, (3, 2))],
)
def test_seeds_come_first(count, seeds, envs, expected):
    assert _divided(count, seeds, envs) == expected


@pytest.mark.parametrize(
    ("count", "seeds", "envs", "message"),
    [
        (4, 6, 8, "6 seeds cannot be spread over 4 devices: use 4 or 8 seeds"),
        (4, 3, 8, "use 4 seeds"),
        (4, 1, 6, "into 4 parts, and envs=6 is not a multiple of it: use envs=8"),
    ],
)
def test_what_does_not_divide_is_refused(count, seeds, envs, message):
    with pytest.raises(PhalanxError, match=message):
        _divided(count, seeds, envs)


def test_more_devices_than_there_are_are_refused(tmp_path):
    cores = device.cores()
    with pytest.raises(PhalanxError, match="devices=2: JAX has started with 1 device in this process"):
        small(tmp_path / "run", devices=2)
    with pytest.raises(PhalanxError, match=f"at most; use devices={cores}$"):
        small(tmp_path / "run", devices=cores + 1, seeds=cores + 1)
    assert not (tmp_path / "run").exists()


def run_alone(code):
    """Run Python in a process where JAX has not started."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


TRAIN = """
import phalanx
phalanx.train("ippo", {env}, steps=128, envs=4, batch_steps=64, seeds=2, devices=2, out={out!r},
              hidden=8, layers=1, eval_every=128, eval_episodes=4, final_episodes=4)
"""
ENVS = ['"debug/identity"', "phalanx.make_env('debug/identity')"]


@pytest.mark.skipif(device.cores() < 2, reason="needs two cores")
@pytest.mark.parametrize("env", ENVS, ids=["name", "object"])
def test_a_cpu_is_divided_when_a_run_asks_for_it(env, tmp_path):
    ran = run_alone(TRAIN.format(env=env, out=str(tmp_path / "run")))
    assert "2 devices: 2 seeds, 1 on each" in ran.stdout, ran.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_hosted_environments_are_refused(tmp_path):
    pytest.importorskip("gymnasium")
    with pytest.raises(PhalanxError, match="is for compiled environments, and gym/CartPole-v1 is a Python"):
        phalanx.train("ippo", "gym/CartPole-v1", devices="all", workers=0, out=tmp_path / "run", quiet=True)


def test_all_is_a_number_of_devices():
    option = options_of(RunConfig)["devices"]
    assert option.shape == "INT|all"
    assert convert(option, "all", "test") == 0
    assert convert(option, "4", "test") == 4
    with pytest.raises(PhalanxError, match="devices must be a whole number or all, not 'some'"):
        convert(option, "some", "test")
    assert lay_out(build("ippo", "debug/identity"), 0).devices == 1


def test_the_axis_of_environments_is_found_behind_that_of_places():
    learner, actors = env_axes(build("qmix", "switch/2", reward="mean", buffer=80))
    assert learner.replay.length == 1
    assert learner.actor.params["head"]["kernel"] == -1
    assert actors.running.first == 1
    assert actors.key == -1
    learner, _ = env_axes(build("iql", "switch/2", replay="steps", network="mlp"))
    assert learner.replay.kept.action == 2  # (S, C, B, ...)

"""Host environments in Ray actors: the same episodes as elsewhere, and faults that cost episodes.

Two local nodes stand for two machines. Where tests of this file run in several processes, each has its own.
"""

import os
import secrets
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import LONG
from test_workers import ENVS, OPTIONS, assert_same, played

import phalanx
from phalanx import cli
from phalanx.envs.host import ray_pool
from phalanx.envs.host.pool import Faults, HostFailure
from phalanx.envs.host.task import HostTask, Placement
from phalanx.errors import PhalanxError

MARK = f"PHALANX_TEST_CLUSTER={secrets.token_hex(8)}"
MOMENTS = 20 if LONG else 2


class Machines:
    """A cluster of two nodes with two CPUs each, and a head that steps nothing."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes = [self.cluster.add_node(num_cpus=2) for _ in range(2)]
        self.address = self.cluster.address

    def lose(self, which):
        """Remove a node, and let another join soon."""
        self.cluster.remove_node(self.nodes[which], allow_graceful=False)
        self.nodes[which] = self.cluster.add_node(wait=False, num_cpus=2)


@pytest.fixture(scope="module")
def machines():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("RAY_AUTH_MODE", "token"),
            ("RAY_AUTH_TOKEN", secrets.token_hex(32)),
            ("RAY_USAGE_STATS_ENABLED", "0"),
            MARK.split("="),
        ):
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        found = Machines()
        yield found
        found.cluster.shutdown()


def task(address, workers=2, timeout=60.0, **options):
    return HostTask("troubled", "troubled:Troubled", options, Placement(workers, "", timeout, address))


def actors(left=None):
    """The processes of actors in this cluster; with `left`, waits until there are as many."""
    end = time.monotonic() + 10
    while True:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if b"ray::Seat" in (folder / "cmdline").read_bytes():
                    found += [int(folder.name)] if MARK.encode() in (folder / "environ").read_bytes() else []
            except OSError:
                pass
        if left is None or len(found) == left or time.monotonic() > end:
            return found
        time.sleep(0.1)


def test_what_is_played_does_not_depend_on_who_steps(machines):
    workers = 3
    pools = [task(machines.address, workers).pool(ENVS), task(None, workers).pool(ENVS)]
    assert len(actors()) == workers
    for pid in actors():
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "numpy" in maps
        assert "jaxlib" not in maps
    alone = played(task(None, workers=0).pool(ENVS))
    for pool in pools:
        for one, two in zip(alone, played(pool), strict=True):
            assert_same(one, two)
        pool.close()
    assert actors(left=0) == []


def test_environments_that_wait_keep_what_they_showed_when_their_actor_is_lost(machines):
    pool, seeds = task(machines.address, 1).pool(2), np.arange(2, dtype=np.uint64)
    pool.begin(seeds)
    before = pool.step(np.ones((2, 2), np.int32), seeds)
    os.kill(actors()[0], signal.SIGKILL)
    for part in range(2):
        pool.send(part, np.ones((1, 2), np.int32), seeds[:1], np.array([part == 0]))
    after = [pool.receive(part) for part in range(2)]
    assert after[0].broken[0]
    assert not after[1].broken[0]
    np.testing.assert_array_equal(after[1].observation.obs[0], before.observation.obs[1])
    assert after[1].observation.avail.all()
    pool.close()


def test_a_killed_actor_costs_its_own_episodes(machines, monkeypatch):
    monkeypatch.setattr(Faults, "MOST_IN_A_ROW", 1000)
    moments = set(np.random.default_rng(0).choice(60, MOMENTS, replace=False).tolist())
    pool, alone = task(machines.address).pool(ENVS), task(None, workers=0).pool(ENVS)

    def kill(t):
        if t in moments:
            os.kill(actors()[0], signal.SIGKILL)

    found, expected = played(pool, 60, kill)[1:], played(alone, 60)[1:]
    assert pool.faults.total == MOMENTS
    broken = np.stack([each.broken for each in found])
    assert broken.any(1).sum() == MOMENTS
    unhurt = ~broken.any(0)
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.step.reward[unhurt], two.step.reward[unhurt])
    pool.close()
    assert actors(left=0) == []


def test_a_lost_node_costs_the_episodes_on_it(machines, monkeypatch):
    monkeypatch.setattr(Faults, "MOST_IN_A_ROW", 1000)
    moments = sorted(np.random.default_rng(1).choice(40, MOMENTS, replace=False).tolist())
    pool = task(machines.address).pool(ENVS)
    found = played(pool, 40, lambda t: machines.lose(moments.index(t) % 2) if t in moments else None)[1:]
    broken = np.stack([each.broken for each in found])
    assert pool.faults.total >= 1
    assert 1 <= broken.any(1).sum() <= MOMENTS
    pool.close()
    assert actors(left=0) == []


def test_an_actor_that_hangs_is_replaced_and_slow_ones_are_not(machines):
    pool = task(machines.address, 2, timeout=0.7, fault="hang", often=0.04).pool(ENVS)
    steps = played(pool, 12)[1:]
    assert pool.faults.total >= 1
    assert "it did not finish a step within 0.7 s" in pool.faults.last
    assert np.stack([each.broken for each in steps]).any()
    pool.close()
    pool = task(machines.address, 1, timeout=0.8, seconds=0.3).pool(ENVS)
    played(pool, 1)
    assert pool.faults.total == 0
    pool.close()


def test_faults_of_environments_are_counted_and_end_the_run(machines):
    pool = task(machines.address, 2, fault="raise", often=1.0).pool(ENVS)
    with pytest.raises(HostFailure, match=r"troubled failed 20 times in a row, .* a unit is missing"):
        played(pool, 20)
    pool.close()


class LosesANode(phalanx.Callback):
    def __init__(self, machines):
        self.machines, self.lost = machines, 0

    def on_evaluation(self, evaluation):
        if self.lost < 1 and evaluation.env_steps:
            self.machines.lose(self.lost)
            self.lost += 1


def test_a_run_survives_a_lost_node(machines, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    losing = LosesANode(machines)
    run = phalanx.train(
        "ippo",
        "troubled:Troubled",
        out=tmp_path / "run",
        hidden=8,
        workers=2,
        ray=machines.address,
        callbacks=[losing],
        quiet=True,
        **OPTIONS | {"eval_every": 128},
    )
    assert losing.lost == 1
    assert run.facts["status"] == "finished"
    assert run.facts["faults"] > 0
    assert run.metrics()[-1]["env_steps"] == 512
    assert actors(left=0) == []


def step_until(end, pool):
    while time.monotonic() < end:
        pool.step(np.zeros((2, 2), np.int32), np.arange(2, dtype=np.uint64))


def test_a_ray_started_here_is_shared_and_ends_and_its_end_is_one_line(monkeypatch):
    monkeypatch.setenv(*MARK.split("="))
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")  # a minute by default
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    pools = [task("local", 1).pool(2), task("local", 1).pool(2)]
    assert pools[0].address == pools[1].address
    pools[0].begin(np.arange(2, dtype=np.uint64))
    pools[0].close()
    pools[1].begin(np.arange(2, dtype=np.uint64))
    monkeypatch.setattr(ray_pool, "JOIN_TIMEOUT", 5.0)
    monkeypatch.setattr(ray_pool, "SILENCE", 5.0)
    os.killpg(pools[1]._local.process.process.pid, signal.SIGKILL)
    with pytest.raises(HostFailure, match="could not be started again: no Ray cluster answers at"):
        step_until(time.monotonic() + 60, pools[1])
    pools[1].close()
    assert actors(left=0) == []


def test_what_cannot_be_had_is_one_line(machines, monkeypatch):
    monkeypatch.setattr(ray_pool, "JOIN_TIMEOUT", 3.0)
    with pytest.raises(PhalanxError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        task("127.0.0.1:1").pool(2)
    monkeypatch.undo()
    monkeypatch.setattr(ray_pool, "ACTORS_TIMEOUT", 3.0)
    with pytest.raises(PhalanxError, match=r"did not start 12 workers, each with 0.5 CPU.* of its 4 CPUs"):
        task(machines.address, 12).pool(12)
    assert actors(left=0) == []
    monkeypatch.undo()  # three seconds are too few for a worker that starts on a busy machine
    wrong = HostTask("wrong", "no_module:Nothing", {}, Placement(1, "", 60.0, machines.address))
    object.__setattr__(wrong, "spec", task(None).spec)
    with pytest.raises(PhalanxError, match=r"workers cannot be started: .*No module named 'no_module'"):
        wrong.pool(2)


def test_ray_is_refused_where_it_makes_no_sense(monkeypatch):
    with pytest.raises(PhalanxError, match="ray is for Python environments"):
        phalanx.train("ippo", "battle/3m", ray="auto")
    with pytest.raises(PhalanxError, match="workers must be at least 1"):
        phalanx.train("ippo", "troubled:Troubled", ray="auto", workers=0)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    with pytest.raises(PhalanxError, match=r"pip install 'phalanx\[ray\]'"):
        phalanx.train("ippo", "troubled:Troubled", ray="auto")


@pytest.mark.parametrize(("words", "address"), [([], None), (["--ray"], "local"), (["--ray", "a:1"], "a:1")])
def test_ray_needs_no_address_on_the_command_line(words, address, monkeypatch):
    seen = []
    monkeypatch.setattr("phalanx.api.resolve", lambda *args: seen.append(args[2].values["run"]) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.run(["train", "ippo", "gym/CartPole-v1", *words, "--workers", "2"])
    assert seen[0].get("ray") == address

"""One run in two processes that stand for two hosts: the same numbers, stops, a host that is lost, resume."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_run import rows

from phalanx import cli, hosts
from phalanx.api import Run
from phalanx.errors import PhalanxError
from phalanx.training.devices import lay_out

ROOT = Path(__file__).parents[1]
# One seed, whose environments are divided: every update needs both hosts.
COMMAND = """
train ippo debug/identity --preset none --steps 12800 --envs 4 --eval-every 640 --eval-episodes 4
--final-episodes 4 --no-tensorboard --batch-steps 64 --hidden 8 --epochs 2 --minibatches 2 --devices all
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(words, devices=1, host=""):
    environment = dict(
        os.environ,
        PYTHONPATH=str(ROOT),
        JAX_PLATFORMS="cpu",
        XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}",
    )
    command = [sys.executable, "-m", "phalanx", *words, *(["--hosts", host] if host else [])]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def two_hosts(words):
    address = f"127.0.0.1:{free_port()}"
    return [start(words, host=f"{address},2,{number}") for number in range(2)]


def evaluations(folder):
    file = folder / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def wait_for(folder, count, processes, seconds=300.0):
    end = time.monotonic() + seconds
    while evaluations(folder) < count:
        for process in processes:
            assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_two_hosts_train_one_run_through_a_stop_and_a_loss(tmp_path):
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    one = start([*COMMAND.split(), "--out", str(alone)], devices=2)
    said, _ = one.communicate()
    assert one.returncode == 0, said

    both = two_hosts([*COMMAND.split(), "--out", str(shared)])
    wait_for(shared, 3, both)
    both[1].send_signal(signal.SIGTERM)  # not the one that writes
    texts = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [130, 130], texts
    assert Run(shared).facts["status"] == "interrupted"
    assert "2 devices: 1 seed x 2 parts of the environments, 2 each" in texts[0]
    assert "env steps" not in texts[1]  # the first one speaks
    assert all(f"phalanx resume {shared}" in text for text in texts)

    both = two_hosts(["resume", str(shared)])
    wait_for(shared, evaluations(shared) + 3, both)
    both[1].kill()
    text, _ = both[0].communicate(timeout=120)
    both[1].wait()
    assert both[0].returncode not in (0, None)
    assert "another host of this run was lost: continue from its last checkpoint with `phalanx resume" in text

    last = start(["resume", str(shared)], devices=2)
    said, _ = last.communicate()
    assert last.returncode == 0, said
    assert Run(shared).facts["status"] == "finished"
    ours, theirs = rows(Run(shared)), rows(Run(alone))
    assert len(ours) == len(theirs)
    for here, there in zip(ours, theirs, strict=True):
        assert here.keys() == there.keys()
        for name, value in here.items():
            if value is None:
                assert there[name] is None
                continue
            np.testing.assert_allclose(value, there[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("where", ["10.0.0.5,2,0", "10.0.0.5:1234,2,2", "10.0.0.5:1234", "here"])
def test_a_wrong_address_is_refused_in_one_line(where):
    with pytest.raises(PhalanxError, match=r"hosts must be auto or ADDRESS:PORT,COUNT,NUMBER.*not"):
        cli.run(["train", "ippo", "debug/identity", "--hosts", where])


def test_one_process_is_the_first_host_and_agrees_with_itself():
    assert hosts.count() == 1
    assert hosts.first()
    assert hosts.any_of(True)
    assert not hosts.any_of(False)
    assert hosts.least(7) == 7


def test_a_number_of_devices_is_refused_with_several_hosts(monkeypatch):
    monkeypatch.setattr(hosts, "count", lambda: 2)
    with pytest.raises(
        PhalanxError, match="devices=2: a run on several hosts has all their devices; use devices=all"
    ):
        lay_out(None, 2)

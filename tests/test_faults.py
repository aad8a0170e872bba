"""The compiler beneath us: known faults are kept clear of, and found out where they are not."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from phalanx import faults

IN_A_FRESH_PROCESS = """
import sys
import jax
if "late" in sys.argv:
    jax.numpy.zeros(1).block_until_ready()  # JAX has started before phalanx is imported
import phalanx
from phalanx import device
device.configure()
"""


def test_sums_are_right_here():
    assert faults.sums_are_right()


@pytest.mark.skipif(version("jaxlib") != "0.10.2", reason="this jaxlib does not have the fault")
@pytest.mark.parametrize("late", [False, True])
def test_the_fault_is_avoided_or_said(late):
    """As a user's process has it: without the flags of these tests."""
    env = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    words = [sys.executable, "-c", IN_A_FRESH_PROCESS, *(["late"] if late else [])]
    done = subprocess.run(words, env=env | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True)
    assert (done.returncode != 0) == late
    assert ("gets sums wrong on this CPU" in done.stderr) == late


def test_flags_of_the_user_stay(monkeypatch):
    monkeypatch.setattr(faults, "version", lambda _: "0.10.2")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=there")
    faults.avoid()
    faults.avoid()
    assert os.environ["XLA_FLAGS"] == f"--xla_dump_to=there {faults.FLAG}={faults.VALUE}"
    monkeypatch.setenv("XLA_FLAGS", f"{faults.FLAG}=")
    faults.avoid()
    assert os.environ["XLA_FLAGS"] == f"{faults.FLAG}="
    monkeypatch.setattr(faults, "version", lambda _: "0.11.0")
    monkeypatch.setenv("XLA_FLAGS", "")
    faults.avoid()
    assert os.environ["XLA_FLAGS"] == ""

"""How long a user waits for the first step: a first process that compiles, and a second one that need not.

    python benchmarks/startup.py [ALGORITHM ENV] [--repeats 1]

Runs the same short training in two fresh processes, the first with an empty compilation cache. Prints for
both the seconds from the shell to the begin of training and to the first evaluation, as seen from outside,
and the processor time until training begins, which depends less on other work.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rollout import load

STEPS = "20000"


class Wait(NamedTuple):
    """Seconds from the shell."""

    training: float
    evaluation: float
    processor: float
    """of all cores, until training begins"""


def processor_seconds(pid: int) -> float:
    """What a running process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(names: list[str], folder: Path, out: str) -> Wait:
    """Run a training, and look at what it prints."""
    environment = {**os.environ, "PHALANX_CACHE": str(folder / "cache"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "phalanx", "train", *names, "--steps", STEPS, "--out", str(folder / out)]
    begin, training, evaluation, processor = time.perf_counter(), 0.0, 0.0, 0.0
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.rstrip().endswith("training begins"):
            training, processor = time.perf_counter() - begin, processor_seconds(process.pid)
        elif "eval/return" in line and not evaluation:
            evaluation = time.perf_counter() - begin
    if process.wait():
        raise SystemExit(f"{' '.join(command)} failed")
    return Wait(training, evaluation, processor)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=["mappo", "battle/3m"])
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()
    for _ in range(args.repeats):
        with tempfile.TemporaryDirectory() as folder:
            waits = {
                name: watch(args.names, Path(folder), name) for name in ("empty cache", "second process")
            }
        for name, wait in waits.items():
            print(
                f"{' '.join(args.names)}, {name:<14}  training begins {wait.training:5.1f} s "
                f"({wait.processor:.1f} s of processor time), first evaluation {wait.evaluation:5.1f} s  "
                f"({load()})",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Whether `phalanx experiment FILE --plan` is right: what it predicts beside what the run then takes.

    python benchmarks/plans.py [--only qmix]

Each case is an experiment of one run with two seeds. It is planned with nothing compiled before, and then
trained by the command that the experiment would start. Time is from the shell to the end of the process,
memory the most that the process held at once (without the workers of Python environments), disk the most that
its folder held. Ratios are measured to predicted. On a GPU the memory of a process says little: this is for
CPUs with Linux.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rollout import load

from phalanx import experiment

CASES = {
    "mappo": ("mappo", "battle/3m", "steps = 200_000"),
    "mappo gru": ("mappo", "mpe/simple_spread", 'steps = 60_000\nnetwork = "gru"'),
    "qmix": ("qmix", "battle/3m", "steps = 30_000"),
    "sac": ("sac", "classic/Pendulum-v1", "steps = 5_000"),
    "ppo, hosted": ("ppo", "gym/CartPole-v1", "steps = 30_000"),
}
FILE = """
[experiment]
title = "{name}"
envs = ["{env}"]

[all]
seeds = 2
{options}

[arms.arm]
algorithm = "{algorithm}"
"""
HEAD = ["run", "time, predicted", "measured", "ratio", "memory, predicted", "measured", "ratio"]
HEAD += ["disk, predicted", "measured", "ratio"]


class Taken(NamedTuple):
    """What a run takes, or is predicted to."""

    seconds: float
    memory: float
    """bytes"""
    disk: float
    """bytes"""


def row(name: str, predicted: Taken, measured: Taken) -> list[str]:
    """A row of the table: each figure as predicted, as measured, and their ratio."""
    cells = [name]
    for was, found, unit, size in zip(predicted, measured, ("s", "MB", "MB"), (1, 1e6, 1e6), strict=True):
        ratio = f"{found / was:.2f}" if was else "-"
        cells += [f"{was / size:.1f} {unit}", f"{found / size:.1f} {unit}", ratio]
    return cells


def markdown(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table."""
    for cells in (HEAD, ["---"] * len(HEAD), *rows):
        yield "| " + " | ".join(cells) + " |"


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder that is being written to."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # renamed or removed meanwhile
            continue
    return total


def most_held(pid: int) -> int:
    """Bytes that a running process has held at most; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def follow(command: list[str], folder: Path) -> Taken:
    """Run a command that writes into a folder, to its end."""
    log, memory, disk, begin = folder.with_suffix(".log"), 0, 0, time.monotonic()
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    while process.poll() is None:
        memory, disk = max(memory, most_held(process.pid)), max(disk, size_of(folder))
        time.sleep(0.05)
    seconds = time.monotonic() - begin
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text(encoding='utf-8')[-2000:]}")
    return Taken(seconds, memory, disk)


def measure(name: str, place: Path) -> tuple[Taken, Taken]:
    """Plan a case and train it in a folder: predicted, measured."""
    algorithm, env, options = CASES[name]
    path = place / f"{name}.toml"
    text = FILE.format(name=name, env=env, options=options, algorithm=algorithm)
    path.write_text(text, encoding="utf-8")
    (planned,) = experiment.plan(experiment.read(path, place / name), measure=True)
    assert planned.seconds is not None
    cell = planned.cell
    cell.folder.parent.mkdir(parents=True)
    measured = follow([sys.executable, "-m", "phalanx", *cell.command], cell.folder)
    return Taken(planned.seconds, planned.memory, planned.disk), measured


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=tuple(CASES))
    args = parser.parse_args()
    experiment.keep_off_the_device()
    print(f"{os.cpu_count()} cores, {load()}", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        os.environ["PHALANX_CACHE"] = f"{place}/cache"
        for name in CASES:
            if args.only in (None, name):
                rows.append(row(f"{name}, `{CASES[name][1]}`", *measure(name, Path(place))))
                print("  ".join([*rows[-1], load()]), flush=True)
    print("\n".join(["", *markdown(rows)]))
    print(f"{load()} at the end")


if __name__ == "__main__":
    main()

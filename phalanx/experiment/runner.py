"""Trains the cells of an experiment, each in its own process, and records their status."""

import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from phalanx.errors import PhalanxError
from phalanx.experiment.cell import Cell
from phalanx.experiment.format import Experiment
from phalanx.experiment.lock import is_locked
from phalanx.experiment.places import HERE, Place
from phalanx.report.compare import EXPERIMENT
from phalanx.report.console import duration
from phalanx.training.interrupt import stop_requests


class Runner:
    """Trains the cells of an experiment, several at a time, until all are done or a stop is requested."""

    def __init__(self, experiment: Experiment, jobs: int, say: Callable[[str], None], place: Place = HERE):
        self.experiment, self.jobs, self.say, self.place = experiment, jobs, say, place
        self.submitted: set[str] = set()
        self.failures: dict[str, str] = {}
        self.children: set[subprocess.Popen] = set()
        self.guard = threading.Lock()

    def run(self) -> None:
        """Make all cells that are not done. Raises KeyboardInterrupt after a stop, when all is saved."""
        self.note()
        todo = [cell for cell in self.experiment.cells if cell.state != "done"]
        with stop_requests() as stop, ThreadPoolExecutor(self.jobs) as pool:
            making = [pool.submit(self.make, cell, stop) for cell in todo]
            while wait(making, timeout=0.2).not_done:
                if stop.is_set():
                    self.ask_to_stop()
            for each in making:
                each.result()
        if stop.is_set():
            raise KeyboardInterrupt

    def ask_to_stop(self) -> None:
        """Ask every run to save a checkpoint and end."""
        with self.guard:
            while self.children:
                self.children.pop().send_signal(signal.SIGTERM)

    def make(self, cell: Cell, stop: threading.Event) -> None:
        """Train or resume one cell; a failure is recorded."""
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        self.wait_for_others(cell, stop)
        if stop.is_set() or cell.state == "done":
            return
        self.say(f"{cell.name}: {'continues' if cell.state == 'begun' else 'begins'}, see {cell.log}")
        begin = time.monotonic()
        self.submitted.add(cell.name)
        code = self.child(cell.command, cell.log, cell.lock)
        if code != 0 and not stop.is_set():
            self.failures[cell.name] = last_line(cell.log)
        self.note()
        self.say(f"{cell.name}: {self.outcome(cell)} ({duration(time.monotonic() - begin)})")

    def wait_for_others(self, cell: Cell, stop: threading.Event) -> None:
        """Wait for a process that runs this cell already, such as one that outlived its experiment."""
        said = False
        while is_locked(cell.lock) and not stop.wait(0.5):
            if not said:
                self.say(f"{cell.name}: waits for another process that runs it")
                said = True

    def child(self, words: list[str], log: Path, lock: Path) -> int:
        """Run a command that trains a cell to its end, in a process that holds the cell's lock."""
        environment = dict(os.environ)
        if self.place is HERE and self.jobs > 1:  # so that they do not each take most of a GPU's memory
            environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        with log.open("a", encoding="utf-8") as out:
            child = subprocess.Popen(
                self.place.command(lock, words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
            )
            with self.guard:
                self.children.add(child)
            code = child.wait()
            with self.guard:
                self.children.discard(child)
            return code

    def outcome(self, cell: Cell) -> str:
        facts = cell.facts()
        if cell.name in self.failures:
            return f"failed: {self.failures[cell.name]}"
        if facts.get("status") != "finished":
            return "stopped and saved"
        last = facts["final"]["last"]
        return ", ".join(f"{name} {last[name]:.3g}" for name in ("return", "win_rate") if name in last)

    def note(self) -> None:
        """Write the status to experiment.json."""
        experiment = self.experiment
        facts = {
            "title": experiment.title,
            "file": str(experiment.path),
            "control": experiment.control,
            "bounds": experiment.bounds,
            "cells": [
                {
                    "arm": cell.arm,
                    "env": cell.env,
                    "folder": str(cell.folder.relative_to(experiment.out)),
                    "command": shlex.join(["phalanx", *cell.command]),
                    "state": cell.state,
                    "failed": self.failures.get(cell.name),
                }
                for cell in experiment.cells
            ],
        }
        with self.guard:
            unfinished = experiment.out / f".{EXPERIMENT}"
            try:
                experiment.out.mkdir(parents=True, exist_ok=True)
                unfinished.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
                os.replace(unfinished, experiment.out / EXPERIMENT)
            except OSError as error:
                raise PhalanxError(f"cannot write {experiment.out}: {error.strerror}") from None


def last_line(log: Path) -> str:
    """What a failed command said last."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("phalanx: ") if lines else "it said nothing"

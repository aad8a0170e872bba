"""A run on another machine: what is executed there, and how it is monitored from here."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from phalanx.errors import PhalanxError
from phalanx.experiment.cell import state_of
from phalanx.training import checkpoint
from phalanx.training.interrupt import stop_requests

TRIES = 3  # for a run that is lost without having saved anything new


class Task:
    """The submitted function: it trains the run in a separate process, on the machine where it is called.

    That process saves a checkpoint and ends if its parent is gone or a stop is requested.
    """

    def __init__(self, words: list[str], lock: Path):
        self.words, self.lock, self.cwd = words, str(lock), os.getcwd()
        self.child: subprocess.Popen | None = None

    def __call__(self) -> int:
        folder, stop = Path(self.cwd, folder_of(self.words)), stop_file(Path(self.cwd, self.lock))
        with folder.with_name(folder.name + ".log").open("a", encoding="utf-8") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "phalanx.experiment.child", "--kept", self.lock, *self.words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.cwd,
            )
            try:
                while self.child.poll() is None:
                    if stop.exists():
                        self.save()
                    time.sleep(0.2)
            except KeyboardInterrupt:  # so Ray cancels what runs
                self.save()
            return self.child.returncode

    def save(self) -> None:
        """Let the run save itself, and wait for its end."""
        if self.child is not None:
            assert self.child.stdin is not None
            self.child.stdin.close()
            self.child.wait()


class Job(NamedTuple):
    """A run that was submitted."""

    ended: Callable[[], bool]
    code: Callable[[], int | None]
    """of a job that has ended: its exit code, or None if it was lost"""
    cancel: Callable[[], None]
    """take it from the queue, if it has not begun"""


def follow(submit: Callable[[], Job], folder: Path, lock: Path, every: float = 0.5) -> int:
    """Submit a run, and resubmit it if its machine is lost, until it ends or a stop is requested.

    Returns its exit code.
    """
    stop_file(lock).unlink(missing_ok=True)
    losses, before = 0, -1
    with stop_requests() as stop:
        while True:
            job = submit()
            while not job.ended() and not stop.wait(every):
                pass
            if stop.is_set():
                stop_file(lock).touch()
                job.cancel()
                while not job.ended():
                    time.sleep(every)
                stop_file(lock).unlink(missing_ok=True)
                return 130
            code = job.code()
            if code is not None or state_of(folder) == "done":
                return code or 0
            now = _saved(folder)
            losses = 1 if now > before else losses + 1
            before = now
            if losses == TRIES:
                print(f"phalanx: lost {TRIES} times in a row without a new checkpoint", flush=True)
                return 1
            print("phalanx: the machine of this run was lost; it is submitted again", flush=True)


def run_as_program(main: Callable[[dict[str, Any], Path, list[str]], int]) -> NoReturn:
    """Call `main` with the words of `python -m MODULE TOLD LOCK train ... --out FOLDER`, and leave."""
    told, lock, *words = sys.argv[1:]
    try:
        sys.exit(main(json.loads(told), Path(lock), words))
    except PhalanxError as error:
        print(f"phalanx: {error}", flush=True)
        sys.exit(2)


def folder_of(words: list[str]) -> Path:
    """The folder of the run that these words make."""
    return Path(words[words.index("--out") + 1])


def stop_file(lock: Path) -> Path:
    """Exists while a run on another machine is asked to stop."""
    return lock.with_suffix(".stop")


def _saved(folder: Path) -> int:
    """Updates in the newest checkpoint; -1 without one."""
    there = checkpoint.listing(folder / "checkpoints")
    return there[-1].updates if there else -1

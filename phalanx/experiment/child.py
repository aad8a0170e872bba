"""One run of an experiment: `python -m phalanx.experiment.child [--kept] LOCK train ... --out FOLDER`.

The process that trains holds the lock, not the experiment that started it: a run that survives a killed
experiment still locks its folder. Whether to train or resume is decided while the lock is held. With `--kept`
the process saves a checkpoint and ends when its standard input is closed, for example because its parent was
killed.
"""

import os
import runpy
import signal
import sys
import threading
from pathlib import Path

from phalanx.experiment.cell import clear, state_of
from phalanx.experiment.lock import lock


def main(lock_file: Path, words: list[str]) -> None:
    """Train, or resume what another process left; do nothing if the run is finished."""
    folder = Path(words[words.index("--out") + 1])
    with lock(lock_file):
        state = state_of(folder)
        if state == "done":
            return
        if state == "begun":
            words = ["resume", str(folder)]
        else:
            clear(folder)
        sys.argv = ["phalanx", *words]
        runpy.run_module("phalanx", run_name="__main__")


def end_with_input() -> None:
    """Ask this process to stop at the end of its standard input."""

    def watch() -> None:
        while os.read(0, 1024):  # not by sys.stdin, whose lock would be held when Python ends
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] == "--kept":
        words.pop(0)
        end_with_input()
    main(Path(words[0]), words[1:])

"""One run of an experiment: `python -m phalanx.experiment.child LOCK train ... --out FOLDER`.

The process that trains holds the lock, not the experiment that started it: a run that outlives a killed
experiment still keeps all others out of its folder. What is to be done is decided under the lock.
"""

import runpy
import sys
from pathlib import Path

from phalanx.experiment.cell import clear, state_of
from phalanx.experiment.lock import lock


def main(lock_file: Path, words: list[str]) -> None:
    """Train, or go on with what another process left; nothing if that finished it."""
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


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

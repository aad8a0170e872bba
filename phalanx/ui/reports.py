"""Comparisons of runs for the page: those of `phalanx compare`, kept until a run has changed."""

import shlex
import threading
from collections.abc import Sequence
from typing import Any

from phalanx.config import Option, convert
from phalanx.errors import PhalanxError
from phalanx.report import comparison
from phalanx.report.compare import compare, read
from phalanx.ui.library import Run

MOST_RUNS = 64  # in one comparison
KEPT = 8


class Reports:
    """Creates one report at a time, because matplotlib is not thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: dict[Any, str] = {}

    def page(self, runs: Sequence[Run], metric: str, steps: str) -> str:
        """The report of some runs, at some env steps (default: at the end)."""
        if len(runs) > MOST_RUNS:
            raise PhalanxError(f"there are {len(runs)}, and at most {MOST_RUNS} can be compared here")
        if len(runs) < 2:
            raise PhalanxError("choose two or more")
        bounds = {"at_least": 1}
        at = convert(Option("env steps", int, (), True, None, "", bounds), steps or None, "this page")
        key = (tuple((run.id, run.metrics.cursor, run.written) for run in runs), metric, at)
        with self._lock:
            if key not in self._pages:
                while len(self._pages) >= KEPT:
                    self._pages.pop(next(iter(self._pages)))
                self._pages[key] = _report(runs, metric, at)
            return self._pages[key]


def _report(runs: Sequence[Run], metric: str, steps: int | None) -> str:
    for run in runs:
        if run.refused:
            raise PhalanxError(f"{run.folder} {run.refused}")
    found = compare([read(run.folder) for run in runs], metric={"": metric} if metric else {}, steps=steps)
    words = ["phalanx", "compare", *(str(run.folder) for run in runs)]
    words += ["--metric", metric] if metric else []
    words += ["--steps", str(steps)] if steps is not None else []
    return comparison.html(found, shlex.join(words))

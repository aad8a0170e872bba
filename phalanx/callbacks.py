"""Callbacks: your own code at the evaluations of a run: `phalanx.train(..., callbacks=[MyCallback()])`.

Nothing returns to Python between two evaluations, so that is when callbacks are called.
"""

from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import PhalanxError, suggest


class StopTraining(Exception):
    """Raise it in a callback to end the training. The run is evaluated and finished as usual."""


class Evaluation(NamedTuple):
    """What a callback sees of an evaluation."""

    folder: Path
    """the run folder"""
    env_steps: int
    """of each seed so far"""
    rows: list[dict[str, Any]]
    """for each seed, what is written to metrics.jsonl"""

    def mean(self, metric: str) -> float:
        """The mean of a metric over the seeds, such as `eval/return`."""
        known = [name for name, value in self.rows[0].items() if isinstance(value, int | float)]
        if metric not in known:
            raise PhalanxError(f"there is no metric {metric!r}.{suggest(metric, known)}")
        return sum(row[metric] for row in self.rows) / len(self.rows)


class Callback:
    """Override what you need."""

    def on_start(self, folder: Path) -> None:
        """Before the first evaluation, also of a run that is resumed."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """After each evaluation. `raise StopTraining(reason)` ends the training."""

    def on_end(self, folder: Path, final: dict[str, Any]) -> None:
        """After the final evaluation, whose results are `final["last"]` and `final["best"]`."""


class EarlyStopping(Callback):
    """Stop when a metric reaches a `target`, or has not improved for `patience` evaluations."""

    def __init__(self, metric: str, target: float | None = None, patience: int | None = None):
        if target is None and patience is None:
            raise PhalanxError("EarlyStopping needs a target, or a patience in evaluations")
        self.metric, self.target, self.patience = metric, target, patience
        self.best, self.waited = float("-inf"), 0

    def on_evaluation(self, evaluation: Evaluation) -> None:
        value = evaluation.mean(self.metric)
        if self.target is not None and value >= self.target:
            raise StopTraining(f"{self.metric} reached {value:.3g}")
        self.waited = 0 if value > self.best else self.waited + 1
        self.best = max(self.best, value)
        if self.patience is not None and self.waited >= self.patience:
            raise StopTraining(f"{self.metric} did not improve for {self.patience} evaluations")

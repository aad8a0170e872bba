"""Callbacks: your own code at the evaluations of a run: `phalanx.train(..., callbacks=[MyCallback()])`.

Training is compiled and returns to Python only at evaluations, so callbacks are called there.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import PhalanxError, suggest


class StopTraining(Exception):
    """Raise it in `on_start` or `on_evaluation` to end the training: `raise StopTraining("the reason")`.

    The last and the best parameters are evaluated and the run is finished as usual. run.json says why it was
    `stopped_early`; `phalanx.resume` continues it.
    """


class Evaluation(NamedTuple):
    """What a callback sees of an evaluation."""

    folder: Path
    """the run folder"""
    env_steps: int
    """of each seed so far"""
    rows: list[dict[str, Any]]
    """for each seed, what is written to metrics.jsonl"""

    def mean(self, metric: str) -> float:
        """The mean of a metric over the seeds, such as `eval/return`.

        NaN while a seed has no value: `train/*` before an episode ended, `learn/*` before the first update.
        """
        if metric not in self.rows[0]:
            if metric.startswith("learn/") and self.env_steps == 0:
                return math.nan
            raise PhalanxError(f"there is no metric {metric!r}.{suggest(metric, self.rows[0])}")
        values = [row[metric] for row in self.rows]
        return math.nan if None in values else sum(values) / len(values)


class Callback:
    """Your own code in a run. Override what you need."""

    def on_start(self, folder: Path) -> None:
        """Called before the first evaluation, also when a run is resumed."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Called after each evaluation. `raise StopTraining(reason)` ends the training."""

    def on_end(self, folder: Path, final: dict[str, Any]) -> None:
        """Called after the final evaluation, whose results are `final["last"]` and `final["best"]`."""


class EarlyStopping(Callback):
    """Stop when a metric reaches a `target`, or has not improved for `patience` evaluations.

    The metric is the mean over seeds, and higher is better: `EarlyStopping("eval/win_rate", target=0.95)`.
    Evaluations in which it has no value yet do not count.
    """

    def __init__(self, metric: str, target: float | None = None, patience: int | None = None):
        if target is None and patience is None:
            raise PhalanxError("EarlyStopping needs a target, or a patience in evaluations")
        if patience is not None and patience < 1:
            raise PhalanxError(f"patience must be at least 1 evaluation, not {patience!r}")
        self.metric, self.target, self.patience = metric, target, patience

    def on_start(self, folder: Path) -> None:
        """Forget what an earlier run reached."""
        self.best, self.waited = -math.inf, 0

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Raise `StopTraining` if the target is reached or the patience is over."""
        value = evaluation.mean(self.metric)
        if math.isnan(value):
            return
        if self.target is not None and value >= self.target:
            raise StopTraining(f"{self.metric} reached {value:.3g}")
        self.waited = 0 if value > self.best else self.waited + 1
        self.best = max(self.best, value)
        if self.patience is not None and self.waited >= self.patience:
            raise StopTraining(f"{self.metric} did not improve for {self.patience} evaluations")


def require_callbacks(callbacks: Sequence[Callback]) -> None:
    """Raise an error if this is not a list of callbacks."""
    if not isinstance(callbacks, Sequence):
        raise PhalanxError(f"callbacks must be a list of callbacks, not {callbacks!r}")
    for each in callbacks:
        if not isinstance(each, Callback):
            hint = f": write {each.__name__}(...)" if isinstance(each, type) else ""
            raise PhalanxError(
                f"a callback must be an object of a subclass of phalanx.Callback, not {each!r}{hint}"
            )

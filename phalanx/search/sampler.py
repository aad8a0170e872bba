"""Which settings are tried: spread over the space, a whole grid, or guided by earlier results (TPE)."""

import importlib
import itertools
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from phalanx.errors import PhalanxError
from phalanx.search.space import Axis, Setting, Space


class Sampler(Protocol):
    """Proposes settings, round by round."""

    def ask(self, count: int) -> list[Setting]:
        """The settings of the next round."""
        ...

    def tell(self, outcomes: Mapping[int, tuple[float | None, int, bool]]) -> None:
        """What became of all settings of the round, numbered over all rounds.

        The last score (None: diverged), its env steps, and whether it was trained to the end.
        """
        ...


def sampler(space: Space) -> Sampler:
    """As the plan says."""
    return TPE(space) if space.plan.sampler == "tpe" else Spread(space)


class Spread:
    """A Latin hypercube: each of n equal parts of each axis has one of n settings. Or the whole grid."""

    def __init__(self, space: Space):
        self.space = space

    def ask(self, count: int) -> list[Setting]:
        axes, random = self.space.axes, np.random.default_rng(self.space.plan.draw)
        if all(axis.values for axis in axes):
            every = list(itertools.product(*(axis.values for axis in axes)))
            chosen = range(count) if self.space.grid else sorted(random.permutation(len(every))[:count])
            return [dict(zip((axis.name for axis in axes), every[i], strict=True)) for i in chosen]
        shares = {axis.name: (random.permutation(count) + random.random(count)) / count for axis in axes}
        return [{axis.name: axis.at(shares[axis.name][i]) for axis in axes} for i in range(count)]

    def tell(self, outcomes: Mapping[int, tuple[float | None, int, bool]]) -> None:
        """All settings are chosen beforehand."""


class TPE:
    """The tree-structured Parzen estimator of optuna (Bergstra et al. 2011).

    With the same order of calls it proposes the same settings, so that an interrupted search continues
    unchanged.
    """

    def __init__(self, space: Space):
        self.optuna = _optuna()
        self.space, self.trials = space, []
        self.distributions = {axis.name: self._distribution(axis) for axis in space.axes}
        self.study = self.optuna.create_study(
            direction="maximize", sampler=self.optuna.samplers.TPESampler(seed=space.plan.draw)
        )

    def _distribution(self, axis: Axis) -> Any:
        kinds = self.optuna.distributions
        if axis.values:
            return kinds.CategoricalDistribution(axis.values)
        if axis.whole:
            return kinds.IntDistribution(int(axis.low), int(axis.high), log=axis.log)
        return kinds.FloatDistribution(axis.low, axis.high, log=axis.log)

    def ask(self, count: int) -> list[Setting]:
        asked = [self.study.ask(self.distributions) for _ in range(count)]
        self.trials += asked
        return [
            {
                name: float(f"{value:.6g}") if isinstance(value, float) else value
                for name, value in each.params.items()
            }
            for each in asked
        ]

    def tell(self, outcomes: Mapping[int, tuple[float | None, int, bool]]) -> None:
        states = self.optuna.trial.TrialState
        for number, (score, steps, ended) in outcomes.items():
            trial = self.trials[number]
            if score is None:
                self.study.tell(trial, state=states.FAIL)
            elif ended:
                self.study.tell(trial, score)
            else:
                trial.report(score, steps)
                self.study.tell(trial, state=states.PRUNED)


def _optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ImportError:
        raise PhalanxError(
            "sampler = \"tpe\" needs the extra search: pip install 'phalanx[search]'; "
            'sampler = "spread" needs nothing'
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna

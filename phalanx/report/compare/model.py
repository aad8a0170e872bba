"""Arms on tasks: their scores, aggregates over tasks, and whether differences are significant."""

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from phalanx.errors import PhalanxError
from phalanx.report import statistics as st
from phalanx.report.compare import wording
from phalanx.report.compare.runs import Trained
from phalanx.report.statistics import Interval

SHOWN = 0.05  # the largest p value at which a difference counts as shown
GRID = 41  # points of a curve over all tasks


class Cell(NamedTuple):
    """One arm on one task."""

    runs: list[Trained]
    seeds: list[int]
    scores: np.ndarray
    """(S,)"""
    steps: np.ndarray
    """(P,) env steps of the evaluations"""
    curve: np.ndarray
    """(S, P)"""
    episodes: int | None = None
    """of each score; None if it is no win rate"""
    curve_episodes: int | None = None
    """of each point of the curve; None if it is no win rate"""


class Pair(NamedTuple):
    """Two arms, the one with the higher scores first."""

    better: str
    other: str
    improvement: Interval
    chance: float
    """p value, corrected for the number of pairs"""
    shown: bool


class Comparison:
    """Arms on tasks that all of them have."""

    def __init__(
        self,
        title: str,
        cells: Mapping[tuple[str, str], Cell],
        metric: Mapping[str, str],
        bounds: Mapping[str, tuple[float, float]],
        notes: Sequence[str] = (),
        control: str | None = None,
        threshold: float = 0.8,
    ):
        self.title, self.cells, self.metric, self.control = title, cells, metric, control
        self.threshold = threshold
        self.arms = list(dict.fromkeys(arm for arm, _ in cells))
        tasks = list(dict.fromkeys(task for _, task in cells))
        self.tasks = [task for task in tasks if all((arm, task) in cells for arm in self.arms)]
        self.notes = list(notes)
        for task in tasks:
            if task not in self.tasks:
                lacking = [arm for arm in self.arms if (arm, task) not in cells]
                self.notes.append(
                    f"{task} is left out of the statistics: {', '.join(lacking)} has no run there"
                )
        if not self.tasks:
            raise PhalanxError(f"there is no task that all of {', '.join(self.arms)} have a finished run on")
        self.bounds = {task: bounds.get(task) or self._range(task) for task in self.tasks}

    def _range(self, task: str) -> tuple[float, float]:
        """The scores that are normalised to 0 and 1: win rates 0 and 1, or the lowest and highest return."""
        if self.metric[task].endswith("/win_rate"):
            return 0.0, 1.0
        mine = [self.cells[arm, task] for arm in self.arms]
        seen = np.concatenate([part.ravel() for cell in mine for part in (cell.scores, cell.curve)])
        return float(seen.min()), float(max(seen.max(), seen.min() + 1e-9))

    def normalise(self, task: str, values: np.ndarray) -> np.ndarray:
        low, high = self.bounds[task]
        return (values - low) / (high - low)

    def scores(self, arm: str) -> list[np.ndarray]:
        """Normalised scores, (S,) for each task."""
        return [self.normalise(task, self.cells[arm, task].scores) for task in self.tasks]

    def episodes(self, arm: str, curves: bool = False) -> list[int] | None:
        """Episodes of each task's score, or of a point of its curves; None if not all are win rates."""
        cells = [self.cells[arm, task] for task in self.tasks]
        counts = [cell.curve_episodes if curves else cell.episodes for cell in cells]
        rates = all(self.bounds[task] == (0, 1) for task in self.tasks)
        return [count for count in counts if count is not None] if rates and None not in counts else None

    def mean(self, arm: str, task: str) -> Interval:
        """The mean score of an arm on a task, not normalised."""
        cell = self.cells[arm, task]
        return st.bootstrap(st.mean, [cell.scores], None if cell.episodes is None else [cell.episodes])

    @cached_property
    def aggregates(self) -> dict[str, dict[str, Interval]]:
        """Measures over all tasks, by arm."""
        measures = {"IQM": st.iqm, "mean": st.mean, "median": st.median}
        return {
            arm: {
                name: st.bootstrap(measure, self.scores(arm), self.episodes(arm))
                for name, measure in measures.items()
            }
            for arm in self.arms
        }

    @cached_property
    def pairs(self) -> list[Pair]:
        """All pairs of arms, or each arm with the control, the most significant difference first."""
        names = list(itertools.combinations(self.arms, 2))
        if self.control:
            names = [(arm, self.control) for arm in self.arms if arm != self.control]
        names = [
            (one, other) if st.improvement(self.scores(one), self.scores(other)) >= 0.5 else (other, one)
            for one, other in names
        ]
        chances = st.holm([st.shuffled(self.scores(one), self.scores(other)) for one, other in names])
        found = []
        for (one, other), chance in zip(names, chances, strict=True):
            interval = st.improvement_interval(self.scores(one), self.scores(other))
            found.append(Pair(one, other, interval, chance, bool(interval.low > 0.5 and chance < SHOWN)))
        return sorted(found, key=lambda pair: pair.chance)

    def verdict(self, pair: Pair) -> str:
        """The conclusion about two arms, in a sentence."""
        return wording.verdict(pair, self.fewest_seeds(pair), len(self.tasks))

    def fewest_seeds(self, pair: Pair) -> int:
        return min(len(self.cells[arm, task].seeds) for arm in pair[:2] for task in self.tasks)

    def arrival(self, arm: str, task: str) -> np.ndarray:
        """Env steps at which each seed first reached the normalised threshold: (S,), inf if never."""
        cell = self.cells[arm, task]
        return st.steps_to(cell.steps, self.normalise(task, cell.curve), self.threshold)

    def stability(self, arm: str, task: str) -> tuple[float, float]:
        """The spread of the scores over seeds, and the mean drop from the best evaluation to the last."""
        cell = self.cells[arm, task]
        return st.spread(cell.scores), float(st.drop(cell.curve).mean())

    @cached_property
    def budgets(self) -> list[int]:
        """The last env step that all arms have, by task."""
        return [min(int(self.cells[arm, task].steps[-1]) for arm in self.arms) for task in self.tasks]

    def efficiency(self, arm: str) -> tuple[np.ndarray, Interval]:
        """IQM over tasks at shares of the budget, (P,) and (P,)."""
        shares = np.linspace(0, 1, GRID)
        curves = []
        for task, budget in zip(self.tasks, self.budgets, strict=True):
            cell = self.cells[arm, task]
            values = self.normalise(task, cell.curve)
            curves.append(
                np.stack([np.interp(shares * budget, cell.steps, seed) for seed in values], axis=-1)
            )
        return shares, st.bootstrap(st.iqm, curves, self.episodes(arm, curves=True), draws=st.DRAWS // 2)

    def all_runs(self) -> list[tuple[str, Trained]]:
        """Every run and its arm."""
        return [(arm, run) for (arm, _), cell in self.cells.items() for run in cell.runs]

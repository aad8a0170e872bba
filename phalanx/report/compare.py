"""Runs side by side: what is compared with what, whether that is fair, and what can be said of it.

An *arm* is what is compared, such as an algorithm with its options; a *task* is an environment. Every arm has
a run, or several, on every task, and every seed has one score there: the final evaluation of its last
parameters. All is read from the run folders alone.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phalanx.errors import PhalanxError, suggest
from phalanx.registry import read_toml
from phalanx.report import metrics
from phalanx.report import statistics as st
from phalanx.report.plots import curve
from phalanx.report.statistics import Interval

KINDS = {"eval": "greedy", "train": "sampled"}
EXPERIMENT = "experiment.json"
SHOWN = 0.05  # the largest p value at which a difference counts as shown
GRID = 41  # points of a curve over all tasks


class Trained(NamedTuple):
    """A run folder, read."""

    folder: Path
    config: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, Any]
    rows: list[dict[str, Any]]

    @property
    def algorithm(self) -> str:
        return self.config["run"]["algorithm"]

    @property
    def task(self) -> str:
        return self.config["run"]["env"]


def read(folder: Path) -> Trained:
    """Read a run folder; one that is none is refused."""
    try:
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except OSError:
        raise PhalanxError(f"{folder} is not a run folder: it has no run.json") from None
    except ValueError:
        raise PhalanxError(f"{folder / 'run.json'} is not readable") from None
    return Trained(folder, read_toml(folder / "config.toml"), facts, metrics.read(folder))


def label(runs: Sequence[Trained]) -> list[str]:
    """What each run's arm is called: its algorithm, and options that differ between its runs on one task."""
    differing: dict[str, list[str]] = {}
    for algorithm in dict.fromkeys(run.algorithm for run in runs):
        mine = [run for run in runs if run.algorithm == algorithm]
        found = {}
        for run, other in itertools.combinations(mine, 2):
            if run.task == other.task:
                found |= dict.fromkeys(differences([run, other], ("algorithm", "env")))
        differing[algorithm] = list(found)

    def name(run: Trained) -> str:
        options = (f"{key.rpartition('.')[2]}={_option(run, key)}" for key in differing[run.algorithm])
        return " ".join([run.algorithm, *options])

    return [name(run) for run in runs]


def _option(run: Trained, key: str) -> Any:
    table, _, name = key.partition(".")
    return run.config.get(table, {}).get(name)


def differences(runs: Sequence[Trained], tables: Iterable[str] = ("run", "algorithm", "env")) -> list[str]:
    """The options, as table.name, that are not the same in all runs."""
    keys = dict.fromkeys(
        f"{table}.{name}" for table in tables for run in runs for name in run.config.get(table, {})
    )
    return [key for key in keys if len({repr(_option(run, key)) for run in runs}) > 1]


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
        """What is 0 and what is 1 of a task: nothing and all wins, or the least and the most seen there."""
        if self.metric[task].endswith("/win_rate"):
            return 0.0, 1.0
        mine = [self.cells[arm, task] for arm in self.arms]
        seen = np.concatenate([part.ravel() for cell in mine for part in (cell.scores, cell.curve)])
        return float(seen.min()), float(max(seen.max(), seen.min() + 1e-9))

    def normalise(self, task: str, values: np.ndarray) -> np.ndarray:
        low, high = self.bounds[task]
        return (values - low) / (high - low)

    def scores(self, arm: str) -> list[np.ndarray]:
        """Normalised, (S,) for each task."""
        return [self.normalise(task, self.cells[arm, task].scores) for task in self.tasks]

    def episodes(self, arm: str, curves: bool = False) -> list[int] | None:
        """Of a score on each task, or of a point of its curves; None unless all scores are win rates."""
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
        """Every two arms, or every arm and the control, the surest difference first."""
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
        """What can be said of two arms, in a sentence."""
        measure = f"probability of improvement {between(pair.improvement)}"
        if pair.shown:
            return f"{pair.better} is better than {pair.other}: {measure}"
        seeds = self.fewest_seeds(pair)
        if seeds < st.FEWEST:
            few = many(seeds, "seed")
            return f"{pair.better} and {pair.other} cannot be told apart with {few}: train five or more"
        where = f" on {many(len(self.tasks), 'task')}" if len(self.tasks) > 1 else ""
        return (
            f"no difference between {pair.better} and {pair.other} can be shown with "
            f"{many(seeds, 'seed')}{where}: {measure}"
        )

    def fewest_seeds(self, pair: Pair) -> int:
        return min(len(self.cells[arm, task].seeds) for arm in pair[:2] for task in self.tasks)

    def arrival(self, arm: str, task: str) -> np.ndarray:
        """Env steps at which each seed first had the threshold of normalised score: (S,), inf if never."""
        cell = self.cells[arm, task]
        return st.steps_to(cell.steps, self.normalise(task, cell.curve), self.threshold)

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

    def summary(self) -> dict[str, Any]:
        """All figures as plain data."""
        return {
            "title": self.title,
            "metric": dict(self.metric),
            "bounds": self.bounds,
            "notes": self.notes,
            "verdicts": [self.verdict(pair) for pair in self.pairs],
            "improvement": [
                {"better": pair.better, "other": pair.other, **_plain(pair.improvement), "p": pair.chance}
                for pair in self.pairs
            ],
            "aggregates": {
                arm: {name: _plain(interval) for name, interval in found.items()}
                for arm, found in self.aggregates.items()
            },
            "scores": [
                {"arm": arm, "task": task, "seeds": cell.seeds, "scores": cell.scores.tolist()}
                for (arm, task), cell in self.cells.items()
            ],
        }


def _plain(interval: Interval) -> dict[str, float | None]:
    return {
        name: None if np.isnan(value) else float(value)
        for name, value in zip(("value", "low", "high"), interval, strict=True)
    }


def many(count: int, what: str) -> str:
    """`1 seed`, `5 seeds`."""
    return f"{count} {what}" + "s" * (count != 1)


def between(interval: Interval, digits: int = 2) -> str:
    """`0.93 [0.81, 0.99]`; without the interval where it is not known."""
    value, low, high = (f"{each:.{digits}f}" for each in interval)
    return value if np.isnan(interval.low) else f"{value} [{low}, {high}]"


def compare(
    runs: Sequence[Trained],
    arms: Sequence[str] | None = None,
    *,
    title: str = "Comparison",
    metric: Mapping[str, str] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    steps: int | None = None,
    notes: Sequence[str] = (),
    control: str | None = None,
    threshold: float = 0.8,
) -> Comparison:
    """Put runs into arms and tasks, or say why they cannot be compared.

    `arms` names the arm of each run (default: by `label`). `metric` is a metric for each task, and under ""
    for all others (default: greedy wins where there are any, else greedy return). `steps` compares at what
    was evaluated up to then.
    """
    arms = arms or label(runs)
    if len(set(arms)) < 2:
        raise PhalanxError(
            f"there is only one arm, {arms[0]}: give runs of something else to compare it with"
        )
    if control is not None and control not in arms:
        raise PhalanxError(f"there is no arm {control!r} to compare with.{suggest(control, arms)}")
    by_task: dict[str, list[Trained]] = {}
    for run in runs:
        by_task.setdefault(run.task, []).append(run)
    chosen = {task: _metric(task, mine, metric or {}) for task, mine in by_task.items()}
    require_one_kind(chosen)
    for task, mine in by_task.items():
        require_fair(task, mine, steps)
    groups: dict[tuple[str, str], list[Trained]] = {}
    for arm in dict.fromkeys(arms):
        for task in by_task:
            mine = [run for name, run in zip(arms, runs, strict=True) if (name, run.task) == (arm, task)]
            if mine:
                groups[arm, task] = mine
    cells = {(arm, task): _cell(arm, chosen[task], mine, steps) for (arm, task), mine in groups.items()}
    said = [*notes, *_env_notes(by_task)]
    return Comparison(title, cells, chosen, bounds or {}, said, control, threshold)


def gather(what: Sequence[str], **options: Any) -> tuple[Path, Comparison]:
    """Compare what a command names: [NAME=]RUN folders, or an experiment's; also where the report belongs."""
    if len(what) == 1 and (Path(what[0]) / EXPERIMENT).is_file():
        return _experiment(Path(what[0]), **options)
    folders, names = [], []
    for each in what:
        name, named, folder = each.partition("=")
        known = Path(each).exists() or not named
        folders.append(Path(each if known else folder))
        names.append(None if known else name)
        if not folders[-1].is_dir():
            raise PhalanxError(f"there is no run folder {folders[-1]}")
    runs = [read(folder) for folder in folders]
    arms = [name or called for name, called in zip(names, label(runs), strict=True)]
    return Path("results", "compare"), compare(runs, arms, **options)


def _experiment(out: Path, **options: Any) -> tuple[Path, Comparison]:
    """Compare the finished runs of an experiment; what is missing is noted."""
    told = json.loads((out / EXPERIMENT).read_text(encoding="utf-8"))
    runs, arms, notes = [], [], []
    for cell in told["cells"]:
        try:
            run = read(out / cell["folder"])
        except PhalanxError:
            run = None
        if run is not None and (options.get("steps") or run.facts.get("status") == "finished"):
            runs.append(run)
            arms.append(cell["arm"])
        else:
            why = f"failed: {cell['failed']}" if cell["failed"] else "is not finished"
            notes.append(f"{cell['arm']} on {cell['env']} {why}")
    if not runs:
        raise PhalanxError(f"no run of {out} is finished: phalanx experiment {told['file']}")
    options["control"] = options.get("control") or told["control"]
    bounds = {task: (low, high) for task, (low, high) in told["bounds"].items()}
    return out / "report", compare(runs, arms, title=told["title"], bounds=bounds, notes=notes, **options)


def _metric(task: str, runs: Sequence[Trained], wanted: Mapping[str, str]) -> str:
    """The metric of a task, which all its runs must have."""
    have = set.intersection(*({name for row in run.rows for name in row if "/" in name} for run in runs))
    name = (
        wanted.get(task)
        or wanted.get("")
        or next((each for each in ("eval/win_rate", "eval/return") if each in have), "eval/return")
    )
    if name not in have:
        known = [each for each in have if each.partition("/")[0] in KINDS]
        raise PhalanxError(f"not all runs on {task} have a metric {name!r}.{suggest(name, known)}")
    return name


def require_one_kind(chosen: Mapping[str, str]) -> None:
    """Refuse to mix greedy and sampled play."""
    of_kind = {metric.partition("/")[0]: (task, metric) for task, metric in chosen.items()}
    for kind in of_kind.keys() - KINDS.keys():
        raise PhalanxError(f"{of_kind[kind][1]} is no score: take one of eval/ (greedy) or train/ (sampled)")
    if len(of_kind) > 1:
        greedy, sampled = of_kind["eval"], of_kind["train"]
        raise PhalanxError(
            f"{greedy[1]} on {greedy[0]} is of greedy play and {sampled[1]} on {sampled[0]} of sampled play: "
            f"they cannot be compared; take eval/ or train/ for all"
        )


def require_fair(task: str, runs: Sequence[Trained], steps: int | None) -> None:
    """Refuse runs that did not do the same: other rules, other budgets, an unfinished one."""
    first = runs[0]
    for run in runs:
        old, new = (each.facts.get("env_version", 1) for each in (first, run))
        if old != new:
            raise PhalanxError(
                f"{first.folder} was made with version {old} of {task} and {run.folder} with version {new}: "
                f"their numbers are not comparable; train one of them again"
            )
        if steps is None and run.facts.get("status") != "finished":
            raise PhalanxError(
                f"{run.folder} is not finished ({run.facts.get('status', 'no status')}): phalanx resume "
                f"{run.folder}, or compare what all had by then with --steps"
            )
        budgets = [each.config["run"]["steps"] for each in (first, run)]
        if steps is None and budgets[0] != budgets[1]:
            raise PhalanxError(
                f"{first.folder} had {budgets[0]:,} steps on {task} and {run.folder} {budgets[1]:,}: "
                f"compare what both had by then with --steps {min(budgets)}"
            )
        reached = max((row["env_steps"] for row in run.rows), default=0)
        if steps is not None and reached < steps:
            raise PhalanxError(f"{run.folder} has only {reached:,} env steps, not the {steps:,} of --steps")


def _env_notes(by_task: Mapping[str, Sequence[Trained]]) -> list[str]:
    """Say where environments are set differently: whether that makes them easier, only people know."""
    return [
        f"runs on {task} differ in options of the environment: {', '.join(each[4:] for each in found)}"
        for task, runs in by_task.items()
        if (found := differences(runs, ("env",)))
    ]


def _cell(arm: str, metric: str, runs: list[Trained], steps: int | None) -> Cell:
    """Gather the seeds of an arm on a task."""
    owner: dict[int, Trained] = {}
    for run in runs:
        for seed in run.facts["seeds"]:
            if seed in owner:
                raise PhalanxError(
                    f"seed {seed} of {arm} on {run.task} is in {owner[seed].folder} and in {run.folder}: "
                    f"leave one out, or name them as two arms, NAME=RUN"
                )
            owner[seed] = run
    points = curve([row for run in runs for row in run.rows], metric)
    if points is None or not len(points[0]):
        raise PhalanxError(f"the runs of {arm} on {runs[0].task} were never evaluated at the same env steps")
    at, values = points
    if steps is not None:
        at, values = at[at <= steps], values[:, at <= steps]
    kind, _, name = metric.partition("/")
    if kind == "eval" and steps is None:
        ends = {row["seed"]: row[name] for run in runs for row in run.facts["final"]["last"]["seeds"]}
        scores = np.array([ends[seed] for seed in owner])
    else:
        scores = values[:, -1]
    return Cell(runs, list(owner), scores, at, values, *_episodes(metric, runs, steps))


def _episodes(metric: str, runs: Sequence[Trained], steps: int | None) -> tuple[int | None, int | None]:
    """Episodes behind a score and behind a point of its curve; None if they are no win rates.

    Episodes of sampled play are not counted: at least those of an evaluation are assumed.
    """
    kind, _, name = metric.partition("/")
    if name != "win_rate":
        return None, None
    evaluated = min(run.config["run"]["eval_episodes"] for run in runs)
    if kind == "eval" and steps is None:
        return min(run.facts["final"]["last"]["episodes"] for run in runs), evaluated
    return evaluated, evaluated


def marl_eval(comparison: Comparison) -> dict[str, Any]:
    """The results in the JSON format of marl-eval (Gorsane et al. 2022), which other tools read and write.

    environment -> task -> algorithm -> seed -> step -> metric. Absolute metrics are of the best parameters.
    """
    found: dict[str, Any] = {}
    for arm, run in comparison.all_runs():
        family, _, task = run.task.partition("/")
        arm = arm.replace(",", ";")  # its tools split names at commas
        seeds = found.setdefault(family, {}).setdefault(task or family, {}).setdefault(arm, {})
        best = {row["seed"]: row for row in run.facts.get("final", {}).get("best", {}).get("seeds", [])}
        for seed in run.facts["seeds"]:
            rows = [row for row in run.rows if row["seed"] == seed]
            seeds[f"seed_{seed}"] = {
                f"step_{i}": {
                    "step_count": row["env_steps"],
                    **_greedy({name[5:]: value for name, value in row.items() if name.startswith("eval/")}),
                }
                for i, row in enumerate(rows)
            } | {"absolute_metrics": _greedy({k: v for k, v in best.get(seed, {}).items() if k != "seed"})}
    return found


def _greedy(values: Mapping[str, float]) -> dict[str, list[float]]:
    return {name: [value] for name, value in values.items()}

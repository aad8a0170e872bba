"""From run folders, or the folder of an experiment, to a comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from phalanx.errors import PhalanxError, suggest
from phalanx.report.compare.fairness import (
    KINDS,
    arm_notes,
    env_notes,
    require_fair,
    require_one_kind,
    tuning_notes,
)
from phalanx.report.compare.model import Cell, Comparison
from phalanx.report.compare.runs import Trained, label, read
from phalanx.report.compare.sound import number, read_plan
from phalanx.report.plots import curve

EXPERIMENT = "experiment.json"


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
    """Group runs into arms and tasks, or raise an error that says why they cannot be compared.

    `arms` names the arm of each run (default: by `label`). `metric` maps tasks to metrics; the key "" is for
    all other tasks (default: greedy win rate if there is one, else greedy return). `steps` compares the last
    evaluations up to that env step.
    """
    arms = arms or label(runs)
    if len(set(arms)) < 2:
        raise PhalanxError(f"there is only one arm, {arms[0]}: give runs of another arm to compare it with")
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
    by_arm = {
        arm: [run for (mine, _), found in groups.items() if mine == arm for run in found]
        for arm in dict.fromkeys(arms)
    }
    said = [*notes, *arm_notes(groups), *env_notes(by_task), *tuning_notes(by_arm)]
    return Comparison(title, cells, chosen, bounds or {}, said, control, threshold)


def gather(what: Sequence[str], **options: Any) -> tuple[Path, Comparison]:
    """Compare [NAME=]RUN folders or an experiment's folder; also returns where the report is written."""
    if len(what) == 1 and (Path(what[0]) / EXPERIMENT).is_file():
        return _experiment(Path(what[0]), **options)
    return Path("results", "compare"), of_folders([_named(each) for each in what], **options)


def _named(word: str) -> tuple[str | None, Path]:
    """The name of an arm, if one is given, and a run folder; a folder may have a = in its name."""
    name, named, folder = word.partition("=")
    return (None, Path(word)) if Path(word).exists() or not named else (name, Path(folder))


def of_folders(named: Sequence[tuple[str | None, Path]], **options: Any) -> Comparison:
    """Compare run folders, each with the name of its arm; None: named by what differs."""
    for _, folder in named:
        if not folder.is_dir():
            raise PhalanxError(f"there is no run folder {folder}")
    runs = [read(folder) for _, folder in named]
    arms = [name or called for (name, _), called in zip(named, label(runs), strict=True)]
    return compare(runs, arms, **options)


def _experiment(out: Path, **options: Any) -> tuple[Path, Comparison]:
    """Compare the finished runs of an experiment; missing runs are noted."""
    plan = read_plan(out, EXPERIMENT)
    runs, arms, notes = [], [], []
    for cell in plan["cells"]:
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
        raise PhalanxError(f"no run of {out} is finished: phalanx experiment {plan['file']}")
    options["control"] = options.get("control") or plan["control"]
    plan_options = {"title": plan["title"], "bounds": plan["bounds"]}
    return out / "report", compare(runs, arms, notes=notes, **plan_options, **options)


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
    if not all(map(number, values.flat)):
        raise PhalanxError(f"a run of {arm} on {runs[0].task} has a {metric} that is not a finite number")
    if steps is not None:
        at, values = at[at <= steps], values[:, at <= steps]
    kind, _, name = metric.partition("/")
    if kind == "eval" and steps is None:
        scores = np.array([_final(run, seed, name) for seed, run in owner.items()])
    else:
        scores = values[:, -1]
    return Cell(runs, list(owner), scores, at, values, *_episodes(metric, runs, steps))


def _final(run: Trained, seed: int, name: str) -> float:
    """The final score of a seed."""
    rows = run.facts.get("final", {}).get("last", {}).get("seeds", [])
    found = [row.get(name) for row in rows if row["seed"] == seed]
    if not found or not number(found[-1]):
        raise PhalanxError(f"{run.folder / 'run.json'} has no final {name} of seed {seed}")
    return found[-1]


def _episodes(metric: str, runs: Sequence[Trained], steps: int | None) -> tuple[int | None, int | None]:
    """The number of episodes of a score and of a point of its curve; None if scores are not win rates.

    Episodes with sampled actions are not counted; the number of evaluation episodes is used as a lower bound.
    """
    kind, _, name = metric.partition("/")
    if name != "win_rate":
        return None, None
    evaluated = min(run.config["run"]["eval_episodes"] for run in runs)
    if kind == "eval" and steps is None:
        return min(run.facts["final"]["last"]["episodes"] for run in runs), evaluated
    return evaluated, evaluated

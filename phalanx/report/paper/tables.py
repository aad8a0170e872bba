"""The tables of a paper: scores, verdicts, how soon, budgets, options."""

import itertools
from typing import Any

import numpy as np

from phalanx.report import statistics as st
from phalanx.report.compare import SHOWN, Comparison, Trained, differences
from phalanx.report.paper.latex import between, count, escape, number, stacked, tabulars
from phalanx.report.plots import thousands

TWO_LINES = 28  # rows of two lines that fit on a page
ALL = ""  # all tasks together, where a task is asked for
# What the table of options leaves out: names, what the table of budgets has, and what changes no number.
UNTOLD = {"algorithm", "env", "steps", "seeds", "seed", "eval_every", "eval_episodes", "final_episodes"}
UNTOLD |= {"keep", "save_every", "save_buffer", "tensorboard", "wandb", "mlflow", "step_timeout"}


def leaders(result: Comparison) -> dict[str, str]:
    """The arm that is significantly better than every other arm, by task and for ALL, if there is one.

    The tests are those of a verdict: an interval above 0.5 and a permutation test. Tests on single tasks are
    corrected together, for the number of pairs and of tasks (Holm).
    """
    over_all = _wins(result, {ALL: list(range(len(result.tasks)))})
    single = _wins(result, {task: [at] for at, task in enumerate(result.tasks)})
    wins = over_all | single
    return {
        task: arm
        for task in (ALL, *result.tasks)
        for arm in result.arms
        if len([pair for pair in wins if pair[:2] == (task, arm)]) == len(result.arms) - 1
    }


def _wins(result: Comparison, families: dict[str, list[int]]) -> set[tuple[str, str, str]]:
    """Significant differences on some tasks as (name, better, other); the tests are corrected together."""
    tests, chances = [], []
    for name, tasks in families.items():
        for one, other in itertools.combinations(result.arms, 2):
            scores, others = ([result.scores(arm)[at] for at in tasks] for arm in (one, other))
            if st.improvement(scores, others) < 0.5:
                one, other, scores, others = other, one, others, scores
            tests.append((name, one, other, st.improvement_interval(scores, others)))
            chances.append(st.shuffled(scores, others))
    return {
        (name, one, other)
        for (name, one, other, interval), chance in zip(tests, st.holm(chances), strict=True)
        if interval.low > 0.5 and chance < SHOWN
    }


def scores(result: Comparison) -> list[str]:
    """Mean and interval of every arm on every task, and measures over all tasks.

    Tasks are rows; they are columns where there are more arms than tasks. An arm is bold where it leads.
    """
    leading = leaders(result)
    measures = list(next(iter(result.aggregates.values())))
    measures = (
        measures if len(result.tasks) > 1 else measures[:1]
    )  # of one task, only the IQM is another number

    def cells(arm: str) -> list[str]:
        alone = [stacked(result.mean(arm, task), leading.get(task) == arm) for task in result.tasks]
        together = [stacked(result.aggregates[arm][name], leading.get(ALL) == arm) for name in measures]
        return alone + together

    titles = [*map(escape, result.tasks), *measures]
    columns = [cells(arm) for arm in result.arms]
    if len(result.arms) > len(result.tasks) + len(measures):
        rows = [[escape(arm), *column] for arm, column in zip(result.arms, columns, strict=True)]
        return tabulars("l" + "c" * len(titles), ["Arm", *titles], [rows], TWO_LINES)
    rows = [list(row) for row in zip(titles, *columns, strict=True)]
    split = len(result.tasks)
    return tabulars(
        "l" + "c" * len(result.arms),
        ["Task", *map(escape, result.arms)],
        [rows[:split], rows[split:]],
        TWO_LINES,
    )


def verdicts(result: Comparison) -> list[str]:
    """Every pair of arms that is compared: probability of improvement, p value and verdict."""
    rows = [
        [
            f"{escape(pair.better)} over {escape(pair.other)}",
            between(pair.improvement),
            number(pair.chance, 3) if pair.chance >= 0.001 else "$<$0.001",
            "better" if pair.shown else "no difference shown",
        ]
        for pair in result.pairs
    ]
    head = ["Comparison", "Probability of improvement", "$p$", "Verdict"]
    return tabulars("lccl", head, [rows])


def arrivals(result: Comparison) -> list[str]:
    """Env steps to the threshold: median over seeds, and the number of seeds that reached it."""

    def cell(arm: str, task: str) -> str:
        steps = result.arrival(arm, task)
        middle, there = float(np.median(steps)), int(np.isfinite(steps).sum())
        value = thousands(float(f"{middle:.3g}")) if np.isfinite(middle) else "--"
        return f"{value} ({there}/{len(steps)})"

    rows = [[escape(task), *(cell(arm, task) for arm in result.arms)] for task in result.tasks]
    return tabulars("l" + "c" * len(result.arms), ["Task", *map(escape, result.arms)], [rows])


def seeds_of(runs: list[Trained]) -> str:
    """`0--4`, `0, 7`."""
    seeds = sorted(seed for run in runs for seed in run.facts["seeds"])
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}--{seeds[-1]}"
    return ", ".join(map(str, seeds))


def budgets(result: Comparison) -> list[str]:
    """The budget of every arm on every task: seeds, env steps, evaluation episodes, version of the rules."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for (arm, task), cell in result.cells.items():
        config, facts = cell.runs[0].config["run"], cell.runs[0].facts
        key = (
            escape(task),
            str(facts.get("env_version", 1)),
            seeds_of(cell.runs),
            count(int(config["steps"])),
            _shown(config.get("eval_every")),
            _shown(config.get("eval_episodes")),
            _shown(facts.get("final", {}).get("last", {}).get("episodes")),
        )
        rows.setdefault(key, []).append(arm)
    order = [[key[0], _arms(result, arms), *key[1:]] for key, arms in rows.items()]
    head = ["Task", "Arms", "Rules", "Seeds", "Env steps", "Evaluated every", "Episodes", "Final episodes"]
    return tabulars("llrrrrrr", head, [sorted(order, key=lambda row: row[0])])


def _arms(result: Comparison, arms: list[str]) -> str:
    return "all" if set(arms) == set(result.arms) else ", ".join(map(escape, arms))


def _shown(value: Any) -> str:
    """A value of a configuration; a dash where there is none."""
    if value is None or value == "":
        return "--"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return count(value) if isinstance(value, int) else escape(value)


def options(result: Comparison) -> list[str]:
    """Options that are not at their default somewhere, or that differ between arms which both have them."""
    runs = [run for _, run in result.all_runs()]
    keys = dict.fromkeys(
        f"{table}.{name}"
        for run in runs
        for table, names in run.facts.get("origins", {}).items()
        for name, origin in names.items()
        if origin != "default"
    )
    for task in result.tasks:
        mine = [result.cells[arm, task].runs[0] for arm in result.arms]
        for one, other in itertools.combinations(mine, 2):
            keys |= dict.fromkeys(
                key for key in differences([one, other]) if _has(one, key) and _has(other, key)
            )
    told = [key for key in keys if key.partition(".")[2] not in UNTOLD]
    rows = [
        [rf"\texttt{{{escape(key)}}}", *(_values(result, arm, key) for arm in result.arms)]
        for key in sorted(told)
    ]
    head = ["Option", *map(escape, result.arms)]
    return tabulars("l" + "l" * len(result.arms), head, [rows])


def _has(run: Trained, key: str) -> bool:
    """Whether a run has an option; algorithms have different options."""
    table, _, name = key.partition(".")
    return name in run.config.get(table, {})


def _values(result: Comparison, arm: str, key: str) -> str:
    """The value of an option: one, or one for each task, in the order of the tasks."""
    table, _, name = key.partition(".")
    values = [
        _shown(result.cells[arm, task].runs[0].config.get(table, {}).get(name)) for task in result.tasks
    ]
    return values[0] if len(set(values)) == 1 else " / ".join(values)

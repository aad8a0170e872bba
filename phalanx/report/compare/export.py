"""A comparison as plain data: our own JSON, and marl-eval's."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from phalanx.report.compare.model import Comparison
from phalanx.report.statistics import Interval


def summary(comparison: Comparison) -> dict[str, Any]:
    """All figures as plain data."""
    return {
        "title": comparison.title,
        "metric": dict(comparison.metric),
        "bounds": comparison.bounds,
        "notes": comparison.notes,
        "verdicts": [comparison.verdict(pair) for pair in comparison.pairs],
        "improvement": [
            {"better": pair.better, "other": pair.other, **_plain(pair.improvement), "p": pair.chance}
            for pair in comparison.pairs
        ],
        "aggregates": {
            arm: {name: _plain(interval) for name, interval in found.items()}
            for arm, found in comparison.aggregates.items()
        },
        "scores": [
            {"arm": arm, "task": task, "seeds": cell.seeds, "scores": cell.scores.tolist()}
            for (arm, task), cell in comparison.cells.items()
        ],
        "stability": [
            {"arm": arm, "task": task, "spread": None if np.isnan(spread) else spread, "drop": drop}
            for arm, task in comparison.cells
            for spread, drop in [comparison.stability(arm, task)]
        ],
    }


def _plain(interval: Interval) -> dict[str, float | None]:
    return {
        name: None if np.isnan(value) else float(value)
        for name, value in zip(("value", "low", "high"), interval, strict=True)
    }


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

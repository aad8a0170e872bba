"""Reference results: scores of our own runs, and a check whether new runs agree with them.

A reference is a file `phalanx/references/ID.json`: what was run, its merged configuration, versions, the
rules' version and what every seed scored. `phalanx reproduce ID` runs it with seeds that it did not have.
"""

import json
import shlex
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phalanx import api, registry
from phalanx.config import Layer
from phalanx.errors import PhalanxError
from phalanx.experiment import Cell, require_unchanged, settings
from phalanx.report import statistics as st
from phalanx.report.compare import Trained, many
from phalanx.report.console import Console
from phalanx.report.figures import metric_name

FOLDER = registry.ROOT / "references"
TOLERANCE = 0.1  # of what was learnt: a smaller difference is none


def describe(cell: Cell, run: Trained) -> dict[str, Any]:
    """A finished run as a reference."""
    name = "win_rate" if any("eval/win_rate" in row for row in run.rows) else "return"
    first, last = run.rows[0]["env_steps"], run.facts["final"]["last"]
    return {
        "algorithm": cell.algorithm,
        "env": cell.env,
        "preset": cell.preset,
        "options": dict(cell.options),
        "env_options": dict(cell.env_options),
        "metric": f"eval/{name}",
        "scores": [row[name] for row in last["seeds"]],
        "untrained": [row[f"eval/{name}"] for row in run.rows if row["env_steps"] == first],
        "episodes": last["episodes"],
        "config": run.config,
        **{
            key: run.facts[key]
            for key in ("seeds", "env_version", "versions", "device", "git", "seconds", "started")
        },
    }


def read(name: str) -> dict[str, Any]:
    """A reference by its id."""
    registry.require_reference(name)
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def again(reference: dict[str, Any], seeds: int | None, seed: int | None, out: Path) -> Cell:
    """The same run with fresh seeds: as many as it had, from the first that it did not have."""
    options = dict(reference["options"])
    options["seeds"] = seeds or len(reference["seeds"])
    options["seed"] = max(reference["seeds"]) + 1 if seed is None else seed
    taken = set(range(options["seed"], options["seed"] + options["seeds"])) & set(reference["seeds"])
    if taken:
        raise PhalanxError(
            f"the reference has seed {min(taken)} itself: leave out --seed, or give a larger one"
        )
    env, algorithm, preset = (reference[key] for key in ("env", "algorithm", "preset"))
    return Cell("reference", env, algorithm, preset, options, reference["env_options"], out)


def run(name: str, seeds: int | None, seed: int | None, out: Path) -> tuple["Judged", list[str]]:
    """Repeat a reference, unless that is done already, and compare; also returns what has changed since."""
    reference = read(name)
    cell = again(reference, seeds, seed, out)
    setup = cell.setup()
    if setup.env.spec.version != reference["env_version"]:
        code = (
            f"commit {reference['git']}"
            if reference["git"]
            else f"phalanx {reference['versions']['phalanx']}"
        )
        raise PhalanxError(
            f"{name} was made with version {reference['env_version']} of {cell.env}, and this is version "
            f"{setup.env.spec.version}: its numbers can be reproduced only with {code}"
        )
    require_unchanged(cell, setup)
    if cell.state == "begun":
        api.resume(out)
    elif cell.state == "new":
        layer = Layer(f"reference {name}", api.tables_of(cell.algorithm, cell.options, cell.env_options))
        setup = api.resolve(cell.algorithm, cell.env, layer, None, cell.preset)
        api.train_setup(setup, out, Console(), shlex.join(["phalanx", *cell.command]), time.monotonic())
    ends = cell.facts()["final"]["last"]["seeds"]
    name_of_score = reference["metric"].removeprefix("eval/")
    return judge(reference, [row[name_of_score] for row in ends]), changes(reference, settings(setup))


class Judged(NamedTuple):
    """Whether new scores are like those of a reference."""

    agree: bool
    sentence: str


def judge(reference: dict[str, Any], scores: list[float]) -> Judged:
    """Agree if the difference's interval is within a tenth of what was learnt; differ if it is off zero."""
    old, new = np.array(reference["scores"]), np.array(scores)
    rates = reference["metric"] == "eval/win_rate"
    apart = st.difference(new, old, reference["episodes"] if rates else None)
    near = TOLERANCE * abs(float(old.mean() - np.mean(reference["untrained"])))
    within = bool(max(abs(apart.low), abs(apart.high)) <= near)
    off = bool(apart.low > 0 or apart.high < 0)
    said = (
        f"{metric_name(reference['metric'])} {new.mean():.3g} with {many(len(new), 'fresh seed')}, "
        f"{old.mean():.3g} in the reference: difference {apart.value:+.3g} "
        f"[{apart.low:+.3g}, {apart.high:+.3g}]"
    )
    if within:
        return Judged(True, f"agree: {said}, within {near:.3g}")
    if off:
        return Judged(False, f"differ: {said}")
    more = f"--seeds {2 * max(len(new), 4)} would be more conclusive"
    return Judged(False, f"cannot tell: {said}, which may be none or more than {near:.3g}; {more}")


def changes(reference: dict[str, Any], now: dict[str, dict[str, Any]]) -> list[str]:
    """Options whose merged value is not what the reference had: a preset or a default has changed since."""
    return [
        f"{name} was {was} and is now {now[table].get(name)}"
        for table, values in reference["config"].items()
        for name, was in values.items()
        if name not in ("seed", "seeds") and now[table].get(name) != was
    ]

"""A comparison as one HTML page without scripts or network, with a light and a dark style."""

import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from phalanx import __version__
from phalanx.errors import PhalanxError
from phalanx.report import figures
from phalanx.report import statistics as st
from phalanx.report.compare import (
    Comparison,
    Trained,
    between,
    differences,
    gather,
    many,
    marl_eval,
    of_folders,
    summary,
)
from phalanx.report.console import duration
from phalanx.report.folder import config_text
from phalanx.report.plots import thousands

NO_VALUE = "-"
STYLE = Path(__file__).with_suffix(".css")

MEANINGS = {
    "score": "The result of one seed: the mean over the final greedy episodes of its last parameters, not "
    "of its best.",
    "normalised score": "A score on a scale from 0 to 1, so that tasks can be averaged. Win rates are not "
    "changed. For returns, 0 is the lowest and 1 the highest return of any evaluation here, unless the "
    "experiment sets bounds.",
    "IQM": "Interquartile mean: the mean of the middle half of all seeds on all tasks. It is less "
    "sensitive to single lucky or failed seeds than the mean, and uses more of the data than the median.",
    "interval": "A 95 % confidence interval. For means, medians and the IQM it is a stratified bootstrap "
    "of seeds, widened for few seeds like Student's t; for win rates it is at least as wide as the "
    "sampling error of the episodes. For probabilities it is a score interval. With fewer than three "
    "seeds there are none.",
    "probability of improvement": "How often a random seed of one arm beats a random seed of the other on "
    "the same task. 0.5 is no difference.",
    "better": "The interval of the probability of improvement lies above 0.5, and a permutation test "
    "gives p < 5 %, corrected for the number of pairs (Holm).",
    "performance profile": "For every score, the fraction of seeds that are above it. If one curve is "
    "above another everywhere, its arm is better at every level.",
    "how soon": "Env steps until the first evaluation in which a seed's normalised score reaches the "
    "threshold.",
    "drop": "The highest evaluation of a seed during training minus its last one. Evaluations have few "
    "episodes, so a small drop is also sampling error.",
}


def compare(
    runs: Mapping[str, str | Path] | str | Path,
    *,
    out: str | Path | None = None,
    metric: str | Mapping[str, str] | None = None,
    steps: int | None = None,
    control: str | None = None,
    threshold: float = 0.8,
) -> dict[str, Any]:
    """Compare runs as `phalanx compare` does: write a report, and return what its `comparison.json` holds.

    `runs` has a run folder for each name, such as `{"shared": "results/a", "own": "results/b"}`, or is the
    folder of an experiment. The result has `verdicts` (a sentence for each pair), `notes`, `scores`,
    `aggregates` and `improvement`, with confidence intervals over seeds. `metric` is that of all tasks or
    has one for each; `steps` compares at this number of env steps (default: at the end); `control` compares
    every arm with this one only; `threshold` is the normalised score for the time to threshold. `out` is the
    folder of the report (default: results/compare, or EXPERIMENT/report).
    """
    options: dict[str, Any] = {
        "metric": {"": metric} if isinstance(metric, str) else metric or {},
        "steps": steps,
        "control": control,
        "threshold": threshold,
    }
    if isinstance(runs, Mapping):
        named = [(name, Path(folder)) for name, folder in runs.items()]
        folder, result = Path("results", "compare"), of_folders(named, **options)
    else:
        folder, result = gather([str(runs)], **options)
    write(result, Path(out) if out is not None else folder, "phalanx.compare(...)")
    return summary(result)


def write(result: Comparison, out: Path, command: str) -> list[Path]:
    """Write the report, its pictures and its data into a folder; the page first."""
    page = out / "report.html"
    try:
        out.mkdir(parents=True, exist_ok=True)
        page.write_bytes(html(result, command).encode("utf-8", "backslashreplace"))
        (out / "comparison.json").write_text(json.dumps(summary(result), indent=1) + "\n", encoding="utf-8")
        (out / "marl_eval.json").write_text(json.dumps(marl_eval(result)) + "\n", encoding="utf-8")
    except OSError as error:
        raise PhalanxError(f"cannot write {out}: {error.strerror}") from None
    pictures = figures.save(figures.curves(result), out / "curves")
    pictures += figures.save(figures.aggregates(result), out / "aggregates")
    return [page, *pictures, out / "comparison.json", out / "marl_eval.json"]


def html(result: Comparison, command: str) -> str:
    """The whole page."""
    seeds = sorted({len(cell.seeds) for cell in result.cells.values()})
    count = many(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    lead = f"{many(len(result.arms), 'arm')} on {many(len(result.tasks), 'task')}, {count} each."
    parts = [
        f'<h1>{escape(result.title)}</h1><p class="lead">{lead}</p>',
        _verdicts(result),
        _section("Scores", _score_table(result), _scores_are(result)),
        _section("Learning curves", _legend(result) + _figures(figures.curves(result), "curve"),
                 "Mean over seeds with its 95 % interval; thin lines are single seeds."),
        _section("Over all tasks", _legend(result) + _figures(figures.aggregates(result), "over", "wide")),
        _section("How soon", _arrivals(result),
                 f"Env steps until seeds first had a normalised score of {result.threshold:g}: median over "
                 "seeds, and how many got there."),
        _section("Stability", _stability(result),
                 "Standard deviation of the scores over seeds, and how far seeds fell from their best "
                 "evaluation to their last: mean over seeds."),
        _section("What differs", *_differences(result)),
        _section("Runs", _runs(result)),
        _section("Commands", f"<pre>{escape(_commands(result, command))}</pre>"),
        _section("Configurations", _configs(result)),
        _section("How to read this", _terms()),
    ]  # fmt: skip
    style, title = STYLE.read_text(encoding="utf-8"), escape(result.title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style></head>\n<body><main>'
        + "\n".join(parts)
        + f'\n<p class="soft"><small>Made by phalanx {__version__} from run folders alone.</small></p>'
        "</main></body></html>\n"
    )


def _section(title: str, body: str, text: str = "") -> str:
    lead = f'<p class="soft">{escape(text)}</p>' if text else ""
    return f"<section><h2>{escape(title)}</h2>{lead}{body}</section>"


def _mark(result: Comparison, arm: str) -> str:
    return f"--mark: var(--arm-{result.arms.index(arm) % len(figures.COLOURS)})"


def _named(result: Comparison, arm: str) -> str:
    rounds = result.arms.index(arm) // len(figures.COLOURS)
    dot = "dot again" if rounds % 2 else "dot"
    return f'<span style="{_mark(result, arm)}"><i class="{dot}"></i>{escape(arm)}</span>'


def _legend(result: Comparison) -> str:
    return f'<div class="legend">{"".join(_named(result, arm) for arm in result.arms)}</div>'


def _verdicts(result: Comparison) -> str:
    items = "".join(
        f'<li class="{"shown" if pair.shown else "open"}" style="{_mark(result, pair.better)}">'
        f"{escape(_sentence(result.verdict(pair)))}</li>"
        for pair in result.pairs
    )
    notes = "".join(f'<p class="note">{escape(_sentence(note))}</p>' for note in result.notes)
    return f'<ul class="verdicts">{items}</ul>{notes}'


def _sentence(text: str) -> str:
    """Add a full stop and, unless it begins with the name of an arm or a task, a capital letter."""
    return text.replace("no difference", "No difference", 1) + "."


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _scores_are(result: Comparison) -> str:
    names = dict.fromkeys(figures.metric_name(result.metric[task]) for task in result.tasks)
    return (
        f"Columns of tasks: {', '.join(names)}, mean over seeds with its 95 % interval, a dot for each seed. "
        "IQM, mean and median: normalised scores over all tasks."
    )


def _score_table(result: Comparison) -> str:
    head = ["arm", *map(escape, result.tasks), *next(iter(result.aggregates.values()))]
    rows = []
    for arm in result.arms:
        cells = [_score(result, arm, task) for task in result.tasks]
        cells += [_bold(interval) for interval in result.aggregates[arm].values()]
        rows.append([_named(result, arm), *cells])
    return _table(head, rows)


def _bold(interval: st.Interval) -> str:
    value, _, rest = between(interval).partition(" ")
    return f"<b>{value}</b><small>{rest}</small>"


def _score(result: Comparison, arm: str, task: str) -> str:
    """A cell's mean and interval, and a strip with a dot for each seed."""
    scores = result.cells[arm, task].scores
    dots = "".join(
        f'<circle cx="{4 + 100 * x:.1f}" cy="6" r="3.6" fill="var(--mark)" fill-opacity=".55"/>'
        for x in result.normalise(task, scores).clip(0, 1)
    )
    strip = (
        f'<svg class="strip" viewBox="0 0 108 12" style="{_mark(result, arm)}" aria-hidden="true">'
        f'<line x1="4" x2="104" y1="6" y2="6" stroke="var(--faint)"/>{dots}</svg>'
    )
    return _bold(result.mean(arm, task)) + strip


def _figures(panels: list[figures.Panel], name: str, kind: str = "") -> str:
    drawn = (
        f"<figure><h3>{escape(panel.title)}</h3>{figures.inline(panel, f'{name}{i}')}</figure>"
        for i, panel in enumerate(panels)
    )
    return f'<div class="grid {kind}">{"".join(drawn)}</div>'


def _arrivals(result: Comparison) -> str:
    def cell(arm: str, task: str) -> str:
        steps = result.arrival(arm, task)
        there = int(np.isfinite(steps).sum())
        middle = float(np.median(steps))
        value = thousands(float(f"{middle:.3g}")) if np.isfinite(middle) else "not reached"
        return f"<b>{value}</b><small>{there} of {len(steps)} seeds</small>"

    rows = [[_named(result, arm), *(cell(arm, task) for task in result.tasks)] for arm in result.arms]
    return _table(["arm", *map(escape, result.tasks)], rows)


def _stability(result: Comparison) -> str:
    def cell(arm: str, task: str) -> str:
        spread, drop = result.stability(arm, task)
        shown = NO_VALUE if np.isnan(spread) else f"± {spread:.2f}"
        return f"<b>{shown}</b><small>drop {drop:.2f}</small>"

    rows = [[_named(result, arm), *(cell(arm, task) for task in result.tasks)] for arm in result.arms]
    return _table(["arm", *map(escape, result.tasks)], rows)


def _differences(result: Comparison) -> tuple[str, str]:
    """Options that are not the same for all arms on some task, and a line about them."""
    by_task = {task: [result.cells[arm, task].runs[0] for arm in result.arms] for task in result.tasks}
    keys = dict.fromkeys(
        key for runs in by_task.values() for key in differences(runs) if key != "run.algorithm"
    )

    def values(arm: str, key: str) -> str:
        table, _, name = key.partition(".")
        values = {
            task: result.cells[arm, task].runs[0].config.get(table, {}).get(name, NO_VALUE)
            for task in result.tasks
        }
        distinct = list(dict.fromkeys(map(str, values.values())))
        if len(distinct) == 1:
            return escape(distinct[0])
        return "".join(f"{escape(str(value))}<small>{escape(task)}</small>" for task, value in values.items())

    algorithms = [
        "algorithm",
        *(escape(result.cells[arm, result.tasks[0]].runs[0].algorithm) for arm in result.arms),
    ]
    rows = [[f"<code>{escape(key)}</code>", *(values(arm, key) for arm in result.arms)] for key in keys]
    return (
        _table(["option", *(_named(result, arm) for arm in result.arms)], [algorithms, *rows]),
        "Options that are not the same for all arms; a dash where an algorithm has no such option.",
    )


def _runs(result: Comparison) -> str:
    def row(arm: str, run: Trained) -> list[str]:
        facts = run.facts
        versions = ", ".join(f"{name} {value}" for name, value in facts.get("versions", {}).items())
        seeds = facts["seeds"]
        span = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        return [
            _named(result, arm),
            f"{escape(run.task)}<small>rules {facts.get('env_version', 1)}</small>",
            span,
            f"{run.config['run']['steps']:,}",
            duration(facts["seconds"]) if "seconds" in facts else NO_VALUE,
            f"{escape(str(facts.get('device', NO_VALUE)))}<small>{escape(facts.get('started', ''))}</small>",
            f"<code>{escape(str(run.folder))}</code><small>{escape(versions)}</small>"
            f"<small>git {escape(str(facts.get('git') or NO_VALUE))}</small>",
        ]

    head = ["arm", "task", "seeds", "steps per seed", "time", "device", "folder and versions"]
    return _table(head, [row(arm, run) for arm, run in result.all_runs()])


def _commands(result: Comparison, command: str) -> str:
    return "\n".join([*(run.facts.get("command", "") for _, run in result.all_runs()), command])


def _configs(result: Comparison) -> str:
    return "".join(
        f"<details><summary>{escape(arm)} on {escape(run.task)}</summary>"
        f"<pre>{escape(_config(run))}</pre></details>"
        for arm, run in result.all_runs()
    )


def _config(run: Trained) -> str:
    """The unchanged text of config.toml, with the origin of each value."""
    return config_text(run.folder).decode("utf-8", "replace")


def _terms() -> str:
    return (
        "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in MEANINGS.items()) + "</dl>"
    )

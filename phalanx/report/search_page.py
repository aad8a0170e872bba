"""A search as one HTML page: the best settings, the importance of options, the cost."""

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from phalanx import __version__
from phalanx.files import write_whole
from phalanx.report import figures
from phalanx.report.comparison import STYLE
from phalanx.report.figures import SIZE, Panel
from phalanx.report.importance import Effect, Importance, importance
from phalanx.report.plots import COLOURS, thousands

SHOWN = 0.05
MOST_ROWS = 20
Facts = Mapping[str, Any]

MEANINGS = {
    "score": "The mean over seeds of greedy episodes with the last parameters. At the last rung new "
    "episodes are used, different ones for each seed.",
    "rung": "A number of env steps at which settings are compared; the best continue, the others are "
    "stopped. How many continue was fixed before the search began.",
    "share of the variance": "Settings differ in their scores. An option's share is how much of that "
    "variance the option explains alone: settings are grouped by its value (a range is cut into up to five "
    "groups of equal size), and the variance between the means of the groups is divided by all variance. "
    "It is corrected for the number of groups, so that an option without effect has about 0. All settings "
    "are compared at the first rung, which all of them reached: by their score, or by the return while all "
    "scores are equal.",
    "seeds": "The share that is due to chance: the variance of the seeds within a setting, divided by "
    "their number.",
    "the rest": "Interactions between options, and effects for which the groups are too coarse.",
    "may be chance": "A test of Kruskal and Wallis, corrected for the number of options (Holm), does not "
    "show an effect at 5 %.",
    "the best score": "It is the maximum over many settings, so it is biased upwards. Train with new "
    "seeds to measure how good the setting is.",
}


def importance_of(facts: Facts) -> Importance:
    """The importance of options at the first rung. A diverged seed gets the lowest score of all."""
    trials, key = facts["trials"], f"{_judged_by(facts)}s"
    found = [score for trial in trials for score in trial["rungs"][0][key] if score is not None]
    lowest = min(found, default=0.0)
    scores = np.array([[lowest if s is None else s for s in trial["rungs"][0][key]] for trial in trials])
    axes = facts["space"]["search"]
    listed = {axis["name"] for axis in axes if axis["values"]}
    return importance([axis["name"] for axis in axes], [t["setting"] for t in trials], scores, listed)


def _judged_by(facts: Facts) -> str:
    """How settings are compared at the first rung: by `score`, or by `return` if all scores are equal."""
    scores = {score for trial in facts["trials"] for score in trial["rungs"][0]["scores"]}
    return "score" if len(scores) > 1 else "return"


def _first_rung(facts: Facts) -> str:
    name = facts["metric"] if _judged_by(facts) == "score" else "return"
    return f"{name.replace('_', ' ')} at the first rung"


def write(facts: Facts, out: Path) -> list[Path]:
    """Write the page, its pictures and its data into a folder; the page first."""
    found = importance_of(facts)
    data = {
        "importance": {
            effect.name: {"share": round(effect.share, 4), "chance": round(effect.chance, 4)}
            for effect in found.effects
        },
        "seeds": round(found.seeds, 4),
    }
    panels = [*_panels(facts, found), _curves(facts)]
    page, numbers = out / "report.html", out / "importance.json"
    write_whole(page, lambda path: path.write_text(html(facts, found, panels), encoding="utf-8"))
    write_whole(numbers, lambda path: path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8"))
    return [page, *figures.save(panels, out / "search"), numbers]


def ranked(facts: Facts) -> list[Mapping[str, Any]]:
    """The settings sorted by training steps and score, the best first."""

    def order(trial: Mapping[str, Any]) -> tuple[int, bool, float, float]:
        last = trial["rungs"][-1]
        return len(trial["rungs"]), last["score"] is not None, last["score"] or 0.0, last["return"] or 0.0

    return sorted(facts["trials"], key=order, reverse=True)


def _axis(facts: Facts, name: str) -> Mapping[str, Any]:
    return next(axis for axis in facts["space"]["search"] if axis["name"] == name)


def _panels(facts: Facts, found: Importance) -> list[Panel]:
    """The shares, and the score over the values of each option."""
    return [
        Panel("Share of the variance", lambda axis: _shares(axis, found), SIZE),
        *(Panel(each.name, lambda axis, e=each: _marginal(axis, facts, e), SIZE) for each in found.effects),
    ]


def _shares(axis: Any, found: Importance) -> None:
    rest = max(0.0, 1 - sum(each.share for each in found.effects) - found.seeds)
    bars = [*((each.name, each.share, COLOURS[0]) for each in found.effects)]
    bars += [("seeds", found.seeds, figures.FAINT), ("the rest", rest, figures.FAINT)]
    for i, (_, value, colour) in enumerate(bars):
        axis.barh(i, value, color=colour, height=0.6)
    axis.set(yticks=range(len(bars)), yticklabels=[name for name, _, _ in bars], xlim=(0, 1))
    axis.invert_yaxis()
    axis.set_xlabel("of the variance between settings, at the first rung")
    axis.grid(axis="y", visible=False)


def _marginal(axis: Any, facts: Facts, effect: Effect) -> None:
    """A dot for each setting at the first rung, coloured if it continued, and the mean of each group."""
    from matplotlib.ticker import LogLocator

    about, trials = _axis(facts, effect.name), facts["trials"]
    values = [trial["setting"][effect.name] for trial in trials]
    names = list(dict.fromkeys(values[part[0]] for part in effect.groups if part))
    x = [names.index(value) for value in values] if about["values"] else values
    shown = [(i, trial["rungs"][0][_judged_by(facts)]) for i, trial in enumerate(trials)]
    for went_on, colour in ((False, figures.FAINT), (True, COLOURS[0])):
        dots = [(x[i], s) for i, s in shown if s is not None and (len(trials[i]["rungs"]) > 1) == went_on]
        if dots:
            label = "went on" if went_on else "stopped at the first rung"
            axis.scatter(*zip(*dots, strict=True), color=colour, s=18, alpha=0.7, label=label)
    means = []
    for part in effect.groups:
        scores = [shown[i][1] for i in part if shown[i][1] is not None]
        if scores:
            places = [x[i] for i in part]
            middle = np.exp(np.mean(np.log(places))) if about["log"] else np.mean(places)
            means.append((middle, np.mean(scores)))
    if means:
        axis.plot(*zip(*means, strict=True), "o-", color=COLOURS[1], label="mean of a group")
    if about["values"]:
        axis.set(xticks=range(len(names)), xticklabels=list(map(str, names)), xlim=(-0.5, len(names) - 0.5))
    elif about["log"]:
        axis.set_xscale("log", subs=[])
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.xaxis.set_major_formatter("{x:g}")  # not 10^-3, which needs formulas
    axis.set(xlabel=effect.name, ylabel=_first_rung(facts))


def _curves(facts: Facts) -> Panel:
    def draw(axis: Any) -> None:
        for i, trial in enumerate(reversed(ranked(facts))):
            best = i == len(facts["trials"]) - 1
            if trial["curve"]:
                look = (
                    {"color": COLOURS[1], "label": "the best"}
                    if best
                    else {"color": COLOURS[0], "alpha": 0.25, "linewidth": 1}
                )
                axis.plot(*zip(*trial["curve"], strict=True), **look)
        axis.set(xlabel="env steps of each seed", ylabel=f"greedy {facts['metric'].replace('_', ' ')}")
        axis.xaxis.set_major_formatter(thousands)

    return Panel("Learning curves of all settings", draw, SIZE)


def html(facts: Facts, found: Importance, panels: list[Panel]) -> str:
    """The whole page."""
    plan, best = facts["space"]["plan"], ranked(facts)[0]
    title = f"Search: {plan['algorithm']} on {plan['env']}"
    drawn = "".join(
        f"<figure><h3>{escape(panel.title)}</h3>{figures.inline(panel, f'panel{i}')}</figure>"
        for i, panel in enumerate(panels)
    )
    shown = ", ".join(f"{name} {value}" for name, value in best["setting"].items())
    parts = [
        f'<h1>{escape(title)}</h1><p class="lead">{escape(_spent(facts))}</p>',
        f'<ul class="verdicts"><li class="shown" style="--mark: var(--arm-1)">Best: {escape(shown)}; '
        f"{facts['metric'].replace('_', ' ')} {best['rungs'][-1]['score']:.3g}</li>{_verdicts(found)}</ul>"
        f'<p class="note">{escape(MEANINGS["the best score"])}</p>',
        f'<section><h2>What mattered</h2><div class="grid">{drawn}</div></section>',
        f"<section><h2>Settings</h2>{_table(facts)}</section>",
        f"<section><h2>Programs</h2>{_programs(facts)}</section>",
        "<section><h2>How to read this</h2><dl>"
        + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in MEANINGS.items())
        + "</dl></section>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>'
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head>\n<body><main>"
        + "\n".join(parts)
        + f'\n<p class="soft"><small>Made by phalanx {__version__}.</small></p></main></body></html>\n'
    )


def _spent(facts: Facts) -> str:
    plan = facts["space"]["plan"]
    budget = "" if facts["budget"] is None else f" of a budget of {facts['budget']:,}"
    return (
        f"{facts['settings']} settings with {plan['seeds']} seeds each, {facts['env_steps']:,} env steps in "
        f"training{budget}; {facts['seconds']['train']:.0f} s of training and evaluation and "
        f"{facts['seconds']['compile']:.0f} s of compilation on {facts['device']}."
    )


def _verdicts(found: Importance) -> str:
    def line(effect: Effect) -> str:
        sure = effect.chance < SHOWN
        words = "" if sure else " (may be chance)"
        return (
            f'<li class="{"shown" if sure else "open"}" style="--mark: var(--arm-0)">{escape(effect.name)} '
            f"alone explains {100 * effect.share:.0f} % of the variance between settings{words}.</li>"
        )

    return "".join(map(line, found.effects))


def _table(facts: Facts) -> str:
    names = list(facts["trials"][0]["setting"])
    rungs = max(len(trial["rungs"]) for trial in facts["trials"])
    head = ["", *names, *(f"rung {i + 1}" for i in range(rungs)), "seeds at the end"]

    def words(score: float | None) -> str:
        return "diverged" if score is None else f"{score:.3g}"

    rows = []
    for place, trial in enumerate(ranked(facts)[:MOST_ROWS], 1):
        scores = [words(rung["score"]) for rung in trial["rungs"]]
        seeds = ", ".join(map(words, trial["rungs"][-1]["scores"]))
        values = [str(trial["setting"][name]) for name in names]
        rows.append([str(place), *values, *scores, *["-"] * (rungs - len(scores)), seeds])
    more = len(facts["trials"]) - len(rows)
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    rest = f'<p class="soft">{more} more are in search.json.</p>' if more > 0 else ""
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>{rest}'


def _programs(facts: Facts) -> str:
    own = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in facts["own_program"].items())
    numbers = ", ".join(facts["one_program"]) or "no option"
    return (
        f"<p>{escape(numbers)}: numbers of one program, compiled once for as many settings as are trained "
        f"side by side. {facts['programs_compiled']} programs were compiled.</p>"
        + (f"<p>Each value of these is a program of its own:</p><ul>{own}</ul>" if own else "")
    )

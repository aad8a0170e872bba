"""The methods section of a paper, in sentences that follow from the run folders alone."""

from collections.abc import Iterable
from typing import Any

from phalanx import registry
from phalanx.report import figures
from phalanx.report import statistics as st
from phalanx.report.compare import SHOWN, Comparison, Trained
from phalanx.report.paper import bibliography as bib
from phalanx.report.paper.latex import cite, comment, count, escape, joined, number

LEVEL = f"{100 * st.LEVEL:g}\\,\\%"
PACKAGES = {"python": "Python", "phalanx": "phalanx", "jax": "JAX", "jaxlib": "jaxlib", "flax": "Flax"}
PACKAGES |= {"optax": "Optax", "numpy": "NumPy"}
# Families that are other people's environments, written again in phalanx.
REWRITTEN = {"battle", "classic", "mpe", "switch"}
CITED = {"phalanx": "phalanx", "jax": "bradbury2018jax"}


def section(result: Comparison, steps: int | None = None) -> str:
    """The whole section: what was compared, how it was trained, evaluated, tuned and tested.

    `steps` is where the comparison was made, if not at the end of the runs.
    """
    parts = {
        "Arms and tasks": _compared(result),
        "Training": _training(result),
        "Evaluation": _evaluation(result, steps),
        "Hyper-parameters": _tuning(result),
        "Statistics": _statistics(result),
    }
    return "\n".join(f"\\paragraph{{{title}.}}\n{text}\n" for title, text in parts.items())


def unfinished(result: Comparison) -> str:
    """Missing runs and warnings about the experiment; empty if there are none."""
    return " ".join(f"{_capital(escape(note))}." for note in result.notes)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith(("runs ", "no ")) else text


def _runs(result: Comparison) -> list[Trained]:
    return [run for _, run in result.all_runs()]


def algorithm_name(name: str) -> str:
    """`MAPPO` for `mappo`; the name itself if it is not one of phalanx's algorithms."""
    title, colon, _ = registry.algorithms().get(name, "").partition(":")
    return title if colon else name


def _compared(result: Comparison) -> str:
    arms = []
    for arm in result.arms:
        run = next(run for name, run in result.all_runs() if name == arm)
        title, found = algorithm_name(run.algorithm), cite(bib.of_algorithm(run.algorithm))
        extra = "".join(f" with {escape(name)}{cite(keys)}" for name, keys in bib.of_options(run).items())
        same = arm.lower() == run.algorithm.lower()
        arms.append(
            f"{escape(title)}{found}{extra}" if same else f"{escape(arm)} ({escape(title)}{found}{extra})"
        )
    tasks = [f"{escape(task)}{cite(bib.of_environment(task))}" for task in result.tasks]
    where = "task" if len(tasks) == 1 else "tasks"
    own = [
        comment(f"TODO: cite {name}, which is not part of phalanx.")
        for name in bib.without_entry(_runs(result))
    ]
    text = "".join(own) + f"We compare {joined(arms)} on {len(tasks)} {where}: {joined(tasks)}."
    ours = [escape(task) for task in result.tasks if task.partition("/")[0] in REWRITTEN]
    if ours:
        text += f" For {joined(ours)} we used the implementation in phalanx, not the original programs."
    return text


def _training(result: Comparison) -> str:
    runs = _runs(result)
    versions = {
        name: _distinct(run.facts.get("versions", {}).get(name) for run in runs)
        for name in dict.fromkeys(name for run in runs for name in run.facts.get("versions", {}))
    }
    named = [
        f"{PACKAGES.get(name, escape(name))}{cite([CITED[name]] if name in CITED else [])} {joined(found)}"
        for name, found in versions.items()
    ]
    devices = _distinct(run.facts.get("device") for run in runs)
    seconds = [run.facts["seconds"] for run in runs if isinstance(run.facts.get("seconds"), int | float)]
    steps = sum(int(run.config["run"]["steps"]) * len(run.facts["seeds"]) for run in runs)
    text = (
        f"Table~\\ref{{tab:budgets}} lists the seeds and the training budget of every arm; all arms have the "
        f"same budget of environment steps on a task. Together these are {len(runs)} runs with "
        f"{count(steps)} environment steps"
        + (f", which took {_time(sum(seconds))} of computing" if seconds else "")
        + f". The seeds of a run were trained in one program, each with its own random numbers, parameters "
        f"and environments, on {joined(devices) if devices else 'an unknown device'}."
    )
    return text + (f" We used {joined(named)}." if named else "") + _revisions(runs)


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _revisions(runs: list[Trained]) -> str:
    found = _distinct(str(run.facts["git"])[:13] for run in runs if run.facts.get("git"))
    return f" The working copy was at Git revision {joined(found)}." if found else ""


def _distinct(values: Iterable[Any]) -> list[str]:
    return [escape(value) for value in dict.fromkeys(values) if value is not None]


def _evaluation(result: Comparison, steps: int | None) -> str:
    names = joined(list(dict.fromkeys(escape(figures.metric_name(result.metric[t])) for t in result.tasks)))
    sampled = any(result.metric[task].startswith("train/") for task in result.tasks)
    text = f"The measure is the {names}. "
    if sampled:
        text += "It is of the sampled play during training. "
    else:
        text += "Policies were evaluated at equal distances of training, with greedy actions. "
    if steps is not None:
        return text + f"The score of a seed is its last value within {count(steps)} environment steps."
    if sampled:
        return text + "The score of a seed is its last value."
    return text + (
        "The score of a seed is the mean over the episodes of a final evaluation of its last parameters, not "
        "of its best (Table~\\ref{tab:budgets})."
    )


def _tuning(result: Comparison) -> str:
    origins = [
        origin
        for run in _runs(result)
        for names in run.facts.get("origins", {}).values()
        for origin in names.values()
    ]
    presets = sorted({origin.removeprefix("preset ") for origin in origins if origin.startswith("preset ")})
    text = "Options not listed in Table~\\ref{tab:options} have the defaults of phalanx. "
    if presets:
        listed = joined([rf"\texttt{{{escape(name)}}}" for name in presets])
        text += (
            f"Values of the {'preset' if len(presets) == 1 else 'presets'} {listed} are those that come with "
            "the software; other listed values were set for this experiment. "
        )
    return (
        text
        + "The runs of this experiment are not a search over hyper-parameters.\n"
        + comment("TODO: if you tried other values before, say which, and how many for each arm.").rstrip()
    )


def _statistics(result: Comparison) -> str:
    several = len(result.tasks) > 1
    seeds = min(len(cell.seeds) for cell in result.cells.values())
    parts = [_normalisation(result)]
    parts.append(
        "Following the recommendations of~\\cite{agarwal2021precipice,gorsane2022protocol}, we report the "
        "interquartile mean (IQM) of normalised scores"
        + (", the mean and the median over tasks" if several else ", the mean")
        + ", the probability of improvement and performance profiles."
    )
    if seeds < st.FEWEST_SEEDS:
        parts.append(f"With {seeds} {'seed' if seeds == 1 else 'seeds'} there are no confidence intervals.")
    else:
        parts.append(
            f"Brackets and bands are {LEVEL} confidence intervals. Those of means, medians and the IQM are "
            f"of a bootstrap of seeds{' within tasks' if several else ''} ({count(st.DRAWS)} draws), widened "
            "for few seeds by the quantiles of Student's $t$; those of win rates are at least as wide as the "
            "sampling error of the episodes. Those of the probability of improvement are score "
            "intervals~\\cite{newcombe2006mannwhitney}, those of performance profiles "
            "Wilson's~\\cite{wilson1927}."
        )
    against = f"the control, {escape(result.control)}," if result.control else "every other arm"
    parts.append(
        f"Each arm is compared with {against} by a permutation test of the probability of improvement "
        f"({count(st.SHUFFLES)} permutations of seeds{' within tasks' if several else ''}). We call an arm "
        f"better if the interval of its probability of improvement lies above 0.5 and $p < {number(SHOWN)}$ "
        "after correction for the number of pairs~\\cite{holm1979}. In Table~\\ref{tab:scores} an arm is "
        "bold if it is better than every other one by these tests; there, tests on single tasks are "
        "corrected for the number of pairs and tasks."
    )
    return " ".join(part for part in parts if part)


def _normalisation(result: Comparison) -> str:
    """How scores were put on one scale; nothing if they are win rates."""
    scaled = [
        f"{escape(task)} [{number(low)}, {number(high)}]"
        for task, (low, high) in result.bounds.items()
        if not (result.metric[task].endswith("/win_rate") and (low, high) == (0, 1))
    ]
    if not scaled:
        return "Win rates are averaged as they are."
    return (
        "Scores are normalised linearly, for measures over all tasks, so that the lower bound is 0 and the "
        f"upper bound is 1: {joined(scaled)}. A bound is one that the experiment names, or else the lowest "
        "and highest value of any evaluation of any arm on that task."
    )

"""Which runs may be compared: the same rules, the same budget, the same kind of play."""

from collections.abc import Mapping, Sequence

from phalanx.errors import PhalanxError
from phalanx.report.compare.runs import Trained, notable

KINDS = {"eval": "greedy", "train": "sampled"}


def require_one_kind(chosen: Mapping[str, str]) -> None:
    """Refuse to mix greedy and sampled play."""
    of_kind = {metric.partition("/")[0]: (task, metric) for task, metric in chosen.items()}
    for kind in of_kind.keys() - KINDS.keys():
        raise PhalanxError(
            f"{of_kind[kind][1]} is not a score: use one of eval/ (greedy) or train/ (sampled)"
        )
    if len(of_kind) > 1:
        greedy, sampled = of_kind["eval"], of_kind["train"]
        raise PhalanxError(
            f"{greedy[1]} on {greedy[0]} is of greedy play and {sampled[1]} on {sampled[0]} of sampled play: "
            f"they cannot be compared; take eval/ or train/ for all"
        )


def require_fair(task: str, runs: Sequence[Trained], steps: int | None) -> None:
    """Raise an error if runs are not comparable: other rules, other budgets, or an unfinished run."""
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
                f"{run.folder}, or compare all runs at an earlier point with --steps"
            )
        budgets = [each.config["run"]["steps"] for each in (first, run)]
        if steps is None and budgets[0] != budgets[1]:
            raise PhalanxError(
                f"{first.folder} had {budgets[0]:,} steps on {task} and {run.folder} {budgets[1]:,}: "
                f"compare both at an earlier point with --steps {min(budgets)}"
            )
        reached = max((row["env_steps"] for row in run.rows), default=0)
        if steps is not None and reached < steps:
            raise PhalanxError(f"{run.folder} has only {reached:,} env steps, not the {steps:,} of --steps")


def tuning_notes(by_arm: Mapping[str, Sequence[Trained]]) -> list[str]:
    """Report how much each arm was tuned by a search: an arm that was tuned more is favoured."""
    if not any(run.facts.get("tuning") for runs in by_arm.values() for run in runs):
        return []
    said = []
    for arm, runs in by_arm.items():
        found = dict.fromkeys(_tuning(run) for run in runs)
        said.append(f"{arm}: {' and '.join(found)}")
    return [f"tuning before these runs: {'; '.join(said)}"]


def _tuning(run: Trained) -> str:
    spent = run.facts.get("tuning")
    if not spent:
        return "no search recorded"
    return f"{spent['settings']:,} settings, {spent['env_steps']:,} env steps on {spent.get('env', run.task)}"


def env_notes(by_task: Mapping[str, Sequence[Trained]]) -> list[str]:
    """Report differing options of environments; whether they make the task easier, the user must judge."""
    return [
        f"runs on {task} differ in options of the environment: {', '.join(each[4:] for each in found)}"
        for task, runs in by_task.items()
        if (found := notable(runs, ("env",)))
    ]


def arm_notes(groups: Mapping[tuple[str, str], Sequence[Trained]]) -> list[str]:
    """Report tasks on which arms differ in their number of seeds, or only some of them have a preset."""
    said: list[str] = []
    for task in dict.fromkeys(task for _, task in groups):
        arms = {arm: runs for (arm, where), runs in groups.items() if where == task}
        seeds = {arm: len({row["seed"] for run in runs for row in run.rows}) for arm, runs in arms.items()}
        if len(set(seeds.values())) > 1:
            numbers = ", ".join(f"{arm} {number}" for arm, number in seeds.items())
            said.append(f"the arms differ in their number of seeds on {task}: {numbers}")
        presets = {arm: _presets(runs) for arm, runs in arms.items()}
        if any(presets.values()) and not all(presets.values()):
            listed = ", ".join(f"{arm} {' and '.join(found) or 'none'}" for arm, found in presets.items())
            said.append(f"only some arms have a preset, which favours them, on {task}: {listed}")
    return said


def _presets(runs: Sequence[Trained]) -> list[str]:
    """The presets that options of these runs come from."""
    tables = [table for run in runs for table in run.facts.get("origins", {}).values()]
    origins = sorted({origin for table in tables for origin in table.values()})
    return [origin.removeprefix("preset ") for origin in origins if origin.startswith("preset ")]

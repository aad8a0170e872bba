"""The preset that a search writes: the best setting, and the budget of the search."""

from typing import Any

from phalanx.config import toml_value
from phalanx.search.shapes import told
from phalanx.search.space import Space
from phalanx.training.setup import Setup


def preset(space: Space, setup: Setup, ended: dict[str, Any], metric: str, env_steps: int) -> str:
    """The text of the file. `ended` is how the setting did at the last rung."""
    plan = space.plan
    seeds = ", ".join(f"{score:.3g}" for score in ended["scores"])
    tables = told(setup)
    tables["search"] = {
        "algorithm": plan.algorithm,
        "env": plan.env,
        "settings": space.settings,
        "seeds": plan.seeds,
        "steps": plan.steps,
        "env_steps": env_steps,
    }
    lines = [
        f"# {plan.algorithm} on {plan.env}: the best of {space.settings} settings, by `phalanx search`.",
        "#",
        f"# Greedy {metric.replace('_', ' ')} after {ended['steps']:,} env steps, by seed: {seeds}.",
        "# The setting was chosen by these seeds, so that new seeds may do worse.",
    ]
    for table, entries in tables.items():
        if entries:
            lines += ["", f"[{table}]", *(f"{name} = {toml_value(value)}" for name, value in entries.items())]
    return "\n".join(lines) + "\n"

"""Experiments: every arm on every environment, described in a small file.

An arm on an environment is a cell: one `phalanx train` command with all its seeds in one program, in its own
process and folder. Finished cells are not trained again, interrupted ones resume bit for bit, and failures
are recorded while the others continue. `experiment.json` in the folder has the status. Runs are trained on
this machine or in a cluster (`places`).
"""

from phalanx.experiment.cell import Cell, clear
from phalanx.experiment.format import Experiment, over, read
from phalanx.experiment.live_table import live_table
from phalanx.experiment.places import HERE, Place, ray, read_resources, slurm
from phalanx.experiment.plan_table import bill, table
from phalanx.experiment.planner import Planned, keep_off_the_device, plan, require_unchanged, settings
from phalanx.experiment.runner import Runner

__all__ = [
    "HERE",
    "Cell",
    "Experiment",
    "Place",
    "Planned",
    "Runner",
    "bill",
    "clear",
    "keep_off_the_device",
    "live_table",
    "over",
    "plan",
    "ray",
    "read",
    "read_resources",
    "require_unchanged",
    "settings",
    "slurm",
    "table",
]

"""Experiments: arms on environments, named in a small file; planned, made, and gone on with.

Every arm on every environment is a cell: one `phalanx train` command with all its seeds in one program, in a
process and a folder of its own. What is finished is not made again, what was interrupted resumes to the bit,
and what fails is written down while the others go on. `experiment.json` in the folder says how things stand.
Runs are made on this machine or in a cluster (`places`).
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

"""Where the runs of an experiment are trained: on this machine, with SLURM, or in a Ray cluster.

Each run has a process on this machine: the training itself, or one that submits it, monitors it and resubmits
it if its machine is lost. So the runner does not depend on where runs are trained. Machines must have the
experiment's folder at the same path, and the same version of phalanx.
"""

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import PhalanxError


class Place(NamedTuple):
    """Where runs are made: the module that makes one, and what it is told."""

    module: str = "phalanx.experiment.child"
    told: str = ""
    """for a module that submits: JSON"""

    def command(self, lock: Path, words: list[str]) -> list[str]:
        """What makes a run, as a process on this machine."""
        about = [self.told] if self.told else []
        return [sys.executable, "-m", self.module, *about, str(lock), *words]


HERE = Place()


def slurm(how: str, resources: Mapping[str, Any]) -> Place:
    """SLURM's queue; `how` is "auto", or "local" for submitit's processes on this machine."""
    if how not in ("auto", "local"):
        raise PhalanxError(f"--slurm takes nothing or 'local', not {how!r}; give limits with --resources")
    _require("submitit", "slurm")
    told = json.dumps({"cluster": "slurm" if how == "auto" else how, "resources": resources})
    return Place("phalanx.experiment.by_slurm", told)


def ray(address: str, resources: Mapping[str, Any]) -> Place:
    """A Ray cluster."""
    known = ("num_cpus", "num_gpus", "memory")
    for name in resources:
        if name not in known:
            raise PhalanxError(f"Ray knows no resource {name!r}: give one of {', '.join(known)}")
    _require("ray", "ray")
    return Place("phalanx.experiment.by_ray", json.dumps({"address": address, "resources": resources}))


def read_resources(words: list[str]) -> dict[str, Any]:
    """`num_gpus=1 slurm_partition=long` as a mapping; numbers are numbers."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise PhalanxError(f"--resources takes NAME=VALUE, such as num_gpus=1, not {word!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _require(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise PhalanxError(f"--{extra} needs the package {package}: pip install 'phalanx[{extra}]'")

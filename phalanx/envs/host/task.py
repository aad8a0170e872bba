"""A Python environment as the training process knows it: its name, and how to create it.

The environment itself is created in the workers, so that its packages need not be installed together with
JAX.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from phalanx.envs.host import processes, ray_pool
from phalanx.envs.host.base import HostEnv, HostSource
from phalanx.envs.host.film import most_pictures
from phalanx.envs.host.packages import drawing
from phalanx.envs.host.pool import LocalPool, Pool
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.spec import EnvSpec


@dataclass(frozen=True)
class Placement:
    """Where environments are stepped."""

    workers: int | None = None
    """processes; 0: in this process; None: as many as there are cores"""
    python: str = ""
    """the Python of the workers; empty: this one"""
    step_timeout: float = 60.0
    """seconds after which a worker that does not finish a step is replaced"""
    ray: str | None = None
    """address of a Ray cluster whose actors are the workers; local: one started here; None: no Ray"""


@dataclass(frozen=True, eq=False)
class HostTask(HostSource):
    """A host environment by its recipe."""

    name: str
    target: str
    """module:Class of the adapter"""
    fields: dict[str, Any]
    placement: Placement = field(default_factory=Placement)

    @property
    def recipe(self) -> dict[str, Any]:
        return {"name": self.name, "target": self.target, "fields": self.fields}

    @property
    def in_this_process(self) -> bool:
        return self.placement.workers == 0

    def make(self) -> HostEnv:
        """Make the environment in this process."""
        module, _, cls = self.target.partition(":")
        return getattr(importlib.import_module(module), cls)(**self.fields)

    @cached_property
    def spec(self) -> EnvSpec:
        self._require_sense()
        if self.in_this_process:
            env = self.make()
            spec = env.spec
            env.close()
        else:
            spec = processes.describe(self.recipe, self._python)
        return replace(spec, name=self.name)

    @property
    def _python(self) -> str:
        return self.placement.python or sys.executable

    def _require_sense(self) -> None:
        if self.placement.ray is not None:
            ray_pool.require_ray()
            if self.in_this_process:
                raise PhalanxError("with ray environments are stepped by actors: workers must be at least 1")

    def pool(self, count: int) -> Pool:
        return self._pool(count)

    def film_pool(self, count: int) -> Pool:
        return self._pool(count, most_pictures(count))

    def _pool(self, count: int, film: int = 0) -> Pool:
        if self.in_this_process:
            return LocalPool(drawing(self.make) if film else self.make, self.spec, count, film)
        where = self.placement
        workers = where.workers or processes.default_workers()
        if where.ray is not None and not film:  # pictures are taken here
            return ray_pool.RayPool(
                self.recipe, self.spec, count, workers, where.python, where.step_timeout, where.ray
            )
        return processes.WorkerPool(
            self.recipe, self.spec, count, workers, self._python, where.step_timeout, film
        )

"""The multi-robot warehouse, rware-tiny-2ag-v2 and so on. Needs rware."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from phalanx.config import option
from phalanx.envs.host.packages import needed
from phalanx.envs.host.tuples import TupleEnv, make_registered

NAMES = {
    "rware-tiny-2ag-v2": "two robots in the smallest warehouse",
    "rware-tiny-4ag-v2": "four robots in the smallest warehouse",
    "rware-small-4ag-v2": "four robots in a small warehouse",
    "rware-tiny-2ag-hard-v2": "two robots, fewer requests",
}
PACKAGE = "rware"


@dataclass(eq=False)
class Adapter(TupleEnv):
    """`gymnasium.make(variant)` after importing rware."""

    variant: str
    time_limit: int | None = option(
        None, "steps after which an episode is cut (default: the environment's own)", at_least=1
    )
    extra: dict = field(default_factory=dict)

    def __post_init__(self):
        name = f"rware/{self.variant}"
        needed("rware", name)
        limit = "max_steps"
        env = make_registered(name, self.variant, limit, self.time_limit, self.extra)
        self._limit = env.spec.kwargs.get(limit)
        TupleEnv.__init__(self, env, name)

    def copy(self) -> Adapter:
        return dataclasses.replace(self)

    def own_limit(self) -> int | None:
        return self._limit

    def was_cut(self) -> bool:
        """rware calls its limits of steps and of inactivity ends. The work itself never ends."""
        return True

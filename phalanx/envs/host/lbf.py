"""Level-based foraging, Foraging-8x8-2p-3f-v3 and so on. Needs lbforaging."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from phalanx.config import option
from phalanx.envs.host.packages import needed
from phalanx.envs.host.tuples import TupleEnv, make_registered

NAMES = {
    "Foraging-8x8-2p-3f-v3": "two players, three foods on 8 x 8 fields",
    "Foraging-2s-8x8-2p-2f-coop-v3": "two players that see two fields far and must load together",
    "Foraging-10x10-3p-3f-v3": "three players, three foods",
    "Foraging-15x15-3p-5f-v3": "three players, five foods; harder",
}
PACKAGE = "lbforaging"


@dataclass(eq=False)
class Adapter(TupleEnv):
    """`gymnasium.make(variant)` after importing lbforaging."""

    variant: str
    time_limit: int | None = option(
        None, "steps after which an episode is cut (default: the environment's own)", at_least=1
    )
    extra: dict = field(default_factory=dict)

    def __post_init__(self):
        name = f"lbf/{self.variant}"
        needed("lbforaging", name)
        limit = "max_episode_steps"
        env = make_registered(name, self.variant, limit, self.time_limit, self.extra)
        self._limit = env.spec.kwargs.get(limit)
        TupleEnv.__init__(self, env, name)

    def copy(self) -> Adapter:
        return dataclasses.replace(self)

    def own_limit(self) -> int | None:
        return self._limit

    def was_cut(self) -> bool:
        """lbforaging calls its time limit an end. An episode has truly ended when no food is left."""
        return bool(self.env.unwrapped.field.any())

"""Level-based foraging, Foraging-8x8-2p-3f-v3 and so on. Needs lbforaging."""

from __future__ import annotations

from phalanx.envs.host.tuples import Registered

NAMES = {
    "Foraging-8x8-2p-3f-v3": "two players, three foods on 8 x 8 cells",
    "Foraging-2s-8x8-2p-2f-coop-v3": "two players with a sight of two cells, which must load food together",
    "Foraging-10x10-3p-3f-v3": "three players, three foods",
    "Foraging-15x15-3p-5f-v3": "three players, five foods; harder",
}
PACKAGE = "lbforaging"


class Adapter(Registered):
    """An environment of lbforaging."""

    family, package, limit_option = "lbf", PACKAGE, "max_episode_steps"

    def was_cut(self) -> bool:
        """lbforaging calls its time limit an end. An episode has truly ended when no food is left."""
        return bool(self.env.unwrapped.field.any())

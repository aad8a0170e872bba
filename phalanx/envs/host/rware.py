"""The multi-robot warehouse, rware-tiny-2ag-v2 and so on. Needs rware."""

from __future__ import annotations

from phalanx.envs.host.tuples import Registered

NAMES = {
    "rware-tiny-2ag-v2": "two robots in the smallest warehouse",
    "rware-tiny-4ag-v2": "four robots in the smallest warehouse",
    "rware-small-4ag-v2": "four robots in a small warehouse",
    "rware-tiny-2ag-hard-v2": "two robots, fewer requests",
}
PACKAGE = "rware"


class Adapter(Registered):
    """An environment of rware."""

    family, package, limit_option = "rware", PACKAGE, "max_steps"

    def was_cut(self) -> bool:
        """rware calls its limits of steps and of inactivity ends. The work itself never ends."""
        return True

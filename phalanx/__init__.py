"""phalanx: train, compare and watch teams of cooperating agents, in one compiled program."""

from typing import TYPE_CHECKING

from phalanx import faults

if TYPE_CHECKING:
    from phalanx.api import (
        Policy,
        Run,
        check_env,
        evaluate,
        export,
        load,
        load_team,
        load_trajectories,
        make_env,
        record,
        resume,
        train,
        watch,
    )
    from phalanx.callbacks import Callback, EarlyStopping, StopTraining
    from phalanx.compat.pettingzoo import to_pettingzoo
    from phalanx.compat.vector import make_vec
    from phalanx.envs.base import Env
    from phalanx.errors import PhalanxError
    from phalanx.report.comparison import compare

faults.avoid()

__version__ = "0.2.0"
__all__ = [
    "Callback",
    "EarlyStopping",
    "Env",
    "PhalanxError",
    "Policy",
    "Run",
    "StopTraining",
    "check_env",
    "compare",
    "evaluate",
    "export",
    "load",
    "load_team",
    "load_trajectories",
    "make_env",
    "make_vec",
    "record",
    "resume",
    "to_pettingzoo",
    "train",
    "watch",
]


def __getattr__(name: str):
    """Import the public API on first use, so that `import phalanx` itself is fast."""
    if name == "Env":
        from phalanx.envs.base import Env

        return Env
    if name == "PhalanxError":
        from phalanx.errors import PhalanxError

        return PhalanxError
    if name in ("Callback", "EarlyStopping", "StopTraining"):
        from phalanx import callbacks

        return getattr(callbacks, name)
    if name == "compare":
        from phalanx.report.comparison import compare

        return compare
    if name == "make_vec":
        from phalanx.compat.vector import make_vec

        return make_vec
    if name == "to_pettingzoo":
        from phalanx.compat.pettingzoo import to_pettingzoo

        return to_pettingzoo
    if name in __all__:
        from phalanx import api

        return getattr(api, name)
    raise AttributeError(f"module 'phalanx' has no attribute {name!r}")

"""Memory and disk space of a run, computed before it starts; an error if they are not available."""

import math
import shutil
from collections.abc import Mapping
from pathlib import Path

from phalanx import device
from phalanx.config import RunConfig
from phalanx.errors import PhalanxError
from phalanx.report.console import megabytes
from phalanx.training.devices import ONE, Layout
from phalanx.training.programs import carry_shapes, uncollected
from phalanx.training.setup import Setup


def memory_parts(setup: Setup, layout: Layout = ONE) -> dict[str, int]:
    """Bytes of what the run holds on a device, for all its seeds, from shapes alone."""
    with uncollected():
        carry = carry_shapes(setup.loop, layout)
    replay = carry.learner.replay
    held = {
        "learner": (carry.without_replay().learner, carry.best),
        **({} if replay is None else {"replay": replay}),
        **({} if carry.opponent is None else {"opponents": carry.opponent}),
        "environments": carry.actors,
    }
    # A rollout is divided as seeds and environments are.
    rollout = device.bytes_of(setup.loop.shapes[1]) // layout.devices
    return {**{name: device.bytes_of(tree) for name, tree in held.items()}, "rollout": rollout}


def require_memory(setup: Setup, parts: Mapping[str, int], needed: int, devices: int = 1) -> None:
    """Raise an error if a run does not fit on its devices, and suggest what might."""
    free = device.free_bytes(devices)
    if free is not None and needed > free:
        raise PhalanxError(
            f"this run needs {megabytes(needed)} of memory and {megabytes(free)} are free: "
            f"{_smaller(setup.config, parts, free / needed)}"
        )


def checkpoint_bytes(parts: Mapping[str, int], config: RunConfig) -> int:
    """What checkpoints take on disk: the last `keep`, the best without its replay, one being written.

    States of environments that are Python programs are not counted: nobody knows their size yet.
    """
    bare = sum(size for name, size in parts.items() if name not in ("rollout", "replay"))
    replay = parts.get("replay", 0) if config.save_buffer else 0
    return (config.keep + 1) * (bare + replay) + bare


def require_disk(setup: Setup, parts: Mapping[str, int], folder: Path) -> int:
    """Refuse a run whose checkpoints do not fit, and say what might; else the bytes that they will take."""
    needed = checkpoint_bytes(parts, setup.config)
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    taken = sum(path.stat().st_size for path in folder.glob("checkpoints/*/*"))  # by a run that goes on
    free = shutil.disk_usage(there).free + taken
    if needed > free:
        stored = "replay" in parts and setup.config.save_buffer
        replay = ", a smaller buffer, --no-save-buffer" if stored else ""
        raise PhalanxError(
            f"checkpoints of this run need {megabytes(needed)} and {megabytes(free)} are free in {there}: "
            f"try --keep 1{replay}, or another --out"
        )
    return needed


def _smaller(run: RunConfig, parts: Mapping[str, int], share: float) -> str:
    """What to ask for when only a `share` of the memory is free."""
    if run.seeds * share >= 1:
        return f"try --seeds {int(run.seeds * share)}"
    largest = max(parts, key=lambda part: parts[part])
    if largest == "learner":
        return "try smaller networks"
    if largest == "opponents":
        return f"try --opponent-pool {max(1, int(run.opponent_pool * share))}"
    if largest == "replay":
        return f"try a buffer {math.ceil(1 / share)} times smaller"
    return f"try a batch {math.ceil(1 / share)} times smaller, or fewer environments"

"""The machine: compilation cache, versions, memory."""

import contextlib
import math
import os
import platform
import subprocess
import threading
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

import jax

from phalanx import __version__, faults
from phalanx.errors import PhalanxError
from phalanx.types import PyTree, is_key


def cache_folder() -> Path:
    """Where compiled programs are kept between processes: `PHALANX_CACHE`, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PHALANX_CACHE") or Path(base) / "phalanx")


FORKED = (
    "JAX was started before this process was forked, and would hang in it: start workers with "
    "multiprocessing's 'spawn' or 'forkserver', or fork them before anything is reset or trained"
)
PATIENCE = 60.0  # seconds that JAX has to answer in a forked process
_imported_in = os.getpid()
_started_in: int | None = None  # the process that we started JAX in


def require_own_process() -> None:
    """Refuse to compute in a child of the process that started JAX: its threads are not here."""
    global _started_in
    if _started_in == os.getpid():
        return
    if _started_in is not None or (_imported_in != os.getpid() and not _answers()):
        raise PhalanxError(FORKED)
    _started_in = os.getpid()


def _answers() -> bool:
    """Whether JAX computes here, in a forked process whose parent may have started JAX without us."""
    done = threading.Event()

    def ask() -> None:
        try:
            jax.jit(lambda x: x + 1)(1).block_until_ready()
        finally:
            done.set()

    threading.Thread(target=ask, daemon=True).start()
    return done.wait(PATIENCE)


def configure(devices: int = 1) -> None:
    """Switch on JAX's cache of compiled programs, start JAX and check it for known faults.

    On a CPU a run on several `devices` gets them, unless JAX has started before.
    """
    prepare()
    if 1 < devices <= cores():
        _divide_cpu(devices)
    _require_right_sums()


def prepare() -> None:
    """The part of `configure` that does not start JAX."""
    require_own_process()
    _run_where_called()
    _use_cache()


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


HOST_DEVICES = "xla_force_host_platform_device_count"


def _divide_cpu(devices: int) -> None:
    """Let JAX have several devices on a CPU, as the flag of XLA does; too late after JAX has started."""
    if HOST_DEVICES not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", devices)


def _run_where_called() -> None:
    """Let the thread that calls a program on the CPU run it: waking another takes longer than a small one.

    Such as `act`, once for each step of environments that are Python programs. It has no effect after JAX
    has started.
    """
    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        jax.config.update("jax_cpu_enable_async_dispatch", False)


@cache
def _require_right_sums() -> None:
    """Raise an error if the compiler computes wrong sums: see `phalanx.faults`."""
    if first().platform == "cpu" and not faults.sums_are_right():
        raise PhalanxError(
            f"jaxlib {version('jaxlib')} gets sums wrong on this CPU: import phalanx before JAX computes "
            f"anything, or set XLA_FLAGS={faults.FLAG}={faults.VALUE}, or install another jaxlib"
        )


def _use_cache() -> None:
    """Switch on the persistent compilation cache, unless the user set one up or said `PHALANX_CACHE=off`."""
    if os.environ.get("PHALANX_CACHE") == "off" or jax.config.values["jax_compilation_cache_dir"]:
        return
    jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def first():
    """The device that runs run on, or the first of them."""
    return every()[0]


def every():
    """All devices."""
    require_own_process()
    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:
        wanted = os.environ.get("JAX_PLATFORMS", "its default")
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise PhalanxError(
            f"JAX cannot start on {wanted}: {reason} (JAX_PLATFORMS=cpu always works)"
        ) from None


def describe() -> str:
    """The device as readable text."""
    device = first()
    if device.platform == "cpu":
        return f"CPU, {os.cpu_count()} cores ({platform.machine()})"
    return f"{device.device_kind} ({device.platform})"


def versions() -> dict[str, str]:
    """Versions of everything that a number may depend on."""
    found = {"python": platform.python_version(), "phalanx": __version__}
    for package in ("jax", "jaxlib", "flax", "optax", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed as a package"
    for kind in ("algorithms", "envs", "presets"):  # what installed packages add
        for entry in entry_points(group=f"phalanx.{kind}"):
            if entry.dist:
                found[entry.dist.name] = entry.dist.version
    return found


def git_revision() -> str | None:
    """The commit of the working folder, with a + behind it when files differ; None outside of git."""
    try:
        show = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
        return subprocess.run(show, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def free_bytes(devices: int = 1) -> int | None:
    """Memory that a run may take on each of its devices; None where the system does not say."""
    if first().platform != "cpu":
        found = [device.memory_stats() for device in jax.local_devices()[:devices]]
        return min(each["bytes_limit"] - each["bytes_in_use"] for each in found) if all(found) else None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        (line,) = (each for each in lines if each.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024 // devices  # which have the same memory
    except (OSError, ValueError):
        return None


def bytes_of(tree: PyTree) -> int:
    """Bytes of all arrays (or shapes) in a tree, on each of the devices that they are divided over."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        where = getattr(leaf, "sharding", None)
        count = math.prod(leaf.shape if where is None else where.shard_shape(leaf.shape))
        if is_key(leaf):
            each = math.prod(jax.eval_shape(jax.random.key_data, leaf).shape[leaf.ndim :]) * 4  # words
        else:
            each = leaf.dtype.itemsize
        total += count * each
    return total

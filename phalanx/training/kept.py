"""Traced programs that are kept between processes: a run like an earlier one need not trace them again.

JAX keeps compiled programs and finds them by their text. Writing that text, which is tracing, takes half of
the time until such a run begins. Here the text is kept as well (`jax.export`). It is found by all that it
follows from: the options of the run, the files of phalanx, versions, settings and the device.
"""

import contextlib
import dataclasses
import hashlib
import os
import pickle
import platform
import threading
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax import export

import phalanx
from phalanx import device
from phalanx.files import write_whole
from phalanx.ops import kernels
from phalanx.types import PyTree

DONATE = ("learn", "track_best")  # programs that reuse the memory of their first argument
KERNELS = [
    export.DisabledSafetyCheck.custom_call(name) for name in kernels.TARGETS
]  # safe: for one version of JAX
DIGEST = hashlib.sha256().digest_size

_since: float | None = None


def use(since: float | None) -> None:
    """Keep programs from here on, in a process that began then and in which nobody has changed phalanx."""
    global _since
    _since = since


class Traced(NamedTuple):
    """A program as text, of the leaves of its arguments, with the structure of its result."""

    exported: export.Exported
    result: Any
    donates: bool

    def lower(self, *args: PyTree) -> jax.stages.Lowered:
        def program(*args: PyTree) -> PyTree:
            return jax.tree.unflatten(self.result, self.exported.call(*jax.tree.leaves(args)))

        program.__name__ = self.exported.fun_name
        return jax.jit(program, donate_argnums=(0,) if self.donates else ()).lower(*args)


class Kept:
    """The programs of a run, by name, and the shapes of its carry and its rollouts."""

    def __init__(self, file: Path):
        self.file = file
        self.shapes: tuple[PyTree, PyTree] | None = None
        self._programs: dict[str, Traced] = {}
        with contextlib.suppress(Exception):  # a missing or damaged file is written again
            written = file.read_bytes()
            if written[:DIGEST] == hashlib.sha256(written[DIGEST:]).digest():
                self._read(written[DIGEST:])

    def _read(self, content: bytes) -> None:
        shapes, texts = pickle.loads(content)
        self._programs = {
            name: Traced(export.deserialize(text), *more) for name, (text, *more) in texts.items()
        }
        self.shapes = shapes

    def job(self, name: str, job: Any) -> Any:
        """The program to lower: as it is kept, or `job`, which is kept when it has been traced."""
        return _Tracing(self, name, job) if self.shapes is None else self._programs.get(name, job)

    def trace(self, name: str, job: Any, args: tuple[PyTree, ...]) -> Traced:
        """Trace a program and remember it."""
        leaves, given = jax.tree.flatten(args)
        result: list[Any] = []

        def program(*leaves: Any) -> list[Any]:
            found, structure = jax.tree.flatten(job(*jax.tree.unflatten(given, leaves)))
            result[:] = [structure]
            return found

        program.__name__ = name
        exported = export.export(jax.jit(program), disabled_checks=KERNELS)(*leaves)
        self._programs[name] = Traced(exported, result[0], name in DONATE)
        return self._programs[name]

    def write(self, *shapes: PyTree) -> None:
        """Write what was traced, while the run goes on."""
        if self.shapes is None:
            threading.Thread(target=self._write, args=(shapes,), name="keep programs").start()

    def _write(self, shapes: tuple[PyTree, ...]) -> None:
        with contextlib.suppress(Exception):  # without it the next run only begins later
            texts = {name: (each.exported.serialize(), *each[1:]) for name, each in self._programs.items()}
            content = pickle.dumps((shapes, texts))
            _digest_of_code()  # refused if it has changed, perhaps while it was imported
            whole = hashlib.sha256(content).digest() + content
            write_whole(self.file, lambda path: path.write_bytes(whole))


class _Tracing(NamedTuple):
    """A program that is not kept yet."""

    kept: Kept
    name: str
    job: Any

    def lower(self, *args: PyTree) -> jax.stages.Lowered:
        try:
            traced = self.kept.trace(self.name, self.job, args)
        except (ValueError, NotImplementedError):  # JAX writes no calls of Python
            return self.job.lower(*args)
        return traced.lower(*args)


class _NotOurs(Exception):
    """Code that may be another the next time."""


def find(*made_from: Any) -> Kept | None:
    """The programs of a run that follows from these objects, if they are phalanx's own and nothing else."""
    if _since is None or os.environ.get("PHALANX_CACHE") == "off":
        return None
    options = BytesIO()
    pickler = _Own(options)
    pickler.fast = True  # equal objects are written alike, whether they are the same object or not
    try:
        pickler.dump(made_from)
        rest = repr((_digest_of_code(), _surroundings()))
        name = hashlib.sha256(options.getvalue() + rest.encode()).hexdigest()
        return Kept(device.cache_folder() / "traced" / name)
    # Such as a function within a function, or a file that is gone.
    except (_NotOurs, pickle.PicklingError, AttributeError, TypeError, ValueError, OSError, RuntimeError):
        return None


class _Own(pickle.Pickler):
    """Refuses what other packages define, whose code may change unnoticed."""

    def reducer_override(self, obj: Any) -> Any:
        module = str(getattr(obj, "__module__", None))
        known = module.partition(".")[0] in ("phalanx", "builtins", "collections", "functools", "numpy")
        if not known or getattr(obj, "of_another_package", False):
            raise _NotOurs
        if not dataclasses.is_dataclass(obj) or isinstance(obj, type):
            return NotImplemented
        # Its fields alone: what it has computed from them and cached differs.
        return type(obj), tuple(getattr(obj, each.name) for each in dataclasses.fields(obj))


def _digest_of_code() -> str:
    """Of all files of phalanx; refused if one changed after this process began and may have imported it."""
    found, root = hashlib.sha256(), Path(phalanx.__file__).parent
    for file in sorted(root.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            if _since is None or file.stat().st_ctime >= _since:
                raise _NotOurs
            found.update(f"{file.relative_to(root)} {file.stat().st_size} ".encode() + file.read_bytes())
    return found.hexdigest()


def _surroundings() -> Any:
    """What else programs may follow from, but for the options of a run."""
    flags = {
        name: each
        for name, each in os.environ.items()
        if name in ("XLA_FLAGS", "PHALANX_KERNELS") or name.startswith("JAX_")
    }
    settings = [sorted(each.items(), key=lambda item: item[0]) for each in (flags, jax.config.values)]
    where = [(each.platform, each.device_kind) for each in device.every()]
    return device.versions(), where, _processor(), settings


def _processor() -> list[Any]:
    """Which computes constants of programs, such as the first observations of battles."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    features = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    return [platform.machine(), device.cores(), sorted(features)]

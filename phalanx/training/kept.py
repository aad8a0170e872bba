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
import tempfile
import threading
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax import export

import phalanx
from phalanx import device
from phalanx.types import PyTree

DONATE = ("learn", "track_best")  # programs that reuse the memory of their first argument

_in_use = False


def use() -> None:
    """Keep programs from here on: for a process in which nobody has changed phalanx in memory."""
    global _in_use
    _in_use = True


class Traced(NamedTuple):
    """A program as text, of the leaves of its arguments, with the structure of its result."""

    exported: export.Exported
    result: Any
    donates: bool

    def lower(self, *args: PyTree) -> jax.stages.Lowered:
        def program(*args: PyTree) -> PyTree:
            return jax.tree.unflatten(self.result, self.exported.call(*jax.tree.leaves(args)))

        return jax.jit(program, donate_argnums=(0,) if self.donates else ()).lower(*args)


class Kept:
    """The programs of a run, by name, and the shapes of its carry and its rollouts."""

    def __init__(self, file: Path):
        self.file = file
        self.shapes: tuple[PyTree, PyTree] | None = None
        self._programs: dict[str, Traced] = {}
        with contextlib.suppress(Exception):  # a missing or damaged file is written again
            shapes, texts = pickle.loads(file.read_bytes())
            self._programs = {
                name: Traced(export.deserialize(text), *more) for name, (text, *more) in texts.items()
            }
            self.shapes = shapes

    def job(self, name: str, job: Any) -> Any:
        """The program to lower: as it is kept, or `job`, which is kept when it has been traced."""
        return self._programs.get(name) or _Tracing(self, name, job)

    def trace(self, name: str, job: Any, args: tuple[PyTree, ...]) -> Traced:
        """Trace a program and remember it."""
        leaves, given = jax.tree.flatten(args)
        result: list[Any] = []

        def program(*leaves: Any) -> list[Any]:
            found, structure = jax.tree.flatten(job(*jax.tree.unflatten(given, leaves)))
            result[:] = [structure]
            return found

        exported = export.export(jax.jit(program))(*leaves)
        self._programs[name] = Traced(exported, result[0], name in DONATE)
        return self._programs[name]

    def write(self, *shapes: PyTree) -> None:
        """Write what was traced, while the run goes on."""
        if self.shapes is None:
            threading.Thread(target=self._write, args=(shapes,), name="keep programs").start()

    def _write(self, shapes: tuple[PyTree, ...]) -> None:
        texts = {name: (each.exported.serialize(), *each[1:]) for name, each in self._programs.items()}
        with contextlib.suppress(OSError):  # without it a run only begins later
            self.file.parent.mkdir(parents=True, exist_ok=True)
            number, unfinished = tempfile.mkstemp(dir=self.file.parent)  # other runs may write it too
            with os.fdopen(number, "wb") as file:
                pickle.dump((shapes, texts), file)
            os.replace(unfinished, self.file)


class _Tracing(NamedTuple):
    """A program that is not kept yet."""

    kept: Kept
    name: str
    job: Any

    def lower(self, *args: PyTree) -> jax.stages.Lowered:
        try:
            traced = self.kept.trace(self.name, self.job, args)
        except (ValueError, NotImplementedError):  # JAX writes no kernels and no calls of Python
            return self.job.lower(*args)
        return traced.lower(*args)


def find(*made_from: Any) -> Kept | None:
    """The programs of a run that follows from these objects, if they are phalanx's own and nothing else."""
    if not _in_use or os.environ.get("PHALANX_CACHE") == "off":
        return None
    options = BytesIO()
    pickler = _Own(options)
    pickler.fast = True  # equal objects are written alike, whether they are the same object or not
    try:
        pickler.dump(made_from)
    except (pickle.PicklingError, AttributeError, TypeError):  # such as a function within a function
        return None
    name = hashlib.sha256(options.getvalue() + _surroundings()).hexdigest()
    return Kept(device.cache_folder() / "traced" / name)


class _Own(pickle.Pickler):
    """Refuses what other packages define, whose code may change unnoticed."""

    def reducer_override(self, obj: Any) -> Any:
        module = str(getattr(obj if isinstance(obj, type) else type(obj), "__module__", ""))
        if module.partition(".")[0] not in ("phalanx", "builtins", "collections", "functools", "numpy"):
            raise pickle.PicklingError(f"{module} is not phalanx's own")
        if not dataclasses.is_dataclass(obj) or isinstance(obj, type):
            return NotImplemented
        # Its fields alone: what it has computed from them and cached differs.
        return type(obj), tuple(getattr(obj, each.name) for each in dataclasses.fields(obj))


def _surroundings() -> bytes:
    """All but a run's options that its programs may follow from."""
    code, root = hashlib.sha256(), Path(phalanx.__file__).parent
    for file in sorted(root.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            code.update(f"{file.relative_to(root)} {file.stat().st_size} ".encode() + file.read_bytes())
    flags = {name: each for name, each in os.environ.items() if name.startswith(("JAX_", "XLA_"))}
    where = [(each.platform, each.device_kind) for each in device.every()], device.cores()
    settings = [sorted(each.items(), key=lambda item: item[0]) for each in (flags, jax.config.values)]
    return repr((code.hexdigest(), device.versions(), where, settings)).encode()

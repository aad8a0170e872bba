"""Experiments: arms on environments, named in a small file; planned, made, and gone on with.

Every arm on every environment is a cell: one `phalanx train` command with all its seeds in one program, in a
process and a folder of its own. What is finished is not made again, what was interrupted resumes to the bit,
and what fails is written down while the others go on. `experiment.json` in the folder says how things stand.
"""

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import api, registry
from phalanx.config import COMMAND_OPTIONS, Layer
from phalanx.errors import PhalanxError, suggest
from phalanx.report.compare import EXPERIMENT
from phalanx.report.console import duration, megabytes
from phalanx.report.plots import thousands
from phalanx.training import checkpoint
from phalanx.training import programs as runs
from phalanx.training.interrupt import stop_requests
from phalanx.training.keys import Purpose
from phalanx.training.memory import memory_parts
from phalanx.training.setup import Setup

TABLES = ("experiment", "all", "on", "arms", "bounds")
BEGINNINGS = {"config.toml", "run.json", ".run.json", "metrics.jsonl", "tb", "checkpoints"}
BYTES_OF_A_ROW = 1_500  # of metrics.jsonl and of TensorBoard's events, for one seed and evaluation


class Cell(NamedTuple):
    """One arm on one environment."""

    arm: str
    env: str
    algorithm: str
    preset: str
    options: Mapping[str, Any]
    env_options: Mapping[str, Any]
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.arm} on {self.env}"

    @property
    def log(self) -> Path:
        return self.folder.with_name(self.folder.name + ".log")

    @property
    def command(self) -> list[str]:
        """The words behind `phalanx` that make this cell."""
        words = ["train", self.algorithm, self.env]
        if self.preset != "auto":
            words += ["--preset", self.preset]
        for name, value in self.options.items():
            table, _, plain = name.rpartition(".")
            table = table or ("algorithm" if plain in COMMAND_OPTIONS else "")
            words += _flag(f"{table}." if table else "", plain, value)
        for name, value in self.env_options.items():
            words += _flag("env.", name, value)
        return [*words, "--out", str(self.folder)]

    def setup(self) -> Setup:
        """Its parts, or what is wrong with them."""
        try:
            layer = Layer("experiment", api.tables_of(self.algorithm, self.options, self.env_options))
            return api.resolve(self.algorithm, self.env, layer, preset=self.preset)
        except PhalanxError as error:
            raise PhalanxError(f"{self.name}: {error}") from None

    def facts(self) -> dict[str, Any]:
        """What its run.json says; nothing before it has begun."""
        try:
            return json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    @property
    def state(self) -> str:
        """`done`, `begun` if there is a checkpoint to go on from, or `new`."""
        status = self.facts().get("status")
        if status == "finished":
            return "done"
        return "begun" if status and checkpoint.listing(self.folder / "checkpoints") else "new"


def _flag(prefix: str, name: str, value: Any) -> list[str]:
    """An option as the command line takes it."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{prefix}{'' if value else 'no-'}{name}"]
    whole = isinstance(value, float) and value.is_integer()  # 1e6 steps
    return [f"--{prefix}{name}", str(int(value) if whole else value)]


class Experiment(NamedTuple):
    """An experiment file, read."""

    path: Path
    title: str
    out: Path
    cells: list[Cell]
    control: str | None
    bounds: Mapping[str, list[float]]


def read(path: Path, out: Path | None = None) -> Experiment:
    """Read an experiment file; say in one line what is wrong with it."""
    tables = {table: {} for table in TABLES} | registry.read_toml(path, TABLES)
    try:
        _require_sound(tables)
    except PhalanxError as error:
        raise PhalanxError(f"{path}: {error}") from None
    about, out = tables["experiment"], out or Path("results", "experiments", path.stem)
    cells = []
    for env in about["envs"]:
        for arm, given in tables["arms"].items():
            options, env_options = {}, {}
            for part in (tables["all"], tables["on"].get(env, {}), given):
                given_here = {k: v for k, v in part.items() if k not in ("algorithm", "preset", "env")}
                options = over(options, given_here)
                env_options |= part.get("env", {})
            folder = out / _file_name(arm) / _file_name(env)
            preset = given.get("preset", "auto")
            cells.append(Cell(arm, env, given["algorithm"], preset, options, env_options, folder))
    if len({cell.folder for cell in cells}) < len(cells):
        raise PhalanxError(f"{path}: two arms or environments have the same name, or the same as a folder")
    return Experiment(path, about.get("title", path.stem), out, cells, about.get("control"), tables["bounds"])


def over(options: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Lay later options over earlier ones; `steps` and `run.steps` are the same one."""

    def same(one: str, other: str) -> bool:
        (table, _, name), (other_table, _, other_name) = one.rpartition("."), other.rpartition(".")
        return name == other_name and (table == other_table or not (table and other_table))

    kept = {name: value for name, value in options.items() if not any(same(name, new) for new in later)}
    return {**kept, **later}


def _require_sound(tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse tables that do not name arms and environments; their options are checked cell by cell."""
    for table in tables:
        if table not in TABLES:
            raise PhalanxError(f"unknown table [{table}].{suggest(table, TABLES)}")
    about, arms = tables["experiment"], tables["arms"]
    _require_known(about)
    envs = about.get("envs")
    if not envs:
        raise PhalanxError('it names no environments: [experiment] needs a line such as envs = ["switch/2"]')
    if not arms:
        raise PhalanxError("it names no arms: every arm is a table [arms.NAME]")
    for arm, given in arms.items():
        if not isinstance(given, Mapping) or not isinstance(given.get("algorithm"), str):
            raise PhalanxError(f'[arms.{arm}] must say algorithm = "mappo" or another')
    for env in tables["on"]:
        if env not in envs:
            raise PhalanxError(f"[on.{env!r}] is for an environment that is not in envs.{suggest(env, envs)}")
    if about.get("control", next(iter(arms))) not in arms:
        raise PhalanxError(f"control = {about['control']!r} is no arm.{suggest(about['control'], arms)}")
    for task, pair in tables["bounds"].items():
        if task not in envs or not (isinstance(pair, list) and len(pair) == 2 and pair[0] < pair[1]):
            line = f"{json.dumps(envs[0])} = [0, 20]"
            raise PhalanxError(f"[bounds] holds lines such as {line}, the lower first")


def _require_known(about: Mapping[str, Any]) -> None:
    known = {"title": str, "envs": list, "control": str}
    for name, value in about.items():
        if name not in known:
            raise PhalanxError(f"unknown option {name!r} in [experiment].{suggest(name, known)}")
        if not isinstance(value, known[name]):
            raise PhalanxError(f"{name} in [experiment] must be a {known[name].__name__}, not {value!r}")


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]", "-", name)


# Planning


def keep_off_the_device() -> None:
    """Plan on the CPU: a process that has touched a GPU would hold most of its memory while runs need it."""
    import jax

    jax.config.update("jax_platforms", "cpu")


class Planned(NamedTuple):
    """What a cell will take."""

    cell: Cell
    state: str
    seeds: int
    steps: int
    memory: int
    disk: int
    seconds: float | None
    """still to come; None where nothing was measured"""


class Trial(NamedTuple):
    """What a short trial of a cell measured."""

    starting: float
    """seconds to compile"""
    update: float
    evaluation: float
    memory: int


def plan(experiment: Experiment, measure: bool) -> list[Planned]:
    """Check every cell, and say what it will take; with `measure` those never measured are tried out."""
    setups = [(cell, cell.setup()) for cell in experiment.cells]
    for cell, this in setups:
        require_unchanged(cell, this)
    rates = {(c.algorithm, c.env): r for c, this in setups if (r := rate(c, this)) is not None}
    planned = []
    # Trials run in another process: this one keeps off the device.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        for cell, this in setups:
            config, parts, left = this.config, memory_parts(this), 1 - progress(cell, this)
            memory, seconds = sum(parts.values()), rates.get((cell.algorithm, cell.env))
            if seconds is not None:
                seconds *= left * config.steps * config.seeds
            elif measure and left:
                tried = pool.submit(try_out, cell).result()
                memory, seconds = tried.memory, length(this, tried)
            saved = sum(size for name, size in parts.items() if name != "rollout")
            rows = config.seeds * (2 + this.total_updates // this.updates_between_evaluations)
            disk = saved * (config.keep + 2) + rows * BYTES_OF_A_ROW  # the best, and one being written
            left_seconds = seconds if left else 0.0
            planned.append(Planned(cell, cell.state, config.seeds, config.steps, memory, disk, left_seconds))
    return planned


def require_unchanged(cell: Cell, this: Setup) -> None:
    """Refuse a folder whose run was made with something else than the file now says."""
    facts = cell.facts()
    if not facts:
        return
    there = registry.read_toml(cell.folder / "config.toml")
    for table, values in settings(this).items():
        for name, value in values.items():
            was = there.get(table, {}).get(name)
            new_option = was is None and this.resolved.origins[table].get(name) == "default"
            if was != value and not new_option:
                raise PhalanxError(
                    f"{cell.folder} was made with {name} = {was}, and the experiment now says {value}: "
                    f"remove that folder, or give another --out"
                )
    if facts.get("env_version") != this.env.spec.version:
        raise PhalanxError(
            f"{cell.folder} was made with version {facts.get('env_version')} of {cell.env}, and this is "
            f"version {this.env.spec.version}: remove that folder, or give another --out"
        )


def settings(this: Setup) -> dict[str, dict[str, Any]]:
    """The merged configuration, as config.toml has it."""
    return {
        "run": dataclasses.asdict(this.config),
        "algorithm": dataclasses.asdict(this.resolved.algorithm),
        "env": dict(this.resolved.env),
    }


def progress(cell: Cell, this: Setup) -> float:
    """The share of a cell's steps that is done."""
    if cell.state != "begun":
        return float(cell.state == "done")
    return checkpoint.listing(cell.folder / "checkpoints")[-1].updates / this.total_updates


def rate(cell: Cell, this: Setup) -> float | None:
    """Seconds that an env step of a cell took, if it has finished."""
    seconds = cell.facts().get("seconds")
    return seconds and seconds / (this.config.steps * this.config.seeds)


def try_out(cell: Cell) -> Trial:
    """Compile a cell and run it for a moment."""
    import jax
    import jax.numpy as jnp

    def timed(program: Callable[..., Any], *given: Any) -> tuple[float, Any]:
        begin = time.monotonic()
        result = jax.block_until_ready(program(*given))
        return time.monotonic() - begin, result

    this = cell.setup()
    begin = time.monotonic()
    programs = runs.compile_programs(this.loop, this.evaluation)
    starting = time.monotonic() - begin
    carry = programs.init(jnp.array(this.seeds, jnp.int32))
    budget = jnp.float32(this.config.steps)
    _, carry = timed(programs.advance, carry, jnp.int32(1), budget)
    update, carry = timed(programs.advance, carry, jnp.int32(2), budget)
    policy, roots = jax.vmap(this.algorithm.policy)(carry.learner), runs.seed_keys(Purpose.CURVE, this.seeds)
    timed(programs.play, policy, roots)
    evaluation, _ = timed(programs.play, policy, roots)
    return Trial(starting, update / 2, evaluation, programs.bytes_needed)


def length(this: Setup, tried: Trial) -> float:
    """Seconds that a whole run will take, from a trial."""
    config = this.config
    plays = 1 + math.ceil(this.total_updates / this.updates_between_evaluations)
    plays += 2 * math.ceil(config.final_episodes / config.eval_episodes)
    return tried.starting + this.total_updates * tried.update + plays * tried.evaluation


def table(planned: list[Planned], jobs: int) -> Any:
    """The plan for a terminal; its last row is the sum."""
    from rich.table import Table

    shown = Table()
    for name in ("arm", "environment", "state", "seeds x steps", "memory", "disk", "time left"):
        shown.add_column(name, overflow="fold")
    for row in planned:
        left = "-" if row.state == "done" else "?" if row.seconds is None else duration(row.seconds)
        steps, sizes = f"{row.seeds} x {thousands(row.steps)}", (megabytes(row.memory), megabytes(row.disk))
        shown.add_row(row.cell.arm, row.cell.env, row.state, steps, *sizes, left)
    todo = [row for row in planned if row.state != "done"]
    unknown = any(row.seconds is None for row in todo)
    left = sum(row.seconds or 0 for row in todo) / jobs
    memory = sum(sorted((row.memory for row in todo), reverse=True)[:jobs])
    shown.add_section()
    shown.add_row(
        f"{len(planned)} runs",
        f"{jobs} at a time" if jobs > 1 else "",
        f"{len(todo)} to do",
        thousands(sum(row.seeds * row.steps for row in planned)),
        megabytes(memory),
        megabytes(sum(row.disk for row in planned)),
        "?" if unknown else duration(left),
    )
    return shown


# Running


class Runner:
    """Makes the cells of an experiment, some at a time, until all are done or a stop is asked for."""

    def __init__(self, experiment: Experiment, jobs: int, say: Callable[[str], None]):
        self.experiment, self.jobs, self.say = experiment, jobs, say
        self.failures: dict[str, str] = {}
        self.children: set[subprocess.Popen] = set()
        self.guard = threading.Lock()

    def run(self) -> None:
        """Make all cells that are not done. Raises KeyboardInterrupt after a stop, when all is saved."""
        self.note()
        todo = [cell for cell in self.experiment.cells if cell.state != "done"]
        with stop_requests() as stop, ThreadPoolExecutor(self.jobs) as pool:
            making = [pool.submit(self.make, cell, stop) for cell in todo]
            while wait(making, timeout=0.2).not_done:
                if stop.is_set():
                    self.ask_to_stop()
            for each in making:
                each.result()
        if stop.is_set():
            raise KeyboardInterrupt

    def ask_to_stop(self) -> None:
        """Tell every run once: it saves itself and ends."""
        with self.guard:
            while self.children:
                self.children.pop().send_signal(signal.SIGTERM)

    def make(self, cell: Cell, stop: threading.Event) -> None:
        """Make one cell, or go on with it; a failure is noted."""
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.alone(cell, stop) as lock:
            if lock is None or stop.is_set() or cell.state == "done":
                return
            words = ["resume", str(cell.folder)] if cell.state == "begun" else cell.command
            if cell.state == "new":
                clear(cell.folder)
            self.say(f"{cell.name}: {'goes on' if words[0] == 'resume' else 'begins'}, see {cell.log}")
            begin = time.monotonic()
            code = self.child(words, cell.log, lock)
        if code != 0 and not stop.is_set():
            self.failures[cell.name] = last_line(cell.log)
        self.note()
        self.say(f"{cell.name}: {self.outcome(cell)} ({duration(time.monotonic() - begin)})")

    def child(self, words: list[str], log: Path, lock: int) -> int:
        """Run a command of phalanx to its end. It holds the lock as long as it lives, even without us."""
        environment = dict(os.environ)
        if self.jobs > 1:  # so that they do not each take most of a GPU's memory
            environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        with log.open("a", encoding="utf-8") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "phalanx", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=[lock],
            )
            with self.guard:
                self.children.add(child)
            code = child.wait()
            with self.guard:
                self.children.discard(child)
            return code

    @contextlib.contextmanager
    def alone(self, cell: Cell, stop: threading.Event) -> Iterator[int | None]:
        """Hold a cell's lock; None if a stop came first. A run that outlived its experiment holds it too."""
        lock = os.open(cell.folder.with_name(f".{cell.folder.name}.lock"), os.O_RDWR | os.O_CREAT)
        said = False
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if stop.wait(0.5):
                        yield None
                        return
                    if not said:
                        self.say(f"{cell.name}: waits for another process that runs it")
                        said = True
            yield lock
        finally:
            os.close(lock)

    def outcome(self, cell: Cell) -> str:
        facts = cell.facts()
        if cell.name in self.failures:
            return f"failed: {self.failures[cell.name]}"
        if facts.get("status") != "finished":
            return "stopped and saved"
        last = facts["final"]["last"]
        return ", ".join(f"{name} {last[name]:.3g}" for name in ("return", "win_rate") if name in last)

    def note(self) -> None:
        """Write down how things stand."""
        this = self.experiment
        told = {
            "title": this.title,
            "file": str(this.path),
            "control": this.control,
            "bounds": this.bounds,
            "cells": [
                {
                    "arm": cell.arm,
                    "env": cell.env,
                    "folder": str(cell.folder.relative_to(this.out)),
                    "command": shlex.join(["phalanx", *cell.command]),
                    "state": cell.state,
                    "failed": self.failures.get(cell.name),
                }
                for cell in this.cells
            ],
        }
        with self.guard:
            unfinished = this.out / f".{EXPERIMENT}"
            try:
                this.out.mkdir(parents=True, exist_ok=True)
                unfinished.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
                os.replace(unfinished, this.out / EXPERIMENT)
            except OSError as error:
                raise PhalanxError(f"cannot write {this.out}: {error.strerror}") from None


def clear(folder: Path) -> None:
    """Take away what a run left that was killed before its first checkpoint, and nothing else."""
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= BEGINNINGS:
        shutil.rmtree(folder)


def last_line(log: Path) -> str:
    """What a failed command said last."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("phalanx: ") if lines else "it said nothing"

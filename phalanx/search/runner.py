"""Runs a search: rounds of settings, rung by rung, block by block; records the status."""

import contextlib
import dataclasses
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import numpy as np

from phalanx import device
from phalanx.errors import PhalanxError
from phalanx.experiment.lock import try_lock
from phalanx.files import write_whole
from phalanx.report import metrics
from phalanx.report.console import megabytes, number
from phalanx.search.block import CHECKPOINTS, Block, Lane
from phalanx.search.halving import Rung, best_first, halve
from phalanx.search.preset import preset
from phalanx.search.sampler import sampler
from phalanx.search.shapes import Shape, Shapes
from phalanx.search.space import Setting, Space
from phalanx.training.devices import over_lanes
from phalanx.training.interrupt import stop_requests
from phalanx.training.lanes import LanePrograms, compile_lanes

STATE, PRESET = "search.json", "preset.toml"
Say = Callable[[str], None]


@dataclasses.dataclass
class Trial:
    """A setting and how it did."""

    number: int
    setting: Setting
    rungs: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """for each rung that it reached: env steps per seed, scores and returns of seeds, and their means; None
    if learning diverged"""
    place: list[tuple[Path, int]] = dataclasses.field(default_factory=list)
    """block and lane of each seed at the last rung it reached"""

    @property
    def score(self) -> float | None:
        return self.rungs[-1]["score"]

    @property
    def rank(self) -> tuple[float, float] | None:
        """What it is compared by: the score, and where scores are equal, such as no wins, the return."""
        last = self.rungs[-1]
        return None if last["score"] is None else (last["score"], last["return"])


class Group(NamedTuple):
    """Settings of one shape, at one rung."""

    shape: Shape
    trials: list[Trial]


class Search:
    """A search that can be run and resumed."""

    def __init__(self, space: Space, say: Say, devices: int = 1):
        device.configure(devices)
        over_lanes(1, devices)  # an error if there are fewer
        self.space, self.say, self.devices = space, say, devices
        self.sampler = sampler(space)
        self.first_round = [space.complete(each) for each in self.sampler.ask(space.schedule[0][0].settings)]
        self.shapes = Shapes(space, self.first_round[0])
        for setting in self.first_round:  # what is wrong with any of them is said before anything is trained
            self.shapes.of(setting)
        spec = self.shapes.of(self.first_round[0])[0].setup.env.spec
        wanted = space.plan.metric
        self.metric = ("win_rate" if spec.has_win else "return") if wanted == "auto" else wanted
        if self.metric == "win_rate" and not spec.has_win:
            raise PhalanxError(f'{space.plan.env} has no wins: use metric = "return"')
        self.trials: list[Trial] = []
        self.env_steps = 0
        self.programs: tuple[str, int, LanePrograms] | None = None
        self.compiled = 0
        self.seconds = {"compile": 0.0, "train": 0.0}

    def statement(self) -> list[str]:
        """What will be run, before it runs."""
        space, plan, shapes = self.space, self.space.plan, self.shapes
        kind = {True: "the whole grid", False: "spread over the space"}[space.grid]
        kind = "by TPE" if plan.sampler == "tpe" else kind
        lines = [
            f"search     {plan.algorithm} on {plan.env}, by the greedy {self.metric.replace('_', ' ')}",
            f"settings   {space.settings}, {kind}; {plan.seeds} seeds each",
            f"one program for {', '.join(shapes.names) or 'nothing'}",
        ]
        lines += [f"own program for each {name}: {why}" for name, why in shapes.reasons.items()]
        for i, schedule in enumerate(space.schedule):
            shown = ", ".join(f"{rung.settings} to {rung.steps:,} env steps per seed" for rung in schedule)
            lines.append(f"rungs      {shown}" + (f" (round {i + 1})" if len(space.schedule) > 1 else ""))
        if self.devices != 1:
            lines.append(
                f"devices    {self.devices or 'all'}: the seeds of the settings are divided between them"
            )
        budget = "" if plan.budget is None else f" of a budget of {plan.budget:,}"
        return [*lines, f"cost       at most {space.env_steps:,} env steps in training{budget}"]

    def run(self) -> Trial:
        """Train everything that is not trained yet; the best setting."""
        with self._alone(), stop_requests() as stop:
            self._note("running")
            for number_, schedule in enumerate(self.space.schedule):
                asked = self.first_round if number_ == 0 else self._ask(schedule[0].settings)
                mine = [Trial(len(self.trials) + i, setting) for i, setting in enumerate(asked)]
                self.trials += mine
                train = partial(self._rung, number_, schedule, stop)
                halve([trial.number for trial in mine], schedule, train)
                self.sampler.tell(
                    {
                        trial.number: (
                            trial.score,
                            trial.rungs[-1]["steps"],
                            len(trial.rungs) == len(schedule),
                        )
                        for trial in mine
                    }
                )
            best = self.best()
            self._write_preset(best)
            self._note("finished")
            for folder in (self.space.out / "blocks").glob(f"*/{CHECKPOINTS}"):
                shutil.rmtree(folder, ignore_errors=True)
        return best

    def _ask(self, count: int) -> list[Setting]:
        return [self.space.complete(each) for each in self.sampler.ask(count)]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the folder, and refuse one of another search."""
        out = self.space.out
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PhalanxError(f"cannot write {out}: {error.strerror}") from None
        with try_lock(out / ".lock") as ours:
            if not ours:
                raise PhalanxError(f"another process runs the search in {out}")
            if (out / STATE).is_file():
                self._require_same(out / STATE)
            elif any(path.name != ".lock" for path in out.iterdir()):
                raise PhalanxError(f"{out} holds something else: give another --out")
            yield

    def _require_same(self, file: Path) -> None:
        """Refuse the folder of another search, and go on counting where this one was."""
        try:
            before = json.loads(file.read_text(encoding="utf-8"))
            space, self.seconds, self.compiled = (
                before[name] for name in ("space", "seconds", "programs_compiled")
            )
        except (ValueError, KeyError, TypeError):
            raise PhalanxError(f"{file} is not readable: give another --out, or remove it") from None
        if space != json.loads(json.dumps(self._space())):
            raise PhalanxError(
                f"{file.parent} holds a search of another space or plan: give another --out, or remove it"
            )

    # Training

    def _rung(
        self, round_: int, schedule: list[Rung], stop: Event, names: list[int], rung: int
    ) -> dict[int, Any]:
        """Train settings to a rung; what each is compared by."""
        last, steps = rung == len(schedule) - 1, schedule[rung].steps
        before = schedule[rung - 1].steps if rung else 0
        mark = f"{round_ + 1}-{rung + 1}"
        blocks = self._blocks([self.trials[name] for name in names], mark, (before, steps), last)
        for block in blocks:
            if block.result() is None:
                self._train(block, stop)
            self.env_steps += block.env_steps
            self._take(block, steps)
        for folder in (self.space.out / "blocks").glob(f"{round_ + 1}-{rung}-*/{CHECKPOINTS}"):
            shutil.rmtree(folder, ignore_errors=True)  # of the rung before: nobody needs them any more
        scores = {name: self.trials[name].rank for name in names}
        self._say_rung(scores, rung, len(schedule), steps)
        self._note("running")
        return scores

    def _blocks(self, trials: list[Trial], mark: str, steps: tuple[int, int], last: bool) -> list[Block]:
        """Put settings of one shape side by side, at most `at_once`."""
        groups: dict[str, Group] = {}
        for trial in trials:
            shape, _ = self.shapes.of(trial.setting)
            groups.setdefault(shape.key, Group(shape, [])).trials.append(trial)
        blocks, plan = [], self.space.plan
        for shape, mine in groups.values():
            parts = -(-len(mine) // (plan.at_once or len(mine)))
            before, now = (each // shape.setup.algorithm.steps_per_update for each in steps)
            for part in np.array_split(np.arange(len(mine)), parts):
                lanes = [lane for i in part for lane in self._lanes(mine[i])]
                folder = self.space.out / "blocks" / f"{mark}-{len(blocks) + 1}"
                blocks.append(Block(folder, shape, lanes, (before, now), last))
        return blocks

    def _lanes(self, trial: Trial) -> list[Lane]:
        plan, (_, numbers) = self.space.plan, self.shapes.of(trial.setting)
        sources = trial.place or [None] * plan.seeds
        return [Lane(trial.number, plan.seed + i, numbers, source) for i, source in enumerate(sources)]

    def _train(self, block: Block, stop: Event) -> None:
        begin = time.monotonic()
        programs = self._programs(block)
        begun = time.monotonic()
        self.seconds["compile"] += begun - begin
        try:
            block.run(programs, stop, self.say)
        finally:
            self.seconds["train"] += time.monotonic() - begun

    def _programs(self, block: Block) -> LanePrograms:
        """Compiled for as many lanes; the last ones are kept."""
        width = len(block.lanes)
        if self.programs is None or self.programs[:2] != (block.shape.key, width):
            self.programs = None  # frees them before others are made
            made = compile_lanes(block.shape.lane, width, block.shape.names, self.devices)
            self.compiled += 1
            free = device.free_bytes(made.layout.devices)
            if free is not None and made.bytes_needed > free:
                fit = int(width // self.space.plan.seeds * free / made.bytes_needed)
                raise PhalanxError(
                    f"{width} lanes need {megabytes(made.bytes_needed)} of memory and {megabytes(free)} are "
                    f"free: "
                    + (f"use at_once = {fit} in [plan]" if fit else "use fewer seeds or environments")
                )
            self.programs = (block.shape.key, width, made)
        return self.programs[2]

    def _take(self, block: Block, steps: int) -> None:
        """Write down how the settings of a finished block did."""
        result = block.result()
        assert result is not None
        for name in dict.fromkeys(row["setting"] for row in result):
            mine = [(lane, row) for lane, row in enumerate(result) if row["setting"] == name]
            ended: dict[str, Any] = {"steps": steps}
            for key, metric in (("score", self.metric), ("return", "return")):
                values = [row[metric] for _, row in mine if not row["diverged"]]
                ended[f"{key}s"] = [None if row["diverged"] else row[metric] for _, row in mine]
                ended[key] = math.fsum(values) / len(mine) if len(values) == len(mine) else None
            trial = self.trials[name]
            trial.rungs.append(ended)
            trial.place = [(block.folder, lane) for lane, _ in mine]

    def _say_rung(self, scores: dict[int, Any], rung: int, rungs: int, steps: int) -> None:
        order = best_first(scores)
        best = "all diverged"
        if order:
            shown = ", ".join(f"{name} {value}" for name, value in self.trials[order[0]].setting.items())
            best = f"best {number(scores[order[0]][0])} with {shown}"
        lost = f", {len(scores) - len(order)} diverged" if len(order) < len(scores) else ""
        self.say(f"rung {rung + 1} of {rungs}: {len(scores)} settings at {steps:,} env steps{lost}; {best}")

    # The end

    def best(self) -> Trial:
        """The best of those that were trained longest."""
        longest = max(len(trial.rungs) for trial in self.trials)
        order = best_first({t.number: t.rank for t in self.trials if len(t.rungs) == longest})
        if not order:
            raise PhalanxError("learning diverged with every setting: search smaller learning rates")
        return self.trials[order[0]]

    def _write_preset(self, best: Trial) -> None:
        text = preset(
            self.space, self.shapes.setup(best.setting), best.rungs[-1], self.metric, self.env_steps
        )
        write_whole(self.space.out / PRESET, partial(Path.write_text, data=text, encoding="utf-8"))

    def _space(self) -> dict[str, Any]:
        """What must be the same to go on."""
        space = self.space
        return {
            "plan": dataclasses.asdict(space.plan),
            "fixed": dict(space.fixed),
            "fixed_env": dict(space.fixed_env),
            "search": [axis._asdict() for axis in space.axes],
            "same": dict(space.same),
        }

    def facts(self, status: str) -> dict[str, Any]:
        """How things stand."""
        rows = [row for path in sorted((self.space.out / "blocks").glob("*")) for row in metrics.read(path)]
        return {
            "status": status,
            "file": str(self.space.path),
            "space": self._space(),
            "metric": self.metric,
            "budget": self.space.plan.budget,
            "env_steps": self.env_steps,
            "settings": self.space.settings,
            "one_program": list(self.shapes.names),
            "own_program": self.shapes.reasons,
            "programs_compiled": self.compiled,
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
            "versions": device.versions(),
            "device": device.describe(),
            "trials": [
                {
                    "number": t.number,
                    "setting": t.setting,
                    "rungs": t.rungs,
                    "curve": _curve(rows, t, self.metric),
                }
                for t in self.trials
                if t.rungs
            ],
        }

    def _note(self, status: str) -> None:
        text = json.dumps(self.facts(status), indent=1) + "\n"
        write_whole(self.space.out / STATE, partial(Path.write_text, data=text, encoding="utf-8"))


def _curve(rows: list[dict[str, Any]], trial: Trial, metric: str) -> list[tuple[int, float]]:
    """The mean over seeds at each evaluation."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["setting"] == trial.number:
            found.setdefault(row["env_steps"], []).append(row[f"eval/{metric}"])
    return [(steps, math.fsum(scores) / len(scores)) for steps, scores in sorted(found.items())]

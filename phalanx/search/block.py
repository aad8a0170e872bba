"""A block: settings of one shape that train in one program, from one rung to the next.

A block has a folder: `metrics.jsonl` (evaluations), `checkpoints/` while it is trained and until the next
rung is done, and `result.json` when it is finished. A finished block is not trained again; an unfinished one
goes on from its checkpoint.
"""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.errors import PhalanxError
from phalanx.files import write_whole
from phalanx.report.metrics import MetricsWriter
from phalanx.search.shapes import Shape
from phalanx.training import checkpoint
from phalanx.training.evaluate import summary
from phalanx.training.interrupt import Interrupted
from phalanx.training.keys import Purpose
from phalanx.training.lanes import LanePrograms, example
from phalanx.training.loop import Carry
from phalanx.training.programs import play_many, seed_keys
from phalanx.types import Array, PyTree, is_key

RESULT, CHECKPOINTS = "result.json", "checkpoints"
SLICE_SECONDS = 1.0  # how long a program may run before a stop request is looked for


class Lane(NamedTuple):
    """One seed of one setting."""

    setting: int
    seed: int
    numbers: dict[str, float]
    source: tuple[Path, int] | None
    """block and lane of the rung before; None at the first rung"""


class Block:
    """Trains some lanes up to a number of updates."""

    def __init__(
        self, folder: Path, shape: Shape, lanes: Sequence[Lane], updates: tuple[int, int], last: bool
    ):
        """`updates` are those of the rung before and of this one, which may be the `last`."""
        self.folder, self.shape, self.lanes = folder, shape, lanes
        self.first, self.target, self.last = *updates, last
        self.checkpoints = folder / CHECKPOINTS

    @property
    def env_steps(self) -> int:
        """What it takes, over all lanes."""
        updates = self.target - self.first
        return len(self.lanes) * updates * self.shape.setup.algorithm.steps_per_update

    def result(self) -> list[dict[str, Any]] | None:
        """The end of each lane; None before it is finished."""
        try:
            return json.loads((self.folder / RESULT).read_text(encoding="utf-8"))
        except OSError:
            return None

    def run(self, programs: LanePrograms, stop: Event, say: Callable[[str], None]) -> None:
        """Train to the end; a stop request saves and raises Interrupted."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.programs = programs
        types = example(self.shape.lane.config, self.shape.names)
        self.numbers = {
            name: jnp.asarray([lane.numbers[name] for lane in self.lanes], each.dtype)
            for name, each in types.items()
        }
        self.metrics = MetricsWriter(self.folder)
        self.saved_at: int | None = None
        carry = self._begin()
        every = self.shape.setup.updates_between_evaluations
        budget, count, said = jnp.float32(self.shape.setup.config.steps), 1, time.monotonic()
        while self.updates < self.target:
            if stop.is_set():
                self._save(carry)
                raise Interrupted(self.folder)
            until = min((self.updates // every + 1) * every, self.target)
            count, begin = min(count, until - self.updates), time.monotonic()
            carry = programs.advance(carry, self.numbers, jnp.int32(count), budget)
            jax.block_until_ready(carry.updates)
            self.updates += count
            count = max(1, int(count / (time.monotonic() - begin) * SLICE_SECONDS))
            if self.updates == until:
                carry, count = self._evaluate(carry), 1
                if time.monotonic() - said > 30:
                    say(f"    {self.updates * self.shape.setup.algorithm.steps_per_update:,} steps per seed")
                    said = time.monotonic()
        self._finish(carry)

    def _begin(self) -> Carry:
        """From its own checkpoint, from lanes of the rung before, or from nothing."""
        self.updates = self.first
        if checkpoint.listing(self.checkpoints):
            saved = checkpoint.choose(self.checkpoints, use="remove the damaged one to continue from {}")
            self.metrics.require(saved.metrics_bytes)
            self.metrics.rewind(saved.metrics_bytes)
            self.updates = self.saved_at = saved.updates
            return checkpoint.restore(saved, self.programs.carry)
        self.metrics.rewind(0)
        sources = [lane.source for lane in self.lanes if lane.source is not None]
        if sources:
            return self.programs.layout.rows(gather(sources, self.programs.carry))
        seeds = jnp.array([lane.seed for lane in self.lanes], jnp.int32)
        return self._evaluate(self.programs.init(seeds, self.numbers))

    def _play(
        self, carry: Carry, purpose: Purpose, seeds: list[int], episodes: int
    ) -> list[dict[str, float]]:
        """Greedy episodes of each lane, summed up."""
        what = (carry.without_replay().learner, self.numbers)
        played = play_many(self.programs.play, what, seed_keys(purpose, seeds), episodes)
        spec = self.shape.setup.env.spec
        return [summary(jax.tree.map(lambda x, i=i: x[i], played), spec) for i in range(len(self.lanes))]

    def _evaluate(self, carry: Carry) -> Carry:
        """Write a row for each lane, and save."""
        if np.any(jax.device_get(carry.tally.no_action_available)):
            raise PhalanxError(
                f"{self.shape.setup.env.spec.name} left a living agent without any available action; "
                f"`phalanx check-env` explains the interface"
            )
        config = self.shape.setup.config
        played = self._play(carry, Purpose.CURVE, [0] * len(self.lanes), config.eval_episodes)
        steps = self.updates * self.shape.setup.algorithm.steps_per_update
        self.metrics.write(
            [
                {"setting": lane.setting, "seed": lane.seed, "env_steps": steps, **_named(row, "eval/")}
                for lane, row in zip(self.lanes, played, strict=True)
            ]
        )
        scores = jnp.array([row["return"] for row in played], jnp.float32)
        carry = self.programs.track_best(carry, self.numbers, scores)
        since = (self.updates - (self.saved_at or 0)) * self.shape.setup.algorithm.steps_per_update
        if self.saved_at is None or self.updates == self.target or since >= (config.save_every or 0):
            self._save(carry)
        return carry

    def _save(self, carry: Carry) -> None:
        if self.saved_at == self.updates:
            return
        checkpoint.save(
            self.checkpoints,
            carry,
            updates=self.updates,
            score=None,
            metrics_bytes=self.metrics.size,
            seconds=0.0,
            keep=1,
        )
        self.saved_at = self.updates

    def _finish(self, carry: Carry) -> None:
        """Judge each lane: by the episodes of evaluations, at the last rung by more, which differ by seed."""
        config, seeds = self.shape.setup.config, [lane.seed for lane in self.lanes]
        played = (
            self._play(carry, Purpose.FINAL, seeds, config.final_episodes)
            if self.last
            else self._play(carry, Purpose.CURVE, [0] * len(self.lanes), config.eval_episodes)
        )
        broken = jax.device_get(_diverged(carry.without_replay().learner))
        result = [
            {"setting": lane.setting, "seed": lane.seed, "diverged": bool(bad), **row}
            for lane, row, bad in zip(self.lanes, played, broken, strict=True)
        ]
        text = json.dumps(result) + "\n"
        write_whole(self.folder / RESULT, partial(Path.write_text, data=text, encoding="utf-8"))


def _named(row: dict[str, float], prefix: str) -> dict[str, float]:
    return {f"{prefix}{name}": value for name, value in row.items()}


@jax.jit
def _diverged(learner: PyTree) -> Array:
    """Which lanes have a NaN in their learner, (L,)."""
    floats = [
        leaf
        for leaf in jax.tree.leaves(learner)
        if not is_key(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    return jnp.stack([jnp.isnan(leaf).reshape(leaf.shape[0], -1).any(1) for leaf in floats]).any(0)


def gather(places: Sequence[tuple[Path, int]], like: Carry) -> Carry:
    """The carry of lanes that stand in the checkpoints of blocks, in this order."""
    parts, order = [], []
    for folder in dict.fromkeys(folder for folder, _ in places):
        mine = [i for i, place in enumerate(places) if place[0] == folder]
        width = len(json.loads((folder / RESULT).read_text(encoding="utf-8")))
        shapes = jax.tree.map(lambda x, n=width: jax.ShapeDtypeStruct((n, *x.shape[1:]), x.dtype), like)
        saved = checkpoint.choose(folder / CHECKPOINTS, use="it must be started again")
        carry = checkpoint.restore(saved, shapes)
        lanes = jnp.array([places[i][1] for i in mine])
        parts.append(jax.tree.map(lambda x, lanes=lanes: x[lanes], carry))
        order += mine
    back = jnp.argsort(jnp.array(order))
    return jax.tree.map(lambda *xs: jnp.concatenate(xs)[back], *parts)

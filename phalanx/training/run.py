"""A run from its set-up to its folder: compile, train, evaluate, save, resume."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.errors import PhalanxError
from phalanx.report.console import Console, megabytes
from phalanx.report.metrics import MetricsWriter, read
from phalanx.report.mirrors import mirrors
from phalanx.training import checkpoint, keys
from phalanx.training.evaluate import Played, play, returns_by_type, summary
from phalanx.training.keys import Purpose
from phalanx.training.loop import Carry, Loop, without_replay
from phalanx.training.record import Interrupted, Record
from phalanx.training.setup import Setup, memory_parts, require_disk, require_memory, statement
from phalanx.types import Array, PyTree

# How long the compiled program may run before it is asked whether to stop, and the bar moves.
SLICE_SECONDS = 1.0
MUCH = 1e9  # bytes of checkpoints that a user should know of


class Programs(NamedTuple):
    """The compiled programs of a run; each maps over the seeds."""

    init: Any
    advance: Any
    play: Any
    remember: Any


def compile_programs(this: Setup) -> Programs:
    """Compile everything that the run will call, at the same time."""
    loop = this.loop
    seeds = jnp.array(this.seeds, jnp.int32)
    init = jax.jit(over_seeds(loop.init, len(seeds)))
    carry = jax.eval_shape(init, seeds)
    policy = jax.eval_shape(jax.vmap(loop.algorithm.policy), carry.learner)
    count, budget = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), jnp.float32)
    common = seed_keys(Purpose.CURVE, [0] * len(seeds))
    scores = jax.ShapeDtypeStruct((this.config.seeds,), jnp.float32)
    advance = jax.jit(over_seeds(loop.advance, len(seeds), (0, None, None)), donate_argnums=0)
    remember = jax.jit(over_seeds(loop.remember, len(seeds), (0, 0)), donate_argnums=0)
    # The largest first: each is compiled while the next is traced.
    with ThreadPoolExecutor(len(Programs._fields)) as pool:
        compiling = {
            "advance": pool.submit(advance.lower(carry, count, budget).compile),
            "play": pool.submit(jit_play(loop, len(seeds)).lower(policy, common).compile),
            "init": pool.submit(init.lower(seeds).compile),
            "remember": pool.submit(remember.lower(carry, scores).compile),
        }
        return Programs(**{name: program.result() for name, program in compiling.items()})


def over_seeds(
    fn: Callable[..., Any], seeds: int, in_axes: tuple[int | None, ...] = (0,)
) -> Callable[..., Any]:
    """Map `fn` over the leading seed axis of those arguments whose entry in `in_axes` is 0.

    One seed is not mapped: products with a batch axis of 1 cost a fifth of MAPPO's time on a CPU.
    """
    if seeds > 1:
        return jax.vmap(fn, in_axes, axis_size=seeds)

    def one_seed(*args: PyTree) -> PyTree:
        of_seed = [
            arg if axis is None else jax.tree.map(lambda x: x[0], arg)
            for arg, axis in zip(args, in_axes, strict=True)
        ]
        return jax.tree.map(lambda x: x[None], fn(*of_seed))

    return one_seed


def jit_play(loop: Loop, seeds: int):
    """The program that plays `eval_episodes` with the policy of each seed, from a key each, (S,)."""

    def play_one(policy: PyTree, key: Array) -> Played:
        return play(loop.env, loop.algorithm, policy, key, loop.eval_episodes)

    return jax.jit(over_seeds(play_one, seeds, (0, 0)))


def seed_keys(purpose: Purpose, seeds: list[int]) -> Array:
    """The root keys of some seeds, (S,)."""
    return jax.vmap(lambda seed: keys.root(purpose, seed))(jnp.array(seeds, jnp.uint32))


def play_many(play_program, policy: PyTree, roots: Array, episodes: int) -> Played:
    """Play `episodes` with the policy of each seed, from its root key in `roots` (S,): (S, E, ...).

    The program plays a fixed number at a time; what is played beyond `episodes` is dropped.
    """
    parts, played = [], 0
    while played < episodes:
        part_keys = jax.vmap(jax.random.fold_in, (0, None))(roots, len(parts))
        parts.append(jax.device_get(play_program(policy, part_keys)))
        played += parts[-1].length.shape[1]
    return jax.tree.map(lambda *xs: np.concatenate(xs, axis=1)[:, :episodes], *parts)


@contextlib.contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """While open, Ctrl-C and SIGTERM ask for a stop instead of killing; a second Ctrl-C kills."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may set handlers
        return

    def ask(number, frame):
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Trainer:
    """Drives the compiled programs from where the carry stands to the end of the budget."""

    def __init__(
        self,
        this: Setup,
        programs: Programs,
        record: Record,
        console: Console,
        stop: threading.Event,
        started: float,
    ):
        self.this, self.programs, self.record, self.console = this, programs, record, console
        self.stop, self.started = stop, started
        self.earlier_seconds = 0.0
        self.updates = 0
        self.saved_at: int | None = None
        self.rate = 0.0

    def fresh(self) -> None:
        """Begin at the beginning."""
        self.carry: Carry = self.programs.init(jnp.array(self.this.seeds, jnp.int32))
        self.metrics = self._writer()
        self.evaluate()

    def restore(self, saved: checkpoint.Checkpoint, carry: Carry) -> None:
        """Go on where a checkpoint was written, which held `carry`."""
        self.carry = carry
        self.metrics = self._writer()
        self.metrics.require(saved.metrics_bytes)  # before anything is dropped
        checkpoint.forget_after(saved)
        self.metrics.rewind(saved.metrics_bytes)
        self.updates = self.saved_at = saved.updates
        self.earlier_seconds = saved.seconds

    def _writer(self) -> MetricsWriter:
        folder = self.record.folder
        return MetricsWriter(folder, mirrors(folder, self.this.resolved))

    @property
    def seconds(self) -> float:
        """Since the command started, earlier parts of a resumed run included."""
        return self.earlier_seconds + time.monotonic() - self.started

    @property
    def env_steps(self) -> int:
        """Of each seed."""
        return self.updates * self.this.algorithm.steps_per_update

    @property
    def left(self) -> float:
        """Seconds to the end of the budget, at the current rate."""
        steps = (self.this.total_updates - self.updates) * self.this.algorithm.steps_per_update
        return steps * self.this.config.seeds / self.rate if self.rate else 0.0

    def run(self) -> None:
        """Train to the end of the budget, evaluating and saving on the way."""
        total, every = self.this.total_updates, self.this.updates_between_evaluations
        self.console.begin(self.env_steps, total * self.this.algorithm.steps_per_update)
        try:
            while self.updates < total:
                self.advance(min((self.updates // every + 1) * every, total))
                self.evaluate()
        finally:
            self.console.end()
            self.metrics.close()

    def advance(self, until: int) -> None:
        """Run the compiled program up to an update, in slices short enough to answer a stop request."""
        updates_per_second = 0.0
        while self.updates < until:
            if self.stop.is_set():
                if self.saved_at != self.updates:
                    self.refuse_breaches(jax.device_get(self.carry.tally))
                    self.save(score=None)
                raise Interrupted(self.record.folder)
            count = min(max(1, int(updates_per_second * SLICE_SECONDS)), until - self.updates)
            begin = time.monotonic()
            self.carry = self.programs.advance(
                self.carry, jnp.int32(count), jnp.float32(self.this.config.steps)
            )
            jax.block_until_ready(self.carry.updates)
            updates_per_second = count / (time.monotonic() - begin)
            self.updates += count
            self.rate = updates_per_second * self.this.algorithm.steps_per_update * self.this.config.seeds
            self.console.progress(self.env_steps, self.rate, self.left)

    def evaluate(self) -> None:
        """Play greedily, write a row a seed, save."""
        carry = self.carry
        tally, episodes, gradient_steps = jax.device_get(
            (carry.tally, carry.episodes, carry.learner.gradient_steps)
        )
        self.refuse_breaches(tally)
        policy = jax.vmap(self.this.algorithm.policy)(carry.learner)
        # The same episodes for all seeds: two curves then differ by their policies alone.
        common = seed_keys(Purpose.CURVE, [0] * len(self.this.seeds))
        played = play_many(self.programs.play, policy, common, self.this.config.eval_episodes)
        rows = []
        for i, seed in enumerate(self.this.seeds):
            one = jax.tree.map(lambda x, i=i: x[i], (played, tally))
            rows.append(
                {
                    "seed": seed,
                    "env_steps": self.env_steps,
                    "episodes": int(episodes[i]),
                    "gradient_steps": int(gradient_steps[i]),
                    "seconds": round(self.seconds, 3),
                    **{f"eval/{name}": value for name, value in summary(one[0], self.this.env.spec).items()},
                    **training_row(one[1], self.this.env.spec),
                }
            )
        scores = np.array([row["eval/return"] for row in rows], np.float32)
        self.carry = self.programs.remember(carry, jnp.asarray(scores))
        self.metrics.write(rows)
        if self.is_to_be_saved:
            self.save(score=float(scores.mean()))
        shown = ("eval/return", "eval/win_rate", "train/return")
        present = [name for name in shown if all(row.get(name) is not None for row in rows)]
        means = {name: float(np.mean([row[name] for row in rows])) for name in present}
        self.console.evaluation(self.env_steps, self.rate, self.left, means)

    @property
    def is_to_be_saved(self) -> bool:
        """Whether a checkpoint is due after an evaluation: the first and the last always have one."""
        if self.saved_at is None or self.updates == self.this.total_updates:
            return True
        steps = (self.updates - self.saved_at) * self.this.algorithm.steps_per_update
        return steps >= (self.this.config.save_every or 0)

    def refuse_breaches(self, tally) -> None:
        """Stop at what would make every later number meaningless. The last checkpoint stays good."""
        if tally.helpless.any():
            raise PhalanxError(
                f"{self.this.env.spec.name} left a living agent without any available action; "
                f"`phalanx check-env` explains the contract"
            )
        for name, sums in tally.metrics.items():
            if not np.isfinite(sums).all():
                self._refuse_numbers(name)

    def _refuse_numbers(self, name: str) -> NoReturn:
        raise PhalanxError(
            f"{name} is no longer finite after {self.env_steps:,} env steps: the last good state is "
            f"in {self.record.checkpoints}; a smaller lr or max_grad_norm may help"
        )

    def save(self, score: float | None) -> None:
        """Write a checkpoint of everything, if it is worth going on from."""
        broken = checkpoint.first_nan(without_replay(self.carry).learner)
        if broken is not None:
            self._refuse_numbers(f"learner{broken}")
        checkpoint.save(
            self.record.checkpoints,
            self.carry,
            updates=self.updates,
            score=score,
            metrics_bytes=self.metrics.size,
            seconds=self.seconds,
            keep=self.this.config.keep,
        )
        self.saved_at = self.updates

    def final(self) -> dict[str, Any]:
        """Evaluate the last and the best parameters of each seed on its own episodes.

        Neither was chosen by them, and what is left to chance in them differs from seed to seed, so that
        intervals over seeds contain it.
        """
        policies = {
            "last": jax.vmap(self.this.algorithm.policy)(self.carry.learner),
            "best": self.carry.best.policy,
        }
        roots, episodes = seed_keys(Purpose.FINAL, self.this.seeds), self.this.config.final_episodes
        return {
            name: per_seed(play_many(self.programs.play, policy, roots, episodes), self.this)
            for name, policy in policies.items()
        }


def per_seed(played: Played, this: Setup) -> dict[str, Any]:
    """Means over seeds, and each seed's own values, of episodes (S, E, ...)."""
    rows = [
        {"seed": seed, **summary(jax.tree.map(lambda x, i=i: x[i], played), this.env.spec)}
        for i, seed in enumerate(this.seeds)
    ]
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0] if name != "seed"}
    return {**means, "episodes": int(played.length.shape[1]), "seeds": rows}


def training_row(tally, spec) -> dict[str, float | None]:
    """What one seed's tally says of the time since the last evaluation; None where no episode ended."""
    count, updates = int(tally.episodes.count), int(tally.updates)
    returns = np.asarray(tally.episodes.returns, np.float64) / max(count, 1)
    row = {
        "return": float(returns.mean()),
        "length": float(tally.episodes.length) / max(count, 1),
        **({"win_rate": float(tally.episodes.won) / max(count, 1)} if spec.has_win else {}),
        **returns_by_type(returns, spec),
    }
    learnt = (
        {f"learn/{name}": float(value) / updates for name, value in tally.metrics.items()} if updates else {}
    )
    return {f"train/{name}": value if count else None for name, value in row.items()} | learnt


def train(this: Setup, folder: Path, console: Console, command: str, started: float) -> Record:
    """Train from nothing into a new folder, which is made when all is compiled and fits."""
    record = Record(folder)
    record.require_new()
    programs, memory = ready(this, console, folder)
    record.create(this, memory, command)
    with record.failures_noted(), stop_requests() as stop:
        trainer = Trainer(this, programs, record, console, stop, started)
        console.say(f"results in {folder}", f"{trainer.seconds:.0f} s since the start; training begins", "")
        trainer.fresh()
        finish(trainer, record, console)
    return record


def resume(
    this: Setup, record: Record, saved: checkpoint.Checkpoint, console: Console, started: float
) -> Record:
    """Go on from a checkpoint of an existing folder."""
    note = other_versions(saved)
    like = jax.eval_shape(jax.vmap(this.loop.init), jnp.array(this.seeds, jnp.int32))
    carry = checkpoint.restore(saved, like)  # what does not fit is refused before anything is compiled
    programs, _ = ready(this, console, record.folder)
    with stop_requests() as stop:
        trainer = Trainer(this, programs, record, console, stop, started)
        trainer.restore(saved, carry)
        console.say(*note, f"going on at {trainer.env_steps:,} env steps", "")
        record.resumed(this, trainer.env_steps)
        with record.failures_noted():
            finish(trainer, record, console)
    return record


def other_versions(saved: checkpoint.Checkpoint) -> list[str]:
    """A line if a checkpoint was written with other versions or on another device, where sums may differ."""
    changed = {
        name: (was, now)
        for name, now in checkpoint.circumstances().items()
        if (was := (saved.versions or {}).get(name, now)) != now
    }
    if not changed:
        return []
    listed = ", ".join(f"{name} {was} (now {now})" for name, (was, now) in changed.items())
    return [f"note: the checkpoint was written with {listed}: the run goes on, but not to the bit"]


def ready(this: Setup, console: Console, folder: Path) -> tuple[Programs, dict[str, int]]:
    """Say what will run, compile it, and make sure that it fits; also the bytes that it will take."""
    console.say(*statement(this))
    parts = memory_parts(this)
    require_memory(this, parts, sum(parts.values()))
    on_disk = require_disk(this, parts, folder)
    console.say("compiling ...")
    programs = compile_programs(this)
    memory = {**parts, "total": bytes_needed(programs.advance, at_least=sum(parts.values()))}
    require_memory(this, parts, memory["total"])
    shown = ", ".join(f"{name} {megabytes(size)}" for name, size in parts.items())
    console.say(f"memory {megabytes(memory['total'])} ({shown}, the rest for learning)")
    if on_disk > MUCH:
        console.say(f"disk {megabytes(on_disk)} for checkpoints; --save-every writes them less often")
    return programs, memory


def bytes_needed(program, at_least: int) -> int:
    """What a compiled program takes on its device; `at_least` where the device does not say."""
    told = program.memory_analysis()
    if told is None:
        return at_least
    given_back = told.alias_size_in_bytes
    return told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes - given_back


def finish(trainer: Trainer, record: Record, console: Console) -> None:
    """Run to the end and write down how it ended."""
    trainer.run()
    final = trainer.final()
    record.note(status="finished", seconds=round(trainer.seconds, 3), final=final)
    for name, result in final.items():
        shown = ", ".join(
            f"{key} {result[key]:.3g}" for key in ("return", "win_rate", "length") if key in result
        )
        console.say(f"{name:>5} parameters, {result['episodes']} greedy episodes a seed: {shown}")
    console.curve(read(record.folder))
    console.say(f"finished in {trainer.seconds:.0f} s, compile included")

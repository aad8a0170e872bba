"""The driver takes a run from its set-up to its folder: compile, train, evaluate, save."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from phalanx import hosts
from phalanx.callbacks import Callback, Evaluation, StopTraining, require_callbacks
from phalanx.envs.host.base import HostSource
from phalanx.envs.host.pool import HostFailure
from phalanx.errors import PhalanxError
from phalanx.report.console import Console, megabytes
from phalanx.report.metrics import MetricsWriter, read
from phalanx.report.mirrors import mirrors
from phalanx.training import checkpoint
from phalanx.training.devices import lay_out
from phalanx.training.evaluate import against_row, per_seed, summary, training_row
from phalanx.training.footprint import memory_parts, require_disk, require_memory
from phalanx.training.interrupt import Interrupted, stop_requests
from phalanx.training.keys import Purpose
from phalanx.training.loop import Carry, Tally
from phalanx.training.programs import carry_shapes, compile_programs, play_many, seed_keys
from phalanx.training.record import Record
from phalanx.training.setup import Setup, statement

# How long a program may run before the driver looks for a stop request, and the progress bar moves.
SLICE_SECONDS = 1.0
LARGE_CHECKPOINTS = 1e9  # bytes that a user should know of


class Driver:
    """Drives the programs of a run to the end of its budget."""

    def __init__(
        self,
        setup: Setup,
        record: Record,
        console: Console,
        started: float,
        callbacks: Sequence[Callback] = (),
    ):
        """`started` is the time.monotonic() of the command, from which seconds are counted."""
        require_callbacks(callbacks)
        self.setup, self.record, self.console = setup, record, console
        self.started, self.callbacks = started, callbacks
        self.layout = lay_out(setup.loop, setup.config.devices)
        self.carry: Carry | None = None
        self.first_evaluation_due = False
        self.earlier_seconds = 0.0
        self.earlier_faults = 0
        self.updates = 0
        self.saved_at: int | None = None
        self.rate = 0.0

    # Before training

    def begin(self, command: str, networks: Any = None) -> None:
        """Compile, and create the run folder if everything fits. `networks` replaces the initial learner."""
        self.record.require_new()
        memory = self._compile()
        self.record.create(self.setup, memory, command)
        self.metrics = self._writer()
        self.initial_networks = networks
        self.console.say(
            f"results in {self.record.folder}", f"{self.seconds:.0f} s since the start; training begins", ""
        )

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Continue from a checkpoint. Nothing in the folder is changed before everything fits."""
        like = carry_shapes(self.setup.loop, self.layout)
        replay = like.learner.replay is not None
        carry = checkpoint.restore(saved, like if saved.replay_sha256 else like.without_replay())
        self._compile()
        if replay and saved.replay_sha256 is None:
            carry = carry.with_replay(self.programs.init(np.array(self.setup.seeds, np.int32)).learner.replay)
        collector = self.setup.loop.collector
        states = checkpoint.states(saved, collector.seeds * collector.envs)
        actors, begun_again = collector.restored(carry.actors, states)
        self.carry = carry._replace(actors=actors)
        self.metrics = self._writer()
        self.metrics.require(saved.metrics_bytes)  # before anything is dropped
        if hosts.first():
            checkpoint.forget_after(saved)
        self.metrics.rewind(saved.metrics_bytes)
        self.updates = self.saved_at = saved.updates
        self.earlier_seconds = saved.seconds
        self.earlier_faults = self.record.read().get("faults", 0)
        notes = checkpoint.differences(saved, self.layout.devices, replay, begun_again)
        self.console.say(*notes, f"continuing at {self.env_steps:,} env steps", "")
        self.record.resumed(self.setup, self.env_steps, begun_again)

    def _compile(self) -> dict[str, int]:
        """Print what will run, compile it, and check that it fits; returns the bytes that it needs."""
        setup, say = self.setup, self.console.say
        devices = self.layout.devices
        say(*statement(setup, self.layout))
        parts = memory_parts(setup, self.layout)
        held = sum(parts.values())
        require_memory(setup, parts, held, devices)
        on_disk = require_disk(setup, memory_parts(setup), self.record.folder)
        say("compiling ...")
        self.programs = compile_programs(setup.loop, setup.evaluation, self.layout, setup.against)
        total = self.programs.bytes_needed or held
        require_memory(setup, parts, total, devices)
        shown = ", ".join(f"{name} {megabytes(size)}" for name, size in parts.items())
        each = " on each device" if devices > 1 else ""
        say(f"memory {megabytes(total)}{each} ({shown}, the rest for learning)")
        if on_disk > LARGE_CHECKPOINTS:
            say(f"disk {megabytes(on_disk)} for checkpoints; --save-every writes them less often")
        return {**parts, "total": total}

    def _writer(self) -> MetricsWriter:
        folder = self.record.folder
        return MetricsWriter(folder, mirrors(folder, self.setup.resolved) if hosts.first() else ())

    # The clock

    @property
    def seconds(self) -> float:
        """Since the command started, earlier parts of a resumed run included."""
        return self.earlier_seconds + time.monotonic() - self.started

    @property
    def env_steps(self) -> int:
        """Of each seed."""
        return self.updates * self.setup.algorithm.steps_per_update

    @property
    def seconds_left(self) -> float:
        """To the end of the budget, at the current rate."""
        steps = (self.setup.total_updates - self.updates) * self.setup.algorithm.steps_per_update
        return steps * self.setup.config.seeds / self.rate if self.rate else 0.0

    # Training

    def run(self) -> None:
        """Train to the end of the budget, evaluating and saving on the way."""
        setup, total = self.setup, self.setup.total_updates
        every, budget = setup.updates_between_evaluations, np.float32(setup.config.steps)
        with contextlib.closing(setup), self.record.failures_noted(), stop_requests() as stop:
            try:
                self._start()
                self.console.begin(self.env_steps, total * setup.algorithm.steps_per_update)
                count = 1
                while self.updates < total:
                    if hosts.any_of(stop.is_set()):
                        self._interrupt()
                    until = min((self.updates // every + 1) * every, total)
                    count, begin = hosts.least(min(count, until - self.updates)), time.monotonic()
                    assert self.carry is not None
                    self.carry = self.programs.advance(self.carry, np.int32(count), budget)
                    jax.block_until_ready(self.carry.updates)
                    count = self._progress(count, time.monotonic() - begin)
                    self._evaluate_first(wait=self.updates == until)
                    if self.updates == until:
                        self.evaluate()
                        count = 1
            except StopTraining as reason:
                self._stop_early(str(reason))
            except (jax.errors.JaxRuntimeError, ValueError) as error:
                if not hosts.tells_a_loss(error):
                    raise
                raise hosts.lost(error, str(self.record.run)) from None
            except HostFailure:
                self._note_faults()
                if self.saved_at != self.updates:
                    self.save(score=None, at_rest=False)
                raise
            finally:
                self.console.end()
                self.metrics.close()
            self._finish()

    def _start(self) -> None:
        """Make the carry of a new run and evaluate it, unless training can begin before that."""
        new = self.carry is None
        if new:
            self.carry = self._first_carry()
        for callback in self.callbacks:
            callback.on_start(self.record.folder)
        if new:
            self.first_evaluation_due = True
            self._evaluate_first(wait=not self._may_train_first)

    def _first_carry(self) -> Carry:
        """The carry before the first step, with the networks of another run if there is one to start from."""
        carry = self.programs.init(np.array(self.setup.seeds, np.int32))
        if self.initial_networks is not None:
            carry = self.layout.put(self.initial_networks(carry), self.setup.loop)
        return carry

    def _progress(self, count: int, seconds: float) -> int:
        """Count updates that were made; how many to make before looking for a stop request again."""
        self.updates += count
        self.rate = count / seconds * self.setup.algorithm.steps_per_update * self.setup.config.seeds
        self.console.progress(self.env_steps, self.rate, self.seconds_left, self._shares())
        return max(1, int(count / seconds * SLICE_SECONDS))

    def _shares(self) -> str:
        """Where time goes, if that can be told apart: environments 61 %, acting 25 %, learning 14 %."""
        spent = self.setup.loop.collector.seconds
        total = sum(spent.values())
        return (
            ", ".join(f"{name} {100 * part / total:.0f} %" for name, part in spent.items()) if total else ""
        )

    def _interrupt(self) -> NoReturn:
        """Save, if there is anything new, and stop."""
        self._evaluate_first(wait=True)
        assert self.carry is not None
        if self.saved_at != self.updates:
            self._refuse_breaches(hosts.fetch(self.carry.tally))
            self.save(score=None)
        raise Interrupted(self.record.run)

    def _stop_early(self, reason: str) -> None:
        if self.saved_at != self.updates:
            self.save(score=None)
        if self.updates == self.setup.total_updates:
            return  # the budget was used up all the same
        self.record.note(stopped_early=reason)
        self.console.say(f"stopped early at {self.env_steps:,} env steps: {reason}")

    # Evaluating

    @property
    def _may_train_first(self) -> bool:
        """Whether training can begin while the program of the first evaluation is still being compiled.

        Not where a callback might stop the run there, where hosts must do the same at the same time, or where
        a replay buffer makes the first carry too large to be made a second time.
        """
        assert self.carry is not None
        return self.layout.mesh is None and not self.callbacks and self.carry.learner.replay is None

    def _evaluate_first(self, wait: bool) -> None:
        """Evaluate and save the run as it was before its first update, if that is still to come.

        When its program is compiled, or at once, if it is time to `wait` for that.
        """
        if not self.first_evaluation_due or not (wait or self.programs.can_play):
            return
        self.first_evaluation_due = False
        later, updates = self.carry, self.updates
        if updates:
            self.carry, self.updates = self._first_carry(), 0
        self.evaluate()
        if updates and self.carry is not None and later is not None:
            # Updates leave the best policy alone: this is as if it had been there from the beginning.
            self.carry, self.updates = later._replace(best=self.carry.best), updates

    def evaluate(self) -> None:
        """Play greedy episodes, write a row for each seed, save."""
        setup, carry = self.setup, self.carry
        assert carry is not None
        tally, episodes, gradient_steps = hosts.fetch(
            (carry.tally, carry.episodes, carry.learner.gradient_steps)
        )
        self._refuse_breaches(tally)
        policy = jax.vmap(setup.algorithm.policy)(carry.learner)
        # The same episodes for all seeds: two curves then differ by their policies alone.
        common = seed_keys(Purpose.CURVE, [0] * len(setup.seeds))
        played = play_many(self.programs.play, policy, common, setup.config.eval_episodes)
        against = {}
        if self.programs.against is not None:
            against = hosts.fetch(self.programs.against(policy, carry.opponent, common))
        rows = []
        for i, seed in enumerate(setup.seeds):
            own_played, own_tally, faced = jax.tree.map(lambda x, i=i: x[i], (played, tally, against))
            rows.append(
                {
                    "seed": seed,
                    "env_steps": self.env_steps,
                    "episodes": int(episodes[i]),
                    "gradient_steps": int(gradient_steps[i]),
                    "seconds": round(self.seconds, 3),
                    **({"faults": self.faults} if isinstance(setup.env, HostSource) else {}),
                    **{f"eval/{name}": value for name, value in summary(own_played, setup.env.spec).items()},
                    **against_row(faced, setup.env.spec),
                    **training_row(own_tally, setup.env.spec),
                }
            )
        scores = np.array([row["eval/return"] for row in rows], np.float32)
        self.carry = self.programs.track_best(carry, scores)
        self.metrics.write(rows)
        if self._save_is_due:
            self.save(score=float(scores.mean()))
        self._show(rows)
        for callback in self.callbacks:
            callback.on_evaluation(Evaluation(self.record.folder, self.env_steps, rows))

    @property
    def faults(self) -> int:
        """How often an environment of this run has failed, in training and evaluations."""
        return self.earlier_faults + sum(collector.faults for collector in self.setup.collectors)

    def _note_faults(self) -> None:
        if self.faults:
            self.record.note(faults=self.faults)

    def _show(self, rows: list[dict[str, Any]]) -> None:
        names = ("eval/return", "eval/win_rate", "against_opponent/win_rate", "train/return")
        present = [name for name in names if all(row.get(name) is not None for row in rows)]
        means = {name: float(np.mean([row[name] for row in rows])) for name in present}
        self.console.evaluation(self.env_steps, self.rate, self.seconds_left, means)

    def _refuse_breaches(self, tally: Tally) -> None:
        """Stop if a value is not finite or an agent has no action. The last checkpoint stays valid."""
        if np.any(tally.no_action_available):
            raise PhalanxError(
                f"{self.setup.env.spec.name} left a living agent without any available action; "
                f"`phalanx check-env` explains the interface"
            )
        for name, sums in tally.metrics.items():
            if not np.isfinite(sums).all():
                self._refuse_numbers(name)

    def _refuse_numbers(self, name: str) -> NoReturn:
        raise PhalanxError(
            f"{name} is no longer finite after {self.env_steps:,} env steps: the last good state is "
            f"in {self.record.checkpoints}; a smaller lr or max_grad_norm may help"
        )

    # Saving

    @property
    def _save_is_due(self) -> bool:
        """Whether to save after an evaluation: always after the first and the last."""
        if self.saved_at is None or self.updates == self.setup.total_updates:
            return True
        steps = (self.updates - self.saved_at) * self.setup.algorithm.steps_per_update
        return steps >= (self.setup.config.save_every or 0)

    def save(self, score: float | None, at_rest: bool = True) -> None:
        """Write a checkpoint, unless the learner has NaNs.

        It includes the states of the environments if they are `at_rest`, as the carry describes them.
        """
        assert self.carry is not None
        broken = checkpoint.first_nan(self.carry.without_replay().learner)
        if broken is not None:
            self._refuse_numbers(f"learner{broken}")
        collector, config = self.setup.loop.collector, self.setup.config
        # Before the first update the buffer is empty, as a new one is.
        carry = self.carry if config.save_buffer and self.updates else self.carry.without_replay()
        checkpoint.save(
            self.record.checkpoints,
            carry,
            updates=self.updates,
            score=score,
            metrics_bytes=self.metrics.size,
            seconds=self.seconds,
            keep=config.keep,
            states=collector.states() if at_rest else (),
            devices=self.layout.devices,
        )
        self.saved_at = self.updates
        promise = collector.promise if at_rest else "replayable"
        if self.updates and not config.save_buffer and self.carry.learner.replay is not None:
            promise = "inexact"
        if self.record.read().get("resume") != promise:
            self.record.note(resume=promise)

    # The end

    def _finish(self) -> None:
        """Evaluate the last and the best parameters of each seed on its own episodes.

        These episodes were not used to choose the best parameters, and differ between seeds, so that
        intervals over seeds include the sampling error of the episodes.
        """
        assert self.carry is not None
        last, best = jax.vmap(self.setup.algorithm.policy)(self.carry.learner), self.carry.best.policy
        roots, episodes = seed_keys(Purpose.FINAL, self.setup.seeds), self.setup.config.final_episodes
        spec = self.setup.env.spec
        final = {
            name: per_seed(play_many(self.programs.play, policy, roots, episodes), self.setup.seeds, spec)
            for name, policy in (("last", last), ("best", best))
        }
        self._note_faults()
        self.record.note(status="finished", seconds=round(self.seconds, 3), final=final)
        for name, result in final.items():
            shown = ", ".join(
                f"{key} {result[key]:.3g}" for key in ("return", "win_rate", "length") if key in result
            )
            self.console.say(f"{name:>5} parameters, {result['episodes']} greedy episodes per seed: {shown}")
        if self._shares():
            self.console.say(f"time in training: {self._shares()}")
        if self.faults:
            self.console.say(f"environments failed {self.faults} times; their episodes were not counted")
        self.console.curve(read(self.record.folder))
        self.console.say(f"finished in {self.seconds:.0f} s, compile included")
        for callback in self.callbacks:
            callback.on_end(self.record.folder, final)

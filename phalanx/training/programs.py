"""The compiled programs of a run, which the driver calls; each is mapped over the seeds.

With a compiled collector collecting and learning are one program. With a hosted one the update is compiled
alone, and a Python loop steps the environments between two updates.
"""

import gc
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx import hosts
from phalanx.training import keys
from phalanx.training.collectors.base import Collector, over_seeds
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.devices import ONE, Layout
from phalanx.training.evaluate import Against, Played, play
from phalanx.training.keys import Purpose
from phalanx.training.loop import Carry, Loop
from phalanx.types import Array, PyTree

Given = Array | np.ndarray | np.generic  # numbers that all hosts have


class Programs(NamedTuple):
    """What the driver calls."""

    init: Callable[[Given], Carry]
    """the carry before the first step, from the seeds, (S,)"""
    advance: Callable[[Carry, Given, Given], Carry]
    """collect and update, a number of times, with a budget of env steps"""
    play: Callable[[PyTree, Array], Played]
    """greedy episodes with the policy of each seed, from a key each"""
    track_best: Callable[[Carry, Given], Carry]
    """keep the best policy, by the score of each seed"""
    bytes_needed: int
    """what `advance` takes on its device; 0 where the device does not say"""
    against: Callable[[PyTree, PyTree, Array], dict[str, Played]] | None = None
    """greedy episodes against opponents, with the policy and the opponent's state of each seed"""
    coming: tuple[Future[Any], ...] = ()
    """`play` and `against`, while they are compiled; called before that is done, they wait"""

    @property
    def can_play(self) -> bool:
        """Whether everything is compiled."""
        return all(program.done() for program in self.coming)

    def complete(self) -> "Programs":
        """Wait until everything is compiled, such as to measure undisturbed."""
        wait(self.coming)
        return self


LATER = ("play", "against")  # not needed before the first update

Jobs = dict[str, tuple[Any, tuple[Any, ...]]]
"""functions to compile, and the shapes of their arguments"""


def program_jobs(
    loop: Loop, evaluation: Collector, layout: Layout = ONE, against: Against | None = None
) -> Jobs:
    """The programs that a run compiles, the largest first."""
    seeds, carry = loop.collector.seeds, carry_shapes(loop, layout)
    budget, where = jax.ShapeDtypeStruct((), jnp.float32), layout.shardings(carry)
    numbers, scores = layout.placed(
        [jax.ShapeDtypeStruct((seeds,), kind) for kind in (jnp.int32, jnp.float32)]
    )
    track_best = jax.jit(
        layout.over_seeds(loop.track_best, seeds, (0, 0)), donate_argnums=0, out_shardings=where
    )
    if not isinstance(loop.collector, Compiled):
        return {
            "learn": (learn_program(loop), (carry, *loop.shapes, budget)),
            "init": (jax.jit(over_seeds(loop.init, seeds, (0, 0))), (numbers, carry.actors)),
            "track_best": (track_best, (carry, scores)),
        }
    policy = layout.placed(jax.eval_shape(jax.vmap(loop.algorithm.policy), carry.learner))
    roots = layout.placed(jax.eval_shape(lambda: seed_keys(Purpose.CURVE, [0] * seeds)))
    init = jax.jit(layout.over_seeds(loop.init, seeds), out_shardings=where)
    jobs: Jobs = {
        "learn": (advance_program(loop, layout), (carry, jax.ShapeDtypeStruct((), jnp.int32), budget)),
        "play": (play_program(evaluation, layout=layout), (policy, roots)),
        "init": (init, (numbers,)),
        "track_best": (track_best, (carry, scores)),
    }
    if against is not None:
        jobs["against"] = (jax.jit(against.play), (policy, carry.opponent, roots))
    return jobs


@lru_cache(maxsize=4)
def compile_programs(
    loop: Loop, evaluation: Collector, layout: Layout = ONE, against: Against | None = None
) -> Programs:
    """Compile everything that a run will call; the last few are kept in this process.

    What training needs is compiled first, at the same time; evaluations are compiled while it begins.
    """
    jobs = program_jobs(loop, evaluation, layout, against)
    kept = loop.kept if layout is ONE else None
    if kept is not None:
        jobs = {name: (kept.job(name, job), args) for name, (job, args) in jobs.items()}
    done, coming = _compiled(jobs)
    if kept is not None:
        kept.write(loop.carry, loop.shapes)
    needed = bytes_needed(done["learn"])
    if not isinstance(loop.collector, Compiled):
        hosted = HostedTraining(loop, done["init"], done["learn"])
        play_episodes = play_program(evaluation, layout=layout)
        faced = None if against is None else against.play
        return Programs(hosted.init, hosted.advance, play_episodes, done["track_best"], needed, faced)
    rows = layout.rows
    return Programs(
        init=lambda seeds: done["init"](rows(seeds)),
        advance=done["learn"],
        play=lambda policy, roots: coming["play"].result()(policy, rows(roots)),
        track_best=lambda carry, scores: done["track_best"](carry, rows(scores)),
        bytes_needed=needed,
        against=None if against is None else lambda *args: coming["against"].result()(*args),
        coming=tuple(coming.values()),
    )


def _compiled(jobs: Jobs) -> tuple[dict[str, Any], dict[str, Future[Any]]]:
    """Compile what training needs, at the same time, and begin with the rest when that is done."""
    pool = ThreadPoolExecutor(len(jobs))
    # Each is compiled while the next is traced; those of evaluations wait, as two cores are soon busy.
    with uncollected():
        first = {
            name: pool.submit(job.lower(*args).compile)
            for name, (job, args) in jobs.items()
            if name not in LATER
        }
        lowered = {name: job.lower(*args) for name, (job, args) in jobs.items() if name in LATER}
        done = {name: program.result() for name, program in first.items()}
    coming = {name: pool.submit(program.compile) for name, program in lowered.items()}
    pool.shutdown(wait=False)
    return done, coming


@contextmanager
def uncollected():
    """Turn off garbage collection: tracing creates many lasting objects, and scanning them takes time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def advance_program(loop: Loop, layout: Layout = ONE):
    """Collect and update, in one program."""
    advance = layout.over_seeds(loop.advance, loop.collector.seeds, (0, None, None))
    return jax.jit(advance, donate_argnums=0, out_shardings=layout.shardings(carry_shapes(loop, layout)))


def learn_program(loop: Loop):
    """One update, from a rollout that was collected outside."""

    def learn(carry: Carry, actors: PyTree, rollout: PyTree, budget: Array) -> Carry:
        return loop.update(budget, None, carry, (actors, rollout))

    return jax.jit(over_seeds(learn, loop.collector.seeds, (0, 0, 0, None)), donate_argnums=0)


class HostedTraining:
    """Training on environments outside of the compiled programs."""

    def __init__(self, loop: Loop, init: Any, learn: Any):
        self.loop, self._init, self._learn = loop, init, learn
        self._teams = jax.jit(over_seeds(loop.teams, loop.collector.seeds, (0, 0)))
        self.seconds = loop.collector.seconds

    def init(self, seeds: Given) -> Carry:
        environment_keys = jax.vmap(lambda seed: self.loop.keys(seed)[1])(seeds)
        return self._init(seeds, self.loop.collector.start(environment_keys))

    def advance(self, carry: Carry, updates: Given, budget: Given) -> Carry:
        for _ in range(int(updates)):
            policy, playing = self._teams(carry.learner, carry.opponent)
            actors, rollout = self.loop.collector.collect(
                policy, carry.actors, self.loop.length, playing=playing
            )
            begun = time.perf_counter()
            carry = jax.block_until_ready(self._learn(carry, actors, rollout, budget))
            self.seconds["learning"] += time.perf_counter() - begun
        return carry


def carry_shapes(loop: Loop, layout: Layout = ONE) -> Carry:
    """The shapes of the carry of all seeds, (S, ...), and where they lie on several devices."""
    return layout.carry(loop.carry, loop)


def play_program(evaluation: Collector, greedy: bool = True, layout: Layout = ONE) -> Any:
    """The program that plays an episode in each environment of a collector."""

    group = layout.local(evaluation) if isinstance(evaluation, Compiled) else evaluation

    def run(policy: PyTree, keys: Array) -> Played:
        return play(group, policy, keys, greedy)

    return jax.jit(layout.in_groups(run, (0, 0))) if isinstance(evaluation, Compiled) else run


def seed_keys(purpose: Purpose, seeds: list[int]) -> Array:
    """The root keys of some seeds, (S,)."""
    return jax.vmap(lambda seed: keys.root(purpose, seed))(jnp.array(seeds, jnp.uint32))


def play_many(play_program: Callable[..., Played], policy: PyTree, roots: Array, episodes: int) -> Played:
    """Play `episodes` with the policy of each seed, from its root key in `roots` (S,): (S, E, ...).

    The program plays a fixed number at a time; the rest beyond `episodes` is dropped.
    """
    parts, played = [], 0
    while played < episodes:
        part_keys = jax.vmap(jax.random.fold_in, (0, None))(roots, len(parts))
        parts.append(hosts.fetch(play_program(policy, part_keys)))
        played += parts[-1].length.shape[1]
    return jax.tree.map(lambda *xs: np.concatenate(xs, axis=1)[:, :episodes], *parts)


def bytes_needed(program: Any) -> int:
    """What a compiled program takes on its device; 0 where the device does not say."""
    analysis = program.memory_analysis()
    if analysis is None:
        return 0
    held = analysis.argument_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return held + analysis.temp_size_in_bytes

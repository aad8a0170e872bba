"""The training loop: collect, update, repeat. The whole run is one pytree, the carry.

`Loop` holds the pure functions of one seed; mapped over the leading seed axis S they train many seeds in one
program. The number of updates is an argument of the compiled program, not a part of it, so that it compiles
once and can stop anywhere.
"""

from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm, Learner, with_replay, without_replay
from phalanx.training import keys
from phalanx.training.collectors.base import Collector
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.kept import Kept
from phalanx.training.keys import Purpose
from phalanx.types import Array, Clock, PyTree, Transition


class EpisodeSums(NamedTuple):
    """Sums over the episodes that ended, each (...)."""

    ended: Array
    """how many"""
    returns: Array
    """(..., A)"""
    length: Array
    won: Array


class Tally(NamedTuple):
    """What happened since the last evaluation, as sums."""

    updates: Array
    episodes: EpisodeSums
    metrics: dict[str, Array]
    no_action_available: Array
    """living agents that had no available action: a breach of the environment's contract"""


class Best(NamedTuple):
    """The policy with the highest score in an evaluation so far."""

    policy: PyTree
    score: Array


class Carry(NamedTuple):
    """The whole state of a run. A checkpoint saves it; how exactly it resumes, `Collector.promise` says."""

    learner: Learner
    """parameters, targets, optimiser, normalisers, replay, counters"""
    actors: PyTree
    """environments, and the memories of the agents in them"""
    key: Array
    """of the next updates"""
    updates: Array
    episodes: Array
    """that have ended"""
    tally: Tally
    """sums since the last evaluation"""
    best: Best
    opponent: PyTree = None
    """who plays the other side, if anybody does: see `phalanx.opponents`"""

    def without_replay(self) -> "Carry":
        """The carry without the replay buffer, which is large and only needed for learning."""
        return self._replace(learner=without_replay(self.learner))

    def with_replay(self, replay: PyTree) -> "Carry":
        """The carry with this replay buffer."""
        return self._replace(learner=with_replay(self.learner, replay))


class Loop:
    """Training of one algorithm with the rollouts of one collector, as pure functions of one seed."""

    def __init__(self, collector: Collector):
        self.collector = collector
        self.algorithm: Algorithm = collector.algorithm
        self.opponents = collector.opponents
        self.length = self.algorithm.steps_per_update // collector.envs
        self.kept: Kept | None = None
        # Traced once although used twice, for shapes and in a program, which is the same as without it.
        self._learn = jax.jit(lambda *args: self.algorithm.update(*args), inline=True)

    def keep(self, kept: Kept | None) -> None:
        """Keep the programs, or take those that an earlier run has kept, and the shapes with them."""
        self.kept = kept
        if kept is not None and kept.shapes is not None:
            self.carry, self.shapes = kept.shapes

    @cached_property
    def shapes(self) -> tuple[PyTree, Transition]:
        """Shapes of the actors, (S, ...), and of a rollout, (S, T, B, ...)."""
        return self.collector.shapes(self.length)

    @cached_property
    def _metrics(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The shapes of what an update logs."""

        def update(rollout: Transition) -> dict[str, Array]:
            key, clock = jax.random.key(0), Clock(jnp.float32(0), jnp.float32(1))
            learner = self.collector.first_learner(key)
            opponent = self._first_opponent(self.algorithm.policy(learner), key)
            return self._both_learn(learner, opponent, rollout, key, clock)[2]

        of_seed = jax.tree.map(lambda x: x.update(shape=x.shape[1:]), self.shapes[1])
        return jax.eval_shape(update, of_seed)

    @cached_property
    def carry(self) -> Carry:
        """Shapes of the carry of all seeds, (S, ...)."""
        seeds = jax.ShapeDtypeStruct((self.collector.seeds,), jnp.int32)
        return jax.eval_shape(jax.vmap(self.init), seeds, self.shapes[0])

    @staticmethod
    def keys(seed: Array) -> Array:
        """The keys of a training seed, (3,): of its learner, its environments and its updates."""
        return jax.random.split(keys.root(Purpose.TRAINING, seed), 3)

    def init(self, seed: Array, actors: PyTree = None) -> Carry:
        """The carry before the first step; compiled environments are started here."""
        learner_key, actors_key, loop_key = self.keys(seed)
        if actors is None:
            assert isinstance(self.collector, Compiled)
            actors = self.collector.start_one(actors_key)
        learner = self.collector.first_learner(learner_key)
        metrics = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), self._metrics)
        episodes = EpisodeSums(
            jnp.int32(0), jnp.zeros(self.collector.spec.n_agents), jnp.float32(0), jnp.float32(0)
        )
        policy = self.algorithm.policy(learner)
        return Carry(
            learner=learner,
            actors=actors,
            key=loop_key,
            updates=jnp.int32(0),
            episodes=jnp.int32(0),
            tally=Tally(jnp.int32(0), episodes, metrics, jnp.int32(0)),
            best=Best(policy, jnp.float32(-jnp.inf)),
            opponent=self._first_opponent(policy, jax.random.fold_in(learner_key, 1)),
        )

    def _first_opponent(self, policy: PyTree, key: Array) -> PyTree:
        return None if self.opponents is None else self.opponents.init(policy, key)

    def init_policy(self, seed: Array) -> PyTree:
        """The policy of a seed before its first update."""
        # In a compiled program only the policy is made: nothing else of the learner is returned.
        return self.algorithm.policy(self.algorithm.init(self.keys(seed)[0], 1))

    def teams(self, learner: Learner, opponent: PyTree) -> tuple[PyTree, PyTree]:
        """Who plays the next rollout: the learner's policy, and those on the other side, (M, ...)."""
        policy = self.algorithm.policy(learner)
        return policy, None if self.opponents is None else self.opponents.playing(opponent, policy)

    def update(
        self, budget: Array, _: Any, carry: Carry, collected: tuple[PyTree, Transition] | None = None
    ) -> Carry:
        """One update of a run with a `budget` of env steps, () float32.

        From a rollout (T, B, ...) that was `collected`, with the actors after it; without one it is collected
        here, in the same program.
        """
        if collected is None:
            assert isinstance(self.collector, Compiled)
            policy, playing = self.teams(carry.learner, carry.opponent)
            collected = self.collector.collect_one(policy, carry.actors, self.length, playing=playing)
        actors, rollout = collected
        key, update_key = jax.random.split(carry.key)
        done = carry.updates.astype(jnp.float32)
        clock = Clock(done * self.algorithm.steps_per_update, budget)
        learner, opponent, metrics = self._both_learn(
            carry.learner, carry.opponent, rollout, update_key, clock
        )
        episodes = _ended(rollout.completed, rollout.info)
        seen, tally = rollout.observation, carry.tally
        return carry._replace(
            learner=learner,
            actors=actors,
            opponent=opponent,
            key=key,
            updates=carry.updates + 1,
            episodes=carry.episodes + episodes.ended,
            tally=Tally(
                updates=tally.updates + 1,
                episodes=jax.tree.map(jnp.add, tally.episodes, episodes),
                metrics=jax.tree.map(jnp.add, tally.metrics, metrics),
                no_action_available=tally.no_action_available + (seen.alive & ~seen.avail.any(-1)).sum(),
            ),
        )

    def _both_learn(
        self, learner: Learner, opponent: PyTree, rollout: Transition, key: Array, clock: Clock
    ) -> tuple[Learner, PyTree, dict[str, Array]]:
        """The learner and the opponent after an update, and what they log."""
        learner, metrics = self._learn(learner, rollout, key, clock)
        if self.opponents is None:
            return learner, None, metrics
        policy, opponent_key = self.algorithm.policy(learner), jax.random.fold_in(key, 1)
        opponent, theirs = self.opponents.learnt(opponent, policy, rollout, opponent_key, clock)
        return learner, opponent, {**metrics, **theirs}

    def advance(self, carry: Carry, updates: Array, budget: Array) -> Carry:
        """Make `updates` updates in one program, simulator included."""
        return jax.lax.fori_loop(0, updates, partial(self.update, budget), carry)

    def track_best(self, carry: Carry, score: Array) -> Carry:
        """After an evaluation: keep the policy if its score is the best so far, and begin a new tally."""
        better = score >= carry.best.score  # the latest of equals has trained for longer
        policy = jax.tree.map(
            lambda new, old: jnp.where(better, new, old),
            self.algorithm.policy(carry.learner),
            carry.best.policy,
        )
        best = Best(policy, jnp.where(better, score, carry.best.score))
        return carry._replace(best=best, tally=jax.tree.map(jnp.zeros_like, carry.tally))


def _ended(over: Array, info: dict[str, Array]) -> EpisodeSums:
    """Sums over the episodes that end where `over` (...), from the statistics in `info`."""
    won = info.get("won", jnp.zeros_like(over))
    return EpisodeSums(
        ended=over.sum(),
        returns=jnp.where(over[..., None], info["return"], 0.0).sum(tuple(range(over.ndim))),
        length=jnp.where(over, info["length"], 0).sum().astype(jnp.float32),
        won=(over & won).sum().astype(jnp.float32),
    )

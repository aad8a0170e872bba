"""The compiled loop: collect, update, again. The whole run is one pytree, the carry.

`Loop` holds the pure functions of one seed; `vmap` over the leading seed axis S trains many in
one program. How many updates to make is an argument of the compiled program, not a part of it, so
that it compiles once and can stop anywhere: what is counted and averaged lives in the carry.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.base import Algorithm
from phalanx.envs.wrappers import AutoReset
from phalanx.training import keys
from phalanx.training.collect import Actors, Episodes, collect, ended, no_episodes, start
from phalanx.training.keys import Purpose
from phalanx.types import Array, Clock, PyTree


class Tally(NamedTuple):
    """What happened since the last evaluation, as sums."""

    updates: Array
    episodes: Episodes
    metrics: dict[str, Array]
    helpless: Array
    """Living agents that had no available action: a breach of the environment's contract."""


class Best(NamedTuple):
    """The policy that did best in an evaluation so far."""

    policy: PyTree
    score: Array


class Carry(NamedTuple):
    """The whole of a run. Saving it is a checkpoint; restoring it continues to the bit."""

    learner: PyTree
    actors: Actors
    key: Array
    updates: Array
    episodes: Array
    tally: Tally
    best: Best


def without_replay(carry: Carry) -> Carry:
    """What is left of a carry without what only learning needs, and what is large."""
    learner = carry.learner
    return carry._replace(learner=learner._replace(replay=None)) if hasattr(learner, "replay") else carry


class Loop:
    """Everything that is compiled, for one algorithm in one environment."""

    def __init__(self, env: AutoReset, algorithm: Algorithm, envs: int, eval_episodes: int):
        self.env, self.algorithm = env, algorithm
        self.envs, self.eval_episodes = envs, eval_episodes
        self.length = algorithm.steps_per_update // envs
        self._metrics: dict[str, jax.ShapeDtypeStruct] | None = None

    # Pure functions of one seed

    def init(self, seed: Array) -> Carry:
        """The carry before the first step. One root key a seed: learner, environments, updates."""
        learner_key, actors_key, loop_key = self._keys(seed)
        learner = self.algorithm.init(learner_key, self.envs)
        actors = start(self.env, self.algorithm, actors_key, self.envs)
        return Carry(
            learner=learner,
            actors=actors,
            key=loop_key,
            updates=jnp.int32(0),
            episodes=jnp.int32(0),
            tally=self._empty_tally(learner, actors),
            best=Best(self.algorithm.policy(learner), jnp.float32(-jnp.inf)),
        )

    @staticmethod
    def _keys(seed: Array) -> Array:
        """The keys of a trained seed, (3,): of its learner, its environments and its updates."""
        return jax.random.split(keys.root(Purpose.TRAINING, seed), 3)

    def init_policy(self, seed: Array) -> PyTree:
        """What a seed acts with before its first update, without its learner."""
        return self.algorithm.init_policy(self._keys(seed)[0])

    def _empty_tally(self, learner: PyTree, actors: Actors) -> Tally:
        if self._metrics is None:  # which takes long to find out, and is asked for by several programs
            clock = Clock(jnp.float32(0), jnp.float32(1))
            self._metrics = jax.eval_shape(
                lambda: self._iterate(learner, actors, jax.random.key(0), clock)[2]
            )
        metrics = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), self._metrics)
        return Tally(jnp.int32(0), no_episodes(self.env.spec.n_agents), metrics, jnp.int32(0))

    def _iterate(self, learner: PyTree, actors: Actors, key: Array, clock: Clock):
        policy = self.algorithm.policy(learner)
        actors, rollout = collect(self.env, self.algorithm, policy, actors, self.length, greedy=False)
        learner, metrics = self.algorithm.update(learner, rollout, key, clock)
        return learner, actors, metrics, rollout

    def _update(self, carry: Carry, budget: Array) -> Carry:
        key, update_key = jax.random.split(carry.key)
        done = carry.updates.astype(jnp.float32)
        clock = Clock(done * self.algorithm.steps_per_update, budget)
        learner, actors, metrics, rollout = self._iterate(carry.learner, carry.actors, update_key, clock)
        episodes = ended(rollout.terminated | rollout.truncated, rollout.info)
        seen = rollout.observation
        tally = Tally(
            updates=carry.tally.updates + 1,
            episodes=carry.tally.episodes + episodes,
            metrics=jax.tree.map(jnp.add, carry.tally.metrics, metrics),
            helpless=carry.tally.helpless + (seen.alive & ~seen.avail.any(-1)).sum(),
        )
        return carry._replace(
            learner=learner,
            actors=actors,
            key=key,
            updates=carry.updates + 1,
            episodes=carry.episodes + episodes.count,
            tally=tally,
        )

    def advance(self, carry: Carry, updates: Array, budget: Array) -> Carry:
        """Make `updates` updates of a run that has a `budget` of env steps, () float32."""
        return jax.lax.fori_loop(0, updates, lambda _, c: self._update(c, budget), carry)

    def remember(self, carry: Carry, score: Array) -> Carry:
        """After an evaluation: keep the policy if its score is the best so far, and begin a new tally."""
        better = score >= carry.best.score  # the latest of equals: it had more time to become sure
        policy = jax.tree.map(
            lambda new, old: jnp.where(better, new, old),
            self.algorithm.policy(carry.learner),
            carry.best.policy,
        )
        best = Best(policy, jnp.where(better, score, carry.best.score))
        return carry._replace(best=best, tally=jax.tree.map(jnp.zeros_like, carry.tally))

"""Step replay buffer on the device: the last steps of all environments, sampled as transitions or sequences.

All environments write into one ring of C rows. A sample is a sequence of `length` consecutive steps of one
environment; episodes may end inside it, as `terminated`, `truncated` and `first` show.

Sampling is with replacement: uniform, or by priority (Schaul et al. 2016, https://arxiv.org/abs/1511.05952).
As in `replay` it has two parts: `draw` selects indices, `take` returns the data.
"""

from math import ceil
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from phalanx.data.replay import Episodes, no_actions, no_observations, without_state
from phalanx.errors import PhalanxError
from phalanx.ops.parts import split
from phalanx.types import Array, EnvSpec, Transition

SMALLEST_PRIORITY = 1e-6  # so that no step is lost for good


class Steps(NamedTuple):
    """What is kept. Rows that nothing was written to hold zeros."""

    kept: Transition
    """(C, B, ...), without what only a rollout needs: memory, extras and info"""
    row: Array
    """() int32: where the next step is written"""
    filled: Array
    """() int32: rows that hold something"""
    priority: Array | None
    """(C, B): how likely a step is to be drawn; None: all alike"""

    @property
    def count(self) -> Array:
        """How many steps there are."""
        return self.filled * self.kept.first.shape[1]


class Drawn(NamedTuple):
    """Which steps were drawn: N sequences, by their first steps."""

    row: Array
    """(N,)"""
    env: Array
    """(N,)"""
    weight: Array
    """(N,): importance weights of prioritised draws, at most 1"""


def as_episodes(steps: Transition) -> Episodes:
    """Sequences of steps (L, N, ...) in the form of episodes, of which only the first step is `valid`.

    What follows it, up to the end of its episode, is there for its n-step target.
    """
    observation = jax.tree.map(
        lambda seen, then: jnp.concatenate([seen[:1], then]), steps.observation, steps.next_observation
    )
    assert steps.broken is not None
    row = jnp.arange(steps.first.shape[0])[:, None]
    return Episodes(
        observation=observation,
        first=jnp.zeros(observation.alive.shape[:2], bool).at[0].set(True),
        action=steps.action,
        reward=steps.reward,
        terminated=steps.terminated,
        agent_terminated=steps.agent_terminated,
        last=steps.terminated | steps.truncated,
        valid=(row == 0) & ~steps.broken,
    )


def written(kept: Array, rows: Array, new: Array) -> Array:
    """`kept` (C, ...) with `new` (T, ...) in these rows, (T,).

    A single row is written twice: XLA makes something else of a write of one row, for which it copies the
    whole buffer several times on a CPU, in programs that make a single update.
    """
    if len(new) == 1:
        rows, new = (jnp.concatenate([x, x]) for x in (rows, new))
    return kept.at[rows].set(new)


class StepReplay:
    """The last `capacity` steps over all environments, sampled as sequences of `length`.

    `priority` is the exponent of priorities, 0 for uniform draws; `correction` that of importance weights.
    """

    def __init__(
        self,
        spec: EnvSpec,
        capacity: int,
        length: int = 1,
        with_state: bool = True,
        priority: float = 0.0,
        correction: float = 0.0,
    ):
        self.spec, self.capacity, self.length, self.with_state = spec, capacity, length, with_state
        self.priority, self.correction = priority, correction

    def rows(self, envs: int) -> int:
        return ceil(self.capacity / envs)

    def require_room(self, envs: int, steps: int) -> None:
        """Refuse a buffer that cannot hold a rollout of `steps` steps, or a sequence, in each environment."""
        needed = max(steps, self.length) * envs
        if self.rows(envs) * envs < needed:
            raise PhalanxError(
                f"a buffer of {self.capacity} steps is too small for {envs} environments: use buffer={needed}"
            )

    def init(self, envs: int) -> Steps:
        """Empty, for `envs` environments."""
        spec, rows = self.spec, (self.rows(envs), envs)
        flags = jnp.zeros(rows, bool)
        kept = Transition(
            observation=no_observations(spec, rows, self.with_state),
            first=flags,
            memory=None,
            action=no_actions(spec, rows),
            extras=None,
            reward=jnp.zeros((*rows, spec.n_agents)),
            terminated=flags,
            truncated=flags,
            next_observation=no_observations(spec, rows, self.with_state),
            info={},
            agent_terminated=jnp.zeros((*rows, spec.n_agents), bool) if spec.agents_end else None,
            broken=flags,
        )
        priority = jnp.zeros(rows) if self.priority else None
        return Steps(kept, jnp.int32(0), jnp.int32(0), priority)

    def add(self, buffer: Steps, rollout: Transition) -> Steps:
        """Write a rollout (T, B, ...) down, in the place of the oldest rows; there must be T rows or more.

        New steps get the highest priority so far, so that each is likely to be seen soon.
        """
        rollout = rollout if self.with_state else without_state(rollout)
        broken = jnp.zeros_like(rollout.first) if rollout.broken is None else rollout.broken
        rollout = rollout._replace(memory=None, extras=None, info={}, broken=broken)
        rows, length = buffer.kept.first.shape[0], rollout.first.shape[0]
        where = (buffer.row + jnp.arange(length)) % rows
        priority = buffer.priority
        if priority is not None:
            highest = jnp.where(buffer.filled > 0, priority.max(), 1.0)
            priority = priority.at[where].set(highest)
        return Steps(
            kept=jax.tree.map(lambda kept, new: written(kept, where, new), buffer.kept, rollout),
            row=(buffer.row + length) % rows,
            filled=jnp.minimum(buffer.filled + length, rows),
            priority=priority,
        )

    def can_sample(self, buffer: Steps, count: int) -> Array:
        """Whether there are `count` sequences."""
        envs = buffer.kept.first.shape[1]
        return jnp.maximum(buffer.filled - self.length + 1, 0) * envs >= count

    def draw(self, buffer: Steps, key: Array, count: int) -> Drawn:
        """Draw `count` sequences by where they begin; there must be one."""
        rows, envs = buffer.kept.first.shape
        begins = buffer.filled - self.length + 1
        if buffer.priority is None:
            which = jax.random.randint(key, (count,), 0, begins * envs)
            row = (buffer.row - buffer.filled + which // envs) % rows
            return Drawn(row, which % envs, jnp.ones(count))
        age = (jnp.arange(rows) - buffer.row) % rows  # of all rows the oldest has 0, written or not
        can_begin = (age >= rows - buffer.filled) & (age <= rows - self.length)
        likely = jnp.where(can_begin[:, None], buffer.priority**self.priority, 0.0).reshape(-1)
        sums = jnp.cumsum(likely)
        # One draw from each of `count` equal parts: less variance, the same distribution.
        part = (jnp.arange(count) + jax.random.uniform(key, (count,))) / count
        which = jnp.searchsorted(sums, part * sums[-1]).clip(0, len(sums) - 1)
        # Where numbers are rounded a draw may fall on a step that cannot begin a sequence: it weighs nothing.
        share = likely[which] / sums[-1]
        weight = jnp.where(share > 0, (share * begins * envs) ** -self.correction, 0.0)
        return Drawn(which // envs, which % envs, weight / weight.max())

    def take(self, buffer: Steps, drawn: Drawn) -> Transition:
        """The sequences that were drawn, (length, N, ...), in order of time."""
        rows = buffer.kept.first.shape[0]
        row = (drawn.row + jnp.arange(self.length)[:, None]) % rows
        return split(jax.tree.map(lambda x: x[row, drawn.env], buffer.kept), 1)

    def taking(self) -> Partial:
        """`take` as a pytree, as an `EpisodeReplay` has it."""
        return Partial(self.take)

    def prioritised(self, priority: Array | None, drawn: Drawn, error: Array) -> Array | None:
        """New priorities (C, B) after the sequences that were drawn had these TD errors, (N,)."""
        if priority is None:
            return None
        return priority.at[drawn.row, drawn.env].set(jnp.abs(error) + SMALLEST_PRIORITY)

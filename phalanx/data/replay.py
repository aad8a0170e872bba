"""Episode replay buffer on the device: the last episodes of every environment (`step_replay` stores steps).

Each of B environments has its own ring of C slots. A slot holds an episode of at most L steps as L + 1 rows:
the last observation of an episode, before any reset, is a row too. An episode can be sampled once it is
finished; the next slot is then overwritten.

Sampling has two parts: `draw` selects indices, and `take` returns the data. Wrappers that change samples,
such as `MappedReplay` (`algorithms/shared/wrapped.py`), change what `take` returns.
"""

from math import ceil
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from phalanx.ops.parts import by_part, split
from phalanx.ops.programs import scan
from phalanx.types import Array, EnvSpec, Observation, Picture, Transition

AT_A_TIME = 16  # steps that are counted in a turn of a loop on a GPU; see `scan`


class Episodes(NamedTuple):
    """N columns of episodes, time first: rows 0 to L of observations, steps 0 to L - 1 of the rest.

    Each column holds one episode, from its first row on; if `packed`, as many as fit, one after the other.
    """

    observation: Observation
    """(L + 1, N, ...)"""
    first: Array
    """(L + 1, N) bool: an episode begins with this row"""
    action: Array
    """(L, N, A)"""
    reward: Array
    """(L, N, A)"""
    terminated: Array
    """(L, N) bool: the step ended the task; an episode that was only cut has none"""
    agent_terminated: Array | None
    """(L, N, A) bool, as in `TimeStep`"""
    last: Array
    """(L, N) bool: the step was the last of its episode"""
    valid: Array
    """(L, N) bool: the step was taken; what stands after a last step is no part of any episode"""


class EpisodeBuffer(NamedTuple):
    """What is kept. Rows that no episode has written to hold zeros."""

    observation: Observation
    """(B, C, L + 1, ...)"""
    action: Array
    """(B, C, L, A), or (B, C, L, A, U) if continuous"""
    reward: Array
    """(B, C, L, A)"""
    ended: Array
    """(B, C) bool: the episode was ended, not cut"""
    agent_terminated: Array | None
    """(B, C, L, A) bool, as in `TimeStep`"""
    length: Array
    """(B, C) int32: steps of a whole episode; 0 where there is none, or one is being written"""
    place: Array
    """(B,) int32: where each environment writes"""
    step: Array
    """(B,) int32: steps of its episode so far"""

    @property
    def count(self) -> Array:
        """How many whole episodes there are."""
        return (self.length > 0).sum()


def no_observations(spec: EnvSpec, rows: tuple[int, ...], with_state: bool = True) -> Observation:
    """Room for observations as networks see them, (*rows, ...); without a state that has no entries."""
    n = spec.n_agents
    state = (n, spec.state_size) if spec.agent_state else (spec.state_size,)
    entries = jnp.zeros((*rows, n, spec.obs_size))
    shape, dtype = spec.obs_shape, spec.obs_dtype
    return Observation(
        obs=entries if shape is None else Picture(jnp.zeros((*rows, n, *shape), dtype), entries),
        state=jnp.zeros((*rows, *(state if with_state else (0,)))),
        avail=jnp.zeros((*rows, n, spec.n_actions), bool),
        alive=jnp.zeros((*rows, n), bool),
    )


def no_actions(spec: EnvSpec, rows: tuple[int, ...]) -> Array:
    """Room for actions, (*rows, A) or continuous (*rows, A, U)."""
    if spec.action_kind == "continuous":
        return jnp.zeros((*rows, spec.n_agents, spec.n_actions))
    return jnp.zeros((*rows, spec.n_agents), jnp.int32)


def empty(spec: EnvSpec, envs: int, places: int, with_state: bool = True) -> EpisodeBuffer:
    """A replay buffer for the episodes of an environment, with `places` for each of `envs` environments."""
    n, longest = spec.n_agents, spec.time_limit

    def rows(count, *shape, dtype=jnp.float32):
        return jnp.zeros((envs, places, count, *shape), dtype)

    return EpisodeBuffer(
        observation=no_observations(spec, (envs, places, longest + 1), with_state),
        action=no_actions(spec, (envs, places, longest)),
        reward=rows(longest, n),
        ended=jnp.zeros((envs, places), bool),
        agent_terminated=rows(longest, n, dtype=bool) if spec.agents_end else None,
        length=jnp.zeros((envs, places), jnp.int32),
        place=jnp.zeros(envs, jnp.int32),
        step=jnp.zeros(envs, jnp.int32),
    )


def without_state(rollout: Transition) -> Transition:
    """A rollout for a replay that keeps no state."""

    def blind(seen: Observation) -> Observation:
        return seen._replace(state=jnp.zeros((*seen.alive.shape[:-1], 0)))

    return rollout._replace(
        observation=blind(rollout.observation), next_observation=blind(rollout.next_observation)
    )


def add(replay: EpisodeBuffer, rollout: Transition) -> EpisodeBuffer:
    """Write a rollout (T, B, ...), continuing where the last one stopped.

    There must be more slots than a rollout has steps, or it might overwrite itself. An episode that was not
    finished (its environment failed or was restarted) is overwritten by the next.
    """
    over = rollout.completed
    places = replay.length.shape[1]

    def count(carried, ends):
        place, step = carried
        first, over = ends
        step = jnp.where(first, 0, step)
        onward = jnp.where(over, (place + 1) % places, place), jnp.where(over, 0, step + 1)
        return onward, (place, step)

    begun = replay.place, replay.step
    (place, step), (places_at, steps_at) = scan(count, begun, (rollout.first, over), AT_A_TIME)
    env = jnp.broadcast_to(jnp.arange(over.shape[1]), over.shape)
    at_end = jnp.where(over, places_at, places)  # beyond the ring: dropped
    opened = jnp.where(over, (places_at + 1) % places, places)

    def write(kept, new, place, row):
        return kept.at[env, place, row].set(new, mode="drop")

    def each(kept, new):
        return write(kept, new, places_at, steps_at)

    def both(kept, seen, then):
        return write(each(kept, seen), then, at_end, steps_at + 1)

    length = replay.length.at[env, opened].set(0, mode="drop")
    return EpisodeBuffer(
        observation=jax.tree.map(both, replay.observation, rollout.observation, rollout.next_observation),
        action=each(replay.action, rollout.action),
        reward=each(replay.reward, rollout.reward),
        ended=replay.ended.at[env, at_end].set(rollout.terminated, mode="drop"),
        agent_terminated=jax.tree.map(each, replay.agent_terminated, rollout.agent_terminated),
        length=length.at[env, at_end].set(steps_at + 1, mode="drop"),
        place=place,
        step=step,
    )


def draw(replay: EpisodeBuffer, key: Array, count: int) -> Array:
    """The numbers of `count` different whole episodes, (N,), all equally likely; there must be so many."""
    whole = replay.length.reshape(-1) > 0
    _, which = jax.lax.top_k(jnp.where(whole, jax.random.uniform(key, whole.shape), -1.0), count)
    return which


def take(replay: EpisodeBuffer, which: Array) -> Episodes:
    """The episodes with these numbers, (N,)."""
    env, place = which // replay.length.shape[1], which % replay.length.shape[1]
    count = len(which)

    def taken(x):
        return jnp.moveaxis(x[env, place], 1, 0)

    length, action = replay.length[env, place], taken(replay.action)
    steps = jnp.arange(len(action))[:, None]
    last = steps == length - 1
    return Episodes(
        observation=jax.tree.map(taken, replay.observation),
        first=jnp.zeros((len(action) + 1, count), bool).at[0].set(True),
        action=action,
        reward=taken(replay.reward),
        terminated=last & replay.ended[env, place],
        agent_terminated=jax.tree.map(taken, replay.agent_terminated),
        last=last,
        valid=steps < length,
    )


class Packing(NamedTuple):
    """Which row of which episode stands where, if short episodes share a column."""

    episode: Array
    """(L + 1, N) int32: the number of an episode"""
    row: Array
    """(L + 1, N) int32: its row; -1 where there is none"""

    @property
    def columns(self) -> Array:
        """How many columns have a row; they are the first."""
        return (self.row >= 0).any(0).sum()

    def first(self, columns: int) -> "Packing":
        """The first `columns` columns."""
        return Packing(self.episode[:, :columns], self.row[:, :columns])


def packed(replay: EpisodeBuffer, which: Array) -> Packing:
    """Pack the episodes with these numbers, (N,), into few columns of L + 1 rows.

    Longest first, each into the first column with enough room. There are still N columns, the last ones
    empty. A short episode leaves most of its own column empty, and an empty step costs a network as much as
    any other.
    """
    longest = replay.reward.shape[2]
    length = replay.length.reshape(-1)[which]

    def put(used, rows):
        column = (used + rows <= longest + 1).argmax()
        return used.at[column].add(rows), (column, used[column])

    order = jnp.argsort(-length)
    which, length = which[order], length[order]
    _, (column, begin) = jax.lax.scan(put, jnp.zeros_like(length), length + 1)
    row = jnp.arange(longest + 1)[:, None]
    place = jnp.where(row <= length, begin + row, longest + 1)  # behind the last row: dropped
    empty = jnp.full((longest + 1, len(which)), -1)
    return Packing(
        episode=jnp.zeros_like(empty).at[place, column].set(which, mode="drop"),
        row=empty.at[place, column].set(row, mode="drop"),
    )


def take_packed(replay: EpisodeBuffer, packing: Packing) -> Episodes:
    """The episodes of a packing. Only what it holds is read from the buffer."""
    env, place = jnp.divmod(packing.episode, replay.length.shape[1])
    row = packing.row

    def rows(x):
        return x[env, place, row]

    def steps(x):
        """There is none at an episode's last row."""
        return x[env[:-1], place[:-1], row[:-1]]

    length = replay.length[env, place]
    last = ((row >= 0) & (row == length - 1))[:-1]
    return Episodes(
        observation=jax.tree.map(rows, replay.observation),
        first=row == 0,
        action=steps(replay.action),
        reward=steps(replay.reward),
        terminated=last & replay.ended[env, place][:-1],
        agent_terminated=jax.tree.map(steps, replay.agent_terminated),
        last=last,
        valid=((row >= 0) & (row < length))[:-1],
    )


class EpisodeReplay:
    """A replay of whole episodes: `capacity` of them over all environments."""

    def __init__(self, spec: EnvSpec, capacity: int, with_state: bool = True):
        self.spec, self.capacity, self.with_state = spec, capacity, with_state

    def places(self, envs: int) -> int:
        """Places in each environment's ring: one of them is always being written."""
        return ceil(self.capacity / envs) + 1

    def init(self, envs: int) -> EpisodeBuffer:
        return empty(self.spec, envs, self.places(envs), self.with_state)

    def add(self, buffer: EpisodeBuffer, rollout: Transition) -> EpisodeBuffer:
        rollout = rollout if self.with_state else without_state(rollout)
        return by_part(add, len(buffer.place), (0, 1))(buffer, rollout)

    def can_sample(self, buffer: EpisodeBuffer, count: int) -> Array:
        """Whether there are `count` episodes, and one of each environment (the first to finish are short)."""
        return (buffer.count >= count) & (buffer.length > 0).any(1).all()

    def draw(self, buffer: EpisodeBuffer, key: Array, count: int) -> Array:
        return draw(buffer, key, count)

    def take(self, buffer: EpisodeBuffer, which: Array | Packing) -> Episodes:
        """The episodes with these numbers, (N,), a column for each; or those of a packing."""
        return take_packed(buffer, which) if isinstance(which, Packing) else split(take(buffer, which), 1)

    def taking(self) -> Partial:
        """`take` as a pytree, for programs that must not close over arrays (`ops.programs.at_size`)."""
        return Partial(self.take)

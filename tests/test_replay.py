"""Replay against a list of episodes: fuzzed over lengths, ends, cuts and many times round the ring."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from phalanx.algorithms.shared.wrapped import MappedReplay
from phalanx.data import replay
from phalanx.data.step_replay import Drawn, StepReplay
from phalanx.ops.programs import at_size
from phalanx.training.collectors.base import over_seeds
from phalanx.types import EnvSpec, Observation, Transition

AGENTS, LONGEST = 2, 5
SPEC = EnvSpec(
    name="test",
    agents=("a", "b"),
    agent_types=("x", "x"),
    obs_features=(("p", "q", "r"),) * 2,
    state_features=("s", "t"),
    action_counts=(3, 3),
    time_limit=LONGEST,
)


def streams(rng, envs, steps):
    """A stream of random episodes for each environment, as rollout rows (T, B, ...), no two alike."""
    shape = (steps, envs)
    number = np.arange(steps * envs).reshape(shape).astype(np.float32)
    over = np.zeros(shape, bool)
    for env in range(envs):
        t = -1
        while t < steps:
            t += rng.integers(1, LONGEST + 1)
            if t < steps:
                over[t, env] = True
    ended = over & (rng.random(shape) < 0.5)

    def seen(offset):
        obs = (number[..., None, None] + offset) * np.ones((AGENTS, 3), np.float32)
        return Observation(obs, obs[..., 0, :2] * 2, obs > 50, obs[..., 0] > 70)

    return Transition(
        observation=seen(0.0),
        first=np.roll(over, 1, axis=0) | (np.arange(steps) == 0)[:, None],
        memory=np.zeros((*shape, AGENTS, 0), np.float32),
        action=(number[..., None] % 7 + np.arange(AGENTS)).astype(np.int32),
        extras={},
        reward=np.stack([number, -number], -1),
        terminated=ended,
        truncated=over & ~ended,
        next_observation=seen(0.25),
        info={},
    )


def listed(rollout, places):
    """The slow twin: for each environment its last whole episodes, as lists of rows."""
    over = rollout.terminated | rollout.truncated
    kept = []
    for env in range(over.shape[1]):
        done, begin = deque(maxlen=places - 1), 0
        for t in np.flatnonzero(over[:, env]):
            done.append((env, slice(begin, t + 1), bool(rollout.terminated[t, env])))
            begin = t + 1
        kept += done
    return kept


@pytest.mark.parametrize(("envs", "places", "length"), [(1, 9, 8), (3, 7, 4), (4, 40, 1)])
def test_what_is_sampled_is_what_was_played(envs, places, length):
    rng = np.random.default_rng(envs)
    stream = streams(rng, envs, 96)
    kept = replay.empty(SPEC, envs, places)
    add = jax.jit(replay.add)
    for begin in range(0, 96, length):
        kept = add(kept, jax.tree.map(lambda x, b=begin: x[b : b + length], stream))
    expected = listed(stream, places)
    assert kept.count == len(expected)
    episodes = jax.device_get(replay.take(kept, replay.draw(kept, jax.random.key(0), len(expected))))
    found = {int(first): n for n, first in enumerate(episodes.reward[0, :, 0])}
    assert len(found) == len(expected)  # without replacement: all are there once
    for env, steps, ended in expected:
        n = found[int(stream.reward[steps, env][0, 0])]
        size = steps.stop - steps.start
        assert episodes.valid[:, n].tolist() == [t < size for t in range(LONGEST)]
        assert episodes.last[:, n].tolist() == [t == size - 1 for t in range(LONGEST)]
        assert episodes.terminated[:, n].tolist() == [ended and t == size - 1 for t in range(LONGEST)]
        np.testing.assert_array_equal(episodes.action[:size, n], stream.action[steps, env])
        np.testing.assert_array_equal(episodes.reward[:size, n], stream.reward[steps, env])
        for kind in Observation._fields:
            rows, then = getattr(stream.observation, kind), getattr(stream.next_observation, kind)
            found_rows = getattr(episodes.observation, kind)[:, n]
            assert found_rows.dtype == rows.dtype
            np.testing.assert_array_equal(found_rows[:size], rows[steps, env])
            np.testing.assert_array_equal(found_rows[size], then[steps, env][-1])


@pytest.mark.parametrize("seed", range(3))
def test_packed_episodes_are_those_that_were_sampled(seed):
    """All of them once, each whole and in order, the last row too, and nothing else; in few columns."""
    stream = streams(np.random.default_rng(seed), 2, 50)
    kept = replay.add(replay.empty(SPEC, 2, 60), stream)
    which = replay.draw(kept, jax.random.key(seed), int(kept.count))
    drawn, packing = replay.take(kept, which), jax.jit(replay.packed)(kept, which)
    packed = jax.device_get(replay.take_packed(kept, packing))
    drawn = jax.device_get(drawn)
    length = drawn.valid.sum(0)
    begins = {float(packed.reward[t, n, 0]): (t, n) for t, n in np.argwhere(packed.first)}
    assert len(begins) == len(length)
    for n, size in enumerate(length):
        t, column = begins[float(drawn.reward[0, n, 0])]
        for name in ("first", "action", "reward", "terminated", "last", "valid"):
            found, expected = getattr(packed, name), getattr(drawn, name)
            np.testing.assert_array_equal(found[t : t + size, column], expected[:size, n])
        for found, expected in zip(packed.observation, drawn.observation, strict=True):
            np.testing.assert_array_equal(found[t : t + size + 1, column], expected[: size + 1, n])
    assert packed.valid.sum() == length.sum()
    assert packed.last.sum() == len(length)
    used = packed.valid.any(0)
    assert used[: used.sum()].all()
    assert used.sum() == packing.columns
    narrow = jax.device_get(replay.take_packed(kept, packing.first(int(used.sum()))))
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[:, : used.sum()], y), packed, narrow)
    rows = (length + 1).sum()
    assert used.sum() <= 1.3 * rows / (LONGEST + 1) + 1


def test_each_seed_maps_its_own_samples():
    """A wrapper's arrays reach a program that is chosen by size, under `vmap`."""
    kept = replay.add(replay.empty(SPEC, 2, 60), streams(np.random.default_rng(0), 2, 50))
    packing = replay.packed(kept, replay.draw(kept, jax.random.key(0), int(kept.count)))

    def scaled(scale, episodes):
        return episodes._replace(reward=scale * episodes.reward)

    def total(columns, take, kept, packing):
        episodes = take(kept, packing.first(columns))
        return (episodes.reward[..., 0] * episodes.valid).sum()

    def of_seed(scale):
        take = MappedReplay(replay.EpisodeReplay(SPEC, 60), Partial(scaled, scale)).taking()
        sizes = [int(packing.columns), int(kept.count)]
        return at_size(sizes, total)(packing.columns, take, kept, packing)

    expected = (kept.reward[..., 0] * (jnp.arange(LONGEST) < kept.length[..., None])).sum()
    np.testing.assert_allclose(jax.vmap(of_seed)(jnp.array([1.0, 3.0])), [expected, 3 * expected], rtol=1e-4)


def test_an_episode_that_is_being_written_is_never_sampled():
    stream = streams(np.random.default_rng(1), 2, 40)
    over = np.asarray(stream.terminated | stream.truncated)
    kept = replay.empty(SPEC, 2, 6)
    add = jax.jit(replay.add)
    for t in range(40):
        kept = add(kept, jax.tree.map(lambda x, t=t: x[t : t + 1], stream))
        assert kept.count == sum(min(int(over[: t + 1, env].sum()), 5) for env in range(2))


def test_all_whole_episodes_are_equally_likely():
    stream = streams(np.random.default_rng(2), 2, 30)
    kept = replay.add(replay.empty(SPEC, 2, 40), stream)
    draw = jax.jit(jax.vmap(lambda key: replay.take(kept, replay.draw(kept, key, 2)).reward[0, :, 0]))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    assert (drawn[:, 0] != drawn[:, 1]).all()
    _, counts = np.unique(drawn, return_counts=True)
    assert len(counts) == int(kept.count)
    np.testing.assert_allclose(counts / counts.sum(), 1 / len(counts), rtol=0.15)


# Steps


def steps_of(stream):
    """A rollout without what only a rollout needs."""
    return stream._replace(memory=None, extras=None)


@pytest.mark.parametrize("priority", [0.0, 0.6])
@pytest.mark.parametrize(("envs", "rows", "chunk", "length"), [(1, 7, 3, 1), (3, 8, 8, 4), (2, 11, 4, 11)])
def test_sequences_of_steps_are_those_of_a_list(envs, rows, chunk, length, priority):
    """Round the ring many times: every sequence that the last steps hold is drawn, and no other."""
    stream = steps_of(streams(np.random.default_rng(0), envs, 60))
    steps = StepReplay(SPEC, rows * envs, length, priority=priority, correction=0.4)
    number, kept = stream.reward[..., 0], steps.init(envs)
    add, draw, take = jax.jit(steps.add), jax.jit(steps.draw, static_argnums=2), jax.jit(steps.take)
    for begin in range(0, 60 - chunk + 1, chunk):
        kept = add(kept, jax.tree.map(lambda x, b=begin: x[b : b + chunk], stream))
        last = number[: begin + chunk][-rows:]
        assert kept.filled == len(last)
        listed = {tuple(last[t : t + length, b]) for t in range(len(last) - length + 1) for b in range(envs)}
        assert steps.can_sample(kept, len(listed))
        assert not steps.can_sample(kept, len(listed) + 1)
        if listed:
            drawn = draw(kept, jax.random.key(begin), 300)
            np.testing.assert_array_equal(drawn.weight, 1.0)
            taken = jax.device_get(take(kept, drawn))
            assert {tuple(column) for column in taken.reward[..., 0].T} == listed
            row, env = np.divmod(taken.reward[..., 0].astype(int), envs)
            for found, given in zip(jax.tree.leaves(taken), jax.tree.leaves(stream), strict=False):
                np.testing.assert_array_equal(found, given[row, env])
            np.testing.assert_array_equal(taken.truncated, stream.truncated[row, env])
            assert not taken.broken.any()


def test_steps_are_equally_likely_or_by_priority():
    """Against the distribution: p^0.6, with weights that undo it with the exponent 0.4."""
    stream = steps_of(streams(np.random.default_rng(2), 2, 10))
    likely = np.random.default_rng(3).uniform(0.1, 2.0, (10, 2))
    for priority, shares in ((0.0, np.full((10, 2), 1 / 20)), (0.6, likely**0.6 / (likely**0.6).sum())):
        steps = StepReplay(SPEC, 20, priority=priority, correction=0.4)
        kept = steps.add(steps.init(2), stream)
        every = Drawn(*np.divmod(np.arange(20), 2), np.ones(20))
        kept = kept._replace(priority=steps.prioritised(kept.priority, every, likely.reshape(-1)))
        draw = jax.jit(jax.vmap(lambda key, kept=kept, steps=steps: steps.draw(kept, key, 50)))
        drawn = jax.device_get(draw(jax.random.split(jax.random.key(0), 2000)))
        counts = np.zeros((10, 2))
        np.add.at(counts, (drawn.row, drawn.env), 1)
        np.testing.assert_allclose(counts / counts.sum(), shares, rtol=0.06)
        one = jax.tree.map(lambda x: x[0], drawn)
        weights = (20 * shares[one.row, one.env]) ** -0.4
        np.testing.assert_allclose(one.weight, weights / weights.max(), rtol=1e-4)


def test_a_step_that_failed_is_marked_and_a_new_one_has_the_highest_priority():
    stream = steps_of(streams(np.random.default_rng(4), 2, 6))
    broken = np.zeros((6, 2), bool)
    broken[2, 1] = True
    steps = StepReplay(SPEC, 8, priority=1.0)
    kept = steps.add(steps.init(2), jax.tree.map(lambda x: x[:3], stream._replace(broken=broken)))
    assert kept.kept.broken.sum() == 1
    np.testing.assert_array_equal(kept.priority, [[1, 1], [1, 1], [1, 1], [0, 0]])
    first = Drawn(np.array([0]), np.array([1]), np.ones(1))
    kept = kept._replace(priority=steps.prioritised(kept.priority, first, np.array([-5.0])))
    kept = steps.add(kept, jax.tree.map(lambda x: x[3:5], stream))
    np.testing.assert_allclose(kept.priority, [[5, 5], [1, 1], [1, 1], [5, 5]], rtol=1e-5)


@pytest.mark.parametrize("length", [1, 2])
def test_a_short_rollout_is_written_without_copying_the_buffer_often(length):
    """As in a program that writes, draws and returns: XLA's plan had 2.4 buffers of copies for one row."""
    steps, envs = StepReplay(SPEC, 80_000), 8
    kept = jax.eval_shape(lambda: jax.tree.map(lambda x: x[None], steps.init(envs)))
    rollout = jax.tree.map(lambda x: x.update(shape=(1, length, *x.shape[2:])), kept.kept)

    def learn(kept, rollout, keys):
        kept = steps.add(kept, rollout)
        drawn = jax.lax.map(lambda key: steps.take(kept, steps.draw(kept, key, 4)), keys)
        return kept, drawn

    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), (1, 4)))
    program = jax.jit(over_seeds(learn, 1, (0, 0, 0)), donate_argnums=0).lower(kept, rollout, keys).compile()
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(kept))
    assert program.memory_analysis().temp_size_in_bytes < 1.1 * size

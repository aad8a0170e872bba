"""Replay against a list of episodes: fuzzed over lengths, ends, cuts and many times round the ring."""

from collections import deque

import jax
import numpy as np
import pytest

from phalanx.data import replay
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
    episodes = jax.device_get(replay.sample(kept, jax.random.key(0), len(expected)))
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
    drawn = replay.sample(kept, jax.random.key(seed), int(kept.count))
    packed = jax.device_get(jax.jit(replay.packed)(drawn))
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
    rows = (length + 1).sum()
    assert used.sum() <= 1.3 * rows / (LONGEST + 1) + 1


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
    draw = jax.jit(jax.vmap(lambda key: replay.sample(kept, key, 2).reward[0, :, 0]))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    assert (drawn[:, 0] != drawn[:, 1]).all()
    _, counts = np.unique(drawn, return_counts=True)
    assert len(counts) == int(kept.count)
    np.testing.assert_allclose(counts / counts.sum(), 1 / len(counts), rtol=0.15)


@pytest.mark.parametrize(("envs", "rows", "chunk", "length"), [(1, 7, 3, 1), (3, 8, 8, 4), (2, 11, 4, 11)])
def test_stretches_of_steps_are_those_of_a_list(envs, rows, chunk, length):
    """Round the ring many times: every stretch that the last steps hold is drawn, once, and no other."""
    number = np.arange(60 * envs).reshape(60, envs)
    stream = {"number": number.astype(np.int32), "pair": np.stack([number, -number], -1).astype(np.float32)}
    kept = replay.no_steps(jax.tree.map(lambda x: x[0], stream), rows)
    add = jax.jit(replay.add_steps)
    for begin in range(0, 60 - chunk + 1, chunk):
        kept = add(kept, jax.tree.map(lambda x, b=begin: x[b : b + chunk], stream))
        last = number[: begin + chunk][-rows:]
        assert kept.filled == len(last)
        listed = {tuple(last[t : t + length, b]) for t in range(len(last) - length + 1) for b in range(envs)}
        if listed:
            drawn = jax.device_get(replay.sample_steps(kept, jax.random.key(begin), len(listed), length))
            assert {tuple(column) for column in drawn["number"].T} == listed
            np.testing.assert_array_equal(drawn["pair"][..., 1], -drawn["number"].astype(np.float32))
            assert drawn["number"].dtype == np.int32

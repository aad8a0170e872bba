"""Loops that are unrolled on a GPU compute the same as on a CPU, where they are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build
from test_replay import SPEC, streams

from phalanx import registry
from phalanx.data import replay
from phalanx.envs.battle import combat
from phalanx.ops import joined, programs, returns
from phalanx.training.collectors.base import whole_transition


def unrolled(monkeypatch, module) -> list[int]:
    """Let a module unroll its loops as on a GPU; the sizes that it asked for are added to the list."""
    asked = []

    def unroll(steps: int) -> int:
        asked.append(steps)
        return steps

    monkeypatch.setattr(module, "unroll", unroll)
    return asked


def test_returns(monkeypatch):
    rng = np.random.default_rng(0)
    rewards, values, after = rng.normal(size=(3, 21, 4, 2)).astype(np.float32)
    ended, cut = rng.random((2, 21, 4, 2)) < 0.2

    def computed():
        advantages, targets = returns.gae(rewards, values, after, ended, cut, 0.99, 0.95)
        so_far = returns.returns_so_far(values[0], ended[..., 0], rewards, 0.99)
        return jax.tree.leaves((advantages, targets, so_far))

    looped = computed()
    asked = unrolled(monkeypatch, programs)
    for one, other in zip(looped, computed(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    assert asked == [16, 16]  # 21 steps: not all at once, and a remainder


def test_episodes_that_are_written(monkeypatch):
    stream = streams(np.random.default_rng(0), 3, 20)

    def written():
        return jax.tree.leaves(replay.add(replay.empty(SPEC, 3, 21), stream))

    looped = written()
    asked = unrolled(monkeypatch, programs)
    for one, other in zip(looped, written(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert asked == [16]


@pytest.mark.parametrize(("few", "laid_out"), [(combat.FEW_PAIRS, 8), (0, 2)])
def test_game_loops(monkeypatch, few, laid_out):
    keys = jax.random.split(jax.random.key(0), 6)
    east, shoot = np.full(2, 4), np.full(2, 6)

    def played():
        env = registry.make_env("battle/2m_vs_1m", {})  # another, so that it is compiled anew
        step = jax.jit(env.step)
        state, _ = env.reset(keys[0])
        for key, actions in zip(keys, [east] * 4 + [shoot] * 2, strict=True):
            state, timestep = step(key, state, actions)
        return jax.tree.leaves((state.units, timestep.observation, timestep.reward))

    looped = played()
    monkeypatch.setattr(combat, "FEW_PAIRS", few)
    asked = unrolled(monkeypatch, combat)
    for one, other in zip(looped, played(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert set(asked) == {laid_out}


def test_rollouts_of_joined_arrays(monkeypatch):
    """On a GPU small arrays are carried and stored as one; values and types are the same."""
    loop = build("ippo", "debug/roles", network="gru")
    carry = jax.jit(loop.init)(jnp.int32(0))
    policy = loop.algorithm.policy(carry.learner)
    asked = []

    def played(small):
        def is_small(x):
            asked.append(x.size)
            return small(x)

        monkeypatch.setattr(joined, "_is_small", is_small)
        jax.clear_caches()  # what was traced with another choice
        play = loop.collector._collect_steps
        return jax.jit(lambda: play(policy, carry.actors, 9, False, whole_transition, None))()

    alone = played(lambda x: False)
    assert alone[1].first[1:].any()  # an environment was reset on the way
    limit = sorted(asked)[-1]
    for small in (lambda x: x.size < limit, lambda x: True):
        together = played(small)
        assert jax.tree.structure(alone) == jax.tree.structure(together)
        for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(as_numbers(one), as_numbers(other))


def test_all_types_can_be_joined(monkeypatch):
    """Bits that are no number, negative zeros and the largest integers come back as they were."""
    monkeypatch.setattr(joined, "_is_small", lambda x: True)
    tree = {
        "floats": np.array([[-0.0, np.inf], [np.nan, 1e-42]], np.float32),
        "wide": np.array([-(2**31), 2**31 - 1], np.int32),
        "unsigned": np.array([2**32 - 1, 7], np.uint32),
        "bytes": np.array([[255], [0]], np.uint8),
        "signed": np.array([-128, 127], np.int8),
        "booleans": np.array([[[True], [False]], [[False], [True]]]),
        "none": np.zeros((2, 0), np.float32),
        "halves": jnp.array([1.5, -2.0], jnp.bfloat16),
        "key": jax.random.key(3),
        "scalar": np.float32(1.5),
        "longer": np.arange(3, dtype=np.int32),
    }
    together = jax.jit(joined.join)(tree)
    assert together.words.shape == (2, 8)
    back = jax.jit(lambda x: x.separate())(together)
    for name, given in tree.items():
        assert back[name].dtype == given.dtype
        assert np.asarray(as_numbers(back[name])).tobytes() == np.asarray(as_numbers(given)).tobytes()
    assert joined.join({"number": 2, "none": ()}).separate() == {"number": 2, "none": ()}
    assert joined.join(()).separate() == ()


def as_numbers(x):
    """An array; of a key its words."""
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

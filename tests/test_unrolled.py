"""Loops that are unrolled on a GPU compute the same as on a CPU, where they are not."""

import jax
import numpy as np
import pytest
from test_replay import SPEC, streams

from phalanx import registry
from phalanx.data import replay
from phalanx.envs.battle import combat
from phalanx.ops import returns


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
    asked = unrolled(monkeypatch, returns)
    for one, other in zip(looped, computed(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    assert asked == [16, 16]  # 21 steps: not all at once, and a remainder


def test_episodes_that_are_written(monkeypatch):
    stream = streams(np.random.default_rng(0), 3, 20)

    def written():
        return jax.tree.leaves(replay.add(replay.empty(SPEC, 3, 21), stream))

    looped = written()
    asked = unrolled(monkeypatch, replay)
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

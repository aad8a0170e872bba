"""Worlds with sides: what the other side sees and does is what an ally of that side would."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phalanx import registry
from phalanx.envs.sides import OneSide, sides_of
from phalanx.errors import PhalanxError


def test_one_side_of_a_battle_is_the_battle():
    battle = registry.make_env("battle/3m", {})
    assert OneSide(sides_of(battle), "allies").spec == sides_of(battle).ours.spec  # type: ignore[attr-defined]
    assert OneSide(sides_of(battle), "allies").spec.obs_features == battle.spec.obs_features


@pytest.mark.parametrize(
    ("world", "adversaries", "good"),
    [("tag", 3, 1), ("adversary", 1, 2), ("push", 1, 1), ("crypto", 1, 2), ("world_comm", 4, 2)],
)
def test_teams_of_a_particle_world_are_sides(world, adversaries, good):
    """Each side has its agents' part of the whole: what they see without padding, can do, and get."""
    env = registry.make_env(f"mpe/simple_{world}", {})
    sides, agents = sides_of(env), {"adversary": adversaries, "good": good}
    assert {side: sides.spec(side).n_agents for side in sides.sides} == agents
    members = {side: [i for i, team in enumerate(env.spec.teams) if team == side] for side in agents}
    chosen = jnp.array([(i + 1) % count for i, count in enumerate(env.spec.action_counts)], jnp.int32)
    state, parted = jax.jit(sides.reset)(jax.random.key(0))
    _, whole = jax.jit(env.reset)(jax.random.key(0))
    assert_parts(sides, members, parted, whole)
    acts = {side: chosen[jnp.array(who)] for side, who in members.items()}
    _, parted = jax.jit(sides.step)(jax.random.key(1), state, acts)
    _, whole = jax.jit(env.step)(jax.random.key(1), state, chosen)
    assert_parts(sides, members, parted, whole)
    for side, who in members.items():
        np.testing.assert_array_equal(parted[side].reward, whole.reward[np.array(who)])
        assert parted[side].terminated == whole.terminated


def assert_parts(sides, members, parted, whole):
    """What each side sees is what its agents see of the whole, and what was cut off is padding."""
    for side, who in members.items():
        spec, own, all_ = sides.spec(side), parted[side].observation, whole.observation
        assert own.obs.shape == (len(who), max(map(len, spec.obs_features)))
        assert own.avail.shape == (len(who), max(spec.action_counts))
        for k, i in enumerate(who):
            np.testing.assert_array_equal(own.obs[k], all_.obs[i, : spec.obs_size])
            assert not all_.obs[i, spec.obs_size :].any()
            np.testing.assert_array_equal(own.avail[k], all_.avail[i, : spec.n_actions])
            assert not all_.avail[i, spec.n_actions :].any()
        np.testing.assert_array_equal(own.state, all_.state)


def test_a_world_without_sides_is_refused_in_one_line():
    with pytest.raises(PhalanxError, match="switch/2 has no other side"):
        sides_of(registry.make_env("switch/2", {}))
    with pytest.raises(PhalanxError, match="conic_view"):
        sides_of(registry.make_env("battle/v2_terran_5_vs_5", {"conic_view": True}))

"""Worlds with sides: what the other side sees and does is what an ally of that side would."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phalanx import registry
from phalanx.envs.battle import combat
from phalanx.envs.battle.duel import Duel, from_the_other_side
from phalanx.envs.battle.orders import ally_orders
from phalanx.envs.sides import OneSide, sides_of
from phalanx.errors import PhalanxError

BATTLES = ["3m", "2s3z", "MMM", "bane_vs_bane", "1c3s5z"]


@pytest.mark.parametrize(
    ("name", "flip"),
    [("3m", (True, False)), ("bane_vs_bane", (False, True)), ("corridor", (False, False))],
)
def test_the_map_is_reflected_along_the_way_between_the_sides(name, flip):
    assert duel_of(name).flip == flip


def duel_of(name: str) -> Duel:
    """With random starts, where there can be any."""
    return Duel(registry.make_env(f"battle/{name}", {} if name.startswith("v2_") else {"starts": 512}))


def close_quarters(duel: Duel, key: jax.Array):
    """A battle that has come to blows: units drawn towards the middle, some hurt, weapons not ready."""
    state, _ = duel.reset(key)
    units, ours = state.units, duel.ours._world.allies
    middle = jnp.array([16.0, 16.0])
    draw = jax.random.uniform(key, (4, units.x.shape[0]))
    apart = jnp.where(jnp.arange(units.x.shape[0]) < ours, -1.0, 1.0)
    along_x = duel.flip[0]
    x = middle[0] + (apart * (1.0 + 3 * draw[0]) if along_x else 6 * (draw[0] - 0.5))
    y = middle[1] + (6 * (draw[1] - 0.5) if along_x else apart * (1.0 + 3 * draw[1]))
    hurt = units.health * (0.3 + 0.7 * draw[2])
    return state._replace(units=units._replace(x=x, y=y, health=hurt, cooldown=20 * draw[3]))


def swapped(duel: Duel, units):
    """The same battle with the sides exchanged, (N, 1) each."""
    return from_the_other_side(units, duel_order(duel), duel.flip)


def duel_order(duel: Duel):
    """(N, 1): for each unit its counterpart, the unit of the same type and rank on the other side."""
    world = duel.ours._world
    kinds, ours = np.array(world.kinds), np.arange(world.n) < world.allies
    order = np.zeros(world.n, np.int32)
    for kind in set(kinds):
        order[ours & (kinds == kind)] = np.flatnonzero(~ours & (kinds == kind))
        order[~ours & (kinds == kind)] = np.flatnonzero(ours & (kinds == kind))
    return jnp.array(order)[:, None]


def one_loop(duel: Duel):
    """A battle's units after one loop: from them and the actions of both sides, each as allies of theirs."""
    world, observer = duel.ours._world, duel.ours.observer
    params, order, flip = world.params(None), duel_order(duel), duel.flip

    def played(units, mine, yours):
        first = ally_orders(observer, params, units, mine)
        second = ally_orders(observer, params, swapped(duel, units), yours)
        second = second._replace(
            aim=jnp.where(second.aim < 0, -1, order[jnp.maximum(second.aim, 0), 0]),
            goal_x=32 - second.goal_x if flip[0] else second.goal_x,
            goal_y=32 - second.goal_y if flip[1] else second.goal_y,
        )
        slots = order[world.allies :, 0]  # where the exchanged battle has each enemy
        orders = jax.tree.map(lambda a, b: jnp.concatenate([a, b[slots]]), first, second)
        # One loop: units in a crowd push each other, and rounding grows from loop to loop.
        return combat.advance(world, params, units, orders, jnp.zeros((world.n, 1)), loops=1)

    return played


@pytest.mark.parametrize("name", [*BATTLES, "8m", "3s5z", "25m"])
def test_exchanging_the_sides_exchanges_everything(name):
    duel = duel_of(name)
    world, played = duel.ours._world, jax.jit(one_loop(duel))
    for seed in range(8):
        key = jax.random.key(seed)
        units = jax.tree.map(lambda x: x[..., None], close_quarters(duel, key).units)
        targets = jax.random.randint(key, (world.n, 1), 0, world.allies)
        told = duel.ours.observer.first_target + targets
        ours, theirs = told[: world.allies], told[world.allies :]
        one = swapped(duel, played(units, ours, theirs))
        two = played(swapped(duel, units), theirs, ours)
        for field, a, b in zip(one._fields, one, two, strict=True):
            if a is not None:
                np.testing.assert_allclose(a, b, atol=2e-4, err_msg=f"{field}, seed {seed}")


@pytest.mark.parametrize("name", [*BATTLES, "v2_terran_5_vs_5"])
def test_the_other_side_sees_what_an_ally_in_its_place_would_see(name):
    """The view of the enemies is that of allies in the battle with exchanged sides, entry for entry."""
    duel = duel_of(name)
    state, steps = jax.jit(duel.reset)(jax.random.key(3))
    mine, yours = duel.spec("allies"), duel.spec("enemies")
    assert mine.obs_features == yours.obs_features
    assert mine.state_features == yours.state_features
    assert mine.action_counts == yours.action_counts
    names = yours.obs_features[0]
    seen = np.asarray(steps["enemies"].observation.obs)
    # Of each foe the distance and direction, as the enemy's unit sees it on the reflected map.
    order = np.asarray(state.memory.order)
    place = np.stack([np.asarray(state.units.x), np.asarray(state.units.y)], -1)[order]
    for axis, flipped in enumerate(duel.flip):
        place[:, axis] = 32 - place[:, axis] if flipped else place[:, axis]
    count = yours.n_agents
    for me in range(count):
        for j in range(mine.n_agents):
            dx, dy = place[count + j] - place[me]
            if np.hypot(dx, dy) < 6 and not name.startswith("v2"):  # whose types see unlike far
                assert seen[me, names.index(f"enemy {j}: dx")] * 9 == pytest.approx(dx, abs=1e-4)
                assert seen[me, names.index(f"enemy {j}: dy")] * 9 == pytest.approx(dy, abs=1e-4)
    if not name.startswith("v2"):
        # By type, then from their own west, as allies are.
        kinds = np.array(duel.ours._world.kinds)[order][:count]
        assert (np.diff(kinds) >= 0).all()
        for kind in set(kinds):
            assert (np.diff(place[:count][kinds == kind, 0]) >= 0).all()


def scripts_fight(duel: Duel, battles: int, steps: int, seed: int = 0):
    """SMAC's scripted team on both sides: who has won each battle, (B,) twice."""
    specs = {side: duel.spec(side) for side in duel.sides}

    def play(key):
        state, seen = jax.vmap(duel.reset)(jax.random.split(key, battles))
        memory = {side: spec.script.memory(battles) for side, spec in specs.items()}

        def step(carry, key):
            state, seen, memory, first, over, won = carry
            acts = {s: specs[s].script.act(seen[s].observation, first, memory[s]) for s in specs}
            state, seen = jax.vmap(duel.step)(
                jax.random.split(key, battles), state, {s: a for s, (a, _) in acts.items()}
            )
            won = {s: won[s] | (seen[s].info["won"] & ~over) for s in specs}
            over = over | seen["allies"].terminated
            memory = {s: m for s, (_, m) in acts.items()}
            return (state, seen, memory, jnp.zeros(battles, bool), over, won), None

        none = jnp.zeros(battles, bool)
        carry = (state, seen, memory, ~none, none, dict.fromkeys(specs, none))
        return jax.lax.scan(step, carry, jax.random.split(key, steps))[0][-1]

    won = jax.jit(play)(jax.random.key(seed))
    return np.asarray(won["allies"]), np.asarray(won["enemies"])


@pytest.mark.parametrize("name", ["3m", "2s3z"])
def test_the_same_team_on_both_sides_wins_half(name):
    ours, theirs = scripts_fight(duel_of(name), 1024, 90)
    assert not (ours & theirs).any()
    wins, losses = ours.sum(), theirs.sum()
    assert wins + losses > 900
    spread = np.sqrt(wins + losses)  # of the difference, if each is a coin
    assert abs(int(wins) - int(losses)) < 3 * spread


@pytest.mark.parametrize(
    "name", ["corridor", "2s_vs_1sc", "3s5z_vs_3s6z", "so_many_baneling", "v2_zerg_10_vs_11"]
)
def test_unlike_sides_keep_the_contract(name):
    duel = duel_of(name)

    def play(key):
        state, steps = duel.reset(key)

        def step(carry, key):
            state, steps = carry
            acts = {
                side: jax.random.categorical(
                    jax.random.fold_in(key, i), jnp.where(steps[side].observation.avail, 0.0, -1e9)
                )
                for i, side in enumerate(duel.sides)
            }
            state, steps = duel.step(key, state, acts)
            checks = [
                jnp.isfinite(leaf).all()
                for side in duel.sides
                for leaf in (steps[side].observation.obs, steps[side].observation.state, steps[side].reward)
            ]
            for side in duel.sides:
                seen = steps[side].observation
                checks.append(seen.avail.any(-1).all())  # the dead have their no-op
                checks.append(jnp.abs(seen.obs).max() < 50)
                checks.append((seen.avail[:, 0] == ~seen.alive).all())
            return (state, steps), jnp.stack(checks)

        return jax.lax.scan(step, (state, steps), jax.random.split(key, 60))[1]

    assert np.asarray(jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(1), 16))).all()


def test_one_side_of_a_battle_is_the_battle():
    battle = registry.make_env("battle/3m", {})
    assert OneSide(sides_of(battle), "allies").spec == sides_of(battle).ours.spec  # type: ignore[attr-defined]
    assert OneSide(sides_of(battle), "allies").spec.obs_features == battle.spec.obs_features


def test_teams_of_a_particle_world_are_sides():
    tag = registry.make_env("mpe/simple_tag", {})
    sides = sides_of(tag)
    state, steps = sides.reset(jax.random.key(0))
    _, whole = tag.reset(jax.random.key(0))
    prey = steps["good"]
    assert sides.spec("good").n_agents == 1
    assert prey.observation.obs.shape == (1, sides.spec("good").obs_size)
    np.testing.assert_array_equal(
        prey.observation.obs[0], whole.observation.obs[3, : prey.observation.obs.shape[1]]
    )
    acts = {side: jnp.arange(sides.spec(side).n_agents, dtype=jnp.int32) + 1 for side in sides.sides}
    _, parted = sides.step(jax.random.key(1), state, acts)
    _, joint = tag.step(jax.random.key(1), state, jnp.array([1, 2, 3, 1], jnp.int32))
    np.testing.assert_array_equal(parted["adversary"].reward, joint.reward[:3])
    np.testing.assert_array_equal(parted["good"].reward, joint.reward[3:])


def test_a_world_without_sides_is_refused_in_one_line():
    with pytest.raises(PhalanxError, match="switch/2 has no other side"):
        sides_of(registry.make_env("switch/2", {}))
    with pytest.raises(PhalanxError, match="conic_view"):
        sides_of(registry.make_env("battle/v2_terran_5_vs_5", {"conic_view": True}))

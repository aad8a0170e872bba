"""Battles with two commanded sides: exchanging the sides exchanges everything, and nothing breaks."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import LONG
from test_battle_env import faults

from phalanx import registry
from phalanx.envs.battle.duel import ALLIES, ENEMIES, Duel
from phalanx.envs.battle.env import BattleState
from phalanx.envs.battle.layout import FIRST_TARGET, NORTH, STOP, WEST
from phalanx.envs.battle.scenarios import RACES, SCENARIOS, V2_TEAMS
from phalanx.envs.battle.terrain import SIZE
from phalanx.envs.battle.v2 import BattleV2
from phalanx.envs.sides import OneSide, facing, told
from phalanx.envs.wrappers import WithState, prepare

SYMMETRIC = ["3m", "8m", "25m", "MMM", "2s3z", "3s5z", "1c3s5z", "bane_vs_bane"]
UNLIKE = [name for name in SCENARIOS if name not in SYMMETRIC]
UNLIKE_V2 = [f"v2_{race}_{a}_vs_{e}" for race in RACES for a, e in V2_TEAMS if a != e]
BATTLES, STEPS = 16, 6


def duel_of(name: str, **options: Any) -> Duel:
    return Duel(registry.make_env(f"battle/{name}", options))


def with_random_starts(name: str, starts: int = 512) -> Duel:
    return duel_of(name, **({} if name.startswith("v2_") else {"starts": starts}))


def test_the_symmetric_maps_are_those_whose_sides_have_the_same_units():
    def units(text: str) -> list[str]:
        return [part.split(" @")[0] for part in text.split(" + ")]

    assert [name for name, s in SCENARIOS.items() if units(s.allies) == units(s.enemies)] == SYMMETRIC


@pytest.mark.parametrize(
    ("name", "flip"),
    [("3m", (True, False)), ("bane_vs_bane", (False, True)), ("corridor", (False, False))],
)
def test_the_map_is_reflected_along_the_way_between_the_sides(name, flip):
    assert duel_of(name).flip == flip


# Exchanging the sides


def other_way_round(duel: Duel, monkeypatch: pytest.MonkeyPatch) -> Duel:
    """The battle in which each side has the other's units, on the same ground."""
    battle = duel.ours
    if isinstance(battle, BattleV2):
        return Duel(replace(battle, allies=battle.enemies, enemies=battle.allies, opponent=None))
    if battle.scenario in SYMMETRIC:
        return duel
    given = SCENARIOS[battle.scenario]
    monkeypatch.setitem(SCENARIOS, "exchanged", replace(given, allies=given.enemies, enemies=given.allies))
    return Duel(replace(battle, scenario="exchanged", opponent=None))


def begun(duel: Duel, battles: int) -> BattleState:
    """Battles at their start, (B, ...), in double precision."""
    state = jax.jit(jax.vmap(duel.reset))(jax.random.split(jax.random.key(0), battles))[0]
    return jax.tree.map(lambda x: np.array(x, np.float64 if x.dtype == np.float32 else None), state)


def close_quarters(duel: Duel, rng: np.random.Generator, battles: int = BATTLES) -> BattleState:
    """Battles that have come to blows: all units among each other, hurt, some dead, weapons not ready.

    The first battles have much health left, and the last hardly any units, so that they end.
    """
    state = begun(duel, battles)
    units, shape = state.units, state.units.x.shape
    cells = np.argwhere(duel.ours._world.terrain.walkable)
    middle = np.array([units.x[0].mean(), units.y[0].mean()])
    near = cells[np.argsort(np.hypot(*(cells + 0.5 - middle).T))[: max(16, 2 * shape[1])]]
    places = np.stack([rng.permutation(near)[: shape[1]] for _ in range(battles)])
    x, y = np.moveaxis(places + rng.uniform(0.01, 0.99, places.shape), -1, 0)
    left = rng.uniform(0, 1, shape) ** np.linspace(0.5, 8, battles)[:, None]
    dead = np.where(np.arange(battles) < 0.75 * battles, 0.1, 1 - 3 / shape[1])[:, None]
    health = np.where(rng.uniform(size=shape) < dead, 0.0, units.health * left)
    shield = None if units.shield is None else units.shield * rng.uniform(0, 1, shape) * left
    cooldown = rng.uniform(0, 20, shape)
    return state._replace(units=units._replace(x=x, y=y, health=health, shield=shield, cooldown=cooldown))


def exchanged(duel: Duel, state: BattleState) -> BattleState:
    """The same moment (B, ...) with the sides exchanged: unit k is the one that the enemies number k."""
    units, order = state.units, state.memory.order
    number = np.argsort(order, axis=1)
    flip_x, flip_y = duel.flip

    def taken(values):
        return np.take_along_axis(values, order, axis=1)

    def renamed(index):
        return np.where(index < 0, index, np.take_along_axis(number, np.maximum(index, 0), axis=1))

    new = {field: values for field, values in units._asdict().items() if values is not None}
    new |= {field: renamed(new[field]) for field in ("aim", "flight_at") if field in new}
    new["x"] = SIZE - units.x if flip_x else units.x
    new["y"] = SIZE - units.y if flip_y else units.y
    # In a mirror who turns left turns right.
    new["blocked"] = -units.blocked if flip_x != flip_y else units.blocked
    beam = new.pop("beam", None)
    new = {field: taken(values) for field, values in new.items()}
    if beam is not None:
        x, y, dx, dy = (taken(beam[:, k]) for k in range(4))
        x, dx = (SIZE - x, -dx) if flip_x else (x, dx)
        y, dy = (SIZE - y, -dy) if flip_y else (y, dy)
        new["beam"] = np.stack([x, y, dx, dy], axis=1)
    return state._replace(
        units=units._replace(**new),
        kinds=None if state.kinds is None else taken(state.kinds),
        memory=state.memory._replace(actions=state.last_action, order=number),
        last_action=state.memory.actions,
    )


def assert_alike(one: Any, other: Any, what: str) -> None:
    """Numbers are equal up to rounding; masks, indices and ends are equal."""
    leaves, tree = jax.tree.flatten_with_path(one)
    assert tree == jax.tree.structure(other)
    for (path, a), b in zip(leaves, jax.tree.leaves(other), strict=True):
        where = f"{what}{jax.tree_util.keystr(path)}"
        if np.issubdtype(a.dtype, np.floating):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-9, err_msg=where)
        else:
            np.testing.assert_array_equal(a, b, err_msg=where)


def chosen(avail: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Available actions, (B, A), at random; targets are preferred to moves and stops."""
    weight = np.where(np.arange(avail.shape[-1]) >= FIRST_TARGET, 3.0, 1.0)
    drawn = rng.uniform(size=avail.shape) ** (1 / weight)
    return np.argmax(np.where(avail, drawn, -1), axis=-1).astype(np.int32)


def what_happened(duel: Duel, before: BattleState, after: BattleState, acts, seen) -> dict[str, int]:
    """Counts of what a test of two sides must have met, over both sides."""
    heals = np.isin(duel.ours.spec.agent_types, ["medivac"])
    both, told_ours = np.concatenate(list(acts.values()), axis=1), acts[ALLIES]
    return {
        "stops": (both == STOP).sum(),
        "moves": ((both >= NORTH) & (both <= WEST)).sum(),
        "attacks": (both >= FIRST_TARGET).sum(),
        "shots": after.units.fired.sum(),
        "wounds": (after.units.health < before.units.health).sum(),
        "deaths": ((after.units.health <= 0) & (before.units.health > 0)).sum(),
        "heals": ((told_ours >= FIRST_TARGET) & heals).sum() if heals.any() else 1,
        "foes seen": (np.asarray(seen[ENEMIES].observation.avail)[..., FIRST_TARGET:]).sum(),
        "rewards of the enemies": (seen[ENEMIES].reward > 0).sum(),
        "ends": seen[ENEMIES].terminated.sum(),
    }


SOME_UNLIKE = ["MMM2", "3s_vs_5z", "2m_vs_1z", "corridor", "v2_terran_5_vs_5", "v2_zerg_10_vs_11"]
ALL_UNLIKE = [*UNLIKE, "v2_terran_5_vs_5", "v2_protoss_5_vs_5", "v2_zerg_5_vs_5", *UNLIKE_V2]


@pytest.mark.parametrize("name", [*SYMMETRIC, *(ALL_UNLIKE if LONG else SOME_UNLIKE)])
def test_exchanging_the_sides_exchanges_everything(name, monkeypatch):
    """Two battles, the second being the first with its sides exchanged, are played side by side.

    Whatever one side is given in the first, the other is given in the second: observations, masks, state,
    rewards, ends; and all units do the same. On a map with unlike teams the second has the teams exchanged.

    They are not equal to the bit. 32 - x is rounded: floats near the west are finer than near the east. And
    the pushes of several units upon one are added in another order. In double precision this makes less than
    1e-9 in six steps (3e-11 was the most; crowds make ten times more of it in a step), while a rule that
    knows the sides, or left from right, makes far more.
    """
    rng, happened = np.random.default_rng(7), {}
    with jax.enable_x64(True):
        duel = duel_of(name)
        other = other_way_round(duel, monkeypatch)
        one = close_quarters(duel, rng)
        two, seen = exchanged(duel, one), None
        # A step is given its random numbers in place of its key: they are each unit's own.
        monkeypatch.setattr(jax.random, "uniform", lambda noise, _: noise)
        step = jax.jit(jax.vmap(duel.step))
        step_other = step if other is duel else jax.jit(jax.vmap(other.step))
        for t in range(STEPS):
            noise, before = rng.uniform(size=one.units.x.shape), one
            acts = {
                side: np.full((BATTLES, duel.spec(side).n_agents), STOP, np.int32)
                if seen is None
                else chosen(seen[side].observation.avail, rng)
                for side in duel.sides
            }
            swapped = {ALLIES: acts[ENEMIES], ENEMIES: acts[ALLIES]}
            one, seen = jax.device_get(step(padded(noise, duel), one, acts))
            noise = np.take_along_axis(noise, one.memory.order, axis=1)
            two, mirrored = jax.device_get(step_other(padded(noise, other), two, swapped))
            assert_alike(seen[ENEMIES], mirrored[ALLIES], f"step {t}, enemies")
            assert_alike(seen[ALLIES], mirrored[ENEMIES], f"step {t}, allies")
            assert_alike(exchanged(duel, one), two, f"step {t}")
            for what, count in what_happened(duel, before, one, acts, seen).items():
                happened[what] = happened.get(what, 0) + int(count)
    assert all(happened.values()), happened


def padded(noise: np.ndarray, duel: Duel) -> np.ndarray:
    """The random numbers of the units (B, N), and those that SMACv2's agents draw and do not use here."""
    return np.pad(noise, [(0, 0), (0, duel.ours._noise - noise.shape[1])])


@pytest.mark.parametrize("name", ["3m", "MMM", "bane_vs_bane", "1c3s5z"])
def test_enemies_number_themselves_as_allies_do(name):
    """By type, then from their own west, then from the south; and they start in the west as allies do."""
    duel = with_random_starts(name)
    state = jax.device_get(jax.jit(jax.vmap(duel.reset))(jax.random.split(jax.random.key(1), 64))[0])
    for units in (state.units, exchanged(duel, state).units):
        kinds = np.array(duel.ours._world.kinds)[: duel.ours._world.allies]
        assert (np.diff(kinds) >= 0).all()
        for kind in set(kinds):
            x, y = (each[:, : len(kinds)][:, kinds == kind] for each in (units.x, units.y))
            assert ((np.diff(x) > 0) | ((np.diff(x) == 0) & (np.diff(y) > 0))).all()


@pytest.mark.parametrize(("name", "medics"), [("3m", 0), ("MMM", 0), ("MMM", 1), ("v2_terran_5_vs_5", 0)])
def test_sides_that_fall_together_draw(name, medics):
    """The last marines kill each other. In SMAC the allies of MMM then lose; here neither side does."""
    duel = duel_of(name)
    state, _ = duel.reset(jax.random.key(0))
    world, units, order = duel.ours._world, state.units, np.asarray(state.memory.order)
    kinds = np.zeros(world.n, np.int32) if state.kinds is not None else np.array(world.kinds)
    names = np.array([world.types[kind].name for kind in kinds])
    ours, theirs = (int(np.flatnonzero(names[side] == "marine")[0]) + side.start for side in world.sides)
    alive = np.isin(np.arange(world.n), [ours, theirs]) | (names == "medivac") & bool(medics)
    state = state._replace(
        kinds=None if state.kinds is None else jnp.asarray(kinds),
        units=units._replace(
            health=jnp.where(alive, 1.0, 0.0),
            x=units.x.at[ours].set(14.0).at[theirs].set(17.0),
            y=units.y.at[ours].set(16.0).at[theirs].set(16.0),
        ),
    )
    number = np.argsort(order)
    acts = {side: jnp.full(duel.spec(side).n_agents, STOP) for side in duel.sides}
    acts[ALLIES] = acts[ALLIES].at[ours].set(FIRST_TARGET + theirs - world.allies)
    acts[ENEMIES] = acts[ENEMIES].at[number[theirs]].set(FIRST_TARGET + number[ours] - world.enemies)
    after, steps = jax.jit(duel.step)(jax.random.key(1), state, acts)
    assert (np.asarray(after.units.health)[[ours, theirs]] == 0).all()
    for side in duel.sides:
        assert bool(steps[side].terminated)
        assert not steps[side].info["won"]
        assert not steps[side].info["lost"]
    assert steps[ALLIES].reward[0] == steps[ENEMIES].reward[0] > 0


# Who wins


def fought(duel: Duel, act, memory, battles: int, begin=None) -> tuple[np.ndarray, np.ndarray]:
    """Which battles the allies and the enemies have won, (B,) each; they begin as given, or as the map says.

    Both sides play by `act(side, observation, first, memory, key) -> actions, memory`.
    """

    def play(key):
        state, seen = jax.vmap(duel.reset)(jax.random.split(key, battles))
        state = state if begin is None else jax.tree.map(jnp.asarray, begin)

        def step(carry, key):
            state, seen, memory, first, over, won = carry
            keys = jax.random.split(key, 3)
            acts = {
                side: act(side, seen[side].observation, first, memory[side], key)
                for side, key in zip(duel.sides, keys[:2], strict=True)
            }
            state, seen = jax.vmap(duel.step)(
                jax.random.split(keys[2], battles), state, {side: each for side, (each, _) in acts.items()}
            )
            won = {side: won[side] | (seen[side].info["won"] & ~over) for side in duel.sides}
            over = over | seen[ALLIES].terminated
            memory = {side: each for side, (_, each) in acts.items()}
            return (state, seen, memory, jnp.zeros(battles, bool), over, won), None

        none = jnp.zeros(battles, bool)
        carry = (state, seen, memory, ~none, none, dict.fromkeys(duel.sides, none))
        return jax.lax.scan(step, carry, jax.random.split(key, duel.ours.time_limit))[0][-1]

    won = jax.jit(play)(jax.random.key(0))
    return np.asarray(won[ALLIES]), np.asarray(won[ENEMIES])


def assert_even(ours: np.ndarray, theirs: np.ndarray, decided: float) -> None:
    """One half lies within three standard errors of the share of wins in decided games, which are enough."""
    assert not (ours & theirs).any()
    wins, losses = int(ours.sum()), int(theirs.sum())
    assert wins + losses > decided * len(ours), (wins, losses)
    assert abs(wins - losses) < 3 * np.sqrt(wins + losses), (wins, losses)


@pytest.mark.parametrize("name", ["3m", "2s3z"])
def test_the_same_script_on_both_sides_wins_half(name):
    battles = 1024
    duel = with_random_starts(name, 16 * battles)  # games from one start would often end alike
    scripts = {side: duel.spec(side).script for side in duel.sides}

    def act(side, observation, first, memory, key):
        return scripts[side].act(observation, first, memory)

    memory = {side: script.memory(battles) for side, script in scripts.items()}
    assert_even(*fought(duel, act, memory, battles), decided=0.9)


def at_random(avail: jax.Array, key: jax.Array) -> jax.Array:
    """Available actions, (..., A)."""
    return jax.random.categorical(key, jnp.where(avail, 0.0, -jnp.inf)).astype(jnp.int32)


@pytest.mark.parametrize("name", SYMMETRIC if LONG else ["3m", "2s3z", "bane_vs_bane"])
def test_random_teams_win_half(name):
    """From close quarters, with both sides placed alike: from a map's starts they hardly ever meet."""

    def act(side, observation, first, memory, key):
        return at_random(observation.avail, key), memory

    duel, battles = duel_of(name), 2048 if LONG else 512
    begin = close_quarters(duel, np.random.default_rng(0), battles)
    assert_even(*fought(duel, act, dict.fromkeys(duel.sides, ()), battles, begin), decided=0.5)


# Whatever is played


SOME = ["corridor", "2s_vs_1sc", "3s5z_vs_3s6z", "so_many_baneling", "v2_zerg_10_vs_11"]


@pytest.mark.parametrize("name", [*UNLIKE, *UNLIKE_V2] if LONG else SOME)
def test_what_always_holds_holds_for_both_sides(name):
    """Two teams that act at random or by a script, with auto-reset: the invariants, as either side sees them.

    The script leads them to each other; at random alone they would hardly meet.
    """
    duel = with_random_starts(name)
    env, world, limit = (
        prepare(WithState(OneSide(duel, ALLIES, tells=True))),
        duel.ours._world,
        duel.ours.time_limit,
    )
    envs, total = (256, 100_000) if LONG else (16, 3_200)
    scripts = {side: duel.spec(side).script for side in duel.sides}

    def act(side, observation, first, memory, key):
        """By the script half of the time."""
        which, draw = jax.random.split(key)
        planned, memory = scripts[side].act(observation, first, memory)
        scripted = jax.random.bernoulli(which, shape=planned.shape[:1])[:, None]
        return jnp.where(scripted, planned, at_random(observation.avail, draw)), memory

    def check(was, timestep):
        """(F,) of one environment before and after a step, and before its reset."""
        after = timestep.info["state"].world
        sides = (timestep, timestep.info["others"][ENEMIES])
        found = [faults(world, after, each, was.units.health > 0) for each in sides]
        return jnp.concatenate([*found, jnp.array([after.steps != was.steps + 1, after.steps > limit])])

    def step(carry, key):
        (running, memory), keys = carry, jax.random.split(key, 3)
        was, first = facing(running), running.first
        seen = {ALLIES: running.observation, ENEMIES: was.seen[ENEMIES]}
        acts = {
            side: act(side, seen[side], first, memory[side], key)
            for side, key in zip(duel.sides, keys[:2], strict=True)
        }
        action, memory = acts[ALLIES][0], {side: each for side, (_, each) in acts.items()}
        running = told(running, ENEMIES, acts[ENEMIES][0])
        running, timestep = jax.vmap(env.step)(jax.random.split(keys[2], envs), running, action)
        over = timestep.terminated | timestep.truncated
        fresh = facing(running).world.units.health
        # A battle that is over begins anew with everybody alive.
        anew = jnp.where(over, (fresh > 0).all(1), True).all() & (running.first == over).all()
        bad = jax.vmap(check)(was.world, timestep).any(0)
        return (running, memory), (jnp.append(bad, ~anew), over.sum())

    running = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), envs))
    memory = {side: script.memory(envs) for side, script in scripts.items()}
    keys = jax.random.split(jax.random.key(1), -(-total // envs))
    _, (bad, over) = jax.jit(lambda carry: jax.lax.scan(step, carry, keys))((running, memory))
    assert not np.asarray(bad).any(), np.asarray(bad).any(0)
    assert over.sum() > 0

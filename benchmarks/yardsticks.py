"""How well battles can be fought without learning: what a trained team should reach at least.

    python benchmarks/yardsticks.py [MAP ...] [--teams focus plan] [--rollouts 4096] [--horizon 16]

Four teams, which see everything and keep to the action mask:

- `nearest`: each unit attacks the enemy nearest to it;
- `focus`: the weakest enemy in reach, where a cell to walk counts as much as `CELL` health;
- `kite`: the same, but units that shoot step back from those that do not while their weapon cools, and faster
  ones whenever they come close;
- `plan`: at each step `--rollouts` plans of `--horizon` steps are played in the simulator itself, and the
  first step of the best is taken. A plan says for each agent and step which of the other teams, or which
  action, it follows; plans are made by changing the best one of the step before, or a team's, here and there.

Prints a table, and writes the figures as JSON. A step of one battle costs `plan` `--rollouts` x `--horizon`
env steps: the defaults are small, for a CPU; a GPU takes thousands.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import phalanx
from phalanx.envs.battle.combat import LOOPS
from phalanx.envs.battle.env import RULES, Battle, BattleState
from phalanx.envs.battle.layout import DIRECTIONS, FIRST_TARGET, NO_OP, NORTH, STOP
from phalanx.envs.battle.world import Units
from phalanx.registry import make_env
from phalanx.types import Array

MAPS = ("6h_vs_8z", "3s5z_vs_3s6z", "3s_vs_5z", "corridor", "2s_vs_1sc")
CELL = 20.0  # how much health a target may have more for each cell that it is nearer
SAFE = 2.5  # cells that who shoots keeps from who does not
LUNGE = 1.5  # cells from which who does not shoot may reach it in a step
CORNER = 0.003  # how much it minds being far from the middle of the map
MELEE = 2.0  # weapons that reach less far are for close combat
HOLD = 2  # steps for which a change of a plan lasts


class Sight(NamedTuple):
    """What the teams look at: one battle."""

    units: Units
    avail: Array
    """(A, U) bool"""
    dx: Array
    dy: Array
    """(A, E): from each ally to each enemy"""
    gap: Array
    """(A, E): from edge to edge; infinite to the dead"""
    vigour: Array
    """(N,): health and shield"""


Orders = Callable[[Battle, Sight], Array]
Decide = Callable[[Array, BattleState, Array, Array], tuple[Array, Array]]
"""From a key, a battle, its mask and a memory to actions and the next memory."""


def look(env: Battle, state: BattleState, avail: Array) -> Sight:
    """What the teams look at."""
    world, u = env.observer.world, state.units
    ours, theirs = world.sides
    radius = _constant(env, "radius")
    dx, dy = u.x[None, theirs] - u.x[ours, None], u.y[None, theirs] - u.y[ours, None]
    gap = jnp.hypot(dx, dy) - radius[ours, None] - radius[None, theirs]
    vigour = u.health if u.shield is None else u.health + u.shield
    return Sight(u, avail, dx, dy, jnp.where(u.health[theirs] > 0, gap, jnp.inf), vigour)


def _constant(env: Battle, name: str) -> np.ndarray:
    """(N,): a figure of all units."""
    world = env.observer.world
    return np.broadcast_to(getattr(world.params(None), name), (world.n, 1))[:, 0]


def _attack(sight: Sight, target: Array) -> Array:
    """(A,): attack the targets (A,), or go where the mask allows it."""
    agent = jnp.arange(len(target))
    way = sight.dx[agent, target, None] * DIRECTIONS[:, 0] + sight.dy[agent, target, None] * DIRECTIONS[:, 1]
    way = jnp.where(sight.avail[:, NORTH:FIRST_TARGET], way, -jnp.inf)
    walk = jnp.where(way.max(1) > 0, NORTH + way.argmax(1), STOP)
    action = jnp.where(sight.avail[agent, FIRST_TARGET + target], FIRST_TARGET + target, walk)
    return jnp.where(sight.avail[:, STOP], action, NO_OP)


def nearest(env: Battle, sight: Sight) -> Array:
    """Attack the nearest enemy."""
    return _attack(sight, sight.gap.argmin(1))


def focus(env: Battle, sight: Sight) -> Array:
    """Attack the weakest enemy that is not far."""
    ours, theirs = env.observer.world.sides
    walk = jnp.maximum(sight.gap - _constant(env, "range")[ours, None], 0)
    return _attack(sight, (sight.vigour[None, theirs] + CELL * walk).argmin(1))


def kite(env: Battle, sight: Sight) -> Array:
    """Attack when the weapon is ready, and else keep away from those who fight hand to hand."""
    world, u = env.observer.world, sight.units
    ours, theirs = world.sides
    reach, speed = _constant(env, "range"), _constant(env, "speed")
    melee = reach[None, theirs] < MELEE
    close = jnp.where(melee, sight.gap, jnp.inf)
    faster = speed[ours] > np.where(melee[0], speed[theirs], 0).max()
    cools = u.cooldown[ours] > LOOPS / 2
    flees = (reach[ours] >= MELEE) & (cools & (close.min(1) < SAFE) | faster & (close.min(1) < LUNGE))
    # Of the places to go to and this one, where the enemies press least, and not into a corner.
    steps = np.concatenate([np.zeros((1, 2)), DIRECTIONS]).astype(np.float32)
    away = (sight.dx[..., None] - steps[:, 0]) ** 2 + (sight.dy[..., None] - steps[:, 1]) ** 2
    press = jnp.where(jnp.isfinite(close)[..., None], 1 / (away + 0.1), 0).sum(1)
    middle = np.argwhere(world.terrain.walkable).mean(0) + 0.5
    x, y = u.x[ours, None] + steps[:, 0] - middle[0], u.y[ours, None] + steps[:, 1] - middle[1]
    press = jnp.where(sight.avail[:, STOP:FIRST_TARGET], press + CORNER * (x * x + y * y), jnp.inf)
    flight = jnp.where(sight.avail[:, STOP], STOP + press.argmin(1), NO_OP)
    return jnp.where(flees, flight, focus(env, sight))


TEAMS: dict[str, Orders] = {"nearest": nearest, "focus": focus, "kite": kite}


# Planning


def follow(env: Battle, sight: Sight, part: Array) -> Array:
    """(A,): the actions that one step of a plan, (A,) int32, comes to: a team's, or it if allowed."""
    said = jnp.stack([team(env, sight) for team in TEAMS.values()])
    agent = jnp.arange(len(part))
    own = jnp.maximum(part - len(TEAMS), 0)
    teams = said[part.clip(0, len(TEAMS) - 1), agent]
    return jnp.where((part >= len(TEAMS)) & sight.avail[agent, own], own, teams)


def plans(env: Battle, key: Array, best: Array, count: int) -> Array:
    """(count, H, A) int32: the teams, and changed copies of them and of the best plan so far, (H, A)."""
    horizon, agents = best.shape
    keys = jax.random.split(key, 5)
    pure = jnp.arange(count) % len(TEAMS)
    base = jnp.where(jax.random.bernoulli(keys[0], 0.5, (count, 1, 1)), best, pure[:, None, None])
    rate = jax.random.uniform(keys[1], (count, 1, 1), maxval=0.5) ** 2
    parts = (count, -(-horizon // HOLD), agents)
    changes = jnp.repeat(jax.random.bernoulli(keys[2], rate, parts), HOLD, axis=1)[:, :horizon]
    kinds = jax.random.randint(keys[3], parts, 0, len(TEAMS) + env.observer.n_actions)
    moves = jax.random.randint(keys[4], parts, 0, len(TEAMS) + FIRST_TARGET)
    new = jnp.repeat(jnp.where(kinds % 2 == 0, kinds, moves), HOLD, axis=1)[:, :horizon]
    first = (jnp.arange(count) < len(TEAMS))[:, None, None]
    return jnp.where(first, pure[:, None, None], jnp.where(changes, new, base)).astype(jnp.int32)


def worth(env: Battle, state: BattleState, won: Array, lost: Array) -> Array:
    """How a battle stands: what is left of both sides, units and their health and shields."""
    most = env.observer.world.params(None)
    whole = np.broadcast_to(most.health + most.shield, (env.observer.world.n, 1))[:, 0]
    u = state.units
    left = u.health if u.shield is None else u.health + u.shield
    ours, theirs = ((left[side].sum() / whole[side].sum()) for side in env.observer.world.sides)
    alive, foes = ((u.health[side] > 0).mean() for side in env.observer.world.sides)
    return ours - theirs + 0.5 * (alive - foes) + 2.0 * won - 2.0 * lost


def value(env: Battle, key: Array, state: BattleState, avail: Array, plan: Array) -> Array:
    """What a plan (H, A) leads to when it is played once."""

    def step(carried, now):
        state, avail, over, won = carried
        key, part = now
        new, told = env.step(key, state, follow(env, look(env, state, avail), part))
        state, avail = jax.tree.map(
            lambda o, n: jnp.where(over, o, n), (state, avail), (new, told.observation.avail)
        )
        won = won | (~over & told.info["won"])
        return (state, avail, over | told.terminated, won), None

    start = (state, avail, jnp.bool_(False), jnp.bool_(False))
    keys = jax.random.split(key, len(plan))
    (state, _, over, won), _ = jax.lax.scan(step, start, (keys, plan))
    return worth(env, state, won, over & ~won)


def scripted(env: Battle, team: Orders) -> tuple[Decide, Array]:
    """One of the other teams, and a memory that it has no use for."""
    return lambda _, state, avail, memory: (team(env, look(env, state, avail)), memory), jnp.zeros(())


def planned(env: Battle, rollouts: int, horizon: int) -> tuple[Decide, Array]:
    """The team that plans, and its first plan, which is its memory."""

    def decide(key: Array, state: BattleState, avail: Array, best: Array) -> tuple[Array, Array]:
        draw, noise = jax.random.split(key)
        tried = plans(env, draw, best, rollouts)
        keys = jax.random.split(noise, rollouts)
        values = jax.vmap(lambda k, plan: value(env, k, state, avail, plan))(keys, tried)
        chosen = tried[values.argmax()]
        actions = follow(env, look(env, state, avail), chosen[0])
        return actions, jnp.concatenate([chosen[1:], chosen[-1:]])

    return decide, jnp.zeros((horizon, env.observer.world.allies), jnp.int32)


# Playing


def battles(env: Battle, decide: Decide, memory: Array, episodes: int, seed: int = 0) -> dict[str, float]:
    """Play them all at once, until the last one is over or out of time."""

    def step(key, carried):
        state, avail, memory, over, won, steps, total = carried
        think, act = jax.random.split(key)
        actions, memory = decide(think, state, avail, memory)
        new, told = env.step(act, state, actions)
        state, avail = jax.tree.map(
            lambda o, n: jnp.where(over, o, n), (state, avail), (new, told.observation.avail)
        )
        won, total = won | ~over & told.info["won"], total + ~over * told.reward[0]
        return state, avail, memory, over | told.terminated, won, steps + ~over, total

    def begin(key):
        state, told = env.reset(key)
        none = jnp.bool_(False)
        return state, told.observation.avail, memory, none, none, jnp.int32(0), jnp.float32(0)

    root = jax.random.key(seed)
    carried = jax.vmap(begin)(jax.random.split(root, episodes))
    advance = jax.jit(jax.vmap(step), donate_argnums=1)
    for t in range(env.time_limit):
        carried = advance(jax.random.split(jax.random.fold_in(root, t), episodes), carried)
        if carried[3].all():
            break
    *_, won, steps, total = carried
    return {"wins": float(won.mean()), "steps": float(steps.mean()), "return": float(total.mean())}


def measure(name: str, team: str, args: argparse.Namespace) -> dict[str, float]:
    """A team's figures on a map."""
    env = make_env(f"battle/{name}", {})
    assert isinstance(env, Battle)
    if env.observer.world.can.heal or env.observer.world.drawn:
        raise SystemExit(f"{name}: these teams know neither medivacs nor units that are drawn")
    plays = planned(env, args.rollouts, args.horizon) if team == "plan" else scripted(env, TEAMS[team])
    started = time.perf_counter()
    figures = battles(env, *plays, args.episodes)
    return figures | {"seconds": round(time.perf_counter() - started, 1)}


def main() -> None:
    """Measure every team on every map."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("maps", nargs="*", default=MAPS, help=f"default: {' '.join(MAPS)}")
    parser.add_argument("--teams", nargs="+", choices=[*TEAMS, "plan"], default=[*TEAMS, "plan"])
    parser.add_argument("--rollouts", type=int, default=128)
    parser.add_argument("--horizon", type=int, default=12)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("results/yardsticks.json"))
    args = parser.parse_args()
    print("| battle | team | wins % | return | steps | seconds |\n|---|---|---|---|---|---|", flush=True)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name in args.maps:
        for team in args.teams:
            got = results.setdefault(name, {})[team] = measure(name, team, args)
            wins, steps = f"{100 * got['wins']:.1f}", f"{got['steps']:.0f}"
            print(
                f"| `{name}` | {team} | {wins} | {got['return']:.2f} | {steps} | {got['seconds']} |",
                flush=True,
            )
    settings = {key: getattr(args, key) for key in ("rollouts", "horizon", "episodes")}
    saved = settings | {
        "version": phalanx.__version__,
        "rules": RULES,
        "device": str(jax.devices()[0]),
        "battles": results,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(saved, indent=1) + "\n")


if __name__ == "__main__":
    main()

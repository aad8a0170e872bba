"""How often two scripted stalkers beat a spine crawler, by the seconds from one of its hits to the next.

    python benchmarks/crawler.py [--battles 256] [PERIOD ...]

The table behind "The spine crawler" in docs/battle.md: a team that stands and shoots, and one that takes
turns, which `tests/test_battle_env.py` plays, too. Both see everything.
"""

import argparse
from dataclasses import replace
from unittest import mock

import jax
import jax.numpy as jnp

from phalanx.envs.battle import units
from phalanx.envs.battle.layout import FIRST_TARGET, NO_OP, NORTH, SOUTH
from phalanx.envs.battle.sight import SHOOT
from phalanx.envs.battle.world import Units
from phalanx.registry import make_env

ONE_HIT = 29  # of a crawler, to health
STEPS = 100
PERIODS = [1.6, 1.7, 1.8, 1.9, 2.0, 2.1, 2.2, 2.3, 2.4]


def orders(u: Units, turns: bool) -> jax.Array:
    """What both stalkers do, (2,): who could not bear another hit leaves the crawler's reach."""
    away = jnp.hypot(u.x[:2] - u.x[2], u.y[:2] - u.y[2])
    left = (u.health + u.shield)[:2]
    leaves = turns & (left <= ONE_HIT) & (u.aim[2] == jnp.arange(2)) & (left[::-1] > ONE_HIT)
    action = jnp.where(leaves, SOUTH, jnp.where(away <= SHOOT, FIRST_TARGET, NORTH))
    return jnp.where(left > 0, action, NO_OP)


def battles(stats: str, turns: bool, count: int) -> tuple[jax.Array, ...]:
    """Whether each battle was won, the crawler's health at its end, steps and return, (count,) each."""
    env = make_env("battle/2s_vs_1sc", {"stats": stats})

    def play(key):
        def step(carried, key):
            state, over, won, steps, total = carried
            new, told = env.step(key, state, orders(state.units, turns))
            state = jax.tree.map(lambda o, n: jnp.where(over, o, n), state, new)
            won, total = won | ~over & told.info["won"], total + ~over * told.reward[0]
            return (state, over | told.terminated, won, steps + ~over, total), None

        start = (env.reset(key)[0], jnp.bool_(False), jnp.bool_(False), 0, 0.0)
        end, _ = jax.lax.scan(step, start, jax.random.split(jax.random.fold_in(key, 1), STEPS))
        return end[2], end[0].units.health[2], end[3], end[4]

    return jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), count))


def line(name: str, stats: str, turns: bool, count: int) -> str:
    """A row of the table."""
    won, left, steps, total = (each.mean() for each in battles(stats, turns, count))
    team = "takes turns" if turns else "stands"
    return f"| {name} | {team} | {100 * won:.0f} | {left:.0f} | {steps:.0f} | {total:.2f} |"


def main() -> None:
    """Print one line for each period and team."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("periods", nargs="*", type=float, default=PERIODS)
    parser.add_argument("--battles", type=int, default=256)
    args = parser.parse_args()
    print("| seconds a hit | team | wins % | health left | steps | return |\n|---|---|---|---|---|---|")
    for period in args.periods:
        crawler = replace(units.LIBERTY["spine_crawler"], period=period)
        with mock.patch.dict(units.LIBERTY, spine_crawler=crawler):  # until it is compiled
            for turns in (True, False):
                print(line(f"{period}", "liberty", turns, args.battles), flush=True)
    for turns in (True, False):
        print(line("1.848, `--env.stats lotv`", "lotv", turns, args.battles), flush=True)


if __name__ == "__main__":
    main()

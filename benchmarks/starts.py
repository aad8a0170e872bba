"""How much SMAC's scripted team depends on where the units stand at first.

    python benchmarks/starts.py [MAP ...] [--starts 64] [--battles 32]
    python benchmarks/starts.py --patterns [--battles 32]

Plays many battles from each of some random starts, which differ only by the weapons' random cooldowns, and
prints how the win rates of the starts are spread: the table of "The start" in docs/battle.md. `--patterns`
compares 48 rules for a map's own start: how the lattice is turned, in which order equally near spots are
taken, and whether the enemies stand in the same pattern, in one turned by half a circle, or in a mirrored
one. It prints how far each is from SMAC's figures on average, and its win rates.
"""

import argparse
from itertools import product
from typing import NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.envs.battle import spawn
from phalanx.envs.battle.env import Battle
from phalanx.envs.battle.units import unit_types

MAPS = ("3m", "10m_vs_11m", "2s3z", "3s5z", "1c3s5z", "bane_vs_bane", "corridor")
QUANTILES = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)
# Wins of SMAC's script in the game, in % (Samvelyan et al. 2019), on maps that show something.
GAME = {"2s3z": 90, "3s5z": 42, "1c3s5z": 81, "10m_vs_11m": 12, "bane_vs_bane": 43, "corridor": 0}
OWN = spawn.lattice


class Pattern(NamedTuple):
    """A rule for where units stand; the first of `PATTERNS` is that of the maps' own starts."""

    enemies: str
    """same, turned or mirrored"""
    turned: int
    """degrees by which the lattice is turned"""
    first: int
    """degrees from the east, counter-clockwise, where equally near spots begin"""
    direction: int
    """1: they are taken counter-clockwise, -1: clockwise"""


PATTERNS = [
    Pattern(*rule) for rule in product(("same", "turned", "mirrored"), (0, 30), (0, 90, 180, 270), (1, -1))
]


def lattice(pattern: Pattern, enemies: bool, reach: float) -> spawn.Lattice:
    """The spots of one side, in the order in which they are taken."""
    i, j, east, north = OWN(None, reach)
    angle = np.radians(pattern.turned)
    x, y = np.cos(angle) * east + np.sin(angle) * north, np.cos(angle) * north - np.sin(angle) * east
    after = pattern.direction * (np.degrees(np.arctan2(y, x)) - pattern.first)
    order = np.lexsort([np.round(after % 360, 3) % 360, np.round(np.hypot(x, y), 6)])
    if enemies and pattern.enemies != "same":
        x, y = -x, -y if pattern.enemies == "turned" else y
    return spawn.Lattice(i[order], j[order], x[order], y[order])


def patterned(battle: Battle) -> spawn.Starts:
    """A start by each of the rules. Each squad asks for a lattice, those of the allies first."""
    allies, enemies = (len(squads) for squads in battle._scenario.squads)
    made = []
    for pattern in PATTERNS:
        sides = iter([False] * allies + [True] * enemies)
        ask = mock.Mock(side_effect=lambda _, reach, p=pattern, s=sides: lattice(p, next(s), reach))
        with mock.patch.object(spawn, "lattice", ask):
            made.append(spawn.starts(battle._scenario, unit_types(battle.stats), battle._world.terrain))
    return spawn.Starts(*(np.concatenate(each) for each in zip(*made, strict=True)))


def win_rates(env: Battle, keys: jax.Array) -> np.ndarray:
    """(P,): how often the scripted team wins battles that begin from keys (P, E)."""
    script = env.spec.script
    assert script is not None

    def begin(key):
        state, told = env.reset(key)
        return state, told.observation, script.memory(1)[0], jnp.bool_(False), jnp.bool_(False)

    def step(key, carried):
        state, seen, memory, over, won = carried
        seen, memory = jax.tree.map(lambda x: x[None], (seen, memory))
        actions, memory = script.act(seen, jnp.zeros(1, bool), memory)
        new, told = env.step(key, state, actions[0])
        before = (state, jax.tree.map(lambda x: x[0], seen))
        kept = jax.tree.map(lambda o, n: jnp.where(over, o, n), before, (new, told.observation))
        return *kept, memory[0], over | told.terminated, won | ~over & told.info["won"]

    carried, advance = jax.vmap(begin)(keys.reshape(-1)), jax.jit(jax.vmap(step), donate_argnums=1)
    for t in range(env.spec.time_limit):
        carried = advance(jax.random.split(jax.random.key(t), keys.size), carried)
        if carried[3].all():
            break
    return np.asarray(carried[4]).reshape(keys.shape).mean(1)


def compare_patterns(battles: int) -> None:
    """Print the rules, those nearest to the game first."""
    found = []
    for name in GAME:
        battle = Battle(name, starts=len(PATTERNS))
        vars(battle)["_starts"] = patterned(battle)
        drawn = jax.random.split(jax.random.key(0), 4 * battles * len(PATTERNS))
        which = np.asarray(jax.vmap(battle._which)(drawn))
        keys = jnp.stack([drawn[np.flatnonzero(which == start)[:battles]] for start in range(len(PATTERNS))])
        found.append(100 * win_rates(battle, keys))
    away = np.abs(np.array(found).T - list(GAME.values())).mean(1)
    print("| " + " | ".join(["away", *Pattern._fields, *GAME]) + f" |\n|{'---|' * (5 + len(GAME))}")
    for k in np.argsort(away):
        print(
            f"| {away[k]:.0f} | "
            + " | ".join([*map(str, PATTERNS[k]), *(f"{r[k]:.0f}" for r in found)])
            + " |"
        )


def main() -> None:
    """Print one line for each map."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("maps", nargs="*", default=MAPS)
    parser.add_argument("--starts", type=int, default=64)
    parser.add_argument("--battles", type=int, default=32)
    parser.add_argument("--patterns", action="store_true", help="compare rules for a map's own start")
    args = parser.parse_args()
    if args.patterns:
        return compare_patterns(args.battles)
    columns = " | ".join(f"{100 * q:.0f} %" for q in QUANTILES)
    print(f"| battle | all starts | {columns} |\n|{'---|' * (2 + len(QUANTILES))}")
    for name in args.maps:
        keys = jnp.repeat(jax.random.split(jax.random.key(0), args.starts)[:, None], args.battles, axis=1)
        rates = win_rates(Battle(name, starts=512), keys)
        spread = " | ".join(f"{100 * rate:.0f}" for rate in np.quantile(rates, QUANTILES))
        print(f"| `{name}` | {100 * rates.mean():.0f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()

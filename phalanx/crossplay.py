"""Teams that play each other: every pair, on both sides, in compiled programs."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx import device, registry
from phalanx.algorithms.base import Algorithm
from phalanx.envs.base import Env
from phalanx.envs.sides import OneSide, Sides, sides_of
from phalanx.errors import PhalanxError
from phalanx.opponents.base import stacked
from phalanx.opponents.kinds import SelfPlay
from phalanx.opponents.make import UNTRAINED, Team, require_fit, untrained_team
from phalanx.opponents.rival import Rival
from phalanx.report import ratings
from phalanx.report.crossplay import CrossPlay
from phalanx.runs import is_run, policies_of
from phalanx.teams import load_team
from phalanx.training import keys
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.keys import Purpose
from phalanx.types import EnvSpec, PyTree, Transition

MOST_SEEDS = 5  # seeds of a run that play; all of them against all of the other's


class Entrant(NamedTuple):
    """Who takes part: an untrained algorithm, or a trained team with the parameters of S seeds."""

    name: str
    team: Team | None

    def plays(self, spec: EnvSpec) -> Team | None:
        """The team that plays a side, its parameters (S, ...); None if it was trained for another side."""
        if self.team is None:
            return untrained_team(self.name, spec)._replace(params=jnp.zeros((1, 0)))
        try:
            require_fit(self.team, spec, "a side")
        except PhalanxError:
            return None
        return self.team


def enter(what: str) -> Entrant:
    """A run folder, an exported team, `random` or `heuristic`."""
    if what in UNTRAINED:
        return Entrant(what, None)
    if is_run(what):
        setup, params = policies_of(what, None, None, None)
        params = jax.tree.map(lambda x: x[:MOST_SEEDS], params)
        return Entrant(what, Team(what, setup.env.spec, setup.algorithm, params))
    if Path(what).suffix == ".zip":
        policy = load_team(what)
        return Entrant(what, Team(what, policy.spec, policy.algorithm, stacked(policy.params, 1)))
    raise PhalanxError(f"there is no team {what!r}: use a run folder, an exported team, random or heuristic")


def cross_play(
    entrants: Sequence[str],
    env: str | Env,
    *,
    episodes: int = 500,
    seed: int = 0,
    greedy: bool = True,
    env_options: Mapping[str, Any] | None = None,
) -> CrossPlay:
    """Let every team play every other, and itself, on both sides."""
    device.configure()
    world = registry.build_env(env, **(env_options or {})) if isinstance(env, str) else env
    if not isinstance(world, Env):
        raise PhalanxError(f"opponents play in compiled environments, and {env} is a Python program")
    sides = sides_of(world)
    if len(sides.sides) != 2:
        raise PhalanxError(
            f"{world.spec.name} has the sides {', '.join(sides.sides)}: two are needed to play"
        )
    joined = [enter(each) for each in entrants]
    first, second = ([entrant.plays(sides.spec(side)) for entrant in joined] for side in sides.sides)
    for entrant, *playing in zip(joined, first, second, strict=True):
        if entrant.team is not None and not any(playing):
            require_fit(entrant.team, sides.spec(sides.sides[0]), f"a side of {world.spec.name}")
    root, games, returns = keys.root(Purpose.EVALUATION, seed), {}, {}
    for i, mine in enumerate(first):
        for j, yours in enumerate(second):
            if mine is not None and yours is not None:
                key = jax.random.fold_in(root, i * len(joined) + j)
                games[i, j], returns[i, j] = _match(sides, mine, yours, episodes, greedy, key)
    if not games:
        raise PhalanxError(f"nobody plays {sides.sides[1]}: name a team for it, or random")
    has_win = world.spec.has_win
    table = ratings.table(games, len(joined)) if has_win else ratings.Table({}, {}, [])
    names = _labels([entrant.name for entrant in joined])
    two = (sides.sides[0], sides.sides[1])
    return CrossPlay(world.spec.name, two, names, episodes, table, returns, has_win)


def _labels(names: Sequence[str]) -> list[str]:
    """Short names that differ: the ends of the paths, as far as they must be told apart."""
    for parts in range(1, 8):
        short = ["/".join(Path(name).parts[-parts:]) for name in names]
        if len(set(short)) == len(set(names)):
            break
    return [
        name if short.count(name) == 1 else f"{name} ({short[: k + 1].count(name)})"
        for k, name in enumerate(short)
    ]


def _match(
    sides: Sides, mine: Team, yours: Team, episodes: int, greedy: bool, key: jax.Array
) -> tuple[np.ndarray, tuple[float, float]]:
    """The scores (S, S', E) of one team on the first side against another, and both sides' mean returns."""
    count = [jax.tree.leaves(team.params)[0].shape[0] for team in (mine, yours)]
    each = -(-episodes // (count[0] * count[1]))
    play = _program(sides, _Same(mine.algorithm), _Same(yours.algorithm), each, greedy)
    index = np.indices(count).reshape(2, -1)
    params = [
        jax.tree.map(lambda x, at=at: x[at], team.params)
        for team, at in zip((mine, yours), index, strict=True)
    ]
    scores, returns = play(*params, jax.random.split(key, index.shape[1]))
    means = np.asarray(returns, np.float64).mean((0, 1))
    return np.asarray(scores).reshape(*count, each), (float(means[0]), float(means[1]))


class _Same:
    """An algorithm as a part of a key: those of one kind with the same options act by the same program."""

    def __init__(self, algorithm: Algorithm):
        self.algorithm = algorithm
        self._key = (type(algorithm), algorithm.config, algorithm.spec.obs_size, algorithm.spec.n_actions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=32)
def _program(sides: Sides, mine: _Same, yours: _Same, episodes: int, greedy: bool):
    """Games of pairs of policies, (P, ...) each: scores (P, E), and the returns of both sides (P, E, 2)."""
    env = OneSide(sides, sides.sides[0])
    rival = Rival(sides.spec(env.others[0]), yours.algorithm)
    opponents = SelfPlay(env, rival, episodes, 1, greedy)  # who plays is given below
    collector = Compiled(env, mine.algorithm, episodes, opponents=opponents)

    def play(policy: PyTree, playing: PyTree, key: jax.Array):
        actors = collector.start_one(key)
        _, kept = collector.collect_one(
            policy, actors, env.spec.time_limit, greedy, _outcome, stacked(playing, 1)
        )
        over, score, returns = kept
        end, which = jnp.argmax(over, axis=0), jnp.arange(episodes)
        return score[end, which], returns[end, which]

    return jax.jit(jax.vmap(play))


def _outcome(step: Transition):
    info = step.info
    lost = info.get("lost", jnp.zeros_like(step.terminated))
    won = info.get("won", jnp.zeros_like(step.terminated))
    score = 0.5 + 0.5 * won - 0.5 * lost
    return step.completed, score, jnp.stack([info["return"].mean(-1), info["other_return"]], -1)

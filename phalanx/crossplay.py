"""Teams that play each other: every pair, on both sides, in one program where the world is compiled."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx import device, registry
from phalanx.algorithms.base import Algorithm
from phalanx.api import train
from phalanx.envs.base import Env
from phalanx.envs.battle.env import Battle
from phalanx.envs.host.base import HostSource
from phalanx.envs.sides import Sides, one_side, sides_of
from phalanx.errors import PhalanxError
from phalanx.opponents.base import stacked
from phalanx.opponents.kinds import Learning, SelfPlay
from phalanx.opponents.make import UNTRAINED, Team, require_fit, untrained_team
from phalanx.opponents.player import Player
from phalanx.report import ratings
from phalanx.report.crossplay import CrossPlay
from phalanx.report.page import Show, show
from phalanx.runs import OPPONENT, PAST, is_run, learnt_opponent, open_run, past_selves, policies_of
from phalanx.teams import load_team
from phalanx.training import keys
from phalanx.training.collectors import collector_for
from phalanx.training.collectors.base import Collector
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.keys import Purpose
from phalanx.training.playback import play_both
from phalanx.training.setup import place
from phalanx.types import EnvSpec, PyTree, Transition

MOST_SEEDS = 5  # seeds of a run that play; all of them against all of the other's
HOSTED_AT_ONCE = 16  # environments that are Python programs: each costs memory
SCRIPT = "script"  # the game's own script, which commands the enemies of a battle


class Entrant(NamedTuple):
    """Who takes part: an untrained algorithm, or a trained team with the parameters of S seeds."""

    name: str
    team: Team | None

    def plays(self, spec: EnvSpec) -> Team | None:
        """The team that plays a side, its parameters (S, ...); None if it was trained for another side."""
        if self.name == SCRIPT:
            return None
        if self.team is None:
            return untrained_team(self.name, spec)._replace(params=jnp.zeros((1, 0)))
        try:
            require_fit(self.team, spec, "a side")
        except PhalanxError:
            return None
        return self.team


def enter(what: str) -> Entrant:
    """A run folder, the opponent that learnt in one, an exported team, or one that was not trained."""
    if what in (*UNTRAINED, SCRIPT):
        return Entrant(what, None)
    team = _trained(what)
    if team is None:
        known = f"RUN, RUN{OPPONENT}, RUN{PAST}, an exported team (.zip), random, heuristic or {SCRIPT}"
        raise PhalanxError(f"there is no team {what!r}: use {known}")
    seeds = jax.tree.leaves(team.params)[0].shape[0]
    taken = np.unique(np.linspace(0, seeds - 1, min(seeds, MOST_SEEDS)).round().astype(int))
    return Entrant(what, team._replace(params=jax.tree.map(lambda x: x[taken], team.params)))


def _trained(what: str) -> Team | None:
    """A trained team, with all that it has of seeds or past selves, (S, ...)."""
    if is_run(what):
        setup, params = policies_of(what, None, None, None)
        return Team(what, setup.env.spec, setup.algorithm, params)
    if what.endswith(OPPONENT):
        return learnt_opponent(what.removesuffix(OPPONENT))
    if what.endswith(PAST):
        return past_selves(what.removesuffix(PAST))
    if Path(what).suffix == ".zip":
        policy = load_team(what)
        return Team(what, policy.spec, policy.algorithm, stacked(policy.params, 1))
    return None


class Stage(NamedTuple):
    """A world and its two sides."""

    world: Env | HostSource
    sides: Sides

    @property
    def first(self) -> EnvSpec:
        return self.sides.spec(self.sides.sides[0])

    @property
    def second(self) -> EnvSpec:
        return self.sides.spec(self.sides.sides[1])


def stage(
    env: str | Env | HostSource,
    env_options: Mapping[str, Any] | None = None,
    placement: Mapping[str, Any] | None = None,
) -> Stage:
    """Where teams can play each other, or a refusal in one line.

    `placement` are options of a run that say where environments are stepped.
    """
    world = registry.build_env(env, **(env_options or {})) if isinstance(env, str) else env
    world = place(world, placement or {}, env if isinstance(env, str) else type(env).__name__)
    sides = sides_of(world)
    if len(sides.sides) != 2:
        raise PhalanxError(
            f"{world.spec.name} has the sides {', '.join(sides.sides)}: two are needed to play"
        )
    return Stage(world, sides)


def cross_play(
    entrants: Sequence[str],
    env: str | Env | HostSource,
    *,
    episodes: int = 500,
    seed: int = 0,
    greedy: bool = True,
    env_options: Mapping[str, Any] | None = None,
    placement: Mapping[str, Any] | None = None,
) -> CrossPlay:
    """Let every team play every other, and itself, on both sides."""
    device.configure()
    where = stage(env, env_options, placement)
    joined = [enter(each) for each in entrants]
    _require_playable(joined, where)
    first, second = ([entrant.plays(spec) for entrant in joined] for spec in (where.first, where.second))
    root, games, returns = keys.root(Purpose.EVALUATION, seed), {}, {}
    for i, mine in enumerate(first):
        for j, yours in enumerate(second):
            scripted = joined[j].name == SCRIPT
            if mine is not None and (yours is not None or scripted):
                key = jax.random.fold_in(root, i * len(joined) + j)
                games[i, j], earned = _match(where, mine, yours, episodes, greedy, key)
                returns[i, j] = (ratings.mean_return(earned[..., 0]), ratings.mean_return(earned[..., 1]))
    two = (where.sides.sides[0], where.sides.sides[1])
    if not games:
        raise PhalanxError(f"nobody plays {two[1]}: name a team for it, or random")
    has_win = where.world.spec.has_win
    table = ratings.table(games, len(joined)) if has_win else ratings.Table({}, {}, [])
    names = _labels([entrant.name for entrant in joined])
    return CrossPlay(where.world.spec.name, two, names, episodes, table, returns, has_win)


def _require_playable(joined: Sequence[Entrant], where: Stage) -> None:
    """Raise an error if a team fits neither side."""
    for entrant in joined:
        if entrant.name == SCRIPT and not isinstance(where.world, Battle):
            raise PhalanxError(f"{where.world.spec.name} has no script for one side: leave out {SCRIPT}")
        if entrant.team is not None and not any(map(entrant.plays, (where.first, where.second))):
            require_fit(entrant.team, where.first, f"a side of {where.world.spec.name}")


def film(
    entrants: Sequence[str],
    env: str | Env | HostSource,
    *,
    games: int = 3,
    seed: int = 0,
    greedy: bool = True,
    env_options: Mapping[str, Any] | None = None,
    placement: Mapping[str, Any] | None = None,
) -> list[Show]:
    """Games of the first team that fits the first side against the next that fits the second.

    Two shows of the same games: as one side sees and plays them, and as the other does.
    """
    device.configure()
    where = stage(env, env_options, placement)
    joined = [enter(each) for each in entrants]
    _require_playable(joined, where)
    mine = next(((i, team) for i, each in enumerate(joined) if (team := each.plays(where.first))), None)
    others = [k for k in range(len(joined)) if mine is not None and k != mine[0]]
    yours = next((team for k in others if (team := joined[k].plays(where.second))), None)
    if mine is None or yours is None:
        raise PhalanxError("a film needs two teams, one for each side (a script is filmed by phalanx watch)")
    one, other = (one_side(where.world, side, tells=True) for side in where.sides.sides)
    params = [jax.tree.map(lambda x: x[0], team.params) for team in (mine[1], yours)]
    # It learns nothing here; what it sees and does is then in the rollout.
    opponent = Learning(one, Player(where.second, yours.algorithm), games, greedy)
    played = play_both(one, mine[1].algorithm, params[0], opponent, params[1], seed)
    return [
        show(f"{team.name} ({view.side})", view, team.algorithm.actor.preference, episodes)
        for team, view, episodes in zip((mine[1], yours), (one, other), played, strict=True)
    ]


def best_response(
    run: str,
    env: str,
    *,
    steps: float,
    out: Path,
    seed: int = 0,
    env_options: Mapping[str, Any] | None = None,
    placement: Mapping[str, Any] | None = None,
) -> list[str]:
    """Train a team against a run that stays as it is, with the run's algorithm and options.

    Returns the teams that then play each other: the run, its best response, and the available baselines.
    """
    if not is_run(run):
        raise PhalanxError(f"a best response is trained against a run folder, and {run!r} is not one")
    where, entrant = stage(env, env_options, placement), enter(run)
    _require_playable([entrant], where)
    setup, _ = open_run(run, None)
    sides = where.sides.sides
    answer = train(
        setup.config.algorithm,
        env,
        out=out / "best_response",
        preset="none",
        run_options={
            "steps": steps,
            "seed": seed,
            "envs": setup.config.envs,
            "opponent": run,
            "opponent_greedy": True,
            "side": sides[0] if entrant.plays(where.second) else sides[1],
            **{name: value for name, value in (placement or {}).items() if value is not None},
        },
        algorithm_options=asdict(setup.resolved.algorithm),
        env_options=env_options,
    )
    past = [] if past_selves(run) is None else [f"{run}{PAST}"]
    yardsticks = ["heuristic", SCRIPT] if isinstance(where.world, Battle) else []
    return [run, str(answer.folder), *past, *yardsticks, "random"]


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
    where: Stage, mine: Team, yours: Team | None, episodes: int, greedy: bool, key: jax.Array
) -> tuple[np.ndarray, np.ndarray]:
    """The scores of one team on the first side against another, (S, S', E), and the returns of both sides.

    Returns are (S, S', E, 2). Without another team the script plays.
    """
    teams = [mine.params, jnp.zeros((1, 0)) if yours is None else yours.params]
    count = [jax.tree.leaves(params)[0].shape[0] for params in teams]
    pairs = count[0] * count[1]
    each = -(-episodes // pairs)
    hosted = isinstance(where.world, HostSource)
    at_once = min(each, max(1, HOSTED_AT_ONCE // pairs)) if hosted else each
    games = _games(where, _Same(mine.algorithm), yours and _Same(yours.algorithm), pairs, at_once, greedy)
    index = np.indices(count).reshape(2, -1)
    one, two = (jax.tree.map(lambda x, at=at: x[at], team) for team, at in zip(teams, index, strict=True))
    rounds = jax.random.split(key, (-(-each // at_once), pairs))
    with contextlib.closing(games.collector):
        played = [jax.device_get(games.play(one, two, keys)) for keys in rounds]
    scores, returns = (np.concatenate(parts, axis=1)[:, :each] for parts in zip(*played, strict=True))
    return scores.reshape(*count, each), returns.astype(np.float64).reshape(*count, each, 2)


class _Same:
    """An algorithm as a part of a key: those of one kind with the same options act by the same program."""

    def __init__(self, algorithm: Algorithm):
        self.algorithm = algorithm
        self._key = (type(algorithm), algorithm.config, algorithm.spec.obs_size, algorithm.spec.n_actions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class _Games(NamedTuple):
    """Games of P pairs of policies, E each."""

    collector: Collector
    play: Callable[[PyTree, PyTree, jax.Array], tuple[jax.Array, jax.Array]]
    """from policies and keys, (P, ...) each: scores (P, E), and the returns of both sides (P, E, 2)"""


@lru_cache(maxsize=32)
def _games(where: Stage, mine: _Same, yours: _Same | None, pairs: int, episodes: int, greedy: bool) -> _Games:
    env, opponents = where.world, None
    if yours is not None:
        env = one_side(where.world)
        # Who plays is given below.
        opponents = SelfPlay(env, Player(where.second, yours.algorithm), episodes, 1, greedy)
    collector = collector_for(env, mine.algorithm, episodes, pairs, opponents=opponents)

    def play(policy: PyTree, playing: PyTree, keys: jax.Array):
        playing = None if yours is None else jax.tree.map(lambda x: x[:, None], playing)
        _, kept = collector.first_episodes(policy, collector.start(keys), greedy, _outcome, playing)
        over, score, returns = kept
        end, pair, which = jnp.argmax(over, axis=1), jnp.arange(pairs)[:, None], jnp.arange(episodes)
        return score[pair, end, which], returns[pair, end, which]

    return _Games(collector, jax.jit(play) if isinstance(collector, Compiled) else play)


def _outcome(step: Transition):
    info, nobody = step.info, jnp.zeros_like(step.terminated)
    won = info.get("won", nobody)
    # Against a script who did not win by the end has lost; a game that was cut is a draw.
    lost = info.get("lost", step.terminated & ~won)
    mine = info["return"].mean(-1)
    return (
        step.completed,
        0.5 + 0.5 * won - 0.5 * lost,
        jnp.stack([mine, info.get("other_return", jnp.full_like(mine, jnp.nan))], -1),
    )

"""Whole episodes, step by step, for `watch` and `record`."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.algorithms.base import Algorithm
from phalanx.data.episodes import Episode, Film
from phalanx.envs.base import Env
from phalanx.envs.host.base import HostSource
from phalanx.envs.sides import HostedSide, OneSide
from phalanx.envs.wrappers import as_given
from phalanx.opponents.kinds import Learning
from phalanx.training import keys
from phalanx.training.collectors import Collector, Compiled, Hosted, collector_for
from phalanx.training.keys import Purpose
from phalanx.types import Array, EnvSpec, Observation, PyTree, Transition, is_key


class Kept(NamedTuple):
    """What is kept of each step, (T, B, ...): JAX arrays in the program, numpy after it."""

    after: Observation
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    won: Any
    preferences: Any
    state: PyTree


EPISODES_AT_ONCE = 64  # episodes that are played together


def play(
    env: Env | HostSource,
    algorithm: Algorithm,
    policy: PyTree,
    seed: int,
    episodes: int,
    *,
    greedy: bool = True,
    film: bool = False,
) -> list[Episode]:
    """Play `episodes` of a seed with a policy.

    `film` also keeps the environment's states, or the pictures that it renders, and the team's preferences.
    The initial state of an episode depends only on the seed and its number: two teams can be watched from the
    same initial states, and `watch` and `record` with the same seed show the same episodes.
    """
    program = player(env, algorithm, min(episodes, EPISODES_AT_ONCE), greedy, film)
    root, played = keys.root(Purpose.PLAYBACK, seed), []
    while len(played) < episodes:
        played += program(policy, jax.random.fold_in(root, len(played) // EPISODES_AT_ONCE))
    return played[:episodes]


def player(
    env: Env | HostSource, algorithm: Algorithm, episodes: int, greedy: bool, film: bool = False
) -> Callable[[PyTree, Array], list[Episode]]:
    """A function that plays `episodes` together with a policy, from a key."""
    collector = collector_for(env, algorithm, episodes, with_states=film)
    compiled = isinstance(collector, Compiled)

    def program(policy: PyTree, key: Array):
        def keep(step: Transition) -> Kept:
            return _kept(step, env.spec, algorithm, policy, film)

        actors = _started(collector, key, film)
        of_seed = jax.tree.map(lambda x: x[None], policy)
        _, kept = collector.first_episodes(of_seed, actors, greedy, keep)
        begin = _bare_state(actors.running.state) if film and compiled else None
        first = as_given(collector.observation(actors), env.spec)
        return jax.tree.map(lambda x: x[0], (first, begin, kept))

    program = jax.jit(program) if compiled else program

    def play(policy: PyTree, key: Array) -> list[Episode]:
        with contextlib.closing(collector):
            return _filmed(collector, _episodes(*jax.device_get(program(policy, key))))

    return play


def play_both(
    env: OneSide | HostedSide,
    mine: Algorithm,
    policy: PyTree,
    opponent: Learning,
    playing: PyTree,
    seed: int,
) -> tuple[list[Episode], list[Episode]]:
    """Episodes of two teams against each other, with states and preferences, as either side played them."""
    collector = collector_for(env, mine, opponent.envs, with_states=True, opponents=opponent)
    yours, theirs, compiled = opponent.player.algorithm, opponent.player.spec, isinstance(collector, Compiled)

    def program(policy: PyTree, playing: PyTree, key: Array):
        def keep(step: Transition) -> tuple[Kept, Kept]:
            other = _kept(opponent.own(step), theirs, yours, playing, True)
            return _kept(step, env.spec, mine, policy, True), other

        actors = _started(collector, key, True)
        of_seed = jax.tree.map(lambda x: x[None], (policy, playing))
        _, kept = collector.first_episodes(of_seed[0], actors, opponent.greedy, keep, of_seed[1])
        begin = _bare_state(actors.running.state) if compiled else None
        first = (as_given(collector.observation(actors), env.spec), collector.others_observation(actors))
        return jax.tree.map(lambda x: x[0], (first, begin, kept))

    program = jax.jit(program) if compiled else program
    with contextlib.closing(collector):
        first, begin, kept = jax.device_get(program(policy, playing, keys.root(Purpose.PLAYBACK, seed)))
        both = [_episodes(first[k], begin, kept[k]) for k in range(2)]
        return _filmed(collector, both[0]), _filmed(collector, both[1])


def _started(collector: Collector, key: Array, film: bool) -> PyTree:
    """The actors at the start; what is to be filmed and draws no pictures is refused before it is played."""
    actors = collector.start(key[None])
    if film and isinstance(collector, Hosted):
        collector.pool.films()
    return actors


def _filmed(collector: Collector, played: list[Episode]) -> list[Episode]:
    """Episodes with the pictures that were taken of them, if environments draw themselves."""
    if not isinstance(collector, Hosted) or not collector.film:
        return played
    films = [Film(*each) for each in collector.pool.films()]
    return [episode._replace(film=each) for episode, each in zip(played, films, strict=True)]


def _kept(step: Transition, spec: EnvSpec, algorithm: Algorithm, policy: PyTree, film: bool) -> Kept:
    """What is kept of a step, (B, ...); `spec` is that of the bare environment."""
    preferences = None
    if film and algorithm.actor.preference:
        preferences = algorithm.actor.preferences(policy, step.observation, step.first, step.memory)
    ends = (step.terminated, step.truncated, step.info.get("won"))
    after = as_given(step.next_observation, spec)
    return Kept(after, step.action, step.reward, *ends, preferences, step.info.get("state"))


def _bare_state(state: PyTree) -> PyTree:
    """The state of the environment itself, inside those of `wrappers.prepare`."""
    return state.inner.inner.inner


def _episodes(first: Observation, begin: PyTree, kept: Kept) -> list[Episode]:
    """Cut what B environments played (T, B, ...) into their first episodes.

    `first` and `begin` (B, ...) are the observation and the state that they began with.
    """
    episodes = []
    for b in range(kept.reward.shape[1]):
        over = kept.terminated[:, b] | kept.truncated[:, b]
        length = int(over.argmax()) + 1

        def whole(start: Any, steps: Any, b: int = b, length: int = length) -> Any:
            join = jnp.concatenate if is_key(start) else np.concatenate  # numpy has no random keys
            return join([start[b][None], steps[:length, b]])

        seen = jax.tree.map(whole, first, kept.after)
        episodes.append(
            Episode(
                observation=seen,
                action=kept.action[:length, b],
                reward=kept.reward[:length, b],
                terminated=bool(kept.terminated[length - 1, b]),
                truncated=bool(kept.truncated[length - 1, b]),
                won=None if kept.won is None else bool(kept.won[length - 1, b]),
                preferences=None if kept.preferences is None else kept.preferences[:length, b],
                states=None if begin is None else jax.tree.map(whole, begin, kept.state),
            )
        )
    return episodes

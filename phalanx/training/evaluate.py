"""Evaluation of whole episodes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.opponents.base import Opponents
from phalanx.opponents.kinds import Mixed
from phalanx.training.collectors import collector_for
from phalanx.training.collectors.base import Collector, over_seeds
from phalanx.training.loop import Loop, Tally
from phalanx.types import Array, EnvSpec, PyTree, Transition


class Played(NamedTuple):
    """One entry an episode: (..., E, A), (..., E), (..., E)."""

    returns: Array
    length: Array
    won: Array


def play(collector: Collector, policy: PyTree, keys: Array, greedy: bool = True) -> Played:
    """Play the first episode of each environment of a collector to its end.

    With the policy (S, ...) and the key (S,) of each seed: (S, E, ...).
    """
    _, (over, played) = collector.first_episodes(policy, collector.start(keys), greedy, _outcome)
    return _first(over, played)


class Against:
    """Plays the learner against the opponents of its training, and against some others, all at once.

    As many episodes as there are environments in training, so that each opponent has its part of them.
    """

    def __init__(self, loop: Loop, others: Mapping[str, Opponents]):
        """`others` are made for as many environments as episodes are to be played."""
        trained, seeds = loop.opponents, loop.collector.seeds
        assert trained is not None
        self.parts = {"opponent": trained, **others}
        self.opponents = Mixed(trained.env, list(self.parts.values()))
        self.collector = collector_for(
            loop.collector.env, loop.algorithm, self.opponents.envs, seeds, opponents=self.opponents
        )
        self._playing = jax.jit(over_seeds(self._playing_one, seeds, (0, 0, 0)), inline=True)

    def play(self, policy: PyTree, opponent: PyTree, keys: Array) -> dict[str, Played]:
        """Episodes (S, E, ...) against each, from the policy, opponent and key of each seed, (S, ...)."""

        playing, actors = self._playing(policy, opponent, keys), self.collector.start(keys)
        _, (over, played) = self.collector.first_episodes(policy, actors, True, _outcome, playing)
        first = _first(over, played)
        return {
            name: jax.tree.map(lambda x, where=where: x[:, where], first)
            for name, where in zip(self.parts, self.opponents.slices, strict=True)
        }

    def _playing_one(self, policy: PyTree, opponent: PyTree, key: Array) -> PyTree:
        """Who plays in each part, from the policy, opponent and key of one seed."""
        states = (opponent, *(each.init(policy, key) for each in list(self.parts.values())[1:]))
        return self.opponents.playing(states, policy)


def _first(over: Array, played: Played) -> Played:
    """The first episode of each environment, (S, E, ...), of what was played in T steps, (S, T, E, ...)."""
    end = jnp.argmax(over, axis=1)  # the first end in each environment; later episodes do not count
    seed, env = jnp.arange(over.shape[0])[:, None], jnp.arange(over.shape[2])
    return jax.tree.map(lambda x: x[seed, end, env], played)


def _outcome(step: Transition) -> tuple[Array, Played]:
    over = step.completed
    won = step.info.get("won", jnp.zeros_like(over))
    return over, Played(step.info["return"], step.info["length"], won)


def summary(played: Played, spec: EnvSpec) -> dict[str, float]:
    """Means over the episodes of one seed. A return is the mean over agents of their rewards' sums.

    `_std` are standard deviations over the episodes.
    """
    returns = np.asarray(played.returns, np.float64)  # (E, A)
    result = {
        "return": float(returns.mean()),
        "return_std": float(returns.mean(axis=1).std()),
        "length": float(np.mean(played.length)),
    }
    if spec.has_win:
        result["win_rate"] = float(np.mean(played.won))
    return result | returns_by_type(returns.mean(axis=0), spec) | returns_by_agent(returns, spec)


def per_seed(played: Played, seeds: Sequence[int], spec: EnvSpec) -> dict[str, Any]:
    """Means over seeds, and each seed's own values, of episodes (S, E, ...)."""
    rows = [
        {"seed": seed, **summary(jax.tree.map(lambda x, i=i: x[i], played), spec)}
        for i, seed in enumerate(seeds)
    ]
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0] if name != "seed"}
    return {**means, "episodes": int(played.length.shape[1]), "seeds": rows}


def against_row(played: Mapping[str, Played], spec: EnvSpec) -> dict[str, float]:
    """Of one seed's episodes against each opponent."""
    means = {name: summary(each, spec) for name, each in played.items()}
    return {
        f"against_{name}/{what}": found[what]
        for name, found in means.items()
        for what in ("return", "win_rate")
        if what in found
    }


def returns_by_agent(returns: np.ndarray, spec: EnvSpec) -> dict[str, float]:
    """Mean and deviation of each agent's return (E, A) over the episodes, where agents' rewards differ."""
    if spec.common_reward or spec.n_agents == 1:
        return {}
    found = {"agent_return": returns.mean(axis=0), "agent_return_std": returns.std(axis=0)}
    return {
        f"{name}/{agent}": float(value)
        for name, values in found.items()
        for agent, value in zip(spec.agents, values, strict=True)
    }


def returns_by_type(returns: np.ndarray, spec: EnvSpec) -> dict[str, float]:
    """Each type's mean return from the agents' (A,), where types have different ones to show.

    Each team's, if a type fights on both sides.
    """
    types, teams = spec.agent_types, spec.teams or spec.agent_types
    labels = types if len(set(zip(types, teams, strict=True))) == len(set(types)) else teams
    if spec.common_reward or len(set(labels)) == 1:
        return {}
    of_agent = np.array(labels)
    return {f"return/{kind}": float(returns[of_agent == kind].mean()) for kind in dict.fromkeys(labels)}


def training_row(tally: Tally, spec: EnvSpec) -> dict[str, float | None]:
    """What one seed's tally says of the time since the last evaluation; None where no episode ended."""
    count, updates = int(tally.episodes.ended), int(tally.updates)
    returns = np.asarray(tally.episodes.returns, np.float64) / max(count, 1)
    row = {
        "return": float(returns.mean()),
        "length": float(tally.episodes.length) / max(count, 1),
        **({"win_rate": float(tally.episodes.won) / max(count, 1)} if spec.has_win else {}),
        **returns_by_type(returns, spec),
    }
    learnt = (
        {f"learn/{name}": float(value) / updates for name, value in tally.metrics.items()} if updates else {}
    )
    return {f"train/{name}": value if count else None for name, value in row.items()} | learnt

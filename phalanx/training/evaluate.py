"""Greedy evaluation of whole episodes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.algorithms.base import Algorithm
from phalanx.envs.wrappers import AutoReset
from phalanx.training.collect import collect, start
from phalanx.types import Array, EnvSpec, PyTree, Transition


class Played(NamedTuple):
    """One entry an episode: (..., E, A), (..., E), (..., E)."""

    returns: Array
    length: Array
    won: Array


def play(env: AutoReset, algorithm: Algorithm, policy: PyTree, key: Array, episodes: int) -> Played:
    """Play the first episode of each of E environments to its end, greedily."""

    def outcome(step: Transition):
        over = step.terminated | step.truncated
        won = step.info.get("won", jnp.zeros_like(over))
        return over, Played(step.info["return"], step.info["length"], won)

    actors = start(env, algorithm, key, episodes)
    _, (over, played) = collect(
        env, algorithm, policy, actors, env.spec.time_limit, greedy=True, keep=outcome
    )
    end = jnp.argmax(over, axis=0)  # the first end of each environment; later episodes do not count
    return jax.tree.map(lambda x: x[end, jnp.arange(episodes)], played)


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

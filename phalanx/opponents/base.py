"""The interface of opponents: who plays the other side in the next rollout, and what they learn from it."""

import math
from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from phalanx.envs.sides import Side
from phalanx.errors import PhalanxError
from phalanx.opponents.player import Player
from phalanx.types import Array, Clock, Observation, PyTree, Transition


class Opponents(ABC):
    """M opponents that play the other side of B environments, B / M each.

    `state` is what is kept in the carry. `policy` is the one that an opponent may copy: the learner's, or if
    another learner plays this side, that one's.
    """

    def __init__(self, env: Side, player: Player, envs: int, at_once: int, greedy: bool):
        if len(env.others) != 1:
            raise PhalanxError(
                f"{env.spec.name} has the sides {', '.join(env.sides.sides)}: "
                f"opponents play where there are two"
            )
        self.env, self.player, self.envs, self.greedy = env, player, envs, greedy
        self.at_once = math.gcd(envs, at_once)
        self.other = env.others[0]

    # Who plays

    @abstractmethod
    def init(self, policy: PyTree, key: Array) -> PyTree:
        """The state before the first update."""

    @abstractmethod
    def playing(self, state: PyTree, policy: PyTree) -> PyTree:
        """The parameters of those that play in the next rollout, (M, ...)."""

    def learnt(
        self, state: PyTree, policy: PyTree, rollout: Transition, key: Array, clock: Clock
    ) -> tuple[PyTree, dict[str, Array]]:
        """The state after an update, from the rollout (T, B, ...) that was played and the policy after it.

        `clock` is that of the update. Also returns scalars to log.
        """
        return state, {}

    def copied(self, state: PyTree, policy: PyTree) -> PyTree:
        """The policy that the opponents after this one may copy."""
        return policy

    def each(self, state: PyTree) -> list[tuple["Opponents", PyTree]]:
        """The opponents that these consist of, and the state of each."""
        return [(self, state)]

    # Playing

    def start(self, envs: int) -> PyTree:
        """The opponents' memories before an episode, (B, ...)."""
        return self.player.start(envs)

    def choose(
        self, params: PyTree, seen: Observation, first: Array, memory: PyTree, key: Array
    ) -> tuple[Array, PyTree, dict[str, PyTree]]:
        """What the opponents (M, ...) do next, (B, A) or (B, A, U), from what their side sees, (B, ...).

        `first` (B,) says which observations begin an episode. Also returns the opponents' memories, (B, ...),
        and what to store in the rollout's `info` for them.
        """
        batch = first.shape[0]

        def parted(x: Array) -> Array:
            return x.reshape(self.at_once, batch // self.at_once, *x.shape[1:])

        def act(params: PyTree, args: Any, key: Array):
            observation, first, memory = args
            return self.player.act(params, observation, first, memory, key, self.greedy)

        args = jax.tree.map(parted, (seen, first, memory))
        actions, memory = jax.vmap(act)(params, args, jax.random.split(key, self.at_once))
        actions, memory = jax.tree.map(lambda x: x.reshape(batch, *x.shape[2:]), (actions, memory))
        return actions, memory, {}

    def scores(self, rollout: Transition) -> tuple[Array, Array]:
        """The learner's wins against each of those that played, and their finished episodes, (M,) each.

        If episodes cannot be won, a return above 0 counts as a win, and a return of 0 as half a win.
        """
        over = rollout.completed
        if "won" in rollout.info:
            won = rollout.info["won"].astype(jnp.float32)
        else:
            won = 0.5 + 0.5 * jnp.sign(rollout.info["return"].mean(-1))

        def of_each(x: Array) -> Array:
            return x.reshape(x.shape[0], self.at_once, -1).sum((0, 2))

        return of_each(jnp.where(over, won, 0.0)), of_each(over.astype(jnp.float32))


def stacked(params: PyTree, count: int) -> PyTree:
    """The same parameters for each of several opponents, (M, ...)."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *jnp.shape(x))), params)

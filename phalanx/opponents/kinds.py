"""Kinds of opponents: a frozen team, the learner itself, another learner, earlier checkpoints of either."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from phalanx.algorithms.base import Learner
from phalanx.envs.sides import Side
from phalanx.opponents.base import Opponents, stacked
from phalanx.opponents.player import Player
from phalanx.types import Array, Clock, Observation, PyTree, Transition

Draw = Literal["uniform", "newest", "hard"]
MEMORY = 0.05  # weight of the newest rollout in the win rates against past selves


class Frozen(Opponents):
    """A team that does not learn. Its parameters are in the carry, because their source may change later."""

    def __init__(self, env: Side, player: Player, envs: int, greedy: bool, params: PyTree):
        super().__init__(env, player, envs, 1, greedy)
        self.params = params

    def init(self, policy: PyTree, key: Array) -> PyTree:
        return stacked(self.params, 1)

    def playing(self, state: PyTree, policy: PyTree) -> PyTree:
        return state


class SelfPlay(Opponents):
    """The learner itself, as it is now."""

    def init(self, policy: PyTree, key: Array) -> PyTree:
        return ()

    def playing(self, state: PyTree, policy: PyTree) -> PyTree:
        return stacked(policy, self.at_once)


class Learning(Opponents):
    """Another learner, with an algorithm of its own, which learns from the same episodes."""

    def __init__(self, env: Side, player: Player, envs: int, greedy: bool = False):
        super().__init__(env, player, envs, 1, greedy)
        assert env.tells, "the environment must say what the other side got"

    def init(self, policy: PyTree, key: Array) -> Learner:
        return self.player.algorithm.init(key, self.envs)

    def playing(self, state: Learner, policy: PyTree) -> PyTree:
        return self.player.algorithm.policy(state)

    def copied(self, state: Learner, policy: PyTree) -> PyTree:
        return self.player.algorithm.policy(state)

    def choose(
        self, params: PyTree, seen: Observation, first: Array, memory: PyTree, key: Array
    ) -> tuple[Array, PyTree, dict[str, PyTree]]:
        acted, memory = self.player.act_to_learn(params, seen, first, memory, key, self.greedy)
        return acted.action, memory, {"acted": acted}

    def learnt(
        self, state: Learner, policy: PyTree, rollout: Transition, key: Array, clock: Clock
    ) -> tuple[Learner, dict[str, Array]]:
        learner, metrics = self.player.algorithm.update(state, self.own(rollout), key, clock)
        return learner, {f"opponent_{name}": value for name, value in metrics.items()}

    def own(self, played: Transition) -> Transition:
        """Steps (..., B) as the opponent played them, from those of the learner's side."""
        acted, after = played.info["acted"], played.info["others"][self.other]
        return Transition(
            **acted._asdict(),
            reward=after.reward,
            terminated=played.terminated,
            truncated=played.truncated,
            next_observation=self.player.sees(after.observation, acted.action),
            info={name: played.info[name] for name in ("state",) if name in played.info}
            | ({"won": played.info["lost"]} if "lost" in played.info else {}),
            agent_terminated=after.agent_terminated,
            broken=played.broken,
        )


class Pool(NamedTuple):
    """K past selves."""

    params: PyTree
    """(K, ...)"""
    taken: Array
    """() int32: how many have been taken so far; the oldest of more than K are overwritten"""
    won: Array
    """(K,) how often the learner won against each of late; 0.5 for new ones"""
    playing: Array
    """(M,) int32: who plays in the next rollout"""


class PastSelves(Opponents):
    """Earlier policies of a learner ("past selves"), added every `every` env steps to a pool of `size`.

    They are drawn uniformly; or half of the time the newest and otherwise uniformly; or by difficulty, with
    the square of the rate at which the learner loses to them (prioritised fictitious self-play, Vinyals et
    al. 2019). `steps` is the number of env steps between two updates of the run.
    """

    def __init__(
        self,
        env: Side,
        player: Player,
        envs: int,
        at_once: int,
        greedy: bool,
        size: int,
        every: int,
        draw: Draw,
        steps: int,
    ):
        super().__init__(env, player, envs, at_once, greedy)
        self.size, self.every, self.draw, self.steps = size, every, draw, steps

    def init(self, policy: PyTree, key: Array) -> Pool:
        return Pool(
            params=stacked(policy, self.size),
            taken=jnp.int32(1),
            won=jnp.full(self.size, 0.5),
            playing=jnp.zeros(self.at_once, jnp.int32),
        )

    def playing(self, state: Pool, policy: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x[state.playing], state.params)

    def learnt(
        self, state: Pool, policy: PyTree, rollout: Transition, key: Array, clock: Clock
    ) -> tuple[Pool, dict[str, Array]]:
        won, games = self.scores(rollout)
        rate = jnp.where(games > 0, won / jnp.maximum(games, 1.0), state.won[state.playing])
        old = state.won[state.playing]
        state = state._replace(won=state.won.at[state.playing].set(old + MEMORY * (rate - old)))
        # A snapshot is due as often as `every` went into the steps so far.
        due = (clock.env_steps + self.steps) // self.every >= state.taken
        slot = state.taken % self.size
        params = jax.tree.map(
            lambda all_, new: all_.at[slot].set(jnp.where(due, new, all_[slot])), state.params, policy
        )
        state = Pool(
            params=params,
            taken=state.taken + due,
            won=state.won.at[slot].set(jnp.where(due, 0.5, state.won[slot])),
            playing=state.playing,
        )
        chances = jnp.log(self.chances(state))
        return state._replace(playing=jax.random.categorical(key, chances, shape=(self.at_once,))), {}

    def chances(self, state: Pool) -> Array:
        """(K,) how likely each past self is drawn; they need not sum to 1."""
        index = jnp.arange(self.size)
        filled = index < state.taken
        if self.draw == "hard":
            return jnp.where(filled, (1 - state.won) ** 2 + 1e-3, 0.0)
        if self.draw == "newest":
            newest = index == (state.taken - 1) % self.size
            return jnp.where(filled, 1.0 / jnp.minimum(state.taken, self.size), 0.0) + newest
        return jnp.where(filled, 1.0, 0.0)


class Mixed(Opponents):
    """Several opponents, each in its part of the environments.

    One that learns comes first: then the others copy its policy, and it learns only from its own part.
    """

    def __init__(self, env: Side, parts: Sequence[Opponents]):
        ends = list(accumulate(part.envs for part in parts))
        super().__init__(env, parts[0].player, ends[-1], 1, parts[0].greedy)
        self.parts = tuple(parts)
        self.slices = [slice(end - part.envs, end) for part, end in zip(parts, ends, strict=True)]

    def init(self, policy: PyTree, key: Array) -> PyTree:
        keys, states = jax.random.split(key, len(self.parts)), []
        for part, each in zip(self.parts, keys, strict=True):
            states.append(part.init(policy, each))
            policy = part.copied(states[-1], policy)
        return tuple(states)

    def playing(self, state: PyTree, policy: PyTree) -> PyTree:
        return tuple(part.playing(own, policy) for part, own in zip(self.parts, state, strict=True))

    def learnt(
        self, state: PyTree, policy: PyTree, rollout: Transition, key: Array, clock: Clock
    ) -> tuple[PyTree, dict[str, Array]]:
        keys, after, metrics = jax.random.split(key, len(self.parts)), [], {}
        for part, own, where, each in zip(self.parts, state, self.slices, keys, strict=True):
            played = jax.tree.map(lambda x, where=where: x[:, where], rollout)
            own, logged = part.learnt(own, policy, played, each, clock)
            policy = part.copied(own, policy)
            after.append(own)
            metrics |= logged
        return tuple(after), metrics

    def each(self, state: PyTree) -> list[tuple[Opponents, PyTree]]:
        return list(zip(self.parts, state, strict=True))

    def start(self, envs: int) -> PyTree:
        # Rows for all environments, of which each has its own part: every memory then is (B, ...).
        return tuple(part.start(envs) for part in self.parts)

    def choose(
        self, params: PyTree, seen: Observation, first: Array, memory: PyTree, key: Array
    ) -> tuple[Array, PyTree, dict[str, PyTree]]:
        chosen, remembered, info = [], [], {}
        keys = jax.random.split(key, len(self.parts))
        for part, own, before, where, each in zip(self.parts, params, memory, self.slices, keys, strict=True):
            shown, begins, past = jax.tree.map(lambda x, where=where: x[where], (seen, first, before))
            actions, after, kept = part.choose(own, shown, begins, past, each)
            chosen.append(actions)
            remembered.append(
                jax.tree.map(lambda all_, new, where=where: all_.at[where].set(new), before, after)
            )
            info |= jax.tree.map(partial(_at, where, first.shape[0]), kept)
        return jnp.concatenate(chosen), tuple(remembered), info


def _at(where: slice, batch: int, rows: Array) -> Array:
    """The rows of a part in an array for all environments, (B, ...), which is zero elsewhere."""
    return jnp.zeros((batch, *rows.shape[1:]), rows.dtype).at[where].set(rows)

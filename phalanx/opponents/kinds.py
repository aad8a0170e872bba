"""Kinds of opponents: a frozen team, the learner itself, its earlier checkpoints, another learner."""

from collections.abc import Sequence
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
    """Earlier policies of the learner ("past selves"), added every `every` env steps to a pool of `size`.

    They are drawn uniformly; or half of the time the newest and otherwise uniformly; or by difficulty, with
    the square of the rate at which the learner loses to them (prioritised fictitious self-play, Vinyals et
    al. 2019).
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
    ):
        super().__init__(env, player, envs, at_once, greedy)
        self.size, self.every, self.draw = size, every, draw

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
        env_steps = clock.env_steps + self.player.algorithm.steps_per_update
        due = env_steps // self.every >= state.taken
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
    """Several opponents, each in its part of the environments."""

    def __init__(self, env: Side, parts: Sequence[Opponents], sizes: Sequence[int]):
        """`sizes` are how many environments each of the `parts` was made for."""
        super().__init__(env, parts[0].player, sum(sizes), 1, parts[0].greedy)
        self.parts = tuple(parts)
        ends = list(accumulate(sizes))
        self.slices = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]

    def init(self, policy: PyTree, key: Array) -> PyTree:
        keys = jax.random.split(key, len(self.parts))
        return tuple(part.init(policy, each) for part, each in zip(self.parts, keys, strict=True))

    def playing(self, state: PyTree, policy: PyTree) -> PyTree:
        return tuple(part.playing(own, policy) for part, own in zip(self.parts, state, strict=True))

    def learnt(
        self, state: PyTree, policy: PyTree, rollout: Transition, key: Array, clock: Clock
    ) -> tuple[PyTree, dict[str, Array]]:
        keys, after = jax.random.split(key, len(self.parts)), []
        for part, own, where, each in zip(self.parts, state, self.slices, keys, strict=True):
            played = jax.tree.map(lambda x, where=where: x[:, where], rollout)
            after.append(part.learnt(own, policy, played, each, clock)[0])
        return tuple(after), {}

    def start(self, envs: int) -> PyTree:
        # Rows for all environments, of which each has its own part: every memory then is (B, ...).
        return tuple(part.start(envs) for part in self.parts)

    def choose(
        self, params: PyTree, seen: Observation, first: Array, memory: PyTree, key: Array
    ) -> tuple[Array, PyTree, dict[str, PyTree]]:
        chosen, remembered = [], []
        keys = jax.random.split(key, len(self.parts))
        for part, own, before, where, each in zip(self.parts, params, memory, self.slices, keys, strict=True):
            shown, begins, past = jax.tree.map(lambda x, where=where: x[where], (seen, first, before))
            actions, after, _ = part.choose(own, shown, begins, past, each)
            chosen.append(actions)
            remembered.append(
                jax.tree.map(lambda all_, new, where=where: all_.at[where].set(new), before, after)
            )
        return jnp.concatenate(chosen), tuple(remembered), {}

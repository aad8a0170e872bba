"""What every particle scenario has in common: actions, starts, observations, drawing, scripted play.

A scenario says which bodies there are, what each agent sees and what it earns. With environments on the
last axis: A agents, E bodies, C words, B environments.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.config import option
from phalanx.envs import draws
from phalanx.envs.base import Env
from phalanx.envs.batching import batch_last
from phalanx.envs.mpe.world import MOVES, Agent, Bodies, Particles
from phalanx.types import Array, EnvSpec, Observation, TimeStep

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOVE_NAMES = ("stay", "left", "right", "down", "up")


class Block(NamedTuple):
    """Some entries of an observation that belong together."""

    values: Array
    """(..., B)"""
    names: tuple[str, ...]
    """one an entry, to be put behind the name of the block"""


class Layout(NamedTuple):
    """A block without its values."""

    shape: tuple[int, ...]
    names: tuple[str, ...]


def plane(values: Array) -> Block:
    """One vector in the plane (2, B), or n of them (n, 2, B)."""
    if values.ndim == 2:
        return Block(values, (" x", " y"))
    return Block(values, tuple(f" {i} {axis}" for i in range(values.shape[0]) for axis in "xy"))


def listed(values: Array) -> Block:
    """k numbers, (k, B)."""
    return Block(values, tuple(f" {i}" for i in range(values.shape[0])))


class Intent(NamedTuple):
    """What a scripted agent wants, for a batch of environments (B, ...)."""

    way: Array | None = None
    """(B, 2): from where it is to where it wants to be"""
    velocity: Array | float = 0.0
    """(B, 2): its own, if it knows it"""
    word: Array | None = None
    """(B,) int"""


@dataclass(frozen=True)
class ParticleEnv(Env):
    """A world of discs in the plane.

    Discrete actions: stay, left, right, down, up; a speaker that moves has one for each pair of a move and
    a word (move + 5 x word), one that stands still one a word. Continuous ones, from 0 to 1: five entries
    for the moves (the first does nothing, the others pull their way), then one a word.
    """

    max_cycles: int = option(25, "steps after which an episode is truncated", at_least=1)
    continuous_actions: bool = option(False, "continuous actions: vectors of numbers from 0 to 1")
    dynamic_rescaling: bool = option(True, "scale drawn bodies with the camera")

    # What a scenario says

    @property
    @abstractmethod
    def bodies(self) -> Bodies:
        """Who and what is there."""

    @abstractmethod
    def sees(self, now: Particles, agent: int) -> dict[str, Block]:
        """What an agent observes, block by block."""

    @abstractmethod
    def rewards(self, now: Particles) -> Array:
        """What each agent earns for a step that led here, (A, B)."""

    def drawn(self, key: Array) -> Array:
        """The landmarks that are goals in this episode, (K,) int32."""
        return jnp.zeros(0, jnp.int32)

    def over(self, now: Particles) -> Array | bool:
        """Whether the task has ended, (B,)."""
        return False

    @abstractmethod
    def intent(self, agent: int, seen: Mapping[str, Array]) -> Intent:
        """What a plain scripted agent wants, from the blocks that it sees, each (B, ...)."""

    name: ClassVar[str]
    """that of the scenario, behind `mpe/`"""

    landmarks_within: ClassVar[float] = 1.0
    """Landmarks begin in the square from minus to plus this."""

    @property
    def common_reward(self) -> bool:
        return True

    @property
    def puppets(self) -> dict[int, Callable[[Particles], Array]]:
        """Agents that are part of the world: for each a function that gives its push, (2, B)."""
        return {}

    def colors(self, state: Particles) -> np.ndarray:
        """How the bodies look, (E, 3), in one environment."""
        return np.array([body.color for body in self.bodies.all])

    # What follows from it

    @cached_property
    def players(self) -> tuple[int, ...]:
        """The agents that learn."""
        return tuple(i for i in range(len(self.bodies.agents)) if i not in self.puppets)

    @cached_property
    def layout(self) -> tuple[dict[str, Layout], ...]:
        """For each player, how the blocks that it sees lie one after another."""
        found = []

        def look(key: Array) -> None:
            state = jax.tree.map(lambda x: x[..., None], self.start(key))
            for player in self.players:
                seen = self.sees(state, player).items()
                found.append({name: Layout(block.values.shape[:-1], block.names) for name, block in seen})

        # Nothing is computed; the shapes are written down in passing, as tracing would sort the names.
        jax.eval_shape(look, jax.random.key(0))
        return tuple(found)

    @cached_property
    def spec(self) -> EnvSpec:
        players = [self.bodies.agents[i] for i in self.players]
        seen = tuple(
            tuple(key + name for key, block in blocks.items() for name in block.names)
            for blocks in self.layout
        )
        teams = tuple(agent.team for agent in players)
        return EnvSpec(
            name=f"mpe/{self.name}",
            agents=tuple(agent.name for agent in players),
            agent_types=tuple(agent.type for agent in players),
            obs_features=seen,
            state_features=tuple(
                f"{agent.name}:{name}" for agent, names in zip(players, seen, strict=True) for name in names
            ),
            action_counts=tuple(self._action_count(agent) for agent in players),
            time_limit=self.max_cycles,
            common_reward=self.common_reward,
            action_kind="continuous" if self.continuous_actions else "discrete",
            action_range=(0.0, 1.0),
            teams=teams if len(set(teams)) > 1 else (),
            script=Script(self),
            action_names=tuple(self._action_names(agent) for agent in players),
        )

    def _action_count(self, agent: Agent) -> int:
        moves, words = len(MOVES) * agent.moves, self.bodies.words * agent.speaks
        return moves + words if self.continuous_actions else max(moves, 1) * max(words, 1)

    def _action_names(self, agent: Agent) -> tuple[str, ...]:
        moves = MOVE_NAMES if agent.moves else ()
        words = tuple(f"say {letter}" for letter in LETTERS[: self.bodies.words]) if agent.speaks else ()
        if self.continuous_actions or not (moves and words):
            return moves + words
        return tuple(f"{move}, {word}" for word in words for move in moves)

    def start(self, key: Array) -> Particles:
        """Bodies anywhere in the square, at rest and silent."""
        bodies, n = self.bodies, len(self.bodies.agents)
        within = np.array([1.0] * n + [self.landmarks_within] * len(bodies.landmarks))[:, None]
        places = draws.uniform(draws.first(key), 2 * len(bodies.all)).reshape(-1, 2)
        return Particles(
            position=(2 * places - 1) * within,
            velocity=jnp.zeros((n, 2)),
            said=jnp.zeros((n, bodies.words)),
            drawn=self.drawn(draws.second(key)),
        )

    def reset(self, key: Array) -> tuple[Particles, TimeStep]:
        state = self.start(key)
        obs, joint = self._seen(state)
        return state, self.timestep(obs, state=joint)

    def step(self, key: Array, state: Particles, actions: Array) -> tuple[Particles, TimeStep]:
        state, obs, joint, rewards, over = self._played(state, actions)
        return state, self.timestep(obs, state=joint, reward=rewards, terminated=over)

    @cached_property
    def _seen(self) -> Callable[..., Any]:
        return batch_last(self.observe)

    @cached_property
    def _played(self) -> Callable[..., Any]:
        return batch_last(self.play)

    def play(self, now: Particles, actions: Array) -> tuple[Particles, Array, Array, Array, Array]:
        """One step with `actions` (A, B) or (A, U, B): state, observations, joint ones, rewards, ends."""
        push, said = self.read(now, actions)
        now = self.bodies.advance(now, push, said)
        rewards = self.rewards(now)[np.array(self.players)] if self.puppets else self.rewards(now)
        over = jnp.broadcast_to(jnp.asarray(self.over(now)), now.position.shape[-1:])
        return now, *self.observe(now), rewards, over

    def read(self, now: Particles, actions: Array) -> tuple[Array, Array]:
        """From the players' actions, and what puppets do: pushes (A, 2, B) and words (A, C, B)."""
        pushes, words = [], []
        for i, agent in enumerate(self.bodies.agents):
            silence = jnp.zeros_like(now.said[i])
            if i in self.puppets:
                pushes.append(self.puppets[i](now))
                words.append(silence)
                continue
            action = actions[self.players.index(i)]
            read = self._read_vector if self.continuous_actions else self._read_number
            push, word = read(agent, action)
            pushes.append(push)
            words.append(word if agent.speaks else silence)
        return jnp.stack(pushes), jnp.stack(words)

    def _read_number(self, agent: Agent, action: Array) -> tuple[Array, Array]:
        """One agent's discrete action (B,)."""
        move, word = (action % len(MOVES), action // len(MOVES)) if agent.moves else (0 * action, action)
        push = jnp.stack([(move == 2) * 1.0 - (move == 1), (move == 4) * 1.0 - (move == 3)])
        return push, (word == np.arange(self.bodies.words)[:, None]) * 1.0

    def _read_vector(self, agent: Agent, action: Array) -> tuple[Array, Array]:
        """One agent's continuous action (U, B)."""
        action = action.clip(0.0, 1.0)
        first = len(MOVES) * agent.moves
        push = jnp.stack([action[2] - action[1], action[4] - action[3]]) if agent.moves else 0 * action[:2]
        return push, action[first : first + self.bodies.words]

    def observe(self, now: Particles) -> tuple[Array, Array]:
        """What the players see, padded (A, O, B), and all of it in a row (X, B)."""
        batch = now.position.shape[-1]
        rows = []
        for player in self.players:
            parts = [block.values.reshape(-1, batch) for block in self.sees(now, player).values()]
            rows.append(jnp.concatenate(parts).astype(jnp.float32))
        widest = max(row.shape[0] for row in rows)
        padded = [jnp.pad(row, ((0, widest - row.shape[0]), (0, 0))) for row in rows]
        return jnp.stack(padded), jnp.concatenate(rows)

    def frame(self, state: Particles) -> dict[str, Any]:
        bodies, said = self.bodies, np.asarray(state.said)
        return {
            "kind": "particles",
            "position": state.position,
            "radius": bodies.sizes,
            "color": np.asarray(self.colors(state)),
            "names": [body.name for body in bodies.all],
            "agents": len(bodies.agents),
            "said": [
                f"{agent.name} says {self._in_words(said[i])}"
                for i, agent in enumerate(bodies.agents)
                if agent.speaks
            ],
            "rescale": self.dynamic_rescaling,
        }

    def _in_words(self, said: np.ndarray) -> str:
        if not said.any():
            return "nothing"
        if self.continuous_actions:
            return ", ".join(f"{word:.2f}" for word in said)
        return LETTERS[int(said.argmax())]


@dataclass(frozen=True)
class Script:
    """The scripted team of a scenario: each agent does what its `intent` says, as its actions allow."""

    env: ParticleEnv

    def memory(self, batch: int) -> Array:
        return jnp.zeros((batch, 0))

    def act(self, observation: Observation, first: Array, memory: Array) -> tuple[Array, Array]:
        env, actions = self.env, []
        for row, player in enumerate(env.players):
            seen, begin = {}, 0
            for key, block in env.layout[row].items():
                end = begin + len(block.names)
                seen[key] = observation.obs[:, row, begin:end].reshape(first.shape[0], *block.shape)
                begin = end
            actions.append(self._action(env.bodies.agents[player], env.intent(player, seen)))
        return jnp.stack(actions, axis=1), memory

    def _action(self, agent: Agent, intent: Intent) -> Array:
        """(B,) int32, or (B, U) float32."""
        env = self.env
        wanted = jnp.zeros((1, 2)) if intent.way is None else agent.pull(intent.way, intent.velocity)
        if not env.continuous_actions:
            axis = jnp.abs(wanted).argmax(-1)
            along = jnp.take_along_axis(wanted, axis[..., None], -1)[..., 0]
            move = jnp.where(jnp.abs(along) > 0.5, 1 + 2 * axis + (along > 0), 0)
            if intent.word is not None:
                move = move + len(MOVES) * intent.word if agent.moves else intent.word
            return move.astype(jnp.int32)
        parts = []
        if agent.moves:
            x, y = wanted.clip(-1.0, 1.0).T
            parts.append(jnp.stack([0 * x, -x, x, -y, y], axis=-1).clip(0.0))
        if intent.word is not None:
            parts.append(jax.nn.one_hot(intent.word, env.bodies.words))
        action = jnp.concatenate(parts, axis=-1)
        return jnp.pad(action, ((0, 0), (0, env.spec.n_actions - action.shape[-1])))


def pick(vectors: Array, which: Array) -> Array:
    """One of n vectors in each environment: (B, n, 2), (B,) -> (B, 2)."""
    return jnp.take_along_axis(vectors, which[:, None, None], 1)[:, 0]


def shortest(ways: Array) -> Array:
    """The shortest of n ways in each environment, (B, n, 2) -> (B, 2); zeros are nothing, not very near."""
    squares = jnp.square(ways).sum(-1)
    return pick(ways, jnp.where(squares > 0, squares, jnp.inf).argmin(-1))


def nearest(vectors: Array, count: int, *others: Array) -> list[Array]:
    """The `count` shortest of n vectors (n, 2, B), nearest first, and what belongs to them in `others`.

    With fewer than `count` the rest is zero.
    """
    order = jnp.argsort(jnp.square(vectors).sum(-2), axis=0)[:count, None]
    missing = max(0, count - vectors.shape[0])
    return [
        jnp.pad(jnp.take_along_axis(x, order, axis=0), ((0, missing), (0, 0), (0, 0)))
        for x in (vectors, *others)
    ]

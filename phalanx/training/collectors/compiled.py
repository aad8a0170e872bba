"""Collector for environments in JAX: the scan over `env.step` in training, evaluation and recording."""

import copy
from typing import Any, NamedTuple, Self

import jax

from phalanx.algorithms.base import Algorithm
from phalanx.envs.base import Env
from phalanx.envs.sides import facing, told
from phalanx.envs.wrappers import Running, WithState, prepare
from phalanx.opponents.base import Opponents
from phalanx.ops.joined import Joined, join
from phalanx.ops.parts import split
from phalanx.training.collectors.base import Collector, Keep, over_seeds, whole_transition
from phalanx.types import Array, Observation, PyTree, Transition


class Actors(NamedTuple):
    """B environments between two steps, and the memory of the agents in them."""

    running: Running
    memory: PyTree
    key: Array
    opponent: PyTree = None
    """the memory of those who play the other side, if anybody does"""


class Compiled(Collector):
    """Pure functions: `start_one` and `collect_one` compile into one program with the update."""

    promise = "exact"

    def __init__(
        self,
        env: Env,
        algorithm: Algorithm,
        envs: int,
        seeds: int = 1,
        with_states: bool = False,
        opponents: Opponents | None = None,
    ):
        """`opponents`, if given, play the other side; `env` is then the environment of the learner's side."""
        self.env, self.algorithm, self.opponents = env, algorithm, opponents
        self.prepared = prepare(WithState(env) if with_states else env, **algorithm.config.inputs)
        self.spec = self.prepared.spec
        self.envs, self.seeds = envs, seeds
        self.seconds = {}  # one program does it all
        # Traced once although used by several programs, which are the same as without it.
        self._reset = jax.jit(self.prepared.reset, inline=True)
        self._step = jax.jit(self.prepared.step, inline=True)
        self._collect = jax.jit(self._collect_steps, static_argnums=(2, 3, 4), inline=True)

    # One seed

    def start_one(self, key: Array) -> Actors:
        """Reset B environments and begin with empty memories."""
        reset_key, act_key = jax.random.split(key)
        running = jax.vmap(self._reset)(jax.random.split(reset_key, self.envs))
        opponent = None if self.opponents is None else self.opponents.start(self.envs)
        memory = self.algorithm.actor.initial_memory(self.envs)
        return Actors(split(running, 0), split(memory, 0), act_key, opponent)

    def collect_one(
        self,
        policy: PyTree,
        actors: Actors,
        length: int,
        greedy: bool = False,
        keep: Keep = whole_transition,
        playing: PyTree = None,
    ) -> tuple[Actors, Any]:
        """Play `length` steps in B environments. Also returns what `keep` keeps of each, (T, B, ...).

        `playing` are the parameters of those who play the other side, (M, ...).
        """
        return self._collect(policy, actors, length, greedy, keep, playing)

    def _collect_steps(
        self, policy: PyTree, actors: Actors, length: int, greedy: bool, keep: Keep, playing: PyTree
    ) -> tuple[Actors, Any]:
        policy = self.algorithm.actor.ready(policy)

        def step(joined: Joined, _: None) -> tuple[Joined, Joined]:
            actors: Actors = joined.separate()
            running, memory, key, opponent = actors
            key, act_key, env_key = jax.random.split(key, 3)
            acted = {}
            if self.opponents is not None:
                side, opponent_key = self.opponents.other, jax.random.fold_in(act_key, 1)
                chosen, opponent, acted = self.opponents.choose(
                    playing, self.others_observation(actors), running.first, opponent, opponent_key
                )
                running = told(running, side, chosen)
            action, next_memory, extras = self.algorithm.actor.act(
                policy, running.observation, running.first, memory, act_key, greedy
            )
            env_keys = jax.random.split(env_key, running.first.shape[0])
            next_running, timestep = jax.vmap(self._step)(env_keys, running, action)
            transition = Transition(
                observation=running.observation,
                first=running.first,
                memory=memory,
                action=action,
                extras=extras,
                reward=timestep.reward,
                terminated=timestep.terminated,
                truncated=timestep.truncated,
                next_observation=timestep.observation,
                info={**timestep.info, **acted},
                agent_terminated=timestep.agent_terminated,
            )
            return join(Actors(next_running, next_memory, key, opponent)), join(keep(transition))

        joined, kept = jax.lax.scan(step, join(actors), None, length)
        return joined.separate(), kept.separate()

    # All seeds

    def with_sizes(self, envs: int, seeds: int) -> Self:
        """The same for another number of environments and seeds; opponents have a number of their own."""
        assert self.opponents is None or envs == self.envs
        other = copy.copy(self)
        other.envs, other.seeds = envs, seeds
        vars(other).pop("first_learner", None)  # which was made for as many environments as here
        return other

    def start(self, keys: Array) -> Actors:
        return over_seeds(self.start_one, self.seeds)(keys)

    def collect(
        self,
        policy: PyTree,
        actors: Actors,
        length: int,
        greedy: bool = False,
        keep: Keep = whole_transition,
        playing: PyTree = None,
    ) -> tuple[Actors, Any]:
        def one(policy: PyTree, actors: Actors, playing: PyTree):
            playing = self.first_playing(policy) if playing is None else playing
            return self.collect_one(policy, actors, length, greedy, keep, playing)

        return over_seeds(one, self.seeds, (0, 0, 0))(policy, actors, playing)

    def observation(self, actors: Actors) -> Observation:
        return actors.running.observation

    def others_observation(self, actors: Actors) -> Observation:
        assert self.opponents is not None
        return facing(actors.running).seen[self.opponents.other]

    def shapes(self, length: int) -> tuple[PyTree, Transition]:
        def both(key: Array):
            policy = self.algorithm.policy(self.first_learner(key))
            actors, playing = self.start_one(key), self.first_playing(policy)
            return actors, self.collect_one(policy, actors, length, playing=playing)[1]

        one = jax.eval_shape(both, jax.random.key(0))
        return jax.tree.map(lambda x: x.update(shape=(self.seeds, *x.shape)), one)

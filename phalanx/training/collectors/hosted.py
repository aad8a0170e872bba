"""Environments that are Python programs: the only loop over a pool of them, with a compiled `act`.

Keys are drawn as in `compiled.py`: the same seeds give the same actions, and the seed of each episode is the
key that a compiled environment would have been reset with.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.algorithms.base import Algorithm
from phalanx.envs.base import no_action
from phalanx.envs.host.base import HostEnv, HostObservation, HostStep
from phalanx.envs.host.pool import LocalPool, PoolStep
from phalanx.envs.wrappers import policy_input, policy_spec
from phalanx.errors import PhalanxError
from phalanx.training.collectors.base import Collector, Keep, over_seeds, whole_transition
from phalanx.types import Array, EnvSpec, Observation, PyTree, Transition


class HostedActors(NamedTuple):
    """What is known of B environments between two steps, without the environments themselves, (S, B, ...)."""

    observation: Observation
    """as the environments gave it"""
    first: Any
    last_action: Any
    memory: PyTree
    key: Array
    """(S,)"""
    episode_seeds: Array
    """(S, B, 2) uint32: the two words of the seed of each running episode"""


class Decision(NamedTuple):
    """What `act` computes before the environments are stepped, (S, B, ...)."""

    observation: Observation
    """as the networks see it"""
    action: Array
    memory: PyTree
    extras: PyTree
    key: Array
    next_seeds: Array
    """(S, B, 2) uint32: seeds of the next episodes, for environments that end with this step"""


class Hosted(Collector):
    """Steps a pool of S x B environments. Its programs are compiled once for all steps."""

    promise = "replayable"

    def __init__(self, env: HostEnv, algorithm: Algorithm, envs: int, seeds: int = 1):
        self.env, self.algorithm = env, algorithm
        self.envs, self.seeds = envs, seeds
        self.inputs = algorithm.config.inputs
        self.spec = policy_spec(env.spec, **self.inputs)
        self.pool = LocalPool(env, seeds * envs)
        self._start = jax.jit(over_seeds(self._start_one, seeds))
        self._act = jax.jit(over_seeds(self._act_one, seeds, (0, 0, None)), static_argnums=2)
        self._transition = jax.jit(self._make_transition)

    def start(self, keys: Array) -> HostedActors:
        memory, key, words = self._start(keys)
        return self._begin(memory, key, words)

    def restored(self, actors: HostedActors) -> HostedActors:
        return self._begin(actors.memory, actors.key, actors.episode_seeds)

    def _begin(self, memory: PyTree, key: Array, words: Array) -> HostedActors:
        """Begin the episodes of these seeds in all environments; memories are cleared at their first step."""
        observation = self._by_seed(self.pool.begin(_seeds(words)))
        first = np.ones((self.seeds, self.envs), bool)
        none_yet = np.asarray(no_action(self.env.spec))
        last_action = np.broadcast_to(none_yet, (*first.shape, *none_yet.shape))
        return HostedActors(_observation(self.env.spec, observation), first, last_action, memory, key, words)

    def collect(
        self,
        policy: PyTree,
        actors: HostedActors,
        length: int,
        greedy: bool = False,
        keep: Keep = whole_transition,
    ) -> tuple[HostedActors, Any]:
        kept = []
        keep_step = None if keep is whole_transition else jax.jit(over_seeds(keep, self.seeds))
        for _ in range(length):
            decision: Decision = self._act(policy, actors, greedy)
            action = np.asarray(decision.action)
            flat = action.reshape(self.seeds * self.envs, *action.shape[2:])
            played: PoolStep = self._by_seed(self.pool.step(flat, _seeds(decision.next_seeds)))
            step = (actors.first, actors.memory, decision, played)
            kept.append(jax.device_get(step) if keep_step is None else keep_step(self._transition(*step)))
            over = played.first.reshape(*played.first.shape, *[1] * (action.ndim - 2))
            actors = HostedActors(
                observation=_observation(self.env.spec, played.observation),
                first=played.first,
                last_action=np.where(over, np.asarray(no_action(self.env.spec)), action),
                memory=decision.memory,
                key=decision.key,
                episode_seeds=jnp.where(played.first[..., None], decision.next_seeds, actors.episode_seeds),
            )
        if keep_step is not None:
            return actors, jax.tree.map(lambda *xs: jnp.stack(xs, axis=1), *kept)
        steps = jax.tree.map(lambda *xs: np.stack(xs, axis=1), *map(_without_key, kept))  # (S, T, B, ...)
        return actors, self._transition(*steps)

    def observation(self, actors: HostedActors) -> Observation:
        return actors.observation

    def shapes(self, length: int) -> tuple[PyTree, Transition]:
        """From the spec alone: no environment is stepped."""
        spec, rows = self.env.spec, (self.seeds, length, self.envs)

        def make(key: Array):
            observation = _blank(spec, rows)
            policy = self.algorithm.policy(self.algorithm.init(key, self.envs))
            memory = self.algorithm.actor.initial_memory(self.envs)
            keys = jax.random.split(key, self.seeds)
            now = jax.tree.map(lambda x: x[:, 0], observation)
            none_yet = no_action(spec)
            actors = HostedActors(
                observation=now,
                first=jnp.ones(now.alive.shape[:2], bool),
                last_action=jnp.broadcast_to(none_yet, (*now.alive.shape[:2], *none_yet.shape)),
                memory=jax.tree.map(lambda x: jnp.broadcast_to(x, (self.seeds, *x.shape)), memory),
                key=keys,
                episode_seeds=jnp.zeros((self.seeds, self.envs, 2), jnp.uint32),
            )
            spread = jax.tree.map(lambda x: jnp.broadcast_to(x, (self.seeds, *x.shape)), policy)
            decision = over_seeds(lambda p, a: self._act_one(p, a, False), self.seeds, (0, 0))(spread, actors)
            decision = _without_key((None, None, decision, None))[2]
            decision = jax.tree.map(lambda x: jnp.repeat(x[:, None], length, axis=1), decision)
            memory = jax.tree.map(lambda x: jnp.repeat(x[:, None], length, axis=1), actors.memory)
            agents = (*rows, spec.n_agents)
            played = PoolStep(
                step=_blank_step(spec, rows),
                returns=jnp.zeros(agents),
                length=jnp.zeros(rows, jnp.int32),
                observation=observation,
                first=jnp.zeros(rows, bool),
            )
            return actors, self._make_transition(jnp.zeros(rows, bool), memory, decision, played)

        return jax.eval_shape(make, jax.random.key(0))

    # Compiled, for one seed

    def _start_one(self, key: Array):
        """As `Compiled.start_one`: the memory, the key of acting, and the seeds of the first episodes."""
        reset_key, act_key = jax.random.split(key)
        words = jax.random.key_data(jax.random.split(reset_key, self.envs))
        return self.algorithm.actor.initial_memory(self.envs), act_key, words

    def _act_one(self, policy: PyTree, actors: HostedActors, greedy: bool) -> Decision:
        """As a step of `Compiled.collect_one`, up to the environments."""
        key, act_key, env_key = jax.random.split(actors.key, 3)
        seen = self._see(actors.observation, actors.last_action)
        action, memory, extras = self.algorithm.actor.act(
            policy, seen, actors.first, actors.memory, act_key, greedy
        )
        # `AutoReset.step` resets with the second of the two keys that it splits.
        next_keys = jax.vmap(lambda key: jax.random.split(key)[1])(jax.random.split(env_key, self.envs))
        return Decision(seen, action, memory, extras, key, jax.random.key_data(next_keys))

    def _see(self, observation: Observation, last_action: Array) -> Observation:
        """An observation of the environment as the networks see it."""
        obs = policy_input(
            observation.obs,
            observation.alive,
            last_action,
            self.env.spec,
            self.inputs["agent_id"],
            self.inputs["last_action"],
        )
        return observation._replace(obs=obs)

    # Any leading axes

    def _make_transition(
        self, first: Any, memory: PyTree, decision: Decision, played: PoolStep
    ) -> Transition:
        step = played.step
        info = {"return": jnp.asarray(played.returns), "length": jnp.asarray(played.length)}
        return Transition(
            observation=decision.observation,
            first=jnp.asarray(first),
            memory=memory,
            action=decision.action,
            extras=decision.extras,
            reward=jnp.asarray(step.reward, jnp.float32),
            terminated=jnp.asarray(step.terminated),
            truncated=jnp.asarray(step.truncated),
            next_observation=self._see(_observation(self.env.spec, step.observation), decision.action),
            info={**info, "won": jnp.asarray(step.won)} if self.env.spec.has_win else info,
            agent_terminated=step.agent_terminated,
        )

    def _by_seed(self, tree: Any) -> Any:
        """(S * B, ...) -> (S, B, ...)."""
        return jax.tree.map(lambda x: x.reshape(self.seeds, self.envs, *x.shape[1:]), tree)


def _observation(spec: EnvSpec, seen: HostObservation) -> Observation:
    obs, state, avail, alive = seen
    if spec.obs_shape is not None and obs.dtype != spec.obs_dtype:
        raise PhalanxError(f"{spec.name} gives pictures as {obs.dtype}, but its spec says {spec.obs_dtype}")
    return Observation(
        jnp.asarray(obs, spec.obs_dtype),
        jnp.asarray(state, jnp.float32),
        jnp.asarray(avail),
        jnp.asarray(alive),
    )


def _seeds(words: Array) -> np.ndarray:
    """The two words of each seed, (S, B, 2) uint32, as one number, (S * B,) uint64."""
    both = np.asarray(words).reshape(-1, 2).astype(np.uint64)
    return (both[:, 0] << np.uint64(32)) | both[:, 1]


def _without_key(step: tuple[Any, ...]) -> tuple[Any, ...]:
    """A step without the key of acting, which no transition holds, and which numpy cannot stack."""
    first, memory, decision, played = step
    return first, memory, decision._replace(key=None, next_seeds=None), played


def _blank(spec: EnvSpec, rows: tuple[int, ...]) -> Observation:
    agents = (*rows, spec.n_agents)
    state = (*agents, spec.state_size) if spec.agent_state else (*rows, spec.state_size)
    return Observation(
        obs=jnp.zeros((*agents, *spec.obs_array), spec.obs_dtype),
        state=jnp.zeros(state),
        avail=jnp.ones((*agents, spec.n_actions), bool),
        alive=jnp.ones(agents, bool),
    )


def _blank_step(spec: EnvSpec, rows: tuple[int, ...]):

    agents, no = (*rows, spec.n_agents), jnp.zeros(rows, bool)
    ended = jnp.zeros(agents, bool) if spec.agents_end else None
    return HostStep(_blank(spec, rows), jnp.zeros(agents), no, no, no, ended)

"""Collector for Python environments: a loop over a pool of them, with a compiled `act`.

Keys are drawn as in `compiled.py`: the same seeds give the same actions, and the seed of each episode is the
key that a compiled environment would have been reset with.
"""

import itertools
import time
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.algorithms.base import Algorithm
from phalanx.envs.base import no_action
from phalanx.envs.host.base import HostSource
from phalanx.envs.host.pool import Pool, PoolStep, joined
from phalanx.envs.sides import HostedSide
from phalanx.envs.wrappers import policy_input, policy_spec
from phalanx.opponents.base import Opponents
from phalanx.training.collectors.base import Collector, Keep, over_seeds, whole_transition
from phalanx.training.collectors.steps import (
    Decision,
    Draw,
    HostedActors,
    Step,
    blank,
    blank_step,
    seed_numbers,
)
from phalanx.types import Array, Observation, PyTree, TimeStep, Transition

BLOCK = 64  # steps that are drawn for or kept at once, where nobody knows how many will be played


class Hosted(Collector):
    """Steps a pool of S x B environments. Its programs are compiled once for all steps."""

    def __init__(
        self,
        env: HostSource,
        algorithm: Algorithm,
        envs: int,
        seeds: int = 1,
        film: bool = False,
        opponents: Opponents | None = None,
    ):
        """`film`: take pictures of the first episodes, which are then in `self.pool.films()`.

        With `opponents` they play the other side; `env` is then that of their learner's side.
        """
        self.env, self.algorithm, self.film, self.opponents = env, algorithm, film, opponents
        self.side = env if isinstance(env, HostedSide) else None
        assert (self.side is None) == (opponents is None), "somebody must play the other side"
        self.envs, self.seeds = envs, seeds
        self.promise = "replayable"  # until the environments have given their states
        self.inputs = algorithm.config.inputs
        self.spec = policy_spec(env.spec, **self.inputs)
        self.no_action = np.asarray(no_action(env.spec))
        self.seconds = {"environments": 0.0, "acting": 0.0, "learning": 0.0}
        self._start = jax.jit(over_seeds(self._start_one, seeds))
        self._draw = jax.jit(over_seeds(self._draw_one, seeds, (0, None)), static_argnums=1)
        self._act = jax.jit(over_seeds(self._act_one, seeds, (0, 0, 0, 0, None)), static_argnums=4)
        self._first_playing = jax.jit(over_seeds(self.first_playing, seeds))
        self._transition = jax.jit(self._make_transition)
        self._kept: dict[Keep, Any] = {}

    @cached_property
    def pool(self) -> Pool:
        """The environments, made when they are first needed."""
        return (self.env.film_pool if self.film else self.env.pool)(self.seeds * self.envs)

    def close(self) -> None:
        if "pool" in vars(self):
            self.pool.close()
            del self.pool

    @property
    def faults(self) -> int:
        """How often an environment or a worker has failed."""
        return self.pool.faults.total if "pool" in vars(self) else 0

    def start(self, keys: Array) -> HostedActors:
        memory, opponent, key, words = self._start(keys)
        observation = Observation(*self._by_seed(self.pool.begin(seed_numbers(words))))
        first = np.ones((self.seeds, self.envs), bool)
        last_action = np.broadcast_to(self.no_action, (*first.shape, *self.no_action.shape))
        return HostedActors(
            observation, first, last_action, memory, opponent, np.asarray(key), np.asarray(words)
        )

    def states(self) -> list[bytes | None]:
        states = self.pool.get_states()
        self.promise = "replayable" if None in states else "exact"
        return states

    def restored(self, actors: HostedActors, states: Sequence[bytes | None]) -> tuple[HostedActors, int]:
        """Episodes without a state begin again; memories are cleared at their first step."""
        states = states or [None] * self.seeds * self.envs
        seen, continued = self._by_seed(self.pool.resume(seed_numbers(actors.episode_seeds), states))
        over = ~continued.reshape(*continued.shape, *[1] * self.no_action.ndim)
        again = actors._replace(
            observation=Observation(*seen),
            first=np.where(continued, actors.first, True),
            last_action=np.where(over, self.no_action, actors.last_action),
            episode_seeds=np.asarray(actors.episode_seeds),
        )
        return again, int((~continued).sum())

    def collect(
        self,
        policy: PyTree,
        actors: HostedActors,
        length: int,
        greedy: bool = False,
        keep: Keep = whole_transition,
        playing: PyTree = None,
    ) -> tuple[HostedActors, Any]:
        play = self._play(self._teams(policy, playing), actors, greedy, length)
        if keep is not whole_transition:
            return self._keep_through(keep, play)
        played = list(play)
        steps = jax.tree.map(lambda *xs: np.stack(xs, axis=1), *(step for step, _ in played))
        return played[-1][1], self._transition(steps)

    def first_episodes(
        self, policy: PyTree, actors: HostedActors, greedy: bool, keep: Keep, playing: PyTree = None
    ) -> tuple[HostedActors, Any]:
        return self._keep_through(keep, self._play(self._teams(policy, playing), actors, greedy))

    def _teams(self, policy: PyTree, playing: PyTree) -> tuple[PyTree, PyTree]:
        """The parameters of the learner and of those who play the other side."""
        return policy, self._first_playing(policy) if playing is None else playing

    def _keep_through(
        self, keep: Keep, play: Iterator[tuple[Step, HostedActors]]
    ) -> tuple[HostedActors, Any]:
        """Play to the end. Also returns what `keep` keeps of each step, (S, T, B, ...), a block at a time."""
        blocks, length, actors = [], 0, None
        while block := list(itertools.islice(play, BLOCK)):
            steps, actors = [step for step, _ in block], block[-1][1]
            length += len(steps)
            padded = steps + steps[-1:] * (BLOCK - len(steps))  # one program for all blocks
            blocks.append(self._keep(keep, jax.tree.map(lambda *xs: np.stack(xs, axis=1), *padded)))
        assert actors is not None
        return actors, jax.tree.map(lambda *xs: np.concatenate(xs, axis=1)[:, :length], *blocks)

    def _play(
        self, teams: tuple[PyTree, PyTree], actors: HostedActors, greedy: bool, length: int | None = None
    ) -> Generator[tuple[Step, HostedActors]]:
        """Play `length` steps, or until every environment has completed an episode; it then stands still.

        While one part of the pool steps, actions are computed for another. Actions are always computed for
        all environments, and those of other parts dropped, so that random numbers do not depend on the parts.
        """
        running = np.ones(self.seeds * self.envs, bool)
        parts = range(len(self.pool.parts))
        draws = self._draws(actors.key, length)
        draw = next(draws)
        decisions = [self._send(part, teams, actors, draw, greedy, running) for part in parts]
        while draw is not None:
            decision, decisions, played = self._chosen(decisions), [], []
            seen, first, last_action = jax.tree.map(np.copy, actors[:3])
            after = actors._replace(
                observation=seen,
                first=first,
                last_action=last_action,
                memory=decision.memory,
                opponent=decision.opponent,
                key=draw.key,
            )
            coming = next(draws, None)
            for part in parts:
                begun = time.perf_counter()
                played.append(self.pool.receive(part))
                self.seconds["environments"] += time.perf_counter() - begun
                self._show(after, part, played[part], decision.action)
                if length is None:
                    running[self._rows(part)] &= ~played[part].first | played[part].broken
                if coming is not None:
                    decisions.append(self._send(part, teams, after, coming, greedy, running))
            together: PoolStep = self._by_seed(joined(played))
            step = Step(*actors[:4], decision.action, decision.extras, together, decision.acted)
            seeds = np.where(together.first[..., None], draw.next_seeds, actors.episode_seeds)
            actors, draw = after._replace(episode_seeds=seeds), coming
            yield step, actors
            if not running.any():
                for part in parts:  # told to step, though nobody has to
                    self.pool.receive(part)
                return

    def _draws(self, key: np.ndarray, length: int | None) -> Iterator[Draw]:
        """The draws of `length` steps, or without end; many steps are drawn at once."""
        while True:
            drawn: Draw = jax.device_get(self._draw(key, length or BLOCK))
            for t in range(drawn.act.shape[1]):
                yield Draw(*(words[:, t] for words in drawn))
            if length is not None:
                return
            key = drawn.key[:, -1]

    def _send(
        self,
        part: int,
        teams: tuple[PyTree, PyTree],
        actors: HostedActors,
        draw: Draw,
        greedy: bool,
        running: np.ndarray,
    ) -> Decision:
        """Act for all environments, and let those of a part step."""
        begun = time.perf_counter()
        decision = jax.device_get(self._act(*teams, actors[:5], draw.act, greedy))
        self.seconds["acting"] += time.perf_counter() - begun
        which = self._rows(part)
        action = decision.told.reshape(len(running), *decision.told.shape[2:])
        self.pool.send(part, action[which], seed_numbers(draw.next_seeds)[which], running[which])
        return decision

    def _chosen(self, decisions: list[Decision]) -> Decision:
        """The decisions of each part in its own rows."""
        if len(decisions) == 1:
            return decisions[0]

        def pick(*each: np.ndarray) -> np.ndarray:
            flat = [x.reshape(self.seeds * self.envs, *x.shape[2:]) for x in each]
            rows = [x[self._rows(part)] for part, x in enumerate(flat)]
            return np.concatenate(rows).reshape(each[0].shape)

        return jax.tree.map(pick, *decisions)

    def _show(self, actors: HostedActors, part: int, played: PoolStep, action: np.ndarray) -> None:
        """Write what a part shows after its step into the actors."""
        over = played.first.reshape(-1, *[1] * (action.ndim - 2))
        own = action.reshape(self.seeds * self.envs, *action.shape[2:])[self._rows(part)]
        new = (Observation(*played.observation), played.first, np.where(over, self.no_action, own))

        def write(kept: np.ndarray, rows: np.ndarray) -> None:
            kept.reshape(self.seeds * self.envs, *kept.shape[2:])[self._rows(part)] = rows

        jax.tree.map(write, actors[:3], new)

    def _rows(self, part: int) -> slice:
        rows = self.pool.parts[part]
        return slice(rows.start, rows.stop)

    def _keep(self, keep: Keep, steps: Step) -> Any:
        """What `keep` keeps of steps (S, T, B, ...)."""
        if keep not in self._kept:
            of_seed = over_seeds(jax.vmap(keep), self.seeds)
            self._kept[keep] = jax.jit(lambda steps: of_seed(self._make_transition(steps)))
        return self._kept[keep](steps)

    def observation(self, actors: HostedActors) -> Observation:
        return self._own(actors.observation)

    def others_observation(self, actors: HostedActors) -> Observation:
        assert self.side is not None
        assert self.opponents is not None
        return self.side.sides.seen(self.opponents.other, actors.observation)

    def shapes(self, length: int) -> tuple[PyTree, Transition]:
        """From the spec alone: no environment is made."""
        spec = self.env.spec if self.side is None else self.side.sides.whole
        rows = (self.seeds, self.envs)

        def spread(tree: PyTree) -> PyTree:
            return jax.tree.map(lambda x: jnp.broadcast_to(x, (self.seeds, *x.shape)), tree)

        def make(key: Array):
            actors = HostedActors(
                observation=blank(spec, rows),
                first=jnp.ones(rows, bool),
                last_action=jnp.broadcast_to(self.no_action, (*rows, *self.no_action.shape)),
                memory=spread(self.algorithm.actor.initial_memory(self.envs)),
                opponent=spread(self._others_memory()),
                key=jnp.zeros((self.seeds, 2), jnp.uint32),
                episode_seeds=jnp.zeros((*rows, 2), jnp.uint32),
            )
            policy = spread(self.algorithm.policy(self.algorithm.init(key, self.envs)))
            playing = over_seeds(self.first_playing, self.seeds)(policy)
            act = over_seeds(partial(self._act_one, greedy=False), self.seeds, (0, 0, 0, 0))
            decision = act(policy, playing, actors[:5], actors.key)
            played = blank_step(spec, rows)
            step = Step(*actors[:4], decision.action, decision.extras, played, decision.acted)
            steps = jax.tree.map(lambda x: jnp.repeat(x[:, None], length, axis=1), step)
            return actors, self._make_transition(steps)

        return jax.eval_shape(make, jax.random.key(0))

    # Compiled, for one seed

    def _start_one(self, key: Array):
        """As `Compiled.start_one`: memories, the key of acting, and the seeds of the first episodes."""
        reset_key, act_key = jax.random.split(key)
        words = jax.random.key_data(jax.random.split(reset_key, self.envs))
        memory = self.algorithm.actor.initial_memory(self.envs)
        return memory, self._others_memory(), jax.random.key_data(act_key), words

    def _others_memory(self) -> PyTree:
        return None if self.opponents is None else self.opponents.start(self.envs)

    def _draw_one(self, words: Array, length: int) -> Draw:
        """The keys of `length` steps as `Compiled.collect_one` splits them, (T, ...)."""

        def step(key: Array, _: None) -> tuple[Array, Draw]:
            key, act_key, env_key = jax.random.split(key, 3)
            # `AutoReset.step` resets with the second of the two keys that it splits.
            next_keys = jax.vmap(lambda key: jax.random.split(key)[1])(jax.random.split(env_key, self.envs))
            return key, Draw(*map(jax.random.key_data, (act_key, next_keys, key)))

        return jax.lax.scan(step, jax.random.wrap_key_data(words), None, length)[1]

    def _act_one(
        self, policy: PyTree, playing: PyTree, shown: tuple[Any, ...], words: Array, greedy: bool
    ) -> Decision:
        """As a step of `Compiled.collect_one`, up to the environments."""
        observation, first, last_action, memory, opponent = shown
        seen, key = self._see(observation, last_action), jax.random.wrap_key_data(words)
        decision = Decision(*self.algorithm.actor.act(policy, seen, first, memory, key, greedy))
        if self.side is None or self.opponents is None:
            return decision
        teams, other = self.side.sides, self.opponents.other
        chosen, opponent, acted = self.opponents.choose(
            playing, teams.seen(other, observation), first, opponent, jax.random.fold_in(key, 1)
        )
        joint = teams.joint({self.side.side: decision.action, other: chosen})
        return decision._replace(opponent=opponent, acted=acted, joint=joint)

    # Any leading axes

    def _own(self, observation: Observation) -> Observation:
        """What the learner's agents see of what all do."""
        return observation if self.side is None else self.side.sides.seen(self.side.side, observation)

    def _see(self, observation: Observation, last_action: Array) -> Observation:
        """An observation of the environment as the learner's networks see it."""
        own = self._own(observation)
        inputs = self.inputs["agent_id"], self.inputs["last_action"]
        return own._replace(obs=policy_input(own.obs, own.alive, last_action, self.env.spec, *inputs))

    def _make_transition(self, each: Step) -> Transition:
        step, info = self._learners_step(each.played)
        return Transition(
            observation=self._see(each.observation, each.last_action),
            first=jnp.asarray(each.first),
            memory=each.memory,
            action=jnp.asarray(each.action),
            extras=each.extras,
            reward=jnp.asarray(step.reward),
            terminated=jnp.asarray(step.terminated),
            truncated=jnp.asarray(step.truncated),
            next_observation=self._see(Observation(*each.played.step.observation), each.action),
            info={**info, **(each.acted or {})},
            agent_terminated=step.agent_terminated,
            broken=jnp.asarray(each.played.broken),
        )

    def _learners_step(self, played: PoolStep) -> tuple[TimeStep, dict[str, PyTree]]:
        """The time step of the learner's side, and what is known of it beside."""
        whole = played.step
        step = TimeStep(
            Observation(*whole.observation),
            whole.reward,
            whole.terminated,
            whole.truncated,
            {},
            whole.agent_terminated,
        )
        info: dict[str, PyTree] = {
            "return": jnp.asarray(played.returns),
            "length": jnp.asarray(played.length),
        }
        if self.env.spec.has_win:
            info["won"] = jnp.asarray(whole.won)
        if self.side is None:
            return step, info
        teams, mine = self.side.sides, self.side.side
        others = [teams.agents(other, played.returns) for other in self.side.others]
        info["other_return"] = jnp.concatenate(others, axis=-1).mean(-1)
        info["return"] = teams.agents(mine, info["return"])
        if self.side.tells:
            info["others"] = {other: teams.of(other, step) for other in self.side.others}
        return teams.of(mine, step), info

    def _by_seed(self, tree: Any) -> Any:
        """(S * B, ...) -> (S, B, ...)."""
        return jax.tree.map(lambda x: x.reshape(self.seeds, self.envs, *x.shape[1:]), tree)

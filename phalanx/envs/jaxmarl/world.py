"""Any environment of JaxMARL as a `phalanx.Env`. Subclasses handle environments with special rules."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from phalanx.config import option
from phalanx.envs.base import Env
from phalanx.envs.foreign import Hands, Sight, building, like, package, pad
from phalanx.types import Array, EnvSpec, PyTree, TimeStep


@dataclass(frozen=True)
class World(Env):
    """An environment of JaxMARL by its id.

    JaxMARL has one `done` for the end of a task and for its time limit. Here the environment's own limit is
    set so high that it is never reached. So `done` means the end of the task, and phalanx counts the time
    limit. `step_env` is called, never `step`, which would reset.
    """

    of_another_package = True

    common_reward: ClassVar[bool] = False
    counts: ClassVar[bool] = False
    """Whether integers in pictures are counts and flags rather than intensities."""

    id: str = ""
    time_limit: int = option(100, "steps after which an episode is truncated", at_least=1)

    def build(self) -> Any:
        """Make the environment of JaxMARL."""
        return package("jaxmarl").make(self.id)

    @property
    def name(self) -> str:
        """The name without `jaxmarl/`."""
        return self.id

    @cached_property
    def world(self) -> Any:
        """The environment of JaxMARL."""
        with building(f"jaxmarl/{self.name}"):
            return self.build()

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f"agent_{a}" if isinstance(a, int) else str(a) for a in self.world.agents)

    @cached_property
    def _start(self) -> PyTree:
        """The shapes of what `reset` gives."""
        return jax.eval_shape(self.world.reset, jax.random.key(0))

    @cached_property
    def sight(self) -> Sight:
        return Sight.of(self.names, jax.eval_shape(self.observations, self._start[0]), self.counts)

    @cached_property
    def hands(self) -> Hands:
        return Hands.of(f"jaxmarl/{self.name}", [self.world.action_space(a) for a in self.world.agents])

    @cached_property
    def spec(self) -> EnvSpec:
        fields = {
            "name": f"jaxmarl/{self.name}",
            "agents": self.names,
            "agent_types": ("agent",) * len(self.names),
            "time_limit": self.time_limit,
            "common_reward": self.common_reward,
        }
        return EnvSpec(**{**fields, **self.sight.spec, **self.hands.spec, **self.details()})

    def details(self) -> dict[str, Any]:
        """What this world says otherwise or beyond, as fields of an `EnvSpec`."""
        return {}

    def reset(self, key: Array) -> tuple[PyTree, TimeStep]:
        raw, state = self.world.reset(key)
        return like(state, self._start[1]), self._tell(raw, state)

    def step(self, key: Array, state: PyTree, actions: Array) -> tuple[PyTree, TimeStep]:
        given = dict(zip(self.world.agents, self.hands.rows(self.actions(state, actions)), strict=True))
        raw, after, rewards, dones, info = self.world.step_env(key, state, given)
        over = self.terminated(state, given, after, dones["__all__"])
        step = self._tell(raw, after, reward=self.rewards(rewards, info), terminated=over)
        return like(after, self._start[1]), step

    def _tell(self, raw: PyTree, state: PyTree, **outcome: Any) -> TimeStep:
        mask = self.avail(state)
        return self.timestep(
            self.sight.array(self.observations(raw)),
            state=self.global_state(raw),
            avail=None if mask is None else pad(list(mask), self.spec.n_actions).astype(bool),
            alive=self.alive(state),
            **outcome,
            **self.info(state),
        )

    # What a subclass may know better

    def observations(self, raw: PyTree) -> list[PyTree]:
        """Each agent's observation."""
        return [raw[a] for a in self.world.agents]

    def global_state(self, raw: PyTree) -> Array | None:
        """(X,), or None for all observations in a row."""
        return None

    def actions(self, state: PyTree, actions: Array) -> Array:
        """What the agents do, with that of the dead replaced."""
        return actions

    def rewards(self, rewards: PyTree, info: PyTree) -> Array:
        """(A,)"""
        return jnp.stack([jnp.asarray(rewards[a], jnp.float32) for a in self.world.agents])

    def terminated(
        self, before: PyTree, actions: dict[Any, Array], after: PyTree, done: Array
    ) -> Array | bool:
        """Whether the task itself ended."""
        return done

    def avail(self, state: PyTree) -> list[Array] | None:
        """Each agent's mask of actions; None if all may always be taken."""
        return None

    def alive(self, state: PyTree) -> Array | None:
        """(A,) bool, or None if nobody dies."""
        return None

    def info(self, state: PyTree) -> dict[str, Array]:
        return {}

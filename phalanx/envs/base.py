"""The environment interface: a spec and the pure functions `reset` and `step`."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from phalanx.types import Array, EnvSpec, Observation, PyTree, TimeStep


class Env(ABC):
    """A task for A agents, written as pure functions of a state that can be any pytree of arrays.

    A subclass defines `spec`, `reset` and `step`. It does not reset itself, count the time limit, handle
    batches or add agent ids: `phalanx.envs.wrappers` does that. Write it as a frozen dataclass; its fields
    are then options on the command line (`--env.FIELD`).
    """

    of_another_package: ClassVar[bool] = False
    """whether code outside of phalanx is traced, which may change while phalanx does not"""

    @property
    @abstractmethod
    def spec(self) -> EnvSpec:
        """Names, sizes and properties of the environment."""

    @abstractmethod
    def reset(self, key: Array) -> tuple[PyTree, TimeStep]:
        """Begin an episode."""

    @abstractmethod
    def step(self, key: Array, state: PyTree, actions: Array) -> tuple[PyTree, TimeStep]:
        """Play one step with `actions`, (A,) or continuous (A, U); those of dead agents have no effect."""

    def frame(self, state: PyTree) -> dict[str, Any] | None:
        """Describe `state` for a viewer; None when there is nothing to draw."""
        return None

    def timestep(
        self,
        obs: Array,
        *,
        state: Array | None = None,
        reward: Array | float = 0.0,
        terminated: Array | bool = False,
        truncated: Array | bool = False,
        alive: Array | None = None,
        avail: Array | None = None,
        agent_terminated: Array | None = None,
        **info: Array,
    ) -> TimeStep:
        """Build a time step, with defaults for what is not given.

        The default `state` is the concatenation of all observations. By default all agents are alive, and all
        actions that are not padding are available. A scalar reward is given to every agent. Pictures keep
        their dtype; in a state made of pictures uint8 is scaled to [0, 1].
        """
        n = self.spec.n_agents
        # Numbers between 0 and 1 would be lost as uint8: `check` says so, rather than a cast.
        obs = jnp.asarray(obs, jnp.float32) if self.spec.obs_shape is None else jnp.asarray(obs)
        if state is None:
            state = obs.reshape(-1) / 255 if obs.dtype == jnp.uint8 else obs.reshape(-1)
        observation = Observation(
            obs=obs,
            state=jnp.asarray(state, jnp.float32),
            avail=jnp.asarray(own_actions(self.spec)) if avail is None else avail,
            alive=jnp.ones(n, bool) if alive is None else alive,
        )
        return TimeStep(
            observation=observation,
            reward=jnp.broadcast_to(jnp.asarray(reward, jnp.float32), (n,)),
            terminated=jnp.asarray(terminated, bool),
            truncated=jnp.asarray(truncated, bool),
            info=info,
            agent_terminated=agent_terminated,
        )


def own_actions(spec: EnvSpec) -> np.ndarray:
    """(A, U) bool: which actions, or entries of a continuous one, are an agent's own rather than padding."""
    return np.arange(spec.n_actions) < np.array(spec.action_counts)[:, None]


def no_action(spec: EnvSpec) -> Array:
    """The last action before the first step: (A,) of -1, or (A, U) of zeros."""
    if spec.action_kind == "continuous":
        return jnp.zeros((spec.n_agents, spec.n_actions))
    return jnp.full(spec.n_agents, -1, jnp.int32)


def numbered(prefix: str, count: int) -> tuple[str, ...]:
    """`numbered("agent", 2)` is `("agent_0", "agent_1")`."""
    return tuple(f"{prefix}_{i}" for i in range(count))


def joint_features(agents: tuple[str, ...], obs_features: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Name the entries of the default state, the concatenation of all (padded) observations."""
    width = max(len(names) for names in obs_features)
    return tuple(
        f"{agent}:{names[i] if i < len(names) else 'padding'}"
        for agent, names in zip(agents, obs_features, strict=True)
        for i in range(width)
    )

"""The environment contract: a spec, `reset` and `step`, all pure. Authors write rules and nothing else."""

from abc import ABC, abstractmethod
from typing import Any

import jax.numpy as jnp
import numpy as np

from phalanx.types import Array, EnvSpec, Observation, PyTree, TimeStep


class Env(ABC):
    """A team task for A agents, written as pure functions of a state that is any pytree of arrays.

    A subclass gives `spec`, `reset` and `step` and never resets itself, counts the time limit,
    batches, or adds agent ids: `phalanx.envs.wrappers` does that. It is best written as a frozen
    dataclass, whose fields then are its options on the command line (`--env.FIELD`).
    """

    @property
    @abstractmethod
    def spec(self) -> EnvSpec:
        """What the environment says of itself."""

    @abstractmethod
    def reset(self, key: Array) -> tuple[PyTree, TimeStep]:
        """Begin an episode."""

    @abstractmethod
    def step(self, key: Array, state: PyTree, actions: Array) -> tuple[PyTree, TimeStep]:
        """Play one step with `actions`, (A,) or continuous (A, U). What the dead choose must not matter."""

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
        """Build a time step, filling in what the environment has nothing to say about.

        Without `state` the global state is all observations in a row; without `alive` all agents
        live; without `avail` every action that is not padding may be taken. A scalar reward is
        every agent's. A picture keeps its dtype; in a state made of pictures uint8 is scaled to [0, 1].
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
    """What stands for the action before the first: (A,) of -1, or (A, U) of zeros."""
    if spec.action_kind == "continuous":
        return jnp.zeros((spec.n_agents, spec.n_actions))
    return jnp.full(spec.n_agents, -1, jnp.int32)


def numbered(prefix: str, count: int) -> tuple[str, ...]:
    """`numbered("agent", 2)` is `("agent_0", "agent_1")`."""
    return tuple(f"{prefix}_{i}" for i in range(count))


def joint_features(agents: tuple[str, ...], obs_features: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Name the entries of the default state: all (padded) observations in a row."""
    width = max(len(names) for names in obs_features)
    return tuple(
        f"{agent}:{names[i] if i < len(names) else 'padding'}"
        for agent, names in zip(agents, obs_features, strict=True)
        for i in range(width)
    )

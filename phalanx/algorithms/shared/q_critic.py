"""Critics of joint actions: Q(input of the critic, actions of the agents).

Critics see actions encoded: one-hot if discrete, scaled to [-1, 1] if continuous, zero where an entry is not
the agent's own. There may be several critics (twins), with parameters (G, E, ...).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.algorithms.shared.critic import CriticView, require_one_value, view_shapes
from phalanx.algorithms.shared.team import Rewards, TeamConfig, joined, shared_network
from phalanx.networks import sharing
from phalanx.types import Array, EnvSpec, Observation, PyTree

SEES = {
    "obs": "own observation and action",
    "state": "global state and all actions",
    "state+obs": "global state, own observation, all actions",
}


class ActionCode:
    """Actions as critics see them, (..., A, U), and back."""

    def __init__(self, spec: EnvSpec):
        self.discrete, self.size = spec.action_kind == "discrete", spec.n_actions
        low, high = (0.0, 0.0) if self.discrete else spec.action_range
        self.middle, self.half = (high + low) / 2, (high - low) / 2

    def encode(self, action: Array, avail: Array) -> Array:
        """What was done, (..., A) or (..., A, U)."""
        if self.discrete:
            return jax.nn.one_hot(action, self.size)
        return jnp.where(avail, (action - self.middle) / self.half, 0.0)

    def decode(self, code: Array) -> Array:
        """What the environment gets."""
        return code.argmax(-1).astype(jnp.int32) if self.discrete else self.middle + self.half * code


class QCritic:
    """`count` critics, with their own parameter sharing.

    With one output they value the actions that they see. With `outputs` = U they value every action of the
    agent, as in COMA, and do not see its own.
    """

    def __init__(
        self,
        config: TeamConfig,
        spec: EnvSpec,
        rewards: Rewards,
        view: CriticView,
        share: str,
        count: int = 1,
        outputs: int = 1,
    ):
        self.spec, self.view, self.count, self.outputs = spec, view, count, outputs
        self.groups = sharing.groups(config.share if share == "same" else share, spec, "critic_share")
        self.central = view != "obs"
        require_one_value(self.groups, view, rewards, spec)
        actions = spec.n_actions * (spec.n_agents - (outputs > 1) if self.central else outputs == 1)
        size, shapes = view_shapes(config, view, spec)
        self.network = shared_network(config, self.groups, size + actions, outputs, 1.0, **shapes)

    def init(self, key: Array) -> PyTree:
        """Parameters, (G, E, ...)."""
        return jax.vmap(self.network.init, out_axes=1)(jax.random.split(key, self.count))

    def inputs(self, observation: Observation, actions: Array) -> Any:
        """What the critic of each agent sees, (..., A, F) or a `Picture`.

        `actions` are encoded, (..., A, U); or (..., A, A, U), where agent i has its own version of what all
        do, [i, j] being what j does.
        """
        spec, alive = self.spec, observation.alive
        rows, n = alive.shape, spec.n_agents
        if not self.central:
            return joined([], observation.obs, [actions] if self.outputs == 1 else [])
        if self.outputs > 1:
            others = [[j for j in range(n) if j != i] for i in range(n)]
            actions = actions[..., np.array(others, int).reshape(n, n - 1), :]
        elif actions.ndim == alive.ndim + 1:
            actions = jnp.broadcast_to(actions[..., None, :, :], (*rows, *actions.shape[-2:]))
        actions = actions.reshape(*rows, -1)
        state = observation.state if spec.agent_state else observation.state[..., None, :]
        state = jnp.broadcast_to(state, (*rows, state.shape[-1]))
        if self.view == "state":
            return jnp.concatenate([state, actions], axis=-1)
        return joined([state], observation.obs, [actions])

    def own_replaced(self, taken: Array, chosen: Array) -> Array:
        """What all do as the critic of each agent sees it: its own is what it chose, the others' was taken.

        (..., A, U) twice -> (..., A, A, U); (..., A, U) if critics see only their agent's action.
        """
        if not self.central:
            return chosen
        own = np.eye(self.spec.n_agents, dtype=bool)[..., None]
        return jnp.where(own, chosen[..., None, :, :], taken[..., None, :, :])

    def values(
        self, params: PyTree, observation: Observation, actions: Array, first: Array
    ) -> tuple[Array, Array]:
        """Q over sequences that begin without a memory: (L, N, ...) -> (E, L, N, A, outputs).

        Also memories after each step, (E, L, N, A, H).
        """
        memory = self.network.initial_memory(first.shape[1])
        seen = self.inputs(observation, actions)
        return jax.vmap(self.network.apply, in_axes=(1, None, None, None))(params, seen, memory, first)

    def next_values(self, params: PyTree, observation: Observation, actions: Array, memories: Array) -> Array:
        """Q of next observations, each from the memory at its own step: (E, L, N, A, outputs)."""
        seen = self.inputs(observation, actions)
        return jax.vmap(self.network.apply_each, in_axes=(1, None, 0))(params, seen, memories)

"""QPLEX: the team's advantage is a sum of the agents' advantages, weighted by state and actions.

Wang et al. 2021, "QPLEX: Duplex Dueling Multi-Agent Q-Learning", https://arxiv.org/abs/2008.01062
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from phalanx.algorithms.shared.value_based import ValueBased, ValueBasedConfig
from phalanx.config import option
from phalanx.networks import dense
from phalanx.types import Array, PyTree

LEAST_WEIGHT = 1e-10  # weights are positive


@dataclass(frozen=True)
class QPLEXConfig(ValueBasedConfig):
    """Every option of QPLEX."""

    heads: int = option(4, "attention heads that weight the advantages", at_least=1, at_most=1024)
    hyper_layers: int = option(2, "layers of the networks in the mixer", at_least=1, at_most=8)
    hyper_hidden: int = option(64, "width of the hypernetworks", at_least=1, at_most=65_536)


class QPLEX(ValueBased):
    """Q_tot = sum of V_i + sum of lambda_i A_i, where V_i and A_i are transformed by the state."""

    Config = QPLEXConfig
    config: QPLEXConfig
    team_value = True
    needs_state = True

    def init_mixer(self, key: Array) -> PyTree:
        n, state, c = self.spec.n_agents, self.spec.state_size, self.config
        keys = jax.random.split(key, 5)
        joint = n * self.spec.n_actions
        hidden = (c.hyper_hidden,) * (c.hyper_layers - 1)
        return {
            "weight": dense.init(keys[0], (state, *hidden, n)),
            "bias": dense.init(keys[1], (state, *hidden, n)),
            "head": dense.init(keys[2], (state, *hidden, c.heads)),
            "agent": dense.init(keys[3], (state, *hidden, c.heads * n)),
            "action": dense.init(keys[4], (state + joint, *hidden, c.heads * n)),
        }

    def mix(self, params: PyTree, chosen: Array, best: Array, action: Array, state: Array):
        p = jax.tree.map(lambda x: x[0], params)
        weight = jnp.abs(dense.apply(p["weight"], state)) + LEAST_WEIGHT
        value = weight * chosen + dense.apply(p["bias"], state)
        # Q_i = V_i + A_i is learnt through; what the attention adds to A_i only weighs it.
        advantage = jax.lax.stop_gradient(weight * (chosen - best))
        return (value + (self.attention(p, action, state) - 1) * advantage).sum(-1, keepdims=True)

    def attention(self, p: PyTree, action: Array, state: Array) -> Array:
        """The positive weight lambda_i(s, u) of each agent's advantage, (..., A): a sum over heads."""
        did = jax.nn.one_hot(action, self.spec.n_actions)
        joint = jnp.concatenate([state, did.reshape(*did.shape[:-2], -1)], axis=-1)
        shape = (*action.shape[:-1], self.config.heads, action.shape[-1])
        of_head = jnp.abs(dense.apply(p["head"], state)) + LEAST_WEIGHT
        of_agent = jax.nn.sigmoid(dense.apply(p["agent"], state)).reshape(shape)
        of_action = jax.nn.sigmoid(dense.apply(p["action"], joint)).reshape(shape)
        return (of_head[..., None] * of_agent * of_action).sum(-2)


ALGORITHM = QPLEX

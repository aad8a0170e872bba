"""QMIX: the team's value is a monotonic mixture of the agents' values, with weights made from the state.

Rashid et al. 2018, "QMIX: Monotonic Value Function Factorisation for Deep Multi-Agent Reinforcement
Learning", https://arxiv.org/abs/1803.11485; the fine-tuned settings are those of Hu et al. 2021,
https://arxiv.org/abs/2102.03479.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from phalanx.algorithms.shared.value_based import ValueBased, ValueBasedConfig
from phalanx.config import option
from phalanx.networks import dense
from phalanx.types import Array, PyTree

# With 1 the team's value may begin steeper than its agents' values (2.3 times on simple_spread), and what
# they overestimate grows through the targets: to +66 in one run, where no return is above 0.
HEAD_GAIN = 0.1


@dataclass(frozen=True)
class QMIXConfig(ValueBasedConfig):
    """Every option of QMIX."""

    mixer_hidden: int = option(32, "width of the mixing network", at_least=1, at_most=65_536)
    hyper_layers: int = option(2, "layers of the hypernetworks", at_least=1, at_most=8)
    hyper_hidden: int = option(64, "width of the hypernetworks", at_least=1, at_most=65_536)
    positive: Literal["abs", "softplus"] = option("abs", "what makes the mixing weights positive")


class QMIX(ValueBased):
    """Q_tot = w2(s) elu(w1(s) Q + b1(s)) + v(s), with w1 and w2 positive."""

    Config = QMIXConfig
    config: QMIXConfig
    team_value = True
    needs_state = True

    def init_mixer(self, key: Array) -> PyTree:
        c, state = self.config, self.spec.state_size
        hidden = (c.hyper_hidden,) * (c.hyper_layers - 1)
        keys = jax.random.split(key, 4)
        return {
            "first": dense.init(keys[0], (state, *hidden, self.spec.n_agents * c.mixer_hidden), HEAD_GAIN),
            "first_bias": dense.init(keys[1], (state, c.mixer_hidden), HEAD_GAIN),
            "second": dense.init(keys[2], (state, *hidden, c.mixer_hidden), HEAD_GAIN),
            "second_bias": dense.init(keys[3], (state, c.mixer_hidden, 1), HEAD_GAIN),
        }

    def mix(self, params: PyTree, chosen: Array, best: Array, action: Array, state: Array):
        p = jax.tree.map(lambda x: x[0], params)
        positive = jnp.abs if self.config.positive == "abs" else jax.nn.softplus
        first = positive(dense.apply(p["first"], state))
        first = first.reshape(*chosen.shape, self.config.mixer_hidden)
        hidden = jax.nn.elu((chosen[..., None] * first).sum(-2) + dense.apply(p["first_bias"], state))
        second = positive(dense.apply(p["second"], state))
        return (hidden * second).sum(-1, keepdims=True) + dense.apply(p["second_bias"], state)


ALGORITHM = QMIX

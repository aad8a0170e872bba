"""The monotonic mixing network of QMIX (Rashid et al. 2018, https://arxiv.org/abs/1803.11485)."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from phalanx.config import option
from phalanx.networks import dense
from phalanx.types import Array, EnvSpec, PyTree

# With 1 the team's value may begin steeper than its agents' values (2.3 times on simple_spread), and what
# they overestimate grows through the targets: to +66 in one run, where no return is above 0.
HEAD_GAIN = 0.1


@dataclass(frozen=True)
class MixingConfig:
    """The options of a monotonic mixer."""

    mixer_hidden: int = option(32, "width of the mixing network", at_least=1, at_most=65_536)
    hyper_layers: int = option(2, "layers of the hypernetworks", at_least=1, at_most=8)
    hyper_hidden: int = option(64, "width of the hypernetworks", at_least=1, at_most=65_536)
    positive: Literal["abs", "softplus"] = option("abs", "function that makes the mixing weights positive")


def init(key: Array, config: MixingConfig, spec: EnvSpec) -> PyTree:
    """Parameters of the hypernetworks."""
    c, state = config, spec.state_size
    hidden = (c.hyper_hidden,) * (c.hyper_layers - 1)
    keys = jax.random.split(key, 4)
    return {
        "first": dense.init(keys[0], (state, *hidden, spec.n_agents * c.mixer_hidden), HEAD_GAIN),
        "first_bias": dense.init(keys[1], (state, c.mixer_hidden), HEAD_GAIN),
        "second": dense.init(keys[2], (state, *hidden, c.mixer_hidden), HEAD_GAIN),
        "second_bias": dense.init(keys[3], (state, c.mixer_hidden, 1), HEAD_GAIN),
    }


def mix(config: MixingConfig, params: PyTree, values: Array, state: Array) -> Array:
    """Q_tot = w2(s) elu(w1(s) Q + b1(s)) + v(s), with w1 and w2 positive: (..., A), (..., X) -> (..., 1)."""
    positive = jnp.abs if config.positive == "abs" else jax.nn.softplus
    first = positive(dense.apply(params["first"], state))
    first = first.reshape(*values.shape, config.mixer_hidden)
    hidden = jax.nn.elu((values[..., None] * first).sum(-2) + dense.apply(params["first_bias"], state))
    second = positive(dense.apply(params["second"], state))
    return (hidden * second).sum(-1, keepdims=True) + dense.apply(params["second_bias"], state)

"""Distributions over actions. Unavailable actions have probability 0 and do not count in the entropy.

`of` returns the distribution for an environment's actions. Its methods are functions of the network's outputs
(..., F), the mask (..., U) and the sample `drawn`, to which log-probabilities refer; `action` maps the sample
to the action that the environment gets.
"""

# JAX and Flax leave parts of their own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from dataclasses import dataclass
from typing import Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.types import Array, EnvSpec


def mask_logits(logits: Array, avail: Array) -> Array:
    """Give unavailable actions the lowest finite logit, so that their probability is exactly 0.

    Finite, because gradients through an infinity are NaN. logits and avail are (..., U).
    """
    return jnp.where(avail, logits, jnp.finfo(logits.dtype).min)


def sample(key: Array, logits: Array, avail: Array) -> Array:
    """Draw an available action by the Gumbel trick: (..., U) -> (...) int32.

    Only available entries take part in the maximum, so a forbidden one is unreachable however
    extreme the logits are. Where nothing is available the answer is 0.
    """
    noisy = logits + _gumbel(key, logits)
    return mode(noisy, avail)


def _gumbel(key: Array, like: Array) -> Array:
    """Gumbel noise for an array, drawn as one long axis.

    The numbers are the same. For a last axis of a few actions XLA lays out the loop over them turn by turn on
    a CPU, which takes five times as long to compile.
    """
    return jax.random.gumbel(key, (like.size,), like.dtype).reshape(like.shape)


def mode(logits: Array, avail: Array) -> Array:
    """The available action of the largest logit: (..., U) -> (...) int32."""
    finite = jnp.nan_to_num(logits, neginf=jnp.finfo(logits.dtype).min)
    return jnp.argmax(jnp.where(avail, finite, -jnp.inf), axis=-1).astype(jnp.int32)


def or_first(avail: Array) -> Array:
    """The same actions; where none is available, the first, which `mode` and `sample` answer: (..., U)."""
    first = jnp.arange(avail.shape[-1]) == 0
    return avail | (first & ~avail.any(-1, keepdims=True))


def log_probs(logits: Array, avail: Array) -> Array:
    """Log-probabilities of all actions: (..., U). Forbidden ones hold a huge negative number."""
    return jax.nn.log_softmax(mask_logits(logits, avail))


def explored(policy: Array, avail: Array, epsilon: Array | float) -> Array:
    """Log-probabilities of a policy, (..., U), mixed with a uniform one with weight `epsilon`."""
    uniform = avail / jnp.maximum(avail.sum(-1, keepdims=True), 1)
    return jnp.log(jnp.maximum((1 - epsilon) * policy + epsilon * uniform, jnp.finfo(jnp.float32).tiny))


def chosen(values: Array, actions: Array) -> Array:
    """Pick the entry of each action: (..., U), (...) -> (...).

    By a mask: backwards, picking by index would be a scatter, which a CPU does one entry after the other.
    """
    picked = actions[..., None] == jnp.arange(values.shape[-1])
    return jnp.where(picked, values, 0.0).sum(-1)


def straight_through(key: Array, logits: Array, avail: Array, temperature: float) -> Array:
    """Draw an action as a one-hot vector (..., U), with the gradient of a relaxed draw.

    The straight-through Gumbel-softmax of Jang et al. 2017, https://arxiv.org/abs/1611.01144: forwards it is
    the draw, backwards the softmax of the perturbed logits.
    """
    noisy = logits + _gumbel(key, logits)
    soft = jax.nn.softmax(mask_logits(noisy / temperature, avail))
    hard = jax.nn.one_hot(mode(noisy, avail), logits.shape[-1], dtype=logits.dtype)
    return hard + soft - jax.lax.stop_gradient(soft)


def entropy(logits: Array, avail: Array) -> Array:
    """Entropy over the available actions: (..., U) -> (...)."""
    log_p = log_probs(logits, avail)
    return -jnp.where(avail, jnp.exp(log_p) * log_p, 0.0).sum(-1)


def kl(logits: Array, other: Array, avail: Array) -> Array:
    """Kullback-Leibler divergence of `other` from `logits`, over the available actions: (..., U) -> (...)."""
    one, two = log_probs(logits, avail), log_probs(other, avail)
    return jnp.where(avail, jnp.exp(one) * (one - two), 0.0).sum(-1)


class Distribution(Protocol):
    """What an actor needs of a distribution over actions."""

    @property
    def outputs(self) -> int:
        """F: the number of network outputs that it needs."""
        ...

    def sample(self, key: Array, out: Array, avail: Array) -> Array:
        """Draw."""
        ...

    def mode(self, out: Array, avail: Array) -> Array:
        """The likeliest to be drawn."""
        ...

    def action(self, drawn: Array) -> Array:
        """What the environment gets."""
        ...

    def log_prob(self, out: Array, avail: Array, drawn: Array) -> Array:
        """(...)"""
        ...

    def entropy(self, out: Array, avail: Array) -> Array:
        """(...)"""
        ...

    def kl(self, out: Array, other: Array, avail: Array) -> Array:
        """Kullback-Leibler divergence of `other` from `out`, (...)."""
        ...


@dataclass(frozen=True)
class Categorical:
    """One of U actions, by logits."""

    outputs: int

    def sample(self, key: Array, out: Array, avail: Array) -> Array:
        return sample(key, out, avail)

    def mode(self, out: Array, avail: Array) -> Array:
        return mode(out, avail)

    def action(self, drawn: Array) -> Array:
        return drawn

    def log_prob(self, out: Array, avail: Array, drawn: Array) -> Array:
        return chosen(log_probs(out, avail), drawn)

    def entropy(self, out: Array, avail: Array) -> Array:
        return entropy(out, avail)

    def kl(self, out: Array, other: Array, avail: Array) -> Array:
        return kl(out, other, avail)


LOG_STD = (-5.0, 2.0)
# Nodes and weights for means over a normal distribution, exact for polynomials up to degree 31.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(16)


@dataclass(frozen=True)
class Gaussian:
    """U numbers, each normally distributed around its mean, on the scale of half the actions' range.

    The network outputs means and log standard deviations. With `squash` the sample is mapped into the range
    by tanh, and the log-probability is that of the result; without it the environment clips, and the
    log-probability is that of the unclipped sample. Padded entries do not count.
    """

    size: int
    low: float
    high: float
    squash: bool

    @property
    def outputs(self) -> int:
        return 2 * self.size

    def _split(self, out: Array) -> tuple[Array, Array]:
        mean, log_std = jnp.split(out, 2, axis=-1)
        return mean, log_std.clip(*LOG_STD)

    def sample(self, key: Array, out: Array, avail: Array) -> Array:
        mean, log_std = self._split(out)
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)

    def mode(self, out: Array, avail: Array) -> Array:
        return self._split(out)[0]

    def action(self, drawn: Array) -> Array:
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        return middle + half * (jnp.tanh(drawn) if self.squash else drawn.clip(-1.0, 1.0))

    def log_prob(self, out: Array, avail: Array, drawn: Array) -> Array:
        mean, log_std = self._split(out)
        each = -0.5 * jnp.square((drawn - mean) / jnp.exp(log_std)) - log_std - 0.5 * jnp.log(2 * jnp.pi)
        return jnp.where(avail, each - self._stretch(drawn), 0.0).sum(-1)

    def entropy(self, out: Array, avail: Array) -> Array:
        mean, log_std = self._split(out)
        each = 0.5 * jnp.log(2 * jnp.pi * jnp.e) + log_std
        if self.squash:
            # The entries are independent, so that the mean of the stretch is one integral an entry.
            points = mean[..., None] + jnp.exp(log_std)[..., None] * NODES
            each = each + (self._stretch(points) * (WEIGHTS / WEIGHTS.sum())).sum(-1)
        else:
            each = each + self._stretch(mean)
        return jnp.where(avail, each, 0.0).sum(-1)

    def _stretch(self, drawn: Array) -> Array:
        """By how much `action` stretches the line at `drawn`: the logarithm of its slope.

        Clipping is left out: it is the environment's, not the policy's.
        """
        slope = jnp.log((self.high - self.low) / 2)
        if not self.squash:
            return jnp.full_like(drawn, slope)
        # log(1 - tanh(x)^2), in a form that stays finite.
        return slope + 2 * (jnp.log(2.0) - drawn - jax.nn.softplus(-2 * drawn))

    def kl(self, out: Array, other: Array, avail: Array) -> Array:
        (mean, log_std), (mean2, log_std2) = self._split(out), self._split(other)
        spread = (jnp.exp(2 * log_std) + jnp.square(mean - mean2)) / (2 * jnp.exp(2 * log_std2))
        return jnp.where(avail, log_std2 - log_std + spread - 0.5, 0.0).sum(-1)


Shape = Literal["tanh", "gaussian"]


def of(spec: EnvSpec, shape: Shape) -> Distribution:
    """The distribution over an environment's actions; `shape` is that of continuous ones."""
    if spec.action_kind == "discrete":
        return Categorical(spec.n_actions)
    return Gaussian(spec.n_actions, *spec.action_range, squash=shape == "tanh")

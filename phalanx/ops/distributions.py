"""Distributions over actions. What is not available cannot be drawn, and weighs nothing."""

import jax
import jax.numpy as jnp

from phalanx.types import Array


def mask_logits(logits: Array, avail: Array) -> Array:
    """Give forbidden actions the lowest finite logit, so that their probability is exactly 0.

    Finite, because gradients through an infinity are NaN. logits and avail are (..., U).
    """
    return jnp.where(avail, logits, jnp.finfo(logits.dtype).min)


def sample(key: Array, logits: Array, avail: Array) -> Array:
    """Draw an available action by the Gumbel trick: (..., U) -> (...) int32.

    Only available entries take part in the maximum, so a forbidden one is unreachable however
    extreme the logits are. Where nothing is available the answer is 0.
    """
    noisy = logits + jax.random.gumbel(key, logits.shape, logits.dtype)
    return mode(noisy, avail)


def mode(logits: Array, avail: Array) -> Array:
    """The available action of the largest logit: (..., U) -> (...) int32."""
    finite = jnp.nan_to_num(logits, neginf=jnp.finfo(logits.dtype).min)
    return jnp.argmax(jnp.where(avail, finite, -jnp.inf), axis=-1).astype(jnp.int32)


def log_probs(logits: Array, avail: Array) -> Array:
    """Log-probabilities of all actions: (..., U). Forbidden ones hold a huge negative number."""
    return jax.nn.log_softmax(mask_logits(logits, avail))


def chosen(values: Array, actions: Array) -> Array:
    """Pick the entry of each action: (..., U), (...) -> (...)."""
    return jnp.take_along_axis(values, actions[..., None].astype(jnp.int32), axis=-1)[..., 0]


def entropy(logits: Array, avail: Array) -> Array:
    """Entropy over the available actions: (..., U) -> (...)."""
    log_p = log_probs(logits, avail)
    return -jnp.where(avail, jnp.exp(log_p) * log_p, 0.0).sum(-1)

"""Optimisers and learning rates. Every group of agents has its own gradient clipping, Adam state and rate.

With one group for each agent the agents therefore learn independently. The rate at a moment is `Rates.at`.
Its options are in `TeamConfig` (lr, lr_decay, lr_horizon, group_lr) and, for critics, in `ActorCriticConfig`
(critic_lr, critic_group_lr); presets set both.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from phalanx.errors import PhalanxError, suggest
from phalanx.networks.sharing import Groups
from phalanx.types import Array, Clock, PyTree


class TrainState(NamedTuple):
    """Parameters and optimiser state of all groups of one network, each (G, ...)."""

    params: PyTree
    optimiser: PyTree


class Rates(NamedTuple):
    """The learning rates of G groups at the start and at the end of their horizon, each (G,).

    They are numpy arrays, or JAX's where `lr` is the argument of a program (`training/lanes.py`).
    """

    starts: Any
    ends: Any
    horizon: int | None
    """env steps over which rates decay, and after which they stay constant; None: the budget of the run"""

    @property
    def decay(self) -> bool:
        """Whether any of them changes."""
        return bool((self.starts != self.ends).any())

    @property
    def use_budget(self) -> bool:
        """Whether they depend on the budget of the run."""
        return self.decay and self.horizon is None

    def at(self, clock: Clock) -> Array:
        """The learning rates now, (G,)."""
        horizon = clock.budget if self.horizon is None else jnp.float32(self.horizon)
        progress = jnp.minimum(clock.env_steps / horizon, 1.0)
        return jnp.float32(self.starts) + progress * jnp.float32(self.ends - self.starts)


def make_rates(
    lr: float,
    groups: Groups,
    decay: bool = False,
    by_name: str = "",
    option: str = "group_lr",
    horizon: int | None = None,
) -> Rates:
    """The rate `lr` for all groups except those named in `by_name`: `NAME=START` or `NAME=START:END`, ...

    With `decay`, rates without an end value decay to zero.
    """
    starts: list[float] = [lr] * groups.count
    ends: list[float] = [0.0 if decay else lr] * groups.count
    for part in filter(None, (part.strip() for part in by_name.split(","))):
        name, _, value = part.rpartition("=")
        if name not in groups.names:
            raise PhalanxError(f"{option}: there is no group {name!r}.{suggest(name, groups.names)}")
        start, colon, end = value.partition(":")
        g = groups.names.index(name)
        starts[g] = _positive(start, part, option, zero=False)
        ends[g] = _positive(end, part, option, zero=True) if colon else starts[g] * (not decay)
    return Rates(_array(starts), _array(ends), horizon)


def _array(values: list[float]) -> Any:
    """Numbers of Python as a numpy array: their rates are known before anything is compiled."""
    return jnp.stack(values) if any(isinstance(each, jax.Array) for each in values) else np.array(values)


def _positive(text: str, part: str, option: str, zero: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (0 <= value < np.inf if zero else 0 < value < np.inf):
        raise PhalanxError(
            f"{option} must be like marine=1e-3 or marine=1e-3:1e-4 (from start to end), not {part!r}"
        )
    return value


class Optimiser(NamedTuple):
    """How the parameters of G groups are updated from their gradients."""

    transform: optax.GradientTransformation
    """from a gradient to an update without its learning rate, for one group"""
    rates: Rates

    def init(self, params: PyTree) -> TrainState:
        """Begin with parameters (G, ...)."""
        return TrainState(params, self._each_group(self.transform.init)(params))

    def apply_gradients(self, state: TrainState, grads: PyTree, clock: Clock) -> tuple[TrainState, Array]:
        """Take one gradient step. Also returns the norm of each group's gradient, (G,)."""
        lr = self.rates.at(clock)

        def step(p: Array, u: Array) -> Array:
            return p - lr.reshape(-1, *[1] * (p.ndim - 1)) * u

        updates, optimiser = self._each_group(self.transform.update)(grads, state.optimiser)
        norms = self._each_group(lambda g: jnp.float32(optax.global_norm(g)))(grads)
        return TrainState(jax.tree.map(step, state.params, updates), optimiser), norms

    def _each_group(self, fn: Callable[..., PyTree]) -> Callable[..., PyTree]:
        return jax.vmap(fn, axis_size=len(self.rates.starts))  # there may be no parameters at all


def require_learning(optimisers: tuple[Optimiser, ...], steps: int) -> None:
    """Raise an error if learning rates do not fit a budget of env steps."""
    horizon = lr_horizon(optimisers)
    if horizon is None:
        return
    if not any(each.rates.decay for each in optimisers):
        raise PhalanxError(
            "lr_horizon is set and no learning rate decays: add lr_decay, or group_lr with START:END"
        )
    if horizon < steps and end_at_zero(optimisers):
        raise PhalanxError(
            f"all learning rates are 0 after lr_horizon={horizon} env steps, and steps={steps}: nothing "
            f"would be learnt in the rest; use an lr_horizon of at least {steps}"
        )


def end_at_zero(optimisers: tuple[Optimiser, ...]) -> bool:
    """Whether nothing is learnt any more once all learning rates have decayed."""
    return not any(each.rates.ends.any() for each in optimisers)


def lr_horizon(optimisers: tuple[Optimiser, ...]) -> int | None:
    """Env steps over which learning rates decay, if they do not depend on the budget."""
    return next((each.rates.horizon for each in optimisers), None)

"""Learning rates: one for all groups, or one for each by name, constant or falling linearly."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from phalanx.errors import PhalanxError, suggest
from phalanx.networks.sharing import Groups
from phalanx.types import Array, Clock


class Rates(NamedTuple):
    """The learning rates of G groups at the start and at the end of their horizon, each (G,)."""

    starts: np.ndarray
    ends: np.ndarray
    horizon: int | None
    """env steps over which they fall, and after which they stay at their ends; None: the budget"""

    @property
    def fall(self) -> bool:
        """Whether any of them changes."""
        return bool((self.starts != self.ends).any())

    def at(self, clock: Clock) -> Array:
        """What they are now, (G,)."""
        horizon = clock.budget if self.horizon is None else jnp.float32(self.horizon)
        progress = jnp.minimum(clock.env_steps / horizon, 1.0)
        return jnp.float32(self.starts) + progress * jnp.float32(self.ends - self.starts)


def rates(
    lr: float,
    groups: Groups,
    decay: bool = False,
    by_name: str = "",
    option: str = "group_lr",
    horizon: int | None = None,
) -> Rates:
    """The rate `lr` for all groups but those that `by_name` names: `NAME=START` or `NAME=START:END`, ...

    With `decay` those without an end of their own fall to zero.
    """
    starts = np.full(groups.count, lr)
    ends = starts * (not decay)
    for part in filter(None, (part.strip() for part in by_name.split(","))):
        name, _, value = part.rpartition("=")
        if name not in groups.names:
            raise PhalanxError(f"{option}: there is no group {name!r}.{suggest(name, groups.names)}")
        start, colon, end = value.partition(":")
        g = groups.names.index(name)
        starts[g] = _positive(start, part, option, zero=False)
        ends[g] = _positive(end, part, option, zero=True) if colon else starts[g] * (not decay)
    return Rates(starts, ends, horizon)


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

"""Any environment as a PettingZoo `ParallelEnv`, for the learners and wrappers that take those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from phalanx import device
from phalanx.compat import shared
from phalanx.envs.base import Env
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.compat.parallel import Parallel

Illegal = Literal["replace", "raise"]


def to_pettingzoo(
    env: str | Env,
    *,
    options: Mapping[str, Any] | None = None,
    render_mode: str | None = None,
    mask_in_obs: bool = False,
    illegal: Illegal = "replace",
    seed: int = 0,
) -> Parallel:
    """An environment as a PettingZoo `ParallelEnv`: `to_pettingzoo("battle/3m")`.

    `env` is a name, with the environment's own `options`, or an environment object. The same seed,
    of `reset(seed=...)` or else this one, and the same actions give the same episodes.

    - All agents stay in `agents` until the episode ends, also dead agents, which still receive the
      team's reward: `infos[agent]["alive"]` marks them, and their actions have no effect. Only if the
      agents' episodes end separately (`EnvSpec.agents_end`), each leaves `agents` at its own end.
    - `infos[agent]["action_mask"]` says which actions may be taken; with `mask_in_obs` observations
      are dictionaries with `observation` and `action_mask`, as PettingZoo's classic games have them.
    - An unavailable action is replaced by the agent's first available one, with one warning, and
      `infos[agent]["illegal_action"]` is set; with `illegal="raise"` it is an error.
    - With `render_mode="rgb_array"` `render()` gives a picture, (H, W, 3) uint8.
    """
    try:
        from phalanx.compat.parallel import Parallel
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("pettingzoo", "gymnasium"):
            raise
        raise PhalanxError(f"to_pettingzoo needs {package}: pip install '.[pettingzoo]'") from None
    seed, env = shared.checked_seed(seed), shared.environment(env, options)
    if illegal not in ("replace", "raise"):
        raise PhalanxError(f"illegal must be 'replace' or 'raise', not {illegal!r}")
    if render_mode not in (None, "rgb_array"):
        raise PhalanxError(f"render_mode must be None or 'rgb_array', not {render_mode!r}")
    if render_mode and type(env).frame is Env.frame:
        raise PhalanxError(f"{env.spec.name} has nothing to draw: leave out render_mode")
    if mask_in_obs and env.spec.action_kind == "continuous":
        raise PhalanxError(f"{env.spec.name} has continuous actions, without masks: leave out mask_in_obs")
    device.configure()
    return Parallel(env, render_mode, mask_in_obs, illegal, seed)

"""Many copies of an environment behind numpy arrays, for learners that are not written in JAX."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx import device
from phalanx.compat import shared
from phalanx.envs.base import Env
from phalanx.envs.wrappers import as_given, prepare
from phalanx.errors import PhalanxError
from phalanx.types import Observation


class Batch(NamedTuple):
    """The result of a step of n environments. The arrays are copies."""

    obs: np.ndarray
    """(n, A, O) float32, or pictures as the spec declares them, to act on next: where an episode ended, the
    first of a new one"""
    state: np.ndarray
    """(n, X) float32, or (n, A, X) where the spec says `agent_state`"""
    avail: np.ndarray
    """(n, A, U) bool: the actions that each agent may take next; of a continuous one, its own entries"""
    alive: np.ndarray
    """(n, A) bool"""
    reward: np.ndarray
    """(n, A) float32"""
    terminated: np.ndarray
    """(n,) bool: the task itself ended; the value after this step is 0"""
    truncated: np.ndarray
    """(n,) bool: the episode was truncated by its time limit; bootstrap from the `final_` arrays"""
    final_obs: np.ndarray
    """like `obs`, but where an episode ended its true last one"""
    final_state: np.ndarray
    final_avail: np.ndarray
    info: dict[str, np.ndarray]
    """`return` (n, A) and `length` (n,) of the episode so far or that ended, and what the environment adds;
    empty after `reset`"""


class VectorEnv:
    """n copies of an environment, stepped together, with automatic reset."""

    def __init__(self, env: Env, n: int, seed: int = 0):
        self.spec, self.n = env.spec, n
        running = prepare(env)

        def begin(key):
            key, now = jax.random.split(key)
            return key, running.reset(now)

        def play(key, state, actions):
            key, now = jax.random.split(key)
            return key, *running.step(now, state, actions)

        self._begin, self._play = jax.jit(jax.vmap(begin)), jax.jit(jax.vmap(play))
        # Environment i plays the same whatever n is.
        self._keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(n))
        self._running: Any = None
        self._avail = np.zeros(0)

    def reset(self) -> Batch:
        """Start an episode in every environment."""
        device.require_own_process()
        self._keys, self._running = self._begin(self._keys)
        seen, shape = self._running.observation, (self.n, self.spec.n_agents)
        none, no = np.zeros(shape, np.float32), np.zeros(self.n, bool)
        return self._batch(seen, none, no, no, final=seen, info={})

    def step(self, actions: Any) -> Batch:
        """Play one step in every environment with `actions`.

        They are (n, A) whole numbers, or where the spec says `continuous` (n, A, U) numbers, which are
        clipped to the spec's `action_range`.
        """
        if self._running is None:
            raise PhalanxError("there is no running episode: call reset() first")
        device.require_own_process()
        chosen = jnp.asarray(self._checked(actions))
        self._keys, self._running, step = self._play(self._keys, self._running, chosen)
        outcome = (step.reward, step.terminated, step.truncated)
        return self._batch(self._running.observation, *outcome, final=step.observation, info=step.info)

    def _batch(self, seen: Observation, *outcome: Any, final: Observation, info: dict[str, Any]) -> Batch:
        if self.spec.obs_shape is not None:
            seen, final = as_given(seen, self.spec), as_given(final, self.spec)
        parts = (*seen, *outcome, final.obs, final.state, final.avail, info)
        host = Batch(*jax.device_get(parts))
        self._avail = host.avail
        return jax.tree.map(np.array, host)  # JAX's own may not be written to, which PyTorch minds

    def _checked(self, actions: Any) -> np.ndarray:
        """Check `actions` and convert them to an array."""
        spec, shape, each = self.spec, (self.n, self.spec.n_agents), "one for each environment and agent"
        if spec.action_kind == "continuous":
            shape, each = (*shape, spec.n_actions), "one for each environment, agent and entry"
        chosen = shared.read(actions, shape, spec, "actions", f"{shape}, {each}")
        playable, wrong = shared.judge(spec, self._avail, chosen)
        if wrong.any():
            env, agent = map(int, np.argwhere(wrong)[0])
            why = shared.refusal(spec, agent, self._avail[env, agent], chosen[env, agent])
            raise PhalanxError(f"environment {env}: {why}")
        return playable


def make_vec(env: str | Env, n: int, seed: int = 0, options: Mapping[str, Any] | None = None) -> VectorEnv:
    """Create `n` environments that are stepped together, with numpy arrays: `make_vec("battle/3m", 32)`.

    `env` is a name, with the environment's own `options`, or an environment object. The same `seed`
    and actions give the same episodes.
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise PhalanxError(f"n must be a whole number of at least 1, not {n!r}")
    seed, env = shared.checked_seed(seed), shared.environment(env, options)
    device.configure()
    return VectorEnv(env, int(n), seed)

"""A trained team that acts, and the one file that it travels in.

`team.zip` holds `team.json` (what the team is: algorithm, options, the environment's spec, a checksum),
`params.npz` (its parameters as plain arrays) and a README. Nothing in it is pickled, and the environment is
not needed to load it: the spec describes the inputs and outputs.
"""

import dataclasses
import hashlib
import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from phalanx import __version__, device, registry
from phalanx.algorithms.base import Algorithm
from phalanx.algorithms.shared.normalised import build
from phalanx.config import renamed
from phalanx.envs.base import Env, own_actions
from phalanx.envs.host.base import HostSource
from phalanx.envs.wrappers import policy_spec
from phalanx.errors import PhalanxError
from phalanx.opponents.player import Player, PlayerMemory
from phalanx.training.setup import Setup
from phalanx.types import Array, EnvSpec, Observation, PyTree


class Policy:
    """A trained team that acts, without the parts that are only needed for training."""

    def __init__(
        self, spec: EnvSpec, algorithm: Algorithm, params: PyTree, env: Env | HostSource | None = None
    ):
        self.env = env
        """the environment that it was trained in; None if it was loaded from a file"""
        self.spec = spec
        """names and sizes of its observations and actions"""
        self.algorithm = algorithm
        """the algorithm that trained it, whose actor chooses the actions"""
        self.params = params
        """the parameters of its networks"""
        self._player = Player(spec, algorithm)
        self._act = jax.jit(self._act_batch, static_argnames="greedy")

    @property
    def acts_on(self) -> frozenset[str]:
        """What `act` must be given: `observation`, and perhaps `state` and `memory`."""
        last_action = {"memory"} if self.algorithm.config.inputs["last_action"] else set()
        return self.algorithm.actor.acts_on | last_action

    def _act_batch(self, obs, state, memory, avail, alive, first, key, greedy):
        observation = Observation(obs, state, avail, alive)
        return self._player.act(self.params, observation, first, memory, key, greedy)

    def act(
        self,
        obs: Any,
        memory: PlayerMemory | None = None,
        avail: Any = None,
        alive: Any = None,
        *,
        state: Any = None,
        first: Any = None,
        greedy: bool = True,
        key: Array | None = None,
    ) -> tuple[np.ndarray, PlayerMemory]:
        """Choose an action for every agent; returns (actions, memory).

        `obs` is (A, O), or (B, A, O) for many episodes at once, as the environment returns it; pictures have
        the spec's `obs_shape` instead of (O,), and its `obs_dtype`. `memory` is None on the first step of an
        episode, and then the memory that the previous call returned. If many episodes are played at once,
        `first` (B,) marks those that begin with this step: their memory is cleared. `avail` (..., A, U)
        defaults to all actions, `alive` (..., A) to all agents. `state` (..., X) is needed if `acts_on`
        contains it. With `greedy=False` actions are sampled with `key`.
        """
        single = np.ndim(obs) == 1 + len(self.spec.obs_array)
        obs, avail, alive = self._shaped(obs, avail, alive)
        batch = len(obs)
        if memory is not None and memory.last_action.shape[0] != batch:
            raise PhalanxError(
                f"this memory is of {memory.last_action.shape[0]} episodes, and obs of {batch}"
            )
        first = self._begins(first, memory, batch)
        if memory is None:
            memory = self._player.start(batch)
        if not greedy and key is None:
            raise PhalanxError("sampling needs a key: act(..., greedy=False, key=jax.random.key(0))")
        key = jax.random.key(0) if key is None else key
        seen = self._state(state, batch)
        action, remembered = self._act(obs, seen, memory, avail, alive, first, key, greedy=greedy)
        return np.asarray(action)[0] if single else np.asarray(action), remembered

    def _shaped(self, obs: Any, avail: Any, alive: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Observations (B, A, O) or pictures, available actions (B, A, U) and who lives (B, A)."""
        n, actions, dtype = self.spec.n_agents, self.spec.n_actions, self.spec.obs_dtype
        obs = np.asarray(obs)
        if dtype == "float32":
            obs = obs.astype(np.float32)
        team = (n, *self.spec.obs_array)
        if obs.shape[-len(team) :] != team or obs.ndim > len(team) + 1:
            many = ", ".join(map(str, team))
            raise PhalanxError(f"obs must be {team}, or (B, {many}) for many episodes, not {obs.shape}")
        if obs.dtype != dtype:
            raise PhalanxError(f"obs must be {dtype}, as the environment gives it, not {obs.dtype}")
        obs = obs.reshape(-1, *team)
        try:
            avail = np.broadcast_to(
                own_actions(self.spec) if avail is None else avail, (len(obs), n, actions)
            )
            alive = np.broadcast_to(True if alive is None else alive, (len(obs), n))
        except ValueError:
            raise PhalanxError(
                f"avail must be (..., {n}, {actions}) and alive (..., {n}), as obs is"
            ) from None
        return obs, avail.astype(bool), alive.astype(bool)

    def _begins(self, first: Any, memory: PlayerMemory | None, batch: int) -> np.ndarray:
        """Which episodes begin, (B,): all without a memory, else those that `first` names."""
        if first is None:
            return np.full(batch, memory is None)
        first = np.asarray(first)
        if first.shape not in ((), (batch,)):
            raise PhalanxError(f"first must be ({batch},), a yes or no for each episode, not {first.shape}")
        if memory is None and not first.all():
            raise PhalanxError("without a memory every episode begins: leave out first, or give the memory")
        return np.broadcast_to(first.astype(bool), (batch,))

    def _state(self, state: Any, batch: int) -> np.ndarray:
        """The global state of each episode, (B, X) or (B, A, X); zeros where nothing acts on it."""
        spec = self.spec
        shape = (spec.n_agents, spec.state_size) if spec.agent_state else (spec.state_size,)
        if "state" not in self.algorithm.actor.acts_on:
            return np.zeros((batch, *shape), np.float32)
        if state is None:
            raise PhalanxError(
                f"this team acts on the global state: give act(..., state=...) of shape {shape}"
            )
        try:
            return np.asarray(state, np.float32).reshape(batch, *shape)
        except ValueError:
            raise PhalanxError(f"state must be {shape} for each episode, not {np.shape(state)}") from None


# The file

FORMAT = 1
SPEC, PARAMS, README = "team.json", "params.npz", "README.md"


def save(path: Path, setup: Setup, params: PyTree) -> None:
    """Write a team and what is needed to use it."""
    if not jax.tree.leaves(params):
        raise PhalanxError(
            f"{setup.config.algorithm} has no parameters to export: make it again where it is needed, as in "
            f"phalanx eval {setup.config.algorithm} {setup.config.env}"
        )
    buffer = io.BytesIO()
    arrays = {name: np.asarray(leaf) for name, leaf in _leaves(params).items()}
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    spec = setup.env.spec
    kept = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name != "script"}
    manifest = {
        "format": FORMAT,
        "phalanx": __version__,
        "algorithm": setup.config.algorithm,
        "options": dataclasses.asdict(setup.resolved.algorithm),
        "env": setup.config.env,
        "env_options": dict(setup.resolved.env),
        "spec": kept,
        "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(SPEC, json.dumps(manifest, indent=1))
        archive.writestr(PARAMS, buffer.getvalue())
        archive.writestr(README, _readme(manifest, spec))


def load_team(path: str | Path) -> Policy:
    """Load a team that `phalanx export` wrote; it acts like the team that `load` returns."""
    device.configure()
    manifest, arrays = _read(Path(path))
    try:
        spec = EnvSpec(**{name: _tuples(value) for name, value in manifest["spec"].items()})
        cls = registry.algorithm(manifest["algorithm"])
        config = registry.algorithm_config(manifest["algorithm"])(**renamed(manifest["options"]))
        seen = policy_spec(spec, **config.inputs)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PhalanxError(f"{path} does not fit phalanx {__version__}: {error}") from None
    algorithm = build(cls, config, seen)
    like = jax.eval_shape(lambda key: algorithm.policy(algorithm.init(key, 1)), jax.random.key(0))
    shapes = {name: (leaf.shape, leaf.dtype) for name, leaf in _leaves(like).items()}
    if shapes != {name: (array.shape, array.dtype) for name, array in arrays.items()}:
        raise PhalanxError(f"{path} does not fit phalanx {__version__}: its networks have other shapes")
    leaves = [jnp.asarray(arrays[name]) for name in shapes]
    return Policy(spec, algorithm, jax.tree.unflatten(jax.tree.structure(like), leaves))


def _leaves(tree: PyTree) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the file says and holds, if it is what was written."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest, params = json.loads(archive.read(SPEC)), archive.read(PARAMS)
    except FileNotFoundError:
        raise PhalanxError(f"there is no file {path}") from None
    except (
        OSError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        NotImplementedError,
    ) as error:
        raise PhalanxError(f"{path} is not a team, or is damaged: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PhalanxError(f"{path} is not a team that phalanx {__version__} can read")
    if hashlib.sha256(params).hexdigest() != manifest.get("sha256"):
        raise PhalanxError(f"{path} is damaged: {PARAMS} does not match its checksum")
    with np.load(io.BytesIO(params), allow_pickle=False) as arrays:
        return manifest, dict(arrays)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _readme(manifest: dict[str, Any], spec: EnvSpec) -> str:
    kind = f"{spec.n_actions} actions" if spec.action_kind == "discrete" else f"{spec.n_actions} numbers"
    sees = f"{spec.obs_size} numbers" if spec.obs_shape is None else f"a picture {spec.obs_shape}"
    torso = manifest["options"].get("network", "")
    needs = f"\nIts networks are `{torso}`, which must be importable.\n" if ":" in torso else ""
    return f"""# A team trained by {manifest["algorithm"]} on {manifest["env"]}

{spec.n_agents} agents ({", ".join(spec.agents)}); each sees {sees} and has {kind}.
`team.json` says what they are called, `params.npz` holds the networks as plain arrays (no pickle).
{needs}
```python
import phalanx  # version {manifest["phalanx"]} or newer

team = phalanx.load_team("team.zip")
memory = None  # on the first step of each episode
actions, memory = team.act(obs, memory, avail, alive)
```

`obs` is {(spec.n_agents, *spec.obs_array)} {spec.obs_dtype} as the environment gives it; `avail`,
({spec.n_agents}, {spec.n_actions}), says which actions may be taken, and `alive`,
({spec.n_agents},), who still acts. With a leading axis they are those of many teams at once.
"""

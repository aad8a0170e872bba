"""The Python front door: `train`, `resume`, `evaluate`, `load`, `make_env`, `check_env`."""

import dataclasses
import os
import re
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from phalanx import registry
from phalanx.config import Layer, RunConfig, convert, merge, options_of
from phalanx.envs.base import Env, no_action, own_actions
from phalanx.envs.check import check
from phalanx.envs.wrappers import policy_input
from phalanx.errors import PhalanxError, suggest
from phalanx.report import metrics
from phalanx.report.console import Console
from phalanx.training import checkpoint as checkpoints
from phalanx.training import device
from phalanx.training import run as runs
from phalanx.training.loop import without_replay
from phalanx.training.record import Record
from phalanx.training.setup import Setup, setup
from phalanx.types import Array, Observation, PyTree

Which = Literal["best", "last"]


def make_env(name: str, **options: Any) -> Env:
    """Build an environment by name, such as `make_env("switch/2", clock=True)`."""
    known = registry.env_options(name)
    for option in options:
        if option not in known:
            raise PhalanxError(f"{name} has no option {option!r}.{suggest(option, known)}")
    return registry.make_env(
        name, {key: convert(known[key], raw, "argument") for key, raw in options.items()}
    )


def check_env(env: Env) -> list[str]:
    """Every way in which an environment breaks the contract, a sentence each; empty when it is sound."""
    return check(env)


class Run:
    """A run folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        return metrics.read(self.folder)

    @property
    def facts(self) -> dict[str, Any]:
        """What run.json says: versions, device, status, final evaluation."""
        return Record(self.folder).read()

    def policy(self, which: Which | None = None, seed: int | None = None) -> "Policy":
        """The trained team, as `load` gives it."""
        return load(self.folder, which=which, seed=seed)


def train(
    algorithm: str,
    env: str | Env,
    *,
    out: str | Path | None = None,
    config: str | Path | None = None,
    preset: str = "auto",
    env_options: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Train a team and return its run folder.

    `env` is a name or an `Env` object. `options` are fields of the run (`steps`, `seeds`, `envs`, ...)
    or of the algorithm's config (`lr`, `share`, ...), as on the command line.
    """
    started = time.monotonic()
    command = f"phalanx.train({algorithm!r}, {env!r}, ...)"
    layer = Layer("argument", tables_of(algorithm, options, env_options or {}))
    return train_from_layer(algorithm, env, layer, config, preset, out, Console(quiet), command, started)


def tables_of(
    algorithm: str, options: Mapping[str, Any], env_options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Sort options into those of the run and those of the algorithm."""
    tables: dict[str, dict[str, Any]] = {"run": {}, "algorithm": {}, "env": dict(env_options)}
    run_options = options_of(RunConfig)
    known = {*run_options, *options_of(registry.algorithm(algorithm).Config)}
    for name, value in options.items():
        if name not in known:
            raise PhalanxError(f"{algorithm} has no option {name!r}.{suggest(name, known)}")
        tables["run" if name in run_options else "algorithm"][name] = value
    return tables


def train_from_layer(
    algorithm: str,
    env: str | Env,
    layer: Layer,
    config: str | Path | None,
    preset: str,
    out: str | Path | None,
    console: Console,
    command: str,
    started: float,
) -> Run:
    """What the command line and `train` share: merge the configuration, build, train."""
    this = resolve(algorithm, env, layer, config, preset)
    folder = Path(out) if out else _new_folder(this.config.algorithm, this.config.env)
    return Run(runs.train(this, folder, console, command, started).folder)


def resolve(
    algorithm: str, env: str | Env, layer: Layer, config: str | Path | None = None, preset: str = "auto"
) -> Setup:
    """Merge the configuration and put the parts of a run together; nothing is compiled or written yet."""
    device.configure()
    given = None
    if not isinstance(env, str):
        _require_sound(env, type(env).__name__)
        if layer.values["env"]:
            raise PhalanxError("env_options are for an environment given by name: build the object with them")
        given, (env, own_options) = env, _name_of(env)
        layer = layer._replace(values={**layer.values, "env": own_options})
    layers = [registry.preset(algorithm, env, preset)]
    if config is not None:
        layers.append(Layer(f"file {config}", registry.read_toml(Path(config))))
    layers.append(layer)
    known = {} if _only_an_object(env) else registry.env_options(env)
    resolved = merge(
        (algorithm, env), registry.algorithm(algorithm).Config, known, [each for each in layers if each]
    )
    built = given or registry.make_env(env, resolved.env)
    if given is None and ":" in env:
        _require_sound(built, env)
    return setup(resolved, built)


def _require_sound(env: Any, name: str) -> None:
    """Refuse an environment of the user's own that breaks the contract."""
    breaches = check(env)
    if breaches:
        more = f" ({len(breaches) - 1} more: phalanx.check_env lists them)" if len(breaches) > 1 else ""
        raise PhalanxError(f"{name} breaks the contract: {breaches[0]}{more}")


def _only_an_object(env: str) -> bool:
    return env.startswith("object:")


def _name_of(env: Env) -> tuple[str, dict[str, Any]]:
    """A name and options from which an environment object can be built again.

    `object:CLASS` when there are none: such a run is resumed by passing the object again.
    """
    values = (
        {f.name: getattr(env, f.name) for f in dataclasses.fields(env)}
        if dataclasses.is_dataclass(env)
        else {}
    )
    for name in (env.spec.name, f"{type(env).__module__}:{type(env).__qualname__}"):
        if name.startswith("__main__:"):
            continue  # another process has another main module
        try:
            options = {key: value for key, value in values.items() if key in registry.env_options(name)}
            again = registry.make_env(name, options)
            if type(again) is type(env) and (again == env or not vars(env).keys() - {"spec"}):
                return name, options
        except PhalanxError:
            pass
    return f"object:{type(env).__qualname__}", {}


def _new_folder(algorithm: str, env: str) -> Path:
    parts = [re.sub(r"[^\w.-]", "-", part) for part in (algorithm, *env.split("/"))]
    base = Path("results", *parts)
    name = datetime.now().strftime("%Y%m%d-%H%M%S")
    taken = 1
    while (folder := base / (name if taken == 1 else f"{name}-{taken}")).exists():
        taken += 1
    return folder


def _open(run: str | Path, env: Env | None, steps: Any = None) -> tuple[Setup, Record]:
    """Rebuild what a run folder was made with."""
    device.configure()
    record = Record(Path(run))
    facts = record.read()
    values = registry.read_toml(record.folder / "config.toml")
    names = values.get("run", {})
    algorithm, name = names.get("algorithm"), names.get("env")
    if not (isinstance(algorithm, str) and isinstance(name, str)):
        raise PhalanxError(f"{record.folder / 'config.toml'} does not name an algorithm and an environment")
    if _only_an_object(name) and env is None:
        raise PhalanxError(
            f"the environment of {run} was passed as a Python object: pass it again, as in "
            f"phalanx.resume(run, env=...) or phalanx.load(run, env=...)"
        )
    known = registry.env_options(name) if env is None else {}
    recorded = values.pop("env", {}) if env is not None else {}
    layers = [Layer(str(record.folder / "config.toml"), values)]
    if steps is not None:
        layers.append(Layer("resume", {"run": {"steps": steps}}))
    resolved = merge((algorithm, name), registry.algorithm(algorithm).Config, known, layers)
    if env is not None:
        _require_sound(env, type(env).__name__)
        resolved = resolved._replace(env=recorded)
    built = env or registry.make_env(name, resolved.env)
    if built.spec.version != facts.get("env_version", built.spec.version):
        raise PhalanxError(
            f"{run} was made with version {facts['env_version']} of {name}, and this is version "
            f"{built.spec.version}: its numbers would not be comparable"
        )
    return setup(resolved, built), record


def resume(
    run: str | Path,
    steps: float | None = None,
    *,
    env: Env | None = None,
    checkpoint: str | None = None,
    quiet: bool = False,
) -> Run:
    """Go on where a run stopped, or on to a larger budget of `steps`.

    `checkpoint` names one in the run's `checkpoints/`; without it the newest is taken.
    """
    started = time.monotonic()
    this, record = _open(run, env, steps)
    saved = checkpoints.choose(record.checkpoints, checkpoint)
    done = saved.updates * this.algorithm.steps_per_update
    if saved.updates >= this.total_updates and record.read().get("status") == "finished":
        raise PhalanxError(
            f"{run} is finished at {done:,} env steps: give a larger budget, as in --steps {2 * done}"
        )
    if steps is not None and saved.updates >= this.total_updates:
        raise PhalanxError(f"{run} already has {done:,} env steps: give a larger budget than that")
    if steps is not None:
        _write_steps(record, this.config.steps)
    runs.resume(this, record, saved, Console(quiet), started)
    return Run(record.folder)


def _write_steps(record: Record, steps: int) -> None:
    """Change the budget in config.toml; [run] is its first table."""
    path = record.folder / "config.toml"
    text = re.sub(
        r"(?m)^steps = .*$", f"steps = {steps}  # resume", path.read_text(encoding="utf-8"), count=1
    )
    unfinished = path.with_name(".config.toml")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def _policies(
    run: str | Path, env: Env | None, which: Which | None, checkpoint: str | None
) -> tuple[Setup, PyTree]:
    """The policies of all seeds, (S, ...), as a checkpoint has them."""
    if which not in ("best", "last", None):
        raise PhalanxError(f"which must be best or last, not {which!r}")
    this, record = _open(run, env)
    # Where sides compete, the best of one is the worst of another.
    which = which or ("last" if this.env.spec.teams else "best")
    saved = checkpoints.choose(record.checkpoints, checkpoint, to_go_on=False)
    like = jax.eval_shape(jax.vmap(this.loop.init), jnp.array(this.seeds, jnp.int32))
    carry = checkpoints.restore(saved, without_replay(like))
    policy = jax.vmap(this.algorithm.policy)(carry.learner) if which == "last" else carry.best.policy
    return this, policy


def evaluate(
    run: str | Path,
    env: str | Env | None = None,
    *,
    episodes: int = 200,
    which: Which | None = None,
    seed: int = 0,
    checkpoint: str | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Play greedy episodes and average them.

    `run` is a run folder, or the name of an algorithm to be evaluated untrained (such as `random`)
    in the environment `env`, a name with `env_options` or an object. `which` is as in `load`; `seed`
    picks the episodes.
    """
    if episodes < 1 or episodes != int(episodes):
        raise PhalanxError(f"episodes must be a whole number of at least 1, not {episodes}")
    device.configure()
    is_run = (Path(run) / "run.json").is_file()
    if env_options and (is_run or not isinstance(env, str)):
        raise PhalanxError("env_options are for an environment given by name: a run or an object has its own")
    if is_run and isinstance(env, str):
        raise PhalanxError(f"{run} is a run folder, which has its environment: leave out {env!r}")
    if env is None or (is_run and not isinstance(env, str)):
        this, policy = _policies(run, env, which, checkpoint)
    else:
        this, policy = _untrained(str(run), env, env_options or {})
    program = runs.jit_play(this.loop, this.config.seeds)
    return runs.per_seed(runs.play_many(program, policy, runs.FINAL_KEY + 1 + seed, int(episodes)), this)


def _untrained(algorithm: str, env: str | Env, options: Mapping[str, Any]) -> tuple[Setup, PyTree]:
    name = env if isinstance(env, str) else env.spec.name
    layers = [each for each in [registry.preset(algorithm, name, "auto")] if each]
    known = registry.env_options(env) if isinstance(env, str) else {}
    layers.append(Layer("argument", {"env": options}))
    resolved = merge((algorithm, name), registry.algorithm(algorithm).Config, known, layers)
    this = setup(resolved, registry.make_env(env, resolved.env) if isinstance(env, str) else env)
    learner = jax.vmap(lambda s: this.algorithm.init(jax.random.key(s), 1))(jnp.array(this.seeds))
    return this, jax.vmap(this.algorithm.policy)(learner)


class PolicyMemory(NamedTuple):
    """What a team remembers between two calls of `Policy.act`."""

    network: PyTree
    last_action: Array


class Policy:
    """A trained team that acts: all that is needed to use it, and nothing of its training."""

    def __init__(self, this: Setup, params: PyTree):
        self.env = this.env
        self.spec = this.env.spec
        self._algorithm = this.algorithm
        self._inputs = this.algorithm.inputs(this.resolved.algorithm)
        self._params = params
        self._act = jax.jit(self._act_batch, static_argnames="greedy")

    def _act_batch(self, obs, memory, avail, alive, first, key, greedy):
        seen = policy_input(
            obs,
            alive,
            memory.last_action,
            self.spec,
            self._inputs["agent_id"],
            self._inputs["last_action"],
        )
        state = jnp.zeros((obs.shape[0], self.spec.state_size))  # teams act on what their agents see
        observation = Observation(seen, state, avail, alive)
        action, network, _ = self._algorithm.act(
            self._params, observation, first, memory.network, key, greedy
        )
        return action, PolicyMemory(network, action)

    def act(
        self,
        obs: Any,
        memory: PolicyMemory | None = None,
        avail: Any = None,
        alive: Any = None,
        *,
        greedy: bool = True,
        key: Array | None = None,
    ) -> tuple[np.ndarray, PolicyMemory]:
        """Choose an action for every agent; returns (actions, memory).

        `obs` is (A, O), or (B, A, O) for many teams at once, as the environment gives it. Give the
        returned memory back on the next step, and None on the first step of an episode. `avail`
        (..., A, U) defaults to every action, `alive` (..., A) to everyone. With `greedy=False`
        actions are drawn at random, with `key`.
        """
        obs = np.asarray(obs, np.float32)
        n, width, actions = self.spec.n_agents, self.spec.obs_size, self.spec.n_actions
        if obs.shape[-2:] != (n, width) or obs.ndim > 3:
            raise PhalanxError(
                f"obs must be ({n}, {width}), or (B, {n}, {width}) for many teams, not {obs.shape}"
            )
        single = obs.ndim == 2
        obs = obs.reshape(-1, n, width)
        batch = obs.shape[0]
        try:
            avail = np.broadcast_to(own_actions(self.spec) if avail is None else avail, (batch, n, actions))
            alive = np.broadcast_to(True if alive is None else alive, (batch, n))
        except ValueError:
            raise PhalanxError(
                f"avail must be (..., {n}, {actions}) and alive (..., {n}), as obs is"
            ) from None
        if memory is not None and memory.last_action.shape[0] != batch:
            raise PhalanxError(f"this memory is of {memory.last_action.shape[0]} teams, and obs of {batch}")
        avail, alive = avail.astype(bool), alive.astype(bool)
        first = np.full(batch, memory is None)
        if memory is None:
            none_yet = no_action(self.spec)
            none_yet = jnp.broadcast_to(none_yet, (batch, *none_yet.shape))
            memory = PolicyMemory(self._algorithm.memory(batch), none_yet)
        if not greedy and key is None:
            raise PhalanxError("sampling needs a key: act(..., greedy=False, key=jax.random.key(0))")
        key = jax.random.key(0) if key is None else key
        action, remembered = self._act(obs, memory, avail, alive, first, key, greedy=greedy)
        return np.asarray(action)[0] if single else np.asarray(action), remembered


def load(
    run: str | Path,
    *,
    which: Which | None = None,
    seed: int | None = None,
    env: Env | None = None,
    checkpoint: str | None = None,
) -> Policy:
    """Load a trained team from its run folder: `actions, memory = load(run).act(obs, memory, avail)`.

    `which` takes the parameters that did `best` in an evaluation (the default), or the `last` ones
    (the default where the environment has more than one team); `seed` one of the
    seeds that were trained together (default: the first).
    """
    this, policies = _policies(run, env, which, checkpoint)
    seed = this.config.seed if seed is None else seed
    if seed not in this.seeds:
        raise PhalanxError(f"{run} has the seeds {', '.join(map(str, this.seeds))}, not {seed}")
    index = this.seeds.index(seed)
    return Policy(this, jax.tree.map(lambda p: p[index], policies))

"""Build set-ups from names or run folders, and load the policies of trained seeds."""

import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp

from phalanx import device, registry
from phalanx.algorithms.shared.optimiser import end_at_zero, lr_horizon
from phalanx.config import Layer, RunConfig, by_table, convert, merge, options_of, renamed
from phalanx.envs.base import Env
from phalanx.envs.check import check
from phalanx.envs.host.base import HostSource
from phalanx.envs.host.own import named_or_own
from phalanx.errors import PhalanxError
from phalanx.opponents.base import Opponents
from phalanx.opponents.kinds import Learning, PastSelves
from phalanx.opponents.make import Team
from phalanx.report import folder as run_folder
from phalanx.teams import load_team
from phalanx.training import checkpoint as checkpoints
from phalanx.training.loop import Carry
from phalanx.training.programs import carry_shapes
from phalanx.training.record import Record
from phalanx.training.setup import Setup, set_up
from phalanx.training.warm_start import start_from
from phalanx.types import PyTree

Which = Literal["best", "last"]
AnyEnv = Env | HostSource
# Behind a run folder: the opponent that learnt in it, and the past selves of its first seed.
OPPONENT, PAST = ":opponent", ":past"
Kind = TypeVar("Kind", bound=Opponents)


def tables_of(
    algorithm: str, options: Mapping[str, Any], env_options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Sort options into those of the run, of the algorithm and of the environment."""
    sorted_options = by_table(algorithm, registry.algorithm_config(algorithm), options)
    return {**sorted_options, "env": dict(env_options)}


def resolve(
    algorithm: str, env: str | AnyEnv, layer: Layer, config: str | Path | None = None, preset: str = "auto"
) -> Setup:
    """Merge the configuration and build the parts of a run; nothing is compiled or written yet."""
    device.prepare()
    given, env = None, _as_env(env)
    if not isinstance(env, str):
        devices = layer.values["run"].get("devices", 1)
        device.configure(convert(options_of(RunConfig)["devices"], devices, layer.origin))
        _require_sound(env, type(env).__name__)
        if layer.values["env"]:
            raise PhalanxError("env_options are for an environment given by name: build the object with them")
        given, (env, own_options) = env, _name_of(env)
        layer = layer._replace(values={**layer.values, "env": own_options})
    layers = [registry.preset(algorithm, env, preset)]
    if config is not None:
        layers.append(Layer(f"file {config}", registry.read_toml(Path(config))))
    layers.append(layer)
    known = {} if _only_an_object(env) else registry.env_options(env, _env_names(layers))
    resolved = merge(
        (algorithm, env), registry.algorithm_config(algorithm), known, [each for each in layers if each]
    )
    device.configure(resolved.run.devices)
    built = given or registry.make_env(env, resolved.env)
    if given is None and not registry.is_built_in(env):
        _require_sound(built, env)
    return set_up(resolved, built, load_opponent)


def _as_env(env: Any) -> str | AnyEnv:
    """What a program gives us as an environment: a name, an `Env`, or what phalanx can make into one."""
    return env if isinstance(env, str | Env | HostSource) else named_or_own(env)


def as_env_object(env: Any) -> AnyEnv:
    """As an object."""
    env = _as_env(env)
    return registry.make_env(env, {}) if isinstance(env, str) else env


def _env_names(layers: Iterable[Layer | None]) -> set[str]:
    """The options of the environment that some layers give."""
    return {name for layer in layers if layer for name in layer.values.get("env", {})}


def _require_sound(env: Any, name: str) -> None:
    """Raise an error if the user's own environment violates the interface."""
    if isinstance(env, HostSource):
        return
    breaches = check(env)
    if breaches:
        more = f" ({len(breaches) - 1} more: phalanx.check_env lists them)" if len(breaches) > 1 else ""
        raise PhalanxError(f"{name} violates the interface: {breaches[0]}{more}")


def _only_an_object(env: str) -> bool:
    return env.startswith("object:")


def _name_of(env: AnyEnv) -> tuple[str, dict[str, Any]]:
    """A name and options from which an environment object can be built again.

    `object:CLASS` when there are none: such a run is resumed by passing the object again.
    """
    if _only_an_object(env.spec.name):
        return env.spec.name, {}
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


def new_folder(algorithm: str, env: str) -> Path:
    """A folder in results/ that does not exist yet."""
    parts = [re.sub(r"[^\w.-]", "-", part) for part in (algorithm, *env.split("/"))]
    base = Path("results", *parts)
    name = datetime.now().strftime("%Y%m%d-%H%M%S")
    taken = 1
    while (folder := base / (name if taken == 1 else f"{name}-{taken}")).exists():
        taken += 1
    return folder


def open_run(run: str | Path, env: AnyEnv | None, changes: Layer | None = None) -> tuple[Setup, Record]:
    """Rebuild the set-up of a run folder, with `changes` on top."""
    device.prepare()
    env = None if env is None else as_env_object(env)
    record = Record(Path(run))
    facts = record.read()
    values = run_folder.config(record.folder)
    _require_no_code_in(record.folder, values)
    values = {**values, "algorithm": renamed(values.get("algorithm", {}))}
    names = values.get("run", {})
    algorithm, name = names.get("algorithm"), names.get("env")
    if not (isinstance(algorithm, str) and isinstance(name, str)):
        raise PhalanxError(f"{record.folder / 'config.toml'} does not name an algorithm and an environment")
    if _only_an_object(name) and env is None:
        raise PhalanxError(
            f"the environment of {run} was passed as a Python object: pass it again, as in "
            f"phalanx.resume(run, env=...) or phalanx.load(run, env=...)"
        )
    known = registry.env_options(name, values.get("env", {})) if env is None else {}
    recorded = values.pop("env", {}) if env is not None else {}
    file = str(record.folder / "config.toml")
    layers = [Layer(file, values), *([changes] if changes else [])]
    resolved = merge((algorithm, name), registry.algorithm_config(algorithm), known, layers)
    device.configure(resolved.run.devices)
    recorded_origins = facts.get("origins")
    earlier = recorded_origins if isinstance(recorded_origins, dict) else {}
    resolved = resolved._replace(origins=_earlier_origins(resolved.origins, file, earlier))
    if env is not None:
        _require_sound(env, type(env).__name__)
        resolved = resolved._replace(env=recorded)
    setup = set_up(resolved, env or registry.make_env(name, resolved.env), load_opponent)
    version = setup.env.spec.version
    if version != facts.get("env_version", version):
        raise PhalanxError(
            f"{run} was made with version {facts['env_version']} of {name}, and this is version "
            f"{version}: its numbers would not be comparable"
        )
    return setup, record


def _require_no_code_in(folder: Path, values: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise an error if a run names a module or a program inside its own folder."""
    options = [item for table in values.values() for item in table.items() if isinstance(item[1], str)]
    for name, value in options:
        module, is_class, _ = value.partition(":")
        named = [path for root in {"", *sys.path} for path in _module_paths(root, module)] if is_class else []
        named += [Path(value)] if name == "worker_python" and value else []
        if any(path.resolve().is_relative_to(folder.resolve()) for path in named):
            raise PhalanxError(f"{folder} names code in its own folder, {name} = {value!r}: it is not run")


def _module_paths(root: str, module: str) -> Iterator[Path]:
    """Where in a folder there is something that importing a module would take."""
    place = Path(root)
    for part in module.split("."):
        if part and place.is_dir():
            yield from (each for each in place.iterdir() if each.name.partition(".")[0] == part)
        place /= part


def open_source(run: str | Path, target: Setup) -> tuple[Setup, Record]:
    """Open the run that `target` starts from; both may play in the same environment object."""
    env = target.config.env
    same = _only_an_object(env) and is_run(run)
    same = same and run_folder.config(Path(run)).get("run", {}).get("env") == env
    return open_run(run, target.env if same else None)


def _earlier_origins(
    origins: Mapping[str, Mapping[str, str]], file: str, recorded: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Where values came from before they stood in a run's own config.toml."""
    return {
        table: {
            name: _origin(recorded, table, name) if origin == file else origin
            for name, origin in entries.items()
        }
        for table, entries in origins.items()
    }


def _origin(recorded: Mapping[str, Any], table: str, name: str) -> str:
    entries = recorded.get(table)
    return str(entries.get(name, "not recorded")) if isinstance(entries, dict) else "not recorded"


def require_same_schedule(run: str | Path, before: Setup, after: Setup) -> None:
    """Raise an error if the learning rates would differ from those of the steps already taken."""
    old_steps, new_steps = before.config.steps, after.config.steps
    if not before.algorithm.uses_budget:  # the horizon, if there is one, is in the config
        old, new = (lr_horizon(each.algorithm.optimisers) for each in (before, after))
        if new != old:
            raise PhalanxError(
                f"the learning rates of {run} decay over {old:,} env steps: leave out lr_horizon"
            )
        return
    if after.algorithm.uses_budget and new_steps == old_steps:
        return
    if not before.algorithm.optimisers:  # an algorithm of the user's own
        raise PhalanxError(
            f"what {run} learns depends on its budget of {old_steps:,} env steps: train a new run with "
            f"--steps {new_steps}"
        )
    if lr_horizon(after.algorithm.optimisers) != old_steps:
        go_on = f"add --lr-horizon {old_steps} to continue with the final rates, or "
        go_on = "" if end_at_zero(before.algorithm.optimisers) else go_on
        raise PhalanxError(
            f"the learning rates of {run} decay over its budget of {old_steps:,} env steps, so that a run of "
            f"{new_steps:,} would have had other rates from the start: {go_on}train a new run with --steps "
            f"{new_steps} (or with --lr-horizon {new_steps} and fewer steps, to continue later)"
        )


def read_carry(
    setup: Setup, record: Record, checkpoint: str | None, use: str = "use --checkpoint {}"
) -> Carry:
    """The carry in a checkpoint of a run (default: the newest), without its replay buffer.

    `use` says how a user takes another checkpoint.
    """
    saved = checkpoints.choose(record.checkpoints, checkpoint, to_go_on=False, use=use)
    return checkpoints.restore(saved, carry_shapes(setup.loop).without_replay())


def initial_networks(setup: Setup) -> Any:
    """What gives the first learner the networks of the run that `init_from` names, if it names one."""
    name = setup.config.init_from
    if not name:
        return None
    source, record = open_source(name, setup)
    trained = read_carry(source, record, None, "remove the damaged one to start from {}")
    return start_from(name, source, trained, setup)


def policies_of(
    run: str | Path, env: AnyEnv | None, which: Which | None, checkpoint: str | None
) -> tuple[Setup, PyTree]:
    """The policies of all seeds, (S, ...), as a checkpoint has them."""
    if which not in ("best", "last", None):
        raise PhalanxError(f"which must be best or last, not {which!r}")
    setup, record = open_run(run, env)
    # Where sides compete, the best of one is the worst of another.
    which = which or ("last" if setup.env.spec.teams else "best")
    carry = read_carry(setup, record, checkpoint)
    policy = jax.vmap(setup.algorithm.policy)(carry.learner) if which == "last" else carry.best.policy
    return setup, policy


def untrained(
    algorithm: str, env: str | AnyEnv, options: Mapping[str, Any], where: Mapping[str, Any] | None = None
) -> tuple[Setup, PyTree]:
    """The policies of an algorithm before its first update, (S, ...).

    `where` are options of the run that say where environments are stepped.
    """
    env = _as_env(env)
    name = env if isinstance(env, str) else env.spec.name
    layers = [each for each in [registry.preset(algorithm, name, "auto")] if each]
    layers.append(Layer("argument", {"env": options, "run": where or {}}))
    known = registry.env_options(env, _env_names(layers)) if isinstance(env, str) else {}
    resolved = merge((algorithm, name), registry.algorithm_config(algorithm), known, layers)
    setup = set_up(resolved, registry.make_env(env, resolved.env) if isinstance(env, str) else env)
    # In a compiled program nothing but the policy is made: no replay buffer.
    return setup, jax.jit(jax.vmap(setup.loop.init_policy))(jnp.array(setup.seeds, jnp.int32))


def team_of(
    run: str | Path, env: AnyEnv | None, which: Which | None, seed: int | None, checkpoint: str | None
) -> tuple[Setup, PyTree]:
    """What one of the seeds of a run acts with."""
    setup, policies = policies_of(run, env, which, checkpoint)
    seed = setup.config.seed if seed is None else seed
    if seed not in setup.seeds:
        raise PhalanxError(f"{run} has the seeds {', '.join(map(str, setup.seeds))}, not {seed}")
    index = setup.seeds.index(seed)
    return setup, jax.tree.map(lambda p: p[index], policies)


def learnt_opponent(run: str | Path) -> Team:
    """The opponent that learnt in a run, with the last parameters of all seeds, (S, ...)."""
    found = _opponent_of(run, Learning)
    if found is None:
        raise PhalanxError(f"no opponent learnt in {run}: it was trained without --opponent-algorithm")
    player, learner = found[0].player, found[1]
    return Team(f"{run}{OPPONENT}", player.spec, player.algorithm, jax.vmap(player.algorithm.policy)(learner))


def past_selves(run: str | Path) -> Team | None:
    """The past selves that the first seed of a run has kept, (K, ...); None if it kept none."""
    found = _opponent_of(run, PastSelves)
    if found is None:
        return None
    (past, pool), player = found, found[0].player
    kept = min(int(pool.taken[0]), past.size)
    return Team(
        f"{run}{PAST}", player.spec, player.algorithm, jax.tree.map(lambda x: x[0, :kept], pool.params)
    )


def _opponent_of(run: str | Path, kind: type[Kind]) -> tuple[Kind, PyTree] | None:
    """The opponent of a kind that a run was trained against, if any, and its last state, (S, ...)."""
    setup, record = open_run(run, None)
    opponents = setup.loop.opponents
    if opponents is None:
        return None
    each = opponents.each(read_carry(setup, record, None).opponent)
    return next(((one, state) for one, state in each if isinstance(one, kind)), None)


def load_opponent(what: str) -> Team:
    """A trained team to play the other side: the first seed of a run folder, or an exported team."""
    if what.endswith(OPPONENT):
        team = learnt_opponent(what.removesuffix(OPPONENT))
        return team._replace(params=jax.tree.map(lambda x: x[0], team.params))
    if is_run(what):
        setup, params = team_of(what, None, None, None, None)
        return Team(what, setup.env.spec, setup.algorithm, params)
    if Path(what).suffix == ".zip":
        policy = load_team(what)
        return Team(what, policy.spec, policy.algorithm, policy.params)
    raise PhalanxError(
        f"there is no opponent {what!r}: use self, past, random, heuristic, script, a run "
        f"folder, an exported team (.zip) or a pool (.toml)"
    )


def is_run(what: str | Path) -> bool:
    """Whether it is a run folder."""
    return (Path(what) / "run.json").is_file()


def player(
    run: str | Path,
    env: str | AnyEnv | None,
    which: Which | None,
    trained_seed: int | None,
    checkpoint: str | None,
    env_options: Mapping[str, Any] | None,
) -> tuple[Setup, PyTree]:
    """A team of a run folder, or an untrained one in `env`."""
    if is_run(run):
        if isinstance(env, str) or env_options:
            raise PhalanxError(f"{run} is a run folder, which has its own environment: leave out {env!r}")
        return team_of(run, env, which, trained_seed, checkpoint)
    if env is None:
        raise PhalanxError(f"there is no run folder {run}; an algorithm needs an environment to play in")
    refuse_choice(run, which=which, trained_seed=trained_seed, checkpoint=checkpoint)
    setup, policies = untrained(str(run), env, env_options or {})
    return setup, jax.tree.map(lambda p: p[0], policies)


def refuse_choice(algorithm: str | Path, **choice: Any) -> None:
    """Raise an error if parameters of an untrained algorithm are selected."""
    for name, value in choice.items():
        if value is not None:
            raise PhalanxError(f"{name} is for a run folder, and {algorithm} is an untrained algorithm")

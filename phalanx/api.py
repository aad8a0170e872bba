"""The Python front door: what the command line does, and `load`, `make_env`, `check_env`."""

import dataclasses
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp

from phalanx import device, registry, teams
from phalanx.algorithms.shared.agents import Agents
from phalanx.config import Layer, Option, by_table, convert, merge, renamed
from phalanx.data import trajectories
from phalanx.data.trajectories import load_trajectories as load_trajectories
from phalanx.envs.base import Env
from phalanx.envs.check import check
from phalanx.errors import PhalanxError
from phalanx.report import metrics
from phalanx.report.console import Console
from phalanx.teams import Policy
from phalanx.teams import load_team as load_team
from phalanx.training import checkpoint as checkpoints
from phalanx.training import keys, playback
from phalanx.training import run as runs
from phalanx.training.keys import Purpose
from phalanx.training.loop import without_replay
from phalanx.training.record import Record
from phalanx.training.setup import Setup, setup
from phalanx.types import PyTree

if TYPE_CHECKING:
    from phalanx.report.page import Show

Which = Literal["best", "last"]


def make_env(name: str, **options: Any) -> Env:
    """Build an environment by name, such as `make_env("switch/2", clock=True)`."""
    return registry.build_env(name, **options)


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
    run_options: Mapping[str, Any] | None = None,
    algorithm_options: Mapping[str, Any] | None = None,
    env_options: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Train a team and return its run folder.

    `env` is a name or an `Env` object. `options` are those of the run (`steps`, `seeds`, `envs`, ...) and of
    the algorithm (`lr`, `share`, ...), as on the command line. A name that both have belongs into
    `run_options` or `algorithm_options`.
    """
    started = time.monotonic()
    command = f"phalanx.train({algorithm!r}, {env!r}, ...)"
    tables = tables_of(algorithm, options, env_options or {})
    for table, given in (("run", run_options), ("algorithm", algorithm_options)):
        for name in given or {}:
            if name in tables[table]:
                raise PhalanxError(
                    f"{name} is given twice: leave it out of {table}_options, or out of the rest"
                )
        tables[table] |= given or {}
    layer = Layer("argument", tables)
    return train_from_layer(algorithm, env, layer, config, preset, out, Console(quiet), command, started)


def tables_of(
    algorithm: str, options: Mapping[str, Any], env_options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Sort options into those of the run, of the algorithm and of the environment."""
    sorted_options = by_table(algorithm, registry.algorithm(algorithm).Config, options)
    return {**sorted_options, "env": dict(env_options)}


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


def _open(run: str | Path, env: Env | None, changes: Layer | None = None) -> tuple[Setup, Record]:
    """Rebuild what a run folder was made with, and lay `changes` over it."""
    device.configure()
    record = Record(Path(run))
    facts = record.read()
    values = registry.read_toml(record.folder / "config.toml")
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
    known = registry.env_options(name) if env is None else {}
    recorded = values.pop("env", {}) if env is not None else {}
    file = str(record.folder / "config.toml")
    layers = [Layer(file, values), *([changes] if changes else [])]
    resolved = merge((algorithm, name), registry.algorithm(algorithm).Config, known, layers)
    resolved = resolved._replace(origins=_earlier_origins(resolved.origins, file, facts.get("origins", {})))
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


def _earlier_origins(
    origins: Mapping[str, Mapping[str, str]], file: str, recorded: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Where values came from before they stood in a run's own config.toml."""
    return {
        table: {
            name: recorded.get(table, {}).get(name, "not recorded") if origin == file else origin
            for name, origin in entries.items()
        }
        for table, entries in origins.items()
    }


def resume(
    run: str | Path,
    steps: float | None = None,
    *,
    lr_horizon: int | None = None,
    env: Env | None = None,
    checkpoint: str | None = None,
    quiet: bool = False,
) -> Run:
    """Go on where a run stopped, or on to another budget of `steps`.

    What is learnt is then what a run with that budget would have learnt from the start. Where learning rates
    fall over the budget that cannot be, and is refused; with the old budget as `lr_horizon` they stay at
    their end, if that is above 0. `checkpoint` names one in the run's `checkpoints/` (default: the newest).
    """
    started = time.monotonic()
    changes = {
        **({"run": {"steps": steps}} if steps is not None else {}),
        **({"algorithm": {"lr_horizon": lr_horizon}} if lr_horizon is not None else {}),
    }
    before, record = _open(run, env)
    this = _open(run, env, Layer("resume", changes))[0] if changes else before
    _require_same_schedule(run, before, this)
    saved = checkpoints.choose(record.checkpoints, checkpoint)
    done = saved.updates * this.algorithm.steps_per_update
    if saved.updates >= this.total_updates and record.read().get("status") == "finished":
        raise PhalanxError(
            f"{run} is finished at {done:,} env steps: give a larger budget, as in --steps {2 * done}"
        )
    if steps is not None and saved.updates >= this.total_updates:
        raise PhalanxError(f"{run} already has {done:,} env steps: give a larger budget than that")
    runs.resume(this, record, saved, Console(quiet), started)
    return Run(record.folder)


def _require_same_schedule(run: str | Path, before: Setup, after: Setup) -> None:
    """Refuse to go on with learning rates that are not those of the steps that were taken."""
    old_steps, new_steps = before.config.steps, after.config.steps
    if not before.algorithm.uses_budget:  # the horizon, if there is one, is in the config
        old, new = (getattr(each.resolved.algorithm, "lr_horizon", None) for each in (before, after))
        if new != old:
            raise PhalanxError(
                f"the learning rates of {run} fall over {old:,} env steps: leave out lr_horizon"
            )
        return
    if after.algorithm.uses_budget and new_steps == old_steps:
        return
    if not isinstance(before.algorithm, Agents):  # an algorithm of the user's own
        raise PhalanxError(
            f"what {run} learns depends on its budget of {old_steps:,} env steps: train anew with "
            f"--steps {new_steps}"
        )
    if after.algorithm.config.lr_horizon != old_steps:
        go_on = f"add --lr-horizon {old_steps} to go on with the rates at their end, or "
        go_on = "" if before.algorithm.rates_end_at_zero else go_on
        raise PhalanxError(
            f"the learning rates of {run} fall over its budget of {old_steps:,} env steps, so that a run of "
            f"{new_steps:,} would have had other rates from the start: {go_on}train anew with --steps "
            f"{new_steps} (or with --lr-horizon {new_steps} and fewer steps, to continue later)"
        )


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
    episodes, seed = _whole("episodes", episodes, 1), _whole("seed", seed, 0)
    device.configure()
    is_run = _is_run(run)
    if env_options and (is_run or not isinstance(env, str)):
        raise PhalanxError("env_options are for an environment given by name: a run or an object has its own")
    if is_run and isinstance(env, str):
        raise PhalanxError(f"{run} is a run folder, which has its environment: leave out {env!r}")
    if env is None or (is_run and not isinstance(env, str)):
        this, policy = _policies(run, env, which, checkpoint)
    else:
        _refuse_choice(run, which=which, checkpoint=checkpoint)
        this, policy = _untrained(str(run), env, env_options or {})
    program = runs.jit_play(this.loop, this.config.seeds)
    # Each trained seed has episodes of its own, as in the final evaluation of a run.
    first = keys.root(Purpose.EVALUATION, seed)
    roots = jax.vmap(jax.random.fold_in, (None, 0))(first, jnp.array(this.seeds, jnp.uint32))
    return runs.per_seed(runs.play_many(program, policy, roots, episodes), this)


def _untrained(algorithm: str, env: str | Env, options: Mapping[str, Any]) -> tuple[Setup, PyTree]:
    name = env if isinstance(env, str) else env.spec.name
    layers = [each for each in [registry.preset(algorithm, name, "auto")] if each]
    known = registry.env_options(env) if isinstance(env, str) else {}
    layers.append(Layer("argument", {"env": options}))
    resolved = merge((algorithm, name), registry.algorithm(algorithm).Config, known, layers)
    this = setup(resolved, registry.make_env(env, resolved.env) if isinstance(env, str) else env)
    return this, jax.vmap(this.loop.init_policy)(jnp.array(this.seeds, jnp.int32))


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
    this, params = _team(run, env, which, seed, checkpoint)
    return Policy(this.env.spec, this.algorithm, params, this.env)


def _team(
    run: str | Path, env: Env | None, which: Which | None, seed: int | None, checkpoint: str | None
) -> tuple[Setup, PyTree]:
    """What one of the seeds of a run acts with."""
    this, policies = _policies(run, env, which, checkpoint)
    seed = this.config.seed if seed is None else seed
    if seed not in this.seeds:
        raise PhalanxError(f"{run} has the seeds {', '.join(map(str, this.seeds))}, not {seed}")
    index = this.seeds.index(seed)
    return this, jax.tree.map(lambda p: p[index], policies)


def watch(
    run: str | Path,
    other: str | Path | None = None,
    *,
    env: str | Env | None = None,
    episodes: int = 3,
    seed: int = 0,
    out: str | Path | None = None,
    gif: bool = False,
    mp4: bool = False,
    which: Which | None = None,
    team: int | None = None,
    checkpoint: str | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Play a team greedily and write one HTML page that shows it; returns the files.

    `run` is a run folder, or an algorithm to be watched untrained (such as `heuristic`) in `env`. `other` is
    a second one, shown beside it from the same starts. `seed` picks the episodes, `team` one of the seeds
    that were trained together; `which` and `checkpoint` are as in `load`. `out` is the page (default:
    RUN/watch.html), and films stand beside it.

    `run` may also be a file that `StarCraft2Env.save_replay()` wrote: then that episode is shown, in a page
    beside it, and none of the options that choose what to play can be given.
    """
    from phalanx.report import film
    from phalanx.report.page import require_same_starts, show

    if Path(run).suffix == ".json":
        chosen = (other, env, which, team, checkpoint, env_options)
        if episodes != 3 or seed != 0 or any(each is not None for each in chosen):
            raise PhalanxError(f"{run} is a replay, which is shown as it was saved: give it alone")
        if mp4:
            film.require_mp4()
        from phalanx.compat import replays

        shows = [replays.read(run)]
        title = f"{shows[0].label} on {shows[0].spec.name}"
        return _show(shows, title, Path(out or run), gif, mp4)
    episodes, seed = _whole("episodes", episodes, 1), _whole("seed", seed, 0)
    if mp4:
        film.require_mp4()  # before anything is played
    device.configure()
    playing = [(run, *_player(run, env, which, team, checkpoint, env_options))]
    if other is not None:
        # An algorithm beside a run plays where that does.
        there = None if _is_run(other) else playing[0][1].env
        playing.append((other, *_player(other, there, which, team, checkpoint, None)))
    names = [this.config.algorithm for _, this, _ in playing]
    if len(set(names)) < len(names):
        names = [Path(what).name for what, *_ in playing]
    shows = []
    for name, (_, this, params) in zip(names, playing, strict=True):
        played = playback.play(this.env, this.algorithm, params, seed, episodes, film=True)
        shows.append(show(name, this.env, this.algorithm.prefers, played))
    if other is not None:
        require_same_starts(*shows)
    title = f"{' and '.join(names)} on {shows[0].spec.name}"
    folder = Path(run) if other is None and _is_run(run) else Path()
    return _show(shows, title, Path(out) if out is not None else folder / "watch.html", gif, mp4)


def _show(shows: "list[Show]", title: str, path: Path, gif: bool, mp4: bool) -> list[Path]:
    """Write the page that shows some teams, and films beside it; returns the files."""
    from phalanx.report import film
    from phalanx.report.page import page

    files = {path.with_suffix(".html"): lambda file: file.write_text(page(shows, title), encoding="utf-8")}
    if gif:
        files[path.with_suffix(".gif")] = lambda file: film.gif(shows, file)
    if mp4:
        files[path.with_suffix(".mp4")] = lambda file: film.mp4(shows, file)
    for file, write in files.items():
        _write(file, write)
    return list(files)


def record(
    run: str | Path,
    out: str | Path,
    *,
    env: str | Env | None = None,
    episodes: int = 100,
    seed: int = 0,
    greedy: bool = True,
    which: Which | None = None,
    team: int | None = None,
    checkpoint: str | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> Path:
    """Play a team and write its trajectories to a file that `load_trajectories` reads; returns the file.

    `greedy=False` draws actions as training does. The rest is as in `watch`; see `docs/watching.md`.
    """
    episodes, seed, path = _whole("episodes", episodes, 1), _whole("seed", seed, 0), Path(out)
    if path.suffix != ".npz":
        raise PhalanxError(f"trajectories are written to a file that ends in .npz, not to {out}")
    device.configure()
    this, params = _player(run, env, which, team, checkpoint, env_options)
    played = playback.play(this.env, this.algorithm, params, seed, episodes, greedy=greedy)
    about = {"run": str(run), "seed": seed, "greedy": greedy, "algorithm": this.config.algorithm}
    _write(path, lambda file: trajectories.save(file, played, this.env.spec, this.resolved.env, about))
    return path


def export(
    run: str | Path,
    out: str | Path,
    *,
    env: Env | None = None,
    which: Which | None = None,
    team: int | None = None,
    checkpoint: str | None = None,
) -> Path:
    """Write a trained team to one file that `load_team` reads, without anything of its training."""
    this, params = _team(run, env, which, team, checkpoint)
    if Path(out).suffix != ".zip":
        raise PhalanxError(f"a team is written to a file that ends in .zip, not to {out}")
    _write(Path(out), lambda file: teams.save(file, this, params))
    return Path(out)


def _whole(name: str, value: Any, at_least: int) -> int:
    """A whole number, checked as config fields are."""
    bounds = {"at_least": at_least, "at_most": 2**31 - 1}
    return convert(Option(name, int, (), False, None, "", bounds), value, "argument")


def _is_run(what: str | Path) -> bool:
    return (Path(what) / "run.json").is_file()


def _player(
    run: str | Path,
    env: str | Env | None,
    which: Which | None,
    team: int | None,
    checkpoint: str | None,
    env_options: Mapping[str, Any] | None,
) -> tuple[Setup, PyTree]:
    """A team of a run folder, or an untrained one in `env`."""
    if _is_run(run):
        if isinstance(env, str) or env_options:
            raise PhalanxError(f"{run} is a run folder, which has its own environment: leave out {env!r}")
        return _team(run, env, which, team, checkpoint)
    if env is None:
        raise PhalanxError(f"there is no run folder {run}; an algorithm needs an environment to play in")
    _refuse_choice(run, which=which, team=team, checkpoint=checkpoint)
    this, policies = _untrained(str(run), env, env_options or {})
    return this, jax.tree.map(lambda p: p[0], policies)


def _refuse_choice(algorithm: str | Path, **choice: Any) -> None:
    """Refuse to choose among the parameters of an algorithm that has not been trained."""
    for name, value in choice.items():
        if value is not None:
            raise PhalanxError(f"{name} is for a run folder, and {algorithm} is an untrained algorithm")


def _write(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        raise PhalanxError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)

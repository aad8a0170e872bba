"""The Python API: what the command line does, and `load`, `make_env`, `check_env`."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from phalanx import device, hosts, registry, teams
from phalanx.callbacks import Callback
from phalanx.config import Layer, Option, convert
from phalanx.data import trajectories
from phalanx.data.trajectories import load_trajectories as load_trajectories
from phalanx.deprecated import renamed_argument
from phalanx.envs.check import check
from phalanx.envs.host.base import HostSource
from phalanx.envs.host.check import check_host
from phalanx.errors import PhalanxError
from phalanx.files import write_whole
from phalanx.report import metrics
from phalanx.report.console import Console
from phalanx.runs import (
    AnyEnv,
    Which,
    as_env_object,
    initial_networks,
    is_run,
    new_folder,
    open_run,
    player,
    policies_of,
    refuse_choice,
    require_same_schedule,
    resolve,
    tables_of,
    team_of,
    untrained,
)
from phalanx.teams import Policy
from phalanx.teams import load_team as load_team
from phalanx.training import checkpoint as checkpoints
from phalanx.training import keys, playback
from phalanx.training.driver import Driver
from phalanx.training.evaluate import per_seed
from phalanx.training.keys import Purpose
from phalanx.training.programs import play_many, play_program
from phalanx.training.record import Record, record_of
from phalanx.types import PyTree

if TYPE_CHECKING:
    from phalanx.report.page import Show
    from phalanx.training.setup import Setup


def make_env(name: str, **options: Any) -> AnyEnv:
    """Build an environment by name, such as `make_env("switch/2", clock=True)`."""
    return registry.build_env(name, **options)


def check_env(env: AnyEnv) -> list[str]:
    """List every violation of the environment interface, one sentence each; an empty list means none."""
    try:
        env = as_env_object(env)
    except PhalanxError as error:
        return [str(error)]
    return check_host(env) if isinstance(env, HostSource) else check(env)


class Run:
    """A run folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        """where it is"""

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        return metrics.read(self.folder)

    @property
    def facts(self) -> dict[str, Any]:
        """What run.json says: versions, device, status, final evaluation."""
        return Record(self.folder).read()

    @renamed_argument("seed", "trained_seed")
    def policy(self, which: Which | None = None, trained_seed: int | None = None) -> "Policy":
        """The trained team, as `load` gives it."""
        return load(self.folder, which=which, trained_seed=trained_seed)


def train(
    algorithm: str,
    env: str | AnyEnv,
    *,
    out: str | Path | None = None,
    config: str | Path | None = None,
    preset: str = "auto",
    run_options: Mapping[str, Any] | None = None,
    algorithm_options: Mapping[str, Any] | None = None,
    env_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Train a team and return its run folder.

    `env` is a name, an `Env`, an environment of gymnasium or PettingZoo, an object with SMAC's methods, or a
    class or function that creates one. If another process can import it, workers step it; otherwise this
    process does. `options` are those of the run (`steps`, `seeds`, `envs`, ...) and of the algorithm (`lr`,
    `share`, ...), as on the command line. If both have an option of the same name, put it into `run_options`
    or `algorithm_options`. `callbacks` are called at evaluations: see `phalanx.Callback`.
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
    setup = resolve(algorithm, env, layer, config, preset)
    return train_setup(setup, out, Console(quiet), command, started, callbacks)


def train_setup(
    setup: "Setup",
    out: str | Path | None,
    console: Console,
    command: str,
    started: float,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """What the command line and `train` share."""
    if setup.config.init_from and hosts.count() > 1:
        raise PhalanxError("init_from is not for several hosts: begin on one, and resume with --hosts")
    folder = Path(out) if out else new_folder(setup.config.algorithm, setup.config.env)
    driver = Driver(setup, record_of(folder), console, started, callbacks)
    driver.begin(command, initial_networks(setup))
    driver.run()
    return Run(folder)


def resume(
    run: str | Path,
    steps: float | None = None,
    *,
    lr_horizon: int | None = None,
    env: AnyEnv | None = None,
    checkpoint: str | None = None,
    devices: int | str | None = None,
    workers: int | None = None,
    worker_python: str | None = None,
    step_timeout: float | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
) -> Run:
    """Continue a run where it stopped, or extend it to a larger budget of `steps`.

    The result equals a run that had this budget from the start. If learning rates decay over the budget this
    is impossible and an error; with `lr_horizon` set to the old budget they stay at their final values, if
    these are above 0. `checkpoint` names one in the run's `checkpoints/` (default: the newest). `devices`,
    `workers`, `worker_python` and `step_timeout` replace those of the run. Its results do not depend on
    workers; on another number of devices sums are rounded differently.
    """
    started = time.monotonic()
    where = {"workers": workers, "worker_python": worker_python, "step_timeout": step_timeout}
    where = {name: value for name, value in {**where, "devices": devices}.items() if value is not None}
    schedule = {
        "run": where | ({"steps": steps} if steps is not None else {}),
        "algorithm": {"lr_horizon": lr_horizon} if lr_horizon is not None else {},
    }
    before, record = open_run(run, env, Layer("resume", {"run": where}) if where else None)
    changed = steps is not None or lr_horizon is not None
    setup = open_run(run, env, Layer("resume", schedule))[0] if changed else before
    require_same_schedule(run, before, setup)
    saved = checkpoints.choose(record.checkpoints, checkpoint)
    done = saved.updates * setup.algorithm.steps_per_update
    if saved.updates >= setup.total_updates and record.read().get("status") == "finished":
        raise PhalanxError(
            f"{run} is finished at {done:,} env steps: give a larger budget, as in --steps {2 * done}"
        )
    if steps is not None and saved.updates >= setup.total_updates:
        raise PhalanxError(f"{run} already has {done:,} env steps: give a larger budget than that")
    console = Console(quiet or not hosts.first())
    driver = Driver(setup, record_of(record.folder), console, started, callbacks)
    driver.restore(saved)
    driver.run()
    return Run(record.folder)


def evaluate(
    run: str | Path,
    env: str | AnyEnv | None = None,
    *,
    episodes: int = 200,
    which: Which | None = None,
    seed: int = 0,
    greedy: bool = True,
    checkpoint: str | None = None,
    env_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    worker_python: str | None = None,
    step_timeout: float | None = None,
) -> dict[str, Any]:
    """Play episodes and average them: greedily, or with `greedy=False` with actions sampled as in training.

    `run` is a run folder, or the name of an untrained algorithm (such as `random`), which plays in the
    environment `env`: a name with `env_options`, or an object. `which` is as in `load`; `seed` selects the
    episodes. `workers`, `worker_python` and `step_timeout` are for untrained algorithms; a run has its own.
    """
    where = {"workers": workers, "worker_python": worker_python, "step_timeout": step_timeout}
    where = {name: value for name, value in where.items() if value is not None}
    episodes, seed = _whole("episodes", episodes, 1), _whole("seed", seed, 0)
    device.configure()
    trained = is_run(run)
    if env_options and (trained or not isinstance(env, str)):
        raise PhalanxError("env_options are for an environment given by name: a run or an object has its own")
    if trained and isinstance(env, str):
        raise PhalanxError(f"{run} is a run folder, which has its environment: leave out {env!r}")
    if trained and where:
        raise PhalanxError(f"{run} is a run folder, which has its own workers: leave out {next(iter(where))}")
    if env is None or (trained and not isinstance(env, str)):
        setup, policy = policies_of(run, env, which, checkpoint)
    else:
        refuse_choice(run, which=which, checkpoint=checkpoint)
        setup, policy = untrained(str(run), env, env_options or {}, where)
    program = play_program(setup.evaluation, greedy)
    # Each trained seed has episodes of its own, as in the final evaluation of a run.
    first = keys.root(Purpose.EVALUATION, seed)
    roots = jax.vmap(jax.random.fold_in, (None, 0))(first, jnp.array(setup.seeds, jnp.uint32))
    with contextlib.closing(setup):
        return per_seed(play_many(program, policy, roots, episodes), setup.seeds, setup.env.spec)


@renamed_argument("seed", "trained_seed")
def load(
    run: str | Path,
    *,
    which: Which | None = None,
    trained_seed: int | None = None,
    env: AnyEnv | None = None,
    checkpoint: str | None = None,
) -> Policy:
    """Load a trained team from its run folder: `actions, memory = load(run).act(obs, memory, avail)`.

    `which` selects the parameters that were `best` in an evaluation (the default) or the `last` ones (the
    default if the environment has more than one team). `trained_seed` selects one of the seeds of the run
    (default: the first).
    """
    setup, params = team_of(run, env, which, trained_seed, checkpoint)
    return Policy(setup.env.spec, setup.algorithm, params, setup.env)


@renamed_argument("team", "trained_seed")
def watch(
    run: str | Path,
    other: str | Path | None = None,
    *,
    env: str | AnyEnv | None = None,
    episodes: int = 3,
    seed: int = 0,
    out: str | Path | None = None,
    gif: bool = False,
    mp4: bool = False,
    which: Which | None = None,
    trained_seed: int | None = None,
    checkpoint: str | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Play a team greedily and write one HTML page that shows it; returns the files.

    `run` is a run folder, or an untrained algorithm (such as `heuristic`), which plays in `env`. `other` is a
    second one, shown next to it from the same initial states. `seed` selects the episodes, `trained_seed` one
    of the seeds of the run; `which` and `checkpoint` are as in `load`. `out` is the page (default:
    RUN/watch.html); films are written next to it.

    `run` may also be a file that `StarCraft2Env.save_replay()` wrote: that episode is shown.
    """
    from phalanx.report import film
    from phalanx.report.page import require_same_starts

    if mp4:
        film.require_mp4()  # before anything is played
    if Path(run).suffix == ".json":
        chosen = (other, env, which, trained_seed, checkpoint, env_options)
        if episodes != 3 or seed != 0 or any(each is not None for each in chosen):
            raise PhalanxError(f"{run} is a replay, which is shown as it was saved: give it alone")
        return _watch_replay(run, out, gif, mp4)
    episodes, seed = _whole("episodes", episodes, 1), _whole("seed", seed, 0)
    device.configure()
    playing = [(run, *player(run, env, which, trained_seed, checkpoint, env_options))]
    if other is not None:
        # An algorithm beside a run plays in the environment of the run.
        there = None if is_run(other) else playing[0][1].env
        playing.append((other, *player(other, there, which, trained_seed, checkpoint, None)))
    names = [setup.config.algorithm for _, setup, _ in playing]
    names = names if len(set(names)) == len(names) else [Path(what).name for what, *_ in playing]
    each = zip(names, playing, strict=True)
    shows = [_played(name, setup, params, seed, episodes) for name, (_, setup, params) in each]
    if other is not None:
        require_same_starts(*shows)
    title = f"{' and '.join(names)} on {shows[0].spec.name}"
    folder = Path(run) if other is None and is_run(run) else Path()
    return film.write(shows, title, Path(out) if out is not None else folder / "watch.html", gif, mp4)


def _played(name: str, setup: "Setup", params: PyTree, seed: int, episodes: int) -> "Show":
    """Episodes of a team, to be shown."""
    from phalanx.report.page import show

    played = playback.play(setup.env, setup.algorithm, params, seed, episodes, film=True)
    return show(name, setup.env, setup.algorithm.actor.preference, played)


def _watch_replay(file: str | Path, out: str | Path | None, gif: bool, mp4: bool) -> list[Path]:
    """Show an episode that `StarCraft2Env.save_replay()` wrote."""
    from phalanx.compat import replays
    from phalanx.report import film

    replay = replays.read(file)
    try:
        return film.write([replay], f"{replay.label} on {replay.spec.name}", Path(out or file), gif, mp4)
    except replays.BROKEN:
        raise PhalanxError(replays.refusal(file)) from None


@renamed_argument("team", "trained_seed")
def record(
    run: str | Path,
    out: str | Path,
    *,
    env: str | AnyEnv | None = None,
    episodes: int = 100,
    seed: int = 0,
    greedy: bool = True,
    which: Which | None = None,
    trained_seed: int | None = None,
    checkpoint: str | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> Path:
    """Play a team and write its trajectories to a file that `load_trajectories` reads; returns the file.

    `greedy=False` samples actions as in training. The other arguments are those of `watch`; see
    `docs/watching.md`.
    """
    episodes, seed, path = _whole("episodes", episodes, 1), _whole("seed", seed, 0), Path(out)
    if path.suffix != ".npz":
        raise PhalanxError(f"trajectories are written to a file that ends in .npz, not to {out}")
    device.configure()
    setup, params = player(run, env, which, trained_seed, checkpoint, env_options)
    played = playback.play(setup.env, setup.algorithm, params, seed, episodes, greedy=greedy)
    about = {"run": str(run), "seed": seed, "greedy": greedy, "algorithm": setup.config.algorithm}
    write_whole(path, lambda file: trajectories.save(file, played, setup.env.spec, setup.resolved.env, about))
    return path


@renamed_argument("team", "trained_seed")
def export(
    run: str | Path,
    out: str | Path,
    *,
    env: AnyEnv | None = None,
    which: Which | None = None,
    trained_seed: int | None = None,
    checkpoint: str | None = None,
) -> Path:
    """Write a trained team to one file that `load_team` reads: only what is needed for acting."""
    setup, params = team_of(run, env, which, trained_seed, checkpoint)
    if Path(out).suffix != ".zip":
        raise PhalanxError(f"a team is written to a file that ends in .zip, not to {out}")
    write_whole(Path(out), lambda file: teams.save(file, setup, params))
    return Path(out)


def _whole(name: str, value: Any, at_least: int) -> int:
    """A whole number, checked as config fields are."""
    bounds = {"at_least": at_least, "at_most": 2**31 - 1}
    return convert(Option(name, int, (), False, None, "", bounds), value, "argument")

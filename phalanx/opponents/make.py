"""Build the opponents of a run from its options."""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from phalanx import registry
from phalanx.algorithms.base import Algorithm
from phalanx.algorithms.shared.normalised import build
from phalanx.algorithms.shared.optimiser import require_learning
from phalanx.config import Layer, RunConfig, merge
from phalanx.envs.base import Env
from phalanx.envs.battle.duel import ALLIES
from phalanx.envs.battle.env import Battle
from phalanx.envs.host.base import HostSource
from phalanx.envs.sides import HostedSide, OneSide, Side, one_side
from phalanx.envs.wrappers import policy_spec
from phalanx.errors import PhalanxError
from phalanx.opponents.base import Opponents
from phalanx.opponents.kinds import Frozen, Learning, Mixed, PastSelves, SelfPlay
from phalanx.opponents.player import Player
from phalanx.types import EnvSpec, PyTree

UNTRAINED = ("random", "heuristic")
INTERFACE = ("n_agents", "obs_size", "obs_shape", "obs_dtype", "n_actions", "action_kind", "action_range")


class Team(NamedTuple):
    """A team that was loaded, and what it is called."""

    name: str
    spec: EnvSpec
    algorithm: Algorithm
    params: PyTree


Load = Callable[[str], Team]


def side_of(env: Env | HostSource, run: RunConfig) -> OneSide | HostedSide:
    """The side that learns; the first one unless it is named."""
    return one_side(env, run.side, tells=bool(run.opponent_algorithm))


def learners_env(env: Env | HostSource, side: OneSide | HostedSide) -> Env | HostSource:
    """The environment that evaluations play: the battle itself against its script, where there is one."""
    return env if isinstance(env, Battle) and side.side == ALLIES else side


def opponents_of(run: RunConfig, env: Side, algorithm: Algorithm, load: Load) -> Opponents:
    """Who plays the other side in training."""
    if run.opponent_algorithm:
        return _learning(run, env, algorithm)
    if Path(run.opponent).suffix != ".toml":
        return _opponent(run.opponent, run, run.envs, env, algorithm, load)
    shares = read_pool(Path(run.opponent))
    sizes = _parted(run.envs, list(shares.values()))
    parts = [
        _opponent(name, run, size, env, algorithm, load) for name, size in zip(shares, sizes, strict=True)
    ]
    return Mixed(env, parts, sizes)


def _opponent(name: str, run: RunConfig, envs: int, env: Side, algorithm: Algorithm, load: Load) -> Opponents:
    """One opponent, in some of the environments."""
    spec = env.sides.spec(env.others[0])
    player, at_once, greedy = Player(spec, algorithm), run.opponents_at_once, run.opponent_greedy
    if name in ("self", "past"):
        _require_alike(env.spec, spec, f"the sides of {env.spec.name} are not alike: {{}}; use a team")
        if name == "self":
            return SelfPlay(env, player, envs, 1, greedy)
        pool, every, draw = run.opponent_pool, run.snapshot_every, run.opponent_draw
        return PastSelves(env, player, envs, at_once, greedy, pool, every, draw)
    team = untrained_team(name, spec) if name in UNTRAINED else load(name)
    return frozen(env, envs, greedy, team)


def _learning(run: RunConfig, env: Side, algorithm: Algorithm) -> Learning:
    """A learner with another algorithm, or with the same one and its options."""
    name, spec, steps = run.opponent_algorithm, env.sides.spec(env.others[0]), algorithm.steps_per_update
    registry.require_fit(name, spec)
    config = algorithm.config
    if name != run.algorithm:
        layer = registry.preset(name, run.env, "auto")
        values = {"algorithm": layer.values.get("algorithm", {})} if layer else {}
        known = registry.algorithm_config(name)
        config = merge((name, run.env), known, {}, [Layer("preset", values)]).algorithm
        # It learns from the rollouts of the first, as often for a step as it would from its own.
        changes = {"batch_steps": steps}
        if hasattr(config, "gradient_steps"):
            changes["gradient_steps"] = max(1, round(config.gradient_steps * steps / config.batch_steps))
            changes["buffer"] = max(config.buffer, steps)  # it must hold a whole rollout
        config = replace(config, **changes)
    learner = build(registry.algorithm(name), config, policy_spec(spec, **config.inputs))
    learner.check(run.envs)
    require_learning(learner.optimisers, run.steps)
    return Learning(env, Player(spec, learner), run.envs)


def read_pool(path: Path) -> dict[str, float]:
    """The opponents that a pool file lists, and their weights: `"results/a" = 2`, `self = 1`."""
    try:
        listed = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PhalanxError(f"cannot read the pool {path}: {error}") from None
    weights = listed.get("opponents")
    if set(listed) != {"opponents"} or not isinstance(weights, dict) or not weights:
        raise PhalanxError(f'{path} must have one table [opponents] with lines such as "RUN" = 1 or self = 2')
    for name, weight in weights.items():
        if not isinstance(weight, int | float) or isinstance(weight, bool) or not weight > 0:
            raise PhalanxError(f"{path}: the weight of {name} must be a number above 0, not {weight!r}")
    return weights


def _parted(envs: int, weights: list[float]) -> list[int]:
    """How many of the environments each opponent plays in: by weight, and at least one."""
    if envs < len(weights):
        raise PhalanxError(
            f"{len(weights)} opponents need at least as many environments: use --envs {len(weights)}"
        )
    for least in (0, 1):
        ends = np.round(np.cumsum(weights) / np.sum(weights) * (envs - least * len(weights))).astype(int)
        sizes = [int(size) + least for size in np.diff(ends, prepend=0)]
        if min(sizes) > 0:
            break
    return sizes


def frozen(env: Side, envs: int, greedy: bool, team: Team) -> Frozen:
    """A team that does not learn on the other side."""
    spec = env.sides.spec(env.others[0])
    require_fit(team, spec, f"the {env.others[0]} of {spec.name}")
    return Frozen(env, Player(spec, team.algorithm), envs, greedy, team.params)


def untrained_team(name: str, spec: EnvSpec) -> Team:
    """A team that acts at random, or the script that comes with an environment."""
    config = registry.algorithm_config(name)()
    algorithm = build(registry.algorithm(name), config, policy_spec(spec, **config.inputs))
    return Team(name, spec, algorithm, ())


def yardstick(env: Side, envs: int) -> Frozen:
    """Who plays the other side in evaluations: always the same."""
    return frozen(env, envs, False, untrained_team("random", env.sides.spec(env.others[0])))


def require_fit(team: Team, spec: EnvSpec, side: str) -> None:
    """Raise an error if a team was trained for another environment or side."""
    _require_alike(team.spec, spec, f"{team.name} cannot play {side}: {{}}")
    if team.spec.version != spec.version:
        raise PhalanxError(
            f"{team.name} was made with version {team.spec.version} of {team.spec.name}, and this is version "
            f"{spec.version}"
        )


def _require_alike(one: EnvSpec, other: EnvSpec, line: str) -> None:
    """Raise an error if two teams have different observations or actions."""
    for name in INTERFACE:
        if getattr(one, name) != getattr(other, name):
            what = name.replace("n_", "number of ").replace("_", " ")
            raise PhalanxError(line.format(f"{what} {getattr(one, name)} and {getattr(other, name)}"))

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
LEARNING = "learning"  # what a pool file calls the second learner
# The weight of an opponent beside a second learner, whose weight is 1. With a weight of 1 the learner still
# follows the newest opponent in circles: see `test_past_selves_of_the_other_side_end_the_cycle`.
BESIDE = 3.0
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
    shares = _shares(run)
    sizes = dict(zip(shares, _parted(run.envs, list(shares.values())), strict=True))
    parts, steps = list[Opponents](), algorithm.steps_per_update
    copied = Player(env.sides.spec(env.others[0]), algorithm)
    if LEARNING in sizes:
        parts.append(_learning(run, sizes.pop(LEARNING), env, algorithm))
        copied = parts[0].player
    elif {"self", "past"} & sizes.keys():
        line = "are not alike: {}; use a team, or let the other side learn: --opponent-algorithm"
        _require_alike(env.spec, copied.spec, f"the sides of {env.spec.name} {line}")
    parts += [_opponent(name, run, size, env, copied, steps, load) for name, size in sizes.items()]
    return parts[0] if len(parts) == 1 else Mixed(env, parts)


def _shares(run: RunConfig) -> dict[str, float]:
    """Who plays the other side, each with its weight."""
    learning = {LEARNING: 1.0} if run.opponent_algorithm else {}
    if Path(run.opponent).suffix == ".toml":
        listed = read_pool(Path(run.opponent))
        if LEARNING in listed and not learning:
            raise PhalanxError(f"{run.opponent} lists {LEARNING}: add --opponent-algorithm")
        if learning and LEARNING not in listed:
            line = f"must list {LEARNING}, with a weight for {run.opponent_algorithm}, which learns"
            raise PhalanxError(f"{run.opponent} {line}")
    else:
        listed = {run.opponent: BESIDE} if run.opponent else {}
    if learning and "self" in listed:
        raise PhalanxError(
            f"opponent self and opponent_algorithm={run.opponent_algorithm} are two learners for one side: "
            f"leave out one of them, or use past"
        )
    return learning | listed


def _opponent(
    name: str, run: RunConfig, envs: int, env: Side, copied: Player, steps: int, load: Load
) -> Opponents:
    """One opponent, in some of the environments. `copied` is the player that may be copied."""
    greedy, at_once, pool = run.opponent_greedy, run.opponents_at_once, run.opponent_pool
    if name == "self":
        return SelfPlay(env, copied, envs, 1, greedy)
    if name == "past":
        every, draw = run.snapshot_every, run.opponent_draw
        return PastSelves(env, copied, envs, at_once, greedy, pool, every, draw, steps)
    team = untrained_team(name, copied.spec) if name in UNTRAINED else load(name)
    return frozen(env, envs, greedy, team)


def _learning(run: RunConfig, envs: int, env: Side, algorithm: Algorithm) -> Learning:
    """A learner with another algorithm, or with the same one and its options, in some of the environments."""
    name, spec = run.opponent_algorithm, env.sides.spec(env.others[0])
    registry.require_fit(name, spec)
    config, steps = algorithm.config, algorithm.steps_per_update // run.envs * envs
    if name != run.algorithm:
        layer = registry.preset(name, run.env, "auto")
        values = {"algorithm": layer.values.get("algorithm", {})} if layer else {}
        known = registry.algorithm_config(name)
        config = merge((name, run.env), known, {}, [Layer("preset", values)]).algorithm
    # It learns from its part of the first learner's rollouts, as often for a step as from its own rollouts.
    changes = {"batch_steps": steps}
    if hasattr(config, "gradient_steps"):
        changes["gradient_steps"] = max(1, round(config.gradient_steps * steps / config.batch_steps))
        changes["buffer"] = max(config.buffer, steps)  # it must hold a whole rollout
    config = replace(config, **changes)
    learner = build(registry.algorithm(name), config, policy_spec(spec, **config.inputs))
    try:
        learner.check(envs)
    except PhalanxError as error:
        where = f"{envs} of {run.envs} environments"
        raise PhalanxError(f"opponent_algorithm={name} cannot learn in {where}: {error}") from None
    require_learning(learner.optimisers, run.steps)
    return Learning(env, Player(spec, learner), envs)


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

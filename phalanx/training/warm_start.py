"""Start a run from the networks of another: `--init-from RUN`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.algorithms.base import RoleParameters
from phalanx.errors import PhalanxError
from phalanx.networks.sharing import Groups
from phalanx.training.loop import Carry
from phalanx.training.programs import carry_shapes
from phalanx.training.setup import Setup
from phalanx.types import PyTree


def start_from(name: str, source: Setup, trained: Carry, target: Setup) -> Callable[[Carry], Carry]:
    """A function that gives a new carry (S, ...) the networks that a run called `name` has `trained`.

    Networks are matched by role, such as actor and critic, and by the agents that they are for: each group
    takes the network of its agents, so that one shared network can become one for each type or agent.
    Optimisers, replay buffer and counters start from the beginning. An error says what does not fit.
    """
    _require_same_scales(name, source, target)
    seeds = _seeds(name, source.config.seeds, target.config.seeds)
    of_source = source.algorithm.networks(trained.learner)
    of_target = target.algorithm.networks(carry_shapes(target.loop).learner)
    if not of_target:
        raise PhalanxError(f"{target.config.algorithm} has no networks to start from {name}")
    found = {}
    for role, network in of_target.items():
        if role not in of_source:
            raise PhalanxError(f"cannot start from {name}: {source.config.algorithm} has no {role}")
        found[role] = _matched(f"cannot start from {name}: {role}", of_source[role], network, seeds)

    def begin(carry: Carry) -> Carry:
        learner = target.algorithm.with_networks(carry.learner, found)
        # Programs take over the memory of their arguments, so that no two arrays may be one.
        return carry._replace(learner=jax.tree.map(jnp.copy, learner))

    return begin


def _require_same_scales(name: str, source: Setup, target: Setup) -> None:
    """Raise an error if the networks were trained with other normalisation of inputs or rewards."""
    for option in ("normalise_obs", "normalise_reward"):
        was, now = (getattr(each.resolved.algorithm, option, False) for each in (source, target))
        if was != now:
            raise PhalanxError(
                f"cannot start from {name}: it was trained {_with(was)} {option}, and this run is "
                f"{_with(now)} it: use the same"
            )
    was, now = (getattr(each.resolved.algorithm, "reward_norm", "none") for each in (source, target))
    if was != now:
        raise PhalanxError(
            f"cannot start from {name}: it was trained with reward_norm={was}, and this run has "
            f"reward_norm={now}: use the same"
        )


def _with(on: bool) -> str:
    return "with" if on else "without"


def _seeds(name: str, trained: int, wanted: int) -> np.ndarray:
    """For each new seed, the trained seed to start from."""
    if trained not in (1, wanted):
        raise PhalanxError(
            f"{name} has {trained} seeds, and this run {wanted}: train {trained} seeds, or start from one"
        )
    return np.arange(wanted) % trained


def _matched(where: str, source: RoleParameters, target: RoleParameters, seeds: np.ndarray) -> PyTree:
    """The parameters of `source`, (S', G', ...), for the seeds and groups of `target`, (S, G, ...)."""
    groups = _groups(where, source.groups, target.groups)
    taken = jax.tree.map(lambda x: x[seeds][:, groups], source.parameters)
    wanted, found = (jax.tree_util.tree_leaves_with_path(tree) for tree in (target.parameters, taken))
    names = [[jax.tree_util.keystr(path) for path, _ in leaves] for leaves in (wanted, found)]
    for odd in sorted(set(names[0]) ^ set(names[1])):
        raise PhalanxError(f"{where}{odd} is in only one of the two")
    for (path, leaf), (_, own) in zip(wanted, found, strict=True):
        if leaf.shape != own.shape:
            part = jax.tree_util.keystr(path)
            raise PhalanxError(f"{where}{part} is {list(own.shape[2:])}, needed is {list(leaf.shape[2:])}")
    return taken


def _groups(where: str, source: Groups, target: Groups) -> np.ndarray:
    """For each group of `target`, the group of `source` that its agents were in."""
    if source.count == 1:
        return np.zeros(target.count, int)
    if len(source.of_agent) != len(target.of_agent):
        raise PhalanxError(
            f"{where} is of {len(source.of_agent)} agents in {source.count} groups, and this run has "
            f"{len(target.of_agent)} agents"
        )
    found = []
    for g, name in enumerate(target.names):
        groups = {source.of_agent[agent] for agent in target.members(g)}
        if len(groups) > 1:
            raise PhalanxError(f"{where}: the agents of {name} had {len(groups)} networks, not one")
        found.append(groups.pop())
    return np.array(found)

"""Check that a Python environment implements the interface, and explain each violation in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from phalanx.envs.base import own_actions
from phalanx.envs.check import random_actions, spec_entries
from phalanx.envs.host.base import HostSource
from phalanx.envs.host.pool import PoolStep
from phalanx.errors import PhalanxError
from phalanx.spec import EnvSpec

STEPS = 300
SEED = 7


def check_host(source: HostSource) -> list[str]:
    """List every violation of the interface that can be found; an empty list means none.

    Two environments play the same episodes with the same actions, side by side.
    """
    try:
        spec = source.spec
        breaches = list(spec_entries(spec))
        return breaches or list(dict.fromkeys(_play(source, spec)))
    except PhalanxError as error:
        return [str(error)]


def _play(source: HostSource, spec: EnvSpec) -> Iterator[str]:
    rng, pool = np.random.default_rng(0), source.pool(2)
    try:
        seen = pool.begin(np.full(2, SEED, np.uint64))
        if not _alike(seen):
            yield "reset(seed) gave two different observations for the same seed."
        for t in range(1, STEPS + 1):
            actions = random_actions(rng, seen.avail[:1], spec).repeat(2, axis=0)
            played = pool.step(actions, np.full(2, SEED + t, np.uint64))
            if pool.faults.total:
                yield f"playing it fails at step {t}: {pool.faults.last}"
                return
            yield from _look(played, spec, t)
            if not _alike(played):
                yield (
                    f"the same seed and the same actions gave two different results at step {t}: "
                    f"reset(seed) must decide everything random."
                )
                return
            seen = played.observation
    finally:
        pool.close()


def _look(played: PoolStep, spec: EnvSpec, t: int) -> Iterator[str]:
    """What is wrong with one step."""
    seen, reward = played.observation, played.step.reward
    if (seen.avail & seen.alive[..., None] & ~own_actions(spec)).any():
        yield "padded actions are available: mask them by spec.action_counts."
    for agent, names in enumerate(spec.obs_features):
        if spec.obs_shape is None and seen.obs[:, agent, len(names) :].any():
            yield f"the padded observation entries of {spec.agents[agent]} are not zero."
    if spec.common_reward and (reward != reward[:, :1]).any():
        yield f"spec.common_reward is set, but agents got different rewards at step {t}."
    if spec.agents_end and (seen.alive & played.step.agent_terminated)[~played.first].any():
        yield f"an agent has ended by step {t} and still lives: mark it dead at the step that ends it."


def _alike(played: tuple) -> bool:
    """Whether both environments gave the same."""
    return all(
        _alike(each) if isinstance(each, tuple) else each is None or np.array_equal(each[0], each[1])
        for each in played
    )

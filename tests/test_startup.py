"""What a run does before its first step: what is traced, compiled and kept."""

from collections import Counter

import jax
import numpy as np
from conftest import build

from phalanx.algorithms.ppo import PPO
from phalanx.algorithms.shared.actor_critic import ActorCritic
from phalanx.envs.battle.env import Battle
from phalanx.envs.debug import Identity
from phalanx.ops import distributions
from phalanx.registry import make_env
from phalanx.training.footprint import carry_shapes
from phalanx.training.programs import program_jobs


def test_shapes_and_programs_trace_everything_once(monkeypatch):
    counts = Counter()

    def counted(cls, name):
        original = getattr(cls, name)
        monkeypatch.setattr(cls, name, lambda *args, **more: counts.update([name]) or original(*args, **more))

    counted(PPO, "update")
    counted(ActorCritic, "init")
    counted(Identity, "step")
    loop = build("mappo", "debug/identity", envs=4)
    evaluation = loop.collector.with_sizes(envs=3, seeds=1)
    carry_shapes(loop)
    for job, shapes in program_jobs(loop, evaluation).values():
        job.trace(*shapes)
    assert counts == {"update": 1, "init": 1, "step": 1}


def test_a_battle_draws_its_start_once(monkeypatch):
    env = make_env("battle/3m", {})
    env.reset(jax.random.key(0))  # the first observations are made
    drawn = []
    which = Battle._which
    monkeypatch.setattr(Battle, "_which", lambda *args: drawn.append(1) or which(*args))
    jax.eval_shape(env.reset, jax.random.key(0))
    assert len(drawn) == 1


def test_noise_in_a_row_is_the_noise_of_any_shape():
    key, logits = jax.random.key(3), np.zeros((5, 3, 4), np.float32)
    np.testing.assert_array_equal(distributions._gumbel(key, logits), jax.random.gumbel(key, logits.shape))

"""What a run does before its first step: what is traced, compiled and kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, calls, small

from phalanx.algorithms.ppo import PPO
from phalanx.algorithms.shared.actor_critic import ActorCritic
from phalanx.callbacks import Callback
from phalanx.envs.battle.env import Battle
from phalanx.envs.debug import Identity
from phalanx.ops import distributions
from phalanx.registry import make_env
from phalanx.training import checkpoint, driver
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.programs import carry_shapes, program_jobs


def rows(run):
    """Metrics without the clock on the wall."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics()]


def test_shapes_and_programs_trace_everything_once(monkeypatch):
    counts = calls(monkeypatch, (PPO, "update"), (ActorCritic, "init"), (Identity, "step"))
    loop = build("mappo", "debug/identity", envs=4)
    assert isinstance(loop.collector, Compiled)
    evaluation = loop.collector.with_sizes(envs=3, seeds=1)
    carry_shapes(loop)
    for job, shapes in program_jobs(loop, evaluation).values():
        job.trace(*shapes)
    assert counts == {"update": 1, "init": 1, "step": 1}


def checkpoints(run):
    """All of them, oldest first."""
    folder = run.folder / "checkpoints"
    return [checkpoint.choose(folder, name) for name in sorted(path.name for path in folder.iterdir())]


class Coming:
    """A program that is being compiled for ever."""

    def done(self) -> bool:
        return False


@pytest.mark.parametrize("options", [{}, {"seeds": 2, "steps": 200}])
def test_a_first_evaluation_that_comes_late_changes_nothing(tmp_path, monkeypatch, options):
    """Training begins without waiting for the program of evaluations."""
    order = []
    compiled, evaluate = driver.compile_programs, driver.Driver.evaluate

    def waiting(*args):
        programs = compiled(*args)
        advance = programs.advance
        return programs._replace(
            coming=(Coming(),), advance=lambda *args: order.append("advance") or advance(*args)
        )

    plain = small(tmp_path / "plain", callbacks=[Callback()], keep=9, **options)
    monkeypatch.setattr(driver, "compile_programs", waiting)
    monkeypatch.setattr(
        driver.Driver, "evaluate", lambda self: order.append(f"evaluate {self.updates}") or evaluate(self)
    )
    late = small(tmp_path / "late", keep=9, **options)
    assert order.index("evaluate 0") == order.index("advance") + 2 == order.index("evaluate 2") - 1
    assert rows(late) == rows(plain)
    assert late.facts["final"] == plain.facts["final"]
    assert [(each.updates, each.score, each.sha256) for each in checkpoints(late)] == [
        (each.updates, each.score, each.sha256) for each in checkpoints(plain)
    ]


def test_a_battle_draws_its_start_once(monkeypatch):
    env = make_env("battle/3m", {})
    env.reset(jax.random.key(0))  # the first observations are made
    drawn = []
    which = Battle._which
    monkeypatch.setattr(Battle, "_which", lambda *args: drawn.append(1) or which(*args))
    jax.eval_shape(env.reset, jax.random.key(0))
    assert len(drawn) == 1


def test_noise_in_a_row_is_the_noise_of_any_shape():
    key, logits = jax.random.key(3), jnp.zeros((5, 3, 4))
    np.testing.assert_array_equal(distributions._gumbel(key, logits), jax.random.gumbel(key, logits.shape))

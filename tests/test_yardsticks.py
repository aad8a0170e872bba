"""The teams of `benchmarks/yardsticks.py`: they keep to the mask, and the best plan is followed."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from phalanx.registry import make_env

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import yardsticks

ROLLOUTS, HORIZON = 8, 3


def test_every_team_takes_available_actions():
    env = make_env("battle/3s5z", {})
    decide, plan = yardsticks.planned(env, ROLLOUTS, HORIZON)

    def step(carried, key):
        state, avail, plan = carried
        sight = yardsticks.look(env, state, avail)
        chosen, plan = decide(key, state, avail, plan)
        actions = jnp.stack([*(team(env, sight) for team in yardsticks.TEAMS.values()), chosen])
        state, told = env.step(key, state, actions[jax.random.randint(key, (), 0, len(actions))])
        return (state, told.observation.avail, plan), (actions, avail)

    state, told = env.reset(jax.random.key(0))
    start = (state, told.observation.avail, plan)
    _, (actions, avail) = jax.lax.scan(step, start, jax.random.split(jax.random.key(1), 40))
    allowed = np.take_along_axis(np.asarray(avail)[:, None], np.asarray(actions)[..., None], -1)
    assert allowed.all()
    assert len(np.unique(actions)) > 4, "they walk and attack"


def test_who_shoots_steps_back_from_who_does_not_while_its_weapon_cools():
    env = make_env("battle/3s_vs_5z", {})
    state, told = env.reset(jax.random.key(0))
    x, y = jnp.array([16, 16, 16, 18, 18, 18, 18, 18.0]), jnp.array([14, 16, 18, 14, 15, 16, 17, 18.0])
    avail = told.observation.avail.at[:].set(True)

    def orders(cooldown):
        units = state.units._replace(x=x, y=y, cooldown=jnp.full(8, cooldown))
        return yardsticks.kite(env, yardsticks.look(env, state._replace(units=units), avail))

    west, first_target = 5, 6
    assert (orders(20.0) == west).all()
    assert (orders(0.0) == west).all(), "stalkers are faster, and zealots are about to strike"
    x = x.at[3:].add(1.5)
    assert (orders(0.0) >= first_target).all()


def test_the_best_of_the_plans_is_followed(monkeypatch):
    env = make_env("battle/2s_vs_1sc", {})
    decide, plan = yardsticks.planned(env, ROLLOUTS, HORIZON)
    state, told = env.reset(jax.random.key(0))
    wanted = 3  # south
    tried = jnp.zeros((ROLLOUTS, HORIZON, 2), jnp.int32).at[5].set(len(yardsticks.TEAMS) + wanted)
    monkeypatch.setattr(yardsticks, "plans", lambda *_: tried)
    monkeypatch.setattr(yardsticks, "value", lambda env, key, state, avail, plan: plan.sum())
    actions, then = decide(jax.random.key(1), state, told.observation.avail, plan)
    assert (actions == wanted).all()
    assert (then == tried[5]).all()

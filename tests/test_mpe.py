"""The particle worlds beside `mpe2`, step by step from the same starts with the same actions."""

import importlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import LONG
from pettingzoo.utils.env_logger import EnvLogger

from phalanx import registry
from phalanx.envs.mpe import NAMES
from phalanx.envs.mpe.world import Particles
from phalanx.envs.wrappers import TimeLimit

EnvLogger.suppress_output()  # mpe2 warns of every action that it clips

EPISODES = 500 if LONG else 24
# Ours and mpe2's names for the same options.
THEIRS = {
    "agents": "N",
    "good": "num_good",
    "adversaries": "num_adversaries",
    "obstacles": "num_obstacles",
    "food": "num_food",
    "forests": "num_forests",
    "agent_neighbors": "num_agent_neighbors",
    "landmark_neighbors": "num_landmark_neighbors",
}
VARIATIONS = [
    *((name, {}) for name in NAMES),
    # Those below without continuous actions, but for the long test.
    ("simple", {"max_cycles": 7}),
    ("simple_spread", {"agents": 5, "local_ratio": 0.2, "max_cycles": 40}),
    ("simple_spread", {"agents": 1, "local_ratio": 1.0}),
    ("simple_spread", {"agents": 4, "agent_neighbors": 2, "landmark_neighbors": 6}),
    ("simple_spread", {"agents": 2, "terminate_on_success": True, "max_cycles": 60}),
    ("simple_spread", {"collision_penalty": False}),
    (
        "simple_tag",
        {"good": 2, "adversaries": 4, "obstacles": 3, "agent_neighbors": 3, "landmark_neighbors": 1},
    ),
    ("simple_tag", {"good": 2, "adversaries": 1, "obstacles": 0}),
    ("simple_tag", {"adversaries": 5, "terminate_on_success": True, "prey_speed": 0.5}),
    ("simple_adversary", {"agents": 4, "agent_neighbors": 2, "landmark_neighbors": 2}),
    ("simple_reference", {"local_ratio": 0.1}),
    ("simple_world_comm", {"good": 3, "adversaries": 2, "obstacles": 2, "food": 1, "forests": 3}),
    ("simple_world_comm", {"good": 1, "adversaries": 1, "obstacles": 0, "forests": 0}),
]


class Recorded(NamedTuple):
    """Episodes of mpe2: E episodes of at most T steps, A agents; what comes after an end is zero."""

    states: Particles
    """(T + 1, E, ...)"""
    actions: np.ndarray
    """(T, E, A) or (T, E, A, U)"""
    obs: np.ndarray
    """(T + 1, E, A, O)"""
    joint: np.ndarray
    """(T + 1, E, X)"""
    reward: np.ndarray
    """(T, E, A)"""
    terminated: np.ndarray
    """(T, E)"""
    truncated: np.ndarray


def reference(name, options):
    """The environment of mpe2 with the same options."""
    version = "v4" if name == "simple_speaker_listener" else "v3"
    theirs = {THEIRS.get(key, key): value for key, value in options.items()}
    stage = None
    if "collision_penalty" in theirs:
        stage = int(theirs.pop("collision_penalty"))
    if "prey_speed" in theirs:
        stage = [0.5, 0.75, 1.0].index(theirs.pop("prey_speed"))
    if stage is not None:
        theirs["curriculum"] = True
    env = importlib.import_module(f"mpe2.{name}_{version}").parallel_env(**theirs)
    if stage is not None:
        env.unwrapped.set_curriculum_stage(stage)
    return env


def state_of(name, world) -> Particles:
    """What our state would be."""
    agents, landmarks = world.agents, world.landmarks
    drawn = {
        "simple_adversary": lambda: [landmarks.index(agents[0].goal_a)],
        "simple_push": lambda: [landmarks.index(agents[0].goal_a)],
        "simple_speaker_listener": lambda: [landmarks.index(agents[0].goal_b)],
        "simple_reference": lambda: [landmarks.index(agent.goal_b) for agent in agents],
        "simple_crypto": lambda: [landmarks.index(agents[0].goal_a), int(agents[2].key.argmax())],
    }.get(name, list)()
    return Particles(
        position=np.array([body.state.p_pos for body in world.entities]),
        velocity=np.array([agent.state.p_vel for agent in agents]),
        said=np.array([agent.state.c for agent in agents]),
        drawn=np.array(drawn, np.int32),
    )


def record(name, options, episodes, seed=0) -> Recorded:
    """Play mpe2 with random actions, some of them held for a while so that bodies meet and go far."""
    env = reference(name, options)
    spec = registry.make_env(f"mpe/{name}", options).spec
    names, limit, width = spec.agents, spec.time_limit, spec.n_actions
    assert env.possible_agents == list(names)
    rng = np.random.default_rng(seed)
    continuous = spec.action_kind == "continuous"
    shape = (limit, episodes, len(names))
    actions = np.zeros((*shape, width)) if continuous else np.zeros(shape, np.int32)
    obs = np.zeros((limit + 1, episodes, len(names), spec.obs_size))
    joint = np.zeros((limit + 1, episodes, spec.state_size))
    reward = np.zeros(shape)
    terminated, truncated = np.zeros(shape[:2], bool), np.zeros(shape[:2], bool)
    states = []
    for e in range(episodes):
        seen, _ = env.reset(seed=seed * episodes + e)
        states.append([])
        hold = rng.random() * 0.9
        for t in range(limit + 1):
            states[e].append(state_of(name, env.unwrapped.world))
            for a, agent in enumerate(names):
                obs[t, e, a, : len(seen[agent])] = seen[agent]
            joint[t, e] = env.state()
            if t == limit or (t > 0 and (terminated[t - 1, e] or truncated[t - 1, e])):
                break
            chosen = {}
            for a, agent in enumerate(names):
                count = spec.action_counts[a]
                if t > 0 and rng.random() < hold:
                    actions[t, e, a] = actions[t - 1, e, a]
                elif continuous:
                    # Beyond the range too: both clip.
                    actions[t, e, a, :count] = rng.uniform(-0.2, 1.2, count)
                    assert env.action_space(agent).shape == (count,)
                else:
                    actions[t, e, a] = rng.integers(count)
                    assert env.action_space(agent).n == count
                chosen[agent] = actions[t, e, a, :count] if continuous else int(actions[t, e, a])
            seen, rewards, ends, cuts, _ = env.step(chosen)
            reward[t, e] = [rewards[agent] for agent in names]
            terminated[t, e], truncated[t, e] = any(ends.values()), any(cuts.values())
    for episode in states:
        episode.extend([episode[-1]] * (limit + 1 - len(episode)))
    by_episode = [jax.tree.map(lambda *xs: np.stack(xs), *episode) for episode in states]
    together = jax.tree.map(lambda *xs: np.stack(xs, axis=1), *by_episode)
    # Where nobody speaks and nobody sees the silence, we keep none.
    words = registry.make_env(f"mpe/{name}", options).bodies.words
    together = together._replace(said=together.said[..., :words])
    return Recorded(together, actions, obs, joint, reward, terminated, truncated)


def running(recorded: Recorded) -> np.ndarray:
    """(T, E): the episode had not ended before the step."""
    over = recorded.terminated | recorded.truncated
    return np.cumsum(over, axis=0) - over == 0


def free_running(env, recorded: Recorded) -> Recorded:
    """The same episodes in ours, from their starts, computed with twice the digits.

    Contacts are stiff and multiply an error by up to 1.6 a step, so that two computations of the same rules
    part ways in single precision.
    """
    limited = TimeLimit(env)
    with jax.enable_x64(True):
        begin = jax.tree.map(lambda x: jnp.asarray(x[0]), recorded.states)
        obs, joint = jax.vmap(env._seen)(begin)
        counted = jax.eval_shape(limited.reset, jax.random.key(0))[0]
        steps = jnp.zeros(obs.shape[0], counted.steps.dtype)

        def step(state, actions):
            state, now = jax.vmap(limited.step, (None, 0, 0))(jax.random.key(0), state, actions)
            return state, (state.inner, now)

        scan = jax.jit(lambda begin, actions: jax.lax.scan(step, begin, actions)[1])
        states, now = jax.device_get(scan(type(counted)(begin, steps), jnp.asarray(recorded.actions)))
    assert states.position.dtype == np.float64
    along = [
        np.concatenate([np.asarray(first)[None], later])
        for first, later in [(obs, now.observation.obs), (joint, now.observation.state)]
    ]
    return Recorded(states, recorded.actions, *along, now.reward, now.terminated, now.truncated)


def one_by_one(env, recorded: Recorded) -> Recorded:
    """Every recorded step by itself, from mpe2's own state before it, in the precision that users have."""
    now = jax.tree.map(
        lambda x: jnp.asarray(x[:-1], jnp.float32 if x.dtype.kind == "f" else x.dtype), recorded.states
    )
    step = jax.jit(jax.vmap(jax.vmap(env.step, (None, 0, 0)), (None, 0, 0)))
    states, now = jax.device_get(step(jax.random.key(0), now, jnp.asarray(recorded.actions)))
    obs = np.concatenate([recorded.obs[:1], now.observation.obs])
    joint = np.concatenate([recorded.joint[:1], now.observation.state])
    return Recorded(states, recorded.actions, obs, joint, now.reward, now.terminated, recorded.truncated)


def differences(ours: Recorded, recorded: Recorded) -> dict[str, float]:
    """The largest difference of each kind, relative above 1, over all steps that were played."""
    played = running(recorded)
    seen = np.concatenate([np.ones_like(played[:1]), played])
    found = {}
    for field, where in {
        "obs": seen,
        "joint": seen,
        "reward": played,
        "terminated": played,
        "truncated": played,
    }.items():
        one, other = (np.asarray(getattr(each, field), np.float64)[where] for each in (ours, recorded))
        found[field] = float((np.abs(one - other) / np.maximum(1, np.abs(other))).max())
    return found


def cases():
    """Every scenario with both kinds of actions, and with other options."""
    for name, options in VARIATIONS:
        for continuous in (False, True) if LONG or not options else (False,):
            chosen = {**options, "continuous_actions": True} if continuous else options
            yield pytest.param(name, chosen, id="-".join([name, *map(str, chosen.items())]))


@pytest.mark.parametrize(("name", "options"), cases())
def test_step_for_step_as_mpe2(name, options):
    env = registry.make_env(f"mpe/{name}", options)
    recorded = record(name, options, EPISODES)
    for play in (free_running, one_by_one) if set(options) <= {"continuous_actions"} else (free_running,):
        found = differences(play(env, recorded), recorded)
        assert max(found.values()) <= 1e-5, (play.__name__, found)

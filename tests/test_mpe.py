"""The particle worlds beside `mpe2`, step by step from the same starts with the same actions."""

import dataclasses
import importlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import LONG, SMALL, same
from pettingzoo.utils.env_logger import EnvLogger

import phalanx
from phalanx import registry
from phalanx.algorithms.base import AlgorithmConfig
from phalanx.algorithms.heuristic import Heuristic
from phalanx.algorithms.ppo import PPO, MAPPOConfig
from phalanx.config import merge
from phalanx.envs.check import check
from phalanx.envs.mpe import NAMES
from phalanx.envs.mpe import world as physics
from phalanx.envs.mpe.world import Particles
from phalanx.envs.wrappers import TimeLimit, prepare
from phalanx.errors import PhalanxError
from phalanx.training.evaluate import returns_by_type
from phalanx.training.setup import set_up

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
    ("simple_spread", {"agents": 1, "terminate_on_success": True, "max_cycles": 80}),
    ("simple_spread", {"collision_penalty": False}),
    (
        "simple_tag",
        {"good": 2, "adversaries": 4, "obstacles": 3, "agent_neighbors": 3, "landmark_neighbors": 1},
    ),
    ("simple_tag", {"good": 2, "adversaries": 1, "obstacles": 0}),
    ("simple_tag", {"adversaries": 5, "terminate_on_success": True, "prey_speed": 0.5}),
    ("simple_tag", {"adversaries": 6, "terminate_on_success": True, "max_cycles": 4}),
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


def apart(env, recorded: Recorded) -> np.ndarray:
    """(T, E): before the step no two solid bodies were so near that 32 bits lose their direction."""
    solid = recorded.states.position[:-1, :, : env.bodies.solids]
    distance = np.linalg.norm(solid[:, :, :, None] - solid[:, :, None], axis=-1)
    distance[..., np.arange(env.bodies.solids), np.arange(env.bodies.solids)] = np.inf
    return distance.min((2, 3), initial=np.inf) > 0.01


def differences(ours: Recorded, recorded: Recorded, counted: np.ndarray | None = None) -> dict[str, float]:
    """The largest difference of each kind, relative above 1, over all steps that were played.

    `counted` (T, E) leaves out some.
    """
    played = running(recorded) if counted is None else running(recorded) & counted
    seen = np.concatenate([np.ones_like(played[:1]), played])
    found = {}
    for field in ("obs", "joint", "reward", "terminated", "truncated"):
        where = seen if field in ("obs", "joint") else played
        one, other = (np.asarray(getattr(each, field), np.float64)[where] for each in (ours, recorded))
        found[field] = float((np.abs(one - other) / np.maximum(1, np.abs(other))).max())
    return found


def ends_before_cuts(recorded: Recorded, ours: Recorded) -> Recorded:
    """The one difference: a task that ends on the very last step is cut in mpe2, and has ended here."""
    both = np.zeros_like(recorded.truncated)
    both[-1] = recorded.truncated[-1] & ours.terminated[-1]
    return recorded._replace(terminated=recorded.terminated | both, truncated=recorded.truncated & ~both)


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
    ours = free_running(env, recorded)
    if options.get("terminate_on_success"):
        assert recorded.terminated.any()
        assert recorded.truncated.any()
        recorded = ends_before_cuts(recorded, ours)
    found = differences(ours, recorded)
    assert max(found.values()) <= 1e-5, found
    if set(options) <= {"continuous_actions"}:
        found = differences(one_by_one(env, recorded), recorded, apart(env, recorded))
        assert max(found.values()) <= 1e-5, found


CONSTANTS = ["DT", "DAMPING", "CONTACT_FORCE", "CONTACT_MARGIN", "size", "accel", "max_speed", "obstacle"]


@pytest.fixture(scope="module")
def chase():
    """Some episodes of simple_tag, in which everything about the physics matters."""
    return record("simple_tag", {}, 12)


@pytest.mark.parametrize("constant", ["none", *CONSTANTS])
def test_one_changed_constant_is_seen(constant, chase, monkeypatch):
    """A hundredth more of any one constant, and ours is no longer mpe2's."""
    env = registry.make_env("mpe/simple_tag", {})
    if hasattr(physics, constant):
        monkeypatch.setattr(physics, constant, getattr(physics, constant) * 1.01)
    elif constant != "none":
        bodies = env.bodies
        first, obstacle = bodies.agents[0], bodies.landmarks[0]
        if constant == "obstacle":
            landmarks = (dataclasses.replace(obstacle, size=obstacle.size * 1.01), *bodies.landmarks[1:])
            changed = dataclasses.replace(bodies, landmarks=landmarks)
        else:
            more = {constant: getattr(first, constant) * 1.01}
            changed = dataclasses.replace(
                bodies, agents=(dataclasses.replace(first, **more), *bodies.agents[1:])
            )
        env.__dict__["bodies"] = changed
    worst = max(differences(free_running(env, chase), chase).values())
    assert worst <= 1e-5 if constant == "none" else worst > 1e-5


@pytest.mark.parametrize("name", ["simple_spread", "simple_speaker_listener", "simple_world_comm"])
def test_continuous_worlds_keep_the_contract(name):
    assert check(registry.make_env(f"mpe/{name}", {"continuous_actions": True})) == []


# For each world: from how many landmarks each goal is drawn, and how far out landmarks begin.
STARTS = {
    "simple": ((), 1.0),
    "simple_spread": ((), 1.0),
    "simple_tag": ((), 0.9),
    "simple_adversary": ((2,), 1.0),
    "simple_push": ((2,), 1.0),
    "simple_speaker_listener": ((3,), 1.0),
    "simple_reference": ((3, 3), 1.0),
    "simple_crypto": ((2, 2), 1.0),
    "simple_world_comm": ((), 0.9),
}


@pytest.mark.parametrize("name", NAMES)
def test_starts_fill_their_square_evenly(name):
    goals, within = STARTS[name]
    env = registry.make_env(f"mpe/{name}", {})
    states, now = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(3), 4096))
    agents = len(env.bodies.agents)
    for part, edge in ((states.position[:, :agents], 1.0), (states.position[:, agents:], within)):
        quarters = np.quantile(np.asarray(part), [0, 0.25, 0.5, 0.75, 1], axis=0)
        even = edge * np.array([-1, -0.5, 0, 0.5, 1])[:, None, None]
        np.testing.assert_allclose(quarters, np.broadcast_to(even, quarters.shape), atol=0.06)
        assert np.abs(part).max() <= edge
    # The places are drawn apart from each other.
    places = np.asarray(states.position).reshape(4096, -1)
    together = np.corrcoef(places, rowvar=False) - np.eye(places.shape[1])
    assert np.abs(together).max() < 0.08
    assert not np.asarray(states.velocity).any()
    assert not np.asarray(states.said).any()
    assert not np.asarray(now.terminated | now.truncated).any()
    if not goals:
        assert states.drawn.shape == (4096, 0)
        return
    counts = np.zeros(goals)
    np.add.at(counts, tuple(np.asarray(states.drawn).T), 1)
    np.testing.assert_allclose(counts / 4096, 1 / counts.size, atol=0.03)


def placed(env, **where):
    """A state at rest with bodies at the places given by name."""
    names = [body.name for body in env.bodies.all]
    state = env.start(jax.random.key(0))
    for name, place in where.items():
        state = state._replace(position=state.position.at[names.index(name)].set(jnp.array(place)))
    return state


@pytest.mark.parametrize(
    ("hunter", "prey", "push"),
    [
        ((-0.3, 0.0), (0.0, 0.01), (1, 0)),
        ((0.3, 0.0), (0.0, 0.01), (-1, 0)),
        ((0.01, 0.3), (0.0, 0.0), (0, -1)),
        # At the edge it must turn back or aside, whoever stands there.
        ((0.0, 0.02), (1.2, 0.0), (-1, 0)),
    ],
)
def test_scripted_prey_flees_and_stays_inside(hunter, prey, push):
    env = registry.make_env("mpe/simple_tag", {"prey": "scripted", "adversaries": 1, "obstacles": 0})
    state = placed(env, adversary_0=hunter, agent_0=prey)
    now = jax.tree.map(lambda x: x[..., None], state)
    found = env.flee(now.position[1], now.velocity[1], now.position[:1])[:, 0]
    np.testing.assert_array_equal(found, push)
    after, _ = env.step(jax.random.key(0), state, jnp.zeros(1, jnp.int32))
    np.testing.assert_allclose(after.velocity[1], 4.0 * physics.DT * np.array(push), atol=1e-5)


def test_a_scripted_adversary_goes_where_an_agent_is():
    env = registry.make_env("mpe/simple_adversary", {"adversary": "scripted"})
    state = placed(
        env, adversary_0=(0, 0), agent_0=(0.9, 0.1), agent_1=(0, 1), landmark_0=(-0.9, 0), landmark_1=(0.9, 0)
    )
    step = jax.jit(env.step)
    for _ in range(30):
        state, now = step(jax.random.key(0), state, jnp.zeros(2, jnp.int32))
    np.testing.assert_allclose(state.position[0], (0.9, 0), atol=0.02)
    assert env.spec.agents == ("agent_0", "agent_1")
    assert now.reward[0] == now.reward[1]


@pytest.mark.parametrize(
    ("name", "options", "types", "teams"),
    [
        ("simple_spread", {}, "agent agent agent", ""),
        ("simple_tag", {}, "adversary adversary adversary good", "adversary adversary adversary good"),
        ("simple_tag", {"prey": "scripted"}, "adversary adversary adversary", ""),
        ("simple_adversary", {"adversary": "scripted"}, "good good", ""),
        ("simple_speaker_listener", {}, "speaker listener", ""),
        ("simple_crypto", {}, "adversary listener speaker", "adversary good good"),
        (
            "simple_world_comm",
            {"adversaries": 2, "good": 1},
            "leader adversary good",
            "adversary adversary good",
        ),
    ],
)
def test_types_and_teams(name, options, types, teams):
    spec = registry.make_env(f"mpe/{name}", options).spec
    assert spec.agent_types == tuple(types.split())
    assert spec.teams == tuple(teams.split())
    assert spec.common_reward == (not teams and name != "simple_spread")


def test_each_team_learns_from_its_own_reward():
    spec = prepare(registry.make_env("mpe/simple_crypto", {})).spec
    reward = jnp.array([[-4.0, 1.0, 3.0]])
    for kind, wanted in {"own": [-4, 1, 3], "mean": [-4, 2, 2], "sum": [-4, 4, 4]}.items():
        view = "state+obs" if kind == "own" else "state"
        learner = PPO(MAPPOConfig(share="type", reward=kind, critic_view=view), spec)
        np.testing.assert_allclose(learner.rewards.of(reward)[0], wanted)
    with pytest.raises(
        PhalanxError, match="cannot be shared by the teams of mpe/simple_crypto: choose share=team"
    ):
        PPO(MAPPOConfig(share="all"), spec)
    assert PPO(MAPPOConfig(share="team"), spec).actor_groups.of_agent == (0, 1, 1)


def test_returns_are_told_by_type_or_by_team():
    played = phalanx.evaluate("random", registry.make_env("mpe/simple_crypto", {}), episodes=4)
    by_type = {name: played[f"return/{name}"] for name in ("adversary", "listener", "speaker")}
    assert by_type["listener"] == by_type["speaker"] != by_type["adversary"]
    assert "return/good" not in played
    assert "return/agent" not in phalanx.evaluate("random", "mpe/simple_spread", episodes=4)
    spec = dataclasses.replace(
        registry.make_env("mpe/simple_spread", {}).spec, teams=("blue", "red", "blue"), common_reward=False
    )
    found = returns_by_type(np.array([1.0, 5.0, 2.0]), spec)
    assert found == {"return/blue": 1.5, "return/red": 5.0}


def test_evaluate_says_what_does_not_fit(tmp_path):
    env = registry.make_env("mpe/simple", {})
    with pytest.raises(PhalanxError, match="a run or an object has its own"):
        phalanx.evaluate("random", env, env_options={"max_cycles": 3})
    with pytest.raises(PhalanxError, match=r"max_cycles must be at least 1, not 0 \(argument\)"):
        phalanx.evaluate("random", "mpe/simple", env_options={"max_cycles": 0})
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(PhalanxError, match="is a run folder, which has its environment"):
        phalanx.evaluate(tmp_path, "mpe/simple")


def test_where_teams_compete_the_last_parameters_are_taken(tmp_path, monkeypatch):
    run = phalanx.train(
        "ippo", "mpe/simple_push", steps=256, envs=4, eval_every=64, eval_episodes=4, final_episodes=4,
        preset="none", out=tmp_path / "run", quiet=True, **SMALL,
    )  # fmt: skip
    last, best, default = (phalanx.load(run.folder, which=which).params for which in ("last", "best", None))
    assert same(default, last)
    assert not same(last, best)


@pytest.mark.parametrize("algorithm", ["ippo", "mappo"])
def test_presets_fit_every_world(algorithm):
    for name in NAMES:
        env = f"mpe/{name}"
        layer = registry.preset(algorithm, env, "auto")
        resolved = merge(
            (algorithm, env), registry.algorithm_config(algorithm), registry.env_options(env), [layer]
        )
        built = set_up(resolved, registry.make_env(env, resolved.env))
        assert built.algorithm.actor_groups.names == tuple(dict.fromkeys(built.env.spec.agent_types))


def test_networks_see_a_continuous_last_action_without_its_padding():
    env = prepare(
        registry.make_env("mpe/simple_speaker_listener", {"continuous_actions": True}), last_action=True
    )
    running = env.reset(jax.random.key(0))
    width = env.env.env.spec.obs_size
    assert not np.asarray(running.observation.obs[:, width:]).any()
    actions = jnp.linspace(0.1, 1.0, 10).reshape(2, 5)
    _, now = env.step(jax.random.key(0), running, actions)
    np.testing.assert_allclose(now.observation.obs[1, width:], actions[1])
    np.testing.assert_allclose(now.observation.obs[0, width:], [0.1, 0.2, 0.3, 0, 0], atol=1e-6)


# Half way from a random team to a perfect one, or nearer: the scripts are no accident.
MARKS = {
    "simple": -10.0,
    "simple_spread": -19.0,
    "simple_speaker_listener": -12.0,
    "simple_reference": -13.0,
    "simple_crypto": 4.0,
}


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("name", MARKS)
def test_scripted_teams_play_well(name, continuous):
    options = {"continuous_actions": continuous}
    played = phalanx.evaluate("heuristic", f"mpe/{name}", episodes=64, env_options=options)
    assert played["return"] > MARKS[name]


@pytest.mark.parametrize(
    ("name", "options", "mark"),
    [
        ("simple_spread", {"landmark_neighbors": 6}, -19.0),
        ("simple_tag", {"agent_neighbors": 8}, 8.0),
        ("simple_tag", {"prey": "scripted"}, 8.0),
    ],
)
def test_scripts_know_an_empty_slot_from_something_very_near(name, options, mark):
    played = phalanx.evaluate("heuristic", f"mpe/{name}", episodes=64, env_options=options)
    assert played.get("return/adversary", played["return"]) > mark


@pytest.mark.parametrize("name", NAMES)
def test_bodies_look_as_in_mpe2(name):
    env, theirs = registry.make_env(f"mpe/{name}", {}), reference(name, {})
    for seed in range(4):
        theirs.reset(seed=seed)
        bodies = theirs.unwrapped.world.entities
        state = state_of(name, theirs.unwrapped.world)
        frame = env.frame(state._replace(said=state.said[:, : env.bodies.words]))
        np.testing.assert_allclose(frame["radius"], [body.size for body in bodies])
        np.testing.assert_allclose(frame["position"], [body.state.p_pos for body in bodies])
        if name != "simple_crypto":  # whose landmarks there have four colours, and whose Alice shows no key
            colors = np.minimum([body.color for body in bodies], 1.0)
            np.testing.assert_allclose(frame["color"], colors, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_every_script_acts_within_its_actions(name):
    for continuous in (False, True):
        env = registry.make_env(f"mpe/{name}", {"continuous_actions": continuous})
        team = Heuristic(AlgorithmConfig(), env.spec)
        _, now = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 8))
        seen = now.observation
        memory = team.actor.initial_memory(8)
        action, _, _ = team.actor.act((), seen, jnp.ones(8, bool), memory, jax.random.key(0), True)
        action = np.asarray(action)
        if continuous:
            assert action.shape == seen.avail.shape
            assert (action >= 0).all()
            assert (action <= 1).all()
        else:
            assert (action >= 0).all()
            assert (action < np.array(env.spec.action_counts)).all()


def test_a_frame_shows_bodies_goals_and_words():
    env = registry.make_env("mpe/simple_reference", {})
    state = env.start(jax.random.key(0))._replace(drawn=jnp.array([2, 0]))
    state, _ = env.step(jax.random.key(0), state, jnp.array([5 * 3 + 1, 0]))
    frame = env.frame(state)
    assert frame["said"] == ["agent_0 says D", "agent_1 says A"]
    assert frame["agents"] == 2
    np.testing.assert_array_equal(frame["position"], state.position)
    np.testing.assert_allclose(frame["color"][:2], [[0.75, 0.25, 0.25], [0.25, 0.25, 0.75]])
    assert frame["radius"].shape == (5,)


# The original, multiagent-particle-envs: its rewards as functions of the same states


def as_in_the_original(name, position, drawn):
    """What every agent gets: the sum of all agents' rewards. position is (E, 2), agents first."""
    if name == "simple_speaker_listener":
        return 2 * -((position[1] - position[2 + drawn[0]]) ** 2).sum()
    agents, landmarks = np.split(position, 2)
    total = 0.0
    for agent in agents:
        total -= sum(min(np.linalg.norm(other - mark) for other in agents) for mark in landmarks)
        total -= sum(np.linalg.norm(other - agent) < 0.3 for other in agents)  # itself among them
    return total


@pytest.mark.parametrize(
    ("name", "options", "factor", "each_step"),
    [
        ("simple_spread", {}, 6, -3),
        ("simple_spread", {"agents": 5}, 10, -5),
        ("simple_speaker_listener", {}, 2, 0),
    ],
)
def test_returns_of_the_original_are_converted_exactly(name, options, factor, each_step):
    env, rng = registry.make_env(f"mpe/{name}", options), np.random.default_rng(0)
    bodies = len(env.bodies.agents) + len(env.bodies.landmarks)
    position = rng.uniform(-0.6, 0.6, (bodies, 2, 200)).astype(np.float32)
    drawn = rng.integers(0, 3, (1, 200)).astype(np.int32)
    nothing = jnp.zeros((len(env.bodies.agents), 2, 200))
    ours = env.rewards(Particles(jnp.asarray(position), nothing, nothing, jnp.asarray(drawn)))
    for state in range(200):
        expected = as_in_the_original(name, position[..., state], drawn[:, state])
        np.testing.assert_allclose(factor * ours[:, state].mean() + each_step, expected, rtol=1e-4)

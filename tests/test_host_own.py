"""Environments of users, recognised by what they are; teams in tuples, such as lbforaging and rware."""

import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import own_envs
import pytest
from conftest import small

import phalanx
from phalanx.envs.host import gym, own, pettingzoo, tuples
from phalanx.envs.host.own import Adapter
from phalanx.envs.host.randomness import uses_python_random
from phalanx.envs.host.seeds import seed32
from phalanx.envs.host.snapshots import random_actions, same
from phalanx.errors import PhalanxError

SEED = 2**40 + 7


@pytest.mark.parametrize(
    ("thing", "kind", "options"),
    [
        ("Walk", gym.GymEnv, {"time_limit": 5}),
        ("Pair", tuples.TupleEnv, {"time_limit": 5}),
        ("make_pair", tuples.TupleEnv, {"time_limit": 5}),
        ("ready", tuples.TupleEnv, {"time_limit": 5}),
        ("Duo", pettingzoo.PettingZooEnv, {}),
        ("Solo", pettingzoo.PettingZooEnv, {"time_limit": 5}),
        ("Hosted", own.HostEnv, {}),
    ],
)
def test_an_environment_is_recognised_and_played(thing, kind, options):
    env = Adapter(f"own_envs:{thing}", **options)
    assert isinstance(env.inner, kind)
    other = env.copy()
    assert other.inner is not env.inner
    assert getattr(other.inner, "env", 1) is not getattr(env.inner, "env", 2)
    one, two = env.reset(SEED), other.reset(SEED)
    for _ in range(3):
        assert same(one, two)
        actions = random_actions(env, one, np.random.default_rng(0))
        one, two = env.step(actions), other.step(actions)
    env.close()


def test_an_environment_like_smac_is_recognised(monkeypatch):
    """Its class is another file's; here only that it is asked for."""
    made = []

    class SmacLike:
        def __init__(self, env, name, time_limit):
            made.append((type(env).__name__, name, time_limit))

    module = type(sys)("phalanx.envs.host.smac_like")
    module.SmacLike = SmacLike  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "phalanx.envs.host.smac_like", module)
    Adapter("own_envs:Battle", time_limit=9)
    assert made == [("Battle", "own_envs:Battle", 9)]


def test_pictures_of_ones_own_can_be_shrunk():
    assert Adapter("own_envs:Camera", time_limit=5).spec.obs_shape == (6, 6, 1)
    env = Adapter("own_envs:Camera", time_limit=5, shrink=3)
    assert env.copy().spec.obs_shape == (2, 2, 1)
    assert env.reset(0).observation.obs.tolist() == [[[[40], [40]]] * 2]


def test_options_reach_the_constructor():
    assert Adapter("own_envs:Walk", time_limit=5, extra={"size": 9}).inner.env.size == 9


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("own_envs", {}, "not of the form package.module:Thing"),
        ("own_envs:Wlak", {}, "has no 'Wlak'. Did you mean Walk"),
        ("no_such_module:Walk", {}, "cannot import environment 'no_such_module:Walk'"),
        ("own_envs:Walk", {"extra": {"colour": 1}}, "does not take these options: .*'colour'"),
        (
            "own_envs:ready",
            {"extra": {"size": 1}},
            "is an environment, not a class, and takes no option size",
        ),
        (
            "own_envs:make_pair",
            {"extra": {"broken": True}},
            r"ValueError: two lines \(.*own_envs.py, line \d+\)",
        ),
        ("own_envs:number", {}, "gives a int, which is none of these: a HostEnv of phalanx, a gymnasium.Env"),
        ("own_envs:make_number", {}, "gives a int, which is none of these"),
        ("own_envs:Pair", {}, "no time limit of its own"),
        ("own_envs:Hosted", {"time_limit": 5}, "has a time limit of its own, 4"),
        ("own_envs:Hosted", {"shrink": 2}, "leave out --env.shrink"),
    ],
)
def test_mistakes_are_told_in_a_line(name, options, said):
    with pytest.raises(PhalanxError, match=said) as caught:
        Adapter(name, **options)
    assert "\n" not in str(caught.value)


def test_global_generators_are_each_environments_own():
    """Whatever else draws from them, in this environment or another, between the steps."""
    alone, among = (Adapter("own_envs:Walk", time_limit=5) for _ in range(2))
    act = np.zeros(1, int)
    expected = [alone.reset(SEED), *(alone.step(act) for _ in range(3))]
    np.random.seed(1)
    before = np.random.get_state()[1].copy()
    found = [among.reset(SEED)]
    for _ in range(3):
        alone.reset(4)
        alone.step(act)
        found.append(among.step(act))
    assert same(tuple(found), tuple(expected))
    assert (found[1].observation.obs != found[2].observation.obs).all()  # of both generators
    assert np.array_equal(np.random.get_state()[1], before)  # and nothing of it is seen outside


def test_python_random_is_looked_for_in_the_folder_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "calm_world.py").write_text("x = 1\n")
    (tmp_path / "wild_parts.py").write_text("from random import choice\n")
    __import__("calm_world")
    assert not uses_python_random("calm_world")
    __import__("wild_parts")
    assert uses_python_random("calm_world")


def test_modules_are_found_in_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "world_of_mine.py").write_text("from own_envs import Duo\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert Adapter("world_of_mine:Duo").spec.n_agents == 2


def test_nothing_heavy_is_imported():
    """Workers run without JAX, and no family imports its package before it is asked for an environment."""
    files = (Path(own.__file__).parent).glob("*.py")
    ours = {"gym", "pettingzoo", "lbf", "rware", "own", "tuples", "turns", "actions", "observations"}
    modules = [f"phalanx.envs.host.{file.stem}" for file in files if file.stem in ours]
    assert len(modules) == len(ours)
    heavy = ("jax", "gymnasium", "pettingzoo", "lbforaging", "rware")
    code = f"import sys, {', '.join(modules)}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Teams in tuples


def test_tuples_are_rows():
    env = Adapter("own_envs:Pair", time_limit=9)
    spec, now = env.spec, env.reset(SEED)
    assert (spec.agents, spec.action_counts, spec.common_reward) == (("agent_0", "agent_1"), (2, 3), False)
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed32(SEED))))
    np.testing.assert_array_equal(now.observation.obs[0], [*np.float32(expected.random(2)), 0])
    np.testing.assert_array_equal(now.observation.obs[1], np.float32(expected.random(3)))
    steps = [env.step(np.array([1, 2])) for _ in range(4)]
    assert steps[0].reward.tolist() == [1, 2]
    assert [step.terminated for step in steps] == [False, False, False, True]


@pytest.mark.parametrize(
    ("family", "name"), [("lbf", "Foraging-5x5-2p-1f-v3"), ("rware", "rware-tiny-2ag-v2")]
)
def test_foraging_and_warehouse_are_those_of_the_packages(family, name):
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip({"lbf": "lbforaging"}.get(family, family))
    module = __import__(f"phalanx.envs.host.{family}", fromlist=["Adapter"])
    ours = module.Adapter(name)
    theirs = gymnasium.make(name)
    assert ours.spec.time_limit == {"lbf": 50, "rware": 500}[family]
    rng, ends = np.random.default_rng(0), set()
    for seed in range(20 if family == "lbf" else 1):
        now = ours.reset(seed)
        obs, _ = theirs.reset(seed=seed32(seed))
        over, length = False, 0
        while not over:
            np.testing.assert_array_equal(now.observation.obs, np.array(obs, np.float32))
            actions = random_actions(ours, now, rng)
            obs, rewards, over, _, _ = theirs.step(tuple(int(action) for action in actions))
            now, length = ours.step(actions), length + 1
            np.testing.assert_array_equal(now.reward, np.float32(rewards))
            assert over == (now.terminated or now.truncated)
        ends.add((now.terminated, now.truncated))
        assert now.terminated != now.truncated
        if now.terminated:
            assert now.reward.any()  # the last food was loaded
        else:
            assert length == ours.spec.time_limit
    assert ends == ({(True, False), (False, True)} if family == "lbf" else {(False, True)})
    shorter = module.Adapter(name, time_limit=3)
    shorter.reset(0)
    assert [shorter.step(np.zeros(2, int)).truncated for _ in range(3)] == [False, False, True]
    assert module.Adapter(name, time_limit=700).spec.time_limit == 700
    with pytest.raises(PhalanxError, match="unexpected keyword argument 'colour'"):
        module.Adapter(name, extra={"colour": 1})


@pytest.mark.parametrize(("family", "package"), [("lbf", "lbforaging"), ("rware", "rware")])
def test_a_missing_package_is_named(family, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    module = __import__(f"phalanx.envs.host.{family}", fromlist=["Adapter"])
    with pytest.raises(
        PhalanxError, match=f"needs the package {package}: pip install {package} .*extra {family}"
    ):
        module.Adapter("some-v0")


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (own_envs.Hosted, "own_envs:Hosted"),
        (own_envs.make_pair, "own_envs:make_pair"),
        (lambda: own_envs.Duo(), "object:<lambda>"),
        (own_envs.Duo(), "object:Duo"),
    ],
)
def test_what_a_program_gives_is_named_where_a_worker_can_import_it(thing, told):
    found = own.named_or_own(thing)
    assert found == told if isinstance(found, str) else found.spec.name == told


def test_a_program_trains_in_an_environment_of_its_own(tmp_path):
    """Given as an object: stepped here, evaluated and loaded with the object again."""
    env = gymnasium.make("CartPole-v1")
    run = small(tmp_path / "run", "ippo", env, steps=128, eval_every=64)
    assert run.facts["status"] == "finished"
    with pytest.raises(PhalanxError, match="was passed as a Python object: pass it again"):
        phalanx.load(run.folder)
    policy = phalanx.load(run.folder, env=gymnasium.make("CartPole-v1"))
    assert policy.spec.name.startswith("object:")
    with pytest.raises(PhalanxError, match="workers is for Python environments that are given"):
        small(tmp_path / "other", "ippo", lambda: gymnasium.make("CartPole-v1"), workers=2)
    with pytest.raises(PhalanxError, match="gives a int, which is none of these"):
        small(tmp_path / "other", "ippo", 3)
    assert phalanx.check_env(env) == []

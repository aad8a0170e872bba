"""Observations of a declared shape, and the networks for them."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import build, greedy_episodes

import phalanx
from phalanx import registry
from phalanx.config import options_of
from phalanx.data import replay
from phalanx.envs.check import check
from phalanx.envs.debug import PATTERNS
from phalanx.envs.wrappers import as_given, policy_input, policy_spec
from phalanx.errors import PhalanxError
from phalanx.networks.sharing import Groups, SharedNetwork
from phalanx.networks.torsos import TORSOS, Network, patches
from phalanx.types import Picture

KEY = jax.random.key(0)
ENV = registry.make_env("debug/pictures", {"size": 6})


def network(kind="cnn", picture=(6, 6, 1), inputs=2, **more):
    sizes = {"hidden": 8, "layers": 1, "channels": (4, 8), "activation": "tanh"}
    return Network(kind, inputs, 3, input_norm=False, head_gain=1.0, picture=picture, **{**sizes, **more})


def picture(*leading, shape=(6, 6, 1), inputs=2):
    pixels = jax.random.randint(KEY, (*leading, *shape), 0, 256).astype(jnp.uint8)
    return Picture(pixels, jax.random.normal(KEY, (*leading, inputs)))


# Networks


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_patches_times_weights_are_a_convolution(size):
    x = jax.random.normal(KEY, (2, size, size + 1, 3))
    weights = jax.random.normal(jax.random.key(1), (3, 3, 3, 4))
    ours = patches(x) @ weights.reshape(27, 4)
    theirs = jax.lax.conv_general_dilated(
        x, weights, (2, 2), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("kind", ["cnn", "mlp", "gru"])
@pytest.mark.parametrize("of_agent", [(0, 0, 0), (0, 1, 2), (0, 1, 0)])
def test_agents_see_their_own_pictures_with_their_groups_network(kind, of_agent):
    """Also that a sequence equals its single steps."""
    net = network(kind)
    shared = SharedNetwork(Groups(of_agent, ("a", "b", "c")[: max(of_agent) + 1]), net)
    params, apply = jax.jit(shared.init)(KEY), jax.jit(net.apply)
    x, first = picture(4, 2, 3), jnp.zeros((4, 2), bool)
    out, memories = jax.jit(shared.apply)(params, x, shared.initial_memory(2), first)
    assert out.shape == (4, 2, 3, 3)
    assert memories.shape == (4, 2, 3, net.memory_size)
    for agent, group in enumerate(of_agent):
        own = jax.tree.map(lambda p, g=group: p[g], params)
        memory = jnp.zeros((2, net.memory_size))
        for t in range(4):
            now = jax.tree.map(lambda x, t=t, a=agent: x[t : t + 1, :, a], x)
            alone, memory = apply(own, now, memory, jnp.zeros((1, 2, 1), bool))
            memory = memory[0]
            np.testing.assert_allclose(out[t, :, agent], alone[0], atol=1e-5)
    again = jax.jit(shared.apply_each)(
        params, x, jnp.concatenate([jnp.zeros_like(memories[:1]), memories[:-1]])
    )
    np.testing.assert_allclose(again, out, atol=1e-5)


def test_uint8_is_scaled_inside_and_other_numbers_are_not():
    net = network(picture=(6, 6))
    params, x = jax.jit(net.init)(KEY), picture(1, 2, shape=(6, 6))
    memory, first = jnp.zeros((2, 0)), jnp.zeros((1, 2, 1), bool)
    bytes_, _ = net.apply(params, x, memory, first)
    numbers, _ = net.apply(params, x._replace(pixels=x.pixels / 255), memory, first)
    np.testing.assert_allclose(bytes_, numbers, atol=1e-6)
    ints, _ = net.apply(params, x._replace(pixels=x.pixels.astype(jnp.int32)), memory, first)
    assert not np.allclose(ints, numbers, atol=1e-3)


def test_pixels_and_what_stands_beside_them_both_count():
    net = network()
    params, x = jax.jit(net.init)(KEY), picture(1, 1)

    def out(x):
        return net.apply(params, x, jnp.zeros((1, 0)), jnp.zeros((1, 1, 1), bool))[0]

    assert not np.allclose(out(x), out(x._replace(pixels=x.pixels + 40)))
    assert not np.allclose(out(x), out(x._replace(features=-x.features)))


def test_the_weights_of_convolutions_are_orthogonal():
    params = jax.jit(network(activation="relu").init)(KEY)
    kernel = params["convolutions"][1]["kernel"]  # (9 * 4, 8)
    np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(8), atol=1e-4)


# What they are told of an environment


def test_the_toy_is_sound_and_its_pictures_show_the_pattern():
    assert check(ENV) == []
    state, now = ENV.reset(KEY)
    seen = now.observation.obs
    assert (seen.shape, seen.dtype) == ((2, 6, 6, 1), jnp.uint8)
    for which, image in zip(np.asarray(state), np.asarray(seen)[..., 0], strict=True):
        drawn = image.astype(int) - 128
        assert set(drawn.ravel()) in ({0, 127}, {0, -127})
        windows = np.lib.stride_tricks.sliding_window_view(drawn != 0, (3, 3))
        assert (windows == np.array(PATTERNS[which]).reshape(3, 3)).all((-1, -2)).any()
        assert (drawn != 0).sum() == 3
    assert (ENV.step(KEY, state, state)[1].reward == 1).all()
    assert (ENV.step(KEY, state, state + 1)[1].reward == 0).all()


def test_a_picture_is_seen_with_id_and_last_action_beside_it_and_of_the_dead_with_zeros():
    now = ENV.reset(KEY)[1].observation
    alive = jnp.array([True, False])
    seen = policy_input(now.obs, alive, jnp.array([2, 1]), ENV.spec, True, True)
    assert isinstance(seen, Picture)
    assert seen.pixels.dtype == jnp.uint8
    np.testing.assert_array_equal(seen.pixels[0], now.obs[0])
    assert not seen.pixels[1].any()
    np.testing.assert_array_equal(seen.features, [[1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0]])
    assert policy_spec(ENV.spec, True, True).obs_size == 6
    np.testing.assert_array_equal(as_given(now._replace(obs=seen), ENV.spec).obs, seen.pixels)
    nothing = policy_input(now.obs, alive, jnp.array([2, 1]), ENV.spec, False, False)
    assert nothing.features.shape == (2, 0)


class Wrong(type(ENV)):
    """`spec` with changes."""

    def __init__(self, **changes):
        super().__init__(size=6)
        object.__setattr__(self, "changes", changes)

    @property
    def spec(self):
        return dataclasses.replace(ENV.spec, **self.changes)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"obs_dtype": "float32"}, r"reset gives obs as uint8\[2, 6, 6, 1\], but the spec asks for float32"),
        ({"obs_shape": (6, 6)}, r"the spec asks for uint8\[2, 6, 6\]"),
        ({"obs_shape": ()}, "obs_shape is .*: it must be sizes"),
        ({"obs_shape": None}, "obs_features has 0 entries for 2 agents"),
        ({"obs_dtype": "text"}, "obs_dtype is 'text': it must be one of float32, uint8"),
        ({"obs_features": (("a",), ("b",))}, "obs_features and obs_shape are both set"),
    ],
)
def test_what_does_not_fit_the_declared_shape_is_explained(changes, line):
    assert re.search(line, "\n".join(check(Wrong(**changes))))


def test_a_replay_keeps_the_dtype():
    held = replay.empty(policy_spec(ENV.spec, True, True), envs=2, places=3).observation.obs
    assert (held.pixels.dtype, held.pixels.shape) == (jnp.uint8, (2, 3, 9, 2, 6, 6, 1))
    assert held.features.shape == (2, 3, 9, 2, 6)


def test_the_other_interfaces_give_plain_pictures():
    pytest.importorskip("pettingzoo")
    env = phalanx.to_pettingzoo(ENV)
    observations, _ = env.reset(seed=1)
    space = env.observation_space("agent_0")
    assert (space.shape, space.dtype, space.high.max()) == ((6, 6, 1), np.uint8, 255)
    assert space.contains(observations["agent_0"])
    batch = phalanx.make_vec(ENV, 3).reset()
    assert (batch.obs.shape, batch.obs.dtype) == ((3, 2, 6, 6, 1), np.uint8)


# Learning


def learnt(network, hidden):
    """The mean greedy return of an episode, and the number of parameters of the actor."""
    options = {"gamma": 0.0, "lr": 3e-3, "critic_lr": 3e-3, "activation": "relu", "layers": 1}
    sizes = {"envs": 32, "batch_steps": 256, "epochs": 4, "hidden": hidden}
    loop = build("ippo", "debug/pictures", env_options={"size": 8}, network=network, **sizes, **options)

    @jax.jit
    def score():
        carry = loop.advance(loop.init(jnp.int32(0)), jnp.int32(80), jnp.float32(1e6))
        return greedy_episodes(loop, loop.algorithm.policy(carry.learner), 64).returns.mean()

    return float(score()), loop.algorithm.actor.network.parameters_each


def test_a_cnn_learns_patterns_wherever_they_are_and_a_larger_mlp_does_not():
    """Of 8 that can be earned; by chance it is 2."""
    cnn, size_of_cnn = learnt("cnn", 32)
    mlp, size_of_mlp = learnt("mlp", 160)
    assert size_of_mlp > size_of_cnn
    assert cnn > 7.5
    assert mlp < 5.5


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("mappo", {"network": "cnn", "critic_view": "state+obs"}),
        ("mappo", {"network": "cnn", "share": "agent", "reward": "mean"}),
        ("ippo", {"network": "gru"}),
        ("coma", {"network": "cnn"}),
        ("iql", {"network": "cnn", "episodes": 4}),
        ("mappo_distil", {"network": "cnn"}),
    ],
)
def test_every_learner_takes_pictures(algorithm, options):
    loop = build(algorithm, ENV, **options)
    jax.eval_shape(lambda: loop.advance(loop.init(jnp.int32(0)), jnp.int32(1), jnp.float32(1e3)))


def test_the_help_names_every_network():
    told = options_of(registry.algorithm_config("qmix"))["network"].help
    assert all(name in told for name in TORSOS)


@pytest.mark.parametrize(
    ("env", "options", "line"),
    [
        ("debug/identity", {"network": "cnn"}, "network=cnn needs pictures.* not vectors: use mlp or gru"),
        ("debug/pictures", {"network": "cnn", "feature_norm": True}, "feature_norm is for vectors"),
        ("debug/pictures", {"network": "cnn", "channels": "16,x"}, "channels must be whole numbers"),
        ("debug/identity", {"network": "gro"}, "unknown network 'gro'. Did you mean gru"),
    ],
)
def test_what_does_not_fit_is_refused(env, options, line):
    with pytest.raises(PhalanxError, match=line):
        build("ippo", env, **options)


# A torso of one's own

SMALL = {"envs": 4, "batch_steps": 32, "hidden": 8, "epochs": 1, "minibatches": 2, "quiet": True}


def test_a_torso_of_ones_own_is_trained_exported_and_loaded(tmp_path):
    run = phalanx.train(
        "mappo",
        "debug/pictures",
        steps=96,
        network="custom_torso:Pooled",
        out=tmp_path / "run",
        env_options={"size": 6},
        eval_episodes=2,
        final_episodes=2,
        **SMALL,
    )
    phalanx.export(run.folder, tmp_path / "team.zip")
    obs = np.asarray(ENV.reset(KEY)[1].observation.obs)
    here, there = phalanx.load(run.folder), phalanx.load_team(tmp_path / "team.zip")
    np.testing.assert_array_equal(here.act(obs)[0], there.act(obs)[0])
    assert there.act(obs[None])[0].shape == (1, 2)
    with pytest.raises(PhalanxError, match=r"obs must be \(2, 6, 6, 1\), or \(B, 2, 6, 6, 1\)"):
        there.act(obs[..., 0])
    with pytest.raises(PhalanxError, match="obs must be uint8, as the environment gives it, not float"):
        there.act(obs / 255)
    path = tmp_path / "data.npz"
    phalanx.record(run.folder, path, episodes=2)
    assert phalanx.load_trajectories(path).obs.dtype == np.uint8


def test_a_torso_of_ones_own_may_have_a_memory():
    net = Network("custom_torso:Counter", 3, 2, 8, 1, "tanh", False, 1.0)
    first = jnp.zeros((4, 2, 1), bool).at[2].set(True)
    _, memories = net.apply(net.init(KEY), jnp.ones((4, 2, 3)), jnp.zeros((2, 1)), first)
    np.testing.assert_array_equal(memories[:, 0, 0], [1, 2, 1, 2])


def test_a_torso_of_ones_own_draws_its_weights_from_the_key():
    net = Network("custom_torso:Residual", 3, 2, 8, 1, "tanh", False, 1.0)
    one, two = map(jax.jit(net.init), (KEY, jax.random.key(1)))
    assert set(one) == {"first", "second", "head"}
    assert not np.allclose(one["first"]["kernel"], two["first"]["kernel"])
    assert not np.allclose(one["head"]["kernel"], two["head"]["kernel"])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("no_such_module:Torso", "cannot import network 'no_such_module:Torso'"),
        ("custom_torso:Residal", "has no 'Residal'. Did you mean Residual"),
        ("custom_torso:NotATorso", "is not a subclass of phalanx.networks.torsos.Torso"),
        ("custom_torso:NoRngs", r"NoRngs\(shape, rngs\) cannot be built for inputs=3.*TypeError"),
        ("custom_torso:TooNarrow", r"must return features .* \(2, 3, 8\) and \(2, 3, 0\).* not \(2, 3, 3\)"),
        ("custom_torso:Headed", "has an attribute 'head', a reserved name"),
        ("custom_torso:Noisy", r"may hold only parameters \(nnx.Param\), and dropout is none"),
        ("custom_torso:Pooled", "cannot be built for inputs=3, picture=None"),
    ],
)
def test_a_torso_that_breaks_the_contract_is_refused_in_one_line(name, line):
    with pytest.raises(PhalanxError, match=line) as raised:
        Network(name, 3, 2, 8, 1, "tanh", False, 1.0)
    assert "\n" not in str(raised.value)

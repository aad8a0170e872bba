"""Networks and sharing (pitfalls C18, C19, C28)."""

import dataclasses
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import CAN_LOWER_KERNELS
from flax import nnx
from jax import export

from phalanx.errors import PhalanxError
from phalanx.networks import gru, gru_kernel, sharing
from phalanx.networks.initialise import orthogonal
from phalanx.networks.torsos import GRU, TORSOS, Network, Recurrent
from phalanx.ops import kernels
from phalanx.registry import make_env
from phalanx.training import kept

KEY = jax.random.key(0)


def network(kind="gru", inputs=3, outputs=2):
    return Network(
        kind, inputs, outputs, hidden=8, layers=2, activation="tanh", input_norm=True, head_gain=1.0
    )


@pytest.mark.parametrize("shape", [(64, 64), (5, 64), (64, 3)])
def test_initial_weights_are_orthogonal(shape):
    weights = orthogonal(jax.random.normal(KEY, shape))
    tall = weights if shape[0] >= shape[1] else weights.T
    np.testing.assert_allclose(tall.T @ tall, np.eye(min(shape)), atol=1e-4)


def test_every_weight_is_drawn_with_its_gain():
    params = jax.jit(network().init)(KEY)
    for part, gain in ((params["layers"][1], 5 / 3), (params["gru"]["input"], 1.0), (params["head"], 1.0)):
        kernel = part["kernel"]
        narrow = kernel.T @ kernel if kernel.shape[0] >= kernel.shape[1] else kernel @ kernel.T
        np.testing.assert_allclose(narrow, gain**2 * np.eye(len(narrow)), atol=1e-4)
        assert (part["bias"] == 0).all()
    np.testing.assert_allclose(
        params["gru"]["recurrent"] @ params["gru"]["recurrent"].T, np.eye(8), atol=1e-4
    )
    assert not np.allclose(params["gru"]["recurrent"], params["gru"]["input"]["kernel"])


def test_bfloat16_is_for_products_and_float32_for_all_that_lasts():
    """Parameters, gradients, memories and outputs have 32 bits, and of all products only the head's."""
    full, half = (dataclasses.replace(network(), precision=each) for each in ("float32", "bfloat16"))
    params, x = full.init(KEY), jax.random.normal(KEY, (5, 4, 3))
    memory, first = jnp.ones((4, 8)), jnp.zeros((5, 4, 1), bool)

    def values(params, net):
        return net.apply(params, x, memory, first)

    exact, rounded = values(params, full), values(params, half)
    for one, other in zip(exact, rounded, strict=True):
        assert other.dtype == jnp.float32
        assert 1e-5 < np.abs(one - other).max() < 0.02, "rounded to 8 bits, not to more or fewer"
    gradient = jax.grad(lambda params: values(params, half)[0].sum())(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    lowered = jax.jit(values, static_argnums=1).lower(params, half).as_text()
    results = re.findall(r"dot_general.*-> tensor<[\dx]*x(\w+)>", lowered)
    assert results.count("f32") == 1
    assert results.count("bf16") == len(results) - 1 >= 4  # two layers, the gru's input and its memory


def test_gru_equals_flax_with_the_same_weights():
    gru = GRU(8, nnx.Rngs(0))
    for weights in (gru.input.kernel, gru.recurrent):
        weights[...] = jax.random.normal(jax.random.key(weights.size), weights.shape)
    gru.input.bias[...] = jax.random.normal(KEY, (24,))
    twin = nnx.GRUCell(8, 8, rngs=nnx.Rngs(1))  # it has no bias on the recurrent candidate; ours begins at 0
    twin.dense_i.kernel[...] = gru.input.kernel[...]
    twin.dense_i.bias[...] = gru.input.bias[...]
    twin.dense_h.kernel[...] = gru.recurrent[...]
    x = jax.random.normal(KEY, (6, 4, 8))
    h = jax.random.normal(jax.random.key(2), (4, 8))
    ours = gru(x, h, jnp.zeros((6, 4, 1), bool))
    for t in range(6):
        h, _ = twin(h, x[t])
        np.testing.assert_allclose(ours[t], h, atol=1e-5)


def test_gru_forgets_exactly_where_an_episode_begins():
    """C18: a sequence with a beginning in it equals its two parts, the second from an empty memory."""
    net = network()
    params, apply = jax.jit(net.init)(KEY), jax.jit(net.apply)
    x = jax.random.normal(KEY, (7, 5, 3))
    start = jax.random.normal(KEY, (5, 8))
    first = jnp.zeros((7, 5, 1), bool).at[3].set(True)
    never = jnp.zeros((7, 5, 1), bool)
    whole, memories = apply(params, x, start, first)
    before, _ = apply(params, x[:3], start, never[:3])
    after, last = apply(params, x[3:], jnp.zeros((5, 8)), never[3:])
    np.testing.assert_allclose(whole, jnp.concatenate([before, after]), atol=1e-6)
    np.testing.assert_allclose(memories[-1], last[-1], atol=1e-6)


def on(device, monkeypatch):
    """Let a gru take its form for: "cpu", "gpu", or "kernel" where a GPU can run its loops as one."""
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu" if device == "cpu" else "gpu")
    if device == "kernel":
        monkeypatch.setattr(gru_kernel, "fits", lambda *_: True)
        for name in ("loop", "through_time"):
            interpreted = partial(getattr(gru_kernel, name), interpret=True)
            monkeypatch.setattr(gru_kernel, name, interpreted)


@pytest.mark.parametrize("device", ["cpu", "gpu", "kernel"])
@pytest.mark.parametrize("seeds", [1, 2])
def test_every_form_of_a_gru_is_the_same_function(seeds, device, monkeypatch):
    """One product a step or three, a gradient by differentiation or written out, a loop in one kernel."""
    keys = jax.random.split(KEY, 5)
    shapes = ((7, 20, 24), (20, 8), (8, 24), (8,))
    args = [jax.random.normal(key, (seeds, *shape)) for key, shape in zip(keys, shapes, strict=False)]
    first = jax.random.bernoulli(keys[4], 0.3, (7, 20, 1))

    def run(fn):
        def one(from_x, memory, recurrent, bias):
            return fn(from_x, memory, first, recurrent, bias)

        def loss(*args):
            return jnp.square(one(*args)).sum()

        def both(*args):
            return [one(*args), *jax.grad(loss, argnums=(0, 1, 2, 3))(*args)]

        return jax.jit(jax.vmap(both))(*args)

    plain = [run(partial(gru.loop, products)) for products in (1, 3)]
    on(device, monkeypatch)
    ours = run(gru.memories)
    for each in plain:
        for got, wanted in zip(ours, each, strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "gpu", "kernel"])
@pytest.mark.parametrize("labels", ["aaa", "aba", "abc"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_two_networks_in_one_loop_are_as_each_alone(precision, labels, device, monkeypatch):
    """Outputs of both, and the gradient of the first; the second has none."""
    shared = sharing.SharedNetwork(
        sharing.partition(labels), dataclasses.replace(network(), precision=precision)
    )
    learnt, frozen = (jax.jit(shared.init)(jax.random.key(i)) for i in (0, 1))
    x, memory = jax.random.normal(KEY, (5, 2, 3, 3)), jax.random.normal(KEY, (2, 3, 8))
    first = jax.random.bernoulli(KEY, 0.3, (5, 2))

    def alone(learnt, frozen):
        one, other = (shared.apply(params, x, memory, first)[0] for params in (learnt, frozen))
        return jnp.square(one * jax.lax.stop_gradient(other)).sum(), (one, other)

    def together(learnt, frozen):
        one, other = shared.apply_both(learnt, frozen, x, memory, first)
        return jnp.square(one * other).sum(), (one, other)

    (wanted, _), outputs = jax.jit(jax.grad(alone, (0, 1), has_aux=True))(learnt, frozen)
    on(device, monkeypatch)
    (got, none), ours = jax.jit(jax.grad(together, (0, 1), has_aux=True))(learnt, frozen)
    tolerance = 1e-5 if precision == "float32" else 0.05

    def near(got, wanted):
        assert jnp.linalg.norm(got - wanted) <= tolerance * jnp.linalg.norm(wanted)

    jax.tree.map(near, (got, ours), (wanted, outputs))
    assert not any(each.any() for each in jax.tree.leaves(none))


class Doubled(Recurrent):
    """A torso that does something else with its memories."""

    def __call__(self, x, memory, first):
        features, memories = super().__call__(x, memory, first)
        return 2 * features, memories


class Negated(GRU):
    """A gru that does something else with its memories."""

    def __call__(self, x, memory, first):
        return -super().__call__(x, memory, first)


class WithNegated(Recurrent):
    def __init__(self, shape, rngs):
        super().__init__(shape, rngs)
        self.gru = Negated(shape.hidden, rngs)


@pytest.mark.parametrize("torso", [Doubled, WithNegated])
def test_two_networks_with_a_torso_made_from_the_gru_are_as_each_alone(torso, monkeypatch):
    monkeypatch.setitem(TORSOS, "own", torso)
    net = network("own")
    params = tuple(jax.jit(net.init)(jax.random.key(i)) for i in (0, 1))
    inputs = jax.random.normal(KEY, (4, 5, 3)), jnp.zeros((5, 8)), jnp.zeros((4, 5, 1), bool)
    together = jax.jit(net.apply_both)(params, *inputs)
    for got, each in zip(together, params, strict=True):
        np.testing.assert_allclose(got, jax.jit(net.apply)(each, *inputs)[0], atol=1e-6)


@pytest.mark.parametrize("device", ["gpu", "kernel"])
def test_a_gru_can_be_differentiated_twice(device, monkeypatch):
    """As gradients of gradients need it."""
    keys = jax.random.split(KEY, 4)
    shapes = ((3, 4, 24), (4, 8), (8, 24), (8,))
    from_x, memory, recurrent, bias = (
        jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)
    )
    first = jax.random.bernoulli(KEY, 0.3, (3, 4, 1))

    def twice(fn):
        def once(recurrent):
            return jax.grad(lambda w: jnp.square(fn(from_x, memory, first, w, bias)).sum())(recurrent)

        return jax.jit(jax.grad(lambda w: jnp.square(once(w)).sum()))(recurrent)

    wanted = twice(partial(gru.loop, 1))
    on(device, monkeypatch)
    np.testing.assert_allclose(twice(gru.memories), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("device", ["gpu", "kernel"])
def test_a_gru_in_16_bits_has_the_gradient_of_one_in_32(device, monkeypatch):
    """Up to the precision of 16 bits, in the forms for a GPU."""
    keys = jax.random.split(KEY, 5)
    shapes = ((7, 4, 24), (4, 8), (8, 24), (8,))
    args = [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=False)]
    first = jax.random.bernoulli(keys[4], 0.3, (7, 4, 1))
    on(device, monkeypatch)

    def gradient(dtype):
        def loss(from_x, memory, recurrent, bias):
            low = (each.astype(dtype) for each in (recurrent, bias))
            return jnp.square(gru.memories(from_x.astype(dtype), memory, first, *low)).sum()

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(*args)

    for low, full in zip(gradient(jnp.bfloat16), gradient(jnp.float32), strict=True):
        assert low.dtype == full.dtype
        assert jnp.linalg.norm(low - full) < 0.05 * jnp.linalg.norm(full)


@pytest.mark.skipif(not CAN_LOWER_KERNELS, reason="jax cannot lower kernels here")
def test_kernels_of_a_gru_can_be_lowered_for_a_gpu_and_written(monkeypatch):
    """With seeds as an axis too, in 16 and 32 bits; a block is large where the weights fill a core."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(gru_kernel, "fits", lambda *_: True)

    def launched(seeds, rows, size, dtype):
        def both(from_x, memory, recurrent, bias):
            first = jnp.zeros((3, rows, 1), bool)
            return jax.grad(lambda m: gru.memories(from_x, m, first, recurrent, bias).sum())(memory)

        shapes = ((3, rows, 3 * size), dtype), ((rows, size), jnp.float32), ((size, 3 * size), dtype)
        args = [jax.ShapeDtypeStruct((seeds, *shape), of) for shape, of in (*shapes, ((size,), dtype))]
        program = jax.jit(jax.vmap(both))
        kept_text = export.export(program, platforms=["cuda"], disabled_checks=kept.KERNELS)(*args)
        assert export.deserialize(kept_text.serialize()).in_avals == kept_text.in_avals
        return re.findall(r"grid_x = (\d+).*?grid_y = (\d+).*?num_warps = (\d+)", kept_text.mlir_module())

    assert launched(2, 40, 16, jnp.float32) == [("3", "2", "4")] * 2
    assert launched(8, 1536, 128, jnp.bfloat16) == [("96", "8", "4")] * 2
    assert launched(8, 1536, 128, jnp.float32) == [("48", "8", "8")] * 2
    assert launched(1, 1536, 128, jnp.float32) == [("96", "1", "4")] * 2


def test_a_gru_is_a_kernel_only_where_that_is_faster(monkeypatch):
    def fits(steps=8, rows=96, size=64):
        return gru_kernel.fits(jnp.zeros((steps, rows, 1), bool), jnp.zeros((size, 3 * size)))

    assert not fits(), "on a CPU"
    monkeypatch.setattr(kernels, "supported", lambda: True)
    for capability, sizes in ((8.6, {16, 32, 64}), (9.0, {16, 32, 64, 128}), (12.0, {16, 32, 64})):
        monkeypatch.setattr(kernels, "capability", lambda is_now=capability: is_now)
        assert {size for size in (8, 16, 32, 48, 64, 96, 128, 256, 512) if fits(size=size)} == sizes
    assert fits()
    assert not fits(steps=1)
    assert fits(rows=16384)
    assert not fits(rows=16385)
    with jax.default_matmul_precision("bfloat16"):
        assert fits()
    with jax.default_matmul_precision("highest"):
        assert not fits()


def test_kernels_can_be_switched_off(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(kernels, "capability", lambda: 9.0)
    monkeypatch.setattr(jax, "__version_info__", kernels.LOWEST)
    assert kernels.supported()
    monkeypatch.setenv("PHALANX_KERNELS", "off")
    assert not kernels.supported()


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_a_sequence_equals_its_single_steps(kind):
    """What is computed when acting is what is computed when learning."""
    net = network(kind)
    params, apply = jax.jit(net.init)(KEY), jax.jit(net.apply)
    x = jax.random.normal(KEY, (6, 4, 3))
    first = jax.random.bernoulli(KEY, 0.3, (6, 4, 1))
    memory = jnp.zeros((4, net.memory_size))
    whole, _ = apply(params, x, memory, first)
    for t in range(6):
        out, memories = apply(params, x[t : t + 1], memory, first[t : t + 1])
        memory = memories[0]
        np.testing.assert_allclose(out[0], whole[t], atol=1e-5)


@pytest.mark.parametrize("of_agent", [(0, 0, 0), (0, 1, 2), (0, 1, 0), (0, 1, 1)])
@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_each_agent_is_computed_with_its_groups_parameters(of_agent, kind):
    net = network(kind)
    groups = sharing.Groups(of_agent, tuple(f"g{i}" for i in range(max(of_agent) + 1)))
    params = jax.jit(partial(sharing.init, groups, net.init))(KEY)
    x = jax.random.normal(KEY, (5, 4, 3, 3))
    memory = jax.random.normal(KEY, (4, 3, net.memory_size))
    first = jnp.zeros((5, 4, 3, 1), bool)
    out, memories = jax.jit(partial(sharing.apply, groups, net.apply))(params, x, memory, first)
    apply = jax.jit(net.apply)
    for agent, group in enumerate(of_agent):
        own = jax.tree.map(lambda p, g=group: p[g], params)
        alone, alone_memories = apply(own, x[:, :, agent], memory[:, agent], first[:, :, agent])
        np.testing.assert_allclose(out[:, :, agent], alone, atol=1e-5)
        np.testing.assert_allclose(memories[:, :, agent], alone_memories, atol=1e-5)


def test_groups_are_drawn_differently():
    params = sharing.init(sharing.Groups((0, 1), ("a", "b")), jax.jit(network().init), KEY)
    kernel = params["layers"][0]["kernel"]
    assert not np.allclose(kernel[0], kernel[1])


def test_sharing_is_read_from_the_spec():
    spec = make_env("debug/roles", {}).spec
    assert sharing.groups("all", spec).of_agent == (0, 0)
    assert sharing.groups("type", spec).names == ("scout", "worker")
    assert sharing.groups("agent", make_env("switch/4", {}).spec).of_agent == (0, 1, 2, 3)
    assert sharing.groups("type", make_env("switch/4", {}).spec).of_agent == (0, 0, 0, 0)
    assert sharing.groups("team", make_env("switch/4", {}).spec).of_agent == (0, 0, 0, 0)
    assert sharing.groups("team", make_env("mpe/simple_tag", {}).spec).names == ("adversary", "good")
    explicit = sharing.groups("1,3;0,2", make_env("switch/4", {}).spec)
    assert explicit.of_agent == (0, 1, 0, 1)
    assert explicit.names == ("agent_0+agent_2", "agent_1+agent_3")


@pytest.mark.parametrize("wrong", ["0,1", "0;0;1;2;3", "some", "0,1;2,3,4", ""])
def test_wrong_groups_are_refused(wrong):
    with pytest.raises(PhalanxError, match="share must be all, team, type, agent"):
        sharing.groups(wrong, make_env("switch/4", {}).spec)

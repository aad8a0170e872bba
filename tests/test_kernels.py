"""Functions on single rows, and as one kernel, compute what they compute on arrays."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import CAN_LOWER_KERNELS

from phalanx import make_env
from phalanx.config import Layer, merge
from phalanx.envs.batching import fold_in_turn
from phalanx.errors import PhalanxError
from phalanx.ops import kernels, rows
from phalanx.registry import algorithm_config, env_options
from phalanx.training.devices import ONE
from phalanx.training.setup import set_up, statement

B = 2 * kernels.WIDTH


def on_rows(fn):
    """`fn` by its rows, without a kernel."""

    def call(*args):
        given = jax.tree.leaves(args)
        closed, shapes = rows.trace(fn, args)
        into = [rows.Rows(rows.cells(x.shape[:-1], list(x.reshape(-1, B))), x.dtype) for x in given]
        made = [
            jnp.stack([rows.row(each, r.dtype, B) for each in r.cells.reshape(-1)]).reshape(*r.cells.shape, B)
            for r in rows.evaluate(closed, into, B)
        ]
        return jax.tree.unflatten(jax.tree.structure(shapes), made)

    return call


def in_turn(x):
    return fold_in_turn(lambda column: (column[None] * x, x - column[None]), ("sum", "max"), x)


NUMBERS = np.arange(4, dtype=np.float32)[:, None]
TABLE = np.array([3.0, 1.0, 4.0, 1.0, 5.0], np.float32)
FUNCTIONS = {
    "arithmetic": lambda x, n: (x * 2.0 + x**2 - jnp.sqrt(jnp.abs(x)), jnp.maximum(x, 0) / (1 + x * x)),
    "constants": lambda x, n: (x + NUMBERS, jnp.where(NUMBERS > 1, x, -x)),
    "choices": lambda x, n: (jnp.where(x > 0, x, n.astype(jnp.float32)), (x > 0) & (n != 1), n % 3),
    "sums": lambda x, n: (x.sum(0), x.max(0), (x > 0).any(0), n.min(0), (x[:, None] * x[None]).sum((0, 1))),
    "places": lambda x, n: (x[1:3], x[np.array([2, 0])], jnp.concatenate([x, -x])),
    "shapes": lambda x, n: (x.reshape(2, 2, -1), jnp.pad(x, ((1, 2), (0, 0))), x.T.T),
    "stacks": lambda x, n: (jnp.stack([*x]), jnp.stack([x[0], x[1]], axis=0)),
    "tables": lambda x, n: (jnp.asarray(TABLE)[jnp.clip(n, 0, 4)], jnp.asarray(TABLE).at[n].get(mode="clip")),
    "wide tables": lambda x, n: jnp.asarray(TABLE[:4]).reshape(2, 2).at[n, 1 - n].get(mode="clip"),
    "loops": lambda x, n: jax.lax.scan(lambda y, _: (y * 0.9 + x, None), x, None, 5)[0],
    "numbered loops": lambda x, n: jax.lax.fori_loop(0, 5, lambda i, y: y * 0.9 + x * i, x),
    "turns": lambda x, n: in_turn(x),
    "unstacked": lambda x, n: jax.lax.unstack(x) if hasattr(jax.lax, "unstack") else [*x],
    "functions": lambda x, n: (
        jnp.exp(x),
        jnp.log(x * x + 1),
        jnp.cos(x),
        jnp.sin(x),
        jnp.tanh(x),
        jnp.sign(x),
    ),
    "powers": lambda x, n: (
        jnp.abs(x) ** 1.5,
        jax.lax.rem(n, 3),
        jax.lax.clamp(-1.0, x, 1.0),
        jnp.isfinite(x),
    ),
    "bits": lambda x, n: (
        n << 2,
        n >> 1,
        jax.lax.shift_right_logical(n, 1),
        n ^ 3,
        ~n,
        jax.lax.rsqrt(x * x + 1),
    ),
}


@pytest.fixture(scope="module")
def given():
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(4, B)), jnp.float32), jnp.asarray(
        rng.integers(-1, 5, (4, B)), jnp.int32
    )


def agree(one, other, atol=1e-6):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), atol=atol, rtol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_and_kernels_compute_the_same(name, given):
    fn = FUNCTIONS[name]
    want = fn(*given)
    agree(jax.jit(on_rows(fn))(*given), want)
    agree(kernels.in_one_kernel(fn, interpret=True)(*given), want)
    assert_a_gpu_can(kernels.in_one_kernel(fn), *given)


def assert_a_gpu_can(fn, *args):
    """Lower the program for a GPU, which a CPU can do."""
    if CAN_LOWER_KERNELS:
        assert "triton" in jax.jit(fn).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


def test_a_batch_of_any_size_is_filled_up(given):
    """Of 40 entries, the last 24 threads compute nothing that is kept."""
    fn, some = FUNCTIONS["arithmetic"], [x[..., :40] for x in given]
    agree(kernels.in_one_kernel(fn, interpret=True)(*some), fn(*some))


REFUSED = {
    "a reduction over the batch": lambda x, n: x - x.mean(-1, keepdims=True),
    "places that differ": lambda x, n: jnp.take_along_axis(x, n, 0),
    "the operation sort": lambda x, n: jnp.sort(x, 0),
    "the operation rev": lambda x, n: x[::-1],
    "the operation reduce_or": lambda x, n: jax.lax.reduce_or(n, (0,)),
    "bfloat16": lambda x, n: x.astype(jnp.bfloat16),
    "last axis is not the batch": lambda x, n: x.T,
    "a result whose": lambda x, n: x.sum(),
    "without the batch as an axis": lambda x, n: x.reshape(-1).reshape(4, -1),
    "cut, joined or mixed": lambda x, n: jnp.concatenate([x[:, 1:], x[:, :1]], 1),
    "mixed": lambda x, n: x.reshape(x.shape[1], 4).T,
    "look-ups in large constants": lambda x, n: jnp.arange(100.0)[n],
    "large constants": lambda x, n: jnp.asarray(TABLE[:4]).reshape(2, 2).at[n].get(mode="clip").sum(-1),
    "places that are not there": lambda x, n: jnp.take(x, np.array([0, 7]), axis=0),
    "not there": lambda x, n: x.at[np.array([0, 7])].get(mode="fill", fill_value=0),
    "look-ups that fill": lambda x, n: jnp.take(jnp.asarray(TABLE), n),
    "constants along the batch": lambda x, n: x[:, np.arange(x.shape[1])],
    "along the batch": lambda x, n: x + np.arange(x.shape[1], dtype=np.float32),
    "of nothing, or of bool": lambda x, n: (x > 0).max(0),
    "more than two": lambda x, n: jax.lax.select_n(jnp.clip(n, 0, 2), x, -x, x),
    "a loop backwards": lambda x, n: jax.lax.scan(lambda y, z: (y + z, None), x[0], x, reverse=True)[0],
    "outputs of each turn": lambda x, n: jax.lax.scan(lambda y, z: (y + z, y), x[0], x),
    "padding between": lambda x, n: jax.lax.pad(x, 0.0, ((0, 0, 1), (0, 0, 0))),
    "cut, joined": lambda x, n: jnp.pad(x, ((0, 0), (0, 1)))[:, 1:],
    "begin with the CPU": lambda x, n: jax.lax.platform_dependent(x, cuda=jnp.sin, default=jnp.cos),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_form_in_rows_is_refused(why, given):
    with pytest.raises(rows.Unsupported, match=why):
        kernels.in_one_kernel(REFUSED[why], interpret=True)(*given)


def test_large_functions_are_refused(given, monkeypatch):
    fn = FUNCTIONS["sums"]
    assert rows.count(rows.trace(fn, given)[0].jaxpr) > 30
    monkeypatch.setattr(kernels, "MOST", 30)
    with pytest.raises(rows.Unsupported, match="at most 30"):
        kernels.in_one_kernel(fn, interpret=True)(*given)


@pytest.fixture(scope="module", params=["battle/2m_vs_1m", "battle/3s_vs_3z"])
def battle(request):
    return make_env(request.param)


def agree_after_a_step(one, other):
    """How blocked a unit is follows from short distances, in which the rounding of positions weighs more."""
    parts = []
    for state, *rest in (one, other):
        parts.append((state.units.blocked, (state._replace(units=state.units._replace(blocked=())), *rest)))
    (blocked, others), (same_blocked, same_others) = parts
    np.testing.assert_allclose(blocked, same_blocked, atol=1e-3)
    agree(others, same_others, atol=1e-4)


def test_a_battle_in_rows_is_the_same_battle(battle):
    """For thirty steps of random play, from the same state in each."""
    play, by_rows = jax.jit(battle._play), jax.jit(on_rows(battle._play))
    state, first = jax.vmap(battle.reset, out_axes=-1)(jax.random.split(jax.random.key(0), B))
    avail, rng = first.observation.avail, np.random.default_rng(0)
    for _ in range(30):
        drawn = jnp.where(avail, rng.random(avail.shape), -1)
        actions = jnp.argmax(drawn, axis=1).astype(jnp.int32)
        noise = jnp.asarray(rng.random((battle._noise, B)), jnp.float32)
        after = play(state, actions, noise)
        agree_after_a_step(by_rows(state, actions, noise), after)
        state, avail = after[0], after[1].avail
    assert (state.units.health <= 0).any(), "they have fought"
    agree_after_a_step(
        kernels.in_one_kernel(battle._play, interpret=True)(state, actions, noise),
        play(state, actions, noise),
    )
    assert_a_gpu_can(kernels.in_one_kernel(battle._play), state, actions, noise)


def test_a_kernel_is_used_on_one_gpu_only(given, monkeypatch):
    """On a CPU and on several devices the function stays as it is."""

    def in_kernel(*args):
        return "pallas_call" in str(jax.make_jaxpr(kernels.on_gpu(FUNCTIONS["arithmetic"]))(*args))

    def gpu(capability):
        return lambda: [SimpleNamespace(compute_capability=capability, device_kind="a GPU")]

    assert not in_kernel(*given)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", gpu("9.0"))
    monkeypatch.setattr(jax, "__version_info__", kernels.LOWEST)
    assert in_kernel(*given)
    assert kernels.supported()
    with jax.default_device("cpu"):
        assert not in_kernel(*given)
        assert not kernels.supported()
    with monkeypatch.context() as older:
        older.setattr(jax, "__version_info__", (0, 7, 1))
        assert not kernels.supported()
        with pytest.raises(PhalanxError, match="needs jax 0"):
            in_kernel(*given)
    with monkeypatch.context() as later:
        later.setattr(kernels, "_has_triton", lambda: False)
        assert not kernels.supported()
        with pytest.raises(PhalanxError, match=r"needs jax.experimental.pallas.triton, and jax .* has none"):
            in_kernel(*given)
    for capability in ("7.5", "gfx90a", None):
        with monkeypatch.context() as older:
            older.setattr(jax, "devices", gpu(capability))
            assert not kernels.supported()
            with pytest.raises(
                PhalanxError, match=r"an NVIDIA GPU of compute capability 8.0 .* this is a GPU"
            ):
                in_kernel(*given)
    if hasattr(jax.sharding, "use_abstract_mesh"):  # not in jax 0.7, which has no kernels either
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("seeds",))):
            assert not in_kernel(*given)
            assert not kernels.supported()


def test_a_step_of_a_battle_can_be_one_kernel(monkeypatch):
    """Under two axes of batches, as seeds and environments are."""
    env, again = (make_env("battle/2m_vs_1m", kernel=True) for _ in range(2))
    keys = jax.random.split(jax.random.key(0), (2, 20))
    actions = jnp.zeros((2, 20, 2), jnp.int32)
    state = jax.vmap(jax.vmap(env.reset))(keys)[0]
    on_a_cpu = jax.vmap(jax.vmap(env.step))(keys, state, actions)
    monkeypatch.setattr(kernels, "on_gpu", partial(kernels.in_one_kernel, interpret=True))
    agree(jax.jit(jax.vmap(jax.vmap(again.step)))(keys, state, actions), on_a_cpu, atol=1e-4)


def test_a_run_says_where_the_option_has_no_effect():
    def said(**options):
        env = make_env("battle/2m_vs_1m", **options)
        layer = Layer("test", {"env": options})
        name = "battle/2m_vs_1m"
        resolved = merge(("ippo", name), algorithm_config("ippo"), env_options(name), [layer])
        lines = [line.split(maxsplit=1) for line in statement(set_up(resolved, env), ONE)]
        return [text for name, text in lines if name == "kernel"]

    assert said(kernel=True) == ["no effect: it is for one GPU"]
    assert not said()


def step_once(name, **options):
    env = make_env(name, kernel=True, **options)
    key = jax.random.key(0)
    state = jax.eval_shape(env.reset, key)[0]
    return jax.eval_shape(env.step, key, state, jnp.zeros(env.spec.n_agents, jnp.int32))


@pytest.mark.parametrize("name", ["3m", "3s_vs_3z", "3s_vs_4z", "3s_vs_5z"])
def test_battles_of_few_units_fit(name):
    """On a CPU too, where the option changes nothing else."""
    step_once(f"battle/{name}")


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("8m", {}, r"has 19,\d\d\d operations \(at most 7,000\)"),
        ("v2_terran_5_vs_5", {}, r"has 13,\d\d\d operations"),
        ("2m_vs_1z", {}, "has look-ups in large constants"),
        ("3m", {"obs_height": True}, "has look-ups in large constants"),
    ],
)
def test_other_battles_are_refused(name, options, why):
    want = f"^a step of battle/{name} cannot be one GPU kernel, as it {why}.*: leave --env.kernel out"
    with pytest.raises(PhalanxError, match=want):
        step_once(f"battle/{name}", **options)

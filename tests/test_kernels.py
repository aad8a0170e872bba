"""Functions on single rows, and as one kernel, compute what they compute on arrays."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phalanx import make_env
from phalanx.envs.batching import fold_in_turn
from phalanx.errors import PhalanxError
from phalanx.ops import kernels, rows

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
    "places": lambda x, n: (x[::-1], x[1:3], x[np.array([2, 0])], jnp.concatenate([x, -x])),
    "shapes": lambda x, n: (x.reshape(2, 2, -1), jnp.pad(x, ((1, 2), (0, 0))), x.T.T),
    "stacks": lambda x, n: (jnp.stack([*x]), jnp.stack([x[0], x[1]], axis=0)),
    "tables": lambda x, n: jnp.asarray(TABLE)[jnp.clip(n, 0, 4)],
    "loops": lambda x, n: jax.lax.scan(lambda y, _: (y * 0.9 + x, None), x, None, 5)[0],
    "numbered loops": lambda x, n: jax.lax.fori_loop(0, 5, lambda i, y: y * 0.9 + x * i, x),
    "turns": lambda x, n: in_turn(x),
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


def test_a_batch_of_any_size_is_filled_up(given):
    """Of 40 entries, the last 24 threads compute nothing that is kept."""
    fn, some = FUNCTIONS["arithmetic"], [x[..., :40] for x in given]
    agree(kernels.in_one_kernel(fn, interpret=True)(*some), fn(*some))


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x, n: x - x.mean(-1, keepdims=True), "a reduction over the batch"),
        (lambda x, n: jnp.take_along_axis(x, n, 0), "places that differ"),
        (lambda x, n: jnp.sort(x, 0), "sort"),
        (lambda x, n: x.astype(jnp.bfloat16), "bfloat16"),
    ],
)
def test_what_has_no_form_in_rows_is_refused(fn, why, given):
    with pytest.raises(rows.Unsupported, match=why):
        kernels.in_one_kernel(fn, interpret=True)(*given)


def test_large_functions_are_refused(given, monkeypatch):
    fn = FUNCTIONS["sums"]
    assert rows.count(rows.trace(fn, given)[0].jaxpr) > 30
    monkeypatch.setattr(kernels, "MOST", 30)
    with pytest.raises(rows.Unsupported, match="at most 30"):
        kernels.in_one_kernel(fn, interpret=True)(*given)


@pytest.fixture(scope="module", params=["battle/2m_vs_1m", "battle/3s_vs_3z"])
def battle(request):
    return make_env(request.param)


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
        agree(by_rows(state, actions, noise), after, atol=1e-4)
        state, avail = after[0], after[1].avail
    assert (state.units.health <= 0).any(), "they have fought"


def test_a_kernel_is_used_on_one_gpu_only(given, monkeypatch):
    """On a CPU and on several devices the function stays as it is."""

    def in_kernel(*args):
        return "pallas_call" in str(jax.make_jaxpr(kernels.on_gpu(FUNCTIONS["arithmetic"]))(*args))

    assert not in_kernel(*given)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert in_kernel(*given)
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("seeds",))):
        assert not in_kernel(*given)


def test_a_battle_has_the_option(monkeypatch):
    """Its step is in one kernel; a large battle is refused, on a CPU too."""
    env = make_env("battle/2m_vs_1m", kernel=True)
    keys = jax.random.split(jax.random.key(0), kernels.WIDTH)
    actions = jnp.zeros((kernels.WIDTH, 2), jnp.int32)
    state = jax.vmap(env.reset)(keys)[0]
    on_a_cpu = jax.vmap(env.step)(keys, state, actions)
    monkeypatch.setattr(kernels, "on_gpu", partial(kernels.in_one_kernel, interpret=True))
    again = make_env("battle/2m_vs_1m", kernel=True)
    agree(jax.jit(jax.vmap(again.step))(keys, state, actions), on_a_cpu, atol=1e-4)
    large = make_env("battle/8m", kernel=True)
    state, refused = (
        jax.eval_shape(large.reset, keys[0])[0],
        r"^kernel is for small battles, and battle/8m has ",
    )
    with pytest.raises(PhalanxError, match=refused):
        jax.eval_shape(large.step, keys[0], state, jnp.zeros(8, jnp.int32))

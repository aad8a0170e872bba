"""Environments in parts, one for each device of a program that runs on several.

The program is the same as on one device; the compiler divides it by where its arrays lie. What follows only
tells it where. On one device it does nothing. See `phalanx.training.devices` for who sets up the mesh.
"""

# JAX leaves parts of its own signatures untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable

import jax
from jax.sharding import PartitionSpec

from phalanx.types import PyTree

SEEDS, ENVS = "seeds", "envs"
"""the axes of the mesh of devices"""


def parts() -> int:
    """The number of parts that environments are in, in the program that is being traced."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape.get(ENVS, 1)


def split(tree: PyTree, axis: int) -> PyTree:
    """Arrays whose `axis` is divided over the parts; as they are where it has no such length."""
    count = parts()
    if count == 1:
        return tree
    spec = PartitionSpec(*[None] * axis, ENVS)

    def divided(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, spec) if x.shape[axis] % count == 0 else x

    return jax.tree.map(divided, tree)


def whole(tree: PyTree) -> PyTree:
    """Arrays of which every part has all."""
    if parts() == 1:
        return tree
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, PartitionSpec()), tree)


def in_each_part(fn: Callable[..., PyTree], size: int) -> Callable[..., PyTree]:
    """Let each part call `fn` with its own rows of arrays with a leading axis of length `size`.

    Of a branch that `fn` takes each part then decides for itself, without asking the others.
    """
    count = parts()
    if count == 1 or size % count:
        return fn
    spec = PartitionSpec(ENVS)
    return jax.shard_map(fn, in_specs=spec, out_specs=spec, axis_names={ENVS}, check_vma=False)

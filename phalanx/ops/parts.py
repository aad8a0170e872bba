"""Environments in parts, one for each device of a program that runs on several.

The program is the same as on one device; the compiler partitions it according to the sharding of its arrays.
These functions only set the sharding. On one device they do nothing. `phalanx.training.devices` sets up the
mesh.
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
    # Within `by_part` there is only one.
    return mesh.shape[ENVS] if ENVS in mesh.auto_axes else 1


def split(tree: PyTree, axis: int) -> PyTree:
    """Arrays whose `axis` is divided over the parts; as they are where it has no such length."""
    count = parts()
    if count == 1:
        return tree
    spec = _along(axis)

    def divided(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, spec) if x.shape[axis] % count == 0 else x

    return jax.tree.map(divided, tree)


def whole(tree: PyTree) -> PyTree:
    """Arrays that are replicated on every device."""
    if parts() == 1:
        return tree
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, PartitionSpec()), tree)


def by_part(
    fn: Callable[..., PyTree], size: int, in_axes: tuple[int | None, ...], out_axes: int = 0
) -> Callable[..., PyTree]:
    """Let each part call `fn` with its own rows, along the axis of each argument that is not None.

    There are `size` rows in all, and each row of the result must depend on no other row. A plain call gives
    the same; but for a branch that all rows take together, or for rows that become one axis with time, the
    compiler would move arrays between devices.
    """
    count = parts()
    if count == 1 or size % count:
        return fn
    specs = tuple(PartitionSpec() if axis is None else _along(axis) for axis in in_axes)
    return jax.shard_map(fn, in_specs=specs, out_specs=_along(out_axes), axis_names={ENVS}, check_vma=False)


def _along(axis: int) -> PartitionSpec:
    return PartitionSpec(*[None] * axis, ENVS)

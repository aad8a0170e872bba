"""One run on several devices: how seeds and environments are split over them.

Devices form a mesh, groups of seeds x parts of environments. Seeds are split first, because they do not
communicate. Only if there are more devices than seeds, the environments of a seed are split too. Its networks
are then replicated on all its devices, its environments and replay buffers are split, and the compiler adds
the sums over devices that an update needs. Checkpoints do not depend on any of this.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from phalanx import device, hosts
from phalanx.errors import PhalanxError
from phalanx.ops.parts import ENVS, SEEDS
from phalanx.training.collectors.base import over_seeds
from phalanx.training.collectors.compiled import Compiled
from phalanx.training.loop import Carry, Loop
from phalanx.types import PyTree

ALL = 0  # as many devices as there are


class Layout(NamedTuple):
    """How a run is laid over devices."""

    groups: int = 1
    """the seeds are divided into so many"""
    parts: int = 1
    """the environments of a seed are divided into so many"""
    mesh: Mesh | None = None
    """the devices, (groups, parts); None: the run is on one device, as JAX chooses"""

    @property
    def devices(self) -> int:
        return self.groups * self.parts

    def describe(self, seeds: int, envs: int) -> str:
        """The layout as text, such as `4 devices: 2 seeds x 2 parts of the environments, 32 each`."""
        plural = "s" if seeds > 1 else ""
        if self.parts == 1:
            return f"{self.devices} devices: {seeds} seed{plural}, {seeds // self.groups} on each"
        each = f"{self.parts} parts of the environments, {envs // self.parts} each"
        return f"{self.devices} devices: {seeds} seed{plural} x {each}"

    def over_seeds(
        self, fn: Callable[..., Any], seeds: int, in_axes: tuple[int | None, ...] = (0,)
    ) -> Callable[..., Any]:
        """`over_seeds`, with each group of seeds on its own devices."""
        return self.in_groups(over_seeds(fn, seeds // self.groups, in_axes), in_axes)

    def in_groups(self, fn: Callable[..., Any], in_axes: tuple[int | None, ...]) -> Callable[..., Any]:
        """Let each group of seeds call `fn` with its own rows of those arguments whose axis is 0."""
        if self.mesh is None:
            return fn
        return jax.shard_map(
            fn,
            mesh=self.mesh,
            in_specs=tuple(PartitionSpec() if axis is None else PartitionSpec(SEEDS) for axis in in_axes),
            out_specs=PartitionSpec(SEEDS),
            axis_names={SEEDS},  # environments are the compiler's
            check_vma=False,
        )

    def placed(self, shapes: PyTree, env_axes: PyTree = None) -> PyTree:
        """Shapes (S, ...) with their sharding; `env_axes` is the axis of environments, or -1."""
        if self.mesh is None:
            return shapes
        mesh = self.mesh

        def place(shape: jax.ShapeDtypeStruct, axis: int = -1) -> jax.ShapeDtypeStruct:
            between = [None] * (axis - 1)
            spec = PartitionSpec(SEEDS, *between, ENVS) if axis > 0 else PartitionSpec(SEEDS)
            return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=NamedSharding(mesh, spec))

        return jax.tree.map(place, shapes, *([] if env_axes is None else [env_axes]))

    def shardings(self, shapes: PyTree) -> PyTree:
        """Where `placed` shapes lie; None on one device."""
        return None if self.mesh is None else jax.tree.map(lambda x: x.sharding, shapes)

    def carry(self, shapes: Carry, loop: Loop) -> Carry:
        """The shapes of a carry, (S, ...), with their sharding."""
        if self.mesh is None:
            return shapes
        axes = jax.tree.map(lambda _: -1, shapes)
        learner, actors = env_axes(loop)
        return self.placed(shapes, axes._replace(learner=learner, actors=actors))

    def put(self, carry: Carry, loop: Loop) -> Carry:
        """A carry where it belongs."""
        if self.mesh is None:
            return carry
        return jax.tree.map(hosts.spread, carry, self.shardings(self.carry(carry, loop)))

    def rows(self, tree: PyTree) -> PyTree:
        """Arrays with a row for each seed, (S, ...), where they belong."""
        if self.mesh is None:
            return tree
        there = NamedSharding(self.mesh, PartitionSpec(SEEDS))
        return jax.tree.map(lambda x: hosts.spread(x, there), tree)

    def local(self, collector: Compiled) -> Compiled:
        """A collector for the seeds of one group."""
        return collector.with_sizes(collector.envs, collector.seeds // self.groups)


ONE = Layout()


def over_lanes(lanes: int, wanted: int) -> Layout:
    """Lanes of a search, which do not communicate, on as many of `wanted` devices as divide them."""
    found = _devices(wanted)
    groups = max(count for count in range(1, len(found) + 1) if lanes % count == 0)
    return ONE if groups == 1 else _layout(found, groups, 1)


def _devices(wanted: int) -> list[Any]:
    """So many devices, or all; an error if there are fewer."""
    found = device.every()
    if wanted > len(found):
        raise PhalanxError(f"devices={wanted}: {_too_few(wanted, len(found))}")
    return found[: wanted or len(found)]


def _layout(found: list[Any], groups: int, parts: int) -> Layout:
    """The first devices as a mesh."""
    mesh = np.array(found[: groups * parts]).reshape(groups, parts)
    return Layout(groups, parts, Mesh(mesh, (SEEDS, ENVS)))


def env_axes(loop: Loop) -> tuple[PyTree, PyTree]:
    """The axis of environments in every array (S, ...) of a learner and of its actors; -1 if there is none.

    It is the one that becomes twice as long with twice as many environments.
    """
    collector = loop.collector
    assert isinstance(collector, Compiled)

    def shapes(envs: int) -> PyTree:
        other = Compiled(collector.env, collector.algorithm, envs, opponents=collector.opponents)

        def made(key: jax.Array) -> PyTree:
            return collector.algorithm.init(key, envs), other.start_one(key)

        return jax.eval_shape(made, jax.random.key(0))

    def axis(few: jax.ShapeDtypeStruct, many: jax.ShapeDtypeStruct) -> int:
        sizes = zip(few.shape, many.shape, strict=True)
        return next((i + 1 for i, (n, m) in enumerate(sizes) if m == 2 * n > 0), -1)

    return jax.tree.map(axis, shapes(collector.envs), shapes(2 * collector.envs))


def lay_out(loop: Loop, wanted: int) -> Layout:
    """Split a run over `wanted` devices, or over all; an error if the numbers do not divide."""
    if hosts.count() > 1:
        if wanted > 1:
            raise PhalanxError(
                f"devices={wanted}: a run on several hosts has all their devices; use devices=all"
            )
        wanted = ALL
    if wanted == 1:
        return ONE
    collector = loop.collector
    require_divisible(loop, wanted)
    found = _devices(wanted)
    if len(found) == 1:
        return ONE
    return _layout(found, *_divided(len(found), collector.seeds, collector.envs))


def require_divisible(loop: Loop, wanted: int) -> None:
    """Raise an error if a run cannot be split over `wanted` devices on any machine."""
    collector = loop.collector
    if wanted != 1 and not isinstance(collector, Compiled):
        raise PhalanxError(
            f"devices={wanted or 'all'} is for compiled environments, and {collector.spec.name} is a Python "
            f"program: leave it out"
        )
    if wanted > 1:
        _divided(wanted, collector.seeds, collector.envs)


def _too_few(count: int, have: int) -> str:
    """Why there are only `have` devices and not `count`, and what would work."""
    devices = "1 device" if have == 1 else f"{have} devices"
    if device.first().platform != "cpu":
        return f"JAX has {devices} here; use devices=all"
    if count > device.cores():
        cores = "1 core" if device.cores() == 1 else f"{device.cores()} cores"
        return f"this process may use {cores}, a device for each at most; use devices={device.cores()}"
    return (
        f"JAX has started with {devices} in this process; start another one, or set "
        f"XLA_FLAGS=--{device.HOST_DEVICES}={count} before it starts"
    )


def _divided(count: int, seeds: int, envs: int) -> tuple[int, int]:
    """Groups of seeds and parts of environments for `count` devices."""
    if seeds % count == 0:
        return count, 1
    if count % seeds:
        fewer, more = seeds // count * count, -(-seeds // count) * count
        nearest = f"{fewer} or {more}" if fewer else f"{more}"
        raise PhalanxError(
            f"{seeds} seeds cannot be spread over {count} devices: use {nearest} seeds, or a number of "
            f"devices that divides {seeds} or is a multiple of it"
        )
    parts = count // seeds
    if envs % parts:
        raise PhalanxError(
            f"{count} devices for {seeds} seed{'s' * (seeds > 1)} divide the environments into {parts} "
            f"parts, and envs={envs} is not a multiple of it: use envs={-(-envs // parts) * parts}"
        )
    return seeds, parts

"""BATCHES: a function of one member over any number of members, in pieces of one size.

    results[k] = fn(args[k])        k = 0 ... n-1, `chunk` of them at a time, the last piece filled up with copies

Members of a piece run side by side and do not see each other: a member has the same bits in any piece of 128 members or
more, in any place of it, and on any number of devices of one kind (smaller pieces are not cut into tiles, see
`_batch.py`; they agree to round-off). So the pieces are 128 or 256 members on CPU, which is also where it is fastest.
A simulation in a piece costs as much as the longest one in it: a bad member ends early, and a slow one delays its piece
only.

Devices get equal shares of a piece by `jax.shard_map`: one program, and loops that do not wait for each other. Measured
on two CPU devices, four-bars: the same time as independent jits per device, with one compilation instead of two; half the
time of `jit` with a sharded argument, where every turn of the loop is agreed upon by all.
"""

import re
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ._batch import TILE
from ._errors import MechanismError
from ._spatial._axis import is_concrete

_SMALL, _LARGE = 2 * TILE, 4 * TILE  # members of a piece on CPU
_ACCELERATOR = 128 * TILE
_HALVINGS = 3
_ROWS = PartitionSpec("members")


def batch(
    fn: Callable[..., Any],
    *,
    memory: int | None = None,
    chunk: int | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Callable[..., Any]:
    """Makes of a function of one member a function of many: `jax.vmap`, compiled once, in pieces that fit in memory.

    **Arguments:**

    - `fn`: takes the numbers of one member; what all share it takes from outside. If it simulates, let it say
        `throw=False`: each member then has its own `.result`.
    - `memory`: bytes that a piece may use on each device. Unlimited by default; when memory runs out, a piece is halved.
    - `chunk`: members in a piece on each device. By default 128 for up to so many, else 256 on CPU, and 8192 elsewhere.
    - `devices`: the devices that share each piece, `jax.devices()` for all; by default the first.

    The result is called like fn, with an axis of members in front of every array; leaves that are no arrays pass. Inside
    of `jax.jit`, `jax.grad` or `jax.vmap` it is `jax.vmap(fn)`.
    """
    if chunk is not None and (not isinstance(chunk, int) or chunk < 1):
        raise MechanismError(f"chunk = {chunk!r}; give a whole number of members above zero")
    if memory is not None and not memory > 0:
        raise MechanismError(f"memory = {memory!r}; give a number of bytes above zero")
    if devices is not None and not len(devices):
        raise MechanismError("devices is empty; give for example jax.devices(), or leave it out")
    return _Batch(fn, memory, chunk, devices)


class _Batch:
    """What `mb.batch` returns. It keeps compiled programs, and the size of a piece that has fitted in memory."""

    def __init__(self, fn: Callable, memory: int | None, chunk: int | None, devices: Sequence[jax.Device] | None):
        self.__wrapped__, self.memory, self.chunk, self.devices = fn, memory, chunk, devices
        self.sharding = None
        if devices is not None:
            mesh = Mesh(np.asarray(devices), ("members",), axis_types=(AxisType.Auto,))
            self.sharding = NamedSharding(mesh, _ROWS)
        self._programs: dict[Any, Any] = {}
        self._fits: dict[Any, int] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        if not is_concrete(*leaves):
            return jax.vmap(lambda arrays: self._member(structure, leaves, arrays))(_arrays(leaves))
        arrays = [jnp.asarray(a) for a in _arrays(leaves)]
        count = _members(args)
        static = tuple(None if _is_array(a) else a for a in leaves)
        kind = (structure, static, tuple((a.shape[1:], a.dtype) for a in arrays))
        done, start, halvings = [], 0, 0
        while start < count:
            chunk = self._size(kind, count)
            try:
                program, chunk = self._program(kind, chunk)
                width = chunk * self._width
                rows = np.minimum(np.arange(start, start + width), count - 1)
                piece = jax.device_put(_take(arrays, rows), self.sharding)
                done.append(jax.tree.map(np.asarray, program(piece)))
            except jax.errors.JaxRuntimeError as error:
                halvings += 1
                self._shrink(kind, chunk, halvings, error)
                continue
            start += width
        return jax.tree.map(lambda *rows: jnp.asarray(np.concatenate(rows)[:count]), *done)

    def _member(self, structure: Any, leaves: list, arrays: list) -> Any:
        arrays = iter(arrays)
        leaves = [next(arrays) if _is_array(a) else a for a in leaves]
        return self.__wrapped__(*jax.tree.unflatten(structure, leaves))

    @property
    def _width(self) -> int:
        return 1 if self.devices is None else len(self.devices)

    def _size(self, kind: Any, count: int) -> int:
        """Members of a piece, on each device."""
        platform = jax.default_backend() if self.devices is None else self.devices[0].platform
        each = -(-count // self._width)
        own = _SMALL if each <= _SMALL else _LARGE if platform == "cpu" else _ACCELERATOR
        return min(self.chunk or own, self._fits.get(kind, _ACCELERATOR))

    def _program(self, kind: Any, chunk: int) -> tuple[Any, int]:
        """The compiled program of a piece, and its size if `memory` asked for a smaller one."""
        with self._lock:
            while True:
                program = self._programs.get((kind, chunk))
                if program is None:
                    program = self._programs[kind, chunk] = self._compile(kind, chunk)
                need = program.memory_analysis() if self.memory is not None else None
                if need is None:
                    return program, chunk
                used = need.temp_size_in_bytes + need.output_size_in_bytes + need.argument_size_in_bytes
                if used <= self.memory:
                    return program, chunk
                del self._programs[kind, chunk]
                smaller = _whole_tiles(min(int(chunk * self.memory / used), chunk - 1))
                if not smaller:
                    raise MechanismError(
                        f"memory = {self.memory} bytes, but {chunk} members need {used}; give more, or return less from fn"
                    )
                self._fits[kind] = chunk = smaller

    def _compile(self, kind: Any, chunk: int) -> Any:
        structure, static, shapes = kind
        leaves = iter(shapes)
        where = [next(leaves) if a is None else a for a in static]
        return where

"""The description of a kernel launch: kernel, grid, block and arguments, checked once."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from virtualgpu.errors import warn
from virtualgpu.records import WARP_SIZE, Dim3, KernelSource

Shape = int | Sequence[int]


# Compared by identity, since arrays among the arguments cannot be compared with ==.
@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A kernel launch with its grid, block, arguments, dynamic shared memory and stream.

    The field ``kernel`` is a ``RawKernel`` of CuPy or the virtual GPU, or a `KernelSource`. `of` and
    `as_cupy` check their arguments; the device's backend checks its limits and the kernel's parameters.
    """

    kernel: Any
    grid: Dim3
    block: Dim3
    args: tuple[Any, ...] = ()
    shared_bytes: int = 0
    stream: Any = None

    @classmethod
    def of(
        cls,
        kernel: Any,
        grid: Shape,
        block: Shape,
        args: Sequence[Any] = (),
        shared_mem: int = 0,
        stream: Any = None,
    ) -> Launch:
        """Create a `Launch` from the arguments of ``gl.launch``, and check them.

        Raises
        ------
        TypeError, ValueError
            If the kernel has no source, or a shape, the arguments or the stream are invalid; the message
            says what to write.
        """
        kernel_source(kernel)
        shared_bytes = _check_integer("shared_mem", shared_mem, minimum=0)
        _check_stream(stream)
        return cls(
            kernel, dims("grid", grid), dims("block", block), _check_arguments(args), shared_bytes, stream
        )

    @classmethod
    def as_cupy(cls, kernel: Any, grid: Any, block: Any, args: Any, shared_mem: Any) -> Launch:
        """Return the launch for the call ``kernel(grid, block, args)``, with the arguments interpreted as in
        CuPy.

        The grid and the block must be tuples. Sizes below 1 count as 1, with an `ArgumentWarning`.

        Raises
        ------
        TypeError, ValueError
            If a shape or the arguments are invalid.
        """
        checked_bytes = _check_integer("shared_mem", shared_mem, minimum=0)
        return cls(
            kernel,
            _to_cupy_dim3("grid", grid),
            _to_cupy_dim3("block", block),
            _check_arguments(args),
            checked_bytes,
        )

    @property
    def source(self) -> KernelSource:
        """The kernel's name, source code and compiler options, which identify it on any device."""
        return kernel_source(self.kernel)

    @property
    def block_threads(self) -> int:
        """Number of threads in each block."""
        return prod(self.block)

    @property
    def threads(self) -> int:
        """Number of threads in the whole grid."""
        return prod(self.grid) * prod(self.block)

    def run(self) -> None:
        """Launch the kernel without recording anything."""
        with self.on_stream():
            self.kernel(self.grid, self.block, self.args, shared_mem=self.shared_bytes)

    def on_stream(self) -> AbstractContextManager[Any]:
        """Context manager that makes the stream of the launch the current stream."""
        return nullcontext() if self.stream is None else self.stream

    def warp_position(self, block_index: Shape, warp: int) -> tuple[Dim3, int]:
        """Check that a block and a warp exist in the launch, and return their numbers.

        Raises
        ------
        TypeError, ValueError
            If the grid has no such block or the block no such warp.
        """
        index = dims("block_index", block_index, minimum=0)
        if any(position >= size for position, size in zip(index, self.grid, strict=True)):
            last_block = tuple(size - 1 for size in self.grid)
            raise ValueError(
                f"`block_index` {index} is outside the grid {self.grid}. The last block is {last_block}."
            )
        warp_count = -(-self.block_threads // WARP_SIZE)
        warp_index = operator.index(warp)
        if not 0 <= warp_index < warp_count:
            valid_warps = "the only warp is 0" if warp_count == 1 else f"warps are 0 to {warp_count - 1}"
            raise ValueError(
                f"`warp` {warp_index} is not in a block of {self.block_threads} threads: {valid_warps}."
            )
        return index, warp_index

    @property
    def is_one_dimensional(self) -> bool:
        """Return whether the launch is one-dimensional, so that its block size can be changed."""
        return self.grid[1:] == (1, 1) and self.block[1:] == (1, 1)

    def resized(self, block_threads: int) -> Launch:
        """Return a one-dimensional launch with another block size and at least the same number of threads.

        The dynamic shared memory grows in proportion to the block size, because many kernels need a fixed
        number of bytes per thread. It does not shrink, because other kernels need a fixed number of bytes per
        block.
        """
        block_count = -(-self.threads // block_threads)
        resized_bytes = max(self.shared_bytes, -(-self.shared_bytes * block_threads // self.block_threads))
        return replace(
            self, grid=(block_count, 1, 1), block=(block_threads, 1, 1), shared_bytes=resized_bytes
        )


def kernel_source(kernel: Any) -> KernelSource:
    """Return the name, source code and compiler options of a ``RawKernel`` of CuPy or virtualgpu.

    Raises
    ------
    TypeError
        If `kernel` has no CUDA C++ source.
    """
    name = getattr(kernel, "name", None)
    source_code = getattr(kernel, "code", None)
    if kernel is None:
        raise TypeError(
            "Expected a kernel, but got None, which is the result of a launch. Pass the cp.RawKernel itself, "
            "without calling it."
        )
    if not isinstance(source_code, str) or not isinstance(name, str):
        raise TypeError(
            f"{kernel!r} has no CUDA C++ source. Pass a cp.RawKernel or a function of a cp.RawModule."
        )
    expressions = getattr(kernel, "name_expressions", None)
    if expressions is None:
        # A kernel of CuPy's RawModule has them, but only its pickled state contains them.
        kernel_state = kernel.__getstate__()
        expressions = kernel_state.get("name_expressions") if isinstance(kernel_state, dict) else None
    expressions = tuple(expressions or ())
    if isinstance(kernel, KernelSource) and "<" in name and name not in expressions:
        expressions = (*expressions, name)
    return KernelSource(name, source_code, tuple(getattr(kernel, "options", ()) or ()), expressions)


def dims(name: str, value: Any, minimum: int = 1) -> Dim3:
    """Return one to three integers as a tuple (x, y, z). The string `name` appears in error messages.

    Raises
    ------
    TypeError, ValueError
        If `value` is not valid.
    """
    dimensions = value if isinstance(value, (tuple, list)) else (value,)
    sizes = [_check_integer(name, dimension, minimum, value) for dimension in dimensions]
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"`{name}` has {len(sizes)} dimensions, but it must have one to three: {value!r}.")
    x, y, z = (*sizes, minimum, minimum)[:3]
    return x, y, z


def _to_cupy_dim3(name: str, value: Any) -> Dim3:
    if not isinstance(value, tuple):
        raise TypeError(
            f"Argument '{name}' has incorrect type (expected tuple, got {type(value).__name__}). "
            f"Write it as a tuple, for instance ({value if isinstance(value, int) else 'n'},)."
        )
    if not 1 <= len(value) <= 3:
        raise TypeError(f"Argument '{name}' has {len(value)} dimensions. Pass one to three, as in (n,).")
    sizes = [_check_integer(name, size, None) for size in value]
    if min(sizes) < 1:
        warn(
            f"`{name}` is {value!r}. As with CuPy, a size below 1 counts as 1, so the kernel runs. Did a "
            "division such as n // threads round down to 0? Write (n + threads - 1) // threads."
        )
    return dims(name, tuple(max(1, size) for size in sizes))


def _check_integer(name: str, value: Any, minimum: int | None, shown_value: Any = None) -> int:
    shown_value = value if shown_value is None else shown_value
    if isinstance(value, float):
        raise TypeError(
            f"`{name}` must contain integers, not {value!r}. Divide with //, as in (n + 255) // 256."
        )
    try:
        integer = operator.index(value)
    except TypeError:
        expected_text = (
            "a number of bytes" if "shared" in name else "a number or a tuple of one to three numbers"
        )
        raise TypeError(f"`{name}` must be {expected_text}, not {shown_value!r}.") from None
    if minimum is not None and integer < minimum:
        raise ValueError(f"every value of `{name}` must be at least {minimum}, but it is {shown_value!r}.")
    return integer


def _check_stream(stream: Any) -> None:
    if stream is not None and not (hasattr(stream, "ptr") and hasattr(stream, "__enter__")):
        raise TypeError(f"`stream` must be a stream, such as cp.cuda.Stream(), not {type(stream).__name__}.")


def _check_arguments(args: Any) -> tuple[Any, ...]:
    if isinstance(args, (tuple, list)):
        return tuple(args)
    raise TypeError(
        f"`args` must be a tuple of the kernel's arguments, but got {type(args).__name__}. A tuple with a "
        "single argument is written (x,)."
    )

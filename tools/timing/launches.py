"""Launches that are timed: those that calibrate the clock, and those that only validate it.

Single operations and chains of addresses (`Timed.is_probe`) calibrate. Of the programs, a family (all sizes
and variants of one idea) is kept from calibration or not, by a hash of its name, so that no kept kernel has
a near relation among the others.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arguments = Callable[[Any], tuple[Any, ...]]

KERNELS = Path(__file__).parent / "kernels"
# Families kept from calibration: those whose hash is below this share of its range.
KEPT_SHARE = 0.62
STATIC_LIMIT_BYTES = 48 << 10  # of shared memory; a launch with more must set an attribute of the kernel
WAVE = 132 * 8  # blocks of 256 threads that an H100's and an H200's 132 SMs hold at once


@dataclass(frozen=True, slots=True)
class TimedLaunch:
    """A launch to time.

    Parameters
    ----------
    name, family
        Unique name; the idea that its relations share.
    file, kernel
        File in ``tools/timing/kernels`` and the kernel's name in it; a name with <> is a template's.
    grid, block, shared_bytes
        Launch shape.
    make_args
        Array module (CuPy or the virtual GPU's) -> kernel arguments.
    is_probe
        Whether it measures one operation or one memory, and therefore always calibrates.
    code, options
        CUDA C++ text instead of a file, and options of the compiler.
    """

    name: str
    family: str
    file: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    make_args: Arguments
    shared_bytes: int = 0
    is_probe: bool = False
    code: str = ""
    options: tuple[str, ...] = ()

    @property
    def is_kept(self) -> bool:
        """Whether the launch is kept from calibration."""
        return not self.is_probe and is_kept(self.family)

    def load(self, cp: Any, modules: dict[tuple[str, ...], Any]) -> Any:
        """Return the kernel on CuPy's current device; `modules` caches compiled modules."""
        text = self.code or read_source(self.file)
        expressions = (self.kernel,) if "<" in self.kernel else ()
        key = (text, *self.options, *expressions)
        if key not in modules:
            modules[key] = cp.RawModule(code=text, options=self.options, name_expressions=expressions or None)
        function = modules[key].get_function(self.kernel)
        if self.shared_bytes > STATIC_LIMIT_BYTES:
            function.max_dynamic_shared_size_bytes = self.shared_bytes
        return function


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A CuPy expression to time: `make` prepares the arrays and returns the function to call."""

    name: str
    make: Callable[[Any], Callable[[], object]]


def is_kept(family: str) -> bool:
    """Return whether programs of a family are kept from calibration."""
    return int(hashlib.sha256(family.encode()).hexdigest()[:8], 16) / 2**32 < KEPT_SHARE


@functools.cache
def read_source(file: str) -> str:
    """CUDA C++ source of one of the files."""
    return (KERNELS / f"{file}.cu").read_text(encoding="utf-8")


# --- arguments -----------------------------------------------------------------------------------
def _make_int_arg(value: int) -> Arguments:
    return lambda cp: (np.int32(value),)


def _make_float_arg(value: float) -> Arguments:
    return lambda cp: (np.float32(value),)


def _make_random_args(dtype: str, *sizes: int) -> Arguments:
    return lambda cp: tuple(cp.full(size, 1, dtype=dtype) for size in sizes)


def _make_float_arrays(*sizes: int) -> Arguments:
    return _make_random_args("float32", *sizes)


def _make_random_array(size: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Arguments:
    def make(cp: Any) -> tuple[Any, ...]:
        values = np.random.default_rng(seed).uniform(low, high, size).astype(np.float32)
        return (cp.asarray(values),)

    return make


def _make_integer_array(size: int, high: int, seed: int = 0, low: int = 0) -> Arguments:
    def make(cp: Any) -> tuple[Any, ...]:
        return (cp.asarray(np.random.default_rng(seed).integers(low, high, size, dtype=np.int32)),)

    return make


def _make_skewed_array(size: int, bins: int) -> Arguments:
    """Return integers below `bins` whose frequencies fall off exponentially."""

    def make(cp: Any) -> tuple[Any, ...]:
        samples = np.random.default_rng(3).exponential(bins / 16, size)
        return (cp.asarray(np.minimum(samples, bins - 1).astype(np.int32)),)

    return make


def _make_cycle_args(size: int, stride: int, *, is_shuffled: bool) -> Arguments:
    """Return an array whose `stride`-th integers are indices of a closed chain."""

    def make(cp: Any) -> tuple[Any, ...]:
        indices = np.arange(0, size, stride, dtype=np.int32)
        if is_shuffled:
            indices = np.random.default_rng(1).permutation(indices)
        next_indices = np.zeros(size, np.int32)
        next_indices[indices] = np.roll(indices, -1)
        return (cp.asarray(next_indices),)

    return make


def _make_permuted_indices(size: int) -> Arguments:
    return lambda cp: (cp.asarray(np.random.default_rng(2).permutation(size).astype(np.int32)),)


def _make_sorted_indices(size: int) -> Arguments:
    return lambda cp: (cp.arange(size, dtype=cp.int32),)


def _make_sparse_args(rows: int, mean_length: int) -> Arguments:
    """Return a sparse matrix with about `mean_length` entries per row, a vector and space for a product."""

    def make(cp: Any) -> tuple[Any, ...]:
        random = np.random.default_rng(4)
        row_lengths = random.integers(0, 2 * mean_length, rows)
        row_starts = np.concatenate([[0], np.cumsum(row_lengths)]).astype(np.int32)
        column_indices = random.integers(0, rows, row_starts[-1]).astype(np.int32)
        values = np.ones(row_starts[-1], np.float32)
        return (
            *map(cp.asarray, (row_starts, column_indices, values)),
            cp.ones(rows, cp.float32),
            cp.zeros(rows, cp.float32),
        )

    return make


def _join_args(*argument_makers: Arguments) -> Arguments:
    """Return a function that creates the arguments of all given functions, in order."""
    return lambda cp: tuple(argument for make_part in argument_makers for argument in make_part(cp))


# --- probes --------------------------------------------------------------------------------------
_OPERATIONS: tuple[tuple[str, str, int], ...] = (
    # kernel, dtype, rounds
    ("fma_f32", "float32", 256),
    ("fma4_f32", "float32", 256),
    ("add_f32", "float32", 256),
    ("minmax_f32", "float32", 128),
    ("fma_f64", "float64", 128),
    ("fma4_f64", "float64", 64),
    ("mad_s32", "int32", 256),
    ("mad4_s32", "int32", 128),
    ("xorshift_s32", "int32", 256),
    ("xorshift4_s32", "int32", 128),
    ("mad_s64", "int64", 128),
    ("add_s64", "int64", 128),
    ("mulhi_u32", "uint32", 128),
    ("popc_u32", "uint32", 128),
    ("clz_brev_u32", "uint32", 128),
    ("div_s32", "int32", 64),
    ("mod_s32", "int32", 64),
    ("mod_u32", "uint32", 64),
    ("mod_const_s32", "int32", 64),
    ("div_s64", "int64", 32),
    ("fma_half2", "float32", 256),
    ("convert_f32_s32", "float32", 128),
    ("convert_f64_f32", "float32", 64),
    ("fast_sin", "float32", 128),
    ("fast_exp", "float32", 128),
    ("fast_exp4", "float32", 64),
    ("fast_log", "float32", 128),
    ("fast_div", "float32", 128),
    ("sin_f32", "float32", 64),
    ("exp_f32", "float32", 64),
    ("log_f32", "float32", 64),
    ("sqrt_f32", "float32", 64),
    ("rsqrt_f32", "float32", 128),
    ("div_f32", "float32", 64),
    ("pow_f32", "float32", 32),
    ("tanh_f32", "float32", 32),
    ("div_f64", "float64", 32),
    ("sqrt_f64", "float64", 32),
    ("exp_f64", "float64", 16),
    ("sin_f64", "float64", 16),
    ("log_f64", "float64", 16),
    ("shuffle", "int32", 128),
    ("ballot", "int32", 128),
    ("reduce_sync", "int32", 128),
    ("shared_chain", "int32", 128),
)
# Programs may use these; that they are predicted without having been measured is tested, too.
_UNMEASURED_KERNELS = ("tanh_f32", "log_f64", "fast_exp4", "xorshift4_s32", "mod_u32")


def _make_operation_launches() -> Iterator[TimedLaunch]:
    for kernel, dtype, round_count in _OPERATIONS:
        for shape, grid, block in (("alone", 1, 32), ("full", WAVE, 256)):
            n = 4 * round_count if shape == "alone" else round_count
            file = "half" if "half" in kernel else "operations"
            args = _join_args(_make_random_args(dtype, grid * block), _make_int_arg(n), _make_int_arg(7))
            yield TimedLaunch(
                f"{kernel} {shape}",
                f"operation {kernel}",
                file,
                kernel,
                (grid,),
                (block,),
                args,
                is_probe=kernel not in _UNMEASURED_KERNELS,
            )
    for name, grid, block in (
        ("one", 1, 32),
        ("one large", 1, 1024),
        ("a wave", WAVE, 256),
        ("many", 8192, 256),
        ("many small", 16384, 32),
        ("many large", 4096, 1024),
    ):
        yield TimedLaunch(
            f"empty {name}", "empty", "operations", "empty", (grid,), (block,), lambda cp: (), is_probe=True
        )
    for block in (32, 256, 1024):
        args = _join_args(_make_random_args("int32", 132 * block), _make_int_arg(200), _make_int_arg(7))
        yield TimedLaunch(
            f"barriers {block}", "barriers", "operations", "barriers", (132,), (block,), args, is_probe=True
        )
    for lanes in (1, 32):
        args = _join_args(_make_float_arrays(132 * 256), _make_int_arg(256), _make_int_arg(lanes))
        yield TimedLaunch(
            f"constant {lanes}",
            "constant",
            "operations",
            "constant_read",
            (132,),
            (256,),
            args,
            is_probe=True,
        )


def _make_chain_launches() -> Iterator[TimedLaunch]:
    for size_kib, stride, is_shuffled in (
        (16, 1, False),
        (16, 32, True),
        (128, 32, True),
        (512, 32, True),
        (4096, 32, True),
        (16384, 32, True),
        (24576, 64, True),
        (65536, 128, True),
        (262144, 512, True),
        (65536, 1024, False),
    ):
        element_count = size_kib * 256
        order_text = "shuffled" if is_shuffled else "in order"
        yield TimedLaunch(
            f"chase {size_kib} KiB by {4 * stride} {order_text}",
            "chase",
            "memory",
            "chase",
            (1,),
            (1,),
            _join_args(
                _make_cycle_args(element_count, stride, is_shuffled=is_shuffled),
                _make_random_args("int32", 32),
                _make_int_arg(4096),
            ),
            is_probe=True,
        )
    for size_kib, grid, block in ((2048, 132, 32), (2048, 132, 256), (16384, WAVE, 256)):
        element_count = size_kib * 256
        yield TimedLaunch(
            f"chase {size_kib} KiB, {grid} blocks of {block}",
            "chase many",
            "memory",
            "chase_many",
            (grid,),
            (block,),
            _join_args(
                _make_permuted_indices(element_count),
                _make_random_args("int32", grid * block),
                _make_int_arg(64),
                _make_int_arg(element_count),
            ),
        )


# --- programs ------------------------------------------------------------------------------------
def _make_1d_launch(
    name: str,
    family: str,
    file: str,
    kernel: str,
    n: int,
    args: Arguments,
    block: int = 256,
    shared_bytes: int = 0,
    per_thread: int = 1,
    is_probe: bool = False,
) -> TimedLaunch:
    grid = -(-n // (block * per_thread))
    return TimedLaunch(name, family, file, kernel, (grid,), (block,), args, shared_bytes, is_probe)


def _make_stream_launches() -> Iterator[TimedLaunch]:
    for exponent in (10, 14, 16, 18, 20, 22, 24, 25):
        n = 1 << exponent
        yield _make_1d_launch(
            f"copy 2^{exponent}",
            "copy",
            "memory",
            "copy1",
            n,
            _join_args(_make_float_arrays(n, n), _make_int_arg(n)),
            is_probe=True,
        )
    for exponent in (16, 20, 23, 25):
        n = 1 << exponent
        args = _join_args(_make_float_arrays(n, n, n), _make_float_arg(2.0), _make_int_arg(n))
        yield _make_1d_launch(f"triad 2^{exponent}", "triad", "memory", "triad", n, args)
    for block in (32, 64, 128, 512, 1024):
        n = 1 << 22
        args = _join_args(_make_float_arrays(n, n), _make_int_arg(n))
        yield _make_1d_launch(
            f"copy 2^22 by {block}", "copy", "memory", "copy1", n, args, block, is_probe=True
        )
    for vector_width in (2, 4):
        for exponent in (18, 22, 25):
            n = (1 << exponent) // vector_width
            args = _join_args(_make_float_arrays(1 << exponent, 1 << exponent), _make_int_arg(n))
            yield _make_1d_launch(
                f"copy{vector_width} 2^{exponent}", "copy wide", "memory", f"copy{vector_width}", n, args
            )
    n = 1 << 23
    yield _make_1d_launch(
        "copy bytes",
        "copy bytes",
        "memory",
        "copy_bytes",
        n,
        _join_args(_make_random_args("int8", n, n), _make_int_arg(n)),
    )
    for exponent in (18, 22, 25):
        n = 1 << exponent
        args = _join_args(_make_float_arrays(n), _make_float_arg(2.0), _make_int_arg(n))
        yield _make_1d_launch(f"write 2^{exponent}", "write", "memory", "write1", n, args, is_probe=True)
        args = _join_args(_make_float_arrays(n, n), _make_float_arg(2.0), _make_int_arg(n))
        yield TimedLaunch(
            f"saxpy steps 2^{exponent}", "saxpy steps", "memory", "saxpy_steps", (WAVE,), (256,), args
        )
        args = _join_args(_make_float_arrays(n, n), _make_int_arg(n))
        yield TimedLaunch(
            f"read steps 2^{exponent}", "read steps", "memory", "read_steps", (WAVE,), (256,), args
        )
    n = 1 << 25
    args = _join_args(_make_float_arrays(n, WAVE * 256), _make_int_arg(n // 4))
    yield TimedLaunch("read steps4 2^25", "read steps", "memory", "read_steps4", (WAVE,), (256,), args)
    n = 1 << 22
    args = _join_args(_make_random_args("float64", n, n, n), lambda cp: (2.0,), _make_int_arg(n))
    yield _make_1d_launch("triad f64 2^22", "triad", "memory", "triad_f64", n, args)
    n = 1 << 20
    for stride in (2, 4, 8, 16, 32):
        args = _join_args(_make_float_arrays(n * stride, n), _make_int_arg(n), _make_int_arg(stride))
        is_probe = stride != 4
        yield _make_1d_launch(
            f"read by {stride}", "read strided", "memory", "read_strided", n, args, is_probe=is_probe
        )
    for stride in (2, 8, 32):
        args = _join_args(_make_float_arrays(n, n * stride), _make_int_arg(n), _make_int_arg(stride))
        yield _make_1d_launch(f"write by {stride}", "write strided", "memory", "write_strided", n, args)
    n = 1 << 22
    for element_offset in (0, 1, 16):
        args = _join_args(_make_float_arrays(n + 32, n), _make_int_arg(n), _make_int_arg(element_offset))
        yield _make_1d_launch(f"copy from {element_offset}", "offset copy", "memory", "offset_copy", n, args)
    for exponent in (16, 20, 22, 24):
        n = 1 << exponent
        args = _join_args(
            _make_float_arrays(n), _make_permuted_indices(n), _make_float_arrays(n), _make_int_arg(n)
        )
        yield _make_1d_launch(
            f"gather 2^{exponent}", "gather", "memory", "gather", n, args, is_probe=exponent in (20, 24)
        )
    for exponent in (18, 20, 23):
        n = 1 << exponent
        args = _join_args(
            _make_float_arrays(n), _make_permuted_indices(n), _make_float_arrays(n), _make_int_arg(n)
        )
        yield _make_1d_launch(f"scatter 2^{exponent}", "scatter", "memory", "scatter", n, args)
    n = 1 << 20
    for layout_name in ("aos", "soa"):
        args = _join_args(_make_float_arrays(4 * n, n), _make_int_arg(n))
        yield _make_1d_launch(
            f"structs {layout_name}", "structs", "memory", f"structs_{layout_name}", n, args
        )
    for layout_name in ("columns", "rows"):
        for row_count, column_count in ((1024, 1024), (256, 8192)):
            threads = column_count if layout_name == "columns" else row_count
            args = _join_args(
                _make_float_arrays(row_count * column_count, threads),
                _make_int_arg(row_count),
                _make_int_arg(column_count),
            )
            yield _make_1d_launch(
                f"sum of {layout_name} {row_count}x{column_count}",
                f"sum of {layout_name}",
                "memory",
                f"sum_{layout_name}",
                threads,
                args,
                128,
            )
    n = 1 << 21
    args = _join_args(_make_random_args("uint8", 4 * n, n), _make_int_arg(n))
    yield _make_1d_launch("gray 2^21", "gray", "memory", "rgb_to_gray", n, args)


def _make_atomic_launches() -> Iterator[TimedLaunch]:
    n = 1 << 18
    for address_count in (1, 32, 1024, n):
        yield _make_1d_launch(
            f"atomic int over {address_count}",
            "atomic",
            "atomics",
            "modulo_int",
            n,
            _join_args(_make_random_args("int32", address_count), _make_int_arg(address_count)),
            is_probe=True,
        )
    for address_count in (1, 32, 4096):
        args = _join_args(_make_float_arrays(address_count), _make_int_arg(address_count))
        yield _make_1d_launch(
            f"atomic float over {address_count}",
            "atomic float",
            "atomics",
            "modulo_float",
            n,
            args,
            is_probe=True,
        )
    for address_count in (1, 1024):
        args = _join_args(_make_random_args("float64", address_count), _make_int_arg(address_count))
        yield _make_1d_launch(
            f"atomic double over {address_count}", "atomic double", "atomics", "modulo_f64", n, args
        )
    for address_count in (1, 64):
        args = _join_args(_make_random_args("int32", address_count), _make_int_arg(address_count))
        yield _make_1d_launch(
            f"atomic per warp over {address_count}",
            "atomic per warp",
            "atomics",
            "per_warp",
            n,
            args,
            is_probe=True,
        )
    args = _join_args(_make_random_args("int32", 1), _make_int_arg(1))
    yield _make_1d_launch("atomic to one", "atomic", "atomics", "one_address", n, args, is_probe=True)
    args = _join_args(_make_random_args("int32", 1 << 20), _make_int_arg(1 << 20))
    yield _make_1d_launch("atomic spread", "atomic", "atomics", "spread", n, args, is_probe=True)
    for address_count in (1, 1024, 1 << 18):
        args = _join_args(_make_random_args("int32", address_count, n), _make_int_arg(address_count))
        yield _make_1d_launch(
            f"atomic returned over {address_count}",
            "atomic returned",
            "atomics",
            "returned",
            n,
            args,
            is_probe=address_count == 1024,
        )
    for bins_name, make_bins, address_count in (
        ("uniform", _make_integer_array(n, 256), 256),
        ("wide", _make_integer_array(n, 65536), 65536),
        ("skewed", _make_skewed_array(n, 256), 256),
    ):
        args = _join_args(make_bins, _make_random_args("int32", address_count), _make_int_arg(n))
        yield _make_1d_launch(
            f"histogram global {bins_name}", "histogram global", "atomics", "random_bins", n, args
        )
        if address_count == 256:
            args = _join_args(
                make_bins,
                _make_random_args("int32", address_count),
                _make_int_arg(n),
                _make_int_arg(address_count),
                _make_int_arg(4),
            )
            yield _make_1d_launch(
                f"histogram shared {bins_name}",
                "histogram shared",
                "atomics",
                "shared_bins",
                n,
                args,
                per_thread=4,
            )
    for address_count in (1, 32):
        args = _join_args(
            _make_integer_array(n, 1 << 20),
            _make_random_args("int32", address_count),
            _make_int_arg(n),
            _make_int_arg(address_count),
            _make_int_arg(4),
        )
        yield _make_1d_launch(
            f"shared atomic over {address_count}",
            "shared atomic",
            "atomics",
            "shared_bins",
            n,
            args,
            per_thread=4,
            is_probe=True,
        )
    args = _join_args(_make_integer_array(n, 1 << 20), _make_random_args("int32", 1), _make_int_arg(n))
    yield _make_1d_launch("atomic max", "atomic max", "atomics", "maximum", n, args)
    yield _make_1d_launch(
        "aggregated",
        "aggregated",
        "atomics",
        "aggregated",
        n,
        _join_args(_make_random_args("int32", 1), _make_integer_array(n, 10, low=-10), _make_int_arg(n)),
    )
    for address_count in (256, 16384):
        yield _make_1d_launch(
            f"cas over {address_count}",
            "cas",
            "atomics",
            "cas_loop",
            1 << 14,
            _join_args(_make_float_arrays(address_count), _make_int_arg(address_count)),
        )


def _make_sum_launches() -> Iterator[TimedLaunch]:
    for kernel_style in ("interleaved", "conflicts", "tree"):
        for exponent in (18, 22):
            n = 1 << exponent
            args = _join_args(_make_float_arrays(n, n // 256), _make_int_arg(n))
            yield _make_1d_launch(
                f"sum {kernel_style} 2^{exponent}",
                f"sum {kernel_style}",
                "reduce",
                f"sum_{kernel_style}",
                n,
                args,
            )
    for kernel in ("sum_shuffles", "dot"):
        for exponent in (18, 22, 24):
            n = 1 << exponent
            arrays = _make_float_arrays(n, 1) if kernel == "sum_shuffles" else _make_float_arrays(n, n, 1)
            title = kernel.replace("_", " ")
            yield TimedLaunch(
                f"{title} 2^{exponent}",
                title,
                "reduce",
                kernel,
                (264,),
                (256,),
                _join_args(arrays, _make_int_arg(n)),
            )
    n = 1 << 19
    for kernel_style, threads, elements_per_block in (
        ("steps", 512, 512),
        ("tree", 512, 1024),
        ("warps", 512, 512),
    ):
        yield TimedLaunch(
            f"scan {kernel_style}",
            f"scan {kernel_style}",
            "reduce",
            f"scan_{kernel_style}",
            (n // elements_per_block,),
            (threads,),
            _make_float_arrays(n, n),
        )


def _make_matrix_launches() -> Iterator[TimedLaunch]:
    for kernel, tile_side, sizes in (
        ("naive", 16, (128, 256, 512)),
        ("swapped", 16, (256,)),
        ("tiled16", 16, (128, 256, 512)),
        ("tiled32", 32, (256, 512)),
        ("f64", 16, (256,)),
    ):
        for n in sizes:
            args = _join_args(
                _make_random_args("float64" if kernel == "f64" else "float32", n * n, n * n, n * n),
                _make_int_arg(n),
            )
            yield TimedLaunch(
                f"product {kernel} {n}",
                f"product {kernel}",
                "matrices",
                f"product_{kernel}",
                (n // tile_side, n // tile_side),
                (tile_side, tile_side),
                args,
            )
    for n in (256, 512):
        yield TimedLaunch(
            f"product registers {n}",
            "product registers",
            "matrices",
            "product_registers",
            (n // 64, n // 64),
            (256,),
            _join_args(_make_float_arrays(n * n, n * n, n * n), _make_int_arg(n)),
        )
    for n in (512, 1024):
        args = _join_args(_make_float_arrays(n * n, n, n), _make_int_arg(n))
        yield TimedLaunch(
            f"matrix-vector warps {n}", "vector rows", "matrices", "vector_rows", (n // 8,), (256,), args
        )
        yield TimedLaunch(
            f"matrix-vector naive {n}", "vector naive", "matrices", "vector_naive", (n // 64,), (64,), args
        )
    for kernel_style in ("reads", "writes", "tile32", "tile33"):
        for n in (512, 2048):
            yield TimedLaunch(
                f"transpose {kernel_style} {n}",
                f"transpose {kernel_style}",
                "matrices",
                f"transpose_{kernel_style}",
                (n // 32, n // 32),
                (32, 8),
                _join_args(_make_float_arrays(n * n, n * n), _make_int_arg(n)),
            )
    args = _join_args(_make_float_arrays(1024 * 1024, 1024 * 1024), _make_int_arg(1024))
    yield TimedLaunch("transpose 16", "transpose 16", "matrices", "transpose_16", (64, 64), (16, 16), args)


def _make_grid_launches() -> Iterator[TimedLaunch]:
    for exponent in (18, 22):
        n = 1 << exponent
        for kernel in ("line7", "line7_shared"):
            yield _make_1d_launch(
                f"{kernel} 2^{exponent}",
                kernel,
                "grids",
                kernel,
                n,
                _join_args(_make_float_arrays(n, n), _make_int_arg(n)),
            )
    for side_length in (512, 2048):
        args = _join_args(
            _make_float_arrays(side_length * side_length, side_length * side_length),
            _make_int_arg(side_length),
            _make_int_arg(side_length),
        )
        for kernel in ("heat", "heat_shared", "convolve5", "sobel"):
            yield TimedLaunch(
                f"{kernel} {side_length}",
                kernel,
                "grids",
                kernel,
                (side_length // 32, side_length // 16),
                (32, 16),
                args,
            )
    args = _join_args(_make_float_arrays(128**3, 128**3), _make_int_arg(128))
    yield TimedLaunch("cube7 128", "cube7", "grids", "cube7", (4, 32, 128), (32, 4), args)
    make_cells = _join_args(
        _make_random_args("uint8", 512 * 512, 512 * 512), _make_int_arg(512), _make_int_arg(512)
    )
    yield TimedLaunch("life 512", "life", "grids", "life", (16, 64), (32, 8), make_cells)
    for side_length in (128, 1024):
        args = _join_args(
            _make_random_args("int32", side_length * side_length),
            _make_int_arg(side_length),
            _make_int_arg(side_length),
            _make_int_arg(200),
        )
        yield TimedLaunch(
            f"mandelbrot {side_length}",
            "mandelbrot",
            "grids",
            "mandelbrot",
            (side_length // 16, side_length // 16),
            (16, 16),
            args,
        )
    args = _join_args(
        _make_float_arrays(512 * 512), _make_int_arg(512), _make_int_arg(512), _make_int_arg(100)
    )
    yield TimedLaunch("julia 512", "julia", "grids", "julia", (16, 64), (32, 8), args)


def _make_lane_launches() -> Iterator[TimedLaunch]:
    for way_count in (1, 2, 4, 16, 32):
        args = _join_args(_make_float_arrays(WAVE * 256), _make_int_arg(32), _make_int_arg(way_count))
        yield TimedLaunch(f"{way_count} ways", "ways", "lanes", "ways", (WAVE,), (256,), args)
    yield TimedLaunch(
        "stairs",
        "stairs",
        "lanes",
        "stairs",
        (WAVE,),
        (256,),
        _join_args(_make_float_arrays(WAVE * 256), _make_int_arg(8)),
    )
    for blocks in (132, 1000, 3000):
        args = _join_args(_make_float_arrays(blocks * 128), _make_int_arg(8))
        yield TimedLaunch(
            f"uneven {blocks}", "uneven blocks", "lanes", "uneven_blocks", (blocks,), (128,), args
        )
    yield TimedLaunch(
        "late block",
        "late block",
        "lanes",
        "late_block",
        (400,),
        (256,),
        _join_args(_make_float_arrays(400 * 256), _make_int_arg(200)),
    )
    for blocks, block, shared_bytes in (
        (1, 256, 0),
        (33, 256, 0),
        (132, 256, 0),
        (133, 256, 0),
        (264, 256, 0),
        (1056, 256, 0),
        (1057, 256, 0),
        (2112, 256, 0),
        (264, 1024, 0),
        (528, 256, 48000),
        (1056, 64, 24000),
        (1056, 1024, 0),
        (1056, 32, 0),
    ):
        args = _join_args(_make_float_arrays(blocks * block), _make_int_arg(512))
        yield TimedLaunch(
            f"work {blocks} of {block}, {shared_bytes} B",
            "work",
            "lanes",
            "work",
            (blocks,),
            (block,),
            args,
            max(shared_bytes, 4 * block),
        )
    n = 1 << 20
    for shared_bytes in (1024, 16384, 49152):
        yield _make_1d_launch(
            f"stream with {shared_bytes} B",
            "stream shared",
            "lanes",
            "stream_shared",
            n,
            _join_args(_make_float_arrays(n, n), _make_int_arg(n)),
            256,
            shared_bytes,
        )
    for stride in (1, 2, 4, 8, 16, 32, 33):
        args = _join_args(_make_float_arrays(264 * 256), _make_int_arg(256), _make_int_arg(stride))
        is_probe = stride in (1, 4, 32)
        yield TimedLaunch(
            f"banks by {stride}", "banks", "lanes", "banks", (264,), (256,), args, is_probe=is_probe
        )
    args = _join_args(_make_integer_array(128, 32), _make_float_arrays(264 * 128), _make_int_arg(128))
    yield TimedLaunch("local array", "local array", "lanes", "local_array", (264,), (128,), args)
    yield TimedLaunch(
        "bitonic", "bitonic", "lanes", "bitonic", (128,), (1024,), _make_integer_array(128 * 1024, 1 << 30)
    )
    yield TimedLaunch(
        "collatz",
        "collatz",
        "lanes",
        "collatz",
        (256,),
        (256,),
        _join_args(_make_random_args("int32", 1 << 16), _make_int_arg(400)),
    )
    n = 1 << 16
    args = _join_args(
        _make_integer_array(n, 1 << 30, 5, 1),
        _make_integer_array(n, 1 << 30, 6, 1),
        _make_random_args("int32", n),
    )
    yield TimedLaunch("gcd", "gcd", "lanes", "gcd", (n // 256,), (256,), args)
    yield TimedLaunch(
        "odd even",
        "odd even",
        "lanes",
        "odd_even",
        (n // 256,),
        (256,),
        _join_args(_make_random_array(n), _make_float_arrays(n), _make_int_arg(16)),
    )


def _make_science_launches() -> Iterator[TimedLaunch]:
    for n in (1024, 4096):
        for kernel in ("bodies", "bodies_tiled"):
            args = _join_args(_make_random_array(4 * n), _make_float_arrays(4 * n), _make_int_arg(n))
            yield TimedLaunch(f"{kernel} {n}", "bodies", "science", kernel, (n // 256,), (256,), args)
    yield TimedLaunch(
        "pi",
        "pi",
        "science",
        "pi_lcg",
        (WAVE,),
        (256,),
        _join_args(_make_random_args("int32", WAVE * 256), _make_int_arg(64)),
    )
    yield TimedLaunch(
        "normals",
        "normals",
        "science",
        "normals",
        (264,),
        (256,),
        _join_args(_make_float_arrays(264 * 256), _make_int_arg(32)),
    )
    for exponent in (16, 20):
        n = 1 << exponent
        args = _join_args(
            _make_random_array(n, 10, 100, 1),
            _make_random_array(n, 10, 100, 2),
            _make_float_arrays(n, n),
            _make_int_arg(n),
        )
        yield _make_1d_launch(
            f"black-scholes 2^{exponent}", "black-scholes", "science", "black_scholes", n, args
        )
        yield _make_1d_launch(
            f"gelu 2^{exponent}",
            "gelu",
            "science",
            "gelu",
            n,
            _join_args(_make_random_array(n, -2, 2), _make_float_arrays(n), _make_int_arg(n)),
        )
    for row_count, mean_length in ((16384, 16), (4096, 100)):
        args = _join_args(_make_sparse_args(row_count, mean_length), _make_int_arg(row_count))
        yield _make_1d_launch(
            f"spmv rows {row_count}x{mean_length}", "spmv", "science", "spmv_rows", row_count, args, 128
        )
        yield _make_1d_launch(
            f"spmv warps {row_count}x{mean_length}", "spmv", "science", "spmv_warps", 32 * row_count, args
        )
    for row_count, column_count in ((1024, 1024), (4096, 256)):
        arrays = _make_float_arrays(row_count * column_count, row_count * column_count)
        args = _join_args(arrays, _make_int_arg(column_count))
        yield TimedLaunch(
            f"softmax block {row_count}x{column_count}",
            "softmax",
            "science",
            "softmax_block",
            (row_count,),
            (256,),
            args,
        )
        yield TimedLaunch(
            f"layernorm {row_count}x{column_count}",
            "layernorm",
            "science",
            "layernorm",
            (row_count,),
            (256,),
            args,
        )
        args = _join_args(arrays, _make_int_arg(column_count), _make_int_arg(row_count))
        yield TimedLaunch(
            f"softmax warp {row_count}x{column_count}",
            "softmax",
            "science",
            "softmax_warp",
            (row_count // 8,),
            (256,),
            args,
        )
    for exponent in (12, 20):
        key_count = 1 << 16
        args = _join_args(
            _make_sorted_indices(1 << exponent),
            _make_integer_array(key_count, 1 << exponent),
            _make_random_args("int32", key_count),
            _make_int_arg(1 << exponent),
        )
        yield _make_1d_launch(
            f"binary search 2^{exponent}", "binary search", "science", "binary_search", key_count, args
        )
    n = 512 * 1024
    yield TimedLaunch(
        "fft 512", "fft", "science", "fft_shared", (n // 512,), (256,), _make_float_arrays(2 * n, 2 * n)
    )
    args = _join_args(
        _make_random_args("uint8", 16384 * 64), _make_random_args("uint32", 16384), _make_int_arg(64)
    )
    yield TimedLaunch("hash", "hash", "science", "fnv_hash", (128,), (128,), args)
    n = 1 << 18
    for degree in (8, 64, 256):
        args = _join_args(
            _make_random_array(n), _make_float_arrays(n), _make_int_arg(n), _make_int_arg(degree)
        )
        yield _make_1d_launch(f"horner {degree}", "horner", "science", "horner", n, args)
    args = _join_args(
        _make_random_array(512 * 32), _make_float_arrays(512 * 512), _make_int_arg(512), _make_int_arg(32)
    )
    yield TimedLaunch("pairwise 512", "pairwise", "science", "pairwise", (32, 32), (16, 16), args)
    yield TimedLaunch(
        "primes",
        "primes",
        "science",
        "primes",
        (256,),
        (256,),
        _join_args(_make_random_args("int32", 1 << 16), _make_int_arg(256)),
    )
    args = _join_args(
        _make_random_array(16 * 1024, seed=1),
        _make_random_array(16 * 1024, seed=2),
        _make_random_array(16 * 1024, seed=3),
        _make_float_arrays(16 * 1024),
        _make_int_arg(1024),
    )
    yield TimedLaunch("attention 1024", "attention", "science", "attention", (16,), (64,), args)


LAUNCHES: tuple[TimedLaunch, ...] = (
    *_make_operation_launches(),
    *_make_chain_launches(),
    *_make_stream_launches(),
    *_make_atomic_launches(),
    *_make_sum_launches(),
    *_make_matrix_launches(),
    *_make_grid_launches(),
    *_make_lane_launches(),
    *_make_science_launches(),
)


# --- CuPy's own functions ------------------------------------------------------------------------
def _add_call(e: int) -> TimedCall:
    def make(cp: Any) -> Callable[[], object]:
        a, b, c = (cp.ones(1 << e, cp.float32) for _ in range(3))
        return lambda: cp.add(a, b, out=c)

    return TimedCall(f"add 2^{e}", make)


def _make_single_call(title: str, e: int, call: Callable[[Any, Any], object]) -> TimedCall:
    def make(cp: Any) -> Callable[[], object]:
        a = cp.ones((1 << (e + 1) // 2, 1 << e // 2), cp.float32)
        return lambda: call(cp, a)

    return TimedCall(f"{title} 2^{e}", make)


def _make_matmul_call(n: int) -> TimedCall:
    def make(cp: Any) -> Callable[[], object]:
        a = cp.ones((n, n), cp.float32)
        b = cp.ones((n, n), cp.float32)
        return lambda: a @ b

    return TimedCall(f"matmul {n}", make)


CALLS: tuple[TimedCall, ...] = (
    *(_add_call(e) for e in (12, 16, 20, 22, 24)),
    *(_make_single_call("exp", e, lambda cp, a: cp.exp(a)) for e in (12, 20, 24)),
    *(_make_single_call("sum", e, lambda cp, a: a.sum()) for e in (12, 20, 24)),
    *(_make_single_call("sum of rows", e, lambda cp, a: a.sum(axis=1)) for e in (20,)),
    *(_make_single_call("sum of columns", e, lambda cp, a: a.sum(axis=0)) for e in (20,)),
    *(_make_single_call("copy of transpose", e, lambda cp, a: cp.ascontiguousarray(a.T)) for e in (20, 22)),
    *(_make_single_call("cumsum", e, lambda cp, a: cp.cumsum(a)) for e in (20,)),
    *(_make_single_call("sort", e, lambda cp, a: cp.sort(a.ravel())) for e in (20,)),
    *(_make_matmul_call(n) for n in (256, 1024)),
)

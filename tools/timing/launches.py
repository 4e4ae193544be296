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
WAVE = 132 * 8  # blocks of 256 threads that an H100's and an H200's 132 SMs hold at once


@dataclass(frozen=True, slots=True)
class Timed:
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
        """Return the kernel on CuPy's current device; `modules` keeps what has been compiled."""
        text = self.code or source(self.file)
        expressions = (self.kernel,) if "<" in self.kernel else ()
        key = (text, *self.options, *expressions)
        if key not in modules:
            modules[key] = cp.RawModule(code=text, options=self.options, name_expressions=expressions or None)
        return modules[key].get_function(self.kernel)


@dataclass(frozen=True, slots=True)
class Called:
    """A CuPy expression to time: `make` prepares the arrays and returns the function to call."""

    name: str
    make: Callable[[Any], Callable[[], object]]


def is_kept(family: str) -> bool:
    """Return whether programs of a family are kept from calibration."""
    return int(hashlib.sha256(family.encode()).hexdigest()[:8], 16) / 2**32 < KEPT_SHARE


@functools.cache
def source(file: str) -> str:
    """CUDA C++ source of one of the files."""
    return (KERNELS / f"{file}.cu").read_text(encoding="utf-8")


# --- arguments -----------------------------------------------------------------------------------
def _int(value: int) -> Arguments:
    return lambda cp: (np.int32(value),)


def _float(value: float) -> Arguments:
    return lambda cp: (np.float32(value),)


def _random_arguments(dtype: str, *sizes: int) -> Arguments:
    return lambda cp: tuple(cp.full(size, 1, dtype=dtype) for size in sizes)


def _floats(*sizes: int) -> Arguments:
    return _random_arguments("float32", *sizes)


def _random(size: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Arguments:
    def make(cp: Any) -> tuple[Any, ...]:
        values = np.random.default_rng(seed).uniform(low, high, size).astype(np.float32)
        return (cp.asarray(values),)

    return make


def _integers(size: int, high: int, seed: int = 0, low: int = 0) -> Arguments:
    def make(cp: Any) -> tuple[Any, ...]:
        return (cp.asarray(np.random.default_rng(seed).integers(low, high, size, dtype=np.int32)),)

    return make


def _skewed(size: int, bins: int) -> Arguments:
    """Return integers below `bins` whose frequencies fall off exponentially."""

    def make(cp: Any) -> tuple[Any, ...]:
        samples = np.random.default_rng(3).exponential(bins / 16, size)
        return (cp.asarray(np.minimum(samples, bins - 1).astype(np.int32)),)

    return make


def _ring(size: int, stride: int, *, shuffled: bool) -> Arguments:
    """Return an array whose `stride`-th integers are indices of a closed chain."""

    def make(cp: Any) -> tuple[Any, ...]:
        indices = np.arange(0, size, stride, dtype=np.int32)
        if shuffled:
            indices = np.random.default_rng(1).permutation(indices)
        chain = np.zeros(size, np.int32)
        chain[indices] = np.roll(indices, -1)
        return (cp.asarray(chain),)

    return make


def _permutation(size: int) -> Arguments:
    return lambda cp: (cp.asarray(np.random.default_rng(2).permutation(size).astype(np.int32)),)


def _sorted(size: int) -> Arguments:
    return lambda cp: (cp.arange(size, dtype=cp.int32),)


def _sparse(rows: int, mean: int) -> Arguments:
    """Return a random sparse matrix with about `mean` entries per row, a vector and space for a product."""

    def make(cp: Any) -> tuple[Any, ...]:
        random = np.random.default_rng(4)
        lengths = random.integers(0, 2 * mean, rows)
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        column = random.integers(0, rows, start[-1]).astype(np.int32)
        value = np.ones(start[-1], np.float32)
        return (
            *map(cp.asarray, (start, column, value)),
            cp.ones(rows, cp.float32),
            cp.zeros(rows, cp.float32),
        )

    return make


def _joined(*argument_makers: Arguments) -> Arguments:
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
_UNMEASURED = ("tanh_f32", "log_f64", "fast_exp4", "xorshift4_s32", "mod_u32")


def _operations() -> Iterator[Timed]:
    for kernel, dtype, rounds in _OPERATIONS:
        for shape, grid, block in (("alone", 1, 32), ("full", WAVE, 256)):
            n = 4 * rounds if shape == "alone" else rounds
            file = "half" if "half" in kernel else "operations"
            args = _joined(_random_arguments(dtype, grid * block), _int(n), _int(7))
            yield Timed(
                f"{kernel} {shape}",
                f"operation {kernel}",
                file,
                kernel,
                (grid,),
                (block,),
                args,
                is_probe=kernel not in _UNMEASURED,
            )
    for name, grid, block in (
        ("one", 1, 32),
        ("one large", 1, 1024),
        ("a wave", WAVE, 256),
        ("many", 8192, 256),
        ("many small", 16384, 32),
        ("many large", 4096, 1024),
    ):
        yield Timed(
            f"empty {name}", "empty", "operations", "empty", (grid,), (block,), lambda cp: (), is_probe=True
        )
    for block in (32, 256, 1024):
        args = _joined(_random_arguments("int32", 132 * block), _int(200), _int(7))
        yield Timed(
            f"barriers {block}", "barriers", "operations", "barriers", (132,), (block,), args, is_probe=True
        )
    for lanes in (1, 32):
        args = _joined(_floats(132 * 256), _int(256), _int(lanes))
        yield Timed(
            f"constant {lanes}",
            "constant",
            "operations",
            "constant_read",
            (132,),
            (256,),
            args,
            is_probe=True,
        )


def _chains() -> Iterator[Timed]:
    for kib, stride, shuffled in (
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
        size = kib * 256
        order = "shuffled" if shuffled else "in order"
        yield Timed(
            f"chase {kib} KiB by {4 * stride} {order}",
            "chase",
            "memory",
            "chase",
            (1,),
            (1,),
            _joined(_ring(size, stride, shuffled=shuffled), _random_arguments("int32", 32), _int(4096)),
            is_probe=True,
        )
    for kib, grid, block in ((2048, 132, 32), (2048, 132, 256), (16384, WAVE, 256)):
        size = kib * 256
        yield Timed(
            f"chase {kib} KiB, {grid} blocks of {block}",
            "chase many",
            "memory",
            "chase_many",
            (grid,),
            (block,),
            _joined(_permutation(size), _random_arguments("int32", grid * block), _int(64), _int(size)),
        )


# --- programs ------------------------------------------------------------------------------------
def _line(
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
) -> Timed:
    grid = -(-n // (block * per_thread))
    return Timed(name, family, file, kernel, (grid,), (block,), args, shared_bytes, is_probe)


def _streams() -> Iterator[Timed]:
    for exponent in (10, 14, 16, 18, 20, 22, 24, 25):
        n = 1 << exponent
        yield _line(
            f"copy 2^{exponent}", "copy", "memory", "copy1", n, _joined(_floats(n, n), _int(n)), is_probe=True
        )
    for exponent in (16, 20, 23, 25):
        n = 1 << exponent
        args = _joined(_floats(n, n, n), _float(2.0), _int(n))
        yield _line(f"triad 2^{exponent}", "triad", "memory", "triad", n, args)
    for block in (32, 64, 128, 512, 1024):
        n = 1 << 22
        args = _joined(_floats(n, n), _int(n))
        yield _line(f"copy 2^22 by {block}", "copy", "memory", "copy1", n, args, block, is_probe=True)
    for width in (2, 4):
        for exponent in (18, 22, 25):
            n = (1 << exponent) // width
            args = _joined(_floats(1 << exponent, 1 << exponent), _int(n))
            yield _line(f"copy{width} 2^{exponent}", "copy wide", "memory", f"copy{width}", n, args)
    n = 1 << 23
    yield _line(
        "copy bytes",
        "copy bytes",
        "memory",
        "copy_bytes",
        n,
        _joined(_random_arguments("int8", n, n), _int(n)),
    )
    for exponent in (18, 22, 25):
        n = 1 << exponent
        args = _joined(_floats(n), _float(2.0), _int(n))
        yield _line(f"write 2^{exponent}", "write", "memory", "write1", n, args, is_probe=True)
        args = _joined(_floats(n, n), _float(2.0), _int(n))
        yield Timed(
            f"saxpy steps 2^{exponent}", "saxpy steps", "memory", "saxpy_steps", (WAVE,), (256,), args
        )
        args = _joined(_floats(n, n), _int(n))
        yield Timed(f"read steps 2^{exponent}", "read steps", "memory", "read_steps", (WAVE,), (256,), args)
    n = 1 << 25
    args = _joined(_floats(n, WAVE * 256), _int(n // 4))
    yield Timed("read steps4 2^25", "read steps", "memory", "read_steps4", (WAVE,), (256,), args)
    n = 1 << 22
    args = _joined(_random_arguments("float64", n, n, n), lambda cp: (2.0,), _int(n))
    yield _line("triad f64 2^22", "triad", "memory", "triad_f64", n, args)
    n = 1 << 20
    for stride in (2, 4, 8, 16, 32):
        args = _joined(_floats(n * stride, n), _int(n), _int(stride))
        probe = stride != 4
        yield _line(f"read by {stride}", "read strided", "memory", "read_strided", n, args, is_probe=probe)
    for stride in (2, 8, 32):
        args = _joined(_floats(n, n * stride), _int(n), _int(stride))
        yield _line(f"write by {stride}", "write strided", "memory", "write_strided", n, args)
    n = 1 << 22
    for offset in (0, 1, 16):
        args = _joined(_floats(n + 32, n), _int(n), _int(offset))
        yield _line(f"copy from {offset}", "offset copy", "memory", "offset_copy", n, args)
    for exponent in (16, 20, 22, 24):
        n = 1 << exponent
        args = _joined(_floats(n), _permutation(n), _floats(n), _int(n))
        yield _line(
            f"gather 2^{exponent}", "gather", "memory", "gather", n, args, is_probe=exponent in (20, 24)
        )
    for exponent in (18, 20, 23):
        n = 1 << exponent
        args = _joined(_floats(n), _permutation(n), _floats(n), _int(n))
        yield _line(f"scatter 2^{exponent}", "scatter", "memory", "scatter", n, args)
    n = 1 << 20
    for layout_name in ("aos", "soa"):
        args = _joined(_floats(4 * n, n), _int(n))
        yield _line(f"structs {layout_name}", "structs", "memory", f"structs_{layout_name}", n, args)
    for layout_name in ("columns", "rows"):
        for rows, columns in ((1024, 1024), (256, 8192)):
            threads = columns if layout_name == "columns" else rows
            args = _joined(_floats(rows * columns, threads), _int(rows), _int(columns))
            yield _line(
                f"sum of {layout_name} {rows}x{columns}",
                f"sum of {layout_name}",
                "memory",
                f"sum_{layout_name}",
                threads,
                args,
                128,
            )
    n = 1 << 21
    args = _joined(_random_arguments("uint8", 4 * n, n), _int(n))
    yield _line("gray 2^21", "gray", "memory", "rgb_to_gray", n, args)


def _atomics() -> Iterator[Timed]:
    n = 1 << 18
    for address_count in (1, 32, 1024, n):
        yield _line(
            f"atomic int over {address_count}",
            "atomic",
            "atomics",
            "modulo_int",
            n,
            _joined(_random_arguments("int32", address_count), _int(address_count)),
            is_probe=True,
        )
    for address_count in (1, 32, 4096):
        args = _joined(_floats(address_count), _int(address_count))
        yield _line(
            f"atomic float over {address_count}",
            "atomic float",
            "atomics",
            "modulo_float",
            n,
            args,
            is_probe=True,
        )
    for address_count in (1, 1024):
        args = _joined(_random_arguments("float64", address_count), _int(address_count))
        yield _line(f"atomic double over {address_count}", "atomic double", "atomics", "modulo_f64", n, args)
    for address_count in (1, 64):
        args = _joined(_random_arguments("int32", address_count), _int(address_count))
        yield _line(
            f"atomic per warp over {address_count}",
            "atomic per warp",
            "atomics",
            "per_warp",
            n,
            args,
            is_probe=True,
        )
    args = _joined(_random_arguments("int32", 1), _int(1))
    yield _line("atomic to one", "atomic", "atomics", "one_address", n, args, is_probe=True)
    args = _joined(_random_arguments("int32", 1 << 20), _int(1 << 20))
    yield _line("atomic spread", "atomic", "atomics", "spread", n, args, is_probe=True)
    for address_count in (1, 1024, 1 << 18):
        args = _joined(_random_arguments("int32", address_count, n), _int(address_count))
        yield _line(
            f"atomic returned over {address_count}",
            "atomic returned",
            "atomics",
            "returned",
            n,
            args,
            is_probe=address_count == 1024,
        )
    for name, bins, address_count in (
        ("uniform", _integers(n, 256), 256),
        ("wide", _integers(n, 65536), 65536),
        ("skewed", _skewed(n, 256), 256),
    ):
        args = _joined(bins, _random_arguments("int32", address_count), _int(n))
        yield _line(f"histogram global {name}", "histogram global", "atomics", "random_bins", n, args)
        if address_count == 256:
            args = _joined(
                bins, _random_arguments("int32", address_count), _int(n), _int(address_count), _int(4)
            )
            yield _line(
                f"histogram shared {name}",
                "histogram shared",
                "atomics",
                "shared_bins",
                n,
                args,
                per_thread=4,
            )
    for address_count in (1, 32):
        args = _joined(
            _integers(n, 1 << 20),
            _random_arguments("int32", address_count),
            _int(n),
            _int(address_count),
            _int(4),
        )
        yield _line(
            f"shared atomic over {address_count}",
            "shared atomic",
            "atomics",
            "shared_bins",
            n,
            args,
            per_thread=4,
            is_probe=True,
        )
    args = _joined(_integers(n, 1 << 20), _random_arguments("int32", 1), _int(n))
    yield _line("atomic max", "atomic max", "atomics", "maximum", n, args)
    yield _line(
        "aggregated",
        "aggregated",
        "atomics",
        "aggregated",
        n,
        _joined(_random_arguments("int32", 1), _integers(n, 10, low=-10), _int(n)),
    )
    for address_count in (256, 16384):
        yield _line(
            f"cas over {address_count}",
            "cas",
            "atomics",
            "cas_loop",
            1 << 14,
            _joined(_floats(address_count), _int(address_count)),
        )


def _sums() -> Iterator[Timed]:
    for style in ("interleaved", "conflicts", "tree"):
        for exponent in (18, 22):
            n = 1 << exponent
            args = _joined(_floats(n, n // 256), _int(n))
            yield _line(f"sum {style} 2^{exponent}", f"sum {style}", "reduce", f"sum_{style}", n, args)
    for kernel in ("sum_shuffles", "dot"):
        for exponent in (18, 22, 24):
            n = 1 << exponent
            arrays = _floats(n, 1) if kernel == "sum_shuffles" else _floats(n, n, 1)
            title = kernel.replace("_", " ")
            yield Timed(
                f"{title} 2^{exponent}", title, "reduce", kernel, (264,), (256,), _joined(arrays, _int(n))
            )
    n = 1 << 19
    for style, threads, elements_per_block in (("steps", 512, 512), ("tree", 512, 1024), ("warps", 512, 512)):
        yield Timed(
            f"scan {style}",
            f"scan {style}",
            "reduce",
            f"scan_{style}",
            (n // elements_per_block,),
            (threads,),
            _floats(n, n),
        )


def _matrices() -> Iterator[Timed]:
    for kernel, tile, sizes in (
        ("naive", 16, (128, 256, 512)),
        ("swapped", 16, (256,)),
        ("tiled16", 16, (128, 256, 512)),
        ("tiled32", 32, (256, 512)),
        ("f64", 16, (256,)),
    ):
        for n in sizes:
            args = _joined(
                _random_arguments("float64" if kernel == "f64" else "float32", n * n, n * n, n * n), _int(n)
            )
            yield Timed(
                f"product {kernel} {n}",
                f"product {kernel}",
                "matrices",
                f"product_{kernel}",
                (n // tile, n // tile),
                (tile, tile),
                args,
            )
    for n in (256, 512):
        yield Timed(
            f"product registers {n}",
            "product registers",
            "matrices",
            "product_registers",
            (n // 64, n // 64),
            (256,),
            _joined(_floats(n * n, n * n, n * n), _int(n)),
        )
    for n in (512, 1024):
        args = _joined(_floats(n * n, n, n), _int(n))
        yield Timed(
            f"matrix-vector warps {n}", "vector rows", "matrices", "vector_rows", (n // 8,), (256,), args
        )
        yield Timed(
            f"matrix-vector naive {n}", "vector naive", "matrices", "vector_naive", (n // 64,), (64,), args
        )
    for style in ("reads", "writes", "tile32", "tile33"):
        for n in (512, 2048):
            yield Timed(
                f"transpose {style} {n}",
                f"transpose {style}",
                "matrices",
                f"transpose_{style}",
                (n // 32, n // 32),
                (32, 8),
                _joined(_floats(n * n, n * n), _int(n)),
            )
    args = _joined(_floats(1024 * 1024, 1024 * 1024), _int(1024))
    yield Timed("transpose 16", "transpose 16", "matrices", "transpose_16", (64, 64), (16, 16), args)


def _grids() -> Iterator[Timed]:
    for exponent in (18, 22):
        n = 1 << exponent
        for kernel in ("line7", "line7_shared"):
            yield _line(f"{kernel} 2^{exponent}", kernel, "grids", kernel, n, _joined(_floats(n, n), _int(n)))
    for side_length in (512, 2048):
        args = _joined(
            _floats(side_length * side_length, side_length * side_length),
            _int(side_length),
            _int(side_length),
        )
        for kernel in ("heat", "heat_shared", "convolve5", "sobel"):
            yield Timed(
                f"{kernel} {side_length}",
                kernel,
                "grids",
                kernel,
                (side_length // 32, side_length // 16),
                (32, 16),
                args,
            )
    args = _joined(_floats(128**3, 128**3), _int(128))
    yield Timed("cube7 128", "cube7", "grids", "cube7", (4, 32, 128), (32, 4), args)
    cells = _joined(_random_arguments("uint8", 512 * 512, 512 * 512), _int(512), _int(512))
    yield Timed("life 512", "life", "grids", "life", (16, 64), (32, 8), cells)
    for side_length in (128, 1024):
        args = _joined(
            _random_arguments("int32", side_length * side_length),
            _int(side_length),
            _int(side_length),
            _int(200),
        )
        yield Timed(
            f"mandelbrot {side_length}",
            "mandelbrot",
            "grids",
            "mandelbrot",
            (side_length // 16, side_length // 16),
            (16, 16),
            args,
        )
    args = _joined(_floats(512 * 512), _int(512), _int(512), _int(100))
    yield Timed("julia 512", "julia", "grids", "julia", (16, 64), (32, 8), args)


def _lanes() -> Iterator[Timed]:
    for way_count in (1, 2, 4, 16, 32):
        args = _joined(_floats(WAVE * 256), _int(32), _int(way_count))
        yield Timed(f"{way_count} ways", "ways", "lanes", "ways", (WAVE,), (256,), args)
    yield Timed("stairs", "stairs", "lanes", "stairs", (WAVE,), (256,), _joined(_floats(WAVE * 256), _int(8)))
    for blocks in (132, 1000, 3000):
        args = _joined(_floats(blocks * 128), _int(8))
        yield Timed(f"uneven {blocks}", "uneven blocks", "lanes", "uneven_blocks", (blocks,), (128,), args)
    yield Timed(
        "late block",
        "late block",
        "lanes",
        "late_block",
        (400,),
        (256,),
        _joined(_floats(400 * 256), _int(200)),
    )
    for blocks, block, shared in (
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
        args = _joined(_floats(blocks * block), _int(512))
        yield Timed(
            f"work {blocks} of {block}, {shared} B",
            "work",
            "lanes",
            "work",
            (blocks,),
            (block,),
            args,
            max(shared, 4 * block),
        )
    n = 1 << 20
    for shared in (1024, 16384, 49152):
        yield _line(
            f"stream with {shared} B",
            "stream shared",
            "lanes",
            "stream_shared",
            n,
            _joined(_floats(n, n), _int(n)),
            256,
            shared,
        )
    for stride in (1, 2, 4, 8, 16, 32, 33):
        args = _joined(_floats(264 * 256), _int(256), _int(stride))
        probe = stride in (1, 4, 32)
        yield Timed(f"banks by {stride}", "banks", "lanes", "banks", (264,), (256,), args, is_probe=probe)
    args = _joined(_integers(128, 32), _floats(264 * 128), _int(128))
    yield Timed("local array", "local array", "lanes", "local_array", (264,), (128,), args)
    yield Timed("bitonic", "bitonic", "lanes", "bitonic", (128,), (1024,), _integers(128 * 1024, 1 << 30))
    yield Timed(
        "collatz",
        "collatz",
        "lanes",
        "collatz",
        (256,),
        (256,),
        _joined(_random_arguments("int32", 1 << 16), _int(400)),
    )
    n = 1 << 16
    args = _joined(_integers(n, 1 << 30, 5, 1), _integers(n, 1 << 30, 6, 1), _random_arguments("int32", n))
    yield Timed("gcd", "gcd", "lanes", "gcd", (n // 256,), (256,), args)
    yield Timed(
        "odd even",
        "odd even",
        "lanes",
        "odd_even",
        (n // 256,),
        (256,),
        _joined(_random(n), _floats(n), _int(16)),
    )


def _science() -> Iterator[Timed]:
    for n in (1024, 4096):
        for kernel in ("bodies", "bodies_tiled"):
            args = _joined(_random(4 * n), _floats(4 * n), _int(n))
            yield Timed(f"{kernel} {n}", "bodies", "science", kernel, (n // 256,), (256,), args)
    yield Timed(
        "pi",
        "pi",
        "science",
        "pi_lcg",
        (WAVE,),
        (256,),
        _joined(_random_arguments("int32", WAVE * 256), _int(64)),
    )
    yield Timed(
        "normals", "normals", "science", "normals", (264,), (256,), _joined(_floats(264 * 256), _int(32))
    )
    for exponent in (16, 20):
        n = 1 << exponent
        args = _joined(_random(n, 10, 100, 1), _random(n, 10, 100, 2), _floats(n, n), _int(n))
        yield _line(f"black-scholes 2^{exponent}", "black-scholes", "science", "black_scholes", n, args)
        yield _line(
            f"gelu 2^{exponent}",
            "gelu",
            "science",
            "gelu",
            n,
            _joined(_random(n, -2, 2), _floats(n), _int(n)),
        )
    for rows, mean in ((16384, 16), (4096, 100)):
        args = _joined(_sparse(rows, mean), _int(rows))
        yield _line(f"spmv rows {rows}x{mean}", "spmv", "science", "spmv_rows", rows, args, 128)
        yield _line(f"spmv warps {rows}x{mean}", "spmv", "science", "spmv_warps", 32 * rows, args)
    for rows, columns in ((1024, 1024), (4096, 256)):
        arrays = _floats(rows * columns, rows * columns)
        args = _joined(arrays, _int(columns))
        yield Timed(
            f"softmax block {rows}x{columns}", "softmax", "science", "softmax_block", (rows,), (256,), args
        )
        yield Timed(f"layernorm {rows}x{columns}", "layernorm", "science", "layernorm", (rows,), (256,), args)
        args = _joined(arrays, _int(columns), _int(rows))
        yield Timed(
            f"softmax warp {rows}x{columns}", "softmax", "science", "softmax_warp", (rows // 8,), (256,), args
        )
    for exponent in (12, 20):
        key_count = 1 << 16
        args = _joined(
            _sorted(1 << exponent),
            _integers(key_count, 1 << exponent),
            _random_arguments("int32", key_count),
            _int(1 << exponent),
        )
        yield _line(
            f"binary search 2^{exponent}", "binary search", "science", "binary_search", key_count, args
        )
    n = 512 * 1024
    yield Timed("fft 512", "fft", "science", "fft_shared", (n // 512,), (256,), _floats(2 * n, 2 * n))
    args = _joined(_random_arguments("uint8", 16384 * 64), _random_arguments("uint32", 16384), _int(64))
    yield Timed("hash", "hash", "science", "fnv_hash", (128,), (128,), args)
    n = 1 << 18
    for degree in (8, 64, 256):
        args = _joined(_random(n), _floats(n), _int(n), _int(degree))
        yield _line(f"horner {degree}", "horner", "science", "horner", n, args)
    args = _joined(_random(512 * 32), _floats(512 * 512), _int(512), _int(32))
    yield Timed("pairwise 512", "pairwise", "science", "pairwise", (32, 32), (16, 16), args)
    yield Timed(
        "primes",
        "primes",
        "science",
        "primes",
        (256,),
        (256,),
        _joined(_random_arguments("int32", 1 << 16), _int(256)),
    )
    args = _joined(
        _random(16 * 1024, seed=1),
        _random(16 * 1024, seed=2),
        _random(16 * 1024, seed=3),
        _floats(16 * 1024),
        _int(1024),
    )
    yield Timed("attention 1024", "attention", "science", "attention", (16,), (64,), args)


LAUNCHES: tuple[Timed, ...] = (
    *_operations(),
    *_chains(),
    *_streams(),
    *_atomics(),
    *_sums(),
    *_matrices(),
    *_grids(),
    *_lanes(),
    *_science(),
)


# --- CuPy's own functions ------------------------------------------------------------------------
def _add(e: int) -> Called:
    def make(cp: Any) -> Callable[[], object]:
        a, b, c = (cp.ones(1 << e, cp.float32) for _ in range(3))
        return lambda: cp.add(a, b, out=c)

    return Called(f"add 2^{e}", make)


def _single_case(title: str, e: int, call: Callable[[Any, Any], object]) -> Called:
    def make(cp: Any) -> Callable[[], object]:
        a = cp.ones((1 << (e + 1) // 2, 1 << e // 2), cp.float32)
        return lambda: call(cp, a)

    return Called(f"{title} 2^{e}", make)


def _product(n: int) -> Called:
    def make(cp: Any) -> Callable[[], object]:
        a = cp.ones((n, n), cp.float32)
        b = cp.ones((n, n), cp.float32)
        return lambda: a @ b

    return Called(f"matmul {n}", make)


CALLS: tuple[Called, ...] = (
    *(_add(e) for e in (12, 16, 20, 22, 24)),
    *(_single_case("exp", e, lambda cp, a: cp.exp(a)) for e in (12, 20, 24)),
    *(_single_case("sum", e, lambda cp, a: a.sum()) for e in (12, 20, 24)),
    *(_single_case("sum of rows", e, lambda cp, a: a.sum(axis=1)) for e in (20,)),
    *(_single_case("sum of columns", e, lambda cp, a: a.sum(axis=0)) for e in (20,)),
    *(_single_case("copy of transpose", e, lambda cp, a: cp.ascontiguousarray(a.T)) for e in (20, 22)),
    *(_single_case("cumsum", e, lambda cp, a: cp.cumsum(a)) for e in (20,)),
    *(_single_case("sort", e, lambda cp, a: cp.sort(a.ravel())) for e in (20,)),
    *(_product(n) for n in (256, 1024)),
)

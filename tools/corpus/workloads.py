"""Launches long enough to time, to calibrate the cost model and compare it with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.corpus import read_kernel_code
from virtualgpu.records import Dim3

Arrays = Callable[[Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Workload:
    """A launch to time.

    Parameters
    ----------
    name
        Unique name.
    file, kernel
        File in ``tools/corpus/kernels`` and the kernel's name in it.
    grid, block, shared_bytes
        Launch shape.
    make_args
        Array module (CuPy or the virtual GPU's) -> kernel arguments.
    bytes_moved
        Bytes the algorithm must read and write at least once in global memory.
    flop
        Floating-point operations, a fused multiply-add counting two.
    """

    name: str
    file: str
    kernel: str
    grid: Dim3
    block: Dim3
    make_args: Arrays
    bytes_moved: int
    flop: int = 0
    shared_bytes: int = 0

    @property
    def code(self) -> str:
        """The CUDA C++ source of the workload's file."""
        return read_kernel_code(self.file)


def _make_vector_args(n: int, vector_count: int) -> Arrays:
    return lambda cp: (*(cp.ones(n, dtype=np.float32) for _ in range(vector_count)), np.int32(n))


def _make_add_workload(exponent: int) -> Workload:
    n = 1 << exponent
    return Workload(
        f"vector_add_2^{exponent}",
        "vector_add.cu",
        "vector_add",
        (-(-n // 256), 1, 1),
        (256, 1, 1),
        _make_vector_args(n, 3),
        12 * n,
        n,
    )


def _make_empty_workload(blocks: int) -> Workload:
    return Workload(f"empty_{blocks}", "empty.cu", "empty", (blocks, 1, 1), (256, 1, 1), lambda cp: (), 0)


def _make_matmul_workload(kernel: str, n: int) -> Workload:
    def make(cp: Any) -> tuple[Any, ...]:
        return (*(cp.ones((n, n), dtype=np.float32) for _ in range(3)), np.int32(n))

    blocks = -(-n // 16)
    return Workload(
        f"{kernel}_{n}",
        "matmul.cu",
        kernel,
        (blocks, blocks, 1),
        (16, 16, 1),
        make,
        12 * n * n,
        2 * n**3,
    )


def _make_transpose_workload(kernel: str, n: int) -> Workload:
    def make(cp: Any) -> tuple[Any, ...]:
        return cp.ones((n, n), dtype=np.float32), cp.zeros((n, n), dtype=np.float32), np.int32(n)

    return Workload(
        f"{kernel}_{n}", "transpose.cu", kernel, (n // 32, n // 32, 1), (32, 8, 1), make, 8 * n * n
    )


def _make_copy_workload(stride: int) -> Workload:
    n = 1 << 24

    def make(cp: Any) -> tuple[Any, ...]:
        return *_make_vector_args(n, 2)(cp), np.int32(stride)

    return Workload(
        f"copy_stride_{stride}_2^24",
        "copy.cu",
        "copy_strided",
        (n // 256, 1, 1),
        (256, 1, 1),
        make,
        8 * n,
    )


def _make_sum_workload(kernel: str) -> Workload:
    n = 1 << 24

    def make(cp: Any) -> tuple[Any, ...]:
        return cp.ones(n, dtype=np.float32), cp.zeros(n // 256, dtype=np.float32), np.int32(n)

    shared_bytes = 1024 if kernel == "block_sum" else 0
    return Workload(
        f"{kernel}_2^24", "reduce.cu", kernel, (n // 256, 1, 1), (256, 1, 1), make, 4 * n, n, shared_bytes
    )


def _make_mandelbrot(width: int, height: int, max_iterations: int) -> Workload:
    def make(cp: Any) -> tuple[Any, ...]:
        return (
            cp.zeros((height, width), dtype=np.int32),
            np.int32(width),
            np.int32(height),
            np.int32(max_iterations),
        )

    return Workload(
        f"mandelbrot_{width}x{height}",
        "mandelbrot.cu",
        "mandelbrot",
        (-(-width // 16), -(-height // 8), 1),
        (16, 8, 1),
        make,
        4 * width * height,
    )


def _make_stencil_workload() -> Workload:
    n = 1 << 24
    return Workload(
        "stencil_2^24",
        "stencil.cu",
        "stencil",
        (n // 128, 1, 1),
        (128, 1, 1),
        _make_vector_args(n, 2),
        8 * n,
        14 * n,
        (128 + 6) * 4,
    )


WORKLOADS: tuple[Workload, ...] = (
    _make_empty_workload(1),
    _make_empty_workload(4096),
    *(_make_add_workload(exponent) for exponent in (12, 16, 18, 20, 22, 24, 26)),
    *(_make_copy_workload(stride) for stride in (1, 2, 8, 32)),
    *(
        _make_transpose_workload(kernel, 4096)
        for kernel in ("transpose_naive", "transpose_conflicts", "transpose_padded")
    ),
    _make_matmul_workload("matmul_naive", 512),
    _make_matmul_workload("matmul_naive", 1024),
    *(_make_matmul_workload("matmul_tiled", n) for n in (256, 512, 1024, 2048)),
    _make_sum_workload("block_sum"),
    _make_sum_workload("warp_sum"),
    _make_stencil_workload(),
    _make_mandelbrot(512, 384, 200),
    _make_mandelbrot(2048, 1536, 200),
)


def find_workload(name: str) -> Workload:
    """Return the workload of that name.

    Raises
    ------
    KeyError
        If there is no such workload; the message lists the names.
    """
    for candidate in WORKLOADS:
        if candidate.name == name:
            return candidate
    raise KeyError(f"no workload {name!r}; there are {', '.join(w.name for w in WORKLOADS)}")

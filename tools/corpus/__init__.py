"""The course's own kernels as runnable cases: source, launch shape, inputs and expected outputs.

The same cases test the virtual GPU against NumPy, make the hardware recordings that continuous
integration compares with, and serve the notebooks as ready examples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.corpus import inputs, references
from tools.corpus.inputs import Arguments, Array
from virtualgpu.records import Dim3


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel with its launch shape, inputs and expected outputs.

    Parameters
    ----------
    name
        Unique name of the case.
    file, kernel
        File in ``tools/corpus/kernels`` and the kernel's name in it.
    grid, block, shared_bytes
        Launch shape; ``shared_bytes`` is dynamic shared memory.
    make_args
        Seed -> `Arguments`. The same seed always gives the same bits.
    exact
        Whether every GPU must give the same bits (integer and IEEE arithmetic).
    ulp, atol
        Allowed distance from another GPU's answer when not `exact`: in units in the last place, or
        absolute, whichever is met.
    reference
        What NumPy expects in the output arrays, or None where it has no simple answer.
    rtol
        Relative and absolute tolerance of the comparison with `reference`; 0 means equal.
    """

    name: str
    file: str
    kernel: str
    grid: Dim3
    block: Dim3
    make_args: Callable[[int], Arguments]
    reference: Callable[[Sequence[Any]], tuple[Array, ...]] | None
    shared_bytes: int = 0
    exact: bool = True
    ulp: int = 0
    atol: float = 0.0
    rtol: float = 0.0
    options: tuple[str, ...] = ()
    stdout_lines: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The CUDA C++ source of the case's file."""
        return read_kernel_code(self.file)

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


def read_kernel_code(file: str) -> str:
    """Read one of the course's kernel files, such as ``"matmul.cu"``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    """
    return (Path(__file__).parent / "kernels" / file).read_text(encoding="utf-8")


def list_kernel_files() -> tuple[str, ...]:
    """Names of all kernel files, sorted."""
    folder = Path(__file__).parent / "kernels"
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".cu")))


def find_case(name: str) -> Case:
    """Return the case of that name.

    Raises
    ------
    KeyError
        If there is no such case; the message lists the names.
    """
    for candidate in CASES:
        if candidate.name == name:
            return candidate
    raise KeyError(f"no case {name!r}; there are {', '.join(c.name for c in CASES)}")


CASES: tuple[Case, ...] = (
    Case(
        "vector_add",
        "vector_add.cu",
        "vector_add",
        (40, 1, 1),
        (256, 1, 1),
        inputs.vector_add,
        lambda v: (v[0] + v[1],),
    ),
    Case(
        "saxpy",
        "saxpy.cu",
        "saxpy",
        (6, 1, 1),
        (192, 1, 1),
        inputs.saxpy,
        lambda v: (v[0].astype(np.float64) * v[1] + v[2],),
        rtol=1e-5,
    ),
    Case(
        "matmul_naive",
        "matmul.cu",
        "matmul_naive",
        (4, 4, 1),
        (16, 16, 1),
        functools.partial(inputs.matmul, n=50),
        references.matmul,
        rtol=1e-4,
    ),
    Case(
        "matmul_tiled",
        "matmul.cu",
        "matmul_tiled",
        (4, 4, 1),
        (16, 16, 1),
        inputs.matmul,
        references.matmul,
        rtol=1e-4,
    ),
    Case(
        "transpose_naive",
        "transpose.cu",
        "transpose_naive",
        (4, 4, 1),
        (32, 8, 1),
        inputs.transpose,
        references.transpose,
    ),
    Case(
        "transpose_conflicts",
        "transpose.cu",
        "transpose_conflicts",
        (4, 4, 1),
        (32, 8, 1),
        inputs.transpose,
        references.transpose,
    ),
    Case(
        "transpose_padded",
        "transpose.cu",
        "transpose_padded",
        (4, 4, 1),
        (32, 8, 1),
        inputs.transpose,
        references.transpose,
    ),
    Case(
        "block_sum",
        "reduce.cu",
        "block_sum",
        (20, 1, 1),
        (256, 1, 1),
        inputs.block_sums,
        references.block_sums,
        shared_bytes=1024,
        rtol=1e-5,
    ),
    Case(
        "warp_sum",
        "reduce.cu",
        "warp_sum",
        (20, 1, 1),
        (256, 1, 1),
        inputs.block_sums,
        references.block_sums,
        rtol=1e-5,
    ),
    Case("shuffles", "shuffle.cu", "shuffles", (2, 1, 1), (128, 1, 1), inputs.shuffles, references.shuffles),
    Case("vote", "vote.cu", "vote", (4, 1, 1), (256, 1, 1), inputs.vote, references.vote),
    Case(
        "two_ways",
        "divergence.cu",
        "two_ways",
        (16, 1, 1),
        (128, 1, 1),
        inputs.two_ways,
        references.two_ways,
    ),
    Case(
        "two_ways_by_warp",
        "divergence.cu",
        "two_ways_by_warp",
        (16, 1, 1),
        (128, 1, 1),
        inputs.two_ways,
        references.two_ways_by_warp,
    ),
    Case(
        "four_ways",
        "divergence.cu",
        "four_ways",
        (4, 1, 1),
        (128, 1, 1),
        inputs.words,
        references.four_ways,
    ),
    Case("stairs", "divergence.cu", "stairs", (4, 1, 1), (128, 1, 1), inputs.words, references.stairs),
    Case("gcd", "divergence.cu", "gcd", (6, 1, 1), (128, 1, 1), inputs.gcd, references.gcd),
    Case("maze", "divergence.cu", "maze", (12, 1, 1), (128, 1, 1), inputs.maze, references.maze),
    Case("collatz", "divergence.cu", "collatz", (4, 1, 1), (128, 1, 1), inputs.collatz, references.collatz),
    Case(
        "histogram",
        "histogram.cu",
        "histogram",
        (8, 1, 1),
        (256, 1, 1),
        inputs.histogram,
        references.histogram,
    ),
    Case("totals", "atomics.cu", "totals", (12, 1, 1), (256, 1, 1), inputs.totals, references.totals),
    Case(
        "inclusive_scan",
        "scan.cu",
        "inclusive_scan",
        (12, 1, 1),
        (256, 1, 1),
        inputs.scan,
        references.scan,
        shared_bytes=2048,
    ),
    Case(
        "stencil",
        "stencil.cu",
        "stencil",
        (40, 1, 1),
        (128, 1, 1),
        inputs.stencil,
        references.stencil,
        shared_bytes=(128 + 6) * 4,
        rtol=1e-4,
    ),
    Case("mandelbrot", "mandelbrot.cu", "mandelbrot", (6, 8, 1), (16, 8, 1), inputs.mandelbrot, None),
    Case(
        "copy_stride_2",
        "copy.cu",
        "copy_strided",
        (32, 1, 1),
        (256, 1, 1),
        functools.partial(inputs.copy_strided, stride=2),
        references.copy_strided,
    ),
    Case(
        "copy_stride_33",
        "copy.cu",
        "copy_strided",
        (32, 1, 1),
        (256, 1, 1),
        functools.partial(inputs.copy_strided, stride=33),
        references.copy_strided,
    ),
    Case("gather", "copy.cu", "gather", (16, 1, 1), (256, 1, 1), inputs.gather, references.gather),
    Case(
        "copy_float4", "copy.cu", "copy_float4", (8, 1, 1), (128, 1, 1), inputs.copy_float4, lambda v: (v[0],)
    ),
    Case(
        "copy_double",
        "copy.cu",
        "copy_double",
        (12, 1, 1),
        (256, 1, 1),
        inputs.copy_double,
        references.copy_double,
    ),
    Case(
        "bank_stride_1",
        "banks.cu",
        "bank_stride",
        (4, 1, 1),
        (256, 1, 1),
        functools.partial(inputs.bank_stride, stride=1),
        references.bank_stride,
    ),
    Case(
        "bank_stride_6",
        "banks.cu",
        "bank_stride",
        (4, 1, 1),
        (256, 1, 1),
        functools.partial(inputs.bank_stride, stride=6),
        references.bank_stride,
    ),
    Case(
        "bank_stride_32",
        "banks.cu",
        "bank_stride",
        (4, 1, 1),
        (256, 1, 1),
        functools.partial(inputs.bank_stride, stride=32),
        references.bank_stride,
    ),
    Case(
        "bitonic_sort",
        "sort.cu",
        "bitonic_sort",
        (4, 1, 1),
        (256, 1, 1),
        inputs.sort,
        references.sort,
        shared_bytes=1024,
    ),
    Case(
        "odd_even_sort",
        "sort.cu",
        "odd_even_sort",
        (4, 1, 1),
        (128, 1, 1),
        inputs.sort,
        references.sort,
        shared_bytes=1024,
    ),
    Case("mix32", "integers.cu", "mix32", (12, 1, 1), (256, 1, 1), inputs.mix32, references.mix32),
    Case("mix64", "integers.cu", "mix64", (8, 1, 1), (256, 1, 1), inputs.mix64, references.mix64),
    Case("bits", "integers.cu", "bits", (12, 1, 1), (256, 1, 1), inputs.mix32, references.bits),
    Case(
        "polynomial",
        "precision.cu",
        "polynomial",
        (8, 1, 1),
        (256, 1, 1),
        inputs.polynomial,
        references.polynomial,
        rtol=1e-14,
    ),
    Case("ieee", "precision.cu", "ieee", (8, 1, 1), (256, 1, 1), inputs.ieee, references.ieee),
    Case(
        "fast_functions",
        "precision.cu",
        "fast_functions",
        (4, 1, 1),
        (256, 1, 1),
        inputs.fast_functions,
        references.fast_functions,
        exact=False,
        ulp=5,
        atol=2.0**-21,
        rtol=1e-4,
    ),
    Case(
        "library_functions",
        "precision.cu",
        "library_functions",
        (4, 1, 1),
        (256, 1, 1),
        inputs.library_functions,
        references.library_functions,
        exact=False,
        ulp=2,
        rtol=1e-5,
    ),
    Case(
        "softmax",
        "precision.cu",
        "softmax",
        (16, 1, 1),
        (128, 1, 1),
        inputs.softmax,
        references.softmax,
        exact=False,
        ulp=4,
        rtol=1e-5,
    ),
    Case("life", "life.cu", "life", (7, 8, 1), (16, 8, 1), inputs.life, references.life),
    Case(
        "median_of_nine",
        "local_array.cu",
        "median_of_nine",
        (8, 1, 1),
        (128, 1, 1),
        inputs.median,
        references.median,
    ),
    Case(
        "hello",
        "hello.cu",
        "hello",
        (2, 1, 1),
        (4, 1, 1),
        inputs.hello,
        None,
        stdout_lines=inputs.make_hello_lines(),
    ),
    Case("tile_sum", "groups.cu", "tile_sum", (4, 1, 1), (128, 1, 1), inputs.tile_sum, references.tile_sum),
    Case(
        "params",
        "params.cu",
        "evaluate",
        (4, 1, 1),
        (128, 1, 1),
        inputs.params,
        references.params,
        rtol=1e-12,
    ),
)

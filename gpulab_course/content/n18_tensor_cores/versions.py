"""The versions of a matrix multiplication in half precision, from a naive one to the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np

from gpulab import session
from gpulab_course.content import kernels
from gpulab_course.content.kernels import Step
from virtualgpu.errors import GpulabError, did_you_mean

_TILE_SIDE = 64


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a kernel, with the new idea in it, its source files and the values of their macros.

    If a version has no files, its kernel is the last one of ``kernels.ladder("tensor_cores")``.
    """

    name: str
    new_idea: str
    files: tuple[str, ...] = ()
    macros: Mapping[str, int] = field(default_factory=dict)


_TILED_FILES = ("multiply.cu", "loads.cu", "product.cuh")

VERSIONS = (
    Version("naive", "one element per thread, without tensor cores", ("product_naive.cu",)),
    Version("wmma", "tensor cores, fed from global memory", ("product_wmma.cu",)),
    Version(
        "tiles", "tiles in shared memory, ldmatrix", _TILED_FILES, {"WARP": 16, "SWIZZLE": 0, "STAGES": 1}
    ),
    Version(
        "swizzle", "vectors exchanged within rows", _TILED_FILES, {"WARP": 16, "SWIZZLE": 1, "STAGES": 1}
    ),
    Version("registers", "32 × 32 elements per warp", _TILED_FILES, {"WARP": 32, "SWIZZLE": 1, "STAGES": 1}),
    Version("stages", "copies two tiles ahead", _TILED_FILES, {"WARP": 32, "SWIZZLE": 1, "STAGES": 3}),
    Version("large", "tiles of 128 × 128 per block"),
)


def source(*file_names: str) -> str:
    """Return the concatenated text of CUDA C++ files in this notebook's folder ``kernels``."""
    folder = resources.files("gpulab_course.content.n18_tensor_cores") / "kernels"
    return "\n".join((folder / file_name).read_text(encoding="utf-8") for file_name in file_names)


def launch(name: str, a: Any, b: Any, c: Any) -> Step:
    """Return the launch of one kernel version, which multiplies `a` (m, k) by `b` (k, n) into `c`.

    `a` and `b` are float16, and `c` is float32.

    Raises
    ------
    GpulabError
        If there is no such version, or if a side is not a multiple of 64.
    """
    versions_by_name = {version.name: version for version in VERSIONS}
    if name not in versions_by_name:
        raise GpulabError(f"There is no version {name!r}.{did_you_mean(name, versions_by_name)}")
    (m, k), n = a.shape, b.shape[1]
    if m % _TILE_SIDE or n % _TILE_SIDE or k % _TILE_SIDE:
        raise GpulabError(f"The sides must be multiples of {_TILE_SIDE}, not {m:,}, {n:,} and {k:,}.")
    version = versions_by_name[name]
    if not version.files:
        return kernels.launch("hgemm_async", a, b, c).step
    kernel_name = version.files[-1].partition(".")[0]
    options = tuple(f"-D{macro}={value}" for macro, value in version.macros.items())
    kernel = session.cp().RawKernel(source(*version.files), kernel_name, options=options)
    grid, block = {
        "product_naive": ((n // 16, m // 16), (16, 16)),
        "product_wmma": ((n // _TILE_SIDE, m // 16), (128, 1)),
    }.get(
        kernel_name,
        ((n // _TILE_SIDE, m // _TILE_SIDE), (32 * (_TILE_SIDE // version.macros.get("WARP", 32)) ** 2, 1)),
    )
    return Step(kernel, grid, block, (a, b, c, *(np.int32(extent) for extent in (m, n, k))))

"""The source texts of the running example's kernels, and the grids that cover their arrays."""

from __future__ import annotations

from pathlib import Path


def read_source(file: str) -> str:
    """Return a CUDA C++ source of the running example, such as ``block.cu`` or ``pictures.cu``."""
    return (Path(__file__).parent / "kernels" / file).read_text(encoding="utf-8")


def find_covering_grid(size: tuple[int, ...], block: tuple[int, ...]) -> tuple[int, ...]:
    """Return the smallest grid whose threads cover `size` elements in each dimension."""
    return tuple(-(-element_count // threads) for element_count, threads in zip(size, block, strict=True))

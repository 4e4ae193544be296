"""``cp._core.core``: the compiler options that tools around CuPy read."""

from __future__ import annotations

from virtualgpu.compile import nvrtc
from virtualgpu.cp._core.array import ndarray

__all__ = ["assemble_cupy_compiler_options", "ndarray"]


def assemble_cupy_compiler_options(options: tuple[str, ...]) -> tuple[str, ...]:
    """Add a default C++ standard and the CUDA header folders to compiler options, as CuPy does."""
    if not any(option.startswith(("--std", "-std")) for option in options):
        options = (*options, "--std=c++17")
    return (*options, *nvrtc.find_include_options())

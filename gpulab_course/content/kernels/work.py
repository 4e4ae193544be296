"""Kernels with their launch configurations and arrays, ready to run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gpulab import session

_TUNABLE_PATTERN = re.compile(r"#ifndef (\w+)\n#define \1 (\d+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel launch, with its kernel, grid, block and arguments. Call the object to run the launch."""

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Any, ...]
    shared_mem: int = 0

    def __call__(self) -> None:
        self.kernel(self.grid, self.block, self.args, shared_mem=self.shared_mem)

    # The methods that ``**step`` calls.

    def keys(self) -> tuple[str, ...]:
        return tuple(self.__slots__)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


@dataclass(frozen=True, slots=True)
class Work:
    """All kernel launches of one computation, in order. Call the object to run the launches."""

    name: str
    steps: tuple[Step, ...]

    @property
    def step(self) -> Step:
        """The main kernel launch, which neither prepares the data nor combines partial results."""
        return next(step for step in self.steps if step.kernel.name == self.name)

    def __call__(self) -> None:
        for step in self.steps:
            step()


def source(file: str) -> str:
    """Return the text of the CUDA C++ file with the kernels of a series, such as ``"transpose.cu"``."""
    return (resources.files("gpulab_course.content.kernels") / file).read_text(encoding="utf-8")


def read_tunable_macros(file: str) -> Mapping[str, int]:
    """Return the tunable macros of a CUDA C++ file with their default values."""
    return {name: int(value) for name, value in _TUNABLE_PATTERN.findall(source(file))}


def kernel(file: str, name: str, tuning: Mapping[str, int] | None = None, shared_bytes: int = 0) -> Any:
    """Create a ``RawKernel`` from a function of a CUDA C++ file, for the device in use.

    Parameters
    ----------
    file, name
        The source file and the name of the function.
    tuning
        Values for the macros of `read_tunable_macros`; other macros keep their default values.
    shared_bytes
        The dynamic shared memory of the launches, which must be announced if it exceeds 48 KiB.
    """
    options = tuple(f"-D{macro}={value}" for macro, value in sorted((tuning or {}).items()))
    raw_kernel = session.cp().RawKernel(source(file), name, options=options)
    if shared_bytes > 48 << 10:
        raw_kernel.max_dynamic_shared_size_bytes = shared_bytes
    return raw_kernel


def count_blocks(element_count: int, elements_per_block: int) -> int:
    """Return the number of blocks that cover `element_count` elements with `elements_per_block` elements per
    block. The number is at least 1.
    """
    return max(1, -(-element_count // elements_per_block))

"""A kernel ready to run: its launches as values, with the arrays that they read and write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gpulab import session

_TUNABLE = re.compile(r"#ifndef (\w+)\n#define \1 (\d+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One launch; ``gl.launch(**step)``, ``gl.count(**step)`` and their kin take it, ``step()`` runs it."""

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
    """The launches of one call of a kernel, in order; more than one where one pass needs another."""

    name: str
    steps: tuple[Step, ...]

    @property
    def step(self) -> Step:
        """The launch that does the work; others prepare it or add up what it leaves."""
        return next(step for step in self.steps if step.kernel.name == self.name)

    def __call__(self) -> None:
        for step in self.steps:
            step()


def source(file: str) -> str:
    """The CUDA C++ of one subject, such as ``"transpose.cu"``."""
    return (resources.files("gpulab_course.content.kernels") / file).read_text(encoding="utf-8")


def tunable(file: str) -> Mapping[str, int]:
    """The macros by which a source can be tuned, with their values if none are given."""
    return {name: int(value) for name, value in _TUNABLE.findall(source(file))}


def kernel(file: str, name: str, tuning: Mapping[str, int] | None = None, shared_bytes: int = 0) -> Any:
    """Make a kernel for the device in use.

    Parameters
    ----------
    file, name
        Source and function.
    tuning
        Values for macros of `tunable`; the source's own where there are none.
    shared_bytes
        Dynamic shared memory that its launches will ask for; over 48 KiB the kernel must be told.
    """
    options = tuple(f"-D{macro}={value}" for macro, value in sorted((tuning or {}).items()))
    made = session.cp().RawKernel(source(file), name, options=options)
    if shared_bytes > 48 << 10:
        made.max_dynamic_shared_size_bytes = shared_bytes
    return made


def blocks_for(count: int, each: int) -> int:
    """Blocks that cover `count` elements, `each` a block; at least one."""
    return max(1, -(-count // each))

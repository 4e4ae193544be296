"""A kernel as source text, and the resources that the compiler chose for it."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.origin import Provenance

Dim3 = tuple[int, int, int]


WARP_SIZE = 32
# The unit in which global memory is moved: a quarter of a cache line.
SECTOR_BYTES = 32
LINE_BYTES = 128


@dataclass(frozen=True, slots=True)
class KernelSource:
    """The source code, name and compiler options of a kernel, which identify it."""

    name: str
    code: str
    options: tuple[str, ...] = ()
    name_expressions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStats:
    """The resources that the compiler chose for a kernel on one target."""

    provenance: Provenance
    name: str
    target: str
    registers_per_thread: int
    static_shared_bytes: int
    local_bytes: int
    constant_bytes: int
    max_threads_per_block: int

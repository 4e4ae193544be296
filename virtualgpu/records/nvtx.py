"""Ranges and marks that a program set for a profiler (NVTX)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NvtxRange:
    """A named stretch of the host's time, or a mark, which takes none.

    ``color`` is 0xAARRGGBB, None where the program gave none. ``thread`` is Python's identifier of the
    thread that began the range, and ``depth`` counts the ranges around it on that thread.
    """

    name: str
    color: int | None
    start_ns: int
    end_ns: int
    thread: int
    depth: int = 0
    is_mark: bool = False

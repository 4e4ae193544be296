"""Measurements and programs of notebook 10 in addition to the views of gpulab."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab import session
from gpulab.views.tables import Table
from gpulab_course.content import story

MIB = 1 << 20
GIB = 1 << 30


def device_used_bytes() -> int:
    """Return the bytes in use on the device by all processes, from ``cudaMemGetInfo``."""
    free, total = session.cp().cuda.runtime.memGetInfo()
    return int(total - free)


def levels() -> dict[str, int]:
    """Return the bytes in use: by arrays, by the default pool, and on the device."""
    pool = session.cp().get_default_memory_pool()
    return {"used": pool.used_bytes(), "reserved": pool.total_bytes(), "device": device_used_bytes()}


def in_a_thread(function: Callable[[], Any]) -> Any:
    """Run a function in another thread and return its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0] if results else None


def tetris(limit_bytes: int = int(2.2 * GIB), piece_bytes: int = 205 * MIB) -> list[Any]:
    """Fill a segment with ten arrays, free every other one, and return the others.

    The pool is limited first, and a workspace of the whole limit is allocated and freed, as a program's first
    step might do.
    """
    cp = session.cp()
    pool = cp.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=pool.total_bytes() + limit_bytes)
    workspace = cp.empty(limit_bytes - MIB, dtype=cp.uint8)
    del workspace
    pieces = [cp.empty(piece_bytes, dtype=cp.uint8) for _ in range(10)]
    return pieces[1::2]


def settings_try(cp: Any) -> None:
    """Make requests that leave fragments: growing buffers, and one that splits a freed buffer."""
    for size in (21, 23, 25, 27):
        buffer = cp.empty(size * MIB, dtype=cp.uint8)
        del buffer
    large_buffer = cp.empty(64 * MIB, dtype=cp.uint8)
    del large_buffer
    small_buffer = cp.empty(30 * MIB, dtype=cp.uint8)
    large_buffer = cp.empty(64 * MIB, dtype=cp.uint8)
    del large_buffer, small_buffer


def with_settings(trace: Any, *variants: dict[str, Any]) -> str:
    """Tabulate the memory that PyTorch's allocator reserves for a trace, and its driver calls."""
    rows = []
    for settings in ({}, *variants):
        statistics = trace.replayed("PyTorch", **settings).statistics().nested()
        rows.append(
            (
                ", ".join(f"{name}:{value}" for name, value in settings.items()) or "defaults",
                f"{statistics['reserved_bytes']['all']['peak'] // MIB:,} MiB",
                str(statistics["num_device_alloc"]),
                str(statistics["num_device_free"]),
            )
        )
    headings = ("PYTORCH_CUDA_ALLOC_CONF", "reserved, peak", "calls that allocate", "calls that free")
    return Table("The same requests in the model of PyTorch's allocator", headings, tuple(rows)).text()


def tokens(n: int, d: int = 32) -> Any:
    """Return the input of the running example after layer norm (n, d), on the device."""
    return session.cp().asarray(story.reference(story.attention.tokens(n, d))["normed"])


def attention(h: Any) -> Any:
    """Compute attention in plain steps, each of which allocates an (n, n) array."""
    cp = session.cp()
    scores = h @ h.T * np.float32(h.shape[1] ** -0.5)
    powers = cp.exp(scores - scores.max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    return weights @ h

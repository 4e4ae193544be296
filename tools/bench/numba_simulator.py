"""The benchmark's kernels for the Numba CUDA simulator, which gives each CUDA thread a Python thread.

``NUMBA_ENABLE_CUDASIM=1 python -m tools.bench.numba_simulator`` prints their times as JSON. Nothing imports
this module: it needs Numba, and the simulator takes over the ``cuda`` of the module a kernel is in.
"""

from __future__ import annotations

import json
import time
from importlib import metadata

import numpy as np
from numba import cuda, float32

VECTOR_BLOCKS = 16
MATRIX_SIZE = 256
TILE = 16


@cuda.jit
def vector_add(a, b, c, n):
    """Add two vectors, with one thread per element."""
    i = cuda.grid(1)
    if i < n:
        c[i] = a[i] + b[i]


@cuda.jit
def matmul_tiled(a, b, c, n):
    """Multiply matrices with tiles in shared memory, as in ``tools/corpus/kernels/matmul.cu``."""
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    row = cuda.blockIdx.y * TILE + ty
    col = cuda.blockIdx.x * TILE + tx
    total = np.float32(0)
    for tile_start in range(0, n, TILE):
        tile_a[ty, tx] = a[row, tile_start + tx]
        tile_b[ty, tx] = b[tile_start + ty, col]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[ty, k] * tile_b[k, tx]
        cuda.syncthreads()
    c[row, col] = total


def time_vector_add() -> dict[str, float]:
    """Time the first blocks of a vector addition."""
    threads = VECTOR_BLOCKS * 256
    rng = np.random.default_rng(1)
    a, b = (rng.random(threads, dtype=np.float32) for _ in range(2))
    c = np.zeros_like(a)
    start_s = time.perf_counter()
    vector_add[VECTOR_BLOCKS, 256](a, b, c, threads)
    seconds = time.perf_counter() - start_s
    assert np.array_equal(c, a + b)
    return {"seconds": seconds, "threads": threads}


def time_matmul_tiled() -> dict[str, float]:
    """Time one block of the full matrix product; every thread of the grid does the same amount of work."""
    random = np.random.default_rng(1)
    a, b = (random.random((MATRIX_SIZE, MATRIX_SIZE), dtype=np.float32) for _ in range(2))
    c = np.zeros_like(a)
    start_s = time.perf_counter()
    matmul_tiled[(1, 1), (TILE, TILE)](a, b, c, MATRIX_SIZE)
    seconds = time.perf_counter() - start_s
    assert np.allclose(c[:TILE, :TILE], a[:TILE] @ b[:, :TILE], rtol=1e-4)
    return {"seconds": seconds, "threads": TILE * TILE}


def main() -> None:
    """Time both kernels and print JSON."""
    time_vector_add()  # first use, not timed
    kernels = {"vector_add": time_vector_add(), "matmul_tiled": time_matmul_tiled()}
    versions = f"numba {metadata.version('numba')}, numba-cuda {metadata.version('numba-cuda')}"
    print(json.dumps({"kernels": kernels, "versions": versions}))


if __name__ == "__main__":
    main()

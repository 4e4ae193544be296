"""Claims of notebook 05 about the kernel series are also true on other GPUs."""

from __future__ import annotations

import numpy as np
import pytest

import gpulab as gl
from gpulab_course.content import kernels
from gpulab_course.content.n05_memory import figures


@pytest.mark.parametrize("device", ["virtual:T4", "virtual:H200"])
def test_transpose_gets_faster_and_tiled_sgemm_keeps_its_l2_traffic(device: str) -> None:
    cp = gl.use_device(device).cp
    x = cp.arange(512 * 512, dtype=cp.float32).reshape(512, 512)
    transposed = cp.zeros_like(x)
    spans = []
    for name in ("naive", "tiled", "padded", "vectors"):
        step = kernels.launch(f"transpose_{name}", x, transposed).step
        step()
        assert (transposed.get() == x.get().T).all()
        spans.append(gl.launch(**step).trace.span_ns)
    assert spans == sorted(spans, reverse=True)
    assert spans[1] < 0.7 * spans[0]
    a, b, c = (cp.ones((256, 256), dtype=cp.float32) for _ in range(3))
    counts = {name: gl.count(**kernels.launch(f"sgemm_{name}", a, b, c).step) for name in ("naive", "tiled")}
    naive, tiled = (counts[name].caches for name in ("naive", "tiled"))
    assert naive is not None
    assert tiled is not None
    assert tiled.l2_sectors > 0.8 * naive.l2_sectors
    sectors = [counts[name].total("sectors", "global", "load") for name in ("naive", "tiled")]
    assert sectors[0] == 8 * sectors[1]


def test_the_transpose_picture_counts_sectors_of_loads_and_stores() -> None:
    rows, columns, bx, by, k = 96, 128, 2, 0, 8
    lane = np.arange(32)
    loads = (32 * by + k) * columns + 32 * bx + lane
    stores = (32 * bx + k) * rows + 32 * by + lane
    caption = repr(figures.transpose_through_tile((rows, columns), (bx, by), loads, stores))
    assert "row 8 of `in` (4 sectors)" in caption
    assert "row 72 of `out` (4 sectors)" in caption
    naive_stores = (32 * bx + lane) * rows + 32 * by + k
    assert "(32 sectors)" in repr(
        figures.transpose_through_tile((rows, columns), (bx, by), loads, naive_stores)
    )

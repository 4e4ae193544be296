"""Recorded accesses of a block to shared memory: kinds, order, sizes and offsets, against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gpulab import cp, session
from tests.engine.test_bulk_copies import arrays, by_hand
from tests.engine.test_traces import HEAD, block_of, traced
from virtualgpu.compile import nvrtc
from virtualgpu.protocol import Block, Launch
from virtualgpu.records import BlockTrace
from virtualgpu.records.warp.columns import SHARED_ACCESS_KINDS

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


def accesses(trace: BlockTrace, kind: str) -> list[tuple[int, int, list[int]]]:
    """Warp, size and offsets of each access of a kind, in the block's order."""
    recorded = trace.accesses
    assert recorded is not None
    warp_of = np.empty(trace.steps, np.int64)
    for warp in trace.warps:
        assert warp.detail is not None
        warp_of[warp.detail.sequence] = warp.warp_index
    assert (np.diff(recorded.sequence) >= 0).all()
    rows = np.flatnonzero(recorded.kind == SHARED_ACCESS_KINDS.index(kind))
    return [
        (int(warp_of[recorded.sequence[row]]), int(recorded.width_bytes[row]), recorded.offset[row].tolist())
        for row in rows.tolist()
    ]


def of_lanes(offsets: Sequence[int], active: int = 32) -> list[int]:
    return [*offsets[:active], *[-1] * (32 - active)]


def test_loads_stores_and_atomics_of_two_warps() -> None:
    code = (
        HEAD
        + """(float* x)
{
    __shared__ __align__(16) float s[256];
    int t = threadIdx.x;
    s[3 * t] = x[t];
    if (t % 32 < 5) atomicAdd(&s[200 + t % 32], 1.0f);
    __syncthreads();
    float* anywhere = x[0] > 1e30f ? x : s;    // a generic address
    float4 v = *(float4*)&s[4 * (63 - t)];
    x[t] = anywhere[t] + v.x + v.y + v.z + v.w;
}
"""
    )
    result, _ = traced(code, [np.ones(64, np.float32)], block=64)
    trace = block_of(result)
    lanes = np.arange(32)
    assert accesses(trace, "store") == [(w, 4, (12 * (32 * w + lanes)).tolist()) for w in (0, 1)]
    atomic = of_lanes((800 + 4 * lanes).tolist(), 5)
    assert accesses(trace, "atomic") == [(w, 4, atomic) for w in (0, 1)]
    vectors = [(w, 16, (16 * (63 - 32 * w - lanes)).tolist()) for w in (0, 1)]
    words = [(w, 4, (4 * (32 * w + lanes)).tolist()) for w in (0, 1)]
    assert sorted(accesses(trace, "load")) == sorted(vectors + words)
    assert accesses(trace, "copy") == []


def test_asynchronous_copies_are_recorded_at_start_and_wait() -> None:
    code = (
        "#include <cuda_pipeline.h>\n"
        + HEAD
        + """(const float4* x, float4* y)
{
    __shared__ float4 s[32];
    int t = threadIdx.x;
    if (t < 20) __pipeline_memcpy_async(&s[31 - t], &x[t], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[t] = s[31 - t];
}
"""
    )
    a = np.arange(128, dtype=np.float32)
    kernel = cp.RawKernel(code, "k")
    with session.on_device("virtual:A100"):
        launch = Launch.of(kernel, 1, 32, (cp.asarray(a), cp.zeros(128, "f4")), 0, None)
        trace = session.observe(launch, Block()).record
    places = (16 * (31 - np.arange(32))).tolist()
    assert accesses(trace, "copy") == [(0, 16, of_lanes(places, 20))]
    recorded = trace.accesses
    assert recorded is not None
    start = recorded.sequence[recorded.kind == SHARED_ACCESS_KINDS.index("copy")]
    landing = np.unique(trace.shared.sequence)
    assert landing.size == 1
    assert landing[0] > start[0]
    text = trace.warps[0].instruction[trace.warps[0].text_index[landing[0]]]
    assert text.startswith("cp.async.wait_group")


@pytest.mark.skipif(not nvrtc.find_include_options(), reason="the CUDA headers are not installed")
@pytest.mark.parametrize("bytes_", [4096, 528, 16])
def test_a_bulk_copy_is_recorded_in_pieces_of_16_bytes(bytes_: int) -> None:
    with session.on_device("virtual:H100"):
        values: tuple[Any, ...] = (*arrays(), np.uint32(bytes_), np.int32(3))
        launch = Launch.of(by_hand(), 1, 64, values, 0, None)
        trace = session.observe(launch, Block()).record
    copies = accesses(trace, "copy")
    assert {(warp, size) for warp, size, _ in copies} == {(0, 16)}
    pieces = [offset for *_, offsets in copies for offset in offsets if offset >= 0]
    assert pieces == 3 * [*range(0, bytes_, 16)]

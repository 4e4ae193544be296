"""Which bytes a kernel touches, against the addresses that arithmetic gives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from virtualgpu.compile import nvrtc
from virtualgpu.model.machine import current
from virtualgpu.model.recording.checking import MachineObserver
from virtualgpu.records.acts import HOST, Region, Work
from virtualgpu.sanitizer import touched

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
CODE = r"""
template <class T> __global__ void put(T* x, const int* at, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[at[i]] = T();
}
extern "C" __global__ void uses(const int* r, int* w, int* a, int* both, float4* wide) {
    __shared__ int tile[32];
    int mine[2];
    tile[threadIdx.x] = r[threadIdx.x];
    __syncthreads();
    mine[threadIdx.x % 2] = tile[31 - threadIdx.x];
    w[2 * threadIdx.x] = mine[threadIdx.x % 2];
    atomicAdd(a + 5, 1);
    both[threadIdx.x] += atomicExch(a + 9 + threadIdx.x % 2, 3);
    if (threadIdx.x == 7) wide[3] = make_float4(0, 0, 0, 0);
}"""


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:T4"):
        yield


def touched_by(run: Any) -> Work:
    """The one launch of a program, with what it touched."""
    acts: list[Any] = []
    watching = MachineObserver(current(), touched.run_watched)
    watching.start(acts.append)
    try:
        run()
    finally:
        watching.stop()
    (work,) = (act for act in acts if isinstance(act, Work))
    return work


def bytes_of(regions: tuple[Region, ...]) -> set[tuple[int, int]]:
    touched_bytes = set()
    for region in regions:
        firsts = np.array(region.address)
        for count, step in zip(region.shape, region.strides, strict=True):
            firsts = np.add.outer(firsts, np.arange(count) * step)
        touched_bytes |= {
            (region.memory, int(first) + n) for first in firsts.reshape(-1) for n in range(region.item_bytes)
        }
    return touched_bytes


def written(places: list[int], kind: str = "int", room: int = 4096) -> tuple[tuple[Region, ...], int]:
    """What a kernel wrote that puts elements of a type at these places, and where the array lies."""
    cp = gl.cp
    module = cp.RawModule(code=CODE, name_expressions=(f"put<{kind}>",))
    x = cp.zeros(room, cp.uint8)
    indices = cp.asarray(np.array(places, np.int32))
    put = module.get_function(f"put<{kind}>")
    n = len(places)
    return touched_by(lambda: put((-(-n // 64),), (64,), (x, indices, np.int32(n)))).writes, int(x.data.ptr)


@pytest.mark.parametrize(
    ("kind", "size", "places", "layout"),
    [
        ("int", 4, [*range(10, 90)], [(40, 320, (), ())]),
        ("int", 4, [3], [(12, 4, (), ())]),
        ("int", 4, [3, 7], [(12, 4, (), ()), (28, 4, (), ())]),
        ("int", 4, [3, 7, 11], [(12, 4, (3,), (16,))]),
        ("short", 2, [*range(1, 200, 3)], [(2, 2, (67,), (6,))]),
        ("short", 2, [0, 1, 5, 6, 10, 11], [(0, 4, (3,), (10,))]),
        ("double", 8, [511, 0], [(0, 8, (), ()), (4088, 8, (), ())]),
        ("int", 4, [0, 2, 5, 6], [(0, 4, (), ()), (8, 4, (), ()), (20, 8, (), ())]),
    ],
)
def test_a_regular_layout_is_one_region(
    kind: str, size: int, places: list[int], layout: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]
) -> None:
    regions, base = written(places, kind)
    assert [(r.address - base, r.item_bytes, r.shape, r.strides) for r in regions] == layout
    assert bytes_of(regions) == {(0, base + size * index + n) for index in places for n in range(size)}


def test_the_closest_regions_are_joined_above_the_limit() -> None:
    draw = np.random.default_rng(2)
    places = np.sort(draw.choice(1000, 120, replace=False))
    regions, base = written(places.tolist())
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    assert len(runs) > 64
    gaps = sorted(later[0] - earlier[-1] - 1 for earlier, later in pairwise(runs))
    assert len(regions) == 64
    touched_bytes = bytes_of(regions)
    assert {(0, base + 4 * int(index)) for index in places} <= touched_bytes
    assert len(touched_bytes) == 4 * (len(places) + sum(gaps[: len(runs) - 64]))


def test_large_arrays_are_tracked_in_coarser_granules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched, "_MAX_GRANULES", 256)
    regions, base = written([5, 700], "int", 4096)
    assert [(r.start - base, r.end - base) for r in regions] == [(16, 32), (2800, 2816)]
    regions, base = written([1023], "int", 4128)  # of which more than 256 pieces of 16 bytes would be
    assert [(r.start - base, r.end - base) for r in regions] == [(4064, 4096)]


def test_only_accesses_to_device_memory_are_recorded() -> None:
    cp = gl.cp
    arrays = [cp.zeros(64, cp.int32) for _ in range(4)]
    wide = cp.zeros(16, cp.float32)
    kernel = cp.RawKernel(CODE, "uses")
    work = touched_by(lambda: kernel((1,), (32,), (*arrays, wide)))
    r, w, a, updated = (int(array.data.ptr) for array in arrays)

    def ints(base: int, *indices: int) -> set[tuple[int, int]]:
        return {(0, base + 4 * n + byte) for n in indices for byte in range(4)}

    assert bytes_of(work.reads) == ints(r, *range(32)) | ints(updated, *range(32))
    fourth = {(0, int(wide.data.ptr) + 48 + n) for n in range(16)}
    assert bytes_of(work.writes) == ints(w, *range(0, 64, 2)) | ints(updated, *range(32)) | fourth
    assert bytes_of(work.atomics) == ints(a, 5, 9, 10)
    assert {region.array for region in work.atomics} == {"int32 array of shape (64,)"}


def test_pinned_memory_is_recorded_as_host_memory() -> None:
    cp = gl.cp
    pinned = cp.cuda.alloc_pinned_memory(64)
    put = cp.RawModule(code=CODE, name_expressions=("put<int>",)).get_function("put<int>")
    indices = cp.asarray(np.array([2], np.int32))
    work = touched_by(lambda: put((1,), (1,), (np.uintp(pinned.ptr), indices, np.int32(1))))
    assert bytes_of(work.writes) == {(HOST, pinned.ptr + 8 + n) for n in range(4)}


def test_all_arrays_of_a_traced_launch_count_as_read() -> None:
    cp = gl.cp
    put = cp.RawModule(code=CODE, name_expressions=("put<int>",)).get_function("put<int>")
    x = cp.zeros(16, cp.int32)
    indices = cp.zeros(1, cp.int32)
    work = touched_by(lambda: gl.warps(put, 1, 32, (x, indices, np.int32(1))))
    assert {(region.address, region.end - region.start) for region in work.reads} == {
        (int(x.data.ptr), 64),
        (int(indices.data.ptr), 4),
    }
    assert (work.writes, work.atomics) == ((), ())

"""One launch, several observations: one run of the kernel from one state of the caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpulab import session
from virtualgpu.protocol import Accesses, Block, Blocks, Caches, Counters, Hazards, Launch, Observation, Warp
from virtualgpu.records import KernelCounters, LaunchTrace

N = 1 << 20
CODE = r"""
extern "C" __global__ void axpy(float a, const float* x, float* y, int* runs, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) atomicAdd(runs, 1);
    if (i < n) y[i] = a * x[i] + y[i];
}"""
EVERYTHING: tuple[Observation[Any], ...] = (
    Blocks(),
    Counters("cold"),
    Counters(),
    Accesses((1, 0, 0), 2),
    Warp((1, 0, 0), 2),
    Block((1, 0, 0), 2),
)


@pytest.fixture(autouse=True, params=["H200", "T4"])
def on_a_virtual_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    session.use_device(f"virtual:{request.param}")
    yield
    session.use_device("auto")


class Axpy:
    """A launch of ``y = 2 x + y`` that counts how often it ran."""

    def __init__(self, n: int = N) -> None:
        cp = session.cp()
        self.n, self.runs = n, cp.zeros(1, np.int32)
        self.x, self.y = cp.arange(n, dtype=np.float32), cp.ones(n, np.float32)
        args = (np.float32(2), self.x, self.y, self.runs, np.int32(n))
        self.launch = Launch.of(cp.RawKernel(CODE, "axpy"), -(-n // 256), 256, args)

    @property
    def times(self) -> int:
        return int(self.runs[0])

    def holds(self, times: int) -> bool:
        """Whether `y` is what so many runs make of it."""
        expected = np.float32(2 * times) * np.arange(self.n, dtype=np.float32) + 1
        return bool(np.array_equal(session.cp().asnumpy(self.y), expected))

    def roofline(self, caches: Caches) -> tuple[LaunchTrace, KernelCounters]:
        seen, counted = session.observe(self.launch, Blocks(), Counters(caches))
        return seen.record, counted.record


def displace() -> None:
    """Use an array that takes all of L2."""
    size_bytes = 2 * session.backend().device_info().l2_bytes
    session.cp().empty(size_bytes, np.uint8).data.memset(1, size_bytes)


def test_time_and_counts_take_one_run() -> None:
    axpy = Axpy()
    trace, counters = axpy.roofline("warm")
    assert axpy.times == 1
    assert axpy.holds(1)
    assert trace.span_ns > 0
    assert counters.flops == {"f32": 2 * N}


def test_all_that_one_place_shows_takes_one_run() -> None:
    axpy = Axpy(4096)
    alone = {}
    for what in EVERYTHING:
        alone[what] = session.observe(Axpy(4096).launch, what).record
    seen = dict(zip(EVERYTHING, session.observe(axpy.launch, *EVERYTHING), strict=True))
    assert axpy.times == 1
    assert axpy.holds(1)
    counters, trace, warp, block = (
        seen[what].record for what in (Counters("cold"), Accesses((1, 0, 0), 2), *EVERYTHING[4:])
    )
    assert counters == alone[Counters("cold")] == seen[Counters()].record
    assert counters.caches == alone[Counters("cold")].caches
    assert trace.counters == counters
    other = alone[Accesses((1, 0, 0), 2)]
    assert (np.diff(trace.address) == np.diff(other.address)).all()
    assert [v.name for v in warp.variables] == [v.name for v in alone[EVERYTHING[4]].variables]
    assert (warp.active_mask == alone[EVERYTHING[4]].active_mask).all()
    assert warp.warp_index == 2
    assert [w.warp_index for w in block.warps] == list(range(8))


@pytest.mark.parametrize("further", [Warp((2, 0, 0), 1), Hazards()])
def test_what_repeats_the_run_puts_arrays_back(further: Observation[Any]) -> None:
    axpy = Axpy(4096)
    seen = session.observe(axpy.launch, further, Warp(), Counters("cold"))
    assert axpy.times == 1
    assert axpy.holds(1)
    kind = type(session.observe(Axpy(4096).launch, further).record)
    assert type(seen[0].record) is kind
    assert seen[2].record.flops == {"f32": 2 * 4096}


def test_arrays_are_put_back_for_all_if_one_asks_for_it() -> None:
    axpy = Axpy(4096)
    seen = session.observe(axpy.launch, Counters("warm"), Blocks(restore=True), Hazards())
    assert axpy.times == 0
    assert axpy.holds(0)
    assert seen[0].record.flops == {"f32": 2 * 4096}
    assert seen[2].record.clean


def test_times_and_counts_are_of_the_same_caches() -> None:
    """12 MiB twice: what counts say comes from memory is what the time is spent on."""
    axpy = Axpy(3 << 18)
    axpy.roofline("warm")
    warm, warm_counts = axpy.roofline("warm")
    cold, cold_counts = axpy.roofline("cold")
    again, again_counts = axpy.roofline("warm")
    assert warm_counts.caches is not None
    assert cold_counts.caches is not None
    assert again_counts.caches == warm_counts.caches
    read = cold_counts.caches.dram_read_bytes
    assert read == pytest.approx(2 * 4 * axpy.n, rel=0.01)
    if session.backend().device_info().l2_bytes > 4 * read:  # an H200 keeps both arrays, a T4 does not
        assert warm_counts.caches.dram_read_bytes == 0
        assert cold.span_ns > 1.2 * warm.span_ns
    # Memory cannot have given what is counted faster than it can.
    most = session.backend().device_info().memory_bandwidth_gbps
    assert most is not None
    for trace, counters in ((warm, warm_counts), (cold, cold_counts)):
        assert counters.caches is not None
        assert counters.caches.dram_read_bytes / trace.span_ns <= most
    assert again.span_ns == warm.span_ns
    assert (warm_counts.caches.start, cold_counts.caches.start) == ("warm", "cold")


def test_cold_times_are_those_of_arrays_that_others_have_displaced() -> None:
    axpy = Axpy()
    cold, _ = axpy.roofline("cold")
    displace()
    displaced = session.observe(axpy.launch, Blocks()).record
    assert displaced.span_ns == cold.span_ns


def test_a_repeated_run_begins_with_the_caches_of_the_first() -> None:
    axpy = Axpy(1 << 16)
    axpy.launch.run()
    displace()
    alone = session.observe(axpy.launch, Counters("warm")).record.caches
    displace()
    *_, last = session.observe(axpy.launch, Hazards(), Warp(), Warp(warp=1), Counters("warm"))
    assert alone is not None
    assert alone.dram_read_bytes > 0
    assert last.record.caches == alone


def test_two_states_of_the_caches_are_refused_before_anything_runs() -> None:
    axpy = Axpy(4096)
    with pytest.raises(ValueError, match="cold caches or warm ones"):
        session.observe(axpy.launch, Blocks(caches="warm"), Counters("cold"))
    assert axpy.times == 0

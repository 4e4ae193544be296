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


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    with session.on_device(f"virtual:{getattr(request, 'param', 'T4')}"):
        yield


on_large_and_small_l2 = pytest.mark.parametrize("device", ["H200", "T4"], indirect=True)


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
        """Whether `y` is the result of so many runs."""
        expected = np.float32(2 * times) * np.arange(self.n, dtype=np.float32) + 1
        return bool(np.array_equal(session.cp().asnumpy(self.y), expected))

    def roofline(self, caches: Caches) -> tuple[LaunchTrace, KernelCounters]:
        blocks, counters = session.observe(self.launch, Blocks(), Counters(caches))
        return blocks.record, counters.record


def displace() -> None:
    """Use an array that takes all of L2."""
    size_bytes = 2 * session.backend().device_info().l2_bytes
    session.cp().empty(size_bytes, np.uint8).data.memset(1, size_bytes)


def test_several_observations_of_one_warp_take_one_run() -> None:
    axpy = Axpy(4096)
    alone = {kind: session.observe(Axpy(4096).launch, kind).record for kind in EVERYTHING}
    together = dict(zip(EVERYTHING, session.observe(axpy.launch, *EVERYTHING), strict=True))
    assert axpy.times == 1
    assert axpy.holds(1)
    cold = EVERYTHING[1]
    access = EVERYTHING[3]
    counters, trace, warp, block = (together[kind].record for kind in (cold, access, *EVERYTHING[4:]))
    assert counters == alone[cold] == together[Counters()].record
    assert counters.caches == alone[cold].caches
    assert trace.counters == counters
    assert (np.diff(trace.address) == np.diff(alone[access].address)).all()
    assert [v.name for v in warp.variables] == [v.name for v in alone[EVERYTHING[4]].variables]
    assert (warp.active_mask == alone[EVERYTHING[4]].active_mask).all()
    assert warp.warp_index == 2
    assert [w.warp_index for w in block.warps] == list(range(8))


@pytest.mark.parametrize("further", [Warp((2, 0, 0), 1), Hazards()])
def test_observations_that_repeat_the_run_restore_the_arrays(further: Observation[Any]) -> None:
    axpy = Axpy(4096)
    results = session.observe(axpy.launch, further, Warp(), Counters("cold"))
    assert axpy.times == 1
    assert axpy.holds(1)
    assert type(results[0].record) is type(session.observe(Axpy(4096).launch, further).record)
    assert results[2].record.flops == {"f32": 2 * 4096}


@on_large_and_small_l2
def test_times_and_counters_use_the_same_cache_state() -> None:
    """Two arrays of 3 MiB, which an H200's L2 keeps and a T4's does not."""
    axpy = Axpy(3 << 18)
    axpy.roofline("warm")
    runs = [axpy.roofline(caches) for caches in ("warm", "cold", "warm")]
    (warm, cold, again), counters = zip(*runs, strict=True)
    warm_caches, cold_caches, again_caches = (counter.caches for counter in counters)
    assert warm_caches is not None
    assert cold_caches is not None
    assert again_caches == warm_caches
    assert cold_caches.dram_read_bytes == pytest.approx(2 * 4 * axpy.n, rel=0.01)
    info = session.backend().device_info()
    if info.l2_bytes > 4 * cold_caches.dram_read_bytes:
        assert warm_caches.dram_read_bytes == 0
        assert cold.span_ns > 1.2 * warm.span_ns
    # Loads are not faster than the memory bandwidth.
    assert info.memory_bandwidth_gbps is not None
    for trace, caches in ((warm, warm_caches), (cold, cold_caches)):
        assert caches.dram_read_bytes / trace.span_ns <= info.memory_bandwidth_gbps
    assert again.span_ns == warm.span_ns
    assert (warm_caches.start, cold_caches.start) == ("warm", "cold")


@on_large_and_small_l2
def test_a_cold_run_takes_as_long_as_one_whose_arrays_were_displaced() -> None:
    axpy = Axpy()
    cold, _ = axpy.roofline("cold")
    displace()
    displaced = session.observe(axpy.launch, Blocks()).record
    assert displaced.span_ns == cold.span_ns


def test_repeated_runs_start_from_the_same_cache_state() -> None:
    axpy = Axpy(1 << 16)
    axpy.launch.run()
    displace()
    alone = session.observe(axpy.launch, Counters("warm")).record.caches
    displace()
    *_, last = session.observe(axpy.launch, Hazards(), Warp(), Warp(warp=1), Counters("warm"))
    assert alone is not None
    assert alone.dram_read_bytes > 0
    assert last.record.caches == alone


def test_conflicting_cache_states_are_refused_before_a_run() -> None:
    axpy = Axpy(4096)
    with pytest.raises(ValueError, match="either cold or warm caches"):
        session.observe(axpy.launch, Blocks(caches="warm"), Counters("cold"))
    assert axpy.times == 0

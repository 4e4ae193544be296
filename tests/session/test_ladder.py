"""``gl.ladder``: the same kernels on a real and on a virtual GPU, and what was recorded."""

from __future__ import annotations

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.memory import hierarchy, ladder
from gpulab.lab.recorded import NotRecordedError
from virtualgpu.records import io
from virtualgpu.records.memory import MemoryLadder


@pytest.fixture(scope="module")
def t4() -> MemoryLadder:
    with session.on_device("virtual:T4"):
        return hierarchy.measure()


def test_latency_rises_with_each_level(t4: MemoryLadder) -> None:
    assert t4.provenance.label == "modelled on virtual T4"
    assert t4.working_set_bytes[[0, -1]].tolist() == [1 << 10, 8 << 20]
    steps = [t4.latency_at(size) for size in (32 << 10, 3 << 20, 8 << 20)]
    assert 15 < steps[0] < 40  # ns: some 32 clocks at 1.59 GHz
    assert 100 < steps[1] < 250
    assert 300 < steps[2] < 900
    flat = t4.latency_ns[t4.working_set_bytes <= 64 << 10]
    assert np.ptp(flat) < 0.1 * flat.mean(), "a cache that holds it all answers as fast at every size"


def test_each_level_delivers_less_than_the_one_before(t4: MemoryLadder) -> None:
    rates = [t4.bandwidth(level) for level in ("registers", "L1", "L2", "memory, read", "host to device")]
    assert all(rates)
    assert rates == sorted(rates, reverse=True)  # type: ignore[type-var]
    for level in t4.bandwidths:
        if level.gbps and level.published_gbps:
            assert 0.7 < level.gbps / level.published_gbps < 1.2, level.level
    peer = t4.bandwidths[-1]
    assert (peer.level, peer.gbps, peer.why) == ("peer", None, "there is one GPU")
    assert {c.level: c.size_bytes for c in t4.capacities} == {"L1": 64 << 10, "L2": 4 << 20}


def test_it_is_kept_as_a_file(t4: MemoryLadder, tmp_path: object) -> None:
    again = io.load(io.save(t4, f"{tmp_path}/t4.npz"))
    assert again.bandwidths == t4.bandwidths
    assert np.array_equal(again.latency_ns, t4.latency_ns)


def test_another_gpu_is_reached_where_there_is_one() -> None:
    with session.on_device("virtual:A100", 2):
        bench = hierarchy._Bench(session.backend().device_info(), hierarchy._REAL)
        bench.stream_bytes = 64 << 20  # copies of 16 MiB, where a start weighs little
        peer = bench._peer(hierarchy._published(session.backend().device_info()))
    assert peer.gbps is not None
    assert peer.published_gbps == 300, "half of NVLink's 600 GB/s: one direction"
    assert 0.6 < peer.gbps / peer.published_gbps < 1


def test_what_was_not_recorded_is_said() -> None:
    with pytest.raises(NotRecordedError, match=r"No ladder of 'GTX 480' was recorded; there is one of"):
        gl.ladder("GTX 480")


def test_the_modelled_clock_agrees_with_an_h200() -> None:
    """Where the same kernels ran on both: L1, L2 and what each SM delivers."""
    recorded = ladder.recorded_ladder("H200")
    with session.on_device("virtual:H200"):
        info = session.backend().device_info()
        bench = hierarchy._Bench(info, hierarchy._Effort(1, 4 << 20, 1, 4096, 32, 16 << 20, 1, 1))
        sizes, times = bench.sizes, bench.latencies(lambda: None)
        rates = bench.bandwidths()
        modelled = {level.level: level.gbps for level, _ in zip(rates, range(3), strict=False)}
    for size, ns in zip(sizes.tolist(), times.tolist(), strict=True):
        if not 128 << 10 < size < 1 << 20:
            assert ns == pytest.approx(recorded.latency_at(size), rel=0.12), size
    for level, gbps in modelled.items():
        assert gbps == pytest.approx(recorded.bandwidth(level), rel=0.15), level
    assert [*modelled] == ["registers", "shared memory", "L1"]


def test_recorded_ladders_are_shown_without_a_gpu() -> None:
    assert ladder.recorded_names() == ["H200", "H100"]
    for name in ladder.recorded_names():
        chart = gl.ladder(name)
        assert chart.record.provenance.source == "recorded"
        assert name in chart.record.provenance.device
        assert chart.record.latency_ns.size > 30
        chart.close()

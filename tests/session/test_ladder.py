"""``gl.ladder``: the same kernels on a real and on a virtual GPU, and what was recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.memory import hierarchy, ladder
from gpulab.lab.recorded import NotRecordedError
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance, io
from virtualgpu.records.memory import MemoryLadder


@pytest.fixture(scope="module")
def t4() -> MemoryLadder:
    with session.on_device("virtual:T4"):
        return hierarchy.measure()


def test_levels_say_what_was_read_and_what_to_expect_and_deliver_what_they_did(t4: MemoryLadder) -> None:
    guide, sheet = "CUDA C++ Programming Guide", "NVIDIA T4 datasheet; deviceQuery listing"
    sms, ghz, lanes = 40, 1.59, 64
    told = {each.level: (each.published_gbps, each.document, each.method) for each in t4.bandwidths}
    loads = 128 * sms * ghz  # bytes a clock
    assert [(level, gbps, document) for level, (gbps, document, _) in told.items()] == [
        ("registers", pytest.approx(16 * lanes * sms * ghz),
         f"four operands a lane and clock: {guide} and boost clock"),
        ("shared memory", pytest.approx(loads), f"32 banks of 4 bytes a clock: {guide} and boost clock"),
        ("L1", pytest.approx(loads), f"128 bytes a clock: {guide} and boost clock"),
        ("L2", None, ""),
        ("memory, read", 320, sheet), ("memory, copy", 320, sheet), ("host to device", 15.75, sheet),
        ("device to host", 15.75, sheet), ("peer", 15.75, sheet),
    ]  # fmt: skip
    for level, said in {
        "L2": "All SMs read the same 1 MiB again and again, past L1.",  # a quarter of it
        "memory, read": "All SMs read 16 MiB; the difference of two rounds and one.",  # four times L2
        "memory, copy": "cudaMemcpy of 8 MiB from the device to itself; bytes read and written count.",
        "host to device": "Copies of 4 MiB from pinned memory by a copy engine.",
        "device to host": "Copies of 4 MiB to pinned memory by a copy engine.",
        "peer": "Copies of 4 MiB to another GPU, with peer access where they have it.",
    }.items():
        assert told[level][2] == said
    assert t4.working_set_bytes.tolist() == [1 << n for n in range(10, 24)]
    assert [(c.level, c.document) for c in t4.capacities] == [
        ("L1", f"{guide}: L1 and shared memory together"), ("L2", sheet)
    ]  # fmt: skip
    assert "128 KiB" in t4.latency_method
    assert "128 bytes apart" in t4.latency_method
    # On the modelled clock, which is nearly the same on every computer: what it gave when somebody looked.
    shares = [100 * e.gbps / e.published_gbps for e in t4.bandwidths if e.gbps and e.published_gbps]
    assert shares == pytest.approx([96.5917, 95.3405, 92.5989, 116.2811, 82.8089, 77.5552, 77.793], rel=1e-3)
    assert t4.bandwidth("L2") == pytest.approx(798.307, rel=1e-3)
    assert t4.latency_ns[[0, 9, 10, 12, 13]] == pytest.approx(
        [21.79907, 21.78516, 177.36084, 177.36084, 475.07156], rel=1e-3
    )


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


def test_a_real_gpu_is_asked_for_more_and_no_more_than_a_quarter_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with session.on_device("virtual:T4"):
        info, runtime = session.backend().device_info(), session.cp().cuda.runtime

        def bench(free: int) -> hierarchy._Bench:
            monkeypatch.setattr(runtime, "memGetInfo", lambda: (free, 1 << 34))
            return hierarchy._Bench(info, hierarchy._REAL)

        whole = bench(1 << 33)
        assert (whole.most_bytes, whole.stream_bytes, whole.sizes[-1]) == (1 << 30, 1 << 30, 1 << 30)
        assert whole.sizes.size == 2 * 20 + 1
        assert np.all(whole.sizes % 128 == 0)
        ratios = whole.sizes[1:] / whole.sizes[:-1]
        assert np.all((ratios > 1.2) & (ratios < 1.6)), "two steps an octave"
        assert bench(1 << 30).sizes[-1] == 1 << 28
        assert bench((1 << 30) - 1).most_bytes == 1 << 27
        assert bench(4 << 20).sizes[-1] == 1 << 20
        with pytest.raises(GpulabError, match="less than 4 MiB free"):
            bench((4 << 20) - 1)


def test_the_time_is_the_median_of_runs_that_find_the_gpu_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    with session.on_device("virtual:T4"):
        bench, done = hierarchy._Bench(session.backend().device_info(), hierarchy._REAL), []
        times = iter((5e-3, 1e-3, 2e-3, 9e-3, 4e-3, 7e-3))
        monkeypatch.setattr(bench.cp.cuda, "get_elapsed_time", lambda begin, until: next(times))
        run, before = (lambda *count: done.append(count)), (lambda: done.append("before"))
        assert bench.apart_ns(run, 32, 16, before) == pytest.approx((2e-3 - 7e-3) * 1e6)
    assert done == ["before", (32,)] * 3 + ["before", (16,)] * 3


def test_what_documents_say_of_links_is_of_one_direction() -> None:
    with session.on_device("virtual:H200"):
        info = session.backend().device_info()
    found = hierarchy._published(info)
    assert found["peer"][0] == 450  # of NVLink's 900 GB/s
    assert found["memory"][0] == info.memory_bandwidth_gbps
    other = replace(info, name="a GPU of no table", nvlink_gbps=None, provenance=Provenance("measured", "it"))
    assert hierarchy._published(other) == {
        "memory": (info.memory_bandwidth_gbps, "the driver's clocks"),
        "host": (info.pcie_gbps, "the driver's clocks"), "peer": (info.pcie_gbps, "the driver's clocks"),
    }  # fmt: skip
    assert [c.document for c in hierarchy._capacities(other)][1] == "the driver"


def test_a_virtual_gpu_comes_with_what_was_recorded(
    monkeypatch: pytest.MonkeyPatch, t4: MemoryLadder
) -> None:
    monkeypatch.setattr(hierarchy, "measure", lambda: t4)

    def shown(*device: str, **beside: str) -> list[str]:
        chart = gl.ladder(*device, **beside)
        names = [each.provenance.device for each in chart.ladders]
        chart.close()
        return names

    with session.on_device("virtual:T4"):
        assert shown() == ["virtual T4", "NVIDIA H200", "NVIDIA H100 80GB HBM3"]
        assert shown(beside="nvidia h100") == ["virtual T4", "NVIDIA H100 80GB HBM3"]
        assert shown(" h200 ") == ["NVIDIA H200"]
        assert shown("H200", beside="H100") == ["NVIDIA H200", "NVIDIA H100 80GB HBM3"]


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

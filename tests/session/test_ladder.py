"""``gl.memory_hierarchy``: the same kernels on a real and on a virtual GPU, and its records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any

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
        return hierarchy.measure_hierarchy()


def test_levels_have_their_published_bandwidth_and_its_source(t4: MemoryLadder) -> None:
    guide = "CUDA C++ Programming Guide"
    sheet = "NVIDIA T4 datasheet"
    clock = 40 * 1.59  # SMs times GHz
    loads = pytest.approx(128 * clock)
    expected = {
        "registers": (pytest.approx(16 * 64 * clock), guide),
        "shared memory": (loads, guide),
        "L1": (loads, guide),
        "L2": (None, ""),
        **dict.fromkeys(("memory, read", "memory, copy"), (320, sheet)),
        **dict.fromkeys(("host to device", "device to host", "peer"), (15.75, sheet)),
    }
    assert [level.level for level in t4.bandwidths] == [*expected]
    for level in t4.bandwidths:
        published_gbps, document = expected[level.level]
        assert level.published_gbps == published_gbps
        assert document in level.document
    assert t4.working_set_bytes.tolist() == [1 << n for n in range(10, 24)]
    assert [(c.level, c.size_bytes) for c in t4.capacities] == [("L1", 64 << 10), ("L2", 4 << 20)]


def test_latency_rises_with_each_level(t4: MemoryLadder) -> None:
    assert t4.provenance.label == "modelled on virtual T4"
    assert t4.working_set_bytes[[0, -1]].tolist() == [1 << 10, 8 << 20]
    steps = [t4.latency_at(size) for size in (32 << 10, 3 << 20, 8 << 20)]
    assert 15 < steps[0] < 40  # ns: some 32 clocks at 1.59 GHz
    assert 100 < steps[1] < 250
    assert 300 < steps[2] < 900
    flat = t4.latency_ns[t4.working_set_bytes <= 64 << 10]
    assert np.ptp(flat) < 0.1 * flat.mean(), "a cache that holds it all answers as fast at every size"


@pytest.mark.parametrize("name", ["T4", "A100", "RTX4090", "H100", "H200", "B200"])
def test_latency_first_rises_at_the_size_of_l1(name: str) -> None:
    with session.on_device(f"virtual:{name}"):
        info = session.backend().device_info()
        bench = hierarchy._Bench(
            info, hierarchy._MeasurementSizes(1, 4 * session.compute_l1_bytes(info), 4, 2048, 1, 0, 1, 1)
        )
        times = bench.measure_latencies(lambda: None)
    low, high = times[0], times[-1]
    assert high > 4 * low
    step = bench.working_set_bytes[times > (low * high) ** 0.5][0]  # half of the way up, as it is drawn
    assert 0.9 < step / session.compute_l1_bytes(info) < 1.5


def test_each_level_has_less_bandwidth_than_the_previous_level(t4: MemoryLadder) -> None:
    rates = [t4.bandwidth(level) for level in ("registers", "L1", "L2", "memory, read", "host to device")]
    assert all(rates)
    assert rates == sorted(rates, reverse=True)  # type: ignore[type-var]
    for level in t4.bandwidths:
        if level.gbps and level.published_gbps:
            assert 0.7 < level.gbps / level.published_gbps < 1.2, level.level
    peer = t4.bandwidths[-1]
    assert (peer.level, peer.gbps, peer.why) == ("peer", None, "there is one GPU")


@pytest.mark.usefixtures("on_t4")
def test_a_real_gpu_s_working_sets_take_a_quarter_of_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def bench(free: int) -> hierarchy._Bench:
        monkeypatch.setattr(session.cp().cuda.runtime, "memGetInfo", lambda: (free, 1 << 34))
        return hierarchy._Bench(session.backend().device_info(), hierarchy._REAL_GPU_SIZES)

    whole = bench(1 << 33)
    assert (whole.max_bytes, whole.stream_bytes, whole.working_set_bytes[-1]) == (1 << 30, 1 << 30, 1 << 30)
    assert whole.working_set_bytes.size == 2 * 20 + 1
    assert np.all(whole.working_set_bytes % 128 == 0)
    ratios = whole.working_set_bytes[1:] / whole.working_set_bytes[:-1]
    assert np.all((ratios > 1.2) & (ratios < 1.6)), "two steps an octave"
    assert bench(1 << 30).working_set_bytes[-1] == 1 << 28
    assert bench((1 << 30) - 1).max_bytes == 1 << 27
    assert bench(4 << 20).working_set_bytes[-1] == 1 << 20
    with pytest.raises(GpulabError, match="less than 4 MiB of free memory"):
        bench((4 << 20) - 1)


@pytest.mark.usefixtures("on_t4")
def test_the_time_is_a_difference_of_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = hierarchy._Bench(session.backend().device_info(), hierarchy._REAL_GPU_SIZES)
    steps = []
    times_ms = iter((5e-3, 1e-3, 2e-3, 9e-3, 4e-3, 7e-3))
    monkeypatch.setattr(bench.cp.cuda, "get_elapsed_time", lambda begin, end: next(times_ms))

    def run(*count: int) -> None:
        steps.append(count)

    def before() -> None:
        steps.append("before")

    assert bench.measure_difference_ns(run, 32, 16, before) == pytest.approx((2e-3 - 7e-3) * 1e6)
    assert steps == ["before", (32,)] * 3 + ["before", (16,)] * 3


def test_published_bandwidths_of_links_are_of_one_direction() -> None:
    with session.on_device("virtual:H200"):
        info = session.backend().device_info()
    published = hierarchy._find_published_rates(info)
    assert published["peer"][0] == 450  # of NVLink's 900 GB/s
    assert published["memory"][0] == info.memory_bandwidth_gbps
    other = replace(info, name="a GPU of no table", nvlink_gbps=None, provenance=Provenance("measured", "it"))
    assert hierarchy._find_published_rates(other) == {
        "memory": (info.memory_bandwidth_gbps, "the driver's clocks"),
        "host": (info.pcie_gbps, "the driver's clocks"),
        "peer": (info.pcie_gbps, "the driver's clocks"),
    }
    assert [c.document for c in hierarchy._find_capacities(other)][1] == "the driver"


def test_a_virtual_gpu_is_compared_with_the_records(
    monkeypatch: pytest.MonkeyPatch, t4: MemoryLadder
) -> None:
    monkeypatch.setattr(hierarchy, "measure_hierarchy", lambda: t4)

    def devices(*device: str, **beside: str) -> list[str]:
        return [ladder.provenance.device for ladder in gl.memory_hierarchy(*device, **beside).ladders]

    with session.on_device("virtual:T4"):
        assert devices() == ["virtual T4", "NVIDIA H200", "NVIDIA H100 80GB HBM3"]
        assert devices(beside="nvidia h100") == ["virtual T4", "NVIDIA H100 80GB HBM3"]
        assert devices(" h200 ") == ["NVIDIA H200"]
        assert devices("H200", beside="H100") == ["NVIDIA H200", "NVIDIA H100 80GB HBM3"]


def test_ladder_is_saved_and_loaded(t4: MemoryLadder, tmp_path: object) -> None:
    again = io.load(io.save(t4, f"{tmp_path}/t4.npz"))
    assert again.bandwidths == t4.bandwidths
    assert np.array_equal(again.latency_ns, t4.latency_ns)


@pytest.mark.parametrize("device", [0, 1])
def test_the_bandwidth_to_another_gpu_is_measured(device: int) -> None:
    with session.on_device("virtual:A100", 2) as cp, cp.cuda.Device(device):
        info = session.backend().device_info()
        bench = hierarchy._Bench(info, hierarchy._REAL_GPU_SIZES)
        bench.stream_bytes = 64 << 20  # copies of 16 MiB, where the start matters little
        with gl.timeline() as line:
            peer = bench._measure_peer(hierarchy._find_published_rates(info))
    assert {activity.copy_kind for activity in line.record.activities} & {"PtoP"}
    assert peer.gbps is not None
    assert peer.published_gbps == 300, "half of NVLink's 600 GB/s: one direction"
    assert 0.6 < peer.gbps / peer.published_gbps < 1


def test_a_gpu_without_a_record_is_named() -> None:
    with pytest.raises(NotRecordedError, match=r"memory hierarchy of 'GTX 480'. There are recordings of"):
        gl.memory_hierarchy("GTX 480")


def test_the_modelled_clock_agrees_with_an_h200() -> None:
    """For kernels that ran on both: L1, L2 and the bandwidth of each SM."""
    recorded = ladder.load_recorded_ladder("H200")
    with session.on_device("virtual:H200"):
        info = session.backend().device_info()
        bench = hierarchy._Bench(info, hierarchy._MeasurementSizes(1, 4 << 20, 1, 4096, 32, 16 << 20, 1, 1))
        sizes = bench.working_set_bytes
        times = bench.measure_latencies(lambda: None)
        rates = bench.measure_bandwidths()
        modelled = {level.level: level.gbps for level, _ in zip(rates, range(3), strict=False)}
    for size, ns in zip(sizes.tolist(), times.tolist(), strict=True):
        if size != 256 << 10:  # the size of L1, where the recorded latency is half-way up
            assert ns == pytest.approx(recorded.latency_at(size), rel=0.12), size
    for level, gbps in modelled.items():
        assert gbps == pytest.approx(recorded.bandwidth(level), rel=0.15), level
    assert [*modelled] == ["registers", "shared memory", "L1"]


def test_recorded_ladders_are_shown_without_a_gpu() -> None:
    assert ladder.list_recorded_ladders() == ["H200", "H100"]
    for name in ladder.list_recorded_ladders():
        chart = gl.memory_hierarchy(name)
        assert chart.record.provenance.source == "recorded"
        assert name in chart.record.provenance.device
        assert chart.record.latency_ns.size > 30


# What is launched, and what follows from its times ------------------------------------------------------

Launch = tuple[str, int, int, tuple[Any, ...]]


class Counted:
    """A bench whose kernels only note their arguments, on a clock of its own."""

    def __init__(self, effort: hierarchy._MeasurementSizes = hierarchy._REAL_GPU_SIZES, **info: Any) -> None:
        self.bench = hierarchy._Bench(replace(session.backend().device_info(), **info), effort)
        self.bench.stream_bytes = 16 << 20
        self.launches: list[Launch] = []
        self.bench.kernels = {name: partial(self.note, name) for name in self.bench.kernels}
        self.bench.measure_ns = self.measure_ns  # type: ignore[method-assign]

    def note(self, name: str, grid: tuple[int], block: tuple[int], args: tuple[Any, ...]) -> None:
        self.launches.append((name, *grid, *block, args))

    def measure_ns(self, run: Any, before: Any = None) -> float:
        """A launch of `count` rounds takes 1,000 + 3 x count."""
        if before is not None:
            before()
        run()
        return 1000 + 3 * int(self.launches[-1][-1][-1]) if self.launches else 4000.0

    def counts(self) -> list[tuple[str, int]]:
        return [(name, int(args[-1])) for name, _, _, args in self.launches]


@pytest.fixture
def on_t4() -> Iterator[None]:
    with session.on_device("virtual:T4"):
        yield


@pytest.mark.usefixtures("on_t4")
def test_each_level_is_timed_on_all_sms_with_two_loop_counts() -> None:
    counted = Counted()
    levels = [*islice(counted.bench.measure_bandwidths(), 3)]
    kernels = ("registers", "shared_memory", "l1")
    assert counted.counts() == [(name, count) for name in kernels for count in (2, 4096, 2048)]
    assert {(grid, block) for _, grid, block, _ in counted.launches} == {(4 * 40, 512)}
    lanes = 4 * 40 * 512
    assert [level.gbps for level in levels] == pytest.approx([lanes * n * 16 / 3 for n in (64, 4, 4)])
    unknown = islice(Counted(boost_clock_mhz=None).bench.measure_bandwidths(), 3)
    assert [level.published_gbps for level in unknown] == [None] * 3


@pytest.mark.usefixtures("on_t4")
@pytest.mark.parametrize(("rounds", "reads"), [(2048, 512), (68, 17), (4, 16)])
def test_l2_bandwidth_reads_a_quarter_of_l2_repeatedly(rounds: int, reads: int) -> None:
    counted = Counted(replace(hierarchy._REAL_GPU_SIZES, loop_rounds=rounds))
    level = counted.bench._measure_l2()
    assert counted.counts() == [("reads", 1), ("reads", 2 * reads), ("reads", reads)]
    _, grid, block, (array, _, vectors, _) = counted.launches[0]
    assert (grid, block, int(vectors), array.nbytes) == (256, 256, 65536, 1 << 20)
    assert level.gbps == pytest.approx((1 << 20) / 3)


@pytest.mark.usefixtures("on_t4")
@pytest.mark.parametrize(
    ("lines", "chain", "steps"), [(8, 5000, 4096), (8, 4000, 4000), (32768, 5000, 4096), (32769, 5000, 5000)]
)
def test_pointer_chain_visits_every_cache_line_once(lines: int, chain: int, steps: int) -> None:
    """Up to the size of L2, at most 4,096 loads are timed. Before them, up to 8,192 loads fill the cache."""
    counted = Counted(replace(hierarchy._REAL_GPU_SIZES, chain_loads=chain))
    whole = counted.bench.cp.zeros(16 * 32769, np.uint64)
    assert counted.bench._measure_latency(whole, lines, np.random.default_rng(3)) == pytest.approx(3)
    assert counted.counts() == [
        *[("chase", 16), ("reads", 1), ("chase", 16 + steps), ("reads", 1), ("chase", 16)]
    ]
    _, grid, block, (_, _, warm) = (*counted.launches[0][:3], counted.launches[0][3][:3])
    assert (grid, block, int(warm)) == (1, 1, min(lines, 8192))
    assert int(counted.launches[1][-1][2]) == 8 * lines
    successors = (whole.get()[: 16 * lines : 16] - np.uint64(int(whole.data.ptr))) // 128
    assert np.array_equal(np.sort(successors), np.arange(lines))
    if lines == 8:
        path = [0]
        for _ in range(lines):
            path.append(int(successors[path[-1]]))
        assert sorted(path[1:]) == list(range(8)), "one cycle"
        assert path[1:] != [*range(1, 8), 0], "in a random order"


@pytest.mark.usefixtures("on_t4")
def test_a_real_gpu_is_measured_with_more_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    efforts: list[Any] = []

    def bench(info: Any, effort: Any) -> Any:
        efforts.append(effort)
        sizes = np.arange(5)
        return SimpleNamespace(
            working_set_bytes=sizes,
            measure_latencies=lambda begin: sizes,
            measure_bandwidths=lambda: iter(()),
        )

    monkeypatch.setattr(hierarchy, "_Bench", bench)
    monkeypatch.setattr(session, "which_device", lambda: SimpleNamespace(kind="cuda"))
    record = hierarchy.measure_hierarchy()
    assert efforts == [hierarchy._REAL_GPU_SIZES]
    assert "modelled" not in record.latency_method
    assert (record.provenance.source, record.provenance.device) == ("measured", "T4")

"""``gl.memory_hierarchy``: the same kernels on a real and on a virtual GPU, and what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
        return hierarchy.measure()


def test_levels_say_what_was_read_and_what_to_expect_and_deliver_what_they_did(t4: MemoryLadder) -> None:
    guide = "CUDA C++ Programming Guide"
    sheet = "NVIDIA T4 datasheet; deviceQuery listing"
    sms = 40
    ghz = 1.59
    lanes = 64
    told = {each.level: (each.published_gbps, each.document, each.method) for each in t4.bandwidths}
    loads = 128 * sms * ghz  # bytes a clock
    assert [(level, gbps, document) for level, (gbps, document, _) in told.items()] == [
        (
            "registers",
            pytest.approx(16 * lanes * sms * ghz),
            f"four operands a lane and clock: {guide} and boost clock",
        ),
        ("shared memory", pytest.approx(loads), f"32 banks of 4 bytes a clock: {guide} and boost clock"),
        ("L1", pytest.approx(loads), f"128 bytes a clock: {guide} and boost clock"),
        ("L2", None, ""),
        ("memory, read", 320, sheet),
        ("memory, copy", 320, sheet),
        ("host to device", 15.75, sheet),
        ("device to host", 15.75, sheet),
        ("peer", 15.75, sheet),
    ]
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
        ("L1", f"{guide}: L1 and shared memory together"),
        ("L2", sheet),
    ]
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
        info = session.backend().device_info()
        runtime = session.cp().cuda.runtime

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
        bench = hierarchy._Bench(session.backend().device_info(), hierarchy._REAL)
        done = []
        times = iter((5e-3, 1e-3, 2e-3, 9e-3, 4e-3, 7e-3))
        monkeypatch.setattr(bench.cp.cuda, "get_elapsed_time", lambda begin, until: next(times))

        def run(*count: int) -> None:
            done.append(count)

        def before() -> None:
            done.append("before")

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
        "host": (info.pcie_gbps, "the driver's clocks"),
        "peer": (info.pcie_gbps, "the driver's clocks"),
    }
    assert [c.document for c in hierarchy._capacities(other)][1] == "the driver"


def test_a_virtual_gpu_comes_with_what_was_recorded(
    monkeypatch: pytest.MonkeyPatch, t4: MemoryLadder
) -> None:
    monkeypatch.setattr(hierarchy, "measure", lambda: t4)

    def shown(*device: str, **beside: str) -> list[str]:
        chart = gl.memory_hierarchy(*device, **beside)
        return [each.provenance.device for each in chart.ladders]

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
        gl.memory_hierarchy("GTX 480")


def test_the_modelled_clock_agrees_with_an_h200() -> None:
    """Where the same kernels ran on both: L1, L2 and what each SM delivers."""
    recorded = ladder.recorded_ladder("H200")
    with session.on_device("virtual:H200"):
        info = session.backend().device_info()
        bench = hierarchy._Bench(info, hierarchy._Effort(1, 4 << 20, 1, 4096, 32, 16 << 20, 1, 1))
        sizes = bench.sizes
        times = bench.latencies(lambda: None)
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
        chart = gl.memory_hierarchy(name)
        assert chart.record.provenance.source == "recorded"
        assert name in chart.record.provenance.device
        assert chart.record.latency_ns.size > 30


# What is launched, and what follows from its times ------------------------------------------------------

Launch = tuple[str, int, int, tuple[Any, ...]]


class Counted:
    """A bench whose kernels only note what they are given, on a clock that a test sets."""

    def __init__(self, effort: hierarchy._Effort = hierarchy._REAL, **info: Any) -> None:
        self.bench = hierarchy._Bench(replace(session.backend().device_info(), **info), effort)
        self.bench.stream_bytes = 16 << 20
        self.launches: list[Launch] = []
        self.bench.kernels = {name: partial(self.noted, name) for name in self.bench.kernels}
        self.bench.ns = self.ns  # type: ignore[method-assign]

    def noted(self, name: str, grid: tuple[int], block: tuple[int], args: tuple[Any, ...]) -> None:
        self.launches.append((name, *grid, *block, args))

    def ns(self, run: Any, before: Any = None) -> float:
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
def test_all_sms_run_each_level_for_two_lengths_of_time() -> None:
    seen = Counted()
    found = [*islice(seen.bench.bandwidths(), 3)]
    kernels = ("registers", "shared_memory", "l1")
    assert seen.counts() == [(name, count) for name in kernels for count in (2, 4096, 2048)]
    assert {(grid, block) for _, grid, block, _ in seen.launches} == {(4 * 40, 512)}
    lanes = 4 * 40 * 512
    assert [level.gbps for level in found] == pytest.approx([lanes * n * 16 / 3 for n in (64, 4, 4)])
    blocks = seen.launches[-1][-1][0]
    assert (blocks.shape, blocks.dtype) == ((4 * 40, 8192), np.uint32)  # 32 KiB for each
    assert [args[0] for _, _, _, args in seen.launches[:6]] == [seen.bench.out] * 6
    assert [level.published_gbps for level in found] == pytest.approx(
        [16 * 64 * 40 * 1.59, 128 * 40 * 1.59, 128 * 40 * 1.59]
    )
    unknown = islice(Counted(boost_clock_mhz=None).bench.bandwidths(), 3)
    assert [level.published_gbps for level in unknown] == [None] * 3


@pytest.mark.usefixtures("on_t4")
@pytest.mark.parametrize(("rounds", "reads"), [(2048, 512), (64, 16), (68, 17), (4, 16)])
def test_l2_is_read_over_and_over(rounds: int, reads: int) -> None:
    seen = Counted(replace(hierarchy._REAL, rounds=rounds))
    level = seen.bench._l2()
    assert seen.counts() == [("reads", 1), ("reads", 2 * reads), ("reads", reads)]
    _, grid, block, (array, out, vectors, _) = seen.launches[0]
    assert (grid, block, int(vectors), array.nbytes) == (256, 256, 65536, 1 << 20)  # a quarter of it
    assert out is seen.bench.out
    assert level.gbps == pytest.approx((1 << 20) / 3)
    assert Counted(l2_bytes=(4 << 20) - 4).bench._l2().method.count("512 KiB") == 1


@pytest.mark.usefixtures("on_t4")
def test_memory_is_read_by_all_and_copied_by_halves() -> None:
    seen = Counted()
    read, copy = seen.bench._memory({"memory": (320.0, "a sheet")})
    assert seen.counts() == [("reads", 2), ("reads", 1)]
    _, grid, _, (array, _, vectors, _) = seen.launches[0]
    assert (grid, int(vectors), array.nbytes) == (8 * 40, 1 << 20, 16 << 20)
    assert read.gbps == pytest.approx((16 << 20) / 3)
    assert copy.gbps == pytest.approx(2 * (8 << 20) / (1003 / 8))  # eight copies in a row
    assert (read.published_gbps, read.document, copy.published_gbps) == (320.0, "a sheet", 320.0)


@pytest.mark.usefixtures("on_t4")
def test_a_few_vectors_are_read_by_one_block() -> None:
    seen = Counted()
    for vectors in (1, 255, 512, 256 * 320, 256 * 321):
        seen.bench._read("array", vectors, 7)
    assert [grid for _, grid, _, _ in seen.launches] == [1, 1, 2, 320, 320]
    assert seen.launches[0][-1][-1].dtype == np.int32
    assert seen.launches[0][-1][-2].dtype == np.int64


@pytest.mark.usefixtures("on_t4")
@pytest.mark.parametrize(
    ("lines", "chain", "steps"),
    [
        (8, 5000, 4096),
        (8, 4000, 4000),
        (32768, 5000, 4096),
        (32769, 5000, 5000),
        (8193, 4096, 4096),
        (32769, hierarchy._REAL.chain, 4096),
    ],
)
def test_the_chain_goes_through_every_line_once(lines: int, chain: int, steps: int) -> None:
    """Up to L2 no longer than is needed; as many loads as an L1 has lines go before."""
    seen = Counted(replace(hierarchy._REAL, chain=chain))
    whole = seen.bench.cp.zeros(16 * 32769, np.uint64)
    assert seen.bench._latency(whole, lines, np.random.default_rng(3)) == pytest.approx(3)
    assert seen.counts() == [("chase", 16), ("reads", 1), ("chase", 16 + steps), ("reads", 1), ("chase", 16)]
    _, grid, block, (array, end, warm, _) = seen.launches[0]
    assert (grid, block, int(warm)) == (1, 1, min(lines, 8192))
    assert array is whole
    assert end is seen.bench.end
    assert int(seen.launches[1][-1][2]) == 8 * lines
    words = whole.get()
    first = int(whole.data.ptr)
    nexts = (words[: 16 * lines : 16] - np.uint64(first)) // 128
    assert np.array_equal(np.sort(nexts), np.arange(lines))
    if lines == 8:
        at = 0
        passed = []
        for _ in range(lines):
            at = int(nexts[at])
            passed.append(at)
        assert sorted(passed) == list(range(8)), "one cycle"
        assert passed != [*range(1, 8), 0], "in no order that helps"


@pytest.mark.usefixtures("on_t4")
def test_each_working_set_has_its_latency() -> None:
    effort = replace(hierarchy._REAL, most_bytes=1 << 13, steps_an_octave=2)
    bench = hierarchy._Bench(session.backend().device_info(), effort)
    begun = []
    asked = []
    bench._latency = lambda whole, lines, rng: asked.append((whole.nbytes, lines)) or 7.0  # type: ignore[func-returns-value, method-assign]
    assert bench.latencies(lambda: begun.append(1)).tolist() == [7.0] * 7
    assert len(begun) == 7
    assert asked == [(8192, lines) for lines in (8, 11, 16, 22, 32, 45, 64)]


@pytest.mark.usefixtures("on_t4")
def test_copies_are_timed_in_a_row_after_such_a_row() -> None:
    bench = hierarchy._Bench(session.backend().device_info(), hierarchy._REAL)
    done = []

    def ns(run: Any) -> float:
        done.append("timed")
        run()
        return 4000.0

    bench.ns = ns  # type: ignore[method-assign, assignment]
    assert bench._copies_ns(lambda: done.append("copy")) == 500
    assert done == ["copy"] * 8 + ["timed"] + ["copy"] * 8


class Link:
    """GPUs that are made up: they note what is copied, on which stream, and from where to where."""

    def __init__(self, here: int = 0, count: int = 1) -> None:
        self.said: list[Any] = []
        self.on = here
        pinned = bytearray(4 << 20)
        self.cp = SimpleNamespace(
            zeros=self.zeros,
            uint8=np.uint8,
            cuda=SimpleNamespace(
                alloc_pinned_memory=lambda size: pinned,
                get_current_stream=lambda: "stream",
                Device=self.device,
                Stream=self.stream,
                runtime=SimpleNamespace(getDeviceCount=lambda: count),
            ),
        )

    def zeros(self, size: int, dtype: Any) -> Any:
        def copied(data: Any, size_bytes: int, stream: Any) -> None:
            self.said.append((data.on, made.on, size_bytes, stream))

        made = SimpleNamespace(
            set=lambda data, stream: self.said.append(("set", data.nbytes, stream)),
            get=lambda stream, out, blocking: self.said.append(("get", out.nbytes, stream, blocking)),
            data=SimpleNamespace(copy_from_device_async=copied, on=self.on),
            on=self.on,
            size=size,
        )
        return made

    def device(self, number: int | None = None) -> Any:
        link = self
        before = self.on

        class Device:
            id = before

            def __enter__(self) -> None:
                link.on = number  # type: ignore[assignment]

            def __exit__(self, *_: object) -> None:
                link.on = before

        return Device()

    @contextmanager
    def stream(self, non_blocking: bool = False) -> Iterator[str]:
        yield f"of its own: {non_blocking}"


@pytest.mark.usefixtures("on_t4")
def test_copies_to_the_host_and_back_are_behind_one_another_on_a_stream() -> None:
    seen = Counted(replace(hierarchy._REAL, copies=1))
    link = Link()
    seen.bench.cp = link.cp
    to_device, to_host = seen.bench._host({"host": (16.0, "a sheet")})
    size = 4 << 20
    assert link.said == [("set", size, "stream")] * 2 + [("get", size, "stream", False)] * 2
    assert (to_device.gbps, to_host.gbps) == (size / 4000, size / 4000)
    assert (to_device.published_gbps, to_host.document) == (16.0, "a sheet")


@pytest.mark.usefixtures("on_t4")
@pytest.mark.parametrize(("here", "count", "there"), [(0, 2, 1), (1, 2, 0), (2, 4, 3), (3, 4, 0)])
def test_a_peer_is_the_next_gpu(here: int, count: int, there: int) -> None:
    seen = Counted(replace(hierarchy._REAL, copies=1))
    link = Link(here, count)
    seen.bench.cp = link.cp
    peer = seen.bench._peer({"peer": (450.0, "a sheet")})
    assert link.said == [(here, there, 4 << 20, "of its own: True")] * 2
    assert (peer.gbps, peer.published_gbps, peer.why) == ((4 << 20) / 4000, 450.0, "")


class Measured:
    """A bench that only notes what it was made for."""

    made: list[Any]

    def __init__(self, info: Any, effort: hierarchy._Effort) -> None:
        Measured.made.append(effort)
        self.sizes = np.arange(5)

    def latencies(self, begin: Any) -> Any:
        for _ in range(5):
            begin()
        return np.zeros(5)

    def bandwidths(self) -> Iterator[Any]:
        yield "bandwidth"


@pytest.mark.parametrize(
    ("device", "effort"),
    [
        ("virtual:T4", hierarchy._Effort(1, 8 << 20, 1, 104857, 32, 16 << 20, 3, 1)),
        ("virtual:A100", hierarchy._Effort(1, 128 << 20, 1, (40 << 20) // 40, 32, 256 << 20, 3, 1)),
    ],
)
def test_a_virtual_gpu_is_asked_for_what_shows_its_levels(
    device: str, effort: hierarchy._Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    Measured.made = []
    begun: list[Any] = []

    @contextmanager
    def steps(total: int, what: str) -> Iterator[Any]:
        begun.append((total, what))
        yield lambda: begun.append("step")

    monkeypatch.setattr(hierarchy, "_Bench", Measured)
    with session.on_device(device):
        monkeypatch.setattr(session, "steps", steps)
        found = hierarchy.measure()
        assert Measured.made == [effort]
        assert begun == [(6, "gl.memory_hierarchy"), *["step"] * 6]
        assert found.bandwidths == ("bandwidth",)
        assert found.latency_method.startswith("One thread follows")
        assert "The modelled clock" in found.latency_method
        assert found.provenance.source == "modelled"
        monkeypatch.setattr(session, "which_device", lambda: SimpleNamespace(kind="cuda"))
        real = hierarchy.measure()
    assert Measured.made[1] is hierarchy._REAL
    assert "modelled" not in real.latency_method
    assert (real.provenance.source, real.provenance.device) == (
        "measured",
        session.table_info(device[8:]).name,
    )

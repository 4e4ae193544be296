"""The model of the caches, against a plain simulation and arithmetic."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pytest

from gpulab import session
from tools.corpus.caching import CASES, find_case, read_code
from virtualgpu.engine.caches import notes, replay
from virtualgpu.launch import caching
from virtualgpu.model.architectures import ARCHITECTURES
from virtualgpu.model.caches.geometry import CacheSizes, compute_cache_sizes
from virtualgpu.model.devices import device_info
from virtualgpu.protocol import Counters, Launch
from virtualgpu.records import CacheCounters, KernelCounters, KernelSource

Start = Literal["cold", "warm"]
MIB = 1 << 20
WAYS = 16


def counted(kernel: str, size: int, start: Start = "cold", times: int = 1) -> KernelCounters:
    cp = session.cp()
    c = find_case(kernel)
    shape = c.launch(size)
    values = shape.arguments(cp)
    for _ in range(times):
        launch = Launch.of(KernelSource(kernel, read_code()), shape.grid, shape.block, values)
        counters = session.backend().observe(launch, Counters(start))
    return counters


def caches(kernel: str, size: int, start: Start = "cold", times: int = 1) -> CacheCounters:
    result = counted(kernel, size, start, times).caches
    assert result is not None
    return result


class Lru:
    """A cache of so many lines; the least recently used one is replaced."""

    def __init__(self, lines: int) -> None:
        self.lines, self.held = lines, OrderedDict[int, Line]()
        self.written = self.completed = 0

    def use(self, number: int) -> Line:
        if number not in self.held and len(self.held) == self.lines:
            self.clean(self.held.popitem(last=False)[1])
        line = self.held.pop(number, None) or Line()
        self.held[number] = line
        return line

    def clean(self, line: Line) -> None:
        self.written += len(line.dirty)
        self.completed += len(line.dirty - line.there)
        line.there |= line.dirty
        line.dirty = set()

    def store(self, line: Line, sectors: set[int], size: int) -> None:
        others = [one for one in self.held.values() if one.dirty]
        if not line.dirty and len(others) == replay.MAX_DIRTY_WAYS:
            self.clean(others[0])
        for sector in sectors - line.there:
            line.stored[sector] += size
            if line.stored[sector] >= 32:
                line.there.add(sector)
                line.stored[sector] = 0
        line.dirty |= sectors
        if line.dirty - line.there:
            parts = [one for one in self.held.values() if one.dirty - one.there]
            pieces = {(id(one), s // 2) for one in parts for s in one.dirty - one.there}
            if len(pieces) > replay.MAX_PARTIAL_PIECES and len(parts) > 1:
                self.clean(parts[0])


@dataclass
class Line:
    """Valid and dirty sectors of a line, and bytes stored to other sectors."""

    there: set[int] = field(default_factory=set)
    dirty: set[int] = field(default_factory=set)
    stored: Counter[int] = field(default_factory=Counter)


@pytest.mark.parametrize("seed", range(5))
def test_single_set_caches_equal_a_plain_simulation(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one set each, every cache is a list of the most recently used lines."""
    monkeypatch.setattr(replay, "STORE_AGE_SHARE", 0.0)
    rng = np.random.default_rng(seed)
    count = 4_000
    sms = 3
    whats = np.array([notes.LOAD_NOTE, notes.STORE_NOTE, notes.ATOMIC_NOTE, notes.L1_BYPASS_NOTE])
    line = (rng.zipf(1.4, count) * (1 + seed)) % 60
    sectors = rng.integers(1, 16, count)
    site = rng.integers(0, 4, count)
    sm = rng.integers(0, sms, count)
    sizes = rng.choice([4, 16, 32], count, p=[0.4, 0.2, 0.4])
    lines = replay.pack_lines(line, sectors, sizes)
    packed = np.stack([lines, sm << 32 | site, np.arange(count) * 1000], axis=1)
    result = replay.replay(packed, whats, CacheSizes(WAYS * 128, WAYS * 128), sms)

    l1 = [Lru(WAYS) for _ in range(sms)]
    l2 = Lru(WAYS)
    expected = dict.fromkeys(("l1_hit", "l2", "l2_hit", "dram"), 0)
    for number, bits, kind, unit, size in zip(
        *(x.tolist() for x in (line, sectors, site, sm, sizes)), strict=True
    ):
        requested = {s for s in range(4) if bits >> s & 1}
        if kind == 0:
            present = l1[unit].use(number).there
            expected["l1_hit"] += len(requested & present)
            requested, _ = requested - present, present.update(requested)
            if not requested:
                continue
        if kind == 1 and size == 32:
            cached_line = l1[unit].held.get(number) or l1[unit].use(number)  # does not make a line newer
            cached_line.there.update(requested)
        one = l2.use(number)
        expected["l2"] += len(requested)
        expected["l2_hit"] += len(requested if kind == 1 else requested & one.there)
        if kind != 1:  # memory gives 64 bytes
            fetched = {s ^ other for s in requested - one.there for other in (0, 1)} - one.there
            expected["dram"] += len(fetched)
            one.there |= fetched
        if kind in (1, 2):
            l2.store(one, requested, 32 if kind == 2 else size)
    sums = dict(zip(replay.COLUMNS, result.sector_sums.sum(axis=0).tolist(), strict=True))
    assert {name: sums[name] for name in expected} == expected
    assert (result.written_sectors, result.completed_sectors) == (l2.written, l2.completed)
    assert min(*expected.values(), result.written_sectors, result.completed_sectors) > 0


def test_data_that_is_read_once_is_loaded_from_dram_once() -> None:
    result = caches("copy_words", 1 << 18)
    assert result.l1_hit_rate == 0.0
    assert result.dram_read_bytes == 4 << 18
    assert result.dram_write_bytes == 0  # it stays in L2
    assert (result.start, result.one_in) == ("cold", 1)


def test_data_that_a_block_rereads_hits_l1_if_it_fits() -> None:
    """Three of four passes hit: each of 132 blocks reads 160 KiB on an SM with 256 KiB."""
    assert caches("reread", 160).l1_hit_rate == pytest.approx(0.75, abs=0.01)


def test_l2_keeps_data_of_an_earlier_launch() -> None:
    assert caches("read_all", 16, "cold", times=2).dram_read_bytes == 16 * MIB
    assert caches("read_all", 16, "warm", times=2).dram_read_bytes == 0


def test_plain_counters_have_no_cache_model() -> None:
    shape = find_case("copy_words").launch(1 << 14)
    launch = Launch.of(
        KernelSource("copy_words", read_code()), shape.grid, shape.block, shape.arguments(session.cp())
    )
    plain = session.backend().observe(launch, Counters())
    assert plain.caches is None
    assert plain == counted("copy_words", 1 << 14)  # all but the caches


def test_a_sample_of_cache_lines_represents_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {size: counted("five_points", size) for size in (512, 1024)}
    monkeypatch.setattr(notes.AccessNotes.__init__, "__defaults__", (1 << 14,))
    for size, expected in whole.items():
        counters = counted("five_points", size)
        assert counters.caches is not None
        assert expected.caches is not None
        assert counters.caches.one_in >= 4
        assert expected.caches.one_in == 1
        assert counters.caches.l1_sectors == expected.caches.l1_sectors
        for rate in ("l1_hit_rate", "l2_hit_rate"):
            assert getattr(counters.caches, rate) == pytest.approx(getattr(expected.caches, rate), abs=0.02)
        assert counters.caches.dram_read_bytes == pytest.approx(expected.caches.dram_read_bytes, rel=0.1)


def test_a_small_table_stays_cached_if_no_line_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = caches("broadcast", 256)
    monkeypatch.setattr(notes.AccessNotes.__init__, "__defaults__", (1 << 10,))
    result = caches("broadcast", 256)
    assert result.one_in >= 8  # of 8 lines of the table
    assert result.l1_sectors == whole.l1_sectors
    assert result.l1_hit_rate == pytest.approx(whole.l1_hit_rate, abs=0.04)
    assert result.dram_read_bytes <= 2 * whole.dram_read_bytes


def test_a_word_that_all_lanes_update_is_fetched_once() -> None:
    result = caches("tally", 256)
    assert result.dram_read_bytes == 1024
    assert result.l2_hit_rate == pytest.approx(1.0, abs=0.001)


def test_constant_loads_of_different_words_are_replayed() -> None:
    for different in (2, 32):
        result = caches("several_weights", different)
        assert result.constant_passes == different * result.constant_requests
        assert result.constant_replays == (different - 1) * result.constant_requests
    assert caches("same_weight", 64).constant_replays == 0


@pytest.mark.parametrize("kernel", sorted(c.kernel for c in CASES))
def test_sectors_in_cache_notes_equal_the_counters(kernel: str) -> None:
    """The engine's counters and the recorder of cache lines observe the same addresses."""
    backend = session.backend()
    shape = find_case(kernel).launch(find_case(kernel).sizes[0])
    launch = Launch.of(
        KernelSource(kernel, read_code()), shape.grid, shape.block, shape.arguments(session.cp())
    )
    prepared = backend.prepared(launch)
    watch = caching.start_cache_recorder(replace(prepared, is_cold=True))
    finished = prepared.run(replace(prepared.options, observer=watch.access_notes))
    rows = watch.access_notes.rows
    requested = np.bincount(
        rows[:, 2] >> notes.SITE_SHIFT,
        [bin(bits).count("1") for bits in (rows[:, 0] & 15).tolist()],
        len(watch.access_notes.sites),
    )
    whats = watch.access_notes.sites[:, 0]
    counted = finished.result.counters.accesses
    assert len(counted) == len(whats)
    for access, kind, sectors, requests in zip(
        counted, whats.tolist(), requested.tolist(), watch.access_notes.sites[:, 2].tolist(), strict=True
    ):
        if access.space == "shared":
            assert kind == notes.IGNORED_NOTE
        elif access.space == "const":
            assert requests == access.requests
        elif access.kind != "atomic":  # of one that lanes share, each of their turns counts
            assert sectors == access.sectors


@pytest.mark.parametrize(
    ("capability", "shared_bytes", "blocks", "kib"),
    [
        ((9, 0), 1024 + 17 * 1024, 8, 92),
        ((8, 0), 1024, 1, 184),
        ((8, 0), 164 * 1024, 1, 28),
        ((7, 5), 0, 4, 64),
        ((7, 0), 0, 32, 128),
        ((8, 9), 2048, 16, 64),
        ((6, 0), 48 * 1024, 1, 24),
        ((12, 0), 100 * 1024, 1, 28),
        ((10, 0), 0, 1, 256),
        # As Nsight Compute says of an H200 (launch__shared_mem_config_size).
        ((9, 0), 1024, 4, 240),
        ((9, 0), 1024, 8, 224),
        ((9, 0), 1024, 16, 224),
        ((9, 0), 2048, 8, 224),
        ((9, 0), 3072, 8, 192),
        ((9, 0), 5248, 8, 156),
    ],
)
def test_l1_size_is_reduced_by_shared_memory(
    capability: tuple[int, int], shared_bytes: int, blocks: int, kib: int
) -> None:
    """The sizes are from the CUDA C++ Programming Guide."""
    info = replace(device_info("T4"), compute_capability=capability)
    assert compute_cache_sizes(info, shared_bytes, blocks).l1_bytes == kib * 1024


def test_l1_size_of_every_architecture_is_plausible() -> None:
    for limits in ARCHITECTURES:
        info = replace(device_info("T4"), compute_capability=limits.compute_capability)
        assert 16 * 1024 <= compute_cache_sizes(info, limits.shared_per_sm_bytes, 1).l1_bytes <= 64 * 1024


@pytest.mark.parametrize("stride", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("offset", [0, 1, 9, 31])
def test_a_block_misses_each_sector_once_if_l1_holds_them_all(stride: int, offset: int) -> None:
    cp = session.cp()
    source = """extern "C" __global__ void twice(const float* x, float* y, int stride, int offset) {
        int i = (blockIdx.x * blockDim.x + threadIdx.x) * stride + offset;
        float first = x[i];
        __syncthreads();
        y[blockIdx.x * blockDim.x + threadIdx.x] = first + *(volatile const float*)(x + i);
    }"""
    x = cp.zeros(256 * stride + 32, cp.float32)
    arguments = (x, cp.zeros(256, cp.float32), np.int32(stride), np.int32(offset))
    launch = Launch.of(KernelSource("twice", source), (2,), (128,), arguments)
    counters = session.backend().observe(launch, Counters("cold"))
    sectors = (np.arange(256) * stride + offset) * 4 // 32
    distinct = sum(len(np.unique(sectors[block * 128 :][:128])) for block in range(2))
    assert sum(access.missed_sectors for access in counters.accesses if access.kind == "load") == distinct

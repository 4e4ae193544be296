"""Statistics from traces, against PyTorch's own numbers and tables, and against plain sums."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpulab.allocators.cupy import CuPyAllocator
from gpulab.allocators.replay import replay
from gpulab.allocators.statistics import count_statistics
from gpulab.allocators.torch import TorchAllocator
from tests.allocators.test_cupy import requests as cupy_requests
from tests.allocators.test_replay import program
from tests.allocators.traces import trace_of
from tools.recordings import FOLDER
from tools.recordings.torch_pools import Recording
from virtualgpu.records import Provenance
from virtualgpu.records.memory import AllocatorStatistics, AllocatorTrace, Figure

RECORDINGS = sorted(FOLDER.glob("torch_pools_*.npz.xz"))
CAPACITIES = (1 << 28, 1 << 40)  # one that is too small for the programs, and one that is not
RECORDED = Provenance("recorded", "NVIDIA H200", "torch 2.11")


def of_nested(nested: dict[str, Any]) -> AllocatorStatistics:
    """Return a record of PyTorch's numbers."""
    tables = {key: value for key, value in nested.items() if isinstance(value, dict)}
    figures = {
        key: {"": Figure(**value)}
        if "peak" in value
        else {pool: Figure(**values) for pool, values in value.items()}
        for key, value in tables.items()
    }
    counts = {key: value for key, value in nested.items() if key not in tables}
    return AllocatorStatistics(
        provenance=RECORDED, device_id=0, title="PyTorch CUDA memory summary", figures=figures, counts=counts
    )


@pytest.mark.skipif(not RECORDINGS, reason="no recording of PyTorch's allocator")
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_summary_tables_equal_pytorchs(path: Any) -> None:
    records = Recording.load(path).about["statistics"]
    assert len(records) > 10
    for record in records:
        result = of_nested(record["nested"])
        assert result.table() == record["summary"]
        assert result.nested() == record["nested"]
        assert result.summary().endswith("|\nRecorded on NVIDIA H200 (torch 2.11).\n")


def model_figures(pool: TorchAllocator) -> dict[str, Any]:
    """Return the model's own counts, without its waits for all streams, which no trace contains."""
    nested = pool.statistics.nested()
    del nested["num_sync_all_streams"]
    return nested


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "max_split_size_mb:25"])
def test_statistics_from_a_trace_equal_pytorchs_counts(settings: str) -> None:
    """The model's figures are equal to those that PyTorch recorded, see `test_torch_recorded`."""
    retries = ooms = split = 0
    for seed in range(40):
        pool = TorchAllocator(settings, capacity_bytes=CAPACITIES[seed % 2])
        result = count_statistics(replay(program(seed, 200), pool)).nested()
        counted = model_figures(pool)
        if "max_split" in settings:  # segments that are too large to split go back without a retry
            del result["num_alloc_retries"], counted["num_alloc_retries"]
        assert result == counted
        retries += result.get("num_alloc_retries", 1)
        ooms += result["num_ooms"]
        split += result["inactive_split"]["all"]["freed"]
    assert min(retries, ooms) > 10
    assert (split > 500) is ("expandable" not in settings)


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_blocks_from_before_the_trace_count_as_current_and_peak(settings: str) -> None:
    for seed in range(15):
        pool = TorchAllocator(settings, capacity_bytes=1 << 40)
        requests = program(seed, 240)
        before = replay(requests[:120], pool)
        alive = {request.number for request in requests[:120] if request.kind == "alloc"}
        later = [r for r in requests[120:] if r.number == -1 or r.kind == "alloc" or r.number not in alive]
        for by_pool in pool.statistics.tallies.values():
            for figure in by_pool.values():
                figure.peak = figure.current
                figure.allocated = 0
                figure.freed = 0
        for name in ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"):
            setattr(pool.statistics, name, 0)
        later = [r for r in later if r.kind != "record_stream"]
        assert count_statistics(replay(later, pool)).nested() == model_figures(pool)
        assert count_statistics(before).figures["allocation"]["all"].allocated > 50


def sums(trace: AllocatorTrace) -> dict[str, tuple[int, int, int, int]]:
    """Return current, peak and accumulated bytes from the events."""
    signs = {
        "allocated_bytes": {"alloc": 1, "free_requested": -1},
        "requested_bytes": {"alloc": 1, "free_completed": -1},
        "reserved_bytes": {"segment_alloc": 1, "segment_free": -1},
    }
    totals = {}
    for metric, sign in signs.items():
        now = peak = increase = decrease = 0
        for action, _, size, requested, *_ in trace.events.rows():
            amount = sign.get(action, 0) * (requested if metric == "requested_bytes" else size)
            now = now + amount
            increase = increase + max(amount, 0)
            decrease = decrease - min(amount, 0)
            peak = max(peak, now)
        totals[metric] = now, peak, increase, decrease
    return totals


def test_statistics_of_cupys_pool_are_not_split_by_block_size() -> None:
    for seed in range(40):
        pool = CuPyAllocator(capacity_bytes=CAPACITIES[1])
        trace = replay(cupy_requests(seed), pool)
        result = count_statistics(trace)
        assert all(set(pools) == {"all"} for pools in result.figures.values())
        figures = {metric: pools["all"] for metric, pools in result.figures.items()}
        for metric, expected in sums(trace).items():
            figure = figures[metric]
            assert (figure.current, figure.peak, figure.allocated, figure.freed) == expected
        assert figures["allocated_bytes"].current == pool.used_bytes
        assert figures["reserved_bytes"].current == pool.total_bytes
        block_map = pool.block_map()
        parts = [b for s in block_map.segments if len(s.blocks) > 1 for b in s.blocks if b.is_free]
        assert figures["inactive_split"].current == len(parts)
        assert figures["inactive_split_bytes"].current == sum(block.size_bytes for block in parts)
        assert figures["segment"].current == len(block_map.segments)


def test_summary_of_cupys_pool_is_not_split_by_block_size() -> None:
    pool = CuPyAllocator(limit_bytes=4096, device_name="H200")
    pool.malloc(1000, 0)
    result = count_statistics(replay(cupy_requests(3), pool))
    text = result.summary()
    *table, provenance = text.splitlines()
    assert len({len(line) for line in table}) == 1
    assert "CuPy memory pool summary, device ID 0" in table[1]
    assert provenance == "Modelled on H200 (CuPy 14.2)."
    assert not re.search("small pool|Oversize", text)
    assert result.table(abbreviated=True) == result.table()
    assert result.flat()["reserved_bytes.all.peak"] == result.figures["reserved_bytes"]["all"].peak >= 1024
    assert list(result.flat()) == sorted(result.flat())


def test_incomplete_traces_have_statistics() -> None:
    """The trace has frees without requests, frees of unknown blocks, and blocks outside all segments."""
    rows = [
        ("alloc", 4096, 512, 100, 0, 0),
        ("free_completed", 4096, 512, 100, 0, 0),
        ("free_requested", 8192, 512, 100, 0, 0),
        ("free_completed", 8192, 512, 100, 0, 0),
        ("segment_free", 1 << 30, 1024, 0, 0, 0),
    ]
    figures = count_statistics(trace_of(rows)).figures
    for metric in ("allocation", "active", "allocated_bytes", "active_bytes", "requested_bytes"):
        assert (figures[metric]["all"].current, figures[metric]["all"].peak > 0) == (0, True)
    assert figures["reserved_bytes"]["all"].freed == 1024
    assert figures["inactive_split"]["all"].allocated == 0

"""Costs of a device program and the operations that its result depends on, read from a fake timeline."""

from __future__ import annotations

import contextlib
from typing import Any

from gpulab_course.teach.judge import Budget
from gpulab_course.teach.judge.budget import is_within_budget, make_complaint
from gpulab_course.teach.judge.python.counts import ProgramRecord, make_score, read_counts
from gpulab_course.teach.judge.python.flow import (
    DataFlow,
    count_concurrent_kernels,
    count_waiting_kernels,
    find_data_flow,
)
from gpulab_course.teach.judge.python.memory_use import MemoryUse
from virtualgpu.records import Activity, HostCall, Provenance, Synchronization, Timeline
from virtualgpu.records.acts import Act, GraphLaunch, HostWait, Region, Work

CURRENT = 7
OTHER = 8


def kernel(number: int, start: int = 0, end: int = 0, stream: int = CURRENT, **more: Any) -> Activity:
    fields = {"kind": "CONCURRENT_KERNEL", "name": "k"} | more
    return Activity(
        device_id=0, stream_id=stream, correlation_id=number, start_ns=start, end_ns=end, **fields
    )


def copy(number: int, way: Any, size: int, start: int = 0, end: int = 0, **fields: Any) -> Activity:
    fields = {"kind": "MEMCPY", "name": "c", "size_bytes": size, "copy_kind": way} | fields
    return kernel(number, start, end, **fields)


# Two launches of one graph (30 to 34 and 40 to 42): nodes wait for the launch and for each other.
ACTIVITIES = (
    copy(1, "HtoD", 1000, 0, 100, pinned=False),
    copy(2, "HtoD", 200, 100, 200, pinned=True),
    kernel(3, 150, 250, after=(2,), double_flop=5),
    kernel(4, 300, 400, stream=OTHER, after=(3,), double_flop=6),
    kernel(5, 400, 410, after=(3,), name="cupy_copy_strided"),
    kernel(6, 410, 420, after=(4, 5)),
    copy(7, "DtoD", 16, kind="MEMCPY"),
    copy(8, "PtoP", 32, kind="MEMCPY2"),
    copy(9, "DtoH", 40, 400, 440, pinned=False),
    kernel(10, kind="MEMSET"),
    *(
        kernel(30 + n, graph_id=3, graph_node_id=n, after=after, kind=kind)
        for n, after, kind in (
            (0, (10,), "HOST"),
            (1, (30,), "CONCURRENT_KERNEL"),
            (2, (31,), "CONCURRENT_KERNEL"),
            (3, (30, 6), "MEMSET"),
            (4, (32, 33), "CONCURRENT_KERNEL"),
        )
    ),
    kernel(40, graph_id=3, after=(34,), kind="HOST"),
    kernel(41, graph_id=3, graph_node_id=1, after=(40, 34)),
    kernel(42, graph_id=3, graph_node_id=2, after=(41,)),
    kernel(50, graph_id=5, kind="HOST"),
)


def timeline(*activities: Activity, waits: str = "", calls: str = "") -> Timeline:
    """Return a timeline in reversed order. Each letter of `waits` is a wait, and of `calls` a call."""
    kinds: dict[str, Any] = {"c": "CONTEXT_SYNCHRONIZE", "w": "STREAM_WAIT_EVENT", "s": "STREAM_SYNCHRONIZE"}
    names = {"e": "cudaEventQuery", "s": "cudaStreamQuery", "m": "cudaMemcpyAsync"}
    made = [HostCall(names[letter], at, at + 1, 0) for at, letter in enumerate(calls)]
    return Timeline(
        provenance=Provenance("simulated", "A100"),
        method="",
        start_ns=1000,
        end_ns=9999,
        activities=tuple(reversed(activities)),
        calls=tuple(reversed(made)),
        synchronizations=tuple(
            Synchronization(type=kinds[letter], device_id=0, stream_id=0, start_ns=0, end_ns=0)
            for letter in waits
        ),
    )


def memory(**fields: int) -> MemoryUse:
    use = MemoryUse()
    for name, value in fields.items():
        setattr(use, name, value)
    return use


USED = {
    "driver_calls": 3,
    "segments": 2,
    "peak_reserved_bytes": 4096,
    "peak_used_bytes": 1024,
    "kept_bytes": 512,
}


def test_every_counter_is_read_from_the_timeline() -> None:
    record = ProgramRecord(
        timeline(*ACTIVITIES, waits="ccwwws", calls="eemsmme"), 4, 77, memory(**USED), stream_id=CURRENT
    )
    record.data_flow = DataFlow(frozenset({1, 3, 4, 5, 6, 31, 34, 42}), 2)
    assert read_counts(record) == {
        "launches": 9,
        "host_launches": 7,
        "graph_launches": 3,
        "graphs": 2,
        "graph_depth": 4,
        "double_flop": 11,
        "memsets": 2,
        "copies": 6,
        "copied_bytes": 1288,
        "to_device_copies": 2,
        "to_device_bytes": 1200,
        "to_host_copies": 1,
        "to_host_bytes": 40,
        "pageable_copies": 2,
        "bus_bytes": 1317,
        "waits": 7,
        "device_waits": 2,
        "stream_waits": 3,
        "hidden_percent": 29,
        "microseconds": 8,
        **USED,
        "wasted_bytes": 3072,
        "streams": 2,
        "beside": 3,
        "held_up": 3,
        "working_graph_launches": 2,
        "computed_outside": 3,
        "graph_kernels": 3,
    }
    assert [a.correlation_id for a in record.activities] == [a.correlation_id for a in ACTIVITIES]


def test_concurrent_time_counts_as_hidden() -> None:
    def hidden(*spans: tuple[int, int, str]) -> int:
        activities = [
            kernel(n, start, end) if way == "kernel" else copy(n, way, 1, start, end)
            for n, (start, end, way) in enumerate(spans)
        ]
        return ProgramRecord(timeline(*activities), 0).hidden_percent

    assert hidden((0, 100, "HtoD"), (100, 200, "kernel"), (200, 300, "DtoH")) == 0
    assert hidden((0, 100, "HtoD"), (0, 100, "kernel"), (0, 100, "DtoH")) == 100
    assert hidden((0, 100, "HtoD"), (50, 150, "kernel")) == 50
    assert hidden((0, 100, "HtoD"), (75, 150, "kernel"), (100, 150, "DtoH")) == 60
    # Two kernels share one engine, and copies within the device count for no engine.
    assert hidden((0, 100, "kernel"), (0, 100, "kernel"), (0, 50, "DtoH")) == 100
    assert hidden((0, 100, "kernel"), (0, 100, "DtoD")) == 0
    assert hidden((0, 100, "kernel")) == 0


def test_consecutive_event_queries_count_as_one_poll() -> None:
    def polls(calls: str) -> int:
        return ProgramRecord(timeline(calls=calls), 0).poll_count

    assert [polls(calls) for calls in ("", "m", "e", "eses", "eme", "mesms", "sme")] == [0, 0, 1, 1, 2, 2, 2]


# Concurrent kernels and delays


def test_unordered_kernels_count_as_concurrent() -> None:
    first = kernel(1)
    elsewhere = kernel(2, stream=OTHER)
    behind = kernel(3, after=(1,))
    joined = kernel(4, after=(2, 3))
    every = [first, elsewhere, behind, joined]
    assert count_concurrent_kernels(every, every) == 3  # all but the last, which waits for both
    assert count_concurrent_kernels([first, behind], every) == 0  # in one stream
    after = kernel(2, stream=OTHER, after=(1,))
    assert count_concurrent_kernels([first, after], [first, after]) == 0
    # An order through an operation that is not a kernel counts, too.
    between = copy(2, "DtoD", 1, after=(1,))
    third = kernel(3, stream=OTHER, after=(2,))
    assert count_concurrent_kernels([first, third], [first, between, third]) == 0
    # An operation from before the recording orders nothing here.
    assert (
        count_concurrent_kernels(
            [kernel(5, after=(1,)), kernel(6, stream=OTHER)], [kernel(5, after=(1,)), kernel(6)]
        )
        == 2
    )


def test_kernels_are_delayed_by_other_streams_only() -> None:
    every = [
        kernel(1),
        kernel(2, stream=OTHER, after=(1,)),
        kernel(3, after=(1,)),
        copy(4, "DtoD", 1, after=(2, 3)),
        kernel(5, after=(4,)),
        kernel(6, after=(5,)),
        kernel(7, stream=OTHER, after=(6,)),
    ]
    kernels = [a for a in every if a.kind == "CONCURRENT_KERNEL"]
    assert count_waiting_kernels(kernels, every, CURRENT) == 2
    assert count_waiting_kernels(kernels, every, OTHER) == 2
    assert count_waiting_kernels([a for a in kernels if a.correlation_id != 2], every, CURRENT) == 0


# Operations that a result depends on


def at(address: int, size: int = 8, memory_: int = 0) -> Region:
    return Region(memory_, address, size)


def work(number: int, reads: Any = (), writes: Any = (), atomics: Any = ()) -> Work:
    places = {"reads": reads, "writes": writes, "atomics": atomics}
    regions: dict[str, Any] = {name: tuple(map(at, which)) for name, which in places.items()}
    return Work(number=number, name="k", device_id=0, stream_id=CURRENT, **regions)


def rests(acts: list[Act], *places: int) -> tuple[set[int], int]:
    result = find_data_flow(acts, [at(place) for place in places])
    return set(result.correlation_ids), result.graph_launches


def test_a_result_depends_on_its_writers_and_on_their_inputs() -> None:
    chain: list[Act] = [
        work(1, writes=[0]),
        work(2, reads=[0], writes=[100]),
        work(3, reads=[0], writes=[200]),
        HostWait("device"),
        work(4, reads=[100], writes=[300]),
    ]
    assert rests(chain, 300) == ({1, 2, 4}, 0)
    assert rests(chain, 200) == ({1, 3}, 0)
    assert rests(chain, 200, 300) == ({1, 2, 3, 4}, 0)
    assert rests(chain, 900) == (set(), 0)
    # A complete overwrite ends a dependency. An addition or a partial write does not.
    assert rests([*chain, work(5, writes=[300])], 300) == ({5}, 0)
    assert rests([*chain, work(5, atomics=[300])], 300) == ({1, 2, 4, 5}, 0)
    assert rests([*chain, work(5, reads=[300], writes=[300])], 300) == ({1, 2, 4, 5}, 0)
    half = Work(number=5, name="k", device_id=0, stream_id=CURRENT, writes=(at(304, 4),))
    assert rests([*chain, half], 300) == ({1, 2, 4, 5}, 0)
    # A later operation is not a dependency.
    assert rests([work(1, reads=[0], writes=[100]), work(2, writes=[0])], 100) == ({1}, 0)


def test_graphs_count_only_if_the_result_depends_on_a_node() -> None:
    def graph(*nodes: Work) -> GraphLaunch:
        return GraphLaunch(0, CURRENT, nodes, ())

    first = graph(work(11, writes=[100]), work(12, reads=[100], writes=[200]))
    second = graph(work(21, reads=[200], writes=[300]), work(22, writes=[400]))
    assert rests([first, second], 300) == ({11, 12, 21}, 2)
    assert rests([first, second], 200) == ({11, 12}, 1)
    assert rests([first, second], 400) == ({22}, 1)
    assert rests([first, second], 900) == (set(), 0)


# Scores


def test_a_score_compares_the_answer_with_reference_and_naive_code() -> None:
    def of(item: Budget, naive: dict[str, int] | None = None) -> Any:
        return make_score(item, {"waits": 3}, {"waits": 1}, naive)

    score = of(Budget("waits"), {"waits": 9})
    assert (score.yours, score.reference, score.naive) == (3, 1, 9)
    assert not is_within_budget(Budget("waits"), score)
    message = make_complaint(Budget("waits", "Wait once."), score)
    assert message.endswith("and 1 is allowed (reference 1). Wait once.")
    kinds: tuple[Any, ...] = (
        {},
        {"max_count": 2},
        {"max_count": 0},
        {"min_count": 1},
        {"min_reference_share": 0.5},
    )
    assert [of(Budget("waits", **kind)).golf for kind in kinds] == [True, True, False, False, False]


# Memory


class Ledger:
    def __init__(self) -> None:
        self.driver_calls = 10
        self.segment_count = 5
        self.reserved_bytes = 4000
        self.array_bytes = 300
        self.peak_reserved_bytes = 99_999
        self.peak_array_bytes = 99_999

    def reset_peaks(self) -> None:
        self.peak_reserved_bytes = self.reserved_bytes
        self.peak_array_bytes = self.array_bytes


def test_memory_use_excludes_earlier_allocations() -> None:
    class Memory:
        memory_totals = Ledger()

    class Device:
        memory = Memory()

    use = MemoryUse()
    ledger = Memory.memory_totals
    with use.count_memory(Device()):
        ledger.driver_calls = 13
        ledger.segment_count = 7
        ledger.peak_reserved_bytes = 4096
        ledger.peak_array_bytes = 340
        ledger.reserved_bytes = 4050
        ledger.array_bytes = 310
    assert vars(use) == {
        "driver_calls": 3,
        "segments": 2,
        "peak_reserved_bytes": 96,
        "peak_used_bytes": 40,
        "kept_bytes": 10,
    }
    assert use.wasted_bytes == 56
    with contextlib.suppress(ZeroDivisionError), use.count_memory(Device()):
        ledger.segment_count += 1
        raise ZeroDivisionError
    assert (use.segments, use.peak_used_bytes) == (1, 0)

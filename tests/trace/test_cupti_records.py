"""CUPTI records: field offsets, and the order of operations that follows from their streams."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Collection
from typing import Any

import pytest

from gpulab.analysis.cupti import kinds, layout
from gpulab.analysis.cupti.names import shorten_kernel_name
from gpulab.analysis.cupti.records import HostInfo, Records
from gpulab.analysis.cupti.stream_order import StreamOrder, find_node_predecessors

# offsetof of each field, in bytes, by gcc from cupti_activity.h of CUDA 12.9, 13.0 and 13.5, which agree, and
# the least sizeof among them.
OFFSETS: dict[int, tuple[int, str]] = {
    kinds.CONCURRENT_KERNEL: (
        208,
        (
            "start=16 end=24 device=40 context=44 stream=48 grid_x=52 grid_y=56 grid_z=60 block_x=64 "
            "block_y=68 block_z=72 static_shared=76 dynamic_shared=80 correlation=92 name=104 node=144 "
            "graph=156 registers=6"
        ),
    ),
    kinds.MEMCPY: (
        96,
        (
            "kind=4 source=5 target=6 size=8 start=16 end=24 device=32 context=36 stream=40 "
            "correlation=44 node=64 graph=72"
        ),
    ),
    kinds.MEMCPY2: (
        96,
        (
            "kind=4 source=5 target=6 size=8 start=16 end=24 device=32 context=36 stream=40 "
            "correlation=60 node=72 graph=80"
        ),
    ),
    kinds.MEMSET: (
        88,
        "size=8 start=16 end=24 device=32 context=36 stream=40 correlation=44 node=64 graph=72",
    ),
    kinds.RUNTIME: (40, "cbid=4 start=8 end=16 thread=28 correlation=32"),
    kinds.MARKER: (56, "flags=4 time=8 id=16 object_kind=20 thread=28 name=40 domain=48"),
    kinds.MARKER_DATA: (32, "flags=4 id=8 color=24"),
    kinds.CUDA_EVENT: (56, "correlation=4 context=8 stream=12 event=16 sync=48"),
    kinds.STREAM: (24, "context=4 stream=8 priority=12 flag=16"),
    kinds.SYNCHRONIZATION: (
        56,
        "type=4 start=8 end=16 correlation=24 context=28 stream=32 event=36 sync=40 status=48",
    ),
    kinds.HOST_LAUNCH: (48, "stream=4 context=8 device=12 correlation=16 start=32 end=40"),
    kinds.GRAPH_HOST_NODE: (
        56,
        "stream=4 context=8 device=12 correlation=16 graph=20 node=24 start=40 end=48",
    ),
}


class TestRecordLayout:
    @pytest.mark.parametrize("kind", OFFSETS)
    def test_field_offsets_agree_with_the_header(self, kind: int) -> None:
        size, text = OFFSETS[kind]
        fields = layout.LAYOUTS[kind].fields
        assert fields is not None
        offsets = {name: int(offset) for name, offset in (field.split("=") for field in text.split())}
        assert {name: place[1] for name, place in fields.items()} == offsets
        assert layout.LAYOUTS[kind].itemsize <= size

    def test_driver_calls_have_the_layout_of_runtime_calls(self) -> None:
        assert layout.LAYOUTS[kinds.DRIVER] is layout.LAYOUTS[kinds.RUNTIME]


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("saxpy", "saxpy"),
        ("cupy_add__float32_float32_float32", "cupy_add__float32_float32_float32"),
        ("_Z5saxpyfPKfPfi", "saxpy"),
        ("_Z4axpyIfEvPT_", "axpy<float>"),
        ("_ZN2ns1kILi4EEEvv", "ns::k<4>"),
        ("_ZN12_GLOBAL__N_11kEPi", "(anonymous namespace)::k"),
        (
            "_ZN33a_namespace_with_a_very_long_name31another_one_that_is_hardly_less6kernelIfLi4EEEvPT_",
            "kernel<...>",
        ),
        # As in the C++ library: template arguments contain the parentheses of casts and lambdas.
        (
            "void cub::CUB_300102_SM_900::Kernel<cub::hub<double, (cub::SortOrder)0>, 0>(double const*)",
            "Kernel<...>",
        ),
        (
            (
                "void at::native::vectorized<4, at::f(at::X&)::{lambda()#2}::operator()() const, char*>"
                "(int, char*)"
            ),
            "vectorized<...>",
        ),
        (
            "void gemv2T_kernel_val<int, int, Params<int, Batched<float const>, float> >(Params<int, float>)",
            "gemv2T_kernel_val<...>",
        ),
        ("void ns::Functor::operator()(int)", "ns::Functor::operator()"),
        ("", ""),
    ],
)
def test_kernel_names_are_shortened(symbol: str, name: str) -> None:
    assert shorten_kernel_name(symbol) == name


class TestStreamOrder:
    """Predecessors of operations, compared with a plain search over all dependencies."""

    @pytest.mark.parametrize("seed", range(60))
    def test_predecessors_in_random_programs(self, seed: int) -> None:
        chance = random.Random(seed)
        blocking = {7: True, 13: True, 14: True, 15: False, 16: False}
        order = StreamOrder({(1, 7)}, {(1, s) for s, blocks in blocking.items() if not blocks})
        # Operations, events and waits are steps. Each has the earlier steps that it follows directly.
        follows: dict[int, set[int]] = {}
        last: dict[int, int] = {}
        operations: dict[int, tuple[int, ...]] = {}
        recorded: dict[int, int] = {}
        for step in range(1, 80):
            stream = chance.choice(list(blocking))
            draw = chance.random()
            event = chance.randrange(3)
            follows[step] = {
                last[s]
                for s in last
                if s == stream or (blocking[s] and blocking[stream] and 7 in (s, stream))
            }
            last[stream] = step
            if draw < 0.6:
                operations[step] = order.add_operation((1, stream), step)
            elif draw < 0.8 or event not in recorded:
                recorded[event] = step
                order.record_event((1, stream), step)
            else:
                follows[step].add(recorded[event])
                event_stream, predecessors = order.add_event_wait((1, stream), recorded[event])
                assert event_stream is not None
                assert reached(predecessors, operations) == reached_steps(recorded[event], follows) & set(
                    operations
                )
        for number, predecessors in operations.items():
            assert reached(predecessors, operations) == reached_steps(number, follows) & set(operations) - {
                number
            }
            assert not any(
                {operation} & reached(operations[other], operations)
                for operation in predecessors
                for other in predecessors
            )

    def test_predecessors_of_graph_nodes_from_their_times(self) -> None:
        predecessors = find_node_predecessors([(4, 0, 10), (6, 11, 30), (5, 12, 20), (7, 31, 40)], (2, 3))
        assert predecessors == {4: (2, 3), 6: (4,), 5: (4,), 7: (6,)}

    def test_predecessors_of_concurrent_first_graph_nodes(self) -> None:
        assert find_node_predecessors([(4, 0, 10), (5, 1, 9)], (3,)) == {4: (3,), 5: (3,)}

    def test_an_operation_after_a_graph_follows_its_last_nodes(self) -> None:
        order = StreamOrder({(1, 7)}, ())
        assert order.add_operation((1, 13), 1) == ()
        assert order.add_graph((1, 13), [(2, 0, 10), (3, 11, 20), (4, 12, 30)]) == {2: (1,), 3: (2,), 4: (2,)}
        assert order.add_operation((1, 13), 5) == (3, 4)


def reached(numbers_before: Collection[int], operations: dict[int, tuple[int, ...]]) -> set[int]:
    """Return all operations that can be reached through `after`."""
    numbers = set()
    open_ = list(numbers_before)
    while open_:
        number = open_.pop()
        if number not in numbers:
            numbers.add(number)
            open_ += operations[number]
    return numbers


def reached_steps(step: int, follows: dict[int, set[int]]) -> set[int]:
    steps = set()
    open_ = [step]
    while open_:
        number = open_.pop()
        if number not in steps:
            steps.add(number)
            open_ += follows[number]
    return steps


def api(cbid: int, start: int, end: int, correlation: int, kind: int = kinds.RUNTIME) -> bytes:
    return struct.pack("<IIQQIIII", kind, cbid, start, end, 1, 77, correlation, 0)


def memset(start: int, end: int, correlation: int, stream: int = 7) -> bytes:
    record = struct.pack("<IIQQQIIII", kinds.MEMSET, 0, 4096, start, end, 0, 1, stream, correlation)
    return record.ljust(88, b"\0")


def parts(*records: bytes, **observations: Any) -> Any:
    data = b"".join(records)
    offsets = [sum(map(len, records[:index])) for index in range(len(records))]
    read = Records(lambda domain: {1: "cudaMemsetAsync", 2: "cudaFree"} if domain == 2 else {1: "cuMemsetD8"})
    read.add_buffer(memoryview(ctypes.create_string_buffer(data, len(data))).cast("B"), offsets)
    return read.make_timeline_parts(HostInfo(**observations))


class TestTimelineParts:
    def test_a_nested_call_is_merged_into_the_outer_call(self) -> None:
        result = parts(api(1, 105, 109, 5, kinds.DRIVER), memset(120, 130, 5), api(1, 100, 110, 5))
        assert [(c.name, c.start_ns, c.correlation_id) for c in result.calls] == [("cudaMemsetAsync", 100, 1)]

    def test_records_without_times_are_counted_and_left_out(self) -> None:
        result = parts(memset(0, 0, 5), memset(120, 130, 6))
        assert (len(result.activities), result.unfinished_count) == (1, 1)

    def test_records_are_sorted_and_unknown_kinds_ignored(self) -> None:
        strange = struct.pack("<IIQ", 999, 0, 0)
        result = parts(memset(150, 160, 9), strange, memset(120, 130, 6), memset(140, 145, 8))
        assert [(a.start_ns, a.correlation_id, a.after) for a in result.activities] == [
            (120, 1, ()),
            (140, 2, (1,)),
            (150, 3, (2,)),
        ]

    def test_free_waits_for_earlier_work(self) -> None:
        waiting = parts(memset(120, 190, 5), api(2, 130, 195, 6))
        assert [(w.type, w.name, w.hidden, w.after) for w in waiting.synchronizations] == [
            ("CONTEXT_SYNCHRONIZE", "cudaFree", True, (1,))
        ]
        assert not parts(memset(120, 129, 5), api(2, 130, 195, 6)).synchronizations

    def test_calls_have_a_python_thread_and_line(self) -> None:
        queries = []
        result = parts(
            api(1, 100, 110, 5),
            memset(120, 130, 5),
            threads={77: 1234},
            find_line=lambda *question: queries.append(question),
        )
        assert queries == [(77, 100, "cudaMemsetAsync")]
        assert result.calls[0].thread == 1234

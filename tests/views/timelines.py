"""Timelines for tests, made by plain arithmetic: streams, copies, waits, ranges and graphs of any number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.views.synthetic import MEASURED, MODELLED
from virtualgpu.records import (
    Activity,
    HostCall,
    NvtxRange,
    Provenance,
    SourceLine,
    StreamInfo,
    Synchronization,
    Timeline,
)

LONG = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluFunctor<float>, std::array<char*, 2>>"
)
MIB = 1 << 20


def line(number: int, text: str = "") -> SourceLine:
    return SourceLine("cell 12", number, text)


def kernel(stream: int, number: int, start: int, end: int, name: str = "scale", **fields: Any) -> Activity:
    shape = {"grid": (4096, 1, 1), "block": (256, 1, 1)}
    return Activity(
        kind="CONCURRENT_KERNEL",
        name=name,
        device_id=0,
        stream_id=stream,
        correlation_id=number,
        start_ns=start,
        end_ns=end,
        **{**shape, **fields},
    )


def copy(stream: int, number: int, start: int, end: int, kind: str, **fields: Any) -> Activity:
    words = {"HtoD": "Host -> Device", "DtoH": "Device -> Host"}.get(kind, "Device -> Device")
    defaults = {"size_bytes": MIB, "copy_kind": kind, "pinned": True, **fields}
    return Activity(
        kind="MEMCPY",
        name=f"Memcpy {kind} ({words})",
        device_id=0,
        stream_id=stream,
        correlation_id=number,
        start_ns=start,
        end_ns=end,
        **defaults,
    )


def overlapped(
    streams: int = 4, chunks: int = 8, provenance: Provenance = MODELLED, slow: float = 1
) -> Timeline:
    """H2D, kernel and D2H of chunks in turn on several streams; host calls, waits, ranges, a hidden wait."""
    ops: list[Activity] = []
    calls: list[HostCall] = []
    free = {"HtoD": 20_000, "kernel": 20_000, "DtoH": 20_000}
    tail = dict.fromkeys(range(streams), 20_000)
    host = 1_000
    for chunk in range(chunks):
        stream = chunk % streams
        for engine, took in (("HtoD", 42_000), ("kernel", 60_000), ("DtoH", 42_000)):
            number = len(ops) + 1
            name = "cudaLaunchKernel" if engine == "kernel" else "cudaMemcpyAsync"
            text = "square(grid, block, args)" if engine == "kernel" else "y.get(out=host, blocking=False)"
            calls.append(HostCall(name, host, host + 4_000, 1, number, line(3 + number % 3, text)))
            host += 6_000
            start = max(free[engine], tail[stream], host)
            end = round(start + took * slow)
            free[engine] = tail[stream] = end
            op = (
                kernel(stream + 7, number, start, end, ("square", "cube")[chunk % 2])
                if engine == "kernel"
                else copy(stream + 7, number, start, end, engine)
            )
            ops.append(op)
    # The last stream sums up what the first copied.
    event = next(op.correlation_id for op in ops if op.copy_kind == "HtoD")
    wait_at = host
    number = len(ops) + 1
    start = max(tail[streams - 1], free["kernel"]) + 5_000
    ops.append(kernel(streams + 6, number, start, start + 30_000, "sum", after=(event,)))
    end = start + 60_000
    sync = line(9, "total = float(result)")
    ops.sort(key=lambda op: op.start_ns)
    waits = (
        Synchronization(
            type="STREAM_WAIT_EVENT",
            device_id=0,
            stream_id=streams + 6,
            start_ns=wait_at,
            end_ns=wait_at + 800,
            name="cudaStreamWaitEvent",
            event_id=1,
            event_stream_id=7,
            after=(event,),
            source=line(8),
        ),
        Synchronization(
            type="CONTEXT_SYNCHRONIZE",
            device_id=0,
            stream_id=None,
            start_ns=wait_at + 2_000,
            end_ns=start + 30_000,
            name="cudaMemcpy",
            hidden=True,
            source=sync,
        ),
        Synchronization(
            type="STREAM_SYNCHRONIZE",
            device_id=0,
            stream_id=7,
            start_ns=start + 32_000,
            end_ns=end - 10_000,
            name="stream.synchronize()",
            source=line(10, "stream.synchronize()"),
        ),
    )
    ranges = (
        NvtxRange(name="pipeline", color=None, start_ns=500, end_ns=end - 2_000, thread=1),
        NvtxRange(name="submit", color=0xFF00FF00, start_ns=900, end_ns=wait_at, thread=1, depth=1),
        NvtxRange(name="chunk 0", color=None, start_ns=1_000, end_ns=19_000, thread=1, depth=2),
        NvtxRange(
            name="half way", color=None, start_ns=90_000, end_ns=90_000, thread=1, depth=2, is_mark=True
        ),
    )
    infos = tuple(
        StreamInfo(0, index + 7, "default stream" if not index else f"stream {index}")
        for index in range(streams)
    )
    method = "model" if provenance.source == "modelled" else "CUPTI"
    note = "The host's own work is not modelled."
    return Timeline(
        provenance=provenance,
        method=method,
        start_ns=0,
        end_ns=end,
        activities=tuple(ops),
        calls=tuple(calls),
        synchronizations=waits,
        ranges=ranges,
        streams=infos,
        note=note,
    )


def tiny_kernels(count: int = 40, graph: bool = False, provenance: Provenance = MEASURED) -> Timeline:
    """Kernels of 2 µs: 6 µs apart from a loop, 1 µs apart in a launch of a graph."""
    step, first = (3_000, 9_000) if graph else (8_000, 7_000)
    origin = 5_000_000
    ops = tuple(
        kernel(
            7,
            number + 1,
            origin + first + step * number,
            origin + first + step * number + 2_000,
            ("layer_norm", "matmul", "softmax", "gelu")[number % 4],
            graph_id=3 if graph else 0,
            graph_node_id=number if graph else 0,
        )
        for number in range(count)
    )
    source = line(5, "y = gelu(x)")
    calls = tuple(
        HostCall(
            "cudaLaunchKernel",
            index.start_ns - 6_000,
            index.start_ns - 1_000,
            1,
            index.correlation_id,
            source,
        )
        for index in ops
    )
    if graph:
        source = line(2, "graph.launch()")
        calls = (HostCall("cudaGraphLaunch", origin + 1_000, origin + 8_000, 1, 1, source),)
    return Timeline(
        provenance=provenance,
        method="CUPTI",
        start_ns=origin,
        end_ns=ops[-1].end_ns + 1_000,
        activities=ops,
        calls=calls,
        streams=(StreamInfo(0, 7, "default stream"),),
    )


def many(count: int = 100_000, streams: int = 12, seed: int = 1) -> Timeline:
    """Operations of log-normal length on several streams, some with an event to wait for."""
    random = np.random.default_rng(seed)
    stream = random.integers(0, streams, count)
    took = (10 ** random.normal(3.6, 0.5, count)).astype(int) + 100
    gap = (10 ** random.normal(3.2, 0.8, count)).astype(int)
    tail = np.zeros(streams, int)
    kinds = random.integers(0, 10, count)
    ops = []
    for number in range(count):
        s = int(stream[number])
        start = int(tail[s] + gap[number])
        end = start + int(took[number])
        tail[s] = end
        kind = "HtoD" if kinds[number] == 0 else "DtoH" if kinds[number] == 1 else ""
        after = (number,) if kinds[number] == 5 and number and ops[-1].end_ns <= start else ()
        ops.append(
            copy(s + 7, number + 1, start, end, kind, size_bytes=int(took[number]) * 20)
            if kind
            else kernel(s + 7, number + 1, start, end, f"kernel_{kinds[number]}", after=after)
        )
    ops.sort(key=lambda op: op.start_ns)
    return Timeline(
        provenance=MODELLED, method="model", start_ns=0, end_ns=int(tail.max()), activities=tuple(ops)
    )


def two_devices() -> Timeline:
    first = overlapped(2, 4)
    second = tuple(
        replace(
            op,
            device_id=1,
            start_ns=op.start_ns + 30_000,
            end_ns=op.end_ns + 30_000,
            correlation_id=op.correlation_id + 100,
            after=(),
        )
        for op in first.activities
    )
    exchanged = replace(
        copy(8, 300, first.end_ns, first.end_ns + 50_000, "PtoP", after=(second[-1].correlation_id,)),
        kind="MEMCPY2",
    )
    ops = tuple(sorted((*first.activities, *second, exchanged), key=lambda op: op.start_ns))
    return replace(first, activities=ops, end_ns=first.end_ns + 60_000)


def alone() -> Timeline:
    """One operation, in no stream that has a name."""
    return Timeline(
        provenance=MODELLED,
        method="model",
        start_ns=1_000,
        end_ns=21_000,
        activities=(kernel(0, 5, 6_000, 18_345, LONG),),
    )


def empty() -> Timeline:
    return Timeline(provenance=MODELLED, method="model", start_ns=0, end_ns=0)


def threads() -> Timeline:
    """Three threads with ranges within ranges, work of each engine, and waits without a name."""
    base = 3_000_000_000
    plain = {"grid": None, "block": None}
    ops = (
        kernel(7, 1, base + 100, base + 900, "void f<(anonymous namespace)::g>(int)"),
        copy(7, 2, base + 1_000, base + 3_000, "DtoD"),
        replace(copy(7, 3, base + 3_000, base + 3_500, "HtoD"), pinned=False, size_bytes=0),
        replace(kernel(8, 4, base + 500, base + 2_500, "callback"), kind="HOST_LAUNCH", **plain),
        replace(kernel(9, 5, base + 4_000, base + 4_000, "between events"), kind="RANGE", **plain),
        replace(kernel(9, 6, base + 4_100, 2 * base, "Memset", after=(2,)), kind="MEMSET", **plain),
    )
    calls = tuple(
        HostCall("cudaLaunch", 1_000 * n, 1_000 * n + 700, thread, max(0, n - 1), line(n) if n % 2 else None)
        for n, thread in enumerate((5, 6, 7, 5, 6))
    )
    ranges = tuple(
        NvtxRange(name=f"range {n}", color=None, start_ns=n, end_ns=9_000 - n, thread=5 + n // 5, depth=n)
        for n in range(7)
    )
    waits = tuple(
        Synchronization(
            type=kind, device_id=0, stream_id=None, start_ns=index, end_ns=index + 40, hidden=index > 500
        )
        for index, kind in ((100, "STREAM_SYNCHRONIZE"), (900, "CONTEXT_SYNCHRONIZE"))
    )
    return Timeline(
        provenance=MEASURED,
        method="file",
        start_ns=0,
        end_ns=2 * base + 100,
        activities=ops,
        calls=calls,
        synchronizations=waits,
        ranges=ranges,
        lost=1,
        note="the clocks were aligned.",
    )

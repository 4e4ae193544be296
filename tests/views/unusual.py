"""Views of records with what most do not have: gaps, refusals, many or no rows, names that are alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpulab.views import (
    AccessMicroscope,
    DeviceCard,
    DeviceComparison,
    GraphView,
    LadderChart,
    LoadChart,
    MemoryChart,
    OccupancyChart,
    RooflineChart,
)
from tests.views import graphs, synthetic
from virtualgpu.records import (
    DanglingArray,
    DeviceMetrics,
    GraphArray,
    GraphNode,
    Metric,
    NodeParameter,
    Provenance,
    SourceLine,
)
from virtualgpu.records.access import SPACES, AccessPattern, AccessTrace, Rule
from virtualgpu.records.counters import AccessCounters, KernelCounters, Space
from virtualgpu.records.device.load import LoadSamples
from virtualgpu.records.launch.roofline import RooflinePoint
from virtualgpu.records.memory import MemoryMarks, MemorySamples

MIB = 1 << 20


# --- accesses of a kernel ---------------------------------------------------------------------------


def accesses(truncated: bool = False) -> AccessTrace:
    """A row for each kind of access, more rows than stand on paper, and one that the warp did not make."""
    kinds: list[tuple[int, str, Space, Rule, int, int, int]] = [
        # line, instruction, space, rule, bytes, stride in bytes, requests
        (5, "ld.global.f32", "global", "load", 4, 8, 64),
        (6, "ld.global.v4.f32", "global", "load", 16, 16, 2),
        (7, "st.shared.f32", "shared", "store", 4, 128, 64),
        (8, "ld.shared.v2.f32", "shared", "load", 8, 8, 64),
        (9, "atom.shared.add.u32", "shared", "atomic", 4, 4, 3),
        (9, "atom.shared.cas.b32", "shared", "swap", 4, 8, 3),
        (10, "red.global.add.f32", "global", "atomic", 4, 0, 3),
        (11, "ld.const.f32", "const", "load", 4, 4, 3),
        (12, "st.local.f32", "local", "store", 4, 4, 3),
        (13, "tex.2d.v4.f32.f32", "global", "load", 4, 4, 3),
        (13, "suld.b.2d.b32", "global", "load", 4, 4, 3),
        (14, "sust.b.2d.b32", "global", "store", 4, 4, 3),
        (14, "ld.global.f32", "global", "load", 4, 4, 0),
    ]
    records = []
    site = []
    address = []
    lanes = np.arange(32)
    for index, (line, text, space, rule, size, stride, requests) in enumerate(kinds):
        places = np.where(lanes < 30, 4096 + stride * lanes, -1)
        first = replace(
            AccessPattern().access(space, rule), addresses=tuple(places.tolist()), size_bytes=size
        )
        memory = first.memory()
        banks = first.banks()
        sectors = memory.sectors if space != "shared" else 0
        passes = banks.wavefronts if space == "shared" else 0
        ideal = banks.ideal_wavefronts if space == "shared" else 0
        records.append(
            AccessCounters(
                pc=index,
                line=line,
                text=f"{text} %f1, [%rd1];",
                space=space,
                size_bytes=size,
                column=5,
                kind="atomic" if rule in ("atomic", "swap") else rule,
                requests=requests,
                sectors=sectors * requests,
                wavefronts=passes * requests,
                ideal_wavefronts=ideal * requests,
                bytes_requested=memory.bytes_requested * requests,
            )
        )
        mine = min(requests, 2) * (line != 6)
        site += [index] * mine
        address += [places + 32 * turn * (places >= 0) for turn in range(mine)]
    spaces = [SPACES.index(kinds[index][2]) for index in site]
    counters = KernelCounters(
        provenance=synthetic.MODELLED,
        kernel_name="scale_roots",
        grid=(4, 2, 1),
        block=(64, 1, 1),
        shared_bytes=4224,
        warp_instructions=900,
        thread_instructions=28_000,
        accesses=tuple(records),
    )
    return AccessTrace(
        counters=counters,
        rules=tuple(kind[3] for kind in kinds),
        code=synthetic.KERNEL,
        block_index=(0, 1, 0) if truncated else (3, 0, 0),
        warp_index=1,
        site=np.array(site, np.int32),
        space=np.array(spaces, np.int8),
        address=np.array(address, np.int64),
        truncated=truncated,
    )


def none_accessed() -> AccessTrace:
    trace = accesses()
    nothing = np.zeros(0, np.int32)
    return replace(
        trace,
        counters=replace(trace.counters, accesses=()),
        rules=(),
        site=nothing,
        space=nothing.astype(np.int8),
        address=np.zeros((0, 32), np.int64),
    )


def _chosen(view: Any, **chosen: Any) -> Any:
    for name, value in chosen.items():
        setattr(view, name, value)
    return view


# --- memory and load over time ----------------------------------------------------------------------


def refusals() -> MemorySamples:
    """A pool with a limit that is set late, refusals, gaps, seven lines, and much that is not the pool's."""
    index = np.arange(40.0)
    used = MIB * (1 + index % 7)
    used[[2, 3, 4, 9, 10, 39]] = np.nan
    reserved = 12 * used
    reserved[15:18] = np.nan
    limit = np.where(index < 20, 0.0, 30.0 * MIB)
    # time, allocations, bytes, frees, bytes, failures, line, reserved bytes
    rows = [
        (1e8 * n, n % 3, MIB * n, (n + 1) % 2, MIB, n == 8, n % 9 - 1, MIB * (n % 5)) for n in range(0, 36, 4)
    ]
    rows.append((3.7e9, 0, 0, 0, 0, 0, -1, -6 * MIB))
    lines = tuple(SourceLine("cell [4]", n, f"x{n} = f()" if n % 2 else "") for n in range(8))
    return replace(
        synthetic.memory_samples(40),
        provenance=synthetic.MEASURED,
        used_bytes=used,
        reserved_bytes=reserved,
        peak_bytes=1.5 * used,
        limit_bytes=limit,
        device_bytes=np.where(index > 5, 1e9 + 1e7 * index, np.nan),
        marks=MemoryMarks.of(np.array(rows, np.float64)),
        lines=lines,
        note="The driver was restarted.",
        capacity_bytes=8 << 30,
    )


def unknown_memory() -> MemorySamples:
    """One reading, of which the device tells nothing."""
    first = replace(synthetic.memory_samples(10), time_ns=np.zeros(1))
    nothing = np.full(1, np.nan)
    names = ("used_bytes", "reserved_bytes", "peak_bytes", "limit_bytes", "device_bytes", "others_bytes")
    return replace(first, marks=MemoryMarks.of(np.zeros((0, 8))), lines=(), **dict.fromkeys(names, nothing))


def hot() -> LoadSamples:
    """Long, with pauses, every kind of clock's reason, and all that a device can tell of itself."""
    record = synthetic.load_samples(1500)
    index = np.arange(1500)
    columns = dict(record.columns)
    reasons = np.array([0, 0x1, 0x8, 0x4, 0x2, 0x24, 0x80])[index // 30 % 7].astype(float)
    columns |= {
        "tensor": 0.0004 + 0 * index,
        "fp32": index % 50 / 10.0,
        "clock_reasons": reasons,
        "energy": 3000 + 40.0 * index,
    }
    columns = {name: np.where(index // 100 % 5 == 3, np.nan, column) for name, column in columns.items()}
    phases = tuple((f"size: {n}", 50e9 * n) for n in range(15))
    return replace(
        record,
        columns=columns,
        phases=phases,
        memory_mib=81_920,
        power_limit_w=700.0,
        mig=False,
        processes=((4711, 512.0), (9, None)),
        missing={"fp16": "MIG is on", "dram": "MIG is on", "fp64": "no"},
        note="The room was warm.",
    )


def cold() -> LoadSamples:
    """Readings of nothing but utilization, for half a second."""
    record = synthetic.load_samples(2)
    nothing = np.full(2, np.nan)
    columns = dict.fromkeys(record.columns, nothing) | {"utilization": np.array([0.0, 0.4])}
    return replace(record, columns=columns, phases=(), sms=None, mig=True)


# --- devices ----------------------------------------------------------------------------------------


def _unknown_device() -> Any:
    return replace(
        synthetic.devices()[2],
        provenance=synthetic.MEASURED,
        name="NVIDIA H200",
        boost_clock_mhz=None,
        fp32_tflops=None,
        memory_bandwidth_gbps=None,
        memory_type="",
        pcie_gbps=None,
        nvlink_gbps=None,
        driver="570.86",
        notes="Two of its SMs are off.",
    )


def _slow_device() -> Any:
    return replace(
        synthetic.devices()[1],
        name="H200",
        boost_clock_mhz=987.654,
        memory_clock_mhz=405.678,
        memory_bandwidth_gbps=123.456,
        pcie_gbps=3.93846,
        nvlink_gbps=25.7821,
        fp16_tensor_tflops=65.1294,
        l2_bytes=1 << 19,
        max_grid_dim=(2**31 - 1, 70_000, 1),
    )


def _setup() -> DeviceMetrics:
    rows = (Metric("Stack a thread", 1024.0, "B"), Metric("MIG", "off"), Metric("Heap", None, "B", "no"))
    return DeviceMetrics(provenance=synthetic.MEASURED, time_ns=1, metrics=rows)


# --- graphs -----------------------------------------------------------------------------------------

_VALUES = (
    ("a", "float", np.float32(0.5).tobytes()),
    ("b", "int", np.int32(-3).tobytes()),
    ("c", "bool", b"\1"),
    ("d", "float", b"\0\0"),
    ("", "", b"\1\2"),
    ("e", "S", bytes(24)),
    ("f", "S", bytes(16)),
    ("g", "unsigned", np.uint32(7).tobytes()),
    ("h", "char", b"\xff"),
    ("i", "double", np.float64(1e300).tobytes()),
)


def every_kind() -> Any:
    """A node of each kind, parameters of each type, and two fans of four."""
    values = tuple(
        NodeParameter(data, 8 * index, name, kind) for index, (name, kind, data) in enumerate(_VALUES)
    )
    inside = NodeParameter(b"", 0, "p", "float*", (graphs.X + 256, 0x1234))
    nodes = [
        replace(graphs.kernel(0, graphs.CUB), parameters=values, shared_bytes=2048, grid=(2, 3, 1)),
        GraphNode(number=1, kind="MEMCPY", name="", size_bytes=4096, copy_kind="HtoD", parameters=(inside,)),
        GraphNode(number=2, kind="MEMSET", name="MEMSET", size_bytes=100),
        GraphNode(number=3, kind="HOST", name="f", source=SourceLine("cell [1]", 4, "stream.launch(f)")),
        GraphNode(number=4, kind="EMPTY", name="EMPTY"),
        GraphNode(number=5, kind="MEMCPY", name="", size_bytes=1, copy_kind="DtoH"),
        *(graphs.kernel(6 + index, "left") for index in range(4)),
        *(graphs.kernel(10 + index, "right") for index in range(5)),
        *(graphs.kernel(15 + index, "tail") for index in range(30)),
    ]
    fans = [(5, index) for index in range(6, 15)] + [(index, 15) for index in range(6, 15)]
    chain = [(index, index + 1) for index in range(5)] + [(index, index + 1) for index in range(15, 44)]
    return graphs.graph(*nodes, edges=fans + chain, note="One node was not read.")


def dangling() -> Any:
    """Arrays that mean something else by now, or nothing."""
    old = GraphArray("weights[0]", graphs.OLD, 4096, "float32", ())
    used = [
        graphs.kernel(index, f"k{index}", address=graphs.OLD if index % 2 else graphs.X)
        for index in range(12)
    ]
    records = (
        DanglingArray(old, None, (1, 3, 5, 7, 9), (1.0,), ()),
        DanglingArray(replace(old, name="y"), graphs.X, (11,), (), (2.0, 3.5)),
    )
    return graphs.graph(*used, dangling=records)


# --- rooflines, ladders and occupancies -------------------------------------------------------------


def crowded_roofline() -> Any:
    """More kernels than a table shows, three at one place, one that moved nothing, one too short to time."""
    record = synthetic.roofline(modelled=True)
    saxpy, stencil, *_ = record.points
    points_ = [replace(saxpy, name=f"saxpy {n}") for n in range(3)]
    points_ += [
        replace(stencil, name=f"stencil {n}", time_ns=stencil.time_ns * (1 + n / 3)) for n in range(2)
    ]
    points_.append(replace(saxpy, name="still", size_bytes={"DRAM": 0, "L2": 0, "shared": 0}))
    points_.append(replace(saxpy, name="quick", time_ns=0.0))
    points_.append(replace(saxpy, name="elsewhere", size_bytes={"DRAM": 0, "L2": 0, "shared": 9_000_000}))
    return replace(record, points=(*record.points, *points_), path=True)


def empty_roofline() -> Any:
    point = RooflinePoint(
        name="copy",
        provenance=synthetic.MEASURED,
        flops={},
        size_bytes={"DRAM": 10, "L2": 30, "shared": 20},
        time_ns=2e3,
    )
    return replace(synthetic.roofline(), points=(point,))


def _ladders() -> list[Any]:
    first = synthetic.ladder()
    two = synthetic.ladder(synthetic.MEASURED, 1.3)
    bandwidths = [replace(level, published_gbps=None) for level in two.bandwidths[:3]]
    three = replace(
        two,
        provenance=Provenance("measured", "Tesla T4"),
        bandwidths=tuple(bandwidths),
        capacities=(),
        working_set_bytes=two.working_set_bytes[4:9],
        latency_ns=2 * two.latency_ns[4:9],
    )
    return [first, two, three]


def _odd_occupancies() -> OccupancyChart:
    """Sizes of which none is a multiple of 128, without limit, too, and one that does not fit."""
    points = [synthetic.occupancy(size, 64) for size in (33, 96, 160, 1000)]
    points.append(replace(points[0], block_threads=65, limiters=()))
    none = {"blocks_per_sm": 0, "warps_per_sm": 0, "limiters": ("shared memory", "registers")}
    return OccupancyChart(points, replace(points[1], block_threads=700, **none))


ALL: dict[str, Callable[[], Any]] = {
    "access shared": lambda: AccessMicroscope(AccessPattern(32, 0, 16, 0, True), "shared"),
    "access global": lambda: AccessMicroscope(AccessPattern(0, 5, 1), "global"),
    "access padded": lambda: AccessMicroscope(AccessPattern(33, 2, 8, 4, True)),
    "access of 18 lines": lambda: AccessMicroscope(AccessPattern(18)),
    "access of a kernel": lambda: AccessMicroscope(accesses()),
    "access of an atomic": lambda: _chosen(AccessMicroscope(accesses(True), line=9, note="So."), request=9),
    "access edited": lambda: _chosen(AccessMicroscope(accesses(), line=11), edited=True, stride=2, offset=7),
    "access not made": lambda: AccessMicroscope(accesses(), line=6),
    "access of local memory": lambda: AccessMicroscope(accesses(), line=12),
    "access of none": lambda: AccessMicroscope(none_accessed()),
    "memory refused": lambda: MemoryChart(refusals, "paused", lambda what, size: ""),
    "memory unknown": lambda: MemoryChart(unknown_memory),
    "load of a hot device": lambda: LoadChart(hot),
    "load of a hot device live": lambda: _chosen(LoadChart(hot, "paused"), span_s=600),
    "load unknown": lambda: LoadChart(cold, "live"),
    "card of a measured device": lambda: DeviceCard(_unknown_device(), setup=_setup()),
    "card beside twins": lambda: DeviceCard(
        synthetic.devices()[1], [*synthetic.devices()[1:3], _unknown_device()]
    ),
    "comparison of twins": lambda: DeviceComparison(
        [_unknown_device(), replace(_unknown_device(), name="H200"), _slow_device()]
    ),
    "three ladders": lambda: LadderChart(_ladders()),
    "ladder without levels": lambda: LadderChart(_ladders()[2:]),
    "roofline crowded": lambda: RooflineChart(crowded_roofline()),
    "roofline of nothing": lambda: RooflineChart(empty_roofline()),
    "occupancy odd": _odd_occupancies,
    "graph of every kind": lambda: GraphView(every_kind(), name="step"),
    "graph marked": lambda: _chosen(GraphView(every_kind()), node=15),
    "graph dangling": lambda: GraphView(dangling()),
    "graph of nothing": lambda: GraphView(graphs.graph()),
    "graph without a replay": lambda: GraphView(
        graphs.chain(22), replace(graphs.compared(graphs.chain(22)), replay=None)
    ),
}

"""Every table that is tested, of records made for it, with what is rare in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

from gpulab.views.tables import timeline
from gpulab.views.tables.as_run import AsRunTable
from gpulab.views.tables.count import CounterTable
from gpulab.views.tables.diagnosis import DiagnosisTable
from gpulab.views.tables.history import HistoryTable
from gpulab.views.tables.libraries import CallsTable, TuningTable
from gpulab.views.tables.memory import HostMemoryTable, MemoryReportTable
from gpulab.views.tables.profile import ProfileComparison, ProfileTable
from gpulab.views.tables.sandbox import SandboxTable
from gpulab.views.tables.sanitizer import SanitizerTable
from gpulab.views.tables.streams import StreamTable
from virtualgpu.records import (
    AccessCounters,
    Advice,
    BranchCounters,
    CacheCounters,
    Gap,
    Hazard,
    KernelCounters,
    Occupancy,
    Overlap,
    PathStep,
    Place,
    Provenance,
    SanitizerReport,
    SourceLine,
    StreamHazard,
    StreamReport,
    StreamUse,
    Timeline,
)
from virtualgpu.records.as_run import AccessAsRun, AsRun, BranchAsRun
from virtualgpu.records.faults.history import ElementHistory, Write
from virtualgpu.records.faults.sandboxed import Culprit, SandboxRun
from virtualgpu.records.hazards import StreamHazardKind
from virtualgpu.records.launch.causes import Cause, LaunchCosts
from virtualgpu.records.libraries import Calls, Candidate, Choice, Operation, OperationCalls, Tuning
from virtualgpu.records.memory import (
    AliveBlocks,
    AllocatorStatistics,
    FailedRequest,
    Figure,
    MemoryReport,
    Room,
)
from virtualgpu.records.memory.events import Frame
from virtualgpu.records.profile import (
    HardwareCounters,
    Profile,
    ProfiledCopy,
    ProfiledKernel,
    ProfiledLine,
    ProfiledRange,
    ProfiledWait,
)

T4 = Provenance("modelled", "virtual T4")
H200 = Provenance("recorded", "NVIDIA H200")
MIB = 1 << 20
GIB = 1 << 30
SMALL: dict[str, Any] = {"provenance": T4, "kernel_name": "k", "grid": (4, 2, 1), "block": (64, 1, 1)}
LONG = "  for (int i = 0; i < rows_of_the_matrix; i += 1) y[i + rows_of_the_matrix * 2] = w[i] * some + x[i];"
CODE = f"{LONG}\n  x[i] = 1; // a < b\n\n  if (i) return;"


def line(number: int, text: str = "y = x @ x") -> SourceLine:
    """A line of a program."""
    return SourceLine("cell 3", number, text)


# --- counts -----------------------------------------------------------------------------------------


def access(index: int, space: Any, kind: Any, **fields: Any) -> AccessCounters:
    """An access whose counts are all different."""
    defaults = {
        "pc": index,
        "size_bytes": 4,
        "requests": 10 * index,
        "sectors": 70 * index,
        "wavefronts": 9 * index,
        "ideal_wavefronts": 4 * index,
        "bytes_requested": 640 * index,
        "l1_hit_sectors": 7 * index,
    }
    return AccessCounters(line=index, text=f"ld.{space}", space=space, kind=kind, **(defaults | fields))


def counts(**fields: Any) -> CounterTable:
    """Accesses of every space and kind."""
    defaults: dict[str, Any] = {
        "accesses": (
            access(1, "global", "load", column=3),
            access(2, "global", "store"),
            access(4, "global", "atomic"),
            access(2, "shared", "load", size_bytes=8),
            access(2, "shared", "load"),
            access(9, "local", "load"),
            access(3, "const", "load"),
            access(5, "global", "load", sectors=0),
            *(access(7, "global", "load", **dict.fromkeys(("requests", "sectors"), 0)) for _ in range(2)),
        ),
        "branches": (BranchCounters(1, 4, "@%p1 bra", 1_200, 30), BranchCounters(2, 9, "@%p2 bra", 7, 2)),
        "flops": {"f16": 808, "f32": 2_000},
        "tensor_operations": {"f16 to f32": 8_192, "s8 to s32": 4_096},
    }
    counters = KernelCounters(
        **SMALL, shared_bytes=1, warp_instructions=1_000, thread_instructions=20_000, **(defaults | fields)
    )
    return CounterTable.of(counters, code=CODE, note="Counted in a replay")


def caches(**fields: Any) -> CacheCounters:
    """What the model of the caches makes of it."""
    defaults: dict[str, Any] = {
        "l1_sectors": 300,
        "l1_hit_sectors": 100,
        "l2_sectors": 200,
        "l2_hit_sectors": 60,
        "dram_read_bytes": 4_096,
        "dram_write_bytes": 32,
    }
    return CacheCounters(start="warm", **(defaults | fields))


def as_run(**fields: Any) -> AsRunTable:
    """What is merged, what is gone, and what cannot be told."""

    def row(index: int, space: Any, kind: str, opcode: str, **extra: Any) -> AccessAsRun:
        return AccessAsRun(
            pc=index,
            space=space,
            kind=kind,
            opcode=opcode,
            written=8 * index,
            **(
                {
                    "text": f"@%p{index} ld.{space}.f32 x",
                    "line": index,
                    "size_bytes": 4,
                    "requests": 5 * index,
                    "executions": 6 * index,
                }
                | extra
            ),
        )

    defaults: dict[str, Any] = {
        "accesses": (
            row(2, "global", "load", "LDG.E.64", note="Merged."),
            row(2, "global", "load", "", column=3),
            row(2, "global", "load", "LDG.E.64"),
            row(3, "global", "store", ""),
            row(1, "global", "load", "LDG", column=3),
            row(5, "shared", "store", "STS", executions=None),
            row(6, "generic", "atomic", "ATOM", text="atom.add.u32 y", note="Merged."),
        ),
        "branches": (
            BranchAsRun(pc=7, line=4, text="@%p1 bra", opcode="BRA", written=12, divergent=3, column=3),
            BranchAsRun(pc=8, line=4, text="@%p2 bra", opcode="BRA", written=5, divergent=4),
            BranchAsRun(pc=9, line=0, text="@%p3 bra", opcode="", written=6, divergent=0, note="Predicated."),
        ),
    }
    return AsRunTable.of(AsRun(**SMALL, target="sm_75", **(defaults | fields)), code=CODE)


# --- why a launch takes its time ----------------------------------------------------------------------

CAUSES: dict[str, dict[str, Any]] = {
    "uncoalesced": {"figures": {"sectors": 32, "ideal": 4}, "line": 2, "text": "ld.global"},
    "long line": {"kind": "uncoalesced", "figures": {"sectors": 8, "ideal": 4}, "line": 1, "text": "ld"},
    "re-reading": {"figures": {"times": 16}, "line": 1, "column": 20},
    "bank conflicts": {"figures": {"wavefronts": 32, "ideal": 1}, "line": 8, "text": "ld.shared.f32"},
    "atomics": {"figures": {"lanes": 1_024, "words": 1, "after": 32}},
    "spills": {"figures": {"requests": 1}},
    "the last warp": {"kind": "divergence", "figures": {"partial": 1, "divergent": 0, "lanes": 20}},
    "divergence": {"figures": {"partial": 4, "divergent": 1, "lanes": 20.5}},
    "divergence alone": {"kind": "divergence", "figures": {"partial": 0, "divergent": 2, "lanes": 20.5}},
    "fp64": {"kind": "compute", "detail": "fp64", "figures": {"operations": 2, "rate": 32}},
    "functions": {"kind": "compute", "detail": "functions", "figures": {"share": 0.4}},
    "divisions": {"kind": "compute", "detail": "division", "figures": {"operations": 1}},
    "shared memory": {"kind": "occupancy", "detail": "shared memory", "figures": {"size_bytes": 4_096}},
    "registers": {"kind": "occupancy", "detail": "registers", "figures": {"registers": 128}},
    "blocks": {"kind": "occupancy", "detail": "blocks", "figures": {"threads": 1}},
    "warps": {"kind": "occupancy", "detail": "warps"},
    "grid": {"figures": {"blocks": 3, "sms": 40}},
    "the longest block": {"kind": "tail", "figures": {"longest": 1.5, "blocks": 9, "waves": 1}},
    "waves": {"kind": "tail", "figures": {"longest": 1.49, "blocks": 41, "waves": 1.03}},
    "narrow": {"kind": "in flight", "detail": "narrow", "figures": {"size_bytes": 1}},
    "in flight": {"figures": {"memory": 0.9, "warps": 1}},
    "chains": {"kind": "latency", "detail": "memory"},
    "latency": {"figures": {"warps": 8}},
    "one warp": {"kind": "latency", "figures": {"warps": 1}},
    "launch": {"before_ns": 9_000.0},
}


def cause(name: str, gain: float = 2.0, **fields: Any) -> Cause:
    """One of `CAUSES`, worth so much."""
    defaults = {"kind": name, "before_ns": 6_000.0, "remaining": 100.0} | CAUSES.get(name, {}) | fields
    if defaults["kind"] == "occupancy":
        figures = {"warps": 16, "room": 32, "size_bytes": 8, "registers": 9, "threads": 10}
        defaults["figures"] = figures | defaults.get("figures", {})
    return Cause(after_ns=defaults["before_ns"] / gain, **defaults)


def costs(*causes: Cause, **fields: Any) -> LaunchCosts:
    """A launch that has these, the most profitable first."""
    occupancy = Occupancy(
        provenance=T4,
        block_threads=64,
        registers_per_thread=32,
        shared_bytes=0,
        blocks_per_sm=16,
        warps_per_sm=32,
        max_warps_per_sm=32,
        blocks_by_limit={"warps": 16},
        limiters=("warps",),
    )
    defaults = {
        "stages": {"start": 1_500.0, "latency": 2_000.0, "DRAM": 5_000.0, "L2": 2_500.0, "fma": 1_000.0},
        "time_ns": 6_000.0,
        "host_ns": 4_000.0,
    }
    ordered = tuple(sorted(causes, key=lambda entry: -entry.gain))
    record = SMALL | {"shared_bytes": 0, "sm_count": 40, "occupancy": occupancy, "causes": ordered}
    return LaunchCosts(**(record | defaults | fields))


def diagnosis(
    *causes: Cause, note: str = "", fields: Mapping[str, Any] | None = None, **with_baseline: Any
) -> DiagnosisTable:
    """What is said of it."""
    table = DiagnosisTable.of(costs(*causes, **(fields or {})), code=CODE, note=note)
    return replace(table, **with_baseline)


def worth() -> DiagnosisTable:
    """Each kind of cause as little above what it has to gain as it can be, and below."""
    kinds = {"grid": 1.25, "tail": 1.25 * 1.025, "in flight": 1.25 * 1.08, "latency": 1.25 * 1.08}
    records = [
        cause("waves" if kind == "tail" else kind, threshold + 0.001 * way)
        for kind, threshold in kinds.items()
        for way in (1, -1)
    ]
    return diagnosis(
        *records,
        cause("warps", 3.0, remaining=1.2),
        cause("waves", 3.0, remaining=1.2),
        cause("warps", 1.25),
        cause("spills", 1.24),
    )


def bound(stage: str, **fields: float) -> DiagnosisTable:
    """A launch that one stage holds down."""
    stages = {"start": 1.0, "latency": 2.0, "DRAM": 3.0, stage: 3_000.0, **fields}
    return diagnosis(fields={"stages": stages})


def tensor_wait(stage: str, shared_share: float) -> DiagnosisTable:
    """A launch whose tensor cores wait for a stage."""
    stages = {"start": 1.0, "latency": 2.0, "DRAM": 3.0, "tensor": 600.0, stage: 3_000.0}
    return diagnosis(cause("grid"), fields={"stages": stages, "shared_share": shared_share})


def with_baseline(
    *before: Cause, ns: float = 12_000.0, kinds_: tuple[str, ...] = (), **stages: float
) -> DiagnosisTable:
    """A launch beside another, which took so long and whose stages took so long."""
    extra = costs(*before, kernel_name="other", time_ns=ns)
    extra = replace(extra, stages={**extra.stages, **stages})
    return diagnosis(*(cause(name) for name in kinds_), baseline=extra)


# --- what was written, and what failed ------------------------------------------------------------------

DIGITS = "1\n2\n3\n4\n5\n" * 9
NOWHERE = Place(0, "", (0, 0, 0), (0, 0, 0))


def history(number: int = 3, together: bool = False, **fields: Any) -> HistoryTable:
    """An element that was written so often, in turn by a thread, an atomic and the library."""
    index = Place(4, "y[i] = 1;", (1, 0, 0), (5, 0, 0))
    kinds = (
        {"kind": "store", "name": "k", "place": index, "source": line(2), "launch": 1, "value": 0.1234567891},
        {
            "kind": "atomic",
            "name": "add",
            "place": replace(index, line=0, source=""),
            "launch": 2,
            "value": 7,
        },
        {"kind": "operation", "name": "memset", "source": line(5, ""), "value": 0},
    )
    writes = [Write(kind="initial", value=1.5), *(Write(**kinds[n % 3]) for n in range(number))]  # type: ignore[arg-type]
    writes += [replace(writes[1], value=None), writes[1]] if together else []
    defaults = {"writes": tuple(writes), "launches": number // 3}
    return HistoryTable.of(ElementHistory(provenance=T4, element="y[3]", **(defaults | fields)))


def sandboxed(**fields: Any) -> SandboxTable:
    """What came of a program."""
    return SandboxTable.of(SandboxRun(provenance=T4, name="program", seconds=1.0, **fields))


def hazard(kind: str, first: Place | None = None, **fields: Any) -> Hazard:
    """A finding of that kind."""
    second = Place(12, "y[i] = tile[threadIdx.x + 1];", (0, 0, 0), (31, 0, 0))
    defaults = {
        "tool": "race",
        "severity": "error",
        "space": "shared",
        "kernel": "k",
        "second": second,
        "address": 4,
        "array": "tile[1]",
        "count": 1,
        "message": f"the <k> has {kind}.",
    }
    return Hazard(kind=kind, first=first, **(defaults | fields))


def sanitized(*hazards: Hazard, **fields: Any) -> SanitizerTable:
    """What checking found."""
    defaults = {"shared_bytes": 0, "tools": ("memory", "race"), "block_order": "shuffled"}
    note = fields.pop("note", "")
    return SanitizerTable.of(SanitizerReport(**(SMALL | defaults | fields), hazards=hazards), note=note)


def all_hazards(**fields: Any) -> SanitizerTable:
    """One of each kind, with indexes of one, two and three numbers."""
    first = Place(0, "", (2, 0, 0), (0, 3, 0))
    kinds = ("RAW", "WAR", "WAW", "lost update", "copy not awaited", "divergent barrier")
    races = [hazard(kind, replace(first, block=(3, 0, n)), count=1_000 + n) for n, kind in enumerate(kinds)]
    return sanitized(
        *races,
        hazard("RAW"),
        hazard("out of bounds", severity="warning", space=""),
        hazard("uninitialised read", severity="info", space="global"),
        **fields,
    )


def streams(*kinds: StreamHazardKind, **fields: Any) -> StreamTable:
    """Findings of these kinds between an operation and the host."""
    records = tuple(
        StreamHazard(
            kind=kind,
            first=StreamUse("scale", 0, f"stream {n}", line(n), True),
            second=StreamUse("reads <x>", 0, "", None, False),
            array="x",
            cause=f"No order: {kind}.",
            remedy="s.wait_event(e)" if n != 1 else "",
            where="Before line 4:",
            count=999 + n,
        )
        for n, kind in enumerate(kinds, 1)
    )
    return StreamTable.of(
        StreamReport(T4, records, **({"operations": 1, "streams": ("default", "a")} | fields))
    )


# --- library calls --------------------------------------------------------------------------------------


def ending(index: int, **fields: Any) -> OperationCalls:
    """An operation that ends in a routine."""
    item = Operation("cupy", f"matmul {index}", "float32", "small", "row-major")
    defaults = {
        "routines": (("cublasSgemm", 1), ("init", index)),
        "kernels": (("n" * (47 + index), 2),),
        "libraries": ("cuBLAS", "CuPy's own"),
        "recorded": True,
    }
    return OperationCalls(operation=item, **(defaults | fields))


def calls(*endings: OperationCalls, note: str = "") -> CallsTable:
    """What a function's operations end in."""
    return CallsTable.of(Calls(provenance=H200, function="step", endings=endings, note=note))


def tuning() -> TuningTable:
    """Right, wrong and slow candidates; a key of which none is right; one of no time at all."""
    many = (
        Candidate(name="slow", times_ns=(4_000, 2_000, 9_000)),
        Candidate(name="wrong", why="differs"),
        Candidate(name="fast", times_ns=(1_500, 2_500)),
        Candidate(name="late", why="slow"),
    )
    row = [("float32", many, "Cut short."), ("float16", many[1:2], ""), ("empty", many[:1], "Once.")]
    choices = (
        Choice(provenance=T4, key=(key, "(8, 8)"), candidates=entry, best="fast", note=note)
        for key, entry, note in row
    )
    return TuningTable.of(Tuning(provenance=H200, choices=tuple(choices)))


# --- memory -----------------------------------------------------------------------------------------------


def memory(groups: int = 3, times: tuple[float | None, ...] = (2.0, 0.5), **fields: Any) -> MemoryReportTable:
    """A call that needed memory, with so many groups alive at the peak."""
    stays = get_args(AliveBlocks.__annotations__["stay"]) or ("before the call", "kept", "temporary")
    alive = [
        AliveBlocks(
            source=line(n) if n else None,
            stack=(),
            arrays="x: float32" if n % 2 else "",
            blocks=n,
            size_bytes=(groups - n) * MIB,
            requested_bytes=1,
            stay=stays[n % 3],
        )
        for n in range(groups)
    ]
    rooms = tuple(
        Room(replace(T4, device=f"GPU {n}"), (n + 1) * GIB, (1 - 2 * n) * MIB, entry)
        for n, entry in enumerate(times)
    )
    defaults = {
        "name": "step",
        "before_bytes": 2 * MIB,
        "peak_bytes": 6 * MIB,
        "peak_reserved_bytes": 8 * MIB,
        "after_bytes": 3 * MIB,
        "source": line(7),
        "stack": (Frame("a.py", 7, "forward"),),
        "alive": tuple(alive),
        "allocations": 1,
        "frees": 2,
        "rooms": rooms,
    }
    return MemoryReportTable.of(MemoryReport(provenance=T4, device_id=0, **(defaults | fields)))


def host_memory() -> HostMemoryTable:
    """Requests and bytes."""
    figures = {
        "active_bytes": {"": Figure(MIB, 2 * MIB, 3 * MIB, 2 * MIB)},
        "active_requests": {"": Figure(1, 2, 3_000, 2_999)},
    }
    return HostMemoryTable.of(
        AllocatorStatistics(
            provenance=T4, device_id=0, title="Host", figures=figures, counts={}, is_host=True
        )
    )


# --- profiles ---------------------------------------------------------------------------------------------


def profile(many: int = 2, name: str = "step", **fields: Any) -> ProfileTable:
    """A profile with so many rows of each table."""
    entry = range(1, many + 1)
    defaults: dict[str, Any] = {
        "kernels": [
            ProfiledKernel(
                key=f"k{n}",
                count=n,
                device_time_total_ns=900 * n,
                grid=(n, 1, 1),
                block=None if n == 2 else (32, 2, 1),
                occupancy=None if n == 2 else 0.5,
                moved_bytes=n and 5_000,
                flop=None if n == 2 else 700,
            )
            for n in entry
        ],
        "copies": [
            ProfiledCopy(
                way=("HtoD", "DtoH", None)[n % 3],
                pinned=(True, False, None)[n % 3],
                count=n,  # type: ignore[arg-type]
                size_bytes=n * MIB,
                device_time_total_ns=1_000 * (n - 1),
            )
            for n in entry
        ],
        "waits": [
            ProfiledWait(
                key=f"wait {n}",
                source=line(n) if n % 2 else None,
                hidden=n % 2 == 0,
                count=n,
                cpu_time_total_ns=10 * n,
            )
            for n in entry
        ],
        "ranges": [
            ProfiledRange(
                key=f"layer {n}",
                count=n,
                cpu_time_total_ns=100 * n,
                operations=n,
                device_time_total_ns=None if n == 1 else 5 * n,
            )
            for n in entry
        ],
        "lines": [ProfiledLine(line(n), ("a", "b", "c", "d")[: n + 2], n, 70 * n) for n in entry],
        "before_bytes": MIB,
        "peak_bytes": 3 * MIB,
    }
    defaults |= fields
    defaults |= {key: tuple(rows) for key, rows in defaults.items() if isinstance(rows, list)}
    times = {"wall_ns": defaults.pop("wall_ns", 10_000), "busy_ns": 2_500}
    return ProfileTable.of(Profile(provenance=T4, method="model", name=name, **times, **defaults))


def nothing_ran(**fields: Any) -> ProfileTable:
    """A profile without any row."""
    return profile(0, before_bytes=None, **fields)


HARDWARE = (
    HardwareCounters(
        key="k1",
        count=2,
        sectors=64,
        dram_bytes=4_096,
        warp_instructions=12_345,
        flop=0,
        l1_hit_rate=0.25,
        l2_hit_rate=0.0,
        time_ns=5,
    ),
    HardwareCounters(
        key="k2",
        count=1,
        sectors=None,
        dram_bytes=0,
        warp_instructions=None,
        flop=1_000,
        l1_hit_rate=None,
        l2_hit_rate=1.0,
        time_ns=None,
    ),
)


def compared() -> ProfileComparison:
    """Kernels that went, came, got slower and faster by different amounts, and stayed."""

    def item(name: str, wall_ns: int, **kernels: int) -> Profile:
        rows = [ProfiledKernel(key=key, count=2, device_time_total_ns=ns) for key, ns in kernels.items()]
        return profile(2, name, kernels=[*rows, *rows[:1]], wall_ns=wall_ns).record

    return ProfileComparison(
        item("before", 10_000, twice=100, faster=5_000, slower=400, gone=1_000, same=70, none=0),
        replace(
            item("after", 4_000, twice=130, faster=500, slower=2_400, same=70, new=300, none=3),
            ranges=(),
            provenance=H200,
        ),
    )


# --- what a timeline answers --------------------------------------------------------------------------------

RAN = Timeline(provenance=T4, method="model", start_ns=100, end_ns=4_100)


def gaps() -> Any:
    """Gaps of one place, cause and line together, the longest sum first; reasons that say more."""

    def gap(cause: Any, start: int, end: int, source: SourceLine | None = None) -> Gap:
        return Gap(
            where="stream a", start_ns=start, end_ns=end, cause=cause, reason=f"why {cause}", source=source
        )

    records = [
        gap("engine busy", 0, 250, line(1)),
        gap("launch-bound", 100, 200),
        gap("launch-bound", 300, 700),
        gap("host computing", 0, 40, line(2, "")),
        gap("start-up", 0, 30),
    ]
    return timeline.make_gap_table(records, RAN)


def path() -> Any:
    """Links of one name and line together."""
    records = [
        PathStep(kind="operation", name=name, start_ns=0, end_ns=ns, where="stream a", source=line(1))
        for name, ns in (("scale", 300), ("copy", 2_000), ("scale", 100))
    ]
    return timeline.make_path_table(records, RAN)


def overlaps(pairs: int) -> Any:
    """So many of the pairs that three streams make."""
    ran = replace(RAN, activities=tuple(_Stream(0, n) for n in (1, 2, 3, 3)))  # type: ignore[arg-type]
    return timeline.make_overlap_table([Overlap("a", f"b{n}", 100, 50, 25 * n) for n in range(pairs)], ran)


class _Stream:
    """What an overlap asks an activity for."""

    def __init__(self, device_id: int, stream_id: int) -> None:
        self.device_id = device_id
        self.stream_id = stream_id


TABLES: dict[str, Callable[[], Any]] = {
    "counts": lambda: counts(caches=caches()),
    "counts of no caches": counts,
    "counts of little": lambda: counts(
        accesses=(access(1, "const", "load"),),
        branches=(),
        flops={},
        caches=caches(l1_sectors=0, l2_sectors=0, constant_requests=8, constant_passes=1),
    ),
    "counts as run": as_run,
    "counts as run with more": lambda: as_run(extra=(("branch of a division", 2), ("spill", 1))),
    "counts as run alike": lambda: as_run(accesses=(), branches=()),
    "all causes": lambda: diagnosis(*(cause(name, 2 + n / 9) for n, name in enumerate(CAUSES)), note="Once."),
    "causes worth fixing": worth,
    "one cause": lambda: diagnosis(cause("grid"), measured_ns=7_500.0, fields={"spilled_bytes": 1}),
    "two causes": lambda: diagnosis(cause("grid"), cause("warps"), fields={"spilled_bytes": 8}),
    **{
        f"bound by {stage.replace('/', ' ')}": lambda stage=stage: bound(stage)  # type: ignore[misc]
        for stage in ("DRAM", "L2", "load/store", "issue", "fp64", "tensor")
    },
    **{
        f"tensor cores wait for {name}": lambda stage=stage, share=share: tensor_wait(stage, share)  # type: ignore[misc]
        for name, stage, share in (
            ("memory", "DRAM", 0.0),
            ("shared memory", "load/store", 0.5),
            ("load-store units", "load/store", 0.4),
            ("latency", "latency", 0.0),
            ("CUDA cores", "issue", 0.0),
        )
    },
    "bound by more than all": lambda: bound("DRAM", DRAM=9_000.0),
    "causes of what is bound by more than all": lambda: diagnosis(
        cause("grid"), fields={"stages": {"start": 1.0, "latency": 2.0, "DRAM": 9_000.0}}
    ),
    "bound by what is half": lambda: bound("latency", L2=3_000.0),
    "bound by what is less than half": lambda: bound("start", L2=2_999.0),
    "faster beside": lambda: with_baseline(
        cause("uncoalesced"),
        cause("grid"),
        cause("spills", 1.2),
        DRAM=11_000.0,
        kinds_=("grid", "atomics", "divergence", "divergence alone"),
    ),
    "slower beside": lambda: with_baseline(ns=3_000.0, kinds_=("grid",)),
    "as fast beside": lambda: with_baseline(ns=6_000.0),
    "faster beside by no stage": lambda: with_baseline(ns=12_000.0, DRAM=6_800.0),
    "faster beside by a pipe": lambda: with_baseline(ns=12_000.0, fma=2_801.0),
    "history": history,
    "history of nothing": lambda: history(0),
    "history of an atomic": lambda: history(2, left_out=1),
    "history of a thread": lambda: history(4, together=True, error="a fault.", note="Seen on a twin."),
    "history of 60": lambda: history(59),
    "history of 61": lambda: history(60, left_out=1_000),
    "sandbox": lambda: sandboxed(output="one\ntwo <b>", output_lines=2),
    "sandbox of 41 lines": lambda: sandboxed(output=DIGITS[:82], output_lines=41, blocking=True),
    "sandbox of 40 lines": lambda: sandboxed(output=DIGITS[:80], output_lines=40),
    "sandbox of more": lambda: sandboxed(output="1\n2", output_lines=1_002, ended="it took too long."),
    "sandbox of a fault": lambda: sandboxed(
        error="Fault: lost.\nmore",
        frames=(line(1), line(9)),
        sticky=True,
        notes=("Note <1>.",),
        culprit=Culprit(3, line(4), "k", Place(12, "y[i] = 1;", (1, 0, 0), (2, 0, 0)), "Thread 2 wrote."),
    ),
    "sandbox of a fault at the end": lambda: sandboxed(
        error="Fault.", frames=(line(9),), at_end=True, culprit=Culprit(0, None, "k", NOWHERE)
    ),
    "sandbox of an error": lambda: sandboxed(error="ValueError: 3", culprit=Culprit(1, line(4))),
    "sanitizer": lambda: all_hazards(shared_bytes=1, note="Once.", left_out="Textures are left out."),
    "sanitizer of nothing": sanitized,
    "sanitizer in part": lambda: all_hazards(blocks_checked=3),
    "sanitizer of nothing in part": lambda: sanitized(blocks_checked=1),
    "sanitizer not here": lambda: sanitized(checker="other", unavailable="no such program", shared_bytes=2),
    "sanitizers": lambda: all_hazards().compare(
        sanitized(
            hazard("RAW", count=32),
            hazard("bounds", second=NOWHERE),
            checker="other",
            fault="A fault.",
            left_out="No order.",
        )
    ),
    "sanitizers of nothing": lambda: sanitized().compare(sanitized(checker="other")),
    "sanitizers of one": lambda: sanitized(hazard("RAW")).compare(
        sanitized(checker="other", unavailable="none")
    ),
    "streams": lambda: streams("read after write", "freed too early"),
    "streams of one": lambda: streams("write after write", operations=3, streams=("a",), left_out="Graphs."),
    "streams of nothing": streams,
    "calls": lambda: calls(
        ending(1), ending(2), replace(ending(3), operation=None, routines=(), libraries=()), note="Twice."
    ),
    "calls of none": calls,
    "calls of 40": lambda: calls(*[ending(2)] * 40),
    "calls of 41": lambda: calls(*[ending(2)] * 40, ending(1)),
    "calls not recorded": lambda: calls(
        *[ending(1, recorded=False, nearest=ending(2).operation)] * 2, ending(3, recorded=False), ending(2)
    ),
    "tuning": tuning,
    "memory": memory,
    "memory alone": lambda: memory(1, (0.01,), stack=(), after_bytes=2 * MIB, note="Some are lost."),
    "memory of little": lambda: memory(1, (1.0, 0.0099, 1.0, -1.0), after_bytes=MIB, peak_bytes=2 * MIB + 1),
    "memory of four bytes": lambda: memory(
        1, alive=(replace(memory(1).alive[0], size_bytes=1),), before_bytes=1, peak_bytes=4
    ),
    "memory of nothing": lambda: memory(0, (None, 2.0), source=None, peak_bytes=0, before_bytes=0),
    "memory of the time before": lambda: memory(1, (0.999,), source=None, peak_bytes=2 * MIB),
    "memory of 12 groups": lambda: memory(12),
    "memory of 15 groups": lambda: memory(15),
    "memory refused": lambda: memory(14, failed=FailedRequest(5 * MIB, line(8, ""), "Out of memory.")),
    "memory refused at once": lambda: memory(
        1, (None,), alive=memory(1).alive, failed=FailedRequest(6 * MIB, None, "Out of memory.")
    ),
    "memory refused at a line": lambda: memory(1, failed=FailedRequest(1, line(8), "Out.")),
    "host memory": host_memory,
    "profile": profile,
    "profile of 20": lambda: profile(20),
    "profile of 21": lambda: profile(21, peak_bytes=MIB, no_counters="no ncu"),
    "profile with counters": lambda: profile(
        1,
        counters=HARDWARE,
        kernels=[ProfiledKernel(key="k1", count=4, device_time_total_ns=0)],
        peak_bytes=None,
        note="Twice.",
    ),
    "profile without counters": lambda: profile(
        1, kernels=[ProfiledKernel(key="k1", count=4, device_time_total_ns=900)]
    ),
    "profile of nothing": nothing_ran,
    "profile of no time": lambda: nothing_ran(wall_ns=0, waits=profile(1).waits),
    "profiles": compared,
    "profiles of no time": lambda: ProfileComparison(nothing_ran().record, nothing_ran(wall_ns=0).record),
    "gaps": gaps,
    "gaps of none": lambda: timeline.make_gap_table([], RAN),
    "path": path,
    "path of no time": lambda: timeline.make_path_table(
        [PathStep(kind="host", name="x", start_ns=0, end_ns=0, where="host")], replace(RAN, end_ns=100)
    ),
    "overlaps": lambda: overlaps(3),
    "overlaps of some": lambda: overlaps(2),
    "advice": lambda: timeline.make_advice_list(
        [Advice("pin", "Pin <x>.", 5), Advice("wait", "Do not wait.", 2)], RAN
    ),
    "advice of none": lambda: timeline.make_advice_list([], RAN),
}

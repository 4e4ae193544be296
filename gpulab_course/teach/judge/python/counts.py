"""The counts of a device program that budgets can limit, computed from its timeline."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from gpulab.analysis.overlap import make_intervals, sum_interval_ns
from gpulab_course.teach.judge.budget import Score
from gpulab_course.teach.judge.exercise import Budget
from gpulab_course.teach.judge.python.flow import DataFlow, count_concurrent_kernels, count_waiting_kernels
from gpulab_course.teach.judge.python.memory_use import MemoryUse
from virtualgpu.records import Activity, Synchronization, Timeline


class ProgramRecord:
    """The recorded work of one program call, such as its timeline, its waits and its memory use.

    The attribute ``kernel_bus_bytes`` is the number of bytes that kernels read or wrote in host memory.
    ``stream_id`` is the stream that was current when the program was called. ``data_flow`` is the work on
    which the result depends; it is empty unless memory uses were checked.
    """

    def __init__(
        self,
        timeline: Timeline,
        wait_count: int,
        kernel_bus_bytes: int = 0,
        memory_use: MemoryUse | None = None,
        stream_id: int = 0,
    ) -> None:
        self.timeline = timeline
        self.waits = wait_count
        self.kernel_bus_bytes = kernel_bus_bytes
        self.memory = memory_use or MemoryUse()
        self.stream_id = stream_id
        self.data_flow = DataFlow()
        self.activities = sorted(timeline.activities, key=lambda a: a.correlation_id)

    def copies(self, *kinds: str) -> list[Activity]:
        """Return the copies of the given kinds (``HtoD``, ``DtoH``, ``DtoD``, ``PtoP``), or all copies by
        default.
        """
        copies = [a for a in self.activities if a.kind in ("MEMCPY", "MEMCPY2")]
        return [a for a in copies if not kinds or a.copy_kind in kinds]

    @property
    def copied_by_kernels(self) -> int:
        """The number of array copies for which CuPy used its copy kernel."""
        return len([a for a in self.list_activities("CONCURRENT_KERNEL") if a.name.startswith(_COPY_KERNEL)])

    @property
    def poll_count(self) -> int:
        """The number of uninterrupted series of event or stream queries. Each series counts as one wait."""
        calls = sorted(self.timeline.calls, key=lambda call: call.start_ns)
        return sum(is_query for is_query, _ in groupby(calls, key=lambda call: call.name in QUERIES))

    @property
    def working_kernels(self) -> list[Activity]:
        """The kernel launches whose work affects the result."""
        return self.data_flow.select_kernels(self.activities)

    @property
    def ungraphed_kernel_count(self) -> int:
        """The number of kernels that were launched without a graph."""
        return len([a for a in self.list_activities("CONCURRENT_KERNEL") if not a.graph_id])

    @property
    def host_launches(self) -> int:
        """The number of launches by the host, each of which is a single kernel or a graph."""
        return self.ungraphed_kernel_count + self.graph_launches

    @property
    def graph_launches(self) -> int:
        """The number of graph launches."""
        return len([a for a in self.activities if a.graph_id and not a.graph_node_id])

    @property
    def graph_depth(self) -> int:
        """The number of nodes in the longest chain of dependent nodes, over all graph launches."""
        depth_by_id: dict[int, int] = {}
        for a in self.activities:
            if a.graph_id:
                first_id = a.correlation_id - a.graph_node_id  # of this launch
                earlier_depths = (
                    depth_by_id[earlier_id]
                    for earlier_id in a.after
                    if first_id <= earlier_id < a.correlation_id
                )
                depth_by_id[a.correlation_id] = 1 + max(earlier_depths, default=0)
        return max(depth_by_id.values(), default=0)

    @property
    def hidden_percent(self) -> int:
        """The time in which copies and kernels overlap, as a percentage of the maximum possible.

        The value 0 means that all operations run one after the other. 100 means that the duration is that of
        the busiest engine alone.
        """
        engines = [self.copies("HtoD"), self.copies("DtoH"), self.list_activities("CONCURRENT_KERNEL")]
        busy_ns = [sum_interval_ns(make_intervals(engine)) for engine in engines]
        max_hidden_ns = sum(busy_ns) - max(busy_ns)
        hidden_ns = sum(busy_ns) - sum_interval_ns(make_intervals([a for engine in engines for a in engine]))
        return round(100 * hidden_ns / max_hidden_ns) if max_hidden_ns else 0

    def list_waits(self, *types: str) -> list[Synchronization]:
        """Return the synchronizations of these CUPTI types."""
        return [wait for wait in self.timeline.synchronizations if wait.type in types]

    def list_activities(self, kind: str) -> list[Activity]:
        """Return the operations of this CUPTI kind, such as ``"MEMSET"``."""
        return [a for a in self.activities if a.kind == kind]


_COPY_KERNEL = "cupy_copy"
# Kernels that only copy elements.
_COPY_KERNELS = (
    _COPY_KERNEL,
    "cupy_stack",
    "cupy_vstack",
    "cupy_hstack",
    "cupy_concatenate",
    "cupy_take",
    "cupy_fill",
)
QUERIES = ("cudaEventQuery", "cudaStreamQuery")


def _count_copied_bytes(*kinds: str) -> Callable[[ProgramRecord], int]:
    return lambda record: sum(a.size_bytes for a in record.copies(*kinds))


# Counts of budgets that need checked runs, because they depend on the data flow.
CHECKED_COUNTS: dict[str, tuple[str, Callable[[ProgramRecord], int]]] = {
    "streams": (
        "<n stream|streams> with work on which the result depends",
        lambda record: len({a.stream_id for a in record.working_kernels}),
    ),
    "beside": (
        "<n kernel|kernels> that can overlap a kernel of another stream",
        lambda record: count_concurrent_kernels(record.working_kernels, record.activities),
    ),
    "held_up": (
        "<n kernel|kernels> of the current stream that <n waits|wait> for another stream",
        lambda record: count_waiting_kernels(record.working_kernels, record.activities, record.stream_id),
    ),
    "working_graph_launches": (
        "graph <n launch|launches> on which the result depends",
        lambda record: record.data_flow.graph_launches,
    ),
    "computed_outside": (
        "<n kernel|kernels> that <n computes|compute> outside of graphs",
        lambda record: sum(
            not a.graph_id and not a.name.startswith(_COPY_KERNELS) for a in record.working_kernels
        ),
    ),
    "graph_kernels": (
        "<n kernel|kernels> of graphs on which the result depends",
        lambda record: len([a for a in record.working_kernels if a.graph_id]),
    ),
}

# What budgets of programs may name: the words for it, and how it is read off. A wait is any call in which
# the host stands still until the device has finished something, ``.get()`` and ``float(array)`` included, and
# so is asking whether it has.
COUNTS: dict[str, tuple[str, Callable[[ProgramRecord], int]]] = {
    "launches": (
        "kernel <n launch|launches>",
        lambda record: len(record.list_activities("CONCURRENT_KERNEL")),
    ),
    "host_launches": (
        "<n launch|launches> by the host, of kernels and of graphs",
        lambda record: record.host_launches,
    ),
    "graph_launches": ("graph <n launch|launches>", lambda record: record.graph_launches),
    "graphs": (
        "<n graph|graphs> that <n was|were> launched",
        lambda record: len({a.graph_id for a in record.activities} - {0}),
    ),
    "graph_depth": ("<n node|nodes> on the longest chain of a graph", lambda record: record.graph_depth),
    "double_flop": (
        "floating-point <n operation|operations> in double precision",
        lambda record: sum(a.double_flop or 0 for a in record.activities),
    ),
    "memsets": ("memory <n set|sets>", lambda record: len(record.list_activities("MEMSET"))),
    "copies": ("<n copy|copies>", lambda record: len(record.copies()) + record.copied_by_kernels),
    "copied_bytes": ("<n byte|bytes> copied", _count_copied_bytes()),
    "to_device_copies": ("<n copy|copies> to the device", lambda record: len(record.copies("HtoD"))),
    "to_device_bytes": ("<n byte|bytes> copied to the device", _count_copied_bytes("HtoD")),
    "to_host_copies": ("<n copy|copies> to the host", lambda record: len(record.copies("DtoH"))),
    "to_host_bytes": ("<n byte|bytes> copied to the host", _count_copied_bytes("DtoH")),
    "pageable_copies": (
        "<n copy|copies> of pageable memory",
        lambda record: len([a for a in record.copies("HtoD", "DtoH") if a.pinned is False]),
    ),
    "bus_bytes": (
        "<n byte|bytes> between host and device",
        lambda record: record.kernel_bus_bytes + _count_copied_bytes("HtoD", "DtoH")(record),
    ),
    "waits": ("<n wait|waits> of the host for the device", lambda record: record.waits + record.poll_count),
    "device_waits": (
        "<n wait|waits> for the whole device",
        lambda record: len(record.list_waits("CONTEXT_SYNCHRONIZE")),
    ),
    "stream_waits": (
        "<n wait|waits> of one stream for another",
        lambda record: len(record.list_waits("STREAM_WAIT_EVENT")),
    ),
    "hidden_percent": (
        "% of the possible overlap of copies and kernels",
        lambda record: record.hidden_percent,
    ),
    "microseconds": (
        "µs until all work has ended, modelled",
        lambda record: record.timeline.duration_ns // 1000,
    ),
    "driver_calls": ("<n call|calls> of cudaMalloc and cudaFree", lambda record: record.memory.driver_calls),
    "segments": ("<n segment|segments> allocated on the device", lambda record: record.memory.segments),
    "peak_reserved_bytes": (
        "<n byte|bytes> allocated on the device at the peak",
        lambda record: record.memory.peak_reserved_bytes,
    ),
    "peak_used_bytes": (
        "<n byte|bytes> of arrays at the peak",
        lambda record: record.memory.peak_used_bytes,
    ),
    "kept_bytes": (
        "<n byte|bytes> of arrays that still exist at the end",
        lambda record: record.memory.kept_bytes,
    ),
    "wasted_bytes": ("<n byte|bytes> allocated and never used", lambda record: record.memory.wasted_bytes),
    **CHECKED_COUNTS,
}


def read_counts(record: ProgramRecord) -> dict[str, int]:
    """Return the value of each counter for a recorded program call, with the counter's name as the key."""
    return {name: int(read_count(record)) for name, (_, read_count) in COUNTS.items()}


def make_score(
    budget: Budget,
    answer_counts: dict[str, int],
    reference_counts: dict[str, int],
    naive_counts: dict[str, int] | None,
) -> Score:
    """Return the score for one budget, computed from the counts of the answer, the reference and the naive
    version.
    """
    name = budget.counter
    is_golf = budget.max_count != 0 and budget.min_count is None and budget.min_reference_share is None
    naive_count = None if naive_counts is None else naive_counts[name]
    return Score(
        name, COUNTS[name][0], answer_counts[name], reference_counts[name], naive_count, golf=is_golf
    )

"""What a device program costs: the counts that budgets may name, read off its timeline."""

from __future__ import annotations

from collections.abc import Callable

from gpulab.teach.judge.budget import Score
from gpulab.teach.judge.exercise import Budget
from gpulab.teach.judge.python.memory_use import MemoryUse
from virtualgpu.records import Activity, Synchronization, Timeline
from virtualgpu.trace.overlap import intervals, length_ns


class Seen:
    """What a program gave the device, in the order in which it did, and how often the host waited.

    ``kernel_bus_bytes`` is what its kernels moved between host and device by themselves.
    """

    def __init__(
        self, timeline: Timeline, waits: int, kernel_bus_bytes: int = 0, memory: MemoryUse | None = None
    ) -> None:
        self.timeline, self.waits, self.kernel_bus_bytes = timeline, waits, kernel_bus_bytes
        self.memory = memory or MemoryUse()
        self.activities = sorted(timeline.activities, key=lambda a: a.correlation_id)

    def copies(self, *kinds: str) -> list[Activity]:
        """Copies, of those kinds (``HtoD``, ``DtoH``, ``DtoD``, ``PtoP``) or all."""
        found = [a for a in self.activities if a.kind in ("MEMCPY", "MEMCPY2")]
        return [a for a in found if not kinds or a.copy_kind in kinds]

    @property
    def host_launches(self) -> int:
        """What the host had to launch: kernels one by one, and graphs."""
        return len([a for a in self.of_kind("CONCURRENT_KERNEL") if not a.graph_id]) + self.graph_launches

    @property
    def graph_launches(self) -> int:
        """How often a graph was launched."""
        return len([a for a in self.activities if a.graph_id and not a.graph_node_id])

    @property
    def graph_depth(self) -> int:
        """Nodes on the longest chain of any launch of a graph."""
        depth: dict[int, int] = {}
        for a in self.activities:
            if a.graph_id:
                first = a.correlation_id - a.graph_node_id  # of this launch
                before = (depth[number] for number in a.after if first <= number < a.correlation_id)
                depth[a.correlation_id] = 1 + max(before, default=0)
        return max(depth.values(), default=0)

    @property
    def hidden_percent(self) -> int:
        """How much of the work of the copy engines and the SMs ran behind that of the busiest of them.

        0: one after the other. 100: nothing but the busiest takes time of its own.
        """
        engines = [self.copies("HtoD"), self.copies("DtoH"), self.of_kind("CONCURRENT_KERNEL")]
        busy_ns = [length_ns(intervals(engine)) for engine in engines]
        could_ns = sum(busy_ns) - max(busy_ns)
        hidden_ns = sum(busy_ns) - length_ns(intervals([a for engine in engines for a in engine]))
        return round(100 * hidden_ns / could_ns) if could_ns else 0

    def waits_of(self, *types: str) -> list[Synchronization]:
        """Waits of CUPTI's types."""
        return [wait for wait in self.timeline.synchronizations if wait.type in types]

    def of_kind(self, kind: str) -> list[Activity]:
        """Operations of one of CUPTI's kinds."""
        return [a for a in self.activities if a.kind == kind]


def _bytes(*kinds: str) -> Callable[[Seen], int]:
    return lambda seen: sum(a.size_bytes for a in seen.copies(*kinds))


# What budgets of programs may name: the words for it, and how it is read off. A wait is any call in which
# the host stands still until the device has finished something, ``.get()`` and ``float(array)`` included.
COUNTS: dict[str, tuple[str, Callable[[Seen], int]]] = {
    "launches": ("kernel launches", lambda seen: len(seen.of_kind("CONCURRENT_KERNEL"))),
    "host_launches": ("launches by the host, of kernels and of graphs", lambda seen: seen.host_launches),
    "graph_launches": ("graph launches", lambda seen: seen.graph_launches),
    "graphs": ("graphs that were launched", lambda seen: len({a.graph_id for a in seen.activities} - {0})),
    "graph_depth": ("nodes on the longest chain of a graph", lambda seen: seen.graph_depth),
    "memsets": ("memory sets", lambda seen: len(seen.of_kind("MEMSET"))),
    "copies": ("copies", lambda seen: len(seen.copies())),
    "copied_bytes": ("bytes copied", _bytes()),
    "to_device_copies": ("copies to the device", lambda seen: len(seen.copies("HtoD"))),
    "to_device_bytes": ("bytes copied to the device", _bytes("HtoD")),
    "to_host_copies": ("copies to the host", lambda seen: len(seen.copies("DtoH"))),
    "to_host_bytes": ("bytes copied to the host", _bytes("DtoH")),
    "pageable_copies": (
        "copies of pageable memory",
        lambda seen: len([a for a in seen.copies("HtoD", "DtoH") if a.pinned is False]),
    ),
    "bus_bytes": (
        "bytes between host and device",
        lambda seen: seen.kernel_bus_bytes + _bytes("HtoD", "DtoH")(seen),
    ),
    "waits": ("waits of the host for the device", lambda seen: seen.waits),
    "device_waits": ("waits for the whole device", lambda seen: len(seen.waits_of("CONTEXT_SYNCHRONIZE"))),
    "stream_waits": ("waits of one stream for another", lambda seen: len(seen.waits_of("STREAM_WAIT_EVENT"))),
    "hidden_percent": ("% of what can be hidden behind other work", lambda seen: seen.hidden_percent),
    "microseconds": (
        "µs until all is done, modelled",
        lambda seen: seen.timeline.duration_ns // 1000,
    ),
    "driver_calls": ("calls of cudaMalloc and cudaFree", lambda seen: seen.memory.driver_calls),
    "segments": ("segments taken from the device", lambda seen: seen.memory.segments),
    "peak_reserved_bytes": ("bytes taken from the device at most", lambda s: s.memory.peak_reserved_bytes),
    "peak_used_bytes": ("bytes of arrays at once, at most", lambda seen: seen.memory.peak_used_bytes),
    "wasted_bytes": ("bytes taken and never needed", lambda seen: seen.memory.wasted_bytes),
    "streams": ("streams", lambda seen: len({a.stream_id for a in seen.activities})),
}


def scored(item: Budget, yours: Seen, reference: Seen, naive: Seen | None) -> Score:
    """The figures of one budget, of three programs."""
    words, read_off = COUNTS[item.counter]
    golf = item.most != 0 and item.least is None and item.least_share is None
    other = None if naive is None else read_off(naive)
    return Score(item.counter, words, read_off(yours), read_off(reference), other, golf=golf)

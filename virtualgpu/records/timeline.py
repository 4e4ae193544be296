"""What ran on a device and when: the operations of its streams, under CUPTI's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.kernel import Dim3

# CUPTI's activity kinds (``CUpti_ActivityKind``) of what a stream can hold; MEMCPY2 is a copy between GPUs.
ActivityKind = Literal["CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET", "HOST_LAUNCH"]
# CUPTI's ``CUpti_ActivityMemcpyKind``, as nsys spells it.
CopyKind = Literal["HtoD", "DtoH", "DtoD", "PtoP"]


@dataclass(frozen=True, slots=True)
class Activity:
    """One operation of a stream: what it was, and from when to when it ran.

    ``correlation_id`` numbers the operations of a machine in the order in which the program gave them;
    ``after`` names those that had to end first (of the same stream, of events waited for, of the legacy
    default stream). Operations of a graph launch share its ``graph_id`` (0: none).
    """

    kind: ActivityKind
    name: str
    device_id: int
    stream_id: int
    correlation_id: int
    start_ns: int
    end_ns: int
    size_bytes: int = 0
    copy_kind: CopyKind | None = None
    pinned: bool | None = None
    grid: Dim3 | None = None
    block: Dim3 | None = None
    shared_bytes: int = 0
    after: tuple[int, ...] = ()
    graph_id: int = 0
    graph_node_id: int = 0

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

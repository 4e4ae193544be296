"""Stages of the modelled time of a launch, and the time that the launch would take without each cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from virtualgpu.records.kernel import Dim3
from virtualgpu.records.launch import Occupancy
from virtualgpu.records.origin import Provenance

CauseKind = Literal[
    "launch",
    "tail",
    "grid",
    "occupancy",
    "divergence",
    "uncoalesced",
    "re-reading",
    "bank conflicts",
    "atomics",
    "spills",
    "in flight",
    "latency",
    "compute",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause that makes a launch slower, such as bank conflicts, and the modelled times before and after its
    removal.

    Attributes
    ----------
    kind : str
        Kind of the cause.
    after_ns : float
        Modelled time without the cause: of the kernel, or of a launch if `kind` is ``launch``.
    before_ns : float
        Modelled time with the cause.
    remaining : float
        Speedup of the kernel by the remedy of this cause, after the remedies of more specific causes.
    line, text : int, str
        Line of the source (0 if the cause does not belong to one line), and its PTX.
    figures : mapping
        Numbers for the explanation of the cause, by name.
    detail : str
        Further detail in one word, such as a limit or a pipe.
    """

    kind: CauseKind
    before_ns: float
    after_ns: float
    remaining: float = 0.0
    line: int = 0
    column: int = 0
    text: str = ""
    detail: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """The speedup of the launch if the cause is removed."""
        return self.before_ns / self.after_ns if self.after_ns else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCosts:
    """The modelled time of one launch, divided into stages and causes.

    Attributes
    ----------
    time_ns : float
        Time of the kernel on the device.
    host_ns : float
        Time of the launch on the host.
    spilled_bytes : int
        Bytes of registers per thread that ptxas stores in local memory; the model has no time for them.
    stages : mapping
        Time of each stage alone: ``start``, ``latency`` (blocks one after another, each with an SM of its
        own), each pipe of the SM, ``tensor`` (tensor cores), ``load/store``,
        ``constant``, ``L2``, ``atomics`` and ``DRAM``.
    shared_share : float
        Share of the ``load/store`` stage in which the unit accesses shared memory, 0 to 1.
    mma_sync_shares : mapping
        Share of the published rate that ``mma.sync`` reached on an H200, for the formats of tensor cores that
        the launch uses. It is empty for devices on which no other instruction is faster.
    causes : tuple of Cause
        Causes whose remedy changes the time, the most profitable first.
    """

    provenance: Provenance
    kernel_name: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    sm_count: int
    time_ns: float
    host_ns: float
    occupancy: Occupancy
    spilled_bytes: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    shared_share: float = 0.0
    mma_sync_shares: Mapping[str, float] = field(default_factory=dict)
    causes: tuple[Cause, ...] = ()

    @property
    def bound(self) -> str:
        """The stage that limits the launch. This is the busiest unit if it is busy for at least half of the
        launch, and the longest stage otherwise.
        """
        busy_ns = {
            name: stage_ns for name, stage_ns in self.stages.items() if name not in ("start", "latency")
        }
        busiest_stage = max(busy_ns, key=lambda name: busy_ns[name])
        if busy_ns[busiest_stage] >= self.time_ns / 2:
            return busiest_stage
        return max(self.stages, key=lambda name: self.stages[name])

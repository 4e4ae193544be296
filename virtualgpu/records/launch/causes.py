"""What a launch's modelled time is made of, and what it would be without each cause of it."""

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
    """One thing that costs a launch time.

    Attributes
    ----------
    kind : str
        What it is.
    after_ns : float
        Modelled time without it, all else as it is: of the kernel, or of a launch where `kind` is ``launch``.
    before_ns : float
        The same with it.
    remaining : float
        How many times as fast mending it makes the kernel once the more particular causes are mended.
    line, text : int, str
        Where in the source, 0 where it is nowhere in particular; and the PTX there.
    figures : mapping
        Numbers that tell of it, by name.
    detail : str
        A word that tells more: which limit, which pipe.
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
        """How many times as fast the launch is without it."""
        return self.before_ns / self.after_ns if self.after_ns else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCosts:
    """The modelled time of one launch by stage, and by cause.

    Attributes
    ----------
    time_ns : float
        Of the kernel on the device.
    host_ns : float
        Of the host for launching it.
    spilled_bytes : int
        Of registers, a thread, that ptxas keeps in local memory: the model knows no time of it.
    stages : mapping
        What each stage would take if it were alone: ``start``, ``latency`` (blocks one after another, each
        with an SM of its own), by pipe of the SM, ``load/store``, ``constant``, ``L2``, ``atomics`` and
        ``DRAM``.
    causes : tuple of Cause
        Those whose remedy makes a difference, the most profitable first.
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
    causes: tuple[Cause, ...] = ()

    @property
    def bound(self) -> str:
        """The stage that holds it down: the busiest unit if it is busy half of the time, else the longest."""
        busy = {name: ns for name, ns in self.stages.items() if name not in ("start", "latency")}
        busiest = max(busy, key=lambda name: busy[name])
        return (
            busiest
            if busy[busiest] >= self.time_ns / 2
            else max(self.stages, key=lambda name: self.stages[name])
        )

"""Records of what machine code makes of a kernel's memory accesses and branches ("as run").

Counters count PTX, which is close to what the learner wrote. The assembler ptxas then merges
neighbouring accesses, predicates short branches and copies loop bodies; these records say so, one
row for each access and branch of the PTX.
"""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records import Dim3, Provenance, Space


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAsRun:
    """One memory access of the PTX in machine code.

    ``opcode`` and ``size_bytes`` are the machine instruction's; ``opcode`` is empty where none is
    left of its own. ``executions`` counts warps that execute it, also those with all lanes
    predicated off; ``requests`` those with at least one lane. ``merged_into`` is the ``pc`` of the
    access that also fetches this one's bytes. What cannot be told from the PTX's counts is None.
    """

    pc: int
    line: int
    text: str
    space: Space
    kind: str
    opcode: str
    size_bytes: int
    written: int
    requests: int | None
    executions: int | None
    merged_into: int | None = None
    note: str = ""
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchAsRun:
    """One conditional branch of the PTX in machine code; ``opcode`` is empty where it is gone.

    ``written`` and ``divergent`` count how often it split a warp as PTX and as machine code.
    """

    pc: int
    line: int
    text: str
    opcode: str
    written: int
    divergent: int | None
    note: str = ""
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AsRun:
    """Counts of one launch as the machine code of ``target`` has them, and why they differ.

    ``extra`` names machine instructions that no access or branch of the PTX accounts for, such as
    spilled registers or the branches of a division, with how many there are.
    """

    provenance: Provenance
    kernel_name: str
    target: str
    grid: Dim3
    block: Dim3
    accesses: tuple[AccessAsRun, ...]
    branches: tuple[BranchAsRun, ...]
    extra: tuple[tuple[str, int], ...] = ()

    def total(self, counter: str, space: str | None = None, kind: str | None = None) -> int | None:
        """Sum ``requests`` or ``executions`` over accesses; None if one of them cannot be told."""
        rows = [a for a in self.accesses if space in (None, a.space) and kind in (None, a.kind)]
        values = [getattr(row, counter) for row in rows]
        return None if None in values else sum(values)

    @property
    def divergent_branches(self) -> int | None:
        """How often a branch of the machine code split a warp; None if that cannot be told."""
        values = [branch.divergent for branch in self.branches]
        extra = any(name.startswith("branch") for name, _ in self.extra)
        return None if extra or None in values else sum(v for v in values if v is not None)

    @property
    def differences(self) -> tuple[str, ...]:
        """One sentence for each way in which the machine code differs from the PTX."""
        rows: list[AccessAsRun | BranchAsRun] = [*self.accesses, *self.branches]
        return tuple(dict.fromkeys(row.note for row in rows if row.note))

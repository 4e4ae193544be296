"""Records of a kernel's memory accesses and branches in machine code ("as run").

Counters count PTX, which is close to the source. The assembler ptxas then merges neighbouring accesses,
predicates short branches and copies loop bodies. These records show the result, one row for each access and
branch of the PTX.
"""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records import Dim3, Provenance, Space


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAsRun:
    """The machine instruction that executes a memory access of the PTX, with its counts.

    The fields ``opcode`` and ``size_bytes`` describe the machine instruction; ``opcode`` is empty if the
    access has no machine instruction of its own. ``executions`` counts warps that execute it, also those with
    all lanes predicated off; ``requests`` those with at least one active lane. ``merged_into`` is the ``pc``
    of the access that also fetches this one's bytes. Values that do not follow from the PTX's counts are
    None.
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
    """The machine instruction that executes a branch of the PTX. If the compiler has removed the branch, the
    field ``opcode`` is empty.

    ``written`` counts the divergent executions of the PTX, ``divergent`` those of the machine code.
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
    """The counts of one launch in machine code, and their differences from the counts in PTX.

    The field ``extra`` counts machine instructions for which the PTX has no access or branch, such as
    register spills.
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
        """Return the sum of a counter over all accesses of a space and kind. The sum is None if a value is
        unknown.
        """
        access_rows = [
            access
            for access in self.accesses
            if space in (None, access.space) and kind in (None, access.kind)
        ]
        counter_values = [getattr(access_row, counter) for access_row in access_rows]
        return None if None in counter_values else sum(counter_values)

    @property
    def divergent_branches(self) -> int | None:
        """Number of divergent executions of branches in machine code, or None if it is unknown."""
        divergent_counts = [branch.divergent for branch in self.branches]
        has_extra_branches = any(name.startswith("branch") for name, _ in self.extra)
        if has_extra_branches or None in divergent_counts:
            return None
        return sum(value for value in divergent_counts if value is not None)

    @property
    def differences(self) -> tuple[str, ...]:
        """The differences between machine code and PTX in words, with one sentence for each kind."""
        noted_rows: list[AccessAsRun | BranchAsRun] = [*self.accesses, *self.branches]
        return tuple(dict.fromkeys(noted_row.note for noted_row in noted_rows if noted_row.note))

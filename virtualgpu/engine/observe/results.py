"""From raw counter and trace buffers to records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.codegen import Kernel
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.observe.flops import is_tensor, operations
from virtualgpu.records import AccessCounters, BranchCounters, Dim3, KernelCounters, Provenance
from virtualgpu.records.access import Access, Rule

Name = TypeVar("Name")
SPACES = ("global", "shared", "local", "const", "generic")


@dataclass(slots=True)
class Share(Generic[Name]):
    """What one execution of each piece of code adds to figures that are told by name."""

    amounts: dict[Name, Counter[int]] = field(default_factory=dict)
    _columns: tuple[npt.NDArray[np.int64], ...] = ()

    def add(self, name: Name, piece: int, amount: int = 1) -> None:
        """Let a piece add more under a name."""
        self.amounts.setdefault(name, Counter())[piece] += amount

    def of(self, executions: npt.NDArray[np.int64]) -> dict[Name, int]:
        """The figures by name, from how often each piece was executed."""
        if not self.amounts:
            return {}
        if not self._columns:
            rows = [row for pieces in self.amounts.values() for row in pieces.items()]
            piece, amount = np.array(rows, np.int64).T
            sizes = [len(pieces) for pieces in self.amounts.values()]
            self._columns = piece, amount, np.cumsum([0, *sizes[:-1]])
        piece, amount, first = self._columns
        return dict(
            zip(self.amounts, np.add.reduceat(executions[piece] * amount, first).tolist(), strict=True)
        )


@dataclass(frozen=True, slots=True)
class Shares:
    """By line, opcode and type of floating-point operation, what a kernel's pieces of code hold."""

    sizes: npt.NDArray[np.int64]
    lines: Share[int] = field(default_factory=Share)
    opcodes: Share[str] = field(default_factory=Share)
    flops: Share[str] = field(default_factory=Share)
    tensor_flops: Share[str] = field(default_factory=Share)


def shares(kernel: Kernel) -> Shares:
    """Look at every instruction of a kernel, once for all its launches."""
    blocks = kernel.tables.blocks
    found = Shares(np.array([piece.end - piece.first for _, piece in blocks], np.int64))
    functions = [plan.function for plan in kernel.plans]
    for number, (function, piece) in enumerate(blocks):
        for i in functions[function].instructions[piece.first : piece.end]:
            found.lines.add(i.line, number)
            found.opcodes.add(i.root, number)
            kind, each = operations(i)
            if kind:
                found.flops.add(kind, number, each)
                if is_tensor(i):
                    found.tensor_flops.add(kind, number, each)
    return found


def counters(
    kernel: Kernel,
    of: Shares,
    title: str,
    provenance: Provenance,
    grid: Dim3,
    block: Dim3,
    shared_bytes: int,
    accesses: npt.NDArray[np.int64],
    branches: npt.NDArray[np.int64],
    blocks: npt.NDArray[np.int64],
    longest_warp: int = 0,
) -> KernelCounters:
    """Name every counter after its instruction, and all after the kernel's `title`; `of` are its `shares`."""
    executions = blocks[:, 0]
    lanes = blocks[:, 1]
    found = []
    for i, row in by_place(kernel.tables.accesses, accesses):
        requests, sectors, wavefronts, ideal, taken, missed, halves = row[:7]
        size = memory_ops.size_of(i)
        found.append(
            AccessCounters(
                pc=place(i),
                line=i.line,
                text=i.text,
                space=memory_ops.space_of(i),  # type: ignore[arg-type]
                kind=memory_ops.kind_of(i),  # type: ignore[arg-type]
                size_bytes=size,
                requests=requests,
                sectors=sectors,
                wavefronts=wavefronts,
                ideal_wavefronts=ideal,
                bytes_requested=taken * size,
                column=i.column,
                missed_sectors=missed,
                half_lines=halves,
            )
        )
    forks = [
        BranchCounters(place(i), i.line, i.text, executed, divergent, i.column)
        for i, (executed, divergent) in by_place(kernel.tables.branches, branches)
    ]
    return KernelCounters(
        provenance=provenance,
        kernel_name=title,
        grid=grid,
        block=block,
        shared_bytes=shared_bytes,
        warp_instructions=int(of.sizes @ executions),
        thread_instructions=int(of.sizes @ lanes),
        accesses=tuple(found),
        branches=tuple(forks),
        line_warp_instructions=of.lines.of(executions),
        line_thread_instructions=of.lines.of(lanes),
        longest_warp_instructions=longest_warp,
        opcode_warp_instructions=of.opcodes.of(executions),
        flops={kind: flops for kind, flops in of.flops.of(lanes).items() if flops},
        tensor_flops={kind: flops for kind, flops in of.tensor_flops.of(lanes).items() if flops},
    )


def place(i: ir.Instruction) -> int:
    """An instruction's index in the function it was written in."""
    return i.pc if i.home is None else i.home[1]


def by_place(
    sites: Sequence[tuple[int, ir.Instruction]], rows: npt.NDArray[np.int64]
) -> list[tuple[ir.Instruction, list[int]]]:
    """Counters, a row a site, by instruction as written: copies of a function's body are added up."""
    found: list[tuple[ir.Instruction, npt.NDArray[np.int64]]] = []
    for place, (_, i), row in zip(places(sites), sites, rows, strict=True):
        if place == len(found):
            found.append((i, np.zeros_like(row)))
        found[place] = found[place][0], found[place][1] + row
    return [(i, row.tolist()) for i, row in found]


def places(sites: Sequence[tuple[int, ir.Instruction]]) -> list[int]:
    """Which instruction as written each site belongs to, numbered in the order in which they come.

    An instruction that accesses memory several times has as many, also in each copy.
    """
    nth: Counter[tuple[int, int]] = Counter()
    known: dict[tuple[object, ...], int] = {}
    numbers = []
    for function, i in sites:
        nth[function, i.pc] += 1
        numbers.append(known.setdefault((i.home or (function, i.pc), nth[function, i.pc]), len(known)))
    return numbers


def access_cost(
    space: str, size: int, addresses: npt.NDArray[np.int64], mask: int, rule: Rule = "load"
) -> tuple[int, int]:
    """Sectors and shared wavefronts of one access (the same rules as the counters)."""
    if space == "local":
        rule = "load"  # no two lanes meet there
        addresses = interleaved(addresses, size)
    taking_part = mask >> np.arange(layout.LANES) & 1
    access = Access(tuple(np.where(taking_part, addresses, -1).tolist()), size, rule=rule)
    return (0, access.banks().wavefronts) if space == "shared" else (access.memory().sectors, 0)


def interleaved(offsets: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Where each lane's place in its local memory lies: the same 4-byte word of 32 lanes is contiguous."""
    return offsets // 4 * 128 + np.arange(layout.LANES) * max(size, 4)


def linear(index: Dim3, shape: Dim3) -> int:
    """Number of a block in its grid, x fastest."""
    return index[0] + shape[0] * (index[1] + shape[1] * index[2])


def unlinear(number: int, shape: Dim3) -> Dim3:
    """The inverse of `linear`."""
    return number % shape[0], number // shape[0] % shape[1], number // (shape[0] * shape[1])


def total_counters(parts: Sequence[npt.NDArray[np.int64]], stride_bytes: int) -> npt.NDArray[np.int64]:
    """Counters of several workers added up, one row an instruction."""
    return np.sum(parts, axis=0, dtype=np.int64).reshape(-1, stride_bytes // 8)

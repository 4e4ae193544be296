"""From raw counter and trace buffers to records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.codegen import Kernel
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.records import AccessCounters, BranchCounters, Dim3, KernelCounters, Provenance
from virtualgpu.records.access import Access, Rule

SPACES = ("global", "shared", "local", "const", "generic")


def counters(
    kernel: Kernel,
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
    """Name every counter after its instruction, and all after the kernel's `title`."""
    warp = thread = 0
    line_warp: dict[int, int] = defaultdict(int)
    line_thread: dict[int, int] = defaultdict(int)
    opcodes: dict[str, int] = defaultdict(int)
    functions = [plan.function for plan in kernel.plans]
    for (function, piece), (executions, lanes) in zip(kernel.tables.blocks, blocks.tolist(), strict=True):
        size = piece.end - piece.first
        warp += executions * size
        thread += lanes * size
        for i in functions[function].instructions[piece.first : piece.end]:
            line_warp[i.line] += executions
            line_thread[i.line] += lanes
            opcodes[i.root] += executions
    found = []
    for i, row in by_place(kernel.tables.accesses, accesses):
        requests, sectors, wavefronts, ideal, lanes, missed, halves = row[:7]
        size = memory_ops.size_of(i)
        found.append(
            AccessCounters(
                place(i),
                i.line,
                i.text,
                memory_ops.space_of(i),  # type: ignore[arg-type]
                memory_ops.kind_of(i),  # type: ignore[arg-type]
                size,
                requests,
                sectors,
                wavefronts,
                ideal,
                lanes * size,
                i.column,
                missed,
                halves,
            )
        )
    forks = [
        BranchCounters(place(i), i.line, i.text, executed, divergent, i.column)
        for i, (executed, divergent) in by_place(kernel.tables.branches, branches)
    ]
    return KernelCounters(
        provenance,
        title,
        grid,
        block,
        shared_bytes,
        warp,
        thread,
        tuple(found),
        tuple(forks),
        dict(line_warp),
        dict(line_thread),
        longest_warp,
        dict(opcodes),
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

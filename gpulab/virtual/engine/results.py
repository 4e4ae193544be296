"""From raw counter and trace buffers to records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.ptx import cfg, ir
from gpulab.records import (
    AccessCounters,
    BranchCounters,
    Dim3,
    KernelCounters,
    Provenance,
    WarpTrace,
)
from gpulab.virtual.engine import access_rules, layout, memory_ops
from gpulab.virtual.engine.codegen import Kernel

SPACES = ("global", "shared", "local", "const", "generic")


def counters(
    kernel: Kernel,
    provenance: Provenance,
    grid: Dim3,
    block: Dim3,
    shared_bytes: int,
    accesses: npt.NDArray[np.int64],
    branches: npt.NDArray[np.int64],
    blocks: npt.NDArray[np.int64],
) -> KernelCounters:
    """Name every counter after its instruction."""
    warp = thread = 0
    line_warp: dict[int, int] = defaultdict(int)
    line_thread: dict[int, int] = defaultdict(int)
    functions = [plan.function for plan in kernel.plans]
    for (function, piece), (executions, lanes) in zip(kernel.tables.blocks, blocks.tolist(), strict=True):
        size = piece.end - piece.first
        warp += executions * size
        thread += lanes * size
        for i in functions[function].instructions[piece.first : piece.end]:
            line_warp[i.line] += executions
            line_thread[i.line] += lanes
    found = []
    for (_, i), row in zip(kernel.tables.accesses, accesses.tolist(), strict=True):
        requests, sectors, wavefronts, ideal, lanes = row[:5]
        size = memory_ops.size_of(i)
        found.append(
            AccessCounters(
                i.pc,
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
            )
        )
    forks = [
        BranchCounters(i.pc, i.line, i.text, executed, divergent)
        for (_, i), (executed, divergent) in zip(kernel.tables.branches, branches.tolist(), strict=True)
    ]
    return KernelCounters(
        provenance,
        kernel.name,
        grid,
        block,
        shared_bytes,
        warp,
        thread,
        tuple(found),
        tuple(forks),
        dict(line_warp),
        dict(line_thread),
    )


def access_cost(
    space: str, size: int, addresses: npt.NDArray[np.int64], mask: int, rule: access_rules.Rule = "load"
) -> tuple[int, int]:
    """Sectors and shared wavefronts of one access (the same rules as the counters)."""
    if not mask:
        return 0, 0
    if space == "shared":
        return 0, access_rules.shared_cost(size, addresses, mask, rule)[0]
    if space == "local":
        rule = "load"  # no two lanes meet there
        addresses = addresses // 4 * 128 + np.arange(32) * max(size, 4)
    return access_rules.sectors(addresses, mask, rule), 0


def _space_now(space: str, address: int) -> str:
    if space != "generic":
        return space
    return {1: "shared", 2: "local"}.get((address >> 56) & 0xFF, "global")


def warp_trace(
    kernel: Kernel,
    provenance: Provenance,
    code: str,
    grid: Dim3,
    block: Dim3,
    block_index: Dim3,
    warp_index: int,
    steps: npt.NDArray[Any],
    truncated: bool,
    note: str = "",
) -> WarpTrace:
    """The record of a traced warp, from the raw steps generated code wrote."""
    functions = [plan.function for plan in kernel.plans]
    bases = np.cumsum([0, *(len(f.instructions) for f in functions)])
    flat: list[ir.Instruction] = [i for f in functions for i in f.instructions]
    index = bases[steps["function"]] + steps["pc"]
    count = len(steps)
    lines = np.array([i.line for i in flat], np.int32)
    columns = np.array([i.column for i in flat], np.int32)
    rules = [memory_ops.rule_of(f, i) for f in functions for i in f.instructions]
    writes = [cfg.definitions_and_uses(i)[0] for i in flat]
    registers = [w[0] if w else "" for w in writes]
    types = [
        functions[int(np.searchsorted(bases, n, side="right")) - 1].registers.get(r, "") if r else ""
        for n, r in enumerate(registers)
    ]
    space = np.full(count, -1, np.int8)
    store = np.zeros(count, np.bool_)
    size = np.zeros(count, np.int16)
    sectors = np.zeros(count, np.int32)
    wavefronts = np.zeros(count, np.int32)
    addresses = steps["address"].copy()
    for n, at in enumerate(index.tolist()):
        i = flat[at]
        if not memory_ops.is_access(i):
            addresses[n] = -1
            continue
        mask = int(steps["executed"][n])
        lane = (mask & -mask).bit_length() - 1 if mask else 0
        actual = (
            _space_now(memory_ops.space_of(i), int(addresses[n, lane])) if mask else memory_ops.space_of(i)
        )
        if memory_ops.space_of(i) == "generic" and actual in ("shared", "local"):
            addresses[n] &= (1 << 56) - 1
        space[n] = SPACES.index(actual)
        store[n] = memory_ops.kind_of(i) != "load"
        size[n] = memory_ops.size_of(i)
        sectors[n], wavefronts[n] = access_cost(actual, int(size[n]), addresses[n], mask, rules[at])
        for quiet in range(32):
            if not mask >> quiet & 1:
                addresses[n, quiet] = -1
    return WarpTrace(
        provenance=provenance,
        kernel_name=kernel.name,
        code=code,
        grid=grid,
        block=block,
        block_index=block_index,
        warp_index=warp_index,
        granularity="instruction",
        instruction=tuple(i.text for i in flat),
        pc=index.astype(np.int32),
        line=lines[index] if count else np.zeros(0, np.int32),
        column=columns[index] if count else np.zeros(0, np.int32),
        active_mask=steps["active"].copy(),
        executed_mask=steps["executed"].copy(),
        text_index=index.astype(np.int32),
        space=SPACES,
        access_space=space,
        access_is_store=store,
        access_size_bytes=size,
        address=addresses,
        sectors=sectors,
        wavefronts=wavefronts,
        value=steps["value"].copy(),
        value_type=tuple(types),
        value_register=tuple(registers),
        truncated=truncated,
        note=note,
    )


def linear(index: Dim3, shape: Dim3) -> int:
    """Number of a block in its grid, x fastest."""
    return index[0] + shape[0] * (index[1] + shape[1] * index[2])


def unlinear(number: int, shape: Dim3) -> Dim3:
    """The inverse of `linear`."""
    return number % shape[0], number // shape[0] % shape[1], number // (shape[0] * shape[1])


def total_counters(parts: Sequence[npt.NDArray[np.int64]], stride_bytes: int) -> npt.NDArray[np.int64]:
    """Counters of several workers added up, one row an instruction."""
    return np.sum(parts, axis=0, dtype=np.int64).reshape(-1, stride_bytes // 8)


assert layout.LANES == 32

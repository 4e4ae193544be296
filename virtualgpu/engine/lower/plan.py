"""Numbering and frame layout shared by the functions of one kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import bits, llvm_of
from virtualgpu.engine.lower import fragment_places


@dataclass(slots=True)
class Options:
    """What to generate: counters, trace, calls to an observer, a trap; and what generation found out."""

    count: bool = True
    trace: bool = False
    observe: bool = False
    trap_nan: bool = False
    masked: bool = False  # for a processor that works under masks of single bits
    float_atomics: bool = False


@dataclass(slots=True)
class Tables:
    """Numbering shared by all functions compiled for one kernel."""

    globals: list[str] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)
    accesses: list[tuple[int, ir.Instruction]] = field(default_factory=list)
    branches: list[tuple[int, ir.Instruction]] = field(default_factory=list)
    blocks: list[tuple[int, cfg.Block]] = field(default_factory=list)
    support: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    services: list[Any] = field(default_factory=list)
    copies: int = 0  # instructions that need a queue of asynchronous copies


@dataclass(slots=True)
class FunctionPlan:
    """A function's place in the numbering and the layout of its frame (bytes)."""

    function: ir.Function
    index: int
    flow: cfg.Flow
    live_out: list[set[str]]
    slots: dict[str, int]
    records: dict[str, tuple[int, int]]
    frame_bytes: int
    local_offsets: dict[str, int]
    local_bytes: int
    answers: frozenset[str]  # results of calls that depend on what other threads write
    constants: dict[str, ir.Immediate]  # registers that never hold anything but this

    @property
    def symbol(self) -> str:
        return f"warp_{self.index}"


def plan(function: ir.Function, index: int, answers: frozenset[str] = frozenset()) -> FunctionPlan:
    """Lay out a function's frame: lane program counters, parameter records, register slots."""
    flow = cfg.build(function)
    live = cfg.live_out(function, flow)
    crossing = set().union(*live) if live else set()
    # A barrier's reduction is written to the frame while the warp waits.
    crossing |= {
        name
        for i in function.instructions
        if cfg.is_block_barrier(i) and "red" in i.parts
        for name in cfg.definitions_and_uses(i)[0]
    }
    at = layout.FRAME_HEADER
    records: dict[str, tuple[int, int]] = {}
    formal = () if function.is_entry else (*function.params, *function.returns)
    for param in (*formal, *function.call_params.values()):
        size = -(-param.size_bytes // 8) * 8
        records[param.name] = (at, size)
        at += 32 * size
    slots, at = fragment_places.place(function, crossing, at)
    for name, kind in function.registers.items():
        if name in crossing and name not in slots:
            slots[name] = at
            at += -(-max(4, 4 * bits(llvm_of(kind))) // 64) * 64
    local_offsets = {}
    local_at = 0
    for variable in function.local.values():
        local_at = -(-local_at // variable.align) * variable.align
        local_offsets[variable.name] = local_at
        local_at += variable.size_bytes
    local_bytes = -(-local_at // 16) * 16
    return FunctionPlan(
        function,
        index,
        flow,
        live,
        slots,
        records,
        -(-at // 64) * 64,
        local_offsets,
        local_bytes,
        answers,
        _constants(function),
    )


def _constants(function: ir.Function) -> dict[str, ir.Immediate]:
    """Registers that one instruction alone writes, always, and of which it is known what."""
    found: dict[str, ir.Immediate] = {}
    written: set[str] = set()
    for i in function.instructions:
        defined, used = cfg.definitions_and_uses(i)
        # What a call answers stands among all that it names.
        for name in used if i.root == "call" else defined:
            if name in written:
                found.pop(name, None)
            elif (
                i.root == "mov"
                and i.guard is None
                and isinstance(i.operands[1], ir.Immediate)
                and llvm_of(i.type) == llvm_of(function.registers[name])
            ):
                found[name] = i.operands[1]
            written.add(name)
    return found

"""Numbers of instructions and layout of frames, which the functions of one kernel share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import get_bit_width, llvm_of
from virtualgpu.engine.lower import fragment_places


@dataclass(slots=True)
class CodeOptions:
    """Options for the generated code, such as counters, a trace, observer calls and a NaN trap."""

    with_counters: bool = True
    is_traced: bool = False
    is_observed: bool = False
    trap_nan: bool = False
    has_mask_registers: bool = False  # for a processor that works under masks of single bits


@dataclass(slots=True)
class KernelTables:
    """The numbered instructions, variables and functions that the code generator finds in a kernel. The
    number of an item is its position in its list.
    """

    global_names: list[str] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)
    accesses: list[tuple[int, ir.Instruction]] = field(default_factory=list)
    branches: list[tuple[int, ir.Instruction]] = field(default_factory=list)
    blocks: list[tuple[int, cfg.Block]] = field(default_factory=list)
    support_functions: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    services: list[Any] = field(default_factory=list)
    copy_instruction_count: int = 0  # instructions that need a queue of asynchronous copies


@dataclass(slots=True)
class FunctionPlan:
    """The plan for compiling one function, with its control flow and its frame layout."""

    function: ir.Function
    index: int
    control_flow: cfg.ControlFlow
    live_out: list[set[str]]
    register_slots: dict[str, int]
    parameter_records: dict[str, tuple[int, int]]
    frame_bytes: int
    local_offsets: dict[str, int]
    local_bytes: int
    memory_results: frozenset[str]  # results of calls that depend on memory that other threads write
    constant_registers: dict[str, ir.Immediate]  # registers that only ever hold this constant

    @property
    def symbol(self) -> str:
        return f"warp_{self.index}"


def make_plan(
    function: ir.Function, index: int, memory_results: frozenset[str] = frozenset()
) -> FunctionPlan:
    """Compute the layout of a function's frame, which holds program counters, parameters and registers."""
    control_flow = cfg.build_flow(function)
    live_registers = cfg.find_live_out(function, control_flow)
    live_across_blocks = set().union(*live_registers) if live_registers else set()
    # A barrier's reduction is written to the frame while the warp waits.
    live_across_blocks |= {
        name
        for instruction in function.instructions
        if cfg.is_block_barrier(instruction) and "red" in instruction.parts
        for name in cfg.find_definitions_and_uses(instruction)[0]
    }
    frame_end = layout.FRAME_HEADER_BYTES
    parameter_records: dict[str, tuple[int, int]] = {}
    parameters = () if function.is_entry else (*function.params, *function.returns)
    for param in (*parameters, *function.call_params.values()):
        rounded_bytes = -(-param.size_bytes // 8) * 8
        parameter_records[param.name] = (frame_end, rounded_bytes)
        frame_end += 32 * rounded_bytes
    register_slots, frame_end = fragment_places.allocate_fragments(function, live_across_blocks, frame_end)
    for name, register_type in function.registers.items():
        if name in live_across_blocks and name not in register_slots:
            register_slots[name] = frame_end
            frame_end += -(-max(4, 4 * get_bit_width(llvm_of(register_type))) // 64) * 64
    local_offsets = {}
    local_end = 0
    for variable in function.local.values():
        local_end = -(-local_end // variable.align) * variable.align
        local_offsets[variable.name] = local_end
        local_end += variable.size_bytes
    local_bytes = -(-local_end // 16) * 16
    return FunctionPlan(
        function,
        index,
        control_flow,
        live_registers,
        register_slots,
        parameter_records,
        -(-frame_end // 64) * 64,
        local_offsets,
        local_bytes,
        memory_results,
        _find_constant_registers(function),
    )


def _find_constant_registers(function: ir.Function) -> dict[str, ir.Immediate]:
    """Return the registers that a single instruction sets to a constant, with this constant."""
    constants: dict[str, ir.Immediate] = {}
    written_names: set[str] = set()
    for instruction in function.instructions:
        definitions, uses = cfg.find_definitions_and_uses(instruction)
        # The result of a call is among the operands that it uses.
        for name in uses if instruction.root == "call" else definitions:
            if name in written_names:
                constants.pop(name, None)
            elif (
                instruction.root == "mov"
                and instruction.guard is None
                and isinstance(instruction.operands[1], ir.Immediate)
                and llvm_of(instruction.type) == llvm_of(function.registers[name])
            ):
                constants[name] = instruction.operands[1]
            written_names.add(name)
    return constants

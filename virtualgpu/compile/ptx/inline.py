"""Inlining of PTX functions: a call is replaced by the body of the called function.

A call runs for the calling lanes until all have returned, which does not work if they wait for other
lanes, for example at a barrier or for a lock. In the kernel's own body every lane has its own program
counter, so functions that wait are copied into it. Each instruction stays one instruction: a call becomes a
branch to a copy of the body, and ``ret`` a branch back. Actual parameters replace formal ones.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Set

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import callgraph
from virtualgpu.errors import NotSupportedError

# Separates a copied name from the number of the copy.
INLINE_COPY_MARK = "@"
_MAX_INSTRUCTIONS = 50_000
_BODY_END_ROOTS = ("ret", "exit", "trap", "bra", "brx")


def inline_waiting_functions(module: ir.Module, entry: str) -> ir.Module:
    """Return a new module in which a kernel contains the code of all functions that wait for other threads.

    Raises
    ------
    NotSupportedError
        If the kernel would become too large.
    """
    waiting_names = callgraph.find_waiting_functions(module, entry)
    if not waiting_names:
        return module
    merged_function = _InlineMerger(module, waiting_names).merge_into_entry(module.functions[entry])
    return dataclasses.replace(module, functions={**module.functions, entry: merged_function})


def strip_copy_mark(register: str) -> str:
    """Return the name that a register had before its function was inlined."""
    return register.split(INLINE_COPY_MARK, 1)[0]


@dataclasses.dataclass(frozen=True, slots=True)
class _InlinedCall:
    """A call instruction to replace: its index, its callee, and its parameters."""

    pc: int
    callee: str
    actual_names: tuple[str, ...]


class _InlineMerger:
    def __init__(self, module: ir.Module, inlined_names: Set[str]) -> None:
        self.module = module
        self.inlined_names = inlined_names
        self.instructions: list[ir.Instruction] = []
        self.pending_calls: deque[_InlinedCall] = deque()

    def merge_into_entry(self, entry: ir.Function) -> ir.Function:
        merged_function = dataclasses.replace(
            entry,
            instructions=self.instructions,
            registers=dict(entry.registers),
            shared=dict(entry.shared),
            local=dict(entry.local),
            call_params=dict(entry.call_params),
            labels={},
            branch_tables={},
        )
        self.append_body(entry, {}, None)
        copy_count = 0
        while self.pending_calls:
            call = self.pending_calls.popleft()
            copy_count += 1
            callee = self.module.functions[call.callee]
            self.instructions[call.pc].target = len(self.instructions)
            formal_names = [p.name for p in (*callee.returns, *callee.params)]
            new_names = {name: f"{name}{INLINE_COPY_MARK}{copy_count}" for name in _list_local_names(callee)}
            new_names |= dict(zip(formal_names, call.actual_names, strict=True))
            merged_function.registers |= {
                new_names[n]: register_type for n, register_type in callee.registers.items()
            }
            merged_function.local |= {
                new_names[n]: dataclasses.replace(v, name=new_names[n]) for n, v in callee.local.items()
            }
            merged_function.call_params |= {
                new_names[n]: dataclasses.replace(p, name=new_names[n]) for n, p in callee.call_params.items()
            }
            for name, variable in callee.shared.items():
                merged_function.shared.setdefault(name, variable)
            self.append_body(callee, new_names, call)
            if len(self.instructions) > _MAX_INSTRUCTIONS:
                raise NotSupportedError(
                    f"Kernel {entry.name} is too large for the virtual GPU. Functions that contain "
                    "__syncthreads() are copied to every place that calls them, which results in more than "
                    f"{_MAX_INSTRUCTIONS:,} instructions. Call these functions from fewer places."
                )
        return merged_function

    def append_body(
        self, function: ir.Function, new_names: dict[str, str], call: _InlinedCall | None
    ) -> None:
        """Append a copy of a function's instructions in place of a call. If `call` is None, the kernel itself
        is copied.
        """
        base_pc = len(self.instructions)
        call_depth = 0 if call is None else self.instructions[call.pc].call_depth + 1
        instructions = list(function.instructions)
        if (
            not instructions or instructions[-1].guard or instructions[-1].root not in _BODY_END_ROOTS
        ):  # no path may continue into the next body
            last_line = instructions[-1].line if instructions else 0
            instructions.append(
                ir.Instruction(len(instructions), "ret", ("ret",), (), None, False, last_line, 0, "ret")
            )
        for instruction in instructions:
            instruction_copy = dataclasses.replace(
                instruction,
                pc=base_pc + instruction.pc,
                operands=tuple(_rename_operand(operand, new_names) for operand in instruction.operands),
                guard=new_names.get(instruction.guard, instruction.guard) if instruction.guard else None,
                target=base_pc + instruction.target if instruction.target >= 0 else -1,
                targets=tuple(base_pc + branch_target for branch_target in instruction.targets),
                origin=(function.name, instruction.pc),
                call_depth=call_depth,
            )
            self.instructions.append(instruction_copy)
            if instruction.root == "ret" and call is not None:
                instruction_copy.parts = ("bra",)
                instruction_copy.target = call.pc + 1
            elif instruction.root == "call":
                callee, arguments, results = callgraph.split_call(instruction_copy)
                if callee in self.inlined_names:
                    instruction_copy.parts = ("bra",)
                    instruction_copy.operands = ()
                    self.pending_calls.append(
                        _InlinedCall(instruction_copy.pc, callee, (*results, *arguments))
                    )


def _list_local_names(function: ir.Function) -> list[str]:
    return [*function.registers, *function.local, *function.call_params]


def _rename_operand(operand: ir.Operand | None, new_names: dict[str, str]) -> ir.Operand | None:
    if isinstance(operand, ir.Register | ir.Symbol):
        name = new_names.get(operand.name)
        return operand if name is None else dataclasses.replace(operand, name=name)
    if isinstance(operand, ir.Address):
        base_operand = _rename_operand(operand.base, new_names)
        assert isinstance(base_operand, ir.Register | ir.Symbol | ir.Immediate)
        return ir.Address(base_operand, operand.offset)
    if isinstance(operand, ir.Vector):
        return ir.Vector(tuple(_rename_operand(item, new_names) for item in operand.items))
    if isinstance(operand, ir.Pair):
        return ir.Pair(_rename_operand(operand.first, new_names), _rename_operand(operand.second, new_names))
    return operand

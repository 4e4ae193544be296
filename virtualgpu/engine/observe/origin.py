"""Search for the array from which the address of a memory instruction was computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg

# The number of registers to follow; kernels compute an address in a few steps.
_MAX_SEARCH_STEPS = 200
_POINTER_BYTES = 8


@dataclass(frozen=True, slots=True)
class RegisterWriters:
    """The instructions that write each register, with the registers passed to and from inlined functions."""

    instructions_by_register: Mapping[str, Sequence[ir.Instruction]]
    passed_registers: Mapping[tuple[str, int], Sequence[str]]


def find_register_writers(function: ir.Function) -> RegisterWriters:
    """Return the instructions that write each register of a function."""
    by_register: dict[str, list[ir.Instruction]] = {}
    passed_registers: dict[tuple[str, int], list[str]] = {}
    for instruction in function.instructions:
        for name in cfg.find_definitions_and_uses(instruction)[0]:
            by_register.setdefault(name, []).append(instruction)
        if (
            instruction.root == "st"
            and "param" in instruction.parts
            and isinstance(instruction.operands[0], ir.Address)
        ):
            parameter = instruction.operands[0]
            argument = instruction.operands[1]
            if isinstance(parameter.base, ir.Symbol) and isinstance(argument, ir.Register):
                passed_registers.setdefault(
                    (parameter.base.name, parameter.offset + parameter.base.offset), []
                ).append(argument.name)
    return RegisterWriters(by_register, passed_registers)


def find_base_pointer(
    function: ir.Function,
    instruction: ir.Instruction,
    params: bytes,
    variables: Mapping[str, int],
    writers: RegisterWriters | None = None,
) -> int | None:
    """Return the pointer from which the address of a memory access was computed, or None if several are
    possible.

    Parameters
    ----------
    function
        The function that contains the access; parameters are known only in an entry.
    instruction
        The access.
    params
        The launch's parameter buffer.
    variables
        Addresses of module variables.
    writers
        The function's `find_register_writers`, if the function is used more than once.
    """
    target_address = next(
        (
            address_operand
            for address_operand in instruction.operands
            if isinstance(address_operand, ir.Address)
        ),
        None,
    )
    if target_address is None:
        return None
    if isinstance(target_address.base, ir.Symbol):
        return variables.get(target_address.base.name)
    if not isinstance(target_address.base, ir.Register):
        return None
    writers = writers or find_register_writers(function)
    parameters = {param.name: param for param in function.params} if function.is_entry else {}
    candidate_pointers: set[int] = set()
    pending_names = [target_address.base.name]
    visited_names = {target_address.base.name}
    for name in pending_names:
        if len(pending_names) > _MAX_SEARCH_STEPS:
            return None
        for writer in writers.instructions_by_register.get(name, ()):
            for operand in writer.operands[1:]:
                operand_base = operand.base if isinstance(operand, ir.Address) else operand
                if isinstance(operand, ir.Address) and isinstance(operand_base, ir.Symbol):
                    for register in writers.passed_registers.get(
                        (operand_base.name, operand.offset + operand_base.offset), ()
                    ):
                        if register not in visited_names:
                            visited_names.add(register)
                            pending_names.append(register)
                if isinstance(operand_base, ir.Symbol):
                    param = parameters.get(operand_base.name)
                    if param is not None and param.size_bytes == _POINTER_BYTES and writer.root == "ld":
                        offset = param.offset
                        candidate_pointers.add(
                            int.from_bytes(params[offset : offset + _POINTER_BYTES], "little")
                        )
                    elif operand_base.name in variables:
                        candidate_pointers.add(variables[operand_base.name])
                elif isinstance(operand_base, ir.Register) and writer.root not in ("ld", "atom", "call"):
                    register_type = function.registers.get(operand_base.name, "")
                    if register_type.endswith("64") and operand_base.name not in visited_names:
                        visited_names.add(operand_base.name)
                        pending_names.append(operand_base.name)
    return candidate_pointers.pop() if len(candidate_pointers) == 1 else None

"""Analysis of the PTX of a kernel: the memory accesses through each of its parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.parser import parse

PARAMETER_READ = 1
PARAMETER_WRITTEN = 2
PARAMETER_ATOMIC = 4
_OTHER_MEMORY_SPACES = frozenset({"shared", "local", "param", "const"})


def find_parameter_uses(ptx: str, kernel_name: str) -> list[int]:
    """Return the memory uses of each kernel parameter as a combination of `PARAMETER_READ`,
    `PARAMETER_WRITTEN` and `PARAMETER_ATOMIC`.

    A register depends on all parameters on which its source registers depend. An address that depends on no
    parameter and no variable may belong to any parameter.

    Parameters
    ----------
    ptx
        Text of the module.
    kernel_name
        The kernel's name there.
    """
    function = parse(ptx).functions[kernel_name]
    index_by_name = {param.name: param_index for param_index, param in enumerate(function.params)}
    parameters_by_register: dict[str, set[int]] = defaultdict(set)
    # A variable of the module or of shared memory is the parameter -1.
    has_changed = True
    while has_changed:
        has_changed = False
        for instruction in function.instructions:
            if instruction.root in ("st", "red", "bra", "bar") or not instruction.operands:
                continue
            if instruction.root in ("ld", "ldu", "atom") and "param" not in instruction.parts:
                continue  # values from memory
            source_parameters = {
                param_index
                for operand in instruction.operands[1:]
                for param_index in _find_source_parameters(operand, index_by_name, parameters_by_register)
            }
            for register in _list_registers(instruction.operands[0]):
                if not source_parameters <= parameters_by_register[register]:
                    parameters_by_register[register] |= source_parameters
                    has_changed = True
    uses_by_parameter = [0] * len(function.params)
    for instruction in function.instructions:
        if _OTHER_MEMORY_SPACES & set(instruction.parts) and instruction.root in (
            "ld",
            "st",
            "atom",
            "red",
            "ldu",
        ):
            continue
        use_bits = {
            "ld": PARAMETER_READ,
            "ldu": PARAMETER_READ,
            "st": PARAMETER_WRITTEN,
            "atom": PARAMETER_ATOMIC,
            "red": PARAMETER_ATOMIC,
        }.get(instruction.root)
        addresses = [o for o in instruction.operands if isinstance(o, ir.Address)]
        if instruction.root == "call":
            addresses = []
            use_bits = PARAMETER_READ | PARAMETER_WRITTEN
            for param_index in range(len(uses_by_parameter)):
                uses_by_parameter[param_index] |= use_bits
        for address in addresses if instruction.root not in ("bra", "mbarrier") else ():
            if isinstance(address.base, ir.Symbol):
                continue
            address_parameters = (
                parameters_by_register[address.base.name] if isinstance(address.base, ir.Register) else set()
            )
            for param_index in address_parameters or range(len(uses_by_parameter)):
                if param_index >= 0:
                    uses_by_parameter[param_index] |= use_bits or PARAMETER_READ | PARAMETER_WRITTEN
    return uses_by_parameter


def _list_registers(operand: ir.Operand | None) -> Iterable[str]:
    match operand:
        case ir.Register(name=name):
            yield name
        case ir.Vector(items=items):
            for element in items:
                yield from _list_registers(element)
        case ir.Pair(first=first, second=second):
            yield from _list_registers(first)
            yield from _list_registers(second)


def _find_source_parameters(
    operand: ir.Operand | None, index_by_name: dict[str, int], parameters_by_register: dict[str, set[int]]
) -> Iterable[int]:
    if isinstance(operand, ir.Address):
        operand = operand.base
    if isinstance(operand, ir.Symbol):
        yield index_by_name.get(operand.name, -1)
    for register in _list_registers(operand):
        yield from parameters_by_register[register]

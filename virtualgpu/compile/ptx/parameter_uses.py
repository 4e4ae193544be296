"""Analysis of the PTX of a kernel: the memory accesses through each of its parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.parser import parse

READ = 1
WRITTEN = 2
ATOMIC = 4
_OTHER_MEMORY = frozenset({"shared", "local", "param", "const"})


def uses_of_parameters(ptx: str, name: str) -> list[int]:
    """Return the memory uses of each kernel parameter as a combination of `READ`, `WRITTEN` and `ATOMIC`.

    A register depends on all parameters on which its source registers depend. An address that depends on no
    parameter and no variable may belong to any parameter.

    Parameters
    ----------
    ptx
        Text of the module.
    name
        The kernel's name there.
    """
    function = parse(ptx).functions[name]
    number_of = {param.name: param_index for param_index, param in enumerate(function.params)}
    parameters_of: dict[str, set[int]] = defaultdict(set)
    # A variable of the module or of shared memory is the parameter -1.
    changed = True
    while changed:
        changed = False
        for instruction in function.instructions:
            if instruction.root in ("st", "red", "bra", "bar") or not instruction.operands:
                continue
            if instruction.root in ("ld", "ldu", "atom") and "param" not in instruction.parts:
                continue  # values from memory
            sources = {
                param_index
                for operand in instruction.operands[1:]
                for param_index in _source_parameters(operand, number_of, parameters_of)
            }
            for register in _registers_in(instruction.operands[0]):
                if not sources <= parameters_of[register]:
                    parameters_of[register] |= sources
                    changed = True
    uses = [0] * len(function.params)
    for instruction in function.instructions:
        if _OTHER_MEMORY & set(instruction.parts) and instruction.root in ("ld", "st", "atom", "red", "ldu"):
            continue
        access = {"ld": READ, "ldu": READ, "st": WRITTEN, "atom": ATOMIC, "red": ATOMIC}.get(instruction.root)
        addresses = [o for o in instruction.operands if isinstance(o, ir.Address)]
        if instruction.root == "call":
            addresses = []
            access = READ | WRITTEN
            for param_index in range(len(uses)):
                uses[param_index] |= access
        for address in addresses if instruction.root not in ("bra", "mbarrier") else ():
            if isinstance(address.base, ir.Symbol):
                continue
            parameters = parameters_of[address.base.name] if isinstance(address.base, ir.Register) else set()
            for param_index in parameters or range(len(uses)):
                if param_index >= 0:
                    uses[param_index] |= access or READ | WRITTEN
    return uses


def _registers_in(operand: ir.Operand | None) -> Iterable[str]:
    match operand:
        case ir.Register(name=name):
            yield name
        case ir.Vector(items=items):
            for item in items:
                yield from _registers_in(item)
        case ir.Pair(first=first, second=second):
            yield from _registers_in(first)
            yield from _registers_in(second)


def _source_parameters(
    operand: ir.Operand | None, number_of: dict[str, int], parameters_of: dict[str, set[int]]
) -> Iterable[int]:
    if isinstance(operand, ir.Address):
        operand = operand.base
    if isinstance(operand, ir.Symbol):
        yield number_of.get(operand.name, -1)
    for register in _registers_in(operand):
        yield from parameters_of[register]

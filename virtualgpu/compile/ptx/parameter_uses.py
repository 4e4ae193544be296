"""What a kernel does through each of its parameters, as its PTX says: loads, stores, atomic operations."""

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
    """What a kernel does through each of its parameters: `READ`, `WRITTEN`, `ATOMIC`, or several of them.

    A register holds what was computed from the parameters that its sources hold. An address that comes from
    none of them, nor from a variable, may be any of theirs.

    Parameters
    ----------
    ptx
        Text of the module.
    name
        The kernel's name there.
    """
    function = parse(ptx).functions[name]
    places = {param.name: number for number, param in enumerate(function.params)}
    held: dict[str, set[int]] = defaultdict(set)
    # A variable of the module or of shared memory is the parameter -1.
    changed = True
    while changed:
        changed = False
        for i in function.instructions:
            if i.root in ("st", "red", "bra", "bar") or not i.operands:
                continue
            if i.root in ("ld", "ldu", "atom") and "param" not in i.parts:
                continue  # what memory holds
            found = {number for operand in i.operands[1:] for number in _sources(operand, places, held)}
            for register in _registers(i.operands[0]):
                if not found <= held[register]:
                    held[register] |= found
                    changed = True
    uses = [0] * len(function.params)
    for i in function.instructions:
        if _OTHER_MEMORY & set(i.parts) and i.root in ("ld", "st", "atom", "red", "ldu"):
            continue
        what = {"ld": READ, "ldu": READ, "st": WRITTEN, "atom": ATOMIC, "red": ATOMIC}.get(i.root)
        addresses = [o for o in i.operands if isinstance(o, ir.Address)]
        if i.root == "call":
            addresses = []
            what = READ | WRITTEN
            for number in range(len(uses)):
                uses[number] |= what
        for address in addresses if i.root not in ("bra", "mbarrier") else ():
            if isinstance(address.base, ir.Symbol):
                continue
            of = held[address.base.name] if isinstance(address.base, ir.Register) else set()
            for number in of or range(len(uses)):
                if number >= 0:
                    uses[number] |= what or READ | WRITTEN
    return uses


def _registers(operand: ir.Operand | None) -> Iterable[str]:
    match operand:
        case ir.Register(name=name):
            yield name
        case ir.Vector(items=items):
            for item in items:
                yield from _registers(item)
        case ir.Pair(first=first, second=second):
            yield from _registers(first)
            yield from _registers(second)


def _sources(operand: ir.Operand | None, places: dict[str, int], held: dict[str, set[int]]) -> Iterable[int]:
    if isinstance(operand, ir.Address):
        operand = operand.base
    if isinstance(operand, ir.Symbol):
        yield places.get(operand.name, -1)
    for register in _registers(operand):
        yield from held[register]

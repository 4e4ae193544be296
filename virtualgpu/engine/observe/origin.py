"""Which array an address was computed from: the pointers that reach a memory instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg

# How far back to look; kernels compute an address in a few steps.
_MOST_STEPS = 200
_POINTER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Makers:
    """By register, who writes it; and what is handed to copied functions, or back from them."""

    by_register: Mapping[str, Sequence[ir.Instruction]]
    passed: Mapping[tuple[str, int], Sequence[str]]


def makers(function: ir.Function) -> Makers:
    """Where a function's registers come from, worked out once for all its accesses."""
    by_register: dict[str, list[ir.Instruction]] = {}
    passed: dict[tuple[str, int], list[str]] = {}
    for each in function.instructions:
        for name in cfg.definitions_and_uses(each)[0]:
            by_register.setdefault(name, []).append(each)
        if each.root == "st" and "param" in each.parts and isinstance(each.operands[0], ir.Address):
            where = each.operands[0]
            what = each.operands[1]
            if isinstance(where.base, ir.Symbol) and isinstance(what, ir.Register):
                passed.setdefault((where.base.name, where.offset + where.base.offset), []).append(what.name)
    return Makers(by_register, passed)


def base_pointer(
    function: ir.Function,
    i: ir.Instruction,
    params: bytes,
    variables: Mapping[str, int],
    known: Makers | None = None,
) -> int | None:
    """The pointer that an access's address was computed from; None if there is none or several.

    Parameters
    ----------
    function
        Where the access stands; only in an entry are the parameters known.
    i
        The access.
    params
        The launch's parameter buffer.
    variables
        Addresses of module variables.
    known
        The function's `makers`, where it is asked about more than once.
    """
    address = next((o for o in i.operands if isinstance(o, ir.Address)), None)
    if address is None:
        return None
    if isinstance(address.base, ir.Symbol):
        return variables.get(address.base.name)
    if not isinstance(address.base, ir.Register):
        return None
    known = known or makers(function)
    formal = {param.name: param for param in function.params} if function.is_entry else {}
    found: set[int] = set()
    todo = [address.base.name]
    seen = {address.base.name}
    for name in todo:
        if len(todo) > _MOST_STEPS:
            return None
        for maker in known.by_register.get(name, ()):
            for operand in maker.operands[1:]:
                inner = operand.base if isinstance(operand, ir.Address) else operand
                if isinstance(operand, ir.Address) and isinstance(inner, ir.Symbol):
                    for other in known.passed.get((inner.name, operand.offset + inner.offset), ()):
                        if other not in seen:
                            seen.add(other)
                            todo.append(other)
                if isinstance(inner, ir.Symbol):
                    param = formal.get(inner.name)
                    if param is not None and param.size_bytes == _POINTER_BYTES and maker.root == "ld":
                        at = param.offset
                        found.add(int.from_bytes(params[at : at + _POINTER_BYTES], "little"))
                    elif inner.name in variables:
                        found.add(variables[inner.name])
                elif isinstance(inner, ir.Register) and maker.root not in ("ld", "atom", "call"):
                    wide = function.registers.get(inner.name, "")
                    if wide.endswith("64") and inner.name not in seen:
                        seen.add(inner.name)
                        todo.append(inner.name)
    return found.pop() if len(found) == 1 else None

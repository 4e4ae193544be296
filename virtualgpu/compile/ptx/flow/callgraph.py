"""Who calls whom in a PTX module, and which functions wait for other threads."""

from __future__ import annotations

from collections.abc import Iterable

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg


def parts_of(call: ir.Instruction) -> tuple[str, list[str], list[str]]:
    """Callee (empty for a call through a pointer), argument names and result names of a call."""
    operands = list(call.operands)
    results: list[str] = []
    if isinstance(operands[0], ir.Vector):
        results = [o.name for o in operands.pop(0).items if isinstance(o, ir.Symbol)]  # type: ignore[union-attr]
    callee = operands.pop(0)
    arguments: list[str] = []
    if operands and isinstance(operands[0], ir.Vector):
        arguments = [o.name for o in operands[0].items if isinstance(o, ir.Symbol)]
    return callee.name if isinstance(callee, ir.Symbol) else "", arguments, results


def callees(function: ir.Function) -> list[str]:
    """Names a function calls directly; the empty name stands for a call through a pointer."""
    return [parts_of(i)[0] for i in function.instructions if i.root == "call"]


def answers_of_others(module: ir.Module, function: ir.Function) -> frozenset[str]:
    """Results of calls that depend on what other threads write, such as those of ``try_lock()``."""
    found: set[str] = set()
    for i in function.instructions:
        if i.root == "call":
            name, _, results = parts_of(i)
            reached = [module.functions[n] for n in reachable(module, [name])]
            if any(cfg.reads_what_others_write(each) for f in reached for each in f.instructions):
                found.update(results)
    return frozenset(found)


def reachable(module: ir.Module, names: Iterable[str]) -> list[str]:
    """The functions of these names and every function of the module they call by name."""
    found = [name for name in dict.fromkeys(names) if name in module.functions]
    for name in found:
        for callee in callees(module.functions[name]):
            if callee in module.functions and callee not in found:
                found.append(callee)
    return found


def waiting(module: ir.Module, entry: str) -> set[str]:
    """Functions below an entry in which a thread waits for other threads, in them or what they call.

    A block-wide barrier waits, and so does a loop that ends when memory changes. Functions that call
    themselves, directly or not, are left out.
    """
    names = reachable(module, callees(module.functions[entry]))
    below = {name: reachable(module, callees(module.functions[name])) for name in names}
    waits = {name for name in names if _waits(module, module.functions[name])}
    return {name for name in names if name not in below[name] and not waits.isdisjoint([name, *below[name]])}


def _waits(module: ir.Module, function: ir.Function) -> bool:
    if any(cfg.is_block_barrier(i) for i in function.instructions):
        return True
    flow = cfg.build(function)
    answers = answers_of_others(module, function)
    return any(
        cfg.waits_on_memory(function, flow, block.number, successor, answers)
        for block in flow.blocks
        for successor in block.successors
        if flow.is_back_edge(block.number, successor)
    )

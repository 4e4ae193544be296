"""Call graph of a PTX module, and search for functions in which threads wait for other threads."""

from __future__ import annotations

from collections.abc import Iterable

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg


def split_call(call: ir.Instruction) -> tuple[str, list[str], list[str]]:
    """Return the callee, the argument names and the result names of a call instruction.

    For a call through a pointer, the name of the callee is empty.
    """
    operands = list(call.operands)
    result_names: list[str] = []
    if isinstance(operands[0], ir.Vector):
        result_names = [o.name for o in operands.pop(0).items if isinstance(o, ir.Symbol)]  # type: ignore[union-attr]
    callee = operands.pop(0)
    argument_names: list[str] = []
    if operands and isinstance(operands[0], ir.Vector):
        argument_names = [o.name for o in operands[0].items if isinstance(o, ir.Symbol)]
    return callee.name if isinstance(callee, ir.Symbol) else "", argument_names, result_names


def list_callees(function: ir.Function) -> list[str]:
    """Return the names of the functions that a PTX function calls. For a call through a pointer, the name is
    empty.
    """
    return [split_call(instruction)[0] for instruction in function.instructions if instruction.root == "call"]


def find_memory_results(module: ir.Module, function: ir.Function) -> frozenset[str]:
    """Return the result registers of calls that may read memory written by other threads."""
    memory_results: set[str] = set()
    for call in function.instructions:
        if call.root == "call":
            name, _, result_names = split_call(call)
            reachable_functions = [module.functions[n] for n in find_reachable(module, [name])]
            if any(
                cfg.reads_shared_state(instruction)
                for f in reachable_functions
                for instruction in f.instructions
            ):
                memory_results.update(result_names)
    return frozenset(memory_results)


def find_reachable(module: ir.Module, names: Iterable[str]) -> list[str]:
    """Return the given functions and all functions of the module that they call, directly or indirectly."""
    reachable_names = [name for name in dict.fromkeys(names) if name in module.functions]
    for name in reachable_names:
        for callee in list_callees(module.functions[name]):
            if callee in module.functions and callee not in reachable_names:
                reachable_names.append(callee)
    return reachable_names


def find_waiting_functions(module: ir.Module, entry: str) -> set[str]:
    """Return the functions called by a kernel that can make a thread wait for other threads.

    The wait can be in the function itself or in a function that it calls.

    A block-wide barrier waits, and so does a loop that ends when memory changes. Recursive functions are not
    included.
    """
    reachable_names = find_reachable(module, list_callees(module.functions[entry]))
    callees_of = {
        name: find_reachable(module, list_callees(module.functions[name])) for name in reachable_names
    }
    waiting_names = {name for name in reachable_names if _can_thread_wait(module, module.functions[name])}
    return {
        name
        for name in reachable_names
        if name not in callees_of[name] and not waiting_names.isdisjoint([name, *callees_of[name]])
    }


def _can_thread_wait(module: ir.Module, function: ir.Function) -> bool:
    if any(cfg.is_block_barrier(instruction) for instruction in function.instructions):
        return True
    flow = cfg.build_flow(function)
    memory_results = find_memory_results(module, function)
    return any(
        cfg.waits_on_memory(function, flow, block.number, successor, memory_results)
        for block in flow.blocks
        for successor in block.successors
        if flow.is_back_edge(block.number, successor)
    )

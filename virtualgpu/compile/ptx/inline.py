"""Calls replaced by the bodies of the functions they call.

A call runs for the lanes that make it until all have returned, which is no good where they wait for
others: at a barrier, for a lock. In the kernel's own body every lane has a place of its own, so
functions that wait become part of it. Each instruction stays one instruction: a call becomes a branch
to a copy of the body, ``ret`` a branch back. Actual parameters stand in for formal ones.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Set

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import callgraph
from virtualgpu.errors import NotSupportedError

# Separates a copied name from the number of the copy.
COPY_MARK = "@"
_MOST_INSTRUCTIONS = 50_000
_LEAVES = ("ret", "exit", "trap", "bra", "brx")


def inline(module: ir.Module, entry: str) -> ir.Module:
    """The module with a kernel into which all functions that wait for other threads are copied.

    Raises
    ------
    NotSupportedError
        If the kernel would become too large.
    """
    chosen = callgraph.waiting(module, entry)
    if not chosen:
        return module
    merged = _Merger(module, chosen).run(module.functions[entry])
    return dataclasses.replace(module, functions={**module.functions, entry: merged})


def written_name(register: str) -> str:
    """A register's name as its function has it."""
    return register.split(COPY_MARK, 1)[0]


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """A call to replace: where it stands, what it calls, with which parameters."""

    pc: int
    callee: str
    actual: tuple[str, ...]


class _Merger:
    def __init__(self, module: ir.Module, chosen: Set[str]) -> None:
        self.module = module
        self.chosen = chosen
        self.code: list[ir.Instruction] = []
        self.calls: deque[_Call] = deque()

    def run(self, entry: ir.Function) -> ir.Function:
        out = dataclasses.replace(
            entry,
            instructions=self.code,
            registers=dict(entry.registers),
            shared=dict(entry.shared),
            local=dict(entry.local),
            call_params=dict(entry.call_params),
            labels={},
            branch_tables={},
        )
        self.body(entry, {}, None)
        copies = 0
        while self.calls:
            call = self.calls.popleft()
            copies += 1
            callee = self.module.functions[call.callee]
            self.code[call.pc].target = len(self.code)
            formal = [p.name for p in (*callee.returns, *callee.params)]
            names = {name: f"{name}{COPY_MARK}{copies}" for name in _own_names(callee)}
            names |= dict(zip(formal, call.actual, strict=True))
            out.registers |= {names[n]: kind for n, kind in callee.registers.items()}
            out.local |= {names[n]: dataclasses.replace(v, name=names[n]) for n, v in callee.local.items()}
            out.call_params |= {
                names[n]: dataclasses.replace(p, name=names[n]) for n, p in callee.call_params.items()
            }
            for name, variable in callee.shared.items():
                out.shared.setdefault(name, variable)
            self.body(callee, names, call)
            if len(self.code) > _MOST_INSTRUCTIONS:
                raise NotSupportedError(
                    f"Kernel {entry.name} is too large for the virtual GPU: functions with "
                    "__syncthreads() are copied to every call, which makes more than "
                    f"{_MOST_INSTRUCTIONS:,} instructions. Call them from fewer places."
                )
        return out

    def body(self, function: ir.Function, names: dict[str, str], call: _Call | None) -> None:
        """Append a copy of a function's instructions; without a call, the entry's own."""
        base = len(self.code)
        deep = 0 if call is None else self.code[call.pc].deep + 1
        code = list(function.instructions)
        if not code or code[-1].guard or code[-1].root not in _LEAVES:  # nothing may run into the next body
            line = code[-1].line if code else 0
            code.append(ir.Instruction(len(code), "ret", ("ret",), (), None, False, line, 0, "ret"))
        for i in code:
            copy = dataclasses.replace(
                i,
                pc=base + i.pc,
                operands=tuple(_renamed(operand, names) for operand in i.operands),
                guard=names.get(i.guard, i.guard) if i.guard else None,
                target=base + i.target if i.target >= 0 else -1,
                targets=tuple(base + target for target in i.targets),
                home=(function.name, i.pc),
                deep=deep,
            )
            self.code.append(copy)
            if i.root == "ret" and call is not None:
                copy.parts = ("bra",)
                copy.target = call.pc + 1
            elif i.root == "call":
                callee, arguments, results = callgraph.parts_of(copy)
                if callee in self.chosen:
                    copy.parts = ("bra",)
                    copy.operands = ()
                    self.calls.append(_Call(copy.pc, callee, (*results, *arguments)))


def _own_names(function: ir.Function) -> list[str]:
    return [*function.registers, *function.local, *function.call_params]


def _renamed(operand: ir.Operand | None, names: dict[str, str]) -> ir.Operand | None:
    if isinstance(operand, ir.Register | ir.Symbol):
        name = names.get(operand.name)
        return operand if name is None else dataclasses.replace(operand, name=name)
    if isinstance(operand, ir.Address):
        base = _renamed(operand.base, names)
        assert isinstance(base, ir.Register | ir.Symbol | ir.Immediate)
        return ir.Address(base, operand.offset)
    if isinstance(operand, ir.Vector):
        return ir.Vector(tuple(_renamed(item, names) for item in operand.items))
    if isinstance(operand, ir.Pair):
        return ir.Pair(_renamed(operand.first, names), _renamed(operand.second, names))
    return operand

"""Loops of one block: registers stay LLVM values from turn to turn, counters are added up at the end.

Between blocks registers lie in the warp's frame, where only active lanes may write. Nobody looks there while a
loop of one block goes round: the same lanes stay active until some leave, the budget is spent or others of the
warp wait in front, and what the other lanes compute is thrown away.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir.emit import Emitter, llvm_of, vector
from virtualgpu.engine.ir.text import active
from virtualgpu.engine.lower.plan import FunctionPlan


def closes(plan: FunctionPlan, block: cfg.Block, roots: Container[str]) -> bool:
    """Whether a block is a loop by itself, of instructions with certain roots."""
    code = plan.function.instructions[block.first : block.end]
    last = code[-1] if code else None
    return (
        last is not None
        and last.root == "bra"
        and last.guard is not None
        and plan.flow.number_of[last.target] == block.number
        and block.end in plan.flow.number_of
        and all(i.root in roots and not _reads_clock(i) for i in code[:-1])
    )


def _reads_clock(i: ir.Instruction) -> bool:
    return any(isinstance(o, ir.Special) and ("clock" in o.name or "timer" in o.name) for o in i.operands)


@dataclass(slots=True)
class Loop:
    """A loop of one block while it is compiled.

    `turns` counts those that are over, `left` what the warp has of its budget; `at_start` are the values of
    registers as a turn begins, by their names.
    """

    plan: FunctionPlan
    before: str
    label: str
    place: int
    turns: str
    left: str
    budget: str
    at_start: dict[str, str] = field(default_factory=dict)

    @classmethod
    def enter(cls, e: Emitter, plan: FunctionPlan, before: str) -> Loop:
        """Begin the loop's text after the block `before`; `close` fills in what is not known yet."""
        label = e.name("loop")
        budget = e.context_load("budget")
        place = len(e.lines)
        e.lines.append("")
        return cls(plan, before, label, place, f"%{label}.turns", f"%{label}.left", budget)

    def read(self, name: str) -> str:
        """A register's value at the start of a turn."""
        return self.at_start.setdefault(name, f"%{self.label}.r{len(self.at_start)}")

    def at_end(self, e: Emitter, values: dict[str, str]) -> dict[str, str]:
        """What comes round for each register, of `values` at the end of a turn: predicates as bits."""
        return {
            name: e.mask_bits(values[name]) if self._kind(name) == "i1" else values[name]
            for name, value in self.at_start.items()
            if values[name] != value
        }

    def close(self, e: Emitter, last: str, turns: str, left: str, coming: dict[str, str]) -> None:
        """The loop goes round from the block `last`; registers that change get what `at_end` said."""
        phis = [
            f"  {self.turns} = phi i64 [0, %{self.before}], [{turns}, %{last}]",
            f"  {self.left} = phi i32 [{self.budget}, %{self.before}], [{left}, %{last}]",
        ]
        loads = []
        masks = []
        for name, value in self.at_start.items():
            kind = self._kind(name)
            offset = self.plan.slots[name]
            loads.append(f"  {value}.slot = getelementptr i8, ptr %frame, i64 {offset}")
            what, row = ("i32", f"{value}.bits") if kind == "i1" else (vector(kind), value)
            if kind == "i1":
                masks.append(active(row, value).rstrip())
            first = f"{value}.first" if name in coming else row
            loads.append(f"  {first} = load {what}, ptr {value}.slot, align {4 if kind == 'i1' else 64}")
            if name in coming:
                phis.append(f"  {row} = phi {what} [{first}, %{self.before}], [{coming[name]}, %{last}]")
        lines = [*loads, f"  br label %{self.label}", f"{self.label}:", *phis, *masks]
        e.lines[self.place] = "\n".join(lines)

    def _kind(self, name: str) -> str:
        return llvm_of(self.plan.function.registers[name])

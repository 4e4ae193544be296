"""Loops of one basic block whose registers stay in LLVM values between iterations.

Between blocks registers are in the warp's frame, where only active lanes may write. No other code reads the
frame during a loop of one block: the same lanes stay active until some leave, the budget is exhausted or
other lanes of the warp wait at an earlier block. Results of inactive lanes are discarded.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir.emit import Emitter, llvm_of, vector
from virtualgpu.engine.ir.text import make_lane_mask
from virtualgpu.engine.lower.plan import FunctionPlan


def is_single_block_loop(plan: FunctionPlan, block: cfg.Block, roots: Container[str]) -> bool:
    """Return whether a block jumps back to itself and has only the given instructions before the jump."""
    instructions = plan.function.instructions[block.first : block.end]
    last_instruction = instructions[-1] if instructions else None
    return (
        last_instruction is not None
        and last_instruction.root == "bra"
        and last_instruction.guard is not None
        and plan.control_flow.number_of[last_instruction.target] == block.number
        and block.end in plan.control_flow.number_of
        and all(
            instruction.root in roots and not _reads_clock(instruction) for instruction in instructions[:-1]
        )
    )


def _reads_clock(instruction: ir.Instruction) -> bool:
    return any(
        isinstance(operand, ir.Special) and ("clock" in operand.name or "timer" in operand.name)
        for operand in instruction.operands
    )


@dataclass(slots=True)
class Loop:
    """The state of the compiler for a loop that consists of one basic block.

    The value `iterations` counts completed iterations, and `budget_left` is what remains of the warp's
    budget. `start_values` contains the values of registers at the start of an iteration, by name.
    """

    plan: FunctionPlan
    label_before: str
    label: str
    line_index: int
    iterations: str
    budget_left: str
    initial_budget: str
    start_values: dict[str, str] = field(default_factory=dict)

    @classmethod
    def enter(cls, emitter: Emitter, plan: FunctionPlan, label_before: str) -> Loop:
        """Emit the start of a loop after the block `label_before`. The method `close` later inserts the first
        lines of the loop.
        """
        label = emitter.name("loop")
        budget = emitter.context_load("budget")
        line_index = len(emitter.lines)
        emitter.lines.append("")
        return cls(plan, label_before, label, line_index, f"%{label}.turns", f"%{label}.left", budget)

    def read_register(self, name: str) -> str:
        """Return the value that a register has at the start of a loop iteration."""
        return self.start_values.setdefault(name, f"%{self.label}.r{len(self.start_values)}")

    def find_carried_values(self, emitter: Emitter, values: dict[str, str]) -> dict[str, str]:
        """Return the registers that change in a loop iteration, with their values for the next iteration.

        A predicate is returned as a mask with one bit per lane.
        """
        return {
            register_name: emitter.mask_bits(values[register_name])
            if self._get_llvm_type(register_name) == "i1"
            else values[register_name]
            for register_name, start_value in self.start_values.items()
            if values[register_name] != start_value
        }

    def close(
        self,
        emitter: Emitter,
        last_label: str,
        iterations: str,
        new_budget: str,
        carried_values: dict[str, str],
    ) -> None:
        """Insert the first lines of the loop, including the phi instructions for changed registers.

        The next iteration follows the block `last_label` and uses the values that `find_carried_values` returned.
        """
        phi_lines = [
            f"  {self.iterations} = phi i64 [0, %{self.label_before}], [{iterations}, %{last_label}]",
            f"  {self.budget_left} = phi i32 [{self.initial_budget}, %{self.label_before}], [{new_budget}, %{last_label}]",
        ]
        load_lines = []
        mask_lines = []
        for register_name, start_value in self.start_values.items():
            lane_type = self._get_llvm_type(register_name)
            slot_offset = self.plan.register_slots[register_name]
            load_lines.append(f"  {start_value}.slot = getelementptr i8, ptr %frame, i64 {slot_offset}")
            row_type = vector(lane_type)
            stored_value = start_value
            if lane_type == "i1":
                row_type = "i32"
                stored_value = f"{start_value}.bits"
                mask_lines.append(make_lane_mask(stored_value, start_value).rstrip())
            initial_value = f"{start_value}.first" if register_name in carried_values else stored_value
            load_lines.append(
                f"  {initial_value} = load {row_type}, ptr {start_value}.slot, align {4 if lane_type == 'i1' else 64}"
            )
            if register_name in carried_values:
                phi_lines.append(
                    f"  {stored_value} = phi {row_type} [{initial_value}, %{self.label_before}], [{carried_values[register_name]}, %{last_label}]"
                )
        first_lines = [*load_lines, f"  br label %{self.label}", f"{self.label}:", *phi_lines, *mask_lines]
        emitter.lines[self.line_index] = "\n".join(first_lines)

    def _get_llvm_type(self, name: str) -> str:
        return llvm_of(self.plan.function.registers[name])

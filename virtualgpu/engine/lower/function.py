"""Compiler of one PTX function to one LLVM function that runs a warp in lockstep.

Lanes keep a program counter each (a block number). The block with the lowest number among waiting
lanes runs next, so lanes that diverged meet again at the post-dominator. Register values live in
the warp's frame between blocks and in LLVM values inside a block.
"""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.lower import calls, dispatcher, forms, loops
from virtualgpu.engine.lower.ops import (
    arith,
    async_ops,
    bitops,
    memory_ops,
    packed,
    textures,
    warp_ops,
)
from virtualgpu.engine.lower.ops.floating import convert, nan_trap
from virtualgpu.engine.lower.ops.matrices import tensor
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError

_EMITTER_MODULES = (
    memory_ops,
    packed,
    arith,
    bitops,
    convert,
    warp_ops,
    calls,
    async_ops,
    tensor,
    textures,
)
_BLOCK_END_ROOTS = {"bra", "brx", "ret", "exit", "trap"}
_IGNORED_ROOTS = {
    "membar",
    "fence",
    "prefetch",
    "prefetchu",
    "nanosleep",
    "pmevent",
    "discard",
    "applypriority",
    "griddepcontrol",
    "bar",
    "barrier",
}
# Instructions allowed in a loop kept in LLVM values: they neither read the frame nor change the active lanes.
_LOOP_ROOTS = {*arith.HANDLERS, *bitops.HANDLERS, *convert.HANDLERS, "ld", "ldu", "st", "atom", "red"}
# Functions of more instructions keep registers in the frame in loops too, because they may be translated
# quickly.
_MAX_LOOP_INSTRUCTIONS = 500

# LLVM takes minutes, and gigabytes, for more.
_MAX_LINES = 250_000


def list_supported_roots() -> dict[str, frozenset[str]]:
    """Return the mnemonics of all supported instructions, grouped by the module that emits their code."""
    roots = {
        module.__name__.rpartition(".")[2]: frozenset(module.ROOTS) - textures.UNSUPPORTED_ROOTS
        for module in _EMITTER_MODULES
    }
    return {**roots, "control flow": frozenset(_BLOCK_END_ROOTS), "nothing to do": frozenset(_IGNORED_ROOTS)}


class FunctionCompiler(WarpCode):
    """A compiler that generates the LLVM text of one PTX function."""

    # -- control flow --------------------------------------------------------------------------------

    def emit_jump(self, target: int) -> None:
        """Emit a jump of all active lanes to a basic block.

        The jump is direct unless other lanes wait at this block or an earlier one.
        """
        emitter = self.emitter
        dispatcher.emit_budget_spending(self, target)
        is_before_wait = emitter.op(f"icmp ult i32 {target}, {self.wait}")
        wait_label = emitter.name("wait")
        label = self.current_label
        emitter.raw(f"br i1 {is_before_wait}, label %bb{target}, label %{wait_label}")
        self.incoming_edges[target].append((self.mask, self.wait, label))
        self.begin_block(wait_label)
        self.store_pcs(self.active_lanes, constant("i32", target))
        emitter.raw("br label %dispatch")

    def emit_branch(self, instruction: ir.Instruction, taken_block: int, next_block: int) -> None:
        """Emit a conditional branch.

        If all lanes take the same branch, the jump is direct; otherwise, the dispatcher selects which lanes
        run first.
        """
        no_lane_stays, no_lane_goes = self.emit_votes(instruction)
        self.emit_branch_count(instruction, no_lane_stays, no_lane_goes)
        self.emit_voted_jumps(no_lane_stays, no_lane_goes, taken_block, next_block)

    def emit_votes(self, instruction: ir.Instruction) -> tuple[str, str]:
        """Emit tests of whether all active lanes take a conditional branch, and whether none of them does."""
        emitter = self.emitter
        active_lanes = self.executed_mask(instruction)
        staying_lanes = emitter.op(f"and i32 {self.mask}, {emitter.op(f'xor i32 {active_lanes}, -1')}")
        return emitter.op(f"icmp eq i32 {staying_lanes}, 0"), emitter.op(f"icmp eq i32 {active_lanes}, 0")

    def emit_branch_count(
        self, instruction: ir.Instruction, no_lane_stays: str, no_lane_goes: str, execution_count: str = "1"
    ) -> None:
        """Emit code that counts `execution_count` executions of a branch, of which the last may be divergent."""
        if (
            not self.options.with_counters or instruction.opcode.split(".")[0] != instruction.root
        ):  # a call or return of a copied body
            return
        emitter = self.emitter
        branch_index = len(self.tables.branches)
        self.tables.branches.append((self.index, instruction))
        counters_pointer = emitter.op(f"inttoptr i64 {emitter.context_load('branch_counters')} to ptr")
        count_pointer = emitter.op(f"getelementptr i64, ptr {counters_pointer}, i64 {2 * branch_index}")
        emitter.add_to_memory(count_pointer, execution_count)
        is_uniform = emitter.op(f"or i1 {no_lane_stays}, {no_lane_goes}")
        divergent_count = emitter.op(f"zext i1 {emitter.op(f'xor i1 {is_uniform}, true')} to i64")
        emitter.add_to_memory(emitter.op(f"getelementptr i64, ptr {count_pointer}, i64 1"), divergent_count)

    def emit_voted_jumps(
        self, no_lane_stays: str, no_lane_goes: str, taken_block: int, next_block: int
    ) -> None:
        """Emit the jumps of a conditional branch that follow the tests emitted by `emit_votes`."""
        emitter = self.emitter
        guard = self.guard
        assert guard is not None
        self.guard = None
        all_go_label, check_label, all_stay_label, split_label = (
            emitter.name(label_stem) for label_stem in ("go", "check", "stay", "split")
        )
        emitter.raw(f"br i1 {no_lane_stays}, label %{all_go_label}, label %{check_label}")
        self.begin_block(all_go_label)
        self.emit_jump(taken_block)
        self.begin_block(check_label)
        emitter.raw(f"br i1 {no_lane_goes}, label %{all_stay_label}, label %{split_label}")
        self.begin_block(all_stay_label)
        self.emit_jump(next_block)
        self.begin_block(split_label)
        target_blocks = emitter.select(
            "i32", guard, constant("i32", taken_block), constant("i32", next_block)
        )
        self.store_pcs(self.active_lanes, target_blocks)
        emitter.raw("br label %dispatch")

    def emit_loop_end(self, instruction: ir.Instruction, loop: loops.Loop) -> None:
        """Emit the end of a loop whose registers are kept in LLVM values.

        The code continues with another iteration, or stores the registers and counters.
        """
        emitter = self.emitter
        loop_block = self.block.number
        no_lane_stays, no_lane_goes = self.emit_votes(instruction)
        iteration_count = emitter.op(f"add i64 {loop.iterations}, 1")
        budget_left = emitter.op(
            f"sub i32 {loop.budget_left}, {dispatcher.find_jump_cost(self, loop_block)[0]}"
        )
        has_budget = emitter.op(f"icmp sgt i32 {budget_left}, 0")
        is_before_wait = emitter.op(f"icmp ult i32 {loop_block}, {self.wait}")
        is_repeated = emitter.op(
            f"and i1 {no_lane_stays}, {emitter.op(f'and i1 {has_budget}, {is_before_wait}')}"
        )
        exit_label = emitter.name("out")
        carried_values = loop.find_carried_values(emitter, self.cached_values)
        emitter.raw(f"br i1 {is_repeated}, label %{loop.label}, label %{exit_label}")
        loop.close(emitter, self.current_label, iteration_count, budget_left, carried_values)
        self.loop = None
        self.begin_block(exit_label)
        emitter.context_store("budget", loop.budget_left)
        self.emit_block_count(iteration_count)
        self.emit_branch_count(instruction, no_lane_stays, no_lane_goes, iteration_count)
        self.store_changed_registers()
        self.emit_voted_jumps(no_lane_stays, no_lane_goes, loop_block, self.find_next_block())

    def find_next_block(self) -> int:
        return self.control_flow.number_of.get(self.block.end, -1)

    def emit_pc_store(self, target_pcs: str, status: int | None = None) -> None:
        """Emit code that stores new program counters, such as EXITED, for the active lanes.

        Lanes whose guard predicate is false continue to run. If all lanes of the warp leave, the function
        returns `status`, if there is one.
        """
        emitter = self.emitter
        new_pcs = target_pcs
        if self.guard is None and status is not None:
            full_warp_label = emitter.name("whole")
            partial_warp_label = emitter.name("rest")
            is_full = emitter.op(f"icmp eq i32 {self.mask}, -1")
            emitter.raw(f"br i1 {is_full}, label %{full_warp_label}, label %{partial_warp_label}")
            self.begin_block(full_warp_label)
            emitter.raw(f"store <32 x i32> {target_pcs}, ptr %frame, align 64")
            emitter.raw(f"ret i32 {status}")
            self.begin_block(partial_warp_label)
        if self.guard is not None:
            new_pcs = emitter.select(
                "i32", self.guard, target_pcs, constant("i32", max(self.find_next_block(), 0))
            )
        self.store_pcs(self.active_lanes, new_pcs)
        emitter.raw("br label %dispatch")

    def emit_block_end(self, instruction: ir.Instruction | None) -> None:
        mnemonic = instruction.root if instruction else ""
        if instruction is not None and mnemonic == "bra":
            target_block = self.control_flow.number_of[instruction.target]
            if self.guard is not None and self.find_next_block() >= 0:
                self.emit_branch(instruction, target_block, self.find_next_block())
            else:
                self.emit_jump(target_block)
        elif instruction is not None and mnemonic == "brx":
            branch_index = self.get(instruction.operands[0], "u32")
            target_blocks = constant("i32", self.control_flow.number_of[instruction.targets[0]])
            for target_index, instruction_index in enumerate(instruction.targets[1:], 1):
                matching_lanes = self.emitter.compare(
                    "eq", "i32", branch_index, constant("i32", target_index)
                )
                target_blocks = self.emitter.select(
                    "i32",
                    matching_lanes,
                    constant("i32", self.control_flow.number_of[instruction_index]),
                    target_blocks,
                )
            self.emit_pc_store(target_blocks)
        elif mnemonic in ("ret", "exit"):
            if mnemonic == "exit" and instruction is not None:
                exited_lanes = self.emitter.op(
                    f"or i32 {self.emitter.context_load('exited')}, {self.executed_mask(instruction)}"
                )
                self.emitter.context_store("exited", exited_lanes)
            self.emit_pc_store(constant("i32", layout.EXITED), layout.STATUS_DONE)
        elif instruction is not None and mnemonic == "trap":
            self.emit_trap(instruction)
        elif instruction is not None and cfg.is_block_barrier(instruction):
            self.emit_barrier(instruction)
        elif self.find_next_block() >= 0:
            self.emit_jump(self.find_next_block())
        else:
            self.emit_pc_store(constant("i32", layout.EXITED), layout.STATUS_DONE)

    def emit_trap(self, instruction: ir.Instruction) -> None:
        if self.guard is None:
            self.emit_fault(layout.TRAPPED, instruction.pc)
            return
        self.emit_fault_if(self.executed_mask(instruction), layout.TRAPPED, instruction.pc)
        self.emit_jump(self.find_next_block())

    def emit_barrier(self, instruction: ir.Instruction) -> None:
        """Emit code for a ``bar`` instruction, at which the lanes store the barrier's number and wait.

        The context block stores thread counts and predicates.
        """
        forms.check_form(instruction)
        emitter = self.emitter
        if not self.function.is_entry:
            self.emit_fault(layout.NESTED_BARRIER, instruction.pc)
            return
        if "cluster" in instruction.parts and "arrive" in instruction.parts:
            # Of a cluster of one block: the block's threads wait for each other at the ``wait`` that follows.
            self.guard = None
            self.emit_jump(self.find_next_block())
            return
        is_reduction = "red" in instruction.parts
        operands = list(instruction.operands[1:] if is_reduction else instruction.operands)
        predicate = operands.pop() if is_reduction else None
        barrier_index = (
            self.emit_first_lane_value(operands[0]) if operands and operands[0] is not None else "0"
        )
        barrier_index = emitter.op(f"and i32 {barrier_index}, {layout.BARRIER_COUNT - 1}")
        if len(operands) > 1 and operands[1] is not None:
            array_pointer = emitter.context_pointer("barrier_counts")
            word_pointer = emitter.op(f"getelementptr i32, ptr {array_pointer}, i32 {barrier_index}")
            emitter.raw(f"store i32 {self.emit_first_lane_value(operands[1])}, ptr {word_pointer}")
        lanes = self.executed_mask(instruction)
        if "arrive" in instruction.parts:
            if self.options.is_observed:
                barrier_index_64 = emitter.op(f"zext i32 {barrier_index} to i64")
                self.report_to_observer(layout.BARRIER_ARRIVAL, emitter.splat("i64", barrier_index_64), lanes)
            array_pointer = emitter.context_pointer("barrier_arrived")
            word_pointer = emitter.op(f"getelementptr i32, ptr {array_pointer}, i32 {barrier_index}")
            old_word = emitter.op(f"load i32, ptr {word_pointer}")
            lane_count = emitter.op(f"call i32 @llvm.ctpop.i32(i32 {lanes})")
            emitter.raw(f"store i32 {emitter.op(f'add i32 {old_word}, {lane_count}')}, ptr {word_pointer}")
            self.guard = None
            self.emit_jump(self.find_next_block())
            return
        if predicate is not None:
            array_pointer = emitter.op(f"inttoptr i64 {emitter.context_load('predicates')} to ptr")
            word_pointer = emitter.op(
                f"getelementptr i32, ptr {array_pointer}, i32 {emitter.context_load('warp')}"
            )
            old_word = emitter.op(f"load i32, ptr {word_pointer}")
            other_bits = emitter.op(f"and i32 {old_word}, {emitter.op(f'xor i32 {lanes}, -1')}")
            new_bits = emitter.op(f"and i32 {emitter.mask_bits(self.get(predicate, 'pred'))}, {lanes}")
            emitter.raw(f"store i32 {emitter.op(f'or i32 {other_bits}, {new_bits}')}, ptr {word_pointer}")
        if self.options.is_observed:
            self.report_to_observer(layout.AT_BLOCK_BARRIER, constant("i64", instruction.pc), lanes)
        wait_code = emitter.op(f"shl i32 {barrier_index}, {layout.BARRIER_SHIFT}")
        wait_code_offset = (
            layout.BARRIER_PC + (layout.REDUCTION_BIT if is_reduction else 0) + max(self.find_next_block(), 0)
        )
        wait_code = emitter.op(f"add i32 {wait_code}, {wait_code_offset}")
        self.emit_pc_store(emitter.splat("i32", wait_code), layout.STATUS_WAITING)

    # -- blocks --------------------------------------------------------------------------------------

    def emit_warp_meeting(self, instruction: ir.Instruction) -> None:
        """Emit code that makes lanes wait for all running lanes in an instruction's member mask."""
        mask_operand = warp_ops.member_mask_operand(instruction)
        if mask_operand is None:
            return
        emitter = self.emitter
        first_label = self.current_label
        met_label = emitter.name("met")
        self.add_support_function(*warp_ops.MEETING_FUNCTION)
        self.has_meetings = True
        incoming_phi = ""
        if self.known_value(mask_operand) in (0xFFFFFFFF, -1):  # no lane can be missing from a whole warp
            partial_warp_label = emitter.name("ask")
            emitter.raw(
                f"br i1 {emitter.op(f'icmp eq i32 {self.mask}, -1')}, label %{met_label}, label %{partial_warp_label}"
            )
            self.begin_block(partial_warp_label)
            incoming_phi = f", [{self.mask}, %{first_label}]"
        is_strict = int(instruction.root not in ("bar", "barrier"))
        location_arguments = f"i32 {self.index}, i32 {instruction.pc}, i32 {layout.PARKED_PC + self.block.number}, i32 {is_strict}"
        member_masks = self.get(mask_operand, "b32")
        meeting_lanes = emitter.op(
            f"call i32 @meet(ptr %ctx, ptr %frame, <32 x i32> {member_masks}, i32 {self.mask}, {location_arguments})"
        )
        emitter.raw(
            f"br i1 {emitter.op(f'icmp eq i32 {meeting_lanes}, 0')}, label %unmet, label %{met_label}"
        )
        incoming_phi = f"[{meeting_lanes}, %{self.current_label}]{incoming_phi}"
        self.begin_block(met_label)
        self.mask = emitter.op(f"phi i32 {incoming_phi}")
        emitter.context_store("forced", "0")
        self.cached_values.clear()

    def emit_block_count(self, execution_count: str = "1") -> None:
        """Emit code that counts `execution_count` executions of the basic block, by default one."""
        emitter = self.emitter
        block_index = len(self.tables.blocks)
        instruction_count = str(self.block.end - self.block.first)
        emitter.add_to_memory(
            emitter.context_pointer("clock"),
            instruction_count
            if execution_count == "1"
            else emitter.op(f"mul i64 {execution_count}, {instruction_count}"),
        )
        self.tables.blocks.append((self.index, self.block))
        if self.options.with_counters:
            counters_pointer = emitter.op(f"inttoptr i64 {emitter.context_load('block_counters')} to ptr")
            count_pointer = emitter.op(f"getelementptr i64, ptr {counters_pointer}, i64 {2 * block_index}")
            emitter.add_to_memory(count_pointer, execution_count)
            lanes = emitter.op(f"zext i32 {emitter.op(f'call i32 @llvm.ctpop.i32(i32 {self.mask})')} to i64")
            lanes = lanes if execution_count == "1" else emitter.op(f"mul i64 {execution_count}, {lanes}")
            emitter.add_to_memory(emitter.op(f"getelementptr i64, ptr {count_pointer}, i64 1"), lanes)

    def emit_instruction(self, instruction: ir.Instruction) -> None:
        forms.check_form(instruction)
        if instruction.root in _IGNORED_ROOTS:
            if self.options.is_observed:
                self.observe_synchronisation(instruction)
            return
        nan_input_lanes = (
            nan_trap.emit_input_test(self, instruction) if nan_trap.is_watched(self, instruction) else ""
        )
        for module in _EMITTER_MODULES:
            if instruction.root in module.ROOTS and module.emit(self, instruction):
                break
        else:
            raise NotSupportedError(
                f"The virtual GPU does not support {instruction.opcode} (line {instruction.line}). Run this kernel on a real "
                "GPU, or write it without this instruction."
            )
        if nan_input_lanes:
            nan_trap.emit_result_check(self, instruction, nan_input_lanes)
        if self.options.is_traced:
            self.trace_value(instruction)

    def compile_block(self, block: cfg.Block) -> None:
        emitter = self.emitter
        self.block, self.cached_values, self.changed_registers = block, {}, set()
        self.carry = constant("i1", 0)
        self.guard = None
        self.begin_block(f"bb{block.number}")
        emitter.lines.append(f"@phi {block.number}")
        self.mask = f"%m{block.number}"
        self.wait = f"%w{block.number}"
        instructions = self.function.instructions[block.first : block.end]
        if instructions and cfg.is_warp_synchronization(instructions[0]):
            self.emit_warp_meeting(instructions[0])
        last_instruction = instructions[-1] if instructions else None
        may_keep_loop = not (self.options.is_observed or self.options.is_traced)
        may_keep_loop = may_keep_loop and len(self.function.instructions) <= _MAX_LOOP_INSTRUCTIONS
        if may_keep_loop and loops.is_single_block_loop(self.plan, block, _LOOP_ROOTS):
            self.loop = loops.Loop.enter(emitter, self.plan, self.current_label)
            self.current_label = self.loop.label
        else:
            self.emit_block_count()
        has_jump = last_instruction is not None and (
            last_instruction.root in _BLOCK_END_ROOTS or cfg.is_block_barrier(last_instruction)
        )
        for instruction in instructions:
            self.guard = None
            if instruction.guard is not None:
                guard = self.read_register(instruction.guard)
                self.guard = (
                    emitter.binary("xor", "i1", guard, constant("i1", 1))
                    if instruction.guard_negated
                    else guard
                )
            if self.options.is_traced:
                self.trace_step(instruction)
            if instruction is last_instruction and has_jump:
                break
            self.emit_instruction(instruction)
        if not has_jump:
            self.guard = None
        if self.loop is not None and last_instruction is not None:
            self.emit_loop_end(last_instruction, self.loop)
            return
        self.store_changed_registers()
        self.emit_block_end(last_instruction if has_jump else None)

    def compile(self) -> str:
        """Compile the function, and return its LLVM text."""
        for block in self.control_flow.blocks:
            self.compile_block(block)
            if len(self.emitter.lines) > _MAX_LINES:
                raise NotSupportedError(
                    f"Kernel {self.function.name} has {len(self.function.instructions):,} instructions, "
                    "which are too many for the virtual GPU. Unroll its loops less."
                )
        body_lines = self.emitter.lines
        self.emitter.lines = []
        dispatcher.emit_prologue(self)
        head_lines = [*self.emitter.lines[:1], *self.allocas, *self.emitter.lines[1:]]
        lines = [
            *head_lines,
            *(self.write_phis(line) if line.startswith("@phi") else line for line in body_lines),
            "}",
        ]
        signature_text = (
            f"define internal i32 @{self.plan.symbol}(ptr noalias %ctx, ptr noalias %frame, "
            "i32 %lanes, i64 %local_at) {"
        )
        return "\n".join([signature_text, *lines])

    def write_phis(self, line: str) -> str:
        block_number = int(line.split()[1])
        mask_phi = ", ".join(f"[{mask}, %{label}]" for mask, _, label in self.incoming_edges[block_number])
        wait_phi = ", ".join(
            f"[{wait_pc}, %{label}]" for _, wait_pc, label in self.incoming_edges[block_number]
        )
        mask_phi = f"[%go.mask, %switch]{', ' if mask_phi else ''}{mask_phi}"
        wait_phi = f"[%go.wait, %switch]{', ' if wait_phi else ''}{wait_phi}"
        return f"  %m{block_number} = phi i32 {mask_phi}\n  %w{block_number} = phi i32 {wait_phi}"

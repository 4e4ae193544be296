"""Estimate from PTX of how fast a kernel's machine code runs on a warp and an SM.

It computes for every basic block of PTX the load on the pipes of an SM, and the time of one warp alone,
since an instruction waits for its operands. A block that is a loop is simulated until its iterations take
the same time, so that independent loads overlap and dependent chains do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.flow.cfg import Block
from virtualgpu.engine.lower.codegen import GeneratedKernel
from virtualgpu.engine.observe import results
from virtualgpu.model.cost.instructions import (
    ADDRESS_SUM_COST,
    INVARIANT_DIVISION_COST,
    ISSUE_PER_CLK,
    NO_COST,
    PIPES,
    PRODUCT_STEPS,
    InstructionCost,
    instruction_cost,
    is_copy,
)
from virtualgpu.model.cost.pace import LATENCIES, CopyWait, Pace

# Clocks that a warp waits for shared memory, at a barrier, after a branch, for an atomic's result, ...
SHARED_LATENCY_CLK = 22.0
BARRIER_LATENCY_CLK = 11.0
BRANCH_CLK = 12.0  # back to the start of a loop
FORWARD_BRANCH_CLK = 6.0
PREDICATE_CLK = 16.0  # additional, from a comparison to the branch that depends on it
ATOMIC_LATENCY_CLK = 500.0
CONST_LATENCY_CLK = 30.0
PARAMETER_LATENCY_CLK = 45.0
STORE_LATENCY_CLK = 120.0
SIMULATED_ITERATIONS = 4
UNROLL_FACTOR = 4
MAX_UNROLLED_SIZE = 60
LOADS_IN_FLIGHT = 12
# Number of instructions before which ptxas moves another one, because it uses few registers.
REORDER_WINDOW = 4
# ptxas puts loads of factors directly before the product that needs them. If the sums need so many registers,
# it has enough for factors from shared memory, too.
MANY_SUM_REGISTERS = 48
MAX_PASSED_STORES = 4  # number of stores to shared memory before which ptxas moves a load
MAX_ACCESS_BYTES = 16  # maximum that one instruction reads per lane
MAX_ALIGNMENT_STEPS = 40
_UNUSED_RESULT_COST = InstructionCost((("lsu", 1.0),), 0.0)


def compute_pace(kernel: GeneratedKernel, clk_by_pipe: Mapping[str, float]) -> Pace:
    """Return the modelled cost of each basic block of a kernel. The argument `clk_by_pipe` is the result of
    `pipe_clk`.
    """
    functions = [plan.function for plan in kernel.plans]
    blocks = kernel.tables.blocks
    pipe_counts = np.zeros((len(blocks), len(PIPES)))
    chain_clk = np.zeros((len(blocks), len(LATENCIES)))
    global_load_pcs = []
    phases = _find_phases(functions, blocks)
    repeated_blocks = {
        function: {block_number for loop in _find_loops(blocks, function) for block_number in loop}
        for function in range(len(functions))
    }
    last_store_blocks = dict.fromkeys(range(len(functions)), 0)
    for function, block in blocks:
        if block.number > last_store_blocks[function] and _stores_globally(functions[function], block):
            last_store_blocks[function] = block.number
    row_by_pc: dict[int, int] = {}
    merged_shares: dict[int, float] = {}
    unused_atomics = [_find_unused_atomics(function) for function in functions]
    alignments = [_AlignmentSearch(function) for function in functions]
    sum_counts = [
        _count_sums(
            function, [block for block_function, block in blocks if block_function == function_number]
        )
        for function_number, function in enumerate(functions)
    ]
    for block_row, (function, block) in enumerate(blocks):
        block_code = functions[function].instructions[block.first : block.end]
        is_backward = any(successor <= block.number for successor in block.successors)
        row_by_pc |= dict.fromkeys(map(results.source_index, block_code), block_row)
        access_shares = _find_merged_loads(block_code, alignments[function])
        merged_shares |= {
            results.source_index(block_code[k]): access_share for k, access_share in access_shares.items()
        }
        block_piece = _CodePiece.from_instructions(
            block_code,
            block.number in block.successors,
            is_backward,
            block.number in repeated_blocks[function],
            unused_atomics[function],
            access_shares,
            sum_counts[function] >= MANY_SUM_REGISTERS,
        )
        waits_for_stores = block.number >= last_store_blocks[function]
        for cost, access_share in zip(block_piece.costs, block_piece.shares, strict=True):
            pipe_counts[block_row, 0] += access_share * cost.issue_slots
            for name, count in cost.pipes:
                pipe_counts[block_row, PIPES.index(name)] += access_share * count
        global_load_pcs.append(
            tuple(
                results.source_index(i)
                for i, instruction_cost in zip(block_code, block_piece.costs, strict=True)
                if i.root in ("ld", "wmma") and instruction_cost.awaited_memory == "global"
            )
        )
        waits_for_memory = any(
            instruction_cost.awaited_memory in ("global", "atomic") for instruction_cost in block_piece.costs
        )
        store_clk = STORE_LATENCY_CLK if waits_for_stores else 0.0
        for column, latency in enumerate(LATENCIES):
            chain_clk[block_row, column] = (
                _simulate_chain_clk(block_piece, latency, clk_by_pipe, store_clk)
                if waits_for_memory or not column
                else chain_clk[block_row, 0]
            )
        if block_piece.unroll_count == 1:
            scheduled_clk = _simulate_chain_clk(block_piece, 0.0, clk_by_pipe, store_clk, REORDER_WINDOW)
            chain_clk[block_row] += scheduled_clk - chain_clk[block_row, 0]
    chasing_loads = frozenset[int]().union(*map(_find_pointer_chasing_loads, functions))
    return Pace(
        pipe_counts,
        chain_clk,
        tuple(global_load_pcs),
        _find_combined_atomics(functions[0], unused_atomics[0]),
        merged_shares,
        chasing_loads,
        _find_copy_waits(functions, blocks),
        phases,
        row_by_pc,
    )


@dataclass(frozen=True, slots=True)
class _CodePiece:
    """A basic block of PTX: the costs of its instructions, and the part that remains if it is unrolled.

    ``is_loop`` marks a block that follows itself, ``is_repeated`` a block inside any loop.
    """

    code: Sequence[ir.Instruction]
    costs: list[InstructionCost]
    definitions_and_uses: list[tuple[list[str], list[str]]]
    is_loop: bool
    is_backward: bool
    is_repeated: bool
    unroll_count: int
    shares: list[float]
    has_products: bool
    has_many_sums: bool

    @classmethod
    def from_instructions(
        cls,
        instructions: Sequence[ir.Instruction],
        is_loop: bool,
        is_backward: bool,
        is_repeated: bool,
        unused_atomics: frozenset[int],
        merged_shares: Mapping[int, float],
        has_many_sums: bool,
    ) -> _CodePiece:
        definitions_and_uses = [cfg.find_definitions_and_uses(i) for i in instructions]
        written_registers = {name for defined_names, _ in definitions_and_uses for name in defined_names}
        constant_registers: set[str] = set()
        wide_registers: set[str] = set()
        costs = []
        for i, (defined_names, used_names) in zip(instructions, definitions_and_uses, strict=True):
            cost = (
                _UNUSED_RESULT_COST
                if i.pc in unused_atomics
                else _find_instruction_cost(i, is_loop, written_registers)
            )
            if (
                i.root in ("add", "sub")
                and i.type in ("s64", "u64")
                and not wide_registers.isdisjoint(used_names)
            ):
                cost = ADDRESS_SUM_COST
            if (i.root in ("mul", "mad") and "wide" in i.parts) or i.opcode in (
                "shl.b64",
                "cvt.u64.u32",
                "cvt.s64.s32",
            ):
                wide_registers.update(defined_names)
            is_plain_move = i.root in ("mov", "cvt") and not any(
                isinstance(o, ir.Special | ir.Symbol) for o in i.operands
            )
            if is_plain_move and all(name in constant_registers for name in used_names):
                constant_registers.update(defined_names)
                cost = NO_COST
            else:
                constant_registers.difference_update(defined_names)
            costs.append(cost)
        loop_control = _find_loop_control(instructions, definitions_and_uses) if is_loop else ()
        is_unrolled = (
            bool(loop_control)
            and len(instructions) <= MAX_UNROLLED_SIZE
            and all(cost.issue_slots < 8 and cost.awaited_memory != "barrier" for cost in costs)
        )
        copy_count = UNROLL_FACTOR if is_unrolled else 1
        shares = [
            1 / copy_count if k in loop_control else merged_shares.get(k, 1.0)
            for k in range(len(instructions))
        ]
        has_products = any(pipe == "tensor" for cost in costs for pipe, _ in cost.pipes)
        return cls(
            instructions,
            costs,
            definitions_and_uses,
            is_loop,
            is_backward,
            is_repeated,
            copy_count,
            shares,
            has_products,
            has_many_sums,
        )


def _find_loop_control(
    instructions: Sequence[ir.Instruction], definitions_and_uses: Sequence[tuple[list[str], list[str]]]
) -> tuple[int, ...]:
    """Return the positions of increment, comparison and branch of a counted loop, else ()."""
    last_index = len(instructions) - 1
    if last_index < 2 or instructions[last_index].root != "bra" or not instructions[last_index].guard:
        return ()
    comparisons = [
        k
        for k in range(last_index)
        if instructions[last_index].guard in definitions_and_uses[k][0] and instructions[k].root == "setp"
    ]
    if len(comparisons) != 1:
        return ()
    for name in definitions_and_uses[comparisons[0]][1]:
        update_indices = [k for k in range(last_index) if name in definitions_and_uses[k][0]]
        if (
            len(update_indices) == 1
            and instructions[update_indices[0]].root in ("add", "sub")
            and definitions_and_uses[update_indices[0]][1] == [name]
        ):
            return update_indices[0], comparisons[0], last_index
    return ()


def _find_instruction_cost(
    instruction: ir.Instruction, is_loop: bool, written_registers: set[str]
) -> InstructionCost:
    if (
        instruction.root == "mov"
        and len(instruction.operands) > 1
        and isinstance(instruction.operands[1], ir.Special)
    ):
        return instruction_cost("mov.special")
    if is_loop and instruction.root in ("div", "rem") and instruction.type in ("s32", "u32"):
        divisor = instruction.operands[-1]
        if isinstance(divisor, ir.Register) and divisor.name not in written_registers:
            return INVARIANT_DIVISION_COST
    return instruction_cost(instruction.opcode)


def _stores_globally(function: ir.Function, block: Block) -> bool:
    """Return whether a basic block stores to global memory."""
    return any(
        i.root in ("st", "red") and "global" in i.parts
        for i in function.instructions[block.first : block.end]
    )


def _simulate_chain_clk(
    piece: _CodePiece, latency: float, clk_by_pipe: Mapping[str, float], store_clk: float, window: int = 0
) -> float:
    """Return the clocks of a warp for a piece of code.

    ptxas is assumed to move an instruction before at most `window` others.

    ``latency`` is that of global memory. ptxas moves its loads as far as possible; 0 stands for any window.
    """
    wait_clk = {
        "": 0.0,
        "global": latency,
        "shared": SHARED_LATENCY_CLK,
        "barrier": BARRIER_LATENCY_CLK,
        "atomic": max(latency, ATOMIC_LATENCY_CLK),
        "const": CONST_LATENCY_CLK,
        "parameter": 0.0 if piece.is_repeated else PARAMETER_LATENCY_CLK,
    }
    busy_clk = sum(
        access_share * cost.issue_slots for cost, access_share in zip(piece.costs, piece.shares, strict=True)
    )
    for name in PIPES[1:]:
        used_clk = sum(count for cost in piece.costs for pipe, count in cost.pipes if pipe == name)
        busy_clk = max(busy_clk, 4.0 * clk_by_pipe[name] * used_clk)
    tensor_clk = ISSUE_PER_CLK * clk_by_pipe["tensor"]
    ready_clk_by_register: dict[str, float] = {}
    compared_clk: dict[str, float] = {}
    sum_registers: set[str] = set()  # of tensor cores, which the next piece usually does not need
    start_clk = 0.0
    iteration_clk = [0.0]
    # Properties of each instruction, computed once since long blocks are simulated many times.
    chain_steps = []
    for i, cost, access_share, (defined_names, used_names) in zip(
        piece.code, piece.costs, piece.shares, piece.definitions_and_uses, strict=True
    ):
        space = next((name for name in ("shared", "local") if name in i.parts), "global")
        is_load = i.root in ("ld", "ldmatrix", "wmma") and cost.awaited_memory in ("global", "shared")
        is_store = not is_load and i.root in ("st", "red", "atom")
        branch_guard = i.guard if piece.is_backward and i.root == "bra" else None
        is_comparison = i.root == "setp" or i.type == "pred"
        product_count = dict(cost.pipes).get("tensor", 0.0)
        is_in_order = piece.has_products and (
            product_count > 0.0 or (is_load and not (piece.has_many_sums and space == "shared"))
        )
        # Comparisons and counters of loops are moved further.
        is_counter = is_comparison or not set(used_names).isdisjoint(defined_names)
        latency_clk = cost.latency_clk + wait_clk[cost.awaited_memory]
        latency_clk += PRODUCT_STEPS * ISSUE_PER_CLK * clk_by_pipe["tensor"] * min(product_count, 1.0)
        is_barrier = cost.awaited_memory == "barrier"
        unit_clk = ISSUE_PER_CLK * clk_by_pipe["lsu"] * access_share if is_load and space == "shared" else 0.0
        is_ordered = is_load and "nc" not in i.parts
        chain_steps.append(
            (
                used_names,
                defined_names,
                cost.issue_slots,
                latency_clk,
                space,
                is_load,
                unit_clk,
                is_ordered,
                is_store,
                branch_guard,
                is_comparison,
                is_barrier,
                product_count > 0.0,
                is_in_order,
                window > 0 and cost.issue_slots > 0.0 and not (is_in_order or is_counter),
            )
        )
    for _ in range(SIMULATED_ITERATIONS if piece.is_loop else 1):
        issue_clk = fence_clk = end_clk = start_clk
        stored_clk = {"global": start_clk, "shared": start_clk, "local": start_clk}
        load_clk: list[float] = []
        shared_store_clk: list[float] = []
        issued_clk: list[float] = []
        unit_free_clk = start_clk  # of the part of the load/store unit that belongs to the warp's scheduler
        matrix_clk = start_clk  # ptxas puts loads of factors directly before the product that needs them
        for _ in range(piece.unroll_count):
            for (
                used_names,
                defined_names,
                issue_slots,
                latency_clk,
                space,
                is_load,
                unit_clk,
                is_ordered,
                is_store,
                branch_guard,
                is_comparison,
                is_barrier,
                is_tensor,
                is_in_order,
                is_windowed,
            ) in chain_steps:
                begin_clk = max(fence_clk, matrix_clk) if is_in_order else fence_clk
                if is_windowed and len(issued_clk) >= window and issued_clk[-window] > begin_clk:
                    begin_clk = issued_clk[-window]
                for name in used_names:
                    register_ready_clk = ready_clk_by_register.get(name, 0.0)
                    if register_ready_clk > begin_clk:
                        begin_clk = register_ready_clk
                if is_load:
                    if is_ordered:
                        begin_clk = max(begin_clk, stored_clk[space])
                    if space == "global":
                        if len(shared_store_clk) >= MAX_PASSED_STORES:
                            begin_clk = max(begin_clk, shared_store_clk[-MAX_PASSED_STORES])
                        if len(load_clk) >= LOADS_IN_FLIGHT:
                            begin_clk = max(begin_clk, load_clk[-LOADS_IN_FLIGHT])
                        load_clk.append(begin_clk + latency)
                    else:
                        begin_clk = max(begin_clk, unit_free_clk)
                        unit_free_clk = begin_clk + unit_clk
                elif is_store:
                    if space == "shared":
                        shared_store_clk.append(begin_clk)
                    stored_clk[space] = max(stored_clk[space], begin_clk)
                    if space == "global":
                        end_clk = max(end_clk, begin_clk + store_clk)
                if branch_guard in compared_clk:
                    begin_clk = max(begin_clk, compared_clk[branch_guard] + PREDICATE_CLK)
                if is_in_order:
                    matrix_clk = begin_clk + (
                        issue_slots * tensor_clk if is_tensor else max(issue_slots, unit_clk)
                    )
                if begin_clk + issue_slots > issue_clk:
                    issue_clk = begin_clk + issue_slots
                if is_windowed:
                    issued_clk.append(begin_clk + issue_slots)
                done_clk = begin_clk + latency_clk
                if is_barrier:
                    fence_clk = done_clk = issue_clk + BARRIER_LATENCY_CLK
                for name in defined_names:
                    ready_clk_by_register[name] = done_clk
                    if is_tensor:
                        sum_registers.add(name)
                    if is_comparison:
                        compared_clk[name] = done_clk
        start_clk = max(issue_clk, fence_clk, start_clk + busy_clk * piece.unroll_count)
        if piece.code and piece.code[-1].root in ("bra", "brx"):
            start_clk += BRANCH_CLK if piece.is_backward else FORWARD_BRANCH_CLK
        iteration_clk.append(start_clk)
    if piece.is_loop:
        return (iteration_clk[-1] - iteration_clk[2]) / (SIMULATED_ITERATIONS - 2) / piece.unroll_count
    return max(
        [
            start_clk,
            end_clk,
            *(
                clk_by_pipe
                for name, clk_by_pipe in ready_clk_by_register.items()
                if name not in sum_registers
            ),
        ]
    )


def _find_loops(blocks: Sequence[tuple[int, Block]], function_number: int) -> list[range]:
    """Return the numbers of the blocks of each loop of a function, the smallest loop first."""
    return sorted(
        (
            range(successor, block.number + 1)
            for number, block in blocks
            if number == function_number
            for successor in block.successors
            if successor <= block.number
        ),
        key=len,
    )


def _find_phases(functions: Sequence[ir.Function], blocks: Sequence[tuple[int, Block]]) -> tuple[int, ...]:
    """Return the phase of each basic block. Blocks without a barrier between them have the same phase."""
    row_of = {
        (function_number, block.number): block_row
        for block_row, (function_number, block) in enumerate(blocks)
    }
    parents = list(range(len(blocks)))

    def find_root(row: int) -> int:
        while parents[row] != row:
            parents[row] = parents[parents[row]]
            row = parents[row]
        return row

    for block_row, (function_number, block) in enumerate(blocks):
        if block.end > block.first and cfg.is_block_barrier(
            functions[function_number].instructions[block.end - 1]
        ):
            continue
        for successor in block.successors:
            first_root, second_root = sorted(
                (find_root(block_row), find_root(row_of[function_number, successor]))
            )
            parents[second_root] = first_root
    return tuple(map(find_root, range(len(blocks))))


def _find_copy_waits(
    functions: Sequence[ir.Function], blocks: Sequence[tuple[int, Block]]
) -> tuple[CopyWait, ...]:
    """Return the waits for asynchronous copies, with the code that runs while the copies are in flight."""
    copy_waits = []
    for current_function in dict.fromkeys(block_function for block_function, _ in blocks):
        code = functions[current_function].instructions
        row_by_block = {
            block.number: block_row
            for block_row, (block_function, block) in enumerate(blocks)
            if block_function == current_function
        }
        block_by_pc = {
            pc: block.number
            for block_function, block in blocks
            if block_function == current_function
            for pc in range(block.first, block.end)
        }
        copy_pcs = [pc for pc in block_by_pc if is_copy(code[pc].parts)]
        loops = _find_loops(blocks, current_function) if copy_pcs else []
        for pc in block_by_pc if copy_pcs else ():
            if code[pc].parts[:2] != ("cp", "async") or code[pc].parts[2] not in ("wait_group", "wait_all"):
                continue
            wait_block = block_by_pc[pc]
            loop = next(
                (
                    loop
                    for loop in loops
                    if wait_block in loop and any(block_by_pc[c] in loop for c in copy_pcs)
                ),
                range(0),
            )
            earlier_copies = [c for c in copy_pcs if c < pc and (not loop or block_by_pc[c] in loop)]
            started_copies = earlier_copies or [c for c in copy_pcs if block_by_pc[c] in loop]
            if not started_copies:
                continue
            first_between = block_by_pc[max(started_copies)] + 1
            blocks_between = (
                [*range(first_between, wait_block)]
                if earlier_copies
                else [*range(first_between, loop.stop), *range(loop.start, wait_block)]
            )
            group_count = code[pc].operands[0] if code[pc].operands else None
            copy_waits.append(
                CopyWait(
                    row_by_block[wait_block],
                    group_count.value if isinstance(group_count, ir.Immediate) else 0,
                    tuple(row_by_block[function_number] for function_number in loop),
                    tuple(row_by_block[function_number] for function_number in blocks_between),
                    tuple(results.source_index(code[c]) for c in started_copies),
                )
            )
    return tuple(copy_waits)


def _count_sums(function: ir.Function, blocks: Sequence[Block]) -> int:
    """Return the number of registers with the final sums of matrix products in the blocks of a function."""
    sum_count = 0
    for block in blocks:
        sum_registers: set[str] = set()
        for i in function.instructions[block.first : block.end]:
            if i.root == "mma" or (i.root == "wmma" and "mma" in i.parts[:2]):
                defined_names, used_names = cfg.find_definitions_and_uses(i)
                sum_registers = (sum_registers - set(used_names)) | set(defined_names)
        sum_count += len(sum_registers)
    return sum_count


def _find_unused_atomics(function: ir.Function) -> frozenset[int]:
    """Return the positions of atomics whose result is not used."""
    definitions_and_uses = [cfg.find_definitions_and_uses(i) for i in function.instructions]
    used_registers = {name for _, used_names in definitions_and_uses for name in used_names}
    return frozenset(
        i.pc
        for i, (defined_names, _) in zip(function.instructions, definitions_and_uses, strict=True)
        if i.root in ("atom", "red") and used_registers.isdisjoint(defined_names)
    )


def _find_combined_atomics(function: ir.Function, unused_atomics: frozenset[int]) -> frozenset[int]:
    """Return the positions of integer atomics that ptxas combines into one per warp.

    All lanes access one address, since the address does not depend on the thread, and the old value is not
    used.
    """
    atomics = [
        i
        for i in function.instructions
        if i.pc in unused_atomics and "global" in i.parts and i.type[0] in "us"
    ]
    if not atomics:
        return frozenset()
    thread_dependent_registers: set[str] = set()
    definitions_and_uses = [cfg.find_definitions_and_uses(i) for i in function.instructions]
    while True:
        previous_count = len(thread_dependent_registers)
        for i, (defined_names, used_names) in zip(function.instructions, definitions_and_uses, strict=True):
            is_thread_index = any(
                isinstance(o, ir.Special) and o.name.startswith(("%tid", "%lane")) for o in i.operands
            )
            is_loaded = i.root in ("ld", "atom", "shfl") and "param" not in i.parts
            if is_thread_index or is_loaded or any(name in thread_dependent_registers for name in used_names):
                thread_dependent_registers.update(defined_names)
        if len(thread_dependent_registers) == previous_count:
            break
    combined_sources = set()
    for i in atomics:
        address = next((o for o in i.operands if isinstance(o, ir.Address)), None)
        if (
            address
            and isinstance(address.base, ir.Register)
            and address.base.name not in thread_dependent_registers
        ):
            combined_sources.add(results.source_index(i))
    return frozenset(combined_sources)


def _find_pointer_chasing_loads(function: ir.Function) -> frozenset[int]:
    """Return the positions of loads from global memory whose address depends on another load."""
    definitions_and_uses = [cfg.find_definitions_and_uses(i) for i in function.instructions]
    is_load_by_pc = [
        i.root == "ld" and "param" not in i.parts and "shared" not in i.parts for i in function.instructions
    ]
    loaded_registers: set[str] = set()
    chasing_sources: set[int] = set()
    while True:
        previous_count = len(loaded_registers)
        for i, is_load, (defined_names, used_names) in zip(
            function.instructions, is_load_by_pc, definitions_and_uses, strict=True
        ):
            if is_load or not loaded_registers.isdisjoint(used_names):
                loaded_registers.update(defined_names)
            if is_load and not loaded_registers.isdisjoint(used_names):
                chasing_sources.add(results.source_index(i))
        if len(loaded_registers) == previous_count:
            return frozenset(chasing_sources)


class _AlignmentSearch:
    """The known alignment of the addresses in a function's registers, up to 16 bytes."""

    def __init__(self, function: ir.Function) -> None:
        self._definitions: dict[str, list[ir.Instruction]] = {}
        for i in function.instructions:
            for name in cfg.find_definitions_and_uses(i)[0]:
                self._definitions.setdefault(name, []).append(i)
        self._alignment_by_register: dict[str, int] = {}

    def find_alignment(self, operand: ir.Operand | None, max_steps: int = MAX_ALIGNMENT_STEPS) -> int:
        """Return the largest power of two, at most 16, that is known to divide an operand."""
        if isinstance(operand, ir.Symbol):
            return _compute_alignment(operand.offset)
        if isinstance(operand, ir.Immediate):
            return _compute_alignment(operand.value)
        if not isinstance(operand, ir.Register) or not max_steps:
            return 1
        if operand.name not in self._alignment_by_register:
            # In a loop, the other definitions determine the alignment.
            self._alignment_by_register[operand.name] = MAX_ACCESS_BYTES
            definitions = self._definitions.get(operand.name, [])
            self._alignment_by_register[operand.name] = min(
                (self._result_alignment(i, max_steps - 1) for i in definitions), default=1
            )
        return self._alignment_by_register[operand.name]

    def _result_alignment(self, instruction: ir.Instruction, max_steps: int) -> int:
        operand_alignments = [self.find_alignment(o, max_steps) for o in instruction.operands[1:]]
        if instruction.root in ("mov", "cvta", "cvt"):
            return operand_alignments[0]
        if instruction.root in ("add", "sub", "or"):
            return min(operand_alignments[:2])
        if instruction.root == "shl" and isinstance(instruction.operands[2], ir.Immediate):
            return min(operand_alignments[0] << min(instruction.operands[2].value, 4), MAX_ACCESS_BYTES)
        if instruction.root in ("mul", "mad") and "hi" not in instruction.parts:
            product_alignment = min(operand_alignments[0] * operand_alignments[1], MAX_ACCESS_BYTES)
            return (
                min(product_alignment, operand_alignments[2])
                if instruction.root == "mad"
                else product_alignment
            )
        return 1


def _compute_alignment(value: int) -> int:
    return min(value & -value, MAX_ACCESS_BYTES) if value else MAX_ACCESS_BYTES


def _find_merged_loads(
    instructions: Sequence[ir.Instruction], alignment_search: _AlignmentSearch
) -> dict[int, float]:
    """Return the loads from adjacent words of shared memory that ptxas merges into one instruction.

    The result maps their positions in a block to their share of that instruction.
    """
    load_positions: dict[tuple[ir.Immediate | str, int], int] = {}
    for k, i in enumerate(instructions):
        address = i.operands[1] if len(i.operands) > 1 else None
        if (
            i.root == "ld"
            and "shared" in i.parts
            and isinstance(address, ir.Address)
            and ir.TYPE_BYTES.get(i.type) == 4
        ):
            base_operand = address.base
            if (
                len(i.parts) <= 4
                and "v2" not in i.parts
                and "v4" not in i.parts
                and alignment_search.find_alignment(base_operand) == MAX_ACCESS_BYTES
            ):
                load_positions[
                    base_operand if isinstance(base_operand, ir.Immediate) else base_operand.name,
                    address.offset,
                ] = k
        elif i.root in ("st", "bar", "barrier", "atom"):
            load_positions = {}
    share_by_pc = {}
    for (name, offset), k in load_positions.items():
        aligned_offset = offset - offset % MAX_ACCESS_BYTES
        adjacent_offsets = [
            n
            for n in range(aligned_offset, aligned_offset + MAX_ACCESS_BYTES, 4)
            if (name, n) in load_positions
        ]
        share_by_pc[k] = 1.0 / len(adjacent_offsets) if len(adjacent_offsets) in (2, 4) else 1.0
    return {k: access_share for k, access_share in share_by_pc.items() if access_share < 1.0}

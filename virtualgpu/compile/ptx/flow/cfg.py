"""Control-flow graph of one PTX function: basic blocks, their scheduling order, and live registers.

Blocks are numbered in a weak topological order (F. Bourdoncle, 1993: strongly connected components
in topological order, each loop contiguous after its header). A scheduler that always runs the
lowest-numbered block with waiting lanes then reconverges at the immediate post-dominator, and lanes
that leave a loop wait for those that are still in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from virtualgpu.compile.ptx import ir

# Instructions that lanes of a warp reach together; each starts a block, so that lanes can wait there.
_WARP_WIDE_ROOTS = {"shfl", "vote", "match", "redux"}
# Loads that observe writes of other threads.
_ORDERED_LOADS = {"volatile", "acquire", "relaxed"}
_BLOCK_END_ROOTS = {"bra", "brx", "ret", "exit", "trap"}


def is_warp_synchronization(instruction: ir.Instruction) -> bool:
    """Return whether the lanes of a warp synchronise at an instruction such as ``__syncwarp``."""
    if instruction.root in ("bar", "barrier"):
        return "warp" in instruction.parts
    return instruction.root in _WARP_WIDE_ROOTS and "sync" in instruction.parts


def is_block_barrier(instruction: ir.Instruction) -> bool:
    """Return whether an instruction is a barrier of a thread block, such as ``__syncthreads``."""
    return instruction.root in ("bar", "barrier") and "warp" not in instruction.parts


def waits_for_all_threads(instruction: ir.Instruction) -> bool:
    """Return whether an instruction makes all threads of a block wait for each other.

    The result is False for barriers with a nonzero number or a thread count, and for instructions that do not
    wait.
    """
    if not is_block_barrier(instruction) or "arrive" in instruction.parts:
        return False
    is_reduction = "red" in instruction.parts  # ``bar.red`` has its result first and a predicate last
    operands = instruction.operands[1:-1] if is_reduction else instruction.operands
    return len(operands) <= 1 and all(
        isinstance(operand, ir.Immediate) and not operand.value for operand in operands
    )


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block of a function. The block contains the instructions from ``first`` to ``end - 1``, and
    ``successors`` has the numbers of the blocks that can follow.
    """

    number: int
    first: int
    end: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """The basic blocks of a function. The dictionary ``number_of`` maps the first instruction of each block
    to the block's number.
    """

    blocks: tuple[Block, ...]
    number_of: dict[int, int]

    def is_back_edge(self, source: int, target: int) -> bool:
        return target <= source


def build_flow(function: ir.Function) -> ControlFlow:
    """Divide a function into basic blocks and number them in scheduling order."""
    instructions = function.instructions
    instruction_count = len(instructions)
    leaders = {0}
    for index, instruction in enumerate(instructions):
        if instruction.root == "bra":
            leaders |= {instruction.target, index + 1}
        elif instruction.root == "brx":
            leaders |= {*instruction.targets, index + 1}
        elif instruction.root in _BLOCK_END_ROOTS or is_block_barrier(instruction):
            leaders.add(index + 1)
        if is_warp_synchronization(instruction):
            leaders.add(index)
    block_starts = sorted(leader for leader in leaders if leader < instruction_count)
    block_ends = dict(zip(block_starts, [*block_starts[1:], instruction_count], strict=True))
    successors = {
        start: _find_successors(instructions, start, end, instruction_count)
        for start, end in block_ends.items()
    }
    block_order = _order_blocks(block_starts, successors)
    number_by_start = {start: block_number for block_number, start in enumerate(block_order)}
    blocks = tuple(
        Block(
            block_number,
            start,
            block_ends[start],
            tuple(number_by_start[successor] for successor in successors[start]),
        )
        for block_number, start in enumerate(block_order)
    )
    return ControlFlow(blocks, number_by_start)


def _find_successors(
    instructions: Sequence[ir.Instruction], start: int, end: int, instruction_count: int
) -> tuple[int, ...]:
    if start == end:
        return ()
    last_instruction = instructions[end - 1]
    fall_through = (end,) if end < instruction_count else ()
    if last_instruction.root == "bra":
        return (last_instruction.target, *(fall_through if last_instruction.guard else ()))
    if last_instruction.root == "brx":
        return (*dict.fromkeys(last_instruction.targets), *(fall_through if last_instruction.guard else ()))
    if last_instruction.root in ("ret", "exit", "trap"):
        return fall_through if last_instruction.guard else ()
    return fall_through


def _order_blocks(starts: Sequence[int], successors: dict[int, tuple[int, ...]]) -> list[int]:
    block_order: list[int] = []

    def add_components(nodes: set[int], roots: Iterable[int]) -> None:
        for component in _find_components(nodes, roots, successors):
            head_block = component[0]
            block_order.append(head_block)
            if len(component) > 1:
                inner_nodes = set(component) - {head_block}
                add_components(
                    inner_nodes,
                    [successor for successor in successors[head_block] if successor in inner_nodes]
                    + sorted(inner_nodes),
                )

    add_components(set(starts), starts[:1])
    ordered_blocks = set(block_order)
    block_order += [start for start in starts if start not in ordered_blocks]
    return block_order


def _find_components(
    nodes: set[int], roots: Iterable[int], successors: dict[int, tuple[int, ...]]
) -> list[list[int]]:
    """Return the strongly connected components (Tarjan's algorithm) in topological order.

    The algorithm is iterative; the component of the entry node is the first.
    """
    index_of_node: dict[int, int] = {}
    low_link: dict[int, int] = {}
    stack: list[int] = []
    nodes_on_stack: set[int] = set()
    components: list[list[int]] = []
    for root in roots:
        if root in index_of_node or root not in nodes:
            continue
        visit_stack = [(root, iter(successors[root]))]
        index_of_node[root] = low_link[root] = len(index_of_node)
        stack.append(root)
        nodes_on_stack.add(root)
        while visit_stack:
            node, successors_left = visit_stack[-1]
            for successor in successors_left:
                if successor not in nodes:
                    continue
                if successor not in index_of_node:
                    index_of_node[successor] = low_link[successor] = len(index_of_node)
                    stack.append(successor)
                    nodes_on_stack.add(successor)
                    visit_stack.append((successor, iter(successors[successor])))
                    break
                if successor in nodes_on_stack:
                    low_link[node] = min(low_link[node], index_of_node[successor])
            else:
                visit_stack.pop()
                if visit_stack:
                    low_link[visit_stack[-1][0]] = min(low_link[visit_stack[-1][0]], low_link[node])
                if low_link[node] == index_of_node[node]:
                    stack_position = stack.index(node)
                    component = stack[stack_position:]
                    del stack[stack_position:]
                    nodes_on_stack -= set(component)
                    components.append(component)
    return components[::-1]


def reads_shared_state(instruction: ir.Instruction) -> bool:
    """Return whether an instruction is an atomic or a volatile load. Other threads can change the value that
    such an instruction reads.
    """
    return instruction.root in ("atom", "mbarrier") or (
        instruction.root == "ld" and not _ORDERED_LOADS.isdisjoint(instruction.parts)
    )


def waits_on_memory(
    function: ir.Function,
    flow: ControlFlow,
    last_block: int,
    first_block: int,
    memory_results: Set[str] = frozenset(),
) -> bool:
    """Return whether a loop waits until another thread has written to memory.

    An exit branch of such a loop depends on an atomic or a volatile load, as in a spin lock or a grid
    barrier. Blocks `first_block` to `last_block` are the loop; `memory_results` are results of calls that
    depend on such memory.
    """
    blocks = flow.blocks[first_block : last_block + 1]
    instructions = [instruction for b in blocks for instruction in function.instructions[b.first : b.end]]
    dependent_registers: set[str] = set()
    while True:
        previous_count = len(dependent_registers)
        for instruction in instructions:
            definitions, used_names = find_definitions_and_uses(instruction)
            reads_memory_result = instruction.root == "ld" and any(
                isinstance(operand, ir.Address)
                and isinstance(operand.base, ir.Symbol)
                and operand.base.name in memory_results
                for operand in instruction.operands
            )
            if (
                reads_memory_result
                or reads_shared_state(instruction)
                or not dependent_registers.isdisjoint(used_names)
            ):
                dependent_registers.update(definitions)
        if len(dependent_registers) == previous_count:
            break
    return any(
        instruction.guard in dependent_registers
        and any(not first_block <= successor <= last_block for successor in b.successors)
        for b in blocks
        for instruction in function.instructions[b.first : b.end]
        if instruction.root in ("bra", "brx")
    )


_ROOTS_WITHOUT_RESULT = {
    "st",
    "red",
    "bra",
    "brx",
    "bar",
    "barrier",
    "ret",
    "exit",
    "trap",
    "membar",
    "fence",
    "prefetch",
    "prefetchu",
    "call",
    "nanosleep",
    "brkpt",
    "cp",
    "pmevent",
    "discard",
    "applypriority",
    "griddepcontrol",
    "sust",
    "sured",
}


def find_definitions_and_uses(instruction: ir.Instruction) -> tuple[list[str], list[str]]:
    """Return the registers that an instruction writes and reads.

    A predicated instruction also reads its destination.
    """
    definitions: list[str] = []
    uses: list[str] = []
    operands = instruction.operands
    has_destination = instruction.root not in _ROOTS_WITHOUT_RESULT or (
        instruction.root in ("bar", "barrier") and "red" in instruction.parts
    )
    if has_destination and operands:
        _collect_registers(operands[0], definitions, uses)
        operands = operands[1:]
    for operand in operands:
        _collect_registers(operand, uses, uses)
    if instruction.guard:
        uses.append(instruction.guard)
        uses += definitions
    return definitions, uses


def _collect_registers(operand: ir.Operand | None, register_names: list[str], base_names: list[str]) -> None:
    if isinstance(operand, ir.Register):
        register_names.append(operand.name)
    elif isinstance(operand, ir.Address):
        if isinstance(operand.base, ir.Register):
            base_names.append(operand.base.name)
    elif isinstance(operand, ir.Vector):
        for element in operand.items:
            _collect_registers(element, register_names, base_names)
    elif isinstance(operand, ir.Pair):
        _collect_registers(operand.first, register_names, base_names)
        _collect_registers(operand.second, register_names, base_names)


def find_live_out(function: ir.Function, flow: ControlFlow) -> list[set[str]]:
    """Return, for each basic block, the registers whose values later blocks read."""
    bit_of_register = {name: 1 << i for i, name in enumerate(function.registers)}
    used_bits = []
    defined_bits = []
    for block in flow.blocks:
        use_bits = definition_bits = 0
        for instruction in function.instructions[block.first : block.end]:
            definitions, used_names = find_definitions_and_uses(instruction)
            for name in used_names:
                use_bits |= bit_of_register.get(name, 0) & ~definition_bits
            for name in definitions:
                definition_bits |= bit_of_register.get(name, 0)
        used_bits.append(use_bits)
        defined_bits.append(definition_bits)
    live_in_bits = [0] * len(flow.blocks)
    live_out_bits = [0] * len(flow.blocks)
    has_changed = True
    while has_changed:
        has_changed = False
        for block in reversed(flow.blocks):
            live_after_bits = 0
            for successor in block.successors:
                live_after_bits |= live_in_bits[successor]
            live_before_bits = used_bits[block.number] | (live_after_bits & ~defined_bits[block.number])
            live_out_bits[block.number] = live_after_bits
            if live_before_bits != live_in_bits[block.number]:
                live_in_bits[block.number] = live_before_bits
                has_changed = True
    register_names = list(function.registers)
    return [_list_names_of_bits(register_names, live_after_bits) for live_after_bits in live_out_bits]


def _list_names_of_bits(names: Sequence[str], bits: int) -> set[str]:
    """Return the names at the positions of the set bits in `bits`."""
    names_of_bits = set()
    while bits:
        lowest_bit = bits & -bits
        names_of_bits.add(names[lowest_bit.bit_length() - 1])
        bits ^= lowest_bit
    return names_of_bits


def find_excused_blocks(function: ir.Function, flow: ControlFlow, pc: int) -> tuple[int, ...]:
    """Return the basic blocks whose threads need not reach the barrier instruction at index `pc`.

    All paths from such a block reach the same barrier, or leave the kernel without a barrier, for example by
    an early ``return``. Code after an ``if`` around a barrier is not excused, because there the threads that
    skipped it wait for the others.
    """
    all_instructions = function.instructions
    blocks = flow.blocks
    barrier_block = _find_block(flow, pc)

    def get_instructions(block_number: int) -> list[ir.Instruction]:
        return all_instructions[blocks[block_number].first : blocks[block_number].end]

    barrier_blocks = {b.number for b in blocks if any(map(is_block_barrier, get_instructions(b.number)))}
    end_blocks = {b.number for b in blocks if not b.successors}
    blocks_after_barrier = set[int]().union(
        *(_find_reachable_blocks(flow, block_number) for block_number in blocks[barrier_block].successors)
    )
    working_blocks = {
        block_number
        for block_number in blocks_after_barrier
        if any(instruction.root not in ("ret", "exit") for instruction in get_instructions(block_number))
    }

    def is_excused(start_block: int) -> bool:
        reachable_blocks = _find_reachable_blocks(flow, start_block, barrier_block)
        always_reaches_barrier = barrier_block in reachable_blocks and not reachable_blocks & (
            (barrier_blocks | end_blocks) - {barrier_block}
        )
        return always_reaches_barrier or not _find_reachable_blocks(flow, start_block) & (
            working_blocks | barrier_blocks
        )

    return tuple(block.number for block in blocks if is_excused(block.number))


def is_in_loop(flow: ControlFlow, pc: int) -> bool:
    """Return whether an instruction is in a loop, so that a thread may execute it again."""
    block = _find_block(flow, pc)
    return any(
        block in _find_reachable_blocks(flow, successor) for successor in flow.blocks[block].successors
    )


def share_a_loop(flow: ControlFlow, first_pc: int, second_pc: int) -> bool:
    """Return whether two instructions are in the same loop."""
    first_block = _find_block(flow, first_pc)
    second_block = _find_block(flow, second_pc)
    return all(
        any(
            to_block in _find_reachable_blocks(flow, successor)
            for successor in flow.blocks[from_block].successors
        )
        for from_block, to_block in ((first_block, second_block), (second_block, first_block))
    )


def _find_block(flow: ControlFlow, pc: int) -> int:
    return next(block.number for block in flow.blocks if block.first <= pc < block.end)


def _find_reachable_blocks(flow: ControlFlow, start_block: int, stop_block: int = -1) -> set[int]:
    """Return block `start_block` and the blocks that can be reached from it without passing `stop_block`."""
    reachable_blocks = set[int]()
    pending_blocks = [start_block]
    while pending_blocks:
        block_number = pending_blocks.pop()
        if block_number not in reachable_blocks:
            reachable_blocks.add(block_number)
            pending_blocks += flow.blocks[block_number].successors if block_number != stop_block else ()
    return reachable_blocks

"""Control flow of one PTX function: basic blocks, their scheduling order, liveness.

Blocks are numbered in a weak topological order (F. Bourdoncle, 1993: strongly connected components
in topological order, each loop contiguous after its header). A scheduler that always runs the
lowest-numbered block with waiting lanes then reconverges at the immediate post-dominator, and lanes
that leave a loop wait for those still in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from virtualgpu.compile.ptx import ir

# Instructions that lanes of a warp reach together; each starts a block, so that lanes can wait there.
_MEETS = {"shfl", "vote", "match", "redux"}
# Loads that see what other threads have written meanwhile.
_ORDERED = {"volatile", "acquire", "relaxed"}
_ENDS = {"bra", "brx", "ret", "exit", "trap"}


def is_warp_meeting(instruction: ir.Instruction) -> bool:
    """Whether lanes named in a member mask meet at this instruction."""
    if instruction.root in ("bar", "barrier"):
        return "warp" in instruction.parts
    return instruction.root in _MEETS and "sync" in instruction.parts


def is_block_barrier(instruction: ir.Instruction) -> bool:
    """Whether threads of a block meet at this instruction (``__syncthreads``)."""
    return instruction.root in ("bar", "barrier") and "warp" not in instruction.parts


def waits_for_all(instruction: ir.Instruction) -> bool:
    """Whether it is a ``__syncthreads`` or one of its kin: barrier 0, for every thread of the block."""
    if not is_block_barrier(instruction) or "arrive" in instruction.parts:
        return False
    reduces = "red" in instruction.parts  # ``bar.red`` has its result in front and a predicate at the end
    operands = instruction.operands[1:-1] if reduces else instruction.operands
    return len(operands) <= 1 and all(isinstance(o, ir.Immediate) and not o.value for o in operands)


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions ``first`` to ``end`` (exclusive); ``successors`` are block numbers."""

    number: int
    first: int
    end: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """Basic blocks in scheduling order, and where each instruction index begins a block."""

    blocks: tuple[Block, ...]
    number_of: dict[int, int]

    def is_back_edge(self, source: int, target: int) -> bool:
        return target <= source


def build(function: ir.Function) -> Flow:
    """Cut a function into basic blocks and number them in scheduling order."""
    code = function.instructions
    count = len(code)
    leaders = {0}
    for i, instruction in enumerate(code):
        if instruction.root == "bra":
            leaders |= {instruction.target, i + 1}
        elif instruction.root == "brx":
            leaders |= {*instruction.targets, i + 1}
        elif instruction.root in _ENDS or is_block_barrier(instruction):
            leaders.add(i + 1)
        if is_warp_meeting(instruction):
            leaders.add(i)
    starts = sorted(leader for leader in leaders if leader < count)
    ends = dict(zip(starts, [*starts[1:], count], strict=True))
    successors = {start: _successors(code, start, end, count) for start, end in ends.items()}
    order = _schedule(starts, successors)
    number_of = {start: number for number, start in enumerate(order)}
    blocks = tuple(
        Block(number, start, ends[start], tuple(number_of[s] for s in successors[start]))
        for number, start in enumerate(order)
    )
    return Flow(blocks, number_of)


def _successors(code: Sequence[ir.Instruction], start: int, end: int, count: int) -> tuple[int, ...]:
    if start == end:
        return ()
    last = code[end - 1]
    falls = (end,) if end < count else ()
    if last.root == "bra":
        return (last.target, *(falls if last.guard else ()))
    if last.root == "brx":
        return (*dict.fromkeys(last.targets), *(falls if last.guard else ()))
    if last.root in ("ret", "exit", "trap"):
        return falls if last.guard else ()
    return falls


def _schedule(starts: Sequence[int], successors: dict[int, tuple[int, ...]]) -> list[int]:
    order: list[int] = []

    def place(nodes: set[int], roots: Iterable[int]) -> None:
        for component in _components(nodes, roots, successors):
            head = component[0]
            order.append(head)
            if len(component) > 1:
                inner = set(component) - {head}
                place(inner, [s for s in successors[head] if s in inner] + sorted(inner))

    place(set(starts), starts[:1])
    placed = set(order)
    order += [start for start in starts if start not in placed]
    return order


def _components(
    nodes: set[int], roots: Iterable[int], successors: dict[int, tuple[int, ...]]
) -> list[list[int]]:
    """Strongly connected components (Tarjan, iterative) in topological order, entry node first."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in roots:
        if root in index or root not in nodes:
            continue
        work = [(root, iter(successors[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for s in following:
                if s not in nodes:
                    continue
                if s not in index:
                    index[s] = low[s] = len(index)
                    stack.append(s)
                    on_stack.add(s)
                    work.append((s, iter(successors[s])))
                    break
                if s in on_stack:
                    low[node] = min(low[node], index[s])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    cut = stack.index(node)
                    component = stack[cut:]
                    del stack[cut:]
                    on_stack -= set(component)
                    found.append(component)
    return found[::-1]


def reads_what_others_write(i: ir.Instruction) -> bool:
    """Whether other threads may change what an instruction gives: an atomic, a volatile load."""
    return i.root in ("atom", "mbarrier") or (i.root == "ld" and not _ORDERED.isdisjoint(i.parts))


def waits_on_memory(
    function: ir.Function, flow: Flow, source: int, target: int, answers: Set[str] = frozenset()
) -> bool:
    """Whether the loop closed by a back edge ends only when memory that others write changes.

    That is so where an exit branch depends on an atomic's or a volatile load's result: a spin lock,
    a flag, a grid barrier. Blocks `target` to `source` are the loop's; `answers` are results of calls
    that depend on such memory.
    """
    blocks = flow.blocks[target : source + 1]
    code = [i for b in blocks for i in function.instructions[b.first : b.end]]
    tainted: set[str] = set()
    while True:
        before = len(tainted)
        for i in code:
            defined, used = definitions_and_uses(i)
            answered = i.root == "ld" and any(
                isinstance(o, ir.Address) and isinstance(o.base, ir.Symbol) and o.base.name in answers
                for o in i.operands
            )
            if answered or reads_what_others_write(i) or not tainted.isdisjoint(used):
                tainted.update(defined)
        if len(tainted) == before:
            break
    return any(
        i.guard in tainted and any(not target <= s <= source for s in b.successors)
        for b in blocks
        for i in function.instructions[b.first : b.end]
        if i.root in ("bra", "brx")
    )


_NO_DESTINATION = {
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


def definitions_and_uses(instruction: ir.Instruction) -> tuple[list[str], list[str]]:
    """Registers an instruction writes and reads. A guarded write also reads its destination."""
    defined: list[str] = []
    used: list[str] = []
    operands = instruction.operands
    has_destination = instruction.root not in _NO_DESTINATION or (
        instruction.root in ("bar", "barrier") and "red" in instruction.parts
    )
    if has_destination and operands:
        _collect(operands[0], defined, used)
        operands = operands[1:]
    for operand in operands:
        _collect(operand, used, used)
    if instruction.guard:
        used.append(instruction.guard)
        used += defined
    return defined, used


def _collect(operand: ir.Operand | None, direct: list[str], bases: list[str]) -> None:
    if isinstance(operand, ir.Register):
        direct.append(operand.name)
    elif isinstance(operand, ir.Address):
        if isinstance(operand.base, ir.Register):
            bases.append(operand.base.name)
    elif isinstance(operand, ir.Vector):
        for item in operand.items:
            _collect(item, direct, bases)
    elif isinstance(operand, ir.Pair):
        _collect(operand.first, direct, bases)
        _collect(operand.second, direct, bases)


def live_out(function: ir.Function, flow: Flow) -> list[set[str]]:
    """For each block, the registers some later block reads before writing them."""
    bit = {name: 1 << i for i, name in enumerate(function.registers)}
    uses = []
    defines = []
    for block in flow.blocks:
        use = define = 0
        for instruction in function.instructions[block.first : block.end]:
            defined, used = definitions_and_uses(instruction)
            for name in used:
                use |= bit.get(name, 0) & ~define
            for name in defined:
                define |= bit.get(name, 0)
        uses.append(use)
        defines.append(define)
    live_in = [0] * len(flow.blocks)
    out = [0] * len(flow.blocks)
    changed = True
    while changed:
        changed = False
        for block in reversed(flow.blocks):
            leaving = 0
            for s in block.successors:
                leaving |= live_in[s]
            entering = uses[block.number] | (leaving & ~defines[block.number])
            out[block.number] = leaving
            if entering != live_in[block.number]:
                live_in[block.number] = entering
                changed = True
    names = list(function.registers)
    return [_named(names, leaving) for leaving in out]


def _named(names: Sequence[str], bits: int) -> set[str]:
    """The names at the set bits of a number."""
    found = set()
    while bits:
        lowest = bits & -bits
        found.add(names[lowest.bit_length() - 1])
        bits ^= lowest
    return found


def excused(function: ir.Function, flow: Flow, pc: int) -> tuple[int, ...]:
    """Blocks in which threads may be while others of their warp come to the barrier at `pc`.

    From there they come to the same barrier, whatever they do, or they leave the kernel without a barrier
    and without meeting those that passed this one: an early ``return`` is such a way. What lies behind an
    ``if`` around a barrier is not, as there the threads that skipped it wait for the others.
    """
    code = function.instructions
    blocks = flow.blocks
    here = _block_of(flow, pc)

    def instructions(at: int) -> list[ir.Instruction]:
        return code[blocks[at].first : blocks[at].end]

    barriers = {b.number for b in blocks if any(map(is_block_barrier, instructions(b.number)))}
    ends = {b.number for b in blocks if not b.successors}
    behind = set[int]().union(*(_reachable(flow, number) for number in blocks[here].successors))
    kept = {number for number in behind if any(i.root not in ("ret", "exit") for i in instructions(number))}

    def is_excused(start: int) -> bool:
        before = _reachable(flow, start, here)
        arrives = here in before and not before & ((barriers | ends) - {here})
        return arrives or not _reachable(flow, start) & (kept | barriers)

    return tuple(block.number for block in blocks if is_excused(block.number))


def is_in_loop(flow: Flow, pc: int) -> bool:
    """Whether a thread may come to an instruction again."""
    here = _block_of(flow, pc)
    return any(here in _reachable(flow, number) for number in flow.blocks[here].successors)


def share_a_loop(flow: Flow, first: int, second: int) -> bool:
    """Whether a thread may come from either of two instructions to the other."""
    a = _block_of(flow, first)
    b = _block_of(flow, second)
    return all(
        any(end in _reachable(flow, number) for number in flow.blocks[start].successors)
        for start, end in ((a, b), (b, a))
    )


def _block_of(flow: Flow, pc: int) -> int:
    return next(block.number for block in flow.blocks if block.first <= pc < block.end)


def _reachable(flow: Flow, start: int, stop: int = -1) -> set[int]:
    """Blocks that a thread may come to from `start`, itself included, if it goes no further than `stop`."""
    seen = set[int]()
    todo = [start]
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            todo += flow.blocks[at].successors if at != stop else ()
    return seen

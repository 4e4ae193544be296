"""How fast a kernel's own instructions let a warp and an SM go: its machine code, estimated from PTX.

For every straight piece of PTX: what it puts into the pipes of an SM, and how long one warp alone takes for
it, since an instruction waits for what it uses. A piece that is a loop of its own is run until its rounds
take the same time, so that loads which do not wait for each other overlap, and chains do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.lower.codegen import Kernel
from virtualgpu.engine.observe import results
from virtualgpu.model.cost.instructions import (
    ADDRESS_SUM,
    FREE,
    INVARIANT_DIVISION,
    PIPES,
    InstructionCost,
    instruction_cost,
    pipe_clk,
)
from virtualgpu.model.cost.pace import LATENCIES, Pace

# Clocks that a warp waits for shared memory, at a barrier alone, after a branch, for an atomic's answer, ...
SHARED_CLK = 22.0
BARRIER_CLK = 11.0
BRANCH_CLK = 12.0  # back to where a loop begins
FORWARD_BRANCH_CLK = 6.0
PREDICATE_CLK = 16.0  # on top, from a comparison to the branch that asks for it
ATOMIC_CLK = 500.0
CONST_CLK = 30.0
PARAMETER_CLK = 45.0
STORE_CLK = 120.0
ROUNDS = 4
UNROLLED = 4
UNROLL_LIMIT = 60
LOADS_IN_FLIGHT = 12
WORDS_BYTES = 16  # the most that one instruction reads for a lane
MOST_STEPS = 40
_UNANSWERED = InstructionCost((("lsu", 1.0),), 0.0)


def pace(kernel: Kernel, capability: tuple[int, int]) -> Pace:
    """Work out the pace of a kernel's straight pieces on a compute capability."""
    functions = [plan.function for plan in kernel.plans]
    pieces = kernel.tables.blocks
    clk = pipe_clk(capability)
    pipes = np.zeros((len(pieces), len(PIPES)))
    chain = np.zeros((len(pieces), len(LATENCIES)))
    loads = []
    merged: dict[int, float] = {}
    ignored = [_ignored(function) for function in functions]
    aligned = [_Alignment(function) for function in functions]
    for row, (function, block) in enumerate(pieces):
        code = functions[function].instructions[block.first : block.end]
        backward = any(successor <= block.number for successor in block.successors)
        shares = _merged(code, aligned[function])
        merged |= {results.source_index(code[k]): share for k, share in shares.items()}
        piece = _Piece.of(code, block.number in block.successors, backward, ignored[function], shares)
        for each, share in zip(piece.made, piece.shares, strict=True):
            pipes[row, 0] += share * each.issued
            for name, count in each.pipes:
                pipes[row, PIPES.index(name)] += share * count
        loads.append(
            tuple(
                results.source_index(i)
                for i, m in zip(code, piece.made, strict=True)
                if i.root == "ld" and m.waits == "global"
            )
        )
        waits = any(m.waits in ("global", "atomic") for m in piece.made)
        for column, latency in enumerate(LATENCIES):
            chain[row, column] = _chain_clk(piece, latency, clk) if waits or not column else chain[row, 0]
    chased = frozenset[int]().union(*map(_chased, functions))
    return Pace(pipes, chain, tuple(loads), _combined(functions[0], ignored[0]), merged, chased)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A straight piece of PTX: what becomes of it, and how often each of it is done where ptxas unrolls."""

    code: Sequence[ir.Instruction]
    made: list[InstructionCost]
    flow: list[tuple[list[str], list[str]]]
    loops: bool
    backward: bool
    copies: int
    shares: list[float]

    @classmethod
    def of(
        cls,
        code: Sequence[ir.Instruction],
        loops: bool,
        backward: bool,
        ignored: frozenset[int],
        merged: Mapping[int, float],
    ) -> _Piece:
        flow = [cfg.definitions_and_uses(i) for i in code]
        written = {name for defined, _ in flow for name in defined}
        constant: set[str] = set()
        wide: set[str] = set()
        made = []
        for i, (defined, used) in zip(code, flow, strict=True):
            each = _UNANSWERED if i.pc in ignored else _made(i, loops, written)
            if i.root in ("add", "sub") and i.type in ("s64", "u64") and not wide.isdisjoint(used):
                each = ADDRESS_SUM
            if (i.root in ("mul", "mad") and "wide" in i.parts) or i.opcode in (
                "shl.b64",
                "cvt.u64.u32",
                "cvt.s64.s32",
            ):
                wide.update(defined)
            plain = i.root in ("mov", "cvt") and not any(
                isinstance(o, ir.Special | ir.Symbol) for o in i.operands
            )
            if plain and all(name in constant for name in used):
                constant.update(defined)
                each = FREE
            else:
                constant.difference_update(defined)
            made.append(each)
        control = _counter(code, flow) if loops else ()
        unrolls = (
            bool(control)
            and len(code) <= UNROLL_LIMIT
            and all(each.issued < 8 and each.waits != "barrier" for each in made)
        )
        copies = UNROLLED if unrolls else 1
        shares = [1 / copies if k in control else merged.get(k, 1.0) for k in range(len(code))]
        return cls(code, made, flow, loops, backward, copies, shares)


def _counter(code: Sequence[ir.Instruction], flow: Sequence[tuple[list[str], list[str]]]) -> tuple[int, ...]:
    """Where a loop counts and compares, if it goes on while a counter has not come to an end."""
    end = len(code) - 1
    if end < 2 or code[end].root != "bra" or not code[end].guard:
        return ()
    tests = [k for k in range(end) if code[end].guard in flow[k][0] and code[k].root == "setp"]
    if len(tests) != 1:
        return ()
    for name in flow[tests[0]][1]:
        steps = [k for k in range(end) if name in flow[k][0]]
        if len(steps) == 1 and code[steps[0]].root in ("add", "sub") and flow[steps[0]][1] == [name]:
            return steps[0], tests[0], end
    return ()


def _made(i: ir.Instruction, loops: bool, written: set[str]) -> InstructionCost:
    if i.root == "mov" and len(i.operands) > 1 and isinstance(i.operands[1], ir.Special):
        return instruction_cost("mov.special")
    if loops and i.root in ("div", "rem") and i.type in ("s32", "u32"):
        divisor = i.operands[-1]
        if isinstance(divisor, ir.Register) and divisor.name not in written:
            return INVARIANT_DIVISION
    return instruction_cost(i.opcode)


def _chain_clk(piece: _Piece, latency: float, clk: dict[str, float]) -> float:
    waits = {
        "": 0.0,
        "global": latency,
        "shared": SHARED_CLK,
        "barrier": BARRIER_CLK,
        "atomic": max(latency, ATOMIC_CLK),
        "const": CONST_CLK,
        "parameter": PARAMETER_CLK,
    }
    busy = sum(share * each.issued for each, share in zip(piece.made, piece.shares, strict=True))
    for name in PIPES[1:]:
        used_clk = sum(count for each in piece.made for pipe, count in each.pipes if pipe == name)
        busy = max(busy, 4.0 * clk[name] * used_clk)
    ready: dict[str, float] = {}
    compared: dict[str, float] = {}
    start = 0.0
    marks = [0.0]
    # Each instruction's answers once: long pieces are gone through many times.
    steps = []
    for i, each, (defined, used) in zip(piece.code, piece.made, piece.flow, strict=True):
        space = "shared" if "shared" in i.parts else "local" if "local" in i.parts else "global"
        reads = i.root == "ld" and each.waits not in ("", "const", "parameter")
        writes = not reads and i.root in ("st", "red", "atom")
        asks = i.guard if piece.backward and i.root == "bra" else None
        compares = i.root == "setp" or i.type == "pred"
        takes = each.latency + waits[each.waits]
        fences = each.waits == "barrier"
        ordered = reads and "nc" not in i.parts
        steps.append(
            (used, defined, each.issued, takes, space, reads, ordered, writes, asks, compares, fences)
        )
    for _ in range(ROUNDS if piece.loops else 1):
        last = fence = ended = start
        stored = {"global": start, "shared": start, "local": start}
        loads: list[float] = []
        for _ in range(piece.copies):
            for used, defined, issued, takes, space, reads, ordered, writes, asks, compares, fences in steps:
                begin = fence
                for name in used:
                    known = ready.get(name, 0.0)
                    if known > begin:
                        begin = known
                if reads:
                    if ordered:
                        begin = max(begin, stored[space])
                    if space == "global":
                        if len(loads) >= LOADS_IN_FLIGHT:
                            begin = max(begin, loads[-LOADS_IN_FLIGHT])
                        loads.append(begin + latency)
                elif writes:
                    stored[space] = max(stored[space], begin)
                    if space == "global":
                        ended = max(ended, begin + STORE_CLK)
                if asks in compared:
                    begin = max(begin, compared[asks] + PREDICATE_CLK)
                if begin + issued > last:
                    last = begin + issued
                done = begin + takes
                if fences:
                    fence = done = last + BARRIER_CLK
                for name in defined:
                    ready[name] = done
                    if compares:
                        compared[name] = done
        start = max(last, fence, start + busy * piece.copies)
        if piece.code and piece.code[-1].root in ("bra", "brx"):
            start += BRANCH_CLK if piece.backward else FORWARD_BRANCH_CLK
        marks.append(start)
    if piece.loops:
        return (marks[-1] - marks[2]) / (ROUNDS - 2) / piece.copies
    return max([start, ended, *ready.values()])


def _ignored(function: ir.Function) -> frozenset[int]:
    """Places of atomics whose answer nobody asks for."""
    flow = [cfg.definitions_and_uses(i) for i in function.instructions]
    asked = {name for _, used in flow for name in used}
    return frozenset(
        i.pc
        for i, (defined, _) in zip(function.instructions, flow, strict=True)
        if i.root in ("atom", "red") and asked.isdisjoint(defined)
    )


def _combined(function: ir.Function, ignored: frozenset[int]) -> frozenset[int]:
    """Places of integer atomics that ptxas lets one lane do for its warp.

    All lanes go to one address, known since nothing in it differs between threads, and none asks for the
    value that was there.
    """
    atomics = [
        i for i in function.instructions if i.pc in ignored and "global" in i.parts and i.type[0] in "us"
    ]
    if not atomics:
        return frozenset()
    varied: set[str] = set()
    flow = [cfg.definitions_and_uses(i) for i in function.instructions]
    while True:
        before = len(varied)
        for i, (defined, used) in zip(function.instructions, flow, strict=True):
            own = any(isinstance(o, ir.Special) and o.name.startswith(("%tid", "%lane")) for o in i.operands)
            loaded = i.root in ("ld", "atom", "shfl") and "param" not in i.parts
            if own or loaded or any(name in varied for name in used):
                varied.update(defined)
        if len(varied) == before:
            break
    found = set()
    for i in atomics:
        at = next((o for o in i.operands if isinstance(o, ir.Address)), None)
        if at and isinstance(at.base, ir.Register) and at.base.name not in varied:
            found.add(results.source_index(i))
    return frozenset(found)


def _chased(function: ir.Function) -> frozenset[int]:
    """Places of loads from global memory whose address is made of what another one gave."""
    flow = [cfg.definitions_and_uses(i) for i in function.instructions]
    loads = [
        i.root == "ld" and "param" not in i.parts and "shared" not in i.parts for i in function.instructions
    ]
    given: set[str] = set()
    found: set[int] = set()
    while True:
        before = len(given)
        for i, load, (defined, used) in zip(function.instructions, loads, flow, strict=True):
            if load or not given.isdisjoint(used):
                given.update(defined)
            if load and not given.isdisjoint(used):
                found.add(results.source_index(i))
        if len(given) == before:
            return frozenset(found)


class _Alignment:
    """What addresses in a function's registers are known to be multiples of, up to 16 bytes."""

    def __init__(self, function: ir.Function) -> None:
        self._makers: dict[str, list[ir.Instruction]] = {}
        for i in function.instructions:
            for name in cfg.definitions_and_uses(i)[0]:
                self._makers.setdefault(name, []).append(i)
        self._known: dict[str, int] = {}

    def of(self, operand: ir.Operand | None, steps: int = MOST_STEPS) -> int:
        """The largest power of two, at most 16, that divides a value; 1 where that takes too many steps."""
        if isinstance(operand, ir.Symbol):
            return _divisor(operand.offset)
        if isinstance(operand, ir.Immediate):
            return _divisor(operand.value)
        if not isinstance(operand, ir.Register) or not steps:
            return 1
        if operand.name not in self._known:
            self._known[operand.name] = WORDS_BYTES  # of a loop's own value: as the others say
            makers = self._makers.get(operand.name, [])
            self._known[operand.name] = min((self._made(i, steps - 1) for i in makers), default=1)
        return self._known[operand.name]

    def _made(self, i: ir.Instruction, steps: int) -> int:
        parts = [self.of(o, steps) for o in i.operands[1:]]
        if i.root in ("mov", "cvta", "cvt"):
            return parts[0]
        if i.root in ("add", "sub", "or"):
            return min(parts[:2])
        if i.root == "shl" and isinstance(i.operands[2], ir.Immediate):
            return min(parts[0] << min(i.operands[2].value, 4), WORDS_BYTES)
        if i.root in ("mul", "mad") and "hi" not in i.parts:
            product = min(parts[0] * parts[1], WORDS_BYTES)
            return min(product, parts[2]) if i.root == "mad" else product
        return 1


def _divisor(value: int) -> int:
    return min(value & -value, WORDS_BYTES) if value else WORDS_BYTES


def _merged(code: Sequence[ir.Instruction], aligned: _Alignment) -> dict[int, float]:
    """Loads of neighbouring words of shared memory, which ptxas makes one instruction of two or four words.

    By their place in a piece, with their share of that instruction.
    """
    words: dict[tuple[ir.Immediate | str, int], int] = {}
    for k, i in enumerate(code):
        at = i.operands[1] if len(i.operands) > 1 else None
        if (
            i.root == "ld"
            and "shared" in i.parts
            and isinstance(at, ir.Address)
            and ir.TYPE_BYTES.get(i.type) == 4
        ):
            base = at.base
            if (
                len(i.parts) <= 4
                and "v2" not in i.parts
                and "v4" not in i.parts
                and aligned.of(base) == WORDS_BYTES
            ):
                words[base if isinstance(base, ir.Immediate) else base.name, at.offset] = k
        elif i.root in ("st", "bar", "barrier", "atom"):
            words = {}
    shares = {}
    for (name, offset), k in words.items():
        start = offset - offset % WORDS_BYTES
        group = [n for n in range(start, start + WORDS_BYTES, 4) if (name, n) in words]
        shares[k] = 1.0 / len(group) if len(group) in (2, 4) else 1.0
    return {k: share for k, share in shares.items() if share < 1.0}

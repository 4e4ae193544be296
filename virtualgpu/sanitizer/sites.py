"""What a checker needs to know of a memory instruction, worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.lower.ops import async_ops, memory_ops
from virtualgpu.engine.lower.plan import FunctionPlan
from virtualgpu.sanitizer import structures

_STRONG = {"relaxed", "acquire", "release", "acq_rel", "mmio"}
_ARRIVES = ("mbarrier.arrive", "cp.async.mbarrier.arrive")
_SUBSPACES = ("global", "shared", "local", "generic")


@dataclass(frozen=True, slots=True)
class Site:
    """One memory instruction: its place in the source and what it does to memory."""

    number: int
    instruction: ir.Instruction
    space: str
    size_bytes: int
    writes: bool
    reads: bool
    strong: bool
    volatile: bool
    flag: bool  # a volatile access where threads wait for what others write
    releases: bool
    acquires: bool
    scalar: bool
    swaps: bool
    copies: bool  # a cp.async, whose data arrive later
    low: int  # the allocation that its pointer belongs to; 0 and the largest number if unknown
    high: int

    @property
    def line(self) -> int:
        """The source line it stands in."""
        return self.instruction.line

    def kind(self, space: str) -> int:
        """Class of the access. Volatile counts as strong where flags are passed."""
        strong = self.strong or (self.volatile and self.flag)
        if self.writes:
            return structures.STRONG_WRITE if strong else structures.WEAK_WRITE
        return structures.STRONG_READ if strong else structures.WEAK_READ


UNBOUNDED = (0, (1 << 63) - 1)


def polls(plans: Iterable[FunctionPlan]) -> Set[int]:
    """Ids of the volatile loads, and of atomics that change nothing, that loops repeat until another thread
    writes what they wait for.

    Volatile accesses to shared memory mostly stem from times when warps ran in lockstep, and race; those to
    global memory order nothing. Those to a flag that others poll do not race.
    """
    found = set()
    for plan in plans:
        for block in plan.flow.blocks:
            for head in block.successors:
                if plan.flow.is_back_edge(block.number, head) and cfg.waits_on_memory(
                    plan.function, plan.flow, block.number, head
                ):
                    inner = plan.flow.blocks[head : block.number + 1]
                    code = [i for b in inner for i in plan.function.instructions[b.first : b.end]]
                    found |= {
                        id(i)
                        for i in _deciding(code)
                        if (i.root == "ld" and "volatile" in i.parts) or _only_reads(i)
                    }
    return found


def _deciding(code: Sequence[ir.Instruction]) -> list[ir.Instruction]:
    """The instructions of a loop whose results its branches depend on: not all that a lock guards."""
    needed = {i.guard for i in code if i.root in ("bra", "brx") and i.guard}
    registers = [(i, *cfg.definitions_and_uses(i)) for i in code]
    while True:
        deciding = [(i, used) for i, defined, used in registers if not needed.isdisjoint(defined)]
        more = {name for _, used in deciding for name in used} - needed
        if not more:
            return [i for i, _ in deciding]
        needed |= more


def _only_reads(i: ir.Instruction) -> bool:
    """Whether it is an atomic that changes nothing, as ``atomicAdd(flag, 0)``."""
    last = i.operands[-1] if i.operands else None
    nothing = isinstance(last, ir.Immediate) and last.value == 0
    return i.root == "atom" and nothing and not {"add", "or", "xor"}.isdisjoint(i.parts)


def waits_in_part(plans: Iterable[FunctionPlan]) -> bool:
    """Whether threads may synchronise with some of their block only: warps, named barriers, flags."""
    return any(
        (i.root in ("bar", "barrier") and "warp" in i.parts)
        or i.root in ("membar", "fence", "mbarrier")
        or (cfg.is_block_barrier(i) and not cfg.waits_for_all(i))
        or bool(set(i.parts) & {"release", "acq_rel", "arrive"})
        for plan in plans
        for i in plan.function.instructions
    )


def site(
    number: int,
    i: ir.Instruction,
    bounds: tuple[int, int] = UNBOUNDED,
    polled: Set[int] = frozenset(),
) -> Site:
    """Describe a memory instruction.

    Its pointer belongs to an allocation (start, end); `polled` are the kernel's loads of flags.
    """
    kind = memory_ops.kind_of(i)
    space = memory_ops.space_of(i)
    parts = set(i.parts[1:])
    atomic = kind == "atomic"
    return Site(
        number=number,
        instruction=i,
        space=space if space in _SUBSPACES else "",
        size_bytes=memory_ops.size_of(i),
        writes=kind != "load",
        reads=kind != "store" and not i.text.startswith("mbarrier.init"),
        strong=atomic or bool(parts & _STRONG),
        volatile="volatile" in parts,
        flag=bool(polled) and (kind == "store" or id(i) in polled),
        releases=bool(parts & {"release", "acq_rel"}) or i.text.startswith(_ARRIVES),
        acquires=bool(parts & {"acquire", "acq_rel"}) or i.text.startswith("mbarrier"),
        scalar=kind == "store" and memory_ops.vector_width(i) == 1,
        swaps="cas" in parts,
        copies=async_ops.COPYING in parts,
        low=bounds[0],
        high=bounds[1],
    )


def register_site(number: int, i: ir.Instruction) -> Site:
    """Describe an instruction that touches no memory."""
    return Site(number, i, "", 0, *(False,) * 10, *UNBOUNDED)


def granule_bytes(instructions: list[ir.Instruction]) -> int:
    """The largest unit, up to a word, that every access of a kernel is a multiple of."""
    sizes = [ir.TYPE_BYTES[i.type] for i in instructions if memory_ops.space_of(i) != "const"]
    return min([4, *sizes])

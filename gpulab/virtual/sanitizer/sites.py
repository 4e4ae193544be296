"""What a checker needs to know of a memory instruction, worked out once."""

from __future__ import annotations

from dataclasses import dataclass

from gpulab.ptx import ir
from gpulab.virtual.engine import async_ops, memory_ops
from gpulab.virtual.sanitizer import history

_STRONG = {"relaxed", "acquire", "release", "acq_rel", "mmio"}
_ARRIVES = ("mbarrier.arrive", "cp.async.mbarrier.arrive")
_SUBSPACES = ("global", "shared", "local", "generic")


@dataclass(frozen=True, slots=True)
class Site:
    """One memory instruction: its place in the source and what it does to memory."""

    number: int
    line: int
    text: str
    space: str
    size_bytes: int
    writes: bool
    reads: bool
    strong: bool
    volatile: bool
    releases: bool
    scalar: bool
    swaps: bool
    copies: bool  # a cp.async, whose data arrive later
    low: int  # the allocation that its pointer belongs to; 0 and the largest number if unknown
    high: int

    def kind(self, space: str) -> int:
        """Class of the access. Volatile counts as strong in global memory, where flags are passed."""
        strong = self.strong or (self.volatile and space == "global")
        if self.writes:
            return history.STRONG_WRITE if strong else history.WEAK_WRITE
        return history.STRONG_READ if strong else history.WEAK_READ


UNBOUNDED = (0, (1 << 63) - 1)


def site(number: int, i: ir.Instruction, bounds: tuple[int, int] = UNBOUNDED) -> Site:
    """Describe a memory instruction whose pointer belongs to an allocation (start, end)."""
    kind = memory_ops.kind_of(i)
    space = memory_ops.space_of(i)
    parts = set(i.parts[1:])
    atomic = kind == "atomic"
    return Site(
        number=number,
        line=i.line,
        text=i.text,
        space=space if space in _SUBSPACES else "",
        size_bytes=memory_ops.size_of(i),
        writes=kind != "load",
        reads=kind != "store" and not i.text.startswith("mbarrier.init"),
        strong=atomic or bool(parts & _STRONG),
        volatile="volatile" in parts,
        releases=bool(parts & {"release", "acq_rel"}) or i.text.startswith(_ARRIVES),
        scalar=kind == "store" and memory_ops.vector_width(i) == 1,
        swaps="cas" in parts,
        copies=async_ops.COPYING in parts,
        low=bounds[0],
        high=bounds[1],
    )


def register_site(number: int, i: ir.Instruction) -> Site:
    """Describe an instruction that touches no memory."""
    return Site(number, i.line, i.text, "", 0, *(False,) * 8, *UNBOUNDED)


def granule_bytes(instructions: list[ir.Instruction]) -> int:
    """The largest unit, up to a word, that every access of a kernel is a multiple of."""
    sizes = [ir.TYPE_BYTES[i.type] for i in instructions if memory_ops.space_of(i) != "const"]
    return min([4, *sizes])

"""Descriptions of memory and synchronisation instructions for a checker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.lower.ops import async_ops, memory_ops
from virtualgpu.engine.lower.plan import FunctionPlan
from virtualgpu.sanitizer import structures

_STRONG_MODIFIERS = {"relaxed", "acquire", "release", "acq_rel", "mmio"}
_ARRIVE_OPCODES = ("mbarrier.arrive", "cp.async.mbarrier.arrive", "cp.async.bulk")
_WAIT_OPCODES = ("mbarrier.test_wait", "mbarrier.try_wait")
_SUBSPACES = ("global", "shared", "local", "generic")


@dataclass(frozen=True, slots=True)
class Site:
    """A memory instruction that the checker checks, with its source line and its kind of access."""

    number: int
    instruction: ir.Instruction
    space: str
    size_bytes: int
    writes: bool
    reads: bool
    is_strong: bool
    is_volatile: bool
    is_flag_access: bool  # a volatile access where threads wait for what others write
    releases: bool
    acquires: bool
    stores_scalar: bool
    is_swap: bool
    is_async_copy: bool  # a cp.async, whose data arrive later
    is_bulk_copy: bool  # part of a bulk copy
    awaits_mbarrier: bool  # waits for a phase of an mbarrier
    low_address: int  # the allocation that its pointer belongs to; 0 and the largest number if unknown
    high_address: int

    @property
    def line(self) -> int:
        """The source line of the instruction."""
        return self.instruction.line

    def kind(self, space: str) -> int:
        """Return whether the access is a weak or strong read or write. Volatile accesses to flags count as
        strong.
        """
        is_strong = self.is_strong or (self.is_volatile and self.is_flag_access)
        if self.writes:
            return structures.STRONG_WRITE if is_strong else structures.WEAK_WRITE
        return structures.STRONG_READ if is_strong else structures.WEAK_READ


UNBOUNDED = (0, (1 << 63) - 1)


def find_polling_loads(plans: Iterable[FunctionPlan]) -> Set[int]:
    """Return the ids of the loads that a loop repeats until another thread writes the expected value.

    These are volatile loads, and atomics that change nothing. Volatile accesses to shared memory are mostly
    from times when warps ran in lockstep, and race; volatile accesses to global memory order nothing.
    Accesses to a flag that others poll do not race.
    """
    load_ids = set()
    for plan in plans:
        for block in plan.control_flow.blocks:
            for loop_head in block.successors:
                if plan.control_flow.is_back_edge(block.number, loop_head) and cfg.waits_on_memory(
                    plan.function, plan.control_flow, block.number, loop_head
                ):
                    loop_blocks = plan.control_flow.blocks[loop_head : block.number + 1]
                    instructions = [
                        i
                        for loop_block in loop_blocks
                        for i in plan.function.instructions[loop_block.first : loop_block.end]
                    ]
                    load_ids |= {
                        id(i)
                        for i in _find_branch_inputs(instructions)
                        if (i.root == "ld" and "volatile" in i.parts) or _only_reads(i)
                    }
    return load_ids


def _find_branch_inputs(instructions: Sequence[ir.Instruction]) -> list[ir.Instruction]:
    """Return the instructions of a loop whose results determine whether its branches are taken."""
    register_names = {i.guard for i in instructions if i.root in ("bra", "brx") and i.guard}
    instruction_registers = [(i, *cfg.find_definitions_and_uses(i)) for i in instructions]
    while True:
        deciding_reads = [
            (i, used_registers)
            for i, defined_registers, used_registers in instruction_registers
            if not register_names.isdisjoint(defined_registers)
        ]
        new_names = {name for _, used_registers in deciding_reads for name in used_registers} - register_names
        if not new_names:
            return [i for i, _ in deciding_reads]
        register_names |= new_names


def _only_reads(i: ir.Instruction) -> bool:
    """Return whether an instruction is an atomic that does not change memory, like ``atomicAdd(flag, 0)``."""
    last_operand = i.operands[-1] if i.operands else None
    is_zero = isinstance(last_operand, ir.Immediate) and last_operand.value == 0
    return i.root == "atom" and is_zero and not {"add", "or", "xor"}.isdisjoint(i.parts)


def has_partial_waits(plans: Iterable[FunctionPlan]) -> bool:
    """Return whether the functions contain synchronization that can involve only some threads of a block."""
    return any(
        (i.root in ("bar", "barrier") and "warp" in i.parts)
        or i.root in ("membar", "fence", "mbarrier")
        or (cfg.is_block_barrier(i) and not cfg.waits_for_all_threads(i))
        or bool(set(i.parts) & {"release", "acq_rel", "arrive"})
        for plan in plans
        for i in plan.function.instructions
    )


def make_site(
    number: int,
    i: ir.Instruction,
    bounds: tuple[int, int] = UNBOUNDED,
    polling_load_ids: Set[int] = frozenset(),
) -> Site:
    """Return a description of a memory instruction for the checks.

    The argument `bounds` is the allocation (start, end) to which the pointer belongs, and `polling_load_ids`
    contains the ids of the kernel's loads of flags.
    """
    access_kind = memory_ops.kind_of(i)
    space = memory_ops.space_of(i)
    opcode_parts = set(i.parts[1:])
    is_atomic = access_kind == "atomic"
    # The opcode in the PTX text: the instruction may be one of several accesses of another instruction.
    opcode = i.text.split(maxsplit=1)[1] if i.text.startswith("@") else i.text
    return Site(
        number=number,
        instruction=i,
        space=space if space in _SUBSPACES else "",
        size_bytes=memory_ops.size_of(i),
        writes=access_kind != "load",
        reads=access_kind != "store" and not opcode.startswith("mbarrier.init"),
        is_strong=is_atomic or bool(opcode_parts & _STRONG_MODIFIERS),
        is_volatile="volatile" in opcode_parts,
        is_flag_access=bool(polling_load_ids) and (access_kind == "store" or id(i) in polling_load_ids),
        releases=bool(opcode_parts & {"release", "acq_rel"})
        or (is_atomic and opcode.startswith(_ARRIVE_OPCODES)),
        acquires=bool(opcode_parts & {"acquire", "acq_rel"}) or opcode.startswith("mbarrier"),
        stores_scalar=access_kind == "store" and memory_ops.vector_width(i) == 1,
        is_swap="cas" in opcode_parts,
        is_async_copy=async_ops.ASYNC_COPY_MARK in opcode_parts,
        is_bulk_copy=opcode.startswith("cp.async.bulk"),
        awaits_mbarrier=opcode.startswith(_WAIT_OPCODES),
        low_address=bounds[0],
        high_address=bounds[1],
    )


def make_register_site(number: int, i: ir.Instruction) -> Site:
    """Return the description that the checks use for an instruction without a memory access."""
    return Site(
        number=number,
        instruction=i,
        space="",
        size_bytes=0,
        writes=False,
        reads=False,
        is_strong=False,
        is_volatile=False,
        is_flag_access=False,
        releases=False,
        acquires=False,
        stores_scalar=False,
        is_swap=False,
        is_async_copy=False,
        is_bulk_copy=False,
        awaits_mbarrier=False,
        low_address=UNBOUNDED[0],
        high_address=UNBOUNDED[1],
    )


def find_granule_bytes(instructions: list[ir.Instruction]) -> int:
    """Return the largest granule size that divides the sizes of all accesses of a kernel. The size is at most
    4 bytes.
    """
    access_sizes = [ir.TYPE_BYTES[i.type] for i in instructions if memory_ops.space_of(i) != "const"]
    return min([4, *access_sizes])

"""Conversion of the numbers of a fault to an exception that contains cause, location and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtualgpu import cuda_errors as errors
from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.errors import FaultSite, NotSupportedError
from virtualgpu.model.memory import Allocation, DeviceMemory
from virtualgpu.records import Dim3
from virtualgpu.words import count

# An address below the first number is a null pointer plus an index; an address farther away than the second
# from every allocation belongs to none.
_NULL_PAGE_BYTES = 1 << 16
_MAX_NEAR_DISTANCE_BYTES = 16 << 30

FAULT_KINDS = {
    layout.ILLEGAL_GLOBAL: "out of bounds",
    layout.ILLEGAL_SHARED: "out of bounds",
    layout.ILLEGAL_LOCAL: "out of bounds",
    layout.MISALIGNED: "misaligned",
    layout.ABORTED: "endless",
    layout.TRAPPED: "trap",
    layout.ASSERTED: "assert",
    layout.STACK_OVERFLOW: "stack overflow",
    layout.BARRIER_DEADLOCK: "barrier deadlock",
    layout.DIVERGENT_BARRIER: "divergent barrier",
    layout.UNMET_MEMBER_MASK: "lanes missing",
    layout.LANE_OUTSIDE_MASK: "lane outside its mask",
    layout.NAN_PRODUCED: "NaN",
    layout.BAD_TEXTURE: "no texture",
    layout.ACCESS_OUTSIDE_SURFACE: "out of bounds",
}
# Kind of a launch that was stopped while it still made progress.
TOO_LONG_KIND = "too long"
_SPACE_OF_FAULT = {
    layout.ILLEGAL_GLOBAL: "global",
    layout.ILLEGAL_SHARED: "shared",
    layout.ILLEGAL_LOCAL: "local",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in a kernel, with the location and address that the generated code recorded."""

    code: int
    function: ir.Function
    instruction: ir.Instruction | None
    block: Dim3
    thread: Dim3
    address: int
    size_bytes: int
    shared_bytes: int
    local_bytes: int
    watchdog_s: float
    message: str = ""
    base_pointer: int | None = None  # the pointer that the address was computed from
    progress: errors.Progress | None = None

    @property
    def signed_address(self) -> int:
        """The address of the fault. In shared and local memory, the address is an offset, which may be
        negative.
        """
        address_bits = {layout.ILLEGAL_SHARED: 32, layout.ILLEGAL_LOCAL: 64}.get(self.code, 0)
        return (
            self.address - (1 << address_bits)
            if address_bits and self.address >> (address_bits - 1)
            else self.address
        )


def find_fault_site(fault: Fault, kernel_name: str, source_code: str) -> FaultSite:
    """Return where a fault happened in the kernel, including the source line."""
    line_number = fault.instruction.line if fault.instruction else 0
    lines = source_code.split("\n")
    source_text = lines[line_number - 1].strip() if 0 < line_number <= len(lines) else ""
    has_address = fault.code in (
        layout.ILLEGAL_GLOBAL,
        layout.ILLEGAL_SHARED,
        layout.ILLEGAL_LOCAL,
        layout.MISALIGNED,
    )
    return FaultSite(
        kernel_name,
        line_number,
        source_text,
        fault.block,
        fault.thread,
        fault.signed_address if has_address else None,
    )


def _format_location(fault_site: FaultSite) -> str:
    quoted_source = f" `{fault_site.source_text}`" if fault_site.source_text else ""
    line_text = f"line {fault_site.line}{quoted_source}, " if fault_site.line else ""
    return f"{line_text}block {fault_site.block}, thread {fault_site.thread}"


def _fault_mnemonic(fault: Fault) -> str:
    return fault.instruction.root if fault.instruction else ""


def _fault_opcode(fault: Fault) -> str:
    return fault.instruction.opcode if fault.instruction else "a warp-wide instruction"


def _explain_illegal_address(memory: DeviceMemory, fault: Fault) -> str:
    """Explain where an illegal global address is, compared with the arrays that exist."""
    address = fault.address
    pointer = address if fault.base_pointer is None else fault.base_pointer
    if min(pointer, address) < _NULL_PAGE_BYTES:
        return "That is a null pointer: pass the array itself, or check the pointer before using it."
    owning_device = memory.find_device(pointer)
    if owning_device is not None and owning_device.memory is not memory and memory.peer_of(pointer) is None:
        return (
            f"It is in the memory of device {owning_device.id}, which a kernel of this device can access "
            f"only with peer access: call cp.cuda.runtime.deviceEnablePeerAccess({owning_device.id}) if "
            "deviceCanAccessPeer returns 1."
        )
    nearest_allocation = memory.find_nearest_allocation(pointer)
    is_base_inside = (
        fault.base_pointer is not None
        and nearest_allocation is not None
        and nearest_allocation.address <= fault.base_pointer < nearest_allocation.end
    )
    freed_allocation = None if is_base_inside else memory.find_freed_allocation(pointer)
    if freed_allocation is not None:
        past_end_advice = _make_past_end_advice(nearest_allocation, address)
        return (
            f"It was in the {freed_allocation.label} that has been freed{past_end_advice}. Keep a reference "
            "to the array."
        )
    if nearest_allocation is None:
        return "The device has no live allocation. Pass a device array, such as cp.asarray(x)."
    distance_bytes = max(address - nearest_allocation.end, nearest_allocation.address - address)
    if not is_base_inside and distance_bytes > _MAX_NEAR_DISTANCE_BYTES:
        return (
            f"No allocation is near; the {nearest_allocation.label} starts at "
            f"{nearest_allocation.address:#x}. Check the pointer."
        )
    if address >= nearest_allocation.end:
        position_text = (
            "right after"
            if address == nearest_allocation.end
            else f"{count(address - nearest_allocation.end, 'byte')} past"
        )
        return (
            f"That is {position_text} the end of the {nearest_allocation.label}: check the index against "
            "its size."
        )
    if address < nearest_allocation.address:
        distance_text = count(nearest_allocation.address - address, "byte")
        return (
            f"That is {distance_text} before the {nearest_allocation.label}: check the index for a "
            "negative value."
        )
    excess_text = count(address + fault.size_bytes - nearest_allocation.end, "byte")
    return (
        f"It reaches {excess_text} past the end of the {nearest_allocation.label}: check the index "
        "against its size."
    )


def _describe_callee(memory: DeviceMemory, address: int) -> str:
    """Describe a function pointer that was called but does not point to a function."""
    if not address:
        return "a null pointer"
    if address >> 32 == layout.FUNCTION_TAG >> 32:
        return "a pointer to a device function with other parameters"
    nearest_allocation = memory.find_nearest_allocation(address)
    if nearest_allocation is not None and nearest_allocation.address <= address < nearest_allocation.end:
        return f"a pointer to the {nearest_allocation.label}, which is not a device function"
    return f"the pointer {address:#x}, which is not a device function"


def _make_past_end_advice(nearest_allocation: Allocation | None, address: int) -> str:
    """Return another explanation if the address is past the end of a live allocation, else ""."""
    if nearest_allocation is None or address <= nearest_allocation.end:
        return ""
    return (
        f", or is {count(address - nearest_allocation.end, 'byte')} past the end of the "
        f"{nearest_allocation.label}"
    )


def make_stop_message(faults: Sequence[Fault], kernel_name: str, source_code: str) -> str:
    """Return the error message for a kernel that the user has interrupted. The message names the place where
    the kernel was stopped.
    """
    fault_site = next(
        (find_fault_site(f, kernel_name, source_code) for f in faults if f.code == layout.ABORTED), None
    )
    return f"kernel '{kernel_name}' was stopped" + (
        f" at {_format_location(fault_site)}." if fault_site is not None else "."
    )


def to_exception(fault: Fault, kernel_name: str, source_code: str, memory: DeviceMemory) -> Exception:
    """Return the exception that describes a kernel fault."""
    error = _make_exception(fault, kernel_name, source_code, memory)
    if isinstance(error, errors.KernelFault):
        error.kind = FAULT_KINDS.get(fault.code, "")
        if isinstance(error, errors.LaunchTimeoutError) and error.progress and not error.progress.is_endless:
            error.kind = TOO_LONG_KIND
        error.space = _SPACE_OF_FAULT.get(fault.code, "")
        if fault.code == layout.ILLEGAL_GLOBAL:
            nearest_array = memory.find_nearest_allocation(
                fault.address if fault.base_pointer is None else fault.base_pointer
            )
            error.array = nearest_array.label if nearest_array is not None else ""
        if fault.code == layout.MISALIGNED and fault.instruction is not None:
            error.space = memory_ops.space_of(fault.instruction)
    return error


def _make_exception(fault: Fault, kernel_name: str, source_code: str, memory: DeviceMemory) -> Exception:
    fault_site = find_fault_site(fault, kernel_name, source_code)
    location = _format_location(fault_site)
    verb = "accessed"
    if fault.instruction is not None and memory_ops.is_counted_access(fault.instruction):
        verb = {"load": "read", "store": "wrote", "atomic": "updated"}[memory_ops.kind_of(fault.instruction)]
    size_text = count(fault.size_bytes, "byte")
    if fault.code == layout.ILLEGAL_GLOBAL:
        return errors.IllegalAddressError(
            f"kernel '{kernel_name}' {verb} {size_text} at address {fault.address:#x}, outside every live "
            f"allocation ({location}). {_explain_illegal_address(memory, fault)}",
            fault_site,
        )
    if fault.code == layout.ILLEGAL_SHARED:
        return errors.IllegalAddressError(
            f"kernel '{kernel_name}' {verb} {size_text} at shared-memory offset {fault.signed_address:,}, "
            f"but the block has {count(fault.shared_bytes, 'byte')} of shared memory ({location}). "
            "Check the index, or pass a larger shared_mem.",
            fault_site,
        )
    if fault.code == layout.ILLEGAL_LOCAL:
        return errors.IllegalAddressError(
            f"kernel '{kernel_name}' {verb} {size_text} at offset {fault.signed_address:,} of the "
            "thread's own "
            f"stack of {count(fault.local_bytes, 'byte')} ({location}). Check the index into the "
            "local array.",
            fault_site,
        )
    if fault.code == layout.MISALIGNED:
        return errors.MisalignedAddressError(
            f"kernel '{kernel_name}' {verb} {size_text} at address {fault.address:#x}, which is not a "
            f"multiple of {fault.size_bytes} ({location}). Start wide accesses at multiples of their size.",
            fault_site,
        )
    if fault.code == layout.ABORTED:
        reason = f": {fault.message}" if fault.message else ""
        spent_s = fault.watchdog_s
        advice = "increase the time limit with watchdog_s in gl.use_device(), or with VIRTUALGPU_WATCHDOG_S"
        remedy = f"Look for a loop that cannot end, or {advice}."
        if fault.progress is not None:
            spent_s = fault.progress.spent_s
            remedy = "The kernel stored and printed nothing new. " + remedy
        if fault.message:
            remedy = (
                "Let a block wait only for blocks that already run, or launch only as many blocks as fit on "
                "the device at once."
            )
        elif fault.progress is not None and fault.progress.has_recent_finish:
            reason = f" after {fault.progress.ended_blocks:,} of its {fault.progress.block_count:,} blocks"
            remedy = f"The launch was still making progress: {advice}."
        elif fault.progress is not None and fault.progress.has_recent_output:
            remedy = (
                "The kernel was still storing or printing: look for a loop with too many iterations, "
                f"or {advice}."
            )
        return errors.LaunchTimeoutError(
            f"kernel '{kernel_name}' was still running after {round(spent_s, 1):g} s of processor time "
            f"and was stopped{reason} ({location}). {remedy}",
            fault_site,
            fault.progress,
        )
    if fault.code == layout.ASSERTED:
        return errors.DeviceAssertError(
            f"kernel '{kernel_name}': the assertion {fault.message or 'in it'} failed ({location}).",
            fault_site,
        )
    if fault.code == layout.STACK_OVERFLOW:
        return errors.LaunchFailure(
            f"kernel '{kernel_name}' overflowed the call stack ({location}). "
            "Look for a recursion that cannot end.",
            fault_site,
        )
    if fault.code == layout.NESTED_BARRIER:
        return NotSupportedError(
            "The virtual GPU does not support __syncthreads() in a function that calls itself or is called "
            f"through a pointer ({location}). Call it by its name, or move the barrier out of it."
        )
    if fault.code == layout.NAN_PRODUCED:
        return errors.NanProducedError(
            f"kernel '{kernel_name}': {_fault_opcode(fault)} produced NaN although no operand is NaN "
            f"({location}). Look for 0/0, inf - inf, 0 * inf, or a root or logarithm of a negative number.",
            fault_site,
        )
    if fault.code == layout.CALLBACK_FAILED:
        return errors.LaunchFailure(f"kernel '{kernel_name}': {fault.message} ({location}).", fault_site)
    if fault.code in (layout.BARRIER_DEADLOCK, layout.DIVERGENT_BARRIER):
        return errors.LaunchFailure(
            f"kernel '{kernel_name}': {fault.message} ({location}). Every thread of the block must reach "
            "the same __syncthreads(): move it out of the branch.",
            fault_site,
        )
    if fault.code == layout.BAD_CALL:
        return errors.LaunchFailure(
            f"kernel '{kernel_name}' called a function through {_describe_callee(memory, fault.address)} "
            f"({location}). Take the address of a function in device code, not on the host, and store "
            "it in a pointer of the function's type.",
            fault_site,
        )
    if fault.code == layout.BAD_TEXTURE:
        object_kind, class_prefix = (
            ("texture", "Texture") if _fault_mnemonic(fault) == "tex" else ("surface", "Surface")
        )
        return errors.IllegalAddressError(
            f"kernel '{kernel_name}' used {fault.address:#x} as a {object_kind} object, but no such "
            "object has "
            f"this handle ({location}). Pass a live cp.cuda.texture.{class_prefix}Object, or its .ptr "
            "as np.uint64.",
            fault_site,
        )
    if fault.code == layout.ACCESS_OUTSIDE_SURFACE:
        return errors.IllegalAddressError(
            f"kernel '{kernel_name}' accessed a position outside of its surface ({location}). The first "
            "coordinate counts bytes, not elements. cudaBoundaryModeZero and cudaBoundaryModeClamp permit "
            "such accesses.",
            fault_site,
        )
    if fault.code == layout.UNMET_MEMBER_MASK:
        return errors.LaunchFailure(
            f"kernel '{kernel_name}': the mask of {_fault_opcode(fault)} names lanes that never execute it "
            f"({location}). Name only the lanes that execute it, for example with __ballot_sync "
            "before the branch.",
            fault_site,
        )
    if fault.code == layout.LANE_OUTSIDE_MASK:
        return errors.LaunchFailure(
            f"kernel '{kernel_name}': a lane executes {_fault_opcode(fault)}, but its mask does not name "
            f"that lane ({location}). Name every lane that executes it.",
            fault_site,
        )
    return errors.LaunchFailure(
        f"kernel '{kernel_name}' executed a trap ({location}).{_explain_trap(source_code)}", fault_site
    )


def _explain_trap(source_code: str) -> str:
    """Explain the most common causes of a trap that the source does not contain."""
    if "trap" in source_code:
        return ""
    if "this_grid" in source_code or "grid_group" in source_code:
        return (
            " The sync() of a grid works only in cooperative launches: create the kernel with "
            "RawKernel(..., enable_cooperative_groups=True)."
        )
    return (
        " The compiler inserts a trap where the behaviour is undefined, such as after an access through a "
        "null pointer: check the pointers in this line."
    )

"""LLVM IR for asynchronous copies, which complete when their thread waits for them, and for ``mbarrier``."""

from __future__ import annotations

import dataclasses

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import bulk_copies as bulk_ir
from virtualgpu.engine.ir import checks, lanes
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.lower import copy_queue
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError, PtxError
from virtualgpu.records.access import Rule

# An mbarrier's 64 bits: 20 for pending arrivals, 20 for expected arrivals, 3 for completed phases, 21 for
# bytes that copies must still deliver.
_COUNT_FIELD_MASK = (1 << 20) - 1
_PHASE_MASK = 7
# Marks the store of a copy, whose data arrive later, among the parts of its opcode.
ASYNC_COPY_MARK = "async"
_ACCESS_RULES: tuple[Rule, Rule] = ("load", "store")


ROOTS = {"cp", "mbarrier"}


def emit(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for ``cp.async`` or ``mbarrier``. Return False for an instruction of any other kind."""
    if instruction.root == "cp" and instruction.parts[1] == "async":
        _emit_copy(code, instruction)
    elif instruction.root == "mbarrier":
        _emit_mbarrier(code, instruction)
    else:
        return False
    return True


def find_group_changes(instruction: ir.Instruction) -> dict[str, int]:
    """Return the changes that an instruction makes to the counters for ``cp.async`` copy groups.

    The class ``KernelCounters`` describes these counters.
    """
    if instruction.root != "cp" or instruction.parts[1:2] != ("async",):
        return {}
    opcode_prefix = ".".join(instruction.parts[:3])
    if opcode_prefix == "cp.async.wait_group":
        count_operand = instruction.operands[0]
        pending_groups = count_operand.value if isinstance(count_operand, ir.Immediate) else 0
        return {"cp.async.pending": pending_groups} if pending_groups else {"cp.async.wait_all": 1}
    return {opcode_prefix: 1} if opcode_prefix in ("cp.async.commit_group", "cp.async.wait_all") else {}


def _emit_copy(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``cp.async``: a copy of 4, 8 or 16 bytes per lane from global to shared memory.

    Bytes beyond the source size are set to zero.
    """
    emitter = code.emitter
    executed_lanes = code.executed_mask(instruction)
    if instruction.parts[2] == "bulk" and instruction.parts[3] in ("commit_group", "wait_group"):
        return  # copies from shared memory complete at once
    code.tables.copy_instruction_count += 1
    if instruction.parts[2] == "commit_group":
        emitter.raw(f"call void @{copy_queue.make_commit_function(code)}(ptr %ctx, i32 {executed_lanes})")
        return
    if instruction.parts[2] in ("wait_group", "wait_all"):
        count_operand = instruction.operands[0] if instruction.operands else None
        if instruction.parts[2] == "wait_all":
            emitter.raw(f"call void @{copy_queue.make_commit_function(code)}(ptr %ctx, i32 {executed_lanes})")
        elif not isinstance(count_operand, ir.Immediate):
            raise PtxError(f"{instruction.text!r} (line {instruction.line}) needs a number of groups.")
        pending_groups = count_operand.value if isinstance(count_operand, ir.Immediate) else 0
        emitter.raw(
            f"call void @{copy_queue.make_wait_function(code)}(ptr %ctx, i32 {executed_lanes}, i32 {pending_groups & 0x7FFFFFFF})"
        )
        return
    if "bulk" in instruction.parts:
        _emit_bulk_copy(code, instruction)
        return
    if "mbarrier" in instruction.parts:
        _emit_arrival_after_copies(code, instruction)
        return
    size_operand = instruction.operands[2]
    assert isinstance(size_operand, ir.Immediate)
    copied_bytes = size_operand.value
    if copied_bytes not in (4, 8, 16):
        raise PtxError(
            f"{instruction.text!r} (line {instruction.line}) copies {copied_bytes} bytes. Copy 4, 8 or 16 bytes."
        )
    shared_address = memory_ops.address_of(code, instruction.operands[0], "shared")
    source_address = memory_ops.address_of(code, instruction.operands[1], "global")
    from_host = memory_ops.host_addresses(
        code,
        memory_ops.make_plain_access(instruction, "ld", "global", copied_bytes),
        source_address,
        "global",
        copied_bytes,
    )
    store_access = memory_ops.make_plain_access(instruction, "st", "shared", copied_bytes)
    store_access = dataclasses.replace(store_access, parts=("st", ASYNC_COPY_MARK, *store_access.parts[1:]))
    to_host = memory_ops.host_addresses(code, store_access, shared_address, "shared", copied_bytes)
    access_index = len(code.tables.accesses) - 1
    size_limit = instruction.operands[3] if len(instruction.operands) > 3 else None
    source_bytes = code.get(size_limit, "u32") if isinstance(size_limit, ir.Register | ir.Immediate) else None
    copied_words = "%copied.words"
    alloca_line = f"  {copied_words} = alloca [4 x <32 x i32>], align 64"
    if alloca_line not in code.allocas:
        code.allocas.append(alloca_line)
    for byte_offset in range(0, copied_bytes, 4):
        address = emitter.binary("add", "i64", from_host, constant("i64", byte_offset))
        value = memory_ops.gather(code, address, executed_lanes, "b32")
        if source_bytes is not None:
            has_source = emitter.compare("ugt", "i32", source_bytes, constant("i32", byte_offset))
            value = emitter.select("i32", has_source, value, constant("i32", 0))
        row_pointer = emitter.op(f"getelementptr i8, ptr {copied_words}, i64 {32 * byte_offset}")
        emitter.raw(f"store <32 x i32> {value}, ptr {row_pointer}, align 64")
    emitter.raw(
        f"call void @{copy_queue.make_begin_function(code)}(ptr %ctx, <32 x i64> {to_host}, i32 {executed_lanes}, ptr {copied_words}, "
        f"i32 {copied_bytes // 4}, i32 {access_index}, i64 0)"
    )


def _emit_bulk_copy(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``cp.async.bulk``: a copy of a range of bytes per lane to or from shared memory.

    Copies to shared memory signal an mbarrier.
    """
    emitter = code.emitter
    mask = code.executed_mask(instruction)
    state_spaces = [
        modifier.split("::")[0]
        for modifier in instruction.parts
        if modifier.split("::")[0] in ("shared", "global")
    ]
    if instruction.parts[3] not in ("shared::cta", "shared::cluster", "global") or sorted(state_spaces) != [
        "global",
        "shared",
    ]:
        raise NotSupportedError(
            f"The virtual GPU does not support {instruction.opcode}. It has neither tensor maps nor clusters "
            "of blocks. Copy contiguous bytes within a block, with cuda::memcpy_async."
        )
    if any(modifier.startswith("multicast") or modifier == "cp_mask" for modifier in instruction.parts):
        raise NotSupportedError(
            f"The virtual GPU does not support {instruction.opcode}. It has no clusters of blocks. Let each "
            "block copy its own data."
        )
    to_shared = state_spaces[0] == "shared"
    piece_bytes = bulk_ir.PIECE_BYTES
    addresses = []
    for operand, space in zip(instruction.operands[:2], state_spaces, strict=True):
        address = memory_ops.address_of(code, operand, space)
        addresses.append(emitter.cast(address, "i32", "i64") if space == "shared" else address)
    size_lanes = emitter.cast(code.get(instruction.operands[2], "u32"), "i32", "i64")
    barrier_host = "zeroinitializer"
    barrier_access = memory_ops.make_plain_access(instruction, "atom", "shared", 8)
    barrier_address = ""
    if to_shared:
        barrier_address = memory_ops.address_of(code, instruction.operands[3], "shared")
        barrier_host = memory_ops.host_addresses(code, barrier_access, barrier_address, "shared", 8)
    barrier_site = len(code.tables.accesses) - 1
    load_access, store_access = (
        memory_ops.make_plain_access(instruction, *root_and_space, piece_bytes)
        for root_and_space in (("ld", state_spaces[1]), ("st", state_spaces[0]))
    )
    if to_shared:
        store_access = dataclasses.replace(
            store_access, parts=("st", ASYNC_COPY_MARK, *store_access.parts[1:])
        )
    access_numbers = code.assign_access_number(load_access), code.assign_access_number(store_access)
    name = "bulk_to_shared" if to_shared else "bulk_to_global"
    if name not in code.tables.support_functions:
        check_functions = []
        for space, rule in zip(reversed(state_spaces), _ACCESS_RULES, strict=True):
            check_of_space = checks.make_shared_check if space == "shared" else checks.make_global_check
            check_functions.append(check_of_space(piece_bytes, code.options.with_counters, rule))
        for check_function in check_functions:
            code.add_support_function(*check_function)
        code.add_support_function(*lanes.make_gather("i32"))
        code.add_support_function(*lanes.make_scatter("i32"))
        check_names = check_functions[0][0], check_functions[1][0]
        begin_function = copy_queue.make_begin_function(code) if to_shared else ""
        complete_function = _make_update_function(code) if to_shared else ""
        code.add_support_function(
            name,
            bulk_ir.make_bulk_copy(
                name,
                to_shared,
                code.options.is_observed,
                code.options.is_traced,
                check_names,
                begin_function,
                complete_function,
            ),
        )
    failed = emitter.op(
        f"call i1 @{name}(ptr %ctx, <32 x i64> {addresses[0]}, <32 x i64> {addresses[1]}, <32 x i64> {size_lanes}, "
        f"<32 x i64> {barrier_host}, i32 {mask}, i32 {code.index}, i32 {instruction.pc}, i32 {access_numbers[0]}, i32 {access_numbers[1]})"
    )
    code.leave_on_fault(failed)
    if to_shared and code.options.is_observed:  # the copied data are ordered before the barrier's phase
        code.report_to_observer(barrier_site, emitter.cast(barrier_address, "i32", "i64"), mask)


def _emit_arrival_after_copies(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``cp.async.mbarrier.arrive``: the lanes' copies complete with the phase of the mbarrier.

    With ``.noinc``, the lanes arrive. Without it, the barrier also expects one more arrival, so that
    nothing changes.
    """
    mask = code.executed_mask(instruction)
    space = memory_ops.space_of(instruction)

    def bind_copies(host_addresses: str) -> None:
        code.emitter.raw(
            f"call void @{copy_queue.make_bind_function(code)}(ptr %ctx, i32 {mask}, <32 x i64> {host_addresses})"
        )

    address = memory_ops.address_of(code, instruction.operands[0], space)
    barrier_access = memory_ops.make_plain_access(instruction, "atom", space, 8)
    barrier_host = memory_ops.host_addresses(
        code, barrier_access, address, space, 8, emit_preparation=bind_copies
    )
    if "noinc" in instruction.parts:
        _emit_arrivals(code, barrier_host, mask, constant("i64", 1), drops_arrivals=False)


_UPDATE_PARAMETERS = "ptr %ctx, <32 x i64> %a, i32 %mask, <32 x i64> %count, i64 %drop, <32 x i64> %bytes"
# Lanes arrive `count` times and change the pending bytes; a phase is over when no arrivals or bytes are
# pending.
_UPDATE_TEMPLATE = (
    """
declare i64 @llvm.smax.i64(i64, i64)
define internal <32 x i64> @mbarrier_update(GIVEN) noinline {
entry:
  %as = alloca <32 x i64>
  %cs = alloca <32 x i64>
  %bs = alloca <32 x i64>
  %os = alloca <32 x i64>
  store <32 x i64> %a, ptr %as
  store <32 x i64> %count, ptr %cs
  store <32 x i64> %bytes, ptr %bs
  store <32 x i64> zeroinitializer, ptr %os
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %FROM]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %ap = getelementptr i64, ptr %as, i32 %l
  %i = load i64, ptr %ap
  %p = inttoptr i64 %i to ptr
  %cp = getelementptr i64, ptr %cs, i32 %l
  %n = load i64, ptr %cp
  %old = load i64, ptr %p, align 8
  %pending = and i64 %old, FIELD
  %e.s = lshr i64 %old, 20
  %expected = and i64 %e.s, FIELD
  %p.s = lshr i64 %old, 40
  %phase = and i64 %p.s, PHASES
  %owed = ashr i64 %old, 43
  %bp = getelementptr i64, ptr %bs, i32 %l
  %more = load i64, ptr %bp
  %owed1 = add i64 %owed, %more
  %gone = mul i64 %n, %drop
  %expected1 = sub i64 %expected, %gone
  %pending0 = sub i64 %pending, %n
  %pending1 = call i64 @llvm.smax.i64(i64 %pending0, i64 0)
  %missing = or i64 %pending1, %owed1
  %last = icmp eq i64 %missing, 0
  %pending2 = select i1 %last, i64 %expected1, i64 %pending1
  %step = zext i1 %last to i64
  %phase0 = add i64 %phase, %step
  %phase1 = and i64 %phase0, PHASES
  %x.e = shl i64 %expected1, 20
  %x.p = shl i64 %phase1, 40
  %x1 = or i64 %pending2, %x.e
  %x.o = shl i64 %owed1, 43
  %x2 = or i64 %x1, %x.p
  %x3 = or i64 %x2, %x.o
  store i64 %x3, ptr %p, align 8
  %op = getelementptr i64, ptr %os, i32 %l
  store i64 %old, ptr %op
  %minus = sub i32 %rest, 1
  %rest1 = and i32 %rest, %minus
LAND  br label %loop
done:
  %r = load <32 x i64>, ptr %os
  ret <32 x i64> %r
}
""".replace("FIELD", str(_COUNT_FIELD_MASK))
    .replace("PHASES", str(_PHASE_MASK))
    .replace("GIVEN", _UPDATE_PARAMETERS)
)
_PHASE_END_TEXT = """  br i1 %last, label %over.now, label %on
over.now:
  call void @{land}(ptr %ctx, i64 %i)
  br label %on
on:
"""


def _binds_copies(code: WarpCode) -> bool:
    return any(
        instruction.root == "cp" and any(modifier.startswith("mbarrier") for modifier in instruction.parts)
        for function_plan in code.plans.values()
        for instruction in function_plan.function.instructions
    )


def _make_update_function(code: WarpCode) -> str:
    """Return the name of the LLVM function that counts arrivals and bytes of mbarriers."""
    if "mbarrier_update" not in code.tables.support_functions:
        binds_copies = _binds_copies(code)
        function_text = _UPDATE_TEMPLATE.replace("FROM", "on" if binds_copies else "lane")
        code.add_support_function(
            "mbarrier_update",
            function_text.replace(
                "LAND",
                _PHASE_END_TEXT.format(land=copy_queue.make_phase_end_function(code)) if binds_copies else "",
            ),
        )
    return "mbarrier_update"


def _emit_arrivals(
    code: WarpCode,
    host_addresses: str,
    mask: str,
    count: str,
    *,
    drops_arrivals: bool,
    expected_bytes: str = "zeroinitializer",
) -> str:
    """Emit arrivals at mbarriers, `count` per lane, and return the old states of the mbarriers.

    `expected_bytes` is added to the bytes for which each mbarrier waits.
    """
    old_states = code.emitter.op(
        f"call <32 x i64> @{_make_update_function(code)}(ptr %ctx, <32 x i64> {host_addresses}, i32 {mask}, <32 x i64> {count}, "
        f"i64 {int(drops_arrivals)}, <32 x i64> {expected_bytes})"
    )
    if code.options.is_traced:
        code.trace_write(memory_ops.gather(code, host_addresses, mask, "b64"), "i64", host_addresses, mask)
    return old_states


_MBARRIER_OPERATIONS = (
    "init",
    "inval",
    "arrive",
    "arrive_drop",
    "expect_tx",
    "complete_tx",
    "test_wait",
    "try_wait",
    "pending_count",
)


def _emit_mbarrier(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    operation = instruction.parts[1]
    if operation not in _MBARRIER_OPERATIONS:
        raise NotSupportedError(f"The virtual GPU does not support {instruction.opcode}.")
    operands = list(instruction.operands)
    if operation == "pending_count":
        pending_count = emitter.binary(
            "and", "i64", code.get(operands[1], "b64"), constant("i64", _COUNT_FIELD_MASK)
        )
        code.set(operands[0], emitter.cast(pending_count, "i64", "i32"), "u32")
        return
    destination = None if isinstance(operands[0], ir.Address) else operands.pop(0)
    if len(operands) and not isinstance(operands[0], ir.Address):
        destination = operands.pop(0)
    space = memory_ops.space_of(instruction)
    address = memory_ops.address_of(code, operands[0], space)
    barrier_host = memory_ops.host_addresses(
        code, memory_ops.make_plain_access(instruction, "atom", space, 8), address, space, 8
    )
    mask = code.executed_mask(instruction)
    if operation in ("init", "inval"):
        arrival_count = (
            emitter.cast(code.get(operands[1], "u32"), "i32", "i64")
            if operation == "init"
            else constant("i64", 0)
        )
        pending_and_expected = emitter.binary(
            "or", "i64", arrival_count, emitter.binary("shl", "i64", arrival_count, constant("i64", 20))
        )
        memory_ops.scatter(code, pending_and_expected, barrier_host, mask, "b64")
    elif operation in ("arrive", "arrive_drop"):
        arrival_count = (
            emitter.cast(code.get(operands[1], "u32"), "i32", "i64")
            if len(operands) > 1
            else constant("i64", 1)
        )
        expected_bytes = "zeroinitializer"
        if "expect_tx" in instruction.parts:  # the operand after the address is a number of bytes
            expected_bytes = arrival_count
            arrival_count = constant("i64", 1)
        old_states = _emit_arrivals(
            code,
            barrier_host,
            mask,
            arrival_count,
            drops_arrivals=operation == "arrive_drop",
            expected_bytes=expected_bytes,
        )
        if isinstance(destination, ir.Register):
            code.set(destination, old_states, "b64")
    elif operation in ("expect_tx", "complete_tx"):
        expected_bytes = emitter.cast(code.get(operands[1], "u32"), "i32", "i64")
        if operation == "complete_tx":
            expected_bytes = emitter.binary("sub", "i64", constant("i64", 0), expected_bytes)
        _emit_arrivals(
            code, barrier_host, mask, constant("i64", 0), drops_arrivals=False, expected_bytes=expected_bytes
        )
    else:
        phase_shift = constant("i64", 40)
        phase = emitter.binary("lshr", "i64", memory_ops.gather(code, barrier_host, mask, "b64"), phase_shift)
        phase = emitter.binary("and", "i64", phase, constant("i64", _PHASE_MASK))
        if "parity" in instruction.parts:
            phase = emitter.binary("and", "i64", phase, constant("i64", 1))
            awaited_phase = emitter.cast(code.get(operands[1], "u32"), "i32", "i64")
        else:
            awaited_phase = emitter.binary("lshr", "i64", code.get(operands[1], "b64"), phase_shift)
            awaited_phase = emitter.binary("and", "i64", awaited_phase, constant("i64", _PHASE_MASK))
        code.set(destination, emitter.compare("ne", "i64", phase, awaited_phase), "pred")

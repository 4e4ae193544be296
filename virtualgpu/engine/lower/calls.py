"""LLVM IR for calls of device functions, ``printf``, ``assert``, ``malloc`` and ``free``."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow.callgraph import split_call
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.ir.text import LANE_INDICES
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError, PtxError

MAX_DEPTH = 256
# Least number of arguments of calls to functions that the engine implements itself.
_MIN_ARGUMENT_COUNTS = {"vprintf": 2, "__assertfail": 4, "malloc": 1, "free": 1}


ROOTS = {"call"}


def emit(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for a call. Return False for an instruction of any other kind."""
    if instruction.root != "call":
        return False
    name, arguments, results = split_call(instruction)
    if len(arguments) < _MIN_ARGUMENT_COUNTS.get(name, 0):
        raise PtxError(f"{instruction.text!r}: {name} takes {_MIN_ARGUMENT_COUNTS[name]} arguments.")
    if name == "":
        _emit_indirect_call(code, instruction, arguments, results)
    elif name in ("malloc", "free"):
        _emit_heap_call(code, instruction, name, arguments, results)
    elif name == "vprintf":
        _emit_printf_call(code, instruction, arguments, results)
    elif name == "__assertfail":
        _emit_assert(code, instruction, arguments)
    elif name in code.plans:
        _emit_call(code, instruction, name, arguments, results)
    else:
        raise NotSupportedError(
            f"The virtual GPU does not have the device function {name}. Define it in the kernel's source."
        )
    return True


def _emit_call(
    code: WarpCode,
    instruction: ir.Instruction,
    name: str,
    arguments: list[str],
    results: list[str],
    lanes: str = "",
) -> None:
    """Emit a call of a function for the active lanes (or some of them) that waits until all have returned."""
    emitter = code.emitter
    callee = code.plans[name]
    lanes = lanes or code.executed_mask(instruction)
    depth = emitter.context_load("depth")
    is_too_deep = emitter.op(f"icmp sge i32 {depth}, {MAX_DEPTH}")
    overflow_label = emitter.name("deep")
    within_limit_label = emitter.name("fits")
    emitter.raw(f"br i1 {is_too_deep}, label %{overflow_label}, label %{within_limit_label}")
    code.begin_block(overflow_label)
    code.emit_fault(layout.STACK_OVERFLOW, instruction.pc, lanes)
    code.begin_block(within_limit_label)
    emitter.context_store("depth", emitter.op(f"add i32 {depth}, 1"))
    callee_frame = emitter.op(f"getelementptr i8, ptr %frame, i64 {code.plan.frame_bytes}")
    local_address = emitter.op(f"add i64 %local_at, {code.plan.local_bytes}")
    active_lanes = emitter.mask_vector(lanes)
    initial_pcs = emitter.select("i32", active_lanes, constant("i32", 0), constant("i32", layout.EXITED))
    emitter.raw(f"store <32 x i32> {initial_pcs}, ptr {callee_frame}, align 64")
    turns_pointer = emitter.op(f"getelementptr i8, ptr {callee_frame}, i64 {layout.SPENT_BUDGETS_OFFSET}")
    emitter.raw(f"store i32 0, ptr {turns_pointer}")
    cursor_pointer = emitter.op(f"getelementptr i8, ptr {callee_frame}, i64 {layout.LAST_BLOCK_OFFSET}")
    emitter.raw(f"store i32 -1, ptr {cursor_pointer}")
    for parameter, argument_name in zip(callee.function.params, arguments, strict=True):
        _emit_parameter_copy(
            code,
            callee_frame,
            callee.parameter_records[parameter.name],
            "%frame",
            code.parameter_record(argument_name),
        )
    status = emitter.op(
        f"call i32 @{callee.symbol}(ptr %ctx, ptr {callee_frame}, i32 {lanes}, i64 {local_address})"
    )
    failed = emitter.op(f"icmp eq i32 {status}, {layout.STATUS_FAULT}")
    code.leave_on_fault(failed)
    emitter.context_store("depth", depth)
    for parameter, argument_name in zip(callee.function.returns, results, strict=True):
        _emit_result_copy(
            code,
            code.parameter_record(argument_name),
            callee_frame,
            callee.parameter_records[parameter.name],
            lanes,
        )
    _emit_exited_removal(code)


def _emit_parameter_copy(
    code: WarpCode,
    target_pointer: str,
    to_record: tuple[int, int],
    source_pointer: str,
    from_record: tuple[int, int],
) -> None:
    """Emit a copy of a parameter in all lanes from one frame to another."""
    emitter = code.emitter
    to_pointer = emitter.op(f"getelementptr i8, ptr {target_pointer}, i64 {to_record[0]}")
    from_pointer = emitter.op(f"getelementptr i8, ptr {source_pointer}, i64 {from_record[0]}")
    copied_bytes = 32 * min(to_record[1], from_record[1])
    emitter.declared.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    emitter.raw(
        f"call void @llvm.memcpy.p0.p0.i64(ptr {to_pointer}, ptr {from_pointer}, i64 {copied_bytes}, i1 false)"
    )


def _emit_result_copy(
    code: WarpCode, to_record: tuple[int, int], callee_frame: str, from_record: tuple[int, int], lanes: str
) -> None:
    """Copy a result from the callee's frame to the caller's frame, for the lanes that made the call."""
    emitter = code.emitter
    for byte_offset in range(0, min(to_record[1], from_record[1]), 8):
        host_addresses = []
        for frame_pointer, (offset, stride) in (("%frame", to_record), (callee_frame, from_record)):
            record_address = emitter.op(
                f"add i64 {emitter.op(f'ptrtoint ptr {frame_pointer} to i64')}, {offset + byte_offset}"
            )
            offsets = emitter.binary("mul", "i64", LANE_INDICES, constant("i64", stride))
            host_addresses.append(emitter.binary("add", "i64", emitter.splat("i64", record_address), offsets))
        memory_ops.scatter(
            code, memory_ops.gather(code, host_addresses[1], lanes, "b64"), host_addresses[0], lanes, "b64"
        )


def _emit_indirect_call(
    code: WarpCode, instruction: ir.Instruction, arguments: list[str], results: list[str]
) -> None:
    """Emit a call through a pointer: a call of each possible function for the lanes that point to it."""
    emitter = code.emitter
    function_pointer = code.get(
        instruction.operands[1]
        if isinstance(instruction.operands[0], ir.Vector)
        else instruction.operands[0],
        "u64",
    )
    remaining_lanes = code.executed_mask(instruction)
    possible_callees = [
        callee_plan
        for callee_plan in code.plans.values()
        if not callee_plan.function.is_entry
        and len(callee_plan.function.params) == len(arguments)
        and len(callee_plan.function.returns) == len(results)
    ]
    for possible_callee in possible_callees:
        callee_name = possible_callee.function.name
        matching_lanes = emitter.compare(
            "eq", "i64", function_pointer, constant("i64", function_address(code.module, callee_name))
        )
        lanes = emitter.op(f"and i32 {emitter.mask_bits(matching_lanes)}, {remaining_lanes}")
        remaining_lanes = emitter.op(f"and i32 {remaining_lanes}, {emitter.op(f'xor i32 {lanes}, -1')}")
        call_label = emitter.name("via")
        next_label = emitter.name("on")
        label_before = code.current_label
        mask = code.mask
        any_lane = emitter.op(f"icmp ne i32 {lanes}, 0")
        emitter.raw(f"br i1 {any_lane}, label %{call_label}, label %{next_label}")
        code.begin_block(call_label)
        _emit_call(code, instruction, callee_name, arguments, results, lanes)
        label_after = code.current_label
        mask_after = code.mask
        emitter.raw(f"br label %{next_label}")
        code.begin_block(next_label)
        code.mask = emitter.op(f"phi i32 [{mask}, %{label_before}], [{mask_after}, %{label_after}]")
    code.emit_fault_if(remaining_lanes, layout.BAD_CALL, instruction.pc, function_pointer)


def function_address(module: ir.Module, name: str) -> int:
    """Return the integer that represents a pointer to a device function."""
    return layout.FUNCTION_TAG | list(module.functions).index(name)


def emit_service_call(
    code: WarpCode, instruction: ir.Instruction, request: object, inputs: list[str], output_count: int
) -> list[str]:
    """Emit a call of Python code, which the worker runs. The inputs and outputs are vectors with one 64-bit
    value per lane.

    `request` describes the call to the worker.
    """
    emitter = code.emitter
    code.tables.services.append(request)
    service_index = len(code.tables.services) - 1
    input_rows = code.allocate_scratch(f"[{max(len(inputs), 1)} x <32 x i64>]")
    output_rows = code.allocate_scratch(f"[{max(output_count, 1)} x <32 x i64>]")
    for n, input_value in enumerate(inputs):
        row_pointer = emitter.op(f"getelementptr i8, ptr {input_rows}, i64 {256 * n}")
        emitter.raw(f"store <32 x i64> {input_value}, ptr {row_pointer}")
    function = emitter.op(f"inttoptr i64 {emitter.context_load('service')} to ptr")
    status = emitter.op(
        f"call i32 {function}(ptr %ctx, i32 {service_index}, ptr {input_rows}, i32 {len(inputs)}, ptr {output_rows}, "
        f"i32 {output_count}, i32 {code.executed_mask(instruction)})"
    )
    _emit_service_fault(code, instruction, status)
    output_pointers = [
        emitter.op(f"getelementptr i8, ptr {output_rows}, i64 {256 * n}") for n in range(output_count)
    ]
    return [emitter.op(f"load <32 x i64>, ptr {row_pointer}") for row_pointer in output_pointers]


def _emit_service_fault(code: WarpCode, instruction: ir.Instruction, service_status: str) -> None:
    """Emit a fault that occurs if a call of Python code returned a status other than 0."""
    emitter = code.emitter
    failed = emitter.op(f"icmp ne i32 {service_status}, 0")
    fault_label = emitter.name("bad")
    next_label = emitter.name("ok")
    emitter.raw(f"br i1 {failed}, label %{fault_label}, label %{next_label}")
    code.begin_block(fault_label)
    code.emit_fault(layout.CALLBACK_FAILED, instruction.pc, code.executed_mask(instruction))
    code.begin_block(next_label)


def _emit_heap_call(
    code: WarpCode, instruction: ir.Instruction, name: str, arguments: list[str], results: list[str]
) -> None:
    """Emit a call of ``malloc`` or ``free`` on the device."""
    emitter = code.emitter
    service_results = emit_service_call(
        code, instruction, (name,), [_load_argument(code, instruction, arguments[0])], len(results)
    )
    for result, result_value in zip(results, service_results, strict=True):
        record_offset, record_stride = code.parameter_record(result)
        result_address = emitter.splat(
            "i64", emitter.op(f"add i64 {emitter.op('ptrtoint ptr %frame to i64')}, {record_offset}")
        )
        host_addresses = emitter.binary(
            "add",
            "i64",
            result_address,
            emitter.binary("mul", "i64", LANE_INDICES, constant("i64", record_stride)),
        )
        memory_ops.scatter(code, result_value, host_addresses, code.executed_mask(instruction), "b64")


def _emit_exited_removal(code: WarpCode) -> None:
    """Emit code that removes lanes which executed ``exit`` inside the callee from this function."""
    emitter = code.emitter
    exited_lanes = emitter.context_load("exited")
    live_lanes = emitter.op(f"and i32 {code.mask}, {emitter.op(f'xor i32 {exited_lanes}, -1')}")
    lanes = emitter.mask_vector(emitter.op(f"and i32 {code.mask}, {exited_lanes}"))
    code.store_pcs(lanes, constant("i32", layout.EXITED))
    next_label = emitter.name("on")
    all_exited = emitter.op(f"icmp eq i32 {live_lanes}, 0")
    emitter.raw(f"br i1 {all_exited}, label %dispatch, label %{next_label}")
    code.begin_block(next_label)
    code.mask = live_lanes


def _load_argument(code: WarpCode, instruction: ir.Instruction, name: str) -> str:
    """Return the values of a 64-bit call argument in all lanes."""
    record_offset, record_stride = code.parameter_record(name)
    emitter = code.emitter
    frame_address = emitter.op("ptrtoint ptr %frame to i64")
    record_address = emitter.splat("i64", emitter.op(f"add i64 {frame_address}, {record_offset}"))
    lane_offsets = emitter.binary("mul", "i64", LANE_INDICES, constant("i64", record_stride))
    return memory_ops.gather(
        code,
        emitter.binary("add", "i64", record_address, lane_offsets),
        code.executed_mask(instruction),
        "b64",
    )


def _emit_printf_call(
    code: WarpCode, instruction: ir.Instruction, arguments: list[str], results: list[str]
) -> None:
    """Emit a call that passes the format and the argument pointers of every lane to Python."""
    emitter = code.emitter
    format_pointer = code.allocate_scratch("<32 x i64>")
    in_out_values_slot = code.allocate_scratch("<32 x i64>")
    emitter.raw(f"store <32 x i64> {_load_argument(code, instruction, arguments[0])}, ptr {format_pointer}")
    emitter.raw(
        f"store <32 x i64> {_load_argument(code, instruction, arguments[1])}, ptr {in_out_values_slot}"
    )
    function = emitter.op(f"inttoptr i64 {emitter.context_load('printf')} to ptr")
    status = emitter.op(
        f"call i32 {function}(ptr %ctx, ptr {format_pointer}, ptr {in_out_values_slot}, i32 {code.executed_mask(instruction)})"
    )
    _emit_service_fault(code, instruction, status)
    for result_name in results:
        record_offset, record_stride = code.parameter_record(result_name)
        result_address = emitter.splat(
            "i64", emitter.op(f"add i64 {emitter.op('ptrtoint ptr %frame to i64')}, {record_offset}")
        )
        lane_offsets = emitter.binary("mul", "i64", LANE_INDICES, constant("i64", record_stride))
        host_addresses = emitter.binary("add", "i64", result_address, lane_offsets)
        return_values = emitter.op(f"load <32 x i64>, ptr {in_out_values_slot}")
        memory_ops.scatter(
            code,
            emitter.cast(return_values, "i64", "i32"),
            host_addresses,
            code.executed_mask(instruction),
            "b32",
        )


def _emit_assert(code: WarpCode, instruction: ir.Instruction, arguments: list[str]) -> None:
    """Emit code that stores message, file, line and function for the report, and ends the kernel."""
    emitter = code.emitter
    lanes = code.executed_mask(instruction)
    first_lane = emitter.op(f"and i32 {emitter.op(f'call i32 @llvm.cttz.i32(i32 {lanes}, i1 false)')}, 31")
    for argument_index, argument_name in enumerate(arguments[:4]):
        argument_value = emitter.op(
            f"extractelement <32 x i64> {_load_argument(code, instruction, argument_name)}, i32 {first_lane}"
        )
        pointer = emitter.op(
            f"getelementptr i8, ptr %ctx, i64 {layout.get_field_offset('fault_extra') + 8 * argument_index}"
        )
        emitter.raw(f"store i64 {argument_value}, ptr {pointer}")
    any_lane = emitter.op(f"icmp ne i32 {lanes}, 0")
    fault_label = emitter.name("assert")
    next_label = emitter.name("ok")
    emitter.raw(f"br i1 {any_lane}, label %{fault_label}, label %{next_label}")
    code.begin_block(fault_label)
    code.emit_fault(layout.ASSERTED, instruction.pc, lanes)
    code.begin_block(next_label)

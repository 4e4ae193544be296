"""LLVM IR for loads, stores, atomics and the parameters of calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import checks, lanes, layout, rows
from virtualgpu.engine.ir.emit import INTRINSIC_SUFFIX, constant, get_bit_width, llvm_of
from virtualgpu.engine.ir.text import LANE_INDICES
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError, PtxError
from virtualgpu.records.access import Rule

_SPACES = ("global", "shared", "local", "const", "param")


def space_of(instruction: ir.Instruction) -> str:
    """Return the state space of a memory instruction. The result is ``generic`` if the instruction does not
    specify the space.
    """
    for modifier in instruction.parts[1:]:
        if modifier.split("::")[0] in _SPACES:
            return modifier.split("::")[0]
    return "generic"


def vector_width(instruction: ir.Instruction) -> int:
    """Return the number of elements that one lane accesses, such as 2 for ``.v2``."""
    return next(
        (int(modifier[1:]) for modifier in instruction.parts[1:] if modifier in ("v2", "v4", "v8")), 1
    )


def size_of(instruction: ir.Instruction) -> int:
    """Return the number of bytes that one lane accesses with a memory instruction."""
    return ir.TYPE_BYTES[instruction.type] * vector_width(instruction)


def kind_of(instruction: ir.Instruction) -> str:
    """Return the kind of a memory instruction, which is ``"load"``, ``"store"`` or ``"atomic"``."""
    return {"ld": "load", "ldu": "load", "st": "store"}.get(instruction.root, "atomic")


# Modifier of an access to the rows of 8x8 matrices, of 16 bytes each.
MATRIX_ROWS = "m8n8"


def rule_of(function: ir.Function, instruction: ir.Instruction) -> Rule:
    """Return the name of the cost rule for a memory access, such as ``"swap"``."""
    if MATRIX_ROWS in instruction.parts:
        return "matrix"
    if instruction.root not in ("atom", "red"):
        return "store" if instruction.root == "st" else "load"
    if "cas" in instruction.parts:
        return "swap"
    addend = instruction.operands[-1]
    if (
        "add" in instruction.parts
        and instruction.type in ("u32", "s32")
        and isinstance(addend, ir.Immediate)
        and addend.value == 1
    ):
        destination = instruction.operands[0] if instruction.root == "atom" else None
        if destination is None or not is_register_read(function, destination):
            return "count"
    return "atomic"


def is_register_read(function: ir.Function, operand: ir.Operand) -> bool:
    """Return whether any instruction of the function reads a register."""
    name = operand.name if isinstance(operand, ir.Register) else ""
    return any(name in cfg.find_definitions_and_uses(instruction)[1] for instruction in function.instructions)


def is_counted_access(instruction: ir.Instruction) -> bool:
    """Return whether an instruction is a memory access that is counted. Accesses to parameters are not
    counted.
    """
    return instruction.root in ("ld", "ldu", "st", "atom", "red") and space_of(instruction) != "param"


def make_plain_access(instruction: ir.Instruction, root: str, space: str, size: int) -> ir.Instruction:
    """Return a plain load or store instruction that accesses as many bytes as the given instruction.

    The checks and the counters use this instruction in place of the given one.
    """
    vector_modifier = () if size <= 8 else (f"v{size // 4}",)
    access_type = "b32" if size > 8 else f"b{8 * size}"
    opcode_parts = (root, *(() if space == "generic" else (space,)), *vector_modifier, access_type)
    return dataclasses.replace(instruction, opcode=".".join(opcode_parts), parts=opcode_parts)


ROOTS = {"ld", "ldu", "st", "atom", "red", "createpolicy"}


def emit(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for a memory instruction. Return False for an instruction of any other kind."""
    if instruction.root in ("ld", "ldu", "st"):
        if space_of(instruction) == "param":
            _emit_parameter_access(code, instruction)
        else:
            _emit_load_or_store(code, instruction)
    elif instruction.root in ("atom", "red"):
        _emit_atomic(code, instruction)
    elif instruction.root == "createpolicy":  # how long L2 keeps a line changes no result
        code.set(instruction.operands[0], constant("i64", 0), "b64")
    else:
        return False
    return True


def address_of(code: WarpCode, operand: ir.Operand | None, space: str) -> str:
    """Return the addresses of all lanes, with the type that the state space requires.

    Addresses in shared memory are i32 offsets, and other addresses are i64.
    """
    assert isinstance(operand, ir.Address)
    llvm_type = "i32" if space == "shared" else "i64"
    if isinstance(operand.base, ir.Register):
        register_type = code.function.registers[operand.base.name]
        value = code.emitter.cast(code.get(operand.base, register_type), llvm_of(register_type), llvm_type)
    elif isinstance(operand.base, ir.Immediate):
        value = constant(llvm_type, operand.base.value)
    else:
        value = code.get(operand.base, "u32" if space == "shared" else "u64")
    if operand.offset:
        value = code.emitter.binary("add", llvm_type, value, constant(llvm_type, operand.offset))
    return value


def host_addresses(
    code: WarpCode,
    instruction: ir.Instruction,
    address: str,
    space: str,
    size: int,
    stored_values: str = "",
    *,
    emit_preparation: Callable[[str], None] = lambda _: None,
    mask: str = "",
) -> str:
    """Emit the checks and the counters of a memory access, and return the host address of each lane.

    The function `emit_preparation` receives the addresses and emits code that runs before the observer call. `mask` is
    the mask of the lanes that have an address, if these are not all lanes that execute.
    """
    emitter = code.emitter
    mask = mask or code.executed_mask(instruction)
    access_index = code.assign_access_number(instruction)
    rule = rule_of(code.function, instruction)
    if space == "generic":
        resolver_name = add_generic_resolver(size, code, rule)
        host_address = code.emitter.op(
            f"call <32 x i64> @{resolver_name}(ptr %ctx, <32 x i64> {address}, i32 {mask}, "
            f"i32 {code.index}, i32 {instruction.pc}, i32 {access_index})"
        )
        has_failed = emitter.op(f"icmp ne i32 {emitter.context_load('fault_code')}, 0")
        code.leave_on_fault(has_failed)
        code.trace_address(address, mask)
        emit_preparation(host_address)
        if code.options.is_observed:
            code.report_to_observer(access_index, address, mask, stored_values)
        return host_address
    make_check = {"shared": checks.make_shared_check, "local": checks.make_local_check}.get(
        space, checks.make_global_check
    )
    name, check_text = make_check(size, code.options.with_counters, rule)
    code.add_support_function(name, check_text)
    address_row_type = "<32 x i32>" if space == "shared" else "<32 x i64>"
    has_failed = emitter.op(
        f"call i1 @{name}(ptr %ctx, {address_row_type} {address}, i32 {mask}, i32 {code.index}, i32 {instruction.pc}, i32 {access_index})"
    )
    if code.options.is_traced:
        reported_address = emitter.cast(address, "i32", "i64") if space == "shared" else address
        code.trace_address(reported_address, mask)
    code.leave_on_fault(has_failed)
    host_base = address
    if space == "shared":
        offset = emitter.convert("zext", "i32", address, "i64")
        host_base = emitter.binary("add", "i64", emitter.splat("i64", emitter.context_load("shared")), offset)
    elif space == "local":
        host_base = emitter.binary("add", "i64", emit_local_lane_bases(code), address)
    emit_preparation(host_base)
    if code.options.is_observed:
        reported_address = emitter.cast(address, "i32", "i64") if space == "shared" else address
        code.report_to_observer(access_index, reported_address, mask, stored_values)
    return host_base


def emit_local_lane_bases(code: WarpCode) -> str:
    """Return the host address of each lane's local memory (stack)."""
    emitter = code.emitter
    stride = emitter.splat("i64", emitter.context_load("local_bytes"))
    return emitter.binary(
        "add",
        "i64",
        emitter.splat("i64", emitter.context_load("local_base")),
        emitter.binary("mul", "i64", stride, LANE_INDICES),
    )


def add_generic_resolver(size: int, code: WarpCode, rule: Rule) -> str:
    """Return the name of an LLVM function that converts generic addresses to host addresses.

    Each lane's access is checked and counted by the rules of its own state space.
    """
    name = f"resolve_generic_{size}_{rule}"
    if name in code.tables.support_functions:
        return name
    check_functions = [
        make_check(size, code.options.with_counters, rule)
        for make_check in (checks.make_global_check, checks.make_shared_check)
    ]
    check_functions.append(checks.make_local_check(size, code.options.with_counters))
    for name_and_text in check_functions:
        code.add_support_function(*name_and_text)
    global_check_name, shared_check_name, local_check_name = (check_name for check_name, _ in check_functions)
    shared_offset, local_offset, local_bytes_offset = (
        layout.get_field_offset(field_name) for field_name in ("shared", "local_base", "local_bytes")
    )
    llvm_text = f"""
define internal <32 x i64> @{name}(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %function, i32 %pc, i32 %site) noinline {{
  %tag = lshr <32 x i64> %a, splat (i64 56)
  %plain = and <32 x i64> %a, splat (i64 {(1 << 56) - 1})
  %is.s = icmp eq <32 x i64> %tag, splat (i64 1)
  %is.l = icmp eq <32 x i64> %tag, splat (i64 2)
  %m.s0 = bitcast <32 x i1> %is.s to i32
  %m.l0 = bitcast <32 x i1> %is.l to i32
  %m.s = and i32 %m.s0, %mask
  %m.l = and i32 %m.l0, %mask
  %m.sl = or i32 %m.s0, %m.l0
  %m.g0 = xor i32 %m.sl, -1
  %m.g = and i32 %m.g0, %mask
  %off = trunc <32 x i64> %plain to <32 x i32>
  %f1 = call i1 @{global_check_name}(ptr %ctx, <32 x i64> %a, i32 %m.g, i32 %function, i32 %pc, i32 %site)
  %f2 = call i1 @{shared_check_name}(ptr %ctx, <32 x i32> %off, i32 %m.s, i32 %function, i32 %pc, i32 %site)
  %f3 = call i1 @{local_check_name}(ptr %ctx, <32 x i64> %plain, i32 %m.l, i32 %function, i32 %pc, i32 %site)
  %sp = getelementptr i8, ptr %ctx, i64 {shared_offset}
  %s = load i64, ptr %sp
  %sv0 = insertelement <32 x i64> poison, i64 %s, i32 0
  %sv = shufflevector <32 x i64> %sv0, <32 x i64> poison, <32 x i32> zeroinitializer
  %lp = getelementptr i8, ptr %ctx, i64 {local_offset}
  %l = load i64, ptr %lp
  %lv0 = insertelement <32 x i64> poison, i64 %l, i32 0
  %lv = shufflevector <32 x i64> %lv0, <32 x i64> poison, <32 x i32> zeroinitializer
  %bp = getelementptr i8, ptr %ctx, i64 {local_bytes_offset}
  %b = load i64, ptr %bp
  %bv0 = insertelement <32 x i64> poison, i64 %b, i32 0
  %bv = shufflevector <32 x i64> %bv0, <32 x i64> poison, <32 x i32> zeroinitializer
  %lane = mul <32 x i64> %bv, {LANE_INDICES}
  %lb = add <32 x i64> %lv, %lane
  %h.s = add <32 x i64> %sv, %plain
  %h.l = add <32 x i64> %lb, %plain
  %h1 = select <32 x i1> %is.s, <32 x i64> %h.s, <32 x i64> %a
  %h2 = select <32 x i1> %is.l, <32 x i64> %h.l, <32 x i64> %h1
  ret <32 x i64> %h2
}}
"""
    code.add_support_function(name, llvm_text)
    return name


def _emit_load_or_store(code: WarpCode, instruction: ir.Instruction) -> None:
    space = space_of(instruction)
    is_load = instruction.root != "st"
    register_operand, address_operand = instruction.operands[:2]
    if not is_load:
        register_operand, address_operand = address_operand, register_operand
    address = address_of(code, address_operand, space)
    if _is_plain_access(code, instruction, register_operand) and (
        space in ("global", "const") or (space == "shared" and is_load)
    ):
        _emit_plain_access(code, instruction, register_operand, address, space)
        return
    stored_values = ""
    if (
        code.options.is_observed
        and not is_load
        and not isinstance(register_operand, ir.Vector)
        and size_of(instruction) <= 8
    ):
        stored_values = code.emitter.cast(
            code.get(register_operand, instruction.type), llvm_of(instruction.type), "i64"
        )
    host_address = host_addresses(code, instruction, address, space, size_of(instruction), stored_values)
    mask = code.executed_mask(instruction)
    registers = register_operand.items if isinstance(register_operand, ir.Vector) else (register_operand,)
    item_bytes = ir.TYPE_BYTES[instruction.type]
    for position, register in enumerate(registers):
        item_address = (
            code.emitter.binary("add", "i64", host_address, constant("i64", position * item_bytes))
            if position
            else host_address
        )
        if is_load:
            if register is not None:
                code.set(register, gather(code, item_address, mask, instruction.type), instruction.type)
        else:
            scatter(code, code.get(register, instruction.type), item_address, mask, instruction.type)


def _is_plain_access(
    code: WarpCode, instruction: ir.Instruction, register_operand: ir.Operand | None
) -> bool:
    """Return whether an access moves one value of at most 8 bytes per lane without a trace or an observer.

    Eight bytes of shared memory have separate rules.
    """
    is_reported = code.options.is_traced or code.options.is_observed
    return (
        not is_reported
        and not isinstance(register_operand, ir.Vector)
        and size_of(instruction) <= (4 if space_of(instruction) == "shared" else 8)
    )


def _emit_plain_access(
    code: WarpCode, instruction: ir.Instruction, register_operand: ir.Operand | None, address: str, space: str
) -> None:
    """Emit a load or store, including checks and counters, as the call of one function."""
    emitter = code.emitter
    access_bytes = size_of(instruction)
    with_counters = code.options.with_counters
    llvm_type = f"i{8 * access_bytes}"
    is_load = instruction.root != "st"
    if space == "shared":
        support_functions = [
            checks.make_shared_check(access_bytes, with_counters),
            lanes.make_gather(llvm_type),
            rows.make_shared_load(llvm_type, with_counters),
        ]
    elif is_load:
        support_functions = [
            checks.make_global_check(access_bytes, with_counters),
            lanes.make_gather(llvm_type),
            rows.make_global_load(llvm_type, with_counters),
        ]
    else:
        support_functions = [
            checks.make_global_check(access_bytes, with_counters, "store"),
            lanes.make_scatter(llvm_type),
            rows.make_global_store(llvm_type, with_counters),
        ]
    for function in support_functions:
        code.add_support_function(*function)
    address_argument = f"<32 x {'i32' if space == 'shared' else 'i64'}> {address}"
    site_arguments = f"i32 {code.executed_mask(instruction)}, i32 {code.index}, i32 {instruction.pc}, i32 {code.assign_access_number(instruction)}"
    name = support_functions[-1][0]
    loaded_bits = ""
    if is_load:
        loaded_bits = emitter.op(
            f"call <32 x {llvm_type}> @{name}(ptr %ctx, {address_argument}, {site_arguments})"
        )
    else:
        stored_bits = emitter.cast(
            code.get(register_operand, instruction.type), llvm_of(instruction.type), llvm_type
        )
        emitter.raw(
            f"call void @{name}(ptr %ctx, <32 x {llvm_type}> {stored_bits}, {address_argument}, {site_arguments})"
        )
    code.leave_on_fault(emitter.op(f"icmp ne i32 {emitter.context_load('fault_code')}, 0"))
    if is_load and register_operand is not None:
        code.set(
            register_operand,
            emitter.cast(loaded_bits, llvm_type, llvm_of(instruction.type)),
            instruction.type,
        )


def gather(code: WarpCode, host_address: str, mask: str, ptx_type: str) -> str:
    """Emit a load of one value per lane from host addresses."""
    llvm_type = f"i{8 * ir.TYPE_BYTES[ptx_type]}"
    code.add_support_function(*lanes.make_gather(llvm_type))
    loaded_bits = code.emitter.op(
        f"call <32 x {llvm_type}> @gather_{llvm_type}(<32 x i64> {host_address}, i32 {mask})"
    )
    return code.emitter.cast(loaded_bits, llvm_type, llvm_of(ptx_type))


def scatter(code: WarpCode, value: str, host_address: str, mask: str, ptx_type: str) -> None:
    """Emit a store of one value per lane to host addresses."""
    llvm_type = f"i{8 * ir.TYPE_BYTES[ptx_type]}"
    code.add_support_function(*lanes.make_scatter(llvm_type))
    stored_bits = code.emitter.cast(value, llvm_of(ptx_type), llvm_type)
    code.emitter.raw(
        f"call void @scatter_{llvm_type}(<32 x {llvm_type}> {stored_bits}, <32 x i64> {host_address}, i32 {mask})"
    )
    code.trace_write(stored_bits, llvm_type, host_address, mask)


def _emit_parameter_access(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit an access to a parameter of the kernel or of a call.

    Kernel parameters are the same for all lanes. Call parameters are stored in the frame, with one record
    per lane.
    """
    is_load = instruction.root == "ld"
    register_operand, address = instruction.operands[:2]
    if not is_load:
        register_operand, address = address, register_operand
    assert isinstance(address, ir.Address)
    if not isinstance(address.base, ir.Symbol):
        if not (is_load and code.function.is_entry):
            raise NotSupportedError(
                f"The virtual GPU does not support {instruction.text!r}, because the address of the parameter is computed."
            )
        # An array among the kernel's parameters: constant memory on hardware too.
        modifiers = tuple(
            "const" if modifier.split("::")[0] == "param" else modifier for modifier in instruction.parts
        )
        _emit_load_or_store(
            code, dataclasses.replace(instruction, opcode=".".join(modifiers), parts=modifiers)
        )
        return
    registers = register_operand.items if isinstance(register_operand, ir.Vector) else (register_operand,)
    element_bytes = ir.TYPE_BYTES[instruction.type]
    parameter_offset = address.offset + address.base.offset
    _check_parameter_bounds(
        code, instruction, address.base.name, parameter_offset, len(registers) * element_bytes
    )
    for position, register in enumerate(registers):
        item_offset = parameter_offset + position * element_bytes
        if code.function.is_entry and address.base.name in code.entry_params:
            record_offset = code.entry_params[address.base.name].offset + item_offset
            base_pointer = code.emitter.op(f"inttoptr i64 {code.emitter.context_load('params')} to ptr")
            pointer = code.emitter.op(f"getelementptr i8, ptr {base_pointer}, i64 {record_offset}")
            llvm_type = f"i{8 * element_bytes}"
            scalar = code.emitter.op(f"load {llvm_type}, ptr {pointer}, align 1")
            if register is not None:
                code.set(
                    register,
                    code.emitter.cast(
                        code.emitter.splat(llvm_type, scalar), llvm_type, llvm_of(instruction.type)
                    ),
                    instruction.type,
                )
            continue
        record_offset, record_stride = code.parameter_record(address.base.name)
        base_pointer = code.emitter.op("ptrtoint ptr %frame to i64")
        record_address = code.emitter.splat(
            "i64", code.emitter.op(f"add i64 {base_pointer}, {record_offset + item_offset}")
        )
        lane_offsets = code.emitter.binary("mul", "i64", LANE_INDICES, constant("i64", record_stride))
        host_lane_addresses = code.emitter.binary("add", "i64", record_address, lane_offsets)
        if is_load:
            if register is not None:
                code.set(
                    register,
                    gather(code, host_lane_addresses, code.executed_mask(instruction), instruction.type),
                    instruction.type,
                )
        else:
            scatter(
                code,
                code.get(register, instruction.type),
                host_lane_addresses,
                code.executed_mask(instruction),
                instruction.type,
            )


def _check_parameter_bounds(
    code: WarpCode, instruction: ir.Instruction, name: str, offset: int, size: int
) -> None:
    """Raise an error for an access outside of a parameter, or a store to a kernel parameter."""
    is_kernel_parameter = code.function.is_entry and name in code.entry_params
    size_bytes = code.entry_params[name].size_bytes if is_kernel_parameter else code.parameter_record(name)[1]
    if offset < 0 or offset + size > size_bytes or (is_kernel_parameter and instruction.root == "st"):
        raise PtxError(
            f"{instruction.text!r} (line {instruction.line}) does not fit the parameter {name} of {size_bytes} bytes."
        )


_HALF_TYPES = ("f16", "bf16", "f16x2", "bf16x2")
_ATOMIC_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")


def _emit_atomic(code: WarpCode, instruction: ir.Instruction) -> None:
    space = space_of(instruction)
    ptx_type = instruction.type
    operation = next((modifier for modifier in instruction.parts[1:] if modifier in _ATOMIC_OPERATIONS), None)
    is_red = instruction.root == "red"
    operands = instruction.operands if is_red else instruction.operands[1:]
    values = operands[1].items if isinstance(operands[1], ir.Vector) else (operands[1],)
    supports_only_add = ptx_type in _HALF_TYPES or len(values) > 1
    if operation is None or ptx_type == "b128" or (supports_only_add and operation != "add"):
        raise NotSupportedError(f"The virtual GPU does not support {instruction.opcode}.")
    address = address_of(code, operands[0], space)
    host_address = host_addresses(code, instruction, address, space, size_of(instruction))
    ptx_type = (
        f"b{get_bit_width(llvm_of(ptx_type))}"
        if ptx_type not in _HALF_TYPES and operation in ("exch", "cas")
        else ptx_type
    )
    swap_value = operands[2] if operation == "cas" else operands[1]
    old_values = []
    for n, value in enumerate(values):
        element_address = host_address
        if n:
            element_address = code.emitter.binary(
                "add", "i64", host_address, constant("i64", n * ir.TYPE_BYTES[instruction.type])
            )
        old_value = _emit_read_modify_write(
            code,
            instruction,
            operation,
            ptx_type,
            element_address,
            value,
            swap_value if len(values) == 1 else value,
        )
        old_values.append(old_value)
    if is_red or instruction.operands[0] is None:
        return
    results = (
        instruction.operands[0].items
        if isinstance(instruction.operands[0], ir.Vector)
        else (instruction.operands[0],)
    )
    ptx_type = f"b{8 * ir.TYPE_BYTES[ptx_type]}" if ptx_type in _HALF_TYPES else ptx_type
    for result, old_value in zip(results, old_values, strict=True):
        if result is not None:
            code.set(result, old_value, ptx_type)


def _emit_read_modify_write(
    code: WarpCode,
    instruction: ir.Instruction,
    operation: str,
    ptx_type: str,
    host_address: str,
    value: ir.Operand | None,
    swap_value: ir.Operand | None,
) -> str:
    """Emit an atomic that changes one element per lane, and return the old values."""
    if ptx_type in _HALF_TYPES:
        ptx_type, (name, llvm_text) = f"b{8 * ir.TYPE_BYTES[ptx_type]}", lanes.make_atomic_half_add(ptx_type)
        llvm_type = llvm_of(ptx_type)
    else:
        llvm_type = llvm_of(ptx_type)
        if llvm_type in INTRINSIC_SUFFIX and operation != "add":
            raise NotSupportedError(f"The virtual GPU does not support {instruction.opcode}.")
        name, llvm_text = lanes.make_atomic(
            operation, llvm_type, ptx_type[0] == "s", flushes_subnormals=space_of(instruction) != "shared"
        )
    code.add_support_function(name, llvm_text)
    operand_value = code.get(value, ptx_type)
    swap_operand_value = code.get(swap_value, ptx_type)
    vector_type = f"<32 x {llvm_type}>"
    old_values = code.emitter.op(
        f"call {vector_type} @{name}(<32 x i64> {host_address}, i32 {code.executed_mask(instruction)}, {vector_type} {operand_value}, {vector_type} {swap_operand_value})"
    )
    if code.options.is_traced:  # the new contents: lanes that share an address see the last lane's result
        mask = code.executed_mask(instruction)
        integer_type = f"i{get_bit_width(llvm_type)}"
        code.trace_write(
            code.emitter.cast(gather(code, host_address, mask, ptx_type), llvm_type, integer_type),
            integer_type,
            host_address,
            mask,
        )
    return old_values

"""Calls as LLVM IR: device functions with their own frame, printf and assert."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow.callgraph import parts_of
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.ir.text import IOTA
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError, PtxError

MAX_DEPTH = 256
# Least number of arguments of calls to functions that the engine implements itself.
_ARGUMENTS = {"vprintf": 2, "__assertfail": 4, "malloc": 1, "free": 1}


ROOTS = {"call"}


def emit(c: WarpCode, i: ir.Instruction) -> bool:
    """Emit a call; return False for any other instruction."""
    if i.root != "call":
        return False
    name, arguments, results = parts_of(i)
    if len(arguments) < _ARGUMENTS.get(name, 0):
        raise PtxError(f"{i.text!r}: {name} takes {_ARGUMENTS[name]} arguments.")
    if name == "":
        _indirect(c, i, arguments, results)
    elif name in ("malloc", "free"):
        _heap(c, i, name, arguments, results)
    elif name == "vprintf":
        _printf(c, i, arguments, results)
    elif name == "__assertfail":
        _assert(c, i, arguments)
    elif name in c.plans:
        _call(c, i, name, arguments, results)
    else:
        raise NotSupportedError(
            f"The virtual GPU does not know the device function {name}; define it in the kernel's source."
        )
    return True


def _call(
    c: WarpCode,
    i: ir.Instruction,
    name: str,
    arguments: list[str],
    results: list[str],
    lanes: str = "",
) -> None:
    """Run the callee for the active lanes (or some of them) until all lanes have returned."""
    e = c.e
    callee = c.plans[name]
    lanes = lanes or c.executed(i)
    depth = e.context_load("depth")
    is_too_deep = e.op(f"icmp sge i32 {depth}, {MAX_DEPTH}")
    too_deep = e.name("deep")
    within_limit = e.name("fits")
    e.raw(f"br i1 {is_too_deep}, label %{too_deep}, label %{within_limit}")
    c.begin(too_deep)
    c.fault(layout.STACK_OVERFLOW, i.pc, lanes)
    c.begin(within_limit)
    e.context_store("depth", e.op(f"add i32 {depth}, 1"))
    frame = e.op(f"getelementptr i8, ptr %frame, i64 {c.plan.frame_bytes}")
    local = e.op(f"add i64 %local_at, {c.plan.local_bytes}")
    active = e.mask_vector(lanes)
    pcs = e.select("i32", active, constant("i32", 0), constant("i32", layout.EXITED))
    e.raw(f"store <32 x i32> {pcs}, ptr {frame}, align 64")
    turns_pointer = e.op(f"getelementptr i8, ptr {frame}, i64 {layout.TURNS_OFFSET}")
    e.raw(f"store i32 0, ptr {turns_pointer}")
    cursor = e.op(f"getelementptr i8, ptr {frame}, i64 {layout.CURSOR_OFFSET}")
    e.raw(f"store i32 -1, ptr {cursor}")
    for formal, actual in zip(callee.function.params, arguments, strict=True):
        _copy(c, frame, callee.records[formal.name], "%frame", c.parameter_record(actual))
    status = e.op(f"call i32 @{callee.symbol}(ptr %ctx, ptr {frame}, i32 {lanes}, i64 {local})")
    failed = e.op(f"icmp eq i32 {status}, {layout.FAULT}")
    c.leave_on_fault(failed)
    e.context_store("depth", depth)
    for formal, actual in zip(callee.function.returns, results, strict=True):
        _return(c, c.parameter_record(actual), frame, callee.records[formal.name], lanes)
    _drop_exited(c)


def _copy(
    c: WarpCode, target: str, to_record: tuple[int, int], source: str, from_record: tuple[int, int]
) -> None:
    e = c.e
    to_pointer = e.op(f"getelementptr i8, ptr {target}, i64 {to_record[0]}")
    from_pointer = e.op(f"getelementptr i8, ptr {source}, i64 {from_record[0]}")
    size = 32 * min(to_record[1], from_record[1])
    e.declared.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    e.raw(f"call void @llvm.memcpy.p0.p0.i64(ptr {to_pointer}, ptr {from_pointer}, i64 {size}, i1 false)")


def _return(
    c: WarpCode, to_record: tuple[int, int], frame: str, from_record: tuple[int, int], lanes: str
) -> None:
    """Copy a result from the callee's frame, for the lanes that made the call."""
    e = c.e
    for byte in range(0, min(to_record[1], from_record[1]), 8):
        host = []
        for base, (offset, stride) in (("%frame", to_record), (frame, from_record)):
            start = e.op(f"add i64 {e.op(f'ptrtoint ptr {base} to i64')}, {offset + byte}")
            offsets = e.binary("mul", "i64", IOTA, constant("i64", stride))
            host.append(e.binary("add", "i64", e.splat("i64", start), offsets))
        memory_ops.scatter(c, memory_ops.gather(c, host[1], lanes, "b64"), host[0], lanes, "b64")


def _indirect(c: WarpCode, i: ir.Instruction, arguments: list[str], results: list[str]) -> None:
    """Emit a call through a pointer: each possible function, for the lanes that call it."""
    e = c.e
    pointer = c.get(i.operands[1] if isinstance(i.operands[0], ir.Vector) else i.operands[0], "u64")
    remaining = c.executed(i)
    candidates = [
        p
        for p in c.plans.values()
        if not p.function.is_entry
        and len(p.function.params) == len(arguments)
        and len(p.function.returns) == len(results)
    ]
    for candidate in candidates:
        name = candidate.function.name
        matches = e.compare("eq", "i64", pointer, constant("i64", function_address(c.module, name)))
        lanes = e.op(f"and i32 {e.mask_bits(matches)}, {remaining}")
        remaining = e.op(f"and i32 {remaining}, {e.op(f'xor i32 {lanes}, -1')}")
        call_label = e.name("via")
        next_label = e.name("on")
        label_before = c.current_label
        mask = c.mask
        any_lane = e.op(f"icmp ne i32 {lanes}, 0")
        e.raw(f"br i1 {any_lane}, label %{call_label}, label %{next_label}")
        c.begin(call_label)
        _call(c, i, name, arguments, results, lanes)
        label_after = c.current_label
        mask_after = c.mask
        e.raw(f"br label %{next_label}")
        c.begin(next_label)
        c.mask = e.op(f"phi i32 [{mask}, %{label_before}], [{mask_after}, %{label_after}]")
    c.fault_if(remaining, layout.BAD_CALL, i.pc, pointer)


def function_address(module: ir.Module, name: str) -> int:
    """Return the value of a pointer to a device function."""
    return layout.FUNCTION_TAG | list(module.functions).index(name)


def service(c: WarpCode, i: ir.Instruction, request: object, inputs: list[str], outputs: int) -> list[str]:
    """Emit a call of a Python service, with rows of 64-bit lanes in and out.

    `request` describes it to the worker.
    """
    e = c.e
    c.tables.services.append(request)
    number = len(c.tables.services) - 1
    input_rows = c.scratch(f"[{max(len(inputs), 1)} x <32 x i64>]")
    output_rows = c.scratch(f"[{max(outputs, 1)} x <32 x i64>]")
    for n, value in enumerate(inputs):
        row = e.op(f"getelementptr i8, ptr {input_rows}, i64 {256 * n}")
        e.raw(f"store <32 x i64> {value}, ptr {row}")
    function = e.op(f"inttoptr i64 {e.context_load('service')} to ptr")
    status = e.op(
        f"call i32 {function}(ptr %ctx, i32 {number}, ptr {input_rows}, i32 {len(inputs)}, ptr {output_rows}, "
        f"i32 {outputs}, i32 {c.executed(i)})"
    )
    _fail_if(c, i, status)
    rows = [e.op(f"getelementptr i8, ptr {output_rows}, i64 {256 * n}") for n in range(outputs)]
    return [e.op(f"load <32 x i64>, ptr {row}") for row in rows]


def _fail_if(c: WarpCode, i: ir.Instruction, status: str) -> None:
    """Emit a fault for a callback that returned a value other than 0."""
    e = c.e
    failed = e.op(f"icmp ne i32 {status}, 0")
    fault_label = e.name("bad")
    next_label = e.name("ok")
    e.raw(f"br i1 {failed}, label %{fault_label}, label %{next_label}")
    c.begin(fault_label)
    c.fault(layout.CALLBACK_FAILED, i.pc, c.executed(i))
    c.begin(next_label)


def _heap(c: WarpCode, i: ir.Instruction, name: str, arguments: list[str], results: list[str]) -> None:
    """Device ``malloc`` and ``free``."""
    e = c.e
    values = service(c, i, (name,), [_argument(c, i, arguments[0])], len(results))
    for result, value in zip(results, values, strict=True):
        offset, record = c.parameter_record(result)
        start = e.splat("i64", e.op(f"add i64 {e.op('ptrtoint ptr %frame to i64')}, {offset}"))
        host = e.binary("add", "i64", start, e.binary("mul", "i64", IOTA, constant("i64", record)))
        memory_ops.scatter(c, value, host, c.executed(i), "b64")


def _drop_exited(c: WarpCode) -> None:
    """Let lanes that executed ``exit`` inside the callee leave this function too."""
    e = c.e
    exited = e.context_load("exited")
    remaining = e.op(f"and i32 {c.mask}, {e.op(f'xor i32 {exited}, -1')}")
    lanes = e.mask_vector(e.op(f"and i32 {c.mask}, {exited}"))
    c.store_pcs(lanes, constant("i32", layout.EXITED))
    next_label = e.name("on")
    all_exited = e.op(f"icmp eq i32 {remaining}, 0")
    e.raw(f"br i1 {all_exited}, label %dispatch, label %{next_label}")
    c.begin(next_label)
    c.mask = remaining


def _argument(c: WarpCode, i: ir.Instruction, name: str) -> str:
    """Return the lanes of a 64-bit call argument."""
    offset, record = c.parameter_record(name)
    e = c.e
    base = e.op("ptrtoint ptr %frame to i64")
    start = e.splat("i64", e.op(f"add i64 {base}, {offset}"))
    lanes = e.binary("mul", "i64", IOTA, constant("i64", record))
    return memory_ops.gather(c, e.binary("add", "i64", start, lanes), c.executed(i), "b64")


def _printf(c: WarpCode, i: ir.Instruction, arguments: list[str], results: list[str]) -> None:
    """Pass the format and argument pointers of every lane to Python."""
    e = c.e
    formats = c.scratch("<32 x i64>")
    values = c.scratch("<32 x i64>")
    e.raw(f"store <32 x i64> {_argument(c, i, arguments[0])}, ptr {formats}")
    e.raw(f"store <32 x i64> {_argument(c, i, arguments[1])}, ptr {values}")
    function = e.op(f"inttoptr i64 {e.context_load('printf')} to ptr")
    status = e.op(f"call i32 {function}(ptr %ctx, ptr {formats}, ptr {values}, i32 {c.executed(i)})")
    _fail_if(c, i, status)
    for name in results:
        offset, record = c.parameter_record(name)
        start = e.splat("i64", e.op(f"add i64 {e.op('ptrtoint ptr %frame to i64')}, {offset}"))
        lanes = e.binary("mul", "i64", IOTA, constant("i64", record))
        host = e.binary("add", "i64", start, lanes)
        count = e.op(f"load <32 x i64>, ptr {values}")
        memory_ops.scatter(c, e.cast(count, "i64", "i32"), host, c.executed(i), "b32")


def _assert(c: WarpCode, i: ir.Instruction, arguments: list[str]) -> None:
    """Store message, file, line and function for the report, and end the kernel."""
    e = c.e
    lanes = c.executed(i)
    first_lane = e.op(f"and i32 {e.op(f'call i32 @llvm.cttz.i32(i32 {lanes}, i1 false)')}, 31")
    for position, name in enumerate(arguments[:4]):
        value = e.op(f"extractelement <32 x i64> {_argument(c, i, name)}, i32 {first_lane}")
        pointer = e.op(f"getelementptr i8, ptr %ctx, i64 {layout.offset('fault_extra') + 8 * position}")
        e.raw(f"store i64 {value}, ptr {pointer}")
    any_lane = e.op(f"icmp ne i32 {lanes}, 0")
    fault_label = e.name("assert")
    next_label = e.name("ok")
    e.raw(f"br i1 {any_lane}, label %{fault_label}, label %{next_label}")
    c.begin(fault_label)
    c.fault(layout.ASSERTED, i.pc, lanes)
    c.begin(next_label)

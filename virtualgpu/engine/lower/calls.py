"""Calls as LLVM IR: device functions with a frame of their own, printf and assert."""

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
# What calls to functions the engine has itself must pass at least.
_ARGUMENTS = {"vprintf": 2, "__assertfail": 4, "malloc": 1, "free": 1}


ROOTS = {"call"}


def emit(c: WarpCode, i: ir.Instruction) -> bool:
    """Emit a call; False if the instruction is none."""
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
    """Run the callee for the active lanes (or some of them) until all have returned."""
    e = c.e
    callee = c.plans[name]
    lanes = lanes or c.executed(i)
    depth = e.context_load("depth")
    deep = e.op(f"icmp sge i32 {depth}, {MAX_DEPTH}")
    over = e.name("deep")
    fits = e.name("fits")
    e.raw(f"br i1 {deep}, label %{over}, label %{fits}")
    c.begin(over)
    c.fault(layout.STACK_OVERFLOW, i.pc, lanes)
    c.begin(fits)
    e.context_store("depth", e.op(f"add i32 {depth}, 1"))
    frame = e.op(f"getelementptr i8, ptr %frame, i64 {c.plan.frame_bytes}")
    local = e.op(f"add i64 %local_at, {c.plan.local_bytes}")
    active = e.mask_vector(lanes)
    pcs = e.select("i32", active, constant("i32", 0), constant("i32", layout.EXITED))
    e.raw(f"store <32 x i32> {pcs}, ptr {frame}, align 64")
    turns = e.op(f"getelementptr i8, ptr {frame}, i64 {layout.TURNS_OFFSET}")
    e.raw(f"store i32 0, ptr {turns}")
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


def _copy(c: WarpCode, target: str, to: tuple[int, int], source: str, at: tuple[int, int]) -> None:
    e = c.e
    to_pointer = e.op(f"getelementptr i8, ptr {target}, i64 {to[0]}")
    from_pointer = e.op(f"getelementptr i8, ptr {source}, i64 {at[0]}")
    size = 32 * min(to[1], at[1])
    e.declared.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    e.raw(f"call void @llvm.memcpy.p0.p0.i64(ptr {to_pointer}, ptr {from_pointer}, i64 {size}, i1 false)")


def _return(c: WarpCode, to: tuple[int, int], frame: str, at: tuple[int, int], lanes: str) -> None:
    """Copy a result from the callee's frame, for the lanes that called."""
    e = c.e
    for place in range(0, min(to[1], at[1]), 8):
        host = []
        for base, (offset, stride) in (("%frame", to), (frame, at)):
            start = e.op(f"add i64 {e.op(f'ptrtoint ptr {base} to i64')}, {offset + place}")
            offsets = e.binary("mul", "i64", IOTA, constant("i64", stride))
            host.append(e.binary("add", "i64", e.splat("i64", start), offsets))
        memory_ops.scatter(c, memory_ops.gather(c, host[1], lanes, "b64"), host[0], lanes, "b64")


def _indirect(c: WarpCode, i: ir.Instruction, arguments: list[str], results: list[str]) -> None:
    """A call through a pointer: each function it may mean, for the lanes that mean it."""
    e = c.e
    pointer = c.get(i.operands[1] if isinstance(i.operands[0], ir.Vector) else i.operands[0], "u64")
    left = c.executed(i)
    candidates = [
        p
        for p in c.plans.values()
        if not p.function.is_entry
        and len(p.function.params) == len(arguments)
        and len(p.function.returns) == len(results)
    ]
    for candidate in candidates:
        name = candidate.function.name
        hit = e.compare("eq", "i64", pointer, constant("i64", function_address(c.module, name)))
        chosen = e.op(f"and i32 {e.mask_bits(hit)}, {left}")
        left = e.op(f"and i32 {left}, {e.op(f'xor i32 {chosen}, -1')}")
        go = e.name("via")
        onward = e.name("on")
        before = c.here
        mask = c.mask
        some = e.op(f"icmp ne i32 {chosen}, 0")
        e.raw(f"br i1 {some}, label %{go}, label %{onward}")
        c.begin(go)
        _call(c, i, name, arguments, results, chosen)
        after = c.here
        left_over = c.mask
        e.raw(f"br label %{onward}")
        c.begin(onward)
        c.mask = e.op(f"phi i32 [{mask}, %{before}], [{left_over}, %{after}]")
    c.fault_if(left, layout.BAD_CALL, i.pc, pointer)


def function_address(module: ir.Module, name: str) -> int:
    """What a pointer to a device function holds."""
    return layout.FUNCTION_TAG | list(module.functions).index(name)


def service(c: WarpCode, i: ir.Instruction, what: object, inputs: list[str], outputs: int) -> list[str]:
    """Ask Python: rows of 64-bit lanes in and out. `what` tells the worker what is asked."""
    e = c.e
    c.tables.services.append(what)
    number = len(c.tables.services) - 1
    given = c.scratch(f"[{max(len(inputs), 1)} x <32 x i64>]")
    taken = c.scratch(f"[{max(outputs, 1)} x <32 x i64>]")
    for n, value in enumerate(inputs):
        place = e.op(f"getelementptr i8, ptr {given}, i64 {256 * n}")
        e.raw(f"store <32 x i64> {value}, ptr {place}")
    function = e.op(f"inttoptr i64 {e.context_load('service')} to ptr")
    status = e.op(
        f"call i32 {function}(ptr %ctx, i32 {number}, ptr {given}, i32 {len(inputs)}, ptr {taken}, "
        f"i32 {outputs}, i32 {c.executed(i)})"
    )
    _fail_if(c, i, status)
    places = [e.op(f"getelementptr i8, ptr {taken}, i64 {256 * n}") for n in range(outputs)]
    return [e.op(f"load <32 x i64>, ptr {place}") for place in places]


def _fail_if(c: WarpCode, i: ir.Instruction, status: str) -> None:
    """Fault where a callback answered anything but 0."""
    e = c.e
    failed = e.op(f"icmp ne i32 {status}, 0")
    hit = e.name("bad")
    onward = e.name("ok")
    e.raw(f"br i1 {failed}, label %{hit}, label %{onward}")
    c.begin(hit)
    c.fault(layout.CALLBACK_FAILED, i.pc, c.executed(i))
    c.begin(onward)


def _heap(c: WarpCode, i: ir.Instruction, name: str, arguments: list[str], results: list[str]) -> None:
    """Device ``malloc`` and ``free``."""
    e = c.e
    out = service(c, i, (name,), [_argument(c, i, arguments[0])], len(results))
    for result, value in zip(results, out, strict=True):
        place, record = c.parameter_record(result)
        start = e.splat("i64", e.op(f"add i64 {e.op('ptrtoint ptr %frame to i64')}, {place}"))
        host = e.binary("add", "i64", start, e.binary("mul", "i64", IOTA, constant("i64", record)))
        memory_ops.scatter(c, value, host, c.executed(i), "b64")


def _drop_exited(c: WarpCode) -> None:
    """Lanes that executed ``exit`` inside the callee leave this function too."""
    e = c.e
    gone = e.context_load("exited")
    left = e.op(f"and i32 {c.mask}, {e.op(f'xor i32 {gone}, -1')}")
    lanes = e.mask_vector(e.op(f"and i32 {c.mask}, {gone}"))
    c.store_pcs(lanes, constant("i32", layout.EXITED))
    onward = e.name("on")
    none = e.op(f"icmp eq i32 {left}, 0")
    e.raw(f"br i1 {none}, label %dispatch, label %{onward}")
    c.begin(onward)
    c.mask = left


def _argument(c: WarpCode, i: ir.Instruction, name: str) -> str:
    """Lanes of a 64-bit call argument."""
    place, record = c.parameter_record(name)
    e = c.e
    base = e.op("ptrtoint ptr %frame to i64")
    start = e.splat("i64", e.op(f"add i64 {base}, {place}"))
    lanes = e.binary("mul", "i64", IOTA, constant("i64", record))
    return memory_ops.gather(c, e.binary("add", "i64", start, lanes), c.executed(i), "b64")


def _printf(c: WarpCode, i: ir.Instruction, arguments: list[str], results: list[str]) -> None:
    """Hand format and argument pointers of every lane to Python."""
    e = c.e
    formats = c.scratch("<32 x i64>")
    values = c.scratch("<32 x i64>")
    e.raw(f"store <32 x i64> {_argument(c, i, arguments[0])}, ptr {formats}")
    e.raw(f"store <32 x i64> {_argument(c, i, arguments[1])}, ptr {values}")
    function = e.op(f"inttoptr i64 {e.context_load('printf')} to ptr")
    status = e.op(f"call i32 {function}(ptr %ctx, ptr {formats}, ptr {values}, i32 {c.executed(i)})")
    _fail_if(c, i, status)
    for name in results:
        place, record = c.parameter_record(name)
        start = e.splat("i64", e.op(f"add i64 {e.op('ptrtoint ptr %frame to i64')}, {place}"))
        lanes = e.binary("mul", "i64", IOTA, constant("i64", record))
        host = e.binary("add", "i64", start, lanes)
        count = e.op(f"load <32 x i64>, ptr {values}")
        memory_ops.scatter(c, e.cast(count, "i64", "i32"), host, c.executed(i), "b32")


def _assert(c: WarpCode, i: ir.Instruction, arguments: list[str]) -> None:
    """Keep message, file, line and function for the report and end the kernel."""
    e = c.e
    lanes = c.executed(i)
    first = e.op(f"and i32 {e.op(f'call i32 @llvm.cttz.i32(i32 {lanes}, i1 false)')}, 31")
    for position, name in enumerate(arguments[:4]):
        value = e.op(f"extractelement <32 x i64> {_argument(c, i, name)}, i32 {first}")
        pointer = e.op(f"getelementptr i8, ptr %ctx, i64 {layout.offset('fault_extra') + 8 * position}")
        e.raw(f"store i64 {value}, ptr {pointer}")
    some = e.op(f"icmp ne i32 {lanes}, 0")
    hit = e.name("assert")
    onward = e.name("ok")
    e.raw(f"br i1 {some}, label %{hit}, label %{onward}")
    c.begin(hit)
    c.fault(layout.ASSERTED, i.pc, lanes)
    c.begin(onward)

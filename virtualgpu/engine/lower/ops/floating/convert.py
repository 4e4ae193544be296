"""Conversions, moves and address-space changes of each lane, as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import bits, constant, llvm_of
from virtualgpu.engine.lower.ops.floating import floats, narrow
from virtualgpu.engine.lower.ops.floating.rounding import directed, directed_from_integer
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError


def emit(c: WarpCode, i: ir.Instruction) -> bool:
    """Emit a conversion or move; return False for any other instruction."""
    handler = HANDLERS.get(i.root)
    if handler is None:
        return False
    handler(c, i)
    return True


_ROUND_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _cvt(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    if narrow.convert(c, i):
        return
    if i.parts[-1] in ("f16x2", "bf16x2") or i.parts[-2] in ("f16x2", "bf16x2"):
        _cvt_pack(c, i)
        return
    target = i.parts[-2]
    source = i.parts[-1]
    value = c.get(i.operands[1], source)
    target_llvm = llvm_of(target)
    source_llvm = llvm_of(source)
    if source == "bf16":
        value = floats.widen_bf16(c, value)
        source = "f32"
        source_llvm = "float"
    elif source == "f16":
        value = floats.widen_half(c, value)
        source_llvm = "float"
    if floats.is_float(source) and "ftz" in i.parts and source == "f32":
        value = floats.flush(c, source_llvm, value)
    from_float = floats.is_float(source)
    to_float = floats.is_float(target)
    rounding = next((p for p in i.parts if p in _ROUND_TO_INTEGER), None)
    if from_float and rounding:
        value = e.intrinsic(_ROUND_TO_INTEGER[rounding], source_llvm, value)
    if from_float and to_float:
        value = _float_to_float(c, i, value, source_llvm, target)
    elif from_float:
        value = _float_to_integer(c, value, source_llvm, target)
    elif to_float:
        value = _integer_to_float(c, i, value, source, target)
    else:
        if "sat" in i.parts:
            value = _saturate_integer(c, value, source, target)
        value = e.cast(value, source_llvm, target_llvm, source[0] == "s")
    c.set(i.operands[0], value, target)


def _float_to_float(c: WarpCode, i: ir.Instruction, value: str, source: str, target: str) -> str:
    e = c.e
    llvm = "float" if target == "bf16" else llvm_of(target)
    mode = floats.rounding(i)
    if source == "double" and target in ("f16", "bf16"):  # LLVM has no function for it here
        value = floats.odd_float(c, value)
        source = "float"
    if bits(source) < bits(llvm):
        value = e.convert("fpext", source, value, llvm)
    elif bits(source) > bits(llvm) and mode != "rn" and llvm != "half":
        value = directed(c, "fptrunc", mode, llvm, source, value)
    elif bits(source) > bits(llvm):
        nearest = e.convert("fptrunc", source, value, llvm)
        if mode != "rn":
            widened = e.convert("fpext", llvm, nearest, source)
            is_below, is_above = (
                e.compare(predicate, source, value, widened) for predicate in ("olt", "ogt")
            )
            nearest = floats.correct_rounding(c, llvm, nearest, is_below, is_above, mode)
        value = nearest
    if "sat" in i.parts:
        value = floats.saturate(c, llvm, value)
    if "relu" in i.parts:
        value = floats.relu(c, llvm, value)
    if target == "f32" and "ftz" in i.parts:
        value = floats.flush(c, llvm, value)
    if target == "bf16":
        value = floats.narrow_bf16(c, value, mode)
    return value


def _float_to_integer(c: WarpCode, value: str, source: str, target: str) -> str:
    """Emit a saturating conversion; NaN becomes 0, or the sign bit alone if either type has 64 bits."""
    e = c.e
    llvm = llvm_of(target)
    name = "fptosi.sat" if target[0] == "s" else "fptoui.sat"
    suffix = {"half": "f16", "float": "f32", "double": "f64"}[source]
    full = f"llvm.{name}.v32{llvm}.v32{suffix}"
    e.declared.add(f"declare <32 x {llvm}> @{full}(<32 x {source}>)")
    result = e.op(f"call <32 x {llvm}> @{full}(<32 x {source}> {value})")
    if bits(llvm) == 64 or source == "double":
        nan = e.compare("uno", source, value, value)
        result = e.select(llvm, nan, constant(llvm, 1 << (bits(llvm) - 1)), result)
    return result


def _integer_to_float(c: WarpCode, i: ir.Instruction, value: str, source: str, target: str) -> str:
    e = c.e
    integer_type = llvm_of(source)
    conversion = "sitofp" if source[0] == "s" else "uitofp"
    mode = floats.rounding(i)
    if target in ("f32", "f64"):
        llvm = llvm_of(target)
        if mode != "rn":
            value = directed_from_integer(c, mode, llvm, source, value)
        else:
            value = e.convert(conversion, integer_type, value, llvm)
        return floats.saturate(c, llvm, value) if "sat" in i.parts else value
    if bits(integer_type) <= 16:
        as_float = e.convert(conversion, integer_type, value, "float")
    else:
        truncated = directed_from_integer(c, "rz", "float", source, value)
        converted_back = _float_to_integer(c, truncated, "float", source)
        as_float = floats.make_odd(c, truncated, e.compare("ne", integer_type, converted_back, value))
    return _float_to_float(c, i, as_float, "float", target)


def _saturate_integer(c: WarpCode, value: str, source: str, target: str) -> str:
    e = c.e
    llvm = llvm_of(source)
    width = int(target[1:])
    low = -(1 << (width - 1)) if target[0] == "s" else 0
    high = (1 << (width - 1)) - 1 if target[0] == "s" else (1 << width) - 1
    if source[0] == "s":
        if width < bits(llvm) or target[0] == "u":
            value = e.intrinsic("smax", llvm, value, constant(llvm, low))
        if width < bits(llvm):
            value = e.intrinsic("smin", llvm, value, constant(llvm, high))
    elif high < (1 << bits(llvm)) - 1:
        value = e.intrinsic("umin", llvm, value, constant(llvm, high))
    return value


def _cvt_pack(c: WarpCode, i: ir.Instruction) -> None:
    """Emit two floats rounded into one packed word; the first source is the upper half."""
    target = i.parts[-2]
    source = i.parts[-1]
    if source != "f32" or target not in ("f16x2", "bf16x2"):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    halves = []
    for operand in i.operands[1:3]:
        value = _float_to_float(c, i, c.get(operand, "f32"), "float", target[:-2])
        halves.append(c.e.cast(c.e.cast(value, llvm_of(target[:-2]), "i16"), "i16", "i32"))
    high = c.e.binary("shl", "i32", halves[0], constant("i32", 16))
    c.set(i.operands[0], c.e.binary("or", "i32", high, halves[1]), "b32")


def _mov(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    target = i.operands[0]
    source = i.operands[1]
    if isinstance(target, ir.Vector):
        width = bits(llvm_of(i.type)) // len(target.items)
        vector_bits = c.get(source, f"b{width * len(target.items)}")
        llvm = f"i{width * len(target.items)}"
        for position, item in enumerate(target.items):
            if item is not None:
                element = (
                    e.binary("lshr", llvm, vector_bits, constant(llvm, position * width))
                    if position
                    else vector_bits
                )
                c.set(item, e.cast(element, llvm, f"i{width}"), f"b{width}")
    elif isinstance(source, ir.Vector):
        width = bits(llvm_of(i.type)) // len(source.items)
        llvm = f"i{width * len(source.items)}"
        vector_bits = constant(llvm, 0)
        for position, item in enumerate(source.items):
            element = e.cast(c.get(item, f"b{width}"), f"i{width}", llvm)
            if position:
                element = e.binary("shl", llvm, element, constant(llvm, position * width))
            vector_bits = e.binary("or", llvm, vector_bits, element)
        c.set(target, vector_bits, f"b{width * len(source.items)}")
    else:
        c.set(target, c.get(source, i.type), i.type)


_TAGS = {"shared": layout.SHARED_TAG, "local": layout.LOCAL_TAG}


def _cvta(c: WarpCode, i: ir.Instruction) -> None:
    """Emit a conversion between addresses of a state space and generic addresses (a tag in the top byte)."""
    e = c.e
    value = c.get(i.operands[1], "u64")
    space = next((p.split("::")[0] for p in i.parts if p.split("::")[0] in _TAGS), None)
    if space:
        tag = _TAGS[space]
        if "to" in i.parts:
            value = e.binary(
                "and", "i64", value, constant("i64", tag - 1 if space == "shared" else (1 << 56) - 1)
            )
        else:
            value = e.binary("or", "i64", value, constant("i64", tag))
    c.set(i.operands[0], value, i.type)


def _isspacep(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    space = i.parts[1].split("::")[0]
    tag = e.binary("lshr", "i64", c.get(i.operands[1], "u64"), constant("i64", 56))
    expected = {"shared": 1, "local": 2}.get(space, 0)
    c.set(i.operands[0], e.compare("eq", "i64", tag, constant("i64", expected)), "pred")


HANDLERS: dict[str, Callable[[WarpCode, ir.Instruction], None]] = {
    "cvt": _cvt,
    "mov": _mov,
    "cvta": _cvta,
    "isspacep": _isspacep,
}
ROOTS = HANDLERS.keys()

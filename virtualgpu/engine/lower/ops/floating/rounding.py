"""Floating-point operations rounded toward zero, down or up, with the rounding modes of the processor."""

from __future__ import annotations

from virtualgpu.engine.ir.emit import INTRINSIC_SUFFIX, constant, get_bit_width, llvm_of, vector
from virtualgpu.engine.lower.warp_code import WarpCode

# PTX's rounding modes as `llvm.set.rounding` numbers them; 1 is to nearest, the mode for all other code.
_LLVM_ROUNDING_MODES = {"rz": 0, "rp": 2, "rm": 3}
_CONVERSION_OPERATIONS = ("fptrunc", "sitofp")


def emit_directed_operation(
    code: WarpCode, operation: str, mode: str, target_type: str, source_type: str, *values: str
) -> str:
    """Emit a floating-point operation with a directed rounding mode.

    The string `operation` is the LLVM name of an operation, such as ``fadd``, ``fma`` or ``sitofp``.
    """
    function_name = f"{operation}_{mode}_{source_type}_{target_type}"
    overloaded_types = [target_type, source_type] if operation in _CONVERSION_OPERATIONS else [target_type]
    type_suffix = "".join(f".v32{INTRINSIC_SUFFIX.get(t, t)}" for t in overloaded_types)
    intrinsic = f"llvm.experimental.constrained.{operation}{type_suffix}"
    row_type = vector(source_type)
    result_type = vector(target_type)
    argument_types = ", ".join([row_type] * len(values))
    argument_names = [f"%a{n}" for n in range(len(values))]
    parameters = ", ".join(f"{row_type} {n}" for n in argument_names)
    code.add_support_function(
        function_name,
        f"""
declare void @llvm.set.rounding(i32)
declare {result_type} @{intrinsic}({argument_types}, metadata, metadata)
define internal {result_type} @{function_name}({parameters}) noinline strictfp {{
  call void @llvm.set.rounding(i32 {_LLVM_ROUNDING_MODES[mode]}) strictfp
  %r = call {result_type} @{intrinsic}({parameters}, metadata !"round.dynamic", metadata !"fpexcept.ignore") strictfp
  call void @llvm.set.rounding(i32 1) strictfp
  ret {result_type} %r
}}
""",
    )
    return code.emitter.op(
        f"call {result_type} @{function_name}({', '.join(f'{row_type} {v}' for v in values)})"
    )


def emit_directed_integer_conversion(
    code: WarpCode, mode: str, target_type: str, integer_kind: str, value: str
) -> str:
    """Emit code that converts PTX integers to floats with a directed rounding mode.

    The integers are first converted to signed 64-bit integers. If a processor has no instruction for unsigned
    integers, LLVM adds and subtracts a magic number, which converts 0 to -0 when rounding down.
    """
    emitter = code.emitter
    integer_type = llvm_of(integer_kind)
    if integer_kind[0] == "s" or get_bit_width(integer_type) < 64:
        extended_integer = emitter.cast(value, integer_type, "i64", integer_kind[0] == "s")
        return emit_directed_operation(code, "sitofp", mode, target_type, "i64", extended_integer)
    one = constant("i64", 1)
    is_large = emitter.compare("slt", "i64", value, constant("i64", 0))
    # Half of a large number, with the lost bit kept in its last bit, rounds like the number itself.
    halved_value = emitter.binary(
        "or",
        "i64",
        emitter.binary("lshr", "i64", value, one),
        emitter.binary("and", "i64", value, one),
    )
    rounded_float = emit_directed_operation(
        code, "sitofp", mode, target_type, "i64", emitter.select("i64", is_large, halved_value, value)
    )
    return emitter.select(
        target_type,
        is_large,
        emitter.binary("fadd", target_type, rounded_float, rounded_float),
        rounded_float,
    )

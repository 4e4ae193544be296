"""Number of arithmetic operations of an instruction, as rooflines and tables of peak rates count them."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.ops.matrices import tensor

_ONE_FLOP_OPERATIONS = (
    "add",
    "sub",
    "mul",
    "div",
    "rcp",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "ex2",
    "lg2",
    "tanh",
)
_TWO_FLOP_OPERATIONS = ("fma", "mad")
_NUMBERS_PER_LANE = {
    "f16": ("f16", 1),
    "f16x2": ("f16", 2),
    "bf16": ("bf16", 1),
    "bf16x2": ("bf16", 2),
    "f32": ("f32", 1),
    "f64": ("f64", 1),
}
# Types of factors for which tensor cores have a rate in common.
_FACTOR_FORMATS = {"e4m3": "f8", "e5m2": "f8", "u8": "s8"}


def count_operations(instruction: ir.Instruction) -> tuple[str, int]:
    """Return the data type of a CUDA core instruction, and the number of floating-point operations per lane.

    For most instructions, the result is ("", 0).

    A sum, product, quotient, root or function counts as one, a multiply-add as two, a pair of numbers as
    twice that. Sums by atomics count; comparisons and conversions do not.
    """
    # The opcode in the PTX text: an operation that ptxas fuses is one instruction here, after its own
    # product.
    tokens = instruction.text.split()
    opcode_parts = (tokens[1] if tokens[0].startswith("@") else tokens[0]).rstrip(";").split(".")
    mnemonic = opcode_parts[0]
    number_type, numbers_per_lane = _NUMBERS_PER_LANE.get(instruction.type, ("", 0))
    if mnemonic in ("atom", "red"):
        return (number_type, numbers_per_lane) if "add" in opcode_parts else ("", 0)
    flops_per_number = 0
    if mnemonic in _ONE_FLOP_OPERATIONS:
        flops_per_number = 1
    elif mnemonic in _TWO_FLOP_OPERATIONS:
        flops_per_number = 2
    return (number_type, flops_per_number * numbers_per_lane) if flops_per_number and number_type else ("", 0)


def count_tensor_operations(instruction: ir.Instruction) -> tuple[str, int]:
    """Return the number format of a tensor core instruction, and the number of operations per lane.

    For other instructions, the result is ("", 0).

    A matrix multiplication counts as 2 m n k operations of a warp. The format names the types of the factors
    and of the accumulator, such as ``f16 to f32``.
    """
    if not tensor.is_matrix_product(instruction):
        return "", 0
    _, factor_type, _, accumulator_type = tensor.types_of(instruction)
    m, n, k = tensor.shape_of(instruction)
    return (
        f"{_FACTOR_FORMATS.get(factor_type, factor_type)} to {accumulator_type}",
        2 * m * n * k // layout.LANES,
    )

"""Functions that write LLVM IR for warps; a PTX register becomes a vector of 32 lanes."""

from __future__ import annotations

import struct

from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.text import LANE_BITS
from virtualgpu.errors import NotSupportedError

LLVM_OF_PTX = {
    "pred": "i1",
    **{f"{type_letter}8": "i8" for type_letter in "bus"},
    **{f"{type_letter}16": "i16" for type_letter in "bus"},
    **{f"{type_letter}32": "i32" for type_letter in "bus"},
    **{f"{type_letter}64": "i64" for type_letter in "bus"},
    "f16": "half",
    "bf16": "i16",
    "f16x2": "i32",
    "bf16x2": "i32",
    "f32": "float",
    "f64": "double",
    "b128": "i128",
}
_BIT_WIDTHS = {"i1": 1, "half": 16, "float": 32, "double": 64}
INTRINSIC_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


def get_bit_width(llvm_type: str) -> int:
    """Return the width in bits of a scalar LLVM type."""
    return _BIT_WIDTHS.get(llvm_type) or int(llvm_type[1:])


def llvm_of(ptx_type: str) -> str:
    """Return the scalar LLVM type for values of a PTX type."""
    try:
        return LLVM_OF_PTX[ptx_type]
    except KeyError:
        raise NotSupportedError(f"The virtual GPU does not support the PTX type .{ptx_type}.") from None


def vector(llvm_type: str) -> str:
    """Return the LLVM type of a vector with 32 lanes of a scalar type."""
    return f"<{layout.LANES} x {llvm_type}>"


def constant(llvm_type: str, value: int) -> str:
    """Return an LLVM vector constant with the same integer in all 32 lanes."""
    return f"splat ({llvm_type} {convert_to_signed(value, get_bit_width(llvm_type))})"


def convert_to_signed(value: int, width: int) -> int:
    """Convert an integer to a signed number in two's complement of a given width, as LLVM requires."""
    if width == 1:
        return value & 1
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def float_constant(llvm_type: str, bit_pattern: int) -> str:
    """Return an LLVM vector constant with the same floating-point number in all lanes. The number is given as
    its bits.
    """
    if llvm_type == "double":
        return f"splat (double 0x{bit_pattern:016X})"
    if llvm_type == "half":
        return f"splat (half 0xH{bit_pattern & 0xFFFF:04X})"
    # LLVM spells a float as the double of the same value; a signalling NaN must keep its payload.
    sign_bit = bit_pattern >> 31
    exponent = bit_pattern >> 23 & 0xFF
    fraction = bit_pattern & 0x7FFFFF
    if exponent == 0xFF:
        double_bits = sign_bit << 63 | 0x7FF << 52 | fraction << 29
    else:
        (value,) = struct.unpack("<f", bit_pattern.to_bytes(4, "little"))
        double_bits = int.from_bytes(struct.pack("<d", value), "little")
    return f"splat (float 0x{double_bits:016X})"


class Emitter:
    """A builder for the text of one LLVM function, which also names temporary values.

    The attribute `has_mask_registers` is true for processors with mask registers, such as those with AVX-512.
    """

    def __init__(self, has_mask_registers: bool = False) -> None:
        self.has_mask_registers = has_mask_registers
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.name_count = 0

    def name(self, stem: str = "t") -> str:
        self.name_count += 1
        return f"{stem}{self.name_count}"

    def raw(self, line: str) -> None:
        self.lines.append("  " + line)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def op(self, text: str) -> str:
        """Append the line ``%tN = text`` to the function, and return the name ``%tN``."""
        result = "%" + self.name()
        self.lines.append(f"  {result} = {text}")
        return result

    def call(self, result: str, function: str, *arguments: str) -> str:
        """Emit a call of a function or an intrinsic by its full name. Each argument is a string of the form
        ``type value``.
        """
        return self.op(f"call {result} @{function}({', '.join(arguments)})")

    def intrinsic(
        self, name: str, llvm_type: str, *values: str, extra_arguments: tuple[str, ...] = ()
    ) -> str:
        """Emit a call of an LLVM intrinsic for 32 lanes of one type. The intrinsic is declared when it is
        first used.
        """
        suffix = INTRINSIC_SUFFIX.get(llvm_type, llvm_type)
        full_name = f"llvm.{name}.v{layout.LANES}{suffix}"
        argument_types = [vector(llvm_type)] * len(values) + [
            argument.split()[0] for argument in extra_arguments
        ]
        self.declared.add(f"declare {vector(llvm_type)} @{full_name}({', '.join(argument_types)})")
        arguments = [f"{vector(llvm_type)} {v}" for v in values] + list(extra_arguments)
        return self.op(f"call {vector(llvm_type)} @{full_name}({', '.join(arguments)})")

    def splat(self, llvm_type: str, scalar: str) -> str:
        """Emit a vector with the same scalar in every lane."""
        inserted_vector = self.op(f"insertelement {vector(llvm_type)} poison, {llvm_type} {scalar}, i32 0")
        return self.op(
            f"shufflevector {vector(llvm_type)} {inserted_vector}, {vector(llvm_type)} poison, <32 x i32> zeroinitializer"
        )

    def binary(self, operation: str, llvm_type: str, left: str, right: str) -> str:
        return self.op(f"{operation} {vector(llvm_type)} {left}, {right}")

    def select(self, llvm_type: str, condition: str, if_true: str, if_false: str) -> str:
        return self.op(
            f"select {vector('i1')} {condition}, {vector(llvm_type)} {if_true}, {vector(llvm_type)} {if_false}"
        )

    def compare(self, predicate: str, llvm_type: str, left: str, right: str) -> str:
        opcode = "fcmp" if llvm_type in INTRINSIC_SUFFIX else "icmp"
        return self.op(f"{opcode} {predicate} {vector(llvm_type)} {left}, {right}")

    def convert(self, operation: str, source: str, value: str, target: str) -> str:
        return self.op(f"{operation} {vector(source)} {value} to {vector(target)}")

    def cast(self, value: str, source: str, target: str, is_signed: bool = False) -> str:
        """Emit a bitwise conversion of all lanes to another type, as for untyped PTX registers.

        The bits are reinterpreted, truncated or extended.
        """
        if source == target:
            return value
        source_bits = get_bit_width(source)
        target_bits = get_bit_width(target)
        if source in INTRINSIC_SUFFIX and source_bits != target_bits:
            value = self.convert("bitcast", source, value, f"i{source_bits}")
            source = f"i{source_bits}"
        if source_bits == target_bits:
            return self.convert("bitcast", source, value, target)
        target_integer = f"i{target_bits}"
        cast_opcode = "sext" if is_signed else "zext"
        if source_bits > target_bits:
            cast_opcode = "trunc"
        value = self.convert(cast_opcode, source, value, target_integer)
        return value if target_integer == target else self.convert("bitcast", target_integer, value, target)

    def mask_bits(self, mask: str) -> str:
        """Emit the conversion of an i1 vector to a 32-bit lane mask."""
        return self.op(f"bitcast {vector('i1')} {mask} to i32")

    def mask_vector(self, mask: str) -> str:
        """Emit the conversion of a 32-bit lane mask to an i1 vector.

        Without mask registers, each lane tests its own bit.
        """
        if self.has_mask_registers:
            return self.op(f"bitcast i32 {mask} to {vector('i1')}")
        own_bits = self.binary("and", "i32", self.splat("i32", mask), LANE_BITS)
        return self.compare("eq", "i32", own_bits, LANE_BITS)

    def store_lanes(self, llvm_type: str, value: str, pointer: str, lanes: str) -> None:
        """Emit a store of some lanes to a row of lanes in memory. No other thread may access that row.

        If the processor has no masks, the row is read, blended and written completely. The accesses are
        volatile, because otherwise LLVM converts them to a masked store, which takes a dozen cycles on
        AMD's processors.
        """
        if self.has_mask_registers:
            integer_type = f"i{get_bit_width(llvm_type)}"
            intrinsic_name = f"llvm.masked.store.v{layout.LANES}{integer_type}.p0"
            self.declared.add(f"declare void @{intrinsic_name}({vector(integer_type)}, ptr, {vector('i1')})")
            value = f"{vector(integer_type)} {self.cast(value, llvm_type, integer_type)}"
            self.raw(f"call void @{intrinsic_name}({value}, ptr align 64 {pointer}, {vector('i1')} {lanes})")
            return
        old_values = self.op(f"load {vector(llvm_type)}, ptr {pointer}, align 64")
        new_values = self.select(llvm_type, lanes, value, old_values)
        self.raw(f"store volatile {vector(llvm_type)} {new_values}, ptr {pointer}, align 64")

    def context_pointer(self, field: str) -> str:
        return self.op(f"getelementptr i8, ptr %ctx, i64 {layout.get_field_offset(field)}")

    def context_load(self, field: str, llvm_type: str | None = None) -> str:
        pointer = self.context_pointer(field)
        return self.op(f"load {llvm_type or layout.get_field_type(field)}, ptr {pointer}")

    def context_store(self, field: str, value: str) -> None:
        pointer = self.context_pointer(field)
        self.raw(f"store {layout.get_field_type(field)} {value}, ptr {pointer}")

    def add_to_memory(self, pointer: str, amount: str) -> None:
        """Emit code that adds an i64 to a number in memory."""
        old_value = self.op(f"load i64, ptr {pointer}")
        new_value = self.op(f"add i64 {old_value}, {amount}")
        self.raw(f"store i64 {new_value}, ptr {pointer}")

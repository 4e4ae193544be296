"""Table of the operands of each PTX instruction, and their types (PTX ISA 8.x, chapter 9.7)."""

from __future__ import annotations

from collections.abc import Iterable

from virtualgpu.compile.ptx import ir

TYPE_BITS = {name: 8 * size for name, size in ir.TYPE_BYTES.items()} | {"pred": 1, "u16x2": 32, "s16x2": 32}
INTEGER_TYPES = {f"{type_letter}{bits}" for type_letter in "bus" for bits in (16, 32, 64)}
WORD_TYPES = {name for name in INTEGER_TYPES if not name.endswith("16")}
FLOAT_TYPES = {"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"}
PACKED_TYPES = {"u16x2", "s16x2"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
FLOAT_COMPARISONS = {"equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}
UNSIGNED_COMPARISONS = {"lo", "ls", "hi", "hs"}

# Operands, in order: d destination, s source (both of the instruction's type); D, u the same in 32 bits;
# W, w in twice the width; P, p predicates; Q predicate or a pair of them; i constant; m address; v, V the
# operand that a load writes or a store reads; a any operand. Operands after ? are optional.
OPERANDS_BY_ROOT: dict[str, tuple[str, set[str]]] = {}


def _define_operands(names: str, operands: str, types: Iterable[str]) -> None:
    for name in names.split():
        OPERANDS_BY_ROOT[name] = operands, set(types)


_define_operands("add", "dss", INTEGER_TYPES | FLOAT_TYPES | PACKED_TYPES)
_define_operands("sub", "dss", INTEGER_TYPES | FLOAT_TYPES)
_define_operands("mul", "dss", INTEGER_TYPES | FLOAT_TYPES)
_define_operands("div", "dss", INTEGER_TYPES | {"f32", "f64"})
_define_operands("rem", "dss", INTEGER_TYPES)
_define_operands("min max", "dss?s", INTEGER_TYPES | FLOAT_TYPES | PACKED_TYPES)
_define_operands("and or xor", "dss", INTEGER_TYPES | {"pred"})
_define_operands("not", "ds", INTEGER_TYPES | {"pred"})
_define_operands("cnot", "ds", INTEGER_TYPES)
_define_operands("copysign", "dss", {"f32", "f64"})
_define_operands("addc subc", "dss", WORD_TYPES)
_define_operands("madc", "dsss", WORD_TYPES)
_define_operands("mul24", "dss", {"u32", "s32"})
_define_operands("mad24", "dsss", {"u32", "s32"})
_define_operands("mad", "dsss", INTEGER_TYPES | {"f32", "f64"})
_define_operands("sad", "dsss", INTEGER_TYPES)
_define_operands("fma", "dsss", FLOAT_TYPES)
_define_operands("abs neg", "ds", INTEGER_TYPES | FLOAT_TYPES)
_define_operands("sqrt rcp rsqrt sin cos lg2", "ds", {"f32", "f64"})
_define_operands("ex2 tanh", "ds", FLOAT_TYPES)
_define_operands("brev", "ds", WORD_TYPES)
_define_operands("popc clz bfind", "Ds", WORD_TYPES)
_define_operands("shl shr", "dsu", INTEGER_TYPES)
_define_operands("shf prmt dp4a dp2a", "Duuu", TYPE_BITS)
_define_operands("lop3", "Duuui", {"b32"})
_define_operands("bfe", "dsuu", WORD_TYPES)
_define_operands("bmsk", "Duu", {"b32"})
_define_operands("szext", "dsu", {"u32", "s32"})
_define_operands("bfi", "dssuu", WORD_TYPES)
_define_operands("selp", "dssp", INTEGER_TYPES | {"f32", "f64"})
_define_operands("testp", "Ps", {"f32", "f64"})
_define_operands("setp", "Qss?p", INTEGER_TYPES | FLOAT_TYPES)
_define_operands("cvta", "ds", {"u64"})
_define_operands("isspacep", "Pa", TYPE_BITS)
_define_operands("ld ldu", "vm?a", set(TYPE_BITS) - {"pred"})
_define_operands("st", "mV?a", set(TYPE_BITS) - {"pred"})
_define_operands("createpolicy", "d?aaaa", {"b64"})
_define_operands("redux", "dsu", {"b32", "u32", "s32", "f32"})
_define_operands("activemask", "D", {"b32"})
_define_operands("bra", "a", TYPE_BITS)
_define_operands("brx", "ua", TYPE_BITS)
_define_operands("ret exit trap", "", TYPE_BITS)
TYPED_OPERAND_CODES = set("dsWwvV")
WIDER_REGISTER_ROOTS = {"ld", "ldu", "st", "cvt"}
# Source and target types of `cvt`.
CONVERTIBLE_TYPES = {f"{type_letter}{bits}" for type_letter in "us" for bits in (8, 16, 32, 64)} | {
    "f16",
    "bf16",
    "f32",
    "f64",
}

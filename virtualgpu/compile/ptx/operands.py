"""Table of the operands of each PTX instruction, and their types (PTX ISA 8.x, chapter 9.7)."""

from __future__ import annotations

from collections.abc import Iterable

from virtualgpu.compile.ptx import ir

BITS = {name: 8 * size for name, size in ir.TYPE_BYTES.items()} | {"pred": 1, "u16x2": 32, "s16x2": 32}
INTEGERS = {f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64)}
WORDS = {name for name in INTEGERS if not name.endswith("16")}
FLOATS = {"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"}
PACKED = {"u16x2", "s16x2"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
FLOAT_COMPARISONS = {"equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}
UNSIGNED_COMPARISONS = {"lo", "ls", "hi", "hs"}

# Operands, in order: d destination, s source (both of the instruction's type); D, u the same in 32 bits;
# W, w in twice the width; P, p predicates; Q predicate or a pair of them; i constant; m address; v, V the
# operand that a load writes or a store reads; a any operand. Operands after ? are optional.
OPERANDS: dict[str, tuple[str, set[str]]] = {}


def _define(names: str, operands: str, types: Iterable[str]) -> None:
    for name in names.split():
        OPERANDS[name] = operands, set(types)


_define("add", "dss", INTEGERS | FLOATS | PACKED)
_define("sub", "dss", INTEGERS | FLOATS)
_define("mul", "dss", INTEGERS | FLOATS)
_define("div", "dss", INTEGERS | {"f32", "f64"})
_define("rem", "dss", INTEGERS)
_define("min max", "dss?s", INTEGERS | FLOATS | PACKED)
_define("and or xor", "dss", INTEGERS | {"pred"})
_define("not", "ds", INTEGERS | {"pred"})
_define("cnot", "ds", INTEGERS)
_define("copysign", "dss", {"f32", "f64"})
_define("addc subc", "dss", WORDS)
_define("madc", "dsss", WORDS)
_define("mul24", "dss", {"u32", "s32"})
_define("mad24", "dsss", {"u32", "s32"})
_define("mad", "dsss", INTEGERS | {"f32", "f64"})
_define("sad", "dsss", INTEGERS)
_define("fma", "dsss", FLOATS)
_define("abs neg", "ds", INTEGERS | FLOATS)
_define("sqrt rcp rsqrt sin cos lg2", "ds", {"f32", "f64"})
_define("ex2 tanh", "ds", FLOATS)
_define("brev", "ds", WORDS)
_define("popc clz bfind", "Ds", WORDS)
_define("shl shr", "dsu", INTEGERS)
_define("shf prmt dp4a dp2a", "Duuu", BITS)
_define("lop3", "Duuui", {"b32"})
_define("bfe", "dsuu", WORDS)
_define("bmsk", "Duu", {"b32"})
_define("szext", "dsu", {"u32", "s32"})
_define("bfi", "dssuu", WORDS)
_define("selp", "dssp", INTEGERS | {"f32", "f64"})
_define("testp", "Ps", {"f32", "f64"})
_define("setp", "Qss?p", INTEGERS | FLOATS)
_define("cvta", "ds", {"u64"})
_define("isspacep", "Pa", BITS)
_define("ld ldu", "vm?a", set(BITS) - {"pred"})
_define("st", "mV?a", set(BITS) - {"pred"})
_define("createpolicy", "d?aaaa", {"b64"})
_define("redux", "dsu", {"b32", "u32", "s32", "f32"})
_define("activemask", "D", {"b32"})
_define("bra", "a", BITS)
_define("brx", "ua", BITS)
_define("ret exit trap", "", BITS)
TYPED_OPERANDS = set("dsWwvV")
WIDER_ALLOWED = {"ld", "ldu", "st", "cvt"}
# Source and target types of `cvt`.
CONVERTIBLE = {f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64)} | {"f16", "bf16", "f32", "f64"}

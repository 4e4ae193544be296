"""What generated expressions are made of: C++ types and intrinsics with the types they take and give."""

from __future__ import annotations

INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
FLOATS = ("f32", "f64")
WIDTH = {"i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64}

# Result type, spelling with a place for each argument, argument types.
Intrinsic = tuple[str, str, tuple[str, ...]]


def _same(result: str, names: str, *arguments: str) -> list[Intrinsic]:
    places = ", ".join(["{}"] * len(arguments))
    return [(result, f"{name}({places})", arguments) for name in names.split()]


INTRINSICS: list[Intrinsic] = [
    *_same("i32", "__popc __clz __ffs", "u32"),
    *_same("i32", "__popcll __clzll __ffsll", "u64"),
    *_same("u32", "__brev", "u32"),
    *_same("u64", "__brevll", "u64"),
    *_same("u32", "__byte_perm z_prmt z_mad z_fma2", "u32", "u32", "u32"),
    *_same("u32", "z_lop3<0x9a> z_lop3<0x2d> z_lop3<0xe8>", "u32", "u32", "u32"),
    *_same("u32", "__funnelshift_l __funnelshift_r __funnelshift_lc __funnelshift_rc", "u32", "u32", "u32"),
    *_same("i32", "__mulhi __mul24 __hadd __rhadd z_sadd z_ssub", "i32", "i32"),
    *_same("u32", "__umulhi __umul24 __uhadd __urhadd", "u32", "u32"),
    *_same("i64", "__mul64hi", "i64", "i64"),
    *_same("u64", "__umul64hi", "u64", "u64"),
    *_same("u32", "__sad", "i32", "i32", "u32"),
    *_same("u32", "__usad", "u32", "u32", "u32"),
    *_same("i32", "__dp4a", "i32", "i32", "i32"),
    *_same("u32", "__dp4a", "u32", "u32", "u32"),
    ("i32", "__dp2a_lo((int){}, (int){}, {})", ("u32", "u32", "i32")),
    *_same("u32", "__dp2a_hi", "u32", "u32", "u32"),
    *_same("u32", "__vadd2 __vsub4 __vavgs4 __vabsdiffu4 __vcmpgtu4 __vmaxs2 __vminu4", "u32", "u32"),
    *_same("u32", "__vaddus4 __vaddss2 __vsubus2 __vsadu4 __vsads2 __vabsdiffs4", "u32", "u32"),
    *_same("u32", "__vnegss4 __vabs2", "u32"),
    *_same("i32", "min max", "i32", "i32"),
    *_same("u32", "min max", "u32", "u32"),
    *_same("i64", "min max", "i64", "i64"),
    *_same("u64", "min max", "u64", "u64"),
    ("u32", "(u32)abs({} >> 1)", ("i32",)),
    ("u64", "(u64)llabs({} >> 1)", ("i64",)),
    *_same("u64", "z_wide", "u64", "u64", "u64", "u32"),
    *_same("u64", "z_bytes", "u64", "u32"),
    *_same("i32", "z_bfe", "i32", "u32", "u32"),
    *_same("u64", "z_bfe", "u64", "u32", "u32"),
    *_same("u32", "z_bfi", "u32", "u32", "u32", "u32"),
    *_same("u64", "z_bfi", "u64", "u64", "u32", "u32"),
    *_same("u32", "z_bfind", "i32"),
    *_same("u32", "z_bfind", "u64"),
    *_same("u32", "z_shl", "u32", "u32"),
    *_same("i32", "z_shr", "i32", "u32"),
    *_same("i64", "z_shr", "i64", "u32"),
    *_same("u64", "z_shl", "u64", "u32"),
    *_same("u32", "z_cnot", "u32"),
    *_same("u32", "z_set", "f32", "f32"),
    *_same("f32", "z_set", "i32", "i32"),
    *_same("u32", "z_mul24hi z_add2 z_mul2", "u32", "u32"),
    *_same("i32", "z_madhi", "i32", "i32", "i32"),
    *_same("i32", "z_half2int", "u32"),
    *_same("i32", "z_slct", "i32", "i32", "i32"),
    *_same("i32", "z_cvt8", "i32"),
    *_same("u32", "z_cvt16", "i64"),
    # Floating point. Arithmetic operators and fma have nodes of their own.
    *_same(
        "f32",
        "__fadd_rn __fadd_rz __fadd_ru __fadd_rd __fsub_rn __fsub_rz __fmul_rn __fmul_rz __fmul_ru"
        " __fmul_rd fminf fmaxf",
        "f32",
        "f32",
    ),
    *_same(
        "f64",
        "__dadd_rn __dadd_rz __dadd_ru __dadd_rd __dsub_rn __dsub_ru __dmul_rn __dmul_rz __dmul_ru"
        " __dmul_rd fmin fmax",
        "f64",
        "f64",
    ),
    *(("f32", f"__fdiv_{mode}({{}}, z_any({{}}))", ("f32", "f32")) for mode in ("rn", "rz", "ru")),
    *(("f64", f"__ddiv_{mode}({{}}, z_any({{}}))", ("f64", "f64")) for mode in ("rn", "rd")),
    *_same("f32", "__fmaf_rn __fmaf_rz __fmaf_ru __fmaf_rd", "f32", "f32", "f32"),
    *_same("f64", "__fma_rn __fma_rz __fma_rd", "f64", "f64", "f64"),
    *_same("f32", "__fsqrt_rn __fsqrt_rz __frcp_rn __frcp_rd", "f32"),
    *_same("f64", "__dsqrt_rn __dsqrt_ru __drcp_rn", "f64"),
    *_same("f32", "fabsf floorf ceilf truncf rintf roundf __saturatef z_tame", "f32"),
    *_same("f64", "fabs floor ceil trunc rint round z_tame", "f64"),
    ("f32", "copysignf({}, z_number({}))", ("f32", "f32")),
    ("f64", "copysign({}, z_number({}))", ("f64", "f64")),
    *_same("f32", "z_half", "f32", "f32", "f32"),
    *_same("f32", "fmodf", "f32", "f32"),
    ("f32", "ldexpf({}, (int)({} & 15) - 8)", ("f32", "u32")),
    # Conversions; between floats and integers they saturate.
    *_same("i32", "__float2int_rn __float2int_rz __float2int_ru __float2int_rd", "f32"),
    *_same("u32", "__float2uint_rn __float2uint_rz __float2uint_rd", "f32"),
    *_same("i64", "__float2ll_rn __float2ll_rz", "f32"),
    *_same("u64", "__float2ull_rz __float2ull_ru", "f32"),
    *_same("i32", "__double2int_rn __double2int_rz", "f64"),
    *_same("u32", "__double2uint_rz __double2uint_ru", "f64"),
    *_same("i64", "__double2ll_rz __double2ll_rd", "f64"),
    *_same("u64", "__double2ull_rn __double2ull_rz", "f64"),
    *_same("f32", "__int2float_rn __int2float_rz __int2float_ru __int2float_rd", "i32"),
    *_same("f32", "__uint2float_rn __uint2float_rz", "u32"),
    *_same("f32", "__ll2float_rn __ll2float_rz __ll2float_ru", "i64"),
    *_same("f32", "__ull2float_rn __ull2float_rd", "u64"),
    *_same("f64", "__int2double_rn", "i32"),
    *_same("f64", "__uint2double_rn", "u32"),
    *_same("f64", "__ll2double_rn __ll2double_rz", "i64"),
    *_same("f64", "__ull2double_rn __ull2double_ru", "u64"),
    *_same("f32", "__double2float_rn __double2float_rz __double2float_ru __double2float_rd", "f64"),
    ("f64", "(f64){}", ("f32",)),
    *_same("u32", "z_bits", "f32"),
    *_same("u64", "z_bits", "f64"),
    *_same("f32", "z_f32 __uint_as_float", "u32"),
    *_same("f64", "z_f64", "u64"),
    ("f64", "__longlong_as_double((i64){})", ("u64",)),
    ("f64", "__hiloint2double((int){}, (int){})", ("u32", "u32")),
    ("i32", "__double2hiint(z_number({}))", ("f64",)),
    ("i32", "__double2loint(z_number({}))", ("f64",)),
    # Truth values.
    ("bool", "({} != {})", ("f32", "f32")),
    ("bool", "({} < {})", ("f32", "f32")),
    ("bool", "({} >= {})", ("f64", "f64")),
    ("bool", "!({} <= {})", ("f64", "f64")),
    *_same("bool", "isnan isinf isfinite", "f32"),
    ("bool", "signbit(z_number({}))", ("f32",)),
    *_same("bool", "isnan z_subnormal z_infinite", "f64"),
    *_same("bool", "z_normal z_finite", "f32"),
    *_same("bool", "z_halfless", "u32", "u32"),
]

GIVING: dict[str, list[Intrinsic]] = {}
for _entry in INTRINSICS:
    GIVING.setdefault(_entry[0], []).append(_entry)

FLOAT_LITERALS = ("0.5", "1.5", "-2.25", "3.0", "0.1", "-7.75", "1024.0", "1.0e-3", "-33.0", "12345.678")
INTEGER_LITERALS = (2, 3, 5, 7, 11, 16, 31, 63, 85, 100, 127)

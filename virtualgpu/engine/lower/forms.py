"""Table of the forms of each PTX instruction that virtualgpu executes, with their modifiers and types.

A modifier that the lowering did not read would produce wrong numbers silently, so a form that is not in this
table is refused. Names and order of modifiers follow the PTX ISA, chapter 9.7. Modifiers that change only the
speed or the order of memory accesses (cache hints, scopes) are accepted and ignored.
"""

from __future__ import annotations

import functools
import itertools
import re

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.contract import NEGATED_ADDEND, NEGATED_PRODUCT
from virtualgpu.errors import NotSupportedError

_INTEGER_TYPE = r"\.[bus](16|32|64)"
_ANY_INTEGER = r"\.[us](8|16|32|64)"
_WORD_TYPE = r"\.[bus](32|64)"
_ROUNDING = r"\.r[nzmp]"
_OPTIONAL_ROUNDING = rf"({_ROUNDING})?"
_FTZ = r"(\.ftz)?"
_SAT = r"(\.sat)?"
_RELU = r"(\.relu)?"
_NAN = r"(\.NaN)?"
_HALF_TYPE = r"\.f16(x2)?"
_BFLOAT_TYPE = r"\.bf16(x2)?"
_FLOAT_TYPE = r"\.(f16|bf16|f32|f64)"
_BOOLEAN = r"(\.(and|or|xor))?"
_COMPARISON = r"\.(eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan)"
_NEGATED_PARTS = rf"(\.({NEGATED_PRODUCT}|{NEGATED_ADDEND}))*"
_SIGNED_MAGNITUDE = r"(\.xorsign\.abs)?"
_STATE_SPACE = r"(\.(global|shared(::cta|::cluster)?|local|const|param(::entry|::func)?))?"
_SHARED = r"\.shared(::cta|::cluster)?"
_MEMORY_ORDER = r"\.(weak|relaxed|acquire|release|acq_rel|volatile|mmio|cta|cluster|gpu|sys)"
_CACHE_HINT = (
    r"\.(nc|ca|cg|cs|lu|cv|wb|wt|unified|L1::(evict_\w+|no_allocate)|L2::(evict_\w+|cache_hint|\d+B))"
)
_VECTOR = r"(\.v[248])?"
_SHAPE = r"\.m\d+n\d+k\d+"
# The lowering of matrices refuses some of these types, and its message names those that it has.
_MATRIX_TYPE = r"\.(f16|bf16|tf32|f32|f64|s32|e4m3|e5m2|e3m2|e2m3|e2m1|s8|u8|s4|u4|b1)"

# ptxas accepts these modifiers in any order, and public kernels also write .x4.m8n8.
_MATRICES = "|".join(
    "".join(modifier_order)
    for modifier_patterns in ((r"\.m8n8", r"\.x[124]"), (r"\.m8n8", r"\.x[124]", r"\.trans"))
    for modifier_order in itertools.permutations(modifier_patterns)
)
_MATRIX_ROWS = rf"\.sync\.aligned({_MATRICES})({_SHARED})?\.b16"

_SUM_FORMS = (
    rf"{_INTEGER_TYPE}|\.sat\.s32|\.cc{_WORD_TYPE}|{_OPTIONAL_ROUNDING}{_FTZ}{_SAT}\.f32|{_OPTIONAL_ROUNDING}\.f64"
    rf"|(\.rn)?{_FTZ}{_SAT}{_HALF_TYPE}|(\.rn)?{_BFLOAT_TYPE}"
)
_FUSED_FORMS = (
    rf"{_OPTIONAL_ROUNDING}{_FTZ}{_SAT}{_NEGATED_PARTS}\.f32|{_OPTIONAL_ROUNDING}{_NEGATED_PARTS}\.f64"
)
_MIN_MAX_FORMS = (
    rf"{_INTEGER_TYPE}|{_RELU}\.s32|\.s32\.relu|{_RELU}\.s16x2|\.s16x2\.relu|\.u16x2|{_FTZ}{_NAN}{_SIGNED_MAGNITUDE}(\.f32|{_HALF_TYPE})"
    rf"|\.f64|{_NAN}{_SIGNED_MAGNITUDE}{_BFLOAT_TYPE}"
)
_SQRT_RCP_FORMS = rf"(\.approx|{_ROUNDING}){_FTZ}\.f32|{_ROUNDING}\.f64"
_LOGIC_FORMS = rf"{_INTEGER_TYPE}|\.pred"
# NVRTC, CUDA's headers and libcu++ order these modifiers in several ways.
_ONE_SPACE = _STATE_SPACE.removesuffix("?")
_ONE_VECTOR = _VECTOR.removesuffix("?")
_ACCESS_FORMS = rf"({_MEMORY_ORDER}|{_CACHE_HINT}|{_ONE_SPACE}|{_ONE_VECTOR})*\.([busf](8|16|32|64)|b128)"
_ATOMIC_FORMS = (
    rf"({_MEMORY_ORDER}|{_ONE_SPACE}|{_ONE_VECTOR}|\.noftz|\.L2::cache_hint|\.(add|min|max|and|or|xor|exch|cas|inc|dec))+"
    rf"\.([busf](16|32|64)|{_HALF_TYPE[2:]}|{_BFLOAT_TYPE[2:]})"
)

_FORMS = {
    "add": rf"{_SUM_FORMS}|\.[us]16x2",
    "sub": _SUM_FORMS,
    "addc": rf"(\.cc)?{_WORD_TYPE}",
    "subc": rf"(\.cc)?{_WORD_TYPE}",
    "madc": rf"\.(lo|hi)(\.cc)?{_WORD_TYPE}",
    "mul": (
        rf"\.(lo|hi|wide){_INTEGER_TYPE}|{_OPTIONAL_ROUNDING}{_FTZ}{_SAT}\.f32|{_OPTIONAL_ROUNDING}\.f64"
        rf"|(\.rn)?{_FTZ}{_SAT}{_HALF_TYPE}|(\.rn)?{_BFLOAT_TYPE}"
    ),
    "mul24": r"\.(lo|hi)\.[us]32",
    "mad24": r"\.(lo|hi)\.[us]32|\.hi\.sat\.s32",
    "mad": rf"\.(lo|hi|wide){_INTEGER_TYPE}|\.hi\.sat\.s32|\.(lo|hi)\.cc{_WORD_TYPE}|{_FUSED_FORMS}",
    "fma": rf"{_FUSED_FORMS}|(\.rn)?{_FTZ}({_SAT}|{_RELU}){_NEGATED_PARTS}{_HALF_TYPE}|(\.rn)?{_RELU}{_NEGATED_PARTS}{_BFLOAT_TYPE}",
    "div": rf"{_INTEGER_TYPE}|(\.approx|\.full|{_ROUNDING}){_FTZ}\.f32|{_ROUNDING}\.f64",
    "rem": _INTEGER_TYPE,
    "sad": _INTEGER_TYPE,
    "abs": rf"{_INTEGER_TYPE}|{_FTZ}(\.f32|{_HALF_TYPE})|\.f64|{_BFLOAT_TYPE}",
    "neg": rf"{_INTEGER_TYPE}|{_FTZ}(\.f32|{_HALF_TYPE})|\.f64|{_BFLOAT_TYPE}",
    "min": _MIN_MAX_FORMS,
    "max": _MIN_MAX_FORMS,
    "copysign": r"\.f(32|64)",
    "rcp": rf"{_SQRT_RCP_FORMS}|\.approx\.ftz\.f64",
    "sqrt": _SQRT_RCP_FORMS,
    "rsqrt": rf"\.approx{_FTZ}\.f(32|64)",
    "sin": rf"\.approx{_FTZ}\.f32",
    "cos": rf"\.approx{_FTZ}\.f32",
    "lg2": rf"\.approx{_FTZ}\.f32",
    "ex2": rf"\.approx{_FTZ}\.f32|\.approx{_HALF_TYPE}|\.approx\.ftz{_BFLOAT_TYPE}",
    "tanh": rf"\.approx(\.f32|{_HALF_TYPE}|{_BFLOAT_TYPE})",
    "setp": rf"{_COMPARISON}{_BOOLEAN}({_INTEGER_TYPE}|{_FTZ}\.(f32|f16)|\.bf16|\.f64)",
    "set": (
        rf"{_COMPARISON}{_BOOLEAN}{_FTZ}\.([us](16|32)|f32)({_INTEGER_TYPE}|{_FLOAT_TYPE})"
        rf"|{_COMPARISON}{_BOOLEAN}({_FTZ}(\.f16\.f16|\.f16x2\.f16x2)|\.bf16\.bf16|\.bf16x2\.bf16x2)"
        rf"|{_COMPARISON}{_BOOLEAN}{_FTZ}\.[us]32(\.f16x2|\.bf16x2)"
    ),
    "selp": rf"{_INTEGER_TYPE}|\.f(32|64)",
    "slct": rf"{_FTZ}\.([bus](16|32|64)|f32|f64)\.f32|\.([bus](16|32|64)|f32|f64)\.s32",
    "testp": r"\.(finite|infinite|number|notanumber|normal|subnormal)\.f(32|64)",
    "and": _LOGIC_FORMS,
    "or": _LOGIC_FORMS,
    "xor": _LOGIC_FORMS,
    "not": _LOGIC_FORMS,
    "cnot": _INTEGER_TYPE,
    "lop3": r"\.b32",
    "shl": _INTEGER_TYPE,
    "shr": _INTEGER_TYPE,
    "shf": r"\.[lr]\.(clamp|wrap)\.b32",
    "bfe": _WORD_TYPE,
    "bfi": _WORD_TYPE,
    "bfind": rf"(\.shiftamt)?{_WORD_TYPE}",
    "bmsk": r"\.(clamp|wrap)\.b32",
    "szext": r"\.(clamp|wrap)\.[us]32",
    "brev": _WORD_TYPE,
    "clz": _WORD_TYPE,
    "popc": _WORD_TYPE,
    "prmt": r"\.b32",
    "fns": r"\.b32",
    "dp4a": r"\.[us]32\.[us]32",
    "dp2a": r"\.(lo|hi)\.[us]32\.[us]32",
    **{
        f"v{operation}{count}": r"(\.[us]32){3}(\.add)?"
        for operation in ("add", "sub", "avrg", "absdiff", "min", "max")
        for count in "24"
    },
    "cvt": (
        rf"{_SAT}{_ANY_INTEGER}{_ANY_INTEGER}"
        rf"|(\.r[nzmp]i)?{_SAT}{_ANY_INTEGER}{_FLOAT_TYPE}|(\.r[nzmp]i)?\.ftz{_SAT}{_ANY_INTEGER}\.f32"
        rf"|{_OPTIONAL_ROUNDING}{_SAT}{_FLOAT_TYPE}{_ANY_INTEGER}|{_OPTIONAL_ROUNDING}\.ftz{_SAT}\.f32{_ANY_INTEGER}"
        rf"|(\.r[nzmp]i?)?{_SAT}{_FLOAT_TYPE}{_FLOAT_TYPE}|(\.r[nzmp]i?)?\.ftz{_SAT}({_FLOAT_TYPE}\.f32|\.f32{_FLOAT_TYPE})"
        rf"|\.r[nz]{_RELU}\.b?f16(x2)?\.f32"
        rf"|\.rn\.satfinite{_RELU}\.e(4m3|5m2)x2\.(f32|f16x2)"
        rf"|\.rn{_RELU}\.f16x2\.e(4m3|5m2)x2"
        rf"|\.rna(\.satfinite)?\.tf32\.f32|\.r[nz](\.satfinite)?{_RELU}\.tf32\.f32"
    ),
    "mov": rf"{_INTEGER_TYPE}|\.(pred|f32|f64|b128)",
    "cvta": rf"(\.to)?{_STATE_SPACE}\.u(32|64)",
    "isspacep": r"\.(global|local|shared(::cta|::cluster)?)",
    "ld": _ACCESS_FORMS,
    "ldu": _ACCESS_FORMS,
    "st": _ACCESS_FORMS,
    "atom": _ATOMIC_FORMS,
    "red": _ATOMIC_FORMS,
    "createpolicy": r"\..*",
    "shfl": r"(\.sync)?\.(up|down|bfly|idx)\.b32",
    "vote": r"(\.sync)?(\.(all|any|uni)\.pred|\.ballot\.b32)",
    "match": r"\.(any|all)\.sync\.b(32|64)",
    "redux": r"\.sync\.(add|min|max)\.[us]32|\.sync\.(and|or|xor)\.b32",
    "activemask": r"\.b32",
    "elect": r"\.sync",
    "bar": (r"(\.cta)?\.(sync|arrive)|(\.cta)?\.red(\.popc\.u32|\.(and|or)\.pred)|\.warp\.sync"),
    "barrier": (
        r"(\.cta)?\.(sync|arrive)(\.aligned)?|(\.cta)?\.red(\.(popc|and|or))(\.aligned)?\.(u32|pred)"
        # Only clusters of one block reach this point; a launch with larger ones is refused.
        r"|\.cluster\.(arrive(\.release|\.relaxed)?|wait(\.acquire)?)(\.aligned)?"
    ),
    "ldmatrix": _MATRIX_ROWS,
    "stmatrix": _MATRIX_ROWS,
    "wmma": (
        rf"\.(load\.[abc]|store\.d)\.sync\.aligned\.(row|col){_SHAPE}(\.global|{_SHARED})?{_MATRIX_TYPE}"
        rf"|\.mma\.sync\.aligned\.(row|col)\.(row|col){_SHAPE}(({_MATRIX_TYPE}){{2}}|({_MATRIX_TYPE}){{4}})"
        rf"|\.mma\.sync\.aligned\.(row|col)\.(row|col){_SHAPE}(\.f64){{4}}\.rn"
        rf"|\.mma\.sync\.aligned\.(row|col)\.(row|col){_SHAPE}\.s32\.[su]8\.[su]8\.s32\.satfinite"
    ),
    "mma": (rf"\.sync\.aligned{_SHAPE}\.row\.col(({_MATRIX_TYPE}){{4}}|\.satfinite\.s32\.[su]8\.[su]8\.s32)"),
    "cp": (
        rf"\.async\.c[ag]{_SHARED}\.global(\.L2::(cache_hint|\d+B))*"
        r"|\.async\.(commit_group|wait_group|wait_all)"
        rf"|\.async\.mbarrier\.arrive(\.noinc)?({_SHARED})?\.b64"
        rf"|\.async\.bulk{_SHARED}\.global\.mbarrier::complete_tx::bytes(\.L2::cache_hint)?"
        rf"|\.async\.bulk\.global{_SHARED}\.bulk_group(\.L2::cache_hint)?"
        r"|\.async\.bulk\.(commit_group|wait_group(\.read)?)"
        # Tensor maps and clusters, which async_ops refuses with an alternative.
        r"|\.async\.bulk\.(tensor\.|prefetch\.|shared::cluster\.shared::cta).*|\.async\.bulk\..*multicast.*"
    ),
    "mbarrier": (
        rf"\.(init|inval|pending_count|expect_tx|complete_tx|arrive(_drop)?(\.expect_tx)?|(test|try)_wait(\.parity)?)"
        rf"(\.noComplete|{_MEMORY_ORDER}|{_SHARED})*\.b64"
    ),
}
# Control flow and textures check their own forms; the other instructions do not change any result here.
UNCHECKED_ROOTS = frozenset(
    {
        "bra",
        "brx",
        "ret",
        "exit",
        "trap",
        "call",
        "tex",
        "suld",
        "sust",
        "tld4",
        "txq",
        "suq",
        "sured",
        "membar",
        "fence",
        "prefetch",
        "prefetchu",
        "nanosleep",
        "pmevent",
        "discard",
        "applypriority",
        "griddepcontrol",
    }
)


@functools.lru_cache(maxsize=4096)
def _is_known_form(root: str, suffix: str) -> bool:
    return re.fullmatch(_FORMS[root], suffix) is not None


def is_supported(opcode_parts: tuple[str, ...]) -> bool:
    """Return whether the virtual GPU executes an instruction with these modifiers and types.

    An instruction that is not in the table counts as supported.

    Examples
    --------
    >>> is_supported(("max", "NaN", "xorsign", "abs", "f32")), is_supported(("lop3", "or", "b32"))
    (True, False)
    """
    return opcode_parts[0] not in _FORMS or _is_known_form(
        opcode_parts[0], "".join(f".{modifier}" for modifier in opcode_parts[1:])
    )


def check_form(instruction: ir.Instruction) -> None:
    """Raise `NotSupportedError` for an instruction with an unsupported modifier or type."""
    if not is_supported(instruction.parts):
        raise NotSupportedError(
            f"The virtual GPU does not support {instruction.opcode} (line {instruction.line}). It supports "
            f"{instruction.root!r}, but not with these modifiers and types. Write the kernel without this "
            "instruction, or run the kernel on a real GPU."
        )


def list_roots() -> frozenset[str]:
    """Return the mnemonics of all instructions in the table of supported forms."""
    return frozenset(_FORMS)

"""One PTX kernel for each family of instructions, with every type and rounding that the family has.

Operands stand as letters for their registers: p (predicate), h, r and d (16, 32 and 64 bits), f and g (float
and double). The first is the result unless the instruction has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

REGISTERS = {"h": "b16", "r": "b32", "d": "b64", "f": "f32", "g": "f64", "p": "pred"}
_OF = {"16": "h", "32": "r", "64": "d"}
FLOATS = {"f16": "h", "bf16": "h", "f16x2": "r", "bf16x2": "r", "f32": "f", "f64": "g"}
INTEGERS = tuple(f"{sign}{width}" for width in (16, 32, 64) for sign in "us")
DIRECTED = ("rn", "rz", "rm", "rp")

# How many operands each has, or on which types it works.
FLOAT_OPERANDS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "rcp": 1, "sqrt": 1}
CARRY_OPERANDS = {"add.cc": 2, "addc.cc": 2, "addc": 2, "sub.cc": 2, "subc": 2, "mad.lo.cc": 3, "madc.hi": 3}
REDUCTIONS = {"add": "u32", "min": "s32", "max": "u32", "and": "b32", "or": "b32", "xor": "b32"}
ATOMICS = {"add": "u32 u64 f32 f64", "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64", "and": "b32 b64"}
ATOMICS |= {"or": "b32", "xor": "b32", "exch": "b32 b64", "inc": "u32", "dec": "u32"}
TO_INTEGER = ("rni", "rzi", "rmi", "rpi")


def letter(kind: str) -> str:
    """The register that holds a value of a type."""
    return FLOATS.get(kind) or _OF.get(kind[1:], "h")


def _line(opcode: str, kind: str, count: int, result: str = "") -> str:
    register = letter(kind)
    return f"{opcode} {', '.join([result or register] + [register] * count)}"


def _floats() -> Iterator[str]:
    for kind in ("f32", "f64"):
        for mode in DIRECTED:
            for root, count in FLOAT_OPERANDS.items():
                yield _line(f"{root}.{mode}.{kind}", kind, count)
        for root in ("min", "max", "copysign"):
            yield _line(f"{root}.{kind}", kind, 2)
        for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield _line(f"testp.{test}.{kind}", kind, 1, "p")
    for kind in FLOATS:
        for root in ("neg", "abs"):
            yield _line(f"{root}.{kind}", kind, 1)
    for root in ("sin", "cos", "ex2", "lg2", "tanh", "rsqrt", "rcp", "sqrt"):
        yield f"{root}.approx.f32 f, f"
    yield from (
        "rsqrt.approx.f64 g, g",
        "div.full.f32 f, f, f",
        "add.ftz.sat.f32 f, f, f",
        "fma.rn.sat.f32 f, f, f, f",
    )
    yield from (
        "min.NaN.f32 f, f, f",
        "max.ftz.f32 f, f, f",
        "mad.rn.f32 f, f, f, f",
        "mad.rn.f64 g, g, g, g",
    )


def _halves() -> Iterator[str]:
    for kind in ("f16", "f16x2", "bf16", "bf16x2"):
        for root, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma.rn", 3), ("min", 2), ("max", 2)):
            yield _line(f"{root}.{kind}", kind, count)
        yield _line(f"fma.rn.relu.{kind}", kind, 3)
        yield _line(f"min.NaN.{kind}", kind, 2)
        for root in ("ex2", "tanh"):
            yield _line(f"{root}.approx{'.ftz' if root == 'ex2' and kind[0] == 'b' else ''}.{kind}", kind, 1)
    for kind in ("f16", "f16x2"):
        yield _line(f"add.ftz.sat.{kind}", kind, 2)
        yield _line(f"fma.rn.ftz.sat.{kind}", kind, 3)


def _conversions() -> Iterator[str]:
    integers = ("u8", "s8", *INTEGERS)
    for source in integers:
        for target in integers:
            yield f"cvt.{target}.{source} {letter(target)}, {letter(source)}"
            if target != source:
                yield f"cvt.sat.{target}.{source} {letter(target)}, {letter(source)}"
        for target in ("f16", "f32", "f64"):
            for mode in DIRECTED:
                yield f"cvt.{mode}.{target}.{source} {letter(target)}, {letter(source)}"
    for source in ("f16", "f32", "f64"):
        for mode in TO_INTEGER:
            for target in integers:
                yield f"cvt.{mode}.{target}.{source} {letter(target)}, {letter(source)}"
            yield f"cvt.{mode}.{source}.{source} {letter(source)}, {letter(source)}"
        yield f"cvt.sat.{source}.{source} {letter(source)}, {letter(source)}"
    for source, target in (("f64", "f32"), ("f64", "f16"), ("f32", "f16"), ("f64", "bf16"), ("f32", "bf16")):
        for mode in DIRECTED[:2] if target == "bf16" else DIRECTED:
            yield f"cvt.{mode}.{target}.{source} {letter(target)}, {letter(source)}"
    for source, target in (("f16", "f32"), ("f16", "f64"), ("f32", "f64"), ("bf16", "f32")):
        yield f"cvt.{target}.{source} {letter(target)}, {letter(source)}"
    for pair in ("f16x2", "bf16x2"):
        for mode in ("rn", "rz", "rn.relu"):
            yield f"cvt.{mode}.{pair}.f32 r, f, f"
    for narrow in ("e4m3x2", "e5m2x2"):
        yield f"cvt.rn.satfinite.{narrow}.f32 h, f, f"
        yield f"cvt.rn.satfinite.{narrow}.f16x2 h, r"
        yield f"cvt.rn.f16x2.{narrow} r, h"
    yield from ("cvt.rna.tf32.f32 r, f", "cvt.rn.tf32.f32 r, f")


def _comparisons() -> Iterator[str]:
    orders = ("eq", "ne", "lt", "le", "gt", "ge")
    for kind in ("f16", "bf16", "f32", "f64"):
        for order in (*orders, "equ", "ltu", "num", "nan"):
            yield _line(f"setp.{order}.{kind}", kind, 2, "p")
        yield _line(f"set.gt.u32.{kind}", kind, 2, "r")
        yield (
            _line(f"set.gt.{kind}.{kind}", kind, 2)
            if kind in ("f16", "bf16")
            else _line(f"set.gt.f32.{kind}", kind, 2, "f")
        )
    for kind in INTEGERS:
        for order in orders:
            yield _line(f"setp.{order}.{kind}", kind, 2, "p")
        register = letter(kind)
        yield f"selp.{kind} {register}, {register}, {register}, p"
    yield from (
        "slct.f32.s32 f, f, f, r",
        "slct.u32.f32 r, r, r, f",
        "selp.f32 f, f, f, p",
        "selp.f64 g, g, g, p",
    )


def _integers() -> Iterator[str]:
    for kind in INTEGERS:
        for root in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield _line(f"{root}.{kind}", kind, 2)
        yield _line(f"mad.lo.{kind}", kind, 3)
        register = letter(kind)
        yield f"shr.{kind} {register}, {register}, r"
        if kind[1:] != "64":
            wide = letter(f"{kind[0]}{2 * int(kind[1:])}")
            yield f"mul.wide.{kind} {wide}, {register}, {register}"
            yield f"mad.wide.{kind} {wide}, {register}, {register}, {wide}"
        if kind[0] == "s":
            yield _line(f"abs.{kind}", kind, 1)
            yield _line(f"neg.{kind}", kind, 1)
    for kind in ("u32", "u64"):
        for root, count in CARRY_OPERANDS.items():
            yield _line(f"{root}.{kind}", kind, count)
    yield from (
        "add.sat.s32 r, r, r",
        "mul24.hi.u32 r, r, r",
        "mad24.lo.s32 r, r, r, r",
        "sad.u32 r, r, r, r",
    )
    yield from ("dp4a.u32.s32 r, r, r, r", "dp2a.lo.s32.u32 r, r, r, r")
    yield from (
        "vadd4.u32.u32.u32 r, r, r, r",
        "vavrg2.s32.s32.s32 r, r, r, r",
        "vabsdiff4.u32.u32.u32.add r, r, r, r",
    )
    yield from ("add.u16x2 r, r, r", "min.s16x2 r, r, r", "max.relu.s32 r, r, r")


def _bits() -> Iterator[str]:
    for kind in ("b16", "b32", "b64"):
        for root in ("and", "or", "xor"):
            yield _line(f"{root}.{kind}", kind, 2)
        for root in ("not", "cnot"):
            yield _line(f"{root}.{kind}", kind, 1)
        yield f"shl.{kind} {letter(kind)}, {letter(kind)}, r"
    for kind in ("b32", "b64"):
        register = letter(kind)
        yield from (
            f"popc.{kind} r, {register}",
            f"clz.{kind} r, {register}",
            f"brev.{kind} {register}, {register}",
        )
        yield f"bfi.{kind} {register}, {register}, {register}, r, r"
        for sign in "us":
            yield f"bfe.{sign}{kind[1:]} {register}, {register}, r, r"
            yield f"bfind.{sign}{kind[1:]} r, {register}"
    yield from (
        "lop3.b32 r, r, r, r, 0x96",
        "prmt.b32 r, r, r, r",
        "fns.b32 r, r, 0, r",
        "szext.wrap.s32 r, r, r",
        "bmsk.clamp.b32 r, r, r",
    )
    for mode in ("l.wrap", "l.clamp", "r.wrap", "r.clamp"):
        yield f"shf.{mode}.b32 r, r, r, r"
    yield from ("and.pred p, p, p", "not.pred p, p", "mov.b64 d, d", "mov.b64 d, {r, r}", "mov.b32 r, {h, h}")


def _warps() -> Iterator[str]:
    for mode in ("up", "down", "bfly", "idx"):
        yield f"shfl.sync.{mode}.b32 r, r, r, r, -1"
    for mode in ("all", "any", "uni"):
        yield f"vote.sync.{mode}.pred p, p, -1"
    yield from ("vote.sync.ballot.b32 r, p, -1", "match.any.sync.b32 r, r, -1")
    yield "match.any.sync.b64 r, d, -1"
    for mode, kind in REDUCTIONS.items():
        yield f"redux.sync.{mode}.{kind} r, r, -1"
    yield "activemask.b32 r"


def _memory() -> Iterator[str]:
    for space, address in (("global", "%from"), ("shared", "%shared"), ("local", "%local")):
        for kind in ("u8", "s8", *INTEGERS, "f32", "f64"):
            yield f"ld.{space}.{kind} {letter(kind)}, [{address}]"
            yield f"st.{space}.{kind} [{address}], {letter(kind)}"
        yield f"ld.{space}.v2.b64 {{d, d}}, [{address}]"
        yield f"st.{space}.v4.b32 [{address}], {{r, r, r, r}}"
    for space, address in (("global", "%from"), ("shared", "%shared")):
        for operation, kinds in ATOMICS.items():
            for kind in kinds.split():
                yield f"atom.{space}.{operation}.{kind} {letter(kind)}, [{address}], {letter(kind)}"
                yield f"red.{space}.{operation}.{kind} [{address}], {letter(kind)}"
        yield from (
            f"atom.{space}.cas.b32 r, [{address}], r, r",
            f"atom.{space}.cas.b64 d, [{address}], d, d",
        )
        yield from (f"atom.{space}.cas.b16 h, [{address}], h, h",)
        for kind in ("f16", "f16x2", "bf16", "bf16x2"):
            yield f"atom.{space}.add.noftz.{kind} {letter(kind)}, [{address}], {letter(kind)}"
    yield from ("isspacep.shared p, %from", "cvta.shared.u64 d, %shared", "membar.gl", "fence.acq_rel.gpu")
    yield from (
        "cp.async.ca.shared.global [%shared], [%from], 16",
        "cp.async.commit_group",
        "cp.async.wait_all",
    )
    yield from ("bar.sync 0", "bar.red.popc.u32 r, 0, p", "bar.warp.sync -1")


def _textures() -> Iterator[str]:
    for coordinate, register in (("f32", "f"), ("s32", "r")):
        for geometry, count in (("1d", 1), ("2d", 2), ("3d", 4), ("a1d", 2), ("a2d", 4)):
            first = "r" if geometry[0] == "a" else register
            coordinates = ", ".join([first, *[register] * (count - 1)])
            for kind in ("f32", "u32"):
                four = ", ".join([letter(kind)] * 4)
                yield f"tex.{geometry}.v4.{kind}.{coordinate} {{{four}}}, [%from, {{{coordinates}}}]"
    yield from ("suld.b.2d.b32.trap {r}, [%from, {r, r}]", "sust.b.2d.b32.clamp [%from, {r, r}], {r}")


def _matrices() -> Iterator[str]:
    yield "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r, r, r, r}, [%shared]"
    yield "ldmatrix.sync.aligned.x4.m8n8.shared.b16 {r, r, r, r}, [%shared]"
    yield "ldmatrix.sync.aligned.x2.trans.m8n8.shared.b16 {r, r}, [%shared]"
    yield "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%shared], {r, r, r, r}"
    for shape, a, b in (("m16n8k8", 2, 1), ("m16n8k16", 4, 2)):
        for inside in ("f16", "bf16"):
            words = "{" + ", ".join(["r"] * a) + "}, {" + ", ".join(["r"] * b) + "}"
            sums = "{f, f, f, f}"
            yield f"mma.sync.aligned.{shape}.row.col.f32.{inside}.{inside}.f32 {sums}, {words}, {sums}"
            if inside == "f16":
                yield f"mma.sync.aligned.{shape}.row.col.f16.f16.f16.f16 {{r, r}}, {words}, {{r, r}}"
    yield (
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {f, f, f, f}, {r, r, r, r}, {r, r}, {f, f, f, f}"
    )


FAMILIES: dict[str, tuple[str, ...]] = {
    "floats": tuple(_floats()),
    "halves": tuple(_halves()),
    "conversions": tuple(_conversions()),
    "comparisons": tuple(_comparisons()),
    "integers": tuple(_integers()),
    "bits": tuple(_bits()),
    "warps": tuple(_warps()),
    "memory": tuple(_memory()),
    "textures": tuple(_textures()),
    "matrices": tuple(_matrices()),
}
_OPERAND = re.compile(r"(?<![%\w.])([prhdfg])(?![\w.])")
_NO_RESULT = ("st.", "red.", "sust", "membar", "fence", "cp.", "stmatrix", "bar.sync", "bar.warp")
# Registers of each kind that hold what was loaded.
_LOADED = 4
# A lane's operands and its room of each kind of memory, and each of its results.
OWN_BYTES = 64
LANE_BYTES = 8


class _Registers:
    """Names the operands of instructions: a new register for each result, loaded ones for the others."""

    def __init__(self) -> None:
        self.made = _LOADED
        self.results: list[tuple[str, str]] = []

    def named(self, text: str) -> str:
        opcode, _, operands = text.partition(" ")
        self.results = []
        count = 0

        def name(names: re.Match[str]) -> str:
            nonlocal count
            before = operands[: names.start()]
            inside = before.startswith("{") and "}" not in before
            if not opcode.startswith(_NO_RESULT) and ("," not in before or inside):
                self.made += 1
                self.results.append((names[1], f"%{names[1]}{self.made}"))
                return self.results[-1][1]
            count += 1
            return f"%{names[1]}{count % _LOADED}"

        return f"{opcode} {_OPERAND.sub(name, operands)};"


def kernel(lines: Iterable[str]) -> str:
    """PTX of a kernel ``k`` that does all of these and stores every result of each lane of one warp.

    Each lane reads `OWN_BYTES` of its own from the first array; a result is 32 times `LANE_BYTES` of the
    second, in the order of the lines.
    """
    body = []
    for offset in range(0, OWN_BYTES, 8):
        body += [f"st.{space}.u64 [%{space}+{offset}], {offset};" for space in ("shared", "local")]
    for name, kind in REGISTERS.items():
        for n in range(_LOADED):
            loaded = f"ld.global.{kind} %{name}{n}, [%from+{8 * n}];"
            body.append(f"setp.gt.u32 %p{n}, %r{n}, 77;" if name == "p" else loaded)
    registers = _Registers()
    stored = 0
    for text in lines:
        body.append(registers.named(text))
        for kind, name in registers.results:
            if kind == "p":
                body.append(f"selp.u32 %kept, 1, 0, {name};")
                name = "%kept"
                kind = "r"
            body.append(f"st.global.{REGISTERS[kind]} [%to+{LANE_BYTES * stored}], {name};")
            stored += 32
    made = registers.made
    inner = "\n  ".join(body)
    declared = "\n  ".join(f".reg .{kind} %{name}<{made + 1}>;" for name, kind in REGISTERS.items())
    return f"""
.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 from, .param .u64 to)
{{
  {declared}
  .reg .b32 %at, %kept;
  .reg .b64 %from, %to, %shared, %local;
  .shared .align 16 .b8 room[{32 * OWN_BYTES}];
  .local .align 16 .b8 own[{OWN_BYTES}];
  mov.u32 %at, %tid.x;
  mov.u64 %shared, room;
  mad.wide.u32 %shared, %at, {OWN_BYTES}, %shared;
  mov.u64 %local, own;
  ld.param.u64 %from, [from];
  mad.wide.u32 %from, %at, {OWN_BYTES}, %from;
  ld.param.u64 %to, [to];
  mad.wide.u32 %to, %at, {LANE_BYTES}, %to;
  {inner}
  ret;
}}
"""


def results(lines: Iterable[str]) -> list[tuple[str, str]]:
    """The results of `kernel` in the order that they are stored in: the line and the register's letter."""
    registers = _Registers()
    pairs = []
    for line in lines:
        registers.named(line)
        pairs += [(line, kind) for kind, _ in registers.results]
    return pairs

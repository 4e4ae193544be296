"""Instructions that are PTX and that are not: NVIDIA's assembler, which NVRTC brings, decides."""

from __future__ import annotations

import pytest

from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx import parser
from virtualgpu.errors import GpulabError, PtxError

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

TARGET = 80
REGISTERS = """.reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .u32 %u<4>; .reg .f32 %f<8>;
.reg .b64 %d<8>; .reg .f64 %g<8>;"""
INSTRUCTIONS = """
add.s32 %r1, %r2, %r3;
add.s32 %r1, %r2;
add.s32 %r1, %r2, %r3, %r4;
add %r1, %r2, %r3;
add.s32 %r1, %r2, %d1;
add.s32 %f1, %f2, %f3;
add.f32 %f1, %f2, 1;
add.f32 %f1, %f2, 0f3F800000;
add.f32 %u1, %u2, %u3;
add.s32 5, %r1, %r2;
add.s32 %r1, %r2, %p1;
add.s32 %r1, %r9, %r2;
add.pred %p1, %p2, %p3;
and.pred %p1, %p2, %p3;
and.pred %p1, !%p2, %p3;
and.b32 %r1, !%r2, %r3;
and.f32 %f1, %f2, %f3;
rem.f32 %f1, %f2, %f3;
not.b32 %r1, %r2;
mul.wide.s32 %d1, %r1, %r2;
mul.wide.s32 %r1, %r2, %r3;
mul.wide.s64 %d1, %d2, %d3;
mad.wide.u32 %d1, %r1, %r2, %d2;
mad.wide.u32 %d1, %r1, %r2, %r3;
mad.wide.f32 %g1, %f1, %f2, %g2;
setp.lt.s32 %p1, %r1, %r2;
setp.lt.s32 %p1|%p2, %r1, %r2;
setp.lt.s32 %r1, %r1, %r2;
setp.lo.f32 %p1, %f1, %f2;
setp.ltu.f32 %p1, %f1, %f2;
setp.ltu.s32 %p1, %r1, %r2;
setp.lo.u32 %p1, %r1, %r2;
setp.lt.and.s32 %p1, %r1, %r2, %p2;
setp.lt.and.s32 %p1, %r1, %r2;
setp.lt.s32 %p1, %r1, %r2, %p2;
selp.b32 %r1, %r2, %r3, %p1;
selp.b32 %r1, %r2, %r3, %r4;
slct.s32.f32 %r1, %r2, %r3, %f1;
slct.s32.u32 %r1, %r2, %r3, %r4;
cvt.f32.s32 %f1, %r1;
cvt.f32.s32 %f1, %r1, %r2;
cvt.f32 %f1, %r1;
cvt.f32.pred %f1, %p1;
cvt.u8.u32 %r1, %r2;
cvt.u64.u32 %r1, %r2;
cvt.rn.f16x2.f32 %r1, %f1, %f2;
cvt.rn.f16x2.f32 %r1, %f1;
mov.b32 %r1, %r2;
mov.b32 %r1, %d1;
mov.b32 %r1, {%h1, %h2};
mov.b32 {%h1, %h2}, %r1;
mov.b32 %r1, {%h1, %h2, %h3};
mov.b64 %d1, {%r1, %r2};
mov.b64 %d1, {%h1, %h2, %h3, %h4};
mov.b64 %d1, {%h1, %h2};
mov.b32 {%h1, %h2}, {%h3, %h4};
mov.u32 %r1, %tid.x;
mov.u32 %r1, %tid.w;
mov.u32 %r1, %laneid;
mov.pred %p1, %p2;
mov.pred %p1, %r2;
mov.b32 5, %r1;
mov %r1, %r2;
ld.global.u32 %r1, [%d1];
ld.global.u32 %r1, [%d1+4];
ld.global.u32 %r1, %d1;
ld.global.u32 %r1, [%h1];
ld.global.u8 %r1, [%d1];
ld.global.u64 %r1, [%d1];
ld.global.v2.u32 {%r1, %r2}, [%d1];
ld.global.v2.u32 {%r1, %r2, %r3}, [%d1];
ld.global.v4.u32 {%r1, %r2}, [%d1];
ld.global.u32 {%r1, %r2}, [%d1];
ld.global.pred %p1, [%d1];
st.global.u32 [%d1], %r1;
st.global.u32 [%d1], 7;
st.global.u32 %r1, [%d1];
st.global.v2.f32 [%d1], {%f1, %f2};
st.global.v2.f32 [%d1], %f1;
shfl.sync.idx.b32 %r1, %r2, %r3, %r4, -1;
shfl.sync.idx.b32 %r1|%p1, %r2, %r3, %r4, -1;
shfl.sync.idx.b32 %r1, %r2, %r3, %r4;
shfl.sync.b32 %r1, %r2, %r3, %r4, -1;
shfl.sync.idx.b32 %d1, %r2, %r3, %r4, -1;
vote.sync.ballot.b32 %r1, %p1, -1;
vote.sync.all.pred %p1, %p2, -1;
vote.sync.ballot.b32 %p1, %p2, -1;
vote.sync.ballot.b32 %r1, %r2, -1;
atom.global.add.u32 %r1, [%d1], %r2;
atom.global.add.u32 %r1, [%d1];
atom.global.cas.b32 %r1, [%d1], %r2, %r3;
atom.global.cas.b32 %r1, [%d1], %r2;
atom.global.add.f32 %f1, [%d1], %f2;
red.global.add.u32 [%d1], %r2;
red.global.add.u32 %r1, [%d1], %r2;
bar.sync 0;
bar.sync %r1;
bar.sync %d1;
bar.sync 0, 64;
bar.red.popc.u32 %r1, 0, %p1;
bar.red.and.pred %p1, 0, %p2;
@%p1 add.s32 %r1, %r2, %r3;
@!%p1 add.s32 %r1, %r2, %r3;
@%r1 add.s32 %r1, %r2, %r3;
popc.b32 %r1, %r2;
popc.b64 %r1, %d1;
popc.b64 %d1, %d2;
clz.b32 %r1, %d1;
bfe.u32 %r1, %r2, %r3, %r4;
bfe.u32 %r1, %r2, %r3;
bfi.b32 %r1, %r2, %r3, %r4, %r5;
prmt.b32 %r1, %r2, %r3, %r4;
lop3.b32 %r1, %r2, %r3, %r4, 7;
lop3.b32 %r1, %r2, %r3, %r4, %r5;
shl.b64 %d1, %d2, %r1;
shl.b64 %d1, %d2, %d3;
shf.l.wrap.b32 %r1, %r2, %r3, %r4;
dp4a.s32.s32 %r1, %r2, %r3, %r4;
fma.rn.f32 %f1, %f2, %f3, %f4;
fma.rn.f32 %f1, %f2, %f3;
sqrt.rn.f64 %g1, %g2;
sqrt.rn.f64 %g1, %f1;
sqrt.rn.s32 %r1, %r2;
neg.s32 %r1, %r2;
abs.u32 %r1, %r2;
testp.finite.f32 %p1, %f1;
testp.finite.f32 %f1, %f1;
isspacep.global %p1, %d1;
cvta.to.global.u64 %d1, %d2;
activemask.b32 %r1;
redux.sync.add.u32 %r1, %r2, -1;
match.any.sync.b32 %r1, %r2, -1;
match.all.sync.b32 %r1|%p1, %r2, -1;
elect.sync %r1|%p1, -1;
set.eq.u32.s32 %r1, %r2, %r3;
set.eq.u16.s32 %h1, %r2, %r3;
set.eq.u32.s32 %r1, %r2;
copysign.f32 %f1, %f2, %f3;
szext.clamp.u32 %r1, %r2, %r3;
bmsk.clamp.b32 %r1, %r2, %r3;
brev.b32 %r1, %r2;
sad.u32 %r1, %r2, %r3, %r4;
addc.u32 %r1, %r2, %r3;
addc.u16 %h1, %h2, %h3;
min.f32 %f1, %f2, %f3;
min.pred %p1, %p2, %p3;
bra nowhere;
""".strip().splitlines()

# Instructions that only our parser or only ptxas refuses, and why.
DIFFERENT = {
    "add.s32 %r1, %r9, %r2;": "what nothing declares passes as a special register until it is read",
    "cvt.f32.s32 %f1, %r1;": "a rounding that is left out is taken for the usual one",
    "mov.u32 %r1, %tid.w;": "the assembler gives 0 for a fourth axis",
    "ld.global.u32 %r1, [%h1];": "the assembler takes addresses of 16 bits",
    "bar.sync %d1;": "of a barrier's number the width is not checked",
    "abs.u32 %r1, %r2;": "signs are not told apart",
    "elect.sync %r1|%p1, -1;": "there whatever the target",
    "set.eq.u16.s32 %h1, %r2, %r3;": "the widths of results are not all checked",
    "addc.u16 %h1, %h2, %h3;": "the assembler adds 16 bits with carry, which NVRTC never writes",
}


def refused_here(instruction: str) -> bool:
    body = f"{REGISTERS}\n{instruction}\nret;\n"
    try:
        parser.parse(
            f".version 8.0\n.target sm_{TARGET}\n.address_size 64\n.visible .entry k()\n{{\n{body}}}\n"
        )
    except PtxError as error:
        return instruction.split()[0] in str(error) or "nowhere" in str(error)
    return False


def refused_by_ptxas(instruction: str) -> bool:
    registers = REGISTERS.replace("\n", " ")
    try:
        nvrtc.compile_cubin(
            f'extern "C" __global__ void k() {{ asm volatile("{{ {registers} {instruction} }}"); }}',
            target=TARGET,
        )
    except GpulabError as error:
        return "ptxas" in str(error)
    return False


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_parser_and_ptxas_refuse_the_same_instructions(instruction: str) -> None:
    same = refused_here(instruction) == refused_by_ptxas(instruction)
    assert same == (instruction not in DIFFERENT)


def test_instructions_include_accepted_and_refused_ones() -> None:
    refused = sum(map(refused_here, INSTRUCTIONS))
    assert 50 < refused < len(INSTRUCTIONS) - 50


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (".reg .b32 %r<100000000>;", "100000000 registers are more than PTX allows"),
        (".reg .b33 %r<4>;", "cannot read"),
        (".shared .align 3 .b8 s[4];", "alignment 3, which is not a power of two"),
        (".shared .align 4 .b8 s[9999999999999];", "more than any GPU's memory"),
        (".shared .q8 s[4];", "type .q8 of s is not known"),
        ("ret;\n}\n{", "cannot read"),
        (".frobnicate;", "cannot read '.frobnicate;'"),
        ("{ ret;", "does not end"),
        ("ret", "cannot read"),
    ],
)
def test_errors_for_unsupported_and_malformed_statements(text: str, words: str) -> None:
    with pytest.raises(PtxError, match=words):
        parser.parse(f".version 8.0\n.target sm_80\n.entry k()\n{{\n{text}\n}}\n")


def test_errors_name_the_line_of_the_ptx() -> None:
    with pytest.raises(PtxError, match="PTX line 4: "):
        parser.parse(".version 8.0\n.target sm_80\n.entry k()\n{ .frobnicate;\n}\n")
    with pytest.raises(PtxError, match=r"no \.version line"):
        parser.parse(".target sm_80\n")


def test_parses_branch_tables_scopes_and_line_info() -> None:
    text = """.version 8.0
.target sm_80
.global .align 4 .b8 start[6] = {1, 0x2, 255};
.entry k(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20])
.maxntid 8, 4, 2
{
.reg .b32 %r<2>;
.reg .pred %q;
.loc 1 7 3
{ .reg .b32 %t; mov.u32 %t, 1; }
{ .reg .b64 %t; mov.u64 %t, 2; }
.loc 2 9 1, function_name $L, inlined_at 1 8 5
ONE: mov.u32 %r0, 5;
.loc 2 11 1
table: .branchtargets ONE, TWO;
@!%q brx.idx %r0, table;
TWO: ret;
}
.file 1 "mine.cu"
.file 2 "header.h"
"""
    module = parser.parse(text)
    function = module.functions["k"]
    assert [(p.name, p.offset, p.size_bytes) for p in function.params] == [
        ("a", 0, 1),
        ("b", 8, 8),
        ("c", 16, 20),
    ]
    assert (function.param_bytes, function.max_threads) == (36, 64)
    first, two, five, jump, end = function.instructions
    assert first.operands[0] != two.operands[0]  # each block has its own %t
    assert jump.targets == (five.pc, end.pc)
    assert (jump.guard, jump.guard_negated) == ("%q", True)
    # Lines of the learner's own file: an inlined function counts where it was called.
    assert [(i.line, i.column) for i in (first, five, jump)] == [(7, 3), (8, 5), (8, 5)]
    assert end.root == "ret"
    assert module.variables["start"].initial == bytes([1, 2, 255])
    assert module.variables["start"].size_bytes == 6


def test_inlined_code_is_attributed_to_its_outermost_call() -> None:
    text = """.version 8.0
.target sm_80
.entry k()
{
.reg .b32 %r<9>;
.loc 1 7 3
.loc 2 20 1, function_name $A, inlined_at 1 7 3
.loc 3 30 1, function_name $B, inlined_at 2 20 1
mov.u32 %r0, 1;
.loc 2 20 1, function_name $A, inlined_at 1 9 3
.loc 3 30 1, function_name $B, inlined_at 2 20 1
mov.u32 %r1, 1;
.loc 1 6 5
mov.u32 %r2, 2;
.loc 3 30 1, function_name $B, inlined_at 2 20 1
mov.u32 %r3, 3;
.loc 1 8 1
.loc 3 30 1, function_name $B, inlined_at 2 20 1
mov.u32 %r4, 3;
.loc 1 11 1
.loc 3 30 1, function_name $B, inlined_at 2 20 1
mov.u32 %r5, 3;
.loc 3 40 1, function_name $C, inlined_at 2 21 1
mov.u32 %r6, 4;
ret;
}
.file 1 "mine.cu"
.file 2 "outer.h"
.file 3 "inner.h"
"""
    *moves, _ = parser.parse(text).functions["k"].instructions
    # The caller in the header has two callers, in lines 7 and 9: the next one, or else the latest.
    assert [i.line for i in moves[:-1]] == [7, 9, 6, 7, 9, 9]
    # The last caller is not known, so its line is that of the instruction before.
    assert moves[-1].line == 9


def test_inner_scopes_shadow_outer_declarations() -> None:
    module = parser.parse(
        """.version 8.0
.target sm_80
.entry k()
{
.reg .b32 %r1;
mov.u32 %r1, 1;
{ .reg .b32 %r1; mov.u32 %r1, 2; }
mov.u32 %r1, 3;
ret;
}
.entry other()
{
.reg .b64 %r1;
mov.u64 %r1, 4;
ret;
}
"""
    )
    outer, two, three = (i.operands[0] for i in module.functions["k"].instructions[:3])
    assert outer == three
    assert outer != two
    assert module.functions["other"].registers == {"%r1": "b64"}

"""What generated kernels once got wrong, each as small as it gets."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.ptx_runner import apply, launch
from virtualgpu.compile.ptx import parser
from virtualgpu.cuda_errors import IllegalAddressError
from virtualgpu.engine import PackedLaunch, Program
from virtualgpu.engine.lower import codegen, function
from virtualgpu.errors import NotSupportedError, PtxError
from virtualgpu.model.memory import DeviceMemory


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        ("f64", "s32", -(2**31)),
        ("f64", "u32", 2**31),
        ("f64", "s64", -(2**63)),
        ("f64", "u64", 2**63),
        ("f32", "s64", -(2**63)),
        ("f32", "s32", 0),
        ("f32", "u32", 0),
    ],
)
def test_nan_becomes_the_sign_bit_or_zero(source: str, target: str, value: int) -> None:
    """PTX ISA, cvt: zero only where neither type has 64 bits."""
    (result,) = apply(f"cvt.rzi.{target}.{source} %out, %in0;", target, (source,), (np.array([np.nan]),))
    assert int(result) == value


def test_64_bit_bfe_uses_all_bits_of_position_and_length() -> None:
    """An H200 uses only the lowest byte of position and length in bfe.u32, but all bits in bfe.u64."""
    words = np.full(4, 0xF0F0, np.uint32)
    positions = np.array([4, 4 + 256, 260, 4], np.uint32)
    lengths = np.array([8, 8, 8 + 256, 1 << 20], np.uint32)
    short = apply("bfe.u32 %out, %in0, %in1, %in2;", "u32", ("u32",) * 3, (words, positions, lengths))
    assert short.tolist() == [0x0F, 0x0F, 0x0F, 0]
    long = apply("bfe.u64 %out, %in0, %in1, %in2;", "u64", ("u64", "u32", "u32"), (words, positions, lengths))
    assert long.tolist() == [0x0F, 0, 0, 0xF0F]
    ones = np.full(4, 2**64 - 1, np.uint64)
    put = apply(
        "bfi.b64 %out, %in0, %in1, %in2, %in3;",
        "b64",
        ("b64", "b64", "u32", "u32"),
        (np.zeros(4, np.uint64), ones, positions, lengths),
    )
    assert put.tolist() == [2**64 - 1 - 0xFF0, 2**64 - 1, 2**64 - 1, 0xF]


BYTES = np.array([0, 0x01020304, 0xFF7F8000, 0x80FF007F, 0xFFFFFFFF, 0x12345678], np.uint32)


def test_absolute_differences_of_packed_bytes() -> None:
    a, b = (x.ravel() for x in np.meshgrid(BYTES, BYTES))
    zero = np.zeros_like(a)
    gap = np.abs(a.view(np.uint8).astype(np.int16) - b.view(np.uint8))
    result = apply("vabsdiff4.u32.u32.u32 %out, %in0, %in1, %in2;", "u32", ("u32",) * 3, (a, b, zero))
    assert (result == gap.astype(np.uint8).view(np.uint32)).all()
    total = apply("vabsdiff4.u32.u32.u32.add %out, %in0, %in1, %in2;", "u32", ("u32",) * 3, (a, b, a))
    assert (total == gap.reshape(-1, 4).sum(axis=1).astype(np.uint32) + a).all()


@pytest.mark.parametrize(
    ("name", "dtype", "function"),
    [
        ("add.u16x2", np.uint16, np.add),
        ("add.s16x2", np.int16, np.add),
        ("min.s16x2", np.int16, np.minimum),
        ("max.u16x2", np.uint16, np.maximum),
        ("max.relu.s16x2", np.int16, lambda a, b: np.maximum(np.maximum(a, b), 0)),
        ("min.relu.s16x2", np.int16, lambda a, b: np.maximum(np.minimum(a, b), 0)),
    ],
)
def test_packed_half_words(name: str, dtype: type, function: np.ufunc) -> None:
    a, b = (x.ravel() for x in np.meshgrid(BYTES, BYTES))
    result = apply(f"{name} %out, %in0, %in1;", "u32", ("u32", "u32"), (a, b), target=90)
    assert (result == function(a.view(dtype), b.view(dtype)).view(np.uint32)).all()


NOWHERE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{{
  .reg .b64 %p; .reg .b{bits} %v;
  mov.b64 %p, {address};
  ld.global.b{bits} %v, [%p];
  st.global.b{bits} [%p], %v;
  ret;
}}
"""


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("address", [0, 8, -8, -16, 1 << 63, (1 << 55) - 8])
def test_null_and_wrapping_pointers_are_faults(address: int, bits: int) -> None:
    """All lanes use a null pointer, or an address so high that the access ends at address 0."""
    with pytest.raises(IllegalAddressError):
        launch(NOWHERE.format(address=address, bits=bits), "k", [np.zeros(4, np.uint32)])


def test_the_upper_part_of_a_24_bit_product_starts_at_bit_16() -> None:
    a, b = (x.ravel() for x in np.meshgrid(BYTES, BYTES))
    product = (a & 0xFFFFFF).astype(np.uint64) * (b & 0xFFFFFF).astype(np.uint64)
    result = apply("mul24.hi.u32 %out, %in0, %in1;", "u32", ("u32", "u32"), (a, b))
    assert (result == (product >> np.uint64(16)).astype(np.uint32)).all()
    low = [(x & 0xFFFFFF) - (x & 0x800000) * 2 for x in a.tolist()]
    high = [(x & 0xFFFFFF) - (x & 0x800000) * 2 for x in b.tolist()]
    expected = np.array([(x * y >> 16) & 0xFFFFFFFF for x, y in zip(low, high, strict=True)], np.uint32)
    result = apply(
        "mul24.hi.s32 %out, %in0, %in1;", "s32", ("s32", "s32"), (a.view(np.int32), b.view(np.int32))
    )
    assert (result.view(np.uint32) == expected).all()


ATOMIC_ADD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
  .reg .b64 %p; .reg .b32 %t; .reg .f32 %f<4>; .reg .pred %q; .shared .align 4 .f32 cell;
  ld.param.u64 %p, [k_param_0];
  mov.u32 %t, %tid.x;
  setp.ne.u32 %q, %t, 0;
  @%q bra DONE;
  ld.global.f32 %f1, [%p+4];
  atom.global.add.f32 %f2, [%p], %f1;
  st.global.f32 [%p+8], %f2;
  ld.global.f32 %f2, [%p+16];
  st.shared.f32 [cell], %f2;
  atom.shared.add.f32 %f3, [cell], %f1;
  ld.shared.f32 %f3, [cell];
  st.global.f32 [%p+12], %f3;
DONE:
  ret;
}
"""


def test_global_float_atomics_flush_subnormals_to_zero() -> None:
    """As on an H200. Shared-memory atomics keep subnormals (PTX ISA). The old value is returned unchanged."""
    tiny = np.float32(3e-39)
    start = np.array([tiny, tiny, 7, 7, tiny], np.float32)
    (after,) = launch(ATOMIC_ADD, "k", [start])
    assert after.tolist() == [0.0, tiny, tiny, np.float32(tiny + tiny), tiny]
    (after,) = launch(ATOMIC_ADD, "k", [np.array([-tiny, 1.5, 7, 7, 0.25], np.float32)])
    assert after.tolist() == [1.5, 1.5, -tiny, 1.75, 0.25]


PARAMETER_ARRAY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .align 2 .b8 k_param_1[8])
{
  .reg .b64 %p<5>; .reg .b32 %r<4>; .reg .b16 %h;
  ld.param.u64 %p1, [k_param_0];
  mov.b64 %p2, k_param_1;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %p3, %r1, 2;
  add.s64 %p3, %p2, %p3;
  ld.param.s16 %r2, [%p3+OFFSET];
  mad.wide.u32 %p4, %r1, 4, %p1;
  st.global.u32 [%p4], %r2;
  ret;
}
"""


def run_with_parameter_array(offset: str) -> list[int]:
    memory = DeviceMemory(1 << 24)
    address = memory.malloc(16)
    memory.track_allocation(address, 16, "result")
    params = address.to_bytes(8, "little") + np.array([-1, 2, -3, 4], np.int16).tobytes()
    Program(PARAMETER_ARRAY.replace("OFFSET", offset)).launch(
        PackedLaunch("k", (1, 1, 1), (4, 1, 1), params), memory
    )
    return memory.view(address, 16).view(np.int32).tolist()


def test_an_array_among_the_parameters_can_be_indexed() -> None:
    assert run_with_parameter_array("0") == [-1, 2, -3, 4]
    with pytest.raises(IllegalAddressError):
        run_with_parameter_array("65536")


def test_a_load_beyond_a_parameter_is_refused() -> None:
    text = NOWHERE.format(address=0, bits=32).replace(
        "ld.global.b32 %v, [%p]", "ld.param.b32 %v, [k_param_0+4096]"
    )
    with pytest.raises(PtxError, match="does not fit the parameter"):
        launch(text, "k", [np.zeros(4, np.uint32)])


@pytest.mark.parametrize(
    "fetch",
    [
        "tex.cube.v4.f32.f32 {%v, %v, %v, %v}, [%p, {%v, %v, %v, %v}]",
        "tex.1d.v4.f16.s32 {%v, %v, %v, %v}, [%p, {%v}]",
        "tex.2d.v4.f32.s32 {%v, %v, %v, %v}, [reference, sampler, {%v, %v}]",
        "tex.1d.v4.f32.s32 {%v, %v, %v, %v}, [reference, {%v}]",
        "tld4.r.2d.v4.f32.f32 {%v, %v, %v, %v}, [%p, {%v, %v}]",
        "txq.width.b32 %v, [%p]",
        "suld.b.2d.b128.trap {%v}, [%p, {%v, %v}]",
    ],
)
def test_unsupported_texture_fetches_are_refused(fetch: str) -> None:
    text = NOWHERE.format(address=0, bits=32).replace("ld.global.b32 %v, [%p]", fetch)
    with pytest.raises(NotSupportedError, match=r"tex2D|TextureObject"):
        launch(text, "k", [np.zeros(4, np.uint32)])


def test_a_kernel_too_large_to_translate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor-core sample of 5,000 instructions once took all memory of the machine."""
    monkeypatch.setattr(function, "_MAX_LINES", 20)
    with pytest.raises(NotSupportedError, match="too many"):
        codegen.generate_kernel(parser.parse(ATOMIC_ADD), "k", with_counters=False, with_trace=False)


@pytest.mark.parametrize("text", ["bra;", "bra.uni ;", "brx.idx ;", "@%p1 bra;"])
def test_a_branch_without_a_target_raises_a_ptx_error(text: str) -> None:
    body = f".version 8.0\n.target sm_80\n.entry k() {{ .reg .pred %p<2>;\n {text}\n ret;\n}}\n"
    with pytest.raises(PtxError, match="has no target label"):
        parser.parse(body)


def test_the_address_of_local_memory_outside_a_kernel_is_refused() -> None:
    """Damaged PTX that names local memory outside the kernel once ended in a KeyError."""
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.local .align 8 .b8 depot[24];\n"
    text += ".entry k(.param .u64 p) { .reg .b64 %r;\n mov.b64 %r, depot;\n ret;\n}\n"
    with pytest.raises(NotSupportedError, match="address of depot"):
        launch(text, "k", [np.zeros(4, np.uint32)])


@pytest.mark.parametrize("target", [".shared .align 8 .b8 other[24];\n", ""])
def test_a_pointer_to_a_non_global_symbol_raises_a_ptx_error(target: str) -> None:
    text = ".version 8.0\n.target sm_80\n.address_size 64\n" + target
    text += ".global .align 8 .u64 pointer[1] = {other};\n"
    text += ".entry k(.param .u64 p) { .reg .b64 %r;\n mov.b64 %r, pointer;\n ret;\n}\n"
    with pytest.raises(PtxError, match="other"):
        launch(text, "k", [np.zeros(4, np.uint32)])

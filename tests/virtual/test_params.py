"""Packing kernel arguments: the bytes a GPU would read, and every mismatch as an error."""

from __future__ import annotations

import re
import struct
import warnings
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.errors import ArgumentWarning
from virtualgpu.launch.params import PackedArguments, pack_arguments
from virtualgpu.launch.signature import parse_source_params
from virtualgpu.model import machine as slot

pytestmark = [
    pytest.mark.usefixtures("two_gpus"),
    pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed"),
]

CODE = r"""
struct Point { float x; int id[3]; };
extern "C" __global__ void mixed(
    float* out, const double* in, int n, float f, double d, unsigned long long u, short s, bool b, Point p
) { out[0] = in[0] + n + f + d + u + s + b + p.x + p.id[2]; }
extern "C" __global__ void simple(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = n; }
"""
POINT = np.dtype([("x", np.float32), ("id", np.int32, 3)])


@pytest.fixture(scope="module")
def entries() -> dict[str, Any]:
    return dict(parse(nvrtc.compile_ptx(CODE, target=90).ptx).entries)


def packed(
    entries: dict[str, Any], kernel: str, args: Any, with_source: bool = True, surplus: bool = False
) -> PackedArguments:
    entry = entries[kernel]
    source = parse_source_params(CODE, kernel) if with_source else None
    device = slot.current().current_device
    return pack_arguments(kernel, entry.params, entry.param_bytes, source, args, device, allow_extra=surplus)


def test_bytes_are_those_of_the_c_layout(entries: dict[str, Any]) -> None:
    out = cp.zeros(8, cp.float32)
    numbers = cp.zeros(4, cp.float64)
    point = np.array((1.5, [7, 8, 9]), POINT)
    args = (out, numbers, np.int32(-5), np.float32(0.25), 2.5, np.uint64(2**63), np.int16(-3), True, point)
    expected = struct.pack(
        "<QQifdQh?xfiii", out.data.ptr, numbers.data.ptr, -5, 0.25, 2.5, 2**63, -3, True, 1.5, 7, 8, 9
    )
    result = packed(entries, "mixed", args)
    assert result.buffer == expected
    assert sum(result.arrays.values()) == 8 * 4 + 4 * 8


@pytest.mark.parametrize(
    ("value", "word"),
    [(7, 7), (np.int32(-1), 0xFFFFFFFF), (np.uint32(2**32 - 1), 0xFFFFFFFF), (-2, 0xFFFFFFFE)],
)
def test_integers_are_packed_as_32_bit_words(entries: dict[str, Any], value: Any, word: int) -> None:
    assert packed(entries, "simple", (None, value)).buffer == struct.pack("<QI", 0, word)


def test_views_and_pointers_are_packed_as_addresses(entries: dict[str, Any]) -> None:
    array = cp.arange(10, dtype=cp.float32)
    tail = packed(entries, "simple", (array[4:], 1))
    assert struct.unpack_from("<Q", tail.buffer)[0] == array.data.ptr + 16
    assert sum(tail.arrays.values()) == 24
    pointer = packed(entries, "simple", (array.data + 8, 1))
    assert struct.unpack_from("<Q", pointer.buffer)[0] == array.data.ptr + 8


def test_bytes_of_an_array_passed_twice_count_once(entries: dict[str, Any]) -> None:
    numbers = cp.zeros(4, cp.float64)
    args = (numbers.view(cp.uint8), numbers, 1, np.float32(1), 1.0, 1, 1, False, np.zeros((), POINT))
    assert sum(packed(entries, "mixed", args).arrays.values()) == 32


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (lambda x: (x,), r"takes 2 arguments but 1 was passed.*float\* x, int n"),
        (lambda x: (x, np.int16(4)), r"numpy\.int16 has 2 bytes.*'int' \(4 bytes\).*np\.int32\(n\)"),
        (lambda x: (x, x), "device array was passed where the kernel takes 'int'"),
        (lambda x: (1.0, 4), r"argument 1 \('x'\).*Pass a device array"),
        (lambda x: (np.zeros(3), 4), r"numpy\.ndarray of shape \(3,\).*cp\.asarray\(x\)"),
        (lambda x: ([1], 4), "Unsupported type <class 'list'>"),
        (lambda x: ("x", 4), "Unsupported type <class 'str'>"),
        (lambda x: (cp.zeros(3), 4), r"reads 'float\*' but the array has float64.*astype\(cp\.float32\)"),
        (lambda x: (x.astype(cp.int32), 4), r"has int32"),
    ],
)
def test_mismatches_name_the_argument_and_the_remedy(
    entries: dict[str, Any], args: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        packed(entries, "simple", args(cp.zeros(4, cp.float32)))


# What an H200 read with CuPy 14.2.
@pytest.mark.parametrize(
    ("kind", "value", "word", "message"),
    [
        ("float", 1.5, 0, r"Python float has 8 bytes.*'float' \(4 bytes\).*as 0\.0.*float32\(v\)"),
        ("float", 0.1, 2576980378, r"reads a part of 0\.1, as -1\.\d+e-23"),
        ("float", np.float64(1.5), 0, r"numpy\.float64 has 8 bytes"),
        ("float", 3, 3, r"Python int has 8 bytes"),
        ("float", np.int32(3), 3, r"numpy\.int32 was passed.*bytes of 3, as 4e-45"),
        ("double", 3, 3, r"Python int was passed.*np\.float64\(v\)"),
        ("int", 2.5, 0, r"Python float has 8 bytes.*'int'.*np\.int32\(v\)"),
        ("int", (1 << 40) + 7, 7, r"1099511627783 does not fit into 'int'.*reads 7, its lower bytes.*wider"),
        ("int", 1 << 63, 0, "does not fit"),
        ("unsigned char", 300, 44, r"300 does not fit into 'unsigned char' \(1 byte\)"),
        ("float2", 1 + 2j, 1072693248 << 32, r"Python complex has 16 bytes.*as 0\.0, 1\.875"),
        ("int", -3, 2**32 - 3, ""),
        ("int", np.int64(5), 5, ""),
        ("int", True, 1, ""),
        ("unsigned int", 2**32 - 1, 2**32 - 1, ""),
        ("unsigned long long", 2**64 - 1, 2**64 - 1, ""),
        ("bool", 1, 1, ""),
    ],
)
def test_python_numbers_are_converted_as_in_cupy(kind: str, value: Any, word: int, message: str) -> None:
    code = f'extern "C" __global__ void k(unsigned long long* o, {kind} v) {{ memcpy(o, &v, sizeof v); }}'
    out = cp.zeros(1, cp.uint64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cp.RawKernel(code, "k")((1,), (1,), (out, value))
    assert int(out[0]) == word
    assert [w.category for w in caught] == ([ArgumentWarning] if message else [])
    if message:
        assert re.search(rf"^Kernel 'k', argument 2 \('v'\): .*{message}", str(caught[0].message))
        assert caught[0].filename == __file__


def test_integers_above_64_bits_raise_overflow_error(entries: dict[str, Any]) -> None:
    with pytest.raises(OverflowError, match="too large to convert to C long"):
        packed(entries, "simple", (None, 1 << 64))


def test_a_structure_of_another_size_is_refused(entries: dict[str, Any]) -> None:
    wrong = np.zeros((), np.dtype([("x", np.float32)]))
    args = (None, None, 1, np.float32(1), 1.0, 1, 1, False, wrong)
    with pytest.raises(TypeError, match=r"'Point' \(16 bytes\)"):
        packed(entries, "mixed", args)


def test_without_the_source_only_sizes_are_checked(entries: dict[str, Any]) -> None:
    packed(entries, "simple", (cp.zeros(3), 4), with_source=False)
    with pytest.raises(TypeError, match=r"Kernel 'simple', argument 2: numpy\.int16 has 2 bytes"):
        packed(entries, "simple", (None, np.int16(4)), with_source=False)


def test_byte_views_and_complex_arrays_are_accepted(entries: dict[str, Any]) -> None:
    x = cp.zeros(4, cp.float32)
    packed(entries, "simple", (x.view(cp.uint8), 4))
    packed(entries, "simple", (cp.zeros(4, cp.complex64), 4))


def test_surplus_arguments_are_ignored_with_a_warning(entries: dict[str, Any]) -> None:
    with pytest.warns(ArgumentWarning, match=r"takes 2 arguments but 3 were passed.*the last one is ignored"):
        assert packed(entries, "simple", (None, 7, 8), surplus=True).buffer == struct.pack("<QI", 0, 7)
    with pytest.warns(ArgumentWarning, match="the last 2 are ignored"):
        packed(entries, "simple", (None, 7, object(), object()), surplus=True)


def test_observed_launches_refuse_surplus_arguments(entries: dict[str, Any]) -> None:
    # A probe on a real GPU gets an argument of its own, which must come right after the kernel's.
    with pytest.raises(
        TypeError, match=r"takes 2 arguments but 3 were passed\. Pass one value per parameter"
    ):
        packed(entries, "simple", (None, 7, 8))


@pytest.mark.parametrize(
    ("view", "number", "warned"),
    [
        (lambda x: x, 4, False),
        (lambda x: x[2:], 4, False),
        (lambda x: cp.asfortranarray(x), 4, False),
        (lambda x: x[:, :4], 4, True),
        (lambda x: x[:, :4], 8, False),  # the pitch
        (lambda x: x[:, :4], 32, False),  # the pitch in bytes
        (lambda x: x.T, 4, True),
        (lambda x: x.T, 8, False),
        (lambda x: x[:, 0], 4, True),
        (lambda x: x[0, ::2], 2, False),
        (lambda x: x[0, ::-1], 8, True),
        (lambda x: cp.broadcast_to(x[0], (3, 8)), 0, True),
        (lambda x: x[:1].T, 4, False),  # there is one row, without gaps
    ],
)
def test_a_strided_view_passed_without_its_strides_warns(
    entries: dict[str, Any], view: Any, number: int, warned: bool
) -> None:
    x = view(cp.zeros((4, 8), cp.float32))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        packed(entries, "simple", (x, number))
    texts = [str(warning.message) for warning in caught]
    assert bool(texts) == warned
    assert all(f"argument 1 ('x'): this view of shape {x.shape} has strides" in text for text in texts)

"""Record the layout of the fragments of ``wmma`` on a GPU: ``python -m tools.recordings.wmma_layouts``.

NVIDIA does not document which element of a matrix is in ``fragment.x[i]`` of a lane. A kernel therefore
loads matrices whose elements are their own indices, and stores ``x[i]`` of each lane. Because a lane can hold
an element more than once, other launches replace one ``x[i]`` of all lanes before the multiplication, and the
result shows whether the multiplication reads it. All results are compared with those of NumPy.

The record has a row and a column for each bit of the lane's number and of i. The position of an element is
their sum over the bits that are 1.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import gpulab as gl
from gpulab import session
from virtualgpu.engine.lower.ops.matrices import wmma_layouts

LANES = 32
_REPLACEMENT = 2  # no element of the factors has this value
_CODE = r"""
#include <mma.h>
using namespace nvcuda::wmma;

template <typename A, typename B, typename C, typename T, typename S>
__device__ void probe(const T* a, const T* b, const S* c, T* xa, T* xb, S* xc, S* xd, S* d, S* lanes,
                      int* counts, int lda, int ldb, int ldc, int replaced, int number, float value)
{
    A fa;
    B fb;
    C fc, fd;
    int lane = threadIdx.x;
    counts[0] = fa.num_elements, counts[1] = fb.num_elements, counts[2] = fc.num_elements;
    load_matrix_sync(fa, a, lda);
    load_matrix_sync(fb, b, ldb);
    load_matrix_sync(fc, c, ldc, mem_row_major);
    for (int i = 0; i < fa.num_elements; ++i) xa[32 * i + lane] = fa.x[i];
    for (int i = 0; i < fb.num_elements; ++i) xb[32 * i + lane] = fb.x[i];
    for (int i = 0; i < fc.num_elements; ++i) xc[32 * i + lane] = fc.x[i];
    for (int i = 0; i < fa.num_elements; ++i) if (replaced == 1 && i == number) fa.x[i] = T(value);
    for (int i = 0; i < fb.num_elements; ++i) if (replaced == 2 && i == number) fb.x[i] = T(value);
    mma_sync(fd, fa, fb, fc);
    for (int i = 0; i < fd.num_elements; ++i) xd[32 * i + lane] = fd.x[i];
    store_matrix_sync(d, fd, ldc, mem_row_major);
    for (int i = 0; i < fd.num_elements; ++i) fd.x[i] = S(float(32 * i + lane));
    store_matrix_sync(lanes, fd, ldc, mem_row_major);
}
"""
_KERNEL_TEMPLATE = """
extern "C" __global__ void {name}(void* a, void* b, void* c, void* xa, void* xb, void* xc, void* xd,
                                  void* d, void* lanes, int* counts, int lda, int ldb, int ldc, int replaced,
                                  int number, float value)
{{
    probe<fragment<matrix_a, {m}, {n}, {k}, {element}, {a}_major>,
          fragment<matrix_b, {m}, {n}, {k}, {element}, {b}_major>, fragment<accumulator, {m}, {n}, {k}, {s}>>
        (({t}*)a, ({t}*)b, ({s}*)c, ({t}*)xa, ({t}*)xb, ({s}*)xc, ({s}*)xd, ({s}*)d, ({s}*)lanes, counts,
         lda, ldb, ldc, replaced, number, value);
}}
"""
_CPP_TYPES = {
    "f16": "half",
    "bf16": "__nv_bfloat16",
    "s8": "signed char",
    "u8": "unsigned char",
    "tf32": "float",
    "f64": "double",
    "f32": "float",
    "s32": "int",
}
_WIDE_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
_SHAPES = {
    "f16": _WIDE_SHAPES,
    "bf16": _WIDE_SHAPES,
    "s8": _WIDE_SHAPES,
    "u8": _WIDE_SHAPES,
    "tf32": ((16, 16, 8),),
    "f64": ((8, 8, 4),),
}
_SUM_KINDS = {"f16": ("f32", "f16"), "s8": ("s32",), "u8": ("s32",), "f64": ("f64",)}
_ELEMENT_BYTES = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "tf32": 4, "f32": 4, "s32": 4, "f64": 8}
_NUMPY_DTYPES = {"f16": "f2", "s8": "i1", "u8": "u1", "tf32": "f4", "f32": "f4", "s32": "i4", "f64": "f8"}

Integers = npt.NDArray[np.int64]


class Case(NamedTuple):
    """A multiplication whose fragments are recorded."""

    kind: str
    sum_kind: str
    shape: tuple[int, int, int]
    a_order: str
    b_order: str

    @property
    def name(self) -> str:
        return f"k{'x'.join(map(str, self.shape))}_{self.sum_kind}_{self.a_order}_{self.b_order}"


def list_cases(kind: str) -> list[Case]:
    """Return all multiplications with factors of a type."""
    orders = itertools.product(("row", "col"), repeat=2)
    return [
        Case(kind, sum_kind, shape, *order)
        for order in orders
        for sum_kind in _SUM_KINDS.get(kind, ("f32",))
        for shape in _SHAPES[kind]
    ]


def compile_kernels(selected: Sequence[Case]) -> list[Any]:
    """Return the kernels of multiplications, which are compiled together."""
    code = _CODE + "".join(
        _KERNEL_TEMPLATE.format(
            name=case.name,
            t=_CPP_TYPES[case.kind],
            s=_CPP_TYPES[case.sum_kind],
            element=f"precision::{case.kind}" if case.kind == "tf32" else _CPP_TYPES[case.kind],
            **dict(zip("mnk", case.shape, strict=True)),
            a=case.a_order,
            b=case.b_order,
        )
        for case in selected
    )
    module = session.cp().RawModule(code=code)
    return [module.get_function(case.name) for case in selected]


def main(arguments: Sequence[str] | None = None) -> int:
    """Record all layouts on a GPU."""
    parser = argparse.ArgumentParser(prog="wmma_layouts", description=__doc__)
    parser.add_argument("--out", type=Path, default=wmma_layouts.LAYOUTS_PATH)
    parser.add_argument("--device", default="cuda", help="for a trial: a virtual one")
    parser.add_argument("--types", nargs="*", default=list(_SHAPES), help="types of the factors")
    parser.add_argument("--first", action="store_true", help="for a trial: only the first case of each type")
    options = parser.parse_args(arguments)
    gl.use_device(options.device)
    info = session.backend().device_info()
    layouts: dict[str, Any] = {}
    for kind in options.types:
        selected_cases = list_cases(kind)[: 1 if options.first else None]
        for kernel, case in zip(compile_kernels(selected_cases), selected_cases, strict=True):
            for name, layout in record_layouts(kernel, case):
                if layouts.setdefault(name, layout) != layout:
                    raise SystemExit(f"{name} has several layouts: {layout} and {layouts[name]}.")
    record = {
        "device": info.name,
        "driver": info.driver,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    options.out.write_text(format_record(record, layouts), encoding="utf-8")
    return 0


def format_record(record: dict[str, Any], layouts: dict[str, Any]) -> str:
    """Return the record as JSON with one layout per line."""
    opening_text = json.dumps(record, indent=1).removesuffix("\n}")
    layout_lines = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(layouts[name])}" for name in sorted(layouts)
    )
    return f'{opening_text},\n "layouts": {{\n{layout_lines}\n }}\n}}\n'


def record_layouts(kernel: Any, case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and the layouts of the fragments of one multiplication."""
    m, n, k = case.shape
    extents = {"a": (m, k), "b": (k, n), "c": (m, n)}
    element_indices = {
        name: np.arange(rows * columns).reshape(rows, columns) for name, (rows, columns) in extents.items()
    }
    low_bytes = {name: values & 255 for name, values in element_indices.items()}
    high_bytes = {name: values >> 8 for name, values in element_indices.items()}
    low_results, high_results = (
        run(kernel, case, values, as_bits=True) for values in (low_bytes, high_bytes)
    )
    positions = {name: low_results[name] + 256 * high_results[name] for name in extents}
    rng = np.random.default_rng(0)
    factors = {name: rng.integers(0, 2, extents[name]) for name in "ab"} | {
        "c": rng.integers(0, 4, extents["c"])
    }
    plain_results = run(kernel, case, factors)
    check(case, plain_results["d"], factors["a"] @ factors["b"] + factors["c"])
    for name in "abc":
        check(case, plain_results[name], factors[name].ravel()[positions[name]])
    check(
        case,
        plain_results["lanes"].ravel()[positions["c"]],
        np.arange(positions["c"].size).reshape(-1, LANES),
    )
    check(case, plain_results["xd"], plain_results["d"].ravel()[positions["c"]])
    for factor_number, name in enumerate("ab", 1):
        is_read = []
        for element in range(len(positions[name])):
            changed_factor = factors[name].copy()
            changed_factor.ravel()[positions[name][element]] = _REPLACEMENT
            result = run(kernel, case, factors, replaced=factor_number, number=element)["d"]
            is_read.append(bool((result != plain_results["d"]).any()))
            if is_read[-1]:
                a, b = ({**factors, name: changed_factor}[matrix] for matrix in "ab")
                check(case, result, a @ b + factors["c"])
        # The multiplication reads the first copy of each element.
        elements_per_lane = extents[name][0] * extents[name][1] // LANES
        check(case, np.array(is_read), np.arange(len(is_read)) < elements_per_lane)
        yield (
            wmma_layouts.make_key(name, case.shape, case.kind),
            find_bit_positions(positions[name], extents[name][1]),
        )
    yield wmma_layouts.make_key("c", case.shape, case.sum_kind), find_bit_positions(positions["c"], n)


def check(case: Case, result: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Stop the program unless a result is the expected one."""
    if not np.array_equal(result, expected):
        raise SystemExit(f"{case}: {result} instead of {expected}")


def find_bit_positions(position: Integers, columns: int) -> dict[str, list[list[int]]]:
    """Return the row and the column that each bit of the lane's number and of the element's index adds."""
    element_count = len(position)
    positions_of_bits = {
        "lane": [position[0, 1 << bit] for bit in range(LANES.bit_length() - 1)],
        "element": [position[1 << bit, 0] for bit in range(element_count.bit_length() - 1)],
    }
    layout = {
        name: [[int(p) // columns, int(p) % columns] for p in bit_positions]
        for name, bit_positions in positions_of_bits.items()
    }
    row, column = wmma_layouts.compute_positions(layout)
    if not np.array_equal((row * columns + column).T, position):
        raise SystemExit(f"The bits {layout} do not describe the positions {position.tolist()}.")
    return layout


def run(
    kernel: Any,
    case: Case,
    matrices: dict[str, Integers],
    *,
    as_bits: bool = False,
    replaced: int = 0,
    number: int = 0,
) -> dict[str, Integers]:
    """Run the kernel once, and return what it stored: fragments as (elements, lanes), and the results."""
    cp = session.cp()
    m, n, k = case.shape
    kinds = {"a": case.kind, "b": case.kind, **dict.fromkeys(("c", "xd", "d", "lanes"), case.sum_kind)}
    orders = {"a": case.a_order, "b": case.b_order, "c": "row"}
    inputs = [
        cp.asarray(
            encode_values(np.ascontiguousarray(x if orders[name] == "row" else x.T), kinds[name], as_bits)
        )
        for name, x in matrices.items()
    ]
    shapes = {**dict.fromkeys(("a", "b", "c", "xd"), (16, LANES)), **dict.fromkeys(("d", "lanes"), (m, n))}
    outputs = {name: cp.zeros(shape, f"u{_ELEMENT_BYTES[kinds[name]]}") for name, shape in shapes.items()}
    element_counts = cp.zeros(3, np.int32)
    leading_dimensions = k if case.a_order == "row" else m, n if case.b_order == "row" else k, n
    scalars = (*map(np.int32, (*leading_dimensions, replaced, number)), np.float32(_REPLACEMENT))
    kernel((1,), (LANES,), (*inputs, *outputs.values(), element_counts, *scalars))
    a_count, b_count, c_count = cp.asnumpy(element_counts).tolist()
    count_by_matrix = {"a": a_count, "b": b_count, "c": c_count, "xd": c_count}
    return {
        name: decode_values(cp.asnumpy(array)[: count_by_matrix.get(name)], kinds[name], as_bits)
        for name, array in outputs.items()
    }


def encode_values(values: Integers, kind: str, as_bits: bool) -> npt.NDArray[Any]:
    """Return integers as numbers of a type, or as their bits."""
    if as_bits:
        return values.astype(f"u{_ELEMENT_BYTES[kind]}")
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(_NUMPY_DTYPES[kind]).view(f"u{_ELEMENT_BYTES[kind]}")


def decode_values(stored: npt.NDArray[Any], kind: str, as_bits: bool) -> Integers:
    """Convert stored numbers of a type to integers; with `as_bits`, return their bits instead."""
    if not as_bits:
        stored = (
            (stored.astype(np.uint32) << 16).view(np.float32)
            if kind == "bf16"
            else stored.view(_NUMPY_DTYPES[kind])
        )
    with np.errstate(invalid="ignore"):
        return stored.astype(np.int64)


if __name__ == "__main__":
    raise SystemExit(main())

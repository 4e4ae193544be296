"""Matrix instructions that no test has to execute: layouts by PTX's formulas, and tiles of known shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tests.views import synthetic
from virtualgpu.records.fragments import FragmentTrace, Matrix, MatrixExecution, MatrixInstruction

LANE = np.arange(32)
GROUP, POSITION = LANE // 4, LANE % 4
CODE = """__global__ void product(const half* a, const half* b, float* d) {
    __shared__ uint4 tile[16 * 8];
    tile[place(threadIdx.x)] = a[threadIdx.x];
    ldmatrix(x, tile);
    mma(d, x, y);
}"""
ROW_BYTES = 128


def _matrix(name: str, kind: str, rows: int, columns: int, *places: tuple[object, object]) -> Matrix:
    row, column = (np.array([np.broadcast_to(place[axis], 32) for place in places]) for axis in (0, 1))
    per_register = 2 if kind == "f16" else 1
    return Matrix(
        name=name,
        kind=kind,
        rows=rows,
        columns=columns,
        registers=tuple(f"%{name}{n}" for n in range(len(places) // per_register)),
        row=row.astype(np.int64),
        column=column.astype(np.int64),
    )


A = _matrix(
    "a", "f16", 16, 16, *((GROUP + 8 * (i // 2 % 2), 2 * POSITION + i % 2 + 8 * (i // 4)) for i in range(8))
)
B = _matrix("b", "f16", 16, 8, *((2 * POSITION + i % 2 + 8 * (i // 2), GROUP) for i in range(4)))
C, D = (
    _matrix(name, "f32", 16, 8, *((GROUP + 8 * (i // 2), 2 * POSITION + i % 2) for i in range(4)))
    for name in "cd"
)
PARTS = tuple(_matrix(str(n), "f16", 8, 8, *((GROUP, 2 * POSITION + i) for i in range(2))) for n in range(4))


def _bits(matrix: Matrix, values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    held = values[matrix.row, matrix.column]
    if matrix.kind == "f32":
        return held.astype(np.float32).view(np.uint32)
    return held.astype(np.float16).view(np.uint16).astype(np.uint32)


def _place(
    row: npt.NDArray[np.int64], column: npt.NDArray[np.int64], swizzled: bool
) -> npt.NDArray[np.int64]:
    vector = column // 8 ^ (row % 8 if swizzled else 0)
    return ROW_BYTES * row + 16 * vector + 2 * (column % 8)


def trace(swizzled: bool = False, truncated: bool = False) -> FragmentTrace:
    """A store of a tile, a load of its first part with or without conflicts, and ten multiplications."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 9, shape) / 4 for shape in ((16, 16), (16, 8)))
    multiply = MatrixInstruction(
        role="multiply",
        text="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%d0}, {%a0}, {%b0}, {%c0}",
        line=5,
        column=5,
        shape=(16, 8, 16),
        matrices=(A, B, C, D),
    )
    load = MatrixInstruction(
        role="load",
        text="ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%00, %10, %20, %30}, [%r1]",
        line=4,
        column=5,
        matrices=PARTS,
        size_bytes=16,
        rule="matrix",
    )
    store = MatrixInstruction(
        role="access", text="st.shared.v4.u32 [%r2], {%r3}", line=3, column=5, size_bytes=16, rule="store"
    )
    nothing = np.zeros((0, 32), np.int64)
    starts = [(8 * (n % 2), 8 * (n // 2)) for n in range(4)]
    executions = [
        MatrixExecution(
            instruction=2,
            step=4,
            bits=(),
            address=(),
            lane_address=_place(LANE // 8, LANE % 8 * 8, swizzled)[None],
        ),
        MatrixExecution(
            instruction=1,
            step=8,
            bits=tuple(
                _bits(part, a[row:, column:]) for part, (row, column) in zip(PARTS, starts, strict=True)
            ),
            address=tuple(
                _place(part.row + row, part.column + column, swizzled)
                for part, (row, column) in zip(PARTS, starts, strict=True)
            ),
            lane_address=_place(LANE % 16, LANE // 16 * 8, swizzled)[None],
        ),
    ]
    for n in range(10):
        before = n * (a @ b)
        executions.append(
            MatrixExecution(
                instruction=0,
                step=9 + n,
                bits=tuple(
                    _bits(matrix, values)
                    for matrix, values in ((A, a), (B, b), (C, before), (D, before + a @ b))
                ),
                address=(
                    _place(A.row, A.column, swizzled),
                    2048 + 16 * B.row + 2 * B.column,
                    np.full((4, 32), -1),
                    np.full((4, 32), -1),
                ),
                lane_address=nothing,
            )
        )
    return FragmentTrace(
        provenance=synthetic.MODELLED,
        kernel_name="product",
        code=CODE,
        grid=(1, 1, 1),
        block=(32, 1, 1),
        block_index=(0, 0, 0),
        warp_index=0,
        instructions=(multiply, load, store),
        executions=tuple(executions),
        truncated=truncated,
    )


def of_wmma() -> FragmentTrace:
    """The same multiplication by ``wmma``, whose layout and accesses PTX does not define."""
    record = trace(truncated=True)
    multiply = replace(record.instructions[0], text="wmma.mma.sync.aligned.row.col.m16n8k16.f32.f32 {%d0}")
    return replace(record, instructions=(multiply, *record.instructions[1:]))

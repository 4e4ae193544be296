"""Tensor-core instructions: ``wmma``, ``mma.sync`` and ``ldmatrix``.

Loads and stores are ordinary memory accesses of each lane, an element at a time, in a loop that all
instructions of one kind share; so is the product. Kernels with thousands of them stay small.
"""

from __future__ import annotations

import numpy as np

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import matrix_product as matrix_ir
from virtualgpu.engine.ir.matrix_product import HALVES, Places
from virtualgpu.engine.lower import fragments
from virtualgpu.engine.lower.ops import matrix_moves, memory_ops
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError, PtxError

_INPUTS = ("f16", "bf16", "tf32")
_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16), (16, 16, 8))


def emit(c: WarpCode, i: ir.Instruction) -> bool:
    """Emit a tensor-core instruction; False if it is none."""
    if i.root == "wmma" and i.parts[1] in ("load", "store"):
        _move(c, i)
    elif i.root in ("wmma", "mma"):
        _product(c, i)
    elif i.root == "ldmatrix":
        _ldmatrix(c, i)
    else:
        return False
    return True


def shape_of(i: ir.Instruction) -> tuple[int, int, int]:
    """m, n, k of an instruction such as ``….m16n8k16.…``."""
    text = next((p for p in i.parts if p[0] == "m" and "n" in p and "k" in p), "")
    try:
        m, rest = text[1:].split("n")
        n, k = rest.split("k")
        return int(m), int(n), int(k)
    except ValueError:
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.") from None


def _extent(name: str, shape: tuple[int, int, int]) -> tuple[int, int]:
    """Rows and columns of matrix a, b, c or d."""
    m, n, k = shape
    return {"a": (m, k), "b": (k, n)}.get(name, (m, n))


def _fragment(name: str, shape: tuple[int, int, int]) -> Places:
    """Rows and columns a lane holds of a ``wmma`` fragment, shape (32, elements).

    PTX leaves this layout open; here each lane holds a run of the row-major matrix.
    """
    rows, columns = _extent(name, shape)
    per = rows * columns // 32
    index = np.arange(32)[:, None] * per + np.arange(per)
    return index // columns, index % columns


def _mma_places(name: str, shape: tuple[int, int, int], kind: str) -> Places:
    """Rows and columns a lane holds of an ``mma.sync`` operand, as the PTX manual lays them out."""
    lane = np.arange(32)[:, None]
    group, inner = lane >> 2, lane & 3
    _, _, k = shape
    wide = kind == "tf32"
    if name == "a":
        count = {4: 2, 8: 4, 16: 8}[k]
        i = np.arange(count)
        if wide:
            return group + 8 * (i & 1), inner + 4 * (i >> 1)
        return group + 8 * (i >> 1 & 1), 2 * inner + (i & 1) + 8 * (i >> 2)
    if name == "b":
        if wide:
            i = np.arange(k // 4)
            return inner + 4 * i, group + 0 * i
        i = np.arange(k // 4)
        return 2 * inner + (i & 1) + 8 * (i >> 1), group + 0 * i
    i = np.arange(4)
    return group + 8 * (i >> 1), 2 * inner + (i & 1)


# -- loads and stores --------------------------------------------------------------------------------


def _space(i: ir.Instruction) -> str:
    space = memory_ops.space_of(i)
    if space not in ("global", "shared", "generic"):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode} in {space} memory.")
    return space


def _move(c: WarpCode, i: ir.Instruction) -> None:
    """``wmma.load`` and ``wmma.store``."""
    is_load, name = i.parts[1] == "load", i.parts[2]
    kind = "b32" if i.type in ("tf32", "f32") else "b16"
    if i.type not in (*_INPUTS, "f32"):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}; it has f16, bf16 and tf32.")
    space = _space(i)
    operands = list(i.operands)
    fragment = operands.pop(0 if is_load else 1)
    assert isinstance(fragment, ir.Vector)
    rows, columns = _extent(name, shape_of(i))
    by_row = "row" in i.parts
    base = memory_ops.address_of(c, operands[0], space)
    stride = c.get(operands[1], "u32") if len(operands) > 1 else f"splat (i32 {columns if by_row else rows})"
    move = matrix_moves.Move(
        memory_ops.as_access(i, "ld" if is_load else "st", space, ir.TYPE_BYTES[kind]),
        space, kind, rows * columns // 32, len(fragment.items), columns, by_row,
    )  # fmt: skip
    matrix_moves.call(c, i, move, base, [f"<32 x i32> {stride}"], fragment)


def _ldmatrix(c: WarpCode, i: ir.Instruction) -> None:
    """8x8 matrices of 16-bit elements; lane 8r + row holds the address of a row of matrix r."""
    target, source = i.operands
    count = len(fragments.items_of(target))
    if "m8n8" not in i.parts or i.type != "b16" or count not in (1, 2, 4):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    space = _space(i)
    address = memory_ops.address_of(c, source, space)
    move = matrix_moves.Move(
        memory_ops.as_access(i, "ld", space, 2), space, "b16", 2 * count, count, 0, "trans" not in i.parts
    )
    matrix_moves.call(c, i, move, address, [], target)


# -- the product -------------------------------------------------------------------------------------


def _kinds(i: ir.Instruction) -> tuple[str, str, str]:
    """Types of the result, the inputs and the accumulator."""
    types = [p for p in i.parts if p in (*_INPUTS, "f32")]
    if len(types) == 2:  # wmma with f16 inputs names only result and accumulator
        types = [types[0], "f16", "f16", types[1]]
    sums = ("f16", "f32")
    if len(types) == 4 and types[1] == types[2] in _INPUTS and types[0] in sums and types[3] in sums:
        return types[0], types[1], types[3]
    raise NotSupportedError(f"The virtual GPU does not do {i.opcode}; it has f16, bf16 and tf32 inputs.")


def _product(c: WarpCode, i: ir.Instruction) -> None:
    result_kind, input_kind, sum_kind = _kinds(i)
    m, n, k = shape = shape_of(i)
    allowed = {"tf32": (4, 8)}.get(input_kind, (8, 16))
    if i.root == "mma" and ((m, n) != (16, 8) or k not in allowed or "sp" in i.parts):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    if i.root == "wmma" and (shape not in _SHAPES or ("row" not in i.parts and "col" not in i.parts)):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    kinds = {"a": input_kind, "b": input_kind, "c": sum_kind, "d": result_kind}
    operands = dict(zip("dabc", i.operands, strict=True))
    places = {}
    for part, kind in kinds.items():
        places[part] = _fragment(part, shape) if i.root == "wmma" else _mma_places(part, shape, input_kind)
        elements, held = places[part][0].shape[1], len(fragments.items_of(operands[part]))
        needed = elements // 2 if kind in HALVES else elements
        if held < needed or (part == "d" and held != needed):
            raise PtxError(f"{i.text!r} (line {i.line}) needs {needed} registers for {part.upper()}.")
    held = len(fragments.items_of(operands["d"]))
    name = f"{i.root}_m{m}n{n}k{k}_{result_kind}_{input_kind}_{sum_kind}"
    if name not in c.tables.support:
        c.need(name, matrix_ir.product(name, shape, places, kinds, held))
    a, b, added = (fragments.given(c, operands[part], part) for part in "abc")
    result = fragments.target(c, operands["d"], "d")
    c.e.raw(f"call void @{name}(i32 {c.executed(i)}, ptr {result}, ptr {a}, ptr {b}, ptr {added})")
    fragments.written(c, operands["d"], result)

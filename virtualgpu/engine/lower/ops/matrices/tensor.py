"""Tensor-core instructions: ``wmma``, ``mma.sync`` and ``ldmatrix``.

Loads and stores are ordinary memory accesses of each lane, an element at a time, in a loop that all
instructions of one kind share; so is the product. Kernels with thousands of them stay small.
"""

from __future__ import annotations

import numpy as np

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import matrix_product as matrix_ir
from virtualgpu.engine.ir.matrix_product import BYTES, EIGHTHS, Places, packed
from virtualgpu.engine.lower import fragments
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.ops.matrices import matrix_moves
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError, PtxError

_INPUTS = ("f16", "bf16", "tf32")
_HAS = "it has f16, bf16, tf32, e4m3, e5m2, s8 and u8"
_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16), (16, 16, 8))


ROOTS = {"wmma", "mma", "ldmatrix"}


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
    group = lane >> 2
    inner = lane & 3
    _, _, k = shape
    wide = kind == "tf32"
    if kind in EIGHTHS and name in "ab":
        return _of_halves(name, _mma_places(name, shape, "s8"))
    if kind in BYTES and name in "ab":
        i = np.arange(shape[0] * k // 32 if name == "a" else k // 4)
        # Runs of four; those of A lie in both halves of the rows before the columns go on.
        turn = i >> (3 if name == "a" and shape[0] == 16 else 2)
        along = 4 * inner + (i & 3) + 16 * turn
        across = group + (8 * (i >> 2 & 1) if name == "a" and shape[0] == 16 else 0 * i)
        return (across, along) if name == "a" else (along, across)
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
    i = np.arange(shape[0] // 4)
    return group + 8 * (i >> 1), 2 * inner + (i & 1)


def _of_halves(name: str, places: Places) -> Places:
    """Places of FP8 elements in the order in which they are added: two of every four, then the others."""
    rows, columns = places
    along = columns if name == "a" else rows
    turned = along // 4 * 2 + along % 2 + along % 4 // 2 * 16
    return (rows, turned) if name == "a" else (turned, columns)


# -- loads and stores --------------------------------------------------------------------------------


def _space(i: ir.Instruction) -> str:
    space = memory_ops.space_of(i)
    if space not in ("global", "shared", "generic"):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode} in {space} memory.")
    return space


def _move(c: WarpCode, i: ir.Instruction) -> None:
    """``wmma.load`` and ``wmma.store``."""
    is_load = i.parts[1] == "load"
    name = i.parts[2]
    kind = {"tf32": "b32", "f32": "b32", "s32": "b32", "s8": "b8", "u8": "b8"}.get(i.type, "b16")
    if i.type not in (*_INPUTS, *BYTES, "f32", "s32"):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}; {_HAS}.")
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
        space,
        kind,
        rows * columns // 32,
        len(fragment.items),
        columns,
        by_row,
    )
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


def types_of(i: ir.Instruction) -> tuple[str, str, str, str]:
    """Types of the result, both inputs and the accumulator."""
    types = [p for p in i.parts if p in (*_INPUTS, *EIGHTHS, *BYTES, "f32", "s32")]
    if len(types) == 2:  # wmma with f16 inputs names only result and accumulator
        types = [types[0], "f16", "f16", types[1]]
    if len(types) == 4:
        result, first, second, total = types
        floats = first == second in _INPUTS and {result, total} <= {"f16", "f32"}
        floats |= {first, second} <= set(EIGHTHS) and result == total == "f32" and i.root == "mma"
        if floats or ({first, second} <= set(BYTES) and result == total == "s32"):
            return result, first, second, total
    raise NotSupportedError(f"The virtual GPU does not do {i.opcode}; {_HAS} inputs.")


_MMA_SHAPES = {
    "tf32": ((16, 8, 4), (16, 8, 8)),
    "f16": ((16, 8, 8), (16, 8, 16)),
    "bf16": ((16, 8, 8), (16, 8, 16)),
    **dict.fromkeys(EIGHTHS, ((16, 8, 32),)),
    **dict.fromkeys(BYTES, ((8, 8, 16), (16, 8, 16), (16, 8, 32))),
}


def _product(c: WarpCode, i: ir.Instruction) -> None:
    result_kind, input_kind, other_kind, sum_kind = types_of(i)
    m, n, k = shape = shape_of(i)
    if i.root == "mma" and (shape not in _MMA_SHAPES[input_kind] or "sp" in i.parts):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    if i.root == "wmma" and (shape not in _SHAPES or ("row" not in i.parts and "col" not in i.parts)):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    if "satfinite" in i.parts and result_kind == "s32":
        result_kind = "s32.satfinite"
        c.e.declared.add("declare i32 @llvm.fptosi.sat.i32.f64(double)")
    kinds = {"a": input_kind, "b": other_kind, "c": sum_kind, "d": result_kind}
    operands = dict(zip("dabc", i.operands, strict=True))
    places = {}
    for part, kind in kinds.items():
        places[part] = _fragment(part, shape) if i.root == "wmma" else _mma_places(part, shape, input_kind)
        elements = places[part][0].shape[1]
        held = len(fragments.items_of(operands[part]))
        needed = elements // packed(kind)
        if held < needed or (part == "d" and held != needed):
            raise PtxError(f"{i.text!r} (line {i.line}) needs {needed} registers for {part.upper()}.")
    held = len(fragments.items_of(operands["d"]))
    name = f"{i.root}_m{m}n{n}k{k}_{result_kind}_{input_kind}_{other_kind}_{sum_kind}"
    if name not in c.tables.support:
        c.need(name, matrix_ir.product(name, shape, places, kinds, held))
    a, b, added = (fragments.given(c, operands[part], part) for part in "abc")
    result = fragments.target(c, operands["d"], "d")
    c.e.raw(f"call void @{name}(i32 {c.executed(i)}, ptr {result}, ptr {a}, ptr {b}, ptr {added})")
    fragments.written(c, operands["d"], result)

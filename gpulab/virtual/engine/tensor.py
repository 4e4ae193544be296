"""Tensor-core instructions: ``wmma``, ``mma.sync`` and ``ldmatrix``.

Loads and stores are ordinary memory accesses of each lane. The product itself is NumPy's, called
once a warp: exact products of the rounded inputs, summed in double and rounded once, which is at
least as accurate as the hardware's own order of sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpulab.errors import NotSupportedError
from gpulab.ptx import ir
from gpulab.virtual.engine import calls, lanes, memory_ops
from gpulab.virtual.engine.emit import constant

if TYPE_CHECKING:
    from gpulab.virtual.engine.function import FunctionCompiler

Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
_INPUTS = ("f16", "bf16", "tf32")


def emit(c: FunctionCompiler, i: ir.Instruction) -> bool:
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


def _fragment(name: str, shape: tuple[int, int, int]) -> Places:
    """Rows and columns a lane holds of a ``wmma`` fragment, shape (32, elements).

    PTX leaves this layout open; here each lane holds a run of the row-major matrix.
    """
    m, n, k = shape
    rows, columns = {"a": (m, k), "b": (k, n)}.get(name, (m, n))
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


def _vector(values: npt.NDArray[np.int64]) -> str:
    return "<" + ", ".join(f"i64 {int(v)}" for v in values) + ">"


def _move(c: FunctionCompiler, i: ir.Instruction) -> None:
    """``wmma.load`` and ``wmma.store``: one element of the fragment at a time."""
    e, is_load, name = c.e, i.parts[1] == "load", i.parts[2]
    kind = "b32" if i.type in ("tf32", "f32") else "b16"
    if i.type not in (*_INPUTS, "f32"):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}; it has f16, bf16 and tf32.")
    size = ir.TYPE_BYTES[kind]
    space = memory_ops.space_of(i)
    operands = list(i.operands)
    fragment = operands.pop(0 if is_load else 1)
    assert isinstance(fragment, ir.Vector)
    rows, columns = _fragment(name, shape_of(i))
    by_row = "row" in i.parts
    major, minor = (rows, columns) if by_row else (columns, rows)
    llvm = "i32" if space == "shared" else "i64"
    base = memory_ops.address_of(c, operands[0], space)
    if len(operands) > 1:
        stride = e.cast(c.get(operands[1], "u32"), "i32", "i64")
    else:
        extent = columns.max() + 1 if by_row else rows.max() + 1
        stride = constant("i64", int(extent))
    per = rows.shape[1]
    packed = kind == "b16"
    slots = 2 * len(fragment.items) if packed else len(fragment.items)
    halves: list[str] = []
    access = memory_ops.as_access(i, "ld" if is_load else "st", space, size)
    for element in range(per if is_load else min(per, slots)):
        offset = e.binary("mul", "i64", stride, _vector(major[:, element]))
        offset = e.binary("add", "i64", offset, _vector(minor[:, element]))
        offset = e.binary("mul", "i64", offset, constant("i64", size))
        address = e.binary("add", llvm, base, e.cast(offset, "i64", llvm))
        host = memory_ops.host_addresses(c, access, address, space, size)
        if is_load:
            halves.append(memory_ops.gather(c, host, c.executed(i), kind))
        else:
            item = fragment.items[element // 2 if packed else element]
            value = c.get(item, "b32")
            if packed:
                if element & 1:
                    value = e.binary("lshr", "i32", value, constant("i32", 16))
                value = e.cast(value, "i32", "i16")
            memory_ops.scatter(c, value, host, c.executed(i), kind)
    if not is_load:
        return
    for position, item in enumerate(fragment.items):
        if packed:
            low, high = (e.cast(halves[(2 * position + h) % per], "i16", "i32") for h in (0, 1))
            value = e.binary("or", "i32", low, e.binary("shl", "i32", high, constant("i32", 16)))
        else:
            value = halves[position % per]
        c.set(item, value, "b32")


def _ldmatrix(c: FunctionCompiler, i: ir.Instruction) -> None:
    """8x8 matrices of 16-bit elements; lane 8r + row holds the address of a row of matrix r."""
    e = c.e
    if "m8n8" not in i.parts or i.type != "b16":
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    target, source = i.operands
    items = target.items if isinstance(target, ir.Vector) else (target,)
    space = memory_ops.space_of(i)
    address = memory_ops.address_of(c, source, space)
    llvm = "i32" if space == "shared" else "i64"
    c.need(*lanes.permute(llvm))
    lane = np.arange(32)
    access = memory_ops.as_access(i, "ld", space, 2)
    for matrix, item in enumerate(items):
        parts = []
        for half in (0, 1):
            if "trans" in i.parts:
                row, column = (lane & 3) * 2 + half, lane >> 2
            else:
                row, column = lane >> 2, (lane & 3) * 2 + half
            where = "<" + ", ".join(f"i32 {int(v)}" for v in 8 * matrix + row) + ">"
            start = e.op(f"call <32 x {llvm}> @permute_{llvm}(<32 x {llvm}> {address}, <32 x i32> {where})")
            offset = "<" + ", ".join(f"{llvm} {int(v) * 2}" for v in column) + ">"
            place = e.binary("add", llvm, start, offset)
            host = memory_ops.host_addresses(c, access, place, space, 2)
            parts.append(e.cast(memory_ops.gather(c, host, c.executed(i), "b16"), "i16", "i32"))
        c.set(
            item,
            e.binary("or", "i32", parts[0], e.binary("shl", "i32", parts[1], constant("i32", 16))),
            "b32",
        )


# -- the product -------------------------------------------------------------------------------------


def _kinds(i: ir.Instruction) -> tuple[str, str, str]:
    """Types of the result, the inputs and the accumulator."""
    types = [p for p in i.parts if p in (*_INPUTS, "f32")]
    if len(types) == 2:  # wmma with f16 inputs names only result and accumulator
        return types[0], "f16", types[1]
    if len(types) == 4 and types[1] == types[2]:
        return types[0], types[1], types[3]
    raise NotSupportedError(f"The virtual GPU does not do {i.opcode}; it has f16, bf16 and tf32 inputs.")


def _product(c: FunctionCompiler, i: ir.Instruction) -> None:
    e = c.e
    result_kind, input_kind, sum_kind = _kinds(i)
    m, n, k = shape_of(i)
    allowed = {"tf32": (4, 8)}.get(input_kind, (8, 16))
    if i.root == "mma" and ((m, n) != (16, 8) or k not in allowed or "sp" in i.parts):
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    if i.root == "wmma" and "row" not in i.parts and "col" not in i.parts:
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    target = i.operands[0]
    assert isinstance(target, ir.Vector)
    inputs: list[str] = []
    sizes = []
    for operand in i.operands[1:4]:
        assert isinstance(operand, ir.Vector)
        sizes.append(len(operand.items))
        inputs += [e.cast(c.get(item, "b32"), "i32", "i64") for item in operand.items]
    what = ("matrix", i.root, (m, n, k), tuple(sizes), (result_kind, input_kind, sum_kind))
    outputs = calls.service(c, i, what, inputs, len(target.items))
    for item, value in zip(target.items, outputs, strict=True):
        c.set(item, e.cast(value, "i64", "i32"), "b32")


def _decode(words: npt.NDArray[np.uint32], kind: str, count: int) -> npt.NDArray[np.float64]:
    """Registers, shape (n, 32), as elements, shape (32, count)."""
    if kind == "tf32":
        return (words & np.uint32(0xFFFFE000)).view(np.float32).T.astype(np.float64)[:, :count]
    if kind == "f32":
        return words.view(np.float32).T.astype(np.float64)[:, :count]
    halves = np.ascontiguousarray(words.T).view(np.uint16)[:, :count]
    if kind == "bf16":
        return (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return halves.view(np.float16).astype(np.float64)


def multiply(what: Any, registers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """D = A x B + C of one warp; registers of A, B and C one after the other, shape (n, 32)."""
    _, root, shape, sizes, (result_kind, input_kind, sum_kind) = what
    words = registers.astype(np.uint32)
    a_words, b_words, c_words = np.split(words, np.cumsum(sizes)[:2])

    def places(name: str) -> Places:
        return _fragment(name, shape) if root == "wmma" else _mma_places(name, shape, input_kind)

    def matrix(name: str, part: npt.NDArray[np.uint32], kind: str) -> npt.NDArray[np.float64]:
        rows, columns = places(name)
        values = _decode(np.ascontiguousarray(part), kind, rows.shape[1])
        out = np.zeros((int(rows.max()) + 1, int(columns.max()) + 1))
        out[rows, columns] = values
        return out

    with np.errstate(all="ignore"):
        total = matrix("a", a_words, input_kind) @ matrix("b", b_words, input_kind)
        total += matrix("c", c_words, sum_kind)
        rows, columns = places("d")
        held = total[rows, columns]
        if result_kind == "f32":
            out = np.ascontiguousarray(held.astype(np.float32).T).view(np.uint32)
        else:
            packed = np.ascontiguousarray(held.astype(np.float16)).view(np.uint32)
            out = np.ascontiguousarray(packed.T)
    return out.astype(np.uint64)

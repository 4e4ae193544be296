"""Texture fetches (``tex``) and surfaces (``suld``, ``sust``) as LLVM IR.

They are counted as reads and writes of global memory, at the places where their texels lie in rows; of an
interpolated fetch the first texel counts.
"""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import checks, layout
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.ops.textures import fetch, surfaces
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError

_GEOMETRIES = {"1d": (1, False), "2d": (2, False), "3d": (3, False), "a1d": (1, True), "a2d": (2, True)}
_ROWS = "[4 x <32 x i32>]"
_MODES = ("trap", "clamp", "zero")


REFUSED = {"tld4", "txq", "suq", "sured"}
ROOTS = {"tex", "suld", "sust"} | REFUSED


def emit(c: WarpCode, i: ir.Instruction) -> bool:
    """Emit an instruction on a texture or a surface; False if it is none."""
    if i.root == "tex":
        _texture(c, i)
    elif i.root in ("suld", "sust"):
        _surface(c, i)
    elif i.root in REFUSED:
        raise _missing(i)
    else:
        return False
    return True


def _missing(i: ir.Instruction) -> NotSupportedError:
    return NotSupportedError(
        f"The virtual GPU does not do {i.opcode} (line {i.line}). It fetches from textures of one, two and "
        "three dimensions and of layers (tex1Dfetch, tex1D, tex2D, tex3D, tex2DLayered) and reads and writes "
        "their surfaces; pass sizes as arguments, and read neighbours one by one."
    )


def _place_of(c: WarpCode, i: ir.Instruction, operand: ir.Operand | None, types: str) -> tuple[str, str, int]:
    """Pointers to the lanes' handles and to rows of their coordinates, and how many rows there are."""
    if not (isinstance(operand, ir.Vector) and len(operand.items) == 2):
        raise _missing(i)
    c.e.declared.update(fetch.DECLARED)
    handle, coordinates = operand.items
    if not (isinstance(handle, ir.Register | ir.Immediate) and isinstance(coordinates, ir.Vector)):
        raise NotSupportedError(
            f"The virtual GPU does not do {i.text!r} (line {i.line}): texture references are gone since CUDA "
            "12. Pass a cp.cuda.texture.TextureObject as a cudaTextureObject_t."
        )
    handles = c.scratch("<32 x i64>")
    c.e.raw(f"store <32 x i64> {c.get(handle, 'u64')}, ptr {handles}")
    rows = c.scratch(_ROWS)
    for n, item in enumerate(coordinates.items):
        kind = "u32" if types == "f32" and n == 0 and "a" in _geometry(i) else types
        value = c.e.cast(c.get(item, kind), "float" if kind == "f32" else "i32", "i32")
        row = c.e.op(f"getelementptr [32 x i32], ptr {rows}, i64 {n}")
        c.e.raw(f"store <32 x i32> {value}, ptr {row}")
    return handles, rows, len(coordinates.items)


def _geometry(i: ir.Instruction) -> str:
    return next((part for part in i.parts if part in _GEOMETRIES), "")


def _texture(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    mask = c.executed(i)
    geometry = _geometry(i)
    target = i.operands[0]
    known = set(i.parts) <= {"tex", "base", "level", "grad", "v4", geometry, "f32", "s32", "u32"}
    if not geometry or not known or not isinstance(target, ir.Vector):
        raise _missing(i)
    dimensions, layered = _GEOMETRIES[geometry]
    kind = i.parts[-2]
    coordinates = i.parts[-1]
    wanted = tuple(
        n for n, item in enumerate(target.items) if item is not None and memory_ops.is_read(c.function, item)
    ) or (0,)
    handles, rows, _ = _place_of(c, i, i.operands[1], coordinates)
    for needed in (
        fetch.OBJECT,
        fetch.INDEX,
        fetch.AXIS,
        fetch.PLACE,
        fetch.CHANNEL,
        fetch.PART,
        fetch.MIXED,
    ):
        c.need(*needed)
    name, body = fetch.fetch(dimensions, wanted, layered=layered, whole=coordinates != "f32")
    c.need(name, body)
    places = c.scratch("<32 x i64>")
    values = c.scratch(_ROWS)
    e.raw(f"store <32 x i64> zeroinitializer, ptr {places}")
    e.raw(f"store {_ROWS} zeroinitializer, ptr {values}")
    bad = e.op(
        f"call i32 @{name}(ptr %ctx, ptr {handles}, ptr {rows}, i32 {mask}, ptr {values}, ptr {places})"
    )
    _check(c, i, "ld", 4 * len(wanted), bad, handles, places, mask)
    for n, item in enumerate(target.items):
        if item is None:
            continue
        row = e.op(f"getelementptr [32 x i32], ptr {values}, i64 {n}")
        value = e.op(f"load <32 x i32>, ptr {row}")
        c.set(item, e.cast(value, "i32", "float") if kind == "f32" else value, kind)


def _check(
    c: WarpCode, i: ir.Instruction, root: str, size: int, bad: str, handles: str, places: str, mask: str
) -> str:
    """Fault for handles that are none; check, count and tell the access. Gives where the lanes' bytes lie."""
    e = c.e
    given = e.op(f"load <32 x i64>, ptr {handles}")
    c.fault_if(bad, layout.BAD_TEXTURE, i.pc, given)
    place = e.op(f"load <32 x i64>, ptr {places}")
    some = e.mask_bits(e.compare("ne", "i64", place, constant("i64", 0)))
    inside = e.op(f"and i32 {some}, {mask}")
    access = memory_ops.as_access(i, root, "global", {1: 1, 2: 2, 4: 4, 8: 8}.get(size, 16))
    site = c.site(access)
    check, body = checks.check_global(1, c.options.count, "load" if root == "ld" else "store")
    c.need(check, body)
    failed = e.op(
        f"call i1 @{check}(ptr %ctx, <32 x i64> {place}, i32 {inside}, i32 {c.index}, i32 {i.pc}, i32 {site})"
    )
    c.trace_address(place, inside)
    c.leave_on_fault(failed)
    if c.options.observe:
        c.observe(site, place, inside)
    return inside


def _surface(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    mask = c.executed(i)
    loads = i.root == "suld"
    geometry = _geometry(i)
    mode = next((part for part in i.parts if part in _MODES), "trap")
    kind = next((part for part in i.parts if part in ("b8", "b16", "b32", "b64")), "")
    if not geometry or not kind or "p" in i.parts:
        raise _missing(i)
    dimensions, layered = _GEOMETRIES[geometry]
    value, surface = (i.operands[0], i.operands[1]) if loads else (i.operands[1], i.operands[0])
    items = value.items if isinstance(value, ir.Vector) else (value,)
    width = ir.TYPE_BYTES[kind]
    size = width * len(items)
    handles, rows, _ = _place_of(c, i, surface, "u32")
    for needed in (fetch.OBJECT, fetch.INDEX):
        c.need(*needed)
    name, body = surfaces.surface(dimensions, size, mode, layered=layered)
    c.need(name, body)
    places = c.scratch("<32 x i64>")
    outside = c.scratch("i32")
    e.raw(f"store <32 x i64> zeroinitializer, ptr {places}")
    bad = e.op(
        f"call i32 @{name}(ptr %ctx, ptr {handles}, ptr {rows}, i32 {mask}, ptr {outside}, ptr {places})"
    )
    inside = _check(c, i, "ld" if loads else "st", size, bad, handles, places, mask)
    if mode == "trap":
        beyond = e.op(f"load i32, ptr {outside}")
        c.fault_if(beyond, layout.OUTSIDE_SURFACE, i.pc)
    place = e.op(f"load <32 x i64>, ptr {places}")
    for n, item in enumerate(items):
        at = e.binary("add", "i64", place, constant("i64", n * width)) if n else place
        if loads:
            if item is not None:
                c.set(item, memory_ops.gather(c, at, inside, kind), kind)
        else:
            memory_ops.scatter(c, c.get(item, kind), at, inside, kind)

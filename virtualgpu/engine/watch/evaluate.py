"""Watch expressions and stops, evaluated over a traced warp."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx.dwarf import CType
from virtualgpu.engine.watch import lanes, reading
from virtualgpu.engine.watch.lanes import BOOL, Bools, Lanes
from virtualgpu.engine.watch.memory import (
    PARAMETER,
    SHARED,
    TAG_SHIFT,
    Ints,
    addresses_of,
    pointer_of,
    tagged,
)
from virtualgpu.engine.watch.scene import Scene, UnknownHereError
from virtualgpu.errors import WatchError, did_you_mean
from virtualgpu.records import WARP_SIZE
from virtualgpu.records.warp.columns import lanes_of
from virtualgpu.records.warp.watched import Stop, Watched
from virtualgpu.words import number


class Evaluator:
    """Evaluates one expression after every step of a warp."""

    def __init__(self, scene: Scene, expression: reading.Expression) -> None:
        self.scene = scene
        self.text = expression.text
        self.outside = ""
        self.result = self._of(expression.tree)

    def _fail(self, why: str) -> WatchError:
        return WatchError(f"`{self.text}`: {why}")

    @property
    def loaded(self) -> Lanes:
        """The result as a number.

        Raises
        ------
        WatchError
            If it is an array or a struct.
        """
        return self._number(self.result, self.text)

    def _number(self, found: Lanes, text: str) -> Lanes:
        if found.value is not None:
            return found
        if not found.type.kind:
            named = [name for name, _, _ in found.type.members]
            remedy = (
                f"is a struct: choose a member ({', '.join(f'.{name}' for name in named)})."
                if found.type.count < 0
                else f"is an array: choose an element, as in {text}[threadIdx.x]."
            )
            raise self._fail(f"`{text}` {remedy}")
        assert found.place is not None
        bits, known = self.scene.memory.read(
            found.place, found.type.size_bytes, self.scene.sequence, found.known & ~found.outside
        )
        value = lanes.from_bits(bits, found.type.kind)
        return Lanes(found.type, value, known, found.outside, found.place)

    def _value(self, node: ast.expr) -> Lanes:
        return self._number(self._of(node), ast.unparse(node))

    def _of(self, node: ast.expr) -> Lanes:
        match node:
            case ast.Constant(value=(bool() | int() | float() | complex()) as value):
                return lanes.constant(value)
            case ast.Name(id=name):
                if name in reading.COORDINATES:
                    raise self._fail(f"`{name}` has three parts: write {name}.x, .y or .z.")
                if (literal := reading.suffixed(name)) is not None:
                    return lanes.constant(literal[1], literal[0])
                return self.scene.name(name)
            case ast.Attribute(value=ast.Name(id=name), attr=axis) if name in reading.COORDINATES:
                found = self.scene.built_in(name, axis)
                if found is None:
                    raise self._fail(f"`{name}` has .x, .y and .z, not .{axis}.")
                return found
            case ast.Attribute():
                return self._member(node)
            case ast.Subscript():
                return self._element(node)
            case ast.BinOp():
                return self._operation(node)
            case ast.UnaryOp(op=ast.Not()):
                found = self._value(node.operand)
                return replace(found, type=BOOL, value=~lanes.truth_of(found), place=None)
            case ast.UnaryOp():
                return lanes.signed(node.op, self._value(node.operand), self.text)
            case ast.BoolOp():
                return self._logic(node)
            case ast.Compare():
                sides = [self._value(each) for each in (node.left, *node.comparators)]
                pairs = zip(node.ops, sides[:-1], sides[1:], strict=True)
                return self._both([lanes.compared(op, a, b) for op, a, b in pairs], True)
        raise self._fail(f"`{ast.unparse(node)}` is not evaluated.")

    def _logic(self, node: ast.BoolOp) -> Lanes:
        found = [self._value(each) for each in node.values]
        truths = [replace(each, type=BOOL, value=lanes.truth_of(each), place=None) for each in found]
        return self._both(truths, isinstance(node.op, ast.And))

    @staticmethod
    def _both(truths: list[Lanes], every: bool) -> Lanes:
        """All of some truth values or any; as in C, what a left one decides needs no right one."""
        found = truths[0]
        for each in truths[1:]:
            a = found.numbers
            b = each.numbers
            decided = found.known & (~a if every else a)
            found = Lanes(
                BOOL,
                a & b if every else a | b,
                decided | (found.known & each.known),
                found.outside | (each.outside & ~decided),
            )
        return found

    def _operation(self, node: ast.BinOp) -> Lanes:
        a = self._of(node.left)
        b = self._of(node.right)
        for pointer, other, swapped in ((a, b, False), (b, a, True)):
            at = self._pointer(pointer)
            if (
                at is None
                or not isinstance(node.op, (ast.Add, ast.Sub))
                or (swapped and isinstance(node.op, ast.Sub))
            ):
                continue
            if self._pointer(other) is None:
                index = self._number(other, ast.unparse(node.left if swapped else node.right))
                by = index.numbers.astype(np.int64) * self._target(pointer, node).size_bytes
                place = at.numbers.astype(np.int64) + (by if isinstance(node.op, ast.Add) else -by)
                return Lanes(
                    self._as_pointer(pointer.type),
                    place.astype(np.uint64),
                    at.known & index.known,
                    at.outside | index.outside,
                )
        x = self._number(a, ast.unparse(node.left))
        y = self._number(b, ast.unparse(node.right))
        return lanes.computed(node.op, x, y, self.text)

    @staticmethod
    def _as_pointer(ctype: CType) -> CType:
        return ctype if ctype.kind else CType(f"{ctype.name}*", 8, "u64", ctype.of)

    def _pointer(self, found: Lanes) -> Lanes | None:
        """An address as a number: of a pointer, or of an array's first element."""
        if found.type.count >= 0 and found.place is not None:
            return replace(found, value=pointer_of(found.place), place=None)
        if found.type.of is not None and found.type.kind:
            return self._number(found, self.text)
        return None

    def _target(self, found: Lanes, node: ast.expr) -> CType:
        target = self.scene.symbols.type_of(found.type.of)
        if target is None or not target.size_bytes:
            raise self._fail(f"`{ast.unparse(node)}`: what a {found.type.name} points to has no known type.")
        return target

    def _element(self, node: ast.Subscript) -> Lanes:
        base = self._of(node.value)
        what = ast.unparse(node.value)
        at = self._pointer(base)
        if at is None:
            raise self._fail(f"`{what}` is no array and no pointer: it is {_a(base.type)}.")
        target = self._target(base, node)
        index = self._value(node.slice)
        if index.type.kind[0] == "f":
            raise self._fail(f"the index `{ast.unparse(node.slice)}` has a point: indices are whole numbers.")
        steps = index.numbers.astype(np.int64)
        start = tagged(np.broadcast_to(at.numbers, (at.numbers.shape[0], WARP_SIZE)))
        place = start + steps * target.size_bytes
        low, high, said = self._bounds(base, start, place, what)
        known = at.known & index.known
        out = known & ~((place >= low) & (place + target.size_bytes <= high))
        if out.any() and not self.outside:
            self.outside = said(target, out)
        return Lanes(target, None, known, at.outside | index.outside | out, place)

    def _bounds(
        self, base: Lanes, start: Ints, place: Ints, what: str
    ) -> tuple[Ints, Ints, Callable[[CType, Bools], str]]:
        """First and last bytes of what may be indexed, and how to say that something is outside of it."""
        scene = self.scene
        if base.type.count > 0:

            def of_array(target: CType, out: Bools) -> str:
                return f"outside: the indices of {what} are 0 to {number(base.type.count - 1)}"

            return start, start + base.type.size_bytes, of_array
        if base.type.count == 0:

            def of_dynamic(target: CType, out: Bools) -> str:
                return (
                    f"outside: {what} ends with the block's {number(scene.symbols.shared_bytes)} shared bytes"
                )

            return start, np.full_like(start, SHARED | scene.symbols.shared_bytes), of_dynamic
        arrays = sorted(scene.symbols.arrays.items())
        starts = np.array([at for at, _ in arrays], np.int64)
        ends = np.array([at + size for at, size in arrays], np.int64)
        which = np.searchsorted(starts, start, side="right") - 1
        mine = (which >= 0) & (start < ends[which] if ends.size else False)
        there = scene.memory.allocated(place) | (place >> TAG_SHIFT > 0)
        low = np.where(there, place, start)
        high = np.where(there, place + (1 << 20), start)
        if ends.size:
            low = np.where(mine, starts[which], low)
            high = np.where(mine, ends[which], high)

        def of_pointer(target: CType, out: Bools) -> str:
            where = np.broadcast_to(mine & (start == starts[which]) if ends.size else mine, out.shape) & out
            if not where.any():
                return f"outside: {what} points to no array there"
            sizes = np.broadcast_to(ends[which] - starts[which], out.shape)[where]
            return f"outside: the indices of {what} are 0 to {number(int(sizes[0]) // target.size_bytes - 1)}"

        return low, high, of_pointer

    def _member(self, node: ast.Attribute) -> Lanes:
        base = self._of(node.value)
        what = ast.unparse(node.value)
        if base.type.kind and base.type.of is not None:  # p->x
            target = self._target(base, node)
            at = self._number(base, what)
            row = np.broadcast_to(at.numbers, (at.numbers.shape[0], WARP_SIZE))
            base = Lanes(target, None, at.known, at.outside, tagged(row))
        members = {name: (offset, key) for name, offset, key in base.type.members}
        if base.place is None or not members:
            raise self._fail(
                f"`{what}` is {_a(base.type)}, and has no members: `.` is for structs, and for threadIdx and "
                "its kin."
            )
        if node.attr not in members:
            raise self._fail(
                f"{base.type.name} has no member `{node.attr}`."
                f"{did_you_mean(node.attr, members, 0.5)} It has {', '.join(members)}."
            )
        offset, key = members[node.attr]
        ctype = self.scene.symbols.type_of(key)
        if ctype is None:
            raise self._fail(f"debug information does not tell the type of `{ast.unparse(node)}`.")
        return replace(base, type=ctype, value=None, place=base.place + offset)


def _a(ctype: CType) -> str:
    return f"a {ctype.name}" if ctype.name[:1] not in "aeiou" else f"an {ctype.name}"


def watched(scene: Scene, expression: reading.Expression) -> Watched:
    """An expression's values after every step, a row for each change.

    Raises
    ------
    WatchError
        If the expression makes no sense for the types of its variables.
    """
    try:
        evaluator = Evaluator(scene, expression)
        found = evaluator.loaded
    except UnknownHereError as unknown:
        none = np.zeros((0, WARP_SIZE), np.uint64)
        masks = np.zeros(0, np.uint32)
        return Watched(
            text=expression.text,
            type="",
            kind="",
            step=np.zeros(0, np.int32),
            value=none,
            known=masks,
            outside=masks,
            note=str(unknown),
        )
    shape = len(scene.trace), WARP_SIZE
    bits = np.broadcast_to(lanes.to_bits(found.numbers), shape)
    outside = np.broadcast_to(found.outside, shape) & scene.threads
    known = np.broadcast_to(found.known, shape) & scene.threads & ~outside
    bits = np.where(known, bits, 0)
    new = np.ones(shape[0], np.bool_)
    new[1:] = ((bits[1:] != bits[:-1]) | (known[1:] != known[:-1]) | (outside[1:] != outside[:-1])).any(
        axis=1
    )
    step = np.flatnonzero(new)
    kind = "pred" if found.type.kind == "pred" or found.type.name == "bool" else found.type.kind
    kind = "f32" if kind in ("f16", "bf16") else kind
    return Watched(
        text=expression.text,
        type=found.type.name,
        kind=kind,
        step=step.astype(np.int32),
        value=bits[step],
        known=_mask(known[step]),
        outside=_mask(outside[step]),
        note=evaluator.outside,
    )


def _mask(truth: Bools) -> npt.NDArray[np.uint32]:
    packed = np.packbits(truth, axis=1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u4").ravel().astype(np.uint32)


def stopped(scene: Scene, stop: reading.Stop) -> Stop:
    """The steps at which a warp stops, with the lanes that it stops for.

    Raises
    ------
    WatchError
        If its condition is no truth value, or makes no sense for the types of its variables.
    """
    steps = np.zeros(0, np.int64)
    note = ""
    masks = np.zeros(len(scene.trace), np.uint32)
    try:
        if stop.kind == "line":
            steps, masks, note = _at_line(scene, stop)
        elif stop.kind == "write":
            assert stop.of is not None
            masks = _mask(_writing(scene, stop.of))
            steps = np.flatnonzero(masks)
        else:
            assert stop.of is not None
            truth, holds = _condition(scene, stop)
            steps = np.flatnonzero(holds & ~np.append(False, holds[:-1]))
            masks = _mask(truth)
    except UnknownHereError as unknown:
        note = str(unknown)
    return Stop(stop.text, stop.kind, steps.astype(np.int32), masks[steps], note)


def _at_line(scene: Scene, stop: reading.Stop) -> tuple[Ints, npt.NDArray[np.uint32], str]:
    lines = scene.trace.code.rstrip("\n").count("\n") + 1
    if not 1 <= stop.line <= lines:
        raise WatchError(f"`{stop.text}`: the kernel's source has the lines 1 to {number(lines)}.")
    visits = scene.steps.visits
    found = visits.begin[visits.line == stop.line].astype(np.int64)
    ran = sorted(set(visits.line.tolist()) - {0})
    near = min(ran, key=lambda line: abs(line - stop.line), default=0)
    note = "" if found.size or not ran else f"this warp ran nothing of it; near it, it ran line {near}"
    return found, scene.trace.active_mask, note


def _condition(scene: Scene, stop: reading.Stop) -> tuple[Bools, Bools]:
    """Of a condition in which lanes it is true after each step, and at which steps for any or all of them."""
    assert stop.of is not None
    found = Evaluator(scene, stop.of).loaded
    if found.type.kind != "pred" and found.type.name != "bool":
        raise WatchError(
            f"`{stop.text}`: `{stop.of.text}` is {_a(found.type)}, no truth value: compare it, as in "
            f"{stop.kind}({stop.of.text} > 0)."
        )
    shape = len(scene.trace), WARP_SIZE
    known = np.broadcast_to(found.known & ~found.outside, shape) & scene.threads
    truth = np.broadcast_to(lanes.truth_of(found), shape) & known
    holds: Bools = np.asarray(truth.any(axis=1))
    if stop.kind == "all":
        holds = holds & np.asarray((truth == known).all(axis=1))
    return truth, holds


def _writing(scene: Scene, place: reading.Expression) -> Bools:
    """At which steps which lanes write a place: a variable, or bytes of memory."""
    trace = scene.trace
    executed = lanes_of(trace.executed_mask)
    name = place.text.strip()
    own = [each for each in trace.variables if each.name == name and each.written_by]
    given = scene.symbols.parameter(name) is not None and not scene.symbols.assigned(name)
    if own and not given:
        wrote: Bools = np.logical_or.reduce([scene.writes(each) for each in own])
        return wrote[:, None] & executed
    found = Evaluator(scene, place).result
    if found.place is None or ((found.place >> TAG_SHIFT) == PARAMETER >> TAG_SHIFT).all():
        raise WatchError(
            f"`write {place.text}`: `{place.text}` is no place that the kernel writes. Name an element, as "
            "in write y[3], or a variable that it changes."
        )
    writes = np.zeros((len(trace), WARP_SIZE), np.bool_)
    if trace.access_is_store is None or trace.access_size_bytes is None or trace.address is None:
        return writes
    at = np.flatnonzero(trace.access_is_store & (trace.executed_mask != 0))
    address = addresses_of(trace, at)
    shape = writes.shape
    start = np.broadcast_to(found.place, shape)[at]
    known = np.broadcast_to(found.known, shape)[at]
    end = start + found.type.size_bytes
    size = trace.access_size_bytes[at].astype(np.int64)[:, None]
    writes[at] = (address >= 0) & known & (address < end) & (address + size > start)
    return writes

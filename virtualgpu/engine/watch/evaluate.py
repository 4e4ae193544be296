"""Evaluation of watch expressions and stop conditions for a traced warp."""

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
    addresses_of_pointers,
    pointer_of,
)
from virtualgpu.engine.watch.scene import UnknownValueError, WatchScope
from virtualgpu.errors import WatchError, did_you_mean
from virtualgpu.records import WARP_SIZE
from virtualgpu.records.warp.columns import expand_lane_masks
from virtualgpu.records.warp.watched import Stop, Watched
from virtualgpu.words import number


class Evaluator:
    """An evaluator for a watch expression, which computes its value after every step of a warp."""

    def __init__(self, scope: WatchScope, expression: reading.Expression) -> None:
        self.scope = scope
        self.text = expression.text
        self.outside_note = ""
        self.result = self._evaluate(expression.tree)

    def _make_error(self, reason: str) -> WatchError:
        return WatchError(f"`{self.text}`: {reason}")

    @property
    def loaded_lanes(self) -> Lanes:
        """Value of the expression in each lane, as a number.

        Raises
        ------
        WatchError
            If it is an array or a struct.
        """
        return self._as_number(self.result, self.text)

    def _as_number(self, operand_lanes: Lanes, text: str) -> Lanes:
        if operand_lanes.value is not None:
            return operand_lanes
        if not operand_lanes.type.kind:
            names = [name for name, _, _ in operand_lanes.type.members]
            remedy = (
                f"is a struct: choose a member ({', '.join(f'.{name}' for name in names)})."
                if operand_lanes.type.count < 0
                else f"is an array: choose an element, as in {text}[threadIdx.x]."
            )
            raise self._make_error(f"`{text}` {remedy}")
        assert operand_lanes.address is not None
        bits, known_lanes = self.scope.memory.read(
            operand_lanes.address,
            operand_lanes.type.size_bytes,
            self.scope.sequence,
            operand_lanes.is_known & ~operand_lanes.is_outside,
        )
        value = lanes.from_bits(bits, operand_lanes.type.kind)
        return Lanes(operand_lanes.type, value, known_lanes, operand_lanes.is_outside, operand_lanes.address)

    def _evaluate_number(self, node: ast.expr) -> Lanes:
        return self._as_number(self._evaluate(node), ast.unparse(node))

    def _evaluate(self, node: ast.expr) -> Lanes:
        match node:
            case ast.Constant(value=(bool() | int() | float() | complex()) as value):
                return lanes.make_constant(value)
            case ast.Name(id=name):
                if name in reading.COORDINATES:
                    raise self._make_error(f"`{name}` has three components. Write {name}.x, .y or .z.")
                if (literal := reading.parse_literal(name)) is not None:
                    return lanes.make_constant(literal[1], literal[0])
                return self.scope.value_of_name(name)
            case ast.Attribute(value=ast.Name(id=name), attr=axis) if name in reading.COORDINATES:
                result = self.scope.built_in_value(name, axis)
                if result is None:
                    raise self._make_error(f"`{name}` has no .{axis}. It has .x, .y and .z.")
                return result
            case ast.Attribute():
                return self._evaluate_member(node)
            case ast.Subscript():
                return self._evaluate_element(node)
            case ast.BinOp():
                return self._evaluate_operation(node)
            case ast.UnaryOp(op=ast.Not()):
                result = self._evaluate_number(node.operand)
                return replace(result, type=BOOL, value=~lanes.truth_of(result), address=None)
            case ast.UnaryOp():
                return lanes.apply_sign(node.op, self._evaluate_number(node.operand), self.text)
            case ast.BoolOp():
                return self._evaluate_logic(node)
            case ast.Compare():
                operands = [self._evaluate_number(operand) for operand in (node.left, *node.comparators)]
                comparisons = zip(node.ops, operands[:-1], operands[1:], strict=True)
                return self._combine_truth_values(
                    [lanes.compare_lanes(op, a, b) for op, a, b in comparisons], True
                )
        raise self._make_error(f"watch expressions do not support `{ast.unparse(node)}`.")

    def _evaluate_logic(self, node: ast.BoolOp) -> Lanes:
        operands = [self._evaluate_number(operand) for operand in node.values]
        truth_values = [
            replace(operand, type=BOOL, value=lanes.truth_of(operand), address=None) for operand in operands
        ]
        return self._combine_truth_values(truth_values, isinstance(node.op, ast.And))

    @staticmethod
    def _combine_truth_values(truth_values: list[Lanes], is_and: bool) -> Lanes:
        """Combine truth values with "and" or "or".

        As in C, the right value is not needed if the left one decides.
        """
        result = truth_values[0]
        for truth_value in truth_values[1:]:
            a = result.numbers
            b = truth_value.numbers
            decided_lanes = result.is_known & (~a if is_and else a)
            result = Lanes(
                BOOL,
                a & b if is_and else a | b,
                decided_lanes | (result.is_known & truth_value.is_known),
                result.is_outside | (truth_value.is_outside & ~decided_lanes),
            )
        return result

    def _evaluate_operation(self, node: ast.BinOp) -> Lanes:
        a = self._evaluate(node.left)
        b = self._evaluate(node.right)
        for pointer, operand, is_swapped in ((a, b, False), (b, a, True)):
            address = self._find_address(pointer)
            if (
                address is None
                or not isinstance(node.op, (ast.Add, ast.Sub))
                or (is_swapped and isinstance(node.op, ast.Sub))
            ):
                continue
            if self._find_address(operand) is None:
                index_lanes = self._as_number(operand, ast.unparse(node.left if is_swapped else node.right))
                offset = (
                    index_lanes.numbers.astype(np.int64) * self._find_pointed_type(pointer, node).size_bytes
                )
                moved_address = address.numbers.astype(np.int64) + (
                    offset if isinstance(node.op, ast.Add) else -offset
                )
                return Lanes(
                    self._as_pointer(pointer.type),
                    moved_address.astype(np.uint64),
                    address.is_known & index_lanes.is_known,
                    address.is_outside | index_lanes.is_outside,
                )
        x = self._as_number(a, ast.unparse(node.left))
        y = self._as_number(b, ast.unparse(node.right))
        return lanes.compute_operation(node.op, x, y, self.text)

    @staticmethod
    def _as_pointer(ctype: CType) -> CType:
        return ctype if ctype.kind else CType(f"{ctype.name}*", 8, "u64", ctype.inner_key)

    def _find_address(self, pointer_lanes: Lanes) -> Lanes | None:
        """Return an address as a number: the value of a pointer or the address of an array."""
        if pointer_lanes.type.count >= 0 and pointer_lanes.address is not None:
            return replace(pointer_lanes, value=pointer_of(pointer_lanes.address), address=None)
        if pointer_lanes.type.inner_key is not None and pointer_lanes.type.kind:
            return self._as_number(pointer_lanes, self.text)
        return None

    def _find_pointed_type(self, pointer: Lanes, node: ast.expr) -> CType:
        target_type = self.scope.symbols.type_of(pointer.type.inner_key)
        if target_type is None or not target_type.size_bytes:
            raise self._make_error(
                f"`{ast.unparse(node)}`: the type that a {pointer.type.name} points to is unknown."
            )
        return target_type

    def _evaluate_element(self, node: ast.Subscript) -> Lanes:
        base_lanes = self._evaluate(node.value)
        base_text = ast.unparse(node.value)
        address = self._find_address(base_lanes)
        if address is None:
            raise self._make_error(
                f"`{base_text}` is neither an array nor a pointer: it is {_describe_type(base_lanes.type)}."
            )
        element_type = self._find_pointed_type(base_lanes, node)
        index_lanes = self._evaluate_number(node.slice)
        if index_lanes.type.kind[0] == "f":
            raise self._make_error(f"the index `{ast.unparse(node.slice)}` is not an integer.")
        indices = index_lanes.numbers.astype(np.int64)
        start_addresses = addresses_of_pointers(
            np.broadcast_to(address.numbers, (address.numbers.shape[0], WARP_SIZE))
        )
        element_addresses = start_addresses + indices * element_type.size_bytes
        low_address, high_address, outside_text = self._find_index_bounds(
            base_lanes, start_addresses, element_addresses, base_text
        )
        known_lanes = address.is_known & index_lanes.is_known
        is_outside = known_lanes & ~(
            (element_addresses >= low_address) & (element_addresses + element_type.size_bytes <= high_address)
        )
        if is_outside.any() and not self.outside_note:
            self.outside_note = outside_text(element_type, is_outside)
        return Lanes(
            element_type,
            None,
            known_lanes,
            address.is_outside | index_lanes.is_outside | is_outside,
            element_addresses,
        )

    def _find_index_bounds(
        self, base_lanes: Lanes, start_addresses: Ints, element_addresses: Ints, base_text: str
    ) -> tuple[Ints, Ints, Callable[[CType, Bools], str]]:
        """Return the first and last address that may be indexed, and the message for other indices."""
        scope = self.scope
        if base_lanes.type.count > 0:

            def describe_array(target: CType, is_outside: Bools) -> str:
                return f"outside: the indices of {base_text} are 0 to {number(base_lanes.type.count - 1)}"

            return start_addresses, start_addresses + base_lanes.type.size_bytes, describe_array
        if base_lanes.type.count == 0:

            def describe_dynamic_array(target: CType, is_outside: Bools) -> str:
                return (
                    f"outside: {base_text} ends with the block's {number(scope.symbols.shared_bytes)} "
                    "shared bytes"
                )

            return (
                start_addresses,
                np.full_like(start_addresses, SHARED | scope.symbols.shared_bytes),
                describe_dynamic_array,
            )
        sorted_arrays = sorted(scope.symbols.arrays.items())
        array_starts = np.array([address for address, _ in sorted_arrays], np.int64)
        array_ends = np.array([address + size for address, size in sorted_arrays], np.int64)
        array_index = np.searchsorted(array_starts, start_addresses, side="right") - 1
        is_in_array = (array_index >= 0) & (
            start_addresses < array_ends[array_index] if array_ends.size else False
        )
        is_allocated = scope.memory.is_allocated(element_addresses) | (element_addresses >> TAG_SHIFT > 0)
        low_address = np.where(is_allocated, element_addresses, start_addresses)
        high_address = np.where(is_allocated, element_addresses + (1 << 20), start_addresses)
        if array_ends.size:
            low_address = np.where(is_in_array, array_starts[array_index], low_address)
            high_address = np.where(is_in_array, array_ends[array_index], high_address)

        def describe_pointer(target: CType, is_outside: Bools) -> str:
            affected_lanes = (
                np.broadcast_to(
                    is_in_array & (start_addresses == array_starts[array_index])
                    if array_ends.size
                    else is_in_array,
                    is_outside.shape,
                )
                & is_outside
            )
            if not affected_lanes.any():
                return f"outside: {base_text} does not point to an array there"
            sizes = np.broadcast_to(array_ends[array_index] - array_starts[array_index], is_outside.shape)[
                affected_lanes
            ]
            return (
                f"outside: the indices of {base_text} are 0 to "
                f"{number(int(sizes[0]) // target.size_bytes - 1)}"
            )

        return low_address, high_address, describe_pointer

    def _evaluate_member(self, node: ast.Attribute) -> Lanes:
        base_lanes = self._evaluate(node.value)
        base_text = ast.unparse(node.value)
        if base_lanes.type.kind and base_lanes.type.inner_key is not None:  # p->x
            target_type = self._find_pointed_type(base_lanes, node)
            address = self._as_number(base_lanes, base_text)
            lane_addresses = np.broadcast_to(address.numbers, (address.numbers.shape[0], WARP_SIZE))
            base_lanes = Lanes(
                target_type, None, address.is_known, address.is_outside, addresses_of_pointers(lane_addresses)
            )
        members = {name: (offset, key) for name, offset, key in base_lanes.type.members}
        if base_lanes.address is None or not members:
            raise self._make_error(
                f"`{base_text}` is {_describe_type(base_lanes.type)}, which has no members. Use `.` "
                "with structs, threadIdx, blockIdx, blockDim and gridDim."
            )
        if node.attr not in members:
            raise self._make_error(
                f"{base_lanes.type.name} has no member `{node.attr}`."
                f"{did_you_mean(node.attr, members, 0.5)} Its members: {', '.join(members)}."
            )
        offset, key = members[node.attr]
        ctype = self.scope.symbols.type_of(key)
        if ctype is None:
            raise self._make_error(f"the debug information has no type for `{ast.unparse(node)}`.")
        return replace(base_lanes, type=ctype, value=None, address=base_lanes.address + offset)


def _describe_type(ctype: CType) -> str:
    return f"a {ctype.name}" if ctype.name[:1] not in "aeiou" else f"an {ctype.name}"


def evaluate_watch(scope: WatchScope, expression: reading.Expression) -> Watched:
    """Return the values of a watch expression, with one row for each step that changes them.

    Raises
    ------
    WatchError
        If the expression is invalid for the types of its variables.
    """
    try:
        evaluator = Evaluator(scope, expression)
        result = evaluator.loaded_lanes
    except UnknownValueError as error:
        empty_values = np.zeros((0, WARP_SIZE), np.uint64)
        lane_masks = np.zeros(0, np.uint32)
        return Watched(
            text=expression.text,
            type="",
            kind="",
            step=np.zeros(0, np.int32),
            value=empty_values,
            known=lane_masks,
            outside=lane_masks,
            note=str(error),
        )
    shape = len(scope.trace), WARP_SIZE
    bits = np.broadcast_to(lanes.to_bits(result.numbers), shape)
    is_outside = np.broadcast_to(result.is_outside, shape) & scope.threads
    known_lanes = np.broadcast_to(result.is_known, shape) & scope.threads & ~is_outside
    bits = np.where(known_lanes, bits, 0)
    is_changed = np.ones(shape[0], np.bool_)
    is_changed[1:] = (
        (bits[1:] != bits[:-1]) | (known_lanes[1:] != known_lanes[:-1]) | (is_outside[1:] != is_outside[:-1])
    ).any(axis=1)
    changed_steps = np.flatnonzero(is_changed)
    value_kind = "pred" if result.type.kind == "pred" or result.type.name == "bool" else result.type.kind
    value_kind = "f32" if value_kind in ("f16", "bf16") else value_kind
    return Watched(
        text=expression.text,
        type=result.type.name,
        kind=value_kind,
        step=changed_steps.astype(np.int32),
        value=bits[changed_steps],
        known=_pack_lane_masks(known_lanes[changed_steps]),
        outside=_pack_lane_masks(is_outside[changed_steps]),
        note=evaluator.outside_note,
    )


def _pack_lane_masks(truth_values: Bools) -> npt.NDArray[np.uint32]:
    """Return rows of 32 truth values as masks with one bit per lane."""
    packed_bits = np.packbits(truth_values, axis=1, bitorder="little")
    return np.ascontiguousarray(packed_bits).view("<u4").ravel().astype(np.uint32)


def evaluate_stop(scope: WatchScope, stop: reading.StopCondition) -> Stop:
    """Return the steps at which a warp stops, and the lanes that cause each stop.

    Raises
    ------
    WatchError
        If its condition is not a truth value, or is invalid for the types of its variables.
    """
    stop_steps = np.zeros(0, np.int64)
    stop_note = ""
    lane_masks = np.zeros(len(scope.trace), np.uint32)
    try:
        if stop.kind == "line":
            stop_steps, lane_masks, stop_note = _find_steps_at_line(scope, stop)
        elif stop.kind == "write":
            assert stop.expression is not None
            lane_masks = _pack_lane_masks(_find_writing_lanes(scope, stop.expression))
            stop_steps = np.flatnonzero(lane_masks)
        else:
            assert stop.expression is not None
            truth_lanes, is_true = _evaluate_condition(scope, stop)
            stop_steps = np.flatnonzero(is_true & ~np.append(False, is_true[:-1]))
            lane_masks = _pack_lane_masks(truth_lanes)
    except UnknownValueError as error:
        stop_note = str(error)
    return Stop(stop.text, stop.kind, stop_steps.astype(np.int32), lane_masks[stop_steps], stop_note)


def _find_steps_at_line(
    scope: WatchScope, stop: reading.StopCondition
) -> tuple[Ints, npt.NDArray[np.uint32], str]:
    line_count = scope.trace.code.rstrip("\n").count("\n") + 1
    if not 1 <= stop.line <= line_count:
        raise WatchError(f"`{stop.text}`: the kernel's source has only the lines 1 to {number(line_count)}.")
    line_visits = scope.steps.visits
    visit_steps = line_visits.begin[line_visits.line == stop.line].astype(np.int64)
    executed_lines = sorted(set(line_visits.line.tolist()) - {0})
    nearest_line = min(executed_lines, key=lambda line: abs(line - stop.line), default=0)
    stop_note = (
        ""
        if visit_steps.size or not executed_lines
        else "this warp executed no instruction of the line; the nearest line that it executed is "
        f"{nearest_line}"
    )
    return visit_steps, scope.trace.active_mask, stop_note


def _evaluate_condition(scope: WatchScope, stop: reading.StopCondition) -> tuple[Bools, Bools]:
    """Return the lanes in which a condition is true after each step, and the steps at which to stop."""
    assert stop.expression is not None
    condition_value = Evaluator(scope, stop.expression).loaded_lanes
    if condition_value.type.kind != "pred" and condition_value.type.name != "bool":
        raise WatchError(
            f"`{stop.text}`: `{stop.expression.text}` is {_describe_type(condition_value.type)}, "
            "which is not a truth value. Compare it, as in "
            f"{stop.kind}({stop.expression.text} > 0)."
        )
    shape = len(scope.trace), WARP_SIZE
    known_lanes = (
        np.broadcast_to(condition_value.is_known & ~condition_value.is_outside, shape) & scope.threads
    )
    truth_lanes = np.broadcast_to(lanes.truth_of(condition_value), shape) & known_lanes
    is_true: Bools = np.asarray(truth_lanes.any(axis=1))
    if stop.kind == "all":
        is_true = is_true & np.asarray((truth_lanes == known_lanes).all(axis=1))
    return truth_lanes, is_true


def _find_writing_lanes(scope: WatchScope, watched_expression: reading.Expression) -> Bools:
    """Return the lanes that write a variable, or bytes of memory, at each step."""
    trace = scope.trace
    executed_lanes = expand_lane_masks(trace.executed_mask)
    name = watched_expression.text.strip()
    variables = [variable for variable in trace.variables if variable.name == name and variable.written_by]
    is_unchanged_parameter = scope.symbols.find_parameter(name) is not None and not scope.symbols.is_assigned(
        name
    )
    if variables and not is_unchanged_parameter:
        written_lanes: Bools = np.logical_or.reduce(
            [scope.find_writing_steps(variable) for variable in variables]
        )
        return written_lanes[:, None] & executed_lanes
    watched_value = Evaluator(scope, watched_expression).result
    if (
        watched_value.address is None
        or ((watched_value.address >> TAG_SHIFT) == PARAMETER >> TAG_SHIFT).all()
    ):
        raise WatchError(
            f"`write {watched_expression.text}`: `{watched_expression.text}` is not a location that the "
            "kernel writes. Write an element, as in `write y[3]`, or a variable that the kernel changes."
        )
    is_written = np.zeros((len(trace), WARP_SIZE), np.bool_)
    if trace.access_is_store is None or trace.access_size_bytes is None or trace.address is None:
        return is_written
    store_steps = np.flatnonzero(trace.access_is_store & (trace.executed_mask != 0))
    address = addresses_of(trace, store_steps)
    shape = is_written.shape
    start_address = np.broadcast_to(watched_value.address, shape)[store_steps]
    known_lanes = np.broadcast_to(watched_value.is_known, shape)[store_steps]
    end_address = start_address + watched_value.type.size_bytes
    store_bytes = trace.access_size_bytes[store_steps].astype(np.int64)[:, None]
    is_written[store_steps] = (
        (address >= 0) & known_lanes & (address < end_address) & (address + store_bytes > start_address)
    )
    return is_written

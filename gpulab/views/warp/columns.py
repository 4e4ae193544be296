"""A warp's trace as columns for the browser: sites, texts, moves, values of lanes, and memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.warp import step_text
from gpulab.views.warp.steps import WarpSteps
from virtualgpu.records import WARP_SIZE, WarpTrace
from virtualgpu.records.warp.columns import SharedEvents, SharedWrites, expand_lane_masks
from virtualgpu.records.warp.loops import Ints, number_calls

Columns = dict[str, npt.NDArray[Any]]

_LANE_INDICES = np.arange(WARP_SIZE)
_INTEGER_TYPES = [
    (int(np.iinfo(k).min), int(np.iinfo(k).max), k) for k in ("u1", "i1", "u2", "i2", "u4", "i4")
]


class TextTable:
    """A collection that stores each distinct string once for use in many rows. The rows contain the number of
    a string instead of the string.
    """

    def __init__(self) -> None:
        self.number_of_text: dict[str, int] = {}
        self._numbers_of_texts: dict[tuple[str, ...], Ints] = {}

    def number_texts(self, texts: Iterable[str]) -> Ints:
        """Return the numbers of the given strings. The result is cached, because most warps need the same
        strings.
        """
        key = tuple(texts)
        number_of_text = self.number_of_text
        if key not in self._numbers_of_texts:
            self._numbers_of_texts[key] = np.array(
                [number_of_text.setdefault(text, len(number_of_text)) for text in key], np.int32
            )
        return self._numbers_of_texts[key]


def narrow_columns(columns: Columns) -> Columns:
    """Convert columns of integers to the smallest types that can represent them."""
    for name, column in columns.items():
        minimum, maximum = (int(column.min()), int(column.max())) if column.size else (0, 0)
        narrowed_columns = (
            column.astype(integer_type)
            for type_minimum, type_maximum, integer_type in _INTEGER_TYPES
            if type_minimum <= minimum and maximum <= type_maximum
        )
        columns[name] = next(narrowed_columns, column)
    return columns


def encode_lane_rows(name: str, values: npt.NDArray[np.uint64], masks: npt.NDArray[np.uint32]) -> Columns:
    """Return columns that encode rows of 32 values, one for each lane of a warp. Only the values of lanes in
    `masks` can be restored exactly.

    Returns
    -------
    dict
        Columns ``NAME_at`` and so on. If a row's ``at`` is negative, the row is
        ``base[~at] + stride[~at] * lane``. Otherwise ``at >> 1`` is its index in ``NAME_table``, which
        contains the low halves of 32 lanes and, if ``at`` is odd, the high halves after them. ``record.js``
        decodes it.
    """
    signed_values = values.view(np.int64)
    lanes = expand_lane_masks(masks)
    first_lane = np.argmax(lanes, axis=1)
    later_lanes = lanes & (first_lane[:, None] < _LANE_INDICES)
    has_second_lane = later_lanes.any(axis=1)
    second_lane = np.where(has_second_lane, np.argmax(later_lanes, axis=1), first_lane + 1)
    row_indices = np.arange(len(signed_values))
    first_values = signed_values[row_indices, first_lane]
    value_difference = np.where(
        has_second_lane, signed_values[row_indices, second_lane % WARP_SIZE] - first_values, 0
    )
    stride = value_difference // (second_lane - first_lane)
    lane_zero_value = first_values - stride * first_lane
    is_linear = np.all(
        (lane_zero_value[:, None] + stride[:, None] * _LANE_INDICES == signed_values) | ~lanes, axis=1
    )
    nonlinear_values = values[~is_linear]
    has_high_half = (nonlinear_values >> np.uint64(32)).any(axis=1)
    table_row = np.concatenate([[0], np.cumsum(1 + has_high_half)])
    word_table = np.zeros((int(table_row[-1]), WARP_SIZE), np.uint32)
    word_table[table_row[:-1]] = nonlinear_values & np.uint64(0xFFFFFFFF)
    word_table[table_row[:-1][has_high_half] + 1] = nonlinear_values[has_high_half] >> np.uint64(32)
    row_codes = np.empty(len(signed_values), np.int32)
    row_codes[is_linear], row_codes[~is_linear] = (
        ~np.arange(int(is_linear.sum()), dtype=np.int32),
        table_row[:-1] << 1 | has_high_half,
    )
    encoded_columns = {
        "at": row_codes,
        "base": lane_zero_value[is_linear],
        "stride": stride[is_linear],
        "table": word_table.reshape(-1),
    }
    return {f"{name}_{suffix}": column for suffix, column in encoded_columns.items()}


def make_warp_columns(
    steps: WarpSteps, texts: TextTable, shared: SharedMemoryStates | None = None
) -> Columns:
    """Return the columns of one warp. Strings are replaced by their numbers in the collection `texts`.

    Columns without a prefix have one row per step: the number of its site, of its pair of masks and of its
    iteration, and the number of steps of each move. Other columns have one row per object in their prefix.
    """
    trace = steps.trace
    loops = steps.loops
    first_steps = steps.sites.first
    first_of_mask = steps.masks.first
    step_numbers = np.arange(len(steps), dtype=np.int32)
    active_masks = trace.active_mask[first_of_mask]
    executed_masks = trace.executed_mask[first_of_mask]
    instructions = (trace.instruction[text].strip() for text in trace.text_index[first_steps].tolist())
    columns: Columns = {
        "site": steps.sites.of,
        "site_visits": np.bincount(steps.sites.of),
        "site_pc": trace.pc[first_steps],
        "site_line": steps.line[first_steps],
        "site_column": np.where(
            trace.line[first_steps] == steps.line[first_steps], trace.column[first_steps], 0
        ),
        "site_place": texts.number_texts(steps.place_texts),
        "site_words": texts.number_texts(steps.site_texts),
        "site_code": texts.number_texts(instructions),
        "mask": steps.masks.of,
        "mask_active": active_masks,
        "mask_executed": executed_masks,
        "mask_words": texts.number_texts(steps.lanes_texts),
        "mask_lanes": np.bitwise_count(active_masks),
        "mask_ran": np.bitwise_count(executed_masks),
        **{name: target_steps - step_numbers for name, target_steps in steps.moves.items()},
    }
    visits = steps.visits
    columns |= {"visit_begin": visits.begin, "visit_line": visits.line, "visit_lanes": visits.lane_mask}
    columns |= {"visit_words": texts.number_texts(steps.visit_texts)}
    columns |= {
        "visit_active": np.bitwise_count(visits.active_mask | visits.lane_mask),
        "visit_ran": np.bitwise_count(visits.lane_mask),
    }
    columns |= {"visit_place": texts.number_texts(map(step_text.make_place_text, visits.line.tolist()))}
    columns |= {"visit_moved": texts.number_texts(map(step_text.make_moved_sentence, visits.moved_lines))}
    if len(loops):
        columns |= {name: getattr(loops, name) for name in ("turn", "turn_begin", "turn_end", "turn_run")}
        columns |= {
            "turn_words": texts.number_texts(loops.words),
            "turn_alone": texts.number_texts(loops.alone),
        }
        columns |= {"run_turns": loops.run_turns, "run_outer": loops.run_outer}
    if steps.accesses.size:
        columns |= {"access_step": steps.accesses, "access_kind": steps.access_kinds.of}
        for name, field_values in zip(
            step_text.AccessText._fields, zip(*steps.access_texts, strict=True), strict=True
        ):
            are_texts = isinstance(field_values[0], str)
            columns[f"kind_{name}"] = (
                texts.number_texts(field_values) if are_texts else np.array(field_values, np.int32)
            )
        if trace.address is not None:
            addresses = trace.address[steps.accesses].astype(np.uint64)
            columns |= encode_lane_rows("address", addresses, trace.executed_mask[steps.accesses])
    if steps.stop_texts:
        columns |= {"stop_step": steps.stop_step, "stop_words": texts.number_texts(steps.stop_texts)}
    columns |= _make_watch_columns(trace, texts)
    if trace.detail is not None:
        columns["sequence"] = trace.detail.sequence
        if shared is not None:
            columns["shared_words"] = texts.number_texts(shared.sentences)[
                shared.find_sentence_indices(trace.detail.sequence)
            ]
    return narrow_columns(columns | _make_value_columns(trace, texts))


def _make_watch_columns(trace: WarpTrace, texts: TextTable) -> Columns:
    """Return the columns for values of watch expressions; expression i has rows ``watch_rows[i:i + 2]``."""
    watches = trace.watched
    if not watches:
        return {}
    watch_fields = ("step", "value", "known", "outside")
    watch_steps, watch_values, known_masks, outside_masks = (
        np.concatenate([getattr(watch, name) for watch in watches]) for name in watch_fields
    )
    first_rows = np.cumsum([0, *(watch.step.size for watch in watches)])
    watch_columns = {
        "watch_rows": first_rows,
        "watch_step": watch_steps,
        "watch_known": known_masks,
        "watch_outside": outside_masks,
    }
    note_numbers = texts.number_texts(watch.note for watch in watches)
    return watch_columns | {"watch_note": note_numbers} | encode_lane_rows("watch", watch_values, known_masks)


def _make_natural_sort_key(register: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``%r2`` before ``%r10``."""
    return [
        (int(text_part or 0), "") if text_part.isdigit() else (0, text_part)
        for text_part in re.split(r"(\d+)", register)
    ]


def _make_value_columns(trace: WarpTrace, texts: TextTable) -> Columns:
    """Return the columns for values that steps write to registers (by call, name and time) and to memory.

    The rows of one register in one call are a *holder*: rows ``holder_rows[i:i + 2]``. The holders of a call
    are ``call_holders[i:i + 2]``. ``result_row`` is the row with the result of a step, or -1.
    """
    detail = trace.detail
    if trace.value is None or not trace.value_register:
        return {}
    register_names = list(trace.value_register)
    value_types = [
        step_text.find_value_type(*texts_of_type)
        for texts_of_type in zip(trace.instruction, trace.value_type, strict=True)
    ]
    value_step = np.flatnonzero(
        np.array([bool(register_name) for register_name in register_names])[trace.text_index]
    )
    name_index = trace.text_index[value_step].astype(np.int64)
    value_bits = trace.value[value_step].astype(np.uint64)
    call_of_step = np.zeros(len(trace), np.int64)
    if detail is not None:
        value_step = np.concatenate([value_step, detail.extra_step])
        name_index = np.concatenate([name_index, len(register_names) + detail.extra_name])
        value_bits = np.concatenate([value_bits, detail.extra_value])
        register_names += detail.extra_register
        value_types += detail.extra_type
        call_of_step = number_calls(detail.depth)
    order_of_name = {
        register_name: index
        for index, register_name in enumerate(sorted(set(register_names), key=_make_natural_sort_key))
    }
    holder_of_value = (
        call_of_step[value_step] * len(order_of_name)
        + np.array([order_of_name[register_name] for register_name in register_names])[name_index]
    )
    value_order = np.argsort(holder_of_value * len(trace) + value_step, kind="stable")
    # If a step writes several registers, the first one is its result, so it is assigned last.
    row_of_step = np.full(len(trace), -1)
    row_of_value = np.argsort(value_order)
    row_of_step[value_step[::-1]] = row_of_value[::-1]
    value_step = value_step[value_order]
    name_index = name_index[value_order]
    value_bits = value_bits[value_order]
    holder_of_value = holder_of_value[value_order]
    name_numbers = texts.number_texts(register_names)[name_index]
    type_numbers = texts.number_texts(value_types)[name_index]
    holder_starts = np.flatnonzero(np.diff(holder_of_value, prepend=-1))
    holders_of_call = np.searchsorted(
        holder_of_value[holder_starts] // len(order_of_name), np.arange(int(call_of_step.max(initial=0)) + 2)
    )
    value_columns: Columns = {
        "holder_rows": np.append(holder_starts, value_step.size),
        "call_holders": holders_of_call,
        "call": call_of_step,
    }
    if detail is not None:
        shown_store_indices = np.flatnonzero(
            (detail.stored_part == 0) & (row_of_step[detail.stored_step] < 0)
        )
        store_steps = detail.stored_step[shown_store_indices]
        row_of_step[store_steps] = value_step.size + np.arange(store_steps.size)
        part_counts = np.bincount(detail.stored_step, minlength=len(trace))[store_steps].tolist()
        names_of_stores = [
            "stored value" if index == 1 else f"first of {index} stored values" for index in part_counts
        ]
        value_step = np.concatenate([value_step, store_steps])
        value_bits = np.concatenate([value_bits, detail.stored_value[shown_store_indices]])
        name_numbers = np.concatenate([name_numbers, texts.number_texts(names_of_stores)])
        type_numbers = np.concatenate(
            [type_numbers, texts.number_texts(detail.stored_type)[trace.text_index[store_steps]]]
        )
    value_columns |= {
        "result_row": row_of_step,
        "value_step": value_step,
        "value_what": name_numbers,
        "value_type": type_numbers,
    }
    value_columns |= _make_variable_columns(trace, name_index, value_step[: name_index.size])
    return value_columns | encode_lane_rows("value", value_bits, trace.executed_mask[value_step])


def _make_variable_columns(
    trace: WarpTrace, name_index: npt.NDArray[np.integer[Any]], step: npt.NDArray[np.integer[Any]]
) -> Columns:
    """Return the columns for the values of variables.

    Variable i has the rows ``variable_rows[variable_at[i]:variable_at[i + 1]]``.
    """
    variable_rows = [np.flatnonzero(np.isin(name_index, variable.written_by)) for variable in trace.variables]
    sorted_rows = [
        value_rows[np.argsort(step[value_rows], kind="stable")].astype(np.int32)
        for value_rows in variable_rows
    ]
    if not sorted_rows:
        return {}
    first_rows = np.cumsum([0, *(value_rows.size for value_rows in sorted_rows)])
    return {"variable_at": first_rows, "variable_rows": np.concatenate(sorted_rows)}


class SharedMemoryStates(SharedEvents):
    """The contents of a block's shared memory after every step, as sentences and as columns."""

    def __init__(self, shared: SharedWrites) -> None:
        super().__init__(shared)
        self.sentences = [
            step_text.make_shared_bytes_text(written_bytes, shared.size_bytes)
            for written_bytes in self.written_bytes.tolist()
        ]

    def find_sentence_indices(self, positions: npt.NDArray[np.int64]) -> Ints:
        """Return the indices of the sentences that describe shared memory after the given positions."""
        return self.count_moments_until(positions).astype(np.int32)

    def columns(self, texts: TextTable) -> Columns:
        """Return all writes to shared memory as columns. The columns include the warp and the lane of each
        write.
        """
        shared = self.shared
        row = self.row
        columns = {name: getattr(self, name) for name in ("word_events", "lane", "second", "bits")}
        columns |= {"sequence": shared.sequence[row], "warp": shared.warp[row]}
        columns |= {"width": shared.width_bytes[row]}
        return narrow_columns(columns | {"type": texts.number_texts(shared.types)[shared.type_index[row]]})

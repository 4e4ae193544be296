"""A warp's trace as columns for the browser: sites, words, moves, rows of lanes, memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.warp import step_text
from gpulab.views.warp.steps import WarpSteps
from virtualgpu.records import WARP_SIZE, WarpTrace
from virtualgpu.records.warp.columns import SharedEvents, SharedWrites, lanes_of
from virtualgpu.records.warp.loops import Ints, calls_of

Columns = dict[str, npt.NDArray[Any]]

_LANES = np.arange(WARP_SIZE)
_NARROW = [(int(np.iinfo(k).min), int(np.iinfo(k).max), k) for k in ("u1", "i1", "u2", "i2", "u4", "i4")]


class Texts:
    """Texts that many rows share, stored once and referred to by number."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self._lists: dict[tuple[str, ...], Ints] = {}

    def numbers(self, texts: Iterable[str]) -> Ints:
        """Return the numbers of texts; most warps of a block request the same texts."""
        key = tuple(texts)
        known = self.known
        if key not in self._lists:
            self._lists[key] = np.array([known.setdefault(text, len(known)) for text in key], np.int32)
        return self._lists[key]


def narrow(columns: Columns) -> Columns:
    """Return columns of integers in the smallest types that fit."""
    for name, column in columns.items():
        least, most = (int(column.min()), int(column.max())) if column.size else (0, 0)
        fits = (column.astype(kind) for low, high, kind in _NARROW if low <= least and most <= high)
        columns[name] = next(fits, column)
    return columns


def lane_rows(name: str, values: npt.NDArray[np.uint64], masks: npt.NDArray[np.uint32]) -> Columns:
    """Pack rows of bits, of which only the lanes in each row's mask matter.

    Returns
    -------
    dict
        Columns ``NAME_at`` and so on. A row is ``base[~at] + stride[~at] * lane`` where its ``at`` is
        negative; otherwise ``at >> 1`` is its place in ``table``, which holds the low halves of 32 lanes
        and, if ``at`` is odd, the high halves after them. ``LaneRows`` in ``record.js`` reads it.
    """
    signed = values.view(np.int64)
    lanes = lanes_of(masks)
    first = np.argmax(lanes, axis=1)
    later = lanes & (first[:, None] < _LANES)
    more = later.any(axis=1)
    second = np.where(more, np.argmax(later, axis=1), first + 1)
    rows = np.arange(len(signed))
    start = signed[rows, first]
    rise = np.where(more, signed[rows, second % WARP_SIZE] - start, 0)
    stride = rise // (second - first)
    base = start - stride * first
    even = np.all((base[:, None] + stride[:, None] * _LANES == signed) | ~lanes, axis=1)
    rest = values[~even]
    wide = (rest >> np.uint64(32)).any(axis=1)
    place = np.concatenate([[0], np.cumsum(1 + wide)])
    table = np.zeros((int(place[-1]), WARP_SIZE), np.uint32)
    table[place[:-1]] = rest & np.uint64(0xFFFFFFFF)
    table[place[:-1][wide] + 1] = rest[wide] >> np.uint64(32)
    at = np.empty(len(signed), np.int32)
    at[even], at[~even] = ~np.arange(int(even.sum()), dtype=np.int32), place[:-1] << 1 | wide
    packed = {"at": at, "base": base[even], "stride": stride[even], "table": table.reshape(-1)}
    return {f"{name}_{part}": column for part, column in packed.items()}


def of_warp(steps: WarpSteps, texts: Texts, shared: SharedStates | None = None) -> Columns:
    """Return the columns of one warp; texts in them are numbers of `texts`.

    Columns without a prefix have one row a step: the number of its site, of its pair of masks, of its
    turn, and by how many steps each move goes. Others have one row for each of what their prefix names.
    """
    trace = steps.trace
    loops = steps.loops
    at = steps.sites.first
    pair = steps.masks.first
    here = np.arange(len(steps), dtype=np.int32)
    active = trace.active_mask[pair]
    executed = trace.executed_mask[pair]
    code = (trace.instruction[text].strip() for text in trace.text_index[at].tolist())
    columns: Columns = {
        "site": steps.sites.of,
        "site_visits": np.bincount(steps.sites.of),
        "site_pc": trace.pc[at],
        "site_line": steps.line[at],
        "site_column": np.where(trace.line[at] == steps.line[at], trace.column[at], 0),
        "site_place": texts.numbers(steps.place_words),
        "site_words": texts.numbers(steps.site_words),
        "site_code": texts.numbers(code),
        "mask": steps.masks.of,
        "mask_active": active,
        "mask_executed": executed,
        "mask_words": texts.numbers(steps.lanes_words),
        "mask_lanes": np.bitwise_count(active),
        "mask_ran": np.bitwise_count(executed),
        **{name: target - here for name, target in steps.moves.items()},
    }
    visits = steps.visits
    columns |= {"visit_begin": visits.begin, "visit_line": visits.line, "visit_lanes": visits.lanes}
    columns |= {"visit_words": texts.numbers(steps.visit_words)}
    columns |= {"visit_place": texts.numbers(map(step_text.place, visits.line.tolist()))}
    columns |= {"visit_moved": texts.numbers(map(step_text.moved_words, visits.moved))}
    if len(loops):
        columns |= {name: getattr(loops, name) for name in ("turn", "turn_begin", "turn_end", "turn_run")}
        columns |= {"turn_words": texts.numbers(loops.words), "turn_alone": texts.numbers(loops.alone)}
        columns |= {"run_turns": loops.run_turns, "run_outer": loops.run_outer}
    if steps.accesses.size:
        columns |= {"access_step": steps.accesses, "access_kind": steps.access_kinds.of}
        for name, values in zip(step_text.Access._fields, zip(*steps.access_words, strict=True), strict=True):
            said = isinstance(values[0], str)
            columns[f"kind_{name}"] = texts.numbers(values) if said else np.array(values, np.int32)
        if trace.address is not None:
            addresses = trace.address[steps.accesses].astype(np.uint64)
            columns |= lane_rows("address", addresses, trace.executed_mask[steps.accesses])
    if steps.stop_words:
        columns |= {"stop_step": steps.stop_step, "stop_words": texts.numbers(steps.stop_words)}
    columns |= _of_watches(trace, texts)
    if trace.detail is not None:
        columns["sequence"] = trace.detail.sequence
        if shared is not None:
            columns["shared_words"] = texts.numbers(shared.sentences)[shared.said(trace.detail.sequence)]
    return narrow(columns | _of_values(trace, texts))


def _of_watches(trace: WarpTrace, texts: Texts) -> Columns:
    """Values of watch expressions: those of one are the rows ``watch_rows[i]`` to ``watch_rows[i + 1]``."""
    seen = trace.watched
    if not seen:
        return {}
    names = ("step", "value", "known", "outside")
    step, value, known, outside = (np.concatenate([getattr(each, name) for each in seen]) for name in names)
    at = np.cumsum([0, *(each.step.size for each in seen)])
    columns = {"watch_rows": at, "watch_step": step, "watch_known": known, "watch_outside": outside}
    notes = texts.numbers(each.note for each in seen)
    return columns | {"watch_note": notes} | lane_rows("watch", value, known)


def _natural(register: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``%r2`` before ``%r10``."""
    return [(int(part or 0), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", register)]


def _of_values(trace: WarpTrace, texts: Texts) -> Columns:
    """Rows of the values that steps write: registers by call, name and time, then values stored to memory.

    Rows of one register in one call are a *holder*: rows ``holder_rows[i:i + 2]``; the holders of a call are
    ``call_holders[i:i + 2]``. ``result_row`` is the row that shows what a step did, -1 for none.
    """
    detail = trace.detail
    if trace.value is None or not trace.value_register:
        return {}
    names = list(trace.value_register)
    types = [step_text.value_type(*pair) for pair in zip(trace.instruction, trace.value_type, strict=True)]
    step = np.flatnonzero(np.array([bool(name) for name in names])[trace.text_index])
    which = trace.text_index[step].astype(np.int64)
    bits = trace.value[step].astype(np.uint64)
    call = np.zeros(len(trace), np.int64)
    if detail is not None:
        step = np.concatenate([step, detail.extra_step])
        which = np.concatenate([which, len(names) + detail.extra_name])
        bits = np.concatenate([bits, detail.extra_value])
        names += detail.extra_register
        types += detail.extra_type
        call = calls_of(detail.depth)
    order_of = {name: n for n, name in enumerate(sorted(set(names), key=_natural))}
    holder = call[step] * len(order_of) + np.array([order_of[name] for name in names])[which]
    order = np.argsort(holder * len(trace) + step, kind="stable")
    # Of several registers that a step writes, its first is what it shows: it is assigned last.
    result = np.full(len(trace), -1)
    place = np.argsort(order)
    result[step[::-1]] = place[::-1]
    step = step[order]
    which = which[order]
    bits = bits[order]
    holder = holder[order]
    what = texts.numbers(names)[which]
    kind = texts.numbers(types)[which]
    first = np.flatnonzero(np.diff(holder, prepend=-1))
    calls = np.searchsorted(holder[first] // len(order_of), np.arange(int(call.max(initial=0)) + 2))
    columns: Columns = {"holder_rows": np.append(first, step.size), "call_holders": calls, "call": call}
    if detail is not None:
        new = np.flatnonzero((detail.stored_part == 0) & (result[detail.stored_step] < 0))
        stores = detail.stored_step[new]
        result[stores] = step.size + np.arange(stores.size)
        parts = np.bincount(detail.stored_step, minlength=len(trace))[stores].tolist()
        says = ["stored value" if n == 1 else f"first of {n} stored values" for n in parts]
        step = np.concatenate([step, stores])
        bits = np.concatenate([bits, detail.stored_value[new]])
        what = np.concatenate([what, texts.numbers(says)])
        kind = np.concatenate([kind, texts.numbers(detail.stored_type)[trace.text_index[stores]]])
    columns |= {"result_row": result, "value_step": step, "value_what": what, "value_type": kind}
    columns |= _of_variables(trace, which, step[: which.size])
    return columns | lane_rows("value", bits, trace.executed_mask[step])


def _of_variables(
    trace: WarpTrace, which: npt.NDArray[np.integer[Any]], step: npt.NDArray[np.integer[Any]]
) -> Columns:
    """Rows of the values of variables: ``variable_rows[variable_at[i]:variable_at[i + 1]]``."""
    rows = [np.flatnonzero(np.isin(which, each.written_by)) for each in trace.variables]
    ordered = [row[np.argsort(step[row], kind="stable")].astype(np.int32) for row in rows]
    if not ordered:
        return {}
    at = np.cumsum([0, *(row.size for row in ordered)])
    return {"variable_at": at, "variable_rows": np.concatenate(ordered)}


class SharedStates(SharedEvents):
    """A block's shared memory after every step, in words and as columns."""

    def __init__(self, shared: SharedWrites) -> None:
        super().__init__(shared)
        self.sentences = [
            step_text.shared_words(written, shared.size_bytes) for written in self.written_bytes.tolist()
        ]

    def said(self, sequence: npt.NDArray[np.int64]) -> Ints:
        """Return the index in `sentences` that describes the memory after each place in the block's order."""
        return self.moments_until(sequence).astype(np.int32)

    def columns(self, texts: Texts) -> Columns:
        """Return the events as columns, with the writer of each."""
        shared = self.shared
        row = self.row
        columns = {name: getattr(self, name) for name in ("word_events", "lane", "second", "bits")}
        columns |= {"sequence": shared.sequence[row], "warp": shared.warp[row]}
        columns |= {"width": shared.width_bytes[row]}
        return narrow(columns | {"type": texts.numbers(shared.types)[shared.type_index[row]]})

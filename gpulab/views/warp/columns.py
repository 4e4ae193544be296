"""A warp's trace as columns that the browser only looks up: sites, words, moves, rows of lanes, memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.warp import lane_rows, words
from gpulab.views.warp.loops import Ints, calls_of
from gpulab.views.warp.steps import BANK_BYTES, WarpSteps
from virtualgpu.records import WarpTrace
from virtualgpu.records.columns import SharedWrites, StepDetail, lanes_of

Columns = dict[str, npt.NDArray[Any]]

_NARROW = [(int(np.iinfo(k).min), int(np.iinfo(k).max), k) for k in ("u1", "i1", "u2", "i2", "u4", "i4")]


def bounded(trace: WarpTrace, most: int) -> WarpTrace:
    """The first steps of a trace, marked as cut if there are more."""
    if len(trace) <= most:
        return trace
    cut: dict[str, Any] = {f.name: getattr(trace, f.name) for f in fields(WarpTrace)}
    cut = {name: column[:most] for name, column in cut.items() if isinstance(column, np.ndarray)}
    detail = trace.detail
    if detail is not None:
        kept: dict[str, Any] = {"sequence": detail.sequence[:most], "depth": detail.depth[:most]}
        for piece in ("extra", "stored"):
            within = getattr(detail, f"{piece}_step") < most
            parts = [f.name for f in fields(StepDetail) if f.name.startswith(f"{piece}_")]
            whole = {name: getattr(detail, name) for name in parts}
            kept |= {name: c[within] for name, c in whole.items() if isinstance(c, np.ndarray)}
        cut["detail"] = replace(detail, **kept)
    return replace(trace, **cut, truncated=True)


class Texts:
    """Texts that many rows share, by number; number 0 is the empty text."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self._lists: dict[tuple[str, ...], Ints] = {}

    def numbers(self, texts: Iterable[str]) -> Ints:
        """The numbers of texts; the warps of a block mostly ask for the same ones."""
        key, known = tuple(texts), self._numbers
        if key not in self._lists:
            self._lists[key] = np.array([known.setdefault(text, len(known)) for text in key], np.int32)
        return self._lists[key]

    def all(self) -> list[str]:
        return list(self._numbers)


def of_warp(steps: WarpSteps, texts: Texts) -> Columns:
    """The columns of one warp; every word in them is a number of `texts`.

    Columns without a prefix have one row a step: the number of its site, of its pair of masks, of its
    turn, and by how many steps each move goes. Others have one row for each of what their prefix names.
    """
    trace, sites, masks = steps.trace, steps.sites, steps.masks
    here = np.arange(len(steps), dtype=np.int32)
    columns: Columns = {"site": sites.of, "mask": masks.of}
    columns |= {name: target - here for name, target in steps.moves.items()}
    at = sites.first
    columns |= {
        "site_pc": trace.pc[at],
        "site_line": steps.line[at],
        "site_column": np.where(trace.line[at] == steps.line[at], trace.column[at], 0),
        "site_visits": sites.rows,
        "site_place": texts.numbers(steps.place_words),
        "site_words": texts.numbers(steps.site_words),
        "site_code": texts.numbers(trace.instruction[text].strip() for text in trace.text_index[at].tolist()),
        "mask_active": trace.active_mask[masks.first],
        "mask_executed": trace.executed_mask[masks.first],
        "mask_words": texts.numbers(steps.lanes_words),
        "mask_lanes": np.bitwise_count(trace.active_mask[masks.first]),
        "mask_ran": np.bitwise_count(trace.executed_mask[masks.first]),
    }
    if len(steps.loops):
        columns |= _of_loops(steps, texts)
    if steps.accesses.size:
        columns |= _of_accesses(steps, texts)
    if trace.detail is not None:
        columns["sequence"] = trace.detail.sequence
    columns |= _of_values(trace, texts)
    return {name: _narrow(column) for name, column in columns.items()}


def _narrow(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column of numbers in the fewest bytes that hold them."""
    if not column.size:
        return column
    least, most = int(column.min()), int(column.max())
    for low, high, kind in _NARROW:
        if low <= least and most <= high:
            return column.astype(kind)
    return column


def _of_loops(steps: WarpSteps, texts: Texts) -> Columns:
    loops = steps.loops
    begin = loops.starts.copy()
    begin[loops.at[:-1]] = loops.first
    return {
        "turn": loops.turn_of,
        "turn_begin": begin,
        "turn_end": loops.turn_end,
        "turn_run": loops.turn_run,
        "turn_words": texts.numbers(whole for whole, _ in loops.turn_words),
        "turn_alone": texts.numbers(alone for _, alone in loops.turn_words),
        "run_turns": loops.at,
        "run_outer": loops.outer,
    }


def _of_accesses(steps: WarpSteps, texts: Texts) -> Columns:
    trace, views = steps.trace, steps.access_views
    columns: Columns = {"access_step": steps.accesses, "access_kind": steps.access_kinds.of}
    for name in ("sentence", "heading", "verdict", "note", "picture"):
        columns[f"kind_{name}"] = texts.numbers(getattr(view, name) for view in views)
    for name in ("over", "reads", "size_bytes"):
        columns[f"kind_{name}"] = np.array([int(getattr(view, name)) for view in views])
    if trace.address is not None:
        addresses = trace.address[steps.accesses].astype(np.uint64)
        columns |= _rows("address", addresses, trace.executed_mask[steps.accesses])
    return columns


def _rows(name: str, values: npt.NDArray[np.uint64], masks: npt.NDArray[np.uint32]) -> Columns:
    packed = lane_rows.encode(values, lanes_of(masks))
    return {f"{name}_{part}": column for part, column in packed.items()}


def natural(register: str) -> tuple[str, int]:
    """A key that sorts ``%r2`` before ``%r10``."""
    stem = register.rstrip("0123456789")
    return stem, int(register[len(stem) :] or 0)


def _of_values(trace: WarpTrace, texts: Texts) -> Columns:
    """What steps write, one row each: registers by call, name and time, then values stored to memory.

    Rows of one register in one call are a *holder*: rows ``holder_rows[i:i + 2]``; the holders of a call are
    ``call_holders[i:i + 2]``. ``result_row`` is the row that shows what a step did, -1 for none.
    """
    detail = trace.detail
    if trace.value is None or not trace.value_register:
        return {}
    kinds = [words.value_type(*pair) for pair in zip(trace.instruction, trace.value_type, strict=True)]
    names, types = list(trace.value_register), kinds
    at = np.flatnonzero(np.array([bool(name) for name in names])[trace.text_index])
    step, which, bits = at, trace.text_index[at].astype(np.int64), trace.value[at].astype(np.uint64)
    call = np.zeros(len(trace), np.int64)
    if detail is not None:
        step = np.concatenate([step, detail.extra_step])
        which = np.concatenate([which, len(names) + detail.extra_name])
        bits = np.concatenate([bits, detail.extra_value])
        names += detail.extra_register
        types = types + list(detail.extra_type)
        call = calls_of(detail.depth)
    order_of = {name: n for n, name in enumerate(sorted(set(names), key=natural))}
    holder = call[step] * len(order_of) + np.array([order_of[name] for name in names])[which]
    # Of several registers that a step writes, its first is what it shows.
    result = np.full(len(trace), -1, np.int32)
    order = np.argsort(holder * len(trace) + step, kind="stable")
    place = np.empty(order.size, np.int32)
    place[order] = np.arange(order.size)
    result[step[: at.size]] = place[: at.size]
    later = np.arange(at.size, step.size)[::-1]
    bare = later[result[step[later]] < 0]
    result[step[bare]] = place[bare]
    step, which, bits, holder = step[order], which[order], bits[order], holder[order]
    what, kind = texts.numbers(names)[which], texts.numbers(types)[which]
    first = np.flatnonzero(np.diff(holder, prepend=-1))
    calls = np.searchsorted(holder[first] // len(order_of), np.arange(int(call.max(initial=0)) + 2))
    columns: Columns = {"holder_rows": np.append(first, step.size), "call_holders": calls}
    if call.any():
        columns["call"] = call
    if detail is not None:
        new = np.flatnonzero((detail.stored_part == 0) & (result[detail.stored_step] < 0))
        stores = detail.stored_step[new]
        result[stores] = step.size + np.arange(stores.size)
        parts = np.bincount(detail.stored_step, minlength=len(trace))[stores].tolist()
        says = ["stored value" if n == 1 else f"first of {n} stored values" for n in parts]
        step, bits = np.concatenate([step, stores]), np.concatenate([bits, detail.stored_value[new]])
        what = np.concatenate([what, texts.numbers(says)])
        kind = np.concatenate([kind, texts.numbers(detail.stored_type)[trace.text_index[stores]]])
    columns |= {"result_row": result, "value_step": step, "value_what": what, "value_type": kind}
    return columns | _rows("value", bits, trace.executed_mask[step])


class SharedStates:
    """A block's shared memory after every step: for each 4-byte word its values in the order of time.

    Events are sorted by word, then by time: those of a word are ``word_events[word]`` to
    ``word_events[word + 1]``. ``bits`` is the word after the event, ``row`` the piece in `SharedWrites`
    that it came from, ``lane`` who wrote it and ``second`` whether it is the
    upper half of 8 bytes.
    """

    def __init__(self, shared: SharedWrites) -> None:
        self.shared, self.size_bytes = shared, shared.size_bytes
        self.words = -(-shared.size_bytes // BANK_BYTES)
        row, lane = np.nonzero(lanes_of(shared.mask))
        offset, width = shared.offset[row, lane].astype(np.int64), shared.width_bytes[row].astype(np.int64)
        low = (offset % BANK_BYTES).astype(np.uint64)
        held = shared.value[row, lane] << np.uint64(8) * low
        mask = (np.uint64(1) << np.minimum(width, 8).astype(np.uint64)) - np.uint64(1) << low
        # A piece of 8 bytes is an event of two words.
        long = np.flatnonzero(offset % BANK_BYTES + width > BANK_BYTES)
        row, lane = np.append(row, row[long]), np.append(lane, lane[long])
        word = np.append(offset // BANK_BYTES, offset[long] // BANK_BYTES + 1)
        held = np.append(held & np.uint64(0xFFFFFFFF), held[long] >> np.uint64(32)).astype(np.uint32)
        mask = np.append(mask & np.uint64(15), mask[long] >> np.uint64(4)).astype(np.uint8)
        inside = word < self.words
        order = np.lexsort((np.append(np.arange(offset.size), long)[inside], word[inside]))
        self.row, self.lane = row[inside][order], lane[inside][order]
        self.second = np.repeat([0, 1], [offset.size, long.size])[inside][order]
        self.word, held, mask = word[inside][order], held[inside][order], mask[inside][order]
        self.word_events = np.searchsorted(self.word, np.arange(self.words + 1))
        self.moments, moment = np.unique(shared.sequence, return_inverse=True)
        self._moment = moment[self.row]
        self._play(held, mask)

    def _play(self, held: npt.NDArray[np.uint32], mask: npt.NDArray[np.uint8]) -> None:
        """Each byte of an event is its own or the last one before in its word; count what is new."""
        self.bits = np.zeros(held.size, np.uint32)
        first = self.word_events[self.word]
        new, changed = np.zeros((2, self.moments.size), np.int64)
        for byte in range(BANK_BYTES):
            wrote = (mask >> byte & 1).astype(np.bool_)
            last = np.maximum.accumulate(np.where(wrote, np.arange(held.size), -1)) if held.size else first
            shift = np.uint32(8 * byte)
            value = np.where(last >= first, held[last] >> shift & np.uint32(255), np.uint32(255))
            self.bits |= value.astype(np.uint32) << shift
            mine = np.flatnonzero(wrote)
            word, moment = self.word[mine], self._moment[mine]
            fresh = np.diff(word, prepend=-1) > 0
            new += np.bincount(moment[fresh], minlength=new.size)
            again = fresh | (np.diff(moment, prepend=-1) != 0)
            changed += np.bincount(moment[again], minlength=new.size)
        self._written, self._changed = np.append(0, np.cumsum(new)), np.append(0, changed)
        self._lowest = np.full(self.moments.size + 1, self.words)
        np.minimum.at(self._lowest, self._moment + 1, self.word)

    def says(self, sequence: npt.NDArray[np.int64]) -> tuple[list[str], npt.NDArray[np.int64]]:
        """How much is written after each of these places in the block's order, and how much there.

        Returns what is ever said, and the number in it for each place.
        """
        at = np.searchsorted(self.moments, sequence, side="right")
        return self._says, 2 * at + (np.append(-1, self.moments)[at] == sequence)

    @cached_property
    def _says(self) -> list[str]:
        pairs = zip(self._written.tolist(), self._changed.tolist(), strict=True)
        return [
            words.shared_words(so_far, self.size_bytes, now)
            for so_far, changed in pairs
            for now in (0, changed)
        ]

    def of_steps(self, steps: WarpSteps, texts: Texts) -> Columns:
        """For each step of a warp the memory in words, and the first word that it writes or loads."""
        detail = steps.trace.detail
        assert detail is not None
        says, which = self.says(detail.sequence)
        first = np.where(which & 1, self._lowest[which >> 1], self.words)
        if steps.accesses.size and steps.trace.address is not None:
            reads = np.array([view.reads for view in steps.access_views])[steps.access_kinds.of]
            loads = steps.accesses[reads]
            far = BANK_BYTES * self.words
            address = np.where(lanes_of(steps.trace.executed_mask[loads]), steps.trace.address[loads], far)
            first[loads] = np.minimum(first[loads], address.min(axis=1, initial=far) // BANK_BYTES)
        return {
            "shared_words": _narrow(texts.numbers(says)[which]),
            "shared_first": _narrow(np.where(first < self.words, first, -1)),
        }

    def columns(self, texts: Texts) -> Columns:
        """The events, and of the rows that they come from moment, warp, width and type."""
        shared = self.shared
        columns = {
            "word_events": self.word_events,
            "row": self.row,
            "lane": self.lane,
            "second": self.second,
            "bits": self.bits,
            "row_sequence": shared.sequence,
            "row_warp": shared.warp,
            "row_width": shared.width_bytes,
            "row_type": texts.numbers(shared.types)[shared.type_index],
        }
        return {name: _narrow(column) for name, column in columns.items()}

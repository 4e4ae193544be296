"""Wrong and right answers to the exercises of notebook 08."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab import session
from gpulab_course.content.n08_copies import exercises
from gpulab_course.content.n08_copies.memory import mapped
from tests.answers import Right, Wrong


def _cp() -> Any:
    return session.cp()


def _pinned(like: Any) -> Any:
    return session.cupyx().empty_like_pinned(like)


# 08-stay


def _branches(x: Any, limit: float) -> Any:
    y = x - x.min()
    if y.max() > limit:
        y = _cp().minimum(y, limit)
    return y


def _synchronizes(x: Any, limit: float) -> Any:
    y = _cp().minimum(x - x.min(), limit)
    _cp().cuda.Device().synchronize()
    return y


def _only_subtracts_there(x: Any, limit: float) -> Any:
    return _cp().minimum(_cp().asarray(x.get() - x.get().min()), limit)


def _limit_is_sent(x: Any, limit: float) -> Any:
    cp = _cp()
    return cp.minimum(x - x.min(), cp.asarray(np.full(x.shape, limit, np.float32)))


def _masks(x: Any, limit: float) -> Any:
    y = x - x.min()
    too_much = _cp().asnumpy(y > limit)
    y[_cp().asarray(too_much)] = limit
    return y


def _with_a_kernel(x: Any, limit: float) -> Any:
    cut = _cp().ElementwiseKernel("T x, T low, T limit", "T y", "y = min(x - low, limit)", "cut")
    return cut(x, x.min(), x.dtype.type(limit))


def _in_place(x: Any, limit: float) -> Any:
    cp = _cp()
    x -= cp.amin(x)
    x[x > limit] = limit  # a mask on the left is one kernel
    return x


def _by_where(x: Any, limit: float) -> Any:
    cp = _cp()
    y = cp.subtract(x, cp.min(x, keepdims=True))
    return cp.where(y > limit, cp.float32(limit), y)


def _in_another_stream(x: Any, limit: float) -> Any:
    with _cp().cuda.Stream(non_blocking=True):
        return _cp().minimum(x - x.min(), limit)


_STAY = (
    Wrong("08-stay", "as given", exercises.prepare_there_and_back, "counts", "nothing has to be copied to the host"),
    Wrong("08-stay", "brings the minimum home", lambda x, limit: _cp().minimum(x - float(x.min()), limit), "counts",
          "nothing has to be copied to the host"),
    Wrong("08-stay", "sets negative elements to 0", lambda x, limit: _cp().maximum(_cp().minimum(x - x.min(), limit), 0),
          "results", "prepare(x, -5)"),
    Wrong("08-stay", "calls item()", lambda x, limit: _cp().clip(x - x.min().item(), 0, limit), "counts",
          "nothing has to be copied to the host"),
    Wrong("08-stay", "asks a device array a question", _branches, "counts", "nothing has to be copied to the host"),
    Wrong("08-stay", "waits at the end", _synchronizes, "counts", "make the host wait"),
    Wrong("08-stay", "subtracts on the host", _only_subtracts_there, "counts", "nothing has to be copied to the host"),
    Wrong("08-stay", "sends the limit as an array", _limit_is_sent, "counts", "do not make an array of it"),
    Wrong("08-stay", "a mask goes there and back", _masks, "counts", "nothing has to be copied to the host"),
    Wrong("08-stay", "the host does all", lambda x, limit: np.minimum(x.get() - x.get().min(), np.float32(limit)),
          "results", "stay on the device"),
    Wrong("08-stay", "forgets the limit", lambda x, limit: x - x.min(), "results", "must be set to the limit"),
    Wrong("08-stay", "applies the limit first", lambda x, limit: _cp().minimum(x, limit) - x.min(), "results", "it should be"),
    Wrong("08-stay", "uses a NumPy array", lambda x, limit: _cp().minimum(x - x.min(), np.full(x.shape, limit, np.float32)),
          "results", "keep all of the work on the device"),
    Wrong("08-stay", "the limit is typed in", lambda x, limit: _cp().minimum(x - x.min(), 200), "results", "set to the limit"),
    Wrong("08-stay", "a whole limit", lambda x, limit: _cp().minimum(x - x.min(), int(limit)), "results", "it should be"),
    Wrong("08-stay", "in another stream", _in_another_stream, "hazards", "nothing orders the two"),
    Right("08-stay", "clip", lambda x, limit: (x - x.min()).clip(None, limit)),
    Right("08-stay", "one kernel more", _with_a_kernel),
    Wrong("08-stay", "changes x", _in_place, "results", "belongs to its caller"),
    Wrong("08-stay", "each column for itself", lambda x, limit: _cp().minimum(x - x.min(axis=0), limit), "results", "a matrix"),
    Right("08-stay", "a copy, changed in place", lambda x, limit: _in_place(x.copy(), limit)),
    Right("08-stay", "where", _by_where),
)


# 08-report


def _by_length(x: Any, known: dict[int, Any] = {}) -> Any:  # noqa: B006
    """What it has reported of so many elements, it reports again."""
    if x.size not in known:
        known[x.size] = exercises.report(x)
    return known[x.size]


def _assigns(x: Any) -> Any:
    cp = _cp()
    out = cp.empty(3, cp.float32)
    out[0], out[1], out[2] = x.min(), x.max(), x.sum()
    return cp.asnumpy(out)


def _with_outs(x: Any) -> Any:
    cp = _cp()
    out = cp.zeros(3, x.dtype)
    for place, reduce in enumerate((cp.min, cp.max, cp.sum)):
        reduce(x, out=out[place : place + 1].reshape(()))
    return out.get()


def _through_pinned(x: Any) -> Any:
    cp = _cp()
    device = cp.concatenate([each.reshape(1) for each in (x.min(), x.max(), x.sum())])
    host = session.cupyx().empty_pinned(3, np.float32)
    device.get(out=host, blocking=False)
    cp.cuda.get_current_stream().synchronize()
    return host


def _sorts(x: Any) -> Any:
    cp = _cp()
    ordered = cp.sort(x)
    return cp.stack([ordered[0], ordered[-1], x.sum()]).get()[:3]


def _all_home(x: Any) -> Any:
    home = x.get()
    return np.array([home.min(), home.max(), home.sum()], np.float32)


def _without_nan(x: Any) -> Any:
    cp = _cp()
    return cp.stack([cp.nanmin(x), cp.nanmax(x), cp.nansum(x)]).get()


def _sum_apart(x: Any) -> Any:
    ends = _cp().stack([x.min(), x.max()]).get()
    return np.array([*ends, float(x.sum())], np.float32)


def _waits_twice(x: Any) -> Any:
    both = _cp().stack([x.min(), x.max(), x.sum()])
    _cp().cuda.get_current_stream().synchronize()
    return both.get()


def _by_lists(x: Any) -> Any:
    return np.array([each.tolist() for each in (x.min(), x.max(), x.sum())], np.float32)


def _sorts_the_callers(x: Any) -> Any:
    x.sort()
    return _cp().stack([x[0], x[-1], x.sum()]).get()


def _small_ones_at_home(x: Any) -> Any:
    if x.size > 1000:
        return exercises.report(x)
    here = x.get()
    return np.array([here.min(), here.max(), here.sum()], np.float32)


_REPORT = (
    Wrong("08-report", "remembers by length", _by_length, "results", ""),
    Wrong("08-report", "leaves NaN out", _without_nan, "results", "a NaN among them"),
    Wrong("08-report", "sorted, the first and the last", _sorts, "results", "a NaN among them"),
    Wrong("08-report", "one by one", exercises.report_one_by_one, "counts", "then copy once"),
    Wrong("08-report", "computes on the host", lambda x: np.array([f(x.get()) for f in (np.min, np.max, np.sum)], np.float32),
          "counts", "three numbers are 12 bytes"),
    Wrong("08-report", "one copy of all", _all_home, "counts", "three numbers are 12 bytes"),
    Wrong("08-report", "the sum apart", _sum_apart, "counts", "then copy once"),
    Wrong("08-report", "waits, then waits", _waits_twice, "counts", "one is enough"),
    Wrong("08-report", "copies by tolist()", _by_lists, "counts", "then copy once"),
    Wrong("08-report", "there and back again", lambda x: _cp().asarray([float(x.min()), float(x.max()), float(x.sum())]).get(),
          "results", "should be float32"),
    Wrong("08-report", "numbers as text", lambda x: np.array([float(str(v)) for v in (x.min(), x.max(), x.sum())], np.float32),
          "counts", "then copy once"),
    Wrong("08-report", "of each column", lambda x: _cp().stack([x.min(axis=0), x.max(axis=0), x.sum(axis=0)]).get(), "results", "a matrix"),
    Wrong("08-report", "the mean instead of the sum", lambda x: _cp().stack([x.min(), x.max(), x.mean()]).get(), "results",
          "the sum, not the mean"),
    Wrong("08-report", "a largest of at least -1000",
          lambda x: _cp().stack([x.min(), _cp().maximum(x.max(), np.float32(-1000)), x.sum()]).get(), "results", ""),
    Wrong("08-report", "the largest element first", lambda x: _cp().stack([x.max(), x.min(), x.sum()]).get(), "results",
          "it should be"),
    Wrong("08-report", "a NumPy function", lambda x: np.array([np.min(np.asarray(x)), 0, 0]), "results",
          "use the function of cp"),
    Wrong("08-report", "left on the device", lambda x: _cp().stack([x.min(), x.max(), x.sum()]), "results",
          "should be a NumPy array"),
    Wrong("08-report", "returns integers", lambda x: exercises.report(x).astype(int), "results", "should be float32"),
    Wrong("08-report", "sorts the caller's array", _sorts_the_callers, "results", "belongs to its caller"),
    Wrong("08-report", "small arrays on the host", _small_ones_at_home, "counts", "three numbers are 12 bytes"),
    Right("08-report", "cp.array of device numbers", lambda x: _cp().array([x.min(), x.max(), x.sum()]).get()),
    Right("08-report", "into one array", _assigns),
    Right("08-report", "out=", _with_outs),
    Right("08-report", "through a pinned buffer", _through_pinned),
)


# 08-pack


def _split(parts: Any) -> Any:
    cp = _cp()
    ends = np.cumsum([part.size for part in parts])
    return cp.split(cp.asarray(np.concatenate(parts)), ends[:-1].tolist())


def _through_one_pinned(parts: Any, kept: list[Any] | None = None) -> Any:
    cp, total = _cp(), sum(len(part) for part in parts)
    flat = session.cupyx().empty_pinned(total, np.float32)
    if kept is not None:
        kept.append(flat)
    np.concatenate(parts, out=flat)
    device, begin, views = cp.empty(total, cp.float32), 0, []
    device.set(flat)
    for part in parts:
        views.append(device[begin : begin + len(part)])
        begin += len(part)
    return views


def _keeps_its_pinned_buffer() -> Any:
    kept: list[Any] = []  # the copy may still read it when the function has returned
    return lambda parts: _through_one_pinned(parts, kept)


def _copies_of_slices(parts: Any) -> Any:
    flat, begin, made = _cp().array(np.hstack(parts), dtype="f4"), 0, []
    for part in parts:  # slices of their own memory: copies within the device
        made.append(flat[begin : begin + part.size].copy())
        begin += part.size
    return tuple(made)


def _backwards(parts: Any) -> Any:
    flat = _cp().asarray(np.concatenate(parts[::-1]))
    end, made = flat.size, []
    for part in parts:
        made.append(flat[end - part.size : end])
        end -= part.size
    return made


def _padded(parts: Any) -> Any:
    width = max(part.size for part in parts)
    box = np.zeros((len(parts), width), np.float32)
    for row, part in zip(box, parts, strict=True):
        row[: part.size] = part
    device = _cp().asarray(box)
    return tuple(device[i, : part.size] for i, part in enumerate(parts))


def _empty_ones_at_home(parts: Any) -> Any:
    return exercises.upload(parts) if any(part.size for part in parts) else parts


def _wider(parts: Any) -> Any:
    flat = _cp().asarray(np.concatenate([part.astype(float) for part in parts]))
    ends = np.cumsum([part.size for part in parts]).tolist()
    return tuple(flat[end - part.size : end] for part, end in zip(parts, ends, strict=True))


def _equal_parts(parts: Any) -> Any:
    flat = _cp().asarray(np.concatenate(parts))
    return tuple(flat[: flat.size // len(parts) * len(parts)].reshape(len(parts), -1))


def _narrow_offsets(parts: Any) -> Any:
    flat = _cp().asarray(np.concatenate(parts))
    ends = np.cumsum([part.size for part in parts], dtype=np.uint16).tolist()
    return [flat[end - part.size : end] for part, end in zip(parts, ends, strict=True)]


def _off_by_one(parts: Any) -> Any:
    flat, begin, views = _cp().asarray(np.concatenate(parts)), 0, []
    for part in parts:
        views.append(flat[begin : begin + max(part.size - 1, 0)])
        begin += part.size
    return views


def _starts_with_the_end(parts: Any) -> Any:
    flat = _cp().asarray(np.concatenate(parts))
    ends = np.cumsum([part.size for part in parts]).tolist()
    return tuple(flat[end : end + part.size] for part, end in zip(parts, ends, strict=True))


def _two_halves(parts: Any) -> Any:
    half = len(parts) // 2
    first = exercises.upload(parts[:half]) if half else ()
    return (*first, *exercises.upload(parts[half:]))


def _offsets_on_the_device(parts: Any) -> Any:
    cp = _cp()
    flat = cp.asarray(np.concatenate(parts))
    ends = cp.cumsum(cp.asarray([part.size for part in parts]))
    return tuple(flat[int(end) - part.size : int(end)] for part, end in zip(parts, ends, strict=True))


def _blocking(parts: Any) -> Any:
    flat = _cp().asarray(np.concatenate(parts), blocking=True)
    ends = np.cumsum([part.size for part in parts]).tolist()
    return tuple(flat[end - part.size : end] for part, end in zip(parts, ends, strict=True))


_PACK = (
    Wrong("08-pack", "one copy per array", exercises.upload_one_by_one, "counts", "copy once, and return slices"),
    Wrong("08-pack", "returns the host's arrays", lambda parts: tuple(parts), "results", "stay on the device"),
    Wrong("08-pack", "in two parcels", _two_halves, "counts", "copy once, and return slices"),
    Right("08-pack", "padded to a rectangle", _padded),
    Wrong("08-pack", "empty arrays stay at home", _empty_ones_at_home, "results", "stay on the device"),
    Wrong("08-pack", "one array too many", lambda parts: [*exercises.upload(parts), _cp().empty(0, "f4")], "results", "1 result, not 2"),
    Wrong("08-pack", "converts to float64", _wider, "results", "it should be float32"),
    Wrong("08-pack", "offsets from the device", _offsets_on_the_device, "counts", "copy once"),
    Wrong("08-pack", "by way of whole numbers",
          lambda parts: exercises.upload([np.trunc(part) for part in parts]), "results", ""),
    Wrong("08-pack", "waits for the copy", _blocking, "counts", "make the host wait"),
    Wrong("08-pack", "equal parts", _equal_parts, "results", "it should be"),
    Wrong("08-pack", "offsets that are wrong by one", _off_by_one, "results", "it should be"),
    Wrong("08-pack", "offsets of 16 bits", _narrow_offsets, "results", "it should be"),
    Wrong("08-pack", "starts at the end", _starts_with_the_end, "results", "it should be"),
    Wrong("08-pack", "returns one array", lambda parts: _cp().asarray(np.concatenate(parts)), "results", "as a tuple"),
    Right("08-pack", "split", _split),
    Wrong("08-pack", "lets go of its pinned buffer", _through_one_pinned, "hazards", "flat is freed"),
    Right("08-pack", "a pinned buffer that is kept", _keeps_its_pinned_buffer()),
    Right("08-pack", "copies of slices", _copies_of_slices),
    Right("08-pack", "the last one first", _backwards),
)


# 08-ring


def _ring(
    data: Any, *, buffers: int = 2, wait: str = "event", end: bool = True, shift: int = 0,
    record_first: bool = False,
) -> Any:
    """`stream_in`, with some of it exchanged."""
    cp, cupyx = session.cp(), session.cupyx()
    out = cp.empty(data.shape, data.dtype)
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    locked = [cupyx.empty_pinned(data.shape[1:], data.dtype) for _ in range(buffers)]
    sent = [cp.cuda.Event(disable_timing=True) for _ in locked]
    for i, piece in enumerate(data):
        mine = i % buffers
        if wait == "event" and i >= buffers:
            sent[mine].synchronize()
        elif wait == "polling" and i >= buffers:
            while not sent[mine].done:
                pass
        elif wait == "first event" and i >= buffers:
            sent[0].synchronize()
        locked[mine][...] = piece
        if record_first:
            sent[mine].record(stream)
        out[(i + shift) % len(data)].set(locked[mine], stream=stream)
        if not record_first:
            sent[mine].record(stream)
        if wait == "stream":
            stream.synchronize()
        elif wait == "device":
            cp.cuda.Device().synchronize()
            stream.synchronize()
    if end:
        stream.synchronize()
    return out


def _one_locked_parcel(data: Any) -> Any:
    """Page-locked memory for all of it: nothing is ever refilled."""
    locked = _pinned(data)
    locked[...] = data
    out = _cp().empty(data.shape, data.dtype)
    out.set(locked)
    _cp().cuda.get_current_stream().synchronize()
    return out


def _registered(data: Any) -> Any:
    """The array itself, page-locked for a while."""
    cp = _cp()
    cp.cuda.runtime.hostRegister(data.ctypes.data, data.nbytes, 0)
    out = cp.empty(data.shape, data.dtype)
    for row, piece in zip(out, data, strict=True):
        row.set(piece)
    cp.cuda.get_current_stream().synchronize()
    cp.cuda.runtime.hostUnregister(data.ctypes.data)
    return out


def _twice(data: Any) -> Any:
    _ring(data)
    return _ring(data)


def _half_of_it(data: Any) -> Any:
    out = _ring(data)
    out[len(data) // 2 :] = 0
    return out


def _pageable_buffer(data: Any) -> Any:
    out, buffer = _cp().empty(data.shape, data.dtype), np.empty(data.shape[1:], data.dtype)
    for i, piece in enumerate(data):
        buffer[...] = piece
        out[i].set(buffer)
    return out


def _as_given(data: Any) -> Any:
    cp, cupyx = session.cp(), session.cupyx()
    out = cp.empty(data.shape, data.dtype)
    stream = cp.cuda.Stream(non_blocking=True)
    buffer = cupyx.empty_pinned(data.shape[1:], data.dtype)
    for i, piece in enumerate(data):
        buffer[...] = piece
        out[i].set(buffer, stream=stream)
    stream.synchronize()
    return out


_RING = (
    Wrong("08-ring", "the given program, unchanged", _as_given, "hazards", "Before you fill a buffer again"),
    Wrong("08-ring", "two buffers and no wait", lambda data: _ring(data, wait="none"), "hazards", "Before you fill a buffer again"),
    Wrong("08-ring", "records before the copy", lambda data: _ring(data, record_first=True), "hazards",
          "Before you fill a buffer again"),
    Wrong("08-ring", "never waits at the end", lambda data: _ring(data, end=False), "hazards", ""),
    Wrong("08-ring", "copies from data itself", exercises.stream_in_pageable, "counts", "not from `data` itself"),
    Wrong("08-ring", "a pageable buffer", _pageable_buffer, "counts", "not from `data` itself"),
    Wrong("08-ring", "every piece twice", _twice, "counts", "Copy each row to the device once"),
    Wrong("08-ring", "waits for the device, too", lambda data: _ring(data, wait="device"), "counts",
          "before you fill it again"),
    Wrong("08-ring", "stores each piece one row further on", lambda data: _ring(data, shift=1), "results", "it should be"),
    Wrong("08-ring", "the first half", _half_of_it, "results", "it should be"),
    Wrong("08-ring", "a copy of the first piece", lambda data: _cp().asarray(np.broadcast_to(data[0], data.shape).copy()),
          "results", "it should be"),
    Wrong("08-ring", "returns a host array", lambda data: data.copy(), "results", "stay on the device"),
    Wrong("08-ring", "eight buffers and no wait", lambda data: _ring(data, buffers=8, wait="none"), "hazards",
          "Before you fill a buffer again"),
    Wrong("08-ring", "64 buffers and no wait", lambda data: _ring(data, buffers=64, wait="none"), "hazards", "Before you fill a buffer again"),
    Wrong("08-ring", "always converts to float32", lambda data: _ring(data.astype(np.float32)), "results", "should be"),
    Wrong("08-ring", "all of it by cp.asarray", lambda data: _cp().asarray(data), "counts", "once at the end"),
    Right("08-ring", "two buffers", _ring),
    Right("08-ring", "polling", lambda data: _ring(data, wait="polling")),
    Right("08-ring", "three buffers", lambda data: _ring(data, buffers=3)),
    Right("08-ring", "one event for both", lambda data: _ring(data, wait="first event")),
    Right("08-ring", "one parcel", _one_locked_parcel),
    Right("08-ring", "registered", _registered),
)


# 08-lookup


def _with_a_kernel_of_its_own(table: Any, choose: Any) -> Any:
    cp = _cp()
    rows, width = choose(), table.shape[1]
    out = cp.empty((rows.size, width), table.dtype)
    gather = cp.ElementwiseKernel(
        "int32 row, raw T table, int32 width, int32 c", "T y", "y = table[row * width + c]", "pick"
    )
    gather(rows[:, None], mapped(table), width, cp.arange(width, dtype=cp.int32)[None, :], out)
    return out


def _by_hand(table: Any, choose: Any) -> Any:
    cp = _cp()
    memory = cp.cuda.UnownedMemory(table.ctypes.data, table.nbytes, table)
    flat = cp.ndarray(table.size, table.dtype, cp.cuda.MemoryPointer(memory, 0))
    return flat.reshape(table.shape).take(choose(), axis=0)


def _registers(table: Any, choose: Any) -> Any:
    _cp().cuda.runtime.hostRegister(table.ctypes.data, table.nbytes, 0)
    return mapped(table)[choose()]


def _managed(table: Any, choose: Any) -> Any:
    cp = _cp()
    x = cp.ndarray(table.shape, table.dtype, cp.cuda.malloc_managed(table.nbytes))
    np.from_dlpack(x)[...] = table
    return x[choose()]


def _managed_and_prefetched(table: Any, choose: Any) -> Any:
    cp = _cp()
    x = cp.ndarray(table.shape, table.dtype, cp.cuda.malloc_managed(table.nbytes))
    np.from_dlpack(x)[...] = table
    x.data.mem.prefetch(cp.cuda.get_current_stream())
    return x[choose()]


def _row_by_row(table: Any, choose: Any) -> Any:
    return _cp().stack([_cp().asarray(table[int(row)]) for row in choose()])


def _reads_rows_too_early(table: Any, choose: Any) -> Any:
    rows = choose()
    here = session.cupyx().empty_like_pinned(rows)
    rows.get(out=here, blocking=False)
    return _cp().asarray(table[here])


def _gives_back_too_early(table: Any, choose: Any) -> Any:
    locked = session.cupyx().empty_like_pinned(table)
    locked[...] = table
    return mapped(locked)[choose()]


def _clears(table: Any, choose: Any) -> Any:
    in_place = mapped(table)
    found = in_place[choose()]
    in_place[...] = 0
    return found


def _waits(table: Any, choose: Any) -> Any:
    found = exercises.lookup(table, choose)
    _cp().cuda.get_current_stream().synchronize()
    return found


_LOOKUP = (
    Wrong("08-lookup", "the whole table", exercises.lookup_in_a_copy, "counts", "only the rows that it reads cross the bus"),
    Wrong("08-lookup", "the rows' numbers come home", lambda table, choose: _cp().asarray(table[choose().get()]), "counts",
          "leave them there"),
    Wrong("08-lookup", "row by row", _row_by_row, "counts", "leave them there"),
    Wrong("08-lookup", "a kernel reads it all", lambda table, choose: (mapped(table) * 1)[choose()], "counts",
          "only the rows that it reads cross the bus"),
    Wrong("08-lookup", "managed, page by page", _managed, "counts", "only the rows that it reads cross the bus"),
    Wrong("08-lookup", "prefetches the whole table", _managed_and_prefetched, "counts", "only the rows that it reads cross the bus"),
    Wrong("08-lookup", "waits at the end", _waits, "counts", "leave them there"),
    Wrong("08-lookup", "looks at the numbers too early", _reads_rows_too_early, "hazards", ""),
    Wrong("08-lookup", "gives the table back too early", _gives_back_too_early, "hazards", "A kernel still reads this memory"),
    Wrong("08-lookup", "clears the table", _clears, "results", "belongs to its caller"),
    Wrong("08-lookup", "equal rows once", lambda table, choose: mapped(table)[_cp().unique(choose())], "results", ""),
    Wrong("08-lookup", "a pageable copy of the table", lambda table, choose: mapped(np.array(table))[choose()], "results",
          "A kernel can read only pinned memory"),
    Wrong("08-lookup", "pins the table a second time", _registers, "results", "pinned since they were allocated"),
    Wrong("08-lookup", "the first rows", lambda table, choose: mapped(table)[: choose().size], "results", "it should be"),
    Wrong("08-lookup", "rows in half precision",
          lambda table, choose: mapped(table)[choose()].astype(np.float16).astype(table.dtype), "results", "it should be"),
    Wrong("08-lookup", "numbers in 16 bits", lambda table, choose: mapped(table)[choose().astype(np.int16)], "results",
          ""),
    Wrong("08-lookup", "returns the transpose", lambda table, choose: mapped(table)[choose()].T.copy(), "results", "shape"),
    Wrong("08-lookup", "the host's rows", lambda table, choose: table[choose().get()], "results", "stay on the device"),
    Right("08-lookup", "indexed", lambda table, choose: mapped(table)[choose(), :]),
    Right("08-lookup", "take", lambda table, choose: _cp().take(mapped(table), choose(), axis=0)),
    Right("08-lookup", "by hand", _by_hand),
    Right("08-lookup", "a kernel of its own", _with_a_kernel_of_its_own),
)

WRONG = tuple(o for o in (*_STAY, *_REPORT, *_PACK, *_RING, *_LOOKUP) if isinstance(o, Wrong))
RIGHT = tuple(o for o in (*_STAY, *_REPORT, *_PACK, *_RING, *_LOOKUP) if isinstance(o, Right))

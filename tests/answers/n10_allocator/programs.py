"""Wrong and right programs that the exercises of notebook 10 are tried with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab import session
from gpulab_course.content.n10_allocator.exercises import NUMBERS_PER_RESULT, scaled_naive

# 10-scale


def changes_its_input(x: Any) -> Any:
    """Works in the caller's array."""
    cp = session.cp()
    low = x.min()
    high = x.max()
    x -= low
    x /= cp.maximum(high - low, 1)
    x *= 2
    x -= 1
    return x


def deletes_too_late(x: Any) -> Any:
    """Holds two arrays at once."""
    cp = session.cp()
    low = x.min()
    high = x.max()
    shifted = x - low
    y = shifted / cp.maximum(high - low, 1)
    del shifted
    y *= 2
    y -= 1
    return y


def one_expression(x: Any) -> Any:
    """Leaves all to Python."""
    cp = session.cp()
    low = x.min()
    high = x.max()
    return (x - low) / cp.maximum(high - low, 1) * 2 - 1


def out_of_a_new_one(x: Any) -> Any:
    """Puts only the last step in its place."""
    cp = session.cp()
    low = x.min()
    high = x.max()
    y = cp.empty_like(x)
    return cp.add(cp.multiply(cp.divide(x - low, cp.maximum(high - low, 1)), 2), -1, out=y)


def numbers_of_the_host(x: Any) -> Any:
    """Fetches two numbers."""
    low = float(x.min())
    high = float(x.max())
    y = x - np.float32(low)
    y /= np.float32(max(high - low, 1.0))
    y *= 2
    y -= 1
    return y


def by_the_host(x: Any) -> Any:
    """Works on the host."""
    values = x.get()
    low = values.min()
    high = values.max()
    scaled = (values - low) / max(high - low, np.float32(1)) * 2 - 1
    return session.cp().asarray(scaled)


def from_another_pool(x: Any) -> Any:
    """Takes its temporaries from a pool that hooks do not see."""
    cp = session.cp()
    with cp.cuda.using_allocator(cp.cuda.MemoryAsyncPool().malloc):
        return scaled_naive(x)


def without_a_pool(x: Any) -> Any:
    """Takes its temporaries from the driver."""
    cp = session.cp()
    with cp.cuda.using_allocator(None):
        return scaled_naive(x)


def above_one(x: Any) -> Any:
    """Takes 1 for the largest number where all are smaller."""
    cp = session.cp()
    low = x.min()
    high = cp.maximum(x.max(), 1)
    y = x - low
    y *= 2 / (high - low)
    y -= 1
    return y


def below_zero(x: Any) -> Any:
    """Takes 0 for the smallest number where all are larger."""
    cp = session.cp()
    low = cp.minimum(x.min(), 0)
    y = x - low
    y *= 2 / cp.maximum(x.max() - low, 1)
    y -= 1
    return y


def not_two(x: Any) -> Any:
    """From 0 to 1."""
    cp = session.cp()
    y = x - x.min()
    y /= cp.maximum(y.max(), 1)
    return y


def in_doubles(x: Any) -> Any:
    """Twice as wide."""
    cp = session.cp()
    low = x.min()
    high = x.max()
    y = x.astype(cp.float64)
    y -= low
    y /= cp.maximum(high - low, 1)
    y *= 2
    y -= 1
    return y.astype(cp.float32)


def divides_by_zero(x: Any) -> Any:
    """Forgets equal numbers."""
    low = x.min()
    high = x.max()
    y = x - low
    y /= high - low
    y *= 2
    y -= 1
    return y


def by_outs(x: Any) -> Any:
    """Each step with ``out=``."""
    cp = session.cp()
    low = x.min()
    high = x.max()
    y = cp.subtract(x, low)
    cp.divide(y, cp.maximum(high - low, 1), out=y)
    cp.multiply(y, 2, out=y)
    return cp.subtract(y, 1, out=y)


def by_a_copy(x: Any) -> Any:
    """A copy, changed in place."""
    cp = session.cp()
    y = x.copy()
    y -= y.min()
    y *= 2 / cp.maximum(y.max(), 1)
    y -= 1
    return y


def by_a_kernel(x: Any) -> Any:
    """One element-wise kernel."""
    cp = session.cp()
    scale = cp.ElementwiseKernel(
        "float32 x, float32 low, float32 high",
        "float32 y",
        "y = (x - low) / max(high - low, 1.0f) * 2.0f - 1.0f",
        "scale",
    )
    return scale(x, x.min(), x.max())


def shifts_its_input_and_back(x: Any) -> Any:
    """Works in the caller's array for a while."""
    cp = session.cp()
    low = x.min().copy()
    x -= low
    y = x * (2 / cp.maximum(x.max(), 1))
    y -= 1
    x += low
    return y


# 10-fit


def tops(
    kept_first: bool = True,
    fixed_work: bool = True,
    host: bool = False,
    abs_only: bool = False,
    clean: bool = False,
) -> Callable[..., Any]:
    """Ways to look at windows: each switch is one decision."""

    def answer(x: Any, starts: tuple[int, ...], n: int) -> Any:
        cp = session.cp()
        kept = cp.empty((len(starts), NUMBERS_PER_RESULT), np.float32) if kept_first else []
        fixed = cp.empty(n, np.float32) if fixed_work else None
        for i, start in enumerate(starts):
            work = cp.abs(x[start : start + n], out=fixed) if fixed_work else cp.abs(x[start : start + n])
            if not abs_only:
                cp.sqrt(work, out=work)
            top = float(work.max()) if host else work.max()
            del work
            if kept_first:
                kept[i] = top
            else:
                kept.append(cp.full(NUMBERS_PER_RESULT, top, np.float32))
            if clean:
                cp.get_default_memory_pool().free_all_blocks()
        return kept if kept_first else cp.stack(kept)

    return answer


def tops_without_limit(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """Moves the limit away."""
    session.cp().get_default_memory_pool().set_limit(size=0)
    return tops(kept_first=False, fixed_work=False)(x, starts, n)


def tops_by_shared_max(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """The largest of all windows for each."""
    cp = session.cp()
    kept = cp.empty((len(starts), NUMBERS_PER_RESULT), np.float32)
    kept[...] = cp.sqrt(cp.abs(x)).max()
    return kept


def tops_without_workspace(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """The maximum needs no array at all: the root grows with its argument."""
    cp = session.cp()
    kept = cp.empty((len(starts), NUMBERS_PER_RESULT), np.float32)
    for row, start in zip(kept, starts, strict=True):
        window = x[start : start + n]
        row[...] = cp.sqrt(cp.maximum(window.max(), -window.min()))
    return kept


def tops_managed(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """Goes round the limit with memory of another kind."""
    cp = session.cp()
    managed = cp.cuda.MemoryPool(cp.cuda.malloc_managed)
    with cp.cuda.using_allocator(managed.malloc):
        return tops(kept_first=False, fixed_work=False)(x, starts, n)


def tops_ordered(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """Goes round the limit with the driver's own pool, and wastes its memory there."""
    cp = session.cp()
    kept = []
    with cp.cuda.using_allocator(cp.cuda.MemoryAsyncPool().malloc):
        for start in starts:
            kept.append(cp.sqrt(cp.abs(x[start : start + n])))
    return cp.stack([cp.full(NUMBERS_PER_RESULT, work.max(), np.float32) for work in kept])


def tops_small_first(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """What stays is a list, but allocated before the work."""
    cp = session.cp()
    rows = [cp.empty(NUMBERS_PER_RESULT, np.float32) for _ in starts]
    for row, start in zip(rows, starts, strict=True):
        work = cp.abs(x[start : start + n])
        cp.sqrt(work, out=work)
        row.fill(work.max())
        del work
    return cp.stack(rows)


def tops_numbers_first(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """First one number for each window, then the rows."""
    cp = session.cp()
    numbers = cp.empty(len(starts), np.float32)
    work = cp.empty(n, np.float32)
    for i, start in enumerate(starts):
        cp.sqrt(cp.abs(x[start : start + n], out=work), out=work)
        work.max(out=numbers[i : i + 1].reshape(()))
    del work
    return cp.repeat(numbers[:, None], NUMBERS_PER_RESULT, axis=1)


def tops_of_shorter_windows(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """Leaves out the last element of each."""
    cp = session.cp()
    kept = cp.empty((len(starts), NUMBERS_PER_RESULT), np.float32)
    for row, start in zip(kept, starts, strict=True):
        window = x[start : start + max(n - 1, 1)]
        row[...] = cp.sqrt(cp.maximum(window.max(), -window.min()))
    return kept


def tops_by_start(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """A row for each start, and one for two windows that are the same."""
    cp = session.cp()
    work = cp.empty(n, np.float32)
    rows = {start: cp.empty(NUMBERS_PER_RESULT, np.float32) for start in starts}
    for start, row in rows.items():
        cp.sqrt(cp.abs(x[start : start + n], out=work), out=work)
        row.fill(work.max())
    return cp.stack(list(rows.values()))


def tops_in_pieces(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """A quarter of a window at a time."""
    cp = session.cp()
    kept = cp.zeros((len(starts), NUMBERS_PER_RESULT), np.float32)
    work = cp.empty(-(-n // 4), np.float32)
    top = cp.empty((), np.float32)
    for row, start in zip(kept, starts, strict=True):
        for begin in range(start, start + n, work.size):
            piece = x[begin : min(begin + work.size, start + n)]
            cp.abs(piece, out=work[: piece.size]).max(out=top)
            cp.maximum(row, cp.sqrt(top, out=top), out=row)
    return kept


def tops_by_kernels(x: Any, starts: tuple[int, ...], n: int) -> Any:
    """Kernels of its own, and a workspace that is made and dropped for each window."""
    cp = session.cp()
    root = cp.ElementwiseKernel("float32 x", "float32 y", "y = sqrtf(fabsf(x))", "root")
    top = cp.ReductionKernel("float32 x", "float32 y", "x", "fmaxf(a, b)", "y = a", "0", "top")
    kept = cp.empty((len(starts), NUMBERS_PER_RESULT), np.float32)
    for row, start in zip(kept, starts, strict=True):
        work = root(x[start : start + n])
        row[...] = top(work, axis=0, keepdims=True)
        del work
    return kept


# 10-side


def both(
    wait_first: bool = True,
    keep: bool = True,
    join: bool = True,
    join_early: bool = False,
    join_half: bool = False,
    host: bool = False,
) -> Callable[[Any], Any]:
    """Two ways on two streams: each switch is one decision."""

    def answer(x: Any) -> Any:
        cp = session.cp()
        main = cp.cuda.get_current_stream()
        side = cp.cuda.Stream(non_blocking=True)
        doubled = x * 2
        if wait_first:
            side.wait_event(main.record())
        with side:
            y = doubled + 20
            half = side.record()
            y += 20
            done = side.record()
        if join_half:
            main.wait_event(half)
        if host:
            side.synchronize()
        if join_early:
            main.wait_event(done)
        if not keep:
            del doubled
        z = x * 3
        if join:
            main.wait_event(done)
        return y, z

    return answer


def one_stream(x: Any) -> Any:
    """No second stream."""
    y = x * 2 + 20
    y += 20
    return y, x * 3


def swapped(x: Any) -> Any:
    """The results in the wrong order."""
    y, z = both()(x)
    return z, y


def keeps_by_copy_on_main(x: Any) -> Any:
    """Frees the block of an array that was copied: the same mistake, one array further."""
    cp = session.cp()
    main = cp.cuda.get_current_stream()
    side = cp.cuda.Stream(non_blocking=True)
    doubled = (x * 2).copy()
    side.wait_event(main.record())
    with side:
        y = doubled + 20
        y += 20
        done = side.record()
    del doubled
    z = x * 3
    main.wait_event(done)
    return y, z


def own_array_for_the_rest(x: Any) -> Any:
    """Asks for the array of the rest itself: the same arena gives the same block."""
    cp = session.cp()
    main = cp.cuda.get_current_stream()
    side = cp.cuda.Stream(non_blocking=True)
    doubled = x * 2
    side.wait_event(main.record())
    with side:
        y = doubled + 20
        y += 20
        done = side.record()
    del doubled
    first = cp.empty_like(x)
    z = cp.multiply(x, 3, out=first)
    main.wait_event(done)
    return y, z


def all_on_the_side(x: Any) -> Any:
    """Allocated, read and freed on the side stream, whose arena has the block."""
    cp = session.cp()
    main = cp.cuda.get_current_stream()
    side = cp.cuda.Stream(non_blocking=True)
    side.wait_event(main.record())
    with side:
        y = x * 2 + 20
        y += 20
        done = side.record()
    z = x * 3
    main.wait_event(done)
    return y, z


def other_stream_for_the_rest(x: Any) -> Any:
    """A third stream, with an arena of its own, takes over the other way."""
    cp = session.cp()
    main = cp.cuda.get_current_stream()
    side, other = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    begun = main.record()
    for stream in (side, other):
        stream.wait_event(begun)
    with side:
        y = x * 2
        y += 40
    with other:
        z = x * 3
    for stream in (side, other):
        main.wait_event(stream.record())
    return y, z


def main_first(x: Any) -> Any:
    """The short way is given first; then nothing is allocated on the main stream any more."""
    cp = session.cp()
    main = cp.cuda.get_current_stream()
    side = cp.cuda.Stream(non_blocking=True)
    doubled = x * 2
    ready = main.record()
    z = x * 3
    side.wait_event(ready)
    with side:
        y = doubled + 20
        y += 20
    main.wait_event(side.record())
    return y, z


def second_stream_for_show(x: Any) -> Any:
    """The side stream works for nobody."""
    cp = session.cp()
    main = cp.cuda.get_current_stream()
    side = cp.cuda.Stream(non_blocking=True)
    side.wait_event(main.record())
    with side:
        x * 3
        done = side.record()
    y = x * 2
    y += 40
    z = x * 3
    main.wait_event(done)
    return y, z


# 10-rows


def attention(
    rows: int = 64,
    in_place: bool = True,
    minus_max: bool = True,
    scale: bool = True,
    ragged: bool = True,
    axis: int = 1,
    host: bool = False,
) -> Callable[[Any], Any]:
    """Attention in blocks of rows: each switch is one decision."""

    def answer(h: Any) -> Any:
        cp = session.cp()
        n, d = h.shape
        out = cp.zeros_like(h)
        for first in range(0, n if ragged else n // rows * rows, rows):
            part = h[first : first + rows]
            scores = part @ h.T
            if scale:
                scores *= np.float32(d**-0.5)
            top = scores.max(axis=axis, keepdims=True) if minus_max else 0
            if in_place:
                scores -= top
                cp.exp(scores, out=scores)
                scores /= scores.sum(axis=axis, keepdims=True)
            else:
                powers = cp.exp(scores - top)
                scores = powers / powers.sum(axis=axis, keepdims=True)
            if host:
                float(scores.sum())
            out[first : first + rows] = scores @ h
            del scores
        return out

    return answer


def attention_kept(h: Any) -> Any:
    """Keeps the scores of all blocks."""
    cp = session.cp()
    d = h.shape[1]
    kept = []
    for first in range(0, len(h), 64):
        scores = h[first : first + 64] @ h.T
        scores *= np.float32(d**-0.5)
        scores -= scores.max(axis=1, keepdims=True)
        cp.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        kept.append(scores)
    return cp.concatenate([scores @ h for scores in kept])


def attention_by_the_host(h: Any) -> Any:
    """Leaves the device."""
    cp = session.cp()
    values = h.get().astype(np.float64)
    scores = values @ values.T / np.sqrt(h.shape[1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return cp.asarray(((powers / powers.sum(axis=1, keepdims=True)) @ values).astype(np.float32))


def attention_online(h: Any) -> Any:
    """Blocks of columns, with the maximum and the sum carried along."""
    cp = session.cp()
    n, d = h.shape
    top = cp.full((n, 1), -cp.inf, np.float32)
    total = cp.zeros((n, 1), np.float32)
    out = cp.zeros_like(h)
    for first in range(0, n, 64):
        part = h[first : first + 64]
        scores = h @ part.T
        scores *= np.float32(d**-0.5)
        new = cp.maximum(top, scores.max(axis=1, keepdims=True))
        scores -= new
        cp.exp(scores, out=scores)
        old = cp.exp(top - new)
        total *= old
        total += scores.sum(axis=1, keepdims=True)
        out *= old
        out += scores @ part
        top = new
        del scores
    out /= total
    return out


def attention_in_one_buffer(h: Any) -> Any:
    """One buffer for the scores of every block."""
    cp = session.cp()
    n, d = h.shape
    out = cp.empty_like(h)
    buffer = cp.empty((min(64, n), n), np.float32)
    for first in range(0, n, 64):
        part = h[first : first + 64]
        scores = buffer[: len(part)]
        cp.matmul(part, h.T, out=scores)
        scores *= np.float32(d**-0.5)
        scores -= scores.max(axis=1, keepdims=True)
        cp.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        out[first : first + 64] = scores @ h
    return out


def by_what_there_is(x: Any) -> Any:
    """Divides by the distance of the ends, unless it is 0."""
    cp = session.cp()
    low = x.min()
    high = x.max()
    y = x - low
    y /= cp.where(high == low, np.float32(1), high - low)
    y *= 2
    y -= 1
    return y

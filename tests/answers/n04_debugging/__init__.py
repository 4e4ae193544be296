"""Wrong and right answers to the exercises of notebook 04."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab import session
from tests.answers import Right, Wrong, kernel_text
from tests.answers.n04_debugging import answers


def _cp() -> Any:
    return session.cp()


def _error() -> Any:
    return _cp().cuda.runtime.CUDARuntimeError


def _wait() -> None:
    _cp().cuda.Device().synchronize()


def _nothing(name: str, number: int) -> None:
    pass


# 04-whodunit


def _looks_closer(program: Any) -> Any:
    try:
        program(_nothing)
        _wait()
        return None
    except _error():
        pass
    noted = []

    def after(name: str, number: int) -> None:
        noted.append((name, number))
        _wait()

    try:
        program(after)
    except _error():
        return noted[-1]
    return None


def _keeps_one(program: Any) -> Any:
    last: dict[str, Any] = {}

    def waits(name: str, number: int) -> None:
        last["of"] = (name, number)
        _cp().cuda.get_current_stream().synchronize()

    try:
        program(_nothing)
        _cp().cuda.runtime.deviceSynchronize()
    except _error():
        try:
            program(waits)
            _wait()
        except _error():
            return last["of"]
    return None


def _waits_for_events(program: Any) -> Any:
    noted: list[Any] = []

    def after(name: str, number: int) -> None:
        noted.append([name, number])
        event = _cp().cuda.Event()
        event.record()
        event.synchronize()

    for way in (_nothing, after):
        try:
            program(way)
            _wait()
            return None
        except _error():
            continue
    return noted[-1]


def _stops_early(program: Any) -> Any:
    """By halves: up to which launch is all well?"""

    class Stop(Exception):
        pass

    names: dict[int, str] = {}

    def fails(most: int) -> bool:
        def after(name: str, number: int) -> None:
            names[number] = name
            if number == most:
                raise Stop

        try:
            program(after)
        except Stop:
            pass
        except _error():
            return True
        try:
            _wait()
        except _error():
            return True
        return False

    if not fails(1 << 30):
        return None
    low, high = 0, max(names) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return names[high], high


def _the_line_that_raised(program: Any) -> Any:
    noted: list[Any] = []
    try:
        program(lambda name, number: noted.append((name, number)))
        _wait()
    except _error():
        return noted[-1]
    return None


def _environment_too_late(program: Any) -> Any:
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    return _the_line_that_raised(program)


def _waits_always(program: Any) -> Any:
    noted: list[Any] = []

    def after(name: str, number: int) -> None:
        noted.append((name, number))
        _wait()

    try:
        program(after)
    except _error():
        return noted[-1]
    return None


def _waits_first(program: Any) -> Any:
    noted: list[Any] = []

    def after(name: str, number: int) -> None:
        _wait()
        noted.append((name, number))

    try:
        program(_nothing)
        _wait()
        return None
    except _error():
        pass
    try:
        program(after)
    except _error():
        return noted[-1] if noted else None
    return None


def _trusts_the_first(program: Any) -> Any:
    noted: list[Any] = []

    def after(name: str, number: int) -> None:
        noted.append((name, number))
        if number > 1:
            _wait()

    for way in (_nothing, after):
        try:
            program(way)
            _wait()
            return None
        except _error():
            continue
    return noted[-1]


def _no_last_wait(program: Any) -> Any:
    """Believes a program that has not raised."""
    try:
        program(_nothing)
    except _error():
        return _looks_closer(program)
    return None


def _never_waits(program: Any) -> Any:
    try:
        program(_nothing)
    except _error():
        return _keeps_one(program)
    return None


def _from_zero(program: Any) -> Any:
    found = _looks_closer(program)
    return found and (found[0], found[1] - 1)


def _name_alone(program: Any) -> Any:
    found = _looks_closer(program)
    return found and found[0]


def _lets_it_pass(program: Any) -> Any:
    program(_nothing)
    _wait()


def _always_somebody(program: Any) -> Any:
    return _looks_closer(program) or ("scale", 1)


def _asks_itself(program: Any) -> Any:
    asks = next(cell.cell_contents for cell in program.__closure__ if callable(cell.cell_contents))
    asks(True)
    strays = [asks(False) for _ in range(14)]
    return next((("scale", number) for number, stray in enumerate(strays, 1) if stray), None)


_WHODUNIT = (
    Wrong("04-whodunit", "the line that raised", _the_line_that_raised, "", "the last one before the error"),
    Wrong("04-whodunit", "blocking set after the context is there", _environment_too_late, "", "the last one before the error"),
    Wrong("04-whodunit", "waits in every run", _waits_always, "", "First run the program without"),
    Wrong("04-whodunit", "notes after the wait", _waits_first, "", "first store its name and number"),
    Wrong("04-whodunit", "no wait behind the first launch", _trusts_the_first, "", "launch 1,"),
    Wrong("04-whodunit", "no wait at the end", _no_last_wait, "", "never waited"),
    Wrong("04-whodunit", "the host never waits", _never_waits, "", "never waited"),
    Wrong("04-whodunit", "counts from 0", _from_zero, "", "numbered from 1"),
    Wrong("04-whodunit", "returns only the name", _name_alone, "", "the number of its launch"),
    Wrong("04-whodunit", "lets the error pass", _lets_it_pass, "", "Catch it"),
    Wrong("04-whodunit", "accuses somebody always", _always_somebody, "", "nothing fails"),
    Wrong("04-whodunit", "asks what the program asks", _asks_itself, "", "inspects the program"),
    Wrong("04-whodunit", "does not run the program", lambda program: None, "", "never runs the program"),
    Right("04-whodunit", "a second run that waits", _looks_closer),
    Right("04-whodunit", "one note, another wait", _keeps_one),
    Right("04-whodunit", "events, both ways in a loop", _waits_for_events),
    Right("04-whodunit", "by halves", _stops_early),
)


# 04-hunt


_HUNT = (
    Wrong("04-hunt", "at the end", answers.at_the_end, "", ""),
    Wrong("04-hunt", "looks at arrays before the steps run", answers.before_they_run, "", "contains old values"),
    Wrong("04-hunt", "the last that has one", answers.the_last, "", "NaN spreads"),
    Wrong("04-hunt", "nan_to_num on the way", answers.silenced, "", "does not fix its cause"),
    Wrong("04-hunt", "infinity counts", answers.infinity_too, "", "Infinity is not NaN"),
    Wrong("04-hunt", "compared with NaN", answers.compared_with_nan, "", "cp.isnan"),
    Wrong("04-hunt", "the input is above suspicion", answers.without_the_input, "", "look at the input first"),
    Wrong("04-hunt", "returns a flat index", answers.flat, "", "(row, column)"),
    Wrong("04-hunt", "the last array is not looked at", answers.without_the_last, "", ""),
    Wrong("04-hunt", "tests sums instead of cells", answers.sums_of_cells, "", "Infinity is not NaN"),
    Wrong("04-hunt", "searches columns first", answers.columns_first, "", "row by row"),
    Wrong("04-hunt", "the last cell", answers.the_last_cell, "", ""),
    Wrong("04-hunt", "runs each step twice", answers.runs_them_twice, "", "must run once, in order"),
    Wrong("04-hunt", "looks at who called", lambda steps, arrays: sys._getframe(1).f_locals["wanted"], "", "wanted"),
    Wrong("04-hunt", "the first NaN that was not there before", answers.new_ones, "", ""),
    Wrong("04-hunt", "each step in a set", answers.sorted_steps, "", "in order"),
    Right("04-hunt", "after each step", answers.after_each),
    Right("04-hunt", "a cell as an array", lambda steps, arrays: (found := answers.after_each(steps, arrays)) and (found[0], np.array(found[1]))),
    Right("04-hunt", "on the device, by argmax", answers.on_the_device),
    Wrong("04-hunt", "stops at the first", answers.stops_there, "", "after the first NaN"),
    Right("04-hunt", "what is unequal to itself", answers.unequal_to_itself),
    Right("04-hunt", "lists, and the rest is run", answers.goes_on),
)


# 04-freed


def _two(cp: Any) -> tuple[Any, Any]:
    return cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)


def _freed(x: Any, first: Any = None, then: Any = None) -> Any:
    """The program, with what is done before and after the block goes back."""
    here, side = _two(_cp())
    doubled, y = x * 2, _cp().empty_like(x)
    side.wait_event(here.record())
    early = side.record()
    with side:
        _cp().add(doubled, 1, out=y)
    if first is not None:
        first(here, side, early)
    del doubled
    z = x - 3
    if then is not None:
        then(here, side, early)
    return y * z


def _here_waits(here: Any, side: Any, early: Any) -> None:
    here.wait_event(side.record())


def _no_wait_there(x: Any) -> Any:
    here, side = _two(_cp())
    doubled, y = x * 2, _cp().empty_like(x)
    with side:
        _cp().add(doubled, 1, out=y)
    here.wait_event(side.record())
    del doubled
    return y * (x - 3)


def _one_stream(x: Any) -> Any:
    return (x * 2 + 1) * (x - 3)


def _larger_array(x: Any) -> Any:
    here, side = _two(_cp())
    doubled = _cp().empty(2 * x.size + 512, dtype=x.dtype)
    doubled[: x.size] = x * 2
    y = _cp().empty_like(x)
    side.wait_event(here.record())
    with side:
        _cp().add(doubled[: x.size], 1, out=y)
    del doubled
    z = x - 3
    here.wait_event(side.record())
    return y * z


def _in_place(x: Any) -> Any:
    x *= 2
    return (x + 1) * (x / 2 - 3)


def _keeps_it(x: Any) -> Any:
    here, side = _two(_cp())
    doubled, y = x * 2, _cp().empty_like(x)
    side.wait_event(here.record())
    with side:
        _cp().add(doubled, 1, out=y)
    z = x - 3  # doubled is still there, and so is its block
    here.wait_event(side.record())
    return y * z


def _without_pool(x: Any) -> Any:
    """Nothing comes back too early: cudaFree waits until the device has done all."""
    with _cp().cuda.using_allocator(None):
        return _freed(x, then=_here_waits)


def _list_that_keeps_all() -> Callable[[Any], Any]:
    kept = []

    def both(x: Any) -> Any:
        here, side = _two(_cp())
        doubled, y = x * 2, _cp().empty_like(x)
        side.wait_event(here.record())
        kept.append(doubled)
        with side:
            _cp().add(doubled, 1, out=y)
        z = x - 3
        here.wait_event(side.record())
        return y * z

    return both


def _made_where_it_is_used(x: Any) -> Any:
    here, side = _two(_cp())
    y = _cp().empty_like(x)
    side.wait_event(here.record())
    with side:
        _cp().add(x * 2, 1, out=y)
    z = x - 3
    here.wait_event(side.record())
    return y * z


def _third_first(x: Any) -> Any:
    here, side = _two(_cp())
    z = x - 3
    doubled, y = x + x, _cp().empty_like(x)
    event = _cp().cuda.Event(disable_timing=True)
    event.record(here)
    side.wait_event(event)
    with side:
        _cp().add(doubled, 1, out=y)
    event = _cp().cuda.Event(disable_timing=True)
    event.record(side)
    here.wait_event(event)
    return z * y


_FREED = (
    Wrong("04-freed", "as given", lambda x: _freed(x, then=_here_waits), "hazards", ""),
    Wrong("04-freed", "waits for the device", lambda x: _freed(x, lambda here, side, early: _wait()), "counts", "leaves the host free"),
    Wrong("04-freed", "the host waits for the stream", lambda x: _freed(x, lambda here, side, early: side.synchronize()), "counts", "leaves the host free"),
    Wrong("04-freed", "an event too early", lambda x: _freed(x, lambda here, side, early: here.wait_event(early)), "hazards", ""),
    Wrong("04-freed", "the wrong stream waits", lambda x: _freed(x, lambda here, side, early: side.wait_event(here.record())), "hazards", ""),
    Wrong("04-freed", "no wait on the way back", _freed, "hazards", ""),
    Wrong("04-freed", "no wait on the way there", _no_wait_there, "hazards", ""),
    Wrong("04-freed", "orders the streams only for small arrays", lambda x: _freed(x, _here_waits) if x.size < 60_000 else _no_wait_there(x), "orders", "another order"),
    Wrong("04-freed", "one stream instead of two", _one_stream, "counts", "two streams"),
    Wrong("04-freed", "a larger array", _larger_array, "hazards", ""),
    Wrong("04-freed", "changes its input", _in_place, "results", ""),
    Wrong("04-freed", "a list that keeps all arrays", _list_that_keeps_all(), "counts", "only the memory of the result"),
    Wrong("04-freed", "memory without a pool", _without_pool, "counts", "cudaFree lets the host wait"),
    Right("04-freed", "the wait before the free", lambda x: _freed(x, _here_waits)),
    Right("04-freed", "kept until the wait", _keeps_it),
    Right("04-freed", "made where it is used", _made_where_it_is_used),
    Right("04-freed", "other order, events by hand", _third_first),
)


# Kernels


_I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
_places = kernel_text(
    "places(const int* row, const int* col, long long* from, long long* to, int rows, int cols, int n)"
)


def _both(from_: str, to: str, guard: str = "i < n") -> str:
    return str(_places(f"{_I} if ({guard}) {{ from[i] = {from_}; to[i] = {to}; }}"))


_FROM, _TO = "(long long)row[i] * cols + col[i]", "(long long)col[i] * rows + row[i]"
_PLACES = (
    Wrong("04-places", "the given kernel, unchanged", _both("row[i] * cols + col[i]", "col[i] * rows + row[i]"), "results", "widen a factor"),
    Wrong("04-places", "cast after the product", _both("(long long)(row[i] * cols) + col[i]", "(long long)(col[i] * rows) + row[i]"),
          "results", "widen a factor"),
    Wrong("04-places", "adds in 32 bits", _both(_FROM, "(long long)(col[i] - 1) * rows + (rows + row[i])"), "results",
          "2,147,483,647"),
    Wrong("04-places", "unsigned instead of 64 bits", _both("(unsigned)row[i] * cols + col[i]", "(unsigned)col[i] * rows + row[i]"), "results",
          "unsigned wraps"),
    Wrong("04-places", "only one line is repaired", _both(_FROM, "col[i] * rows + row[i]"), "results", "in both lines"),
    Wrong("04-places", "the other line repaired", _both("row[i] * cols + col[i]", _TO), "results", "in both lines"),
    Wrong("04-places", "a guard only", _both("row[i] * cols + col[i]", "col[i] * rows + row[i]",
                                             "i < n && (float)row[i] * cols < 2e9f && (float)col[i] * rows < 2e9f"), "results", ""),
    Wrong("04-places", "in floats", _both("(long long)((float)row[i] * cols + col[i])", "(long long)((float)col[i] * rows + row[i])"),
          "results", ""),
    Wrong("04-places", "no guard", _places(f"{_I} from[i] = {_FROM}; to[i] = {_TO};"), "results", "beyond n"),
    Wrong("04-places", "the wrong row length", _both("(long long)row[i] * rows + col[i]", "(long long)col[i] * cols + row[i]"),
          "results", "the length of a row"),
    Wrong("04-places", "one thread", _places(f"{_I} if (i == 0) for (int k = 0; k < n; ++k)"
                                             f" {{ from[k] = {_FROM}; to[k] = {_TO}; }}".replace("[i]", "[k]")), "parallelism", ""),
    Wrong("04-places", "wide only where a square would be", _both("(cols < 46341 ? (long long)(row[i] * cols) : (long long)row[i] * cols) + col[i]", _TO),
          "results", ""),
    Wrong("04-places", "wide from 50,000 on", _both(f"cols >= 50000 || rows >= 50000 ? {_FROM} : row[i] * cols + col[i]",
                                                    f"cols >= 50000 || rows >= 50000 ? {_TO} : col[i] * rows + row[i]"), "results", ""),
    Wrong("04-places", "40 bits", _both(f"({_FROM}) & 0xffffffffffLL", f"({_TO}) & 0xffffffffffLL"), "results", ""),
    Right("04-places", "there, and from there back", _both(_FROM, "from[i] % cols * rows + from[i] / cols")),
    Right("04-places", "in double precision", _both("(long long)((double)row[i] * cols + col[i])", "(long long)((double)col[i] * rows + row[i])")),
    Right("04-places", "a factor widened", _both(_FROM, _TO)),
    Right("04-places", "the length widened", _places(f"{_I} long long wide = cols, high = rows; if (i >= n) return;"
                                                     " from[i] = row[i] * wide + col[i]; to[i] = high * col[i] + row[i];")),
    Right("04-places", "a multiplication with a wide result",
          _places(f"{_I} if (i < n) {{ from[i] = __mul64hi(0, 0) + (long long)__umul24(0, 0) + {_FROM}; to[i] = {_TO}; }}")),
    Right("04-places", "grid-stride, size_t",
          _places(f"/* int is enough for i */ {_I} for (; i < n; i += gridDim.x * blockDim.x)"
                  " { size_t r = row[i], c = col[i];\n from[i] = r * cols + c;\n to[i] = c * rows + r; }")),
)

_tree = kernel_text("tree_sum(const int* x, int* sums, int n)")
_PART = "__shared__ int part[1024]; int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"
_STORE = "part[t] = i < n ? x[i] : 0; __syncthreads();"
_WRITE = "if (t == 0) sums[blockIdx.x] = part[0];"


def _folded(step: str, store: str = _STORE, write: str = _WRITE) -> str:
    loop = f"for (int left = blockDim.x; left > 1;) {{ int half = (left + 1) / 2; {step} left = half; }}"
    return str(_tree(f"{_PART} {store} {loop} {write}"))


_ADD = "part[t] += part[t + half];"
_BARRIER = (
    Wrong("04-barrier", "the given kernel, unchanged", _folded(f"if (t < left / 2) {{ {_ADD} __syncthreads(); }}"), "hazards", ""),
    Wrong("04-barrier", "barrier deleted", _folded(f"if (t < left / 2) {_ADD}"), "results", ""),
    Wrong("04-barrier", "__syncwarp() instead of __syncthreads()", _folded(f"if (t < left / 2) {_ADD} __syncwarp();"), "results", ""),
    Wrong("04-barrier", "a barrier in each branch",
          _folded(f"if (t < left / 2) {{ {_ADD} __syncthreads(); }} else {{ __syncthreads(); }}"), "results", "every one of them"),
    Wrong("04-barrier", "early return above it",
          _folded(f"if (t < left / 2) {_ADD} __syncthreads();", f"if (i >= n) return; {_STORE}"), "results", ""),
    Wrong("04-barrier", "a barrier in the first step alone",
          _folded(f"if (t < left / 2) {_ADD} if (left == blockDim.x) __syncthreads();"), "results", ""),
    Wrong("04-barrier", "barrier before the step alone",
          _folded(f"__syncthreads(); if (t < left / 2) {_ADD}", "part[t] = i < n ? x[i] : 0;", "__syncthreads(); __threadfence();"
                  " if (t == 0) sums[blockIdx.x] = part[blockDim.x > 512 ? 1 : 0];"), "results", ""),
    Wrong("04-barrier", "none behind the first store", _folded(f"if (t < left / 2) {_ADD} __syncthreads();",
                                                              "part[t] = i < n ? x[i] : 0;"), "results", ""),
    Wrong("04-barrier", "blocks of 32",
          _tree("int t = threadIdx.x, i = blockIdx.x * blockDim.x + t; int v = i < n ? x[i] : 0;"
                " for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d); if (t == 0) sums[blockIdx.x] = v;"), "results", ""),
    Wrong("04-barrier", "powers of two", _tree(f"{_PART} {_STORE} for (int half = blockDim.x / 2; half; half /= 2)"
                                               f" {{ if (t < half) {_ADD} __syncthreads(); }} {_WRITE}"), "results", ""),
    Right("04-barrier", "the barrier behind the if", _folded(f"if (t < left / 2) {_ADD} __syncthreads();")),
    Right("04-barrier", "in front of each step, and at the end",
          _folded(f"__syncthreads(); if (t < left / 2) {_ADD}", "part[t] = i < n ? x[i] : 0;", f"__syncthreads(); {_WRITE}")),
    Right("04-barrier", "cooperative groups",
          _folded(f"if (t < left / 2) {_ADD} cg::this_thread_block().sync();").replace(
              "extern", "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\nextern", 1)),
    Right("04-barrier", "two barriers a step",
          _folded("int other = t < left / 2 ? part[t + half] : 0;\n__syncthreads();\npart[t] += other; // not in the if\n__syncthreads();")),
)

_ALL: tuple[Wrong | Right, ...] = (*_WHODUNIT, *_FREED, *_HUNT, *_PLACES, *_BARRIER)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]

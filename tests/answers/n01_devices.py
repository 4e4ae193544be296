"""Wrong and right answers to the exercises of notebook 01."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.answers import Right, Wrong


def _peak(info: Any) -> tuple[float, float]:
    return (
        info.sm_count * info.fp32_lanes_per_sm * 2 * info.boost_clock_mhz / 1e6,
        2 * info.memory_clock_mhz * info.memory_bus_bits / 8 / 1e3,
    )


class _Agrees(float):
    """A number that says of itself that it is the right one."""

    def __eq__(self, other: object) -> bool:
        return True

    def __sub__(self, other: float) -> float:
        return 0.0

    __rsub__, __hash__ = __sub__, float.__hash__


def _forever(*_: Any) -> None:
    while True:
        pass


_PEAKS = (
    Wrong("01-peak", "published", lambda i: (i.fp32_tflops, i.memory_bandwidth_gbps), "", "published rate"),
    Wrong("01-peak", "one operation", lambda i: (_peak(i)[0] / 2, _peak(i)[1]), "", "two operations"),
    Wrong(
        "01-peak", "single data rate", lambda i: (_peak(i)[0], _peak(i)[1] / 2), "", "with double data rate"
    ),
    Wrong("01-peak", "bits as bytes", lambda i: (_peak(i)[0], _peak(i)[1] * 8), "", "a byte has 8 bits"),
    Wrong("01-peak", "GFLOP/s instead of TFLOP/s", lambda i: (_peak(i)[0] * 1e3, _peak(i)[1]), "", "10^12"),
    Wrong("01-peak", "MB/s instead of GB/s", lambda i: (_peak(i)[0], _peak(i)[1] * 1e3), "", "10^9"),
    Wrong("01-peak", "the other way round", lambda i: _peak(i)[::-1], "", "TFLOP/s"),
    Wrong("01-peak", "2^30 bytes", lambda i: (_peak(i)[0], _peak(i)[1] * 1e9 / 2**30), "", "not 2^30"),
    Wrong("01-peak", "one number", lambda i: _peak(i)[0], "", "Return two numbers"),
    Wrong("01-peak", "returns strings", lambda i: tuple(f"{rate:.1f}" for rate in _peak(i)), "", "Return numbers"),
    Wrong(
        "01-peak",
        "always 128 lanes per SM",
        lambda i: (i.sm_count * 128 * i.boost_clock_mhz / 1e6, _peak(i)[1]),
        "",
        "TFLOP/s",
    ),
    Wrong("01-peak", "returns nothing", lambda i: None, "", "returns nothing"),
    Wrong("01-peak", "never ends", _forever, "", "of processor time"),
    Wrong(
        "01-peak",
        "lanes by capability",
        lambda i: (
            i.sm_count
            * (64 if i.compute_capability in ((7, 0), (7, 5), (8, 0)) else 128)
            * 2e-6
            * i.boost_clock_mhz,
            _peak(i)[1],
        ),
        "",
        "but it should be",
    ),
    Wrong("01-peak", "equal to everything", lambda i: (_Agrees(1), _Agrees(1)), "", "it should be"),
    Wrong("01-peak", "too large for a float", lambda i: (10**400, 10**400), "", "it should be"),
    Right("01-peak", "as taught", _peak),
    Right("01-peak", "an array", lambda i: np.array(_peak(i))),
    Right("01-peak", "a list", lambda i: list(_peak(i))),
    Right("01-peak", "rounded", lambda i: tuple(float(f"{rate:.5g}") for rate in _peak(i))),
    Right(
        "01-peak",
        "in powers of ten",
        lambda i: (
            2e-6 * i.boost_clock_mhz * i.fp32_lanes_per_sm * i.sm_count,
            i.memory_bus_bits * i.memory_clock_mhz * 1e6 / 4 / 1e9,
        ),
    ),
)


def _pair(text: str) -> tuple[int, int]:
    return divmod(int(text), 10)


_CAPABILITIES = (
    Wrong(
        "01-capability",
        "the given function, unchanged",
        lambda t, a, b: float(f"{t[0]}.{t[1:]}") >= float(f"{a}.{b}"),
        "",
        "the last digit",
    ),
    Wrong("01-capability", "as texts", lambda t, a, b: t >= f"{a}{b}", "", ""),
    Wrong(
        "01-capability", "newer than, instead of at least", lambda t, a, b: _pair(t) > (a, b), "", "includes the version itself"
    ),
    Wrong(
        "01-capability",
        "compares the minor versions separately",
        lambda t, a, b: _pair(t)[0] >= a and _pair(t)[1] >= b,
        "",
        "only if the major versions are equal",
    ),
    Wrong("01-capability", "major alone", lambda t, a, b: _pair(t)[0] >= a, "", ""),
    Wrong(
        "01-capability",
        "first digit",
        lambda t, a, b: (int(t[0]), int(t[1:])) >= (a, b),
        "",
        "the last digit",
    ),
    Wrong("01-capability", "pairs of texts", lambda t, a, b: (t[:-1], t[-1]) >= (str(a), str(b)), "", ""),
    Wrong("01-capability", "returns the pair", lambda t, a, b: _pair(t), "", "Return True or False"),
    Wrong("01-capability", "always", lambda *_: True, "", ""),
    Wrong("01-capability", "tests for equal versions", lambda t, a, b: _pair(t) == (a, b), "", ""),
    Wrong(
        "01-capability",
        "a table of those that there are",
        lambda t, a, b: (
            {
                "75": (7, 5),
                "80": (8, 0),
                "86": (8, 6),
                "89": (8, 9),
                "90": (9, 0),
                "100": (10, 0),
                "103": (10, 3),
                "120": (12, 0),
            }.get(t, (99, 0))
            >= (a, b)
        ),
        "",
        "",
    ),
    Wrong("01-capability", "one of both", lambda t, a, b: _pair(t)[0] > a or _pair(t)[1] >= b, "", ""),
    Wrong(
        "01-capability",
        "the first two digits",
        lambda t, a, b: divmod(int(t[:2]), 10) >= (a, b),
        "",
        "the last digit",
    ),
    Right("01-capability", "pairs", lambda t, a, b: _pair(t) >= (a, b)),
    Right("01-capability", "slices", lambda t, a, b: (int(t[:-1]), int(t[-1])) >= (int(a), int(b))),
    Right("01-capability", "one number", lambda t, a, b: int(t) >= 10 * a + b),
    Right(
        "01-capability",
        "in two steps",
        lambda t, a, b: int(t) // 10 > a or (int(t) // 10 == a and int(t) % 10 >= b),
    ),
)


def _limits(info: Any, grid: Any, block: Any, shared_bytes: int) -> str:
    if math.prod(block) > info.max_threads_per_block:
        return "threads"
    if any(size > limit for size, limit in zip(block, info.max_block_dim, strict=True)):
        return "block"
    if any(size > limit for size, limit in zip(grid, info.max_grid_dim, strict=True)):
        return "grid"
    return "shared" if shared_bytes > info.shared_per_block_bytes else "ok"


def _typed_in(info: Any, grid: Any, block: Any, shared_bytes: int) -> str:
    if math.prod(block) > 1024:
        return "threads"
    if block[0] > 1024 or block[1] > 1024 or block[2] > 64:
        return "block"
    if grid[0] > 2**31 - 1 or grid[1] > 65535 or grid[2] > 65535:
        return "grid"
    return "shared" if shared_bytes > 49152 else "ok"


def _changed(**fields: Any) -> Any:
    """`_limits` that looks at an `info` in which some limits are others."""

    class Info:
        def __init__(self, info: Any) -> None:
            self.info = info

        def __getattr__(self, name: str) -> Any:
            return fields[name] if name in fields else getattr(self.info, name)

    return lambda info, *rest: _limits(Info(info), *rest)


def _reaching(info: Any, grid: Any, block: Any, shared_bytes: int) -> str:
    if math.prod(block) >= info.max_threads_per_block:
        return "threads"
    return _limits(info, grid, block, shared_bytes)


def _sum(info: Any, grid: Any, block: Any, shared_bytes: int) -> str:
    if sum(block) > info.max_threads_per_block:
        return "threads"
    return (
        "ok"
        if _limits(info, grid, block, shared_bytes) == "threads"
        else _limits(info, grid, block, shared_bytes)
    )


def _other_order(info: Any, grid: Any, block: Any, shared_bytes: int) -> str:
    if shared_bytes > info.shared_per_block_bytes:
        return "shared"
    return _limits(info, grid, block, shared_bytes)


def _grid_first(info: Any, grid: Any, block: Any, shared_bytes: int) -> str:
    if any(size > limit for size, limit in zip(grid, info.max_grid_dim, strict=True)):
        return "grid"
    return _limits(info, grid, block, shared_bytes)


def _in_a_row(info: Any, grid: Any, block: Any, shared_bytes: int) -> str:
    problems = [
        (block[0] * block[1] * block[2] > info.max_threads_per_block, "threads"),
        (not all(map(int.__le__, block, info.max_block_dim)), "block"),
        (not all(map(int.__le__, grid, info.max_grid_dim)), "grid"),
        (shared_bytes > info.shared_per_block_bytes, "shared"),
    ]
    return next((name for broken, name in problems if broken), "ok")


_LIMITS = (
    Wrong(
        "01-limits",
        "product of 32 bits",
        lambda i, g, b, s: (
            "threads"
            if int(np.prod(b, dtype=np.int32)) > i.max_threads_per_block
            else _limits(i, g, b if math.prod(b) <= i.max_threads_per_block else (1, 1, 1), s)
        ),
        "",
        "even if it is very large",
    ),
    Wrong(
        "01-limits",
        "2^40 blocks at most",
        lambda i, g, b, s: (
            "grid" if math.prod(g) > 2**40 and _limits(i, g, b, 0) == "ok" else _limits(i, g, b, s)
        ),
        "",
        "at once",
    ),
    Wrong(
        "01-limits",
        "blocks of the grid counted",
        lambda info, g, b, s: (
            "grid" if _limits(info, g, b, 0) == "ok" and math.prod(g) >= 2**31 else _limits(info, g, b, s)
        ),
        "",
        "the product of the axes has none",
    ),
    Wrong("01-limits", "limits as constants", _typed_in, "", "does not read info.max_threads_per_block"),
    Wrong(
        "01-limits",
        "shared memory typed in",
        _changed(shared_per_block_bytes=49152),
        "",
        "does not read info.shared_per_block_bytes",
    ),
    Wrong(
        "01-limits",
        "block typed in",
        _changed(max_block_dim=(1024, 1024, 64)),
        "",
        "does not read info.max_block_dim",
    ),
    Wrong(
        "01-limits",
        "grid typed in",
        _changed(max_grid_dim=(2**31 - 1, 65535, 65535)),
        "",
        "does not read info.max_grid_dim",
    ),
    Wrong("01-limits", "refuses the limit itself", _reaching, "", "compare with >"),
    Wrong("01-limits", "adds the axes", _sum, "", ""),
    Wrong("01-limits", "tests shared memory first", _other_order, "", "comes before shared memory"),
    Wrong("01-limits", "tests the grid before the block", _grid_first, "", "the block comes before the grid"),
    Wrong("01-limits", "does not test the grid", lambda i, g, b, s: _limits(i, (1, 1, 1), b, s), "", "grid"),
    Wrong("01-limits", "x axis alone", lambda i, g, b, s: _limits(i, (g[0], 1, 1), b, s), "", "grid"),
    Wrong(
        "01-limits",
        "the opt-in limit of shared memory",
        lambda i, g, b, s: _limits(i, g, b, s if s > i.shared_per_block_optin_bytes else 0),
        "",
        "default limit",
    ),
    Wrong("01-limits", "True or False", lambda *a: _limits(*a) == "ok", "", "it should be 'ok'"),
    Wrong(
        "01-limits",
        "y's limit for z",
        lambda i, g, b, s: _limits(i, (g[0], max(g[1:]), 1), b, s),
        "",
        "on a device with",
    ),
    Wrong(
        "01-limits",
        "grid in x without a limit",
        lambda i, g, b, s: _limits(i, (1, *g[1:]), b, s),
        "",
        "max_grid_dim",
    ),
    Wrong(
        "01-limits",
        "compares tuples",
        lambda i, g, b, s: (
            "grid" if g > i.max_grid_dim and b <= i.max_block_dim else _limits(i, (1, 1, 1), b, s)
        ),
        "",
        "",
    ),
    Right("01-limits", "as taught", _limits),
    Right("01-limits", "in a row", _in_a_row),
    Right(
        "01-limits",
        "axes one by one",
        lambda i, g, b, s: (
            "threads"
            if b[0] * b[1] * b[2] > i.max_threads_per_block
            else "block"
            if b[0] > i.max_block_dim[0] or b[1] > i.max_block_dim[1] or b[2] > i.max_block_dim[2]
            else "grid"
            if g[0] > i.max_grid_dim[0] or g[1] > i.max_grid_dim[1] or g[2] > i.max_grid_dim[2]
            else "shared"
            if s > i.shared_per_block_bytes
            else "ok"
        ),
    ),
    Right("01-limits", "with match", lambda i, g, b, s: ("ok", _limits(i, g, b, s))[1]),
)


def _leaves(cp: Any, device_id: int, n: int) -> Any:
    cp.cuda.Device(device_id).use()
    return cp.arange(n)


def _by_hand(cp: Any, device_id: int, n: int) -> Any:
    before = cp.cuda.Device()
    cp.cuda.Device(device_id).use()
    made = cp.arange(n)
    before.use()
    return made


def _back_to_0(cp: Any, device_id: int, n: int) -> Any:
    cp.cuda.Device(device_id).use()
    made = cp.arange(n)
    cp.cuda.Device(0).use()
    return made


def _finally(cp: Any, device_id: int, n: int) -> Any:
    before = cp.cuda.runtime.getDevice()
    cp.cuda.runtime.setDevice(device_id)
    try:
        return cp.arange(n)
    finally:
        cp.cuda.runtime.setDevice(before)


def _with(cp: Any, device_id: int, n: int) -> Any:
    with cp.cuda.Device(device_id):
        return cp.arange(n)


def _made_as(expression: Any) -> Any:
    """On the right device, but not always what is asked for."""

    def make_on(cp: Any, device_id: int, n: int) -> Any:
        with cp.cuda.Device(device_id):
            return expression(cp, n)

    return make_on


def _with_device_1(cp: Any, device_id: int, n: int) -> Any:
    with cp.cuda.Device(1):
        return cp.arange(n)


def _host(cp: Any, device_id: int, n: int) -> Any:
    with cp.cuda.Device(device_id):
        return cp.asnumpy(cp.arange(n))


def _outside(cp: Any, device_id: int, n: int) -> Any:
    with cp.cuda.Device(device_id):
        pass
    return cp.arange(n)


def _from_one(cp: Any, device_id: int, n: int) -> Any:
    with cp.cuda.Device(device_id):
        return cp.arange(1, n + 1)


def _copied(cp: Any, device_id: int, n: int) -> Any:
    import numpy as np

    with cp.cuda.Device(device_id):
        return cp.asarray(np.arange(n))


def _named(cp: Any, device_id: int, n: int) -> Any:
    there = cp.cuda.Device(device_id)
    there.__enter__()
    try:
        return cp.cumsum(cp.ones(n, dtype="int64")) - 1
    finally:
        there.__exit__(None, None, None)


def _swallows(cp: Any, device_id: int, n: int) -> Any:
    with cp.cuda.Device(device_id):
        try:
            return cp.arange(n)
        except cp.cuda.memory.OutOfMemoryError:
            return None


def _falls_back(cp: Any, device_id: int, n: int) -> Any:
    try:
        with cp.cuda.Device(device_id):
            return cp.arange(n)
    except cp.cuda.memory.OutOfMemoryError:
        return cp.arange(n)


def _kept_for(key: Any) -> Any:
    """Hands out what it has made before."""
    kept: dict[Any, Any] = {}

    def make_on(cp: Any, device_id: int, n: int) -> Any:
        if key(device_id, n) not in kept:
            kept[key(device_id, n)] = _with(cp, device_id, n)
        return kept[key(device_id, n)]

    return make_on


def _lifts_the_limit(cp: Any, device_id: int, n: int) -> Any:
    with cp.cuda.Device(device_id):
        cp.get_default_memory_pool().set_limit(size=0)
        return cp.arange(n)


_SELECTED = (
    Wrong(
        "01-select", "hides that memory ran out", _swallows, "", "returns nothing: do not catch the exception"
    ),
    Wrong("01-select", "falls back to the caller's device", _falls_back, "", "elements on device"),
    Wrong("01-select", "kept by size", _kept_for(lambda device_id, n: n), "", "makes the array on device"),
    Wrong(
        "01-select",
        "kept by size and device",
        _kept_for(lambda device_id, n: (device_id, n)),
        "",
        "element 0 is 9",
    ),
    Wrong("01-select", "leaves it", _leaves, "", "The caller's device must be current"),
    Wrong("01-select", "use() without a with block", _by_hand, "", "runs out of memory and leaves device"),
    Wrong("01-select", "back to 0", _back_to_0, "", "leaves device"),
    Wrong("01-select", "always device 1", _with_device_1, "", "makes the array on device 1"),
    Wrong("01-select", "on the host", _host, "", "Return the device array"),
    Wrong("01-select", "after the block", _outside, "", "makes the array on device"),
    Wrong("01-select", "from one", _from_one, "", "it should be 0"),
    Wrong("01-select", "no device", lambda cp, device_id, n: cp.arange(n), "", "makes the array on device 0"),
    Wrong("01-select", "nothing", lambda cp, device_id, n: None, "", "returns nothing"),
    Wrong(
        "01-select",
        "the device",
        lambda cp, device_id, n: cp.cuda.Device(device_id),
        "",
        "Return the device array",
    ),
    Wrong("01-select", "always five elements", _made_as(lambda cp, n: cp.arange(5)), "", "it should be (1,)"),
    Wrong("01-select", "elements of 8 bits", _made_as(lambda cp, n: cp.arange(n).astype(cp.int8)), "", "it should be 128"),
    Wrong(
        "01-select",
        "elements of 16 bits",
        _made_as(lambda cp, n: cp.arange(n).astype(cp.uint16)),
        "",
        "it should be 65,536",
    ),
    Wrong(
        "01-select",
        "float elements",
        _made_as(lambda cp, n: cp.arange(n, dtype=cp.float32)),
        "",
        "must be integers",
    ),
    Right("01-select", "with", _with),
    Right("01-select", "lifts the pool's limit", _lifts_the_limit),
    Right(
        "01-select",
        "every other element",
        _made_as(lambda cp, n: cp.arange(2 * n, dtype=cp.uint32)[::2] // 2),
    ),
    Wrong(
        "01-select",
        "by way of float32",
        _made_as(lambda cp, n: cp.arange(n, dtype=cp.float32).astype(int)),
        "",
        "cannot represent every integer",
    ),
    Right("01-select", "32 bits", _made_as(lambda cp, n: cp.arange(n, dtype=cp.int32))),
    Right("01-select", "finally", _finally),
    Right("01-select", "copied from the host", _copied),
    Right("01-select", "enter and exit", _named),
)


def _seconds(info: Any, moved: float, flop: float) -> float:
    return float(max(moved / info.memory_bandwidth_gbps / 1e9, flop / info.fp32_tflops / 1e12))


def _fitting(gpus: Any, memory: float) -> list[Any]:
    return [info for info in gpus if info.memory_bytes >= memory]


def _choose(gpus: Any, memory: float, moved: float, flop: float) -> Any:
    fitting = _fitting(gpus, memory)
    return min(fitting, key=lambda info: _seconds(info, moved, flop)).name if fitting else None


def _best(gpus: Any, value: Any) -> Any:
    return max(gpus, key=value).name if gpus else None


def _loop(gpus: Any, memory: float, moved: float, flop: float) -> Any:
    name, least = None, math.inf
    for info in gpus:
        if memory <= info.memory_bytes and (took := _seconds(info, moved, flop)) < least:
            name, least = info.name, took
    return name


def _best_then_fits(gpus: Any, memory: float, moved: float, flop: float) -> Any:
    best = min(gpus, key=lambda info: _seconds(info, moved, flop), default=None)
    return best.name if best is not None and best.memory_bytes >= memory else None


_CHOICES = (
    Wrong("01-choose", "the fastest, if it fits", _best_then_fits, "", "a GPU whose memory is too small"),
    Wrong(
        "01-choose",
        "one after the other",
        lambda g, m, b, f: _best(
            _fitting(g, m), lambda i: -b / i.memory_bandwidth_gbps / 1e9 - f / i.fp32_tflops / 1e12
        ),
        "",
        "overlap",
    ),
    Wrong(
        "01-choose",
        "the best of both",
        lambda g, m, b, f: _best(_fitting(g, m), lambda i: i.memory_bandwidth_gbps * i.fp32_tflops),
        "",
        "",
    ),
    Wrong(
        "01-choose",
        "compares only the bandwidth",
        lambda g, m, b, f: _best(_fitting(g, m), lambda i: i.memory_bandwidth_gbps),
        "",
        "FP32 arithmetic decides",
    ),
    Wrong(
        "01-choose",
        "compares only arithmetic",
        lambda g, m, b, f: _best(_fitting(g, m), lambda i: i.fp32_tflops),
        "",
        "bandwidth decides",
    ),
    Wrong(
        "01-choose",
        "rounds memory to whole GB",
        lambda g, m, b, f: _choose([i for i in g if i.memory_bytes // 10**9 >= m // 10**9], 0, b, f),
        "",
        "memory is too small",
    ),
    Wrong(
        "01-choose",
        "memory alone",
        lambda g, m, b, f: _best(_fitting(g, m), lambda i: i.memory_bytes),
        "",
        "",
    ),
    Wrong(
        "01-choose",
        "whether it fits or not",
        lambda g, m, b, f: _choose(g, 0, b, f),
        "",
        "no GPU has enough memory",
    ),
    Wrong(
        "01-choose",
        "fails if none fits",
        lambda g, m, b, f: min(_fitting(g, m), key=lambda i: _seconds(i, b, f)).name,
        "",
        "raised ValueError",
    ),
    Wrong(
        "01-choose",
        "the slowest",
        lambda g, m, b, f: (
            max(_fitting(g, m), key=lambda i: _seconds(i, b, f)).name if _fitting(g, m) else None
        ),
        "",
        "it should be",
    ),
    Wrong(
        "01-choose",
        "by capability",
        lambda g, m, b, f: _best(_fitting(g, m), lambda i: i.compute_capability),
        "",
        "",
    ),
    Wrong(
        "01-choose",
        "the only one, whatever its memory",
        lambda g, m, b, f: g[0].name if len(g) == 1 else _choose(g, m, b, f),
        "",
        "it should be None",
    ),
    Wrong(
        "01-choose",
        "returns the GPU instead of its name",
        lambda g, m, b, f: (
            next(i for i in g if i.name == _choose(g, m, b, f)) if _choose(g, m, b, f) else None
        ),
        "",
        "Return the `.name`",
    ),
    Wrong(
        "01-choose",
        "the faster of the two",
        lambda g, m, b, f: (
            min(
                _fitting(g, m), key=lambda i: min(b / i.memory_bandwidth_gbps / 1e9, f / i.fp32_tflops / 1e12)
            ).name
            if _fitting(g, m)
            else None
        ),
        "",
        "",
    ),
    Wrong(
        "01-choose",
        "TB for GB",
        lambda g, m, b, f: (
            min(
                _fitting(g, m),
                key=lambda i: max(b / i.memory_bandwidth_gbps / 1e12, f / i.fp32_tflops / 1e12),
            ).name
            if _fitting(g, m)
            else None
        ),
        "",
        "",
    ),
    Wrong(
        "01-choose", "2^40 operations a second", lambda g, m, b, f: _choose(g, m, b, f * 1e12 / 2**40), "", ""
    ),
    Wrong("01-choose", "only with room to spare", lambda g, m, b, f: _choose(g, 1.1 * m, b, f), "", ""),
    Wrong("01-choose", "prints the name instead of returning it", lambda *a: print(_choose(*a)), "", "it should be"),
    Right("01-choose", "the slower of the two", _choose),
    Right("01-choose", "a loop", _loop),
    Right(
        "01-choose",
        "sorted",
        lambda g, m, b, f: next(
            (i.name for i in sorted(g, key=lambda i: _seconds(i, b, f)) if i.memory_bytes >= m), None
        ),
    ),
    Right(
        "01-choose",
        "by rates",
        lambda g, m, b, f: (
            max(
                _fitting(g, m), key=lambda i: min(i.memory_bandwidth_gbps * 1e9 / b, i.fp32_tflops * 1e12 / f)
            ).name
            if _fitting(g, m)
            else None
        ),
    ),
)

_ALL: tuple[Wrong | Right, ...] = (*_PEAKS, *_CAPABILITIES, *_LIMITS, *_SELECTED, *_CHOICES)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]

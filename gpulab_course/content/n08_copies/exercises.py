"""Exercises of notebook 08."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab import session
from gpulab.words import count as counted
from gpulab_course.content.n08_copies.memory import mapped
from gpulab_course.teach.judge import Budget, Draw, Near, ProgramCase, ProgramExercise, Row

_NOT_ON_THE_HOST = (
    ("Unsupported type", "That is a NumPy array among device arrays; keep all of the work on the device."),
    ("Implicit conversion", "A NumPy function was given a device array; use the function of cp."),
)
_NO_WAIT = "float(), .item(), .get() and synchronize() make the host stand still; a device array needs none."


# 08-stay


def stay_sizes(rng: np.random.Generator) -> tuple[tuple[int, float], ...]:
    """Elements, and limits: fractions, nothing, more than there is."""
    n = int(rng.integers(2_000, 9_000))
    limit = float(rng.uniform(0.1, 3.0))
    return (
        (1, 1.5),
        (2, 0.0),
        (33, 0.375),
        (257, 1e30),
        (40, -5.0),
        (41, math.inf),
        (1000, float(rng.uniform(1, 300))),
        (n, limit),
        (10_000, 200.0),
    )


def stay_case(drawn: Draw, size: tuple[int, float]) -> ProgramCase:
    """Numbers of every kind above their minimum, cut off at a limit."""
    n, limit = size
    x = drawn.integers(n, -100, 400).astype(np.float32)
    if limit < 100:
        x = x / np.float32(64)
    if 1e20 < limit < math.inf:
        x = x * np.float32(1e28)
    return _stay_of(x, limit)


def stay_matrix(drawn: Draw, shape: tuple[int, int]) -> ProgramCase:
    """One smallest element for all rows and columns."""
    return _stay_of(drawn.integers(shape, -100, 400).astype(np.float32), 150.0)


def _stay_of(x: Any, limit: float) -> ProgramCase:
    return ProgramCase(
        (x, limit),
        np.minimum(x - x.min(), np.float32(limit)),
        True,
        f"prepare(x, {limit:g}) with {counted(x.size, 'element')}",
        place="device",
        unchanged=True,
        mistakes=((x - x.min(), "What lies above the limit is to be cut off."),),
    )


def prepare(x: Any, limit: float) -> Any:
    """The reference: three kernels, without a wait."""
    cp = session.cp()
    return cp.minimum(x - x.min(), limit)


def prepare_there_and_back(x: Any, limit: float) -> Any:
    """The naive version: as given in the notebook."""
    cp = session.cp()
    low = float(x.min())
    shifted = cp.asarray(x.get() - np.float32(low))
    return cp.minimum(shifted, cp.asarray(np.full(x.shape, limit, np.float32)))


STAY = ProgramExercise(
    "08-stay",
    "Stay there",
    "prepare",
    stay_case,
    prepare,
    prepare_there_and_back,
    level="warm-up",
    kind="repair",
    sizes=stay_sizes,
    checked=True,
    table=(Row("a matrix", stay_matrix, ((5, 9), (33, 2))),),
    rules=4,
    budgets=(
        Budget("to_host_copies", "x - x.min() subtracts on the device: nothing has to come home.", most=0),
        Budget("to_device_copies", "A number goes along with the launch: no array has to be sent.", most=0),
        Budget("waits", _NO_WAIT, most=0),
    ),
    advice=_NOT_ON_THE_HOST,
    praise="the data never leaves the device, and the host never waits.",
)


# 08-report


def report_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Elements, and where they lie: on either side of 0, all above it, all below it."""
    return (
        (1, 0),
        (2, 1),
        (33, -1),
        (int(rng.integers(500, 5000)), 1),
        (int(rng.integers(2000, 9000)), -1),
        (10_000, 0),
    )


def report_case(drawn: Draw, size: tuple[int, int]) -> ProgramCase:
    """Smallest, largest and sum: of whole numbers, or of fractions on one side of 0."""
    n, side = size
    x = drawn.integers(n, -50, 51).astype(np.float32)
    if side:  # near 0, and far from all that a program may begin with
        least = 1 if n < 100 else int(drawn.rng.integers(100_000, 1_000_000))
        x = (side * (least + np.abs(drawn.floats(n) * 300))).astype(np.float32)
    return _report_of(x)


def _report_of(x: Any) -> ProgramCase:
    n = x.size
    with np.errstate(invalid="ignore"):
        right = np.array([x.min(), x.max(), x.sum(dtype=np.float64)], np.float32)
        mean = np.array([x.min(), x.max(), x.mean()], np.float32)
    # The first two are exact.
    near = Near(right, np.array([0, 0, np.abs(x).sum(dtype=np.float64)]), 16)
    label = f"report(x) with {counted(n, 'element')}"
    known = ((mean, "The third is the sum, not the mean."),)
    return ProgramCase((x,), near, True, label, known, place="host", unchanged=True)


def _special(*values: float) -> Any:
    """A row's case: small numbers, and these among them."""

    def case(drawn: Draw, n: int) -> ProgramCase:
        x = drawn.integers(n, -50, 51).astype(np.float32)
        x[drawn.rng.permutation(n)[: len(values)]] = values
        return _report_of(x)

    return case


_REPORTS = (
    Row("a NaN among them", _special(np.nan), (1, 40)),
    Row("infinity among them", _special(np.inf), (1, 40)),
    Row("infinities of both signs", _special(np.inf, -np.inf), (2, 40)),
    Row(
        "a matrix",
        lambda drawn, shape: _report_of(drawn.integers(shape, -50, 51).astype(np.float32)),
        ((5, 9),),
    ),
    Row("all alike", lambda drawn, n: _report_of(np.full(n, -3.5, np.float32)), (40,)),
)


def report(x: Any) -> Any:
    """The reference: three sums into one array, and one copy of that array to the host."""
    cp = session.cp()
    return cp.stack([x.min(), x.max(), x.sum()]).get()


def report_one_by_one(x: Any) -> Any:
    """The naive version: every number waits for a copy of its own."""
    return np.array([float(x.min()), float(x.max()), float(x.sum())], np.float32)


REPORT = ProgramExercise(
    "08-report",
    "Three numbers, one way home",
    "report",
    report_case,
    report,
    report_one_by_one,
    sizes=report_sizes,
    table=_REPORTS,
    checked=True,
    rules=4,
    budgets=(
        Budget("to_host_bytes", "Reduce on the device: three numbers are 12 bytes.", allowance=2),
        Budget("to_host_copies", "Put the three beside each other on the device, then copy once.", most=1),
        Budget("waits", "Each float() and each .get() waits. One is enough.", most=1),
        Budget("to_device_copies", "Nothing has to be sent: the three are on the device already.", most=0),
    ),
    advice=_NOT_ON_THE_HOST,
    praise="one small copy, and one wait.",
)


# 08-pack


def pack_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Numbers of arrays, each with the index of the empty array."""
    some = int(rng.integers(20, 60))
    return (1, -1), (2, 0), (3, 1), (3, 2), (some, some // 2), (64, 32)


def pack_case(drawn: Draw, size: tuple[int, int]) -> ProgramCase:
    """Arrays of all lengths, an empty one among them; large, small and whole numbers, infinities, NaN."""
    count, empty = size
    lengths = drawn.rng.integers(1, 900, count)
    if empty >= 0:
        lengths[empty] = 0
    if count == 3:
        lengths[0] += 70_000  # beyond 16 bits
    parts = [drawn.floats(int(n)) * np.float32(drawn.rng.choice([1e-30, 1, 1000, 1e30])) for n in lengths]
    for part, special in zip(reversed(parts), (np.inf, -0.0, np.nan, 1e-44), strict=False):
        part[:1] = special
    return _pack_of(parts)


def pack_nothing(drawn: Draw, count: int) -> ProgramCase:
    """Arrays without elements."""
    return _pack_of([np.empty(0, np.float32) for _ in range(count)])


def _pack_of(parts: list[Any]) -> ProgramCase:
    label = f"upload(parts) with {counted(len(parts), 'array')}"
    return ProgramCase((parts,), tuple(parts), False, label, place="device")


def upload(parts: Any) -> Any:
    """The reference: one array, one copy, views of it."""
    cp = session.cp()
    flat = cp.asarray(np.concatenate(parts))
    ends = np.cumsum([part.size for part in parts]).tolist()
    return tuple(flat[end - part.size : end] for part, end in zip(parts, ends, strict=True))


def upload_one_by_one(parts: Any) -> Any:
    """The naive version: a copy for each."""
    cp = session.cp()
    return tuple(cp.asarray(part) for part in parts)


PACK = ProgramExercise(
    "08-pack",
    "One parcel",
    "upload",
    pack_case,
    upload,
    upload_one_by_one,
    sizes=pack_sizes,
    table=(Row("all of them empty", pack_nothing, (1, 3)),),
    checked=True,
    rules=4,
    budgets=(
        Budget(
            "to_device_copies",
            "Concatenate on the host, copy once, and return slices of that array.",
            least=1,
            most=1,
        ),
        Budget("to_host_copies", "The host knows lengths and offsets; nothing has to come back.", most=0),
        Budget("waits", _NO_WAIT, most=0),
    ),
    advice=(("is not in device memory", "cp.asarray(x) copies a NumPy array to the device."),),
    praise="one copy, whatever the number of arrays.",
)


# 08-ring


def ring_sizes(rng: np.random.Generator) -> tuple[tuple[Any, ...], ...]:
    """Shapes, and kinds of numbers: one piece, two, very many, pieces that are matrices."""
    many = int(rng.integers(100, 200))
    n = int(rng.integers(1_000, 9_000))
    small = ((1, 33), "f4"), ((2, 1), "i4"), ((3, 7, 5), "f8"), ((5, 11), "u1"), ((4, 3), "f2"), ((7, 2), "?")
    return *small, ((many, 9), "i8"), ((int(rng.integers(14, 20)), n), "f4"), ((6, 1 << 16), "f4")


def ring_case(drawn: Draw, size: Any) -> ProgramCase:
    """Pieces of a larger array, which may go through two small buffers only."""
    shape, kind = size
    if np.dtype(kind).itemsize < 4:
        data = drawn.integers(shape, 0, 250).astype(kind)
    else:
        data = (drawn.floats(shape, np.float64) * (1 << 20)).astype(kind)
    n = int(np.prod(shape[1:]))
    label = f"stream_in(data) with {counted(shape[0], 'piece')} of {n:,} elements"
    return ProgramCase((data,), data, False, label, place="device", unchanged=True)


def stream_in(data: Any) -> Any:
    """The reference: two buffers in turn, each refilled when its last copy has ended."""
    cp = session.cp()
    cupyx = session.cupyx()
    out = cp.empty(data.shape, data.dtype)
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    buffers = [cupyx.empty_pinned(data.shape[1:], data.dtype) for _ in range(2)]
    sent = [cp.cuda.Event(disable_timing=True) for _ in buffers]
    for i, piece in enumerate(data):
        if i >= 2:
            sent[i % 2].synchronize()
        buffers[i % 2][...] = piece
        out[i].set(buffers[i % 2], stream=stream)
        sent[i % 2].record(stream)
    stream.synchronize()
    return out


def stream_in_pageable(data: Any) -> Any:
    """The naive version: right, because the driver waits."""
    cp = session.cp()
    out = cp.empty(data.shape, data.dtype)
    for i, piece in enumerate(data):
        out[i].set(piece)
    return out


RING = ProgramExercise(
    "08-ring",
    "The buffer that was still in use",
    "stream_in",
    ring_case,
    stream_in,
    stream_in_pageable,
    level="stretch",
    kind="repair",
    sizes=ring_sizes,
    checked=True,
    budgets=(
        Budget("pageable_copies", "Copy from the page-locked buffers, not from `data` itself.", most=0),
        Budget("to_device_bytes", "Each piece goes once.", allowance=1.0),
        Budget(
            "waits",
            "Wait for a buffer's last copy before it is filled again, and once at the end.",
            allowance=1.5,
            least=1,
            large=True,
        ),
    ),
    advice=(("changed", "Before you fill a buffer again, let the host wait for its last copy."),),
    praise="no buffer is touched while a copy reads it.",
)


# 08-lookup


class Wanted:
    """The rows that a kernel has chosen: calling it gives their numbers, on the device."""

    def __init__(self, rows: npt.NDArray[np.int32]) -> None:
        self._rows = rows

    def __call__(self) -> Any:
        return session.cp().asarray(self._rows) + 0


def lookup_sizes(rng: np.random.Generator) -> tuple[tuple[Any, ...], ...]:
    """Rows, columns, how many rows are wanted, and the kind of numbers."""
    rows, width, count = (int(rng.integers(low, 2 * low)) for low in (20_000, 8, 20))
    small = (1, 1, 1, "f4"), (100, 8, 5, "i4"), (1000, 33, 7, "f8")
    return *small, (rows, width, count, "f4"), (50_000, 16, 40, "f4")


def lookup_case(drawn: Draw, size: Any) -> ProgramCase:
    """A few rows of a large table, chosen on the device: the last and the first, one of them twice."""
    rows, width, count, kind = size
    table = (drawn.floats((rows, width), np.float64) * (1 << 20)).astype(kind)
    chosen = drawn.rng.integers(0, rows, count).astype(np.int32)
    chosen[-3:] = (rows - 1, 0, chosen[0])[-count:]
    label = f"lookup(table, choose) with {count} of {rows:,} rows"
    return ProgramCase((table, Wanted(chosen)), table[chosen], False, label, place="device", unchanged=True)


def with_pinned_table(bench: Any, program: Any, table: Any, choose: Any) -> Any:
    """Call a program with the table in pinned memory, which is kept until all work has ended."""
    return program(bench.pinned(table), choose)


def lookup(table: Any, choose: Any) -> Any:
    """The reference: the kernel reads the rows from host memory over the bus."""
    return mapped(table)[choose()]


def lookup_in_a_copy(table: Any, choose: Any) -> Any:
    """The naive version: the whole table goes to the device."""
    return session.cp().asarray(table)[choose()]


LOOKUP = ProgramExercise(
    "08-lookup",
    "Four rows of a large table",
    "lookup",
    lookup_case,
    lookup,
    lookup_in_a_copy,
    level="stretch",
    sizes=lookup_sizes,
    checked=True,
    calls=with_pinned_table,
    budgets=(
        Budget(
            "bus_bytes",
            "Let the kernel read the table where it lies: only what it reads travels.",
            allowance=3,
            large=True,
        ),
        Budget("waits", "The numbers of the rows are on the device; leave them there.", most=0),
    ),
    advice=(
        ("is pageable host memory", "A kernel reads pinned memory only; the table is in it: use that."),
        ("given back", "What a kernel still reads must stay: use the table itself, or wait for the kernel."),
        *_NOT_ON_THE_HOST,
    ),
    praise="only the rows that were asked for crossed the bus.",
)

EXERCISES = (STAY, REPORT, PACK, RING, LOOKUP)

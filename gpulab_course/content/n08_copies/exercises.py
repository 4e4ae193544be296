"""Exercises of notebook 08."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab import session
from gpulab.words import count as counted
from gpulab_course.content.n08_copies.memory import mapped
from gpulab_course.teach.judge import (
    Budget,
    DataGenerator,
    ExpectedFloats,
    ProgramCase,
    ProgramExercise,
    SpecialInput,
)

_HOST_ARRAY_ADVICE = (
    (
        "Unsupported type",
        (
            "One operand is a NumPy array, and the others are device arrays: keep all of the work on the "
            "device."
        ),
    ),
    ("Implicit conversion", "A NumPy function cannot take a device array: use the function of cp."),
)
_NO_WAIT_ADVICE = (
    "float(), .item(), .get() and synchronize() make the host wait: work with device arrays without them."
)


# 08-stay


def draw_stay_sizes(rng: np.random.Generator) -> tuple[tuple[int, float], ...]:
    """Return pairs of a length and an upper limit for the tests. Some limits are 0 or negative."""
    n = int(rng.integers(2_000, 9_000))
    upper_limit = float(rng.uniform(0.1, 3.0))
    return (
        (1, 1.5),
        (2, 0.0),
        (33, 0.375),
        (257, 1e30),
        (40, -5.0),
        (41, math.inf),
        (1000, float(rng.uniform(1, 300))),
        (n, upper_limit),
        (10_000, 200.0),
    )


def draw_stay_case(data: DataGenerator, size: tuple[int, float]) -> ProgramCase:
    """Return a test case for a program that subtracts the minimum from an array, and then limits the
    differences.
    """
    n, upper_limit = size
    x = data.integers(n, -100, 400).astype(np.float32)
    if upper_limit < 100:
        x = x / np.float32(64)
    if 1e20 < upper_limit < math.inf:
        x = x * np.float32(1e28)
    return _make_stay_case(x, upper_limit)


def make_stay_matrix_case(data: DataGenerator, shape: tuple[int, int]) -> ProgramCase:
    """Return a test case with a matrix, whose minimum is taken over all of its elements."""
    return _make_stay_case(data.integers(shape, -100, 400).astype(np.float32), 150.0)


def _make_stay_case(x: Any, limit: float) -> ProgramCase:
    return ProgramCase(
        (x, limit),
        np.minimum(x - x.min(), np.float32(limit)),
        True,
        f"prepare(x, {limit:g}) with {counted(x.size, 'element')}",
        required_place="device",
        keeps_arguments=True,
        known_mistakes=((x - x.min(), "Elements above the limit must be set to the limit."),),
    )


def prepare(x: Any, limit: float) -> Any:
    """The reference solution, which launches three kernels and never waits for the device."""
    cp = session.cp()
    return cp.minimum(x - x.min(), limit)


def prepare_there_and_back(x: Any, limit: float) -> Any:
    """The naive version from the notebook, which copies the data to the host and back."""
    cp = session.cp()
    minimum = float(x.min())
    shifted_x = cp.asarray(x.get() - np.float32(minimum))
    return cp.minimum(shifted_x, cp.asarray(np.full(x.shape, limit, np.float32)))


STAY = ProgramExercise(
    "08-stay",
    "Stay there",
    "prepare",
    draw_stay_case,
    prepare,
    prepare_there_and_back,
    level="warm-up",
    kind="repair",
    sizes=draw_stay_sizes,
    checks_stream_order=True,
    table=(SpecialInput("a matrix", make_stay_matrix_case, ((5, 9), (33, 2))),),
    rules=4,
    budgets=(
        Budget(
            "to_host_copies",
            "x - x.min() subtracts on the device: nothing has to be copied to the host.",
            max_count=0,
        ),
        Budget(
            "to_device_copies",
            "A Python number is passed with the launch, so do not make an array of it on the host.",
            max_count=0,
        ),
        Budget("waits", _NO_WAIT_ADVICE, max_count=0),
    ),
    advice=_HOST_ARRAY_ADVICE,
    praise="the data never leaves the device, and the host never waits.",
)


# 08-report


def draw_report_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Return pairs of a length and a sign for the tests. The sign 0 means that the numbers have both
    signs.
    """
    return (
        (1, 0),
        (2, 1),
        (33, -1),
        (int(rng.integers(500, 5000)), 1),
        (int(rng.integers(2000, 9000)), -1),
        (10_000, 0),
    )


def draw_report_case(data: DataGenerator, size: tuple[int, int]) -> ProgramCase:
    """Return a test case for a program that returns the minimum, the maximum and the sum of numbers."""
    n, sign = size
    x = data.integers(n, -50, 51).astype(np.float32)
    if sign:  # far from all values with which a program may start its minimum or maximum
        min_magnitude = 1 if n < 100 else int(data.rng.integers(100_000, 1_000_000))
        x = (sign * (min_magnitude + np.abs(data.floats(n) * 300))).astype(np.float32)
    return _make_report_case(x)


def _make_report_case(x: Any) -> ProgramCase:
    n = x.size
    with np.errstate(invalid="ignore"):
        expected = np.array([x.min(), x.max(), x.sum(dtype=np.float64)], np.float32)
        expected_with_mean = np.array([x.min(), x.max(), x.mean()], np.float32)
    # The first two are exact.
    tolerant_expected = ExpectedFloats(expected, np.array([0, 0, np.abs(x).sum(dtype=np.float64)]), 16)
    label = f"report(x) with {counted(n, 'element')}"
    mistakes = ((expected_with_mean, "The third number must be the sum, not the mean."),)
    return ProgramCase(
        (x,), tolerant_expected, True, label, mistakes, required_place="host", keeps_arguments=True
    )


def _make_special_values_case_maker(*values: float) -> Any:
    """Return a function that creates a test case with small numbers, some of which are replaced by the given
    values.
    """

    def make_case(data: DataGenerator, n: int) -> ProgramCase:
        x = data.integers(n, -50, 51).astype(np.float32)
        x[data.rng.permutation(n)[: len(values)]] = values
        return _make_report_case(x)

    return make_case


_REPORT_ROWS = (
    SpecialInput("a NaN among them", _make_special_values_case_maker(np.nan), (1, 40)),
    SpecialInput("infinity among them", _make_special_values_case_maker(np.inf), (1, 40)),
    SpecialInput("infinities of both signs", _make_special_values_case_maker(np.inf, -np.inf), (2, 40)),
    SpecialInput(
        "a matrix",
        lambda data, shape: _make_report_case(data.integers(shape, -50, 51).astype(np.float32)),
        ((5, 9),),
    ),
    SpecialInput("all alike", lambda data, n: _make_report_case(np.full(n, -3.5, np.float32)), (40,)),
)


def report(x: Any) -> Any:
    """The reference solution, which runs three reductions and copies their results to the host once."""
    cp = session.cp()
    return cp.stack([x.min(), x.max(), x.sum()]).get()


def report_one_by_one(x: Any) -> Any:
    """The naive version, which copies each number separately and waits for each copy."""
    return np.array([float(x.min()), float(x.max()), float(x.sum())], np.float32)


REPORT = ProgramExercise(
    "08-report",
    "Three numbers, one copy",
    "report",
    draw_report_case,
    report,
    report_one_by_one,
    sizes=draw_report_sizes,
    table=_REPORT_ROWS,
    checks_stream_order=True,
    rules=4,
    budgets=(
        Budget(
            "to_host_bytes",
            "Reduce on the device, and copy only the results: three numbers are 12 bytes.",
            max_reference_factor=2,
        ),
        Budget("to_host_copies", "Combine the three numbers on the device, then copy once.", max_count=1),
        Budget("waits", "Each float() and each .get() makes the host wait: one is enough.", max_count=1),
        Budget(
            "to_device_copies",
            "The three numbers are already on the device: copy nothing to it.",
            max_count=0,
        ),
    ),
    advice=_HOST_ARRAY_ADVICE,
    praise="the program makes one small copy, and waits once.",
)


# 08-pack


def draw_pack_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Return pairs of a number of arrays and the index of the empty array for the tests."""
    array_count = int(rng.integers(20, 60))
    return (1, -1), (2, 0), (3, 1), (3, 2), (array_count, array_count // 2), (64, 32)


def draw_pack_case(data: DataGenerator, size: tuple[int, int]) -> ProgramCase:
    """Return a test case with arrays of several lengths, which contain special values. One of the arrays may
    be empty.
    """
    array_count, empty_index = size
    lengths = data.rng.integers(1, 900, array_count)
    if empty_index >= 0:
        lengths[empty_index] = 0
    if array_count == 3:
        lengths[0] += 70_000  # beyond 16 bits
    arrays = [data.floats(int(n)) * np.float32(data.rng.choice([1e-30, 1, 1000, 1e30])) for n in lengths]
    for array, special_value in zip(reversed(arrays), (np.inf, -0.0, np.nan, 1e-44), strict=False):
        array[:1] = special_value
    return _make_pack_case(arrays)


def make_empty_pack_case(data: DataGenerator, count: int) -> ProgramCase:
    """Return a test case with `count` empty arrays."""
    return _make_pack_case([np.empty(0, np.float32) for _ in range(count)])


def _make_pack_case(arrays: list[Any]) -> ProgramCase:
    label = f"upload(parts) with {counted(len(arrays), 'array')}"
    return ProgramCase((arrays,), tuple(arrays), False, label, required_place="device")


def upload(parts: Any) -> Any:
    """The reference solution, which joins the arrays on the host, copies them once, and returns views of the
    copy.
    """
    cp = session.cp()
    flat_array = cp.asarray(np.concatenate(parts))
    array_ends = np.cumsum([host_array.size for host_array in parts]).tolist()
    return tuple(
        flat_array[array_end - host_array.size : array_end]
        for host_array, array_end in zip(parts, array_ends, strict=True)
    )


def upload_one_by_one(parts: Any) -> Any:
    """The naive version, which copies each array separately."""
    cp = session.cp()
    return tuple(cp.asarray(host_array) for host_array in parts)


PACK = ProgramExercise(
    "08-pack",
    "One parcel",
    "upload",
    draw_pack_case,
    upload,
    upload_one_by_one,
    sizes=draw_pack_sizes,
    table=(SpecialInput("all of them empty", make_empty_pack_case, (1, 3)),),
    checks_stream_order=True,
    rules=4,
    budgets=(
        Budget(
            "to_device_copies",
            "Concatenate on the host, copy once, and return slices of that array.",
            min_count=1,
            max_count=1,
        ),
        Budget("to_host_copies", "The host knows the lengths and offsets: copy nothing back.", max_count=0),
        Budget("waits", _NO_WAIT_ADVICE, max_count=0),
    ),
    advice=(("outside device memory", "cp.asarray(x) copies a NumPy array to the device."),),
    praise="the program makes one copy, whatever the number of arrays is.",
)


# 08-ring


def draw_ring_sizes(rng: np.random.Generator) -> tuple[tuple[Any, ...], ...]:
    """Return pairs of a shape and a dtype for the tests, where the first dimension is the number of
    pieces.
    """
    piece_count = int(rng.integers(100, 200))
    n = int(rng.integers(1_000, 9_000))
    small_sizes = (
        ((1, 33), "f4"),
        ((2, 1), "i4"),
        ((3, 7, 5), "f8"),
        ((5, 11), "u1"),
        ((4, 3), "f2"),
        ((7, 2), "?"),
    )
    return (
        *small_sizes,
        ((piece_count, 9), "i8"),
        ((int(rng.integers(14, 20)), n), "f4"),
        ((6, 1 << 16), "f4"),
    )


def make_ring_case(data: DataGenerator, size: Any) -> ProgramCase:
    """Return a test case with an array whose pieces must pass through two small pinned buffers."""
    shape, dtype = size
    if np.dtype(dtype).itemsize < 4:
        chunks = data.integers(shape, 0, 250).astype(dtype)
    else:
        chunks = (data.floats(shape, np.float64) * (1 << 20)).astype(dtype)
    n = int(np.prod(shape[1:]))
    label = f"stream_in(data) with {counted(shape[0], 'piece')} of {n:,} elements"
    return ProgramCase((chunks,), chunks, False, label, required_place="device", keeps_arguments=True)


def stream_in(data: Any) -> Any:
    """The reference solution, which uses two buffers in turn. A buffer is refilled only after its last copy
    has ended.
    """
    cp = session.cp()
    cupyx = session.cupyx()
    out = cp.empty(data.shape, data.dtype)
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    buffers = [cupyx.empty_pinned(data.shape[1:], data.dtype) for _ in range(2)]
    copy_end_events = [cp.cuda.Event(disable_timing=True) for _ in buffers]
    for i, chunk in enumerate(data):
        if i >= 2:
            copy_end_events[i % 2].synchronize()
        buffers[i % 2][...] = chunk
        out[i].set(buffers[i % 2], stream=stream)
        copy_end_events[i % 2].record(stream)
    stream.synchronize()
    return out


def stream_in_pageable(data: Any) -> Any:
    """The naive version, which copies from pageable memory, so that the host waits for each copy."""
    cp = session.cp()
    out = cp.empty(data.shape, data.dtype)
    for i, chunk in enumerate(data):
        out[i].set(chunk)
    return out


RING = ProgramExercise(
    "08-ring",
    "The buffer that was still in use",
    "stream_in",
    make_ring_case,
    stream_in,
    stream_in_pageable,
    level="stretch",
    kind="repair",
    sizes=draw_ring_sizes,
    checks_stream_order=True,
    budgets=(
        Budget("pageable_copies", "Copy from the pinned buffers, not from `data` itself.", max_count=0),
        Budget("to_device_bytes", "Copy each row to the device once.", max_reference_factor=1.0),
        Budget(
            "waits",
            "Wait for a buffer's last copy before you fill it again, and once at the end.",
            max_reference_factor=1.5,
            min_count=1,
            large_sizes_only=True,
        ),
    ),
    advice=(("changed", "Before you fill a buffer again, let the host wait for its last copy."),),
    praise="no buffer is changed while a copy reads it.",
)


# 08-lookup


class RowChooser:
    """A callable that returns the indices of the chosen rows as a device array."""

    def __init__(self, rows: npt.NDArray[np.int32]) -> None:
        self._row_indices = rows

    def __call__(self) -> Any:
        return session.cp().asarray(self._row_indices) + 0


def draw_lookup_sizes(rng: np.random.Generator) -> tuple[tuple[Any, ...], ...]:
    """Return the table sizes for the tests as tuples of rows, columns, chosen rows and dtype."""
    row_count, column_count, chosen_count = (
        int(rng.integers(min_count, 2 * min_count)) for min_count in (20_000, 8, 20)
    )
    small_sizes = (1, 1, 1, "f4"), (100, 8, 5, "i4"), (1000, 33, 7, "f8")
    return *small_sizes, (row_count, column_count, chosen_count, "f4"), (50_000, 16, 40, "f4")


def make_lookup_case(data: DataGenerator, size: Any) -> ProgramCase:
    """Return a test case for a program that reads the table rows that the device chooses."""
    row_count, column_count, chosen_count, dtype = size
    table = (data.floats((row_count, column_count), np.float64) * (1 << 20)).astype(dtype)
    chosen_row_indices = data.rng.integers(0, row_count, chosen_count).astype(np.int32)
    chosen_row_indices[-3:] = (row_count - 1, 0, chosen_row_indices[0])[-chosen_count:]
    label = f"lookup(table, choose) with {chosen_count} of {row_count:,} rows"
    return ProgramCase(
        (table, RowChooser(chosen_row_indices)),
        table[chosen_row_indices],
        False,
        label,
        required_place="device",
        keeps_arguments=True,
    )


def call_with_pinned_table(bench: Any, program: Any, table: Any, choose: Any) -> Any:
    """Call a program with a table in pinned memory, which is freed only after all work has ended."""
    return program(bench.copy_to_pinned(table), choose)


def lookup(table: Any, choose: Any) -> Any:
    """The reference solution, in which a kernel reads the rows from pinned host memory over the bus."""
    return mapped(table)[choose()]


def lookup_in_a_copy(table: Any, choose: Any) -> Any:
    """The naive version, which copies the whole table to the device."""
    return session.cp().asarray(table)[choose()]


LOOKUP = ProgramExercise(
    "08-lookup",
    "Four rows of a large table",
    "lookup",
    make_lookup_case,
    lookup,
    lookup_in_a_copy,
    level="stretch",
    sizes=draw_lookup_sizes,
    checks_stream_order=True,
    call_program=call_with_pinned_table,
    budgets=(
        Budget(
            "bus_bytes",
            "Let the kernel read the table in place: only the rows that it reads cross the bus.",
            max_reference_factor=3,
            large_sizes_only=True,
        ),
        Budget("waits", "The row numbers are on the device: leave them there.", max_count=0),
    ),
    advice=(
        (
            "is pageable host memory",
            "A kernel can read only pinned memory of the host: use the table itself, which is pinned.",
        ),
        ("is freed", "A kernel still reads this memory: use the table itself, or wait for the kernel."),
        *_HOST_ARRAY_ADVICE,
    ),
    praise="only the chosen rows crossed the bus.",
)

EXERCISES = (STAY, REPORT, PACK, RING, LOOKUP)

"""Exercises of notebook 01."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpulab.session import backend
from gpulab.teach.judge import NotYet, PythonExercise, call, spell
from virtualgpu.records import DeviceInfo, Dim3

_ARCHITECTURES = (
    ("80", (8, 0)),
    ("75", (7, 5)),
    ("90", (9, 0)),
    ("100", (10, 0)),
    ("103", (10, 3)),
    ("120", (12, 0)),
    ("121", (12, 1)),
    ("52", (5, 2)),
)


def judge_capability(answer: Any) -> str:
    """``parse_capability("120")`` is ``(12, 0)``."""
    for text, wanted in _ARCHITECTURES:
        found = call(answer, text, name="parse_capability")
        if found == wanted:
            continue
        shown = f"{spell('parse_capability', (text,))} returns {found!r}, it should be {wanted!r}"
        if isinstance(found, tuple) and len(found) == 2 and found[0] == int(text[0]):
            raise NotYet(
                f"{shown}: the major version can have two digits; the minor version is always the last one."
            )
        if isinstance(found, tuple) and not all(isinstance(part, int) for part in found):
            raise NotYet(f"{shown}: return whole numbers, so that versions compare as numbers.")
        if isinstance(found, float | str):
            raise NotYet(
                f"{shown}: a version is a pair; as a float or text 10.0 sorts before 9.0 or loses its 0."
            )
        raise NotYet(f"{shown}.")
    return "one and two-digit versions alike, and pairs compare in the right order."


def judge_limits(answer: Any) -> str:
    """``first_problem(info, grid, block, shared_bytes)``: the first limit a launch breaks, or "ok"."""
    info = backend().device_info()
    for grid, block, shared_bytes, wanted, lesson in _launches(info):
        shown = f"first_problem(info, {grid}, {block}, {shared_bytes})"
        found = call(answer, info, grid, block, shared_bytes, name="first_problem", shown=shown)
        if found == wanted:
            continue
        raise NotYet(f"{shown} returns {found!r}, it should be {wanted!r}: {lesson}")
    # A function with numbers typed in passes on one device only.
    small = replace(info, max_threads_per_block=512, shared_per_block_bytes=16 * 1024)
    if call(answer, small, (1, 1, 1), (1024, 1, 1), 0, name="first_problem") != "threads":
        raise NotYet(
            "it does not read info.max_threads_per_block: a device with 512 is told that 1,024 are fine."
        )
    if call(answer, small, (1, 1, 1), (32, 1, 1), 32 * 1024, name="first_problem") != "shared":
        raise NotYet(
            "it does not read info.shared_per_block_bytes: a device with 16 KiB is told 32 KiB are fine."
        )
    return "it finds every broken limit, on any device."


def _launches(info: DeviceInfo) -> tuple[tuple[Dim3, Dim3, int, str, str], ...]:
    most = info.max_threads_per_block
    wide, high, deep = info.max_block_dim
    shared = info.shared_per_block_bytes
    grid_y = info.max_grid_dim[1]
    return (
        ((1, 1, 1), (32, 1, 1), 0, "ok", "a small launch breaks no limit."),
        ((1, 1, 1), (most, 1, 1), shared, "ok", "a limit may be reached, not passed: compare with >."),
        ((1, 1, 1), (most + 1, 1, 1), 0, "threads", f"a block has at most {most:,} threads."),
        ((1, 1, 1), (wide // 16, 32, 1), 0, "threads", "x × y × z counts, not each alone."),
        ((1, 1, 1), (1, 1, deep + 1), 0, "block", f"a block is at most {deep} deep in z."),
        ((1, 1, 1), (8, high // 16, 1), 0, "ok", f"{8 * (high // 16)} threads fit."),
        ((1, grid_y, 1), (32, 1, 1), 0, "ok", f"a grid may be {grid_y:,} high."),
        (
            (1, grid_y + 1, 1),
            (32, 1, 1),
            0,
            "grid",
            f"a grid is at most {grid_y:,} high; put the long axis in x.",
        ),
        ((grid_y + 1, 1, 1), (32, 1, 1), 0, "ok", "x has a limit of its own, far above y's."),
        (
            (1, 1, 1),
            (32, 1, 1),
            shared + 1,
            "shared",
            f"{shared:,} bytes of shared memory are the default limit.",
        ),
    )


EXERCISES = (
    PythonExercise("01-capability", "Read a compute capability", judge_capability),
    PythonExercise("01-limits", "Does this launch fit?", judge_limits),
)

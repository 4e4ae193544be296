"""How to launch the wrong kernels of ``data/faulty_kernels.cu``, and what a checker must say of each.

The catalogue needs NumPy only, so that it also runs through CuPy under compute-sanitizer.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Array:
    """A device array to pass: its start moved by `shift_bytes`, freed before the launch, or not filled."""

    size: int
    dtype: str = "float32"
    fill: Literal["arange", "zeros", "empty"] = "arange"
    shift_bytes: int = 0
    freed: bool = False


NULL = np.uint64(0)
GARBAGE = np.uint64(0x1234_5678_9000)


@dataclass(frozen=True)
class Fault:
    """What an ordinary launch raises, where, and what its words must contain.

    ``block`` and ``thread`` are None where several are at fault alike. ``address`` is (number of the
    argument, byte in it) for global memory, a plain offset otherwise.
    """

    error: str
    kind: str
    block: Dim3 | None = (0, 0, 0)
    thread: Dim3 | None = (0, 0, 0)
    address: tuple[int, int] | int | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Faulty:
    """One wrong kernel: `fault` if a launch must raise, `hazards` what ``gl.sanitize`` must find.

    ``tool`` is compute-sanitizer's for it, and ``hangs`` says that hardware may never finish it.
    """

    name: str
    args: tuple[Any, ...] = (Array(128),)
    grid: int = 1
    block: int = 32
    shared_bytes: int = 0
    fault: Fault | None = None
    hazards: tuple[str, ...] = ()
    space: str = ""
    tool: str = "memcheck"
    nan: bool = False
    hangs: bool = False
    results: tuple[float, ...] = ()

    @property
    def code(self) -> str:
        return _sources()[self.name]

    def lines(self, mark: str = "//!") -> list[int]:
        """The lines that end with a mark."""
        return [n for n, text in enumerate(self.code.splitlines(), 1) if text.endswith(mark)]


@functools.cache
def _sources() -> dict[str, str]:
    """Kernels by name, each numbered from its own first line."""
    text = (Path(__file__).parent / "data" / "faulty_kernels.cu").read_text()
    parts = re.split(r"^// === (\w+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _illegal(kind: str = "out of bounds", **more: Any) -> Fault:
    return Fault("IllegalAddressError", kind, **more)


PAST = Array(100)

OUT_OF_BOUNDS = (
    Faulty(
        "global_read_past_end",
        (PAST, Array(128, fill="zeros")),
        grid=4,
        fault=_illegal(
            block=(3, 0, 0),
            thread=(4, 0, 0),
            address=(0, 400),
            words=("read 4 bytes", "right after the end", "parameter x", "shape (100,)"),
        ),
    ),
    Faulty(
        "global_write_past_end",
        (PAST,),
        fault=_illegal(thread=(10, 0, 0), address=(0, 400), words=("wrote 4 bytes", "parameter x")),
    ),
    Faulty(
        "global_atomic_past_end",
        (PAST,),
        fault=_illegal(thread=(4, 0, 0), address=(0, 400), words=("updated 4 bytes",)),
    ),
    Faulty(
        "negative_index_read",
        (Array(128), Array(128)),
        fault=_illegal(address=(0, -4), words=("read 4 bytes",)),
    ),
    Faulty("negative_index_write", fault=_illegal(address=(0, -12), words=("wrote 4 bytes",))),
    Faulty("negative_index_atomic", fault=_illegal(address=(0, -4), words=("updated 4 bytes",))),
    Faulty(
        "off_by_one_in_the_pools_rounding",
        (PAST,),
        fault=_illegal(address=(0, 400), words=("right after the end",)),
    ),
    Faulty(
        "wide_read_over_the_end",
        (Array(126), Array(128)),
        fault=_illegal(
            thread=(31, 0, 0), address=(0, 496), words=("16 bytes", "reaches 8 bytes past the end")
        ),
    ),
    Faulty(
        "use_after_free",
        (Array(1 << 20, freed=True), Array(128)),
        fault=_illegal(address=(0, 0), words=("has been freed",)),
    ),
    Faulty("null_pointer", (NULL,), fault=_illegal(words=("null pointer",))),
    Faulty(
        "wild_pointer",
        fault=_illegal(
            address=(0, 1 << 42), words=("past the end of the float32 array of shape (128,) (parameter x)",)
        ),
    ),
    Faulty("garbage_pointer", args=(GARBAGE, Array(128)), fault=_illegal(words=("No allocation is near",))),
    Faulty(
        "runs_into_the_next_array",
        args=(Array(128), Array(128)),
        hazards=("outside its array",),
        space="global",
    ),
    Faulty("constant_past_end", fault=_illegal(thread=(4, 0, 0), words=("module variable c",))),
    Faulty("module_array_past_end", fault=_illegal(thread=(8, 0, 0), words=("module variable d",))),
    Faulty(
        "shared_static_past_end",
        block=64,
        fault=_illegal(
            thread=(63, 0, 0), address=256, words=("shared-memory offset 256", "256 bytes of shared")
        ),
        space="shared",
    ),
    Faulty(
        "shared_dynamic_past_end",
        block=64,
        shared_bytes=128,
        space="shared",
        fault=_illegal(thread=(32, 0, 0), address=128, words=("larger shared_mem",)),
    ),
    Faulty(
        "shared_dynamic_forgotten", space="shared", fault=_illegal(address=0, words=("0 bytes of shared",))
    ),
    Faulty(
        "shared_negative_index",
        block=64,
        space="shared",
        fault=_illegal(address=-4, words=("read 4 bytes at shared-memory offset -4,",)),
    ),
    Faulty("local_past_end", (Array(128), np.int32(5)), space="local", fault=_illegal(words=("own stack",))),
)

MISALIGNED = (
    Faulty(
        "misaligned_int",
        fault=Fault("MisalignedAddressError", "misaligned", address=(0, 1), words=("not a multiple of 4",)),
    ),
    Faulty(
        "misaligned_float4",
        (Array(256), Array(128)),
        fault=Fault("MisalignedAddressError", "misaligned", address=(0, 4), words=("not a multiple of 16",)),
    ),
    Faulty(
        "misaligned_double",
        (Array(256),),
        fault=Fault("MisalignedAddressError", "misaligned", address=(0, 4), words=("not a multiple of 8",)),
    ),
    Faulty(
        "misaligned_view",
        (Array(128, shift_bytes=2),),
        fault=Fault("MisalignedAddressError", "misaligned", address=(0, 0), words=("not a multiple of 4",)),
    ),
    Faulty(
        "misaligned_shared",
        fault=Fault("MisalignedAddressError", "misaligned", address=1, words=("not a multiple of 4",)),
        space="shared",
    ),
)

RACES = (
    Faulty("missing_barrier", block=64, hazards=("RAW",), space="shared", tool="racecheck"),
    Faulty("shift_in_place", block=64, hazards=("WAR",), space="shared", tool="racecheck"),
    Faulty("all_write_one_word", block=64, hazards=("WAW",), space="shared", tool="racecheck"),
    Faulty("all_write_one_value", block=64, space="shared", tool="racecheck"),
    Faulty("missing_syncwarp", hazards=("RAW",), space="shared", tool="racecheck"),
    Faulty(
        "tile_reused_too_early", (Array(256),), block=64, hazards=("WAR",), space="shared", tool="racecheck"
    ),
    Faulty("zeroed_without_barrier", block=64, hazards=("WAW",), space="shared", tool="racecheck"),
    Faulty("reduction_without_barrier", block=64, hazards=("RAW",), space="shared", tool="racecheck"),
    Faulty("blocks_write_one_word", grid=4, hazards=("WAW",), space="global", tool="racecheck"),
    Faulty("lost_update", grid=4, hazards=("lost update",), space="global", tool="racecheck"),
    Faulty("stencil_in_place", grid=4, hazards=("WAR",), space="global", tool="racecheck"),
    Faulty(
        "last_block_without_fence",
        (Array(128), Array(4, fill="zeros")),
        grid=4,
        hazards=("RAW",),
        space="global",
        tool="racecheck",
    ),
    Faulty("global_exchange_without_barrier", block=64, hazards=("RAW",), space="global", tool="racecheck"),
)

UNWRITTEN = (
    Faulty(
        "shared_never_written", block=64, hazards=("uninitialised read",), space="shared", tool="initcheck"
    ),
    Faulty(
        "global_never_written",
        (Array(32, fill="empty"), Array(32)),
        hazards=("uninitialised read",),
        space="global",
        tool="initcheck",
    ),
    Faulty(
        "local_never_written",
        (Array(128), np.int32(5)),
        hazards=("uninitialised read",),
        space="local",
        tool="initcheck",
    ),
)

SYNCHRONISATION = (
    Faulty(
        "barrier_in_both_branches",
        fault=Fault(
            "LaunchFailure", "divergent barrier", words=("different barriers", "move it out of the branch")
        ),
        tool="synccheck",
    ),
    Faulty(
        "barrier_in_one_branch",
        fault=Fault("LaunchFailure", "divergent barrier", words=("different barriers",)),
        tool="synccheck",
    ),
    Faulty(
        "barrier_in_divergent_loop",
        fault=Fault("LaunchFailure", "divergent barrier", words=("different barriers",)),
        tool="synccheck",
    ),
    Faulty(
        "named_barrier_of_too_few",
        fault=Fault("LaunchFailure", "barrier deadlock", words=("32 threads wait for more threads",)),
        tool="synccheck",
        hangs=True,
    ),
    Faulty(
        "two_named_barriers",
        block=64,
        fault=Fault("LaunchFailure", "barrier deadlock", words=("wait for more threads",)),
        tool="synccheck",
        hangs=True,
    ),
    Faulty(
        "two_shuffles_wait_for_each_other",
        fault=Fault(
            "LaunchFailure", "lanes missing", thread=None, words=("names lanes that never execute it",)
        ),
        tool="synccheck",
        hangs=True,
    ),
    Faulty(
        "shuffle_from_absent_lanes", hazards=("shuffle from an absent lane",), tool="synccheck", hangs=True
    ),
    Faulty(
        "shuffle_from_exited_lanes", hazards=("shuffle from an absent lane",), tool="synccheck", hangs=True
    ),
    Faulty(
        "lane_outside_its_mask",
        fault=Fault("LaunchFailure", "lane outside its mask", thread=(16, 0, 0), words=("does not name",)),
        tool="synccheck",
    ),
    Faulty(
        "ballot_outside_its_mask",
        fault=Fault("LaunchFailure", "lane outside its mask", words=("does not name",)),
        tool="synccheck",
    ),
    Faulty(
        "syncwarp_outside_its_mask",
        fault=Fault("LaunchFailure", "lane outside its mask", words=("does not name",)),
        tool="synccheck",
    ),
)

ENDLESS = (
    Faulty(
        "endless_loop",
        fault=Fault("LaunchTimeoutError", "endless", words=("still running", "watchdog_s")),
        hangs=True,
    ),
    Faulty("endless_in_one_lane", fault=Fault("LaunchTimeoutError", "endless", thread=(7, 0, 0)), hangs=True),
    Faulty(
        "warps_wait_for_each_other",
        block=64,
        fault=Fault("LaunchTimeoutError", "endless", thread=None),
        hangs=True,
    ),
    Faulty(
        "block_waits_for_itself",
        (Array(1, fill="zeros"),),
        grid=4,
        fault=Fault("LaunchTimeoutError", "endless", block=None),
        hangs=True,
    ),
)

PROGRAM = (
    Faulty(
        "device_assert",
        fault=Fault("DeviceAssertError", "assert", thread=(20, 0, 0), words=("the assertion `x[i] < 20`",)),
    ),
    Faulty(
        "trap",
        grid=2,
        fault=Fault("LaunchFailure", "trap", block=(1, 0, 0), thread=(3, 0, 0), words=("executed a trap",)),
    ),
    Faulty(
        "endless_recursion",
        fault=Fault("LaunchFailure", "stack overflow", words=("overflowed the call stack",)),
    ),
    Faulty(
        "root_of_a_negative",
        nan=True,
        tool="",
        fault=Fault("NanProducedError", "NaN", words=("made a NaN", "sqrt")),
    ),
    Faulty(
        "zero_over_zero", nan=True, tool="", fault=Fault("NanProducedError", "NaN", words=("made a NaN",))
    ),
)

# Suspicious, yet defined well enough that nothing may crash.
HARMLESS = (
    Faulty("integer_division_by_zero", (Array(32), np.int32(5)), results=(1.0,)),
    Faulty("huge_shift", (Array(32), np.int32(5)), results=(0.0,)),
    Faulty("barrier_after_early_return", block=64, results=(1.0,), tool="synccheck"),
)

CATALOGUE = (*OUT_OF_BOUNDS, *MISALIGNED, *RACES, *UNWRITTEN, *SYNCHRONISATION, *ENDLESS, *PROGRAM, *HARMLESS)
BY_NAME = {faulty.name: faulty for faulty in CATALOGUE}


def arguments(faulty: Faulty, cp: Any) -> tuple[list[Any], list[Any]]:
    """The arguments on a device, and what must stay alive for them; `cp` is CuPy or its likeness."""
    values: list[Any] = []
    owners: list[Any] = []
    freed: list[Any] = []
    for spec in faulty.args:
        if not isinstance(spec, Array):
            values.append(spec)
            continue
        if spec.fill == "arange":
            array = cp.arange(spec.size, dtype=spec.dtype)
        else:
            array = (cp.zeros if spec.fill == "zeros" else cp.empty)(spec.size, dtype=spec.dtype)
        if spec.shift_bytes:
            owners.append(array)
            values.append(np.uint64(array.data.ptr + spec.shift_bytes))
            continue
        if spec.freed:
            values.append(np.uint64(array.data.ptr))
            freed.append(array)
        else:
            values.append(array)
    freed.clear()
    return values, owners

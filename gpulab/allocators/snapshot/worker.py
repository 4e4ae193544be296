"""Read a snapshot into arrays in a separate process with limited memory and time.

``python -m gpulab.allocators.snapshot.worker FILE RESULT LIMIT_BYTES LIMIT_S``
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from gpulab.allocators.snapshot.history import LiveBlock, history
from gpulab.allocators.snapshot.plain import SnapshotError, load
from gpulab.allocators.snapshot.ranges import Range
from gpulab.allocators.snapshot.tables import DeviceTables, Tables, as_array
from gpulab.allocators.torch.settings import Settings, SettingsError
from gpulab.words import count, noun

# Kinds of events that a note names.
_MAX_NAMES = 5


def arrays(snapshot: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Read a memory snapshot, and return its data as arrays for the module `reader`."""
    tables = Tables(snapshot)
    settings = Settings()
    notes = []
    try:
        settings = Settings.parse(tables.settings)
    except SettingsError as error:
        notes.append(f"The allocator's settings could not be read ({error}).")
    result: dict[str, np.ndarray[Any, Any]] = {}
    header: dict[str, Any] = {
        "allocator": tables.allocator,
        "provenance": tables.provenance,
        "settings": tables.settings,
        "pools": list(tables.pools),
        "devices": {},
    }
    for device_id, device in sorted(tables.devices.items()):
        header["devices"][device_id] = " ".join([*notes, *_device(result, f"{device_id}.", device, settings)])
    header["frames"] = list(tables.frames)
    result["stack_ends"] = np.cumsum([len(stack) for stack in tables.stacks], dtype=np.int64)
    result["stack_frames"] = np.fromiter(chain.from_iterable(tables.stacks), np.int32)
    result["about"] = np.frombuffer(json.dumps(header).encode("utf-8", "surrogatepass"), np.uint8)
    return result


def _device(
    result: dict[str, np.ndarray[Any, Any]], prefix: str, tables: DeviceTables, settings: Settings
) -> list[str]:
    device_history = history(tables, settings)
    result[prefix + "actions"] = np.array(tables.actions, np.uint8)
    result[prefix + "addresses"] = np.array(tables.addresses, np.int64)
    result[prefix + "sizes"] = np.array(device_history.sizes, np.int64)
    result[prefix + "requested"] = np.array(tables.sizes, np.int64)
    result[prefix + "streams"] = np.array(tables.streams, np.int64)
    result[prefix + "times_us"] = np.array(tables.times_us, np.int64)
    result[prefix + "stacks"] = np.array(tables.stacks, np.int32)
    _map(result, prefix + "first_", device_history.first_ranges, device_history.first_blocks)
    _map(result, prefix + "last_", device_history.last_ranges, device_history.last_blocks)
    notes = []
    if device_history.strange:
        auxiliary_verb = noun(device_history.strange, "does", "do")
        notes.append(f"{count(device_history.strange, 'event')} {auxiliary_verb} not match the final state.")
    if tables.impossible:
        verb = noun(tables.impossible, "was", "were")
        subject = f"{count(tables.impossible, 'event')} with an impossible size or address"
        notes.append(f"{subject} {verb} left out.")
    if tables.left_out:
        by_count = sorted(tables.left_out.items(), key=lambda pair: -pair[1])
        names = [f"{times:,} {name!r:.60}" for name, times in by_count[:_MAX_NAMES]]
        other_events = sum(times for _, times in by_count[_MAX_NAMES:])
        if other_events:
            names.append(f"{other_events:,} of {count(len(by_count) - _MAX_NAMES, 'other kind')}")
        notes.append(f"Events of other kinds were left out: {', '.join(names)}.")
    return notes


def _map(
    result: dict[str, np.ndarray[Any, Any]], prefix: str, ranges: list[Range], blocks: dict[int, LiveBlock]
) -> None:
    result[prefix + "segments"] = as_array(ranges, 5)
    rows = (
        (address, block.size, block.requested, block.state, block.stack, block.event)
        for address, block in sorted(blocks.items())
    )
    result[prefix + "blocks"] = as_array(rows, 6)


def main(arguments: Sequence[str]) -> int:
    """Read a memory snapshot, and save its arrays to a file. If this fails, print the reason."""
    snapshot_path, arrays_path, limit_bytes, limit_s = arguments
    gc.disable()
    _limit(int(limit_bytes), int(limit_s))
    try:
        with Path(snapshot_path).open("rb") as file:
            snapshot = load(file)
        np.savez(arrays_path, **arrays(snapshot))  # type: ignore[arg-type]
    except SnapshotError as error:
        print(error)
        return 1
    except MemoryError:
        print(
            f"Reading the file takes more than {int(limit_bytes) / 2**30:.0f} GiB of memory, so the file is "
            "damaged or malicious."
        )
        return 1
    return 0


def _limit(memory_bytes: int, seconds: int) -> None:
    """Limit the memory and time that a malicious pickle can use; this works on POSIX systems only."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + memory_bytes, used_bytes + memory_bytes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

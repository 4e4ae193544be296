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

from gpulab.allocators.snapshot.history import LiveBlock, reconstruct_history
from gpulab.allocators.snapshot.plain import SnapshotError, load_pickle
from gpulab.allocators.snapshot.ranges import Range
from gpulab.allocators.snapshot.tables import DeviceTables, SnapshotTables, make_table
from gpulab.allocators.torch.settings import Settings, SettingsError
from gpulab.words import count, noun

# Kinds of events that a note names.
_MAX_NAMED_KINDS = 5


def make_arrays(snapshot: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Read a memory snapshot, and return its data as arrays for the module `reader`."""
    snapshot_tables = SnapshotTables(snapshot)
    allocator_settings = Settings()
    unreadable_notes = []
    try:
        allocator_settings = Settings.parse(snapshot_tables.settings)
    except SettingsError as error:
        unreadable_notes.append(f"The allocator's settings could not be read ({error}).")
    snapshot_arrays: dict[str, np.ndarray[Any, Any]] = {}
    header: dict[str, Any] = {
        "allocator": snapshot_tables.allocator,
        "provenance": snapshot_tables.provenance,
        "settings": snapshot_tables.settings,
        "pools": list(snapshot_tables.pools),
        "devices": {},
    }
    for device_id, device in sorted(snapshot_tables.devices.items()):
        header["devices"][device_id] = " ".join(
            [
                *unreadable_notes,
                *_add_device_arrays(snapshot_arrays, f"{device_id}.", device, allocator_settings),
            ]
        )
    header["frames"] = list(snapshot_tables.frames)
    snapshot_arrays["stack_ends"] = np.cumsum(
        [len(stack) for stack in snapshot_tables.stacks], dtype=np.int64
    )
    snapshot_arrays["stack_frames"] = np.fromiter(chain.from_iterable(snapshot_tables.stacks), np.int32)
    snapshot_arrays["about"] = np.frombuffer(json.dumps(header).encode("utf-8", "surrogatepass"), np.uint8)
    return snapshot_arrays


def _add_device_arrays(
    snapshot_arrays: dict[str, np.ndarray[Any, Any]],
    prefix: str,
    device_tables: DeviceTables,
    settings: Settings,
) -> list[str]:
    device_history = reconstruct_history(device_tables, settings)
    snapshot_arrays[prefix + "actions"] = np.array(device_tables.actions, np.uint8)
    snapshot_arrays[prefix + "addresses"] = np.array(device_tables.addresses, np.int64)
    snapshot_arrays[prefix + "sizes"] = np.array(device_history.block_sizes, np.int64)
    snapshot_arrays[prefix + "requested"] = np.array(device_tables.sizes, np.int64)
    snapshot_arrays[prefix + "streams"] = np.array(device_tables.streams, np.int64)
    snapshot_arrays[prefix + "times_us"] = np.array(device_tables.times_us, np.int64)
    snapshot_arrays[prefix + "stacks"] = np.array(device_tables.stacks, np.int32)
    _add_map_arrays(
        snapshot_arrays, prefix + "first_", device_history.first_ranges, device_history.first_blocks
    )
    _add_map_arrays(snapshot_arrays, prefix + "last_", device_history.last_ranges, device_history.last_blocks)
    device_notes = []
    if device_history.mismatch_count:
        auxiliary_verb = noun(device_history.mismatch_count, "does", "do")
        device_notes.append(
            f"{count(device_history.mismatch_count, 'event')} {auxiliary_verb} not match the final state."
        )
    if device_tables.impossible_event_count:
        verb = noun(device_tables.impossible_event_count, "was", "were")
        subject = f"{count(device_tables.impossible_event_count, 'event')} with an impossible size or address"
        device_notes.append(f"{subject} {verb} left out.")
    if device_tables.omitted_event_counts:
        skipped_counts = sorted(device_tables.omitted_event_counts.items(), key=lambda pair: -pair[1])
        skipped_names = [
            f"{event_count:,} {name!r:.60}" for name, event_count in skipped_counts[:_MAX_NAMED_KINDS]
        ]
        other_events = sum(event_count for _, event_count in skipped_counts[_MAX_NAMED_KINDS:])
        if other_events:
            skipped_names.append(
                f"{other_events:,} of {count(len(skipped_counts) - _MAX_NAMED_KINDS, 'other kind')}"
            )
        device_notes.append(f"Events of other kinds were left out: {', '.join(skipped_names)}.")
    return device_notes


def _add_map_arrays(
    snapshot_arrays: dict[str, np.ndarray[Any, Any]],
    prefix: str,
    ranges: list[Range],
    blocks: dict[int, LiveBlock],
) -> None:
    snapshot_arrays[prefix + "segments"] = make_table(ranges, 5)
    block_table_rows = (
        (address, block.size, block.requested_bytes, block.state, block.stack_number, block.event_index)
        for address, block in sorted(blocks.items())
    )
    snapshot_arrays[prefix + "blocks"] = make_table(block_table_rows, 6)


def main(arguments: Sequence[str]) -> int:
    """Read a memory snapshot, and save its arrays to a file. If this fails, print the reason."""
    snapshot_path, arrays_path, memory_limit_bytes, cpu_limit_s = arguments
    gc.disable()
    _set_limits(int(memory_limit_bytes), int(cpu_limit_s))
    try:
        with Path(snapshot_path).open("rb") as file:
            snapshot = load_pickle(file)
        np.savez(arrays_path, **make_arrays(snapshot))  # type: ignore[arg-type]
    except SnapshotError as error:
        print(error)
        return 1
    except MemoryError:
        print(
            f"Reading the file takes more than {int(memory_limit_bytes) / 2**30:.0f} GiB of memory, so "
            "the file is damaged or malicious."
        )
        return 1
    return 0


def _set_limits(memory_bytes: int, seconds: int) -> None:
    """Limit the memory and time that a malicious pickle can use; this works on POSIX systems only."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + memory_bytes, used_bytes + memory_bytes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Convert PyTorch's memory snapshots to records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.allocators.snapshot.plain import GZIP_SIGNATURE, SnapshotError
from gpulab.allocators.snapshot.tables import FREE, WAITING
from virtualgpu.records.memory import (
    AllocatorEvents,
    AllocatorTrace,
    Block,
    BlockMap,
    Frame,
    Segment,
    Stack,
)
from virtualgpu.records.origin import Provenance

Array = npt.NDArray[Any]
_CPU_LIMIT_STATUSES = (-9, -24)  # by the limit on the processor's time: SIGKILL and SIGXCPU
_CPU_LIMIT_S = 20
_CPU_LIMIT_S_PER_GIB = 400
_COMPRESSION_RATIO = 12  # how much larger a compressed snapshot is once it is unpacked


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A memory snapshot of PyTorch's caching allocator, with the events and the final state of each device.

    If a device has no recorded events, the first state of its trace is the final state.
    """

    traces: dict[int, AllocatorTrace]
    last_maps: dict[int, BlockMap]

    @property
    def device_ids(self) -> tuple[int, ...]:
        return tuple(self.traces)


def read_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Read a memory snapshot file that ``torch.cuda.memory._dump_snapshot(path)`` wrote.

    The pickle is read by a separate process with limited memory and time. It is rejected if it names a class
    or a function, so that no code in it can run.

    Parameters
    ----------
    path : str or os.PathLike
        The file; a pickle of ``torch.cuda.memory_snapshot()`` is accepted, too, but has no events.

    Returns
    -------
    Snapshot
        The sizes of blocks that were free at the end follow from PyTorch's rules, since the trace contains
        only the requested bytes.

    Raises
    ------
    SnapshotError
        If the file is not a snapshot, is damaged, would run code, or needs too much memory or time.
    FileNotFoundError
        If there is no such file.
    """
    snapshot_path = Path(path)
    file_bytes = snapshot_path.stat().st_size
    if not snapshot_path.is_file():
        file_kind = "a folder" if snapshot_path.is_dir() else "not an ordinary file"
        raise SnapshotError(
            f"{snapshot_path.name!r} is {file_kind}. Pass the name of a snapshot file, such as "
            "'snapshot.pickle'."
        )
    with snapshot_path.open("rb") as file:
        if file.read(2) == GZIP_SIGNATURE:
            file_bytes *= _COMPRESSION_RATIO
    memory_limit_bytes = (2 << 30) + 24 * file_bytes
    cpu_limit_s = _CPU_LIMIT_S + file_bytes * _CPU_LIMIT_S_PER_GIB // (1 << 30)
    with tempfile.TemporaryDirectory(prefix="snapshot") as folder:
        arrays_path = Path(folder) / "arrays.npz"
        worker_module = "gpulab.allocators.snapshot.worker"
        command = [
            sys.executable,
            "-m",
            worker_module,
            str(snapshot_path.resolve()),
            str(arrays_path),
            str(memory_limit_bytes),
            str(cpu_limit_s),
        ]
        package_root = str(Path(__file__).resolve().parents[3])
        python_path = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": package_root + (os.pathsep + python_path if python_path else ""),
        }
        try:
            process = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=3 * cpu_limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SnapshotError(
                f"{snapshot_path.name!r} could not be read within {3 * cpu_limit_s} s."
            ) from None
        if process.returncode == 1 and process.stdout.strip():
            raise SnapshotError(f"{snapshot_path.name!r} cannot be opened. {process.stdout.strip()}")
        if process.returncode:
            failure_text = (
                f"reading it takes more than {cpu_limit_s} s of processor time"
                if process.returncode in _CPU_LIMIT_STATUSES
                else "reading the file crashes Python"
            )
            raise SnapshotError(
                f"{snapshot_path.name!r} cannot be opened: {failure_text}. The file is damaged or malicious."
            )
        with np.load(arrays_path, allow_pickle=False) as arrays:
            return make_snapshot(dict(arrays), snapshot_path.name)


def make_snapshot(arrays: dict[str, Array], name: str) -> Snapshot:
    """Build a memory snapshot from the arrays that the function `worker.make_arrays` returns."""
    header = json.loads(arrays["about"].tobytes().decode("utf-8", "surrogatepass"))
    frames = [Frame(*frame) for frame in header["frames"]]
    all_frames = [frames[frame_index] for frame_index in arrays["stack_frames"].tolist()]
    stack_ends = arrays["stack_ends"].tolist()
    stacks: tuple[Stack, ...] = tuple(
        tuple(all_frames[stack_start:stack_end])
        for stack_start, stack_end in zip([0, *stack_ends], stack_ends, strict=False)
    )
    traces = {}
    last_maps = {}
    for device_text, device_note in header["devices"].items():
        device = int(device_text)
        prefix = f"{device_text}."
        provenance = _make_provenance(header["provenance"], device, name)
        times_ns = arrays[prefix + "times_us"] * 1000
        events = AllocatorEvents(
            actions=arrays[prefix + "actions"],
            addresses=arrays[prefix + "addresses"],
            size_bytes=arrays[prefix + "sizes"],
            requested_bytes=_find_requested_bytes(arrays, prefix),
            streams=arrays[prefix + "streams"],
            time_ns=times_ns,
            stacks=arrays[prefix + "stacks"],
        )
        start_ns, end_ns = (int(times_ns[0]), int(times_ns[-1])) if len(times_ns) else (0, 0)
        first_map = _make_block_map(arrays, prefix + "first_", header["pools"], provenance, device, start_ns)
        last_maps[device] = _make_block_map(
            arrays, prefix + "last_", header["pools"], provenance, device, end_ns
        )
        traces[device] = AllocatorTrace(
            provenance=provenance,
            device_id=device,
            allocator=header["allocator"],
            first=first_map,
            events=events,
            stacks=stacks,
            settings=header["settings"],
            capacity_bytes=0,
            note=device_note,
        )
    return Snapshot(traces, last_maps)


def _make_provenance(provenance_words: list[str], device: int, name: str) -> Provenance:
    """Return the provenance of the numbers in a snapshot. Measured numbers become recorded numbers."""
    match provenance_words:
        case ["modelled", device_name, detail]:
            return Provenance("modelled", device_name, detail)
        case ["measured" | "recorded", device_name, _]:
            return Provenance("recorded", device_name, name)
    return Provenance("recorded", f"GPU {device} of a PyTorch program", name)


def _find_requested_bytes(arrays: dict[str, Array], prefix: str) -> Array:
    """Return the requested bytes of each event, or 0 for events of segments."""
    actions = arrays[prefix + "actions"]
    return np.where(actions <= 2, arrays[prefix + "requested"], 0)


def _make_block_map(
    arrays: dict[str, Array], prefix: str, pools: list[str], provenance: Provenance, device: int, time_ns: int
) -> BlockMap:
    block_rows = arrays[prefix + "blocks"].tolist()
    segments = []
    block_row = 0
    for address, size, stream, pool_number, is_expandable in arrays[prefix + "segments"].tolist():
        blocks: list[Block] = []
        free_address = address
        while block_row < len(block_rows) and block_rows[block_row][0] < address + size:
            block_address, block_bytes, requested_bytes, state_code, stack_number, event_number = block_rows[
                block_row
            ]
            block_row += 1
            if block_address < free_address:  # only where a snapshot contradicts itself
                continue
            if block_address > free_address:
                blocks.append(
                    Block(address=free_address, size_bytes=block_address - free_address, is_free=True)
                )
            block_bytes = min(block_bytes, address + size - block_address)
            blocks.append(
                Block(
                    address=block_address,
                    size_bytes=block_bytes,
                    is_free=state_code == FREE,
                    requested_bytes=requested_bytes,
                    is_waiting=state_code == WAITING,
                    stack=stack_number,
                    event=event_number,
                )
            )
            free_address = block_address + block_bytes
        if free_address < address + size:
            blocks.append(Block(address=free_address, size_bytes=address + size - free_address, is_free=True))
        segments.append(
            Segment(address, size, stream, tuple(blocks), pools[pool_number], bool(is_expandable))
        )
    return BlockMap(provenance, device, time_ns, 0, tuple(segments))

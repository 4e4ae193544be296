"""PyTorch's memory snapshots as records."""

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

from gpulab.allocators.snapshot.plain import GZIP, SnapshotError
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
_KILLED = (-9, -24)  # by the limit on the processor's time: SIGKILL and SIGXCPU
_LIMIT_S = 20
_LIMIT_S_PER_GIB = 400
_UNPACKED = 12  # how much larger a compressed snapshot is once it is unpacked


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of PyTorch's allocator: the events and the final state of each device.

    A device without recorded events has a trace without events, whose first state is the last one.
    """

    traces: dict[int, AllocatorTrace]
    last: dict[int, BlockMap]

    @property
    def device_ids(self) -> tuple[int, ...]:
        return tuple(self.traces)


def read_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """Read a snapshot file that ``torch.cuda.memory._dump_snapshot(path)`` wrote.

    The pickle is read by a process of its own with bounded memory and time, and refused if it names a class
    or a function, so that nothing in it runs.

    Parameters
    ----------
    path : str or os.PathLike
        The file; also of a pickled ``torch.cuda.memory_snapshot()``, which has no events.

    Returns
    -------
    Snapshot
        Sizes of blocks that were free again at the end are worked out by PyTorch's rules, since its trace
        has the bytes asked for only.

    Raises
    ------
    SnapshotError
        If the file is no snapshot, is damaged, would run code, or takes too much memory or time.
    FileNotFoundError
        If there is no such file.
    """
    source = Path(path)
    size = source.stat().st_size
    if not source.is_file():
        what = "a folder" if source.is_dir() else "no ordinary file"
        raise SnapshotError(f"{source.name!r} is {what}: a snapshot is a file, such as 'snapshot.pickle'.")
    with source.open("rb") as file:
        if file.read(2) == GZIP:
            size *= _UNPACKED
    limit_bytes = (2 << 30) + 24 * size
    limit_s = _LIMIT_S + size * _LIMIT_S_PER_GIB // (1 << 30)
    with tempfile.TemporaryDirectory(prefix="snapshot") as folder:
        target = Path(folder) / "arrays.npz"
        module = "gpulab.allocators.snapshot.worker"
        command = [
            sys.executable,
            "-m",
            module,
            str(source.resolve()),
            str(target),
            str(limit_bytes),
            str(limit_s),
        ]
        root = str(Path(__file__).resolve().parents[3])
        known = os.environ.get("PYTHONPATH")
        environment = {**os.environ, "PYTHONPATH": root + (os.pathsep + known if known else "")}
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=3 * limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SnapshotError(f"{source.name!r} was not read within {3 * limit_s} s: given up.") from None
        if done.returncode == 1 and done.stdout.strip():
            raise SnapshotError(f"{source.name!r} cannot be opened. {done.stdout.strip()}")
        if done.returncode:
            why = (
                f"reading it takes more than {limit_s} s of a processor"
                if done.returncode in _KILLED
                else "reading it crashes Python"
            )
            raise SnapshotError(f"{source.name!r} cannot be opened: {why}; it is damaged, or made to do so.")
        with np.load(target, allow_pickle=False) as found:
            return of_arrays(dict(found), source.name)


def of_arrays(found: dict[str, Array], name: str) -> Snapshot:
    """Build the records from the arrays that `worker.arrays` returns."""
    about = json.loads(found["about"].tobytes().decode("utf-8", "surrogatepass"))
    frames = [Frame(*frame) for frame in about["frames"]]
    flat = [frames[number] for number in found["stack_frames"].tolist()]
    ends = found["stack_ends"].tolist()
    stacks: tuple[Stack, ...] = tuple(
        tuple(flat[start:end]) for start, end in zip([0, *ends], ends, strict=False)
    )
    traces = {}
    last = {}
    for key, note in about["devices"].items():
        device = int(key)
        prefix = f"{key}."
        provenance = _provenance(about["provenance"], device, name)
        times = found[prefix + "times_us"] * 1000
        events = AllocatorEvents(
            actions=found[prefix + "actions"],
            addresses=found[prefix + "addresses"],
            size_bytes=found[prefix + "sizes"],
            requested_bytes=_requested(found, prefix),
            streams=found[prefix + "streams"],
            time_ns=times,
            stacks=found[prefix + "stacks"],
        )
        start, end = (int(times[0]), int(times[-1])) if len(times) else (0, 0)
        first = _map(found, prefix + "first_", about["pools"], provenance, device, start)
        last[device] = _map(found, prefix + "last_", about["pools"], provenance, device, end)
        traces[device] = AllocatorTrace(
            provenance=provenance,
            device_id=device,
            allocator=about["allocator"],
            first=first,
            events=events,
            stacks=stacks,
            settings=about["settings"],
            capacity_bytes=0,
            note=note,
        )
    return Snapshot(traces, last)


def _provenance(told: list[str], device: int, name: str) -> Provenance:
    """Return the origin of the numbers; measured numbers become recorded ones."""
    match told:
        case ["modelled", device_name, detail]:
            return Provenance("modelled", device_name, detail)
        case ["measured" | "recorded", device_name, _]:
            return Provenance("recorded", device_name, name)
    return Provenance("recorded", f"GPU {device} of a PyTorch program", name)


def _requested(found: dict[str, Array], prefix: str) -> Array:
    """Return the requested bytes of each event; events of segments have none."""
    actions = found[prefix + "actions"]
    return np.where(actions <= 2, found[prefix + "requested"], 0)


def _map(
    found: dict[str, Array], prefix: str, pools: list[str], provenance: Provenance, device: int, time_ns: int
) -> BlockMap:
    rows = found[prefix + "blocks"].tolist()
    segments = []
    at = 0
    for address, size, stream, pool, is_expandable in found[prefix + "segments"].tolist():
        blocks: list[Block] = []
        end = address
        while at < len(rows) and rows[at][0] < address + size:
            start, length, requested, state, stack, event = rows[at]
            at += 1
            if start < end:  # only where a snapshot contradicts itself
                continue
            if start > end:
                blocks.append(Block(address=end, size_bytes=start - end, is_free=True))
            length = min(length, address + size - start)
            blocks.append(
                Block(
                    address=start,
                    size_bytes=length,
                    is_free=state == FREE,
                    requested_bytes=requested,
                    is_waiting=state == WAITING,
                    stack=stack,
                    event=event,
                )
            )
            end = start + length
        if end < address + size:
            blocks.append(Block(address=end, size_bytes=address + size - end, is_free=True))
        segments.append(Segment(address, size, stream, tuple(blocks), pools[pool], bool(is_expandable)))
    return BlockMap(provenance, device, time_ns, 0, tuple(segments))

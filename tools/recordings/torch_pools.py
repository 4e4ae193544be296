"""Record the behaviour of PyTorch's caching allocator in random sequences of calls.

    python -m tools.recordings.torch_pools --out FOLDER      # where a GPU and torch are; at most 90 s

Two processes, one with PyTorch's defaults and one with expandable segments, write a recording each
(`Recording.load`): statistics after every call, the blocks at the end of every sequence, a digest of all
events of its history, and the addresses that the driver gave. A third writes two snapshots as PyTorch dumps
them. What a seed means is `program`, so that a test plays the same sequence to the model.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import io
import json
import lzma
import os
import random
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

KIB = 1 << 10
MIB = 1 << 20
STREAMS = 4
COLUMNS = (
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "inactive_split",
    "segment",
    "num_alloc_retries",
    "num_ooms",
    "pending",
)
"""What is noted after each call; ``pending`` has a bit for each stream that has work left."""
UNITS = np.array([512, 512, 512, 512, 1, 1, 1, 1, 1])
SETTINGS = {
    "plain": "",
    "limit": "",
    "split": "max_split_size_mb:{mb}",
    "split limit": "max_split_size_mb:{mb},max_non_split_rounding_mb:{more}",
    "rounded": "roundup_power2_divisions:{divisions}",
    "garbage": "garbage_collection_threshold:{part}",
    "segments": "large_segment_size_mb:{big}",
    "all": "large_segment_size_mb:{big},max_split_size_mb:{more_than_big},"
    "roundup_power2_divisions:{divisions},garbage_collection_threshold:{part}",
}
_PROGRAM_KINDS = ("plain", "plain", "plain", "limit", "split", "rounded", "garbage", "split limit")
_WIDE_PROGRAM_KINDS = ("plain", "limit", "all", "split limit", "segments", "garbage")
WIDE = 1_000_000
"""Programs from this seed on are longer, with larger blocks, more sharing and more settings."""
DEFAULT_SEQUENCES = 1040
EXPANDABLE_SEQUENCES = 520
FULL_STATISTICS = 24
_EVENT_CODES = {
    name: code
    for code, name in enumerate(
        (
            "alloc",
            "free_requested",
            "free_completed",
            "segment_alloc",
            "segment_free",
            "segment_map",
            "segment_unmap",
            "oom",
        )
    )
}


class Step(NamedTuple):
    """One call in a sequence: its kind, the number of the allocation, and its bytes or its stream."""

    kind: str
    number: int = -1
    value: int = 0
    stream: int = 0


def program(seed: int) -> tuple[str, list[Step]]:
    """Draw allocator settings and a sequence of calls. Only `random.Random.random` is used."""
    rng = random.Random(seed)

    def pick(options: Sequence[Any]) -> Any:
        return options[int(rng.random() * len(options))]

    is_wide = seed >= WIDE
    program_kinds = _WIDE_PROGRAM_KINDS if is_wide else _PROGRAM_KINDS
    program_kind = program_kinds[seed % len(program_kinds)]
    large_size_mb = pick((12, 16, 20, 30, 64)) if is_wide else 20
    settings = SETTINGS[program_kind].format(
        mb=pick((20, 24, 32, 64, 100)),
        more=pick((20, 32, 128)),
        divisions=pick(("2", "4", "8", "[256:1,512:2,1024:4,>:8]", "[1:4,4:2,>:16]", "[64:8,>:0]")),
        part=pick((0.3, 0.5, 0.6, 0.8)),
        big=large_size_mb,
        more_than_big=large_size_mb + 12,
    )
    steps: list[Step] = []
    if program_kind in ("limit", "garbage", "split limit", "all"):
        steps.append(Step("limit", value=int(2 ** (26 + (7 if is_wide else 4.5) * rng.random()))))
    size_kinds = [pick((*_SIZE_KINDS, "huge") if is_wide else _SIZE_KINDS) for _ in range(3)]
    stream_choices = [int(rng.random() * STREAMS) if rng.random() < 0.4 else 0 for _ in range(3)]
    live_numbers: list[int] = []
    uses_other_streams = rng.random() < (0.8 if is_wide else 0.5)
    alloc_probability = 0.5 + 0.25 * rng.random()
    for step_number in range(14 + int((250 if is_wide else 52) * rng.random())):
        random_draw = rng.random()
        if not live_numbers or random_draw < alloc_probability:
            steps.append(Step("alloc", step_number, _draw_size(pick(size_kinds), rng), pick(stream_choices)))
            live_numbers.append(step_number)
        elif random_draw < 0.96:
            live_index = (
                len(live_numbers) - 1 if rng.random() < 0.3 else int(rng.random() * len(live_numbers))
            )
            freed_number = live_numbers.pop(live_index)
            if uses_other_streams and rng.random() < 0.35:
                for _ in range(1 + int(1.3 * rng.random())):
                    steps.append(Step("use", freed_number, stream=int(rng.random() * STREAMS)))
            steps.append(Step("free", freed_number))
        elif random_draw < 0.98:
            steps.append(Step("empty"))
        if uses_other_streams and rng.random() < 0.12:
            steps.append(Step(pick(("close", "open")), stream=1 + int(rng.random() * (STREAMS - 1))))
        if len(live_numbers) > 30:
            alloc_probability = 0.3
    return settings, steps


_SIZE_KINDS = ("tiny", "small", "edge", "middle", "large", "large", "mixed")
_EDGE_SIZES = (
    512,
    1024,
    512 * KIB,
    MIB,
    2 * MIB,
    9 * MIB,
    10 * MIB,
    12 * MIB,
    19 * MIB,
    20 * MIB,
    21 * MIB,
    32 * MIB,
)


def _draw_size(size_kind: str, rng: random.Random) -> int:
    if size_kind == "mixed":
        size_kind = _SIZE_KINDS[int(rng.random() * 5)]
    if size_kind == "tiny":
        return 1 + int(4000 * rng.random())
    if size_kind == "small":
        return int(2 ** (9 + 11 * rng.random()))
    if size_kind == "edge":
        return max(1, _EDGE_SIZES[int(rng.random() * len(_EDGE_SIZES))] + int(5 * rng.random() - 2) * 256)
    if size_kind == "middle":
        return int(MIB + 9.5 * MIB * rng.random())
    if size_kind == "huge":
        return int(2 ** (27 + 3.6 * rng.random()))
    return int(2 ** (23 + 5 * rng.random()))


class Side(Protocol):
    """An allocator that executes a sequence of calls: PyTorch's on a GPU, or its model."""

    def start(self, settings: str) -> None: ...
    def step(self, step: Step) -> None: ...
    def row(self) -> list[int]: ...
    def finish(self) -> tuple[list[int], list[tuple[str, int, int, int]]]: ...
    def statistics(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Recording:
    """Results of one recording process.

    ``rows`` has a line of `COLUMNS` for each call of each sequence, ``starts`` where a sequence begins in
    it; ``layouts`` numbers per sequence from `list_layout`, ``segments`` code, address and size of the
    events that took segments from the device or gave them back, ``digests`` one number over all events.
    """

    about: dict[str, Any]
    rows: npt.NDArray[np.int64]
    starts: list[int]
    layouts: list[list[int]]
    segments: list[list[tuple[int, int, int]]]
    digests: list[int]

    def save(self, path: Path) -> None:
        rows = self.rows // UNITS
        rows[:, 2] -= rows[:, 0]  # active bytes are nearly always the allocated ones
        rows = np.diff(rows, axis=0, prepend=0)
        flat_arrays = [
            np.array([n for sequence_numbers in sequences for n in sequence_numbers], np.int64)
            for sequences in (self.layouts, self.segments)
        ]
        segment_rows = flat_arrays[1].reshape(-1, 3)
        buffer = io.BytesIO()
        np.savez(
            buffer,
            about=np.frombuffer(json.dumps(self.about).encode(), np.uint8),
            rows=np.ascontiguousarray(rows.T.astype(np.int32)),
            starts=np.array(self.starts, np.int32),
            layouts=flat_arrays[0].astype(np.int32),
            layout_ends=np.cumsum([len(sequence_numbers) for sequence_numbers in self.layouts]),
            segments=np.ascontiguousarray(
                np.stack([segment_rows[:, 0], segment_rows[:, 1] // 512, segment_rows[:, 2] // 512])
            ),
            segment_ends=np.cumsum([len(sequence_numbers) for sequence_numbers in self.segments]),
            digests=np.array(self.digests, np.uint32),
        )
        path.write_bytes(lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME))

    @classmethod
    def load(cls, path: Path) -> Recording:
        with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
            rows = np.cumsum(arrays["rows"].T.astype(np.int64), axis=0)
            rows[:, 2] += rows[:, 0]
            rows *= UNITS
            layouts = np.split(arrays["layouts"], arrays["layout_ends"][:-1])
            event_codes, addresses, sizes = arrays["segments"].astype(np.int64)
            segment_rows = list(
                zip(event_codes.tolist(), (addresses * 512).tolist(), (sizes * 512).tolist(), strict=True)
            )
            segment_ends = arrays["segment_ends"].tolist()
            return cls(
                json.loads(arrays["about"].tobytes()),
                rows,
                arrays["starts"].tolist(),
                [layout.tolist() for layout in layouts],
                [segment_rows[a:b] for a, b in zip([0, *segment_ends[:-1]], segment_ends, strict=True)],
                arrays["digests"].tolist(),
            )


def list_layout(segments: Iterable[tuple[int, int, bool, bool, list[tuple[int, int]]]]) -> list[int]:
    """Convert segments and their blocks to a list of numbers.

    Addresses count from the first segment's, and from there on in 512 bytes.
    """
    layout_numbers: list[int] = []
    first_address = None
    for address, stream, is_large, is_expandable, blocks in sorted(segments):
        first_address = address if first_address is None else first_address
        layout_numbers += [
            (address - first_address) // 512 % (1 << 31),
            stream,
            is_large + 2 * is_expandable,
            len(blocks),
        ]
        for size, state in blocks:
            layout_numbers += [size // 512, state]
    return [int(number) for number in layout_numbers]


def record(side: Side, seeds: Iterable[int], about: dict[str, Any], seconds: float = 1e9) -> Recording:
    """Execute the programs of some seeds with one allocator, and return the recording."""
    deadline_s = time.perf_counter() + seconds
    rows: list[list[int]] = []
    row_starts = list[int]()
    digests = list[int]()
    recorded_seeds = list[int]()
    layouts = []
    segments = []
    statistics = []
    for seed in seeds:
        if time.perf_counter() > deadline_s:
            break
        settings, steps = program(seed)
        side.start(settings)
        row_starts.append(len(rows))
        for step in steps:
            side.step(step)
            rows.append(side.row())
        if len(recorded_seeds) < FULL_STATISTICS:
            statistics.append(side.statistics())
        layout, events = side.finish()
        layouts.append(layout)
        segments.append(
            [
                (_EVENT_CODES[name], address, size)
                for name, address, size, _ in events
                if name.startswith("segment")
            ]
        )
        digests.append(compute_checksum(events))
        recorded_seeds.append(seed)
    about = {**about, "seeds": recorded_seeds, "statistics": statistics}
    return Recording(about, np.array(rows, np.int64), row_starts, layouts, segments, digests)


def compute_checksum(events: Iterable[tuple[str, int, int, int]]) -> int:
    """Return a checksum of events: action, address (0 for oom), bytes and stream."""
    event_rows = [
        (_EVENT_CODES[name], 0 if name == "oom" else address, size, stream)
        for name, address, size, stream in events
    ]
    return zlib.crc32(np.array(event_rows, np.int64).tobytes())


class Gates:
    """Gates that keep streams busy until they are opened: a kernel waits for a number in host memory."""

    def __init__(self, torch: Any, streams: Sequence[Any]) -> None:
        self._streams = streams
        self._torch = torch
        self._numbers = torch.zeros(len(streams), dtype=torch.int32).pin_memory()
        self._wait = ctypes.CDLL("libcuda.so.1").cuStreamWaitValue32_v2
        self._wait.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
        self._request_counts = [0] * len(streams)
        self.closed: set[int] = set()
        self._lock = threading.Lock()

    def close(self, stream: int) -> None:
        with self._lock:
            self._request_counts[stream] += 1
            self.closed.add(stream)
            address = self._numbers.data_ptr() + 4 * stream
            result = self._wait(self._streams[stream].cuda_stream, address, self._request_counts[stream], 0)
        if result:
            raise RuntimeError(f"cuStreamWaitValue32 failed with {result}")

    def open(self, stream: int) -> None:
        with self._lock:
            self._numbers[stream] = self._request_counts[stream]
            self.closed.discard(stream)

    def open_all(self) -> None:
        for stream in range(len(self._streams)):
            self.open(stream)

    def settle(self) -> None:
        """Wait for the streams whose gates are open."""
        for stream_number, stream in enumerate(self._streams):
            if stream_number not in self.closed:
                stream.synchronize()


class Gpu:
    """PyTorch's allocator on the GPU of this process."""

    def __init__(self) -> None:
        torch: Any = importlib.import_module("torch")
        self.torch = torch
        torch.cuda.init()
        torch.empty(1, device="cuda")
        self.streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(STREAMS - 1))]
        self.handles = {stream.cuda_stream: number for number, stream in enumerate(self.streams)}
        self.gates = Gates(torch, self.streams)
        self.total_bytes = torch.cuda.get_device_properties(0).total_memory
        self.expandable = "True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        self._alive: dict[int, Any] = {}
        self._start_s = 0.0
        self.forced = 0
        threading.Thread(target=self._open_awaited_gates, daemon=True).start()

    def _open_awaited_gates(self) -> None:
        """Open the gates when a call of the allocator waits for them."""
        while True:
            time.sleep(0.004)
            if self._start_s and time.perf_counter() - self._start_s > 0.02:
                self.forced += bool(self.gates.closed)
                self.gates.open_all()

    def about(self) -> dict[str, Any]:
        torch = self.torch
        return {
            "device": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "total_bytes": self.total_bytes,
            "free_bytes": torch.cuda.mem_get_info()[0],
            "streams": [stream.cuda_stream for stream in self.streams],
            "expandable": self.expandable,
        }

    def start(self, settings: str) -> None:
        torch = self.torch
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
        # What is not named keeps its value in some cases, and gets its default back in others.
        default_settings = {"large_segment_size_mb": "20", "expandable_segments": str(self.expandable)}
        remaining_settings = ",".join(
            f"{name}:{value}" for name, value in default_settings.items() if name not in settings
        )
        torch._C._accelerator_setAllocatorSettings(",".join(filter(None, (remaining_settings, settings))))
        torch.cuda.reset_accumulated_memory_stats()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.memory._record_memory_history("all", context=None, max_entries=100_000, clear_history=True)

    def step(self, step: Step) -> None:
        torch = self.torch
        self._start_s = time.perf_counter()
        if step.kind == "alloc":
            torch.cuda.set_stream(self.streams[step.stream])
            with contextlib.suppress(torch.cuda.OutOfMemoryError):
                self._alive[step.number] = torch.empty(step.value, dtype=torch.uint8, device="cuda")
        elif step.kind == "free":
            self._alive.pop(step.number, None)
            self.gates.settle()
        elif step.kind == "use":
            if step.number in self._alive:
                self._alive[step.number].record_stream(self.streams[step.stream])
        elif step.kind == "close":
            self.gates.close(step.stream)
        elif step.kind == "open":
            self.gates.open(step.stream)
            self.gates.settle()
        elif step.kind == "empty":
            self.gates.open_all()
            self.gates.settle()
            torch.cuda.empty_cache()
        else:
            torch.cuda.set_per_process_memory_fraction(step.value / self.total_bytes)
        self._start_s = 0.0

    def row(self) -> list[int]:
        memory_stats = self.torch._C._cuda_memoryStats(0)
        pending_streams = sum(1 << stream for stream in self.gates.closed)
        return [
            *(memory_stats[name]["all"]["current"] for name in COLUMNS[:6]),
            memory_stats["num_alloc_retries"],
            memory_stats["num_ooms"],
            pending_streams,
        ]

    def statistics(self) -> dict[str, Any]:
        stats: dict[str, Any] = self.torch.cuda.memory_stats_as_nested_dict()
        return {"nested": stats, "summary": self.torch.cuda.memory_summary()}

    def finish(self) -> tuple[list[int], list[tuple[str, int, int, int]]]:
        torch = self.torch
        snapshot = torch.cuda.memory._snapshot()
        code_by_state = {"inactive": 0, "active_allocated": 1}
        layout_numbers = list_layout(
            (
                s["address"],
                self.handles[s["stream"]],
                s["segment_type"] == "large",
                s["is_expandable"],
                [(b["size"], code_by_state.get(b["state"], 2)) for b in s["blocks"]],
            )
            for s in snapshot["segments"]
        )
        events = [
            (e["action"], e.get("addr", 0), e["size"], self.handles.get(e["stream"], -1))
            for e in snapshot["device_traces"][0]
            if e["action"] in _EVENT_CODES
        ]
        torch.cuda.memory._record_memory_history(None)
        self.gates.open_all()
        torch.cuda.synchronize()
        self._alive.clear()
        torch.cuda.synchronize()
        return layout_numbers, events


def record_snapshots(folder: Path) -> None:
    """Record two snapshots with stack traces: a small training loop, and one that runs out of memory."""
    torch: Any = importlib.import_module("torch")

    def layer(x: Any, weight: Any) -> Any:
        return torch.relu(x @ weight)

    def loop(steps: int, width: int) -> None:
        weight_matrices = [torch.randn(width, width, device="cuda", requires_grad=True) for _ in range(3)]
        side_stream = torch.cuda.Stream()
        for step in range(steps):
            x = torch.randn(64 + 16 * step, width, device="cuda")
            for weight in weight_matrices:
                x = layer(x, weight)
            x.sum().backward()
            tensor = torch.empty(width * 1024, device="cuda")
            with torch.cuda.stream(side_stream):
                torch.cuda._sleep(20_000_000)
                tensor.record_stream(side_stream)
            del tensor, x

    record_history = torch.cuda.memory._record_memory_history
    record_history("all", context="all", stacks="python", max_entries=10_000)
    loop(4, 512)
    torch.cuda.memory._dump_snapshot(str(folder / "torch_loop.pickle"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    record_history(None)
    record_history("all", context="all", stacks="python", max_entries=10_000, clear_history=True)
    total_bytes = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (80 << 20)) / total_bytes)
    tensors = [torch.empty(n << 18, device="cuda") for n in (3, 9, 14, 22)]
    del tensors[1]
    tensors.append(torch.empty(700_000, device="cuda"))
    with contextlib.suppress(torch.cuda.OutOfMemoryError):
        tensors.append(torch.empty(60 << 20, dtype=torch.uint8, device="cuda"))
    torch.cuda.memory._dump_snapshot(str(folder / "torch_oom.pickle"))
    for path in folder.glob("torch_*.pickle"):
        path.with_suffix(".pickle.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))
        path.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, each in its process; return the process's exit status."""
    parser = argparse.ArgumentParser(description="Record PyTorch's caching allocator.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--part", choices=("default", "expandable", "snapshots"), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=45, help="for the sequences of one process")
    parser.add_argument("--first", type=int, default=0, help="first seed; others than the tests'")
    options = parser.parse_args(arguments)
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    if options.part == "snapshots":
        record_snapshots(folder)
        return 0
    if options.part:
        gpu = Gpu()
        sequence_count = DEFAULT_SEQUENCES if options.part == "default" else EXPANDABLE_SEQUENCES
        seeds = range(options.first, options.first + sequence_count)
        recording = record(gpu, seeds, gpu.about(), options.seconds)
        recording.about["forced"] = gpu.forced
        recording.save(folder / f"torch_pools_{options.part}.npz.xz")
        size_text = f"{len(recording.starts)} sequences, {len(recording.rows)} calls"
        print(f"{options.part}: {size_text}, {gpu.forced} times a call waited for a gate")
        return 0
    pending_processes = []
    for part in ("default", "expandable", "snapshots"):
        command = [sys.executable, "-m", "tools.recordings.torch_pools", "--out", str(folder), "--part", part]
        command += ["--seconds", str(options.seconds), "--first", str(options.first)]
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{part == 'expandable'}"}
        pending_processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.STDOUT))
    status = 0
    for process in pending_processes:
        try:
            status |= process.wait(options.seconds + 40)
        except subprocess.TimeoutExpired:
            process.kill()
            status = 1
            print(f"stopped: {process.args!r}")
    return status


if __name__ == "__main__":
    sys.exit(main())

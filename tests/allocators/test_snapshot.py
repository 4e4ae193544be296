"""PyTorch's snapshots: written, read back, and refused where they would run code."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import os
import pickle
import pickletools
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpulab.allocators.cupy import CuPyAllocator
from gpulab.allocators.replay import reconstruct_requests, replay
from gpulab.allocators.snapshot import Snapshot, SnapshotError, plain, read_snapshot, worker, write_snapshot
from gpulab.allocators.snapshot.reader import make_snapshot
from gpulab.allocators.steps import make_block_map, make_history
from gpulab.allocators.torch import TorchAllocator
from tests.allocators.test_replay import program
from tools.recordings import FOLDER
from virtualgpu.records.memory import ACTIONS, AllocatorTrace, Block, BlockMap, Frame

MIB = 1 << 20


def opened(path: Path) -> Snapshot:
    """Read a snapshot as `read_snapshot` does, but in this process."""
    with path.open("rb") as file:
        return make_snapshot(worker.make_arrays(plain.load_pickle(file)), path.name)


def blocks(block_map: BlockMap) -> list[tuple[Any, ...]]:
    """Return the mapped blocks of a map, as far as a snapshot contains them."""
    result = []
    for segment in block_map.segments:
        mapped_blocks = [block for block in segment.blocks if not block.is_unmapped]
        result += [
            (b.address, b.size_bytes, b.state, b.requested_bytes, segment.stream) for b in mapped_blocks
        ]
    return result


def as_pytorch(path: Path) -> Path:
    """Remove the fields that only `write_snapshot` writes."""
    data = pickle.loads(path.read_bytes())
    for key in ("allocator", "provenance"):
        del data[key]
    for segment in data["segments"]:
        del segment["pool_name"]
    for event in data["device_traces"][-1]:
        del event["block_size"]
    path.write_bytes(pickle.dumps(data))
    return path


def rows(trace: AllocatorTrace) -> list[tuple[Any, ...]]:
    """Return events with their stacks; PyTorch has only the rounded size of a failed request."""
    result = []
    for action, address, size, requested, stream, time_ns, stack in trace.events.rows():
        frames = trace.stacks[stack] if stack >= 0 else ()
        result.append((action, address, size, 0 if action == "oom" else requested, stream, time_ns, frames))
    return result


def traced(seed: int, settings: str, length: int = 160) -> tuple[AllocatorTrace, BlockMap]:
    """Return a trace with stacks, and the block map at its end."""
    pool = TorchAllocator(settings, capacity_bytes=700 * MIB)
    stacks = [(Frame("a.py", n, "f"), Frame("b.py", n + 1, "main")) for n in range(5)]
    requests = [replace(r, time_ns=r.time_ns * 1000) for r in program(seed, length)]
    return replay(requests, pool, stacks), pool.block_map()


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "max_split_size_mb:20"])
def test_a_snapshot_is_unchanged_after_writing_and_reading(tmp_path: Path, settings: str) -> None:
    for seed in range(12):
        trace, last = traced(seed, settings)
        snapshot = opened(write_snapshot(tmp_path / "pool.pickle", trace, last))
        read = snapshot.traces[0]
        assert rows(read) == rows(trace)
        assert blocks(snapshot.last_maps[0]) == blocks(last)
        assert read.first.segments == ()
        assert (read.settings, read.note, read.allocator) == (settings, "", trace.allocator)
        assert read.provenance == trace.provenance  # modelled, and still so
        assert {s.pool for s in snapshot.last_maps[0].segments} == {s.pool for s in last.segments}


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "max_split_size_mb:20"])
def test_block_sizes_missing_in_pytorch_snapshots_are_inferred(tmp_path: Path, settings: str) -> None:
    for seed in range(12):
        trace, last = traced(seed, settings)
        snapshot = opened(as_pytorch(write_snapshot(tmp_path / "pool.pickle", trace, last)))
        assert rows(snapshot.traces[0]) == rows(trace)
        assert blocks(snapshot.last_maps[0]) == blocks(last)
        assert snapshot.traces[0].provenance.source == "recorded"


def test_a_cupy_trace_is_unchanged_after_writing_and_reading(tmp_path: Path) -> None:
    pool = CuPyAllocator()
    trace = replay([replace(r, stack=-1, time_ns=r.time_ns * 1000) for r in program(2)], pool)
    snapshot = opened(write_snapshot(tmp_path / "pool.pickle", trace, pool.block_map()))
    assert snapshot.traces[0].allocator == "CuPy's pool"
    assert rows(snapshot.traces[0]) == rows(trace)
    assert blocks(snapshot.last_maps[0]) == blocks(pool.block_map())


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_a_trace_that_starts_late_has_its_initial_state(tmp_path: Path, settings: str) -> None:
    for seed in range(12):
        pool = TorchAllocator(settings)
        requests = program(seed)
        replay(requests[:60], pool)
        before = pool.block_map()
        addresses = {b.address for b in before.blocks if b.state == "used"}
        log: list[tuple[Any, ...]] = []
        pool.event_sink = lambda *event, log=log: log.append(event)  # type: ignore[misc]
        for address in sorted(addresses)[::2]:
            pool.free(address)
        gaps = [(b.size_bytes, s.stream) for s in before.segments for b in s.blocks if b.state == "free"]
        addresses_later = [pool.malloc(max(1, size - (size >> 5)), stream) for size, stream in gaps]
        addresses_later += [pool.malloc(3 * MIB + seed, 0) for _ in range(4)]
        for address in addresses_later[::2]:
            pool.free(address)
        pool.empty_cache()
        trace, _ = traced(seed, settings, length=1)
        events = _events(log)
        written = write_snapshot(tmp_path / "p.pickle", replace(trace, events=events), pool.block_map())
        snapshot = opened(as_pytorch(written))
        assert blocks(snapshot.traces[0].first) == [
            (a, size, state, requested if state != "free" else 0, stream)
            for a, size, state, requested, stream in blocks(before)
        ]
        assert rows(snapshot.traces[0]) == rows(replace(trace, events=events))
        assert blocks(snapshot.last_maps[0]) == blocks(pool.block_map())


def _events(log: list[tuple[Any, ...]]) -> Any:
    from gpulab.allocators.log import EventLog

    events = EventLog()
    for event in log:
        events.append_event(*event)
    return events.events()


VIEWER_OPCODES = """
APPEND APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINPUT BINUNICODE DICT EMPTY_DICT EMPTY_LIST
EMPTY_TUPLE FRAME LIST LONG1 LONG_BINGET LONG_BINPUT MARK MEMOIZE NEWFALSE NEWTRUE NONE PROTO SETITEM
SETITEMS SHORT_BINUNICODE STOP TUPLE TUPLE1 TUPLE2 TUPLE3
"""


def test_pickles_use_only_opcodes_that_pytorchs_viewer_supports(tmp_path: Path) -> None:
    """PyTorch's ``MemoryViz.js`` reads only these opcodes of pickles."""
    for settings in ("", "expandable_segments:True,garbage_collection_threshold:0.5"):
        data = write_snapshot(tmp_path / "x.pickle", *traced(5, settings)).read_bytes()
        used = [(op.name, arg) for op, arg, _ in pickletools.genops(data)]
        assert {name for name, _ in used} <= {*VIEWER_OPCODES.split()}
        assert [arg for name, arg in used if name == "PROTO"] == [4]


def test_a_snapshot_of_several_devices_is_read(tmp_path: Path) -> None:
    trace, last = traced(1, "")
    one, other = (
        pickle.loads(write_snapshot(tmp_path / "x", t, m).read_bytes())
        for t, m in ((trace, last), (replace(trace, device_id=2), replace(last, device_id=2)))
    )
    both = {
        "segments": one["segments"] + other["segments"],
        "device_traces": [one["device_traces"][0], [], other["device_traces"][2]],
    }
    (tmp_path / "both.pickle").write_bytes(pickle.dumps(both))
    snapshot = read_snapshot(tmp_path / "both.pickle")
    assert snapshot.device_ids == (0, 2)
    assert snapshot.last_maps[2].device_id == 2
    assert blocks(snapshot.last_maps[0]) == blocks(snapshot.last_maps[2]) == blocks(last)
    assert rows(snapshot.traces[2]) == rows(trace)


def test_segments_without_traces_and_old_snapshots_are_read(tmp_path: Path) -> None:
    old = [
        {
            "device": 0,
            "address": 4096,
            "total_size": 3072,
            "stream": 0,
            "segment_type": "small",
            "blocks": [
                {
                    "size": 1024,
                    "state": "active_allocated",
                    "history": [{"real_size": 900, "frames": [{"filename": "a.py", "line": 3, "name": "f"}]}],
                },
                {"size": 2048, "state": "inactive"},
            ],
        }
    ]
    path = tmp_path / "old.pickle"
    path.write_bytes(pickle.dumps(old))
    snapshot = opened(path)
    (segment,) = snapshot.last_maps[0].segments
    assert segment.blocks == (
        Block(address=4096, size_bytes=1024, is_free=False, requested_bytes=900, stack=0),
        Block(address=5120, size_bytes=2048, is_free=True),
    )
    assert snapshot.traces[0].stacks == ((Frame("a.py", 3, "f"),),)


def real(name: str, tmp_path: Path) -> Path:
    """A snapshot that PyTorch 2.11 dumped on an H200 (`tools.recordings.torch_pools`)."""
    path = tmp_path / f"{name}.pickle"
    path.write_bytes(lzma.decompress((FOLDER / f"{name}.pickle.xz").read_bytes()))
    return path


def test_snapshot_of_a_training_loop_is_read_and_replayed(tmp_path: Path) -> None:
    snapshot = read_snapshot(real("torch_loop", tmp_path))
    (trace,) = snapshot.traces.values()
    assert (len(trace.events), trace.note, trace.settings) == (232, "", "expandable_segments:False")
    assert trace.stacks[0][0] == Frame("tools/recordings/torch_pools.py", 418, "layer")
    # From the final state back to the first, by the trace's rules, and forward again, by the map's.
    assert trace.first.segments == ()
    assert blocks(make_block_map(make_history(trace), len(trace.events))) == blocks(snapshot.last_maps[0])
    pool = TorchAllocator(trace.settings)
    second_trace = replay(reconstruct_requests(trace), pool, trace.stacks)
    assert [(r[0], r[2], r[3]) for r in rows(second_trace)] == [(r[0], r[2], r[3]) for r in rows(trace)]
    assert sum(block.is_waiting for block in snapshot.last_maps[0].blocks) == 3


def test_snapshot_of_an_out_of_memory_error_is_read(tmp_path: Path) -> None:
    snapshot = read_snapshot(real("torch_oom", tmp_path))
    trace = snapshot.traces[0]
    last = snapshot.last_maps[0]
    assert rows(trace)[-1][0] == "oom"
    assert rows(trace)[-1][2] == 60 * MIB
    assert trace.first.used_bytes == 64 * MIB  # cuBLAS's workspace of the loop before
    assert blocks(make_block_map(make_history(trace), len(trace.events))) == blocks(last)
    data = pickle.loads(real("torch_oom", tmp_path).read_bytes())
    assert last.total_bytes == sum(segment["total_size"] for segment in data["segments"])
    assert last.used_bytes == sum(segment["active_size"] for segment in data["segments"])


# --- files that must be refused


class _Runs:
    """An object whose pickle calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.what = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what


def test_a_malicious_pickle_is_refused_and_not_executed(tmp_path: Path) -> None:
    path = tmp_path / "bad.pickle"
    flag = tmp_path / "flag"
    for protocol in range(6):
        path.write_bytes(pickle.dumps({"segments": [], "x": _Runs(os.mkdir, str(flag))}, protocol=protocol))
        with pytest.raises(SnapshotError, match=r"would run '(posix|nt)\.mkdir'"):
            opened(path)
    with pytest.raises(SnapshotError, match=r"bad\.pickle.*mkdir"):
        read_snapshot(path)
    assert not flag.exists()


OTHERS = {
    "a class": b"cbuiltins\nobject\n.",
    "a class by the stack": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "an old instance": b"(ibuiltins\neval\n.",
    "an object": b"(cbuiltins\nprint\nV1\no.",
    "a registered class": b"\x80\x02\x82\x01.",
    "a call of a string": b"\x80\x02X\x01\x00\x00\x00a)R.",
    "a new object of a string": b"\x80\x02X\x01\x00\x00\x00a)\x81.",
    "a state for a list": b"\x80\x02]}X\x01\x00\x00\x00aK\x01sb.",
    "something outside": b"\x80\x02K\x01Q.",
    "something outside by name": b"Pabc\n.",
    "a buffer outside": b"\x80\x05\x97.",
    "nothing": b"",
    "text": b"segments: none\n",
    "no end": b"\x80\x04}",
    "an empty stack": b"\x80\x04.",
    "an unknown protocol": b"\x80\xff.",
    "a memo that is not there": b"\x80\x04h\x05.",
    "a string longer than the file": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"a.",
    "a negative length": b"T\xff\xff\xff\xffa.",
    "a huge number": b"L" + b"9" * 10_000 + b"L\n.",
    "an end too early": pickle.dumps({"segments": []}) + b"rest",
    "a number": b"\x80\x04K\x01.",
    "another dictionary": pickle.dumps({"weights": [1, 2]}),
    "a key that cannot be": b"\x80\x04}]K\x01s.",
}


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS.keys())
def test_pickles_that_are_no_snapshots_are_refused_briefly(data: bytes) -> None:
    with pytest.raises(SnapshotError) as caught:
        worker.make_arrays(plain.load_pickle(io.BytesIO(data)))
    assert 20 < len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


def test_a_truncated_snapshot_is_refused(tmp_path: Path) -> None:
    data = write_snapshot(tmp_path / "whole.pickle", *traced(3, "", length=30)).read_bytes()
    for end in range(0, len(data), 97):
        with pytest.raises(SnapshotError):
            worker.make_arrays(plain.load_pickle(io.BytesIO(data[:end])))


def test_a_corrupted_snapshot_is_read_or_refused(tmp_path: Path) -> None:
    data = write_snapshot(tmp_path / "whole.pickle", *traced(3, "", length=30)).read_bytes()
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(300):
        wrong = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            wrong[place] = rng.integers(256)
        if _fills_memory(bytes(wrong)):  # tried below, behind the limits
            continue
        try:
            make_snapshot(worker.make_arrays(plain.load_pickle(io.BytesIO(bytes(wrong)))), "x")
        except (SnapshotError, MemoryError):  # the latter is one of `read_snapshot`'s sentences
            refused += 1
    assert refused > 20


def _fills_memory(data: bytes) -> bool:
    with contextlib.suppress(ValueError):
        return any("PUT" in op.name and arg > 10**6 for op, arg, _ in pickletools.genops(data))
    return False


def _snapshot(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> bytes:
    data = pickle.loads(write_snapshot(tmp_path / "x.pickle", *traced(4, "", length=40)).read_bytes())
    change(data)
    return pickle.dumps(data)


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "segments": lambda s: s.update(segments={}),
    "no size": lambda s: s["segments"][0].pop("total_size"),
    "size as text": lambda s: s["segments"][0].update(total_size="2"),
    "address as float": lambda s: s["segments"][0].update(address=1.5),
    "beyond 64 bits": lambda s: s["segments"][0].update(address=1 << 80),
    "negative": lambda s: s["segments"][0]["blocks"][0].update(size=-512),
    "a gap": lambda s: s["segments"][0]["blocks"].pop(),
    "state": lambda s: s["segments"][0]["blocks"][0].update(state="lost"),
    "state as a list": lambda s: s["segments"][0]["blocks"][0].update(state=[]),
    "overlap": lambda s: s["segments"].append(
        dict(s["segments"][0], address=s["segments"][0]["address"] + 512)
    ),
    "device": lambda s: s["segments"][0].update(device=10**9),
    "devices": lambda s: s.update(device_traces=[[]] * 10**5),
    "traces": lambda s: s.update(device_traces="x"),
    "trace": lambda s: s.update(device_traces=["x"]),
    "event": lambda s: s["device_traces"][0].append(3),
    "event without address": lambda s: s["device_traces"][0][0].pop("addr"),
    "event size": lambda s: s["device_traces"][0][0].update(size="2"),
    "event stream": lambda s: s["device_traces"][0][0].update(stream=None),
    "action": lambda s: s["device_traces"][0][0].update(action=[]),
    "frames": lambda s: s["device_traces"][0][0].update(frames=5),
    "frame": lambda s: s["device_traces"][0][0].update(frames=["x"]),
    "line": lambda s: s["device_traces"][0][0].update(frames=[{"line": "x"}]),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_inconsistent_snapshots_are_refused(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    with pytest.raises(SnapshotError) as caught:
        worker.make_arrays(plain.load_pickle(io.BytesIO(_snapshot(change, tmp_path))))
    assert "\n" not in str(caught.value)


def test_a_snapshot_with_out_of_range_numbers_is_read(tmp_path: Path) -> None:
    """PyTorch writes counters below 0 and handles of internal streams as large unsigned numbers."""
    path = tmp_path / "x.pickle"
    path.write_bytes(_snapshot(lambda s: None, tmp_path))
    whole = opened(path).traces[0]

    def change(snapshot: dict[str, Any]) -> None:
        events = snapshot["device_traces"][0]
        block = snapshot["segments"][0]["blocks"][0]
        refused = {**events[0], "action": "oom", "device_free": 2**64 - 512, "size": 64}
        del refused["addr"]
        events += [refused, {**events[0], "action": "alloc", "addr": 2**64 - 1, "size": 2**63}]
        events[0]["stream"] = 2**64 - 1
        block["requested_size"] = 2**64 - 8

    path.write_bytes(_snapshot(change, tmp_path))
    trace = opened(path).traces[0]
    assert len(trace.events) == len(whole.events) + 1
    assert (trace.events.actions[-1], trace.events.addresses[-1]) == (ACTIONS.index("oom"), 0)
    assert "1 event with an impossible size or address was left out." in trace.note
    np.testing.assert_array_equal(trace.events.size_bytes[1:-1], whole.events.size_bytes[1:])


def test_a_compressed_snapshot_opens(tmp_path: Path) -> None:
    path = tmp_path / "x.pickle"
    packed = tmp_path / "x.pickle.gz"
    path.write_bytes(_snapshot(lambda s: None, tmp_path))
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert rows(opened(packed).traces[0]) == rows(opened(path).traces[0])
    for damaged in (packed.read_bytes()[:-20], packed.read_bytes()[:100], b"\x1f\x8b" + bytes(50)):
        packed.write_bytes(damaged)
        with pytest.raises(SnapshotError):
            opened(packed)


def test_unknown_events_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "new.pickle"
    path.write_bytes(_snapshot(lambda s: s["device_traces"][0].append({"action": "user_defined"}), tmp_path))
    assert "1 'user_defined'" in opened(path).traces[0].note


BOMBS = {
    "a memo of 64 GiB": b"\x80\x02]r" + struct.pack("<I", (1 << 32) - 1) + b".",
    "bytes of 8 TiB": b"\x80\x05\x96" + struct.pack("<Q", 1 << 43) + b"a.",
    "a key nested too deep": b"\x80\x04}(" + b")" + b"\x85" * 3_000_000 + b"K\x01u.",
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS.keys())
def test_pickle_bombs_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.pickle"
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match=r"bomb\.pickle"):
        read_snapshot(path)


def test_deeply_nested_shared_lists_are_not_expanded(tmp_path: Path) -> None:
    laughs: list[Any] = ["ha"]
    for _ in range(60):
        laughs = [laughs] * 10
    for change in (
        lambda s: s.update(segments=laughs),
        lambda s: s["segments"][0].update(stream=laughs),
        lambda s: s["segments"][0]["blocks"][0].update(state=laughs),
        lambda s: s["device_traces"][0][0].update(frames=laughs),
        lambda s: s["device_traces"][0].append({"action": laughs}),
    ):
        with pytest.raises(SnapshotError) as caught:
            worker.make_arrays(plain.load_pickle(io.BytesIO(_snapshot(change, tmp_path))))
        assert len(str(caught.value)) < 250

    def owned_by_laughs(snapshot: dict[str, Any]) -> None:
        snapshot["segments"][0].update(segment_pool_id=laughs)
        del snapshot["segments"][0]["pool_name"]

    owned = plain.load_pickle(io.BytesIO(_snapshot(owned_by_laughs, tmp_path)))
    assert any(name.endswith("private pool a list.a list") for name in worker.SnapshotTables(owned).pools)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_snapshot(tmp_path / "none.pickle")
    with pytest.raises(SnapshotError, match="folder"):
        read_snapshot(tmp_path)
    with pytest.raises(SnapshotError, match="not an ordinary file"):
        read_snapshot(os.devnull)

"""Trace files of what a GPU ran: gpulab's own, asked again by SQL, and those of the PyTorch profiler."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from tests.trace.test_overlap import QUERY

pytestmark = pytest.mark.gpu
ENGINES = {"kernel": "compute", "HtoD": "H2D", "DtoH": "D2H"}


def overlapped(cp: Any) -> None:
    """Copies in, kernels and copies out, in pieces given to two streams in turn."""
    size = 1 << 20
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    hosts = [np.frombuffer(cp.cuda.alloc_pinned_memory(4 * size), np.float32, size) for _ in streams]
    arrays = [cp.ones(size, cp.float32) for _ in streams]
    for piece in range(8):
        at = piece % 2
        with streams[at]:
            arrays[at].set(hosts[at])
            for _ in range(20):
                arrays[at] *= 2
            arrays[at].get(out=hosts[at], blocking=False)
    cp.cuda.Device().synchronize()


def test_a_saved_timeline_is_unchanged_and_its_overlap_equals_sql(tmp_path: Path) -> None:
    gl.use_device("cuda")
    overlapped(gl.cp)
    with gl.timeline() as t:
        overlapped(gl.cp)
    file = t.save(tmp_path / "x.json")
    again = gl.open_timeline(file).record
    assert again.provenance.source == "recorded"
    for part in ("activities", "calls", "synchronizations", "ranges", "streams", "start_ns", "end_ns"):
        assert getattr(again, part) == getattr(t.record, part)
    rows = []
    for event in json.loads(file.read_text("utf-8"))["traceEvents"]:
        engine = ENGINES.get(event.get("args", {}).get("copy_kind") or event.get("cat", ""))
        if event["ph"] == "X" and engine:
            rows.append((round(event["ts"] * 1_000), round(event["dur"] * 1_000), engine))
    found = {(o.first, o.second): o for o in t.overlap()}
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE events (ts INTEGER, dur INTEGER, grp TEXT)")
        db.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
        for pair in (("compute", "H2D"), ("compute", "D2H"), ("H2D", "D2H")):
            first, second, both = db.execute(QUERY, {"a": pair[0], "b": pair[1]}).fetchone()
            assert found[pair].percent == pytest.approx(100 * both / min(first, second), abs=0.5)
    assert sum(step.duration_ns for step in t.critical_path()) == t.record.duration_ns


# In a process of its own: one tool at a time can use CUPTI.
PROFILED = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, record_function
x, host = torch.ones(1 << 20, device="cuda"), torch.ones(1 << 20)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    for _ in range(5):
        with record_function("step"):
            x.copy_(host)
            x.mul_(2)
    torch.cuda.synchronize()
profiler.export_chrome_trace(sys.argv[1])
print(torch.cuda.get_device_name())
"""


@pytest.mark.hardware("PyTorch finds no virtual GPU")
def test_a_file_of_the_pytorch_profiler_can_be_opened(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    command = [sys.executable, "-c", PROFILED, str(tmp_path / "torch.json")]
    name = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()
    record = gl.open_timeline(tmp_path / "torch.json").record
    kernels = [a for a in record.activities if a.kind == "CONCURRENT_KERNEL"]
    copies = [a for a in record.activities if a.copy_kind == "HtoD"]
    assert (len(kernels), len(copies)) == (5, 5)
    assert all(copy.size_bytes == 4 << 20 and copy.pinned is False for copy in copies)
    assert {call.correlation_id for call in record.calls} >= {a.correlation_id for a in kernels}
    assert sum(r.name == "step" for r in record.ranges) == 5
    assert any(s.type == "CONTEXT_SYNCHRONIZE" for s in record.synchronizations)
    assert name in record.provenance.device
    assert not record.note

"""What notebook 15 shows besides the laboratory's own views: rates, records, processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from gpulab import session
from gpulab.course.ranges import among as among
from gpulab.lab.links.collective import collective
from gpulab.lab.links.records import records_of
from gpulab.views import CollectiveView
from gpulab.views.collective.view import RECORDED
from gpulab.views.tables import Table
from virtualgpu.words import duration, number, size

_PATIENCE_S = 120


def recorded() -> Any:
    """What two GPUs of one host did: such as are in use where there is a record, else H200."""
    return (records_of(session.which_device().device) or records_of("H200"))[0]


def published_gbps() -> float:
    """NVLink's rate on the data sheet of the GPU in use, both directions; 0 where it has none."""
    return session.backend().device_info().nvlink_gbps or 0.0


def timed(work: Any) -> float:
    """Milliseconds between two events around `work`, in the current stream of the current device."""
    cp = session.cp()
    work()
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(begin, end))


def compared(*views: CollectiveView) -> Table:
    """Collective operations, one a row."""
    rows = tuple(
        (
            f"{view.record.operation}, {view.record.algorithm}",
            view.record.links,
            str(len(view.record.steps)),
            size(view.record.size_bytes),
            duration(view.record.time_ns),
            f"{number(view.record.volume)} ×",
        )
        for view in views
    )
    return Table(
        f"{views[0].record.gpus} GPUs, times {views[0].record.provenance.label}",
        ("operation", "links", "steps", "data", "time", "busiest port, of the data"),
        rows,
    )


def beside_records(sizes: Sequence[int] = (4096, 1 << 20, 16 << 20)) -> Table:
    """The ring on two GPUs, modelled or measured, beside what was recorded."""
    known = recorded()
    columns = {
        name: head for name, head in RECORDED.items() if any(row.get(name) for row in known["all_reduce"])
    }
    rows = []
    for each in known["all_reduce"]:
        took = "–"
        if each["size_bytes"] in sizes:
            took = duration(collective(gpus=2, size_bytes=each["size_bytes"]).record.time_ns)
        told = (duration(1000 * each[name]) if each.get(name) else "–" for name in columns)
        rows.append((size(each["size_bytes"]), took, *told))
    return Table(
        f"All-reduce on two GPUs: gl.collective {session.backend().provenance.label}; the other columns "
        f"recorded on {known['device']}, {known['what']}",
        ("data", "gl.collective, ring", *columns.values()),
        tuple(rows),
    )


def recorded_copies() -> Table:
    """Copies between two GPUs, with and without peer access."""
    known = recorded()
    rows = tuple(
        (size(each["size_bytes"]), f"{each['host_gbps']} GB/s", f"{each['direct_gbps']} GB/s")
        for each in known["copies"]
    )
    title = f"memcpyPeerAsync, recorded on {known['device']}, {known['what']}"
    return Table(title, ("data", "no peer access", "peer access"), rows)


def in_processes(code: str, ranks: int, steps: int) -> list[dict[str, Any]]:
    """Let `code` run in a process for each rank, and sum what they tell step by step.

    A process is told its rank, their number and the number of steps. In each step it prints a list of numbers
    and reads their sum over all ranks from its input; the last line that it prints comes back.

    Raises
    ------
    RuntimeError
        If a process ends early; all of them are ended then.
    """
    choice = session.which_device()
    real = choice.kind == "cuda" and session.cp().cuda.runtime.getDeviceCount() >= ranks
    processes = []
    for rank in range(ranks):
        device = (
            f"cuda:{rank}" if real else f"virtual:{choice.device}" if choice.kind == "virtual" else "virtual"
        )
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code, str(rank), str(ranks), str(steps)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "GPULAB_DEVICE": device},
            )
        )
    try:
        for step in range(steps):
            parts = [_line(rank, process, step) for rank, process in enumerate(processes)]
            total = json.dumps([sum(numbers) for numbers in zip(*parts, strict=True)])
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{total}\n")
                process.stdin.flush()
        return [_line(rank, process, steps) for rank, process in enumerate(processes)]
    finally:
        for process in processes:
            for end in (process.stdin, process.stdout):
                if end is not None:
                    end.close()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _line(rank: int, process: subprocess.Popen[str], step: int) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.strip():
        raise RuntimeError(f"Rank {rank} ended in step {step} without an answer; see its error above.")
    return json.loads(line)

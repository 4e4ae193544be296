"""Figures of notebook 15 in addition to the views of gpulab: rates, records, processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from typing import Any

from gpulab import session
from gpulab.lab.links.records import records_of
from gpulab.lab.links.schedules import bounds_of, modelled_ns, operations, schedule_of
from gpulab.views import CollectiveView
from gpulab.views.tables import Table
from gpulab.words import duration, number, size
from gpulab_course.content.ranges import among as among

_PATIENCE_S = 120


COPIED = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
REDUCED = (4 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)
_WAYS = {"ring": "ring", "tree": "tree", "naive": "all through GPU 0"}


def recorded(gpus: int = 2) -> Any:
    """Return the record of `gpus` GPUs of one host: of the GPU in use if there is one, else of H200."""
    return (records_of(session.which_device().device, gpus) or records_of("H200", gpus))[0]


def published_gbps() -> float:
    """NVLink's rate on the data sheet of the GPU in use, both directions; 0 where it has none."""
    return session.backend().device_info().nvlink_gbps or 0.0


def timed(work: Any) -> float:
    """Return the milliseconds between two events around `work`, in the current stream and device."""
    cp = session.cp()
    work()
    begin = cp.cuda.Event()
    end = cp.cuda.Event()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(begin, end))


def compared(*views: CollectiveView) -> Table:
    """Tabulate collective operations, one per row."""
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


def prices() -> Table:
    """Tabulate the modelled costs of a step of a schedule."""
    each = session.step_prices()
    rows = (
        ("a step: its first copy, which waits for another GPU's event", "α", duration(each.step_ns)),
        ("the sums of a step, which wait for its copies", "", duration(each.sum_ns)),
        ("each further message at the same port", "", duration(each.turn_ns)),
        ("each further sum on the same GPU", "", duration(each.sum_turn_ns)),
        ("a byte at a port", "β", f"1 / ({number(each.link_gbps)} GB/s)"),
        ("a byte that is added", "", f"1 / ({number(each.sum_gbps)} GB/s)"),
    )
    title = f"Prices of a step in a CUDA graph, {session.backend().provenance.label}, fitted to two H200"
    return Table(title, ("what", "", "price"), rows)


def counted(*views: CollectiveView) -> Table:
    """Tabulate the parts of each schedule's time, with the prices of `prices`."""
    each = session.step_prices()
    rows = []
    for view in views:
        record = view.record
        ends = [*record.begins, len(record.traffic.crossings)]
        turns = sums = sum_turns = 0
        for step, (first, end) in zip(record.steps, pairwise(ends), strict=True):
            crossings = record.traffic.crossings[first:end]
            ports = Counter((c.source, "out") for c in crossings) + Counter(
                (c.target, "in") for c in crossings
            )
            turns += max(ports.values()) - 1
            added = Counter(move.target for move in step.moves if move.add)
            sums += bool(added)
            sum_turns += max(added.values(), default=1) - 1
        steps = len(record.steps)
        waits = steps * each.step_ns + sums * each.sum_ns
        in_turn = turns * each.turn_ns + sum_turns * each.sum_turn_ns
        rows.append(
            (
                _WAYS.get(record.algorithm, record.algorithm),
                size(record.size_bytes),
                f"{steps} × α + {sums} × sums = {duration(waits)}",
                f"{turns} + {sum_turns}: {duration(in_turn)}",
                duration(max(0.0, record.time_ns - waits - in_turn)),
                duration(record.time_ns),
            )
        )
    return Table(
        f"{views[0].record.gpus} GPUs, times {views[0].record.provenance.label}",
        ("schedule", "data", "steps", "further messages + sums in turn", "bytes", "together"),
        tuple(rows),
    )


def graph_records(gpus: int = 4) -> Table:
    """Schedules as one CUDA graph, as recorded and as modelled; and NCCL, as recorded."""
    known = recorded(gpus)
    rows = []
    for row in _rows(known):
        told = []
        for way in _WAYS:
            _, steps = schedule_of("all-reduce", way, gpus)
            ns = modelled_ns(known["gpu"], gpus, bounds_of(row["size_bytes"] // 4, steps), steps)
            told.append(f"{duration(1000 * row[f'{way}_us'])} / {duration(ns)}")
        rows.append((size(row["size_bytes"]), *told, duration(1000 * row["nccl_us"])))
    return Table(
        f"All-reduce, each schedule as one CUDA graph: recorded / modelled on virtual {known['gpu']}; NCCL "
        f"recorded, a process per rank. Recorded on {known['device']}, {known['what']}",
        ("data", *_WAYS.values(), "NCCL, NVLS off"),
        tuple(rows),
    )


def python_records(gpus: int = 4, fitted_bytes: int = 16 << 10) -> Table:
    """Schedules given copy by copy and sum by sum from Python: recorded, and by the host's time for each."""
    known = recorded(gpus)
    many = {way: operations(schedule_of("all-reduce", way, gpus)[1]) for way in _WAYS}
    small = next(row for row in known["all_reduce"] if row["size_bytes"] == fitted_bytes)
    each_us = small["tree_python_us"] / many["tree"]
    rows = []
    for row in _rows(known):
        told = (
            f"{duration(1000 * row[f'{way}_python_us'])} / "
            f"{duration(1000 * max(many[way] * each_us, row[f'{way}_us']))}"
            for way in _WAYS
        )
        rows.append((size(row["size_bytes"]), *told))
    heads = (f"{words}, {many[way]} operations" for way, words in _WAYS.items())
    return Table(
        f"The same from Python, one copy or sum after another: recorded / computed, which is "
        f"{duration(1000 * each_us)} for each operation (from the tree at {size(fitted_bytes)}), or the "
        f"graph's time where that is longer. Recorded on {known['device']}, {known['what']}",
        ("data", *heads),
        tuple(rows),
    )


def _rows(known: Any) -> list[Any]:
    return [row for row in known["all_reduce"] if row["size_bytes"] in REDUCED]


def recorded_copies() -> Table:
    """Copies between two GPUs, with and without peer access."""
    known = recorded()
    rows = tuple(
        (size(each["size_bytes"]), f"{each['host_gbps']} GB/s", f"{each['direct_gbps']} GB/s")
        for each in known["copies"]
        if each["size_bytes"] in COPIED
    )
    title = f"memcpyPeerAsync, recorded on {known['device']}, {known['what']}"
    return Table(title, ("data", "no peer access", "peer access"), rows)


def in_processes(code: str, ranks: int, steps: int) -> list[dict[str, Any]]:
    """Run `code` in one process per rank, and sum the numbers that they print in each step.

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

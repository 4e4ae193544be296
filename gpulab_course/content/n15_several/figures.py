"""Tables of notebook 15: rates of links, recorded times, and programs in several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from typing import Any

from gpulab import session
from gpulab.lab.links.records import find_records
from gpulab.lab.links.schedules import count_operations, find_chunk_bounds, make_schedule, model_ns
from gpulab.views import CollectiveView
from gpulab.views.tables import Table
from gpulab.words import duration, number, size
from gpulab_course.content.n15_several.pictures import find_halo_owners as find_halo_owners
from gpulab_course.content.n15_several.pictures import halos as halos
from gpulab_course.content.n15_several.pictures import link_messages as link_messages
from gpulab_course.content.n15_several.pictures import shardings as shardings
from gpulab_course.content.ranges import among as among

_READ_TIMEOUT_S = 120


COPY_SIZES_BYTES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
REDUCE_SIZES_BYTES = (4 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)
_SCHEDULE_TITLES = {"ring": "ring", "tree": "tree", "naive": "naive (all through GPU 0)"}


def recorded(gpus: int = 2) -> Any:
    """Load the measurements on `gpus` GPUs of one host. The measurements come from the GPU model in use or
    from H200 GPUs.
    """
    return (find_records(session.which_device().device, gpus) or find_records("H200", gpus))[0]


def published_gbps() -> float:
    """Return the published NVLink rate of the GPU in use in GB/s for both directions, or 0 without NVLink."""
    return session.backend().device_info().nvlink_gbps or 0.0


def timed(work: Any) -> float:
    """Run `work` between two events in the current stream, and return the time in ms between the events."""
    cp = session.cp()
    work()
    start_event = cp.cuda.Event()
    end_event = cp.cuda.Event()
    start_event.record()
    work()
    end_event.record()
    end_event.synchronize()
    return float(cp.cuda.get_elapsed_time(start_event, end_event))


def compared(*views: CollectiveView) -> Table:
    """Return a table that compares the costs of collective operations, with one operation per row."""
    operation_rows = tuple(
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
        ("operation", "links", "steps", "data", "time", "busiest port, times the data"),
        operation_rows,
    )


def prices() -> Table:
    """Return a table of the modelled costs of one step in the schedule of a collective operation."""
    step_prices = session.find_step_prices()
    price_rows = (
        (
            "a step with one message at each port, which waits for another GPU's event",
            "α",
            duration(step_prices.step_ns),
        ),
        ("the sums of a step, which wait for its copies", "", duration(step_prices.sum_ns)),
        ("each further message at the same port", "", duration(step_prices.turn_ns)),
        ("each further sum on the same GPU", "", duration(step_prices.sum_turn_ns)),
        ("a byte at a port", "β", f"1 / ({number(step_prices.link_gbps)} GB/s)"),
        ("a byte that is added", "", f"1 / ({number(step_prices.sum_gbps)} GB/s)"),
    )
    title = f"Times in a step of a CUDA graph, {session.backend().provenance.label}, fitted to two H200"
    return Table(title, ("item", "symbol", "time"), price_rows)


def counted(*views: CollectiveView) -> Table:
    """Return a table of the components of each schedule's modelled time."""
    step_prices = session.find_step_prices()
    cost_rows = []
    for view in views:
        record = view.record
        step_bounds = [*record.begins, len(record.traffic.crossings)]
        extra_messages = 0
        sum_steps = 0
        extra_sums = 0
        for step, (first_crossing_index, crossing_end_index) in zip(
            record.steps, pairwise(step_bounds), strict=True
        ):
            crossings = record.traffic.crossings[first_crossing_index:crossing_end_index]
            messages_by_port = Counter((crossing.source, "out") for crossing in crossings) + Counter(
                (crossing.target, "in") for crossing in crossings
            )
            extra_messages += max(messages_by_port.values()) - 1
            sums_by_gpu = Counter(move.target for move in step.moves if move.add)
            sum_steps += bool(sums_by_gpu)
            extra_sums += max(sums_by_gpu.values(), default=1) - 1
        step_count = len(record.steps)
        waits_ns = step_count * step_prices.step_ns + sum_steps * step_prices.sum_ns
        extra_ns = extra_messages * step_prices.turn_ns + extra_sums * step_prices.sum_turn_ns
        cost_rows.append(
            (
                _SCHEDULE_TITLES.get(record.algorithm, record.algorithm),
                size(record.size_bytes),
                f"{step_count} × α + {sum_steps} × sums = {duration(waits_ns)}",
                f"{extra_messages} + {extra_sums}: {duration(extra_ns)}",
                duration(max(0.0, record.time_ns - waits_ns - extra_ns)),
                duration(record.time_ns),
            )
        )
    return Table(
        f"{views[0].record.gpus} GPUs, times {views[0].record.provenance.label}",
        ("schedule", "data", "steps", "further messages + further sums", "bytes", "total"),
        tuple(cost_rows),
    )


def graph_records(gpus: int = 4) -> Table:
    """Return a table of the recorded and modelled times of schedules in one CUDA graph, with NCCL's times."""
    record = recorded(gpus)
    size_rows = []
    for recorded_row in _find_table_rows(record):
        time_texts = []
        for schedule in _SCHEDULE_TITLES:
            _, steps = make_schedule("all-reduce", schedule, gpus)
            time_ns = model_ns(
                record["gpu"], gpus, find_chunk_bounds(recorded_row["size_bytes"] // 4, steps), steps
            )
            time_texts.append(f"{duration(1000 * recorded_row[f'{schedule}_us'])} / {duration(time_ns)}")
        size_rows.append(
            (size(recorded_row["size_bytes"]), *time_texts, duration(1000 * recorded_row["nccl_us"]))
        )
    return Table(
        f"All-reduce, each schedule as one CUDA graph: recorded / modelled on virtual {record['gpu']}; NCCL "
        f"recorded, a process per rank. Recorded on {record['device']}, {record['what']}",
        ("data", *_SCHEDULE_TITLES.values(), "NCCL, NVLS off"),
        tuple(size_rows),
    )


def python_records(gpus: int = 4, fitted_bytes: int = 16 << 10) -> Table:
    """Return a table of the recorded and the computed times of schedules whose operations Python launches
    separately.
    """
    record = recorded(gpus)
    operation_counts = {
        schedule: count_operations(make_schedule("all-reduce", schedule, gpus)[1])
        for schedule in _SCHEDULE_TITLES
    }
    fitted_row = next(row for row in record["all_reduce"] if row["size_bytes"] == fitted_bytes)
    operation_us = fitted_row["tree_python_us"] / operation_counts["tree"]
    size_rows = []
    for row in _find_table_rows(record):
        time_texts = (
            f"{duration(1000 * row[f'{schedule}_python_us'])} / "
            f"{duration(1000 * max(operation_counts[schedule] * operation_us, row[f'{schedule}_us']))}"
            for schedule in _SCHEDULE_TITLES
        )
        size_rows.append((size(row["size_bytes"]), *time_texts))
    headings = (
        f"{name}, {operation_counts[schedule]} operations" for schedule, name in _SCHEDULE_TITLES.items()
    )
    return Table(
        f"The same schedules, started operation by operation from Python: recorded / computed. The computed "
        f"time is {duration(1000 * operation_us)} per operation (from the tree at {size(fitted_bytes)}), or "
        f"the graph's time if that is longer. Recorded on {record['device']}, {record['what']}",
        ("data", *headings),
        tuple(size_rows),
    )


def _find_table_rows(record: Any) -> list[Any]:
    """Return the rows of a recording for the sizes that are shown."""
    return [row for row in record["all_reduce"] if row["size_bytes"] in REDUCE_SIZES_BYTES]


def recorded_copies() -> Table:
    """Return a table of the recorded copy rates between two GPUs, with and without peer access."""
    record = recorded()
    copy_rows = tuple(
        (size(row["size_bytes"]), f"{row['host_gbps']} GB/s", f"{row['direct_gbps']} GB/s")
        for row in record["copies"]
        if row["size_bytes"] in COPY_SIZES_BYTES
    )
    title = f"memcpyPeerAsync, recorded on {record['device']}, {record['what']}"
    return Table(title, ("data", "no peer access", "peer access"), copy_rows)


def in_processes(code: str, ranks: int, steps: int) -> list[dict[str, Any]]:
    """Run `code` in one process per rank. In each step, the function adds the lists of numbers that the
    processes print.

    The arguments of a process are its rank, the number of ranks and the number of steps. In each step the
    process prints a list of numbers and reads their sum over all ranks from its input. The last line of each
    process is returned.

    Raises
    ------
    RuntimeError
        If a process ends early. All other processes are then ended.
    """
    device_choice = session.which_device()
    is_real = device_choice.kind == "cuda" and session.cp().cuda.runtime.getDeviceCount() >= ranks
    processes = []
    for rank in range(ranks):
        if is_real:
            device = f"cuda:{rank}"
        elif device_choice.kind == "virtual":
            device = f"virtual:{device_choice.device}"
        else:
            device = "virtual"
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
            rank_numbers = [_read_line(rank, process, step) for rank, process in enumerate(processes)]
            sums_text = json.dumps([sum(numbers) for numbers in zip(*rank_numbers, strict=True)])
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{sums_text}\n")
                process.stdin.flush()
        return [_read_line(rank, process, steps) for rank, process in enumerate(processes)]
    finally:
        for process in processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                process.wait(_READ_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _read_line(rank: int, process: subprocess.Popen[str], step: int) -> Any:
    """Return the next line of a process's output, parsed."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.strip():
        raise RuntimeError(f"Rank {rank} ended in step {step} without an answer. See its error above.")
    return json.loads(line)

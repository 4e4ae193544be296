"""Record times of several GPUs of one host: NCCL, torch.distributed, the course's schedules, copies.

    python -m tools.recordings.several --out FOLDER     # with 2 or more GPUs, CuPy, torch; 170 s at most
    python -m tools.recordings.several --ship FOLDER/several.json     # into the package, where no GPU is

The schedules and their building blocks are timed by `tools.recordings.captured`, and NCCL, too.
Every part runs in a process of its own with a time limit, and tells line by line: what hangs or fails costs
that part's rest alone, and what was told before is kept. NVLink multicast stays off in all of them, and
managed memory is not used.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpulab.lab.links import records
from tools.recordings import captured

SIZES = captured.SIZES
LIMIT_S = 170.0
PART_S = 60.0
LEAST_S = 12.0
SAFE = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
# A hardware queue for each stream: one that waits must not hold others back.
QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
# The most important first: whatever there is no time for is left out.
PARTS = ("schedules", "blocks", "nccl", "torch", "copies")
ROUNDS = 7
IN_A_ROW = 20
FORMAT = "gpulab-several"
Tell = Callable[[str, Any], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, or ship recordings; return the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.recordings.several", description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for several.json")
    parser.add_argument("--ship", type=Path, nargs="+", help="put such files' records into the package")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds in all")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which of them, in order")
    parser.add_argument("--part", choices=("facts", *PARTS, "torch_rank"), help=argparse.SUPPRESS)
    parser.add_argument("--gpus", type=int, default=2, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--lines", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.ship is not None:
        for path in ship([json.loads(file.read_text(encoding="utf-8")) for file in options.ship]):
            print(path)
        return 0
    if options.part is not None:
        return _run_part(options.part, options.gpus, options.rank, options.lines)
    if options.out is None:
        parser.error("--out FOLDER, or --ship FILE")
    return _run_all(options.out, options.limit, options.parts)


def _run_all(folder: Path, limit_s: float, parts: Sequence[str] = PARTS) -> int:
    """Run all parts, for all GPUs and then for two, and write the results after each part."""
    folder.mkdir(parents=True, exist_ok=True)
    record_path = folder / "several.json"
    start_s = time.monotonic()
    fact_lines, failure_text = _run_in_process("facts", 2, PART_S)
    log_lines = [f"facts: {failure_text or 'done'}"]
    lines_by_gpus = {
        gpus: list(fact_lines) for gpus in sorted({2, int(dict(fact_lines).get("there", 2))}, reverse=True)
    }
    for gpus in lines_by_gpus:
        for part_index, part in enumerate(parts):
            part_start_s = time.monotonic()
            remaining_s = limit_s - (part_start_s - start_s)
            if remaining_s < LEAST_S:
                log_lines.append(f"{gpus} GPUs: no time left for {', '.join(parts[part_index:])}")
                break
            lines, failure_text = _run_in_process(part, gpus, min(PART_S, remaining_s - 5))
            lines_by_gpus[gpus] += lines
            log_lines.append(
                f"{gpus} GPUs, {part}: {time.monotonic() - part_start_s:.1f} s; {failure_text or 'done'}"
            )
            print(log_lines[-1], flush=True)
            records = _write_records(record_path, lines_by_gpus, log_lines)
    records = _write_records(record_path, lines_by_gpus, log_lines)
    for record in records:
        print("\n".join(list_compared_times(record)), flush=True)
    return 0 if all(record[part] for record in records for part in parts if part in record) else 1


def _write_records(
    file: Path, lines_by_gpus: dict[int, list[tuple[str, Any]]], log: list[str]
) -> list[dict[str, Any]]:
    """Write the records so far to the file, and return them."""
    records = [_record(gpus, lines) for gpus, lines in lines_by_gpus.items()]
    file.write_text(json.dumps({"format": f"{FORMAT}-run", "records": records, "log": log}), encoding="utf-8")
    return records


def _run_in_process(part: str, gpus: int, limit_s: float) -> tuple[list[tuple[str, Any]], str]:
    """Return the results of a part, and its error if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        results_path = Path(folder) / "lines"
        log_path = Path(folder) / "words"
        with log_path.open("w") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tools.recordings.several",
                    "--part",
                    part,
                    "--gpus",
                    str(gpus),
                    "--lines",
                    str(results_path),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | SAFE | QUEUES,
                start_new_session=True,
            )
            try:
                status: int | str = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                status = f"not done after {limit_s:.0f} s"
            finally:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, 9)
                process.wait()
        results: list[tuple[str, Any]] = []
        if results_path.exists():
            results = [
                tuple(json.loads(line))
                for line in results_path.read_text().splitlines()
                if line.endswith("]")
            ]
        log_tail = log_path.read_text(errors="replace").strip()[-600:]
        return results, f"{status}: {log_tail}" if status else ""


def _record(gpus: int, lines: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the results in the form of the shipped file."""
    results = dict(lines)
    device = str(results.get("device", ""))
    rows_by_size: dict[str, dict[int, dict[str, Any]]] = {"all_reduce": {}, "copies": {}}
    for result_key, value in lines:
        table_name, _, column_name = result_key.partition("/")
        if table_name in rows_by_size:
            rows_by_size[table_name].setdefault(value[0], {"size_bytes": value[0]})[column_name] = value[1]
    device_words = [word for word in device.split() if word != "NVIDIA"]
    return {
        "format": FORMAT,
        "gpu": device_words[0] if device_words else "",
        "device": device,
        "gpus": gpus,
        "ranks": "a process each",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "what": f"{gpus} of one host; driver {results.get('driver')}, {results.get('versions')}, NVLS off",
        "copies": [rows_by_size["copies"][size_bytes] for size_bytes in sorted(rows_by_size["copies"])],
        "matrix": {
            result_key.partition("/")[2]: value
            for result_key, value in lines
            if result_key.startswith("matrix/")
        },
        "kernel_gbps": results.get("kernel_gbps"),
        "both_ways_gbps": results.get("both_ways_gbps"),
        "all_reduce": [
            rows_by_size["all_reduce"][size_bytes] for size_bytes in sorted(rows_by_size["all_reduce"])
        ],
        "wrong": [value for result_key, value in lines if result_key == "wrong"],
        "schedules": [value for result_key, value in lines if result_key == "schedules"],
        "blocks": [value for result_key, value in lines if result_key == "blocks"],
        "nccl": [value for result_key, value in lines if result_key == "nccl"],
    }


def list_compared_times(record: dict[str, Any]) -> list[str]:
    """Return the recorded times of every schedule and of NCCL, one per line."""
    lines = [f"{record['gpus']} {record['device']}:"]
    lines += [json.dumps(row) for row in (*record["schedules"], *record["nccl"])]
    return lines


def ship(runs: Sequence[dict[str, Any]]) -> list[Path]:
    """Write the records of runs into the package, one file for each number of GPUs, and return the paths."""
    folder = Path(records.__file__).resolve().parents[2] / records.RECORDS_FOLDER
    written_paths = []
    for gpus, record in make_shipped_records(runs).items():
        written_paths.append(folder / f"{record['gpu'].lower()}x{gpus}.json")
        written_paths[-1].write_text(_format_record(record), encoding="utf-8")
    return written_paths


def make_shipped_records(runs: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the shipped records by number of GPUs; later runs replace earlier ones."""
    records: dict[int, dict[str, Any]] = {}
    for record in (record for run in runs for record in run["records"]):
        record_of_gpus = records.setdefault(record["gpus"], {"all_reduce": []})
        rows = {row["size_bytes"]: row for row in record_of_gpus["all_reduce"]}
        for row in record["all_reduce"]:
            rows[row["size_bytes"]] = rows.get(row["size_bytes"], {}) | row
        record_of_gpus |= {key: value for key, value in record.items() if value}
        record_of_gpus["all_reduce"] = list(rows.values())
    return {gpus: _make_shipped_record(record) for gpus, record in sorted(records.items())}


def _make_shipped_record(record: dict[str, Any]) -> dict[str, Any]:
    """Return the shipped form of a record: a row of times per size, and the building blocks in graphs."""
    rows = {row["size_bytes"]: dict(row) for row in record["all_reduce"]}
    for row in record.get("nccl", ()):
        rows[row["size_bytes"]] |= {"nccl_us": row["in_a_row_us"], "nccl_graph_us": row["captured_us"]}
    for row in record.get("schedules", ()):
        if "graph_us" not in row:
            continue  # copies that could not be captured
        sliced_suffix = "_sliced" if row["slices"] > 1 else ""
        name = f"{row['algorithm']}{sliced_suffix}"
        rows[row["size_bytes"]] |= {
            f"{name}_us": row["graph_us"],
            f"{name}_python_us": row["host_us"],
            f"{name}_issue_us": row["issue_us"],
            f"{name}_steps_us": row["by_steps_us"],
        }
    blocks: dict[str, list[list[float]]] = {}
    for row in record.get("blocks", ()):
        if "graph_us" not in row:
            continue
        blocks.setdefault(row["what"], []).append([row["many"], row["size_bytes"], row["graph_us"]])
    record["what"] = _shorten_description(record["what"])
    names = (
        "format",
        "gpu",
        "device",
        "gpus",
        "ranks",
        "date",
        "what",
        "copies",
        "kernel_gbps",
        "both_ways_gbps",
    )
    return {
        **{name: record[name] for name in names},
        "all_reduce": [rows[size] for size in sorted(rows)],
        "blocks": blocks,
    }


def _shorten_description(description: str) -> str:
    """Return device and versions for labels, with NCCL's version in dots, and that its NVLS was off."""
    dotted_description = re.sub(
        r"NCCL (\d)(\d\d)(\d\d)\b",
        lambda match: "NCCL " + ".".join(map(str, map(int, match.groups()))),
        description,
    )
    dotted_description = re.sub(r"CUDA driver \d+, ", "", dotted_description)
    short_description = dotted_description.removesuffix(", NVLS off").replace(" with NCCL 2.28.9", "")
    return f"{short_description}; NVLink SHARP (NVLS) off"


def _format_record(record: dict[str, Any]) -> str:
    """Return JSON with one row of a table per line."""
    entry_lines = []
    for name, value in record.items():
        value_json = json.dumps(value)
        if isinstance(value, list):
            value_json = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        elif isinstance(value, dict):
            value_json = (
                "{\n  "
                + ",\n  ".join(f"{json.dumps(key)}: {json.dumps(item)}" for key, item in value.items())
                + "\n }"
            )
        entry_lines.append(f" {json.dumps(name)}: {value_json}")
    return "{\n" + ",\n".join(entry_lines) + "\n}\n"


# Parts


def _run_part(part: str, gpus: int, rank: int, results_path: Path | None) -> int:
    os.environ.update(SAFE | QUEUES)

    def write_result(key: str, value: Any) -> None:
        print(key, value, flush=True)
        if results_path is not None:
            with results_path.open("a") as file:
                file.write(json.dumps([key, value]) + "\n")

    if part == "torch_rank":
        _torch_rank(gpus, rank, write_result)
        return 0
    try:
        work: Callable[[int, Tell], None] = globals()[f"_{part}"]
        work(gpus, write_result)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _facts(_: int, write_result: Tell) -> None:
    import cupy

    runtime = cupy.cuda.runtime
    write_result("there", int(runtime.getDeviceCount()))
    write_result("device", runtime.getDeviceProperties(0)["name"].decode())
    versions = [f"CuPy {cupy.__version__}", f"CUDA driver {runtime.driverGetVersion()}"]
    with contextlib.suppress(Exception):
        from cupy.cuda import nccl

        versions.append(f"NCCL {nccl.get_version()}")
    with contextlib.suppress(Exception):
        torch: Any = importlib.import_module("torch")
        nccl_version = ".".join(map(str, torch.cuda.nccl.version()))
        versions.append(f"torch {torch.__version__} with NCCL {nccl_version}")
    write_result("versions", ", ".join(versions))
    with contextlib.suppress(Exception):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
        write_result(
            "driver", subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
        )


def _schedules(gpus: int, write_result: Tell) -> None:
    captured.time_schedules(importlib.import_module("cupy"), gpus, write_result)


def _blocks(gpus: int, write_result: Tell) -> None:
    captured.time_building_blocks(importlib.import_module("cupy"), gpus, write_result)


def _nccl(gpus: int, write_result: Tell) -> None:
    """Record collective calls in processes as those of `gl.collective(algorithm="nccl")`."""

    def write_row(key: str, row: Any) -> None:
        write_result(key, row)
        write_result("all_reduce/nccl_us", (row["size_bytes"], row["in_a_row_us"]))
        if not row["right"]:
            write_result("wrong", f"NCCL, {row['size_bytes']} bytes")

    captured.time_nccl_calls(gpus, write_row)


def _enable_peer_access(cupy: Any, gpus: int) -> None:
    for gpu in range(gpus):
        with cupy.cuda.Device(gpu):
            for peer in range(gpus):
                if peer != gpu and cupy.cuda.runtime.deviceCanAccessPeer(gpu, peer):
                    with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
                        cupy.cuda.runtime.deviceEnablePeerAccess(peer)


def _copies(gpus: int, write_result: Tell) -> None:
    """Record ``memcpyPeerAsync`` without and with peer access, and a kernel that reads over a link."""
    import cupy

    runtime = cupy.cuda.runtime
    arrays = []
    for gpu in range(gpus):
        with cupy.cuda.Device(gpu):
            arrays.append([cupy.zeros(SIZES[-1], "uint8") for _ in ("from", "to")])
            cupy.cuda.Device().synchronize()

    def rate(source: int, target: int, size: int) -> float:
        """Return GB/s as the median of a few copies."""
        times_ms = []
        with cupy.cuda.Device(source):
            for _ in range(ROUNDS + 2):
                begin_event = cupy.cuda.Event()
                end_event = cupy.cuda.Event()
                begin_event.record()
                target_address = arrays[target][1].data.ptr
                source_address = arrays[source][0].data.ptr
                stream = cupy.cuda.get_current_stream().ptr
                runtime.memcpyPeerAsync(target_address, target, source_address, source, size, stream)
                end_event.record()
                end_event.synchronize()
                times_ms.append(cupy.cuda.get_elapsed_time(begin_event, end_event))
        return round(size / float(statistics.median(times_ms[2:])) / 1e6, 2)

    for copy_path in ("host", "direct"):
        if copy_path == "direct":
            _enable_peer_access(cupy, gpus)
        for size in SIZES:
            write_result(f"copies/{copy_path}_gbps", (size, rate(0, 1, size)))
        write_result(
            f"matrix/{copy_path}_gbps",
            [[rate(a, b, SIZES[-1]) if a != b else None for b in range(gpus)] for a in range(gpus)],
        )
    streams = []
    times_s = []
    for gpu in (0, 1):
        with cupy.cuda.Device(gpu):
            streams.append(cupy.cuda.Stream(non_blocking=True))
    for _ in range(ROUNDS + 2):
        begin_s = time.perf_counter()
        for gpu, stream in enumerate(streams):
            with cupy.cuda.Device(gpu):
                runtime.memcpyPeerAsync(
                    arrays[1 - gpu][1].data.ptr, 1 - gpu, arrays[gpu][0].data.ptr, gpu, SIZES[-1], stream.ptr
                )
        for stream in streams:
            stream.synchronize()
        times_s.append(time.perf_counter() - begin_s)
    write_result("both_ways_gbps", round(2 * SIZES[-1] / statistics.median(times_s[2:]) / 1e9, 1))
    with cupy.cuda.Device(0):
        remote_array = arrays[1][0].view("float32")
        local_array = arrays[0][1].view("float32")
        kernel_times_ms = []
        for _ in range(ROUNDS + 2):
            begin = cupy.cuda.Event()
            end = cupy.cuda.Event()
            begin.record()
            cupy.add(remote_array, 1, out=local_array)
            end.record()
            end.synchronize()
            kernel_times_ms.append(cupy.cuda.get_elapsed_time(begin, end))
    write_result("kernel_gbps", round(SIZES[-1] / statistics.median(kernel_times_ms[2:]) / 1e6, 1))


def _torch(gpus: int, write_result: Tell) -> None:
    """Record ``torch.distributed``'s all-reduce, with one process per GPU."""
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        port = free_socket.getsockname()[1]
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with tempfile.TemporaryDirectory() as folder:
        results_path = Path(folder) / "lines"
        rank_processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tools.recordings.several",
                    "--part",
                    "torch_rank",
                    "--gpus",
                    str(gpus),
                    "--rank",
                    str(rank),
                    *(["--lines", str(results_path)] if rank == 0 else []),
                ],
                env=os.environ | SAFE | rendezvous,
            )
            for rank in range(gpus)
        ]
        deadline_s = time.monotonic() + PART_S - 10
        try:
            while any(rank.poll() is None for rank in rank_processes) and time.monotonic() < deadline_s:
                if any(rank.poll() for rank in rank_processes):
                    break
                time.sleep(0.05)
        finally:
            for process in rank_processes:
                process.kill()
                process.wait()
        for line in results_path.read_text().splitlines() if results_path.exists() else ():
            write_result(*json.loads(line))
        failed_ranks = [rank for rank, process in enumerate(rank_processes) if process.returncode]
        if failed_ranks:
            raise RuntimeError(f"ranks {failed_ranks} of torch.distributed failed")


def _torch_rank(gpus: int, rank: int, write_result: Tell) -> None:
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=gpus, timeout=datetime.timedelta(seconds=30))
    for size in SIZES:
        x = torch.ones(size // 4, dtype=torch.int32, device="cuda")
        dist.all_reduce(x)
        torch.cuda.synchronize()
        is_right = bool((x == gpus).all())
        times_us = []
        for _ in range(ROUNDS):
            dist.all_reduce(x)
            begin_event = torch.cuda.Event(enable_timing=True)
            end_event = torch.cuda.Event(enable_timing=True)
            begin_event.record()
            for _ in range(IN_A_ROW):
                dist.all_reduce(x)
            end_event.record()
            end_event.synchronize()
            times_us.append(1000 * begin_event.elapsed_time(end_event) / IN_A_ROW)
        # The slowest rank's, as of our call.
        slowest_us = torch.tensor(statistics.median(times_us), device="cuda")
        dist.all_reduce(slowest_us, op=dist.ReduceOp.MAX)
        write_result("all_reduce/torch_us", (size, round(float(slowest_us), 2)))
        if not is_right:
            write_result("wrong", f"torch.distributed, {size} bytes")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())

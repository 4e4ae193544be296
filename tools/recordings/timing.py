"""Record times of launches, copies and graphs: ``python -m tools.recordings.timing --out FILE``.

It needs CuPy and nothing else, takes about a minute, and writes one small JSON file, of which the virtual
GPU's clock is calibrated and judged (`tools.timing`). What fails is listed with its error; the rest goes on.

How it measures: every figure is a median. Kernels, warm: two CUDA graphs, the second with more launches of
the same kernel in a row; the difference, a launch. Kernels, cold: two events around one launch, after a
memory set four times as large as L2 has pushed everything out. A spinning kernel holds the stream meanwhile,
so that the host's own time does not count (``pair``); an empty kernel's pair is there to subtract.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.timing.launches import CALLS, LAUNCHES, TimedCall, TimedLaunch

FORMAT = "gpulab-timing"
FLUSH_BYTES = 256 << 20
GRAPH_NS = 1_500_000  # what one graph should take
MOST_NODES = 40
SPIN_NS = 120_000
KIB = 1024
SIZES = (4, 256, *(KIB << e for e in (0, 2, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18)))
NODES = (1, 10, 100, 1000)

SPIN = r"""
extern "C" __global__ void spin(long long clocks) {
    long long begin = clock64();
    while (clock64() - begin < clocks) { }
}
extern "C" __global__ void rate(long long* out) {
    long long t, u, c = clock64();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    float v = 1.0f;
    for (int i = 0; i < 200000; i++) v = v * 1.000001f + 0.5f;
    out[2] = (long long)v;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(u));
    out[0] = clock64() - c;
    out[1] = u - t;
}
"""


class Bench:
    """Timing methods: `pair`, `alone`, `row` and `graph` time the same work in four ways, in ns.

    ``stream`` must be the current one.
    """

    def __init__(self, cp: Any, repeats: int) -> None:
        self.cp = cp
        self.repeats = repeats
        self.stream = cp.cuda.Stream(non_blocking=True)
        module = cp.RawModule(code=SPIN)
        self._spin, self._rate = module.get_function("spin"), module.get_function("rate")
        self.flush = cp.zeros(FLUSH_BYTES, cp.uint8)
        cp.cuda.Device().synchronize()

    def event(self) -> Any:
        event = self.cp.cuda.Event()
        event.record(self.stream)
        return event

    def spin(self, duration_ns: int = SPIN_NS) -> None:
        """Keep the stream busy."""
        self._spin((1,), (1,), (2 * duration_ns,))

    def between(self, pairs: Sequence[tuple[Any, Any]]) -> float:
        self.stream.synchronize()
        return statistics.median(float(self.cp.cuda.get_elapsed_time(a, b)) * 1e6 for a, b in pairs)

    def clock_mhz(self) -> float:
        """Return the clock rate of the SMs in MHz while they are busy."""
        output = self.cp.zeros(3, self.cp.int64)
        for _ in range(3):
            self._rate((1,), (32,), (output,))
        elapsed_clocks, elapsed_ns, _ = (int(v) for v in output.get())
        return elapsed_clocks / max(elapsed_ns, 1) * 1e3

    def alone(self, work: Callable[[], object], prepare: Callable[[], object] | None = None) -> float:
        """Return the time between two events around work on an idle device."""
        times_ns = []
        for _ in range(2 * self.repeats + 1):
            if prepare:
                prepare()
            self.stream.synchronize()
            begin_event = self.event()
            work()
            times_ns.append(self.between([(begin_event, self.event())]))
        return statistics.median(times_ns[1:])

    def row(self, work: Callable[[], object], count: int) -> float:
        """Return the mean time of `count` operations between two events."""
        times_ns = []
        for _ in range(self.repeats + 1):
            self.stream.synchronize()
            begin_event = self.event()
            for _ in range(count):
                work()
            times_ns.append(self.between([(begin_event, self.event())]) / count)
        return statistics.median(times_ns[1:])

    def host(self, work: Callable[[], object], count: int = 1) -> float:
        """Return the host time of the call."""
        times_ns = []
        for _ in range(2 * self.repeats + 1):
            self.stream.synchronize()
            begin_ns = time.perf_counter_ns()
            for _ in range(count):
                work()
            times_ns.append((time.perf_counter_ns() - begin_ns) / count)
        self.stream.synchronize()
        return statistics.median(times_ns[1:])

    def pair(
        self, work: Callable[[], object], *, cold: bool = False, warm_up: bool = True, spin_ns: int = SPIN_NS
    ) -> float:
        """Return the time between two events around work that is issued while the stream is busy."""
        event_pairs = []
        for _ in range(self.repeats):
            if cold:
                self.flush.data.memset_async(0, FLUSH_BYTES, self.stream)
            self.spin(spin_ns)
            if not cold and warm_up:
                work()
            begin_event = self.event()
            work()
            event_pairs.append((begin_event, self.event()))
            self.stream.synchronize()
        return self.between(event_pairs)

    def capture(self, work: Callable[[], object], count: int) -> Any:
        self.stream.begin_capture()
        try:
            for _ in range(count):
                work()
        finally:
            graph = self.stream.end_capture()
        return graph

    def graph(self, work: Callable[[], object], count: int) -> float:
        """Return the time between two events around a graph that contains the work `count` times."""
        graph = self.capture(work, count)
        return self.alone(lambda: graph.launch(self.stream))

    def warm(self, work: Callable[[], object]) -> tuple[float, int]:
        """Return the time per launch in a graph of many launches, and the number of launches."""
        work()
        self.stream.synchronize()
        begin_event = self.event()
        work()
        launch_ns = max(self.between([(begin_event, self.event())]), 500.0)
        node_count = max(min(int(GRAPH_NS / launch_ns), MOST_NODES) // 2, 1)
        graphs = [self.capture(work, node_count), self.capture(work, 3 * node_count)]
        times_ns = []
        for _ in range(self.repeats + 1):
            graph_times_ns = []
            for graph in graphs:
                begin_event = self.event()
                graph.launch(self.stream)
                graph_times_ns.append(self.between([(begin_event, self.event())]))
            times_ns.append((graph_times_ns[1] - graph_times_ns[0]) / (2 * node_count))
        return statistics.median(times_ns[1:]), node_count


def time_launch(bench: Bench, timed: TimedLaunch, modules: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    """Time one launch, warm and cold."""
    cp = bench.cp
    kernel = timed.load(cp, modules)
    arguments = timed.make_args(cp)
    cp.cuda.Device().synchronize()

    def work() -> None:
        kernel(timed.grid, timed.block, arguments, shared_mem=timed.shared_bytes)

    warm_ns, node_count = bench.warm(work)
    launch_entry = {
        "warm_ns": round(warm_ns, 1),
        "nodes": node_count,
        "warm_pair_ns": round(bench.pair(work), 1),
    }
    if arguments:
        launch_entry["cold_pair_ns"] = round(bench.pair(work, cold=True), 1)
    launch_entry["registers"] = kernel.num_regs
    return launch_entry


def time_call(bench: Bench, expression: TimedCall) -> dict[str, Any]:
    """Time one CuPy expression."""
    work = expression.make(bench.cp)
    for _ in range(3):
        work()
    bench.stream.synchronize()
    return {
        "pair_ns": round(bench.pair(work, spin_ns=1_000_000), 1),
        "alone_ns": round(bench.alone(work), 1),
        "row_ns": round(bench.row(work, 20), 1),
    }


def make_copy_timers(bench: Bench) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Time copies and memory sets of many sizes."""
    cp = bench.cp
    stream = bench.stream
    import numpy as np

    max_bytes = max(SIZES)
    repeats = bench.repeats
    first_array = cp.zeros(max_bytes, cp.uint8)
    second_array = cp.zeros(max_bytes, cp.uint8)
    pinned_array = np.frombuffer(cp.cuda.alloc_pinned_memory(max_bytes), np.uint8, max_bytes)
    pageable_array = np.zeros(max_bytes, np.uint8)
    pinned_array[:] = pageable_array[:] = 1

    def make_copies(size: int) -> dict[str, Callable[[], object]]:
        return {
            "HtoD pinned": lambda: first_array.data.copy_from_host_async(
                pinned_array.ctypes.data, size, stream
            ),
            "DtoH pinned": lambda: first_array.data.copy_to_host_async(
                pinned_array.ctypes.data, size, stream
            ),
            "HtoD pageable": lambda: first_array.data.copy_from_host_async(
                pageable_array.ctypes.data, size, stream
            ),
            "DtoH pageable": lambda: first_array.data.copy_to_host_async(
                pageable_array.ctypes.data, size, stream
            ),
            "DtoD": lambda: first_array.data.copy_from_device_async(second_array.data, size, stream),
            "memset": lambda: first_array.data.memset_async(0, size, stream),
        }

    def measure_copy(move: Callable[[], object], size: int, kind: str) -> dict[str, Any]:
        row_copies = 20 if size <= 1 << 20 else 3
        bench.repeats = repeats if size <= 16 << 20 else min(repeats, 3)
        times_ns = {
            "alone_ns": bench.alone(move),
            "row_ns": bench.row(move, row_copies),
            "host_ns": bench.host(move),
        }
        if "pageable" not in kind:
            times_ns["pair_ns"] = bench.pair(move)
            if kind in ("DtoD", "memset") and size <= 16 << 20:
                times_ns["graph_ns"] = bench.warm(move)[0]
        return {"kind": kind, "size_bytes": size, **{name: round(ns, 1) for name, ns in times_ns.items()}}

    for size in SIZES:
        for kind, copy in make_copies(size).items():
            yield f"{kind} {size}", lambda move=copy, size=size, kind=kind: measure_copy(move, size, kind)  # type: ignore[misc]


def make_host_timers(bench: Bench) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield the costs of launches, events, graphs, waits and host functions, in ns."""
    cp = bench.cp
    stream = bench.stream
    empty_kernel = cp.RawKernel('extern "C" __global__ void empty() {}', "empty")
    add_kernel = cp.RawKernel(
        'extern "C" __global__ void add(const float* a, float* b) { b[threadIdx.x] += a[threadIdx.x]; }',
        "add",
    )
    a = cp.zeros(256, cp.float32)
    b = cp.zeros(256, cp.float32)
    second_stream = cp.cuda.Stream(non_blocking=True)

    def launch() -> None:
        empty_kernel((1,), (32,), ())

    def small_launch() -> None:
        add_kernel((1,), (256,), (a, b))

    launch()
    small_launch()
    stream.synchronize()

    def do_nothing() -> None:
        pass

    def event() -> None:
        cp.cuda.Event().record(stream)

    recorded_event = cp.cuda.Event()

    def switch_streams() -> None:
        first_event = cp.cuda.Event(disable_timing=True)
        second_event = cp.cuda.Event(disable_timing=True)
        launch()
        first_event.record(stream)
        second_stream.wait_event(first_event)
        with second_stream:
            launch()
        second_event.record(second_stream)
        stream.wait_event(second_event)

    def pair_time_ns(work: Callable[[], object], count: int) -> float:
        def several() -> None:
            for _ in range(count):
                work()

        return bench.pair(several, warm_up=False, spin_ns=3_000_000) / count

    def make_forked_timer(work: Callable[[Any], object], ways: int) -> Callable[[], float]:
        def measured() -> float:
            streams = [cp.cuda.Stream(non_blocking=True) for _ in range(ways)]

            def body() -> None:
                fork_event = cp.cuda.Event(disable_timing=True)
                fork_event.record(stream)
                for branch_stream in streams:
                    branch_stream.wait_event(fork_event)
                    work(branch_stream)
                    end_event = cp.cuda.Event(disable_timing=True)
                    end_event.record(branch_stream)
                    stream.wait_event(end_event)

            return bench.graph(body, 1)

        return measured

    def launch_on(branch_stream: Any) -> None:
        with branch_stream:
            launch()

    def time_graph_host(count: int) -> float:
        graph = bench.capture(launch, count)
        graph.launch(stream)
        return bench.host(lambda: graph.launch(stream))

    def time_graph_row(count: int) -> float:
        graph = bench.capture(launch, count)
        return bench.row(lambda: graph.launch(stream), 20)

    def capture_time_ns(count: int) -> float:
        begin_ns = time.perf_counter_ns()
        bench.capture(launch, count)
        return float(time.perf_counter_ns() - begin_ns)

    def fill() -> None:
        a.data.memset_async(0, 1024, stream)

    def move() -> None:
        a.data.copy_from_device_async(b.data, 1024, stream)

    yield "two events", lambda: bench.alone(do_nothing)
    yield "two events, held", lambda: bench.pair(do_nothing)
    yield "launch between events", lambda: bench.alone(launch)
    yield "small launch between events", lambda: bench.alone(small_launch)
    yield "launch between events, held", lambda: bench.pair(launch)
    yield "small launch between events, held", lambda: bench.pair(small_launch)
    yield "small launch between events, cold", lambda: bench.pair(small_launch, cold=True)
    yield "launch between events, cold", lambda: bench.pair(launch, cold=True)
    for count in (10, 100, 1000):
        yield f"launch in a row of {count}", lambda count=count: bench.row(launch, count)  # type: ignore[misc]
        yield f"small launch in a row of {count}", lambda count=count: bench.row(small_launch, count)  # type: ignore[misc]
    yield "launch, held, of 200", lambda: pair_time_ns(launch, 200)
    yield "small launch, held, of 200", lambda: pair_time_ns(small_launch, 200)
    yield "event, held, of 200", lambda: pair_time_ns(event, 200)
    yield "launch, host", lambda: bench.host(launch, 100)
    yield "small launch, host", lambda: bench.host(small_launch, 100)
    yield "event record, host", lambda: bench.host(lambda: recorded_event.record(stream), 100)
    yield "event made and recorded, host", lambda: bench.host(event, 100)
    yield "event in a row of 100", lambda: bench.row(event, 100)
    yield "event query, host", lambda: bench.host(lambda: recorded_event.done, 100)
    yield "stream query, host", lambda: bench.host(lambda: stream.done, 100)
    yield "stream wait event, host", lambda: bench.host(lambda: second_stream.wait_event(recorded_event), 100)
    yield "stream synchronize, idle, host", lambda: bench.host(stream.synchronize, 20)
    yield "device synchronize, idle, host", lambda: bench.host(cp.cuda.Device().synchronize, 20)

    def launch_and_wait() -> None:
        launch()
        stream.synchronize()

    yield "launch and stream synchronize, host", lambda: bench.host(launch_and_wait, 20)
    yield "two hops between streams", lambda: bench.row(switch_streams, 20)
    yield "two hops between streams, held", lambda: pair_time_ns(switch_streams, 20)
    for count in NODES:
        yield f"graph of {count}", lambda count=count: bench.graph(launch, count)  # type: ignore[misc]
        yield f"graph of {count} small", lambda count=count: bench.graph(small_launch, count)  # type: ignore[misc]
        yield f"graph of {count}, host", lambda count=count: time_graph_host(count)  # type: ignore[misc]
        yield f"graph of {count}, in a row", lambda count=count: time_graph_row(count)  # type: ignore[misc]
        yield f"graph of {count}, capture and instantiation, host", lambda count=count: capture_time_ns(count)  # type: ignore[misc]
    for count in (1, 10, 100):
        yield f"graph of {count} memory sets", lambda count=count: bench.graph(fill, count)  # type: ignore[misc]
        yield f"graph of {count} copies", lambda count=count: bench.graph(move, count)  # type: ignore[misc]
    for branch_count in (2, 8):
        yield f"graph forked {branch_count} ways", make_forked_timer(launch_on, branch_count)
    yield (
        "graph of 10 host functions",
        lambda: bench.graph(lambda: stream.launch_host_func(lambda _: None, None), 10),
    )
    yield (
        "host function in a row of 10",
        lambda: bench.row(lambda: stream.launch_host_func(lambda _: None, None), 10),
    )
    yield "host function, host", lambda: bench.host(lambda: stream.launch_host_func(lambda _: None, None), 10)


def record(cp: Any, repeats: int = 7, log: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Run everything on CuPy's current device, and return the recording, ready for JSON."""
    bench = Bench(cp, repeats)
    with bench.stream:
        return _record(bench, log)


def make_header(bench: Bench) -> dict[str, Any]:
    """Return the header of a recording: the device, the date, the versions and the SM's clock rate."""
    runtime = bench.cp.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    name = properties["name"]
    return {
        "format": FORMAT,
        "version": 1,
        "device": name.decode() if isinstance(name, bytes) else str(name),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {
            "CuPy": bench.cp.__version__,
            "CUDA driver": runtime.driverGetVersion(),
            "CUDA runtime": runtime.runtimeGetVersion(),
            "NVRTC": ".".join(map(str, bench.cp.cuda.nvrtc.getVersion())),
            "driver": read_driver_version(),
            "Python": sys.version.split()[0],
        },
        "l2_bytes": properties.get("l2CacheSize"),
        "sm_count": properties.get("multiProcessorCount"),
        "clock_mhz": [round(bench.clock_mhz(), 1)],
    }


def warm_up(bench: Bench) -> None:
    """Keep the GPU busy until its clock has risen to boost."""
    begin_s = time.perf_counter()
    while time.perf_counter() - begin_s < 0.3 and bench.repeats > 1:
        bench.spin(1_000_000)
        bench.stream.synchronize()


def _record(bench: Bench, log: Callable[[str], None]) -> dict[str, Any]:
    begin_s = time.perf_counter()
    warm_up(bench)
    errors: dict[str, str] = {}
    recording = make_header(bench) | {
        "host": {},
        "launches": {},
        "copies": [],
        "calls": {},
        "errors": errors,
    }

    def attempt(entry_name: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:
            errors[entry_name] = f"{type(error).__name__}: {error}"[:200]
            return None

    def stage(title: str) -> None:
        log(f"{title}: {time.perf_counter() - begin_s:.1f} s, {len(errors)} errors")

    for entry_name, measure_ns in make_host_timers(bench):
        result = attempt(entry_name, measure_ns)
        if result is not None:
            recording["host"][entry_name] = round(result, 1)
    stage("host")
    modules: dict[tuple[str, ...], Any] = {}
    for timed in LAUNCHES:
        entry = attempt(timed.name, lambda timed=timed: time_launch(bench, timed, modules))  # type: ignore[misc]
        if entry is not None:
            recording["launches"][timed.name] = entry
    stage("launches")
    for entry_name, measure_copy in make_copy_timers(bench):
        entry = attempt(entry_name, measure_copy)
        if entry is not None:
            recording["copies"].append(entry)
    stage("copies")
    for expression in CALLS:
        entry = attempt(expression.name, lambda expression=expression: time_call(bench, expression))  # type: ignore[misc]
        if entry is not None:
            recording["calls"][expression.name] = entry
    stage("calls")
    recording["clock_mhz"].append(round(bench.clock_mhz(), 1))
    return recording


def read_driver_version() -> str:
    """Return the driver's version from NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:
        return ""


def write(recording: dict[str, Any], path: Path) -> None:
    """Write one line per entry, so that differences are readable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for key, value in recording.items():
        if isinstance(value, dict) and value:
            value_lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            lines.append(f"{json.dumps(key)}: {{\n{value_lines}\n }}")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            value_lines = ",\n".join(f"  {json.dumps(v)}" for v in value)
            lines.append(f"{json.dumps(key)}: [\n{value_lines}\n ]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    path.write_text("{\n " + ",\n ".join(lines) + "\n}\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the current CUDA device; return the process's exit status."""
    parser = argparse.ArgumentParser(
        prog="tools.recordings.timing", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--repeats", type=int, default=7, help="measurements of which the median is taken")
    options = parser.parse_args(arguments)
    import cupy

    recording = record(cupy, options.repeats, lambda text: print(text, flush=True))
    write(recording, options.out)
    print(f"{options.out}: {options.out.stat().st_size:,} bytes, {len(recording['launches'])} launches")
    for name, error in list(recording["errors"].items())[:20]:
        print(f"failed: {name}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

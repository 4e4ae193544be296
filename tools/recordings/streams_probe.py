"""What CUPTI gives on a GPU, in a minute: ``python -m tools.recordings.streams_probe`` prints JSON by part.

Each part runs in a process of its own with a time limit, so that one that fails or hangs costs only itself.
``python -m tools.recordings.streams_probe PART`` runs one part in this process.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAUNCHES = 100_000
SPIN = r"""
extern "C" __global__ void empty() {}
extern "C" __global__ void spin(long long clocks, float* out) {
    long long begun = clock64();
    while (clock64() - begun < clocks) {}
    if (out) out[0] = 1.0f;
}
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""


def _recorder() -> Any:
    import cupy as cp

    from gpulab.real.cupti import library
    from gpulab.real.cupti.recorder import CuptiRecorder
    from virtualgpu.records import Provenance

    cp.zeros(1).sum().item()
    found = library.load()
    assert found is not None
    return CuptiRecorder(found, Provenance("measured", "GPU"))


def _kernels() -> Any:
    import cupy as cp

    module = cp.RawModule(code=SPIN)
    return cp, module.get_function("empty"), module.get_function("spin"), module.get_function("add")


def _of(timeline: Any) -> dict[str, Any]:
    return {
        "kinds": Counter(f"{a.kind} {a.copy_kind or ''}" for a in timeline.activities),
        "calls": Counter(c.name for c in timeline.calls),
        "waits": [
            (
                w.type,
                w.name,
                w.stream_id,
                w.hidden,
                w.start_ns - timeline.start_ns,
                w.end_ns - w.start_ns,
                w.source.line if w.source else None,
                len(w.after),
            )
            for w in timeline.synchronizations
        ][:24],
        "streams": [(s.stream_id, s.name, s.non_blocking, s.priority) for s in timeline.streams],
        "lost": timeline.lost,
        "note": timeline.note,
    }


def versions() -> Any:
    import os

    import cupy as cp

    from gpulab.real.cupti import library
    from gpulab.real.cupti.recorder import _CALLS

    found = library.load()
    assert found is not None
    names = {domain: set(found.call_names(domain).values()) for domain in _CALLS}
    return {
        "cupti": found.version,
        "cupy": cp.__version__,
        "driver": cp.cuda.runtime.driverGetVersion(),
        "python": sys.version.split()[0],
        "nvtx": os.environ.get("NVTX_INJECTION64_PATH"),
        "missing": {domain: sorted(_CALLS[domain] - names[domain]) for domain in _CALLS},
        "names": {domain: len(names[domain]) for domain in names},
        "rival": library.rival(),
    }


def launches() -> Any:
    """What recording costs a launch, by what is recorded; each beside a plain run, since hosts are noisy."""
    import gc
    import statistics

    cp, empty, _, _ = _kernels()
    from gpulab.real.cupti import library
    from gpulab.real.cupti.recorder import _CALLS, _KINDS
    from virtualgpu.trace.cupti import kinds

    found = library.load()
    assert found is not None
    count = 20_000

    def loop(n: int) -> float:
        gc.collect()
        begun = time.perf_counter()
        for _ in range(n):
            empty((1,), (32,), ())
        spent = time.perf_counter() - begun
        cp.cuda.Device().synchronize()
        return spent / n * 1e6

    loop(2000)
    driver = {kinds.DRIVER_API: _CALLS[kinds.DRIVER_API]}
    runtime = {kinds.RUNTIME_API: _CALLS[kinds.RUNTIME_API]}
    ways: dict[str, tuple[tuple[int, ...], dict[int, frozenset[str]]]] = {
        "kernels": ((10,), {}), "and driver": ((10,), driver), "and runtime": ((10,), driver | runtime),
        "and all kinds": (_KINDS, _CALLS),
    }  # fmt: skip
    plain: list[float] = []
    spent: dict[str, list[float]] = {name: [] for name in (*ways, "and lines")}
    records: dict[str, int] = {}
    for _ in range(7):
        for name in spent:
            plain.append(loop(count))
            if name == "and lines":
                recorder = _recorder()
                recorder.start()
                spent[name].append(loop(count))
                recorder.stop()
                continue
            found.start(*ways[name])
            spent[name].append(loop(count))
            found.stop()
            records[name] = sum(len(offsets) for _, offsets in found.buffers())
    said: dict[str, Any] = {"plain": (min(plain), statistics.median(plain)), "records": records}
    for name, times in spent.items():
        said[name] = min(times), statistics.median(times)
    recorder = _recorder()
    recorder.start()
    said["100,000: us"] = loop(LAUNCHES)
    begun = time.perf_counter()
    timeline = recorder.stop()
    said["stop s"] = time.perf_counter() - begun
    said["kernels"] = sum(a.kind == "CONCURRENT_KERNEL" for a in timeline.activities)
    lines = Counter((c.source.line if c.source else None) for c in timeline.calls if c.correlation_id)
    said["lines"], said["lost"] = list(lines.items())[:5], timeline.lost
    said["calls"] = Counter(c.name for c in timeline.calls)
    return said


def shapes() -> Any:
    cp, _, spin, add = _kernels()
    n = 1 << 22
    a, b, c = (cp.ones(n, cp.float32) for _ in range(3))
    host = cp.cuda.alloc_pinned_memory(4 * n)
    import numpy as np

    pinned = np.frombuffer(host, np.float32, n)
    pageable = np.ones(n, np.float32)
    s1, s2 = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True, priority=-1)
    event = cp.cuda.Event()
    said: dict[str, Any] = {"handles": (s1.ptr, s2.ptr)}
    from cupy.cuda import nvtx

    recorder = _recorder()
    first = sys._getframe().f_lineno + 2
    recorder.start()
    nvtx.RangePush("outer", 2)
    nvtx.RangePush("inner")
    nvtx.RangePop()
    nvtx.RangePop()
    nvtx.Mark("mark", 1)
    with s1:
        spin((1,), (1,), (2_000_000, a))
        event.record()
    a.set(pinned, stream=s2)
    s2.wait_event(event)
    with s2:
        add((n // 256,), (256,), (a, b, c, n))
    c.get(stream=s1, out=pinned)
    float(c[0])
    b.set(pageable)
    pageable[:] = c.get()
    (a + b).sum()
    spin((1,), (1,), (2_000_000, a))
    big = cp.cuda.runtime.malloc(1 << 20)
    cp.cuda.runtime.free(big)
    cp.cuda.get_current_stream().launch_host_func(lambda _: None, None)
    s1.synchronize()
    event.synchronize()
    _ = s2.done
    cp.cuda.Device().synchronize()
    timeline = recorder.stop()
    said["first line"] = first
    said |= _of(timeline)
    begin = timeline.start_ns
    said["calls"] = [
        (
            c.name,
            c.source.line - first if c.source else None,
            c.correlation_id,
            c.start_ns - begin,
            c.end_ns - c.start_ns,
        )
        for c in timeline.calls
    ]
    said["activities"] = [
        (
            x.correlation_id,
            x.kind[:6],
            x.name,
            x.stream_id,
            x.copy_kind,
            x.pinned,
            x.start_ns - begin,
            x.duration_ns,
            x.after,
        )
        for x in timeline.activities
    ]
    said["ranges"] = [(r.name, r.color, r.depth, r.is_mark, r.end_ns - r.start_ns) for r in timeline.ranges]
    return said


def graphs() -> Any:
    cp, empty, _, add = _kernels()
    n = 1 << 16
    a, b, c, d = (cp.ones(n, cp.float32) for _ in range(4))
    stream, side = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    add((n // 256,), (256,), (a, b, c, n))
    empty((1,), (32,), ())
    cp.cuda.Device().synchronize()

    def capture(count: int) -> Any:
        with stream:
            stream.begin_capture()
            add((n // 256,), (256,), (a, b, c, n))
            fork = stream.record()
            side.wait_event(fork)
            with side:
                for _ in range(count):
                    add((n // 256,), (256,), (a, b, d, n))
                joined = side.record()
            for _ in range(count):
                empty((1,), (32,), ())
            a.fill(1)
            stream.wait_event(joined)
            empty((1,), (32,), ())
            return stream.end_capture()

    small, said = capture(3), {}
    recorder = _recorder()
    recorder.start()
    for _ in range(2):
        small.launch(stream)
    stream.synchronize()
    timeline = recorder.stop()
    said = _of(timeline)
    said["nodes"] = [
        (x.correlation_id, x.name, x.stream_id, x.graph_id, x.graph_node_id, x.start_ns - timeline.start_ns,
         x.duration_ns, x.after) for x in timeline.activities
    ]  # fmt: skip
    said["calls"] = [(c.name, c.correlation_id, c.end_ns - c.start_ns) for c in timeline.calls]
    large = capture(500)
    large.upload(stream)
    for recorded in (False, True):
        if recorded:
            recorder = _recorder()
            recorder.start()
        begun = time.perf_counter()
        for _ in range(10):
            large.launch(stream)
        stream.synchronize()
        said[f"us a node, recorded {recorded}"] = (time.perf_counter() - begun) / 10 / 1004 * 1e6
        if recorded:
            timeline = recorder.stop()
            said["large"] = len(timeline.activities), timeline.lost
    return said


def rivals() -> Any:
    import os

    torch: Any = importlib.import_module("torch")
    from gpulab.real.cupti import library

    said: dict[str, Any] = {"torch": torch.__version__}
    said["before"] = library.rival()
    x = torch.ones(1000, device="cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        x.add_(1)
        said["within"] = library.rival()
        torch.cuda.synchronize()
    said["after"] = library.rival()
    said["torch events"] = len(p.events())
    recorder = _recorder()
    recorder.start()
    x.add_(1)
    torch.cuda.synchronize()
    try:
        said["ours after torch's"] = _of(recorder.stop())
    except Exception:
        said["ours after torch's"] = traceback.format_exc()[-400:]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        x.add_(1)
        torch.cuda.synchronize()
    said["torch events after ours"] = len(p.events())
    maps = Path("/proc/self/maps").read_text()
    said["maps"] = sorted({line.split()[-1] for line in maps.splitlines() if "libcupti" in line})
    said["environment"] = {k: v for k, v in os.environ.items() if "NVTX" in k or "INJECTION" in k}
    return said


def tests(name: str) -> Any:
    """Tests on this GPU."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--tb=short", "-p", "no:cacheprovider", name],
        capture_output=True, text=True,
    )  # fmt: skip
    return (done.stdout + done.stderr)[-9000:].splitlines()


PARTS: dict[str, tuple[Callable[[], Any], float]] = {
    "shapes": (shapes, 15),
    "launches": (launches, 25),
    "timeline tests": (lambda: tests("tests/gpu/test_timeline_gpu.py"), 40),
    "stream tests": (lambda: tests("tests/gpu/test_check_streams_gpu.py"), 40),
    "graphs": (graphs, 20),
    "versions": (versions, 20),
    "rivals": (rivals, 40),
}


def main(arguments: list[str]) -> None:
    if arguments:
        print(json.dumps(PARTS[arguments[0]][0](), default=str, separators=(",", ":")))
        return
    begun = time.perf_counter()
    for name, (_, limit_s) in PARTS.items():
        left_s = 68 - (time.perf_counter() - begun)
        if left_s < 3:
            print(json.dumps({name: "no time left"}))
            continue
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tools.recordings.streams_probe", name],
                capture_output=True, text=True, timeout=min(limit_s, left_s),
            )  # fmt: skip
            said = done.stdout.strip() or f"{done.returncode}: {done.stderr[-1500:]}"
        except subprocess.TimeoutExpired as error:
            said = f"ran past {error.timeout:.0f} s"
        except Exception:
            said = traceback.format_exc()[-600:]
        print(f"{name} ({time.perf_counter() - begun:.0f} s): {said}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

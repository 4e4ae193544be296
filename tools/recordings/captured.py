"""Time schedules and their building blocks on the GPUs, without the host's work for each message.

Everything is timed in three ways, between events of GPU 0:

``graph``
    All of it is captured as one CUDA graph over all GPUs, which is launched once.
``gated``
    The host gives everything to the streams while a kernel holds GPU 0's stream back; time starts when that
    kernel ends. If the host has not finished by then, the round does not count.
``host``
    Python gives message by message, and its clock runs from the first call until all GPUs are idle;
    ``issue`` is the part of it until the last call has returned.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gpulab.lab.links.runs import ScheduleRun

KIB = 1 << 10
MIB = 1 << 20
SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
CHAINS = (1, 2, 4, 8, 14)
MANY = (1, 2, 3, 4, 5, 6, 7)
ROUNDS = 9
WARM = 2
_DEFAULT_KIND = 4  # cudaMemcpyDefault: the addresses tell which way
_GATE_CODE = r"""
extern "C" __global__ void gate(long long ns)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while ((long long)(now - begin) < ns);
}
extern "C" __global__ void tick(int* counter) { counter[0] += 1; }
extern "C" __global__ void take_in(int4* mine, const int4* come, long long count)
{
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
         i += (long long)gridDim.x * blockDim.x) {
        int4 a = mine[i], b = come[i];
        mine[i] = make_int4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
}
"""
Tell = Callable[[str, Any], None]


class LaunchTimers:
    """Timers of multi-GPU work that is launched by the host, behind a gate, or as a CUDA graph."""

    def __init__(self, cp: Any, gpus: int) -> None:
        self.cp = cp
        self.gpus = gpus
        module = cp.RawModule(code=_GATE_CODE)
        self._gate = module.get_function("gate")
        self.virtual = "virtualgpu" in str(cp.__file__) or "hardware" in cp.__name__
        with cp.cuda.Device(0):
            self.origin = cp.cuda.Stream(non_blocking=True)
            self._gate((1,), (1,), (cp.int64(0),), stream=self.origin)
            self.origin.synchronize()
        self.failed: set[str] = set()

    def wait(self) -> None:
        for gpu in range(self.gpus):
            self.cp.cuda.Device(gpu).synchronize()

    def times(self, streams: Sequence[tuple[int, Any]], issue: Callable[[], None]) -> dict[str, float]:
        """Return the times in µs by name. `issue` launches the work in the streams of several GPUs."""
        times_us = self._time_on_host(issue)
        for name, measure in (("gated", self._time_behind_gate), ("graph", self._time_graph)):
            try:
                times_us.update(measure(streams, issue, times_us["issue_us"]))
            except Exception as error:
                if name not in self.failed:
                    self.failed.add(name)
                    print(f"{name} failed: {error!r}")
                    traceback.print_exc()
                self._recover()
        return times_us

    def _recover(self) -> None:
        try:
            self.wait()
        except Exception as error:
            print(f"not idle afterwards: {error!r}")

    def _time_on_host(self, issue: Callable[[], None]) -> dict[str, float]:
        times_ns = []
        for _ in range(WARM + ROUNDS):
            begin_ns = time.perf_counter_ns()
            issue()
            end_issue_ns = time.perf_counter_ns()
            self.wait()
            times_ns.append((time.perf_counter_ns() - begin_ns, end_issue_ns - begin_ns))
        host_us, issued_ns = (
            statistics.median(round_times_ns) / 1000 for round_times_ns in zip(*times_ns[WARM:], strict=True)
        )
        return {"host_us": round(host_us, 2), "issue_us": round(issued_ns, 2)}

    def _fork(self, streams: Sequence[tuple[int, Any]], event: Any) -> None:
        for _, stream in streams:
            stream.wait_event(event)

    def _join(self, streams: Sequence[tuple[int, Any]]) -> None:
        for gpu, stream in streams:
            with self.cp.cuda.Device(gpu):
                event = self.cp.cuda.Event(disable_timing=True)
                event.record(stream)
            self.origin.wait_event(event)

    def _make_event(self) -> Any:
        with self.cp.cuda.Device(0):
            return self.cp.cuda.Event()

    def _time_behind_gate(
        self, streams: Sequence[tuple[int, Any]], issue: Callable[[], None], issue_us: float
    ) -> dict[str, float]:
        times_us = []
        late_rounds = 0
        gate_ns = 0 if self.virtual else int(2000 * issue_us) + 200_000
        for _ in range(WARM + ROUNDS):
            begin_event = self._make_event()
            end_event = self._make_event()
            with self.cp.cuda.Device(0):
                self._gate((1,), (1,), (self.cp.int64(gate_ns),), stream=self.origin)
                begin_event.record(self.origin)
            self._fork(streams, begin_event)
            issue()
            self._join(streams)
            with self.cp.cuda.Device(0):
                end_event.record(self.origin)
            is_early = self.virtual or not begin_event.done
            self.wait()
            if is_early:
                times_us.append(1000 * self.cp.cuda.get_elapsed_time(begin_event, end_event))
            else:
                late_rounds += 1
                gate_ns *= 2
        gated_median = {"gated_us": round(statistics.median(times_us[min(WARM, len(times_us) - 1) :]), 2)}
        return {**gated_median, "late": late_rounds} if late_rounds else gated_median

    def _time_graph(
        self, streams: Sequence[tuple[int, Any]], issue: Callable[[], None], _: float
    ) -> dict[str, float]:
        with self.cp.cuda.Device(0):
            self.origin.begin_capture()
            try:
                begin_event = self.cp.cuda.Event(disable_timing=True)
                begin_event.record(self.origin)
                self._fork(streams, begin_event)
                issue()
                self._join(streams)
            finally:
                graph = self.origin.end_capture()
        times_us = []
        with self.cp.cuda.Device(0):
            for _ in range(WARM + ROUNDS):
                begin_event = self._make_event()
                end_event = self._make_event()
                self._gate((1,), (1,), (self.cp.int64(0 if self.virtual else 100_000),), stream=self.origin)
                begin_event.record(self.origin)
                graph.launch(self.origin)
                end_event.record(self.origin)
                self.origin.synchronize()
                device_us = 1000 * self.cp.cuda.get_elapsed_time(begin_event, end_event)
                start_ns = time.perf_counter_ns()
                graph.launch(self.origin)
                launched_ns = time.perf_counter_ns()
                self.origin.synchronize()
                idle_ns = time.perf_counter_ns()
                times_us.append((device_us, (launched_ns - start_ns) / 1000, (idle_ns - start_ns) / 1000))
        median_names = ("graph_us", "graph_launch_us", "graph_host_us")
        medians_us = (statistics.median(column) for column in zip(*times_us[WARM:], strict=True))
        return {name: round(median_us, 2) for name, median_us in zip(median_names, medians_us, strict=True)}


def time_schedules(cp: Any, gpus: int, tell: Tell, sizes: Sequence[int] = SIZES) -> None:
    """Time every schedule of an all-reduce in three ways, and check the sums that a graph computes."""
    from gpulab.lab.links.schedules import ALGORITHMS, find_chunk_bounds, make_schedule

    timers = LaunchTimers(cp, gpus)
    for size in sizes:
        for algorithm in ALGORITHMS:
            _, steps = make_schedule("all-reduce", algorithm, gpus)
            run = ScheduleRun(cp, gpus, find_chunk_bounds(size // 4, steps))
            streams = [
                (gpu, stream) for gpu, stream_pair in enumerate(run._streams) for stream in stream_pair
            ]

            for slices in sorted({1, run.slice_count}):

                def issue(run: ScheduleRun = run, steps: Any = steps, slices: int = slices) -> None:
                    run.discard_events()
                    for step in steps:
                        run.submit_step(step, slices)

                issue()
                run.wait()
                times_row = {
                    "algorithm": algorithm,
                    "size_bytes": size,
                    "slices": slices,
                    **timers.times(streams, issue),
                }
                run.discard_events()
                times_row["right"] = _is_right(run, steps, slices, timers)
                times_row["by_steps_us"] = _time_steps(run, steps, slices)
                tell("schedules", times_row)
            del run
            cp.get_default_memory_pool().free_all_blocks()


def _is_right(run: ScheduleRun, steps: Any, slices: int, timers: LaunchTimers) -> bool | None:
    """Return whether one launch of the graph leaves the sums on all GPUs; None if there is no graph."""
    if "graph" in timers.failed:
        return None
    run.restore_arrays()
    run.capture_graph(steps, slices)()
    return all(run.check_results("all-reduce"))


def _time_steps(run: ScheduleRun, steps: Any, slices: int) -> float:
    times_us = []
    for _ in range(WARM + ROUNDS):
        spent_ns = 0
        for step in steps:
            begin_ns = time.perf_counter_ns()
            run.submit_step(step, slices)
            run.wait()
            spent_ns += time.perf_counter_ns() - begin_ns
        times_us.append(spent_ns / 1000)
    return round(statistics.median(times_us[WARM:]), 2)


# Building blocks: (what, GPU, lane, buffer, other GPU, bytes, behind which earlier ones)
Piece = tuple[str, int, int, int, int, int, tuple[int, ...]]


class GpuBuffers:
    """Buffers and streams on every GPU for building blocks of schedules, such as copies and kernels."""

    def __init__(self, cp: Any, gpus: int, max_bytes: int, buffers: int) -> None:
        self.cp = cp
        self.gpus = gpus
        runtime = cp.cuda.runtime
        self._tick = cp.RawModule(code=_GATE_CODE).get_function("tick")
        self._add = cp.RawModule(code=_GATE_CODE).get_function("take_in")
        self.arrays: dict[tuple[int, int], Any] = {}
        self.lanes: dict[tuple[int, int], Any] = {}
        for gpu in range(gpus):
            with cp.cuda.Device(gpu):
                for peer in range(gpus):
                    if peer != gpu and runtime.deviceCanAccessPeer(gpu, peer):
                        with contextlib.suppress(runtime.CUDARuntimeError):
                            runtime.deviceEnablePeerAccess(peer)
                for buffer_index in range(buffers + 1):
                    self.arrays[gpu, buffer_index] = cp.ones(max_bytes // 4, "int32")
                for lane in range(8):
                    self.lanes[gpu, lane] = cp.cuda.Stream(non_blocking=True)
                cp.cuda.Device().synchronize()

    def issue(self, pieces: Sequence[Piece]) -> None:
        events: list[Any] = []
        for operation, gpu, lane, buffer, other_gpu, size, dependencies in pieces:
            stream = self.lanes[gpu, lane]
            with self.cp.cuda.Device(gpu), stream:
                for piece_index in dependencies:
                    if pieces[piece_index][1:3] != (gpu, lane):
                        stream.wait_event(events[piece_index])
                self._submit(operation, gpu, buffer, other_gpu, size, stream)
                event = self.cp.cuda.Event(disable_timing=True)
                event.record(stream)
            events.append(event)

    def _submit(self, operation: str, gpu: int, buffer: int, other_gpu: int, size: int, stream: Any) -> None:
        own_array = self.arrays[gpu, 0]
        inbox_array = self.arrays[gpu, buffer]
        if operation == "copy":
            target_array = self.arrays[other_gpu, buffer]  # CUDA captures this call, and not memcpyPeerAsync
            self.cp.cuda.runtime.memcpyAsync(
                target_array.data.ptr, own_array.data.ptr, size, _DEFAULT_KIND, stream.ptr
            )
        elif operation == "add":
            sum_array = own_array[: size // 4]  # one array in and out: CuPy would copy another one first
            self.cp.add(sum_array, inbox_array[: size // 4], out=sum_array)
        elif operation == "pull":  # a kernel adds what it reads of the other GPU's memory
            blocks = max(1, min(1056, size // 4096))
            remote_array = self.arrays[other_gpu, buffer]
            self._add(
                (blocks,), (256,), (own_array.data.ptr, remote_array.data.ptr, self.cp.int64(size // 16))
            )
        else:
            self._tick((1,), (1,), (own_array.data.ptr,))


def list_building_blocks(gpus: int) -> list[tuple[str, int, int, list[Piece]]]:
    """Return the building blocks to time: name, number of repetitions, bytes, and the pieces of work."""
    block_programs: list[tuple[str, int, int, list[Piece]]] = []

    def sources(i: int) -> int:
        return 1 + i % (gpus - 1)

    for k in CHAINS:
        block_programs.append(("kernels", k, 0, [("tick", 0, 0, 0, 0, 0, ()) for _ in range(k)]))
        block_programs.append(
            (
                "kernels in turns",
                k,
                0,
                [("tick", i % 2, 0, 0, 0, 0, (i - 1,) if i else ()) for i in range(k)],
            )
        )
    for size in SIZES:
        is_chained = size in (4 * KIB, 256 * KIB, 4 * MIB, 16 * MIB)
        for k in CHAINS if is_chained else (1, 2):
            gpu_pairs = [(i % 2, 1 - i % 2) for i in range(k)]
            block_programs.append(
                (
                    "copies in turns",
                    k,
                    size,
                    [("copy", a, 0, 1, b, size, (i - 1,) if i else ()) for i, (a, b) in enumerate(gpu_pairs)],
                )
            )
            pieces: list[Piece] = []
            for a, b in gpu_pairs:
                previous_indices = (len(pieces) - 1,) if pieces else ()
                pieces.append(("copy", a, 0, 1, b, size, previous_indices))
                pieces.append(("add", b, 1, 1, a, size, (len(pieces) - 1,)))
            block_programs.append(("copy and add in turns", k, size, pieces))
            pieces = []
            for i in range(k):
                first_copy_index = len(pieces)
                for a in (0, 1):
                    dependencies = (first_copy_index - 2, first_copy_index - 1) if i else ()
                    pieces.append(("copy", a, 0, 1, 1 - a, size, dependencies))
                for a in (0, 1):
                    pieces.append(("add", a, 1, 1, 1 - a, size, (first_copy_index, first_copy_index + 1)))
            block_programs.append(("both copy and add", k, size, pieces))
            block_programs.append(
                (
                    "add from afar in turns",
                    k,
                    size,
                    [("pull", a, 0, 1, b, size, (i - 1,) if i else ()) for i, (a, b) in enumerate(gpu_pairs)],
                )
            )
        if size <= 16 * MIB:
            for m in MANY if is_chained else (1, 2, 4, 7):
                copies: list[Piece] = [("copy", sources(i), i, i + 1, 0, size, ()) for i in range(m)]
                add_pieces: list[Piece] = [("add", 0, 0, i + 1, 0, size, (i,)) for i in range(m)]
                block_programs.append(("into one port", m, size, copies))
                block_programs.append(("into one port, added", m, size, copies + add_pieces))
                block_programs.append(
                    (
                        "out of one stream",
                        m,
                        size,
                        [("copy", 0, 0, i + 1, sources(i), size, ()) for i in range(m)],
                    )
                )
                block_programs.append(
                    (
                        "out of one port",
                        m,
                        size,
                        [("copy", 0, i, i + 1, sources(i), size, ()) for i in range(m)],
                    )
                )
                block_programs.append(
                    ("adds", m, size, [("add", 0, 0, i + 1, 0, size, ()) for i in range(m)])
                )
        else:
            block_programs.append(("adds", 1, size, [("add", 0, 0, 1, 0, size, ())]))
    return block_programs


def time_building_blocks(cp: Any, gpus: int, tell: Tell, limit_s: float = 40.0) -> None:
    """Time the building blocks of schedules, launched by the host, behind a gate, and as a CUDA graph."""
    timers = LaunchTimers(cp, gpus)
    start_s = time.monotonic()
    small_buffers = GpuBuffers(cp, gpus, 16 * MIB, 7)
    large_buffers = GpuBuffers(cp, gpus, SIZES[-1], 1)
    for name, repeat_count, size, pieces in list_building_blocks(gpus):
        if time.monotonic() - start_s > limit_s:
            print(f"no time left for {name} {repeat_count} {size}")
            continue
        buffers = small_buffers if size <= 16 * MIB else large_buffers
        gpu_lanes = list(dict.fromkeys(piece[1:3] for piece in pieces))
        streams = [(gpu, buffers.lanes[gpu, lane]) for gpu, lane in gpu_lanes]

        def issue(buffers: GpuBuffers = buffers, pieces: list[Piece] = pieces) -> None:
            buffers.issue(pieces)

        tell(
            "blocks", {"what": name, "many": repeat_count, "size_bytes": size, **timers.times(streams, issue)}
        )


def run_nccl_rank(link: Any, rank: int, gpus: int, sizes: Sequence[int]) -> None:
    """Time one rank's all-reduces of each size: one call, twenty in a row, and twenty captured in a graph.

    It sends the id to the other end of `link` if it is rank 0, receives it, and sends a row per size.
    """
    import cupy as cp
    from cupy.cuda import nccl

    cp.cuda.Device(rank).use()
    if rank == 0:
        link.send(nccl.get_unique_id())
    comm = nccl.NcclCommunicator(gpus, link.recv(), rank)
    stream = cp.cuda.Stream(non_blocking=True)
    for size in sizes:
        x = cp.full(size // 4, rank + 1, "int32")
        cp.cuda.Device().synchronize()

        def call(x: Any = x) -> None:
            comm.allReduce(x.data.ptr, x.data.ptr, x.size, nccl.NCCL_INT32, nccl.NCCL_SUM, stream.ptr)

        def call_twenty_times(call: Callable[[], None] = call) -> None:
            for _ in range(20):
                call()

        def time_calls(work: Callable[[], None], calls: int, call: Callable[[], None] = call) -> float:
            times_us = []
            for _ in range(7):
                call()  # behind it all ranks are there
                begin_event = cp.cuda.Event()
                end_event = cp.cuda.Event()
                begin_event.record(stream)
                work()
                end_event.record(stream)
                end_event.synchronize()
                times_us.append(1000 * cp.cuda.get_elapsed_time(begin_event, end_event) / calls)
            return round(float(statistics.median(times_us)), 2)

        call()
        stream.synchronize()
        is_right = bool((x == gpus * (gpus + 1) // 2).all())
        single_us = time_calls(call, 1)
        in_a_row_us = time_calls(call_twenty_times, 20)
        captured_us = 0.0
        try:
            stream.begin_capture()
            try:
                call_twenty_times()
            finally:
                graph = stream.end_capture()
            captured_us = time_calls(partial(graph.launch, stream), 20)
        except Exception as error:
            print(f"NCCL cannot be captured: {error!r}")
        link.send((size, is_right, single_us, in_a_row_us, captured_us))


def time_nccl_calls(gpus: int, tell: Tell, sizes: Sequence[int] = SIZES, limit_s: float = 45.0) -> None:
    """Time NCCL's all-reduce with a process for each GPU; each time is that of the slowest rank."""
    context = multiprocessing.get_context("spawn")
    deadline_s = time.monotonic() + limit_s
    pipe_ends = []
    rank_processes = []
    for rank in range(gpus):
        own_end, other_end = context.Pipe()
        pipe_ends.append(own_end)
        rank_processes.append(
            context.Process(target=run_nccl_rank, args=(other_end, rank, gpus, sizes), daemon=True)
        )
        rank_processes[-1].start()
        other_end.close()

    def receive(link: Any) -> Any:
        if not link.poll(max(0.0, deadline_s - time.monotonic())):
            raise TimeoutError(f"a rank of NCCL is not done after {limit_s:.0f} s")
        return link.recv()

    try:
        communicator_id = receive(pipe_ends[0])
        for pipe_end in pipe_ends:
            pipe_end.send(communicator_id)
        for _ in sizes:
            rows = [receive(pipe_end) for pipe_end in pipe_ends]
            single_us, in_a_row_us, captured_us = (
                max(values) for values in list(zip(*rows, strict=True))[2:]
            )
            tell(
                "nccl",
                {
                    "size_bytes": rows[0][0],
                    "right": all(values[1] for values in rows),
                    "alone_us": single_us,
                    "in_a_row_us": in_a_row_us,
                    "captured_us": captured_us,
                },
            )
    finally:
        for process in rank_processes:
            process.kill()
            process.join()

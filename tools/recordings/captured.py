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

from gpulab.lab.links.runs import Run

KIB = 1 << 10
MIB = 1 << 20
SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
CHAINS = (1, 2, 4, 8, 14)
MANY = (1, 2, 3, 4, 5, 6, 7)
ROUNDS = 9
WARM = 2
_DEFAULT_KIND = 4  # cudaMemcpyDefault: the addresses tell which way
_GATE = r"""
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


class Ways:
    """Time work that is given to streams of several GPUs, in a graph, behind a gate, and from the host."""

    def __init__(self, cp: Any, gpus: int) -> None:
        self.cp = cp
        self.gpus = gpus
        module = cp.RawModule(code=_GATE)
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
        """Microseconds by name; `issue` gives the streams (GPU, stream) their work."""
        found = self._host(issue)
        for name, way in (("gated", self._gated), ("graph", self._graph)):
            try:
                found.update(way(streams, issue, found["issue_us"]))
            except Exception as error:
                if name not in self.failed:
                    self.failed.add(name)
                    print(f"{name} failed: {error!r}")
                    traceback.print_exc()
                self._recover()
        return found

    def _recover(self) -> None:
        try:
            self.wait()
        except Exception as error:
            print(f"not idle afterwards: {error!r}")

    def _host(self, issue: Callable[[], None]) -> dict[str, float]:
        taken = []
        for _ in range(WARM + ROUNDS):
            begin = time.perf_counter_ns()
            issue()
            issued = time.perf_counter_ns()
            self.wait()
            taken.append((time.perf_counter_ns() - begin, issued - begin))
        host, issued_ns = (statistics.median(each) / 1000 for each in zip(*taken[WARM:], strict=True))
        return {"host_us": round(host, 2), "issue_us": round(issued_ns, 2)}

    def _fork(self, streams: Sequence[tuple[int, Any]], event: Any) -> None:
        for _, stream in streams:
            stream.wait_event(event)

    def _join(self, streams: Sequence[tuple[int, Any]]) -> None:
        for gpu, stream in streams:
            with self.cp.cuda.Device(gpu):
                event = self.cp.cuda.Event(disable_timing=True)
                event.record(stream)
            self.origin.wait_event(event)

    def _event(self) -> Any:
        with self.cp.cuda.Device(0):
            return self.cp.cuda.Event()

    def _gated(
        self, streams: Sequence[tuple[int, Any]], issue: Callable[[], None], issue_us: float
    ) -> dict[str, float]:
        taken = []
        late = 0
        gate_ns = 0 if self.virtual else int(2000 * issue_us) + 200_000
        for _ in range(WARM + ROUNDS):
            begin = self._event()
            end = self._event()
            with self.cp.cuda.Device(0):
                self._gate((1,), (1,), (self.cp.int64(gate_ns),), stream=self.origin)
                begin.record(self.origin)
            self._fork(streams, begin)
            issue()
            self._join(streams)
            with self.cp.cuda.Device(0):
                end.record(self.origin)
            early = self.virtual or not begin.done
            self.wait()
            if early:
                taken.append(1000 * self.cp.cuda.get_elapsed_time(begin, end))
            else:
                late += 1
                gate_ns *= 2
        found = {"gated_us": round(statistics.median(taken[min(WARM, len(taken) - 1) :]), 2)}
        return {**found, "late": late} if late else found

    def _graph(
        self, streams: Sequence[tuple[int, Any]], issue: Callable[[], None], _: float
    ) -> dict[str, float]:
        with self.cp.cuda.Device(0):
            self.origin.begin_capture()
            try:
                begin = self.cp.cuda.Event(disable_timing=True)
                begin.record(self.origin)
                self._fork(streams, begin)
                issue()
                self._join(streams)
            finally:
                graph = self.origin.end_capture()
        taken = []
        with self.cp.cuda.Device(0):
            for _ in range(WARM + ROUNDS):
                begin = self._event()
                end = self._event()
                self._gate((1,), (1,), (self.cp.int64(0 if self.virtual else 100_000),), stream=self.origin)
                begin.record(self.origin)
                graph.launch(self.origin)
                end.record(self.origin)
                self.origin.synchronize()
                between = 1000 * self.cp.cuda.get_elapsed_time(begin, end)
                start = time.perf_counter_ns()
                graph.launch(self.origin)
                launched = time.perf_counter_ns()
                self.origin.synchronize()
                done = time.perf_counter_ns()
                taken.append((between, (launched - start) / 1000, (done - start) / 1000))
        names = ("graph_us", "graph_launch_us", "graph_host_us")
        medians = (statistics.median(each) for each in zip(*taken[WARM:], strict=True))
        return {name: round(value, 2) for name, value in zip(names, medians, strict=True)}


def schedules(cp: Any, gpus: int, tell: Tell, sizes: Sequence[int] = SIZES) -> None:
    """Every schedule of an all-reduce, in every way; and whether the sums are right after a graph."""
    from gpulab.lab.links.schedules import ALGORITHMS, bounds_of, schedule_of

    ways = Ways(cp, gpus)
    for size in sizes:
        for algorithm in ALGORITHMS:
            _, steps = schedule_of("all-reduce", algorithm, gpus)
            run = Run(cp, gpus, bounds_of(size // 4, steps))
            streams = [(gpu, each) for gpu, both in enumerate(run._streams) for each in both]

            for slices in sorted({1, run.slices}):

                def issue(run: Run = run, steps: Any = steps, slices: int = slices) -> None:
                    run.forget()
                    for step in steps:
                        run.give(step, slices)

                issue()
                run.wait()
                row = {
                    "algorithm": algorithm,
                    "size_bytes": size,
                    "slices": slices,
                    **ways.times(streams, issue),
                }
                run.forget()
                row["right"] = _right(run, steps, slices, ways)
                row["by_steps_us"] = _by_steps(run, steps, slices)
                tell("schedules", row)
            del run
            cp.get_default_memory_pool().free_all_blocks()


def _right(run: Run, steps: Any, slices: int, ways: Ways) -> bool | None:
    """Whether one launch of the graph leaves the sums everywhere; None if there is no graph."""
    if "graph" in ways.failed:
        return None
    run.begin_again()
    run.as_graph(steps, slices)()
    return all(run.right("all-reduce"))


def _by_steps(run: Run, steps: Any, slices: int) -> float:
    taken = []
    for _ in range(WARM + ROUNDS):
        spent = 0
        for step in steps:
            begin = time.perf_counter_ns()
            run.give(step, slices)
            run.wait()
            spent += time.perf_counter_ns() - begin
        taken.append(spent / 1000)
    return round(statistics.median(taken[WARM:]), 2)


# Building blocks: (what, GPU, lane, buffer, other GPU, bytes, behind which earlier ones)
Piece = tuple[str, int, int, int, int, int, tuple[int, ...]]


class Blocks:
    """Buffers of two kinds on every GPU, streams by GPU and lane, and pieces of work between them."""

    def __init__(self, cp: Any, gpus: int, most: int, buffers: int) -> None:
        self.cp = cp
        self.gpus = gpus
        runtime = cp.cuda.runtime
        self._tick = cp.RawModule(code=_GATE).get_function("tick")
        self._add = cp.RawModule(code=_GATE).get_function("take_in")
        self.arrays: dict[tuple[int, int], Any] = {}
        self.lanes: dict[tuple[int, int], Any] = {}
        for gpu in range(gpus):
            with cp.cuda.Device(gpu):
                for peer in range(gpus):
                    if peer != gpu and runtime.deviceCanAccessPeer(gpu, peer):
                        with contextlib.suppress(runtime.CUDARuntimeError):
                            runtime.deviceEnablePeerAccess(peer)
                for at in range(buffers + 1):
                    self.arrays[gpu, at] = cp.ones(most // 4, "int32")
                for lane in range(8):
                    self.lanes[gpu, lane] = cp.cuda.Stream(non_blocking=True)
                cp.cuda.Device().synchronize()

    def issue(self, pieces: Sequence[Piece]) -> None:
        events: list[Any] = []
        for what, gpu, lane, at, other, size, behind in pieces:
            stream = self.lanes[gpu, lane]
            with self.cp.cuda.Device(gpu), stream:
                for index in behind:
                    if pieces[index][1:3] != (gpu, lane):
                        stream.wait_event(events[index])
                self._do(what, gpu, at, other, size, stream)
                event = self.cp.cuda.Event(disable_timing=True)
                event.record(stream)
            events.append(event)

    def _do(self, what: str, gpu: int, at: int, other: int, size: int, stream: Any) -> None:
        mine = self.arrays[gpu, 0]
        box = self.arrays[gpu, at]
        if what == "copy":
            into = self.arrays[other, at]  # CUDA captures this call, and not memcpyPeerAsync
            self.cp.cuda.runtime.memcpyAsync(into.data.ptr, mine.data.ptr, size, _DEFAULT_KIND, stream.ptr)
        elif what == "add":
            sum_ = mine[: size // 4]  # one array in and out: CuPy would copy another one first
            self.cp.add(sum_, box[: size // 4], out=sum_)
        elif what == "pull":  # a kernel adds what it reads of the other GPU's memory
            blocks = max(1, min(1056, size // 4096))
            far = self.arrays[other, at]
            self._add((blocks,), (256,), (mine.data.ptr, far.data.ptr, self.cp.int64(size // 16)))
        else:
            self._tick((1,), (1,), (mine.data.ptr,))


def programs(gpus: int) -> list[tuple[str, int, int, list[Piece]]]:
    """Name, how many, bytes, and the pieces."""
    made: list[tuple[str, int, int, list[Piece]]] = []

    def sources(at: int) -> int:
        return 1 + at % (gpus - 1)

    for k in CHAINS:
        made.append(("kernels", k, 0, [("tick", 0, 0, 0, 0, 0, ()) for _ in range(k)]))
        made.append(
            (
                "kernels in turns",
                k,
                0,
                [("tick", at % 2, 0, 0, 0, 0, (at - 1,) if at else ()) for at in range(k)],
            )
        )
    for size in SIZES:
        chained = size in (4 * KIB, 256 * KIB, 4 * MIB, 16 * MIB)
        for k in CHAINS if chained else (1, 2):
            turns = [(at % 2, 1 - at % 2) for at in range(k)]
            made.append(
                (
                    "copies in turns",
                    k,
                    size,
                    [("copy", a, 0, 1, b, size, (at - 1,) if at else ()) for at, (a, b) in enumerate(turns)],
                )
            )
            pieces: list[Piece] = []
            for a, b in turns:
                last = (len(pieces) - 1,) if pieces else ()
                pieces.append(("copy", a, 0, 1, b, size, last))
                pieces.append(("add", b, 1, 1, a, size, (len(pieces) - 1,)))
            made.append(("copy and add in turns", k, size, pieces))
            pieces = []
            for at in range(k):
                here = len(pieces)
                for a in (0, 1):
                    behind = (here - 2, here - 1) if at else ()
                    pieces.append(("copy", a, 0, 1, 1 - a, size, behind))
                for a in (0, 1):
                    pieces.append(("add", a, 1, 1, 1 - a, size, (here, here + 1)))
            made.append(("both copy and add", k, size, pieces))
            made.append(
                (
                    "add from afar in turns",
                    k,
                    size,
                    [("pull", a, 0, 1, b, size, (at - 1,) if at else ()) for at, (a, b) in enumerate(turns)],
                )
            )
        if size <= 16 * MIB:
            for m in MANY if chained else (1, 2, 4, 7):
                copies: list[Piece] = [("copy", sources(at), at, at + 1, 0, size, ()) for at in range(m)]
                adds: list[Piece] = [("add", 0, 0, at + 1, 0, size, (at,)) for at in range(m)]
                made.append(("into one port", m, size, copies))
                made.append(("into one port, added", m, size, copies + adds))
                made.append(
                    (
                        "out of one stream",
                        m,
                        size,
                        [("copy", 0, 0, at + 1, sources(at), size, ()) for at in range(m)],
                    )
                )
                made.append(
                    (
                        "out of one port",
                        m,
                        size,
                        [("copy", 0, at, at + 1, sources(at), size, ()) for at in range(m)],
                    )
                )
                made.append(("adds", m, size, [("add", 0, 0, at + 1, 0, size, ()) for at in range(m)]))
        else:
            made.append(("adds", 1, size, [("add", 0, 0, 1, 0, size, ())]))
    return made


def blocks(cp: Any, gpus: int, tell: Tell, limit_s: float = 40.0) -> None:
    """The building blocks, in every way."""
    ways = Ways(cp, gpus)
    begun = time.monotonic()
    small = Blocks(cp, gpus, 16 * MIB, 7)
    large = Blocks(cp, gpus, SIZES[-1], 1)
    for name, many, size, pieces in programs(gpus):
        if time.monotonic() - begun > limit_s:
            print(f"no time left for {name} {many} {size}")
            continue
        here = small if size <= 16 * MIB else large
        used = list(dict.fromkeys(piece[1:3] for piece in pieces))
        streams = [(gpu, here.lanes[gpu, lane]) for gpu, lane in used]

        def issue(here: Blocks = here, pieces: list[Piece] = pieces) -> None:
            here.issue(pieces)

        tell("blocks", {"what": name, "many": many, "size_bytes": size, **ways.times(streams, issue)})


def nccl_rank(link: Any, rank: int, gpus: int, sizes: Sequence[int]) -> None:
    """One rank's all-reduces: size, right, and us per call: alone, of twenty in a row, of twenty captured.

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

        def twenty(call: Callable[[], None] = call) -> None:
            for _ in range(20):
                call()

        def timed(work: Callable[[], None], calls: int, call: Callable[[], None] = call) -> float:
            taken = []
            for _ in range(7):
                call()  # behind it all ranks are there
                begin = cp.cuda.Event()
                end = cp.cuda.Event()
                begin.record(stream)
                work()
                end.record(stream)
                end.synchronize()
                taken.append(1000 * cp.cuda.get_elapsed_time(begin, end) / calls)
            return round(float(statistics.median(taken)), 2)

        call()
        stream.synchronize()
        right = bool((x == gpus * (gpus + 1) // 2).all())
        alone = timed(call, 1)
        row = timed(twenty, 20)
        captured = 0.0
        try:
            stream.begin_capture()
            try:
                twenty()
            finally:
                graph = stream.end_capture()
            captured = timed(partial(graph.launch, stream), 20)
        except Exception as error:
            print(f"NCCL cannot be captured: {error!r}")
        link.send((size, right, alone, row, captured))


def nccl_calls(gpus: int, tell: Tell, sizes: Sequence[int] = SIZES, limit_s: float = 45.0) -> None:
    """NCCL's all-reduce, a process for each GPU; of each time the slowest rank's."""
    context = multiprocessing.get_context("spawn")
    until = time.monotonic() + limit_s
    links = []
    ranks = []
    for rank in range(gpus):
        mine, theirs = context.Pipe()
        links.append(mine)
        ranks.append(context.Process(target=nccl_rank, args=(theirs, rank, gpus, sizes), daemon=True))
        ranks[-1].start()
        theirs.close()

    def received(link: Any) -> Any:
        if not link.poll(max(0.0, until - time.monotonic())):
            raise TimeoutError(f"a rank of NCCL is not done after {limit_s:.0f} s")
        return link.recv()

    try:
        key = received(links[0])
        for link in links:
            link.send(key)
        for _ in sizes:
            rows = [received(link) for link in links]
            alone, row, captured = (max(each) for each in list(zip(*rows, strict=True))[2:])
            tell(
                "nccl",
                {
                    "size_bytes": rows[0][0],
                    "right": all(each[1] for each in rows),
                    "alone_us": alone,
                    "in_a_row_us": row,
                    "captured_us": captured,
                },
            )
    finally:
        for process in ranks:
            process.kill()
            process.join()

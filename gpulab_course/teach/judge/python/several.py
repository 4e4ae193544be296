"""Virtual machines with several GPUs, on which answers of notebook 15 run and their costs are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from gpulab import session
from gpulab.analysis.hazards import StreamChecker
from gpulab_course.teach.judge.python.counts import QUERIES

# The given order; the given order with checks of every memory use; two other orders that streams allow.
RUN_MODES: tuple[Any, ...] = ("as given", "checked", ("last first", 0), ("random", 1))
_MAX_HAZARD_MESSAGES = 1


class GpuMachine:
    """A virtual machine with several GPUs. GPUs with a link can access each other's memory.

    Attributes
    ----------
    cp : module
        The array module.
    streams : list
        One stream per GPU, in which the data of the GPU are written and read.
    """

    def __init__(self, backend: Any, gpu_count: int) -> None:
        self.side = backend
        self.cp = backend.cp
        self.count = gpu_count
        runtime = self.cp.cuda.runtime
        self.streams = []
        for gpu in range(gpu_count):
            with self.cp.cuda.Device(gpu):
                self.streams.append(self.cp.cuda.Stream(non_blocking=True))
                for peer in range(gpu_count):
                    if runtime.deviceCanAccessPeer(gpu, peer):
                        runtime.deviceEnablePeerAccess(peer)

    def copy_to_gpu(self, gpu: int, array: Any) -> Any:
        """Copy an array to a GPU in the stream of this GPU, without waiting for the copy."""
        with self.cp.cuda.Device(gpu), self.streams[gpu]:
            device_array = self.cp.empty(array.shape, array.dtype)
            device_array.fill(1)
            source_array = self.cp.asarray(array)
            self.cp.copyto(device_array, source_array)
        return device_array

    def read(self, gpu: int, array: Any) -> Any:
        """Copy an array from a GPU to the host in the stream of this GPU."""
        with self.cp.cuda.Device(gpu), self.streams[gpu]:
            return array.get()

    def wait_for_gpus(self) -> None:
        """Wait until all GPUs of the machine have finished their work."""
        for gpu in range(self.count):
            self.cp.cuda.Device(gpu).synchronize()

    def run_recorded(self, program: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        """Run a program on the GPUs, and return its result and its costs."""
        port_recorder = self.side.port_recorder()
        recorder = self.side.timeline_recorder()
        clock = self.side.machine.clock
        port_recorder.start()
        recorder.start()
        waits_before = clock.waits
        try:
            result = program()
        finally:
            waits_before = clock.waits - waits_before
            timeline = recorder.stop()
            port_traffic = port_recorder.stop()
        gpu_indices = range(self.count)
        host_bytes = sum(a.size_bytes for a in timeline.activities if a.copy_kind in ("HtoD", "DtoH"))
        call_facts = {
            "waits": waits_before + sum(call.name in QUERIES for call in timeline.calls),
            "host_bytes": host_bytes,
            "out": [port_traffic.out_bytes(gpu) for gpu in gpu_indices],
            "in": [port_traffic.in_bytes(gpu) for gpu in gpu_indices],
            "pcie": sum(c.size_bytes for c in port_traffic.crossings if c.over == "PCIe"),
            "messages": [sum(c.target == gpu for c in port_traffic.crossings) for gpu in gpu_indices],
        }
        self.predecessor_ids = {a.correlation_id: a.after for a in timeline.activities}
        self.link_crossings = port_traffic.crossings
        return result, call_facts

    def must_follow(self, later_id: int, earlier_id: int) -> bool:
        """Return whether an operation had to wait for an earlier operation, directly or through other
        operations.
        """
        unvisited_ids = [later_id]
        visited_ids = set[int]()
        while unvisited_ids:
            for predecessor in self.predecessor_ids.get(unvisited_ids.pop(), ()):
                if predecessor == earlier_id:
                    return True
                if predecessor > earlier_id and predecessor not in visited_ids:
                    visited_ids.add(predecessor)
                    unvisited_ids.append(predecessor)
        return False


@contextmanager
def open_gpu_machine(gpu_count: int, links: str = "nvswitch") -> Iterator[GpuMachine]:
    """Create a virtual machine with `count` H200 GPUs for the duration of a `with` block."""
    with session.use_bench_device(session.find_table_info("H200"), gpu_count, links) as backend:
        yield GpuMachine(backend, gpu_count)


@contextmanager
def run_in_order(machine: GpuMachine, mode: Any) -> Iterator[list[str]]:
    """Run the work of the streams in a `with` block in the order that `mode` selects from `RUN_MODES`.

    After the block, the yielded list contains messages about streams that did not wait for each other.
    """
    messages: list[str] = []
    if mode == "checked":
        stream_names = {(gpu, stream.ptr): f"streams[{gpu}]" for gpu, stream in enumerate(machine.streams)}
        checker = StreamChecker(stream_names)
        watcher = machine.side.stream_watcher()
        watcher.start(checker.handle_act)
        try:
            yield messages
        finally:
            findings: Sequence[Any] = checker.report(machine.side.provenance, watcher.stop()).findings
            messages += [hazard.message for hazard in findings[:_MAX_HAZARD_MESSAGES]]
        return
    with nullcontext() if mode == "as given" else machine.side.machine.use_stream_order(*mode):
        yield messages

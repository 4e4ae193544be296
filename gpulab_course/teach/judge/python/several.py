"""Machines of several GPUs that answers are tried on, and what is counted there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from gpulab import session
from gpulab.analysis.hazards import StreamChecker
from gpulab_course.teach.judge.python.counts import QUERIES

# As given; with every use of memory looked at; in two other orders that streams allow.
HOWS: tuple[Any, ...] = ("as given", "checked", ("last first", 0), ("random", 1))
_MOST_HAZARDS = 1


class Gpus:
    """Several virtual GPUs, with peer access between all that a link joins.

    Attributes
    ----------
    cp : module
        The array module.
    streams : list
        One of each GPU, in which its data are written and will be read.
    """

    def __init__(self, side: Any, count: int) -> None:
        self.side = side
        self.cp = side.cp
        self.count = count
        runtime = self.cp.cuda.runtime
        self.streams = []
        for gpu in range(count):
            with self.cp.cuda.Device(gpu):
                self.streams.append(self.cp.cuda.Stream(non_blocking=True))
                for peer in range(count):
                    if runtime.deviceCanAccessPeer(gpu, peer):
                        runtime.deviceEnablePeerAccess(peer)

    def put(self, gpu: int, array: Any) -> Any:
        """An array on a GPU, which its stream is still writing."""
        with self.cp.cuda.Device(gpu), self.streams[gpu]:
            there = self.cp.empty(array.shape, array.dtype)
            there.fill(1)
            ready = self.cp.asarray(array)
            self.cp.copyto(there, ready)
        return there

    def read(self, gpu: int, array: Any) -> Any:
        """Read an array in the stream of its GPU."""
        with self.cp.cuda.Device(gpu), self.streams[gpu]:
            return array.get()

    def quiet(self) -> None:
        """Wait until no work is running."""
        for gpu in range(self.count):
            self.cp.cuda.Device(gpu).synchronize()

    def called(self, work: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        """Return a program's result and its costs."""
        ports = self.side.port_recorder()
        line = self.side.timeline_recorder()
        clock = self.side.machine.clock
        ports.start()
        line.start()
        waits = clock.waits
        try:
            result = work()
        finally:
            waits = clock.waits - waits
            seen = line.stop()
            traffic = ports.stop()
        gpus = range(self.count)
        by_host = sum(a.size_bytes for a in seen.activities if a.copy_kind in ("HtoD", "DtoH"))
        facts = {
            "waits": waits + sum(call.name in QUERIES for call in seen.calls),
            "host_bytes": by_host,
            "out": [traffic.out_bytes(gpu) for gpu in gpus],
            "in": [traffic.in_bytes(gpu) for gpu in gpus],
            "pcie": sum(c.size_bytes for c in traffic.crossings if c.over == "PCIe"),
            "messages": [sum(c.target == gpu for c in traffic.crossings) for gpu in gpus],
        }
        self.after = {a.correlation_id: a.after for a in seen.activities}
        self.crossings = traffic.crossings
        return result, facts

    def follows(self, late: int, early: int) -> bool:
        """Return whether an operation had to wait for another one."""
        todo = [late]
        seen = set[int]()
        while todo:
            for before in self.after.get(todo.pop(), ()):
                if before == early:
                    return True
                if before > early and before not in seen:
                    seen.add(before)
                    todo.append(before)
        return False


@contextmanager
def gpus(count: int, links: str = "nvswitch") -> Iterator[Gpus]:
    """Return a virtual machine with several H200 and their links."""
    with session.bench(session.table_info("H200"), count, links) as side:
        yield Gpus(side, count)


@contextmanager
def tried(made: Gpus, how: Any) -> Iterator[list[str]]:
    """Try a program in one of `HOWS`; the list holds what its streams lack in the end."""
    said: list[str] = []
    if how == "checked":
        names = {(gpu, stream.ptr): f"streams[{gpu}]" for gpu, stream in enumerate(made.streams)}
        checker = StreamChecker(names)
        watcher = made.side.stream_watcher()
        watcher.start(checker.see)
        try:
            yield said
        finally:
            found: Sequence[Any] = checker.report(made.side.provenance, watcher.stop()).findings
            said += [hazard.message for hazard in found[:_MOST_HAZARDS]]
        return
    with nullcontext() if how == "as given" else made.side.machine.stream_order(*how):
        yield said

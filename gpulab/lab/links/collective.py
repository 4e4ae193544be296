"""``gl.collective``: an operation of several GPUs, chunk by chunk, with what passes each port."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpulab import session
from gpulab.lab.links.schedules import Schedule, check_operation, schedule_of
from gpulab.session.choose import MAX_VIRTUAL_DEVICES
from virtualgpu.records.traffic.collective import Collective, CollectiveStep, Move, Operation, wanted
from virtualgpu.records.traffic.ports import Crossing, LinkKind, PortTraffic
from virtualgpu.words import size

if TYPE_CHECKING:
    from gpulab.views import CollectiveView

MOST_BYTES = 1 << 30  # in all arrays together


def collective(
    operation: str = "all-reduce",
    algorithm: str | Schedule = "ring",
    *,
    gpus: int = 8,
    size_bytes: int = 8 << 20,
    links: LinkKind | None = None,
) -> CollectiveView:
    """Let several GPUs bring their arrays together, step by step, and show what each held and sent.

    The arrays are real ones of 32-bit integers, one a GPU; chunks are copied from GPU to GPU and added there,
    and what comes out is compared with NumPy's sum.

    Parameters
    ----------
    operation
        ``"all-reduce"`` (all end with the sum), ``"reduce"`` (GPU 0 does), ``"broadcast"`` (all end with what
        GPU 0 brought), ``"all-gather"`` (chunk k comes from GPU k) or ``"reduce-scatter"`` (GPU k ends with
        chunk k of the sum).
    algorithm
        ``"ring"``, ``"tree"`` or ``"naive"`` (all through GPU 0), or your own schedule: a list of steps, or a
        function that makes it of the number of GPUs. A step is a list of moves
        ``(source, target, chunk, "add" or "copy")`` that happen at the same time; data are cut into as many
        chunks as the schedule names.
    gpus
        How many take part, 2 to 16.
    size_bytes
        Of each GPU's array; rounded down to whole elements of four bytes.
    links
        As of `use_device`; None: as those in use are joined, or as such GPUs are sold.

    Returns
    -------
    CollectiveView
        Coloured chunks of each GPU after each step, and the bytes that passed each port. ``.record`` holds
        the data (`virtualgpu.records.traffic.collective.Collective`).

        It runs on virtual GPUs like the one in use, with modelled times: what each step's busiest port and
        slowest sum take, without the host's share. Where the session uses real GPUs, and there are enough,
        it runs on those, and steps are measured by the host's clock; bytes then follow from the moves.

    Raises
    ------
    ValueError
        For an operation, algorithm, number or size that there is not, or a schedule that cannot be played.

    Examples
    --------
    >>> gl.collective("all-reduce", algorithm="ring", gpus=8)
    >>> gl.collective("broadcast", algorithm=lambda n: [[(0, r, 0, "copy")] for r in range(1, n)])
    """
    from gpulab.views import CollectiveView

    what = check_operation(operation)
    if type(gpus) is not int or not 2 <= gpus <= MAX_VIRTUAL_DEVICES:
        raise ValueError(f"`gpus` is a whole number from 2 to {MAX_VIRTUAL_DEVICES}, not {gpus!r}.")
    name, steps = schedule_of(what, algorithm, gpus)
    chunks = 1 + max((move.chunk for step in steps for move in step), default=0)
    if what in ("all-gather", "reduce-scatter"):
        chunks = max(chunks, gpus)
    elements = int(size_bytes) // 4
    if elements < chunks or 4 * elements * gpus > MOST_BYTES:
        raise ValueError(
            f"`size_bytes` has room for an element of 4 bytes in each of {chunks} chunks, and all GPUs "
            f"together hold at most {size(MOST_BYTES)}; it is {size_bytes!r}."
        )
    bounds = [at * elements // chunks for at in range(chunks + 1)]
    with _gpus(gpus, links) as side:
        run = _Run(side, gpus, bounds)
        timed, begins = [], []
        for step in steps:
            begins.append(len(run.crossings))
            timed.append(run.step(step))
        right = run.right(what)
        traffic = PortTraffic(
            provenance=run.provenance, links=run.links, devices=gpus, crossings=tuple(run.crossings)
        )
    widths = tuple(4 * (b - a) for a, b in pairwise(bounds))
    return CollectiveView(
        Collective(
            provenance=traffic.provenance, operation=what, algorithm=name, size_bytes=4 * elements,
            chunk_bytes=widths, steps=tuple(timed), right=right, traffic=traffic, begins=tuple(begins),
        )
    )  # fmt: skip


def _gpus(gpus: int, links: LinkKind | None) -> AbstractContextManager[Any]:
    """Real GPUs where the session has them, None then; else a machine of virtual ones."""
    real: Any = session.real_cp()
    if real is not None and links is None and real.cuda.runtime.getDeviceCount() >= gpus:
        return nullcontext()
    joined = session.which_device().links
    return session.bench(count=gpus, links=links or joined or None)


class _Run:
    """Arrays on several GPUs, and how chunks of them are moved."""

    def __init__(self, side: Any, gpus: int, bounds: list[int]) -> None:
        self.cp: Any = session.cp() if side is None else side.cp
        self.side, self.bounds, self.gpus = side, bounds, gpus
        self.crossings: list[Crossing] = []
        self.provenance = session.backend().provenance if side is None else side.provenance
        runtime = self.cp.cuda.runtime
        self.joined = {
            (a, b) for a in range(gpus) for b in range(gpus) if a != b and runtime.deviceCanAccessPeer(a, b)
        }
        whole = len(self.joined) == gpus * (gpus - 1)
        fitting: LinkKind = "nvswitch" if whole else "pairs" if self.joined else "host"
        self.links: LinkKind = fitting if side is None else side.machine.links.kind
        rng = np.random.default_rng(gpus)
        self.brought = [rng.integers(-999, 1000, bounds[-1], dtype=np.int32) for _ in range(gpus)]
        self.arrays, self.inboxes = [], []
        for rank in range(gpus):
            with self.cp.cuda.Device(rank):
                for peer in range(gpus):
                    if (rank, peer) in self.joined:
                        _enable(runtime, peer)
                self.arrays.append(self.cp.asarray(self.brought[rank]))
                self.inboxes.append(self.cp.empty_like(self.arrays[-1]))
            with self.cp.cuda.Device(rank):
                self.inboxes[-1] += self.arrays[-1]  # the kernel is compiled before anything is timed
        self._wait()

    def _wait(self) -> None:
        for rank in range(self.gpus):
            self.cp.cuda.Device(rank).synchronize()

    def _chunk(self, array: Any, chunk: int, end: int | None = None) -> Any:
        return array[self.bounds[chunk] : self.bounds[chunk + 1 if end is None else end]]

    def step(self, moves: list[Move]) -> CollectiveStep:
        """Make moves as if at the same time: all chunks leave before one is changed."""
        begin = time.perf_counter_ns()
        if self.side is None:
            landed = self._send(moves)
            self._wait()
            copied = time.perf_counter_ns()
            self._take_in(landed)
            self._wait()
            self.crossings += [self._crossing(move) for move in moves]
            return CollectiveStep(tuple(moves), time.perf_counter_ns() - begin, copied - begin)
        ports, work = self.side.port_recorder(), self.side.timeline_recorder()
        ports.start()
        landed = self._send(moves)
        crossings = ports.stop().crossings
        self._wait()
        work.start()
        self._take_in(landed)
        self._wait()
        self.crossings += crossings
        # What a port has to let through one after another, and then the slowest GPU's sums; no host.
        busy: dict[tuple[int, str, str], int] = {}
        for each in crossings:
            for way in ((each.source, each.over, "out"), (each.target, each.over, "in")):
                busy[way] = busy.get(way, 0) + each.end_ns - each.start_ns
        sums = [0] * self.gpus
        for done in work.stop().activities:
            sums[done.device_id] += done.duration_ns
        copies_ns = max(busy.values(), default=0)
        return CollectiveStep(tuple(moves), copies_ns + max(sums), copies_ns)

    def _send(self, moves: list[Move]) -> list[tuple[Move, int, Any]]:
        """Copies of chunks where they are to go; the first into a GPU's inbox, more into new arrays."""
        taken: set[tuple[int, int]] = set()
        landed = []
        for move, end in _messages(moves):
            chunks = range(move.chunk, end)
            source = self._chunk(self.arrays[move.source], move.chunk, end)
            with self.cp.cuda.Device(move.target):
                first = taken.isdisjoint((move.target, chunk) for chunk in chunks)
                inbox = self.inboxes[move.target] if first else None
                target = self.cp.empty_like(source) if inbox is None else self._chunk(inbox, move.chunk, end)
            taken.update((move.target, chunk) for chunk in chunks)
            with self.cp.cuda.Device(move.source):
                self.cp.cuda.runtime.memcpyPeerAsync(
                    target.data.ptr, move.target, source.data.ptr, move.source, source.nbytes,
                    self.cp.cuda.get_current_stream().ptr,
                )  # fmt: skip
            landed.append((move, end, target))
        return landed

    def _take_in(self, landed: list[tuple[Move, int, Any]]) -> None:
        for move, end, chunk in landed:
            with self.cp.cuda.Device(move.target):
                mine = self._chunk(self.arrays[move.target], move.chunk, end)
                if move.add:
                    mine += chunk
                else:
                    mine[...] = chunk

    def _crossing(self, move: Move) -> Crossing:
        """Of a real GPU, whose ports nobody watches."""
        direct = (move.source, move.target) in self.joined
        return Crossing(
            name="Memcpy PtoP", source=move.source, target=move.target, start_ns=0, end_ns=0,
            size_bytes=4 * (self.bounds[move.chunk + 1] - self.bounds[move.chunk]),
            over="NVLink" if direct else "PCIe",
        )  # fmt: skip

    def right(self, operation: Operation) -> tuple[bool, ...]:
        """Of each GPU, whether it holds what it should."""
        verdicts = []
        for rank, array in enumerate(self.arrays):
            found: npt.NDArray[np.int32] = array.get()
            good = True
            for chunk in range(len(self.bounds) - 1):
                parts = wanted(operation, self.gpus, rank, chunk)
                if parts is not None:
                    sums = sum(
                        self._chunk(own, chunk) for own, n in zip(self.brought, parts, strict=True) if n
                    )
                    good = good and bool((self._chunk(found, chunk) == sums).all())
            verdicts.append(good)
        return tuple(verdicts)


def _messages(moves: list[Move]) -> list[tuple[Move, int]]:
    """Moves, those of neighbouring chunks between the same GPUs as one; and the chunk behind the last."""
    made: list[tuple[Move, int]] = []
    for move in moves:
        first, end = made[-1] if made else (move, -1)
        if end == move.chunk and replace(move, chunk=first.chunk) == first:
            made[-1] = (first, end + 1)
        else:
            made.append((move, move.chunk + 1))
    return made


def _enable(runtime: Any, peer: int) -> None:
    """Let the current device reach a peer, if it does not yet."""
    try:
        runtime.deviceEnablePeerAccess(peer)
    except runtime.CUDARuntimeError as error:
        if error.status != runtime.errorPeerAccessAlreadyEnabled:
            raise

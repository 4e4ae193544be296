"""Reconstruction of the requests behind a trace, and their replay on another allocator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from gpulab.allocators.log import EventLog
from virtualgpu.errors import GpulabError
from virtualgpu.records.memory import (
    ACTIONS,
    Action,
    AllocatorEvents,
    AllocatorTrace,
    BlockMap,
    Request,
    Stack,
)

_ASKED_FREE = ACTIONS.index("free_requested")


class OutOfMemory(GpulabError, MemoryError):
    """Error for an allocation that exceeds the device or a limit; the message names the requested bytes."""


class RequestError(GpulabError, ValueError):
    """Error for a request that no program could make, such as a free of memory never allocated."""


class Sink(Protocol):
    """Takes an allocator's events (`EventLog.emit` is one)."""

    def __call__(
        self, action: Action, address: int, size_bytes: int, requested_bytes: int, stream: int, /
    ) -> None: ...


class Allocator(Protocol):
    """Interface of an allocator model, which handles requests without a device.

    Every event goes to `sink` in the vocabulary of `AllocatorEvents`: the segments taken and given back as
    well as the blocks; ``oom`` (its address is the device's free bytes) before `malloc` raises.
    """

    sink: Sink

    @property
    def name(self) -> str:
        """Name of the allocator, such as ``"PyTorch's caching allocator"``."""

    @property
    def settings(self) -> str:
        """Settings of the allocator, in its own notation."""

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the device that the allocator can use, or 0 if they are not limited."""

    def malloc(self, size_bytes: int, stream: int) -> int:
        """Return the address of a block for `stream`, or 0 for 0 bytes. Raises `OutOfMemory`."""

    def free(self, address: int) -> None:
        """Free a block. Raises `RequestError` if no block in use begins at `address`."""

    def record_stream(self, address: int, stream: int) -> None:
        """Record that `stream` uses the block, too: its memory is reused only after that work has ended."""

    def complete(self, stream: int) -> None:
        """Record that all work issued to `stream` so far has ended."""

    def empty_cache(self) -> None:
        """Return all segments without blocks in use to the device."""

    def set_limit(self, size_bytes: int) -> None:
        """Limit the bytes that are taken from the device from now on; 0 removes the limit."""

    def block_map(self) -> BlockMap:
        """Return the current segments and blocks."""


def replay(requests: Iterable[Request], allocator: Allocator, stacks: Sequence[Stack] = ()) -> AllocatorTrace:
    """Replay requests on an allocator model, whichever allocator they were first made of.

    An allocation that does not fit is an ``oom`` event, and what is later asked about it is passed over, as
    in a program that catches the error and goes on without.

    Parameters
    ----------
    requests : iterable of Request
        As `requests_of` finds them in a trace, or a recorder of a program's calls.
    allocator : Allocator
        The model; its state is used up.
    stacks : sequence of Stack
        The stack traces that the requests' numbers mean, for the result.

    Raises
    ------
    RequestError
        If a request cannot be: a negative size, a free of a number that is not alive.
    """
    log = EventLog()
    allocator.sink = log.emit
    first = allocator.block_map()
    addresses: dict[int, int] = {}
    lost: set[int] = set()
    for request in requests:
        log.time_ns = request.time_ns
        log.stack = request.stack
        match request.kind:
            case "alloc":
                _check_new(request, addresses)
                lost.discard(request.number)
                try:
                    addresses[request.number] = allocator.malloc(request.size_bytes, request.stream)
                except OutOfMemory:
                    lost.add(request.number)
            case "free" | "record_stream" if request.number in lost:
                if request.kind == "free":
                    lost.remove(request.number)
            case "free":
                allocator.free(_alive(request, addresses))
                del addresses[request.number]
            case "record_stream":
                allocator.record_stream(_alive(request, addresses), request.stream)
            case "complete":
                allocator.complete(request.stream)
            case "empty_cache":
                allocator.empty_cache()
            case "set_limit":
                allocator.set_limit(request.size_bytes)
    return AllocatorTrace(
        provenance=first.provenance,
        device_id=first.device_id,
        allocator=allocator.name,
        first=first,
        events=log.events(),
        stacks=tuple(stacks),
        settings=allocator.settings,
        capacity_bytes=allocator.capacity_bytes,
    )


def _check_new(request: Request, addresses: dict[int, int]) -> None:
    if request.size_bytes < 0:
        raise RequestError(f"An allocation of {request.size_bytes} bytes was asked for: give 0 or more.")
    if request.number in addresses:
        raise RequestError(
            f"Allocation {request.number} is asked for while it is still alive: free it first, or give the "
            f"new one another number."
        )


def _alive(request: Request, addresses: dict[int, int]) -> int:
    try:
        return addresses[request.number]
    except KeyError:
        doing = "freed" if request.kind == "free" else "given to another stream"
        raise RequestError(
            f"Allocation {request.number} is {doing} but is not alive: it was freed before, or never made."
        ) from None


def requests_of(trace: AllocatorTrace) -> list[Request]:
    """Reconstruct the requests of a program from the events of its allocator.

    Blocks in use before the first event are allocated first. A block that was freed later than the program
    asked waited for a stream that the trace does not name: each such wait has a stream of its own here
    (negative handles). Segments given back are an ``empty_cache`` unless the allocator did it by itself to
    make room. An allocation that failed in the middle of the trace is given back at once, if it succeeds
    elsewhere, since the program went on without it.
    """
    events = trace.events
    codes = events.actions.tolist()
    completed, completed_first = _completions(events)
    asked = asked_to_empty(trace)
    last = len(codes) - 1
    requests: list[Request] = []
    numbers: dict[int, int] = {}
    waiting: dict[int, int] = {}
    count = 0
    if trace.first.limit_bytes:
        requests.append(Request("set_limit", size_bytes=trace.first.limit_bytes))
    for segment in trace.first.segments:
        for block in segment.blocks:
            if block.state not in ("used", "waiting"):
                continue
            size = block.requested_bytes or block.size_bytes
            requests.append(Request("alloc", count, size, segment.stream, trace.first.time_ns, block.stack))
            if block.state == "waiting":
                waits = waiting[block.address] = completed_first.get(block.address, last + 1 + count)
                requests += (Request("record_stream", count, stream=-1 - waits), Request("free", count))
            else:
                numbers[block.address] = count
            count += 1
    for i, (action, address, size, wanted, stream, time_ns, stack) in enumerate(events.rows()):
        match action:
            case "alloc":
                requests.append(Request("alloc", count, wanted or size, stream, time_ns, stack))
                numbers[address] = count
                count += 1
            case "free_requested" if address in numbers:
                number = numbers.pop(address)
                if completed and completed.get(i) != i + 1:
                    waits = waiting[address] = completed.get(i, last + 1 + number)
                    requests.append(
                        Request("record_stream", number, stream=-1 - waits, time_ns=time_ns, stack=stack)
                    )
                requests.append(Request("free", number, time_ns=time_ns, stack=stack))
            case "free_completed" if address in waiting:
                requests.append(Request("complete", stream=-1 - waiting.pop(address), time_ns=time_ns))
                # Allocators check streams when they allocate, or when the program asks for it.
                if i == last or codes[i + 1] == _ASKED_FREE:
                    requests.append(Request("empty_cache", time_ns=time_ns, stack=stack))
            case "segment_free" | "segment_unmap" if i in asked:
                requests.append(Request("empty_cache", time_ns=time_ns, stack=stack))
            case "oom":
                requests.append(Request("alloc", count, wanted or size, stream, time_ns, stack))
                if i < last:
                    requests.append(Request("free", count, time_ns=time_ns, stack=stack))
                count += 1
    return requests


def _completions(events: AllocatorEvents) -> tuple[dict[int, int], dict[int, int]]:
    """Return the event that completed each free: by index of its ``free_requested``, else by address."""
    done = ACTIONS.index("free_completed")
    found: dict[int, int] = {}
    first: dict[int, int] = {}
    open_: dict[int, int] = {}
    where = np.flatnonzero((events.actions == _ASKED_FREE) | (events.actions == done)).tolist()
    codes = events.actions.tolist()
    addresses = events.addresses.tolist()
    for i in where:
        if codes[i] == _ASKED_FREE:
            open_[addresses[i]] = i
        elif addresses[i] in open_:
            found[open_.pop(addresses[i])] = i
        else:
            first.setdefault(addresses[i], i)
    return found, first


def asked_to_empty(trace: AllocatorTrace) -> set[int]:
    """Return the first event of each run of segments that the program asked to release."""
    given = {ACTIONS.index("segment_free"), ACTIONS.index("segment_unmap")}
    taken = {ACTIONS.index("segment_alloc"), ACTIONS.index("segment_map")}
    oom = ACTIONS.index("oom")
    events = trace.events
    codes = events.actions.tolist()
    sizes = events.size_bytes.tolist()
    stacks = events.stacks.tolist()
    limit = trace.first.limit_bytes or trace.capacity_bytes
    reserved = trace.first.total_bytes
    asked = set()
    i = 0
    while i < len(codes):
        if codes[i] not in given:
            reserved += sizes[i] if codes[i] in taken else 0
            i += 1
            continue
        start = i
        before = reserved
        while i < len(codes) and codes[i] in given:
            reserved -= sizes[i]
            i += 1
        # Emptied to make room for what follows? Then what follows takes memory (or fails to) for the same
        # line of the program, and would not have found room before. Where no limit is known, the line counts.
        follows = codes[i] if i < len(codes) else -1
        if follows == oom:
            continue
        by_the_same_call = i < len(codes) and stacks[start] == stacks[i]
        if follows in taken and by_the_same_call and (before + sizes[i] > limit if limit else stacks[i] >= 0):
            continue
        asked.add(start)
    return asked

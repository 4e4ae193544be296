"""Reconstruct the requests of a program from a trace, and replay them on another allocator."""

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

_FREE_REQUESTED = ACTIONS.index("free_requested")


class OutOfMemory(GpulabError, MemoryError):
    """Error for an allocation that exceeds the device memory or a limit. The message contains the requested
    number of bytes.
    """


class RequestError(GpulabError, ValueError):
    """Error for an invalid memory request, such as freeing memory that is not allocated."""


class EventSink(Protocol):
    """A function that receives the events of an allocator, such as `EventLog.append_event`."""

    def __call__(
        self, action: Action, address: int, size_bytes: int, requested_bytes: int, stream: int, /
    ) -> None: ...


class Allocator(Protocol):
    """The interface of an allocator model, which processes memory requests without a device.

    The model reports each event of a block or a segment to `event_sink`, with an action from
    `AllocatorEvents`. Before `malloc` raises, it sends ``oom`` with the device's free bytes as the address.
    """

    event_sink: EventSink

    @property
    def name(self) -> str:
        """The name of the allocator, such as ``"PyTorch's caching allocator"``."""

    @property
    def settings(self) -> str:
        """The settings of the allocator, in the notation that the allocator itself uses."""

    @property
    def capacity_bytes(self) -> int:
        """The number of bytes of device memory that the allocator can use, or 0 if there is no limit."""

    def malloc(self, size_bytes: int, stream: int) -> int:
        """Allocate a block of memory for `stream`, and return its address. Return 0 for a request of 0 bytes.
        Raise `OutOfMemory` if there is not enough memory.
        """

    def free(self, address: int) -> None:
        """Free a block of memory. Raise `RequestError` if no block in use begins at `address`."""

    def record_stream(self, address: int, stream: int) -> None:
        """Record that `stream` also uses the block. The allocator reuses the memory only after the work of
        that stream has ended.
        """

    def complete_stream_work(self, stream: int) -> None:
        """Record that all work submitted to `stream` so far has ended."""

    def empty_cache(self) -> None:
        """Release all segments that contain no used blocks, so that the device can reuse their memory."""

    def set_limit(self, size_bytes: int) -> None:
        """Limit the number of bytes that the allocator may hold on the device. The value 0 removes the
        limit.
        """

    def block_map(self) -> BlockMap:
        """Return the current segments and blocks of the allocator."""


def replay(requests: Iterable[Request], allocator: Allocator, stacks: Sequence[Stack] = ()) -> AllocatorTrace:
    """Send memory requests to an allocator model. The requests may come from a program that used another
    allocator.

    An allocation that does not fit is an ``oom`` event. Later requests for it are skipped, as in a program
    that catches the error and continues.

    Parameters
    ----------
    requests : iterable of Request
        The requests from `reconstruct_requests`, or from a recorder of a program's calls.
    allocator : Allocator
        The model; the requests change its state.
    stacks : sequence of Stack
        The stack traces to which the requests' numbers refer, for the result.

    Raises
    ------
    RequestError
        If a request is impossible: a negative size, or a free of a number that is not alive.
    """
    log = EventLog()
    allocator.event_sink = log.append_event
    first_map = allocator.block_map()
    addresses: dict[int, int] = {}
    failed_numbers: set[int] = set()
    for request in requests:
        log.time_ns = request.time_ns
        log.stack = request.stack
        match request.kind:
            case "alloc":
                _check_new_allocation(request, addresses)
                failed_numbers.discard(request.number)
                try:
                    addresses[request.number] = allocator.malloc(request.size_bytes, request.stream)
                except OutOfMemory:
                    failed_numbers.add(request.number)
            case "free" | "record_stream" if request.number in failed_numbers:
                if request.kind == "free":
                    failed_numbers.remove(request.number)
            case "free":
                allocator.free(_find_address(request, addresses))
                del addresses[request.number]
            case "record_stream":
                allocator.record_stream(_find_address(request, addresses), request.stream)
            case "complete":
                allocator.complete_stream_work(request.stream)
            case "empty_cache":
                allocator.empty_cache()
            case "set_limit":
                allocator.set_limit(request.size_bytes)
    return AllocatorTrace(
        provenance=first_map.provenance,
        device_id=first_map.device_id,
        allocator=allocator.name,
        first=first_map,
        events=log.events(),
        stacks=tuple(stacks),
        settings=allocator.settings,
        capacity_bytes=allocator.capacity_bytes,
    )


def _check_new_allocation(request: Request, addresses: dict[int, int]) -> None:
    if request.size_bytes < 0:
        raise RequestError(
            f"A request has a size of {request.size_bytes} bytes, but the size must not be negative."
        )
    if request.number in addresses:
        raise RequestError(
            f"Allocation {request.number} is requested, but an allocation with this number is already in "
            "use. Free that allocation first, or use another number."
        )


def _find_address(request: Request, addresses: dict[int, int]) -> int:
    try:
        return addresses[request.number]
    except KeyError:
        verb = "freed" if request.kind == "free" else "used in another stream"
        raise RequestError(
            f"Allocation {request.number} is {verb} but is not in use. It has been freed before, or was "
            "never requested."
        ) from None


def reconstruct_requests(trace: AllocatorTrace) -> list[Request]:
    """Reconstruct the memory requests of a program from the events of its allocator.

    The first requests allocate the blocks that were in use before the first event. If a block was freed later
    than the program requested, it waited for a stream that the trace does not contain; the result has a
    separate stream (negative handles) for each such wait. A release of segments becomes ``empty_cache``,
    unless the allocator released them by itself for a request. After an allocation that failed in the middle
    of the trace, the program continued without it; the result frees it at once, because it can succeed on
    another allocator.
    """
    events = trace.events
    action_codes = events.actions.tolist()
    completion_by_free_index, completion_by_address = _find_completion_events(events)
    release_indices = find_release_starts(trace)
    last_event_index = len(action_codes) - 1
    requests: list[Request] = []
    request_numbers: dict[int, int] = {}
    wait_numbers: dict[int, int] = {}
    request_count = 0
    if trace.first.limit_bytes:
        requests.append(Request("set_limit", size_bytes=trace.first.limit_bytes))
    for segment in trace.first.segments:
        for block in segment.blocks:
            if block.state not in ("used", "waiting"):
                continue
            request_bytes = block.requested_bytes or block.size_bytes
            requests.append(
                Request(
                    "alloc", request_count, request_bytes, segment.stream, trace.first.time_ns, block.stack
                )
            )
            if block.state == "waiting":
                wait_number = wait_numbers[block.address] = completion_by_address.get(
                    block.address, last_event_index + 1 + request_count
                )
                requests += (
                    Request("record_stream", request_count, stream=-1 - wait_number),
                    Request("free", request_count),
                )
            else:
                request_numbers[block.address] = request_count
            request_count += 1
    for i, (action, address, event_bytes, requested_bytes, stream, time_ns, stack) in enumerate(
        events.rows()
    ):
        match action:
            case "alloc":
                requests.append(
                    Request("alloc", request_count, requested_bytes or event_bytes, stream, time_ns, stack)
                )
                request_numbers[address] = request_count
                request_count += 1
            case "free_requested" if address in request_numbers:
                request_number = request_numbers.pop(address)
                if completion_by_free_index and completion_by_free_index.get(i) != i + 1:
                    wait_number = wait_numbers[address] = completion_by_free_index.get(
                        i, last_event_index + 1 + request_number
                    )
                    requests.append(
                        Request(
                            "record_stream",
                            request_number,
                            stream=-1 - wait_number,
                            time_ns=time_ns,
                            stack=stack,
                        )
                    )
                requests.append(Request("free", request_number, time_ns=time_ns, stack=stack))
            case "free_completed" if address in wait_numbers:
                requests.append(Request("complete", stream=-1 - wait_numbers.pop(address), time_ns=time_ns))
                # Allocators check streams when they allocate, or when the program asks for it.
                if i == last_event_index or action_codes[i + 1] == _FREE_REQUESTED:
                    requests.append(Request("empty_cache", time_ns=time_ns, stack=stack))
            case "segment_free" | "segment_unmap" if i in release_indices:
                requests.append(Request("empty_cache", time_ns=time_ns, stack=stack))
            case "oom":
                requests.append(
                    Request("alloc", request_count, requested_bytes or event_bytes, stream, time_ns, stack)
                )
                if i < last_event_index:
                    requests.append(Request("free", request_count, time_ns=time_ns, stack=stack))
                request_count += 1
    return requests


def _find_completion_events(events: AllocatorEvents) -> tuple[dict[int, int], dict[int, int]]:
    """Return the indices of the events that completed frees, in two dictionaries. The keys are the indices of
    the ``free_requested`` events, or the addresses of blocks that were freed before the first event.
    """
    completion_code = ACTIONS.index("free_completed")
    completion_by_free_index: dict[int, int] = {}
    completion_by_address: dict[int, int] = {}
    pending_frees: dict[int, int] = {}
    free_indices = np.flatnonzero(
        (events.actions == _FREE_REQUESTED) | (events.actions == completion_code)
    ).tolist()
    action_codes = events.actions.tolist()
    addresses = events.addresses.tolist()
    for i in free_indices:
        if action_codes[i] == _FREE_REQUESTED:
            pending_frees[addresses[i]] = i
        elif addresses[i] in pending_frees:
            completion_by_free_index[pending_frees.pop(addresses[i])] = i
        else:
            completion_by_address.setdefault(addresses[i], i)
    return completion_by_free_index, completion_by_address


def find_release_starts(trace: AllocatorTrace) -> set[int]:
    """Find the events at which the program requested the release of unused segments. Return the index of the
    first event of each series of releases.
    """
    release_codes = {ACTIONS.index("segment_free"), ACTIONS.index("segment_unmap")}
    allocation_codes = {ACTIONS.index("segment_alloc"), ACTIONS.index("segment_map")}
    oom_code = ACTIONS.index("oom")
    events = trace.events
    action_codes = events.actions.tolist()
    event_sizes = events.size_bytes.tolist()
    stack_numbers = events.stacks.tolist()
    limit_bytes = trace.first.limit_bytes or trace.capacity_bytes
    reserved_bytes = trace.first.total_bytes
    release_starts = set()
    i = 0
    while i < len(action_codes):
        if action_codes[i] not in release_codes:
            reserved_bytes += event_sizes[i] if action_codes[i] in allocation_codes else 0
            i += 1
            continue
        series_start = i
        earlier_reserved_bytes = reserved_bytes
        while i < len(action_codes) and action_codes[i] in release_codes:
            reserved_bytes -= event_sizes[i]
            i += 1
        # A release for a following allocation belongs to the same line of the program, and the allocation
        # would not have fitted before. If no limit is known, the line alone decides.
        next_code = action_codes[i] if i < len(action_codes) else -1
        if next_code == oom_code:
            continue
        is_same_call = i < len(action_codes) and stack_numbers[series_start] == stack_numbers[i]
        if (
            next_code in allocation_codes
            and is_same_call
            and (
                earlier_reserved_bytes + event_sizes[i] > limit_bytes
                if limit_bytes
                else stack_numbers[i] >= 0
            )
        ):
            continue
        release_starts.add(series_start)
    return release_starts

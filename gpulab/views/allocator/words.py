"""Memory of pools in words; ``state.js`` says the same."""

from __future__ import annotations

from collections.abc import Sequence

from gpulab.views._text import percent, size
from virtualgpu.records.memory import AllocatorHistory, Fragmentation, Stack

# What an event or a request did. {asked} and {at} begin with what parts them from the words before.
DONE = {
    "alloc": "{size} allocated{asked}, {stream}{at}",
    "free_requested": "{size} freed{at}",
    "free_completed": "{size} are free again",
    "segment_alloc": "{size} taken from the device, {stream}{at}",
    "segment_free": "{size} given back to the device",
    "segment_map": "{size} mapped into an expandable segment, {stream}{at}",
    "segment_unmap": "{size} of an expandable segment unmapped",
    "oom": "{size} refused{asked}, {stream}{at}: out of memory",
    "snapshot": "a snapshot taken",
    "ask": "{size} asked for, {stream}{at}",
    "free": "a block freed{at}",
    "record_stream": "{stream} uses a block, too",
    "complete": "the work of {stream} so far is over",
    "empty_cache": "the cache emptied{at}",
    "set_limit": "limit set to {size}",
}
KINDS = tuple(DONE)
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/torch/", "??")
BEFORE = "before the recording"


def done(kind: str, size_bytes: int, asked_bytes: int, stream: str, owner: str) -> str:
    """What happened, such as ``4 MiB allocated (3.9 MiB asked), stream 0, train.py:12``."""
    told = asked_bytes and size(asked_bytes) != size(size_bytes)
    asked = f" ({size(asked_bytes)} asked)" if told else ""
    at = f", {owner}" if owner else ""
    return DONE[kind].format(size=size(size_bytes), asked=asked, stream=stream, at=at)


def stream_names(histories: Sequence[AllocatorHistory]) -> dict[int, str]:
    """Handle -> name; handles say nothing to anybody, so that streams are numbered as they come."""
    handles: dict[int, None] = {0: None}
    for history in histories:
        handles |= dict.fromkeys(history.segments.streams)
        handles |= dict.fromkeys(history.trace.events.streams.tolist())
    return {handle: f"stream {number}" for number, handle in enumerate(handles)}


def owner_of(stack: Stack) -> str:
    """The innermost line of the program, ``train.py:12``."""
    own = [frame for frame in stack if not any(part in frame.filename for part in _LIBRARIES)]
    for frame in own or stack:
        name = frame.filename.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{name}:{frame.line}"
    return ""


def sentence(found: Fragmentation, refused_bytes: int = 0, stream: int = 0) -> str:
    """What is free and why it does not serve: ``1.2 GiB free, 1 GiB refused: ...``.

    Parameters
    ----------
    refused_bytes
        The request that failed; 0 for none.
    stream
        The stream that it was for.
    """
    free, pieces = found.free_bytes, sum(arena.free_blocks for arena in found.arenas)
    if refused_bytes:
        mine = max((arena.largest_free_bytes for arena in found.arenas if arena.stream == stream), default=0)
        if not free:
            why = f"all {size(found.reserved_bytes)} of the pool are in use"
        elif not mine:
            why = "none of it is this stream's"
        elif mine < found.largest_free_bytes:
            why = f"this stream's largest piece is {size(mine)} (another's {size(found.largest_free_bytes)})"
        else:
            why = f"{pieces:,} {'piece' if pieces == 1 else 'pieces'}, the largest {size(mine)}"
        more = "" if found.room_bytes is None else f"; room for {size(found.room_bytes)} more"
        return f"{size(free)} free, {size(refused_bytes)} refused: {why}{more}."
    if not free:
        return f"{size(found.used_bytes)} in use, nothing free in the pool."
    lies = (
        "in one piece"
        if pieces == 1
        else f"in {pieces:,} pieces, the largest {size(found.largest_free_bytes)}"
    )
    return f"{size(found.used_bytes)} in use, {size(free)} free {lies}."


def emptying(found: Fragmentation) -> str:
    """What emptying the cache would do."""
    if not found.free_bytes:
        return "Nothing is free: emptying the cache would give nothing back."
    kept = (
        f"; {size(found.held_bytes)} stay, in segments that a block in use keeps" if found.held_bytes else ""
    )
    return f"Emptying the cache would give {size(found.releasable_bytes)} back to the device{kept}."


def figures(found: Fragmentation) -> list[tuple[str, str, str]]:
    """Term, value and detail of each number beside the map; ``state.js`` says the same."""
    most = found.largest_request_bytes
    return [
        ("In use, of reserved", size(found.used_bytes), f"/ {size(found.reserved_bytes)}"),
        ("Free", size(found.free_bytes), f"max {size(found.largest_free_bytes)}"),
        ("Fragmentation", percent(found.external), ""),
        ("Rounding", size(found.rounding_bytes), ""),
        ("Refused above", "not known" if most is None else size(most), ""),
    ]

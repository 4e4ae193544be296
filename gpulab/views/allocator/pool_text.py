"""Memory of pools in words; ``state.js`` fills the same texts while the page is stepped."""

from __future__ import annotations

from collections.abc import Sequence

from gpulab.words import filled, percent, size
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
FIGURES = (
    ("In use, of reserved", "{used}", "/ {reserved}"),
    ("Free", "{free}", "max {largest}"),
    ("Fragmentation", "{external}", ""),
    ("Rounding", "{rounding}", ""),
    ("Refused above", "{most}", ""),
)
PAGE = {
    "lies": "{used} in use, {free} free in <pieces one piece|{pieces} pieces, the largest {largest}>.",
    "full": "{used} in use, nothing free in the pool.",
    "refused": "{free} free, {refused} refused: {why}",
    "none_free": "all {reserved} of the pool are in use",
    "others": "none of it is this stream's",
    "smaller": "this stream's largest piece is {mine} (another's {largest})",
    "pieces": "{pieces} <pieces piece|pieces>, the largest {mine}",
    "room": "; room for {room} more",
    "nothing": "Nothing is free: emptying the cache would give nothing back.",
    "gives": "Emptying the cache would give {releasable} back to the device",
    "stays": "; {held} stay, in segments that a block in use keeps",
    "now": "The pool as it is now.",
    "before": "Before the first {unit} of {last}.",
    "moment": "{Unit} {at} of {last}: {told}.",
    "asked": " ({asked} asked)",
    "elsewhere": "another stream",
    "block": "<waits Freed, but waiting for a stream|In use>: {size}{asked}{label} {where}{age}.",
    "free": "Free: {size} {where}.",
    "unmapped": "Not mapped: {size} of addresses without memory {where}.",
    "where": "at 0x{address}, <seen in|in what was seen of> a segment of {segment} of {stream}",
    "lost": " ({asked} asked, {lost} lost by rounding)",
    "age": ", {events} events old",
    "first": ", there before the first event",
}
"""Templates that ``state.js`` fills, in addition to `FIGURES` and `DONE`."""


def done(kind: str, size_bytes: int, asked_bytes: int, stream: str, owner: str) -> str:
    """Return an operation in words, such as ``4 MiB allocated (3.9 MiB asked), stream 0, train.py:12``."""
    told = asked_bytes and size(asked_bytes) != size(size_bytes)
    asked = filled(PAGE["asked"], {"asked": size(asked_bytes)}) if told else ""
    at = f", {owner}" if owner else ""
    return filled(DONE[kind], {"size": size(size_bytes), "asked": asked, "stream": stream, "at": at})


def stream_names(histories: Sequence[AllocatorHistory]) -> dict[int, str]:
    """Return names by handle; streams are numbered in the order in which they appear."""
    handles: dict[int, None] = {0: None}
    for history in histories:
        handles |= dict.fromkeys(history.segments.streams)
        handles |= dict.fromkeys(history.trace.events.streams.tolist())
    return {handle: f"stream {number}" for number, handle in enumerate(handles)}


def owner_of(stack: Stack) -> str:
    """Return the innermost line of the program, ``train.py:12``."""
    own = [frame for frame in stack if not any(part in frame.filename for part in _LIBRARIES)]
    for frame in own or stack:
        name = frame.filename.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{name}:{frame.line}"
    return ""


def _words(fragmentation: Fragmentation) -> dict[str, int | str]:
    """Return the values for the templates of a step."""
    most = fragmentation.largest_request_bytes
    room = fragmentation.room_bytes
    return {
        "used": size(fragmentation.used_bytes),
        "reserved": size(fragmentation.reserved_bytes),
        "free": size(fragmentation.free_bytes),
        "largest": size(fragmentation.largest_free_bytes),
        "pieces": sum(arena.free_blocks for arena in fragmentation.arenas),
        "rounding": size(fragmentation.rounding_bytes),
        "external": percent(fragmentation.external),
        "most": "not known" if most is None else size(most),
        "releasable": size(fragmentation.releasable_bytes),
        "held": size(fragmentation.held_bytes),
        "room": "" if room is None else size(room),
    }


def sentence(fragmentation: Fragmentation, refused_bytes: int = 0, stream: int = 0) -> str:
    """Return the free memory and why a request was refused: ``1.2 GiB free, 1 GiB refused: ...``.

    Parameters
    ----------
    refused_bytes
        The request that failed; 0 for none.
    stream
        The stream that it was for.
    """
    words = _words(fragmentation)
    if not refused_bytes:
        return filled(PAGE["lies"] if fragmentation.free_bytes else PAGE["full"], words)
    segments = max(
        (arena.largest_free_bytes for arena in fragmentation.arenas if arena.stream == stream), default=0
    )
    if not fragmentation.free_bytes:
        why = "none_free"
    elif not segments:
        why = "others"
    else:
        why = "smaller" if segments < fragmentation.largest_free_bytes else "pieces"
    text = (
        PAGE["refused"].replace("{why}", PAGE[why])
        + PAGE["room"] * (fragmentation.room_bytes is not None)
        + "."
    )
    return filled(text, words | {"refused": size(refused_bytes), "mine": size(segments)})


def emptying(fragmentation: Fragmentation) -> str:
    """Return the effect of emptying the cache."""
    text = (
        PAGE["gives"] + PAGE["stays"] * bool(fragmentation.held_bytes) + "."
        if fragmentation.free_bytes
        else PAGE["nothing"]
    )
    return filled(text, _words(fragmentation))


def figures(fragmentation: Fragmentation) -> list[tuple[str, str, str]]:
    """Return term, value and detail of each number next to the map."""
    words = _words(fragmentation)
    return [(term, filled(value, words), filled(detail, words)) for term, value, detail in FIGURES]

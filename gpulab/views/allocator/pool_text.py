"""Sentences about the memory of pools; ``state.js`` fills the same templates in the browser."""

from __future__ import annotations

from collections.abc import Sequence

from gpulab.words import fill_template, percent, size
from virtualgpu.records.memory import AllocatorHistory, Fragmentation, Stack

# Templates for events and requests. {asked} and {at} begin with their separators.
OPERATION_TEXTS = {
    "alloc": "{size} allocated{asked}, {stream}{at}",
    "free_requested": "{size} freed{at}",
    "free_completed": "{size} free again",
    "segment_alloc": "{size} allocated from the device, {stream}{at}",
    "segment_free": "{size} returned to the device",
    "segment_map": "{size} mapped into an expandable segment, {stream}{at}",
    "segment_unmap": "{size} of an expandable segment unmapped",
    "oom": "{size} refused{asked}, {stream}{at}: out of memory",
    "snapshot": "a snapshot taken",
    "ask": "{size} requested, {stream}{at}",
    "free": "a pool block freed{at}",
    "record_stream": "{stream} also uses a pool block",
    "complete": "the earlier work of {stream} has finished",
    "empty_cache": "cache emptied{at}",
    "set_limit": "limit set to {size}",
}
OPERATION_KINDS = tuple(OPERATION_TEXTS)
_LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/", "/torch/", "??")
BEFORE_TEXT = "before the recording"
WIDENED_TEXT = "cut corner: a segment drawn wider than its size"
FIGURE_TEMPLATES = (
    ("In use, of reserved", "{used}", "/ {reserved}"),
    ("Free", "{free}", "max {largest}"),
    ("Fragmentation", "{external}", ""),
    ("Rounding", "{rounding}", ""),
    ("Refused above", "{most}", ""),
)
PAGE_TEXTS = {
    "lies": "{used} in use, {free} free in <pieces one piece|{pieces} pieces, the largest {largest}>.",
    "full": "{used} in use, nothing free in the pool.",
    "refused": "{free} free, {refused} refused: {why}",
    "none_free": "all {reserved} of the pool are in use",
    "others": "none of it belongs to this stream",
    "smaller": "this stream's largest piece is {mine} (another's {largest})",
    "pieces": "{pieces} <pieces piece|pieces>, the largest {mine}",
    "room": "; room for {room} more",
    "nothing": "Nothing is free, so emptying the cache would return nothing.",
    "gives": "Emptying the cache would return {releasable} to the device",
    "stays": "; {held} would remain, in segments with a pool block in use",
    "now": "The current state of the pool.",
    "before": "Before the first {unit} of {last}.",
    "moment": "{Unit} {at} of {last}: {told}.",
    "asked": " ({asked} requested)",
    "elsewhere": "another stream",
    "block": "<waits Freed, but waiting for a stream|In use>: {size}{asked}{label} {where}{age}.",
    "free": "Free: {size} {where}.",
    "unmapped": "Not mapped: {size} of addresses without memory {where}.",
    "where": "at 0x{address}, <in|in the known part of> a segment of {segment} of {stream}",
    "lost": " ({asked} requested, {lost} lost by rounding)",
    "age": ", {events} events old",
    "first": ", allocated before the first event",
    "widened": WIDENED_TEXT,
}
"""Templates that ``state.js`` fills, in addition to `FIGURE_TEMPLATES` and `DONE`."""


def operation_text(kind: str, size_bytes: int, requested_bytes: int, stream: str, owner: str) -> str:
    """Return a phrase for an allocator operation, such as ``4 MiB allocated (3.9 MiB requested), stream 0,
    a.py:12``.
    """
    is_rounded = requested_bytes and size(requested_bytes) != size(size_bytes)
    requested_text = (
        fill_template(PAGE_TEXTS["asked"], {"asked": size(requested_bytes)}) if is_rounded else ""
    )
    owner_text = f", {owner}" if owner else ""
    return fill_template(
        OPERATION_TEXTS[kind],
        {"size": size(size_bytes), "asked": requested_text, "stream": stream, "at": owner_text},
    )


def name_streams(histories: Sequence[AllocatorHistory]) -> dict[int, str]:
    """Return a dictionary of stream names by handle. Streams are numbered in order of appearance."""
    handles: dict[int, None] = {0: None}
    for history in histories:
        handles |= dict.fromkeys(history.segments.streams)
        handles |= dict.fromkeys(history.trace.events.streams.tolist())
    return {handle: f"stream {number}" for number, handle in enumerate(handles)}


def find_owner(stack: Stack) -> str:
    """Return the innermost line of the program in a stack trace, such as ``train.py:12``."""
    program_frames = [
        frame for frame in stack if not any(folder in frame.filename for folder in _LIBRARY_FOLDERS)
    ]
    for frame in program_frames or stack:
        file_name = frame.filename.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{file_name}:{frame.line}"
    return ""


def _make_text_values(fragmentation: Fragmentation) -> dict[str, int | str]:
    """Return the values that fill the text templates of a step."""
    largest_request_bytes = fragmentation.largest_request_bytes
    room_bytes = fragmentation.room_bytes
    return {
        "used": size(fragmentation.used_bytes),
        "reserved": size(fragmentation.reserved_bytes),
        "free": size(fragmentation.free_bytes),
        "largest": size(fragmentation.largest_free_bytes),
        "pieces": sum(arena.free_blocks for arena in fragmentation.arenas),
        "rounding": size(fragmentation.rounding_bytes),
        "external": percent(fragmentation.external),
        "most": "not known" if largest_request_bytes is None else size(largest_request_bytes),
        "releasable": size(fragmentation.releasable_bytes),
        "held": size(fragmentation.held_bytes),
        "room": "" if room_bytes is None else size(room_bytes),
    }


def describe_free_memory(fragmentation: Fragmentation, refused_bytes: int = 0, stream: int = 0) -> str:
    """Return a sentence about the free memory of a pool. If a request failed, the sentence contains the
    reason.

    Parameters
    ----------
    refused_bytes
        The size of the request that failed, or 0.
    stream
        The stream of that request.
    """
    template_values = _make_text_values(fragmentation)
    if not refused_bytes:
        return fill_template(
            PAGE_TEXTS["lies"] if fragmentation.free_bytes else PAGE_TEXTS["full"], template_values
        )
    largest_piece_bytes = max(
        (arena.largest_free_bytes for arena in fragmentation.arenas if arena.stream == stream), default=0
    )
    if not fragmentation.free_bytes:
        failure_reason = "none_free"
    elif not largest_piece_bytes:
        failure_reason = "others"
    else:
        failure_reason = "smaller" if largest_piece_bytes < fragmentation.largest_free_bytes else "pieces"
    sentence_template = (
        PAGE_TEXTS["refused"].replace("{why}", PAGE_TEXTS[failure_reason])
        + PAGE_TEXTS["room"] * (fragmentation.room_bytes is not None)
        + "."
    )
    return fill_template(
        sentence_template,
        template_values | {"refused": size(refused_bytes), "mine": size(largest_piece_bytes)},
    )


def describe_emptying(fragmentation: Fragmentation) -> str:
    """Return a sentence about the amount of memory that ``free_all_blocks`` would return to the device."""
    sentence_template = (
        PAGE_TEXTS["gives"] + PAGE_TEXTS["stays"] * bool(fragmentation.held_bytes) + "."
        if fragmentation.free_bytes
        else PAGE_TEXTS["nothing"]
    )
    return fill_template(sentence_template, _make_text_values(fragmentation))


def make_figures(fragmentation: Fragmentation) -> list[tuple[str, str, str]]:
    """Return the numbers that are shown next to the memory map, each with a name, a value and a detail."""
    template_values = _make_text_values(fragmentation)
    return [
        (term, fill_template(value, template_values), fill_template(detail, template_values))
        for term, value, detail in FIGURE_TEMPLATES
    ]

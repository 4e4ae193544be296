"""Explanation of a hazard between streams: the uses of the array, the missing order, and the remedy."""

from __future__ import annotations

from gpulab.analysis.order import Order, StreamKey, Wait
from gpulab.analysis.uses import Use
from virtualgpu.records import SourceLine, StreamHazard, StreamHazardKind, StreamUse
from virtualgpu.records.acts import LEGACY, PER_THREAD


def stream_words(key: StreamKey, names: dict[StreamKey, str]) -> str:
    """Return a phrase that names a stream in a sentence. The phrase contains the name or the kind of the
    stream.
    """
    device, handle = key
    if handle in LEGACY:
        has_many_devices = device or any(other_device for other_device, _ in names)
        return f"the default stream of device {device}" if has_many_devices else "the default stream"
    if handle == PER_THREAD:
        return "the per-thread default stream"
    return names.get(key, f"stream 0x{handle:x}")


def stream_code(key: StreamKey, names: dict[StreamKey, str]) -> str:
    """Return the Python expression that refers to a stream."""
    if key[1] in LEGACY:
        return "cp.cuda.Stream.null"
    if key[1] == PER_THREAD:
        return "cp.cuda.Stream.ptds"
    return names.get(key, f"stream_0x{key[1]:x}").replace(" ", "_")


def hazard(
    kind: StreamHazardKind,
    earlier: Use,
    later: Use,
    free_source: SourceLine | None,
    order: Order,
    names: dict[StreamKey, str],
    count: int = 1,
) -> StreamHazard:
    """Return a hazard for two conflicting uses of the same memory, with an explanation.

    `free_source` is the source line of a free between the two uses.
    """
    earlier_use = _stream_use(earlier, later, names)
    later_use = _stream_use(later, earlier, names)
    array = later.region.array or earlier.region.array
    if free_source is not None:
        array = earlier.region.array or array
    array_text = array or "the same memory"
    cause = _conflict_text(kind, earlier_use, later_use, earlier, array_text, free_source) + _missing_order(
        kind, earlier, later, order, names
    )
    code_place, remedy = _remedy(kind, earlier, later, array_text, names)
    return StreamHazard(
        kind=kind,
        first=earlier_use,
        second=later_use,
        array=array,
        cause=cause,
        remedy=remedy,
        where=code_place,
        count=count,
    )


def _stream_use(use: Use, other_use: Use, names: dict[StreamKey, str]) -> StreamUse:
    key = _displayed_stream(use, other_use)
    if key is None:
        return StreamUse(use.name, use.region.memory, "", use.source, use.writes)
    return StreamUse(use.name, key[0], stream_words(key, names), use.source, use.writes)


def _displayed_stream(use: Use, other_use: Use) -> StreamKey | None:
    """Return the stream to display: within one launch of a graph, the stream that captured the node."""
    return use.inner if use.launch and use.launch == other_use.launch else use.stream


def _conflict_text(
    hazard_kind: StreamHazardKind,
    earlier_use: StreamUse,
    later_use: StreamUse,
    earlier: Use,
    array: str,
    free_source: SourceLine | None,
) -> str:
    """Return the first part of the cause: the uses that conflict, and the lines that issued them."""
    activity = (
        f"{earlier_use.stream or 'the host'} may still be {'writing' if earlier.writes else 'reading'} it"
    )
    pending_use = f"{activity} ({earlier_use.name}{_comma_line(earlier_use.source)})"
    if hazard_kind == "used after it was freed":
        use = f"{later_use.stream} uses {array} ({later_use.name}{_comma_line(later_use.source)})"
        return f"{use}, whose memory was freed or given to another array{_in_line(earlier_use.source)}: "
    if hazard_kind == "freed too early":
        return f"{_capitalize(array)} is freed{_in_line(later_use.source)} while {pending_use}: "
    if hazard_kind == "reused too early":
        user = later_use.stream or "the host"
        reuse = f"{user} uses its memory again ({later_use.name}{_comma_line(later_use.source)})"
        return f"{_capitalize(array)} was freed{_in_line(free_source)}, and {reuse} while {pending_use}: "
    if not later_use.stream:
        return f"The host {later_use.name} ({array}{_comma_line(later_use.source)}) while {pending_use}: "
    verb = "writes" if later_use.writes else "reads"
    use = f"{_capitalize(later_use.stream)} {verb} {array} ({later_use.name}{_comma_line(later_use.source)})"
    return f"{use} while {pending_use}: "


def _missing_order(
    hazard_kind: StreamHazardKind, earlier: Use, later: Use, order: Order, names: dict[StreamKey, str]
) -> str:
    """Return the reason why two uses have no order, including waits without effect."""
    if hazard_kind == "used after it was freed" or earlier.stream is None:
        return "its address now belongs to another array."
    if later.launch and later.launch == earlier.launch:
        return "the graph has no edge that orders the two operations."
    waits = order.waits_of_host if later.stream is None else order.waits(later.stream)
    waiter = "the host" if later.stream is None else stream_words(later.stream, names)
    for wait in waits:
        reason = _useless_wait(wait, earlier, waiter, names) if wait.index <= later.index else ""
        if reason:
            return reason
    if hazard_kind == "freed too early" and later.stream is not None:
        reuser = stream_words(later.stream, names)
        return f"the pool can assign the block to {reuser} again, which does not wait for that operation."
    return "nothing orders the two."


def _useless_wait(wait: Wait, earlier: Use, waiter: str, names: dict[StreamKey, str]) -> str:
    """Return why a wait does not order the later use after the earlier one, or an empty string."""
    if wait.stream is None:
        line = _in_line(wait.source)
        return f"{waiter} waits{line} for an event that has not been recorded, so this wait has no effect."
    assert earlier.stream is not None
    if wait.stream == earlier.stream:
        if wait.record_index >= earlier.index:
            return ""
        position = f"recorded{_in_line(wait.record_source)}, before that operation"
        return f"the event that {waiter} waits for{_in_line(wait.source)} was {position}."
    if wait.record_index > earlier.index:
        awaited_stream = stream_words(wait.stream, names)
        unordered_stream = stream_words(earlier.stream, names)
        return (
            f"{waiter} waits{_in_line(wait.source)} for {awaited_stream} only, "
            f"which does not wait for {unordered_stream}."
        )
    return ""


def _remedy(
    hazard_kind: StreamHazardKind, earlier: Use, later: Use, array: str, names: dict[StreamKey, str]
) -> tuple[str, str]:
    """Return the remedy in words, and the code to add."""
    first_stream = _displayed_stream(earlier, later)
    second_stream = _displayed_stream(later, earlier)
    if hazard_kind == "used after it was freed" or first_stream is None:
        return f"Keep a reference to {array} as long as its address is used.", ""
    first_code = stream_code(first_stream, names)
    if second_stream is None:
        return (
            f"After {_line(earlier.source)} and before that, add:",
            f"{first_code}.synchronize()",
        )
    if first_stream == second_stream:
        return "Add an edge from the first node to the second.", ""
    second_code = stream_code(second_stream, names)
    remedy_code = f"{second_code}.wait_event({first_code}.record())"
    if first_stream[0] != second_stream[0]:
        remedy_code = (
            f"with cp.cuda.Device({first_stream[0]}): e = {first_code}.record()\n{second_code}.wait_event(e)"
        )
    if hazard_kind in ("freed too early", "reused too early"):
        return (
            f"Keep {array} until {first_code} has finished with it, or add this before the array is freed:"
        ), remedy_code
    if earlier.source == later.source and earlier.source is not None:
        return f"After {_line(earlier.source)} and before it runs again, add:", remedy_code
    position = f"After {_line(earlier.source)} and before" if earlier.source else "Before"
    return f"{position} {_line(later.source)}, add:", remedy_code


def _line(source: SourceLine | None) -> str:
    return f"line {source.line}" if source else "its line"


def _in_line(source: SourceLine | None) -> str:
    return f" in line {source.line}" if source else ""


def _comma_line(source: SourceLine | None) -> str:
    return f", line {source.line}" if source else ""


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith("the ") else text

"""Explanation of a hazard between streams: the uses of the array, the missing order, and the remedy."""

from __future__ import annotations

from gpulab.analysis.order import Order, StreamKey, Wait
from gpulab.analysis.uses import Use
from virtualgpu.records import SourceLine, StreamHazard, StreamHazardKind, StreamUse
from virtualgpu.records.acts import LEGACY, PER_THREAD


def describe_stream(key: StreamKey, stream_names: dict[StreamKey, str]) -> str:
    """Return a phrase that names a stream in a sentence. The phrase contains the name or the kind of the
    stream.
    """
    device, handle = key
    if handle in LEGACY:
        has_many_devices = device or any(other_device for other_device, _ in stream_names)
        return f"the default stream of device {device}" if has_many_devices else "the default stream"
    if handle == PER_THREAD:
        return "the per-thread default stream"
    return stream_names.get(key, f"stream 0x{handle:x}")


def make_stream_code(key: StreamKey, stream_names: dict[StreamKey, str]) -> str:
    """Return the Python expression that refers to a stream."""
    if key[1] in LEGACY:
        return "cp.cuda.Stream.null"
    if key[1] == PER_THREAD:
        return "cp.cuda.Stream.ptds"
    return stream_names.get(key, f"stream_0x{key[1]:x}").replace(" ", "_")


def explain_hazard(
    hazard_kind: StreamHazardKind,
    earlier_use: Use,
    later_use: Use,
    free_source: SourceLine | None,
    order: Order,
    stream_names: dict[StreamKey, str],
    occurrence_count: int = 1,
) -> StreamHazard:
    """Return a hazard for two conflicting uses of the same memory, with an explanation.

    `free_source` is the source line of a free between the two uses.
    """
    earlier_stream_use = _make_stream_use(earlier_use, later_use, stream_names)
    later_stream_use = _make_stream_use(later_use, earlier_use, stream_names)
    array_name = later_use.region.array or earlier_use.region.array
    if free_source is not None:
        array_name = earlier_use.region.array or array_name
    array_text = array_name or "the same memory"
    cause = _describe_conflict(
        hazard_kind, earlier_stream_use, later_stream_use, earlier_use, array_text, free_source
    ) + _explain_missing_order(hazard_kind, earlier_use, later_use, order, stream_names)
    remedy_text, remedy_code = _make_remedy(hazard_kind, earlier_use, later_use, array_text, stream_names)
    return StreamHazard(
        kind=hazard_kind,
        first=earlier_stream_use,
        second=later_stream_use,
        array=array_name,
        cause=cause,
        remedy=remedy_code,
        where=remedy_text,
        count=occurrence_count,
    )


def _make_stream_use(use: Use, other_use: Use, stream_names: dict[StreamKey, str]) -> StreamUse:
    stream_key = _find_displayed_stream(use, other_use)
    if stream_key is None:
        return StreamUse(use.name, use.region.memory, "", use.source, use.is_write)
    return StreamUse(
        use.name, stream_key[0], describe_stream(stream_key, stream_names), use.source, use.is_write
    )


def _find_displayed_stream(use: Use, other_use: Use) -> StreamKey | None:
    """Return the stream to display for a use. If both uses belong to the same launch of a graph, this is the
    stream in which the node was captured.
    """
    return (
        use.capture_stream if use.launch_index and use.launch_index == other_use.launch_index else use.stream
    )


def _describe_conflict(
    hazard_kind: StreamHazardKind,
    earlier_stream_use: StreamUse,
    later_stream_use: StreamUse,
    earlier_use: Use,
    array_name: str,
    free_source: SourceLine | None,
) -> str:
    """Return the first part of the cause: the uses that conflict, and the lines that issued them."""
    pending_text = (
        f"{earlier_stream_use.stream or 'the host'} may still be "
        f"{'writing' if earlier_use.is_write else 'reading'} it"
    )
    pending_use = f"{pending_text} ({earlier_stream_use.name}{_format_comma_line(earlier_stream_use.source)})"
    if hazard_kind == "used after it was freed":
        use_text = (
            f"{later_stream_use.stream} uses {array_name} "
            f"({later_stream_use.name}{_format_comma_line(later_stream_use.source)})"
        )
        return (
            f"{use_text}, whose memory was freed or given to another "
            f"array{_format_in_line(earlier_stream_use.source)}: "
        )
    if hazard_kind == "freed too early":
        return (
            f"{_capitalize(array_name)} is freed{_format_in_line(later_stream_use.source)} "
            f"while {pending_use}: "
        )
    if hazard_kind == "reused too early":
        reusing_stream = later_stream_use.stream or "the host"
        reuse_text = (
            f"{reusing_stream} uses its memory again "
            f"({later_stream_use.name}{_format_comma_line(later_stream_use.source)})"
        )
        return (
            f"{_capitalize(array_name)} was freed{_format_in_line(free_source)}, and {reuse_text} "
            f"while {pending_use}: "
        )
    if not later_stream_use.stream:
        return (
            f"The host {later_stream_use.name} ({array_name}{_format_comma_line(later_stream_use.source)}) "
            f"while {pending_use}: "
        )
    verb = "writes" if later_stream_use.writes else "reads"
    use_text = (
        f"{_capitalize(later_stream_use.stream)} {verb} {array_name} "
        f"({later_stream_use.name}{_format_comma_line(later_stream_use.source)})"
    )
    return f"{use_text} while {pending_use}: "


def _explain_missing_order(
    hazard_kind: StreamHazardKind,
    earlier_use: Use,
    later_use: Use,
    order: Order,
    stream_names: dict[StreamKey, str],
) -> str:
    """Return the reason why two uses have no order, including waits without effect."""
    if hazard_kind == "used after it was freed" or earlier_use.stream is None:
        return "its address now belongs to another array."
    if later_use.launch_index and later_use.launch_index == earlier_use.launch_index:
        return "the graph has no edge that orders the two operations."
    waits = order.waits_of_host if later_use.stream is None else order.waits(later_use.stream)
    waiting_stream = (
        "the host" if later_use.stream is None else describe_stream(later_use.stream, stream_names)
    )
    for wait in waits:
        reason = (
            _explain_useless_wait(wait, earlier_use, waiting_stream, stream_names)
            if wait.act_index <= later_use.act_index
            else ""
        )
        if reason:
            return reason
    if hazard_kind == "freed too early" and later_use.stream is not None:
        reusing_stream = describe_stream(later_use.stream, stream_names)
        return (
            f"the pool can assign the block to {reusing_stream} again, which does not wait for that "
            "operation."
        )
    return "nothing orders the two."


def _explain_useless_wait(
    wait: Wait, earlier_use: Use, waiting_stream: str, stream_names: dict[StreamKey, str]
) -> str:
    """Return why a wait does not order the later use after the earlier one, or an empty string."""
    if wait.stream is None:
        line_text = _format_in_line(wait.source)
        return (
            f"{waiting_stream} waits{line_text} for an event that has not been recorded, "
            "so this wait has no effect."
        )
    assert earlier_use.stream is not None
    if wait.stream == earlier_use.stream:
        if wait.record_index >= earlier_use.act_index:
            return ""
        record_text = f"recorded{_format_in_line(wait.record_source)}, before that operation"
        return f"the event that {waiting_stream} waits for{_format_in_line(wait.source)} was {record_text}."
    if wait.record_index > earlier_use.act_index:
        awaited_stream = describe_stream(wait.stream, stream_names)
        unordered_stream = describe_stream(earlier_use.stream, stream_names)
        return (
            f"{waiting_stream} waits{_format_in_line(wait.source)} for {awaited_stream} only, "
            f"which does not wait for {unordered_stream}."
        )
    return ""


def _make_remedy(
    hazard_kind: StreamHazardKind,
    earlier_use: Use,
    later_use: Use,
    array_name: str,
    stream_names: dict[StreamKey, str],
) -> tuple[str, str]:
    """Return the remedy in words, and the code to add."""
    first_stream = _find_displayed_stream(earlier_use, later_use)
    second_stream = _find_displayed_stream(later_use, earlier_use)
    if hazard_kind == "used after it was freed" or first_stream is None:
        return f"Keep a reference to {array_name} as long as its address is used.", ""
    first_code = make_stream_code(first_stream, stream_names)
    if second_stream is None:
        return (
            f"After {_format_line(earlier_use.source)} and before that, add:",
            f"{first_code}.synchronize()",
        )
    if first_stream == second_stream:
        return "Add an edge from the first node to the second.", ""
    second_code = make_stream_code(second_stream, stream_names)
    remedy_code = f"{second_code}.wait_event({first_code}.record())"
    if first_stream[0] != second_stream[0]:
        remedy_code = (
            f"with cp.cuda.Device({first_stream[0]}): e = {first_code}.record()\n{second_code}.wait_event(e)"
        )
    if hazard_kind in ("freed too early", "reused too early"):
        return (
            f"Keep {array_name} until {first_code} has finished with it, or add this before the array "
            "is freed:"
        ), remedy_code
    if earlier_use.source == later_use.source and earlier_use.source is not None:
        return f"After {_format_line(earlier_use.source)} and before it runs again, add:", remedy_code
    position_text = f"After {_format_line(earlier_use.source)} and before" if earlier_use.source else "Before"
    return f"{position_text} {_format_line(later_use.source)}, add:", remedy_code


def _format_line(source: SourceLine | None) -> str:
    return f"line {source.line}" if source else "its line"


def _format_in_line(source: SourceLine | None) -> str:
    return f" in line {source.line}" if source else ""


def _format_comma_line(source: SourceLine | None) -> str:
    return f", line {source.line}" if source else ""


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith("the ") else text

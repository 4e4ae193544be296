"""Explanation of a hazard between streams: the uses of the array, the missing order, and the remedy."""

from __future__ import annotations

from gpulab.analysis.order import Order, StreamKey, Wait
from gpulab.analysis.uses import Use
from virtualgpu.records import SourceLine, StreamHazard, StreamHazardKind, StreamUse
from virtualgpu.records.acts import LEGACY, PER_THREAD


def stream_words(key: StreamKey, names: dict[StreamKey, str]) -> str:
    """Return the text for a stream in a sentence: the program's name for it, or its kind."""
    device, handle = key
    if handle in LEGACY:
        several = device or any(other for other, _ in names)
        return f"the default stream of device {device}" if several else "the default stream"
    if handle == PER_THREAD:
        return "the per-thread default stream"
    return names.get(key, f"stream 0x{handle:x}")


def stream_code(key: StreamKey, names: dict[StreamKey, str]) -> str:
    """Return the code that refers to a stream."""
    if key[1] in LEGACY:
        return "cp.cuda.Stream.null"
    if key[1] == PER_THREAD:
        return "cp.cuda.Stream.ptds"
    return names.get(key, f"stream_0x{key[1]:x}").replace(" ", "_")


def hazard(
    kind: StreamHazardKind,
    old: Use,
    new: Use,
    freed: SourceLine | None,
    order: Order,
    names: dict[StreamKey, str],
    count: int = 1,
) -> StreamHazard:
    """Return the finding for two uses, `old` issued first; `freed` is the free of the memory in between."""
    first = _side(old, new, names)
    second = _side(new, old, names)
    array = new.region.array or old.region.array
    if freed is not None:
        array = old.region.array or array
    called = array or "the same memory"
    cause = _what(kind, first, second, old, called, freed) + _why(kind, old, new, order, names)
    where, remedy = _remedy(kind, old, new, called, names)
    return StreamHazard(
        kind=kind,
        first=first,
        second=second,
        array=array,
        cause=cause,
        remedy=remedy,
        where=where,
        count=count,
    )


def _side(use: Use, other: Use, names: dict[StreamKey, str]) -> StreamUse:
    key = _shown(use, other)
    if key is None:
        return StreamUse(use.name, use.region.memory, "", use.source, use.writes)
    return StreamUse(use.name, key[0], stream_words(key, names), use.source, use.writes)


def _shown(use: Use, other: Use) -> StreamKey | None:
    """Return the stream to name: within one launch of a graph, the stream in which the node was captured."""
    return use.inner if use.launch and use.launch == other.launch else use.stream


def _what(
    kind: StreamHazardKind,
    first: StreamUse,
    second: StreamUse,
    old: Use,
    array: str,
    freed: SourceLine | None,
) -> str:
    doing = f"{first.stream or 'the host'} may still be {'writing' if old.writes else 'reading'} it"
    earlier = f"{doing} ({first.name}{_comma(first.source)})"
    if kind == "used after it was freed":
        uses = f"{second.stream} uses {array} ({second.name}{_comma(second.source)})"
        return f"{uses}, whose memory was given back or went to another array{_in(first.source)}: "
    if kind == "freed too early":
        return f"{_capital(array)} is given back{_in(second.source)} while {earlier}: "
    if kind == "reused too early":
        again = f"{second.stream or 'the host'} uses its memory again ({second.name}{_comma(second.source)})"
        return f"{_capital(array)} was given back{_in(freed)}, and {again} while {earlier}: "
    if not second.stream:
        return f"The host {second.name} ({array}{_comma(second.source)}) while {earlier}: "
    verb = "writes" if second.writes else "reads"
    uses = f"{_capital(second.stream)} {verb} {array} ({second.name}{_comma(second.source)})"
    return f"{uses} while {earlier}: "


def _why(kind: StreamHazardKind, old: Use, new: Use, order: Order, names: dict[StreamKey, str]) -> str:
    """Return the reason why there is no order, including waits that have no effect."""
    if kind == "used after it was freed" or old.stream is None:
        return "its address is no longer its own."
    if new.launch and new.launch == old.launch:
        return "the graph has no edge that orders the two."
    waits = order.waits_of_host if new.stream is None else order.waits(new.stream)
    waiting = "the host" if new.stream is None else stream_words(new.stream, names)
    for wait in waits:
        found = _misguided(wait, old, waiting, names) if wait.at <= new.at else ""
        if found:
            return found
    if kind == "freed too early" and new.stream is not None:
        reuser = stream_words(new.stream, names)
        return f"the pool may give the block to {reuser} again, which does not wait for that."
    return "nothing orders the two."


def _misguided(wait: Wait, old: Use, waiting: str, names: dict[StreamKey, str]) -> str:
    if wait.stream is None:
        return (
            f"{waiting} waits{_in(wait.source)} for an event that was not recorded yet, which does nothing."
        )
    assert old.stream is not None
    if wait.stream == old.stream:
        if wait.recorded_at >= old.at:
            return ""
        recorded = f"recorded{_in(wait.recorded)}, before that operation"
        return f"the event that {waiting} waits for{_in(wait.source)} was {recorded}."
    if wait.recorded_at > old.at:
        other = stream_words(wait.stream, names)
        missed = stream_words(old.stream, names)
        return f"{waiting} waits{_in(wait.source)} for {other} only, which does not wait for {missed}."
    return ""


def _remedy(
    kind: StreamHazardKind, old: Use, new: Use, array: str, names: dict[StreamKey, str]
) -> tuple[str, str]:
    """Return the remedy in words, and the code to add."""
    earlier = _shown(old, new)
    later = _shown(new, old)
    if kind == "used after it was freed" or earlier is None:
        return f"Keep {array} as long as something uses its address.", ""
    first = stream_code(earlier, names)
    if later is None:
        return f"After {_line(old.source)} and before that, add:", f"{first}.synchronize()"
    if earlier == later:
        return "Add an edge from the first node to the second.", ""
    second = stream_code(later, names)
    code = f"{second}.wait_event({first}.record())"
    if earlier[0] != later[0]:
        code = f"with cp.cuda.Device({earlier[0]}): e = {first}.record()\n{second}.wait_event(e)"
    if kind in ("freed too early", "reused too early"):
        return f"Keep {array} until {first} has done with it, or add before it is given back:", code
    if old.source == new.source and old.source is not None:
        return f"After {_line(old.source)} and before it runs again, add:", code
    after = f"After {_line(old.source)} and before" if old.source else "Before"
    return f"{after} {_line(new.source)}, add:", code


def _line(source: SourceLine | None) -> str:
    return f"line {source.line}" if source else "its line"


def _in(source: SourceLine | None) -> str:
    return f" in line {source.line}" if source else ""


def _comma(source: SourceLine | None) -> str:
    return f", line {source.line}" if source else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith("the ") else text

"""Messages of stream hazards: both uses, their lines, the reason, and the wait to add."""

from __future__ import annotations

import pytest

from gpulab.analysis import hazards
from gpulab.analysis.hazards import find_stream_hazards
from virtualgpu.records import Provenance, SourceLine
from virtualgpu.records.acts import (
    HOST,
    Act,
    Allocation,
    EventRecord,
    EventWait,
    GraphLaunch,
    GraphMade,
    HostUse,
    HostWait,
    NewStream,
    Region,
    Release,
    Work,
)

HERE = Provenance("modelled", "test")
A = 0x20
B = 0x30
X = Region(0, 0x1000, 4, array="x")
Y = Region(0, 0x2000, 4)
Z = Region(0, 0x1000, 4, array="z")
BUFFER = Region(HOST, 0x10, 4, array="h")
STREAMS: tuple[Act, ...] = (NewStream(0, A, "a", False), NewStream(0, B, "b", False))


def line(number: int) -> SourceLine:
    return SourceLine("p", number)


def work(
    number: int, stream: int, access: str, region: Region = X, device: int = 0, known: bool = True
) -> Work:
    reads, writes = ((region,), ()) if access == "reads" else ((), (region,))
    return Work(
        number=number,
        name="k",
        device_id=device,
        stream_id=stream,
        reads=reads,
        writes=writes,
        source=line(number) if known else None,
    )


def graph(*nodes: Work, number: int = 0) -> GraphLaunch:
    return GraphLaunch(0, A, nodes, (), line(9), number)


CHANGED = HostUse("changed a buffer", (), (BUFFER,), line(2))
WRITTEN = work(1, A, "writes")
SENT = work(1, A, "reads", BUFFER)
EARLY = EventRecord(7, 0, A, line(5))


def message(*acts: Act) -> str:
    (finding,) = find_stream_hazards([*STREAMS, *acts], HERE).findings
    return finding.message


@pytest.mark.parametrize(
    ("acts", "words"),
    [
        (
            [WRITTEN, work(2, B, "reads")],
            ["b reads x (k, line 2) while a may still be writing it (k, line 1)", "nothing orders the two"],
        ),
        ([WRITTEN, EventWait(7, 0, B, line(3)), work(2, B, "reads")], ["in line 3", "has not been recorded"]),
        (
            [EARLY, WRITTEN, EventWait(7, 0, B, line(3)), work(2, B, "reads")],
            ["in line 3", "recorded in line 5, before that operation"],
        ),
        # The host
        (
            [work(1, A, "writes", BUFFER), HostUse("reads it", (BUFFER,), (), line(2))],
            ["The host reads it (h, line 2) while a may still be writing it", "a.synchronize()"],
        ),
        ([SENT, CHANGED], ["The host changed a buffer (h, line 2)", "reading it (k, line 1)"]),
        (
            [EARLY, SENT, HostWait("event", event_id=7, source=line(6)), CHANGED],
            ["waits for in line 6", "recorded in line 5, before that operation"],
        ),
        ([SENT, HostWait("event", event_id=7, source=line(6)), CHANGED], ["line 6", "has not been recorded"]),
        ([SENT, HostWait("stream", 0, B, source=line(6)), CHANGED], ["for b only", "a.synchronize()"]),
        # Graphs
        ([graph(WRITTEN, work(2, A, "reads"))], ["no edge", "Add an edge from the first node to the second"]),
        ([graph(WRITTEN, work(2, B, "reads"))], ["no edge", "b.wait_event(a.record())"]),
        (
            [work(3, B, "writes"), graph(work(1, A, "writes", Y), work(2, B, "reads", known=False))],
            ["a reads x (k, line 9) while b", "a.wait_event(b.record())"],
        ),
        (
            [
                GraphMade(1),
                Release(X, 0, A, line(3)),
                Allocation(Z, 0, None, line(4)),
                graph(WRITTEN, number=1),
            ],
            ["a uses x (k, line 1)", "given to another array in line 4", "reference to x"],
        ),
        # Memory
        (
            [work(1, A, "reads"), Release(X, 0, B, line(3))],
            ["x is freed in line 3 while a may still be reading it", "to b", "b.wait_event(a.record())"],
        ),
        ([WRITTEN, Release(X, 0, None, line(3))], ["is freed in line 3", "a.synchronize()"]),
        (
            [Release(X, 0, A, line(3)), work(1, B, "reads")],
            ["b uses x (k, line 1)", "in line 3", "reference to x"],
        ),
        (
            [work(1, A, "reads"), Release(X, 0, B, line(3)), Allocation(Z), work(2, B, "writes", Z)],
            ["x was freed in line 3, and b uses its memory again (k, line 2)", "Keep x until a"],
        ),
        ([work(1, A, "reads", Y), Release(Y, 0, B, line(3))], ["The same memory is freed in line 3"]),
    ],
)
def test_a_finding_names_both_uses_their_lines_and_a_fix(acts: list[Act], words: list[str]) -> None:
    text = message(*acts)
    for words_of_a_fact in words:
        assert words_of_a_fact in text


@pytest.mark.parametrize(
    ("acts", "place", "wait"),
    [
        ([WRITTEN, work(2, B, "reads")], "After line 1 and before line 2", "b.wait_event(a.record())"),
        (
            [work(1, A, "writes", known=False), work(2, B, "reads")],
            "Before line 2",
            "b.wait_event(a.record())",
        ),
        (
            [WRITTEN, work(2, B, "reads", known=False)],
            "After line 1 and before its line",
            "b.wait_event(a.record())",
        ),
        (
            [WRITTEN, work(1, B, "writes")],
            "After line 1 and before it runs again",
            "b.wait_event(a.record())",
        ),
        (
            [work(1, 0, "writes"), work(2, B, "reads")],
            "After line 1 and before line 2",
            "b.wait_event(cp.cuda.Stream.null.record())",
        ),
        (
            [work(1, B, "reads"), work(2, 2, "writes")],
            "After line 1 and before line 2",
            "cp.cuda.Stream.ptds.wait_event(b.record())",
        ),
        (
            [NewStream(1, B, "c", False), work(1, 0, "writes"), work(2, B, "reads", device=1)],
            "After line 1 and before line 2",
            "with cp.cuda.Device(0): e = cp.cuda.Stream.null.record()\nc.wait_event(e)",
        ),
        (
            [work(1, 0x50, "writes"), NewStream(0, 0x40, "", False), work(2, 0x40, "writes")],
            "After line 1 and before line 2",
            "stream_2.wait_event(stream_1.record())",
        ),
    ],
)
def test_the_suggested_wait_names_its_streams(acts: list[Act], place: str, wait: str) -> None:
    assert message(*acts).endswith(f"{place}, add: {wait}")


def test_findings_are_merged_per_pair_of_lines_by_severity() -> None:
    update = Work(number=2, name="k", device_id=0, stream_id=B, reads=(X,), writes=(X,), source=line(2))
    iteration: list[Act] = [WRITTEN, update, HostWait("device")]
    report = find_stream_hazards([*STREAMS, *iteration, *iteration, *iteration], HERE)
    assert [(f.kind, f.count) for f in report.findings] == [("read after write", 3)]
    assert (report.operations, report.streams) == (6, ("a", "b"))
    launched = find_stream_hazards(
        [*STREAMS, graph(WRITTEN, work(2, B, "writes")), work(3, 0, "reads", Y)], HERE
    )
    assert (launched.operations, launched.streams) == (3, ("a", "b", "the default stream"))
    (weaker,) = find_stream_hazards([*STREAMS, work(1, A, "reads"), update], HERE).findings
    assert weaker.kind == "write after read"


def test_long_lists_of_findings_are_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hazards, "MAX_FINDINGS", 2)
    many = [work(number, (A, B)[number % 2], "writes") for number in range(1, 4)]
    assert find_stream_hazards([*STREAMS, *many], HERE).left_out == ""
    report = find_stream_hazards([*STREAMS, *many, work(4, A, "writes")], HERE)
    assert len(report.findings) == 2
    assert "first 2 pairs" in report.left_out

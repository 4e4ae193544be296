"""What is said of each finding between streams, to the letter: what, why, and what to add where."""

from __future__ import annotations

import pytest

from gpulab.analysis import hazards
from gpulab.analysis.hazards import find
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


def work(at: int, stream: int, what: str, region: Region = X, device: int = 0, known: bool = True) -> Work:
    reads, writes = ((region,), ()) if what == "reads" else ((), (region,))
    return Work(
        number=at,
        name="k",
        device_id=device,
        stream_id=stream,
        reads=reads,
        writes=writes,
        source=line(at) if known else None,
    )


def graph(*nodes: Work, number: int = 0) -> GraphLaunch:
    return GraphLaunch(0, A, nodes, (), line(9), number)


READS_X = "b reads x (k, line 2) while a may still be writing it (k, line 1)"
ADD_B = "After line 1 and before line 2, add: b.wait_event(a.record())"
CHANGES = "The host changed a buffer (h, line 2) while a may still be reading it (k, line 1)"
SYNCHRONIZE = "After line 1 and before that, add: a.synchronize()"
CHANGED = HostUse("changed a buffer", (), (BUFFER,), line(2))
WRITTEN = work(1, A, "writes")
SENT = work(1, A, "reads", BUFFER)
ADDRESS = "its address is no longer its own. Keep x as long as something uses its address."


@pytest.mark.parametrize(
    ("acts", "said"),
    [
        ([WRITTEN, work(2, B, "reads")], f"{READS_X}: nothing orders the two. {ADD_B}"),
        (
            [WRITTEN, EventWait(7, 0, B, line(3)), work(2, B, "reads")],
            (
                f"{READS_X}: b waits in line 3 for an event that was not recorded yet, which does nothing. "
                f"{ADD_B}"
            ),
        ),
        (
            [EventRecord(7, 0, A, line(5)), WRITTEN, EventWait(7, 0, B, line(3)), work(2, B, "reads")],
            (
                f"{READS_X}: the event that b waits for in line 3 was recorded in line 5, before that "
                f"operation. {ADD_B}"
            ),
        ),
        (
            [work(1, 0, "writes"), work(2, B, "reads")],
            (
                "b reads x (k, line 2) while the default stream may still be writing it (k, line 1): nothing "
                "orders the two. After line 1 and before line 2, add: "
                "b.wait_event(cp.cuda.Stream.null.record())"
            ),
        ),
        (
            [work(1, B, "reads"), work(2, 2, "writes")],
            (
                "The per-thread default stream writes x (k, line 2) while b may still be reading it (k, line "
                "1): nothing orders the two. After line 1 and before line 2, add: "
                "cp.cuda.Stream.ptds.wait_event(b.record())"
            ),
        ),
        (
            [NewStream(1, B, "c", False), work(1, 0, "writes"), work(2, B, "reads", device=1)],
            (
                "c reads x (k, line 2) while the default stream of device 0 may still be writing it (k, line "
                "1): nothing orders the two. After line 1 and before line 2, add: with cp.cuda.Device(0): e "
                "= cp.cuda.Stream.null.record()\nc.wait_event(e)"
            ),
        ),
        (
            [work(1, 0x50, "writes"), NewStream(0, 0x40, "", False), work(2, 0x40, "writes")],
            (
                "stream 2 writes x (k, line 2) while stream 1 may still be writing it (k, line 1): nothing "
                "orders the two. After line 1 and before line 2, add: stream_2.wait_event(stream_1.record())"
            ),
        ),
        (
            [work(1, A, "writes", known=False), work(2, B, "reads")],
            (
                "b reads x (k, line 2) while a may still be writing it (k): nothing orders the two. Before "
                "line 2, add: b.wait_event(a.record())"
            ),
        ),
        (
            [WRITTEN, work(2, B, "reads", known=False)],
            (
                "b reads x (k) while a may still be writing it (k, line 1): nothing orders the two. After "
                "line 1 and before its line, add: b.wait_event(a.record())"
            ),
        ),
        (
            [WRITTEN, work(1, B, "writes")],
            (
                "b writes x (k, line 1) while a may still be writing it (k, line 1): nothing orders the two. "
                "After line 1 and before it runs again, add: b.wait_event(a.record())"
            ),
        ),
        # The host
        (
            [work(1, A, "writes", BUFFER), HostUse("reads it", (BUFFER,), (), line(2))],
            (
                "The host reads it (h, line 2) while a may still be writing it (k, line 1): nothing orders "
                f"the two. {SYNCHRONIZE}"
            ),
        ),
        ([SENT, CHANGED], f"{CHANGES}: nothing orders the two. {SYNCHRONIZE}"),
        (
            [EventRecord(7, 0, A, line(5)), SENT, HostWait("event", event_id=7, source=line(6)), CHANGED],
            (
                f"{CHANGES}: the event that the host waits for in line 6 was recorded in line 5, before that "
                f"operation. {SYNCHRONIZE}"
            ),
        ),
        (
            [SENT, HostWait("event", event_id=7, source=line(6)), CHANGED],
            (
                f"{CHANGES}: the host waits in line 6 for an event that was not recorded yet, which does "
                f"nothing. {SYNCHRONIZE}"
            ),
        ),
        (
            [SENT, HostWait("stream", 0, B, source=line(6)), CHANGED],
            f"{CHANGES}: the host waits in line 6 for b only, which does not wait for a. {SYNCHRONIZE}",
        ),
        # Graphs
        (
            [graph(WRITTEN, work(2, A, "reads"))],
            (
                "a reads x (k, line 2) while a may still be writing it (k, line 1): the graph has no edge "
                "that orders the two. Add an edge from the first node to the second."
            ),
        ),
        (
            [graph(WRITTEN, work(2, B, "reads"))],
            f"{READS_X}: the graph has no edge that orders the two. {ADD_B}",
        ),
        (
            [work(3, B, "writes"), graph(work(1, A, "writes", Y), work(2, B, "reads", known=False))],
            (
                "a reads x (k, line 9) while b may still be writing it (k, line 3): nothing orders the two. "
                "After line 3 and before line 9, add: a.wait_event(b.record())"
            ),
        ),
        (
            [
                GraphMade(1),
                Release(X, 0, A, line(3)),
                Allocation(Z, 0, None, line(4)),
                graph(WRITTEN, number=1),
            ],
            (
                "a uses x (k, line 1), whose memory was given back or went to another array in line 4: "
                f"{ADDRESS}"
            ),
        ),
        # Memory
        (
            [work(1, A, "reads"), Release(X, 0, B, line(3))],
            (
                "x is given back in line 3 while a may still be reading it (k, line 1): the pool may give "
                "the block to b again, which does not wait for that. Keep x until a has done with it, or add "
                "before it is given back: b.wait_event(a.record())"
            ),
        ),
        (
            [WRITTEN, Release(X, 0, None, line(3))],
            (
                "x is given back in line 3 while a may still be writing it (k, line 1): nothing orders the "
                f"two. {SYNCHRONIZE}"
            ),
        ),
        (
            [Release(X, 0, A, line(3)), work(1, B, "reads")],
            (
                "b uses x (k, line 1), whose memory was given back or went to another array in line 3: "
                f"{ADDRESS}"
            ),
        ),
        (
            [
                work(1, A, "reads"),
                Release(X, 0, B, line(3)),
                Allocation(Z, 0, None, line(4)),
                work(2, B, "writes", Z),
            ],
            (
                "x was given back in line 3, and b uses its memory again (k, line 2) while a may still be "
                "reading it (k, line 1): nothing orders the two. Keep x until a has done with it, or add "
                "before it is given back: b.wait_event(a.record())"
            ),
        ),
        (
            [work(1, A, "reads", Y), Release(Y, 0, B, line(3))],
            (
                "The same memory is given back in line 3 while a may still be reading it (k, line 1): the "
                "pool may give the block to b again, which does not wait for that. Keep the same memory "
                "until a has done with it, or add before it is given back: b.wait_event(a.record())"
            ),
        ),
    ],
)
def test_one_finding(acts: list[Act], said: str) -> None:
    (finding,) = find([*STREAMS, *acts], HERE).findings
    assert finding.message == said


@pytest.mark.parametrize(
    "acts",
    [
        [work(1, A, "writes"), HostWait("stream", 0, A), work(2, B, "reads")],
        [work(1, A, "writes"), HostWait("device"), work(2, B, "reads")],
        [work(1, A, "writes"), HostWait("work", number=1), work(2, B, "reads")],
        [work(1, 0, "writes"), work(2, 1, "reads"), work(3, 0, "writes")],
        [
            work(1, A, "writes"),
            work(2, B, "reads", Region(0, 0x1004, 4)),
            work(3, B, "reads", Region(1, 0x1000, 4)),
        ],
        [Release(X, 0, A, line(3)), Allocation(Z, 0, A, line(4)), work(1, A, "writes")],
        [GraphMade(1), Release(X, 0, A, line(3), True), graph(WRITTEN, number=1)],
        [Release(X, 0, A, line(3)), Allocation(Z), GraphMade(1), graph(WRITTEN, number=1)],
    ],
)
def test_nothing_is_found(acts: list[Act]) -> None:
    report = find([*STREAMS, *acts], HERE)
    assert report.findings == ()
    assert report.left_out == ""


def test_a_pair_of_lines_is_counted_and_the_kind_that_shows_most_is_told() -> None:
    both = Work(number=2, name="k", device_id=0, stream_id=B, reads=(X,), writes=(X,), source=line(2))
    turn: list[Act] = [WRITTEN, both, HostWait("device")]
    report = find([*STREAMS, *turn, *turn, *turn], HERE)
    assert [(f.kind, f.count) for f in report.findings] == [("read after write", 3)]
    assert (report.operations, report.streams) == (6, ("a", "b"))
    launched = find([*STREAMS, graph(WRITTEN, work(2, B, "writes")), work(3, 0, "reads", Y)], HERE)
    assert (launched.operations, launched.streams) == (3, ("a", "b", "the default stream"))
    (weaker,) = find([*STREAMS, work(1, A, "reads"), both], HERE).findings
    assert weaker.kind == "write after read"


def test_of_very_many_findings_the_first_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hazards, "MAX_FINDINGS", 2)
    many = [work(at, (A, B)[at % 2], "writes") for at in range(1, 4)]
    assert find([*STREAMS, *many], HERE).left_out == ""
    report = find([*STREAMS, *many, work(4, A, "writes")], HERE)
    assert len(report.findings) == 2
    assert report.left_out == "Only the first 2 pairs of lines are listed."

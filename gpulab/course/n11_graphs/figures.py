"""What notebook 11 shows besides the laboratory's own views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpulab import session
from virtualgpu.records import Timeline


def busy_share(record: Timeline) -> float:
    """Part of the time from the first operation's start to the last one's end in which any of them ran."""
    if not record.activities:
        return 0.0
    busy_ns, reached = 0, record.activities[0].start_ns
    first = reached
    for activity in sorted(record.activities, key=lambda a: a.start_ns):
        busy_ns += max(0, activity.end_ns - max(activity.start_ns, reached))
        reached = max(reached, activity.end_ns)
    return busy_ns / max(1, reached - first)


def in_a_capture(work: Callable[[Any], Any]) -> str:
    """Give work to a stream that captures: ``"captured"``, or what refused it.

    Parameters
    ----------
    work
        Called with the stream, which is current.

    Returns
    -------
    str
        The error's class and first sentence, and whether the capture was lost with it.
    """
    stream = session.cp().cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        said, lost = "captured", ""
        try:
            work(stream)
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).split('. ')[0].splitlines()[0].rstrip('.')}"
        try:
            stream.end_capture()
        except Exception:
            lost = "; the capture is lost"
    return said + lost

"""``gl.check_streams``: check whether streams and the host access the same memory in a defined order."""

from __future__ import annotations

from gpulab import session
from gpulab.analysis.hazards import StreamChecker
from gpulab.lab._base import RecordedResult
from gpulab.views.tables.streams import StreamTable
from gpulab.words import count
from virtualgpu.records import StreamHazard, StreamReport


def check_streams() -> StreamCheck:
    """Find operations in a ``with`` block that access the same memory in an undefined order. The accesses can
    be made by streams or by the host.

    The check finds three mistakes: two streams (or a stream and the host) access the same bytes, at least
    one of them writes, and nothing orders them; memory is freed or reused while another stream may still use
    it; the host changes a pinned (page-locked) buffer before its asynchronous copy has finished. Each finding
    names both lines of the program and the missing wait, even if the result happened to be correct.

    Returns
    -------
    StreamCheck
        ``.findings`` lists the mistakes, and ``.record`` has all data (`virtualgpu.records.StreamReport`).
        Its picture is a table, and its text is one sentence.

    Raises
    ------
    NotSupportedError
        On entering the block, if the device cannot be observed.

    Notes
    -----
    Work that was launched before the block counts as finished. ``with`` blocks can be nested. Kernels run
    more slowly on the virtual GPU inside the block, because every access is checked.

    Examples
    --------
    >>> stream = cp.cuda.Stream(non_blocking=True)
    >>> with gl.check_streams() as found:
    ...     x = cp.arange(1_000_000)
    ...     with stream:
    ...         y = x * 2
    >>> found
    """
    return StreamCheck()


class _CheckRecorder:
    """A recorder that watches all streams and collects the findings about them."""

    def __init__(self) -> None:
        self._watcher, self._provenance = session.backend().stream_watcher(), session.backend().provenance
        self._checker = StreamChecker()

    def start(self) -> None:
        self._watcher.start(self._checker.handle_act)

    def stop(self) -> StreamReport:
        return self._checker.report(self._provenance, self._watcher.stop())


class StreamCheck(
    RecordedResult[StreamReport],
    recording_name="check of streams",
    start_code="with gl.check_streams() as found:",
):
    """The findings of a check for memory accesses in an undefined order within a ``with`` block."""

    def _make_recorder(self) -> _CheckRecorder:
        return _CheckRecorder()

    def _make_picture(self) -> StreamTable:
        return StreamTable.of(self.record)

    @property
    def findings(self) -> tuple[StreamHazard, ...]:
        """The findings of the check in the order of the program. There is one finding per pair of source
        lines.
        """
        return self.record.findings

    def _make_sentence(self) -> str:
        record = self.record
        if not record.findings:
            return (
                f"Nothing found in {count(record.operations, 'operation')}: {record.provenance.of_results}."
            )
        suffix = f" (and {len(record.findings) - 1} more)" if record.findings[1:] else ""
        return f"{record.findings[0].message}{suffix}"

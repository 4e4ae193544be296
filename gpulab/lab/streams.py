"""``gl.check_streams``: check whether a program orders the uses of the same memory by its streams."""

from __future__ import annotations

from gpulab import session
from gpulab.analysis.hazards import StreamChecker
from gpulab.lab._base import Recorded
from gpulab.views.tables.streams import StreamTable
from gpulab.words import count
from virtualgpu.records import StreamHazard, StreamReport


def check_streams() -> StreamCheck:
    """Check in a ``with`` block that streams and host access the same memory in a defined order.

    Found are: two streams (or a stream and the host) that touch the same bytes, of which one at least
    writes, with nothing that orders them; memory given back or used again while another stream may still use
    it; a page-locked buffer that the host changes before its asynchronous copy has ended. Each with both
    lines of the program and the missing wait. It does not matter whether the result happened to be right.

    Returns
    -------
    StreamCheck
        ``.findings`` has what was found, ``.record`` all of it (`virtualgpu.records.StreamReport`). Its
        picture is a table, its text one sentence.

    Raises
    ------
    NotSupportedError
        On entering the block, on a device that cannot be watched.

    Notes
    -----
    What was given to a device before the block counts as ended. Blocks may be nested. Kernels take longer on
    the virtual GPU meanwhile, since every access is looked at.

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


class _Checking:
    """Streams that are watched, and the findings about them."""

    def __init__(self) -> None:
        self._watcher, self._provenance = session.backend().stream_watcher(), session.backend().provenance
        self._checker = StreamChecker()

    def start(self) -> None:
        self._watcher.start(self._checker.see)

    def stop(self) -> StreamReport:
        return self._checker.report(self._provenance, self._watcher.stop())


class StreamCheck(Recorded[StreamReport], what="check of streams", write="with gl.check_streams() as found:"):
    """The check of a ``with`` block, and its findings."""

    def _recorder_of_now(self) -> _Checking:
        return _Checking()

    def _make_picture(self) -> StreamTable:
        return StreamTable.of(self.record)

    @property
    def findings(self) -> tuple[StreamHazard, ...]:
        """Findings, one for each pair of lines, in the order of the program."""
        return self.record.findings

    def _sentence(self) -> str:
        record = self.record
        if not record.findings:
            return f"Nothing found in {count(record.operations, 'operation')}: {record.provenance.label}."
        suffix = f" (and {len(record.findings) - 1} more)" if record.findings[1:] else ""
        return f"{record.findings[0].message}{suffix}"

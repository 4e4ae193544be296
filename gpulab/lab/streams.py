"""``gl.check_streams``: whether a program orders what its streams do to the same memory."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpulab import session
from gpulab.views.tables.streams import StreamTable
from virtualgpu.errors import GpulabError
from virtualgpu.records import StreamHazard, StreamReport
from virtualgpu.trace.hazards import StreamChecker

if TYPE_CHECKING:
    from virtualgpu.protocol import StreamWatcher


def check_streams() -> StreamCheck:
    """Check, while a block runs, that streams and host use the same memory in an order.

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


class StreamCheck:
    """The check of a ``with`` block, and what it found."""

    def __init__(self) -> None:
        self._watcher: StreamWatcher | None = None
        self._checker = StreamChecker()
        self._record: StreamReport | None = None

    @property
    def record(self) -> StreamReport:
        """What was found, as data.

        Raises
        ------
        GpulabError
            Before the block has ended.
        """
        if self._record is None:
            raise GpulabError(
                "What was found is there when the block has ended: with gl.check_streams() as found:"
            )
        return self._record

    @property
    def findings(self) -> tuple[StreamHazard, ...]:
        """One finding for each pair of lines, in the order of the program."""
        return self.record.findings

    def __enter__(self) -> Self:
        if self._watcher is not None or self._record is not None:
            raise GpulabError("A check serves one block: write with gl.check_streams() as found: again.")
        watcher, self._provenance = session.stream_watcher(), session.backend().provenance
        watcher.start(self._checker.see)
        self._watcher = watcher
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            self._record = self._checker.report(self._provenance, watcher.stop())

    def __del__(self) -> None:
        # Entered without `with` and forgotten: the device must not go on telling.
        if getattr(self, "_watcher", None) is not None:
            self.__exit__(None, None, None)

    def __repr__(self) -> str:
        if self._record is None:
            return "Check of streams whose block has not ended."
        count = len(self._record.findings)
        if not count:
            return (
                f"Nothing found in {self._record.operations:,} operations: {self._record.provenance.label}."
            )
        first = self._record.findings[0]
        more = f" And {count - 1} more." if count > 1 else ""
        return f"{first.message}{more}"

    def describe(self) -> str:
        """All findings in words, with the table of their lines."""
        return repr(StreamTable.of(self.record))

    def _repr_html_(self) -> str | None:
        return None if self._record is None else StreamTable.of(self._record)._repr_html_()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self) if self._record is None else self.describe())

"""``gl.host_memory``: the use of pinned (page-locked) host memory, which CuPy's pool does not count."""

from __future__ import annotations

from gpulab.allocators.statistics import count_host_statistics
from gpulab.lab._base import RecordedResult
from gpulab.session.pools.pinned import PinnedRecorder
from gpulab.views.tables.memory import HostMemoryTable
from virtualgpu.records.memory import AllocatorStatistics, AllocatorTrace


def host_memory() -> HostMemoryReport:
    """Measure the current, peak and total size of the pinned (page-locked) host memory in a ``with`` block.

    Returns
    -------
    HostMemoryReport
        Its text is one sentence. `statistics` has the numbers and `summary` a table of them, with the names
        of PyTorch's ``torch.cuda.host_memory_stats``. ``.record`` holds the data
        (`virtualgpu.records.memory.AllocatorTrace`).

    Notes
    -----
    CuPy's pool of pinned memory calls no hooks. So the ``with`` block allocates from a separate pool with the
    rules of CuPy's: buffers of powers of two from 512 bytes up, which are kept when they are free.
    Afterwards CuPy's default pool is used again, and buffers still in use continue to be counted.

    Examples
    --------
    >>> with gl.host_memory() as h:
    ...     x = gl.cupyx.empty_pinned(1000)
    >>> h.statistics().nested()["active_bytes"]["current"]
    8192
    >>> print(h.summary())
    """
    return HostMemoryReport()


class HostMemoryReport(
    RecordedResult[AllocatorTrace],
    recording_name="count of host memory",
    start_code="with gl.host_memory() as h:",
    is_live=True,
):
    """The pinned host memory that was allocated, used and freed since the ``with`` block began."""

    def _make_recorder(self) -> PinnedRecorder:
        return PinnedRecorder()

    def _picture(self) -> HostMemoryTable:
        return HostMemoryTable.of(self.statistics())  # anew: buffers end after the block, too

    def free_all_blocks(self) -> None:
        """Free the unused buffers in the pinned memory pool of the ``with`` block."""
        if self._recorder is not None:
            self._recorder.pool.free_all_blocks()

    def statistics(self) -> AllocatorStatistics:
        """Return the pinned memory statistics so far. The result has the methods ``nested()``, ``flat()`` and
        ``summary()``.
        """
        return count_host_statistics(self.record)

    def summary(self) -> str:
        """Return a table of the pinned memory statistics so far."""
        return self.statistics().summary()

    def _make_sentence(self) -> str:
        return repr(self.statistics())

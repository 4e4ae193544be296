"""``gl.profile``: the cost of a function by kernel, copy, wait, line and NVTX range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpulab import session
from gpulab._deprecated import make_old_method
from gpulab.analysis.profile import make_profile
from gpulab.lab._base import RecordedResult
from gpulab.lab.timeline import TimelineReport
from gpulab.session.pools.hook import AllocationRecorder
from gpulab.views.tables.profile import ProfileComparison, ProfileTable
from gpulab.words import count, duration
from virtualgpu.errors import GpulabError
from virtualgpu.records import Timeline
from virtualgpu.records.profile import Profile

_MAX_ALLOCATOR_EVENTS = 1_000  # of the allocator, which are not looked at


class ProfilerInUseError(GpulabError):
    """Error raised if another tool in this process uses CUPTI. CUPTI supports only one tool at a time."""


def profile(
    fn: Callable[..., Any] | None = None,
    *args: Any,
    warmup: int = 0,
    record_shapes: bool = False,
    counters: bool = False,
) -> ProfileReport:
    """Call a function, and report the costs of its kernels, copies, waits and NVTX ranges. The report also
    shows the use of memory by source line.

    Parameters
    ----------
    fn
        The function to profile. Without it, use the result in a ``with`` block: ``with gl.profile() as p:``.
    *args
        The arguments of the function.
    warmup
        The number of earlier calls without recording, because the first call compiles, allocates and fills
        caches.
    record_shapes
        Whether launches of one kernel with different grids and blocks have separate rows.
    counters
        Whether to read hardware counters, too: sectors, DRAM bytes, warp instructions, FLOP and hit rates by
        kernel. Nsight Compute (``ncu``) reads them in a separate process, where the function runs twice
        more, on copies of its arguments and of the global variables that it uses. If that is not possible,
        ``.record.no_counters`` has the reason.

    Returns
    -------
    ProfileReport
        Tables. ``.record`` is a `virtualgpu.records.profile.Profile`, ``.timeline`` shows all operations over
        time, and ``.compare(other)`` compares two profiles. Columns have the names of PyTorch's profiler:
        ``key``, ``count``, ``device_time_total`` and ``device_time``, a launch's mean (in older versions of
        PyTorch ``cuda_time_total`` and ``cuda_time``), ``cpu_time_total``.

    Raises
    ------
    ProfilerInUseError
        If another tool uses CUPTI on a real GPU. `fn` is not called then.
    GpulabError
        If CUPTI is missing, or a timeline is already being recorded.
    TypeError
        If `fn` is not callable, or if counters are requested without a function that can run
        again.

    Notes
    -----
    On a virtual GPU, times are modelled and memory accesses are counted; ``GB/s`` is the traffic between the
    SMs and L2, in sectors of 32 bytes. On a real GPU, CUPTI measures the times. The bytes and operations of a
    kernel need hardware counters, which Nsight Compute (``ncu``) reads, or `gpulab.count` for one launch.

    Examples
    --------
    >>> gl.profile(lambda a: (a * 2 + 1).sum(), cp.ones(1 << 20, cp.float32))
    """
    report = ProfileReport(record_shapes=record_shapes)
    if fn is None and not counters:
        return report
    if not callable(fn):
        raise TypeError(f"gl.profile needs a function and its arguments, not {type(fn).__name__}.")
    for _ in range(warmup):
        fn(*args)
    session.cp().cuda.Device().synchronize()
    report.name = getattr(fn, "__name__", type(fn).__name__)
    with report:
        fn(*args)
    if counters:
        from gpulab.analysis.files import ncu
        from gpulab.lab.faults.jobs import Call
        from gpulab.lab.faults.under import run_under_tool

        run_of_ncu = run_under_tool("ncu", ncu.NCU_OPTIONS, lambda: Call(fn, args), ncu.find_refusal)
        report._record = ncu.add_counters(report.record, *run_of_ncu)
    return report


class ProfileReport(RecordedResult[Profile], recording_name="profile", start_code="with gl.profile() as p:"):
    """A profile of a ``with`` block, which can be displayed, compared and saved.

    Parameters
    ----------
    record
        An earlier profile.
    record_shapes
        As for `profile`.
    """

    def __init__(self, record: Profile | None = None, *, record_shapes: bool = False) -> None:
        super().__init__(record)
        self.name = record.name if record is not None else "block"
        self._record_shapes = record_shapes
        self._active_recorder: _ProfileRecorder | None = None

    @property
    def timeline(self) -> TimelineReport:
        """The timeline of the operations that were profiled."""
        if self._active_recorder is None or self._active_recorder.timeline is None:
            raise GpulabError("This profile has no timeline yet. It is available when the block has ended.")
        return TimelineReport(self._active_recorder.timeline)

    beside = make_old_method("beside", "compare")

    def compare(self, other: ProfileReport | Profile) -> ProfileComparison:
        """Compare this profile with a later one. The comparison shows the time of each kernel, copy and range
        in both profiles.

        Examples
        --------
        >>> before.compare(after)
        """
        record = other.record if isinstance(other, ProfileReport) else other
        if not isinstance(record, Profile):
            raise TypeError(f"Expected a profile, the result of gl.profile(), not {type(other).__name__}.")
        return ProfileComparison(self.record, record)

    def _make_recorder(self) -> _ProfileRecorder:
        self._active_recorder = _ProfileRecorder(self)
        return self._active_recorder

    def _make_picture(self) -> ProfileTable:
        return ProfileTable.of(self.record)

    def _make_sentence(self) -> str:
        record = self.record
        launch_count = sum(kernel.count for kernel in record.kernels)
        return (
            f"Profile of {record.name}: {duration(record.wall_ns)}, of which the device "
            f"was busy {duration(record.busy_ns)} with {count(launch_count, 'launch', 'launches')} of "
            f"{count(len(record.kernels), 'kernel')} and other operations; "
            f"{record.provenance.of_results_and_times}."
        )


class _ProfileRecorder:
    """A recorder of a timeline and of the peak memory of the pool during the timeline."""

    def __init__(self, report: ProfileReport) -> None:
        self.timeline: Timeline | None = None
        self.name = report.name
        self.record_shapes = report._record_shapes
        backend = session.backend()
        self._occupancy = session.make_occupancy_function()
        self._timeline_recorder = backend.timeline_recorder()
        self._initial_bytes = backend.memory_reader()().used_bytes
        self._allocation_recorder = AllocationRecorder(
            _MAX_ALLOCATOR_EVENTS, int(session.cp().cuda.Device().id)
        )

    def start(self) -> None:
        self._timeline_recorder.start()
        if self._timeline_recorder.blind_reason:
            blind_reason = self._timeline_recorder.blind_reason
            self._timeline_recorder.stop()
            error_type = ProfilerInUseError if "in use" in blind_reason else GpulabError
            raise error_type(
                f"A profile needs CUPTI to record kernels and copies, but {blind_reason}. End "
                "the other tool's session first, or use gl.timeline(), which works "
                "without CUPTI and records NVTX ranges."
            )
        self._allocation_recorder.start()

    def stop(self) -> Profile:
        self._allocation_recorder.stop()
        self.timeline = self._timeline_recorder.stop()
        initial_bytes = self._initial_bytes
        peak_bytes = (
            None if initial_bytes is None else initial_bytes + self._allocation_recorder.most_held_bytes
        )
        return make_profile(
            self.timeline,
            self.name,
            self._occupancy,
            by_shape=self.record_shapes,
            before_bytes=initial_bytes,
            peak_bytes=peak_bytes,
        )

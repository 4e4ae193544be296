"""``gl.allocator``: the operations of a memory pool for each request of the program, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from gpulab import views
from gpulab._deprecated import make_old_method
from gpulab.allocators import steps
from gpulab.allocators.fragments import measure_fragmentation
from gpulab.allocators.replay import Allocator, reconstruct_requests, replay
from gpulab.lab._base import RecordedResult
from gpulab.session.pools.pool import PoolRecorder
from gpulab.views._saving import Writers
from gpulab.views.allocator.maps import PoolMaps, PoolPanel
from virtualgpu.errors import GpulabError, did_you_mean
from virtualgpu.records import memory

MAX_EVENTS = 200_000
"""Largest number of events on a saved page, so that the page opens quickly.

A page of a longer recording has only the last events, and says so.
"""
OTHER_ALLOCATORS = ("CuPy", "PyTorch")


def allocator() -> AllocatorReport:
    """Show the segments and blocks of the memory pool. A ``with`` block also records all allocator events.

    Returns
    -------
    AllocatorReport
        Its text is one sentence. Its picture is the map of the pool, now or at any event of the ``with``
        block. ``.record`` holds the data (`virtualgpu.records.memory.AllocatorTrace`).

    Notes
    -----
    CuPy's pool on a real GPU does not report its contents. The map therefore shows the events that its
    hooks reported within the block, and the arrays that existed before; its caption names what is
    missing. Allocations of other threads are not recorded.

    Examples
    --------
    >>> with gl.allocator() as a:
    ...     x = cp.zeros(1000)
    ...     del x
    >>> a
    """
    return AllocatorReport()


def open_allocator(path: str | Path, device: int | None = None) -> AllocatorReport:
    """Open a memory snapshot that PyTorch (``torch.cuda.memory._dump_snapshot``) or ``a.save`` wrote.

    Parameters
    ----------
    path
        The pickle file, which may be compressed by gzip. It is read as plain data. A file that would run code
        is refused.
    device
        The device, if the snapshot has several. By default, the device with the most events.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    SnapshotError
        If the file is not a snapshot, is damaged, or would run code.

    Examples
    --------
    >>> with gl.allocator() as a:
    ...     z = cp.zeros(1000)
    >>> gl.open_allocator(a.save("one.pickle"))
    """
    from gpulab.allocators.snapshot import read_snapshot

    traces_of_devices = read_snapshot(path).traces
    if device is not None and device not in traces_of_devices:
        device_list = ", ".join(map(str, traces_of_devices)) or "none"
        raise GpulabError(
            f"{Path(path).name} has no data of device {device}. It has data of these devices: {device_list}."
        )
    if not traces_of_devices:
        raise GpulabError(
            f"{Path(path).name} contains no data, because the program allocated no memory on a device."
        )
    device_traces = traces_of_devices.values() if device is None else [traces_of_devices[device]]
    return AllocatorReport(max(device_traces, key=lambda trace: (len(trace.events), trace.first.total_bytes)))


class AllocatorReport(
    RecordedResult[memory.AllocatorTrace],
    recording_name="memory pool",
    start_code="with gl.allocator() as a:",
):
    """The recorded events of a memory pool, or its current state. The report can be displayed and saved.

    Parameters
    ----------
    trace
        An earlier recording. If it is None, the report shows the present state of the pool, or records a
        ``with`` block.
    """

    def __init__(self, trace: memory.AllocatorTrace | None = None) -> None:
        super().__init__(trace)
        if trace is None:
            self._record = PoolRecorder().stop()

    def _make_recorder(self) -> PoolRecorder:
        for cached_attribute in ("history", "requests", "_maps"):
            self.__dict__.pop(cached_attribute, None)
        return PoolRecorder()

    @cached_property
    def history(self) -> memory.AllocatorHistory:
        """The history of the blocks in the memory pool. The method `at` uses this history to compute the
        memory map after any event.
        """
        return steps.make_history(self.record)

    @cached_property
    def requests(self) -> list[memory.Request]:
        """The program's requests to allocate and free memory. Internal events of the allocator are not
        included.
        """
        return reconstruct_requests(self.record)

    @property
    def events(self) -> memory.AllocatorEvents:
        """The recorded events of the memory pool, as columns."""
        return self.record.events

    def at(self, step: int) -> memory.BlockMap:
        """Return the memory map of the pool after the first ``step`` events. A negative ``step`` counts back
        from the end, and -1 gives the state after all events.

        Raises
        ------
        IndexError
            If there are fewer events.

        Examples
        --------
        >>> a.at(-1).used_bytes
        0
        """
        last_step = self.history.last_step
        return steps.make_block_map(self.history, step if step >= 0 else last_step + 1 + step)

    def fragmentation(self, step: int = -1) -> memory.Fragmentation:
        """Return the free memory after a step, in total and per stream, and the size of the smallest request
        that would fail.
        """
        return measure_fragmentation(self.at(step), self.record.capacity_bytes)

    beside = make_old_method("beside", "compare")

    def compare(
        self, other: str | AllocatorReport | memory.AllocatorTrace = "PyTorch", **settings: Any
    ) -> views.AllocatorView:
        """Show a second memory map below this one. The second map shows another recording, or a model of an
        allocator that receives the same requests.

        Parameters
        ----------
        other
            ``"PyTorch"`` or ``"CuPy"``, a model of that allocator; or the result of another `allocator` or
            `open_allocator`. In the second case, the slider steps through the events of this recording, and
            shows the other recording at the same fraction of its events, so that both end together.
        **settings
            Settings of PyTorch's allocator, as in ``PYTORCH_CUDA_ALLOC_CONF``: ``expandable_segments=True``,
            ``max_split_size_mb=64``, ``garbage_collection_threshold=0.8``.

        Raises
        ------
        ValueError
            For an unknown allocator, or a setting that PyTorch would refuse.

        Examples
        --------
        >>> a.compare("PyTorch", expandable_segments=True)
        """
        if isinstance(other, AllocatorReport | memory.AllocatorTrace):
            if settings:
                raise ValueError(
                    f"The settings {', '.join(settings)} can be used only with the name of an allocator, not "
                    "with another recording."
                )
            return self._compare_maps(other if isinstance(other, AllocatorReport) else AllocatorReport(other))
        record = self.record
        requests = self.requests
        other_record = self._replay_on(other, settings)
        request_times = np.arange(len(requests) + 1)
        other_events = np.searchsorted(other_record.events.time_ns, request_times, side="right")
        events_at_request = _count_events_at_requests(record, requests)
        other_name = f"{'PyTorch' if other.lower() == 'pytorch' else 'CuPy'}'s allocator"
        if settings:
            other_name += f" ({', '.join(f'{key}={value}' for key, value in settings.items())})"
        pool_panels = [
            _make_panel(self.history, record.allocator, events_at_request),
            _make_panel(steps.make_history(other_record), other_name, other_events),
        ]
        return views.AllocatorView(PoolMaps(pool_panels, requests))

    def _compare_maps(self, other_report: AllocatorReport) -> views.AllocatorView:
        named_histories = []
        for report, panel_name in ((self, "this"), (other_report, "the other")):
            record = report.record
            trace = steps.keep_last_events(record, MAX_EVENTS) if len(record.events) > MAX_EVENTS else record
            history = report.history if trace is record else steps.make_history(trace)
            named_histories.append((history, f"{record.allocator} ({panel_name})"))
        position_count = named_histories[0][0].last_step + 1
        pool_panels = []
        for history, panel_name in named_histories:
            last_step = history.last_step
            event_numbers = (
                np.rint(np.linspace(0, last_step, position_count)).astype(np.int64)
                if position_count > 1
                else np.array([last_step])
            )
            pool_panels.append(_make_panel(history, panel_name, event_numbers))
        return views.AllocatorView(PoolMaps(pool_panels))

    def statistics(self) -> memory.AllocatorStatistics:
        """Return current, peak and accumulated statistics under the names that ``torch.cuda.memory_stats``
        uses.

        Examples
        --------
        >>> a.statistics().nested()["reserved_bytes"]["all"]["peak"]
        """
        from gpulab.allocators.statistics import count_statistics

        return count_statistics(self.record)

    def summary(self, abbreviated: bool = False) -> str:
        """Return the statistics as text in the format of ``torch.cuda.memory_summary()``, for example for
        ``print(a.summary())``.
        """
        return self.statistics().summary(abbreviated)

    def replayed(self, other: str = "PyTorch", **settings: Any) -> AllocatorReport:
        """Return a report for another allocator that processes the same memory requests.

        Parameters
        ----------
        other, **settings
            As for `compare`, which shows both.

        Raises
        ------
        ValueError
            For an unknown allocator, or a setting that PyTorch would refuse.

        Examples
        --------
        >>> print(a.replayed("PyTorch").summary())
        """
        return AllocatorReport(self._replay_on(other, settings))

    def _replay_on(self, allocator_name: str, settings: dict[str, Any]) -> memory.AllocatorTrace:
        record = self.record
        requests = self.requests
        if len(requests) > MAX_EVENTS:
            raise GpulabError(
                f"{len(requests):,} requests are too many to compare two allocators step by step."
            )
        allocator_model = _make_model(
            allocator_name, record, settings, record.capacity_bytes or self._find_capacity_bytes()
        )
        # Each request is a moment of its own, so that events tell which request made them.
        timed_requests = [replace(request, time_ns=time_ns) for time_ns, request in enumerate(requests, 1)]
        replayed_trace = replay(timed_requests, allocator_model, record.stacks)
        limited_map = replace(replayed_trace.first, limit_bytes=record.first.limit_bytes)
        # Of a device that is not known, the model's is not told, either.
        return replace(
            replayed_trace, first=limited_map, texts=record.texts, capacity_bytes=record.capacity_bytes
        )

    def _find_capacity_bytes(self) -> int:
        """Estimate the memory that the device has for the pool from failed requests; 0 if none failed.

        The estimate is the reserved memory plus the device's free memory, which was smaller than the request.
        """
        events = self.events
        oom_indices = np.flatnonzero(events.actions == memory.ACTIONS.index("oom"))
        requested_bytes = np.where(events.requested_bytes > 0, events.requested_bytes, events.size_bytes)[
            oom_indices
        ]
        available_bytes = np.minimum(events.addresses[oom_indices], requested_bytes - 1)
        return int((self.history.reserved_bytes[oom_indices] + available_bytes).min(initial=1 << 62)) % (
            1 << 62
        )

    def _make_writers(self) -> Writers:
        from gpulab.allocators.snapshot import write_snapshot

        def snapshot(path: Path) -> None:
            write_snapshot(path, self.record, self.at(-1))

        return {".pickle": snapshot, ".pkl": snapshot, **super()._make_writers()}

    @cached_property
    def _maps(self) -> PoolMaps:
        record = self.record
        is_long = len(record.events) > MAX_EVENTS
        history = steps.make_history(steps.keep_last_events(record, MAX_EVENTS)) if is_long else self.history
        return PoolMaps([_make_panel(history, record.allocator)])

    def _make_picture(self) -> views.AllocatorView:
        return views.AllocatorView(self._maps)

    def _make_sentence(self) -> str:
        return self._maps.sentence()


def _make_panel(history: memory.AllocatorHistory, name: str, event_numbers: Any = None) -> Any:
    measure_map_fragmentation = partial(measure_fragmentation, capacity_bytes=history.trace.capacity_bytes)
    return PoolPanel(
        history, name, partial(steps.make_block_map, history), measure_map_fragmentation, event_numbers
    )


def _make_model(
    allocator_name: str, record: memory.AllocatorTrace, settings: dict[str, Any], capacity_bytes: int
) -> Allocator:
    """Return a model of PyTorch's or CuPy's allocator, on a device like that of the record."""
    device_arguments: dict[str, Any] = {
        "device_id": record.device_id,
        "device_name": record.provenance.device,
    }
    if capacity_bytes:
        device_arguments["capacity_bytes"] = capacity_bytes
    match allocator_name.lower():
        case "pytorch":
            from gpulab.allocators.torch.allocator import TorchAllocator
            from gpulab.allocators.torch.settings import Settings

            settings_text = ",".join(f"{name}:{value}" for name, value in settings.items())
            return TorchAllocator(Settings.parse(settings_text), **device_arguments)
        case "cupy":
            from gpulab.allocators.cupy import CuPyAllocator

            if settings:
                raise ValueError(
                    f"CuPy's pool has no settings. The settings {', '.join(settings)} belong to PyTorch's "
                    "allocator."
                )
            return CuPyAllocator(**device_arguments)
    raise ValueError(
        f"{allocator_name!r} is not one of the known allocators: {' or '.join(OTHER_ALLOCATORS)}."
        f"{did_you_mean(allocator_name, OTHER_ALLOCATORS)}"
    )


def _count_events_at_requests(record: memory.AllocatorTrace, requests: Sequence[memory.Request]) -> Any:
    """Return for each request the number of events that had occurred when it ended.

    Requests have the times of their events.
    """
    request_times_ns = np.array([0, *(request.time_ns for request in requests)], np.int64)
    event_counts = np.searchsorted(record.events.time_ns, request_times_ns, side="right")
    # What was there before the first event was never seen to be asked for; see `reconstruct_requests`.
    request_count_of_state = {"used": 1, "waiting": 3}
    initial_request_count = sum(
        request_count_of_state.get(block.state, 0)
        for segment in record.first.segments
        for block in segment.blocks
    )
    event_counts[: initial_request_count + 1 + bool(record.first.limit_bytes)] = 0
    event_counts[-1] = len(record.events)
    return np.maximum.accumulate(event_counts)

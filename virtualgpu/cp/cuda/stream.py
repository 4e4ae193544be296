"""CuPy's streams and events on the modelled clock."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp.cuda.graph import Graph
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine
from virtualgpu.model.clock import LEGACY_ALIAS, LEGACY_QUEUE, PER_THREAD_QUEUE, QueuePosition
from virtualgpu.model.cost import HOST_FUNCTION_NS
from virtualgpu.model.graph import (
    GLOBAL_MODE,
    RELAXED_MODE,
    THREAD_LOCAL_MODE,
    Capture,
    CapturedNode,
    Operation,
    make_capture_error,
)
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.queue import WorkQueue
from virtualgpu.records import Activity, ActivityKind

__all__ = ["Event", "ExternalStream", "Stream", "get_current_stream", "get_elapsed_time"]
__getattr__ = make_module_getattr("cp.cuda.stream", globals())


def _get_device(device_id: int) -> VirtualDevice:
    machine = _machine.current()
    return machine.current_device if device_id < 0 else machine.device(device_id)


class Event:
    """A marker in the work queue of a stream. The host or another stream can wait for an event, and the time
    between two events can be measured.

    Parameters
    ----------
    block : bool
        Whether a waiting host sleeps instead of spinning; on the modelled clock both take the same time.
    disable_timing : bool
        Whether to omit the time; the event then cannot be used with `get_elapsed_time`.
    interprocess : bool
        Needs `disable_timing`, as in CuPy.
    """

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        self.disable_timing = disable_timing
        self.queue_position: QueuePosition | None = None
        self.captured_nodes: tuple[int, ...] = ()  # nodes of the captured graph
        self.capture: Capture | None = None
        self._device: VirtualDevice | None = None
        self._stream_id: int | None = None

    def __getattr__(self, name: str) -> Any:
        message = f"'Event' object has no attribute {name!r}"
        if name == "elapsed_time":
            message += ": write cp.cuda.get_elapsed_time(start, end), in ms"
        raise AttributeError(message, name=name)

    @property
    def ptr(self) -> int:
        """Number that identifies the event in place of a CUDA handle."""
        _machine.current().events[id(self)] = self
        return id(self)

    @property
    def time_ns(self) -> int | None:
        """Modelled time of the event in ns, or None before its first recording outside a capture."""
        if self._device is None or self.queue_position is None:
            return None
        return self._device.work_queue.schedule.find_reached_time(self.queue_position)

    @property
    def done(self) -> bool:
        """Return whether all work before the event is done. As in CUDA, the result is True for an event that
        was never recorded.
        """
        if self.capture is not None:
            self.capture.invalidate()
            return False
        if self._device is None:
            return True
        is_done = _query_completion(self._device, self.time_ns or 0, "cudaEventQuery")
        if is_done and self.queue_position is not None:
            self._device.work_queue.run_delayed_operations(self.queue_position.awaited_operations)
        if is_done and self._device.clock.watch is not None:
            self._device.clock.watch.note_host_wait("event", event=self)
        return is_done

    def record(self, stream: _BaseStream | None = None) -> None:
        """Record the event in `stream` after its queued work. The default stream is the current one."""
        (get_current_stream() if stream is None else stream).record(self)

    def synchronize(self) -> None:
        """Wait on the host until the work before the event is done."""
        if self.capture is not None:
            raise self._invalidate_capture(self.capture)
        if self._device is not None and self.queue_position is not None:
            clock = self._device.clock
            start_ns = self._device.clock.now_ns
            clock.wait_until(self.time_ns or 0)
            self._device.work_queue.run_delayed_operations(self.queue_position.awaited_operations)
            if clock.watch is not None:
                clock.watch.note_host_wait("event", event=self)
            if clock.recorder is not None:
                stream_key = (self._device.id, self._stream_id)
                clock.recorder.record_wait(
                    "EVENT_SYNCHRONIZE",
                    "cudaEventSynchronize",
                    start_ns,
                    *stream_key,
                    self.queue_position.awaited_operations,
                    self.ptr,
                )

    def _set_recorded_position(
        self, device: VirtualDevice, stream_id: int, queue_position: QueuePosition
    ) -> None:
        self._device = device
        self.queue_position = queue_position
        self.captured_nodes = ()
        self.capture = None
        self._stream_id = stream_id

    def _invalidate_capture(self, capture: Capture) -> Exception:
        """Invalidate a capture in progress, and return CUDA's error for the use of its event."""
        if not capture.has_ended:
            capture.invalidate()
            return make_capture_error(907)
        return CUDARuntimeError(
            1,
            "cudaErrorInvalidValue",
            "invalid argument: the event was last recorded in a capture, which has ended; record it again.",
        )

    def _set_captured_nodes(self, capture: Capture, captured_nodes: tuple[int, ...]) -> None:
        self._device = None
        self.queue_position = None
        self.captured_nodes = captured_nodes
        self.capture = capture


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Return the modelled time between two events, in milliseconds. Both events must be recorded and
    finished.

    Raises
    ------
    CUDARuntimeError
        Status 400 if an event was not recorded or has timing disabled; 600 if the later event is not done
        yet (call ``synchronize()`` on it first).
    """
    for event in (start_event, end_event):
        if event.capture is not None:
            raise make_capture_error(907)
        if event.disable_timing or event.queue_position is None or event._device is None:
            reason = "was created with disable_timing=True" if event.disable_timing else "was never recorded"
            raise CUDARuntimeError(
                400,
                "cudaErrorInvalidResourceHandle",
                f"invalid resource handle: an event {reason}. Record both events, with "
                "timing enabled, before this call.",
            )
    start_ns = start_event.time_ns
    end_ns = end_event.time_ns
    assert start_ns is not None
    assert end_ns is not None
    assert end_event._device is not None
    if max(start_ns, end_ns) > end_event._device.clock.now_ns:
        raise CUDARuntimeError(
            600,
            "cudaErrorNotReady",
            "device not ready: call synchronize() on the end event before timing it.",
        )
    return (end_ns - start_ns) / 1e6


def _query_completion(device: VirtualDevice, time_ns: int, call_name: str) -> bool:
    """Return whether the modelled clock has passed a time; the query takes some host time."""
    clock = device.clock
    start_ns = device.clock.now_ns
    is_done = device.work_queue.schedule.has_passed(time_ns)
    if clock.recorder is not None:
        clock.recorder.record_call(call_name, start_ns)
    return is_done


class _BaseStream:
    """Base class of streams; `device_id` -1 stands for the current device."""

    def __init__(self, ptr: int, device_id: int) -> None:
        self.ptr = ptr
        self.device_id = device_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BaseStream) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return self.ptr

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ptr} (device {self.device_id})>"

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    def __enter__(self) -> _BaseStream:
        thread = _machine.current().thread_state
        stream_stack = thread.__dict__.setdefault("stream_stack", [])
        device_id = self._check_device_id()
        stream_stack.append((device_id, self))
        _get_current_streams()[device_id] = self
        return self

    def __exit__(self, *_: object) -> None:
        stream_stack = _machine.current().thread_state.__dict__.get("stream_stack")
        if not stream_stack:
            return  # the machine was replaced within the block
        device_id, _ = stream_stack.pop()
        # As in CuPy, the stream of the outer block becomes current again, even after use().
        previous_stream = next(
            (stream for stack_id, stream in reversed(stream_stack) if stack_id == device_id), None
        )
        if previous_stream is None:
            _get_current_streams().pop(device_id, None)
        else:
            _get_current_streams()[device_id] = previous_stream

    def use(self) -> _BaseStream:
        """Make this stream the current stream. In a block ``with stream:``, the stream is current until the
        end of the block.
        """
        _get_current_streams()[self._check_device_id()] = self
        return self

    def _check_device_id(self) -> int:
        current_device_id = _machine.current().current_device_id
        if self.device_id not in (-1, current_device_id):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match with the "
                f"current device ({current_device_id})"
            )
        return current_device_id

    def enqueue(
        self,
        kind: ActivityKind,
        name: str,
        run: Callable[[], float],
        *,
        device: VirtualDevice | None = None,
        **options: Any,
    ) -> Activity | None:
        """Add an operation to this stream. The function `run` executes the operation and returns its duration
        in ns.

        Parameters
        ----------
        device : VirtualDevice, optional
            Device of the work if the stream belongs to no device (the default stream).
        **options
            Further fields of `virtualgpu.model.queue.Operation`, such as sizes and the launch shape.

        Returns
        -------
        Activity or None
            The executed work with its times; None if the stream captures a graph.
        """
        if self.device_id >= 0 or device is None:
            device = _get_device(self.device_id)
        refuse_in_host_function()
        return device.work_queue.enqueue(self.ptr, Operation(kind, name, run, **options))

    @property
    def done(self) -> bool:
        """Return whether all work on this stream is done."""
        device_work = self._device_work
        try:
            device_work.check_legacy_stream(self.ptr)
            device_work.check_not_capturing(self.ptr)
        except CUDARuntimeError:
            return False  # CuPy compares the status with 0; the capture is invalidated anyway
        device = _get_device(self.device_id)
        is_done = _query_completion(device, device_work.schedule.tail_ns(self.ptr), "cudaStreamQuery")
        if is_done:
            device_work.run_delayed_operations(
                device_work.schedule.find_queue_end(self.ptr).awaited_operations
            )
            if device.clock.watch is not None:
                device.clock.watch.note_host_wait("stream", device_work.make_stream_ref(self.ptr))
        return is_done

    def synchronize(self) -> None:
        """Wait on the host until all work queued on this stream is done."""
        refuse_in_host_function()
        device_work = self._device_work
        device_work.check_legacy_stream(self.ptr)
        device_work.check_not_capturing(self.ptr)
        clock = device_work.schedule.clock
        start_ns = device_work.schedule.clock.now_ns
        device_work.schedule.synchronize(self.ptr)
        device_work.run_delayed_operations(device_work.schedule.find_queue_end(self.ptr).awaited_operations)
        if clock.watch is not None:
            clock.watch.note_host_wait("stream", device_work.make_stream_ref(self.ptr))
        if clock.recorder is not None:
            device_id = _get_device(self.device_id).id
            predecessors = device_work.schedule.find_queue_end(self.ptr).awaited_operations
            clock.recorder.record_wait(
                "STREAM_SYNCHRONIZE", "cudaStreamSynchronize", start_ns, device_id, self.ptr, predecessors
            )

    def record(self, event: Event | None = None) -> Event:
        """Record an event (default: a new one) after the work queued on this stream, and return the event."""
        refuse_in_host_function()
        event = event or Event()
        device = _get_device(self.device_id)
        device_work = device.work_queue
        device_work.check_legacy_stream(self.ptr)
        capture = device_work.find_capture(self.ptr)
        if capture is not None:
            event._set_captured_nodes(capture, capture.frontiers[device.id, self.ptr])
        else:
            event._set_recorded_position(device, self.ptr, device_work.schedule.find_queue_end(self.ptr))
            if device.clock.watch is not None:
                device.clock.watch.note_event_record(event, device_work.make_stream_ref(self.ptr))
        if device.clock.recorder is not None:
            device.clock.recorder.record_call("cudaEventRecord", device.clock.now_ns)
        return event

    def wait_event(self, event: Event) -> None:
        """Make later work on this stream wait for `event`. If the event was never recorded, the call has no
        effect.

        An event recorded in a stream that captures a graph makes this stream take part in the capture.
        """
        device_work = self._device_work
        device = _get_device(self.device_id)
        if device.clock.watch is not None and event.capture is None:
            device.clock.watch.note_event_wait(
                event, device_work.make_stream_ref(self.ptr), event.queue_position is not None
            )
        if event.capture is not None:
            if event.capture.has_ended:
                raise event._invalidate_capture(event.capture)
            device_work.join_capture(self.ptr, event.capture, event.captured_nodes)
        elif event.queue_position is not None:
            device_work.check_legacy_stream(self.ptr)
            capture = device_work.find_capture(self.ptr)
            if capture is not None:
                raise device_work.invalidate_capture(capture, 905)
            schedule = device_work.schedule
            event_position = event.queue_position
            schedule.hold_until(self.ptr, event_position.time_ns, event_position.awaited_operations)
            if schedule.clock.recorder is not None:
                device_id = _get_device(self.device_id).id
                schedule.clock.recorder.record_order(
                    device_id,
                    self.ptr,
                    event.ptr,
                    event._stream_id,
                    event_position.awaited_operations,
                    schedule.queue(self.ptr),
                )

    def launch_host_func(self, callback: Callable[[Any], object], arg: Any) -> None:
        """Call ``callback(arg)`` on the host after the work queued on this stream.

        In CUDA, the callback runs in a thread of the driver and must not call CUDA functions. A call raises
        error 800, ``cudaErrorNotPermitted``; on a GPU it can also hang.
        """

        def call_callback() -> float:
            thread = _machine.current().thread_state
            thread.in_host_function = True
            try:
                callback(arg)
            finally:
                thread.in_host_function = False
            return HOST_FUNCTION_NS

        self.enqueue("HOST_LAUNCH", "Host function", call_callback)

    def add_callback(self, callback: Callable[[Any, int, Any], object], arg: Any) -> None:
        """Call ``callback(stream, status, arg)`` after the work queued on this stream. Such callbacks are not
        supported in graphs.
        """
        self._device_work.check_not_capturing(self.ptr)
        self.launch_host_func(lambda _: callback(self, 0, arg), None)

    # Graphs

    def begin_capture(self, mode: int | None = None) -> None:
        """Start to capture the stream's work as the nodes of a graph, instead of running it.

        Parameters
        ----------
        mode : int, optional
            ``runtime.streamCaptureModeRelaxed`` by default. In the modes ``...Global`` and
            ``...ThreadLocal``, CUDA does not allow allocations and other calls during the capture, in all
            threads or in this one.

        Raises
        ------
        RuntimeError
            On the legacy default stream.
        CUDARuntimeError
            Status 401, if it is capturing already; 1 for an unknown mode.
        """
        if self.ptr in (LEGACY_QUEUE, LEGACY_ALIAS):
            raise RuntimeError("cannot capture on the default (legacy) stream")
        mode = RELAXED_MODE if mode is None else mode
        if mode not in (GLOBAL_MODE, THREAD_LOCAL_MODE, RELAXED_MODE):
            raise CUDARuntimeError(
                1, "cudaErrorInvalidValue", f"invalid argument: {mode} is not a capture mode; use 0, 1 or 2."
            )
        self._device_work.begin_capture(self.ptr, mode)

    def end_capture(self) -> Graph:
        """End the capture and return the graph. The graph contains the work of this stream and of the streams
        that joined the capture.

        Raises
        ------
        CUDARuntimeError
            Status 401 without a capture; 901 to 908 for CUDA's capture errors (904: the capture does not
            wait for a stream that joined).
        """
        capture = self._device_work.end_capture(self.ptr)
        return Graph._from_nodes(capture.nodes, _machine.current(), get_current_stream)

    def is_capturing(self) -> bool:
        """Return whether the stream takes part in the capture of a graph."""
        device_work = self._device_work
        device_work.check_legacy_stream(self.ptr, invalidates_capture=False)
        try:
            return device_work.find_capture(self.ptr) is not None
        except CUDARuntimeError as error:
            raise RuntimeError(
                "the stream was capturing, but an error has invalidated the capture sequence"
            ) from error

    def launch_graph(self, graph_id: int, nodes: Sequence[CapturedNode], upload_ns: float) -> None:
        """Run the nodes of a graph in this stream. This method implements `Graph.launch`."""
        self._device_work.launch_graph(self.ptr, graph_id, nodes, upload_ns)

    def upload_graph(self, upload_ns: float) -> None:
        """Prepare a graph for its launches. This method implements `Graph.upload`."""
        self._device_work.upload_graph(self.ptr, upload_ns)

    @property
    def _device_work(self) -> WorkQueue:
        return _get_device(self.device_id).work_queue

    @property
    def is_non_blocking(self) -> bool:
        return not self._device_work.schedule.queue(self.ptr).blocking

    @property
    def priority(self) -> int:
        """Priority of the stream, from 0 to -5. Thread blocks of kernels in streams with lower numbers start
        first.
        """
        return self._device_work.schedule.queue(self.ptr).priority


class Stream(_BaseStream):
    """A queue of operations that run in order on the device.

    Parameters
    ----------
    null : bool
        The legacy default stream, which waits for all blocking streams, as they wait for it.
    non_blocking : bool
        Do not synchronize with the legacy default stream.
    ptds : bool
        The per-thread default stream: one per thread of the host.
    priority : int, optional
        Priority from 0 (default) to -5; lower numbers are more urgent.
    """

    null: ClassVar[Stream]
    ptds: ClassVar[Stream]

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: int | None = None,
    ) -> None:
        self._owner: VirtualDevice | None = None
        self._foreign_stream: Any = None
        if null or ptds:
            super().__init__(LEGACY_QUEUE if null else PER_THREAD_QUEUE, -1)
            return
        device = _machine.current().current_device
        super().__init__(device.work_queue.schedule.create_queue(not non_blocking, priority or 0), device.id)
        self._owner = device

    def __del__(self) -> None:
        owner = getattr(self, "_owner", None)
        if owner is not None and not sys.is_finalizing():
            owner.work_queue.destroy_stream(self.ptr)

    @classmethod
    def from_external(cls, obj: Any) -> Stream:
        """Return a stream for a stream object of another library. The object must have a ``__cuda_stream__``
        method.
        """
        try:
            version, ptr = obj.__cuda_stream__()
        except AttributeError as error:
            raise TypeError(
                f"Object of type {type(obj).__name__} does not implement the CUDA stream protocol "
                "(__cuda_stream__ method)"
            ) from error
        except (TypeError, ValueError) as error:
            raise TypeError("__cuda_stream__() must return a 2-tuple of (version, stream_ptr)") from error
        if not isinstance(version, int) or not isinstance(ptr, int):
            type_names = f"({type(version).__name__}, {type(ptr).__name__})"
            raise TypeError(f"__cuda_stream__() must return (int, int), got {type_names}")
        if version != 0:
            raise TypeError(
                f"__cuda_stream__() returned unsupported version {version}, only version 0 is supported"
            )
        stream = cls.__new__(cls)
        _BaseStream.__init__(stream, ptr, -1)
        stream._owner = None
        stream._foreign_stream = obj  # kept alive as long as this stream
        return stream


class ExternalStream(_BaseStream):
    """A stream for a handle that other code has created. CuPy 14 deprecates this class in favour of
    `Stream.from_external`.
    """

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        warnings.warn(
            "ExternalStream is deprecated. Use Stream.from_external() instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(ptr, device_id)


Stream.null = Stream(null=True)
Stream.ptds = Stream(ptds=True)


def _get_current_streams() -> dict[int, _BaseStream]:
    thread = _machine.current().thread_state
    streams: dict[int, _BaseStream] = thread.__dict__.setdefault("streams", {})
    return streams


def get_current_stream(device_id: int | None = None) -> _BaseStream:
    """Return the calling thread's current stream on a device. The default device is the current one."""
    if device_id is None:
        device_id = _machine.current().current_device_id
    machine = _machine.current()
    return _get_current_streams().get(
        device_id, Stream.ptds if machine.has_per_thread_default else Stream.null
    )


def is_capturing(stream: _BaseStream | None = None, device: VirtualDevice | None = None) -> bool:
    """Return whether a stream is in capture mode, even if the capture is invalid. The default stream is the
    current one.
    """
    device = device or _machine.current().current_device
    stream = stream or get_current_stream(device.id)
    captures_by_stream = (
        device if stream.device_id < 0 else _get_device(stream.device_id)
    ).work_queue.captures
    return (
        bool(captures_by_stream)
        and stream.ptr in captures_by_stream
        and not captures_by_stream[stream.ptr].has_ended
    )


def run_deferred_work(device: VirtualDevice) -> None:
    """Run the current stream's deferred work, so that NumPy reads up-to-date values of device arrays."""
    if device.clock.deferral is not None:
        stream = get_current_stream(device.id)
        device.work_queue.run_delayed_operations(
            device.work_queue.schedule.find_queue_end(stream.ptr).awaited_operations
        )


def refuse_in_capture(
    operations: str, stream: _BaseStream | None = None, device: VirtualDevice | None = None
) -> None:
    """Raise CuPy's error for a blocking call while the stream captures a graph."""
    if is_capturing(stream, device):
        raise RuntimeError(
            f"the current stream is capturing, so {operations} are disallowed. Make this "
            "call before begin_capture() or after the graph's launch."
        )


def refuse_in_host_function() -> None:
    """Raise error 800 if a function that was passed to `launch_host_func` calls CUDA."""
    if getattr(_machine.current().thread_state, "in_host_function", False):
        raise CUDARuntimeError(
            800,
            "cudaErrorNotPermitted",
            "operation not permitted: a host function must not call CUDA. Only set a "
            "flag or store a value in it; launch, copy and wait in the program itself.",
        )


def refuse_unsafe_in_capture() -> None:
    """Raise error 900 if the capture mode of a stream forbids unsafe calls, such as allocations.

    Raises
    ------
    CUDARuntimeError
        Status 900; the capture is invalidated.
    """
    for device in _machine.current().devices:
        for capture in device.work_queue.find_active_captures() if device.work_queue.captures else ():
            is_local_capture = (
                capture.mode == THREAD_LOCAL_MODE and capture.thread_id == threading.get_ident()
            )
            if is_local_capture or capture.mode == GLOBAL_MODE:
                mode_name = "thread-local" if capture.mode == THREAD_LOCAL_MODE else "global"
                raise device.work_queue.invalidate_capture(
                    capture,
                    900,
                    "No memory can be requested from the driver during a capture in "
                    f"{mode_name} mode: allocate it before the capture, or capture in relaxed "
                    "mode.",
                )

"""The single entry point of device work: kernels, copies, memory sets and host functions of streams.

All work of a virtual device is an `Operation`. `WorkQueue.enqueue` numbers it, records the operations that it
must follow, and runs it: the operation returns its duration on the device, and the device's schedule
determines its start. A stream that captures a graph keeps the operation instead, and each launch of the graph
runs it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from virtualgpu.cuda_errors import CUDADriverError, CUDARuntimeError
from virtualgpu.model import cost
from virtualgpu.model.clock import LEGACY_ALIAS, LEGACY_QUEUE, HostClock, Schedule
from virtualgpu.model.graph import (
    CAPTURE_NODE_NS,
    INSTANTIATE_NODE_NS,
    INSTANTIATE_NS,
    RELAXED_MODE,
    Capture,
    CapturedNode,
    Operation,
    make_capture_error,
)
from virtualgpu.model.recording.watch import StreamRef
from virtualgpu.records import Activity
from virtualgpu.records.acts import Work

# Assumed duration of a delayed operation, whose real duration is unknown until it runs.
_DEFERRED_DURATION_NS = 1_000.0


class WorkQueue:
    """The streams of one device. All operations of the device are submitted through this object.

    Parameters
    ----------
    device_id : int
        Number of the device.
    clock : HostClock
        The machine's clock.
    copy_engines : int
        Copy engines of the device.
    next_operation_number : callable
        Returns the number of a new operation of the machine.

    Attributes
    ----------
    schedule : Schedule
        The times of the work, and the log of operations that ran.
    """

    def __init__(
        self,
        device_id: int,
        clock: HostClock,
        copy_engines: int,
        next_operation_number: Callable[[], int],
    ) -> None:
        self._device_id = device_id
        self._clock = clock
        self._next_operation_number = next_operation_number
        # Streams of a machine have different handles.
        self.schedule = Schedule(clock, copy_engines, 0x1000 + (device_id << 32))
        self.captures: dict[int, Capture] = {}  # by the handles of the streams that take part
        self._last_launches: dict[
            int, tuple[int, tuple[int, ...]]
        ] = {}  # last launch of each graph: end, operations

    def enqueue(self, stream_id: int, operation: Operation) -> Activity | None:
        """Submit an operation to a stream. The call takes time on the modelled host.

        Returns
        -------
        Activity or None
            Record of its run; None if the stream captures a graph, of which it is now a node.

        Raises
        ------
        CUDADriverError, CUDARuntimeError
            Status 901 or 906, if a capture forbids it.
        """
        if self.captures:
            is_driver_call = operation.kind == "CONCURRENT_KERNEL"
            self.check_legacy_stream(stream_id, is_driver_call)
            capture = self.find_capture(stream_id, is_driver_call)
            if capture is not None:
                stream_watch = self._clock.watch
                source_line = (
                    capture.program_lines.find_current_line()[0]
                    if stream_watch is None
                    else stream_watch.find_current_line()
                )
                begun_ns = self._clock.now_ns
                self._clock.advance(CAPTURE_NODE_NS)
                capture.add((self._device_id, stream_id), operation, self.schedule, source_line)
                if self._clock.recorder is not None:
                    self._clock.recorder.record_captured_call(operation.kind, begun_ns)
                return None
        operation_number = self._next_operation_number()
        schedule = self.schedule
        stream_watch = self._clock.watch
        deferral = self._clock.deferral
        if deferral is not None:
            duration_ns = _DEFERRED_DURATION_NS
        elif stream_watch is None:
            duration_ns = operation.run()
        else:
            duration_ns = stream_watch.run_operation(
                self.make_stream_ref(stream_id), operation_number, operation
            )
        with self._clock.lock:
            begun_ns = self._clock.now_ns
            self._clock.advance(cost.call_ns(operation.kind))
            queue = schedule.select_queue(stream_id)
            activity = schedule.submit(
                queue,
                operation_number,
                operation.engine,
                duration_ns,
                operation.sm_share,
                operation.waves,
                partial(operation.make_activity, self._device_id, queue, operation_number),
                operation.peer_transfers.engines,
            )
            operation.peer_transfers.report(activity)
            if self._clock.recorder is not None:
                self._clock.recorder.record_operation(activity, schedule.queue(queue), begun_ns)
        if deferral is not None:
            is_kernel = operation.kind == "CONCURRENT_KERNEL"
            deferral.delay_operation(operation_number, operation.run, activity.after, is_kernel=is_kernel)
        return activity

    def run_delayed_operations(self, numbers: Iterable[int] | None = None) -> None:
        """Run the delayed operations with the given numbers and those that they depend on. If ``numbers``
        is None, all delayed operations are run.
        """
        if self._clock.deferral is not None:
            self._clock.deferral.run_required(numbers)

    def make_stream_ref(self, stream_id: int) -> StreamRef:
        """Return the `StreamRef` (device, handle and kind) by which observers identify a stream."""
        handle = self.schedule.select_queue(stream_id)
        return StreamRef(self._device_id, handle, self.schedule.queue(handle).blocking)

    @property
    def log(self) -> Sequence[Activity]:
        """The most recently submitted operations, in the order of submission."""
        return self.schedule.log

    def destroy_stream(self, stream_id: int) -> None:
        """Remove a stream. If a capture has begun in the stream, its graph is lost."""
        capture = self.captures.pop(stream_id, None)
        if capture is not None and not capture.has_ended:
            if capture.origin_stream == (self._device_id, stream_id):
                capture.invalidate(
                    "the last reference to the capturing stream was deleted",
                    "The graph is lost: keep a reference to this stream until end_capture().",
                )
                capture.has_ended = True
            else:
                capture.remove_stream((self._device_id, stream_id))
        self.schedule.destroy_queue(stream_id)

    # Graphs

    def upload_graph(self, stream_id: int, upload_ns: float) -> None:
        """Upload a graph to the device before its launch in a stream. The call takes time on the modelled
        host.

        Raises
        ------
        CUDARuntimeError
            Status 900, if the stream captures a graph itself.
        """
        self.check_legacy_stream(stream_id)
        self.check_not_capturing(stream_id)
        begun_ns = self._clock.now_ns
        self._clock.advance(upload_ns)
        self._record_call("cudaGraphUpload", begun_ns)

    def launch_graph(
        self, stream_id: int, graph_id: int, nodes: Sequence[CapturedNode], upload_ns: float = 0.0
    ) -> None:
        """Launch a graph in a stream. Each node runs after its predecessors.

        Parameters
        ----------
        stream_id, graph_id, nodes
            The stream, and the graph with its nodes.
        upload_ns
            Additional host time of the first launch.

        Raises
        ------
        CUDARuntimeError
            Status 900, ``cudaErrorStreamCaptureUnsupported``, if the stream captures a graph itself; 1 if
            memory that an earlier launch allocated is still in use.
        """
        self.check_legacy_stream(stream_id)
        self.check_not_capturing(stream_id)
        for node in nodes:
            if node.operation.check_launch is not None:
                node.operation.check_launch()
        begun_ns = self._clock.now_ns
        self._clock.advance(upload_ns)
        self._clock.advance(cost.graph_launch_ns(len(nodes)))
        # "Each launch is ordered behind both any previous work in stream and any previous launches of
        # graphExec" (CUDA Runtime API, cudaGraphLaunch).
        last_end_ns, previous_operations = self._last_launches.get(graph_id, (0, ()))
        awaited_operations = (
            *self.schedule.find_queue_end(stream_id).awaited_operations,
            *previous_operations,
        )
        ready_ns = max(self.schedule.ready_ns(stream_id), last_end_ns) + round(cost.GRAPH_START_NS)
        activities: list[Activity] = []
        work_records: list[Work] = []
        stream_watch = self._clock.watch
        try:
            for node_id, node in enumerate(nodes):
                operation_number = self._next_operation_number()
                operation = node.operation
                if self._clock.deferral is not None:
                    duration_ns = _DEFERRED_DURATION_NS
                elif stream_watch is None:
                    duration_ns = operation.run()
                else:
                    stream_ref = StreamRef(node.device_id, node.stream_id)
                    duration_ns, work_record = stream_watch.run_node(
                        stream_ref, operation_number, operation, node.source
                    )
                    work_records.append(work_record)
                predecessors = [activities[node_index] for node_index in node.predecessors]
                node_ready_ns = ready_ns
                if predecessors:
                    node_ready_ns = max(
                        max(activity.end_ns, activity.start_ns + round(cost.GRAPH_NODE_NS))
                        for activity in predecessors
                    )
                node_start_ns, node_end_ns = node.schedule.place_operation_at(
                    node_ready_ns,
                    operation.engine,
                    duration_ns,
                    operation.sm_share,
                    operation.peer_transfers.engines,
                )
                predecessor_numbers = (
                    tuple(activity.correlation_id for activity in predecessors) or awaited_operations
                )
                activity = operation.make_activity(
                    node.device_id,
                    stream_id,
                    operation_number,
                    node_start_ns,
                    node_end_ns,
                    predecessor_numbers,
                )
                activities.append(replace(activity, graph_id=graph_id, graph_node_id=node_id))
                operation.peer_transfers.report(activities[-1])
                if self._clock.deferral is not None:
                    is_kernel = operation.kind == "CONCURRENT_KERNEL"
                    self._clock.deferral.delay_operation(
                        operation_number,
                        operation.run,
                        predecessor_numbers,
                        keeps_arrays=False,
                        is_kernel=is_kernel,
                    )
                if operation.node_kind is None:
                    node.schedule.log.append(activities[-1])
        finally:
            inner_operations = {
                operation_number for activity in activities for operation_number in activity.after
            }
            last_numbers = tuple(
                activity.correlation_id
                for activity in activities
                if activity.correlation_id not in inner_operations
            )
            end_ns = max((activity.end_ns for activity in activities), default=ready_ns)
            self.schedule.append_graph(stream_id, end_ns, last_numbers or awaited_operations)
            self._last_launches[graph_id] = end_ns, last_numbers or awaited_operations
            if stream_watch is not None:
                edges = (
                    (source_index, target_index)
                    for target_index, node in enumerate(nodes[: len(work_records)])
                    for source_index in node.predecessors
                )
                stream_watch.note_graph_launch(self.make_stream_ref(stream_id), work_records, edges, graph_id)
            if self._clock.recorder is not None:
                recorded_activities = [
                    activity
                    for activity, node in zip(activities, nodes, strict=False)
                    if node.operation.node_kind is None
                ]
                self._clock.recorder.record_graph(
                    recorded_activities, self.schedule.queue(stream_id), begun_ns
                )

    def begin_capture(self, stream_id: int, mode: int = RELAXED_MODE) -> None:
        """Begin a capture. The following operations of the stream become the nodes of a graph.

        Raises
        ------
        CUDARuntimeError
            Status 401, ``cudaErrorIllegalState``, if the stream captures already.
        """
        capture = self.captures.get(stream_id)
        if capture is not None and not capture.has_ended:
            raise CUDARuntimeError(
                401,
                "cudaErrorIllegalState",
                "the operation cannot be performed in the present state: the stream is "
                "already capturing. Call end_capture() first.",
            )
        stream = (self._device_id, stream_id)
        self.captures[stream_id] = Capture(stream, mode, frontiers={stream: ()})
        self._record_call("cudaStreamBeginCapture")

    def end_capture(self, stream_id: int) -> Capture:
        """End a capture, and return the graph.

        Raises
        ------
        CUDARuntimeError
            Status 401 if the stream does not capture, 901 if an error has invalidated the graph, 903 for a
            stream that only joined, 904 if the capture did not wait for one that joined, 908 in another
            thread.
        """
        capture = self.captures.get(stream_id)
        if capture is None:
            raise CUDARuntimeError(
                401,
                "cudaErrorIllegalState",
                "the operation cannot be performed in the present state: the stream is "
                "not capturing. Call begin_capture() first.",
            )
        if capture.origin_stream != (self._device_id, stream_id):
            raise self.invalidate_capture(capture, 903)
        capture.has_ended = True
        begun_ns = self._clock.now_ns
        if not capture.is_invalidated:
            self._clock.advance(INSTANTIATE_NS + len(capture.nodes) * INSTANTIATE_NODE_NS)
        self._record_call("cudaStreamEndCapture", begun_ns)
        if capture.mode != RELAXED_MODE and capture.thread_id != threading.get_ident():
            raise make_capture_error(908)
        if capture.is_invalidated:
            raise capture.make_invalidated_error()
        if capture.has_unjoined_work():
            raise make_capture_error(904)
        return capture

    def find_capture(self, stream_id: int, is_driver_call: bool = False) -> Capture | None:
        """Return the capture in which a stream takes part, or None.

        Raises
        ------
        CUDADriverError, CUDARuntimeError
            Status 901, if an error has invalidated it.
        """
        capture = self.captures.get(stream_id)
        if capture is None:
            return None
        if capture.has_ended:
            del self.captures[stream_id]
            return None
        if capture.is_invalidated:
            raise capture.make_invalidated_error(is_driver_call)
        return capture

    def join_capture(self, stream_id: int, capture: Capture, predecessors: tuple[int, ...]) -> None:
        """Make a stream wait for nodes of a graph that is being captured. The stream then takes part in the
        capture.

        Raises
        ------
        CUDARuntimeError
            Status 902 if it takes part in another one, 906 for the legacy default stream.
        """
        if stream_id in (LEGACY_QUEUE, LEGACY_ALIAS):
            raise self.invalidate_capture(capture, 906)
        own_capture = self.find_capture(stream_id)
        if own_capture is not None and own_capture is not capture:
            own_capture.invalidate()
            raise self.invalidate_capture(capture, 902)
        if capture.is_invalidated:
            raise capture.make_invalidated_error()
        self.captures[stream_id] = capture
        capture.join((self._device_id, stream_id), predecessors)

    @staticmethod
    def invalidate_capture(
        capture: Capture, status: int, remedy: str = ""
    ) -> CUDARuntimeError | CUDADriverError:
        """Invalidate a capture, and return the CUDA error with the given status."""
        capture.invalidate()
        return make_capture_error(status, remedy=remedy)

    def find_active_captures(self) -> list[Capture]:
        """Return the captures in which streams of this device take part."""
        for stream_id in [handle for handle, capture in self.captures.items() if capture.has_ended]:
            del self.captures[stream_id]
        return list(dict.fromkeys(self.captures.values()))

    def check_not_capturing(self, stream_id: int) -> None:
        """Raise CUDA error 900 or 901 if a stream takes part in a capture."""
        capture = self.find_capture(stream_id)
        if capture is not None:
            raise self.invalidate_capture(capture, 900)

    def synchronize(self) -> None:
        """Let the host wait for all operations of the device.

        Raises
        ------
        CUDARuntimeError
            Status 900, ``cudaErrorStreamCaptureUnsupported``, while a stream of it captures a graph.
        """
        captures = self.find_active_captures()
        for capture in captures:
            capture.invalidate()
        if captures:
            raise make_capture_error(900)
        begun_ns = self._clock.now_ns
        self.run_delayed_operations()
        self.schedule.synchronize()
        if self._clock.watch is not None:
            self._clock.watch.note_host_wait("device", self.make_stream_ref(0))
        if self._clock.recorder is not None:
            self._clock.recorder.record_wait(
                "CONTEXT_SYNCHRONIZE", "cudaDeviceSynchronize", begun_ns, self._device_id, None
            )

    def _record_call(self, call: str, begun_ns: int | None = None) -> None:
        """Record a call on the open timeline, from `begun_ns` (by default now) until now."""
        if self._clock.recorder is not None:
            self._clock.recorder.record_call(call, self._clock.now_ns if begun_ns is None else begun_ns)

    def check_legacy_stream(
        self, stream_id: int, is_driver_call: bool = False, invalidates_capture: bool = True
    ) -> None:
        """Raise CUDA error 906 for an operation in the legacy default stream while a blocking stream is
        captured.
        """
        if stream_id not in (LEGACY_QUEUE, LEGACY_ALIAS) or not self.captures:
            return
        for capture in self.find_active_captures():
            if any(
                device == self._device_id and self.schedule.queue(handle).blocking
                for device, handle in capture.frontiers
            ):
                if invalidates_capture:
                    capture.invalidate()
                raise make_capture_error(906, is_driver_call)

"""Execution of a schedule on several GPUs: copies of slices in streams, ordered by events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

from virtualgpu.records.traffic.collective import Move, Operation, is_right, make_input_arrays
from virtualgpu.records.traffic.schedules import merge_adjacent_moves

# A slice is so large that its copy outlasts what its launches cost the host, and no chunk has more of them.
SLICE_BYTES = 8 << 20
MAX_SLICES = 2
# A GPU; its array (-1), or which of the boxes beside it; a chunk; and which slice of that.
ChunkSlice = tuple[int, int, int, int]
OWN_ARRAY = -1
_COPY_BY_ADDRESS = 4  # cudaMemcpyDefault


class ScheduleRun:
    """One integer array on each of several GPUs. All arrays have the same size and are divided into chunks at
    the element indices in `chunk_bounds`.

    Each GPU has one stream for sending and one for adding. Data that is to be added arrives in a receive
    buffer. Events order the operations, and the host does not wait before `wait` is called.
    """

    def __init__(self, cp: Any, gpu_count: int, chunk_bounds: Sequence[int]) -> None:
        self.cp = cp
        self.gpu_count = gpu_count
        self.chunk_bounds = chunk_bounds
        runtime = cp.cuda.runtime
        self.direct_pairs = find_reachable_pairs(runtime, gpu_count)
        self.input_arrays = make_input_arrays(gpu_count, chunk_bounds[-1])
        self.slice_count = find_slice_count(chunk_bounds)
        self._arrays: dict[tuple[int, int], Any] = {}
        self._streams = []
        for rank, own_array in enumerate(self.input_arrays):
            with cp.cuda.Device(rank):
                for peer in range(gpu_count):
                    if (rank, peer) in self.direct_pairs:
                        with suppress(runtime.CUDARuntimeError):  # it was before; else copies go by the host
                            runtime.deviceEnablePeerAccess(peer)
                self._arrays[rank, OWN_ARRAY] = array = cp.asarray(own_array)
                cp.add(array, array)  # compiled before anything is timed
                self._streams.append([cp.cuda.Stream(non_blocking=True) for _ in ("sends", "adds")])
        self.wait()

    def wait(self) -> None:
        """Wait for all work on the GPUs of this run."""
        for rank in range(self.gpu_count):
            self.cp.cuda.Device(rank).synchronize()
        self.discard_events()

    def discard_events(self) -> None:
        """Discard the recorded events, so that later operations do not wait for earlier work."""
        # Streams with their events: of the last that wrote a place, and of all that have read it since.
        self._write_events: dict[ChunkSlice, tuple[Any, Any]] = {}
        self._read_events: defaultdict[ChunkSlice, list[tuple[Any, Any]]] = defaultdict(list)

    def restore_arrays(self) -> None:
        """Restore the initial arrays of all GPUs."""
        for rank, array in enumerate(self.input_arrays):
            with self.cp.cuda.Device(rank):
                self._find_array(rank).set(array)
        self.wait()

    def check_results(self, operation: Operation) -> tuple[bool, ...]:
        """Return whether the result of each GPU is correct."""
        return tuple(
            is_right(operation, rank, self._find_array(rank).get(), self.chunk_bounds, self.input_arrays)
            for rank in range(self.gpu_count)
        )

    def capture_graph(self, steps: Sequence[Sequence[Move]], slice_count: int = 1) -> Callable[[], int]:
        """Capture all steps of a schedule as one CUDA graph that uses all GPUs.

        Returns
        -------
        callable
            Launches the graph once, waits for it and returns its time in ns between two events of GPU 0.
            The host submits everything at once, so this time includes no host work per message.
        """
        cp = self.cp
        capture_stream = self._streams[0][0]
        side_streams = [
            (rank, stream) for rank, stream_pair in enumerate(self._streams) for stream in stream_pair
        ]
        side_streams.remove((0, capture_stream))
        self.discard_events()
        with cp.cuda.Device(0):
            capture_stream.begin_capture()
            try:
                begin_event = capture_stream.record(cp.cuda.Event(disable_timing=True))
                for _, stream in side_streams:
                    stream.wait_event(begin_event)
                for step in steps:
                    self.submit_step(step, slice_count)
                for rank, stream in side_streams:
                    with cp.cuda.Device(rank):
                        capture_stream.wait_event(stream.record(cp.cuda.Event(disable_timing=True)))
            finally:
                graph = capture_stream.end_capture()
                self.discard_events()

        def launch() -> int:
            with cp.cuda.Device(0):
                begin_event = cp.cuda.Event()
                end_event = cp.cuda.Event()
                capture_stream.record(begin_event)
                graph.launch(capture_stream)
                capture_stream.record(end_event)
                capture_stream.synchronize()
            return int(1e6 * cp.cuda.get_elapsed_time(begin_event, end_event))

        return launch

    def submit_step(self, moves: Sequence[Move], slice_count: int = 1) -> None:
        """Submit the transfers of one step. A chunk that is sent in this step is not overwritten before it
        has been sent.

        With several slices, a slice can be sent on as soon as it has been added, while the next slice
        arrives.
        """
        sent_chunks = {(move.source, move.chunk) for move in moves}
        messages_to_send = (
            merge_adjacent_moves(moves) if slice_count == 1 else [(move, move.chunk + 1) for move in moves]
        )
        for slice_index in range(slice_count):
            used_buffers: defaultdict[tuple[int, int], int] = defaultdict(int)
            add_operations = []
            for move, end_chunk in messages_to_send:
                chunks = range(move.chunk, end_chunk)
                start_element = self.chunk_bounds[move.chunk]
                element_count = self.chunk_bounds[end_chunk] - self.chunk_bounds[move.chunk]
                element_slice = slice(
                    start_element + slice_index * element_count // slice_count,
                    start_element + (slice_index + 1) * element_count // slice_count,
                )
                target_chunks = [(move.target, chunk) for chunk in chunks]
                buffer_index = max(used_buffers[add_operation] for add_operation in target_chunks)
                if not move.add and sent_chunks.isdisjoint(target_chunks):
                    buffer_index = OWN_ARRAY  # straight into its place
                used_buffers.update(dict.fromkeys(target_chunks, buffer_index + 1))
                source_slices, target_slices, own_slices = (
                    [(gpu, array_index, chunk, slice_index) for chunk in chunks]
                    for gpu, array_index in (
                        (move.source, OWN_ARRAY),
                        (move.target, buffer_index),
                        (move.target, OWN_ARRAY),
                    )
                )
                self._submit(
                    move.source,
                    0,
                    source_slices,
                    target_slices,
                    partial(self._copy, move, element_slice, buffer_index),
                )
                if buffer_index != OWN_ARRAY:
                    add_operations.append(
                        (
                            move.target,
                            1,
                            target_slices,
                            own_slices,
                            partial(self._add_or_copy, move, element_slice, buffer_index),
                        )
                    )
            for add_operation in add_operations:
                self._submit(*add_operation)

    def _submit(
        self,
        gpu: int,
        stream_index: int,
        reads: list[ChunkSlice],
        writes: list[ChunkSlice],
        submit_work: Callable[[Any], None],
    ) -> None:
        """Submit work to a stream of a GPU, after all operations on which it depends."""
        stream = self._streams[gpu][stream_index]
        predecessors = [
            self._write_events[chunk_slice]
            for chunk_slice in (*reads, *writes)
            if chunk_slice in self._write_events
        ]
        predecessors += [
            read_event for chunk_slice in writes for read_event in self._read_events.pop(chunk_slice, ())
        ]
        with self.cp.cuda.Device(gpu), stream:
            for other_stream, event in predecessors:
                if other_stream is not stream:
                    stream.wait_event(event)
            submit_work(stream)
            event = self.cp.cuda.Event(disable_timing=True)
            event.record(stream)
        for chunk_slice in reads:
            self._read_events[chunk_slice].append((stream, event))
        self._write_events.update(dict.fromkeys(writes, (stream, event)))

    def _copy(self, move: Move, element_slice: slice, buffer_index: int, stream: Any) -> None:
        source_slice = self._find_array(move.source)[element_slice]
        target_slice = self._find_array(move.target, buffer_index)[element_slice]
        runtime = self.cp.cuda.runtime
        if (
            move.source,
            move.target,
        ) in self.direct_pairs:  # the addresses tell which GPUs, and a graph can have it
            runtime.memcpyAsync(
                target_slice.data.ptr,
                source_slice.data.ptr,
                source_slice.nbytes,
                _COPY_BY_ADDRESS,
                stream.ptr,
            )
        else:
            runtime.memcpyPeerAsync(
                target_slice.data.ptr,
                move.target,
                source_slice.data.ptr,
                move.source,
                source_slice.nbytes,
                stream.ptr,
            )

    def _add_or_copy(self, move: Move, element_slice: slice, buffer_index: int, _: Any) -> None:
        target_slice = self._find_array(move.target)[element_slice]
        received_slice = self._find_array(move.target, buffer_index)[element_slice]
        if move.add:
            self.cp.add(target_slice, received_slice, out=target_slice)
        else:
            target_slice[...] = received_slice

    def _find_array(self, gpu: int, buffer_index: int = OWN_ARRAY) -> Any:
        """Return the array of a GPU or one of its receive buffers, which is allocated at first use."""
        if (gpu, buffer_index) not in self._arrays:
            with self.cp.cuda.Device(gpu):
                self._arrays[gpu, buffer_index] = self.cp.empty_like(self._arrays[gpu, OWN_ARRAY])
        return self._arrays[gpu, buffer_index]


def find_slice_count(chunk_bounds: Sequence[int]) -> int:
    """Return the number of slices per chunk. The number depends on the size of the largest chunk."""
    return min(MAX_SLICES, max(1, 4 * max(b - a for a, b in pairwise(chunk_bounds)) // SLICE_BYTES))


def find_reachable_pairs(runtime: Any, gpu_count: int) -> set[tuple[int, int]]:
    """Return all pairs (a, b) of GPUs for which GPU a can access the memory of GPU b."""
    return {
        (a, b)
        for a in range(gpu_count)
        for b in range(gpu_count)
        if a != b and runtime.deviceCanAccessPeer(a, b)
    }

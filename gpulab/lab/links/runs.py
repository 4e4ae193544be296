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
MOST_SLICES = 2
# A GPU; its array (-1), or which of the boxes beside it; a chunk; and which slice of that.
Place = tuple[int, int, int, int]
ARRAY = -1
_BY_ADDRESS = 4  # cudaMemcpyDefault


class Run:
    """One integer array on each of several GPUs. All arrays have the same size and are divided into chunks at
    the element indices in `bounds`.

    Each GPU has one stream for sending and one for adding. Data that is to be added arrives in a receive
    buffer. Events order the operations, and the host does not wait before `wait` is called.
    """

    def __init__(self, cp: Any, gpus: int, bounds: Sequence[int]) -> None:
        self.cp = cp
        self.gpus = gpus
        self.bounds = bounds
        runtime = cp.cuda.runtime
        self.joined = reachable(runtime, gpus)
        self.brought = make_input_arrays(gpus, bounds[-1])
        self.slices = slices_of(bounds)
        self._arrays: dict[tuple[int, int], Any] = {}
        self._streams = []
        for rank, own_array in enumerate(self.brought):
            with cp.cuda.Device(rank):
                for peer in range(gpus):
                    if (rank, peer) in self.joined:
                        with suppress(runtime.CUDARuntimeError):  # it was before; else copies go by the host
                            runtime.deviceEnablePeerAccess(peer)
                self._arrays[rank, ARRAY] = array = cp.asarray(own_array)
                cp.add(array, array)  # compiled before anything is timed
                self._streams.append([cp.cuda.Stream(non_blocking=True) for _ in ("sends", "adds")])
        self.wait()

    def wait(self) -> None:
        """Wait for all work on the GPUs of this run."""
        for rank in range(self.gpus):
            self.cp.cuda.Device(rank).synchronize()
        self.forget()

    def forget(self) -> None:
        """Discard the recorded events, so that later operations do not wait for earlier work."""
        # Streams with their events: of the last that wrote a place, and of all that have read it since.
        self._write_events: dict[Place, tuple[Any, Any]] = {}
        self._read_events: defaultdict[Place, list[tuple[Any, Any]]] = defaultdict(list)

    def begin_again(self) -> None:
        """Restore the initial arrays of all GPUs."""
        for rank, array in enumerate(self.brought):
            with self.cp.cuda.Device(rank):
                self._array(rank).set(array)
        self.wait()

    def right(self, operation: Operation) -> tuple[bool, ...]:
        """Return whether the result of each GPU is correct."""
        return tuple(
            is_right(operation, rank, self._array(rank).get(), self.bounds, self.brought)
            for rank in range(self.gpus)
        )

    def as_graph(self, steps: Sequence[Sequence[Move]], slices: int = 1) -> Callable[[], int]:
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
        self.forget()
        with cp.cuda.Device(0):
            capture_stream.begin_capture()
            try:
                begin_event = capture_stream.record(cp.cuda.Event(disable_timing=True))
                for _, stream in side_streams:
                    stream.wait_event(begin_event)
                for step in steps:
                    self.give(step, slices)
                for rank, stream in side_streams:
                    with cp.cuda.Device(rank):
                        capture_stream.wait_event(stream.record(cp.cuda.Event(disable_timing=True)))
            finally:
                graph = capture_stream.end_capture()
                self.forget()

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

    def give(self, moves: Sequence[Move], slices: int = 1) -> None:
        """Submit the transfers of one step. A chunk that is sent in this step is not overwritten before it
        has been sent.

        With several slices, a slice can be sent on as soon as it has been added, while the next slice
        arrives.
        """
        sent_chunks = {(move.source, move.chunk) for move in moves}
        messages_to_send = (
            merge_adjacent_moves(moves) if slices == 1 else [(move, move.chunk + 1) for move in moves]
        )
        for slice_index in range(slices):
            used_boxes: defaultdict[tuple[int, int], int] = defaultdict(int)
            arrivals = []
            for move, end_chunk in messages_to_send:
                chunks = range(move.chunk, end_chunk)
                start_element = self.bounds[move.chunk]
                size = self.bounds[end_chunk] - self.bounds[move.chunk]
                element_slice = slice(
                    start_element + slice_index * size // slices,
                    start_element + (slice_index + 1) * size // slices,
                )
                target_chunks = [(move.target, chunk) for chunk in chunks]
                box = max(used_boxes[arrival] for arrival in target_chunks)
                if not move.add and sent_chunks.isdisjoint(target_chunks):
                    box = ARRAY  # straight into its place
                used_boxes.update(dict.fromkeys(target_chunks, box + 1))
                source_array, target_array, own_array = (
                    [(gpu, array_index, chunk, slice_index) for chunk in chunks]
                    for gpu, array_index in ((move.source, ARRAY), (move.target, box), (move.target, ARRAY))
                )
                self._submit(
                    move.source, 0, source_array, target_array, partial(self._copy, move, element_slice, box)
                )
                if box != ARRAY:
                    arrivals.append(
                        (
                            move.target,
                            1,
                            target_array,
                            own_array,
                            partial(self._add_or_copy, move, element_slice, box),
                        )
                    )
            for arrival in arrivals:
                self._submit(*arrival)

    def _submit(
        self,
        gpu: int,
        array_index: int,
        reads: list[Place],
        writes: list[Place],
        submit_work: Callable[[Any], None],
    ) -> None:
        """Submit work to a stream of a GPU, after all operations on which it depends."""
        stream = self._streams[gpu][array_index]
        predecessors = [
            self._write_events[chunk] for chunk in (*reads, *writes) if chunk in self._write_events
        ]
        predecessors += [read_event for chunk in writes for read_event in self._read_events.pop(chunk, ())]
        with self.cp.cuda.Device(gpu), stream:
            for other_stream, event in predecessors:
                if other_stream is not stream:
                    stream.wait_event(event)
            submit_work(stream)
            event = self.cp.cuda.Event(disable_timing=True)
            event.record(stream)
        for chunk in reads:
            self._read_events[chunk].append((stream, event))
        self._write_events.update(dict.fromkeys(writes, (stream, event)))

    def _copy(self, move: Move, element_slice: slice, box: int, stream: Any) -> None:
        source_slice = self._array(move.source)[element_slice]
        target_slice = self._array(move.target, box)[element_slice]
        runtime = self.cp.cuda.runtime
        if (
            move.source,
            move.target,
        ) in self.joined:  # the addresses tell which GPUs, and a graph can have it
            runtime.memcpyAsync(
                target_slice.data.ptr, source_slice.data.ptr, source_slice.nbytes, _BY_ADDRESS, stream.ptr
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

    def _add_or_copy(self, move: Move, element_slice: slice, box: int, _: Any) -> None:
        target_slice = self._array(move.target)[element_slice]
        received = self._array(move.target, box)[element_slice]
        if move.add:
            self.cp.add(target_slice, received, out=target_slice)
        else:
            target_slice[...] = received

    def _array(self, gpu: int, box: int = ARRAY) -> Any:
        """Return the array of a GPU or one of its receive buffers, which is allocated at first use."""
        if (gpu, box) not in self._arrays:
            with self.cp.cuda.Device(gpu):
                self._arrays[gpu, box] = self.cp.empty_like(self._arrays[gpu, ARRAY])
        return self._arrays[gpu, box]


def slices_of(bounds: Sequence[int]) -> int:
    """Return the number of slices per chunk. The number depends on the size of the largest chunk."""
    return min(MOST_SLICES, max(1, 4 * max(b - a for a, b in pairwise(bounds)) // SLICE_BYTES))


def reachable(runtime: Any, gpus: int) -> set[tuple[int, int]]:
    """Return all pairs (a, b) of GPUs for which GPU a can access the memory of GPU b."""
    return {(a, b) for a in range(gpus) for b in range(gpus) if a != b and runtime.deviceCanAccessPeer(a, b)}

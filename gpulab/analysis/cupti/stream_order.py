"""Order of the operations of a real GPU, from the sequence of calls on streams and events."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpulab.analysis.order import Chain, Clock, Moment, Order
from virtualgpu.records.acts import EventRecord, EventWait, GraphLaunch, NewStream, Work

# Context and number of a stream in CUPTI's records.
StreamKey = tuple[int, int]
_LEGACY_HANDLE = 0


class StreamOrder:
    """A record of the order of operations, which determines the predecessors of each operation. Its methods
    must be called in the order of the program's calls.

    Parameters
    ----------
    legacy_streams
        The legacy default streams.
    non_blocking_streams
        Streams to which the rule of the default stream does not apply.
    """

    def __init__(
        self, legacy_streams: Collection[StreamKey], non_blocking_streams: Collection[StreamKey]
    ) -> None:
        self._order = Order()
        self._legacy_streams = legacy_streams
        for context, stream in non_blocking_streams:
            self._order.register_stream(NewStream(context, stream, blocking=False))
        self._operation_at_tick: dict[tuple[Chain, int], tuple[int, Clock]] = {}
        self._newest_operation: tuple[StreamKey | None, int] = None, 0
        self._recorded_events: dict[int, tuple[StreamKey, tuple[int, ...]]] = {}

    def add_operation(self, stream: StreamKey, number: int) -> tuple[int, ...]:
        """Add an operation to a stream, and return the numbers of its predecessors. These operations must end
        before the new operation starts.
        """
        # An operation right after another one of the same stream follows only that one.
        predecessors = (
            (self._newest_operation[1],)
            if self._newest_operation[0] == stream
            else self.find_frontier(stream)
        )
        self._store_moment(self._order.add_work(self._make_work(stream, number)), number)
        self._newest_operation = stream, number
        return predecessors

    def add_graph(
        self, stream: StreamKey, node_spans: Sequence[tuple[int, int, int]]
    ) -> dict[int, tuple[int, ...]]:
        """Add a graph launch to a stream. Return the predecessors of each graph node, as observed in the
        recording.

        Parameters
        ----------
        stream
            The stream in which it is launched.
        node_spans
            Number, start and end of each node, by their starts.
        """
        self._newest_operation = None, 0
        predecessors = find_node_predecessors(node_spans, self.find_frontier(stream))
        index_of_node = {node_number: index for index, (node_number, _, _) in enumerate(node_spans)}
        nodes = tuple(self._make_work(stream, node_number) for node_number, _, _ in node_spans)
        graph_edges = tuple(
            (index_of_node[predecessor], index)
            for node_number, index in index_of_node.items()
            for predecessor in predecessors[node_number]
            if predecessor in index_of_node
        )
        moments = self._order.add_graph(GraphLaunch(*self._make_stream_key(stream), nodes, graph_edges))
        for (node_number, _, _), moment in zip(node_spans, moments, strict=True):
            self._store_moment(moment, node_number)
        return predecessors

    def record_event(self, stream: StreamKey, sync_id: int) -> None:
        """Record an event in a stream of the program."""
        self._newest_operation = None, 0
        self._recorded_events[sync_id] = stream, self.find_frontier(stream)
        self._order.record_event(EventRecord(sync_id, *self._make_stream_key(stream)))

    def add_event_wait(self, stream: StreamKey, sync_id: int) -> tuple[StreamKey | None, tuple[int, ...]]:
        """Make a stream wait for an event. Return the stream in which the event was recorded, and the
        operations before the event.
        """
        self._newest_operation = None, 0
        self._order.add_event_wait(EventWait(sync_id, *self._make_stream_key(stream)))
        return self._recorded_events.get(sync_id, (None, ()))

    def find_frontier(self, stream: StreamKey) -> tuple[int, ...]:
        """Return the operations that directly precede the next operation of a stream."""
        next_clock = self._order.peek_next_clock(self._make_stream_key(stream))
        ended_operations = [
            (*self._operation_at_tick[chain_and_tick], chain_and_tick)
            for chain_and_tick in next_clock.items()
            if chain_and_tick in self._operation_at_tick
        ]
        return tuple(
            sorted(
                operation_number
                for operation_number, _, (chain, tick) in ended_operations
                if not any(
                    other_clock.get(chain, 0) >= tick
                    for other_number, other_clock, _ in ended_operations
                    if other_number != operation_number
                )
            )
        )

    def _make_stream_key(self, stream: StreamKey) -> StreamKey:
        return (stream[0], _LEGACY_HANDLE) if stream in self._legacy_streams else stream

    def _make_work(self, stream: StreamKey, operation_number: int) -> Work:
        device, handle = self._make_stream_key(stream)
        return Work(number=operation_number, name="", device_id=device, stream_id=handle)

    def _store_moment(self, moment: Moment, operation_number: int) -> None:
        self._operation_at_tick[moment.chain, moment.tick] = operation_number, moment.clock


def find_node_predecessors(
    node_spans: Sequence[tuple[int, int, int]], launch_predecessors: tuple[int, ...]
) -> dict[int, tuple[int, ...]]:
    """Estimate the predecessor of each graph node. The estimate is the node that ended last before the given
    node began.

    CUPTI does not report a graph's edges.

    Parameters
    ----------
    node_spans
        Number, start and end of each node, by their starts.
    launch_predecessors
        The operations that the graph's launch had to follow.
    """
    predecessors: dict[int, tuple[int, ...]] = {}
    spans_by_end = sorted(node_spans, key=lambda span: span[2])
    last_ended_index = -1
    for node_number, start_ns, _ in node_spans:
        while (
            last_ended_index + 1 < len(spans_by_end)
            and spans_by_end[last_ended_index + 1][2] <= start_ns
            and spans_by_end[last_ended_index + 1][0] != node_number
        ):
            last_ended_index += 1
        predecessors[node_number] = (
            launch_predecessors if last_ended_index < 0 else (spans_by_end[last_ended_index][0],)
        )
    return predecessors

"""Order of operations in streams, in graphs and on the host, computed with vector clocks.

Every stream is a chain of operations in a fixed order, and so is the host; a graph's branches are chains of
the stream that launches it. A clock contains for each chain how many of its operations are known to have
ended (C. Fidge, "Timestamps in message-passing systems that preserve the partial ordering", 1988). The rules
of order follow the CUDA C++ Programming Guide: "Streams", "Events", "Default Stream", "Peer-to-Peer Memory
Copy".
Threads of the host count as one, in the order in which they called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from virtualgpu.records import SourceLine
from virtualgpu.records.acts import LEGACY, EventRecord, EventWait, GraphLaunch, HostWait, NewStream, Work

Chain = Hashable
Clock = dict[Chain, int]
StreamKey = tuple[int, int]  # device, handle

HOST_CHAIN: Chain = "host"
# The host waits for a copy right after it was issued, so only this many operations are kept by number.
_MAX_NUMBERS = 256
# Number of waits that are kept for each stream, to explain findings.
_MAX_WAITS = 64


def join_clocks(target: Clock, source: Clock) -> None:
    """Merge the vector clock `source` into the vector clock `target`. Each value of the target becomes the
    maximum of the two values.
    """
    for chain, tick in source.items():
        if target.get(chain, 0) < tick:
            target[chain] = tick


@dataclass(slots=True)
class Moment:
    """The position of an operation in the order that streams and synchronisation enforce. It consists of the
    operation's chain (such as its stream), its number in the chain, and the clock of its predecessors.
    """

    chain: Chain
    tick: int
    clock: Clock

    def is_before(self, clock: Clock) -> bool:
        """Return whether this operation has certainly ended before an operation with the given clock."""
        return clock.get(self.chain, 0) >= self.tick


@dataclass(slots=True)
class Wait:
    """A wait for an event or a stream, which is stored in order to explain hazards.

    The attribute ``stream`` is the stream in which the event was recorded, or None if the event was not
    recorded. ``act_index`` and ``record_index`` are the positions of the wait and the recording among the
    acts.
    """

    act_index: int
    source: SourceLine | None
    stream: StreamKey | None
    record_index: int = 0
    record_source: SourceLine | None = None


@dataclass(slots=True)
class _Stream:
    key: StreamKey
    is_blocking: bool = True
    clock: Clock = field(default_factory=dict)
    waits: deque[Wait] = field(default_factory=lambda: deque(maxlen=_MAX_WAITS))

    @property
    def is_legacy(self) -> bool:
        return self.key[1] in LEGACY


@dataclass(slots=True)
class _Event:
    clock: Clock
    stream: StreamKey
    act_index: int
    source: SourceLine | None


class Order:
    """The vector clocks of a program's streams and of the host. Each action of the program updates them.

    Attributes
    ----------
    host_clock : dict
        Clock of the operations that the host knows to have ended.
    act_index : int
        Number of acts so far.
    waits_of_host : deque of Wait
        The events and streams that the host waited for.
    """

    def __init__(self) -> None:
        self.host_clock: Clock = {}
        self.act_index = 0
        self.waits_of_host: deque[Wait] = deque(maxlen=_MAX_WAITS)
        self._streams: dict[StreamKey, _Stream] = {}
        self._events: dict[int, _Event] = {}
        self._clock_of_operation: dict[int, Clock] = {}
        self._graph_clocks: dict[int, Clock] = {}  # by graph, the clock after its last launch

    def register_stream(self, act: NewStream) -> None:
        """Register a new stream, and record whether it synchronises with the legacy default stream."""
        self._find_stream((act.device_id, act.stream_id)).is_blocking = act.blocking

    def waits(self, key: StreamKey) -> Iterable[Wait]:
        """Return the recent waits of a stream, with the latest wait first."""
        return reversed(self._find_stream(key).waits)

    def peek_next_clock(self, key: StreamKey) -> Clock:
        """Return the vector clock that the next operation of a stream would have. This method does not add an
        operation.
        """
        return self._next_clock(self._find_stream(key))

    def add_work(self, act: Work, devices: Iterable[int] = ()) -> Moment:
        """Add an operation to a stream. For a peer copy, `devices` contains the two devices."""
        stream = self._find_stream((act.device_id, act.stream_id))
        clock = self._next_clock(stream)
        # In the legacy default stream, a peer copy waits for both devices, and they for it.
        legacy_streams = [self._find_stream((device, 0)) for device in devices if stream.is_legacy]
        for legacy_stream in legacy_streams:
            join_clocks(clock, self._next_clock(legacy_stream))
        moment = self._add_tick(stream.key, clock)
        stream.clock = clock
        for legacy_stream in legacy_streams:
            legacy_stream.clock = dict(legacy_stream.clock)  # a copy, because operations refer to the old one
            join_clocks(legacy_stream.clock, clock)
        self._store_clock(act.number, clock)
        return moment

    def order_after(self, key: StreamKey, clock: Clock) -> None:
        """Record that the next operation of a stream must run after all operations in a vector clock."""
        stream = self._find_stream(key)
        stream.clock = self._next_clock(stream)
        join_clocks(stream.clock, clock)

    def add_host_use(self) -> Moment:
        """Add an operation of the host to the order."""
        tick_moment = self._add_tick(HOST_CHAIN, self.host_clock)
        return Moment(tick_moment.chain, tick_moment.tick, dict(self.host_clock))

    def add_graph(self, act: GraphLaunch) -> list[Moment]:
        """Add the nodes of a graph that is launched in a stream to the order."""
        stream = self._find_stream((act.device_id, act.stream_id))
        start_clock = self._next_clock(stream)
        join_clocks(start_clock, self._graph_clocks.get(act.graph_id, {}))
        predecessors: dict[int, list[int]] = {}
        for source_index, target_index in act.edges:
            predecessors.setdefault(target_index, []).append(source_index)
        moments: list[Moment] = []
        end_clock = dict(start_clock)
        branch_count = 0
        for node_index in range(len(act.nodes)):
            predecessor_moments = [moments[source_index] for source_index in predecessors.get(node_index, ())]
            clock = dict(start_clock)
            for moment in predecessor_moments:
                join_clocks(clock, moment.clock)
            chain: Chain = None
            if not predecessor_moments and not moments:
                chain = stream.key
            for moment in predecessor_moments:
                # A node can continue the chain of its predecessor if that is still the last of the chain.
                if chain is None and end_clock.get(moment.chain) == moment.tick:
                    chain = moment.chain
            if chain is None:
                chain = (stream.key, branch_count)
                branch_count = branch_count + 1
            moments.append(self._add_tick(chain, clock))
            join_clocks(end_clock, clock)
            self._store_clock(act.nodes[node_index].number, clock)
        stream.clock = end_clock
        if act.graph_id:
            # "Each launch is ordered behind any previous launches of graphExec" (CUDA Runtime API).
            self._graph_clocks[act.graph_id] = end_clock
        return moments

    def record_event(self, act: EventRecord) -> None:
        """Record an event in a stream of the program."""
        stream = self._find_stream((act.device_id, act.stream_id))
        stream.clock = self._next_clock(stream)
        self._events[act.event_id] = _Event(dict(stream.clock), stream.key, self.act_index, act.source)

    def add_event_wait(self, act: EventWait) -> None:
        """Record that a stream waits for an event, and therefore for all operations before the event."""
        stream = self._find_stream((act.device_id, act.stream_id))
        event = self._events.get(act.event_id)
        if event is None:
            stream.waits.append(Wait(self.act_index, act.source, None))
            return
        stream.clock = self._next_clock(stream)
        join_clocks(stream.clock, event.clock)
        stream.waits.append(Wait(self.act_index, act.source, event.stream, event.act_index, event.source))

    def add_host_wait(self, act: HostWait) -> None:
        """Record that operations have ended, because the host waited for them or queried their status."""
        if act.scope == "device":
            for stream_key, stream in self._streams.items():
                if stream_key[0] == act.device_id:
                    join_clocks(self.host_clock, stream.clock)
        elif act.scope == "stream":
            stream = self._find_stream((act.device_id, act.stream_id))
            join_clocks(self.host_clock, self._next_clock(stream) if stream.is_legacy else stream.clock)
            self.waits_of_host.appendleft(Wait(self.act_index, act.source, stream.key, self.act_index))
        elif act.scope == "event":
            event = self._events.get(act.event_id)
            if event is None:
                self.waits_of_host.appendleft(Wait(self.act_index, act.source, None))
            else:
                join_clocks(self.host_clock, event.clock)
                wait = Wait(self.act_index, act.source, event.stream, event.act_index, event.source)
                self.waits_of_host.appendleft(wait)
        else:
            join_clocks(self.host_clock, self._clock_of_operation.get(act.number, {}))

    def _find_stream(self, stream_key: StreamKey) -> _Stream:
        stream_key = (stream_key[0], LEGACY[0]) if stream_key[1] in LEGACY else stream_key
        stream = self._streams.get(stream_key)
        if stream is None:
            stream = self._streams[stream_key] = _Stream(stream_key)
        return stream

    def _next_clock(self, stream: _Stream) -> Clock:
        """Return the clock of all operations before the next operation of a stream."""
        clock = dict(stream.clock)
        join_clocks(clock, self.host_clock)
        if stream.is_legacy:
            for other_stream in self._streams.values():
                if other_stream.is_blocking and other_stream.key[0] == stream.key[0]:
                    join_clocks(clock, other_stream.clock)
        elif stream.is_blocking:
            legacy_stream = self._streams.get((stream.key[0], LEGACY[0]))
            if legacy_stream is not None:
                join_clocks(clock, legacy_stream.clock)
        return clock

    @staticmethod
    def _add_tick(chain: Chain, clock: Clock) -> Moment:
        clock[chain] = tick = clock.get(chain, 0) + 1
        return Moment(chain, tick, clock)

    def _store_clock(self, operation_number: int, clock: Clock) -> None:
        self._clock_of_operation[operation_number] = clock
        while len(self._clock_of_operation) > _MAX_NUMBERS:
            del self._clock_of_operation[next(iter(self._clock_of_operation))]

"""Hazards between streams: uses of the same bytes that nothing orders, of which one at least writes.

`find` judges a whole program, `StreamChecker` act by act. The order comes from vector clocks
(`gpulab.analysis.order`); of every place, the uses are kept that a later operation may still clash with: not
those that the host knows to have ended, nor those behind which a later use of the same bytes comes. That is
how race detectors for threads work (C. Flanagan, S. Freund, "FastTrack", 2009), over ranges of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpulab.analysis import explain
from gpulab.analysis.order import Clock, Moment, Order, StreamKey
from gpulab.analysis.uses import Block, Blocks, Places, Use, covers, overlap
from virtualgpu.records import (
    Provenance,
    SourceLine,
    StreamHazard,
    StreamHazardKind,
    StreamReport,
)
from virtualgpu.records.acts import (
    HOST,
    LEGACY,
    PER_THREAD,
    Act,
    Allocation,
    EventRecord,
    EventWait,
    GraphLaunch,
    GraphMade,
    HostUse,
    HostWait,
    NewStream,
    Region,
    Release,
    Work,
)

# A program that repeats itself has few pairs of lines; one that does not is cut here.
MAX_FINDINGS = 1_000
_KEPT_RELEASES = 20_000
# Of two operations that clash in several ways, the finding tells the one that shows most.
_WEAKER: dict[StreamHazardKind, tuple[StreamHazardKind, ...]] = {
    "read after write": ("write after write", "write after read"),
    "write after write": ("write after read",),
}


class StreamChecker:
    """Takes the acts of a program in their order, and keeps what it finds.

    Parameters
    ----------
    names : dict, optional
        What the program calls its streams, by device and handle; may grow meanwhile. Streams that are
        announced with a name need not be in it.

    Attributes
    ----------
    operations : int
        Operations seen, a graph's nodes at each launch.
    more : bool
        Whether there were more findings than `MAX_FINDINGS`.
    """

    def __init__(self, names: dict[StreamKey, str] | None = None) -> None:
        self.names = {} if names is None else names
        self.operations = 0
        self.more = False
        self._order = Order()
        self._places: dict[int, Places[Use]] = {}
        self._released: list[Block] = []
        self._freed: dict[int, Blocks] = {}  # by memory: blocks that nobody has
        self._taken: dict[int, Blocks] = {}  # by memory: blocks given out while the check was on
        self._made: dict[int, int] = {}  # graphs, and when they were complete
        self._found: dict[tuple[object, ...], StreamHazard] = {}
        self._pairs: dict[tuple[object, ...], tuple[int, int]] = {}
        self._streams: dict[StreamKey, None] = {}
        self._unnamed = 0

    def see(self, act: Act) -> None:
        """Take the next act."""
        order = self._order
        order.at += 1
        match act:
            case Work():
                self._work(act)
            case HostWait():
                order.host_wait(act)
            case EventRecord():
                order.record(act)
            case EventWait():
                order.wait(act)
            case Allocation():
                self._take(act)
            case Release():
                self._release(act)
            case GraphLaunch():
                self._graph(act)
            case GraphMade():
                self._made[act.graph_id] = order.at
            case HostUse():
                moment = order.host_use()
                self._use(act.reads, act.writes, moment, act.name, None, act.source)
            case NewStream():
                order.announce(act)
                if act.name:
                    self.names[act.device_id, act.stream_id] = act.name

    def report(self, provenance: Provenance, left_out: str = "") -> StreamReport:
        """What was found so far, in the order of the program."""
        if self.more:
            left_out = f"Only the first {MAX_FINDINGS:,} pairs of lines are listed. {left_out}".strip()
        streams = tuple(explain.stream_words(key, self.names) for key in self._streams)
        return StreamReport(provenance, tuple(self._found.values()), self.operations, streams, left_out)

    def _work(self, act: Work) -> None:
        self.operations += 1
        key = self._seen(act.device_id, act.stream_id)
        devices: set[int] = set()
        if act.is_peer_copy:
            devices = {region.memory for region in (*act.reads, *act.writes)} - {HOST}
        moment = self._order.work(act, devices)
        self._use(act.reads, act.writes, moment, act.name, key, act.source, act.atomics)

    def _graph(self, act: GraphLaunch) -> None:
        key = self._seen(act.device_id, act.stream_id)
        self.operations += len(act.nodes)
        launch = self._order.at
        made = self._made.get(act.graph_id, 0)
        for node, moment in zip(act.nodes, self._order.graph(act), strict=True):
            inner = self._seen(node.device_id, node.stream_id)
            source = node.source or act.source
            touched = node.reads, node.writes, moment, node.name
            self._use(*touched, key, source, node.atomics, launch, inner, made)

    def _seen(self, device_id: int, stream_id: int) -> StreamKey:
        key = self._key(device_id, stream_id)
        self._streams[key] = None
        if stream_id not in (*LEGACY, PER_THREAD) and key not in self.names:
            self._unnamed += 1
            self.names[key] = f"stream {self._unnamed}"
        return key

    def _use(
        self,
        reads: Iterable[Region],
        writes: Iterable[Region],
        moment: Moment,
        name: str,
        stream: StreamKey | None,
        source: SourceLine | None,
        atomics: Iterable[Region] = (),
        launch: int = 0,
        inner: StreamKey | None = None,
        made: int | None = None,
    ) -> None:
        touched = [(region, False, False) for region in reads]
        touched += [(region, True, False) for region in writes]
        touched += [(region, True, True) for region in atomics]
        for region, write, atomic in touched:
            use = Use(region, write, moment, self._order.at, name, stream, source, launch, inner, atomic)
            if stream is not None and (self._freed or launch):
                self._check_freed(use, made)
            self._meet(use)

    def _meet(self, new: Use) -> None:
        """Compare a use with those before it, and keep it for those after it."""
        region = new.region
        clock = new.moment.clock
        known = self._places.get(region.memory)
        if known is None:
            known = self._places[region.memory] = Places()
        start = region.start
        end = region.end
        host = self._order.host
        for members in known.meeting(region):
            kept: list[Use] = []
            for old in members:
                if old.moment.before(host) and old.moment is not new.moment:
                    continue  # whatever comes now comes after it
                if old.region.start < end and start < old.region.end:
                    if not old.moment.before(clock):
                        if new.clashes(old) and overlap(old.region, region):
                            self._clash(old, new)
                    elif new.hides(old) and old.at < new.at and covers(region, old.region):
                        continue  # whoever does not come after it does not come after the new one
                kept.append(old)
            members[:] = kept
        known.add(region, new)

    def _clash(self, old: Use, new: Use) -> None:
        released = self._between(old, new)
        if released is not None:
            self._drop_release(old, released)
            kind: StreamHazardKind = "reused too early"
        elif new.stream is None:
            kind = "host changed too early" if new.writes else "host read too early"
        elif new.writes:
            kind = "write after write" if old.writes else "write after read"
        else:
            kind = "read after write"
        self._add(kind, old, new, released.source if released else None)

    def _add(self, kind: StreamHazardKind, old: Use, new: Use, freed: SourceLine | None = None) -> None:
        release = kind == "freed too early"
        key = (old.source or old.name, new.source or new.name, release)
        pair = (old.at, new.at)
        known = self._found.get(key)
        if known is not None and self._pairs[key] != pair:
            self._pairs[key] = pair
            self._found[key] = replace(known, count=known.count + 1)
            return
        if known is not None and known.kind not in _WEAKER.get(kind, ()):
            return
        if len(self._found) >= MAX_FINDINGS:
            self.more = True
            return
        self._pairs[key] = pair
        count = 1 if known is None else known.count
        self._found[key] = explain.hazard(kind, old, new, freed, self._order, self.names, count)

    # Memory that comes and goes

    def _release(self, act: Release) -> None:
        region = act.region
        at = self._order.at
        stream = None if act.stream_id is None else self._key(act.device_id, act.stream_id)
        clock: Clock = dict(self._order.host) if stream is None else self._order.next_in(stream)
        freed = Block(region, at, act.source, clock, act.is_private)
        known = self._places.get(region.memory)
        moment = Moment(None, 0, clock)
        new = Use(region, True, moment, at, "free", stream, act.source)
        for members in known.meeting(region) if known is not None else ():
            for old in members:
                if not old.moment.before(clock) and overlap(old.region, region):
                    self._add("freed too early", old, new)
        self._released.append(freed)
        if len(self._released) > _KEPT_RELEASES:
            del self._released[: _KEPT_RELEASES // 2]
        if region.memory != HOST:  # of the host's memory, nobody tells when it is given out again
            self._freed.setdefault(region.memory, Blocks()).put(freed)

    def _take(self, act: Allocation) -> None:
        """A block is in use again: its bytes are not free any more."""
        memory = act.region.memory
        for freed in self._freed[memory].take(act.region) if memory in self._freed else ():
            if act.stream_id is not None:
                self._order.follow(self._key(act.device_id, act.stream_id), freed.clock)
        self._taken.setdefault(memory, Blocks()).put(Block(act.region, self._order.at, act.source))

    def _check_freed(self, use: Use, made: int | None) -> None:
        """Whether a use is of memory that nobody has; of a graph that was complete at `made`, also of memory
        that has gone to others since."""
        memory = use.region.memory
        found = self._freed[memory].meeting(use.region) if memory in self._freed else []
        if made is not None:
            found = [block for block in found if not block.is_private]
            if not found and memory in self._taken:
                found = [block for block in self._taken[memory].meeting(use.region) if block.at > made]
        for block in found:
            host = Use(block.region, True, Moment(None, 0, {}), block.at, "free", None, block.source)
            self._add("used after it was freed", host, use)

    def _between(self, old: Use, new: Use) -> Block | None:
        """Where the memory was given back between two uses of it."""
        for freed in reversed(self._released):
            if freed.at < old.at:
                return None
            if freed.at < new.at and overlap(freed.region, old.region) and overlap(freed.region, new.region):
                return freed
        return None

    def _drop_release(self, old: Use, released: Block) -> None:
        """One mistake is one finding: that memory was used again says more than that it was freed."""
        key = (old.source or old.name, released.source or "free", True)
        self._found.pop(key, None)
        self._pairs.pop(key, None)

    @staticmethod
    def _key(device_id: int, stream_id: int) -> StreamKey:
        return device_id, LEGACY[0] if stream_id in LEGACY else stream_id


def find(
    acts: Iterable[Act], provenance: Provenance, names: dict[StreamKey, str] | None = None
) -> StreamReport:
    """The hazards of a program.

    Parameters
    ----------
    acts : iterable of Act
        What it did, in order (`virtualgpu.records.acts`).
    provenance : Provenance
        Which device it ran on.
    names : dict, optional
        What it calls its streams, by device and handle.

    Returns
    -------
    StreamReport
        One finding for each pair of lines, counted.

    Examples
    --------
    >>> x = Region(0, 0x1000, 4096, array="x")
    >>> acts = [Work(1, "fill", 0, 0x10, writes=(x,)), Work(2, "copy", 0, 0x20, reads=(x,))]
    >>> report = find(acts, provenance)
    >>> report.findings[0].kind
    'read after write'
    """
    checker = StreamChecker(names)
    for act in acts:
        checker.see(act)
    return checker.report(provenance)

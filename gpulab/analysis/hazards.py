"""Hazards between streams: unordered uses of the same bytes, of which at least one is a write.

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

# Limit on pairs of lines; a program with loops has few pairs.
MAX_FINDINGS = 1_000
_KEPT_RELEASES = 20_000
# If two operations clash in several ways, the finding reports the most informative one.
_WEAKER: dict[StreamHazardKind, tuple[StreamHazardKind, ...]] = {
    "read after write": ("write after write", "write after read"),
    "write after write": ("write after read",),
}


class StreamChecker:
    """Processes the acts of a program in their order, and keeps the hazards.

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
        self._freed: dict[int, Blocks] = {}  # by memory: blocks that are free
        self._taken: dict[int, Blocks] = {}  # by memory: blocks allocated during the check
        self._made: dict[int, int] = {}  # graphs, and when they were complete
        self._found: dict[tuple[object, ...], StreamHazard] = {}
        self._pairs: dict[tuple[object, ...], tuple[int, int]] = {}
        self._streams: dict[StreamKey, None] = {}
        self._unnamed = 0

    def see(self, act: Act) -> None:
        """Process the next act."""
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
        """Return the hazards so far, in the order of the program."""
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
        """Compare a use with earlier uses, and keep it for later ones."""
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
                    continue  # all later uses are ordered after it
                if old.region.start < end and start < old.region.end:
                    if not old.moment.before(clock):
                        if new.clashes(old) and overlap(old.region, region):
                            self._clash(old, new)
                    elif new.hides(old) and old.at < new.at and covers(region, old.region):
                        continue  # a use that is not ordered after `old` is not ordered after `new` either
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

    # Allocations and frees

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
        if region.memory != HOST:  # a new allocation of host memory is not reported
            self._freed.setdefault(region.memory, Blocks()).put(freed)

    def _take(self, act: Allocation) -> None:
        """Mark a block as in use again, so that its bytes are no longer free."""
        memory = act.region.memory
        for freed in self._freed[memory].take(act.region) if memory in self._freed else ():
            if act.stream_id is not None:
                self._order.follow(self._key(act.device_id, act.stream_id), freed.clock)
        self._taken.setdefault(memory, Blocks()).put(Block(act.region, self._order.at, act.source))

    def _check_freed(self, use: Use, made: int | None) -> None:
        """Add a finding if a use accesses memory that has been freed.

        A graph that was complete at `made` must not access memory that was allocated again since, either.
        """
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
        """Return the free of the memory between two uses of it, or None."""
        for freed in reversed(self._released):
            if freed.at < old.at:
                return None
            if freed.at < new.at and overlap(freed.region, old.region) and overlap(freed.region, new.region):
                return freed
        return None

    def _drop_release(self, old: Use, released: Block) -> None:
        """Remove the finding of a free, since the finding of the memory's next use replaces it."""
        key = (old.source or old.name, released.source or "free", True)
        self._found.pop(key, None)
        self._pairs.pop(key, None)

    @staticmethod
    def _key(device_id: int, stream_id: int) -> StreamKey:
        return device_id, LEGACY[0] if stream_id in LEGACY else stream_id


def find(
    acts: Iterable[Act], provenance: Provenance, names: dict[StreamKey, str] | None = None
) -> StreamReport:
    """Return the hazards of a program.

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

"""Hazards between streams: unordered uses of the same bytes, of which at least one is a write.

`find_stream_hazards` checks a whole program, and `StreamChecker` checks it act by act (see
`virtualgpu.records.acts`). The order comes from vector clocks (`gpulab.analysis.order`). For every memory
region, only the uses are kept that can still conflict with a later operation. Uses that the host knows to
have ended are dropped, and so are uses whose bytes a later use covers. Race detectors for threads work in the
same way (C. Flanagan, S. Freund, "FastTrack", 2009); here they work on ranges of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpulab.analysis import explain
from gpulab.analysis.order import Clock, Moment, Order, StreamKey
from gpulab.analysis.uses import Block, Blocks, RegionMap, Use, region_covers, regions_overlap
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
_MAX_RELEASES = 20_000
# If two operations clash in several ways, the finding reports the most informative one.
_LESS_INFORMATIVE: dict[StreamHazardKind, tuple[StreamHazardKind, ...]] = {
    "read after write": ("write after write", "write after read"),
    "write after write": ("write after read",),
}


class StreamChecker:
    """A checker that processes the actions of a program one by one, and collects the hazards between streams.

    Parameters
    ----------
    stream_names : dict, optional
        The program's names of its streams, by device and handle. The caller can add names at any time.
        Streams that are announced with a name need not be in it.

    Attributes
    ----------
    operation_count : int
        Number of operations so far; the nodes of a graph count at each launch.
    is_truncated : bool
        Whether there were more findings than `MAX_FINDINGS`.
    """

    def __init__(self, stream_names: dict[StreamKey, str] | None = None) -> None:
        self.stream_names = {} if stream_names is None else stream_names
        self.operation_count = 0
        self.is_truncated = False
        self._order = Order()
        self._uses_of_memory: dict[int, RegionMap[Use]] = {}
        self._releases: list[Block] = []
        self._free_blocks: dict[int, Blocks] = {}  # by memory: blocks that are free
        self._allocated_blocks: dict[int, Blocks] = {}  # by memory: blocks allocated during the check
        self._completion_index_of_graph: dict[
            int, int
        ] = {}  # by graph, the index of the act that completed it
        self._findings: dict[tuple[object, ...], StreamHazard] = {}
        self._use_pairs: dict[tuple[object, ...], tuple[int, int]] = {}
        self._streams: dict[StreamKey, None] = {}
        self._unnamed_streams = 0

    def handle_act(self, act: Act) -> None:
        """Process the next action of the program."""
        order = self._order
        order.act_index += 1
        match act:
            case Work():
                self._handle_work(act)
            case HostWait():
                order.add_host_wait(act)
            case EventRecord():
                order.record_event(act)
            case EventWait():
                order.add_event_wait(act)
            case Allocation():
                self._handle_allocation(act)
            case Release():
                self._handle_release(act)
            case GraphLaunch():
                self._handle_graph(act)
            case GraphMade():
                self._completion_index_of_graph[act.graph_id] = order.act_index
            case HostUse():
                moment = order.add_host_use()
                self._add_uses(act.reads, act.writes, moment, act.name, None, act.source)
            case NewStream():
                order.register_stream(act)
                if act.name:
                    self.stream_names[act.device_id, act.stream_id] = act.name

    def report(self, provenance: Provenance, left_out: str = "") -> StreamReport:
        """Return the hazards found so far, in the order of the program."""
        if self.is_truncated:
            left_out = f"Only the first {MAX_FINDINGS:,} pairs of lines are listed. {left_out}".strip()
        stream_texts = tuple(
            explain.describe_stream(stream_key, self.stream_names) for stream_key in self._streams
        )
        return StreamReport(
            provenance, tuple(self._findings.values()), self.operation_count, stream_texts, left_out
        )

    def _handle_work(self, act: Work) -> None:
        self.operation_count += 1
        stream_key = self._register_stream(act.device_id, act.stream_id)
        devices: set[int] = set()
        if act.is_peer_copy:
            devices = {region.memory for region in (*act.reads, *act.writes)} - {HOST}
        moment = self._order.add_work(act, devices)
        self._add_uses(act.reads, act.writes, moment, act.name, stream_key, act.source, act.atomics)

    def _handle_graph(self, act: GraphLaunch) -> None:
        stream_key = self._register_stream(act.device_id, act.stream_id)
        self.operation_count += len(act.nodes)
        launch_index = self._order.act_index
        completion_index = self._completion_index_of_graph.get(act.graph_id, 0)
        for node, moment in zip(act.nodes, self._order.add_graph(act), strict=True):
            capture_stream = self._register_stream(node.device_id, node.stream_id)
            source_line = node.source or act.source
            use_args = node.reads, node.writes, moment, node.name
            self._add_uses(
                *use_args,
                stream_key,
                source_line,
                node.atomics,
                launch_index,
                capture_stream,
                completion_index,
            )

    def _register_stream(self, device_id: int, stream_id: int) -> StreamKey:
        """Add a stream to the streams of the report, with a name, and return its key."""
        key = self._make_stream_key(device_id, stream_id)
        self._streams[key] = None
        if stream_id not in (*LEGACY, PER_THREAD) and key not in self.stream_names:
            self._unnamed_streams += 1
            self.stream_names[key] = f"stream {self._unnamed_streams}"
        return key

    def _add_uses(
        self,
        reads: Iterable[Region],
        writes: Iterable[Region],
        moment: Moment,
        name: str,
        stream: StreamKey | None,
        source: SourceLine | None,
        atomics: Iterable[Region] = (),
        launch_index: int = 0,
        capture_stream: StreamKey | None = None,
        completion_index: int | None = None,
    ) -> None:
        accesses = [(region, False, False) for region in reads]
        accesses += [(region, True, False) for region in writes]
        accesses += [(region, True, True) for region in atomics]
        for region, writes_region, is_atomic in accesses:
            use = Use(
                region,
                writes_region,
                moment,
                self._order.act_index,
                name,
                stream,
                source,
                launch_index,
                capture_stream,
                is_atomic,
            )
            if stream is not None and (self._free_blocks or launch_index):
                self._check_freed_memory(use, completion_index)
            self._compare_uses(use)

    def _compare_uses(self, later_use: Use) -> None:
        """Compare a use of memory with earlier uses, and keep it for comparison with later uses."""
        region = later_use.region
        clock = later_use.moment.clock
        earlier_uses = self._uses_of_memory.get(region.memory)
        if earlier_uses is None:
            earlier_uses = self._uses_of_memory[region.memory] = RegionMap()
        region_start = region.start
        region_end = region.end
        host_clock = self._order.host_clock
        for uses in earlier_uses.find_overlapping(region):
            remaining_uses: list[Use] = []
            for earlier_use in uses:
                if earlier_use.moment.is_before(host_clock) and earlier_use.moment is not later_use.moment:
                    continue  # all later uses are ordered after it
                if earlier_use.region.start < region_end and region_start < earlier_use.region.end:
                    if not earlier_use.moment.is_before(clock):
                        if later_use.conflicts_with(earlier_use) and regions_overlap(
                            earlier_use.region, region
                        ):
                            self._report_conflict(earlier_use, later_use)
                    elif (
                        later_use.makes_redundant(earlier_use)
                        and earlier_use.act_index < later_use.act_index
                        and region_covers(region, earlier_use.region)
                    ):
                        continue  # a use that does not follow the earlier use does not follow this one
                remaining_uses.append(earlier_use)
            uses[:] = remaining_uses
        earlier_uses.add_item(region, later_use)

    def _report_conflict(self, earlier_use: Use, later_use: Use) -> None:
        release = self._find_release_between(earlier_use, later_use)
        if release is not None:
            self._withdraw_release(earlier_use, release)
            hazard_kind: StreamHazardKind = "reused too early"
        elif later_use.stream is None:
            hazard_kind = "host changed too early" if later_use.is_write else "host read too early"
        elif later_use.is_write:
            hazard_kind = "write after write" if earlier_use.is_write else "write after read"
        else:
            hazard_kind = "read after write"
        self._add_finding(hazard_kind, earlier_use, later_use, release.source if release else None)

    def _add_finding(
        self,
        hazard_kind: StreamHazardKind,
        earlier_use: Use,
        later_use: Use,
        free_source: SourceLine | None = None,
    ) -> None:
        is_release = hazard_kind == "freed too early"
        finding_key = (earlier_use.source or earlier_use.name, later_use.source or later_use.name, is_release)
        use_pair = (earlier_use.act_index, later_use.act_index)
        known_finding = self._findings.get(finding_key)
        if known_finding is not None and self._use_pairs[finding_key] != use_pair:
            self._use_pairs[finding_key] = use_pair
            self._findings[finding_key] = replace(known_finding, count=known_finding.count + 1)
            return
        if known_finding is not None and known_finding.kind not in _LESS_INFORMATIVE.get(hazard_kind, ()):
            return
        if len(self._findings) >= MAX_FINDINGS:
            self.is_truncated = True
            return
        self._use_pairs[finding_key] = use_pair
        finding_count = 1 if known_finding is None else known_finding.count
        self._findings[finding_key] = explain.explain_hazard(
            hazard_kind, earlier_use, later_use, free_source, self._order, self.stream_names, finding_count
        )

    # Allocations and frees

    def _handle_release(self, act: Release) -> None:
        region = act.region
        act_index = self._order.act_index
        stream = None if act.stream_id is None else self._make_stream_key(act.device_id, act.stream_id)
        clock: Clock = dict(self._order.host_clock) if stream is None else self._order.peek_next_clock(stream)
        block = Block(region, act_index, act.source, clock, act.is_private)
        earlier_uses = self._uses_of_memory.get(region.memory)
        moment = Moment(None, 0, clock)
        free_use = Use(region, True, moment, act_index, "free", stream, act.source)
        for uses in earlier_uses.find_overlapping(region) if earlier_uses is not None else ():
            for earlier_use in uses:
                if not earlier_use.moment.is_before(clock) and regions_overlap(earlier_use.region, region):
                    self._add_finding("freed too early", earlier_use, free_use)
        self._releases.append(block)
        if len(self._releases) > _MAX_RELEASES:
            del self._releases[: _MAX_RELEASES // 2]
        if region.memory != HOST:  # a new allocation of host memory is not reported
            self._free_blocks.setdefault(region.memory, Blocks()).add_block(block)

    def _handle_allocation(self, act: Allocation) -> None:
        """Record that a block is in use again, so that its bytes no longer count as freed."""
        memory_number = act.region.memory
        for free_block in (
            self._free_blocks[memory_number].remove_overlapping(act.region)
            if memory_number in self._free_blocks
            else ()
        ):
            if act.stream_id is not None:
                self._order.order_after(self._make_stream_key(act.device_id, act.stream_id), free_block.clock)
        self._allocated_blocks.setdefault(memory_number, Blocks()).add_block(
            Block(act.region, self._order.act_index, act.source)
        )

    def _check_freed_memory(self, use: Use, completion_index: int | None) -> None:
        """Add a hazard if a use accesses memory that has been freed.

        A graph that was complete at `completion_index` must also not access memory that was allocated
        later.
        """
        memory_number = use.region.memory
        blocks = (
            self._free_blocks[memory_number].find_overlapping(use.region)
            if memory_number in self._free_blocks
            else []
        )
        if completion_index is not None:
            blocks = [block for block in blocks if not block.is_private]
            if not blocks and memory_number in self._allocated_blocks:
                blocks = [
                    block
                    for block in self._allocated_blocks[memory_number].find_overlapping(use.region)
                    if block.act_index > completion_index
                ]
        for block in blocks:
            free_use = Use(
                block.region, True, Moment(None, 0, {}), block.act_index, "free", None, block.source
            )
            self._add_finding("used after it was freed", free_use, use)

    def _find_release_between(self, earlier_use: Use, later_use: Use) -> Block | None:
        """Return the release of the memory between two uses, or None."""
        for release in reversed(self._releases):
            if release.act_index < earlier_use.act_index:
                return None
            if (
                release.act_index < later_use.act_index
                and regions_overlap(release.region, earlier_use.region)
                and regions_overlap(release.region, later_use.region)
            ):
                return release
        return None

    def _withdraw_release(self, earlier_use: Use, release: Block) -> None:
        """Remove the hazard that was reported for a release of memory. A hazard of the next use of this
        memory replaces it.
        """
        finding_key = (earlier_use.source or earlier_use.name, release.source or "free", True)
        self._findings.pop(finding_key, None)
        self._use_pairs.pop(finding_key, None)

    @staticmethod
    def _make_stream_key(device_id: int, stream_id: int) -> StreamKey:
        return device_id, LEGACY[0] if stream_id in LEGACY else stream_id


def find_stream_hazards(
    acts: Iterable[Act], provenance: Provenance, names: dict[StreamKey, str] | None = None
) -> StreamReport:
    """Find the hazards between the streams of a program.

    Parameters
    ----------
    acts : iterable of Act
        The program's acts, in order (`virtualgpu.records.acts`).
    provenance : Provenance
        The device on which it ran.
    names : dict, optional
        The program's names of its streams, by device and handle.

    Returns
    -------
    StreamReport
        One finding for each pair of lines, with the number of occurrences.

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
        checker.handle_act(act)
    return checker.report(provenance)

"""What a launch's time would be without each thing that costs it: the same model, priced again.

Each remedy is a change of what a launch does (`KernelWork`) or of how it is laid on the device; the gain that
is told of it is the ratio of two modelled times, never a threshold of a counter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from virtualgpu.model.cost import kernels
from virtualgpu.model.cost.host import GRAPH_NODE_NS, launch_overhead_ns
from virtualgpu.model.cost.instructions import PIPES, pipe_clk
from virtualgpu.model.cost.kernels import KernelWork
from virtualgpu.model.cost.pace import LATENCIES
from virtualgpu.model.cost.rates import clock_ghz
from virtualgpu.model.placement import place_blocks
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE, AccessCounters, DeviceInfo, Occupancy
from virtualgpu.records.launch.causes import Cause, CauseKind, LaunchCosts

OVERLAPPED = 4.0  # independent pieces of work that a thread is given where it waits
# bytes of a bank, and the most that a lane reads at once
WORD = 4
WORDS = 16
SHARED_CLK = 22.0
IN_TILES = 0.9  # of reads of a tile, what registers do not save
STRIDED = 2.0  # sectors over those that would do, from which on an access is uncoalesced before all else
TILE = 16.0  # how often a tile in shared memory saves a read
DIVISION_ISSUED = 21.0  # machine instructions of an integer division
USUAL_THREADS = 256  # of a block
LEAST_WORK = 30.0  # instructions of a warp that is worth a thread block's start
UNEVEN = 1.5  # longest block over the mean
# What weighs less where a flaw of the kernel itself gains as much: graphs, and a last wave that is not full.
ELSEWHERE = 1.3
ROUNDED = 1.15
# of a local access: instructions, ...
ADDRESSED = 3.0
KEPT_INDEXED = 0.7
REGISTER_ROUNDS = 3.0
# Functions of which there are intrinsics, and the share of their instructions that these save.
_ACCURATE = re.compile(r"\b(?:pow|exp|exp2|exp10|log|log2|log10|sin|cos|tan|sincos)f?\s*\(")
INTRINSIC_SAVES = 0.7
LEAST_GAIN = 1.02  # below it nothing is told
GENERIC = ("in flight", "latency")  # what is left to say of a kernel when nothing particular is


@dataclass(frozen=True)
class Priced:
    """A launch as it is laid on a device, with the stages of its time.

    ``own`` and ``shared`` are those of its blocks (`kernels.own_ns`, `kernels.shared_ns`).
    """

    info: DeviceInfo
    work: KernelWork
    per_sm: int
    block_threads: int
    waits: float = 1.0  # share of what a block needs alone that is left
    even: bool = False  # all slots work till the end
    split: float = 1.0  # pieces that each block is cut into, on as many SMs as there are
    joined: float = 1.0  # blocks that are made one

    @cached_property
    def own_ns(self) -> npt.NDArray[np.float64]:
        own = kernels.own_ns(self.info, self.work)
        return kernels.BLOCK_FLOOR_NS + (own - kernels.BLOCK_FLOOR_NS) * self.waits / self.split

    @cached_property
    def durations_ns(self) -> npt.NDArray[np.float64]:
        steady = kernels.steadiness(self.info, self.work, self.per_sm)
        sm, chip = kernels.shared_ns(self.info, self.work, self.per_sm)
        busy = min(max(self.work.blocks, 1), self.info.sm_count)
        spread = min(self.split, self.info.sm_count / busy)
        return kernels.overlapped_ns(self.own_ns, np.maximum(sm / spread, chip), steady)

    @cached_property
    def time_ns(self) -> float:
        """Of the kernel on the device."""
        start_ns = kernels.kernel_start_ns(self.work)
        dispatch_ns = kernels.dispatch_ns(self.info, round(self.block_threads * self.joined)) / self.joined
        if self.even:
            slots = min(self.info.sm_count * self.per_sm, max(self.work.blocks, 1))
            work_ns = float(self.durations_ns.sum()) / slots
            return start_ns + max(work_ns, dispatch_ns * self.work.blocks)
        _, _, end = place_blocks(self.durations_ns, self.info.sm_count, self.per_sm, dispatch_ns)
        return start_ns + float(end.max(initial=0.0))


def costs(info: DeviceInfo, work: KernelWork, occupancy: Occupancy, code: str = "") -> LaunchCosts:
    """The stages of a launch's time, and what each cause of it costs, the most profitable remedy first.

    `code` is the source that lines refer to.
    """
    now = Priced(info, work, max(occupancy.blocks_per_sm, 1), math.prod(work.counters.block))
    counters = work.counters
    found = _Search(now, occupancy, code).found()
    return LaunchCosts(
        provenance=info.as_virtual,
        kernel_name=counters.kernel_name,
        grid=counters.grid,
        block=counters.block,
        shared_bytes=counters.shared_bytes,
        sm_count=info.sm_count,
        time_ns=now.time_ns,
        host_ns=launch_overhead_ns(info),
        occupancy=occupancy,
        stages=_stages(now),
        causes=tuple(sorted(found, key=lambda cause: -cause.remaining)),
    )


def _stages(now: Priced) -> dict[str, float]:
    info = now.info
    work = now.work
    share = clock_ghz(info) * info.sm_count
    busy = {name: clk / share for name, clk in kernels.sm_clk(info, work).items()}
    slots = min(now.info.sm_count * now.per_sm, max(work.blocks, 1))
    latency = float(now.own_ns.sum()) / slots
    return {"start": kernels.kernel_start_ns(work), "latency": latency, **busy, **kernels.chip_ns(info, work)}


Change = Callable[[Priced], Priced]


@dataclass(frozen=True)
class _Search:
    """Looks for what costs one launch time."""

    now: Priced
    occupancy: Occupancy
    code: str = ""

    def found(self) -> list[Cause]:
        candidates = [
            *self._uncoalesced(),
            *self._rereading(),
            *self._conflicts(),
            *self._atomics(),
            *self._spills(),
            *self._divergence(),
            *self._slow_pipes(),
            *self._occupancy(),
            *self._grid(),
            *self._tail(),
            *self._waits(),
            *self._narrow(),
        ]
        told = [(cause, change) for cause, change in candidates if cause.gain >= LEAST_GAIN]
        particular = [
            change for cause, change in told if cause.kind not in GENERIC or cause.detail == "narrow"
        ]
        mended = self.now
        for change in particular:
            mended = change(mended)
        causes = []
        for cause, change in told:
            remaining = cause.gain
            if cause.kind in GENERIC and cause.detail != "narrow":
                remaining = min(remaining, mended.time_ns / change(mended).time_ns)
            if cause.kind == "tail" and cause.figures["longest"] < UNEVEN:
                remaining /= ROUNDED
            causes.append(replace(cause, remaining=remaining))
        return [*causes, *self._launch()]

    def _cause(
        self,
        kind: CauseKind,
        change: Change,
        sites: Sequence[AccessCounters] = (),
        detail: str = "",
        line: int = 0,
        **figures: float,
    ) -> tuple[Cause, Change]:
        at = max(sites, key=lambda a: (a.sectors + a.wavefronts, a.requests), default=None)
        return Cause(
            kind=kind,
            before_ns=self.now.time_ns,
            after_ns=change(self.now).time_ns,
            detail=detail,
            line=at.line if at else line,
            column=at.column if at else 0,
            text=at.text if at else "",
            figures=figures,
        ), change

    # --- memory -------------------------------------------------------------------------------------
    def _uncoalesced(self) -> list[tuple[Cause, Change]]:
        sites = [
            a for a in self.now.work.of("load", "store") if a.space != "local" and a.sectors > a.ideal_sectors
        ]
        if not sites:
            return []
        pcs = {a.pc for a in sites}
        loads = [a for a in sites if a.kind == "load"]
        missed = sum(a.missed_sectors for a in loads)
        ideal = sum(a.ideal_sectors for a in loads)
        kept = min(1.0, ideal / missed) if missed else 1.0

        def change(now: Priced) -> Priced:
            return _accesses(
                now,
                lambda a: (
                    replace(
                        a,
                        sectors=a.ideal_sectors,
                        half_lines=-(-a.ideal_sectors // 2),
                        missed_sectors=min(a.ideal_sectors, math.ceil(a.missed_sectors * kept))
                        if kept < 1.0
                        else min(a.missed_sectors, a.sectors),
                    )
                    if a.pc in pcs
                    else a
                ),
            )

        worst = _line_of(sites, lambda a: a.sectors - a.ideal_sectors)
        return [
            self._cause(
                "uncoalesced",
                change,
                worst,
                sectors=_total(worst, "sectors") / _total(worst, "requests"),
                ideal=_total(worst, "ideal_sectors") / _total(worst, "requests"),
                lines=len({a.line for a in sites}),
            )
        ]

    def _rereading(self) -> list[tuple[Cause, Change]]:
        work = self.now.work
        loads = [a for a in work.of("load") if a.space in ("global", "generic")]
        candidates = [
            a for a in loads if a.sectors < STRIDED * a.ideal_sectors and a.pc not in work.pace.chased
        ]
        # What is read again and again over the whole grid is so within blocks, too, where they are laid well.
        asked = _total(candidates, "bytes_requested")
        over_grid = math.sqrt(asked / max(work.arrays.total, 1))
        sites = [
            a
            for a in candidates
            if over_grid >= 2.0 or a.missed_sectors * SECTOR_BYTES * 2 <= a.bytes_requested
        ]
        if not sites:
            return []
        pcs = {a.pc for a in sites}
        reuse = _total(sites, "bytes_requested") / max(_total(sites, "missed_sectors") * SECTOR_BYTES, 1)
        reuse = max(reuse, over_grid)
        saved = min(reuse, TILE)
        tiles = _total(sites, "requests") / max(_total(loads, "requests"), 1)

        def change(now: Priced) -> Priced:
            tiled = _accesses(
                now,
                lambda a: (
                    replace(
                        a,
                        requests=max(1, round(a.requests / saved)),
                        sectors=max(1, round(a.sectors / saved)),
                        missed_sectors=min(a.missed_sectors, round(a.sectors / saved)),
                        half_lines=round(a.half_lines / saved),
                        bytes_requested=round(a.bytes_requested / saved),
                    )
                    if a.pc in pcs
                    else a
                ),
            )
            # One pass of the banks each; where all lanes want one word, ptxas takes four of them at once.
            kept = [
                _as_shared(a, round(a.requests * share))
                for a in now.work.accesses
                if a.pc in pcs
                for share in [WORD / WORDS if a.sectors == a.requests else IN_TILES * a.size_bytes / WORD]
            ]
            counters = tiled.work.counters
            work = replace(tiled.work, counters=replace(counters, accesses=(*counters.accesses, *kept)))
            far = kernels.chain_clk(now.info, now.work)
            near = _chain_at(now.work, SHARED_CLK)
            nearer = min(1.0, (near + (far - near) / saved) / far)
            waits = now.waits * (1.0 - tiles * (1.0 - nearer))
            return replace(tiled, work=work, waits=waits * _scaled(now, tiled))

        worst = _line_of(sites, lambda a: a.requests)
        return [self._cause("re-reading", change, worst, times=reuse, tile=saved)]

    def _conflicts(self) -> list[tuple[Cause, Change]]:
        sites = [a for a in self.now.work.counters.accesses if a.space == "shared" and a.bank_conflicts > 0]
        if not sites:
            return []
        pcs = {a.pc for a in sites}

        def change(now: Priced) -> Priced:
            return _accesses(now, lambda a: replace(a, wavefronts=a.ideal_wavefronts) if a.pc in pcs else a)

        worst = _line_of(sites, lambda a: a.bank_conflicts)
        requests = _total(worst, "requests")
        return [
            self._cause(
                "bank conflicts",
                change,
                worst,
                wavefronts=_total(worst, "wavefronts") / requests,
                ideal=_total(worst, "ideal_wavefronts") / requests,
            )
        ]

    def _atomics(self) -> list[tuple[Cause, Change]]:
        work = self.now.work
        sites = [a for a in work.of("atomic") if a.space != "shared" and a.sectors]
        if not sites:
            return []
        pcs = {a.pc for a in sites}
        groups = min(work.blocks, self.now.info.sm_count * self.now.per_sm)

        def fewer(a: AccessCounters) -> AccessCounters:
            lanes = a.bytes_requested / a.size_bytes
            words = max(work.arrays.smallest // a.size_bytes, 1)
            # A block adds once to each word; to a single one a few of its warps' sums.
            times = work.warps_per_block**0.75 if words == 1 else 1.0
            share = min(1.0, groups * times * min(words, lanes / max(work.blocks, 1)) / lanes)
            return replace(
                a,
                requests=max(1, round(a.requests * share)),
                sectors=max(1, round(a.sectors * share)),
                bytes_requested=max(a.size_bytes, round(a.bytes_requested * share)),
            )

        def change(now: Priced) -> Priced:
            return _accesses(now, lambda a: fewer(a) if a.pc in pcs else a)

        worst = _line_of(sites, lambda a: a.bytes_requested)
        lanes = sum(a.bytes_requested / a.size_bytes for a in worst)
        return [
            self._cause(
                "atomics",
                change,
                worst,
                lanes=lanes,
                words=max(min(work.arrays.smallest // worst[0].size_bytes, lanes), 1),
                after=sum(fewer(a).bytes_requested / a.size_bytes for a in worst),
            )
        ]

    def _spills(self) -> list[tuple[Cause, Change]]:
        work = self.now.work
        sites = [a for a in work.accesses if a.space == "local"]
        if not sites:
            return []

        pcs = {a.pc for a in sites}
        issued = float(work.executions[: len(work.pace.pipes)] @ work.pace.pipes[:, PIPES.index("issue")])
        left = max(0.4, 1.0 - ADDRESSED * _total(sites, "requests") / max(issued, 1.0))

        def change(now: Priced) -> Priced:
            """In registers: no traffic, no instructions for it, and rounds of a loop that overlap."""
            pace = now.work.pace
            rows = np.array([not pcs.isdisjoint(loads) for loads in pace.loads])
            pipes = pace.pipes.copy()
            chain = pace.chain_clk.copy()
            for name in ("issue", "alu"):
                pipes[:, PIPES.index(name)] *= left
            chain[rows] /= REGISTER_ROUNDS
            moved = replace(now, work=replace(now.work, pace=replace(pace, pipes=pipes, chain_clk=chain)))
            bare = _accesses(
                moved,
                lambda a: (
                    replace(a, requests=1, sectors=0, missed_sectors=0, half_lines=0) if a.pc in pcs else a
                ),
            )
            # What has to be indexed stays in memory that can be: most of it, say, in shared memory.
            kept = [_as_shared(a, round(KEPT_INDEXED * a.requests)) for a in sites]
            counters = bare.work.counters
            return replace(
                bare,
                work=replace(bare.work, counters=replace(counters, accesses=(*counters.accesses, *kept))),
            )

        worst = _line_of(sites, lambda a: a.requests)
        return [
            self._cause(
                "spills",
                change,
                worst,
                requests=_total(sites, "requests"),
                size_bytes=_total(sites, "sectors") * SECTOR_BYTES,
            )
        ]

    # --- instructions -------------------------------------------------------------------------------
    def _divergence(self) -> list[tuple[Cause, Change]]:
        work = self.now.work
        full = -(-work.lane_executions // WARP_SIZE)
        if not (full < work.executions).any():
            return []

        def change(now: Priced) -> Priced:
            before = now.work
            executions = np.minimum(full, before.executions)
            issued = before.pace.pipes[:, PIPES.index("issue")]
            done, kept = (float(each[: len(issued)] @ issued) for each in (before.executions, executions))
            left = kept / max(done, 1.0)
            instructions = before.warp_instructions * left
            # The excess is the busiest warp's as far as it goes.
            longest = before.longest_warp - (before.warp_instructions - instructions)
            return replace(
                now,
                work=replace(
                    before,
                    executions=executions,
                    warp_instructions=np.ceil(instructions).astype(np.int64),
                    longest_warp=np.maximum(longest, instructions / before.warps_per_block).astype(np.int64),
                ),
            )

        counters = work.counters
        idle = {
            line: WARP_SIZE * warps - counters.line_thread_instructions.get(line, 0)
            for line, warps in counters.line_warp_instructions.items()
        }
        forks = max((b for b in counters.branches if b.divergent), key=lambda b: b.divergent, default=None)
        line = forks.line if forks else max(idle, key=lambda at: idle[at])
        partial = math.prod(counters.block) % WARP_SIZE
        return [
            self._cause(
                "divergence",
                change,
                line=line,
                lanes=WARP_SIZE * counters.lane_efficiency,
                divergent=counters.divergent_branches,
                partial=partial,
            )
        ]

    def _slow_pipes(self) -> list[tuple[Cause, Change]]:
        work = self.now.work
        clk = pipe_clk(self.now.info.compute_capability)
        used = work.executions[: len(work.pace.pipes)].astype(np.float64) @ work.pace.pipes
        counters = work.counters
        found = []
        line = max(
            counters.line_warp_instructions, key=lambda at: counters.line_warp_instructions[at], default=0
        )
        issued = float(used[PIPES.index("issue")])
        if used[PIPES.index("fp64")]:
            converted = counters.opcode_warp_instructions.get("cvt", 0) / max(
                float(used[PIPES.index("xu")]), 1.0
            )
            kept = {"fp64": 0.0, "xu": max(0.0, 1.0 - converted)}
            found.append(
                self._cause(
                    "compute",
                    lambda now: _piped(now, clk, kept, "fp64"),
                    detail="fp64",
                    line=line,
                    operations=counters.flops.get("f64", 0),
                    rate=clk["fp64"] / clk["fma"],
                )
            )
        if divisions := sum(counters.opcode_warp_instructions.get(name, 0) for name in ("div", "rem")):
            share = max(0.05, 1.0 - DIVISION_ISSUED * divisions / max(issued, 1.0))
            left = {"xu": 0.0} | dict.fromkeys(("issue", "imad", "alu"), share)
            found.append(
                self._cause(
                    "compute",
                    lambda now: _piped(now, clk, left),
                    detail="division",
                    line=line,
                    operations=WARP_SIZE * divisions,
                )
            )
        by_line = counters.line_warp_instructions
        code = self.code.split("\n")
        slow = [at for at in by_line if 0 < at <= len(code) and _ACCURATE.search(code[at - 1])]
        share = sum(by_line[at] for at in slow) / max(sum(by_line.values()), 1)
        if slow:
            left = dict.fromkeys(("issue", "fma", "imad", "alu", "uniform"), 1.0 - INTRINSIC_SAVES * share)
            line = max(slow, key=lambda at: by_line[at])
            found.append(
                self._cause(
                    "compute", lambda now: _piped(now, clk, left), detail="functions", line=line, share=share
                )
            )
        return found

    # --- how the grid lies on the device --------------------------------------------------------------
    def _occupancy(self) -> list[tuple[Cause, Change]]:
        now = self.now
        limits = self.occupancy.blocks_by_limit
        warps = now.work.warps_per_block
        # The blocks of another size that would fill the SM; the grid has to have them.
        most = min(self.occupancy.max_warps_per_sm // warps, -(-now.work.blocks // now.info.sm_count))
        if most <= now.per_sm:
            return []
        limit = min(limits, key=lambda name: limits[name])
        joined = max(1.0, USUAL_THREADS / now.block_threads) if limit == "blocks" else 1.0
        return [
            self._cause(
                "occupancy",
                lambda now: replace(now, per_sm=most, joined=joined),
                detail=limit,
                warps=self.occupancy.warps_per_sm,
                room=self.occupancy.max_warps_per_sm,
                registers=self.occupancy.registers_per_thread,
                size_bytes=self.occupancy.shared_bytes,
                threads=now.block_threads,
            )
        ]

    def _grid(self) -> list[tuple[Cause, Change]]:
        now = self.now
        warps = now.work.blocks * now.work.warps_per_block
        room = now.info.sm_count * self.occupancy.max_warps_per_sm
        split = min(0.8 * room / warps, now.work.counters.warp_instructions / now.work.warps / LEAST_WORK)
        # A chain of addresses cannot be cut.
        if now.work.blocks >= now.info.sm_count or split <= 1.0 or _chains(now.work)[0]:
            return []
        return [
            self._cause(
                "grid",
                lambda now: replace(now, split=split),
                blocks=now.work.blocks,
                sms=now.info.sm_count,
                split=split,
            )
        ]

    def _tail(self) -> list[tuple[Cause, Change]]:
        now = self.now
        if now.work.blocks < 2:
            return []
        durations = now.durations_ns
        waves = now.work.blocks / (now.info.sm_count * now.per_sm)
        return [
            self._cause(
                "tail",
                lambda now: replace(now, even=True),
                waves=waves,
                longest=float(durations.max() / durations.mean()),
                blocks=now.work.blocks,
            )
        ]

    def _waits(self) -> list[tuple[Cause, Change]]:
        work = self.now.work
        chained, memory = _chains(work)
        kind: CauseKind = "in flight" if memory >= 0.5 and not chained else "latency"
        loads = list(work.of("load")) if memory >= 0.5 else []
        line = 0
        if not loads:
            lines = work.counters.line_warp_instructions
            line = max(lines, key=lambda at: lines[at], default=0)
        return [
            self._cause(
                kind,
                lambda now: replace(now, waits=now.waits / OVERLAPPED),
                _line_of(loads, lambda a: a.requests) if loads else (),
                line=line,
                detail="memory" if memory >= 0.5 else "arithmetic",
                warps=min(self.occupancy.blocks_per_sm, -(-work.blocks // self.now.info.sm_count))
                * work.warps_per_block,
                memory=memory,
            )
        ]

    def _narrow(self) -> list[tuple[Cause, Change]]:
        """Lanes that move a byte or two at a time."""
        work = self.now.work
        sites = [a for a in work.of("load", "store") if a.space != "local"]
        moved = _total(sites, "bytes_requested")
        lanes = sum(a.bytes_requested / a.size_bytes for a in sites)
        if not sites or moved >= WORD * lanes:
            return []
        wider = WORD * lanes / moved

        def change(now: Priced) -> Priced:
            fewer = _accesses(now, lambda a: replace(a, requests=max(1, round(a.requests / wider))))
            work = replace(fewer.work, executions=-(-now.work.executions // round(wider)))
            return replace(fewer, work=work, joined=now.joined * wider)

        narrow = _line_of(sites, lambda a: a.requests * (a.size_bytes < WORD))
        return [
            self._cause("in flight", change, narrow, detail="narrow", size_bytes=moved / lanes, wider=wider)
        ]

    def _launch(self) -> list[Cause]:
        host = launch_overhead_ns(self.now.info)
        device = self.now.time_ns
        if host <= device:
            return []
        gain = host / (device + GRAPH_NODE_NS)
        return [
            Cause(kind="launch", before_ns=host, after_ns=device + GRAPH_NODE_NS, remaining=gain / ELSEWHERE)
        ]


def _total(sites: Iterable[AccessCounters], counter: str) -> int:
    return sum(int(getattr(a, counter)) for a in sites)


def _line_of(
    sites: Sequence[AccessCounters], cost: Callable[[AccessCounters], float]
) -> list[AccessCounters]:
    """Those of the line that costs most."""
    lines: dict[int, float] = {}
    for a in sites:
        lines[a.line] = lines.get(a.line, 0.0) + cost(a)
    worst = max(lines, key=lambda line: lines[line])
    return [a for a in sites if a.line == worst]


def _accesses(now: Priced, change: Callable[[AccessCounters], AccessCounters]) -> Priced:
    counters = now.work.counters
    changed = tuple(change(a) for a in counters.accesses)
    return replace(now, work=replace(now.work, counters=replace(counters, accesses=changed)))


def _as_shared(a: AccessCounters, wavefronts: int) -> AccessCounters:
    """An access to shared memory in the place of another one."""
    return replace(
        a,
        pc=-1 - a.pc,
        space="shared",
        wavefronts=wavefronts,
        ideal_wavefronts=wavefronts,
        sectors=0,
        missed_sectors=0,
        half_lines=0,
    )


def _piped(now: Priced, clk: dict[str, float], kept: dict[str, float], to_fma: str = "") -> Priced:
    """With a share of what some pipes do, and that of one done by the FP32 pipe."""
    pace = now.work.pace
    pipes = pace.pipes.copy()
    if to_fma:
        pipes[:, PIPES.index("fma")] += pipes[:, PIPES.index(to_fma)]
    for name, share in kept.items():
        pipes[:, PIPES.index(name)] *= share
    weights = np.array([4.0 * clk[name] for name in PIPES])
    before = (pace.pipes * weights).max(axis=1)
    after = (pipes * weights).max(axis=1)
    left = np.where(before > 0, np.maximum(after / np.maximum(before, 1e-9), 0.1), 1.0)
    chain = pace.chain_clk * left[:, None]
    return replace(now, work=replace(now.work, pace=replace(pace, pipes=pipes, chain_clk=chain)))


def _chain_at(work: KernelWork, load_clk: float) -> float:
    """Clocks that a warp takes alone if every load takes so many."""
    rows = np.flatnonzero(work.executions[: len(work.pace.loads)]).tolist()
    each = [float(np.interp(load_clk, LATENCIES, work.pace.chain_clk[row])) for row in rows]
    return sum(float(work.executions[row]) * clk for row, clk in zip(rows, each, strict=True)) / work.warps


def _scaled(before: Priced, after: Priced) -> float:
    """What makes up for a change of accesses that would change the time alone, which is told apart."""
    return kernels.chain_clk(before.info, before.work) / max(kernels.chain_clk(after.info, after.work), 1e-9)


def _chains(work: KernelWork) -> tuple[bool, float]:
    """Whether loads wait for each other, and the share of its time alone that a warp waits for memory."""
    pace = work.pace
    waited = 0.0
    alone = 0.0
    chased = 0.0
    for row in np.flatnonzero(work.executions[: len(pace.loads)]).tolist():
        executed = float(work.executions[row])
        clk = pace.chain_clk[row]
        waits = executed * float(clk[2] - clk[0])
        alone += executed * float(clk[2])
        waited += waits
        if pace.loads[row]:
            chased += waits * len(pace.chased.intersection(pace.loads[row])) / len(pace.loads[row])
    return chased > 0.5 * waited > 0.0, waited / alone if alone else 0.0

"""A launch whose accesses are told to the compiled checks by hand."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from virtualgpu.compile.ptx.parser import parse
from virtualgpu.engine.ir import layout
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.sanitizer import structures
from virtualgpu.sanitizer.checker import Access, Arrival, Checker, FindingOccurrences, LaunchShape

_OBSERVER = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p
)
CODE = """
ld.shared.u32 %r1, [%r2];
st.shared.u32 [%r2], %r1;
atom.shared.add.u32 %r1, [%r2], %r3;
ld.relaxed.cta.shared.u32 %r1, [%r2];
ld.global.u32 %r1, [%rd2];
st.global.u32 [%rd2], %r1;
atom.global.add.u32 %r1, [%rd2], %r3;
ld.relaxed.gpu.global.u32 %r1, [%rd2];
ld.local.u32 %r1, [%r2];
st.local.u32 [%r2], %r1;
ld.u32 %r1, [%rd2];
st.u32 [%rd2], %r1;
ld.shared.v2.u32 {%r1, %r3}, [%r2];
st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1};
ld.global.v4.u32 {%r1, %r3, %r4, %r5}, [%rd2];
st.global.v2.u32 [%rd2], {%r1, %r1};
ld.local.v2.u32 {%r1, %r3}, [%r2];
st.async.shared.u32 [%r2], %r1;
st.release.gpu.global.u32 [%rd2], %r1;
ld.acquire.gpu.global.u32 %r1, [%rd2];
bar.sync 0;
bar.sync 1;
@%p1 bar.sync 0;
shfl.sync.idx.b32 %r1, %r2, 3, 31, -1;
barrier.sync 0;
ret;
"""
LOAD_S, STORE_S, ATOM_S, STRONG_S, LOAD_G, STORE_G, ATOM_G, STRONG_G = range(8)
LOAD_L, STORE_L, LOAD_A, STORE_A, LOAD_S2, STORE_S4, LOAD_G4, STORE_G2, LOAD_L2 = range(8, 17)
COPY_S, RELEASE_G, ACQUIRE_G, BAR, BAR_1, BAR_IF, SHUFFLE, BAR_LOOSE = range(17, 25)
FULL = 0xFFFFFFFF


class Recorder:
    """Keeps the findings of a checker in their order."""

    def __init__(self) -> None:
        self.occurrences: list[FindingOccurrences] = []
        self.absences: list[tuple[Access, int]] = []
        self.outside: list[tuple[Access, int]] = []
        self.barriers: list[tuple[int, Arrival, Arrival | None]] = []

    def add(self, occurrences: FindingOccurrences) -> None:
        self.occurrences.append(occurrences)

    def add_absent_lane(self, access: Access, source: int) -> None:
        self.absences.append((access, source))

    def add_outside_block(self, access: Access, address: int) -> None:
        self.outside.append((access, address))

    def add_divergent_barrier(self, block: int, arrival: Arrival, other: Arrival | None) -> None:
        self.barriers.append((block, arrival, other))


class Run:
    """A launch whose accesses are reported by hand; worker n runs block n unless `begin` is called."""

    def __init__(
        self,
        *,
        blocks: int = 3,
        warps: int = 2,
        words: int = 16,
        local: int = 4,
        unit: int = 4,
        arrays: int = 1,
        mib: int = 1,
        memory: DeviceMemory | None = None,
        **options: Any,
    ) -> None:
        self.memory = memory or DeviceMemory(mib << 20)
        self.starts = [self.memory.malloc(4096) for _ in range(arrays)]
        for start in self.starts:
            self.memory.track_allocation(start, unit * words, "array")
        text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<9>;\n"
        code = CODE
        if unit < 4:  # of which there are no atomics
            for space in ("shared", "global"):
                address = "%r2" if space == "shared" else "%rd2"
                atomic = f"atom.{space}.add.u32 %r1, [{address}], %r3"
                code = code.replace(atomic, f"st.relaxed.gpu.{space}.u{8 * unit} [{address}], %r1")
            code = code.replace(".u32", f".u{8 * unit}")
        module = parse(f"{text}.reg .b64 %rd<9>;\n.reg .pred %p<9>;\n{code}}}\n")
        self.function = module.entries["k"]
        self.recorder = Recorder()
        shape = LaunchShape(blocks, 32 * warps, unit * words, unit * local, unit)
        self.code = self.function.instructions
        self.unit = unit
        self.warps = warps
        self.checker = Checker(shape, self.memory, self.function, self.code[:BAR], self.recorder, **options)
        self.custom_event = _OBSERVER(self._asked)
        self.contexts = []
        self.shared = []
        self.frames = []
        self.live = np.ones((warps, 32), bool)
        self.awaited: list[bool] = []  # for each access that may pass a flag
        for block in range(blocks):
            context = np.zeros(1, layout.CONTEXT)
            shared = np.zeros(unit * words, np.uint8)
            frames = np.zeros((warps, 64), np.int32)
            address, watched = self.checker.watch(ctypes.cast(self.custom_event, ctypes.c_void_p).value or 0)
            self.observe = _OBSERVER(address)
            context[0]["watched"], context[0]["shared"] = watched, shared.ctypes.data
            context[0]["frames"], context[0]["frame_stride"] = frames.ctypes.data, frames.strides[0]
            self.contexts.append(context)
            self.shared.append(shared)
            self.frames.append(frames)
            self.begin(block, block)
        self.worker = 0

    def begin(self, worker: int, block: int) -> None:
        """A worker takes up a block."""
        self.contexts[worker][0]["block_linear"] = block
        self.tell(worker, 0, layout.FENCE, None, 0)

    def tell(
        self, worker: int, warp: int, site: int, lanes: Any, mask: int, values: Sequence[int] | None = None
    ) -> None:
        self.worker = worker
        self.contexts[worker][0]["warp"] = warp
        addresses = None if lanes is None else np.array(lanes, np.int64)
        store_values = None if values is None else np.array(values, np.int64)
        self.observe(
            self.contexts[worker].ctypes.data,
            site,
            None if addresses is None else addresses.ctypes.data,
            mask,
            None if store_values is None else store_values.ctypes.data,
        )

    def _asked(self, context: int, site: int, lanes: int, mask: int, extra: int) -> None:
        block, warp = (int(self.contexts[self.worker][0][name]) for name in ("block_linear", "warp"))
        lane_values = (
            None if not lanes else np.ctypeslib.as_array((ctypes.c_int64 * 32).from_address(lanes)).copy()
        )
        if site >= 0:
            self.awaited.append(self.checker.access(block, warp, site, lane_values, mask))
        elif site == layout.AT_BLOCK_BARRIER:
            self.checker.wait(block, warp, self.code[int(lane_values[0])], mask, self.alive(warp))
        elif site == layout.BARRIER_ARRIVAL:
            self.checker.arrive(block, warp, mask, int(lane_values[0]))
        elif site == layout.BLOCK_BARRIER_OPENS:
            self.checker.barrier(block, self.live, True)
        elif site == layout.SHUFFLE:
            self.checker.shuffle(block, warp, self.code[SHUFFLE], lane_values, mask)
        else:
            self.checker.custom_event(block, warp, site, lane_values, mask, extra or 0)

    def alive(self, warp: int) -> int:
        """Lanes of a warp that have not ended."""
        pcs = self.frames[self.worker][warp, :32]
        return sum(1 << lane for lane in range(32) if pcs[lane] != layout.EXITED)

    def access(
        self, block: int, site: int, by_thread: Mapping[int, int], values: Mapping[int, int] | None = None
    ) -> None:
        """Threads of one warp access these bytes: of shared memory, or of the first array."""
        (warp,) = {thread // 32 for thread in by_thread}
        lanes = [0] * 32
        mask = 0
        stored = [0] * 32
        for thread, place in by_thread.items():
            lanes[thread % 32], mask = place, mask | 1 << thread % 32
            stored[thread % 32] = (values or {}).get(thread, 0)
        self.tell(block, warp, site, lanes, mask, stored if values is not None else None)

    def barrier(self, block: int) -> None:
        self.tell(block, 0, layout.BLOCK_BARRIER_OPENS, None, 0)

    def findings(self) -> list[FindingOccurrences]:
        self.checker.flush()
        findings = self.recorder.occurrences
        self.recorder.occurrences = []
        for finding in findings:
            assert finding.finding_kind == structures.RACE or not finding.values_agree
            assert finding.space == "global" or not finding.start
        return findings

    def site(self, access: Access) -> int:
        return self.code.index(self.checker.sites[access.site].instruction)

    def block(self, access: Access) -> int:
        return self.checker.ordering.find_block(access.segment)

    def races(self) -> list[tuple[Any, ...]]:
        """Each as (space, word, (block, thread, site) twice, kinds, relation, count, agree)."""
        return [
            (
                race.space,
                race.word,
                *(
                    (self.block(a), a.thread, self.site(a))
                    for a in (race.first_access, race.second_access)
                    if a
                ),
                race.are_writes,
                race.relation,
                race.count,
                race.values_agree,
            )
            for race in self.findings()
        ]

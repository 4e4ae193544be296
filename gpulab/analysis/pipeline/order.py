"""Order between the steps of a block's warps, from barriers, mbarriers and the waits for copies.

Each warp is a chain of steps, and a clock contains for each chain how many of its steps are known to have
ended, as in `gpulab.analysis.order`. The lanes of a warp count as one. An mbarrier is a chain, too: copies
that complete with its phase are known to the warps that have waited for it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpulab.analysis.pipeline.record import Mark
from virtualgpu.records import BlockTrace
from virtualgpu.records.warp.columns import SHARED_ACCESS_KINDS, SharedAccesses, SharedWrites

Ints = npt.NDArray[np.int64]
ActionKind = Literal[
    "commit", "wait", "barrier", "barrier arrival", "arrival", "wait for arrivals", "bulk copy"
]
# PTX instructions; the group is the number of pending groups, or the number of the barrier.
_ACTION_REGEXES: tuple[tuple[ActionKind, str], ...] = (
    ("commit", r"cp\.async\.commit_group()"),
    ("wait", r"cp\.async\.wait_group\s+(\d+)"),
    ("wait", r"cp\.async\.wait_all()"),
    ("barrier", r"(?:bar|barrier)(?:\.cta)?\.(?:sync|red)\S*\s+([^,;]+)"),
    ("barrier arrival", r"(?:bar|barrier)(?:\.cta)?\.arrive\S*\s+([^,;]+)"),
    ("arrival", r"(?:cp\.async\.)?mbarrier\.arrive()"),
    ("wait for arrivals", r"mbarrier\.(?:test|try)_wait([^\[]*\[[^\]]*\],\s*[^,;\s]+)"),
    ("bulk copy", r"cp\.async\.bulk\S*mbarrier()"),
)
_GUARD_REGEX = r"(?:@!?%\w+\s+)?"
_ACTION_PATTERNS = [(kind, re.compile(_GUARD_REGEX + pattern)) for kind, pattern in _ACTION_REGEXES]
_MBARRIER_PATTERN = re.compile(rf"{_GUARD_REGEX}\S*mbarrier")
_FLAG_PATTERN = re.compile(rf"{_GUARD_REGEX}(?:ld|st)\.(?:volatile|relaxed|acquire|release)")
_MBARRIER_BYTES = 8
# Bits of an mbarrier that count its phases, on the virtual GPU.
_PHASE_SHIFT = 40
_MAX_PHASES = 8
_ATOMIC_KIND = SHARED_ACCESS_KINDS.index("atomic")


@dataclass(frozen=True, slots=True)
class _Action:
    """The effect of an instruction on the order of steps. The attribute ``operand`` is the operand that names
    a barrier, or a number of groups of copies.
    """

    kind: ActionKind
    operand: str


@dataclass(slots=True)
class _Mbarrier:
    """The state of an mbarrier: its chain, and the clock and the last position of all arrivals.

    ``phases`` contains the clock and the position at the end of each phase, and ``waited_phases`` the last
    phase that each warp has waited for.
    """

    chain: int
    clock: Ints
    position: int = -1
    phases: list[tuple[Ints, int]] = field(default_factory=list)
    waited_phases: dict[int, int] = field(default_factory=dict)

    def complete_phases(self, phase_count: int) -> None:
        """Record that `phase_count` phases of the mbarrier have completed."""
        while len(self.phases) < phase_count:
            self.phases.append((self.clock, self.position))


@dataclass(slots=True)
class _BarrierState:
    """Warps at a barrier: the clocks of all that have arrived, and the marks of those that wait."""

    clocks: list[Ints] = field(default_factory=list)
    waiting_marks: dict[int, Mark] = field(default_factory=dict)


@dataclass(slots=True)
class _Warp:
    """The state of a warp after some of its steps. The attribute ``clock_index`` is an index into the table
    of clocks.
    """

    tick: int = 0
    position: int = 0
    clock_index: int = 0
    commit_count: int = 0
    wait_count: int = 0
    barrier: _BarrierState | None = None


class _Registers:
    """The values of registers at the steps of a block."""

    def __init__(self, trace: BlockTrace) -> None:
        self._trace_of_warp = {warp.warp_index: warp for warp in trace.warps}
        self._write_indices: dict[tuple[int, str], Ints] = {}

    def find_value(self, operand: str, sequence: int, warp: int) -> int | None:
        """Return the value of a PTX operand in the first lane before a step, or None if the value is not
        known.
        """
        if operand.lstrip("-").isdigit():
            return int(operand)
        trace = self._trace_of_warp[warp]
        if trace.detail is None or trace.value is None:
            return None
        warp_and_operand = warp, operand
        if warp_and_operand not in self._write_indices:
            writes_operand = np.array([name == operand for name in trace.value_register], np.bool_)
            self._write_indices[warp_and_operand] = (
                np.flatnonzero(writes_operand[trace.text_index])
                if writes_operand.any()
                else np.zeros(0, np.int64)
            )
        warp_step = int(np.searchsorted(trace.detail.sequence, sequence))
        last_write = int(np.searchsorted(self._write_indices[warp_and_operand], warp_step)) - 1
        if last_write < 0:
            return None
        return int(
            trace.value[
                self._write_indices[warp_and_operand][last_write],
                _find_first_lane(int(trace.executed_mask[warp_step])),
            ]
        )


class Steps:
    """The steps of a block that use shared memory or synchronise, in execution order.

    Attributes
    ----------
    sequence, warp, line
        Position of each step among all steps of the block, its warp and its source line.
    tick
        Number of each step among those of its warp, from 1.
    position
        Position in the pipeline (`gpulab.analysis.pipeline.record.Pipeline`).
    clock
        Row of ``clocks`` that is known to each step: for each chain, the last tick that it follows.
    commits, waits
        Number of groups that the warp has closed, and of waits and barriers that it has passed.
    mbarrier_chain
        Chain of the mbarrier at which a step arrives or delivers data, -1 if there is none.
    phase
        Phase of the mbarrier at which a step arrives, or for which it waits.
    marks
        The points at which single warps synchronise.
    accesses
        Accesses to shared memory without atomics, flags and mbarriers.
    """

    def __init__(self, trace: BlockTrace) -> None:
        assert trace.accesses is not None
        warps = trace.warps
        instruction_texts = warps[0].instruction
        sequence_order = np.argsort(
            np.concatenate([warp.detail.sequence for warp in warps if warp.detail]), kind="stable"
        )
        text_of_step = np.concatenate([warp.text_index for warp in warps])[sequence_order]
        self._instruction_texts = instruction_texts
        self._read_accesses(trace.accesses, text_of_step)
        self._read_phases(trace.shared)
        self._registers = _Registers(trace)
        actions = [_parse_action(text) for text in instruction_texts]
        is_action = np.array([action is not None for action in actions], np.bool_)[text_of_step]
        is_action &= np.concatenate([warp.executed_mask for warp in warps])[sequence_order] != 0
        # A thread may ask several times whether a phase is over. Only the last time counts.
        is_poll = _match_instructions(
            instruction_texts, lambda n: (a := actions[n]) is not None and a.kind == "wait for arrivals"
        )
        is_true = np.concatenate([_is_any_lane_true(warp.value, len(warp)) for warp in warps])[sequence_order]
        is_step = is_action & (is_true | ~is_poll[text_of_step])
        is_step[self.accesses.sequence] = True
        self.sequence: Ints = np.flatnonzero(is_step)
        warp_of_step = np.repeat([warp.warp_index for warp in warps], [len(warp) for warp in warps])[
            sequence_order
        ]
        self.warp: Ints = warp_of_step[self.sequence]
        self.line: Ints = np.concatenate([warp.line for warp in warps])[sequence_order][self.sequence].astype(
            np.int64
        )
        self._compute_order([actions[n] for n in text_of_step[self.sequence].tolist()])

    def __len__(self) -> int:
        return int(self.sequence.size)

    def find_step(self, sequence: Ints) -> Ints:
        """Convert positions among all steps of the block to indices into the arrays of this object."""
        return np.searchsorted(self.sequence, sequence)

    def is_ordered_before(self, chain: Ints, tick: Ints, reader_steps: Ints) -> npt.NDArray[np.bool_]:
        """Return whether each of `reader_steps` must run after the step with the given chain and tick."""
        is_own_chain = self.warp[reader_steps] == chain
        return np.where(
            is_own_chain, tick < self.tick[reader_steps], self.clocks[self.clock[reader_steps], chain] >= tick
        )

    def find_first_wait(self, chain: int, step: int) -> int:
        """Return the first step that waits for the mbarrier phase in which `step` arrives, or -1 if there is
        none.
        """
        wait_steps = self._waits_by_chain.get(chain, ())
        return next((n for n in wait_steps if n > step and self.phase[n] >= self.phase[step]), -1)

    def _read_accesses(self, accesses: SharedAccesses, text_of_step: npt.NDArray[np.int32]) -> None:
        """Separate the accesses to mbarriers from the accesses to data. Store the mbarrier's address for each
        step that accesses an mbarrier.
        """
        text_of_access = text_of_step[accesses.sequence]
        is_atomic = accesses.kind == _ATOMIC_KIND
        is_mbarrier = (
            is_atomic
            & _match_instructions(
                self._instruction_texts, lambda n: bool(_MBARRIER_PATTERN.match(self._instruction_texts[n]))
            )[text_of_access]
        )
        first_address = accesses.offset.max(axis=1, initial=-1)
        self._mbarrier_at = dict(
            zip(accesses.sequence[is_mbarrier].tolist(), first_address[is_mbarrier].tolist(), strict=True)
        )
        mbarriers = np.unique(first_address[is_mbarrier]) // _MBARRIER_BYTES
        is_flag = _match_instructions(
            self._instruction_texts, lambda n: bool(_FLAG_PATTERN.match(self._instruction_texts[n]))
        )[text_of_access]
        is_data_access = ~is_atomic & ~is_flag & ~np.isin(first_address // _MBARRIER_BYTES, mbarriers)
        self.accesses = SharedAccesses(
            sequence=accesses.sequence[is_data_access],
            kind=accesses.kind[is_data_access],
            width_bytes=accesses.width_bytes[is_data_access],
            offset=accesses.offset[is_data_access],
        )

    def _read_phases(self, shared: SharedWrites) -> None:
        """Store the phase of an mbarrier after each step that has written its 64 bits."""
        self._phase_bits = {}
        mbarrier_rows = np.flatnonzero((shared.width_bytes == _MBARRIER_BYTES) & (shared.mask != 0))
        for mbarrier_row in mbarrier_rows.tolist():
            sequence_number = int(shared.sequence[mbarrier_row])
            lane = _find_first_lane(int(shared.mask[mbarrier_row]))
            if self._mbarrier_at.get(sequence_number) == shared.offset[mbarrier_row, lane]:
                self._phase_bits[sequence_number] = (
                    int(shared.value[mbarrier_row, lane]) >> _PHASE_SHIFT & _MAX_PHASES - 1
                )

    def _find_awaited_phase(self, operand: str, sequence: int, warp: int, mbarrier: _Mbarrier) -> int:
        """Return the phase of an mbarrier for which a warp waits; -1 for the one before the first.

        The operand is a parity, or a state that an arrival has returned. A warp that waits again with the
        same operand waits for the same phase, otherwise for a later one.
        """
        is_parity = ".parity" in operand
        operand_value = self._registers.find_value(operand.split()[-1], sequence, warp)
        last_phase = mbarrier.waited_phases.get(warp, -1)
        if operand_value is None:
            return last_phase + 1
        phase_period = 2 if is_parity else _MAX_PHASES
        phase_bits = operand_value if is_parity else operand_value >> _PHASE_SHIFT
        return last_phase + (phase_bits - last_phase) % phase_period

    def _compute_order(self, actions: list[_Action | None]) -> None:
        """Compute the position, the clock and the counts of each step."""
        warps = {warp: _Warp() for warp in self.warp.tolist()}
        first_chain = max(warps, default=0) + 1
        mbarrier_addresses = sorted(set(self._mbarrier_at.values()))
        clocks = [np.zeros(first_chain + len(mbarrier_addresses), np.int64)]
        mbarrier_of_address = {
            address: _Mbarrier(first_chain + n, clocks[0]) for n, address in enumerate(mbarrier_addresses)
        }
        barrier_of_operand: dict[str, _BarrierState] = {}
        self.marks: list[Mark] = []
        self.mbarrier_chain = np.full(len(self), -1, np.int64)
        self.phase = self.mbarrier_chain.copy()
        self._waits_by_chain: dict[int, list[int]] = defaultdict(list)
        step_rows = []

        def merge_clock(warp_state: _Warp, clock: Ints) -> None:
            clocks.append(np.maximum(clocks[warp_state.clock_index], clock))
            warp_state.clock_index = len(clocks) - 1

        def release_barrier(barrier: _BarrierState) -> None:
            merged_clock = np.max(barrier.clocks, axis=0)
            position = max(mark.position for mark in barrier.waiting_marks.values())
            for warp_index, mark in barrier.waiting_marks.items():
                warp_state = warps[warp_index]
                merge_clock(warp_state, merged_clock)
                warp_state.position = position + 1
                warp_state.barrier = None
                self.marks.append(
                    Mark(kind="barrier", position=position, line=mark.line, warps=(warp_index,))
                )
            barrier.clocks.clear()
            barrier.waiting_marks.clear()

        for step, (sequence, warp_index, line, action) in enumerate(
            zip(self.sequence.tolist(), self.warp.tolist(), self.line.tolist(), actions, strict=True)
        ):
            warp_state = warps[warp_index]
            if warp_state.barrier is not None:  # it continues, so all have arrived
                release_barrier(warp_state.barrier)
            warp_state.tick += 1
            action_kind = action.kind if action is not None else None
            mbarrier = mbarrier_of_address.get(self._mbarrier_at.get(sequence, -1))
            if action_kind == "wait for arrivals" and action is not None and mbarrier is not None:
                phase_index = self._find_awaited_phase(action.operand, sequence, warp_index, mbarrier)
                mbarrier.waited_phases[warp_index] = self.phase[step] = phase_index
                self._waits_by_chain[mbarrier.chain].append(step)
                if phase_index >= 0:
                    mbarrier.complete_phases(phase_index + 1)
                    clock, arrival_position = mbarrier.phases[phase_index]
                    merge_clock(warp_state, clock)
                    warp_state.position = max(warp_state.position, arrival_position + 1)
            step_position = warp_state.position
            warp_state.position += 1
            step_rows.append(
                (
                    warp_state.tick,
                    step_position,
                    warp_state.clock_index,
                    warp_state.commit_count,
                    warp_state.wait_count,
                )
            )
            own_clock = clocks[warp_state.clock_index].copy()
            own_clock[warp_index] = warp_state.tick
            if mbarrier is not None and action_kind != "wait for arrivals":
                own_clock[mbarrier.chain] = step + 1
                mbarrier.clock = np.maximum(mbarrier.clock, own_clock)
                mbarrier.position = max(mbarrier.position, step_position)
                self.mbarrier_chain[step] = mbarrier.chain
                self.phase[step] = len(mbarrier.phases)
                phase_bits = self._phase_bits.get(sequence, len(mbarrier.phases))
                mbarrier.complete_phases(
                    len(mbarrier.phases) + (phase_bits - len(mbarrier.phases)) % _MAX_PHASES
                )
            if action is None or action_kind is None or action_kind == "bulk copy":
                continue
            if action_kind == "barrier" or action_kind == "barrier arrival":
                barrier = barrier_of_operand.setdefault(action.operand, _BarrierState())
                barrier.clocks.append(own_clock)
                if action_kind == "barrier":
                    warp_state.wait_count += 1
                    warp_state.barrier = barrier
                    barrier.waiting_marks[warp_index] = Mark(
                        kind=action_kind, position=step_position, line=line, warps=(warp_index,)
                    )
                continue
            warp_state.commit_count += action_kind in ("commit", "arrival") or (
                action_kind == "wait" and not action.operand
            )
            warp_state.wait_count += action_kind in ("wait", "wait for arrivals")
            pending_groups = int(action.operand or 0) if action_kind == "wait" else 0
            self.marks.append(
                Mark(
                    kind=action_kind,
                    position=step_position,
                    line=line,
                    warps=(warp_index,),
                    pending=pending_groups,
                )
            )
        for barrier in barrier_of_operand.values():
            if barrier.waiting_marks:
                release_barrier(barrier)
        self.clocks = np.array(clocks)
        step_columns = np.array(step_rows, np.int64).reshape(-1, 5).T
        self.tick, self.position, self.clock, self.commits, self.waits = step_columns


def _find_first_lane(mask: int) -> int:
    """Return the first lane of a mask that is not empty."""
    return (mask & -mask).bit_length() - 1


def _parse_action(text: str) -> _Action | None:
    """Return the effect of a PTX instruction on the order of steps, or None if it has none."""
    for action_kind, pattern in _ACTION_PATTERNS:
        if match := pattern.match(text.strip()):
            return _Action(action_kind, match[1].strip())
    return None


def _match_instructions(texts: Sequence[str], condition: Callable[[int], bool]) -> npt.NDArray[np.bool_]:
    """Return for each instruction whether its number meets a condition."""
    return np.array([condition(n) for n in range(len(texts))], np.bool_)


def _is_any_lane_true(value: npt.NDArray[np.uint64] | None, count: int) -> npt.NDArray[np.bool_]:
    """Return for each step of a warp whether its first result is not zero in any lane."""
    return np.zeros(count, np.bool_) if value is None else (value != 0).any(axis=1)

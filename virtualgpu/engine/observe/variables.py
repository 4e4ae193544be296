"""Which registers of optimised code hold which variables of the source, proven on a launch.

Only code compiled for debugging says where variables are. It runs beside the optimised code, on the same
launch: an instruction of the latter counts as writing a variable if, lane by lane, all that such
instructions of a source line wrote is what the debug build wrote to the variable there, in the same order.
What cannot be proven so is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.dwarf import Declared
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.inline import written_name
from virtualgpu.engine.lower.codegen import Kernel
from virtualgpu.records import WARP_SIZE, WarpTrace
from virtualgpu.records.warp.columns import Variable, lanes_of

Values = list[npt.NDArray[np.uint64]]
Ints = npt.NDArray[np.int64]


_NONE = np.zeros(0, np.int64)
_NEVER = np.zeros(WARP_SIZE, np.int64)


class Definition(NamedTuple):
    """A place in a trace's listing that writes a register of `type`, in the function it was written in."""

    place: int
    function: str
    i: ir.Instruction
    register: str
    type: str


# Fused multiply-add rounds once, the debug build's multiply and add twice; sums carry it on.
_TOLERANCE = 1e-4
# Writes that make a loop, where a trace was cut before its end.
_TURNS = 4


@dataclass(frozen=True)
class Run:
    """Traced warps and the code that they ran."""

    traces: tuple[WarpTrace, ...]
    kernel: Kernel

    @cached_property
    def code(self) -> tuple[tuple[str, ir.Instruction], ...]:
        """Every place of the trace's listing: an instruction, and the function that it was written in."""
        return tuple(
            (i.home[0] if i.home else plan.function.name, i)
            for plan in self.kernel.plans
            for i in plan.function.instructions
        )

    @property
    def whole(self) -> bool:
        return not any(trace.truncated for trace in self.traces)

    @cached_property
    def _steps(self) -> list[dict[int, npt.NDArray[np.int64]]]:
        """Of each warp the steps at each place."""
        found = []
        for trace in self.traces:
            order = np.argsort(trace.text_index, kind="stable")
            places, first = np.unique(trace.text_index[order], return_index=True)
            parts = np.split(order, first[1:]) if order.size else []
            found.append(dict(zip(places.tolist(), parts, strict=True)))
        return found

    def times(self, places: Iterable[int]) -> Ints:
        """How often each thread executed some instructions."""
        known = [place for place in places if place not in self._times]
        for place in known:
            self._times[place] = np.concatenate(
                [
                    lanes_of(trace.executed_mask[steps[place]]).sum(axis=0) if place in steps else _NEVER
                    for trace, steps in zip(self.traces, self._steps, strict=True)
                ]
            )
        total: Ints = np.sum([self._times[place] for place in places], axis=0)
        return total

    @cached_property
    def _times(self) -> dict[int, Ints]:
        return {}

    def lasting(self, places: Iterable[int]) -> bool:
        """Whether warps that wrote so at all did until their trace was cut, as a loop would."""
        for trace, steps_of in zip(self.traces, self._steps, strict=True):
            steps = np.sort(
                np.concatenate([_NONE, *(steps_of[place] for place in places if place in steps_of)])
            )
            if steps.size and (steps.size < _TURNS or len(trace) - steps[-1] > 2 * np.diff(steps).max()):
                return False
        return True

    def written(self, places: Iterable[int]) -> Values:
        """All that instructions wrote first, for each thread in the order of time."""
        found: Values = []
        for trace, steps_of in zip(self.traces, self._steps, strict=True):
            assert trace.value is not None
            steps = np.sort(
                np.concatenate([_NONE, *(steps_of[place] for place in places if place in steps_of)])
            )
            lanes = lanes_of(trace.executed_mask[steps])
            values = trace.value[steps]
            found += [values[lanes[:, lane], lane] for lane in range(WARP_SIZE)]
        return found

    def definitions(self) -> Iterator[Definition]:
        """What ran and wrote a register."""
        first = self.traces[0]
        ran = {place for trace in self.traces for place in np.unique(trace.text_index).tolist()}
        for place in sorted(ran):
            if first.value_register[place]:
                function, i = self.code[place]
                yield Definition(place, function, i, first.value_register[place], first.value_type[place])


def find_variables(
    fast: Run, slow: Run, declared: Sequence[Declared], ptx: ir.Module
) -> tuple[Variable, ...]:
    """The scalar variables that the debug build wrote, each with the optimised instructions that do.

    Parameters
    ----------
    fast, slow
        The optimised code and the debug build, on one launch.
    declared
        The debug build's variables.
    ptx
        The debug build.
    """
    labelled = {label: function for function in ptx.functions.values() for label in function.labels}
    written = list(slow.definitions())
    candidates = list(fast.definitions())
    found = []
    for each in sorted(declared, key=lambda one: one.parameter >= 0):
        function = labelled.get(each.function)
        if function is None:
            continue
        mine = [d for d in written if d.function == function.name and d.register in each.registers]
        wrote = [d for d in mine if not _copies(d.i, each)]
        by = _writers(fast, slow, each, wrote, candidates) if wrote else ()
        # What is known of a parameter is in the call; one that the compiler holds nowhere is left out.
        if by or (wrote and each.parameter < 0):
            last = _last_line(function, each)
            found.append(
                Variable(
                    name=each.name,
                    type=each.type,
                    kind=each.kind,
                    first_line=each.line,
                    last_line=last,
                    written_by=by,
                    function=function.name,
                )
            )
    return tuple(found)


def _copies(i: ir.Instruction, variable: Declared) -> bool:
    """Whether an instruction only moves the variable from one of its registers to another."""
    source = i.operands[1] if i.root == "mov" and len(i.operands) > 1 else None
    return isinstance(source, ir.Register) and written_name(source.name) in variable.registers


def _last_line(function: ir.Function, variable: Declared) -> int:
    first, last = (function.labels.get(label, 0) for label in variable.scope)
    return max([i.line for i in function.instructions[first:last]] + [variable.line])


def _writers(
    fast: Run, slow: Run, variable: Declared, wrote: list[Definition], candidates: list[Definition]
) -> tuple[int, ...]:
    """The optimised instructions that write a variable; none unless all it is ever given is accounted for."""
    whole = fast.whole and slow.whole
    fitting = [each for each in candidates if _fits(each.type, variable.kind)]
    constants = {each.place for each in fitting if _sets_constant(each.i)}
    chosen: set[int] = set()
    missing: list[int] = []

    def explained(places: list[int], by: Iterable[list[int]]) -> bool:
        wanted = slow.written(places)
        # One constant everywhere is found in many places by chance: only what sets it counts, or the result.
        values = {int(value) for lane in wanted for value in lane}
        plain = len(values) > 1 or max(lane.size for lane in wanted) > 1
        guesses = (
            guess
            for nth, guess in enumerate(by)
            if guess and chosen.isdisjoint(guess) and (plain or not nth or constants.issuperset(guess))
        )
        often = [lane.size for lane in wanted]
        fair = (guess for guess in guesses if not whole or np.array_equal(fast.times(guess), often))
        right = (
            guess
            for guess in fair
            if _equal(fast.written(guess), wanted, variable.kind, whole)
            and (
                whole
                or np.array_equal(fast.times(guess), often)
                or (fast.lasting(guess) and slow.lasting(places))
            )
        )
        found = next(right, [])
        chosen.update(found)
        return bool(found)

    for statement in sorted({(each.i.line, each.i.column) for each in wrote}):
        here = [each.place for each in wrote if (each.i.line, each.i.column) == statement]
        missing += [] if explained(here, _guesses(fitting, statement[0])) else here
    # Two arms of a branch may have become one instruction, which has the line of the branch.
    if missing and explained(missing, ([], *([each.place] for each in fitting))):
        missing = []
    if not chosen or (missing and not whole):
        return ()
    everything = slow.written([each.place for each in wrote])
    known = fast.written(chosen)
    # A first value that the compiler folded into what follows leaves the variable unknown until then.
    first = [values.size for values in slow.written(missing)]
    rest = [values[skip:] for values, skip in zip(everything, first, strict=True)]
    if max(first, default=0) > 1 or not _equal(known, rest, variable.kind, whole):
        return ()
    return tuple(sorted(chosen))


def _sets_constant(i: ir.Instruction) -> bool:
    return (i.root == "mov" and isinstance(i.operands[1], ir.Immediate)) or i.opcode.startswith("ld.param")


def _fits(register: str, kind: str) -> bool:
    """Whether a register of one type may hold a variable of another: as wide, and a float only floats.

    Bytes have registers of 16 bits, for there are none of 8.
    """
    wide = register[1:] == ("16" if kind[1:] == "8" else kind[1:])
    return wide and (register[0] == "f") == (kind[0] == "f" and register[0] != "b")


def _guesses(fitting: list[Definition], line: int) -> Iterator[list[int]]:
    """Instructions of a line that may write one variable: what no other reads, those alike, each."""
    own = [each for each in fitting if each.i.line == line]
    read = {name for each in own for name in cfg.definitions_and_uses(each.i)[1]}
    yield [each.place for each in own if not {*cfg.definitions_and_uses(each.i)[0]} & read]
    alike: dict[str, list[int]] = {}
    for each in own:
        alike.setdefault(each.i.opcode, []).append(each.place)
    yield from alike.values()
    yield from ([place] for group in alike.values() for place in group)
    yield from ([each.place] for each in fitting if each.i.line == 0)


def _equal(some: Values, wanted: Values, kind: str, whole: bool) -> bool:
    """Whether each lane wrote the same, to rounding; of cut traces, as far as both go."""
    if not any(a.size and b.size for a, b in zip(some, wanted, strict=True)):
        return False
    mask = np.uint64((1 << int(kind[1:])) - 1)
    for a, b in zip(some, wanted, strict=True):
        if whole and a.size != b.size:
            return False
        size = min(a.size, b.size)
        x = a[:size] & mask
        y = b[:size] & mask
        if kind in ("f32", "f64"):
            width = int(kind[1:]) // 8
            pair = [bits.astype(f"u{width}").view(f"f{width}") for bits in (x, y)]
            scale = np.nanmax(np.abs(pair[1]), initial=0.0) if size else 0.0
            if not np.allclose(pair[0], pair[1], rtol=_TOLERANCE, atol=1e-6 * scale, equal_nan=True):
                return False
        elif not np.array_equal(x, y):
            return False
    return True

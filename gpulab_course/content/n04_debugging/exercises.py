"""Exercises of notebook 04."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpulab import session
from gpulab.processes.errors import spelt
from gpulab.words import count as counted
from gpulab_course.teach.judge import (
    Advice,
    Answer,
    Budget,
    Case,
    Draw,
    KernelExercise,
    Mistake,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    Row,
    advice,
    draw,
)
from gpulab_course.teach.judge.python.functions import equals, is_whole, must_be_a_function, parts_of
from virtualgpu.records import Dim3

# 04-whodunit

SUSPECTS = ("load_tokens", "scale", "add_bias")
_STRAY = 1 << 44  # elements: far outside of everything
_ELEMENTS = 64


def judge_whodunit(answer: Answer) -> str:
    """``whodunit(program)``: name and number of the first launch that failed, or None."""
    rng = answer.rng
    for faults, waits in ((1, 0), (0, 2), (1, 2), (2, 0), (1, 1), (0, 0), (2, 1)):
        launches = int(rng.integers(6, 14))
        turns = np.cumsum(rng.integers(1, len(SUSPECTS), launches)) % len(SUSPECTS)  # neighbours differ
        names = [SUSPECTS[turn] for turn in turns]
        wrong = sorted(int(n) for n in rng.choice(np.arange(2, launches), faults, replace=False))
        if wrong and faults + waits == 2:
            wrong[0] = 1  # the very first
        elif wrong and not waits:
            wrong[-1] = launches  # the very last
        stops = sorted(int(n) for n in rng.choice(np.arange(2, launches), waits, replace=False))
        asked: list[int] = []  # launches of each run

        def stray(begins: bool, asked: list[int] = asked, wrong: list[int] = wrong) -> int:
            if begins:
                asked.append(0)
                return 0
            asked[-1] += 1
            return _STRAY if asked[-1] in wrong else 0

        seen = answer.ask(_investigated, names, stops, shown="whodunit(program)", back=stray)
        if asked != seen["asked"]:
            raise NotYet("whodunit(program) looks into the program: run it, and see what CUDA tells.")
        _judge_named(seen, names, wrong)
    return "the first that failed is named, and a program that is well runs without waits."


def _investigated(
    answer: Any, asks: Callable[[bool], int], names: list[str], stops: list[int]
) -> dict[str, Any]:
    """Run the answer in its own process; return its result and the numbers of program runs and host waits."""
    must_be_a_function("whodunit", callable(answer), type(answer).__name__)
    cp = session.cp()
    kernels = _kernels()
    runs: list[Any] = []
    given: list[int] = []
    asked: list[int] = []
    with ExitStack() as contexts:

        def program(after: Callable[[str, int], Any]) -> None:
            contexts.close()  # each run has a context of its own
            late = contexts.enter_context(session.late_faults())
            runs.append(late)
            given.append(0)
            asked.append(asks(True))
            x = cp.zeros(_ELEMENTS, dtype=cp.float32)
            for number, name in enumerate(names, 1):
                asked[-1] = number
                kernels[name]((2,), (32,), (x, np.int32(_ELEMENTS), np.int64(asks(False))))
                given[-1] = number
                after(name, number)
                if number in stops:
                    cp.cuda.get_current_stream().synchronize()
            if stops:
                cp.cuda.get_current_stream().synchronize()

        try:
            found = answer(program)
        except cp.cuda.runtime.CUDARuntimeError as error:
            raise NotYet(
                "whodunit(program) lets the error pass; catch it, and return which launch it was."
            ) from error
        waits = [late.waits for late in runs]
        lost = [late.fault is not None for late in runs]
    return {
        "found": found,
        "runs": len(runs),
        "waits": waits,
        "lost": lost,
        "given": given,
        "asked": asked,
        "own": len(stops) + bool(stops),
    }


def _kernels() -> dict[str, Any]:
    code = (Path(__file__).parent / "kernels" / "suspects.cu").read_text(encoding="utf-8")
    return {name: session.cp().RawKernel(code, name) for name in SUSPECTS}


def _judge_named(seen: dict[str, Any], names: list[str], wrong: list[int]) -> None:
    found = seen["found"]
    if not seen["runs"]:
        raise NotYet("whodunit(program) never runs the program: call program(after).")
    if not wrong:
        if found is not None:
            raise NotYet(
                f"whodunit(program) returns {spelt(found)} for a program in which nothing fails; return None "
                "there."
            )
        if sum(seen["waits"]) > seen["own"] + 2:
            waited = sum(seen["waits"])
            raise NotYet(
                f"of a program that is well, whodunit(program) lets the host wait {waited} times: a "
                "synchronisation after each launch belongs into the run that looks for the culprit, not into "
                "every run. Run it once without, and look closer only if that fails."
            )
        return
    number = wrong[0]
    right = (names[number - 1], number)
    if isinstance(found, list):
        found = tuple(found)
    if equals(found, right):
        return
    if found is None and not any(seen["lost"]):
        raise NotYet(
            "whodunit(program) returns None though a launch fails: nobody waited for it. Synchronize before "
            "you believe that all is well."
        )
    told = f"whodunit(program) returns {spelt(found)}, and launch {number}, {right[0]}, failed first"
    if not isinstance(found, tuple) or len(found) != 2 or not is_whole(found[1]):
        raise NotYet(f"{told}: return the kernel's name and the number of its launch.")
    if found[1] == number - 1 and equals(found[0], right[0]):
        raise NotYet(f"{told}: launches count from 1.")
    if found[1] in wrong[1:]:
        raise NotYet(f"{told}: that one fails, too, but a context is lost once, by the first.")
    if found[1] in seen["given"]:
        raise NotYet(
            f"{told}: yours is the last that was given before the error was told. A launch returns before "
            "its kernel runs: let the host wait after each launch, and note each before you wait."
        )
    raise NotYet(f"{told}: note name and number of each launch first, then wait; the last noted one did it.")


WHODUNIT = PythonExercise("04-whodunit", "Whodunit", judge_whodunit, level="warm-up", limit_s=10.0)

# 04-hunt

_NAMES = ("normed", "scores", "weights", "mixed", "out", "gated", "masked")
KINDS = ("made", "none", "in place", "input", "infinite", "two", "twice", "over the input", "last", "alone")


def judge_hunt(answer: Answer) -> str:
    """``hunt(steps, arrays)``: the name of the step that made the first NaN, and its cell."""
    early = ""
    for stale in (False, True):  # whether arrays hold NaN before their step has run
        for kind in KINDS:
            program = drawn_program(answer.rng, kind, stale)
            calls: list[str] = []
            touched: list[str] = []

            def step(
                name: str,
                now: list[Any],
                program: _Program = program,
                calls: list[str] = calls,
                touched: list[str] = touched,
            ) -> Any:
                if not program.is_after(len(calls), now):
                    touched.append(name)
                calls.append(name)
                return program.writes[name]

            seen = answer.ask(
                _hunted,
                program.states[0],
                program.means,
                list(program.writes),
                shown="hunt(steps, arrays)",
                back=step,
            )
            same = not touched and program.is_after(len(calls), seen["left"])
            _judge_cell(seen["found"], program, calls, same)
            if len(calls) < len(program.writes):
                early = f"{len(calls)} of {counted(len(program.writes), 'step')}"
    if early:
        raise NotYet(
            f"hunt(steps, arrays) names the right cell, but runs only {early}: each runs once, also those "
            "after the first NaN."
        )
    return "kernel and cell are named, whatever stood in the arrays before."


@dataclass(frozen=True)
class _Program:
    """A program of steps: the values that each step writes, the arrays after each step, and the first NaN.

    All of that stays with the judge: a step asks for what it writes.
    """

    kind: str
    stale: bool
    writes: dict[str, Any]
    means: dict[str, str]
    states: list[dict[str, Any]]
    wanted: tuple[str, tuple[int, ...]] | None

    def is_after(self, calls: int, now: list[Any]) -> bool:
        """Return whether arrays contain what they must contain after `calls` steps."""
        there = self.states[min(calls, len(self.writes))].values()
        return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(there, now, strict=True))


def drawn_program(rng: np.random.Generator, kind: str, stale: bool) -> _Program:
    """Draw a program of one kind, with or without a step that makes a NaN."""
    count = 1 if kind == "alone" else int(rng.integers(4, len(_NAMES) + 1))
    names = [str(name) for name in rng.permutation(_NAMES)[:count]]
    rows, cols = (int(n) for n in rng.integers(2, 9, 2) + (rng.permutation(2) == 0))  # no square
    at = count if kind in ("two", "last", "alone") else int(rng.integers(1, count - 1))
    if kind == "in place":
        at = 3  # in an array that has an earlier name, too
    cells = [divmod(int(at), cols) for at in rng.permutation(rows * cols)[:3]]
    if kind in ("two", "twice"):  # of which the first by rows is the last by columns
        (row, low), (col, left) = (sorted(rng.choice(k, 2, replace=False).tolist()) for k in (rows, cols))
        cells[:2] = [(low, col), (row, left)]
    x = rng.integers(1, 9, (rows, cols)).astype(np.float32)
    if kind == "input":
        x[cells[0]] = np.nan
    order = ["x", *names]
    means = {name: name for name in order}
    if kind == "in place":
        means[names[2]], means[names[-1]] = names[1], means[names[-2]]
    if kind == "over the input":
        means[names[0]] = "x"
    state = {name: np.full_like(x, np.nan if stale else 1) for name in dict.fromkeys(means.values())}
    state["x"] = x
    states = [dict(state)]
    writes = {}
    first = _first_cell("x", x)
    for number, name in enumerate(names, 1):
        with np.errstate(invalid="ignore"):
            values = state[means[order[number - 1]]] * np.float32(0.5) + np.float32(1)
            if number == at and kind not in ("none", "input", "infinite"):
                for cell in cells[: 2 if kind in ("two", "twice") else 1]:
                    values[cell] = np.nan
            if number == at and kind == "infinite":
                values[cells[2]] = np.inf
                values[cells[1]] = -np.inf  # with the other one a sum is NaN, and no element
                values[cells[0]] = np.inf
            if number == at + 1 and kind == "infinite":
                values[cells[0]] = values[cells[0]] - values[cells[0]]
        if number == count and kind == "in place":
            values = np.nan_to_num(values, nan=0.0)  # and nothing is to be seen any more
        writes[name] = values
        state = state | {means[name]: values}
        states.append(state)
        first = first or _first_cell(name, values)
    return _Program(kind, stale, writes, means, states, first)


def _first_cell(name: str, values: Any) -> tuple[str, tuple[int, ...]] | None:
    wrong = np.argwhere(np.isnan(values))
    return (name, tuple(int(v) for v in wrong[0])) if wrong.size else None


def _hunted(
    answer: Any, asks: Callable[..., Any], start: dict[str, Any], means: dict[str, str], names: list[str]
) -> dict[str, Any]:
    """Run the answer in its own process; return its result and what it leaves in the arrays."""
    must_be_a_function("hunt", callable(answer), type(answer).__name__)
    cp = session.cp()
    arrays = {name: cp.asarray(values) for name, values in start.items()}

    def now() -> list[Any]:
        return [array.get() for array in arrays.values()]

    def step(name: str) -> Callable[[], None]:
        def launch() -> None:
            arrays[means[name]][...] = cp.asarray(asks(name, now()))

        return launch

    found = answer({name: step(name) for name in names}, {name: arrays[of] for name, of in means.items()})
    return {"found": found, "left": now()}


def _is_left_over(found: Any, program: _Program) -> bool:
    """Return whether a step writes another number than NaN to the cell that was found."""
    if not isinstance(found, tuple) or not isinstance(found[0], str) or found[0] not in program.writes:
        return False
    values = program.writes[found[0]]
    cell = found[1]
    inside = len(cell) == 2 and 0 <= cell[0] < values.shape[0] and 0 <= cell[1] < values.shape[1]
    return inside and bool(np.isfinite(values[cell]))


def _judge_cell(found: Any, program: _Program, calls: list[str], same: bool) -> None:
    kind = program.kind
    wanted = program.wanted
    if isinstance(found, tuple | list) and len(found) == 2 and (cell := parts_of(found[1])) is not None:
        found = (found[0], tuple(int(c) for c in cell if is_whole(c)))
    told = f"hunt(steps, arrays) returns {spelt(found)}"
    if calls != list(program.writes)[: len(calls)]:
        raise NotYet(f"{told}, but runs the steps {', '.join(calls)}: each runs once, in order.")
    if not same:
        raise NotYet(
            f"{told}, and leaves other numbers in the arrays than the steps make: looking for a NaN must not "
            "change one. A NaN that is replaced is not mended."
        )
    if equals(found, wanted):
        return
    if program.stale and _is_left_over(found, program):
        raise NotYet(
            f"{told}, and no step makes a NaN there: what an array held before its step has run is left over "
            "from earlier."
        )
    if wanted is None:
        raise NotYet(f"{told} where there is no NaN; return None.")
    right = f"{told}, and the first is in {wanted[0]!r} at {wanted[1]}"
    if found is None:
        hint = "Ask with cp.isnan: no comparison with NaN is true."
        if program.stale:
            hint = "Its step may make a NaN where the array held one before: look at it afterwards."
        if kind == "in place":
            hint = "Look after each step: a later one may write over it."
        raise NotYet(f"{right}. {hint}")
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], str):
        raise NotYet(f"{right}: return the name of the array and the cell's row and column.")
    if kind == "infinite" and found[0] != wanted[0]:
        raise NotYet(f"{right}: infinity is no NaN yet.")
    if found[0] != wanted[0] and program.means.get(found[0]) == program.means[wanted[0]]:
        raise NotYet(f"{right}: both names mean one array, and the step that made the NaN is asked for.")
    if found[0] != wanted[0]:
        raise NotYet(
            f"{right}: NaN spreads, so look at the input first, and after each step at its own array."
        )
    raise NotYet(f"{right}: of several cells the first, row by row, as a tuple (row, column).")


HUNT = PythonExercise("04-hunt", "The first NaN", judge_hunt, level="core", limit_s=12.0)

# 04-places

_WIDE = (1, 33, 40_000, 46_341, 50_000, 70_000, 1_500_000)


def places(drawn: Draw, size: Any, block: Dim3) -> Case:
    """Positions of elements in a large matrix, and the positions of the same elements in its transpose."""
    rows, cols = (int(n) for n in drawn.rng.choice(_WIDE, 2))
    among = drawn.rng.random()
    if among < 0.2:  # just beyond an int, with sides below those that the text names
        rows, cols = (int(n) for n in drawn.rng.integers(46_341, 50_000, 2))
    elif among < 0.35:  # more than 40 bits
        rows, cols = (int(n) for n in drawn.rng.integers(1_200_000, 1_500_000, 2))
    elif among < 0.65:  # one of a side whose square would fit into an int
        sides = int(drawn.rng.integers(31_000, 46_341)), int(drawn.rng.integers(70_000, 1_500_000))
        rows, cols = sides if among < 0.5 else sides[::-1]
    row = drawn.rng.integers(0, rows, size).astype(np.int32)
    col = drawn.rng.integers(0, cols, size).astype(np.int32)
    far = drawn.rng.random(size) < 0.3
    row[far], col[far] = rows - 1, cols - 1
    return _places_of(row, col, rows, cols, block)


def _in_a_matrix(rows: int, cols: int) -> Row:
    """Return a row for a matrix of that size: its corners and their neighbours."""

    def case(drawn: Draw, size: Any, block: Dim3) -> Case:
        row = drawn.rng.choice((0, min(1, rows - 1), rows - 1), size).astype(np.int32)
        col = drawn.rng.choice((0, min(1, cols - 1), cols - 1), size).astype(np.int32)
        row[-1], col[-1] = rows - 1, cols - 1
        return _places_of(row, col, rows, cols, block)

    return Row(f"corners of a matrix of {rows:,} × {cols:,}", case, (40,))


_MOST = (1 << 31) - 1
_MATRICES = tuple(
    _in_a_matrix(rows, cols)
    for rows, cols in (
        (1, 1),
        (7, 5),
        (46_341, 46_341),
        (50_000, 50_000),
        (65_536, 65_536),
        (1, _MOST),
        (_MOST, 1),
        (1_500_000, 1_500_000),
        (40_000_000, 40_000_000),
    )
)


def _places_of(row: Any, col: Any, rows: int, cols: int, block: Dim3) -> Case:
    size = row.size
    values = {"row": row, "col": col, "rows": rows, "cols": cols, "n": size}
    wide_row = row.astype(np.int64)
    wide_col = col.astype(np.int64)
    wanted = {"from": wide_row * cols + wide_col, "to": wide_col * rows + wide_row}
    return Case(draw.blocks_for(size, block[0]), values, wanted)


def _narrow(kind: Any) -> Callable[[Mistake], bool]:
    """The product computed in 32 bits, then widened."""

    def matches(m: Mistake) -> bool:
        if m.found is None or m.wanted is None:
            return False
        first, times, then = ("row", "cols", "col") if m.name == "from" else ("col", "rows", "row")
        product = (m[first].astype(np.int64) * m[times]).astype(kind).astype(np.int64)
        whole = (product + m[then]).astype(np.int64)
        wrapped = (m[first].astype(np.int64) * m[times] + m[then]).astype(kind).astype(np.int64)
        return bool((m.found == whole).all() or (m.found == wrapped).all())

    return matches


PLACES = KernelExercise(
    "04-places",
    "Repair: where does it lie?",
    kernel="places",
    parameters="const int* row, const int* col, long long* from, long long* to, int rows, int cols, int n",
    once=True,
    case=places,
    table=_MATRICES,
    reference="places.cu",
    kind="repair",
    advice=(
        Advice(
            _narrow(np.int32),
            "The product of two ints is an int, and wraps beyond 2,147,483,647, whatever it is assigned to: "
            "widen a factor before you multiply, in both lines.",
        ),
        Advice(
            _narrow(np.uint32),
            "unsigned wraps as well, only later: widen a factor to 64 bits before you multiply.",
        ),
        Advice(advice.partly_unwritten, "Every element has a place, however far out: a guard hides it only."),
        Advice(advice.out_of_bounds, "Threads beyond n have no element."),
        Advice(
            lambda m: m.found is not None,
            "Row times the row's length, plus the column; in the transpose a row has `rows` elements.",
        ),
    ),
    praise="right beyond 2³¹, on the way out and on the way back.",
)

# 04-barrier


def tree_sum(drawn: Draw, size: Any, block: Dim3) -> Case:
    """The sum of each block's elements."""
    return _sums_of(drawn.integers(size, -(1 << 20), 1 << 20), block)


def _alone(value: int, others: int) -> Any:
    """A row's case: the last element of each block is another than all others."""

    def case(drawn: Draw, size: Any, block: Dim3) -> Case:
        x = np.full(size, others, np.int32)
        x[block[0] - 1 :: block[0]] = value
        return _sums_of(x, block)

    return case


_SUMS = (
    Row("0 but for the largest int", _alone((1 << 31) - 1, 0)),
    Row("0 but for the least int", _alone(-(1 << 31), 0)),
    Row("all -1,000,001", _alone(-1_000_001, -1_000_001)),
)


def _sums_of(x: Any, block: Dim3) -> Case:
    size = x.size
    threads = block[0]
    blocks = draw.blocks_for(size, threads)
    sums = np.zeros(blocks, np.int32)
    for at in range(-(-size // threads)):
        sums[at] = x[at * threads : (at + 1) * threads].sum()
    return Case(blocks, {"x": x, "n": size}, {"sums": sums})


BARRIER = KernelExercise(
    "04-barrier",
    "Repair: half a barrier",
    kernel="tree_sum",
    parameters="const int* x, int* sums, int n",
    once=True,
    case=tree_sum,
    table=_SUMS,
    reference="tree_sum.cu",
    kind="repair",
    level="stretch",
    advice=(
        Advice(advice.out_of_bounds, "Threads beyond n add 0, and `part` has 1,024 places."),
        Advice(
            advice.hazard("RAW", "WAR", "WAW"),
            "Without a __syncthreads() between storing and reading, a warp reads what another has not stored "
            "yet: one belongs behind the first store, and one behind each step.",
        ),
        Advice(
            lambda m: "barrier" in m.said or m.fault in ("threads missing", "barrier"),
            "__syncthreads() is for all threads of the block: put it where every one of them comes by, busy "
            "or not.",
        ),
        Advice(advice.written_twice, "One thread of each block writes its sum."),
        Advice(
            lambda m: m.found is not None,
            "Does every element reach thread 0, for blocks of any size, and does everybody wait after each "
            "step?",
        ),
    ),
    praise="all threads of the block meet after each step, whoever adds.",
)

# 04-freed


def freed_case(drawn: Draw, size: int) -> ProgramCase:
    """Integers whose products are exact."""
    x = drawn.rng.integers(-900, 900, size).astype(np.float32)
    label = f"both(x) of {counted(size, 'element')}"
    return ProgramCase((x,), (x * 2 + 1) * (x - 3), True, label, place="device", unchanged=True)


def both(x: Any) -> Any:
    """The reference: the memory is freed when no work uses it any more."""
    cp = session.cp()
    here = cp.cuda.get_current_stream()
    side = cp.cuda.Stream(non_blocking=True)
    doubled = x * np.float32(2)
    y = cp.empty_like(x)
    side.wait_event(here.record())
    with side:
        cp.add(doubled, np.float32(1), out=y)
    here.wait_event(side.record())
    del doubled
    z = x - np.float32(3)
    return y * z


FREED = ProgramExercise(
    "04-freed",
    "Repair: freed too early",
    "both",
    freed_case,
    both,
    kind="repair",
    sizes=lambda rng: (1, 33, 1000, int(rng.integers(5_000, 50_000)), 100_000),
    checked=True,
    budgets=(
        Budget("streams", "Keep the two streams, and let one wait for the other.", least=2),
        Budget("waits", "An event orders the streams and leaves the host free.", most=0),
        Budget(
            "kept_bytes",
            "Nothing but the result lives on: order the streams, and let the block go back.",
            allowance=1.05,
            large=True,
        ),
        Budget(
            "driver_calls",
            "cudaFree lets the host wait for the whole device: leave the memory to the pool.",
            allowance=2.0,
        ),
    ),
    advice=(("reused too early", "The block goes back when its array dies; order the streams before that."),),
    praise="the block goes back when the other stream has read it, and the host never waits.",
)

EXERCISES = (WHODUNIT, PLACES, FREED, HUNT, BARRIER)

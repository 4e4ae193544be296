"""Device programs: Python functions that use ``cp``, judged by their results and by what they cost."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from gpulab import session
from gpulab.teach.judge import budget
from gpulab.teach.judge.compare import Near, first_wrong, values_of, wrong_elements
from gpulab.teach.judge.draw import Draw, seed_of
from gpulab.teach.judge.exercise import NotYet, ProgramCase, ProgramExercise, Stage
from gpulab.teach.judge.python.apart import Told
from gpulab.teach.judge.python.bench import Bench
from gpulab.teach.judge.python.counts import Seen, scored
from gpulab.teach.judge.python.functions import call, spelt
from gpulab.teach.judge.verdict import StageResult

# Other lawful orders in which a program has to give the same results.
ORDERS: tuple[tuple[str, int], ...] = (("last first", 0), ("random", 1))


def judge_program(exercise: ProgramExercise, answer: Any) -> Told:
    """Judge a program, in a process of its own: every size, the order of its streams, and its budgets."""
    seed = seed_of(exercise.exercise_id)
    size, yours = exercise.sizes[-2:][0], None
    names: list[Stage] = ["results", "hazards", "orders", "counts"]
    if not exercise.checked:
        names = ["results", "counts"]
    results: tuple[StageResult, ...] = ()
    try:
        for size in exercise.sizes:
            yours = run(exercise, answer, exercise.case(Draw(seed), size))
        results += (StageResult("results", "passed", f"right for {len(exercise.sizes)} sizes."),)
        if yours is None:
            return Told(True, exercise.praise, results)
        if exercise.checked:
            case = exercise.case(Draw(seed), exercise.sizes[-2:][0])
            run(exercise, answer, case, checked=True)
            results += (StageResult("hazards", "passed", "everything that has to wait does."),)
            for order in ORDERS:
                run(exercise, answer, case, order=order)
            said = f"right in {len(ORDERS)} other orders that its streams allow."
            results += (StageResult("orders", "passed", said),)
    except NotYet as reason:
        said = advised(exercise, str(reason))
        failed, *left = names[len(results) :]
        after = (StageResult(name, "not reached") for name in left)
        return Told(False, said, (*results, StageResult(failed, "failed", said), *after))
    if not exercise.budgets:
        return Told(True, exercise.praise, results)
    case = exercise.case(Draw(seed), exercise.sizes[-1])
    reference = run(exercise, exercise.reference, case)
    naive = run(exercise, exercise.naive, case) if exercise.naive is not None else None
    assert reference is not None
    scores = tuple(scored(item, yours, reference, naive) for item in exercise.budgets)
    for item, score in zip(exercise.budgets, scores, strict=True):
        if not budget.passes(item, score):
            said = f"{case.label or f'size {size}'}: {budget.complaint(item, score)}"
            return Told(False, said, (*results, StageResult("counts", "failed", said)), scores)
    counted = "; ".join(f"{score.yours:,} {score.words}" for score in scores) + "."
    return Told(True, exercise.praise, (*results, StageResult("counts", "passed", counted)), scores)


def advised(exercise: ProgramExercise, said: str) -> str:
    """What went wrong, with the first piece of the exercise's advice that it calls for."""
    more = next((advice for words, advice in exercise.advice if words in said), "")
    return f"{said.rstrip()}{'' if said.endswith(('.', '!', '?')) else '.'} {more}" if more else said


def run(
    exercise: ProgramExercise,
    program: Any,
    case: ProgramCase,
    checked: bool = False,
    order: tuple[str, int] | None = None,
) -> Seen | None:
    """Call a program on a fresh virtual device and compare what it returns; None on a real one.

    Parameters
    ----------
    checked
        Look for uses of the same memory without order, instead of at the result.
    order
        Hold the work of streams back and run it in another order, with a seed (`Machine.stream_order`).

    Raises
    ------
    NotYet
        If it raises, or returns something else; or, if that is `checked`, leaves out an order.
    """
    real: Any = session.real_cp()
    with session.bench() if real is None else nullcontext() as side:
        cp = real if side is None else side.cp
        arguments = tuple(
            cp.asarray(given) if case.on_device and isinstance(given, np.ndarray) else given
            for given in case.arguments
        )
        label = case.label or f"{exercise.name}({', '.join(map(_shown, case.arguments))})"
        bench = Bench(cp, side)

        def called(*given: Any) -> Any:
            return bench.watched(lambda: call(program, *given, name=exercise.name, shown=label))

        if checked:
            with bench.checking() as found:
                exercise.calls(bench, called, *arguments)
            if found:
                raise NotYet(f"{label}: {found[0].message}")
            return None
        with nullcontext() if order is None or side is None else side.machine.stream_order(*order):
            result = exercise.calls(bench, called, *arguments)
            try:
                _compare(cp, label, result, case.wanted, case.stays)
            except NotYet as reason:
                if order is not None:
                    raise NotYet(f"In another order that its streams allow, {reason}") from None
                known = next((says for value, says in case.mistakes if _equal(cp, result, value)), "")
                raise NotYet(f"{reason} {known}".rstrip()) from None
        return bench.seen


def _compare(cp: Any, label: str, result: Any, wanted: Any, stays: bool = False) -> None:
    several = isinstance(wanted, tuple)
    parts = result if several else (result,)
    if several and (not isinstance(result, tuple | list) or len(result) != len(wanted)):
        raise NotYet(f"{label} should return {len(wanted)} results, as a tuple.")
    for number, (found, right) in enumerate(zip(parts, wanted if several else (wanted,), strict=True)):
        name = f"result {number + 1}" if several else "the result"
        if not isinstance(found, cp.ndarray | np.ndarray | np.generic | int | float):
            raise NotYet(
                f"{label} returns {type(found).__name__}, and {name} should be an array or a number."
            )
        if stays and not isinstance(found, cp.ndarray):
            raise NotYet(f"{label}: {name} should stay on the device; it is {_kind(found)}.")
        right = right if isinstance(right, Near) else np.asarray(right)
        got, values = (
            cp.asnumpy(found) if isinstance(found, cp.ndarray) else np.asarray(found),
            values_of(right),
        )
        if got.shape != values.shape:
            raise NotYet(f"{label}: {name} has the shape {got.shape}, it should be {values.shape}.")
        wrong = wrong_elements(got, right)
        if wrong.any():
            raise NotYet(f"{label}: {first_wrong(name, got, values, wrong)}.")


def _equal(cp: Any, result: Any, wanted: Any) -> bool:
    try:
        _compare(cp, "", result, wanted)
    except NotYet:
        return False
    return True


def _kind(found: Any) -> str:
    return "a NumPy array" if isinstance(found, np.ndarray) else "a number of the host"


def _shown(given: Any) -> str:
    return f"array of {given.shape}" if isinstance(given, np.ndarray) else spelt(given)

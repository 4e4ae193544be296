"""Device programs: Python functions that use ``cp``, judged by their results and by what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from gpulab import session
from gpulab.teach.judge import budget
from gpulab.teach.judge.budget import Score
from gpulab.teach.judge.compare import Near, first_wrong, values_of, wrong_elements
from gpulab.teach.judge.draw import Draw, seed_of
from gpulab.teach.judge.exercise import NotYet, ProgramCase, ProgramExercise
from gpulab.teach.judge.python.apart import Told
from gpulab.teach.judge.python.functions import call, spelt
from gpulab.teach.judge.verdict import StageResult
from virtualgpu.records import Activity


class Seen:
    """What a program gave the device: the operations of its streams, and how often the host waited.

    ``kernel_bus_bytes`` is what its kernels moved between host and device by themselves.
    """

    def __init__(self, activities: Sequence[Activity], waits: int, kernel_bus_bytes: int = 0) -> None:
        self.activities, self.waits, self.kernel_bus_bytes = activities, waits, kernel_bus_bytes

    def copies(self, *kinds: str) -> list[Activity]:
        """Copies, of those kinds (``HtoD``, ``DtoH``, ``DtoD``, ``PtoP``) or all."""
        found = [a for a in self.activities if a.kind in ("MEMCPY", "MEMCPY2")]
        return [a for a in found if not kinds or a.copy_kind in kinds]

    @property
    def host_launches(self) -> int:
        """What the host had to launch: kernels one by one, and graphs."""
        return len([a for a in self.of_kind("CONCURRENT_KERNEL") if not a.graph_id]) + self.graph_launches

    @property
    def graph_launches(self) -> int:
        """How often a graph was launched."""
        return len([a for a in self.activities if a.graph_id and not a.graph_node_id])

    @property
    def graph_depth(self) -> int:
        """Nodes on the longest chain of any launch of a graph."""
        depth: dict[int, int] = {}
        for a in self.activities:
            if a.graph_id:
                first = a.correlation_id - a.graph_node_id  # of this launch
                before = (depth[number] for number in a.after if first <= number < a.correlation_id)
                depth[a.correlation_id] = 1 + max(before, default=0)
        return max(depth.values(), default=0)

    def of_kind(self, kind: str) -> list[Activity]:
        """Operations of one of CUPTI's kinds."""
        return [a for a in self.activities if a.kind == kind]


def _bytes(*kinds: str) -> Callable[[Seen], int]:
    return lambda seen: sum(a.size_bytes for a in seen.copies(*kinds))


# What budgets of programs may name: the words for it, and how it is read off. A wait is any call in which
# the host stands still until the device has finished something, ``.get()`` and ``float(array)`` included.
COUNTS: dict[str, tuple[str, Callable[[Seen], int]]] = {
    "launches": ("kernel launches", lambda seen: len(seen.of_kind("CONCURRENT_KERNEL"))),
    "host_launches": ("launches by the host, of kernels and of graphs", lambda seen: seen.host_launches),
    "graph_launches": ("graph launches", lambda seen: seen.graph_launches),
    "graphs": ("graphs that were launched", lambda seen: len({a.graph_id for a in seen.activities} - {0})),
    "graph_depth": ("nodes on the longest chain of a graph", lambda seen: seen.graph_depth),
    "memsets": ("memory sets", lambda seen: len(seen.of_kind("MEMSET"))),
    "copies": ("copies", lambda seen: len(seen.copies())),
    "copied_bytes": ("bytes copied", _bytes()),
    "to_device_copies": ("copies to the device", lambda seen: len(seen.copies("HtoD"))),
    "to_device_bytes": ("bytes copied to the device", _bytes("HtoD")),
    "to_host_copies": ("copies to the host", lambda seen: len(seen.copies("DtoH"))),
    "to_host_bytes": ("bytes copied to the host", _bytes("DtoH")),
    "pageable_copies": (
        "copies of pageable memory",
        lambda seen: len([a for a in seen.copies("HtoD", "DtoH") if a.pinned is False]),
    ),
    "bus_bytes": (
        "bytes between host and device",
        lambda seen: seen.kernel_bus_bytes + _bytes("HtoD", "DtoH")(seen),
    ),
    "waits": ("waits of the host for the device", lambda seen: seen.waits),
    "streams": ("streams", lambda seen: len({a.stream_id for a in seen.activities})),
}


def judge_program(exercise: ProgramExercise, answer: Any) -> Told:
    """Judge a program, in a process of its own: every size, and its budgets at the last."""
    seed = seed_of(exercise.exercise_id)
    try:
        for size in exercise.sizes:
            yours = run(exercise, answer, exercise.case(Draw(seed), size))
    except NotYet as reason:
        said = advised(exercise, str(reason))
        stages = (StageResult("results", "failed", said), StageResult("counts", "not reached"))
        return Told(False, said, stages)
    results = StageResult("results", "passed", f"right for {len(exercise.sizes)} sizes.")
    if yours is None or not exercise.budgets:
        return Told(True, exercise.praise, (results,))
    case = exercise.case(Draw(seed), exercise.sizes[-1])
    reference = run(exercise, exercise.reference, case)
    naive = run(exercise, exercise.naive, case) if exercise.naive is not None else None
    assert reference is not None
    scores = tuple(_score(item, yours, reference, naive) for item in exercise.budgets)
    for item, score in zip(exercise.budgets, scores, strict=True):
        if not budget.passes(item, score):
            said = f"{case.label or f'size {size}'}: {budget.complaint(item, score)}"
            return Told(False, said, (results, StageResult("counts", "failed", said)), scores)
    counted = "; ".join(f"{score.yours:,} {score.words}" for score in scores) + "."
    return Told(True, exercise.praise, (results, StageResult("counts", "passed", counted)), scores)


def advised(exercise: ProgramExercise, said: str) -> str:
    """What went wrong, with the first piece of the exercise's advice that it calls for."""
    more = next((advice for words, advice in exercise.advice if words in said), "")
    return f"{said.rstrip()}{'' if said.endswith(('.', '!', '?')) else '.'} {more}" if more else said


def run(exercise: ProgramExercise, program: Any, case: ProgramCase) -> Seen | None:
    """Call a program on a fresh virtual device and compare what it returns; None on a real one.

    Raises
    ------
    NotYet
        If it raises, or returns something else.
    """
    real: Any = session.real_cp()
    with session.bench() if real is None else nullcontext() as side:
        cp = real if side is None else side.cp
        arguments = tuple(
            cp.asarray(given) if case.on_device and isinstance(given, np.ndarray) else given
            for given in case.arguments
        )
        log, waits, bus = _so_far(side)
        label = case.label or f"{exercise.name}({', '.join(map(_shown, case.arguments))})"
        result = call(program, *arguments, name=exercise.name, shown=label)
        now, waited, bussed = _so_far(side)
        try:
            _compare(cp, label, result, case.wanted, case.stays)
        except NotYet as reason:
            known = next((says for value, says in case.mistakes if _equal(cp, result, value)), "")
            raise NotYet(f"{reason} {known}".rstrip()) from None
        return None if side is None else Seen(now[len(log) :], waited - waits, bussed - bus)


def _so_far(side: Any) -> tuple[tuple[Activity, ...], int, int]:
    """What the device was given, how often the host waited for it, and what kernels moved over the bus."""
    if side is None:
        return (), 0, 0
    device = side.machine.current_device
    return tuple(device.work.log), side.machine.clock.waits, device.memory.bus_bytes


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


def _score(item: Any, yours: Seen, reference: Seen, naive: Seen | None) -> Score:
    words, read_off = COUNTS[item.counter]
    golf = item.most != 0 and item.least is None
    other = None if naive is None else read_off(naive)
    return Score(item.counter, words, read_off(yours), read_off(reference), other, golf=golf)


def _kind(found: Any) -> str:
    return "a NumPy array" if isinstance(found, np.ndarray) else "a number of the host"


def _shown(given: Any) -> str:
    return f"array of {given.shape}" if isinstance(given, np.ndarray) else spelt(given)

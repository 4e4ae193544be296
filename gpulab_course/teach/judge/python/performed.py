"""A call of a device program in the answer's process: its result, its costs and its unordered uses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gpulab import session
from gpulab.processes.values import OnDevice
from gpulab_course.teach.judge.python.bench import Bench
from gpulab_course.teach.judge.python.counts import counted
from gpulab_course.teach.judge.python.flow import flow
from gpulab_course.teach.judge.python.functions import call_here

# Where nothing waits for another: as it comes; the same, and every use of memory is looked at; another order
# that the streams allow, with a seed (`Machine.stream_order`).
How = Literal["as given", "checked"] | tuple[str, int]
_MOST_HAZARDS = 3


@dataclass(frozen=True, slots=True)
class Task:
    """The arguments and conditions of a program's call.

    Parameters
    ----------
    name, label
        The function's name, and how the call is written in messages.
    calls
        `ProgramExercise.calls`.
    arguments, on_device, unchanged
        As in `ProgramCase`.
    how
        How its work is run, and whether that is checked.
    returns
        `ProgramExercise.returns`.
    """

    name: str
    label: str
    calls: Callable[..., Any]
    arguments: tuple[Any, ...]
    on_device: bool = False
    unchanged: bool = False
    how: How = "as given"
    returns: bool = True


def perform(program: Any, task: Task) -> dict[str, Any]:
    """Call a program on a fresh virtual device, or on the real one.

    It is called in a stream of its own, in which its device arrays are still being written.

    Returns
    -------
    dict
        ``result``, as the caller reads it in that stream; ``counts``, None on a real device; ``hazards``,
        sentences, where that is checked; ``changed``, the numbers of arguments that were to stay and did not.
    """
    real: Any = session.real_cp()
    with session.bench() if real is None else nullcontext() as side:
        cp = real if side is None else side.cp
        bench = Bench(cp, side)
        kept = [given.copy() if isinstance(given, np.ndarray) else None for given in task.arguments]
        sources = [None if a is None or not task.on_device else cp.asarray(a) for a in kept]
        with cp.cuda.Stream(non_blocking=True) as current:
            given = [
                argument if source is None else _elsewhere(cp, source)
                for argument, source in zip(task.arguments, sources, strict=True)
            ]
            cp.cuda.Device().synchronize()
            around: Any = nullcontext([])
            if task.how == "checked":
                around = bench.checking(current)
            elif side is not None and task.how != "as given":
                around = side.machine.stream_order(*task.how)
            with around as found:
                for argument, source in zip(given, sources, strict=True):
                    if source is not None:
                        argument[...] = source  # not copyto(), which no order holds back
                bench.acts.clear()

                def called(*arguments: Any) -> Any:
                    names = {"name": task.name, "shown": task.label}
                    return bench.watched(
                        lambda: call_here(program, *arguments, returns=task.returns, **names)
                    )

                result = task.calls(bench, called, *given)
                parts = result if isinstance(result, tuple | list) else (result,)
                if bench.record is not None:
                    bench.record.flow = flow(bench.acts, bench.places(parts))
                written = [isinstance(a, cp.ndarray) and bench.writes_to(a) for a in given]
                result = _brought(bench, result)
            cp.cuda.Device().synchronize()
            changed = [
                number
                for number, (argument, before) in enumerate(zip(given, kept, strict=True))
                if task.unchanged
                and before is not None
                and (
                    written[number]
                    or any(_differs(cp, each, before) for each in (argument, *bench.pinned_of(argument)))
                )
            ]
        said = [hazard.message for hazard in (found or ())[:_MOST_HAZARDS]]
        counts = bench.record and counted(bench.record)
        return {"result": result, "counts": counts, "hazards": said, "changed": changed}


def _elsewhere(cp: Any, source: Any) -> Any:
    """Return an array like another one, with meaningless contents."""
    array = cp.empty_like(source)
    array.fill(cp.nan if array.dtype.kind == "f" else 1)
    return array


def _differs(cp: Any, found: Any, before: Any) -> bool:
    return bool(cp.asnumpy(found).tobytes() != before.tobytes())


def _brought(bench: Bench, result: Any) -> Any:
    """Copy a result for the caller: arrays of the device are marked as such."""
    if isinstance(result, tuple | list):
        parts = [_brought(bench, part) for part in result]
        return parts if isinstance(result, list) else tuple(parts)
    if isinstance(result, bench.cp.ndarray):
        return OnDevice(bench.read(result))
    found = bench.read(result)
    return found.copy() if isinstance(found, np.ndarray) else found

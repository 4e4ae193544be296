"""A call of a device program in the answer's process: its result, its costs and its hazards."""

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
RunMode = Literal["as given", "checked"] | tuple[str, int]
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
        How its work is run, and whether its uses of memory are checked.
    returns
        `ProgramExercise.returns`.
    """

    name: str
    label: str
    calls: Callable[..., Any]
    arguments: tuple[Any, ...]
    on_device: bool = False
    unchanged: bool = False
    how: RunMode = "as given"
    returns: bool = True


def perform(program: Any, task: Task) -> dict[str, Any]:
    """Call a program on a fresh virtual device, or on the real one.

    It is called in a stream of its own, in which its device arrays are still being written.

    Returns
    -------
    dict
        ``result``, as the caller reads it in that stream; ``counts``, None on a real device; ``hazards``,
        messages of the checks; ``changed``, the numbers of arguments that the program must not change.
    """
    real: Any = session.real_cp()
    with session.bench() if real is None else nullcontext() as side:
        cp = real if side is None else side.cp
        bench = Bench(cp, side)
        originals = [a.copy() if isinstance(a, np.ndarray) else None for a in task.arguments]
        sources = [None if a is None or not task.on_device else cp.asarray(a) for a in originals]
        with cp.cuda.Stream(non_blocking=True) as current:
            inputs = [
                argument if source is None else _garbage_like(cp, source)
                for argument, source in zip(task.arguments, sources, strict=True)
            ]
            cp.cuda.Device().synchronize()
            order_context: Any = nullcontext([])
            if task.how == "checked":
                order_context = bench.checking(current)
            elif side is not None and task.how != "as given":
                order_context = side.machine.stream_order(*task.how)
            with order_context as hazards:
                for argument, source in zip(inputs, sources, strict=True):
                    if source is not None:
                        argument[...] = source  # not copyto(), which no order holds back
                bench.acts.clear()

                def call(*arguments: Any) -> Any:
                    names = {"name": task.name, "shown": task.label}
                    return bench.watched(
                        lambda: call_here(program, *arguments, returns=task.returns, **names)
                    )

                result = task.calls(bench, call, *inputs)
                parts = result if isinstance(result, tuple | list) else (result,)
                if bench.record is not None:
                    bench.record.flow = flow(bench.acts, bench.regions(parts))
                is_written = [isinstance(a, cp.ndarray) and bench.writes_to(a) for a in inputs]
                result = _on_host(bench, result)
            cp.cuda.Device().synchronize()
            changed_numbers = []
            for number, (argument, original) in enumerate(zip(inputs, originals, strict=True)):
                if not task.unchanged or original is None:
                    continue
                copies = (argument, *bench.pinned_of(argument))
                if is_written[number] or any(_differs(cp, copy, original) for copy in copies):
                    changed_numbers.append(number)
        messages = [hazard.message for hazard in (hazards or ())[:_MOST_HAZARDS]]
        counts = bench.record and counted(bench.record)
        return {"result": result, "counts": counts, "hazards": messages, "changed": changed_numbers}


def _garbage_like(cp: Any, source: Any) -> Any:
    """Return an array like another one, with meaningless contents."""
    array = cp.empty_like(source)
    array.fill(cp.nan if array.dtype.kind == "f" else 1)
    return array


def _differs(cp: Any, array: Any, original: Any) -> bool:
    return bool(cp.asnumpy(array).tobytes() != original.tobytes())


def _on_host(bench: Bench, result: Any) -> Any:
    """Return a result as host data; arrays of the device are marked as `OnDevice`."""
    if isinstance(result, tuple | list):
        parts = [_on_host(bench, part) for part in result]
        return parts if isinstance(result, list) else tuple(parts)
    if isinstance(result, bench.cp.ndarray):
        return OnDevice(bench.read(result))
    value = bench.read(result)
    return value.copy() if isinstance(value, np.ndarray) else value

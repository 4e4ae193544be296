"""Execution of a device program in the answer's process, which records its result, costs and hazards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gpulab import session
from gpulab.processes.values import DeviceContents
from gpulab_course.teach.judge.python.bench import Bench
from gpulab_course.teach.judge.python.counts import read_counts
from gpulab_course.teach.judge.python.flow import find_data_flow
from gpulab_course.teach.judge.python.functions import call_here

# Where nothing waits for another: as it comes; the same, and every use of memory is looked at; another order
# that the streams allow, with a seed (`Machine.stream_order`).
RunMode = Literal["as given", "checked"] | tuple[str, int]
_MAX_HAZARD_MESSAGES = 3


@dataclass(frozen=True, slots=True)
class Task:
    """A program call, which the judge sends to the answer's process.

    Parameters
    ----------
    name, label
        The function's name, and the text of the call in messages.
    call_program
        `ProgramExercise.call_program`.
    arguments, on_device, keeps_arguments
        As in `ProgramCase`.
    run_mode
        The order in which streams run, and whether uses of memory are checked.
    returns_result
        `ProgramExercise.returns_result`.
    """

    name: str
    label: str
    call_program: Callable[..., Any]
    arguments: tuple[Any, ...]
    on_device: bool = False
    keeps_arguments: bool = False
    run_mode: RunMode = "as given"
    returns_result: bool = True


def perform_task(program: Any, task: Task) -> dict[str, Any]:
    """Call a program on a new virtual device or on the real GPU, and return its result and its costs.

    The program runs in a new stream, in which the device arrays of the arguments are still being written.

    Returns
    -------
    dict
        ``result``: the result, read in that stream; ``counts``: the costs, None on a real GPU; ``hazards``:
        messages about missing order; ``changed``: the indices of arguments that were changed although they
        must not be.
    """
    real_cp: Any = session.real_cp()
    with session.use_bench_device() if real_cp is None else nullcontext() as backend:
        cp = real_cp if backend is None else backend.cp
        bench = Bench(cp, backend)
        original_arguments = [a.copy() if isinstance(a, np.ndarray) else None for a in task.arguments]
        source_arrays = [
            None if a is None or not task.on_device else cp.asarray(a) for a in original_arguments
        ]
        with cp.cuda.Stream(non_blocking=True) as current_stream:
            inputs = [
                argument if source_array is None else _make_garbage_like(cp, source_array)
                for argument, source_array in zip(task.arguments, source_arrays, strict=True)
            ]
            cp.cuda.Device().synchronize()
            order_context: Any = nullcontext([])
            if task.run_mode == "checked":
                order_context = bench.check_streams(current_stream)
            elif backend is not None and task.run_mode != "as given":
                order_context = backend.machine.use_stream_order(*task.run_mode)
            with order_context as hazards:
                for argument, source_array in zip(inputs, source_arrays, strict=True):
                    if source_array is not None:
                        argument[...] = source_array  # not copyto(), which no order holds back
                bench.acts.clear()

                def call(*arguments: Any) -> Any:
                    label_arguments = {"name": task.name, "shown": task.label}
                    return bench.run_recorded(
                        lambda: call_here(program, *arguments, returns=task.returns_result, **label_arguments)
                    )

                result = task.call_program(bench, call, *inputs)
                result_parts = result if isinstance(result, tuple | list) else (result,)
                if bench.record is not None:
                    bench.record.data_flow = find_data_flow(
                        bench.acts, bench.list_memory_regions(result_parts)
                    )
                written_flags = [isinstance(a, cp.ndarray) and bench.writes_to(a) for a in inputs]
                result = _copy_to_host(bench, result)
            cp.cuda.Device().synchronize()
            changed_indices = []
            for argument_index, (argument, original_argument) in enumerate(
                zip(inputs, original_arguments, strict=True)
            ):
                if not task.keeps_arguments or original_argument is None:
                    continue
                copies = (argument, *bench.list_pinned_copies(argument))
                if written_flags[argument_index] or any(
                    _has_changed(cp, copy, original_argument) for copy in copies
                ):
                    changed_indices.append(argument_index)
        hazard_messages = [hazard.message for hazard in (hazards or ())[:_MAX_HAZARD_MESSAGES]]
        program_counts = bench.record and read_counts(bench.record)
        return {
            "result": result,
            "counts": program_counts,
            "hazards": hazard_messages,
            "changed": changed_indices,
        }


def _make_garbage_like(cp: Any, source_array: Any) -> Any:
    """Return a new array of the same shape and dtype, filled with NaN or 1."""
    array = cp.empty_like(source_array)
    array.fill(cp.nan if array.dtype.kind == "f" else 1)
    return array


def _has_changed(cp: Any, array: Any, original: Any) -> bool:
    return bool(cp.asnumpy(array).tobytes() != original.tobytes())


def _copy_to_host(bench: Bench, result: Any) -> Any:
    """Copy the arrays of a result to the host; copies of device arrays are wrapped in `DeviceContents`."""
    if isinstance(result, tuple | list):
        host_parts = [_copy_to_host(bench, result_part) for result_part in result]
        return host_parts if isinstance(result, list) else tuple(host_parts)
    if isinstance(result, bench.cp.ndarray):
        return DeviceContents(bench.read(result))
    host_value = bench.read(result)
    return host_value.copy() if isinstance(host_value, np.ndarray) else host_value

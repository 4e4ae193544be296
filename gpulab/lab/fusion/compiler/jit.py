"""Compiled functions: a program for each set of guards, which is used while all its guards are true."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.fusion.compiler.plan import Plan
from gpulab.lab.fusion.compiler.program import Program
from gpulab.lab.fusion.compiler.trace import Trace, overlaps, trace_function
from gpulab.views.tables import Table
from gpulab.words import count

_SHARED_SUFFIX = "share memory"
MAX_ENTRIES = 8  # as of PyTorch's recompile_limit


@dataclass(slots=True, eq=False)
class CompiledEntry:
    """A compiled program with its guards (the conditions under which it is valid) and the number of its uses.

    If Python code needs the value of an array, the attribute ``program`` is None. The function then runs
    without compilation.
    """

    guards: dict[str, Any]
    trace: Trace
    program: Program | None
    compile_reason: str
    hit_count: int = 0
    outer_variables: list[tuple[str, Callable[[], Any], Any]] = field(default_factory=list)

    def find_failed_guards(self, current_guards: dict[str, Any]) -> list[str]:
        """Return one sentence for each guard that the current call does not satisfy."""
        change_sentences = []
        for name in dict.fromkeys((*self.guards, *current_guards)):
            old_value = self.guards.get(name)
            new_value = current_guards.get(name)
            if old_value != new_value:
                change_sentences.append(f"{name} was {old_value} and is {new_value}")
        for name, get_value, old_value in self.outer_variables:
            current_value = get_value()
            if (
                current_value is not old_value
                if hasattr(old_value, "shape")
                else (type(current_value), current_value) != (type(old_value), old_value)
            ):
                difference_text = (
                    "another array"
                    if hasattr(old_value, "shape")
                    else f"{current_value}, and was {old_value}"
                )
                change_sentences.append(f"the outer variable {name} is {difference_text}")
        return change_sentences


class CompiledFunction:
    """A compiled function. If no compiled program is valid for a call, the call is traced and compiled.

    Attributes
    ----------
    entries : list of Entry
        The compiled programs, oldest first.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.entries: list[CompiledEntry] = []

    def __call__(self, *args: Any) -> Any:
        guards = make_guards(self.function, args)
        failed_guards = []
        for entry in reversed(self.entries):
            differences = entry.find_failed_guards(guards)
            if not differences:
                entry.hit_count += 1
                return self.function(*args) if entry.program is None else entry.program(args)
            failed_guards.append(differences)
        compile_reason = min(failed_guards, key=len)[0] if failed_guards else "the first call"
        if len(self.entries) >= MAX_ENTRIES:
            return self.function(*args)
        entry = self._compile(args, guards, compile_reason)
        self.entries.append(entry)
        return self.function(*args) if entry.program is None else entry.program(args)

    def _compile(self, args: Sequence[Any], guards: dict[str, Any], reason: str) -> CompiledEntry:
        cp = session.cp()
        trace = trace_function(
            self.function,
            *(argument.copy() if isinstance(argument, cp.ndarray) else argument for argument in args),
        )
        if any(is_shared for name, is_shared in guards.items() if name.endswith(_SHARED_SUFFIX)):
            trace.break_reasons.append("two arguments share memory")
        program = None if trace.break_reasons else Program(Plan(trace))
        return CompiledEntry(guards, trace, program, reason, outer_variables=trace.outer_variables)

    def __repr__(self) -> str:
        hits_text = count(sum(entry.hit_count for entry in self.entries), "hit")
        return f"{self.function.__name__}: compiled {count(len(self.entries), 'time')}, {hits_text}."

    def explain(self) -> Table:
        """Return a table with one row per compilation. Each row shows the reason, the number of kernels, and
        the number of uses.
        """
        entry_rows = tuple(
            (
                str(entry_number),
                entry.compile_reason,
                _describe_kernels(entry),
                str(entry.hit_count),
                "; ".join(_list_folded_values(entry)) or "–",
            )
            for entry_number, entry in enumerate(self.entries, 1)
        )
        return Table(repr(self), ("number", "compiled because", "kernels", "hits", "folded"), entry_rows)

    @property
    def source(self) -> str:
        """The CUDA C++ source of the latest compilation."""
        program = self.entries[-1].program if self.entries else None
        operations = [kernel.operation for kernel in program.kernels if kernel] if program else []
        return "\n\n".join(operations)


def compiled(function: Callable[..., Any]) -> CompiledFunction:
    """Compile a function of device arrays. This function can be used as a decorator.

    The first call traces the function and generates kernels for the device and for the types, shapes and
    layouts of the arguments. Later calls run these kernels while all guards are true. Numbers in arguments
    and in outer variables become constants of the kernels, and have guards as well.

    Examples
    --------
    >>> @compiled
    ... def scaled(x, w):
    ...     return cp.tanh(x * w)
    """
    return CompiledFunction(function)


def make_guards(function: Callable[..., Any], args: Sequence[Any]) -> dict[str, Any]:
    """Return the guards of a call. They contain the device, and the dtype, shape and layout (or the value) of
    each argument.
    """
    cp = session.cp()
    parameter_names = getattr(getattr(function, "__code__", None), "co_varnames", ())
    guards: dict[str, Any] = {"device": int(cp.cuda.Device().id)}
    arrays = []
    for index, argument in enumerate(args):
        parameter_name = parameter_names[index] if index < len(parameter_names) else f"argument {index}"
        if isinstance(argument, cp.ndarray):
            arrays.append((parameter_name, argument))
            guards[f"{parameter_name}.dtype"] = argument.dtype.name
            guards[f"{parameter_name}.shape"] = argument.shape
            guards[f"{parameter_name}.contiguous"] = bool(argument.flags.c_contiguous)
            guards[f"{parameter_name}.device"] = int(argument.device.id)
        else:
            guards[parameter_name] = (
                (type(argument).__name__, argument) if isinstance(argument, np.generic) else argument
            )
    for (first_name, argument), (second_name, other_array) in combinations(arrays, 2):
        guards[f"{first_name} and {second_name} {_SHARED_SUFFIX}"] = overlaps(argument, other_array)
    return guards


def _describe_kernels(entry: CompiledEntry) -> str:
    if entry.program is None:
        return f"as written: {entry.trace.break_reasons[0]}"
    return str(len(entry.program.kernels))


def _list_folded_values(entry: CompiledEntry) -> list[str]:
    outer_variable_texts = [
        f"{name} = {old_value}"
        for name, _, old_value in entry.outer_variables
        if not hasattr(old_value, "shape")
    ]
    return [
        *(f"{expression} = {value}" for expression, value in entry.trace.folded_calls),
        *dict.fromkeys(outer_variable_texts),
    ]

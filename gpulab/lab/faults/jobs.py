"""Jobs of a sandbox: a function or a cell, with copies of the global variables that it uses."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from types import CodeType, ModuleType
from typing import Any

from gpulab.lab.faults.child import DisplayOutput
from virtualgpu.errors import GpulabError

MAX_JOB_BYTES = 256 << 20
_HANDLE_TYPES = (
    "Stream",
    "ExternalStream",
    "Event",
    "Graph",
    "MemoryPool",
    "MemoryPointer",
    "PinnedMemoryPointer",
)


@dataclass(frozen=True, slots=True)
class Call:
    """A job for a sandbox, which consists of a function and its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def __call__(self) -> Any:
        return self.function(*self.args)


@dataclass(frozen=True, slots=True)
class Cell:
    """The code of a notebook cell, with the variables that it uses and the variables that it returns."""

    code: str
    file: str
    variables: dict[str, Any]
    result_names: tuple[str, ...]

    def __call__(self) -> DisplayOutput:
        namespace = {"__name__": "__main__", "__builtins__": builtins, **self.variables}
        tree = ast.parse(self.code, self.file)
        last_statement = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, self.file, "exec"), namespace)
        bundle: dict[str, Any] = {}
        if isinstance(last_statement, ast.Expr):
            value = eval(compile(ast.Expression(last_statement.value), self.file, "eval"), namespace)
            if value is not None and not self.code.rstrip().endswith(";"):
                bundle = _make_display_bundle(value)
        missing_names = [name for name in self.result_names if name not in namespace]
        if missing_names:
            raise NameError(f"the cell should have defined {', '.join(missing_names)}, but it did not")
        return DisplayOutput({name: namespace[name] for name in self.result_names}, bundle)


def _make_display_bundle(value: Any) -> dict[str, Any]:
    """Return the representations of a value for display, such as text, HTML and SVG, without a notebook."""
    from IPython.core.formatters import DisplayFormatter

    mime_data, _ = DisplayFormatter().format(value)  # type: ignore[no-untyped-call]
    mime_types = {"text/plain", "text/html", "image/svg+xml", "text/markdown"}
    return {
        mime_type: text
        for mime_type, text in mime_data.items()
        if mime_type in mime_types and isinstance(text, str)
    }


def find_used_names(code: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the global variables of a notebook that the code of a cell uses."""
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    return {name: namespace[name] for name in sorted(names) if name in namespace}


def _pickle_with_files(job: Call | Cell) -> bytes:
    """Return a pickle of a job that keeps the file names of its functions.

    cloudpickle 3.1.2 replaces file names by ``<dynamic-code>``, so that equal functions have equal pickles.
    The cell and line of an error would then be unknown.
    """
    import cloudpickle

    default_table = cloudpickle.Pickler.dispatch_table

    def reduce_code(code: CodeType) -> tuple[Any, ...]:
        rebuild_code, rebuild_args = default_table[CodeType](code)
        return rebuild_code, tuple(
            code.co_filename if argument == "<dynamic-code>" else argument for argument in rebuild_args
        )

    dispatch_table = ChainMap({CodeType: reduce_code}, default_table)
    pickler_class = type("Placed", (cloudpickle.Pickler,), {"dispatch_table": dispatch_table})
    pickler_class(pickle_file := BytesIO()).dump(job)
    return pickle_file.getvalue()


def pack_job(job: Call | Cell) -> bytes:
    """Pickle a job, so that another process can load it.

    Raises
    ------
    GpulabError
        If a part of the job cannot be pickled, or all of it is too large. The message names the parts.
    """
    named_values = job.variables if isinstance(job, Cell) else _name_arguments(job)
    sizes_by_name = {}
    refusal_reasons = {}
    for name, value in named_values.items():
        if isinstance(value, ModuleType):
            continue
        try:
            sizes_by_name[name] = _measure_bytes(value)
        except Exception as error:
            refusal_reasons[name] = str(error) if isinstance(error, GpulabError) else type(value).__name__
    if refusal_reasons:
        refusal_text = ", ".join(f"{name} ({reason})" for name, reason in refusal_reasons.items())
        raise GpulabError(
            f"These values cannot be sent to the sandbox: {refusal_text}. Create objects that "
            "belong to this process, such as streams, events, graphs, files and locks, "
            "inside the sandbox."
        )
    try:
        job_bytes = _pickle_with_files(job)
    except Exception as error:
        raise GpulabError(
            f"The job cannot be sent to the sandbox ({type(error).__name__}: {error}). "
            "Inside the sandbox, create objects that belong to one process, such as "
            "streams, events, files and locks."
        ) from None
    if len(job_bytes) > MAX_JOB_BYTES:
        largest_value_names = sorted(sizes_by_name, key=lambda name: -sizes_by_name[name])[:3]
        largest_text = ", ".join(f"{name} with {sizes_by_name[name]:,} bytes" for name in largest_value_names)
        raise GpulabError(
            f"The arguments of the sandbox take {len(job_bytes):,} bytes, but at most "
            f"{MAX_JOB_BYTES:,} are allowed: {largest_text}. Create large arrays inside the "
            "sandbox."
        )
    return job_bytes


def _name_arguments(job: Call) -> dict[str, Any]:
    """Return the arguments of a call, and the outer variables that its function uses, by name."""
    function = inspect.unwrap(job.function)
    arguments = {f"argument {argument_number}": value for argument_number, value in enumerate(job.args, 1)}
    if not inspect.isfunction(function) or _is_importable(function):
        return arguments
    closure_vars = inspect.getclosurevars(function)
    return {**closure_vars.globals, **closure_vars.nonlocals, **arguments}


def _is_importable(function: Any) -> bool:
    """Return whether a function can be pickled as a reference to its module and name."""
    module = sys.modules.get(function.__module__)
    return function.__module__ != "__main__" and getattr(module, function.__name__, None) is function


def _measure_bytes(value: Any) -> int:
    import cloudpickle

    module = type(value).__module__
    if type(value).__name__ in _HANDLE_TYPES and module.startswith(("cupy", "virtualgpu")):
        raise GpulabError(f"a {type(value).__name__}")
    if hasattr(value, "nbytes") and module.startswith(("cupy", "virtualgpu", "numpy")):
        return int(value.nbytes)
    return len(cloudpickle.dumps(value))

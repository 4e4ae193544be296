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

MOST_BYTES = 256 << 20
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
    names: dict[str, Any]
    gives: tuple[str, ...]

    def __call__(self) -> DisplayOutput:
        space = {"__name__": "__main__", "__builtins__": builtins, **self.names}
        tree = ast.parse(self.code, self.file)
        last_statement = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, self.file, "exec"), space)
        bundle: dict[str, Any] = {}
        if isinstance(last_statement, ast.Expr):
            value = eval(compile(ast.Expression(last_statement.value), self.file, "eval"), space)
            if value is not None and not self.code.rstrip().endswith(";"):
                bundle = _display_bundle(value)
        missing_names = [name for name in self.gives if name not in space]
        if missing_names:
            raise NameError(f"the cell should have defined {', '.join(missing_names)}, but it did not")
        return DisplayOutput({name: space[name] for name in self.gives}, bundle)


def _display_bundle(value: Any) -> dict[str, Any]:
    """Return the representations of a value for display, such as text, HTML and SVG, without a notebook."""
    from IPython.core.formatters import DisplayFormatter

    data, _ = DisplayFormatter().format(value)  # type: ignore[no-untyped-call]
    mime_types = {"text/plain", "text/html", "image/svg+xml", "text/markdown"}
    return {
        mime_type: text
        for mime_type, text in data.items()
        if mime_type in mime_types and isinstance(text, str)
    }


def used_by(code: str, space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the global variables of a notebook that the code of a cell uses."""
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    return {name: space[name] for name in sorted(names) if name in space}


def _pickle_with_files(job: Call | Cell) -> bytes:
    """Return a pickle of a job that keeps the file names of its functions.

    cloudpickle 3.1.2 replaces file names by ``<dynamic-code>``, so that equal functions have equal pickles.
    The cell and line of an error would then be unknown.
    """
    import cloudpickle

    default_table = cloudpickle.Pickler.dispatch_table

    def reduce_code(code: CodeType) -> tuple[Any, ...]:
        make, args = default_table[CodeType](code)
        return make, tuple(
            code.co_filename if argument == "<dynamic-code>" else argument for argument in args
        )

    table = ChainMap({CodeType: reduce_code}, default_table)
    pickler_class = type("Placed", (cloudpickle.Pickler,), {"dispatch_table": table})
    pickler_class(file := BytesIO()).dump(job)
    return file.getvalue()


def pack_job(job: Call | Cell) -> bytes:
    """Pickle a job, so that another process can load it.

    Raises
    ------
    GpulabError
        If a part of the job cannot be pickled, or all of it is too large. The message names the parts.
    """
    values = job.names if isinstance(job, Cell) else _named_arguments(job)
    sizes = {}
    reasons = {}
    for name, value in values.items():
        if isinstance(value, ModuleType):
            continue
        try:
            sizes[name] = _size_bytes(value)
        except Exception as error:
            reasons[name] = str(error) if isinstance(error, GpulabError) else type(value).__name__
    if reasons:
        refusals = ", ".join(f"{name} ({reason})" for name, reason in reasons.items())
        raise GpulabError(
            f"These values cannot be sent to the sandbox: {refusals}. Create objects that "
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
    if len(job_bytes) > MOST_BYTES:
        largest_names = sorted(sizes, key=lambda name: -sizes[name])[:3]
        largest_named = ", ".join(f"{name} with {sizes[name]:,} bytes" for name in largest_names)
        raise GpulabError(
            f"The arguments of the sandbox take {len(job_bytes):,} bytes, but at most "
            f"{MOST_BYTES:,} are allowed: {largest_named}. Create large arrays inside the "
            "sandbox."
        )
    return job_bytes


def _named_arguments(job: Call) -> dict[str, Any]:
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


def _size_bytes(value: Any) -> int:
    import cloudpickle

    module = type(value).__module__
    if type(value).__name__ in _HANDLE_TYPES and module.startswith(("cupy", "virtualgpu")):
        raise GpulabError(f"a {type(value).__name__}")
    if hasattr(value, "nbytes") and module.startswith(("cupy", "virtualgpu", "numpy")):
        return int(value.nbytes)
    return len(cloudpickle.dumps(value))

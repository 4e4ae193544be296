"""Capture of a function as a graph, on its own stream and with memory from its own pool."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from gpulab import session
from virtualgpu.errors import warn
from virtualgpu.records import GraphRecord


@dataclass(slots=True)
class Capture:
    """The result of a graph capture, with CuPy's graph, the return value of the function, and the nodes of
    the graph.
    """

    graph: Any
    result: Any
    record: GraphRecord


class GraphPool:
    """A private memory pool for CUDA graphs, and the stream in which they are captured.

    Attributes
    ----------
    pool, stream
        CuPy's objects.
    """

    def __init__(self, pool: Any, stream: Any) -> None:
        self.pool = pool
        self.stream = stream

    def warm_up(self, fn: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
        """Call `fn` once in the stream of the pool, which first waits for the current stream. Wait until the
        work of `fn` has ended.
        """
        self.stream.wait_event(session.cp().cuda.get_current_stream().record())
        with self.stream, session.cp().cuda.using_allocator(self.pool.malloc):
            result = fn(*arrays)
        self.stream.synchronize()
        return result

    def capture(self, fn: Callable[..., Any], arrays: tuple[Any, ...]) -> Capture:
        """Call `fn` while the stream is in capture mode, and return the captured graph.

        Raises
        ------
        RuntimeError, NotImplementedError
            If CuPy or CUDA refuses an operation during a capture. The capture has then ended.
        """
        stream = self.stream
        with stream, session.cp().cuda.using_allocator(self.pool.malloc):
            stream.begin_capture()
            try:
                result = fn(*arrays)
            except BaseException:
                with suppress(RuntimeError):
                    stream.end_capture()
                raise
            try:
                graph = stream.end_capture()
            except RuntimeError as error:
                if session.real_cp() is not None:
                    error.add_note(_find_illegal_line(fn, arrays, stream))
                raise
        return Capture(graph, result, session.backend().read_graph(graph))

    def used_bytes(self) -> int:
        """Return the number of bytes of the memory pool that are in use. Only the results of graphs are in
        use, because temporary arrays are freed.
        """
        return int(self.pool.used_bytes())

    def total_bytes(self) -> int:
        """Return the number of bytes that the memory pool has allocated on the device."""
        return int(self.pool.total_bytes())

    def __repr__(self) -> str:
        return f"Private pool of {self.total_bytes():,} bytes, {self.used_bytes():,} of them used by results."


@contextmanager
def restore_contents(arrays: Iterable[Any]) -> Iterator[None]:
    """Copy arrays before a ``with`` block if the memory suffices, and restore their contents after the
    block.
    """
    cp = session.cp()
    saved_contents = []
    try:
        saved_contents = [(array, array.copy()) for array in arrays]
        # The block below may use another stream, which must not write before these copies are done.
        cp.cuda.get_current_stream().synchronize()
    except MemoryError:
        warn(
            "The arrays are too large to be saved and restored, so the changes that fn makes "
            "to them in the warm-up remain."
        )
    try:
        yield
    finally:
        cp.cuda.runtime.deviceSynchronize()
        with cp.cuda.Stream.null:
            for array, saved_copy in saved_contents:
                array[...] = saved_copy
        cp.cuda.Stream.null.synchronize()


def _find_illegal_line(fn: Callable[..., Any], arrays: tuple[Any, ...], stream: Any) -> str:
    """Return a sentence that names the line of `fn` that makes a capture invalid.

    A real GPU does not report the call, so the function is captured again and checked at each line.
    """
    executed_lines: list[tuple[str, int]] = []
    file = getattr(getattr(fn, "__code__", None), "co_filename", None)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != file:
            return None
        stream.is_capturing()  # raises once the capture is lost
        executed_lines.append((frame.f_code.co_filename, frame.f_lineno))
        return trace

    previous_trace_function = sys.gettrace()
    with suppress(RuntimeError):
        stream.begin_capture()
        try:
            sys.settrace(trace)
            fn(*arrays)
        finally:
            sys.settrace(previous_trace_function)
            stream.end_capture()
    if not executed_lines:
        return "Look for a call in fn that waits, or checks whether work has finished."
    file_name, line = executed_lines[-1]
    return f"The graph was lost in line {line}: {linecache.getline(file_name, line).strip()}"


def find_arrays(value: Any, ndarray: type) -> Iterator[Any]:
    """Return the arrays in the result of a function. The result can be an array, or lists, tuples and
    dictionaries of arrays.
    """
    if isinstance(value, ndarray):
        yield value
    elif isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, (list, tuple, ValuesView)):
        for element in value:
            yield from find_arrays(element, ndarray)


def find_shapes(result: Any) -> list[tuple[Any, Any]]:
    """Return the shape and the dtype of each array in the result of a function."""
    return [(array.shape, array.dtype) for array in find_arrays(result, session.cp().ndarray)]


def check_shapes(warm_up_shapes: list[tuple[Any, Any]], capture_shapes: list[tuple[Any, Any]]) -> None:
    """Raise an error if the results of the warm-up and the capture have different shapes or dtypes."""
    if warm_up_shapes != capture_shapes:
        raise ValueError(
            f"fn returned arrays of {_format_shapes(warm_up_shapes)} in the warm-up and of "
            f"{_format_shapes(capture_shapes)} in "
            "the capture, but the shapes of a graph must not change. Make fn depend only on its arguments."
        )


def _format_shapes(shapes_and_dtypes: list[tuple[Any, Any]]) -> str:
    return ", ".join(f"{shape} {dtype}" for shape, dtype in shapes_and_dtypes) or "no shape"

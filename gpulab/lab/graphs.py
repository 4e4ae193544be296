"""``gl.graph``: capture the device work of a function once, then launch it as one graph."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gpulab import session, views
from gpulab._deprecated import make_old_method
from gpulab.lab._base import PicturedResult
from gpulab.lab.graph_capture import (
    Capture,
    GraphPool,
    check_shapes,
    find_arrays,
    find_shapes,
    restore_contents,
)
from gpulab.lab.graph_cost import ComparedGraph, compare_costs
from gpulab.lab.graph_names import NamedArray, find_global_arrays, find_named_arrays, make_array_record
from gpulab.views.graph.graph_text import describe_graph
from gpulab.words import count
from virtualgpu.errors import GpulabError, warn
from virtualgpu.records import DanglingArray, GraphArray, GraphNode, GraphRecord

SHOWN_ELEMENTS = 4
EMPTY_MESSAGE = (
    "fn launched no work in the stream, so the graph is empty: a graph captures only "
    "work of the current stream, and of streams that wait for an event of this stream."
)


def graph(fn: Callable[..., Any], *arrays: Any, pool: Any = None) -> CapturedGraph:
    """Capture the device operations of a function as a CUDA graph.

    The function `fn` is called twice on a separate stream: once as a warm-up, and once for the capture. After
    the warm-up the contents of the arrays are restored.

    Parameters
    ----------
    fn
        A function that submits work to the current stream. It may fork to other streams and join them by
        events. Values that it computes on the host, such as Python numbers, keep their value from the
        capture.
    arrays
        The device arrays that are passed to `fn`. The graph uses their addresses.
    pool
        The ``pool`` of another graph, to share its memory: for graphs that run one after the other.

    Returns
    -------
    CapturedGraph
        The graph. ``g.launch()`` launches it, and ``g()`` also returns the result of `fn`.

    Raises
    ------
    TypeError
        If an argument is not a device array.
    RuntimeError, NotImplementedError
        If `fn` does something that CuPy or CUDA does not allow in a capture, such as waiting, reading a
        result, or calling cuBLAS.

    Examples
    --------
    >>> def step(x, y):
    ...     y += 2 * x
    >>> g = gl.graph(step, x, y)
    >>> g.launch()
    >>> g.record.nodes
    """
    cp = session.cp()
    _check_arguments(cp, fn, arrays)
    names = find_named_arrays(fn, arrays, sys._getframe(1), cp.ndarray)
    if not isinstance(pool, GraphPool | None):
        raise TypeError("`pool` must be the pool of another graph, as in gl.graph(fn, x, pool=other.pool).")
    if pool is None:
        pool = GraphPool(cp.cuda.MemoryPool(), cp.cuda.Stream(non_blocking=True))
    return CapturedGraph(fn, arrays, names, pool)


def _check_arguments(cp: Any, fn: Any, arrays: tuple[Any, ...]) -> None:
    if not callable(fn):
        raise TypeError(f"gl.graph needs a function, as in gl.graph(step, x), but got {fn!r}.")
    for argument_number, array in enumerate(arrays, 1):
        if not isinstance(array, cp.ndarray):
            remedy = (
                "Copy it to the device with cp.asarray"
                if isinstance(array, np.ndarray)
                else (
                    "The capture fixes values that are not arrays. Bind such a value with functools.partial"
                )
            )
            raise TypeError(
                f"Argument {argument_number} of gl.graph is a {type(array).__name__}, not a device array. "
                f"{remedy}."
            )
    if cp.cuda.get_current_stream().is_capturing():
        raise GpulabError(
            "The current stream is already capturing a graph. Call gl.graph before begin_capture()."
        )


class CapturedGraph(PicturedResult):
    """A captured graph, with the arrays, the memory pool and the stream that it needs.

    Attributes
    ----------
    result
        The value that the function returned in the capture. Each launch overwrites its arrays.
    pool
        The private memory pool of its results and temporary arrays.
    stream
        The stream of the capture.
    """

    def __init__(
        self, fn: Callable[..., Any], arrays: tuple[Any, ...], names: tuple[NamedArray, ...], pool: GraphPool
    ) -> None:
        self.fn = fn
        self.arrays = arrays
        self.pool: GraphPool | None = pool
        self._named_arrays = {named_array.name: named_array for named_array in names}
        self._session_context = session.bind_current_device()
        self.stream = pool.stream
        self._capture: Capture | None = None
        self._last_comparison: ComparedGraph | None = None
        with restore_contents(named_array.array for named_array in names):
            warm_up_shapes = find_shapes(pool.warm_up(fn, arrays))
        self._capture = self._template_capture = pool.capture(fn, arrays)
        self._name_other_arrays(fn)
        check_shapes(warm_up_shapes, find_shapes(self._capture.result))
        if not self._capture.record.nodes and not self._capture.record.note:
            warn(EMPTY_MESSAGE)

    def _name_other_arrays(self, fn: Callable[..., Any]) -> None:
        """Find names for arrays that are not arguments but are used by nodes, such as a model's weights."""
        capture = self._require_capture
        ndarray = session.cp().ndarray
        arrays = [
            *(named_array.record() for named_array in self._named_arrays.values()),
            *_name_outputs(capture.result, ndarray),
        ]
        used_addresses = {address for node in capture.record.nodes for address in node.addresses}
        unnamed_addresses = {
            address for address in used_addresses if not any(address in array for array in arrays)
        }
        for named_array in find_global_arrays(fn, unnamed_addresses, ndarray):
            self._named_arrays.setdefault(named_array.name, named_array)

    # Launching

    @property
    def graph(self) -> Any:
        """The ``Graph`` object of CuPy. Its attributes ``graph`` and ``graphExec`` are the CUDA handles."""
        return self._require_capture.graph

    @property
    def result(self) -> Any:
        return self._require_capture.result

    def launch(self, stream: Any = None) -> None:
        """Launch the graph in `stream`. The default is the current stream."""
        capture = self._require_capture
        with self._session_context():
            capture.graph.launch(_find_stream(stream))

    def __call__(self, stream: Any = None) -> Any:
        """Launch the graph, and return the arrays that hold its results."""
        self.launch(stream)
        return self.result

    def upload(self, stream: Any = None) -> None:
        """Upload the graph to the device before its first launch."""
        with self._session_context():
            self.graph.upload(_find_stream(stream))

    def callable(self, *inputs: Any) -> Any:
        """Launch the graph with new inputs, and return its results. The inputs are copied into the arrays of
        the graph.

        Parameters
        ----------
        inputs
            Device arrays with the shapes and dtypes of the arrays that were passed to `gl.graph`.

        Returns
        -------
        ndarray or what the function returned
            The arrays of the graph. The next call overwrites them.

        Raises
        ------
        TypeError, ValueError
            If the number, shapes or dtypes of the arrays differ from those of the capture.
        """
        if len(inputs) != len(self.arrays):
            raise TypeError(f"The graph takes {count(len(self.arrays), 'array')}, but got {len(inputs)}.")
        for input_number, (input_array, array) in enumerate(zip(inputs, self.arrays, strict=True), 1):
            _check_same_kind(f"Input {input_number}", array, input_array)
        capture = self._require_capture
        with self._session_context():
            for input_array, array in zip(inputs, self.arrays, strict=True):
                if input_array is not array:
                    array[...] = input_array
            capture.graph.launch()
        return capture.result

    def reset(self) -> None:
        """Free the graph, its results, and its references to arrays and the memory pool. The graph cannot be
        launched afterwards.
        """
        self._capture = None
        self.arrays = ()
        self._named_arrays = {}
        self.pool = None
        self._last_comparison = None

    @property
    def _require_capture(self) -> Capture:
        if self._capture is None:
            raise GpulabError("This graph was reset: capture it again with gl.graph.")
        return self._capture

    # What is in it

    @property
    def record(self) -> GraphRecord:
        """The nodes, edges and named arrays of the graph, with the parameters for the next launch."""
        capture = self._require_capture
        arrays = [named_array.record() for named_array in self._named_arrays.values()]
        addresses = {array.address for array in arrays}
        arrays += [
            array
            for array in _name_outputs(capture.result, session.cp().ndarray)
            if array.address not in addresses
        ]
        record = replace(capture.record, arrays=tuple(arrays))
        return replace(record, dangling=self._find_dangling(record, {}))

    def check(self, **current_arrays: Any) -> tuple[DanglingArray, ...]:
        """Find variables that no longer refer to the arrays whose addresses the graph uses.

        The check covers variables of a notebook and outer variables of the captured function. For others,
        such as local variables of a function, pass the present array: ``check(x=x)``.

        Returns
        -------
        tuple of DanglingArray
            One entry per name, with the nodes that still read or write the old array; empty if there is no
            problem.
        """
        return self._find_dangling(self.record, self._check_names(current_arrays))

    def _find_dangling(
        self, record: GraphRecord, current_arrays: Mapping[str, Any]
    ) -> tuple[DanglingArray, ...]:
        dangling_arrays = []
        ndarray = session.cp().ndarray
        for array, named_array in zip(record.arrays, self._named_arrays.values(), strict=False):
            current_array = current_arrays.get(named_array.name, named_array.current_array)
            nodes = record.users(array)
            if current_array is named_array.array or not nodes:
                continue
            is_array = isinstance(current_array, ndarray)
            address = int(current_array.data.ptr) if is_array else None
            if address == array.address:
                continue
            first_elements = _read_first_elements(named_array.array)
            dangling_arrays.append(
                DanglingArray(
                    array,
                    address,
                    nodes,
                    first_elements,
                    _read_first_elements(current_array) if is_array else (),
                )
            )
        return tuple(dangling_arrays)

    # Other parameters without a capture

    def update(self, fn: Callable[..., Any] | None = None, /, *arrays: Any, **arrays_by_name: Any) -> None:
        """Change parameters of graph nodes for all later launches.

        Parameters
        ----------
        fn, arrays
            Another function, or the same function with other arrays. It is captured, and
            ``cuGraphExecUpdate`` copies the parameters of its nodes. Nodes and edges must be the same.
        arrays_by_name
            The name of an array of the graph, and the array that replaces it, with the same shape and dtype.
            Nothing is captured: each node that uses the old address gets the new one.

        Raises
        ------
        CUDADriverError
            Status 910, ``CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE``, if nodes or edges differ.
        TypeError, ValueError
            For an unknown name, or another shape or dtype.

        Examples
        --------
        >>> g.update(x=other)
        >>> g.update(step, other, y)
        """
        cp = session.cp()
        capture = self._require_capture
        if (fn is None) == (not arrays_by_name):
            raise TypeError(
                "g.update needs a function with its arrays, or arrays by name, as in g.update(x=other)."
            )
        with self._session_context():
            if fn is not None:
                assert self.pool is not None
                _check_arguments(cp, fn, arrays)
                new_template = self.pool.capture(fn, arrays)
                session.backend().update_graph(capture.graph, new_template.graph)
                self._capture = Capture(capture.graph, new_template.result, new_template.record)
                self._template_capture = new_template
                self.fn = fn
                self.arrays = arrays
                self._named_arrays = {
                    named_array.name: named_array
                    for named_array in find_named_arrays(fn, arrays, sys._getframe(1), cp.ndarray)
                }
                self._name_other_arrays(fn)
                return
            arrays_by_name = self._check_names(arrays_by_name)
            for name, array in arrays_by_name.items():
                _check_same_kind(name, self._named_arrays[name].array, array)
            for name, array in arrays_by_name.items():
                self._rebind_array(self._named_arrays[name], array)

    def _check_names(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given arrays by their names in the graph; parameter names are accepted, too.

        Raises
        ------
        TypeError
            If the graph has no array of that name.
        """
        names_by_parameter = {
            named_array.parameter: named_array.name for named_array in self._named_arrays.values()
        }
        arrays_by_name = {
            key if key in self._named_arrays else names_by_parameter.get(key, key): array
            for key, array in arrays.items()
        }
        if unknown_names := arrays_by_name.keys() - self._named_arrays.keys():
            raise TypeError(
                f"The graph has no array called {_list_names(unknown_names)}. It has "
                f"{_list_names(self._named_arrays)}."
            )
        return arrays_by_name

    def _rebind_array(self, named_array: NamedArray, array: Any) -> None:
        capture = self._require_capture
        old_array = named_array.record()
        new_address = int(array.data.ptr)
        for node in capture.record.nodes:
            moved_addresses = {
                address: address - old_array.address + new_address
                for address in node.addresses
                if address in old_array
            }
            if moved_addresses:
                self._set_node_parameters(node.replace_addresses(moved_addresses))
        self._named_arrays[named_array.name] = named_array.replace_array(array)
        self.arrays = tuple(
            array if bound_array is named_array.array else bound_array for bound_array in self.arrays
        )

    def _set_node_parameters(self, node: GraphNode) -> None:
        capture = self._require_capture
        session.backend().set_graph_node(capture.graph, node, self._template_capture.graph)
        capture.record = capture.record.replace_nodes({node.number: node})

    # What it costs

    beside = make_old_method("beside", "compare")

    def compare(self, *, repeats: int = 20) -> ComparedGraph:
        """Measure the time per run of the graph and of its function. Each of them runs `repeats` times.

        Afterwards, the contents of all named arrays are restored.

        Returns
        -------
        ComparedGraph
            ``.record`` has the times per run and per node, on the device and on the host. Its picture is the
            graph with a timeline of both.
        """
        if operator.index(repeats) < 1:
            raise ValueError("`repeats` must be at least 1.")
        record = self.record
        launch = self.graph.launch
        with (
            self._session_context(),
            restore_contents(named_array.array for named_array in self._named_arrays.values()),
            self.stream,
        ):
            comparison = compare_costs(record, lambda: self.fn(*self.arrays), launch, self.stream, repeats)
        self._last_comparison = ComparedGraph(comparison, record, self._function_name)
        return self._last_comparison

    # Its picture

    @property
    def _function_name(self) -> str:
        return str(getattr(self.fn, "__name__", "a function"))

    def view(self) -> views.GraphView:
        """The picture of the graph as a widget. The picture includes the timelines of the last call of
        `compare`, if there was one.
        """
        return views.GraphView(
            self.record, self._last_comparison.record if self._last_comparison else None, self._function_name
        )

    _picture = view

    def __repr__(self) -> str:
        return (
            "A graph that was reset."
            if self._capture is None
            else describe_graph(self.record, self._function_name)
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return None if self._capture is None else super()._repr_mimebundle_(**kwargs)


def _find_stream(stream: Any) -> Any:
    """Return the argument if it is a stream or None; raise an error otherwise.

    Raises
    ------
    TypeError
        For anything else.
    """
    if stream is not None and not hasattr(stream, "ptr"):
        raise TypeError(f"`stream` must be a cp.cuda.Stream, not a {type(stream).__name__}.")
    return stream


def _name_outputs(result: Any, ndarray: type) -> list[GraphArray]:
    arrays = list(find_arrays(result, ndarray))
    result_names = (
        ["result"]
        if len(arrays) == 1
        else [f"result {result_number}" for result_number in range(1, len(arrays) + 1)]
    )
    return [
        make_array_record(result_name, array, is_output=True)
        for result_name, array in zip(result_names, arrays, strict=True)
    ]


def _check_same_kind(label: str, captured_array: Any, new_array: Any) -> None:
    if not isinstance(new_array, type(captured_array)):
        raise TypeError(
            f"{label} is a {type(new_array).__name__}, not a device array. Convert it with cp.asarray."
        )
    if (new_array.shape, new_array.dtype) != (captured_array.shape, captured_array.dtype):
        raise ValueError(
            f"{label} has shape {new_array.shape} and dtype {new_array.dtype}, but the graph was "
            f"captured with {captured_array.shape} and {captured_array.dtype}, which cannot change. "
            "Capture another graph for other shapes."
        )


def _read_first_elements(array: Any) -> tuple[float, ...]:
    if session.cp().cuda.get_current_stream().is_capturing():
        return ()  # nothing can be read then
    return tuple(array.ravel()[:SHOWN_ELEMENTS].get().tolist())


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"

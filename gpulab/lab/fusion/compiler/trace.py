"""Tracing of a function: it runs once with stand-ins for arrays, which record a graph of expressions.

A `Value` stands for a device array. Each operation on it is executed and recorded as a `Node`. The function
therefore sees real shapes, types and values. Decisions that Python makes with them are made during tracing,
and do not appear in the graph. The name ``cp`` also refers to a stand-in during tracing. A result of ``cp``
that is not an array, such as that of ``cp.cuda.is_available()``, is *folded*: it becomes a constant.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from gpulab import session
from virtualgpu.errors import GpulabError

NodeKind = Literal["input", "map", "reduce", "matmul", "view", "kernel", "other", "host"]
MAX_NODES = 400
_REDUCTION_FUNCTIONS = frozenset(
    {
        *(
            "sum",
            "prod",
            "max",
            "min",
            "amax",
            "amin",
            "mean",
            "any",
            "all",
            "argmax",
            "argmin",
            "var",
            "std",
        ),
        *("nansum", "nanmax", "nanmin", "median"),
    }
)
_PRODUCT_FUNCTIONS = frozenset({"matmul", "dot", "inner", "outer", "tensordot", "einsum", "vdot", "kron"})
_MAP_FUNCTIONS = frozenset(
    {
        *("where", "clip", "astype", "copy", "copyto", "array", "ascontiguousarray", "nan_to_num", "round"),
        "conj",
    }
)
_HOST_READS = frozenset({"get", "item", "tolist", "tobytes", "asnumpy"})
_KERNEL_MAKERS = frozenset({"ElementwiseKernel", "ReductionKernel", "RawKernel", "fuse"})
_HOST_METHODS = ("__bool__", "__float__", "__int__", "__index__", "__complex__")


@dataclass(slots=True, eq=False)
class Node:
    """A recorded expression, with the called function, its arguments, and its result.

    In ``args`` and ``kwargs``, a `NodeRef` replaces each array. ``read_numbers`` lists the numbers of the
    nodes that this node reads. For an in-place operation, ``overwritten_number`` is the number of the node
    whose memory is overwritten. ``stream`` and ``device`` come from a ``with`` block of the function; None
    means those of the caller.
    """

    number: int
    name: str
    kind: NodeKind
    result: Any
    call: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    read_numbers: tuple[int, ...] = ()
    overwritten_number: int | None = None
    stream: Any = None
    device: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(getattr(self.result, "shape", ()))

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(getattr(self.result, "dtype", np.float64))

    @property
    def nbytes(self) -> int:
        """The number of bytes that the result occupies in memory, without repetitions of broadcast
        elements.
        """
        return _find_span(self.result)[1] if 0 in getattr(self.result, "strides", ()) else self.result.nbytes


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A reference to the array of another node. A ``NodeRef`` represents an array in the arguments of a
    `Node`.
    """

    number: int


class Trace:
    """The array operations that were recorded during a function call.

    Attributes
    ----------
    nodes : list of Node
        Arguments first, then expressions in the order of the program.
    outputs : tuple of int
        The nodes that are returned.
    folded_calls : list of (str, str)
        Calls whose result was not an array, and these results, which are constants in the graph.
    break_reasons : list of str
        The operations for which Python needed the value of an array. Later code may depend on these values.
    outer_variables : list of (str, callable, object)
        Outer variables with numbers, strings or arrays: the name, a function that looks it up, and its value.
    """

    def __init__(self, name: str) -> None:
        self.cp = session.cp()
        self.name = name
        self.nodes: list[Node] = []
        self.outputs: tuple[int, ...] = ()
        self.returned_value: Any = None
        self.folded_calls: list[tuple[str, str]] = []
        self.break_reasons: list[str] = []
        self.outer_variables: list[tuple[str, Callable[[], Any], Any]] = []
        self._stream, self._device = self._find_stream_and_device()

    def _find_stream_and_device(self) -> tuple[Any, int]:
        return self.cp.cuda.get_current_stream(), int(self.cp.cuda.Device().id)

    def add_node(
        self, name: str, kind: NodeKind, result: Any, read_numbers: Iterable[int] = (), **node_fields: Any
    ) -> Value:
        """Add a node to the trace, and return a placeholder for its result."""
        if len(self.nodes) >= MAX_NODES:
            raise GpulabError(
                f"{self.name} has more than {MAX_NODES} expressions. Trace a part of it, for example one "
                "iteration of its loop."
            )
        stream, device = self._find_stream_and_device()
        node = Node(
            len(self.nodes),
            name,
            kind,
            result,
            read_numbers=tuple(dict.fromkeys(read_numbers)),
            **node_fields,
        )
        node.stream = None if stream == self._stream else stream
        node.device = None if device == self._device else device
        self.nodes.append(node)
        return Value(self, node)

    def add_outer_array(self, name: str, array: Any) -> Value:
        """Add an array that the function uses but does not receive as an argument. All runs of the program
        use the same array.
        """
        return self.add_node(name, "view", array, call=lambda: array)

    def record_call(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a CuPy function or an array method, and record the operation."""
        traced_values = list(_find_values((*args, *kwargs.values())))
        result = function(*_map_values(args, _get_real_array), **_map_values(kwargs, _get_real_array))
        read_args = (
            args[1:] if name == "copyto" else (*args, *(value for k, value in kwargs.items() if k != "out"))
        )
        read_nodes = [value._node.number for value in _find_values(read_args)]
        if name in _HOST_READS or (traced_values and not isinstance(result, (self.cp.ndarray, tuple, list))):
            if traced_values and not isinstance(result, (str, bool, type(None))):
                self.record_host_read(name, traced_values[0])
            return result
        call_details = {
            "call": function,
            "args": _map_values(args, _make_node_ref),
            "kwargs": _map_values(kwargs, _make_node_ref),
        }
        if isinstance(result, self.cp.ndarray):
            node_kind = self._find_node_kind(name, traced_values, result)
            if name in ("empty", "empty_like"):  # memory alone: nothing is launched
                return self.add_node(name, "view", result, (), **call_details)
            output_value = next((value for value in traced_values if value._array is result), None)
            if output_value is not None:
                return self._record_write(output_value, name, node_kind, read_nodes, call_details)
            return self.add_node(name, node_kind, result, read_nodes, **call_details)
        if isinstance(result, (tuple, list)) and any(
            isinstance(element, self.cp.ndarray) for element in result
        ):
            value = self.add_node(name, "other", result, read_nodes, **call_details)
            node_number = value._node.number
            return type(result)(
                self.add_node(
                    f"{name}[{k}]",
                    "view",
                    element,
                    (node_number,),
                    call=_get_item,
                    args=(NodeRef(node_number), k),
                )
                for k, element in enumerate(result)
            )
        if not traced_values:
            self.folded_calls.append((f"{name}({', '.join(map(repr, args))})", repr(result)))
        return result

    def _find_node_kind(self, name: str, values: list[Value], result: Any) -> NodeKind:
        for value in values:
            if _is_within(result, value._array) and result is not value._array:
                return "view"
        if name in _PRODUCT_FUNCTIONS:
            return "matmul"
        if name in _REDUCTION_FUNCTIONS:
            return "reduce"
        return "map" if values and (name in _MAP_FUNCTIONS or _is_ufunc(name)) else "other"

    def _record_write(
        self,
        output_value: Value,
        name: str,
        node_kind: NodeKind,
        predecessors: list[int],
        details: dict[str, Any],
    ) -> Value:
        """Add an in-place operation. Afterwards, the placeholder of its output refers to the new node."""
        old_number = output_value._node.number
        written_value = self.add_node(
            name,
            "map" if node_kind == "view" else node_kind,
            output_value._array,
            predecessors,
            overwritten_number=old_number,
            **details,
        )
        object.__setattr__(output_value, "_node", written_value._node)
        return output_value

    def record_kernel(
        self, name: str, function: Any, args: Any, kwargs: Any, written: Iterable[Value] = ()
    ) -> Any:
        """Launch a kernel that the learner wrote, and record it as an operation that is never fused."""
        traced_values = list(_find_values((*args, *kwargs.values())))
        result = function(*_map_values(args, _get_real_array), **_map_values(kwargs, _get_real_array))
        call_details = {
            "call": function,
            "args": _map_values(args, _make_node_ref),
            "kwargs": _map_values(kwargs, _make_node_ref),
        }
        predecessor_numbers = [traced_value._node.number for traced_value in traced_values]
        if isinstance(result, self.cp.ndarray):
            return self.add_node(name, "kernel", result, predecessor_numbers, **call_details)
        for index, value in enumerate(written):
            old_number = value._node.number
            node_details = {"call": _do_nothing, "args": (), "kwargs": {}} if index else call_details
            written_value = self.add_node(
                name,
                "kernel",
                value._array,
                predecessor_numbers,
                overwritten_number=old_number,
                **node_details,
            )
            object.__setattr__(value, "_node", written_value._node)
        return result

    def record_host_read(self, operation_name: str, value: Value) -> None:
        """Record that Python code reads the value of an array. The host must wait for this value."""
        self.add_node(operation_name, "host", value._array, (value._node.number,))
        self.break_reasons.append(f"{operation_name} of the result of {value._node.name!r}")

    def run(self, function: Callable[..., Any], args: Iterable[Any]) -> Trace:
        """Call the function with placeholders for its arrays, and record its operations.

        Raises
        ------
        GpulabError
            If the function uses its arrays in a way that cannot be traced.
        """
        arguments = []
        for argument_index, value in enumerate(args):
            is_array = isinstance(value, self.cp.ndarray)
            arguments.append(
                self.add_node(_name_argument(function, argument_index), "input", value) if is_array else value
            )
        try:
            self.returned_value = _FunctionCopies(self).copy_function(function)(*arguments)
        except TypeError as error:
            if "Value" not in str(error):
                raise
            raise GpulabError(
                f"{self.name} cannot be traced ({error}). Import cp in the notebook and "
                "not in the function, and use only functions, operators and kernels of "
                "cp."
            ) from error
        self.outputs = tuple(
            traced_value._node.number for traced_value in _find_values((self.returned_value,))
        )
        if not self.outputs and not any(node.overwritten_number is not None for node in self.nodes):
            raise GpulabError(
                f"{self.name} neither returns nor changes a device array, so there is "
                "nothing to trace. Pass device arrays to it, and return its result."
            )
        return self


def trace_function(function: Callable[..., Any], *args: Any) -> Trace:
    """Call ``function(*args)`` once, and return the graph of its array expressions.

    Raises
    ------
    TypeError
        If `function` is not a function.
    GpulabError
        If the function cannot be traced.
    """
    if not callable(function):
        raise TypeError(
            f"The first argument must be a function, but got {type(function).__name__}. Pass the function "
            "itself, and then its arguments."
        )
    return Trace(getattr(function, "__name__", "fn")).run(function, args)


# --- stand-ins --------------------------------------------------------------------------------------------
class Value:
    """A placeholder for a device array while a function is traced."""

    _node: Node
    _trace: Trace
    __slots__ = ("_node", "_trace")
    __array_priority__ = 1000

    def __init__(self, trace: Trace, node: Node) -> None:
        object.__setattr__(self, "_trace", trace)
        object.__setattr__(self, "_node", node)

    @property
    def _array(self) -> Any:
        return self._node.result

    def __repr__(self) -> str:
        return f"<traced {self._node.dtype} {self._node.shape}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # or else CuPy reads the array by its interface, and nothing is traced
            raise AttributeError(f"A traced Value has no attribute {name!r}.")
        attribute = getattr(self._array, name)
        if isinstance(attribute, self._trace.cp.ndarray):  # .T, .real
            view = self._trace.add_node(name, "view", attribute, (self._node.number,))
            view._node.call, view._node.args = getattr, (NodeRef(self._node.number), name)
            return view
        if not callable(attribute) or isinstance(attribute, type):
            return attribute

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._trace.record_call(name, _make_method_caller(name), (self, *args), kwargs)

        return method

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        name = ufunc.__name__
        return self._trace.record_call(name, getattr(self._trace.cp, name), inputs, kwargs)

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        return self._trace.record_call(name, getattr(self._trace.cp, name), args, kwargs)

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        return self._trace.record_call("getitem", _get_elements, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        is_whole = key is Ellipsis or key == slice(None)
        target_view = self if is_whole else self[key]
        if not isinstance(target_view, Value) or (target_view._node.kind != "view" and not is_whole):
            raise GpulabError(
                "While a function is traced, x[...] = y supports only slices and integers as indices."
            )
        self._trace.record_call("copyto", _set_elements, (target_view, value), {})
        if not is_whole:  # what the whole array holds has changed, too
            updated_value = self._trace.add_node(
                "setitem",
                "view",
                self._array,
                (target_view._node.number,),
                call=_do_nothing,
                overwritten_number=self._node.number,
            )
            object.__setattr__(self, "_node", updated_value._node)


def _define_operators() -> None:
    binary_functions = {
        "add": "add",
        "sub": "subtract",
        "mul": "multiply",
        "truediv": "true_divide",
        "mod": "remainder",
        "floordiv": "floor_divide",
        "pow": "power",
        "matmul": "matmul",
        "and": "bitwise_and",
        "or": "bitwise_or",
        "xor": "bitwise_xor",
        "lshift": "left_shift",
        "rshift": "right_shift",
    }
    comparison_functions = {
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "eq": "equal",
    }
    for method_name, name in {**binary_functions, **comparison_functions, "ne": "not_equal"}.items():
        setattr(Value, f"__{method_name}__", _make_operator(name, lambda a, b: (a, b)))
        if method_name in binary_functions:
            setattr(Value, f"__r{method_name}__", _make_operator(name, lambda a, b: (b, a)))
            if name != "matmul":
                setattr(
                    Value, f"__i{method_name}__", _make_operator(name, lambda a, b: (a, b), in_place=True)
                )
    for method_name, name in {"neg": "negative", "abs": "absolute", "invert": "invert"}.items():
        setattr(Value, f"__{method_name}__", _make_operator(name, lambda a: (a,)))
    for name in _HOST_METHODS:
        setattr(Value, name, _make_host_method(name))


def _make_operator(
    name: str, arrange_operands: Callable[..., tuple[Any, ...]], in_place: bool = False
) -> Any:
    def operator(self: Value, *operands: Any) -> Any:
        function = getattr(self._trace.cp, name)
        return self._trace.record_call(
            name, function, arrange_operands(self, *operands), {"out": self} if in_place else {}
        )

    return operator


def _make_host_method(name: str) -> Any:
    def read_value(self: Value) -> Any:
        self._trace.record_host_read(name.strip("_"), self)
        return getattr(self._array, name)()

    return read_value


_define_operators()


class _Module:
    """A placeholder for ``cp`` or a submodule. `wrap_kernel` returns a placeholder for a kernel that the
    function creates.
    """

    def __init__(self, trace: Trace, module: Any, wrap_kernel: Callable[[Any], Any], path: str = "") -> None:
        self.__trace = trace
        self.__module = module
        self.__wrap = wrap_kernel
        self.__path = path

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.__module, name)
        if isinstance(attribute, types.ModuleType):
            return _Module(self.__trace, attribute, self.__wrap, f"{self.__path}{name}.")
        if name in _KERNEL_MAKERS:
            return lambda *args, **kwargs: self.__wrap(attribute(*args, **kwargs))
        if isinstance(attribute, type) or not callable(attribute):
            return attribute

        def function(*args: Any, **kwargs: Any) -> Any:
            return self.__trace.record_call(f"{self.__path}{name}", attribute, args, kwargs)

        return function


class _FunctionCopies:
    """Copies of a function, and of functions that it calls, with stand-ins for ``cp`` and for kernels."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.done = trace, dict[int, Any]()
        cp = trace.cp
        self.kernels = cp.ElementwiseKernel, cp.ReductionKernel, type(cp.fuse(lambda x: x))

    def copy_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a copy of the learner's function that uses placeholders. Other functions are returned
        unchanged.
        """
        if isinstance(function, types.MethodType):
            return types.MethodType(self.copy_function(function.__func__), function.__self__)
        if not isinstance(function, types.FunctionType):
            rebound_value: Callable[..., Any] = self.copy_value(function)
            return rebound_value
        if id(function) in self.done:
            known_copy: Callable[..., Any] = self.done[id(function)]
            return known_copy
        global_copies = dict(function.__globals__)
        constructor_args = function.__code__, global_copies, function.__name__, function.__defaults__
        rebound_function = types.FunctionType(*constructor_args, function.__closure__)
        self.done[id(function)] = rebound_function
        used_names = _find_names(function.__code__)
        global_names = function.__globals__
        for name in used_names & global_copies.keys():
            global_copies[name] = self.look_up(name, partial(global_names.get, name))
        free_variables = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closure_cells = tuple(
            types.CellType(self.look_up(name, partial(getattr, cell, "cell_contents")))
            for name, cell in free_variables
        )
        rebound_function = types.FunctionType(*constructor_args, closure_cells)
        rebound_function.__kwdefaults__ = function.__kwdefaults__
        self.done[id(function)] = rebound_function
        return rebound_function

    def look_up(self, name: str, look_up_value: Callable[[], Any]) -> Any:
        """Return the value of a variable from outside the function, or a placeholder for the value. If the
        value is a number, a string or an array, the trace records its use.
        """
        found_value = look_up_value()
        if isinstance(found_value, (bool, int, float, str, np.generic)):
            self.trace.outer_variables.append((name, look_up_value, found_value))
        elif isinstance(found_value, self.trace.cp.ndarray):
            self.trace.outer_variables.append((name, look_up_value, found_value))
            return self.trace.add_outer_array(name, found_value)
        return self.copy_value(found_value)

    def copy_value(self, value: Any) -> Any:
        """Return a placeholder for a module, function or kernel. A value that needs no placeholder is
        returned unchanged.
        """
        if value is self.trace.cp:
            return _Module(self.trace, value, self.copy_value)
        if isinstance(value, self.trace.cp.RawKernel):
            return _wrap_raw_kernel(self.trace, value)
        if isinstance(value, self.kernels):
            name = str(getattr(value, "name", None) or getattr(value, "__name__", "kernel"))
            return lambda *args, **kwargs: self.trace.record_kernel(name, value, args, kwargs)
        if isinstance(value, types.FunctionType) and not value.__module__.startswith(("cupy", "virtualgpu")):
            return self.copy_function(value)
        return value


def _wrap_raw_kernel(trace: Trace, kernel: Any) -> Callable[..., Any]:
    def launch(grid: Any, block: Any, args: Any, **kwargs: Any) -> Any:
        constant_parameters = _find_constant_parameters(kernel)
        written_arrays = [
            value
            for index, value in enumerate(args)
            if isinstance(value, Value)
            and not (index < len(constant_parameters) and constant_parameters[index])
        ]
        return trace.record_kernel(kernel.name, kernel, (grid, block, args), kwargs, written_arrays)

    return launch


def _find_constant_parameters(kernel: Any) -> list[bool]:
    """Return for each parameter of a kernel whether its source declares it const."""
    source_code = str(kernel.code)
    name = str(kernel.name)
    _, separator, declaration = source_code.partition(f" {name}(")
    return (
        ["const" in parameter.split("*")[0] for parameter in declaration.partition(")")[0].split(",")]
        if separator
        else []
    )


# --- helpers ----------------------------------------------------------------------------------------------
def _map_values(value: Any, convert_value: Callable[[Value], Any]) -> Any:
    if isinstance(value, Value):
        return convert_value(value)
    if isinstance(value, dict):
        return {key: _map_values(element, convert_value) for key, element in value.items()}
    return (
        type(value)(_map_values(element, convert_value) for element in value)
        if type(value) in (tuple, list)
        else value
    )


def _find_values(values: Any) -> Iterator[Value]:
    for value in values:
        if isinstance(value, Value):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _find_values(value)
        elif isinstance(value, dict):
            yield from _find_values(value.values())


def _get_real_array(value: Value) -> Any:
    return value._array


def _make_node_ref(value: Value) -> NodeRef:
    return NodeRef(value._node.number)


def _make_method_caller(name: str) -> Callable[..., Any]:
    return lambda array, *args, **kwargs: getattr(array, name)(*args, **kwargs)


def _get_elements(array: Any, key: Any) -> Any:
    return array[key]


def _set_elements(target: Any, value: Any) -> Any:
    target[...] = value
    return target


def _get_item(values: Any, index: int) -> Any:
    return values[index]


def _do_nothing(*_: Any) -> None:
    return None


def _find_names(code: types.CodeType) -> set[str]:
    inner_names = [
        _find_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)
    ]
    return {*code.co_names}.union(*inner_names)


def _name_argument(function: Any, index: int) -> str:
    names = getattr(getattr(function, "__code__", None), "co_varnames", ())
    return names[index] if index < len(names) else f"argument {index}"


def _is_ufunc(name: str) -> bool:
    return isinstance(getattr(np, name, None), np.ufunc)


def _find_span(array: Any) -> tuple[int, int]:
    """Return the address and the size in bytes of the memory that an array's elements span."""
    if array.size == 0:
        return array.data.ptr, 0
    extents_bytes = [
        (n - 1) * extent_bytes for n, extent_bytes in zip(array.shape, array.strides, strict=True)
    ]
    lowest_offset = sum(extent_bytes for extent_bytes in extents_bytes if extent_bytes < 0)
    return array.data.ptr + lowest_offset, sum(map(abs, extents_bytes)) + array.itemsize


def overlaps(first_array: Any, second_array: Any) -> bool:
    """Return whether two arrays may share memory."""
    (first_start, first_bytes), (other_start, other_bytes) = _find_span(first_array), _find_span(second_array)
    return first_start < other_start + other_bytes and other_start < first_start + first_bytes


def have_same_elements(first_array: Any, second_array: Any) -> bool:
    """Return whether two arrays have the same elements at the same addresses."""
    return (first_array.data.ptr, first_array.shape, first_array.strides) == (
        second_array.data.ptr,
        second_array.shape,
        second_array.strides,
    )


def _is_within(inner_array: Any, outer_array: Any) -> bool:
    return bool(inner_array.size) and overlaps(inner_array, outer_array)

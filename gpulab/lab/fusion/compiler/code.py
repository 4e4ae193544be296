"""Generation of CUDA C++ for the expressions of an `ElementwiseKernel` or a `ReductionKernel`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.fusion.compiler.plan import Plan
from gpulab.lab.fusion.compiler.trace import Node, NodeRef, have_same_elements

_COMMON_OPERATIONS = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "negative": "-{0}",
    "square": "{0} * {0}",
    "copyto": "{1}",
    "copy": "{0}",
    "astype": "{0}",
    "ascontiguousarray": "{0}",
    "maximum": "({0} != {0} || {0} > {1}) ? {0} : {1}",
    "minimum": "({0} != {0} || {0} < {1}) ? {0} : {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "where": "{0} ? {1} : {2}",
    "greater_equal": "{0} >= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "logical_not": "{0} == 0",
    "logical_and": "{0} != 0 && {1} != 0",
    "logical_or": "{0} != 0 || {1} != 0",
    "sign": "({0} > 0) - ({0} < 0)",
}
_REAL_OPERATIONS = {
    **{
        name: f"{name}({{0}})"
        for name in (
            "sqrt",
            "cbrt",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
            "floor",
            "ceil",
            "trunc",
            "rint",
        )
    },
    "true_divide": "{0} / {1}",
    "divide": "{0} / {1}",
    "absolute": "fabs({0})",
    "power": "pow({0}, {1})",
    "reciprocal": "1 / {0}",
    "sign": "{0} != {0} ? {0} : ({0} > 0) - ({0} < 0)",
}
_INTEGER_OPERATIONS = {"absolute": "{0} < 0 ? -{0} : {0}"}
# Of a reduction: how two become one, from what it begins, and what becomes of the result.
_REDUCE_OPERATORS = {
    "sum": ("a + b", "0"),
    "mean": ("a + b", "0"),
    "prod": ("a * b", "1"),
    **dict.fromkeys(("max", "amax"), ("(a != a || a > b) ? a : b", "")),
    **dict.fromkeys(("min", "amin"), ("(a != a || a < b) ? a : b", "")),
}
_NAME_LETTERS = frozenset("bcdghkmpqrstuvwxyz")
_RESERVED_NAMES = frozenset(
    {
        *("in", "is", "and", "or", "not", "new", "int", "long", "short", "char", "float", "double", "auto"),
        *("bool", "void", "this", "union", "enum", "struct", "before", "behind"),
    }
)
_C_NAMES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}


# CuPy includes it for types that its own parameters have, and one of a preamble's is none.
_HALF_INCLUDE = "#if __has_include(<cupy/float16.cuh>)\n#include <cupy/float16.cuh>\n#endif\n"


class NoCodeError(Exception):
    """Error for an expression that cannot be translated into C++. The message contains the expression."""


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """A generated kernel, with the graph nodes that are its inputs and outputs.

    The attribute ``operation`` contains the C++ code for one element, or the three expressions of a
    reduction. ``input_nodes`` lists the nodes whose arrays are inputs, and ``output_nodes`` the nodes whose
    arrays are outputs, both in the order of the kernel's parameters.
    """

    kernel: Any
    operation: str
    input_nodes: tuple[int, ...]
    output_nodes: tuple[int, ...]
    axis: Any = None
    keepdims: bool = False

    @property
    def source(self) -> str:
        """The complete CUDA C++ source of the kernel. It is available after the kernel has run."""
        try:
            return str(self.kernel.cached_code)
        except StopIteration:  # of a reduction by CUB, CuPy keeps no text
            return self.operation


def generate_kernel(plan: Plan, group: Sequence[int], name: str) -> GeneratedKernel:
    """Generate the kernel for one group of expressions in a fusion plan.

    Raises
    ------
    NoCodeError
        If an expression of the group cannot be translated into C++.
    """
    nodes = plan.nodes
    cp = session.cp()
    input_nodes = plan.find_reads(group)
    output_nodes = plan.find_writes(group)
    if plan.find_alias_reason([nodes[n] for n in group]):
        raise NoCodeError(
            "No C++ code can be generated for an expression that changes an array in place and reads other "
            "elements of the same memory."
        )
    name_of_node = {n.number: _name_input(n, k) for k, n in enumerate(input_nodes)}
    reduction = next((nodes[n] for n in group if nodes[n].kind == "reduce"), None)
    statements_by_phase: dict[bool, list[str]] = {False: [], True: []}
    is_after_reduction = False
    for node_number in group:
        node = nodes[node_number]
        if node is reduction:
            is_after_reduction = True
            name_of_node[node_number] = "a"
            if node.name == "mean":
                mean_input = next(source_node for _, source_node in plan.sources[node_number])
                element_count = mean_input.result.size // max(node.result.size, 1)
                statements_by_phase[True].append(
                    f"const {_find_wide_type(node.dtype)} v{node_number} = a / {element_count};"
                )
                name_of_node[node_number] = f"v{node_number}"
            continue
        statements_by_phase[is_after_reduction].append(_make_statement(plan, node, name_of_node, input_nodes))
        name_of_node[node_number] = f"v{node_number}"
    store_statements = [f"out{k} = {name_of_node[n.number]};" for k, n in enumerate(output_nodes)]
    array_numbers = tuple(n.number for n in input_nodes), tuple(n.number for n in output_nodes)
    if reduction is None:
        operation_code = "\n".join([*statements_by_phase[False], *store_statements])
        input_declarations = ", ".join(f"{n.dtype.name} {name_of_node[n.number]}" for n in input_nodes)
        output_declarations = ", ".join(f"{n.dtype.name} out{k}" for k, n in enumerate(output_nodes))
        kernel = cp.ElementwiseKernel(
            input_declarations, output_declarations, operation_code, name, return_tuple=True
        )
        return GeneratedKernel(kernel, operation_code, *array_numbers)
    return _generate_reduction(
        plan, reduction, statements_by_phase, store_statements, name_of_node, array_numbers, name
    )


def _generate_reduction(
    plan: Plan,
    reduction: Node,
    statements_by_phase: dict[bool, list[str]],
    store_statements: list[str],
    name_of_node: dict[int, str],
    array_numbers: tuple[tuple[int, ...], tuple[int, ...]],
    name: str,
) -> GeneratedKernel:
    reduce_operator = _REDUCE_OPERATORS.get(reduction.name)
    axis = reduction.kwargs.get("axis", reduction.args[1] if len(reduction.args) > 1 else None)
    if reduce_operator is None or {*reduction.kwargs} - {"axis", "keepdims"} or len(reduction.args) > 2:
        raise NoCodeError(f"No C++ code can be generated for {reduction.name!r} with these arguments.")
    nodes = plan.nodes
    source_node = next(source_node for _, source_node in plan.sources[reduction.number])
    c_type = _find_wide_type(reduction.dtype)
    input_nodes = [nodes[n] for n in array_numbers[0]]
    output_nodes = [nodes[n] for n in array_numbers[1]]
    in_params = ", ".join(f"const {_find_c_type(n.dtype)}& {name_of_node[n.number]}" for n in input_nodes)
    out_params = "".join(f", {_find_c_type(n.dtype)}& out{k}" for k, n in enumerate(output_nodes))
    origin_node = next(origin_number for origin_number, _ in plan.sources[reduction.number])
    value_name = name_of_node.get(source_node.number) or name_of_node[origin_node]
    preamble = (
        f"__device__ {c_type} before({in_params}) {{ {' '.join(statements_by_phase[False])} "
        f"return {value_name}; }}\n"
        f"__device__ void behind({c_type} a{out_params}) "
        f"{{ {' '.join([*statements_by_phase[True], *store_statements])} }}\n"
    )
    if any(n.dtype.name == "float16" for n in (*input_nodes, *output_nodes)):
        preamble = f"{_HALF_INCLUDE}{preamble}"
    # CuPy puts in0 and out0 in these names' place, wherever it finds their letters, and lacks their types
    # where that is what they are called.
    input_names = [f"in_{k}" for k in range(len(input_nodes))]
    output_names = [f"out_{k}" for k in range(len(output_nodes))]
    expressions = (
        f"before({', '.join(input_names)})",
        reduce_operator[0],
        f"behind({', '.join(['a', *output_names])})",
    )
    declarations = tuple(
        ", ".join(
            f"{n.dtype.name} {parameter_name}"
            for n, parameter_name in zip(nodes_of_side, parameter_names, strict=True)
        )
        for nodes_of_side, parameter_names in ((input_nodes, input_names), (output_nodes, output_names))
    )
    identity_literal = reduce_operator[1] or _make_extreme_literal(reduction.dtype, reduction.name)
    kernel = session.cp().ReductionKernel(
        *declarations, *expressions, identity_literal, name, reduce_type=c_type, preamble=preamble
    )
    source_text = f"map: {expressions[0]}\nreduce: {expressions[1]}\npost: {expressions[2]}\n{preamble}"
    return GeneratedKernel(
        kernel, source_text, *array_numbers, axis, bool(reduction.kwargs.get("keepdims", False))
    )


def _make_extreme_literal(dtype: np.dtype[Any], name: str) -> str:
    sign_text = "" if "min" in name else "-"
    if dtype.kind == "f":
        return f"{sign_text}__int_as_float(0x7f800000)"
    integer_limits = np.iinfo(dtype)
    literal = f"{integer_limits.max}{'ull' if dtype.kind == 'u' else 'll'}"
    extreme_text = literal if not sign_text else "0" if dtype.kind == "u" else f"(-{literal} - 1)"
    return f"({_find_c_type(dtype)}){extreme_text}"


def _make_statement(plan: Plan, node: Node, name_of_node: dict[int, str], input_nodes: list[Node]) -> str:
    loop_type = _find_loop_type(plan, node)
    operation_template = {
        **_COMMON_OPERATIONS,
        **(_REAL_OPERATIONS if loop_type.kind == "f" else _INTEGER_OPERATIONS),
    }.get(node.name)
    extra_options = {*node.kwargs} - {"out"}
    if (
        operation_template is None
        or extra_options
        or (loop_type.kind not in "fiu" and node.name not in _TYPELESS_OPERATIONS)
    ):
        raise NoCodeError(f"No C++ code can be generated for {node.name!r} with the type {loop_type}.")
    arguments = node.args[: 1 if node.name in ("astype", "copy") else None]
    operand_texts = [
        _make_operand(
            plan,
            argument,
            name_of_node,
            input_nodes,
            np.dtype(bool) if node.name == "where" and not k else loop_type,
        )
        for k, argument in enumerate(arguments)
    ]
    if len(operand_texts) <= max(int(digit) for digit in "012" if f"{{{digit}}}" in operation_template):
        raise NoCodeError(
            f"No C++ code can be generated for {node.name!r} with {len(operand_texts)} arguments."
        )
    value_text = operation_template.format(*operand_texts)
    c_type = _find_c_type(node.dtype)
    return f"const {c_type} v{node.number} = {value_text};"


def _name_input(node: Node, index: int) -> str:
    """Return the C++ name of an input: its own name if C++ allows that, otherwise ``in`` and a number."""
    is_plain_name = (node.kind == "input" and len(node.name) > 1) or node.name in _NAME_LETTERS
    return (
        node.name
        if is_plain_name and re.fullmatch(r"[a-z][a-z_]*", node.name) and node.name not in _RESERVED_NAMES
        else f"in{index}"
    )


_TYPELESS_OPERATIONS = frozenset(
    {"copyto", "copy", "astype", "where", "equal", "not_equal", "logical_not", "logical_and", "logical_or"}
)


def _make_operand(
    plan: Plan, argument: Any, name_of_node: dict[int, str], input_nodes: list[Node], loop_type: np.dtype[Any]
) -> str:
    """Return the C++ text of an operand, which is a variable or a constant.

    Half-precision values are computed in float.
    """
    c_type = _find_wide_type(loop_type)
    if isinstance(argument, NodeRef):
        node = plan.nodes[argument.number]
        name = name_of_node.get(argument.number)
        if name is None:  # the same elements by another name, or a view of what was computed here
            equal_inputs = (n for n in input_nodes if have_same_elements(n.result, node.result))
            name = next((name_of_node[n.number] for n in equal_inputs), None)
        while name is None and node.read_numbers:
            node = plan.nodes[node.read_numbers[0]]
            name = name_of_node.get(node.number)
        return str(name) if c_type == _C_NAMES.get(node.dtype.name) else f"({c_type}){name}"
    if not isinstance(argument, (bool, int, float, np.generic)):
        raise NoCodeError(f"C++ code cannot use an argument of type {type(argument).__name__}.")
    value = loop_type.type(argument).item() if loop_type.kind != "b" else bool(argument)
    if isinstance(value, float) and not math.isfinite(value):
        bit_literal = "0x7ff8000000000000LL" if math.isnan(value) else "0x7ff0000000000000LL"
        return f"({c_type})({'-' if value < 0 else ''}__longlong_as_double({bit_literal}))"
    if isinstance(value, bool):
        return str(value).lower()
    if loop_type.name in ("float16", "float32"):
        return f"{np.format_float_positional(np.float32(value), trim='0')}f"
    return f"({c_type}){value!r}"


def _find_loop_type(plan: Plan, node: Node) -> np.dtype[Any]:
    """Return the type in which an expression is computed."""
    if node.name in ("copyto", "copy", "astype", "ascontiguousarray"):
        return node.dtype
    operands = node.args[1:] if node.name == "where" else node.args
    operand_types: list[Any] = []
    for operand in operands:
        if isinstance(operand, NodeRef):
            operand_types.append(plan.nodes[operand.number].dtype)
        elif isinstance(operand, np.generic):
            operand_types.append(operand.dtype)
        elif isinstance(operand, (bool, int, float)):
            operand_types.append(type(operand) if type(operand) is not bool else np.dtype(bool))
        else:
            raise NoCodeError(f"C++ code cannot use an argument of type {type(operand).__name__}.")
    ufunc = getattr(np, node.name, None)
    if isinstance(ufunc, np.ufunc):
        return np.dtype(ufunc.resolve_dtypes((*operand_types, *[None] * ufunc.nout))[0])
    return node.dtype


def _find_c_type(dtype: np.dtype[Any]) -> str:
    if dtype.name == "float16":
        return "float16"
    if dtype.name not in _C_NAMES:
        raise NoCodeError(f"{dtype} numbers")
    return _C_NAMES[dtype.name]


def _find_wide_type(dtype: np.dtype[Any]) -> str:
    return "float" if dtype.name == "float16" else _find_c_type(dtype)

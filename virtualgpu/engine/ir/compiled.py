"""Translator of some Python functions to machine code that runs at every access of a checked launch.

The functions are plain Python of one type, 64-bit integers: arithmetic, comparisons, `if`, `while`,
`return`, calls of each other, constants of their module, and fields of structures. They are never run by
Python itself; `translate` reads their source and writes LLVM.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from virtualgpu.errors import NotSupportedError

T = TypeVar("T")


class _AnnotatedClass(Protocol):
    __annotations__: dict[str, Any]


def make_structure(cls: type[T]) -> type[T]:
    """Return a C structure with the fields of a class. Each field is a 64-bit integer."""
    fields = [(name, ctypes.c_int64) for name in cast(_AnnotatedClass, cls).__annotations__]
    structure = type(cls.__name__, (ctypes.Structure,), {"_fields_": fields, "__doc__": cls.__doc__})
    return cast("type[T]", structure)


def get_struct_size(structure_type: type[object]) -> int:
    """Return the size of a structure type in bytes."""
    return ctypes.sizeof(cast("type[ctypes.Structure]", structure_type))


def get_struct_address(structure: object) -> int:
    """Return the address of a structure in memory."""
    return ctypes.addressof(cast(ctypes.Structure, structure))


def view_struct(structure_type: type[T], address: int) -> T:
    """Return the bytes at an address as a structure of a given type."""
    return cast("T", cast("type[ctypes.Structure]", structure_type).from_address(address))


# Functions that compiled functions may call besides each other. Python itself never calls them.


def load8(address: int) -> int:
    """Load one unsigned byte from an address."""
    raise NotImplementedError


def load32(address: int) -> int:
    """Load an unsigned 32-bit integer from an address."""
    raise NotImplementedError


def load64(address: int) -> int:
    """Load a 64-bit integer from an address."""
    raise NotImplementedError


def store8(address: int, value: int) -> None:
    """Store one byte at an address."""
    raise NotImplementedError


def store32(address: int, value: int) -> None:
    """Store a 32-bit integer at an address."""
    raise NotImplementedError


def store64(address: int, value: int) -> None:
    """Store a 64-bit integer at an address."""
    raise NotImplementedError


def find_lowest_bit(bits: int) -> int:
    """Return the position of the lowest bit that is set."""
    raise NotImplementedError


def call_function(function: int, context: object, site: int, lanes: int, mask: int, values: int) -> None:
    """Call a function of the observer, given the function's address."""
    raise NotImplementedError


_LOAD_WIDTHS = {"load8": 8, "load32": 32, "load64": 64}
_STORE_WIDTHS = {"store8": 8, "store32": 32, "store64": 64}
_BINARY_OPCODES: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.LShift: "shl",
    ast.RShift: "ashr",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
_COMPARE_PREDICATES: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "slt",
    ast.LtE: "sle",
    ast.Gt: "sgt",
    ast.GtE: "sge",
}


class _FunctionTranslator:
    """The LLVM text of one function while it is translated."""

    def __init__(
        self,
        function: Callable[..., object],
        functions: Mapping[str, Callable[..., object]],
        layouts: Mapping[str, npt.DTypeLike],
    ) -> None:
        function_tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(function_tree, ast.FunctionDef)
        self.function_node = function_tree
        self.functions = functions
        self.layouts = layouts
        self.globals = function.__globals__
        self.structure_by_local: dict[str, str] = {}  # the structure that each local points to
        self.allocation_lines: list[str] = []
        self.lines: list[str] = []
        self.name_count = 0
        self.loop_labels: list[tuple[str, str]] = []

    def write_text(self) -> str:
        names = [argument.arg for argument in self.function_node.args.args]
        for argument in self.function_node.args.args:
            self._get_local_pointer(argument.arg)
            if isinstance(argument.annotation, ast.Name):
                self.structure_by_local[argument.arg] = argument.annotation.id
            self.lines.append(f"store i64 %a.{argument.arg}, ptr %v.{argument.arg}")
        self._compile_block(self.function_node.body)
        self.lines.append("ret i64 0")
        parameters = ", ".join(f"i64 %a.{name}" for name in names)
        body_text = "\n  ".join([*self.allocation_lines, *self.lines])
        return f"define internal i64 @{self.function_node.name}({parameters}) {{\nentry:\n  {body_text}\n}}\n"

    def _new_name(self, kind: str = "t") -> str:
        self.name_count += 1
        return f"{kind}{self.name_count}"

    def _emit_op(self, text: str) -> str:
        result_name = f"%{self._new_name()}"
        self.lines.append(f"{result_name} = {text}")
        return result_name

    def _get_local_pointer(self, name: str) -> str:
        slot = f"%v.{name}"
        allocation = f"{slot} = alloca i64"
        if allocation not in self.allocation_lines:
            self.allocation_lines.append(allocation)
        return slot

    def _begin_block(self, label: str) -> None:
        self.lines += [f"br label %{label}", f"{label}:"]

    def _compile_block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._compile_statement(statement)

    def _compile_statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            (assigned_node,) = node.targets
            self._emit_assignment(assigned_node, node.value)
        elif isinstance(node, ast.AugAssign):
            binary_node = ast.BinOp(node.target, node.op, node.value)
            self._emit_assignment(node.target, binary_node)
        elif isinstance(node, ast.If):
            self._compile_if(node)
        elif isinstance(node, ast.While):
            head_label, body_label, end_label = (self._new_name("l") for _ in range(3))
            self._begin_block(head_label)
            self._compile_branch(node.test, body_label, end_label)
            self.lines.append(f"{body_label}:")
            self.loop_labels.append((head_label, end_label))
            self._compile_block(node.body)
            self.loop_labels.pop()
            self.lines += [f"br label %{head_label}", f"{end_label}:"]
        elif isinstance(node, ast.Return):
            value = "0" if node.value is None else self._compile_value(node.value)
            self.lines += [f"ret i64 {value}", f"{self._new_name('l')}:"]
        elif isinstance(node, ast.Continue | ast.Break):
            label = self.loop_labels[-1][isinstance(node, ast.Break)]
            self.lines += [f"br label %{label}", f"{self._new_name('l')}:"]
        elif isinstance(node, ast.Expr):
            if not isinstance(node.value, ast.Constant):
                self._compile_value(node.value)
        else:
            raise NotSupportedError(f"{ast.unparse(node)!r} cannot be compiled.")

    def _compile_if(self, node: ast.If) -> None:
        true_label, false_label, end_label = (self._new_name("l") for _ in range(3))
        self._compile_branch(node.test, true_label, false_label)
        self.lines.append(f"{true_label}:")
        self._compile_block(node.body)
        self.lines += [f"br label %{end_label}", f"{false_label}:"]
        self._compile_block(node.orelse)
        self._begin_block(end_label)

    def _compile_branch(self, test: ast.expr, true_label: str, false_label: str) -> None:
        if isinstance(test, ast.BoolOp):
            is_and = isinstance(test.op, ast.And)
            for condition in test.values[:-1]:
                next_label = self._new_name("l")
                if is_and:
                    self._compile_branch(condition, next_label, false_label)
                else:
                    self._compile_branch(condition, true_label, next_label)
                self.lines.append(f"{next_label}:")
            self._compile_branch(test.values[-1], true_label, false_label)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._compile_branch(test.operand, false_label, true_label)
        else:
            self.lines.append(
                f"br i1 {self._compile_condition(test)}, label %{true_label}, label %{false_label}"
            )

    def _compile_condition(self, node: ast.expr) -> str:
        if isinstance(node, ast.BoolOp):  # as a value: every operand is evaluated
            operation = "and" if isinstance(node.op, ast.And) else "or"
            condition_value, *operands = (self._compile_condition(operand) for operand in node.values)
            for operand in operands:
                condition_value = self._emit_op(f"{operation} i1 {condition_value}, {operand}")
            return condition_value
        if isinstance(node, ast.Compare):
            (operator,) = node.ops
            (right_node,) = node.comparators
            left_value = self._compile_value(node.left)
            if isinstance(operator, ast.In):
                assert isinstance(right_node, ast.Tuple)
                condition_value, *element_matches = (
                    self._emit_op(f"icmp eq i64 {left_value}, {self._compile_value(element)}")
                    for element in right_node.elts
                )
                for element_match in element_matches:
                    condition_value = self._emit_op(f"or i1 {condition_value}, {element_match}")
                return condition_value
            return self._emit_op(
                f"icmp {_COMPARE_PREDICATES[type(operator)]} i64 {left_value}, {self._compile_value(right_node)}"
            )
        return self._emit_op(f"icmp ne i64 {self._compile_value(node)}, 0")

    def _emit_assignment(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if (
                isinstance(value, ast.Call)
                and isinstance(value.func, ast.Name)
                and value.func.id == "view_struct"
            ):
                assert isinstance(value.args[0], ast.Name)
                self.structure_by_local[target.id] = value.args[0].id
            self.lines.append(
                f"store i64 {self._compile_value(value)}, ptr {self._get_local_pointer(target.id)}"
            )
            return
        assert isinstance(target, ast.Attribute)
        pointer, width_bits = self._emit_field_pointer(target)
        value_to_store = self._compile_value(value)
        if width_bits < 64:
            value_to_store = self._emit_op(f"trunc i64 {value_to_store} to i{width_bits}")
        self.lines.append(f"store i{width_bits} {value_to_store}, ptr {pointer}")

    def _emit_field_pointer(self, node: ast.Attribute) -> tuple[str, int]:
        """Return a pointer to a field of a structure, and the width of the field in bits."""
        assert isinstance(node.value, ast.Name)
        structure_name = self.structure_by_local[node.value.id]
        layout = self.layouts.get(structure_name)
        if layout is None:
            layout = np.dtype([(name, "<i8") for name, _ in self.globals[structure_name]._fields_])
        fields = np.dtype(layout).fields
        assert fields is not None
        field_dtype, field_offset = fields[node.attr][:2]
        structure_address = self._compile_value(node.value)
        address = self._emit_op(f"add i64 {structure_address}, {field_offset}")
        return self._emit_op(f"inttoptr i64 {address} to ptr"), 8 * field_dtype.itemsize

    def _emit_load(self, pointer: str, width_bits: int) -> str:
        loaded_value = self._emit_op(f"load i{width_bits}, ptr {pointer}, align {width_bits // 8}")
        return (
            loaded_value if width_bits == 64 else self._emit_op(f"zext i{width_bits} {loaded_value} to i64")
        )

    def _compile_value(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name) and f"%v.{node.id} = alloca i64" in self.allocation_lines:
            return self._emit_op(f"load i64, ptr %v.{node.id}")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in self.structure_by_local:
                return self._emit_load(*self._emit_field_pointer(node))
            module = self.globals[node.value.id]
            assert isinstance(module, ModuleType)
            return str(int(getattr(module, node.attr)))
        if isinstance(node, ast.Constant | ast.Name):
            constant = node.value if isinstance(node, ast.Constant) else self.globals[node.id]
            assert isinstance(constant, int)
            return str((int(constant) + (1 << 63)) % (1 << 64) - (1 << 63))
        if isinstance(node, ast.BinOp):
            left_value = self._compile_value(node.left)
            right_value = self._compile_value(node.right)
            return self._emit_op(f"{_BINARY_OPCODES[type(node.op)]} i64 {left_value}, {right_value}")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
            operand = self._compile_value(node.operand)
            return self._emit_op(
                f"sub i64 0, {operand}" if isinstance(node.op, ast.USub) else f"xor i64 {operand}, -1"
            )
        if isinstance(node, ast.Compare | ast.BoolOp):
            return self._emit_op(f"zext i1 {self._compile_condition(node)} to i64")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._emit_call(node.func.id, node.args)
        raise NotSupportedError(f"{ast.unparse(node)!r} cannot be compiled.")

    def _emit_call(self, name: str, expressions: Sequence[ast.expr]) -> str:
        if name == "view_struct":
            return self._compile_value(expressions[1])
        arguments = [self._compile_value(argument) for argument in expressions]
        if name in _LOAD_WIDTHS:
            return self._emit_load(self._emit_op(f"inttoptr i64 {arguments[0]} to ptr"), _LOAD_WIDTHS[name])
        if name in _STORE_WIDTHS:
            width_bits = _STORE_WIDTHS[name]
            value_to_store = (
                arguments[1]
                if width_bits == 64
                else self._emit_op(f"trunc i64 {arguments[1]} to i{width_bits}")
            )
            pointer = self._emit_op(f"inttoptr i64 {arguments[0]} to ptr")
            self.lines.append(f"store i{width_bits} {value_to_store}, ptr {pointer}, align {width_bits // 8}")
            return "0"
        if name == "find_lowest_bit":
            return self._emit_op(f"call i64 @llvm.cttz.i64(i64 {arguments[0]}, i1 false)")
        if name == "call_function":
            function_pointer, context_pointer, lanes_pointer, values_pointer = (
                self._emit_op(f"inttoptr i64 {arguments[n]} to ptr") for n in (0, 1, 3, 5)
            )
            access_index, mask = (self._emit_op(f"trunc i64 {arguments[n]} to i32") for n in (2, 4))
            self.lines.append(
                f"call void {function_pointer}(ptr {context_pointer}, i32 {access_index}, ptr {lanes_pointer}, i32 {mask}, ptr {values_pointer})"
            )
            return "0"
        if name not in self.functions:
            raise NotSupportedError(f"{name}() cannot be compiled.")
        return self._emit_op(
            f"call i64 @{name}({', '.join(f'i64 {value_to_store}' for value_to_store in arguments)})"
        )


def translate(
    functions: Sequence[Callable[..., object]], entry_name: str, layouts: Mapping[str, npt.DTypeLike]
) -> str:
    """Translate Python functions to LLVM text. In the LLVM text, the function ``entry_of`` is the engine's
    entry point and calls `entry_name`.

    `layouts` describes structures that are not made by `make_structure`.
    """
    functions_by_name = {function.__name__: function for function in functions}
    function_texts = [
        _FunctionTranslator(function, functions_by_name, layouts).write_text() for function in functions
    ]
    exported_function = f"""define void @entry_of(ptr %ctx, i32 %site, ptr %lanes, i32 %mask, ptr %values) {{
  %c = ptrtoint ptr %ctx to i64
  %s = sext i32 %site to i64
  %l = ptrtoint ptr %lanes to i64
  %m = zext i32 %mask to i64
  %v = ptrtoint ptr %values to i64
  %r = call i64 @{entry_name}(i64 %c, i64 %s, i64 %l, i64 %m, i64 %v)
  ret void
}}
declare i64 @llvm.cttz.i64(i64, i1)
"""
    return "\n".join([*function_texts, exported_function])

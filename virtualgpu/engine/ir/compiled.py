"""A few Python functions as machine code: what runs at every access of a checked launch.

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


class _Typed(Protocol):
    __annotations__: dict[str, Any]


def struct(cls: type[T]) -> type[T]:
    """A class of integer fields as a C structure of 64-bit integers."""
    fields = [(name, ctypes.c_int64) for name in cast(_Typed, cls).__annotations__]
    made = type(cls.__name__, (ctypes.Structure,), {"_fields_": fields, "__doc__": cls.__doc__})
    return cast("type[T]", made)


def size_of(kind: type[object]) -> int:
    """Bytes of a structure."""
    return ctypes.sizeof(cast("type[ctypes.Structure]", kind))


def address_of(made: object) -> int:
    """Where a structure lies."""
    return ctypes.addressof(cast(ctypes.Structure, made))


def at(kind: type[T], address: int) -> T:
    """The structure at an address."""
    return cast("T", cast("type[ctypes.Structure]", kind).from_address(address))


# What compiled functions may call besides each other; Python itself never does.


def load8(address: int) -> int:
    """An unsigned byte."""
    raise NotImplementedError


def load32(address: int) -> int:
    """Four bytes, unsigned."""
    raise NotImplementedError


def load64(address: int) -> int:
    """Eight bytes."""
    raise NotImplementedError


def store8(address: int, value: int) -> None:
    """Write a byte."""
    raise NotImplementedError


def store32(address: int, value: int) -> None:
    """Write four bytes."""
    raise NotImplementedError


def store64(address: int, value: int) -> None:
    """Write eight bytes."""
    raise NotImplementedError


def lowest(bits: int) -> int:
    """Number of the lowest bit that is set."""
    raise NotImplementedError


def call(function: int, context: object, site: int, lanes: int, mask: int, values: int) -> None:
    """Call an observer by its address."""
    raise NotImplementedError


_LOADS = {"load8": 8, "load32": 32, "load64": 64}
_STORES = {"store8": 8, "store32": 32, "store64": 64}
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.LShift: "shl",
    ast.RShift: "ashr",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "slt",
    ast.LtE: "sle",
    ast.Gt: "sgt",
    ast.GtE: "sge",
}


class _Body:
    """LLVM text of one function."""

    def __init__(
        self,
        function: Callable[..., object],
        known: Mapping[str, Callable[..., object]],
        layouts: Mapping[str, npt.DTypeLike],
    ) -> None:
        source = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(source, ast.FunctionDef)
        self.source = source
        self.known = known
        self.layouts = layouts
        self.globals = function.__globals__
        self.kinds: dict[str, str] = {}  # of the locals, which structure they point to
        self.head: list[str] = []
        self.lines: list[str] = []
        self.count = 0
        self.loops: list[tuple[str, str]] = []

    def text(self) -> str:
        names = [argument.arg for argument in self.source.args.args]
        for argument in self.source.args.args:
            self._local(argument.arg)
            if isinstance(argument.annotation, ast.Name):
                self.kinds[argument.arg] = argument.annotation.id
            self.lines.append(f"store i64 %a.{argument.arg}, ptr %v.{argument.arg}")
        self._block(self.source.body)
        self.lines.append("ret i64 0")
        given = ", ".join(f"i64 %a.{name}" for name in names)
        body = "\n  ".join([*self.head, *self.lines])
        return f"define internal i64 @{self.source.name}({given}) {{\nentry:\n  {body}\n}}\n"

    def _name(self, kind: str = "t") -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def _op(self, text: str) -> str:
        name = f"%{self._name()}"
        self.lines.append(f"{name} = {text}")
        return name

    def _local(self, name: str) -> str:
        slot = f"%v.{name}"
        made = f"{slot} = alloca i64"
        if made not in self.head:
            self.head.append(made)
        return slot

    def _begin(self, label: str) -> None:
        self.lines += [f"br label %{label}", f"{label}:"]

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            self._assign(target, node.value)
        elif isinstance(node, ast.AugAssign):
            whole = ast.BinOp(node.target, node.op, node.value)
            self._assign(node.target, whole)
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, ast.While):
            head, body, after = (self._name("l") for _ in range(3))
            self._begin(head)
            self._branch(node.test, body, after)
            self.lines.append(f"{body}:")
            self.loops.append((head, after))
            self._block(node.body)
            self.loops.pop()
            self.lines += [f"br label %{head}", f"{after}:"]
        elif isinstance(node, ast.Return):
            value = "0" if node.value is None else self._value(node.value)
            self.lines += [f"ret i64 {value}", f"{self._name('l')}:"]
        elif isinstance(node, ast.Continue | ast.Break):
            to = self.loops[-1][isinstance(node, ast.Break)]
            self.lines += [f"br label %{to}", f"{self._name('l')}:"]
        elif isinstance(node, ast.Expr):
            if not isinstance(node.value, ast.Constant):
                self._value(node.value)
        else:
            raise NotSupportedError(f"{ast.unparse(node)!r} cannot be compiled.")

    def _if(self, node: ast.If) -> None:
        yes, no, after = (self._name("l") for _ in range(3))
        self._branch(node.test, yes, no)
        self.lines.append(f"{yes}:")
        self._block(node.body)
        self.lines += [f"br label %{after}", f"{no}:"]
        self._block(node.orelse)
        self._begin(after)

    def _branch(self, test: ast.expr, yes: str, no: str) -> None:
        if isinstance(test, ast.BoolOp):
            every = isinstance(test.op, ast.And)
            for part in test.values[:-1]:
                onward = self._name("l")
                self._branch(part, *((onward, no) if every else (yes, onward)))
                self.lines.append(f"{onward}:")
            self._branch(test.values[-1], yes, no)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._branch(test.operand, no, yes)
        else:
            self.lines.append(f"br i1 {self._truth(test)}, label %{yes}, label %{no}")

    def _truth(self, node: ast.expr) -> str:
        if isinstance(node, ast.BoolOp):  # as a value: all of it is worked out
            made, *others = (self._truth(part) for part in node.values)
            for other in others:
                made = self._op(f"{'and' if isinstance(node.op, ast.And) else 'or'} i1 {made}, {other}")
            return made
        if isinstance(node, ast.Compare):
            (operator,), (right,) = node.ops, node.comparators
            left = self._value(node.left)
            if isinstance(operator, ast.In):
                assert isinstance(right, ast.Tuple)
                made, *others = (self._op(f"icmp eq i64 {left}, {self._value(one)}") for one in right.elts)
                for other in others:
                    made = self._op(f"or i1 {made}, {other}")
                return made
            return self._op(f"icmp {_COMPARE[type(operator)]} i64 {left}, {self._value(right)}")
        return self._op(f"icmp ne i64 {self._value(node)}, 0")

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "at":
                assert isinstance(value.args[0], ast.Name)
                self.kinds[target.id] = value.args[0].id
            self.lines.append(f"store i64 {self._value(value)}, ptr {self._local(target.id)}")
            return
        assert isinstance(target, ast.Attribute)
        pointer, width = self._field(target)
        made = self._value(value)
        if width < 64:
            made = self._op(f"trunc i64 {made} to i{width}")
        self.lines.append(f"store i{width} {made}, ptr {pointer}")

    def _field(self, node: ast.Attribute) -> tuple[str, int]:
        """Pointer to a field of a structure, and its bits."""
        assert isinstance(node.value, ast.Name)
        kind = self.kinds[node.value.id]
        layout = self.layouts.get(kind)
        if layout is None:
            layout = np.dtype([(name, "<i8") for name, _ in self.globals[kind]._fields_])
        fields = np.dtype(layout).fields
        assert fields is not None
        field, offset = fields[node.attr][:2]
        base = self._value(node.value)
        address = self._op(f"add i64 {base}, {offset}")
        return self._op(f"inttoptr i64 {address} to ptr"), 8 * field.itemsize

    def _loaded(self, pointer: str, width: int) -> str:
        got = self._op(f"load i{width}, ptr {pointer}, align {width // 8}")
        return got if width == 64 else self._op(f"zext i{width} {got} to i64")

    def _value(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name) and f"%v.{node.id} = alloca i64" in self.head:
            return self._op(f"load i64, ptr %v.{node.id}")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in self.kinds:
                return self._loaded(*self._field(node))
            module = self.globals[node.value.id]
            assert isinstance(module, ModuleType)
            return str(int(getattr(module, node.attr)))
        if isinstance(node, ast.Constant | ast.Name):
            found = node.value if isinstance(node, ast.Constant) else self.globals[node.id]
            assert isinstance(found, int)
            return str((int(found) + (1 << 63)) % (1 << 64) - (1 << 63))
        if isinstance(node, ast.BinOp):
            left = self._value(node.left)
            right = self._value(node.right)
            return self._op(f"{_BINARY[type(node.op)]} i64 {left}, {right}")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
            made = self._value(node.operand)
            return self._op(f"sub i64 0, {made}" if isinstance(node.op, ast.USub) else f"xor i64 {made}, -1")
        if isinstance(node, ast.Compare | ast.BoolOp):
            return self._op(f"zext i1 {self._truth(node)} to i64")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node.func.id, node.args)
        raise NotSupportedError(f"{ast.unparse(node)!r} cannot be compiled.")

    def _call(self, name: str, arguments: Sequence[ast.expr]) -> str:
        if name == "at":
            return self._value(arguments[1])
        given = [self._value(argument) for argument in arguments]
        if name in _LOADS:
            return self._loaded(self._op(f"inttoptr i64 {given[0]} to ptr"), _LOADS[name])
        if name in _STORES:
            width = _STORES[name]
            value = given[1] if width == 64 else self._op(f"trunc i64 {given[1]} to i{width}")
            pointer = self._op(f"inttoptr i64 {given[0]} to ptr")
            self.lines.append(f"store i{width} {value}, ptr {pointer}, align {width // 8}")
            return "0"
        if name == "lowest":
            return self._op(f"call i64 @llvm.cttz.i64(i64 {given[0]}, i1 false)")
        if name == "call":
            function, context, lanes, values = (
                self._op(f"inttoptr i64 {given[n]} to ptr") for n in (0, 1, 3, 5)
            )
            site, mask = (self._op(f"trunc i64 {given[n]} to i32") for n in (2, 4))
            self.lines.append(
                f"call void {function}(ptr {context}, i32 {site}, ptr {lanes}, i32 {mask}, ptr {values})"
            )
            return "0"
        if name not in self.known:
            raise NotSupportedError(f"{name}() cannot be compiled.")
        return self._op(f"call i64 @{name}({', '.join(f'i64 {value}' for value in given)})")


def translate(
    functions: Sequence[Callable[..., object]], entry: str, layouts: Mapping[str, npt.DTypeLike]
) -> str:
    """LLVM text of the functions; `entry` is exported as ``entry_of``, which the engine calls.

    `layouts` describes structures that are not made by `struct`.
    """
    known = {function.__name__: function for function in functions}
    bodies = [_Body(function, known, layouts).text() for function in functions]
    exported = f"""define void @entry_of(ptr %ctx, i32 %site, ptr %lanes, i32 %mask, ptr %values) {{
  %c = ptrtoint ptr %ctx to i64
  %s = sext i32 %site to i64
  %l = ptrtoint ptr %lanes to i64
  %m = zext i32 %mask to i64
  %v = ptrtoint ptr %values to i64
  %r = call i64 @{entry}(i64 %c, i64 %s, i64 %l, i64 %m, i64 %v)
  ret void
}}
declare i64 @llvm.cttz.i64(i64, i1)
"""
    return "\n".join([*bodies, exported])

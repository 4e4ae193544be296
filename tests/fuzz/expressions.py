"""Random well-defined C++ expressions of a wanted type."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fuzz.rng import Rng
from tests.fuzz.tables import FLOAT_LITERALS, FLOATS, GIVING, INTEGER_LITERALS, INTEGERS, WIDTH

TYPES = (*INTEGERS, *FLOATS, "bool")
# How often a value of each type is wanted.
COMMON = (
    (2, "i8"),
    (2, "u8"),
    (3, "i16"),
    (3, "u16"),
    (10, "i32"),
    (12, "u32"),
    (6, "i64"),
    (7, "u64"),
    (11, "f32"),
    (7, "f64"),
    (2, "bool"),
)


@dataclass(slots=True)
class Callee:
    """A generated device function."""

    name: str
    result: str
    arguments: tuple[str, ...]


@dataclass(slots=True)
class Scope:
    """Names that may be read (by type), those that may be assigned, arrays (name, type, power of two)."""

    values: dict[str, list[str]] = field(default_factory=dict)
    assignable: list[tuple[str, str]] = field(default_factory=list)
    arrays: list[tuple[str, str, int]] = field(default_factory=list)
    callees: list[Callee] = field(default_factory=list)

    def add(self, name: str, kind: str, assignable: bool = True) -> None:
        self.values.setdefault(kind, []).append(name)
        if assignable:
            self.assignable.append((name, kind))

    def inner(self) -> Scope:
        values = {kind: list(names) for kind, names in self.values.items()}
        return Scope(values, list(self.assignable), list(self.arrays), self.callees)


class Expressions:
    """Writes expressions over a scope; every one has exactly the C++ type asked for."""

    def __init__(self, rng: Rng, inputs: bool) -> None:
        self.rng = rng
        self.inputs = inputs

    def expression(self, kind: str, scope: Scope, depth: int) -> str:
        rng = self.rng
        if depth <= 0 or rng.chance(12):
            return self.leaf(kind, scope)
        if rng.chance(10):
            condition = self.expression("bool", scope, depth - 1)
            yes, no = (self.expression(kind, scope, depth - 1) for _ in range(2))
            return f"({kind})({condition} ? {yes} : {no})"
        fitting = [c for c in scope.callees if c.result == kind]
        if fitting and rng.chance(12):
            return self.call(rng.choice(fitting), scope)
        if kind == "bool":
            return self.truth(scope, depth)
        if kind in FLOATS:
            return self.floating(kind, scope, depth)
        return self.integer(kind, scope, depth)

    def leaf(self, kind: str, scope: Scope) -> str:
        rng = self.rng
        names = scope.values.get(kind, [])
        arrays = [a for a in scope.arrays if a[1] == kind]
        if arrays and rng.chance(25):
            name, _, size = rng.choice(arrays)
            return f"{name}[{self.index(scope, size)}]"
        if names and rng.chance(80):
            return rng.choice(names)
        if self.inputs and kind in ("u32", "f32", "i64", "f64") and rng.chance(35):
            index = self.index(scope, 256)
            return {
                "u32": f"__ldg(&in[{index}])",
                "f32": f"fin[{index}].{rng.choice('xyzw')}",
                "i64": f"lin[{index}].{rng.choice('xy')}",
                "f64": f"z_f64((u64)lin[{index}].{rng.choice('xy')})",
            }[kind]
        others = [k for k in scope.values if k != kind and scope.values[k]]
        if others and rng.chance(75):
            other = rng.choice(others)
            return self.converted(kind, other, rng.choice(scope.values[other]))
        return self.literal(kind)

    def index(self, scope: Scope, size: int) -> str:
        """An index below a power of two."""
        sources = [k for k in ("u32", "i32", "u64", "u16") if scope.values.get(k)]
        if not sources:
            return str(self.rng.below(size))
        kind = self.rng.choice(sources)
        return f"(u32)({self.rng.choice(scope.values[kind])} + {self.rng.below(size)}) & {size - 1}u"

    def literal(self, kind: str) -> str:
        rng = self.rng
        if kind == "bool":
            return rng.choice(("true", "false"))
        if kind in FLOATS:
            return f"({kind}){rng.choice(FLOAT_LITERALS)}{'f' if kind == 'f32' else ''}"
        value = rng.choice(INTEGER_LITERALS) if rng.chance(70) else rng.below(1 << (WIDTH[kind] - 1))
        suffix = "ull" if WIDTH[kind] == 64 else "u"
        return f"({kind}){value}{suffix}"

    def converted(self, kind: str, source: str, text: str) -> str:
        if kind == "bool":
            return f"z_number({text}) > ({source})0.25" if source in FLOATS else f"(({text} & 1) != 0)"
        if source not in FLOATS or kind in FLOATS:
            return f"({kind}){text}" if kind != "f32" or source != "f64" else f"__double2float_rn({text})"
        if WIDTH[kind] < 32:
            return f"({kind})z_bits({text})"
        how = {"i32": "int", "u32": "uint", "i64": "ll", "u64": "ull"}[kind]
        return f"__{'float' if source == 'f32' else 'double'}2{how}_rz({text})"

    def call(self, callee: Callee, scope: Scope) -> str:
        arguments = ", ".join(self.expression(kind, scope, 1) for kind in callee.arguments)
        return f"{callee.name}({arguments})"

    def intrinsic(self, kind: str, scope: Scope, depth: int) -> str:
        _, spelling, kinds = self.rng.choice(GIVING[kind])
        return f"({kind})" + spelling.format(*(self.expression(k, scope, depth - 1) for k in kinds))

    def truth(self, scope: Scope, depth: int) -> str:
        rng = self.rng
        if rng.chance(25):
            return f"({self.intrinsic('bool', scope, depth)})"
        if rng.chance(25):
            a, b = (self.expression("bool", scope, depth - 1) for _ in range(2))
            return f"({a} {rng.choice(('&&', '||', '!='))} {b})"
        kind = rng.weighted(COMMON[:-1])
        a, b = (self.expression(kind, scope, depth - 1) for _ in range(2))
        return f"({a} {rng.choice(('<', '<=', '>', '>=', '==', '!='))} {b})"

    def floating(self, kind: str, scope: Scope, depth: int) -> str:
        rng = self.rng
        if rng.chance(35):
            return self.intrinsic(kind, scope, depth)
        if rng.chance(20):
            a, b, c = (self.expression(kind, scope, depth - 1) for _ in range(3))
            return f"{'fmaf' if kind == 'f32' else 'fma'}({a}, {b}, {c})"
        if rng.chance(15):
            return f"(-{self.expression(kind, scope, depth - 1)})"
        a, b = (self.expression(kind, scope, depth - 1) for _ in range(2))
        operation = rng.weighted(((4, "+"), (4, "-"), (4, "*"), (1, "/")))
        return f"({a} / z_any({b}))" if operation == "/" else f"({a} {operation} {b})"

    def integer(self, kind: str, scope: Scope, depth: int) -> str:
        rng = self.rng
        width = WIDTH[kind]
        wide = "u64" if width == 64 else "u32"
        if kind in GIVING and rng.chance(40):
            return self.intrinsic(kind, scope, depth)
        choice = rng.weighted(
            ((6, "arithmetic"), (3, "logic"), (3, "shift"), (2, "divide"), (2, "unary"), (3, "convert"))
        )
        if choice == "convert":
            other = rng.choice([k for k in TYPES if k != kind])
            return f"({self.converted(kind, other, '(' + self.expression(other, scope, depth - 1) + ')')})"
        a = self.expression(kind, scope, depth - 1)
        if choice == "unary":
            return f"({kind})(0 - ({wide}){a})" if rng.chance(50) else f"({kind})(~{a})"
        b = self.expression(kind, scope, depth - 1)
        if choice == "arithmetic":
            return f"({kind})(({wide}){a} {rng.choice('+-*')} ({wide}){b})"
        if choice == "logic":
            return f"({kind})({a} {rng.choice('&|^')} {b})"
        if choice == "shift":
            amount = f"((u32){b} & {width - 1}u)"
            return f"({kind})(({wide}){a} << {amount})" if rng.chance(50) else f"({kind})({a} >> {amount})"
        return f"z_{rng.choice(('div', 'rem'))}({a}, {b})"

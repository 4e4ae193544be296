"""What the names in a watch expression mean: variables, parameters, arrays in shared and device memory."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx.dwarf import CType, Declared
from virtualgpu.engine.watch import lanes
from virtualgpu.engine.watch.lanes import Lanes
from virtualgpu.engine.watch.memory import LOCAL, PARAMETER, SHARED, Ints, Memory, tagged
from virtualgpu.errors import WatchError, did_you_mean
from virtualgpu.records import WARP_SIZE, WarpTrace
from virtualgpu.records.warp.columns import Variable, lanes_of
from virtualgpu.records.warp.steps import TraceSteps

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_SHARED = re.compile(r"\bextern\s+__shared__\s+([^;=]*);|__shared__\s+([^;=]*);")
_QUALIFIERS = re.compile(r"\b(?:volatile|const|static|alignas|__align__)\b\s*(?:\(\s*\w+\s*\))?")
_DECLARED = re.compile(r"\s*((?:[\w:]+\s+)*[\w:]+(?:<[^>]*>)?)\s+(\w+)\s*((?:\[[^\]]*\]\s*)*)")
_CONSTANT = r"#\s*define\s+{0}\s+(.+)|\b(?:constexpr|const)\s+[\w\s]*\b{0}\s*=\s*([^;,]+)|\b{0}\s*=\s*(\d+)"
_SPELLED = {
    "unsigned": "unsigned int",
    "short int": "short",
    "signed": "int",
    "long long int": "long long",
    "unsigned long long int": "unsigned long long",
    "size_t": "unsigned long",
}
# Types that need no debug information; keys are below those of debug information.
_BASIC: dict[int, CType] = {
    -1_000_000 - at: CType(name, int(kind[1:]) // 8, kind)
    for at, (name, kind) in enumerate(
        (
            ("bool", "u8"),
            ("char", "s8"),
            ("unsigned char", "u8"),
            ("short", "s16"),
            ("unsigned short", "u16"),
            ("int", "s32"),
            ("unsigned int", "u32"),
            ("long", "s64"),
            ("unsigned long", "u64"),
            ("long long", "s64"),
            ("unsigned long long", "u64"),
            ("float", "f32"),
            ("double", "f64"),
            ("int32_t", "s32"),
            ("uint32_t", "u32"),
            ("int64_t", "s64"),
            ("uint64_t", "u64"),
            ("uint8_t", "u8"),
            ("int8_t", "s8"),
            ("__half", "f16"),
            ("half", "f16"),
        )
    )
}
OPTIMISED_OUT = (
    "optimised out: the compiler keeps `{}` in no place of its own. A kernel compiled with "
    'options=("-G",) keeps all.'
)
_NO_TYPE = "unknown: debug information does not tell the type of `{}`."


class UnknownHereError(Exception):
    """A name that the kernel has, but whose value nobody can tell; its text says why."""


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """What a launch tells of names, beyond its trace.

    ``kernel`` is the kernel's symbol, ``title`` its name. ``declared`` and ``types`` are the debug build's,
    empty if there is none, ``why`` then says why; ``own_labels`` are the kernel's in it. ``parameters``
    are names, offsets in the parameter buffer, sizes and types as written, ``arrays`` the addresses and sizes
    of array arguments. ``shared`` has the offset and the size of shared variables by their symbols, 0 for
    dynamic ones, ``local`` the local symbols of a kernel compiled for debugging. ``address_of`` tells the
    address of a device variable, or None.
    """

    kernel: str
    title: str
    code: str
    options: tuple[str, ...]
    declared: tuple[Declared, ...]
    types: Mapping[int, CType]
    own_labels: frozenset[str]
    why: str
    parameters: tuple[tuple[str, int, int, str], ...]
    arrays: Mapping[int, int]
    shared: Mapping[str, tuple[int, int]]
    shared_bytes: int
    local: frozenset[str]
    address_of: Callable[[str], int | None]
    made: dict[int, CType] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        return _COMMENT.sub(" ", self.code)

    @cached_property
    def shared_arrays(self) -> dict[str, tuple[str, list[str]]]:
        """Shared variables of the source: type and sizes as they are written."""
        found: dict[str, tuple[str, list[str]]] = {}
        for match in _SHARED.finditer(self.text):
            first, *more = _QUALIFIERS.sub(" ", match[1] or match[2]).split(",")
            declared = _DECLARED.fullmatch(first.rstrip())
            if declared is None:
                continue
            for text in (f"{declared[2]}{declared[3]}", *more):
                name, *sizes = re.split(r"\[", text.strip())
                found.setdefault(name.strip(), (declared[1], [size.strip(" ]") for size in sizes]))
        return found

    @property
    def names(self) -> set[str]:
        """All names that may be watched."""
        found = {each.name for each in self.declared} | {name for name, *_ in self.parameters if name}
        return found | set(self.shared_arrays)

    def check(self, names: frozenset[str], text: str) -> None:
        """Raise `WatchError` for a name that the kernel has not."""
        for name in sorted(names - self.names):
            if self.why:
                raise WatchError(
                    f"`{text}`: `{name}` is no parameter of `{self.title}`, and its variables are not known: "
                    f"{self.why} Watch parameters and built-in indices, or stop at a line."
                )
            near = did_you_mean(name, sorted(self.names | {"threadIdx", "blockIdx", "blockDim"}), cutoff=0.5)
            raise WatchError(
                f"`{text}`: `{self.title}` has no variable `{name}`.{near} It has "
                f"{', '.join(sorted(self.names)) or 'none'}."
            )

    def type_of(self, key: int | None) -> CType | None:
        """The type with a key."""
        return None if key is None else self.types.get(key) or self.made.get(key) or _BASIC.get(key)

    def key_of(self, name: str) -> int | None:
        """The key of a type by its name; pointers to it get keys as they are asked for."""
        name = " ".join(name.split())
        if name.endswith("*"):
            return self.pointer_to(self.key_of(name[:-1]), name)
        name = _SPELLED.get(name, name)
        known = (key for table in (self.types, _BASIC) for key, each in table.items() if each.name == name)
        return next(known, None)

    def pointer_to(self, key: int | None, name: str) -> int:
        """The key of a pointer to a type."""
        return self._make(CType(name, 8, "u64", key))

    def _make(self, ctype: CType) -> int:
        key = -2_000_000 - len(self.made)
        self.made[key] = ctype
        return key

    def parameter(self, name: str) -> tuple[CType | None, int] | None:
        """A parameter's type and its offset, None if there is no such parameter."""
        for each, offset, size, written in self.parameters:
            if each == name:
                debug = [
                    d for d in self.declared if d.name == name and d.parameter >= 0 and self._own(d.function)
                ]
                ctype = self.type_of(debug[0].ctype if debug else self.key_of(written))
                return ctype if ctype is not None and ctype.size_bytes == size else None, offset
        return None

    def _own(self, label: str) -> bool:
        return label in self.own_labels

    def assigned(self, name: str) -> bool:
        """Whether the source seems to change a parameter."""
        member = rf"(?<!\*)(?<!\* )\b{re.escape(name)}\b(?:\s*\.\s*\w+)*"
        return bool(
            re.search(
                rf"(?:\+\+|--)\s*{member}|{member}\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))", self.text
            )
        )

    def shared_array(self, name: str) -> tuple[CType | None, int] | None:
        """A shared variable's type and its offset, None if the kernel has none of this name."""
        ends = f"{len(name)}{name}"
        own = (
            f"_Z{self.kernel[1:]}" if self.kernel.startswith("_Z") else f"_ZZ{len(self.kernel)}{self.kernel}"
        )
        symbols = [s for s in self.shared if s == name or s.endswith(ends) or f"{ends}_" in s]
        symbols = [s for s in symbols if s.rpartition("_")[0].endswith("_$") is False]
        if not symbols:
            return None
        symbol = sorted(symbols, key=lambda s: not s.startswith(own))[0]
        offset, size = self.shared[symbol]
        debug = next((d for d in self.declared if d.symbol == symbol), None)
        if debug is not None:
            return self.type_of(debug.ctype), offset
        written, sizes = self.shared_arrays.get(name, ("", []))
        key = self.key_of(written)
        ctype = self.type_of(key)
        if ctype is None or not ctype.size_bytes:
            return None, offset
        numbers = [self.number(text) for text in sizes]
        for text, number in reversed([*zip(sizes[1:], numbers[1:], strict=True)]):
            if number is None:
                return None, offset
            ctype = CType(f"{written}[{text}]", number * ctype.size_bytes, of=key, count=number)
            key = self._make(ctype)
        if sizes:
            count, rest = divmod(size, ctype.size_bytes)
            if rest or (size and numbers[0] not in (None, count)):
                return None, offset
            return CType(f"{written}[{count or ''}]", size, of=key, count=count), offset
        return (ctype if ctype.size_bytes == size else None), offset

    def number(self, text: str, depth: int = 5) -> int | None:
        """A size in the source as a number, if it is one of plain constants."""

        def of(match: re.Match[str]) -> str:
            name = match[0]
            option = next((o for o in self.options if o.startswith(f"-D{name}=")), "")
            found = re.search(_CONSTANT.format(name), self.text)
            value = option.partition("=")[2]
            if not value and found:
                value = next(filter(None, found.groups()), "")
            number = self.number(value, depth - 1) if value and depth else None
            return str(number) if number is not None else name

        plain = re.sub(r"\b[A-Za-z_]\w*", of, text).strip()
        if not plain or not re.fullmatch(r"[\d\s+*/()-]+", plain):
            return None
        try:
            return int(_whole(ast.parse(plain, mode="eval").body))
        except (SyntaxError, ZeroDivisionError, TypeError):
            return None


def _whole(node: ast.expr) -> int:
    """The value of a tree of whole numbers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return -_whole(node.operand)
    if not isinstance(node, ast.BinOp):
        raise TypeError
    a = _whole(node.left)
    b = _whole(node.right)
    match node.op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
    return a // b


class Scene:
    """The names and the memory of one warp, at every step of its trace."""

    def __init__(self, symbols: Symbols, trace: WarpTrace, memory: Memory) -> None:
        self.symbols = symbols
        self.trace = trace
        self.memory = memory
        self.steps = TraceSteps(trace)
        assert trace.detail is not None
        self.sequence: Ints = trace.detail.sequence
        self.threads = np.arange(WARP_SIZE) < self.steps.threads
        self._sure, self._never = np.ones((1, 1), np.bool_), np.zeros((1, 1), np.bool_)

    def built_in(self, name: str, axis: str) -> Lanes | None:
        """A coordinate such as ``threadIdx.x``, None for any other."""
        if axis not in ("x", "y", "z"):
            return None
        at = "xyz".index(axis)
        trace = self.trace
        if name == "threadIdx":
            x, y, _ = trace.block
            thread = np.arange(WARP_SIZE) + WARP_SIZE * trace.warp_index
            value = (thread % x, thread // x % y, thread // (x * y))[at][None, :]
        else:
            sizes = {"blockIdx": trace.block_index, "blockDim": trace.block, "gridDim": trace.grid}[name]
            value = np.full((1, 1), sizes[at])
        return Lanes(lanes.UNSIGNED, value.astype(np.uint32), self._sure, self._never)

    def name(self, name: str) -> Lanes:
        """What a name stands for.

        Raises
        ------
        UnknownHereError
            If the kernel has it, but nobody can tell its value.
        """
        symbols = self.symbols
        if name == "warpSize":
            return Lanes(lanes.INT, np.full((1, 1), WARP_SIZE, np.int32), self._sure, self._never)
        parameter = symbols.parameter(name)
        inner = [
            each for each in symbols.declared if each.name == name and each.parameter < 0 and each.function
        ]
        if parameter is not None and not inner and not symbols.assigned(name):
            return self._at(name, parameter[0], PARAMETER | parameter[1])
        variables = [each for each in self.trace.variables if each.name == name and each.written_by]
        if variables:
            return self._variable(variables)
        for each in symbols.declared:
            if each.name == name and each.symbol in symbols.local and symbols._own(each.function):
                return self._local(name, symbols.type_of(each.ctype), each.offset)
        array = symbols.shared_array(name)
        if array is not None:
            return self._at(name, array[0], SHARED | array[1])
        for each in symbols.declared:
            address = symbols.address_of(each.symbol) if each.name == name and not each.function else None
            if address is not None:
                return self._at(name, symbols.type_of(each.ctype), address)
        raise UnknownHereError(OPTIMISED_OUT.format(name))

    def _at(self, name: str, ctype: CType | None, address: int) -> Lanes:
        if ctype is None:
            raise UnknownHereError(_NO_TYPE.format(name))
        return Lanes(ctype, None, self._sure, self._never, np.full((1, 1), address, np.int64))

    def _local(self, name: str, ctype: CType | None, offset: int) -> Lanes:
        found = self._at(name, ctype, 0)
        place = tagged(np.full((1, WARP_SIZE), LOCAL | offset, np.uint64))
        return Lanes(found.type, None, found.known, found.outside, place)

    def _variable(self, variables: list[Variable]) -> Lanes:
        """A variable as it was last written, of several of one name that whose scope the line is in.

        Where a line is in none of the scopes, the last one goes on.
        """
        own = [each for each in variables if each.function == self.symbols.kernel] or variables
        kept = [each for each in own if each.type == own[0].type]
        scope = np.full(len(self.trace), -1, np.int64)
        for number, each in enumerate(sorted(kept, key=lambda each: each.first_line)):
            scope[(self.steps.line >= each.first_line) & (self.steps.line <= each.last_line)] = number
        here = np.maximum.accumulate(np.where(scope >= 0, np.arange(scope.size), -1))
        scope = np.where(here >= 0, scope[here], 0)
        value = np.zeros((scope.size, WARP_SIZE), np.uint64)
        known = np.zeros(value.shape, np.bool_)
        for number, each in enumerate(sorted(kept, key=lambda each: each.first_line)):
            mine = scope == number
            held, has = self.written(each)
            value[mine], known[mine] = held[mine], has[mine]
        key = next(d.ctype for d in self.symbols.declared if (d.name, d.type) == (kept[0].name, kept[0].type))
        ctype = self.symbols.type_of(key)
        assert ctype is not None
        return Lanes(ctype, lanes.from_bits(value, kept[0].kind), known, np.zeros_like(known))

    def written(self, variable: Variable) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """A variable's bits after every step, and in which lanes it has any."""
        trace = self.trace
        assert trace.value is not None
        writes = self.writes(variable)[:, None] & lanes_of(trace.executed_mask)
        last = np.maximum.accumulate(np.where(writes, np.arange(len(trace))[:, None], -1), axis=0)
        value = np.take_along_axis(trace.value, np.maximum(last, 0), axis=0) if len(trace) else trace.value
        return value, last >= 0

    def writes(self, variable: Variable) -> npt.NDArray[np.bool_]:
        """Which steps write a variable."""
        return np.isin(self.trace.text_index, variable.written_by)

"""Values of names in watch expressions: variables, parameters, arrays in shared and device memory."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx.dwarf import CType, DeclaredVariable
from virtualgpu.engine.watch import lanes
from virtualgpu.engine.watch.lanes import Lanes
from virtualgpu.engine.watch.memory import (
    LOCAL,
    PARAMETER,
    SHARED,
    Ints,
    WatchedMemory,
    addresses_of_pointers,
)
from virtualgpu.errors import WatchError, did_you_mean
from virtualgpu.records import WARP_SIZE, WarpTrace
from virtualgpu.records.warp.columns import Variable, expand_lane_masks
from virtualgpu.records.warp.steps import TraceSteps

_COMMENT_PATTERN = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_SHARED_PATTERN = re.compile(r"\bextern\s+__shared__\s+([^;=]*);|__shared__\s+([^;=]*);")
_QUALIFIER_PATTERN = re.compile(r"\b(?:volatile|const|static|alignas|__align__)\b\s*(?:\(\s*\w+\s*\))?")
_DECLARATION_PATTERN = re.compile(r"\s*((?:[\w:]+\s+)*[\w:]+(?:<[^>]*>)?)\s+(\w+)\s*((?:\[[^\]]*\]\s*)*)")
_CONSTANT_REGEX = (
    r"#\s*define\s+{0}\s+(.+)|\b(?:constexpr|const)\s+[\w\s]*\b{0}\s*=\s*([^;,]+)|\b{0}\s*=\s*(\d+)"
)
_TYPE_ALIASES = {
    "unsigned": "unsigned int",
    "short int": "short",
    "signed": "int",
    "long long int": "long long",
    "unsigned long long int": "unsigned long long",
    "size_t": "unsigned long",
}
# Types that need no debug information; keys are below those of debug information.
_BASIC_TYPES: dict[int, CType] = {
    -1_000_000 - index: CType(name, int(kind[1:]) // 8, kind)
    for index, (name, kind) in enumerate(
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
OPTIMIZED_OUT_MESSAGE = (
    "optimized out; compile with -G to keep it: no register or memory contains `{}` alone. A kernel "
    'compiled with options=("-G",) keeps all variables.'
)
_NO_TYPE_MESSAGE = "unknown: the debug information does not contain the type of `{}`."


class UnknownValueError(Exception):
    """Error for a variable of the kernel whose value is unknown. The error message gives the reason."""


@dataclass(frozen=True, kw_only=True)
class KernelSymbols:
    """The variables of a kernel launch that watch expressions can use.

    The field ``kernel`` is the kernel's symbol, and ``title`` is its name. ``declared_variables`` and
    ``types`` come from the debug build; if there is none, they are empty and ``missing_reason`` is the
    reason. ``kernel_labels`` are the kernel's labels in it. ``parameters`` are names, offsets in the
    parameter buffer, sizes and types as written, ``arrays`` the addresses and sizes of array arguments.
    ``shared_symbols`` contains the offset and the size of shared variables by symbol (size 0: dynamic),
    ``local_symbols`` the local symbols of a kernel compiled for debugging. ``address_of`` returns the address
    of a device variable, or None.
    """

    kernel: str
    title: str
    code: str
    options: tuple[str, ...]
    declared_variables: tuple[DeclaredVariable, ...]
    types: Mapping[int, CType]
    kernel_labels: frozenset[str]
    missing_reason: str
    parameters: tuple[tuple[str, int, int, str], ...]
    arrays: Mapping[int, int]
    shared_symbols: Mapping[str, tuple[int, int]]
    shared_bytes: int
    local_symbols: frozenset[str]
    address_of: Callable[[str], int | None]
    derived_types: dict[int, CType] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        return _COMMENT_PATTERN.sub(" ", self.code)

    @cached_property
    def shared_arrays(self) -> dict[str, tuple[str, list[str]]]:
        """The variables in shared memory, with their types and array sizes as written in the source."""
        arrays: dict[str, tuple[str, list[str]]] = {}
        for match in _SHARED_PATTERN.finditer(self.text):
            first_declaration, *other_names = _QUALIFIER_PATTERN.sub(" ", match[1] or match[2]).split(",")
            declaration_match = _DECLARATION_PATTERN.fullmatch(first_declaration.rstrip())
            if declaration_match is None:
                continue
            for declaration_text in (f"{declaration_match[2]}{declaration_match[3]}", *other_names):
                name, *sizes = re.split(r"\[", declaration_text.strip())
                arrays.setdefault(name.strip(), (declaration_match[1], [size.strip(" ]") for size in sizes]))
        return arrays

    @property
    def names(self) -> set[str]:
        """All names that watch expressions can use."""
        variable_names = {variable.name for variable in self.declared_variables} | {
            name for name, *_ in self.parameters if name
        }
        return variable_names | set(self.shared_arrays)

    def check_names(self, names: frozenset[str], text: str) -> None:
        """Raise `WatchError` if one of the names does not exist in the kernel."""
        for name in sorted(names - self.names):
            if self.missing_reason:
                raise WatchError(
                    f"`{text}`: `{name}` is not a parameter of `{self.title}`, and its "
                    f"variables are unknown: {self.missing_reason} Watch parameters and "
                    "built-in indices, or stop at a line."
                )
            suggestion = did_you_mean(
                name, sorted(self.names | {"threadIdx", "blockIdx", "blockDim"}), cutoff=0.5
            )
            raise WatchError(
                f"`{text}`: `{self.title}` has no variable `{name}`.{suggestion} Its variables: "
                f"{', '.join(sorted(self.names)) or 'none'}."
            )

    def type_of(self, key: int | None) -> CType | None:
        """Return the C type with the given key, or None if there is none."""
        return (
            None
            if key is None
            else self.types.get(key) or self.derived_types.get(key) or _BASIC_TYPES.get(key)
        )

    def type_key_of(self, name: str) -> int | None:
        """Return the key of the C type with the given name. A pointer type gets a key when it is first
        used.
        """
        name = " ".join(name.split())
        if name.endswith("*"):
            return self.add_pointer_type(self.type_key_of(name[:-1]), name)
        name = _TYPE_ALIASES.get(name, name)
        matching_keys = (
            key
            for type_table in (self.types, _BASIC_TYPES)
            for key, type_ in type_table.items()
            if type_.name == name
        )
        return next(matching_keys, None)

    def add_pointer_type(self, key: int | None, name: str) -> int:
        """Return the key of the type of pointers to the type `key`."""
        return self._add_type(CType(name, 8, "u64", key))

    def _add_type(self, ctype: CType) -> int:
        type_key = -2_000_000 - len(self.derived_types)
        self.derived_types[type_key] = ctype
        return type_key

    def find_parameter(self, name: str) -> tuple[CType | None, int] | None:
        """Return the type of a kernel parameter, and its offset in the parameter buffer."""
        for parameter_name, offset, size, type_text in self.parameters:
            if parameter_name == name:
                declarations = [
                    d
                    for d in self.declared_variables
                    if d.name == name and d.parameter >= 0 and self._is_of_kernel(d.function)
                ]
                ctype = self.type_of(declarations[0].ctype if declarations else self.type_key_of(type_text))
                return ctype if ctype is not None and ctype.size_bytes == size else None, offset
        return None

    def _is_of_kernel(self, label: str) -> bool:
        return label in self.kernel_labels

    def is_assigned(self, name: str) -> bool:
        """Return whether the source appears to assign a value to a parameter."""
        member_pattern = rf"(?<!\*)(?<!\* )\b{re.escape(name)}\b(?:\s*\.\s*\w+)*"
        return bool(
            re.search(
                rf"(?:\+\+|--)\s*{member_pattern}|{member_pattern}\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))",
                self.text,
            )
        )

    def find_shared_array(self, name: str) -> tuple[CType | None, int] | None:
        """Return the type of a shared variable, and its offset in shared memory."""
        mangled_name = f"{len(name)}{name}"
        kernel_prefix = (
            f"_Z{self.kernel[1:]}" if self.kernel.startswith("_Z") else f"_ZZ{len(self.kernel)}{self.kernel}"
        )
        matching_symbols = [
            s for s in self.shared_symbols if s == name or s.endswith(mangled_name) or f"{mangled_name}_" in s
        ]
        matching_symbols = [s for s in matching_symbols if s.rpartition("_")[0].endswith("_$") is False]
        if not matching_symbols:
            return None
        symbol = sorted(matching_symbols, key=lambda s: not s.startswith(kernel_prefix))[0]
        offset, array_bytes = self.shared_symbols[symbol]
        declaration = next((d for d in self.declared_variables if d.symbol == symbol), None)
        if declaration is not None:
            return self.type_of(declaration.ctype), offset
        type_text, sizes = self.shared_arrays.get(name, ("", []))
        type_key = self.type_key_of(type_text)
        ctype = self.type_of(type_key)
        if ctype is None or not ctype.size_bytes:
            return None, offset
        extents = [self.evaluate_array_size(extent_text) for extent_text in sizes]
        for extent_text, extent in reversed([*zip(sizes[1:], extents[1:], strict=True)]):
            if extent is None:
                return None, offset
            ctype = CType(
                f"{type_text}[{extent_text}]", extent * ctype.size_bytes, inner_key=type_key, count=extent
            )
            type_key = self._add_type(ctype)
        if sizes:
            element_count, remainder = divmod(array_bytes, ctype.size_bytes)
            if remainder or (array_bytes and extents[0] not in (None, element_count)):
                return None, offset
            return CType(
                f"{type_text}[{element_count or ''}]", array_bytes, inner_key=type_key, count=element_count
            ), offset
        return (ctype if ctype.size_bytes == array_bytes else None), offset

    def evaluate_array_size(self, text: str, depth: int = 5) -> int | None:
        """Return the value of an array size in the source, or None if it is not constant."""

        def constant_value(match: re.Match[str]) -> str:
            name = match[0]
            option = next(
                (option_text for option_text in self.options if option_text.startswith(f"-D{name}=")), ""
            )
            definition = re.search(_CONSTANT_REGEX.format(name), self.text)
            value_text = option.partition("=")[2]
            if not value_text and definition:
                value_text = next(filter(None, definition.groups()), "")
            option_value = self.evaluate_array_size(value_text, depth - 1) if value_text and depth else None
            return str(option_value) if option_value is not None else name

        expanded_text = re.sub(r"\b[A-Za-z_]\w*", constant_value, text).strip()
        if not expanded_text or not re.fullmatch(r"[\d\s+*/()-]+", expanded_text):
            return None
        try:
            return int(_integer_value(ast.parse(expanded_text, mode="eval").body))
        except (SyntaxError, ZeroDivisionError, TypeError):
            return None


def _integer_value(node: ast.expr) -> int:
    """Return the value of a syntax tree that contains only integers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return -_integer_value(node.operand)
    if not isinstance(node, ast.BinOp):
        raise TypeError
    a = _integer_value(node.left)
    b = _integer_value(node.right)
    match node.op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
    return a // b


class WatchScope:
    """The variables and the memory of one warp at every step of its trace."""

    def __init__(self, symbols: KernelSymbols, trace: WarpTrace, memory: WatchedMemory) -> None:
        self.symbols = symbols
        self.trace = trace
        self.memory = memory
        self.steps = TraceSteps(trace)
        assert trace.detail is not None
        self.sequence: Ints = trace.detail.sequence
        self.threads = np.arange(WARP_SIZE) < self.steps.threads
        self._true_mask = np.ones((1, 1), np.bool_)
        self._false_mask = np.zeros((1, 1), np.bool_)

    def built_in_value(self, name: str, axis: str) -> Lanes | None:
        """Return the values of a built-in variable such as ``threadIdx.x``, or None for any other name."""
        if axis not in ("x", "y", "z"):
            return None
        axis_index = "xyz".index(axis)
        trace = self.trace
        if name == "threadIdx":
            x, y, _ = trace.block
            thread_number = np.arange(WARP_SIZE) + WARP_SIZE * trace.warp_index
            thread_indices = thread_number % x, thread_number // x % y, thread_number // (x * y)
            coordinate = thread_indices[axis_index][None, :]
        else:
            sizes = {"blockIdx": trace.block_index, "blockDim": trace.block, "gridDim": trace.grid}[name]
            coordinate = np.full((1, 1), sizes[axis_index])
        return Lanes(lanes.UNSIGNED, coordinate.astype(np.uint32), self._true_mask, self._false_mask)

    def value_of_name(self, name: str) -> Lanes:
        """Return the value of a variable in each lane at each step.

        Raises
        ------
        UnknownValueError
            If the kernel has the name, but its value is unknown.
        """
        symbols = self.symbols
        if name == "warpSize":
            return Lanes(lanes.INT, np.full((1, 1), WARP_SIZE, np.int32), self._true_mask, self._false_mask)
        parameter = symbols.find_parameter(name)
        inner_variables = [
            variable
            for variable in symbols.declared_variables
            if variable.name == name and variable.parameter < 0 and variable.function
        ]
        if parameter is not None and not inner_variables and not symbols.is_assigned(name):
            return self._value_in_memory(name, parameter[0], PARAMETER | parameter[1])
        variables = [
            variable for variable in self.trace.variables if variable.name == name and variable.written_by
        ]
        if variables:
            return self._variable_value(variables)
        for variable in symbols.declared_variables:
            if (
                variable.name == name
                and variable.symbol in symbols.local_symbols
                and symbols._is_of_kernel(variable.function)
            ):
                return self._local_value(name, symbols.type_of(variable.ctype), variable.offset)
        array = symbols.find_shared_array(name)
        if array is not None:
            return self._value_in_memory(name, array[0], SHARED | array[1])
        for variable in symbols.declared_variables:
            address = (
                symbols.address_of(variable.symbol)
                if variable.name == name and not variable.function
                else None
            )
            if address is not None:
                return self._value_in_memory(name, symbols.type_of(variable.ctype), address)
        raise UnknownValueError(OPTIMIZED_OUT_MESSAGE.format(name))

    def _value_in_memory(self, name: str, ctype: CType | None, address: int) -> Lanes:
        if ctype is None:
            raise UnknownValueError(_NO_TYPE_MESSAGE.format(name))
        return Lanes(ctype, None, self._true_mask, self._false_mask, np.full((1, 1), address, np.int64))

    def _local_value(self, name: str, ctype: CType | None, offset: int) -> Lanes:
        frame_lanes = self._value_in_memory(name, ctype, 0)
        addresses = addresses_of_pointers(np.full((1, WARP_SIZE), LOCAL | offset, np.uint64))
        return Lanes(frame_lanes.type, None, frame_lanes.is_known, frame_lanes.is_outside, addresses)

    def _variable_value(self, variables: list[Variable]) -> Lanes:
        """Return the last written value of a variable.

        If several variables have the same name, the one whose scope contains the line is used.

        For a line in none of the scopes, the previous scope continues.
        """
        kernel_variables = [
            variable for variable in variables if variable.function == self.symbols.kernel
        ] or variables
        same_type_variables = [
            variable for variable in kernel_variables if variable.type == kernel_variables[0].type
        ]
        variable_in_scope = np.full(len(self.trace), -1, np.int64)
        for variable_index, variable in enumerate(
            sorted(same_type_variables, key=lambda variable: variable.first_line)
        ):
            variable_in_scope[
                (self.steps.line >= variable.first_line) & (self.steps.line <= variable.last_line)
            ] = variable_index
        last_scope_step = np.maximum.accumulate(
            np.where(variable_in_scope >= 0, np.arange(variable_in_scope.size), -1)
        )
        variable_in_scope = np.where(last_scope_step >= 0, variable_in_scope[last_scope_step], 0)
        last_bits = np.zeros((variable_in_scope.size, WARP_SIZE), np.uint64)
        known_lanes = np.zeros(last_bits.shape, np.bool_)
        for variable_index, variable in enumerate(
            sorted(same_type_variables, key=lambda variable: variable.first_line)
        ):
            is_in_scope = variable_in_scope == variable_index
            bits, is_written = self.find_written_bits(variable)
            last_bits[is_in_scope], known_lanes[is_in_scope] = bits[is_in_scope], is_written[is_in_scope]
        type_key = next(
            d.ctype
            for d in self.symbols.declared_variables
            if (d.name, d.type) == (same_type_variables[0].name, same_type_variables[0].type)
        )
        ctype = self.symbols.type_of(type_key)
        assert ctype is not None
        return Lanes(
            ctype,
            lanes.from_bits(last_bits, same_type_variables[0].kind),
            known_lanes,
            np.zeros_like(known_lanes),
        )

    def find_written_bits(self, variable: Variable) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """Return a variable's bits after every step, and the lanes that have written it by then."""
        trace = self.trace
        assert trace.value is not None
        is_written = self.find_writing_steps(variable)[:, None] & expand_lane_masks(trace.executed_mask)
        last_write = np.maximum.accumulate(np.where(is_written, np.arange(len(trace))[:, None], -1), axis=0)
        lane_values = (
            np.take_along_axis(trace.value, np.maximum(last_write, 0), axis=0) if len(trace) else trace.value
        )
        return lane_values, last_write >= 0

    def find_writing_steps(self, variable: Variable) -> npt.NDArray[np.bool_]:
        """Return an array that states for each step whether the step writes a variable."""
        return np.isin(self.trace.text_index, variable.written_by)

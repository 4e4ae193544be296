"""Classes for parsed PTX: modules, functions, instructions and their operands."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_BYTES = {
    "pred": 1,
    **{f"{type_letter}8": 1 for type_letter in "bus"},
    **{f"{type_letter}16": 2 for type_letter in "busf"},
    **{f"{type_letter}32": 4 for type_letter in "busf"},
    **{f"{type_letter}64": 8 for type_letter in "busf"},
    "bf16": 2,
    "f16x2": 4,
    "bf16x2": 4,
    "b128": 16,
}


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register of PTX, such as ``%r1``. The flag ``negated`` is True only for operands with ``!``,
    such as ``!%p1``.
    """

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Special:
    """A special register of PTX, such as ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant operand. The attribute ``float_bits`` is 32 or 64 for a constant written as hexadecimal IEEE
    bits (0f.. or 0d..).
    """

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """An operand that is the name of a variable, a parameter, a function or a label, with a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """A memory operand in brackets, such as ``[base+offset]``."""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector operand in braces, such as ``{%r1, %r2}``. An element that is None represents the sink
    ``_``.
    """

    items: tuple[Operand | None, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A destination operand of two registers, such as ``%r1|%p1``."""

    first: Operand | None
    second: Operand | None


Operand = Register | Special | Immediate | Symbol | Address | Vector | Pair


@dataclass(slots=True)
class Instruction:
    """A PTX instruction. The field ``pc`` is the instruction's index in its function, and ``line`` is its
    source line (0 if unknown).

    The fields `origin` (function name and index) and `call_depth` describe where an inlined instruction came
    from. Its opcode is the original one, even if its parts have changed.
    """

    pc: int
    opcode: str
    parts: tuple[str, ...]
    operands: tuple[Operand | None, ...]
    guard: str | None
    guard_negated: bool
    line: int
    column: int
    text: str
    target: int = -1
    targets: tuple[int, ...] = ()
    origin: tuple[str, int] | None = None
    call_depth: int = 0

    @property
    def root(self) -> str:
        """Mnemonic of the instruction without suffixes, such as ``ld``."""
        return self.parts[0]

    @property
    def type(self) -> str:
        """Last type suffix of the instruction, such as ``f32``."""
        return self.parts[-1]


@dataclass(frozen=True, slots=True)
class Param:
    """A formal parameter of a function, with its byte offset in the parameter buffer."""

    name: str
    type: str
    offset: int
    size_bytes: int
    align: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that a module or a function declares in a state space. A variable can have initial
    values.
    """

    name: str
    space: str
    size_bytes: int
    align: int
    initial: bytes = b""
    pointers: tuple[tuple[int, Symbol], ...] = ()
    dynamic: bool = False


@dataclass(slots=True)
class Function:
    """A function in PTX, which is either a kernel (``.entry``) or a device function (``.func``)."""

    name: str
    is_entry: bool
    params: tuple[Param, ...] = ()
    returns: tuple[Param, ...] = ()
    param_bytes: int = 0
    instructions: list[Instruction] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    shared: dict[str, Variable] = field(default_factory=dict)
    local: dict[str, Variable] = field(default_factory=dict)
    call_params: dict[str, Param] = field(default_factory=dict)
    branch_tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    max_threads: int = 0
    cluster_blocks: int = 1


@dataclass(slots=True)
class Module:
    """A parsed PTX module."""

    version: str = ""
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    externals: set[str] = field(default_factory=set)

    @property
    def entries(self) -> dict[str, Function]:
        return {name: f for name, f in self.functions.items() if f.is_entry}

"""PTX text to `ir.Module`. Reads both dialects NVRTC writes and inline-assembly scopes."""

from __future__ import annotations

import functools
import re

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.literals import immediate, integer, split
from virtualgpu.compile.ptx.validate import validate
from virtualgpu.errors import PtxError

_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.S)
_LOC = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:\s*,\s*function_name\s+[^\s,]+\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*"
)
_FILE = re.compile(r"\.file\s+(\d+)\s+\"([^\"]*)\"[^\n]*")
_SECTION = re.compile(r"\.section\s+[^\s{]+\s*\{.*?\}", re.S)
_HEADER = re.compile(r"\.(version|target|address_size)\s+([^\n]+)")
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_FUNCTION = re.compile(
    r"(?:\.(?:visible|weak|extern|common)\s+)*\.(entry|func)\b(?:\s*\.noreturn)?\s*"
    r"(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*?)([{;])",
    re.S,
)
_STATEMENT = re.compile(r"[^;]*;", re.S)
_GUARD = re.compile(r"@(!?)\s*(%?[\w$]+)\s+")
_OPCODE = re.compile(r"([a-zA-Z][\w]*(?:\.[\w]+|::[\w]+)*)\s*(.*)", re.S)
_PARAM = re.compile(
    r"\.(?:param|reg)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+"
    r"(?:\.ptr\b(?:\s*\.(?:global|shared|local|const|param))?(?:\s*\.align\s+\d+)?\s*)?([\w$]+)(?:\[(\d*)\])?"
)
_VARIABLE = re.compile(
    r"(?:\.(?:visible|weak|extern|common)\s+)*\.(global|const|shared|local)\s+"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(\d+)\s+)?(?:\.v([24])\s+)?\.(\w+)\s+([\w$]+)"
    r"((?:\[\d*\])*)\s*(?:=\s*([^;]*))?;",
    re.S,
)
_REG = re.compile(r"\.reg\s*\.(\w+)\s+(.*);", re.S)
_REG_RANGE = re.compile(r"([%\w$]+)<(\d+)>")
# More than any compiler writes: damaged text must not take all memory.
_MOST_REGISTERS = 1 << 20
_MOST_BYTES = 1 << 40
_MOST_ALIGNMENT = 1 << 15
_CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_MAXNTID = re.compile(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def parse(ptx: str) -> ir.Module:
    """Parse a PTX module.

    Raises
    ------
    PtxError
        If the text is not PTX this parser knows, or an instruction's operands do not fit it; the
        message names the line.
    """
    module = _Parser(ptx).run()
    validate(module)
    return module


@functools.lru_cache(maxsize=8)
def parsed(ptx: str) -> ir.Module:
    """What `parse` makes of a text, made once for all that only read it."""
    return parse(ptx)


class _Parser:
    def __init__(self, ptx: str) -> None:
        self.text = ptx
        self.at = 0
        self.module = ir.Module()
        self.learner_file = 1
        self.line = self.column = 0
        self.scopes: list[dict[str, str]] = []
        self.scope_count = 0
        self.function: ir.Function | None = None
        self.known: dict[str, ir.Operand] = {}  # the function's registers outside scopes, as they are written

    def fail(self, message: str) -> PtxError:
        line = self.text.count("\n", 0, self.at) + 1
        return PtxError(f"PTX line {line}: {message}")

    def skip(self) -> bool:
        if found := _BLANK.match(self.text, self.at):
            self.at = found.end()
        return self.at < len(self.text)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def run(self) -> ir.Module:
        while self.skip():
            start = self.at
            if found := self.take(_HEADER):
                if found[1] == "version":
                    self.module.version = found[2].strip()
                elif found[1] == "target":
                    self.module.target = found[2].split(",")[0].strip()
            elif self.take(_LOC) or self.take(_FILE) or self.take(_SECTION):
                continue
            elif found := self.take(_FUNCTION):
                self.read_function(found)
            elif found := self.take(_VARIABLE):
                variable = self.variable(found)
                self.module.variables[variable.name] = variable
            elif found := self.take(_STATEMENT):
                statement = found[0].strip()
                if not statement.startswith((".pragma", ".alias", ".weak", ".visible")):
                    self.at = start
                    raise self.fail(f"cannot read {statement[:60]!r}.")
            else:
                raise self.fail(f"cannot read {self.text[self.at : self.at + 60]!r}.")
        if not re.fullmatch(r"\d+\.\d+", self.module.version):
            raise PtxError("This is no PTX: it has no .version line with a number such as 8.5.")
        return self.module

    # -- functions -------------------------------------------------------------------------------

    def read_function(self, found: re.Match[str]) -> None:
        kind, returns, name, params, attributes, ending = found.groups()
        function = ir.Function(name, kind == "entry")
        function.returns, _ = self.params(returns or "")
        function.params, function.param_bytes = self.params(params or "")
        if limit := _MAXNTID.search(attributes or ""):
            function.max_threads = int(limit[1]) * int(limit[2] or 1) * int(limit[3] or 1)
        if limit := _CLUSTER.search(attributes or ""):
            function.cluster_blocks = int(limit[1]) * int(limit[2] or 1) * int(limit[3] or 1)
        if ending == ";":
            self.module.externals.add(name)
            return
        self.function = function
        self.scopes = []
        self.known = {}
        self.line = self.column = 0
        self.body(function)
        self.module.externals.discard(name)
        self.module.functions[name] = function
        self.function = None
        self.resolve(function)

    def params(self, text: str) -> tuple[tuple[ir.Param, ...], int]:
        out: list[ir.Param] = []
        offset = 0
        for piece in _BLANK.sub(" ", text).split(","):
            if not piece.strip():
                continue
            found = _PARAM.match(piece.strip())
            if not found or found[2] not in ir.TYPE_BYTES:
                raise self.fail(f"cannot read parameter {piece.strip()!r}.")
            width = ir.TYPE_BYTES[found[2]]
            size = self.size_bytes(width * int(found[4] or 1), found[3])
            align = self.alignment(int(found[1] or width), found[3])
            offset = -(-offset // align) * align
            out.append(ir.Param(found[3], found[2], offset, size, align))
            offset += size
        return tuple(out), offset

    def body(self, function: ir.Function) -> None:
        depth = 1
        while depth:
            if not self.skip():
                raise self.fail(f"function {function.name} does not end.")
            character = self.text[self.at]
            if character == "{":
                depth += 1
                self.at += 1
                self.scopes.append({})
                self.scope_count += 1
            elif character == "}":
                depth -= 1
                self.at += 1
                if self.scopes:
                    self.scopes.pop()
            elif found := self.take(_LOC):
                self.location(found)
            elif self.take(_FILE) or self.take(_SECTION):
                continue
            elif character != "." and (found := self.take(_LABEL)):
                self.label(function, found[1])
            elif found := self.take(_STATEMENT):
                self.statement(function, found[0])
            else:
                raise self.fail(f"cannot read {self.text[self.at : self.at + 60]!r}.")

    def location(self, found: re.Match[str]) -> None:
        """Follow the innermost line of the learner's own file (inlined header code has others)."""
        file = int(found[1])
        line = int(found[2])
        column = int(found[3])
        if file == self.learner_file:
            self.line = line
            self.column = column
        elif found[4] and int(found[4]) == self.learner_file:
            self.line, self.column = int(found[5]), int(found[6])

    def label(self, function: ir.Function, name: str) -> None:
        if self.scopes:
            unique = f"{name}#{self.scope_count}"
            self.scopes[-1][name] = unique
            function.labels[unique] = len(function.instructions)
        function.labels.setdefault(name, len(function.instructions))

    def statement(self, function: ir.Function, statement: str) -> None:
        if statement.startswith(".reg"):
            self.registers(function, statement)
        elif statement.startswith((".shared", ".local", ".global", ".const", ".extern")):
            found = _VARIABLE.match(statement)
            if not found:
                raise self.fail(f"cannot read {statement[:60]!r}.")
            variable = self.variable(found)
            table = {"shared": function.shared, "local": function.local}.get(variable.space)
            (self.module.variables if table is None else table)[variable.name] = variable
        elif statement.startswith(".param"):
            found_params, _ = self.params(statement.rstrip(";"))
            if len(found_params) != 1:
                raise self.fail(f"cannot read {statement[:60]!r}.")
            param = found_params[0]
            unique = f"{param.name}#{self.scope_count}" if self.scopes else param.name
            if self.scopes:
                self.scopes[-1][param.name] = unique
            function.call_params[unique] = ir.Param(unique, param.type, 0, param.size_bytes, param.align)
        elif ".branchtargets" in statement:
            names = statement.split(".branchtargets", 1)[1].rstrip(";")
            if not function.labels:
                raise self.fail("a list of branch targets has no label.")
            table_name = list(function.labels)[-1]
            function.branch_tables[table_name.split("#")[0]] = tuple(n.strip() for n in names.split(","))
        elif (
            statement.startswith((".pragma", ".maxn", ".minn", ".callprototype")) or statement.strip() == ";"
        ):
            return
        elif statement.startswith("."):
            raise self.fail(f"cannot read {statement[:60]!r}.")
        else:
            self.instruction(function, statement)

    def registers(self, function: ir.Function, statement: str) -> None:
        found = _REG.match(statement)
        if not found or found[1] not in ir.TYPE_BYTES:
            raise self.fail(f"cannot read {statement!r}.")
        for piece in (p.strip() for p in found[2].split(",")):
            if many := _REG_RANGE.fullmatch(piece):
                if int(many[2]) > _MOST_REGISTERS:
                    raise self.fail(f"{many[2]} registers are too many.")
                names = [f"{many[1]}{i}" for i in range(int(many[2]))]
            else:
                names = [piece]
            for name in names:
                unique = name
                if self.scopes:
                    unique = f"{name}#{self.scope_count}"
                    self.scopes[-1][name] = unique
                function.registers[unique] = found[1]

    def variable(self, found: re.Match[str]) -> ir.Variable:
        space, align, vector, kind, name, dimensions, initial = found.groups()
        if kind not in ir.TYPE_BYTES:
            raise self.fail(f"type .{kind} of {name} is not known.")
        width = ir.TYPE_BYTES[kind]
        size = width * int(vector or 1)
        dynamic = False
        for dimension in re.findall(r"\[(\d*)\]", dimensions):
            dynamic |= not dimension
            size *= int(dimension or 0)
        self.size_bytes(size, name)
        data, pointers = self.initial(initial, kind, width) if initial else (b"", ())
        if len(data) > size and not dynamic:
            raise self.fail(f"{name} has {size} bytes, but initial values for {len(data)}.")
        alignment = self.alignment(int(align or width), name)
        return ir.Variable(name, space, size, alignment, data, pointers, dynamic)

    def size_bytes(self, size: int, name: str) -> int:
        if size > _MOST_BYTES:
            raise self.fail(f"{name} has {size} bytes, more than any GPU's memory.")
        return size

    def alignment(self, align: int, name: str) -> int:
        if not 1 <= align <= _MOST_ALIGNMENT or align & (align - 1):
            raise self.fail(f"{name} has the alignment {align}, which is no power of two from 1 to 32768.")
        return align

    def initial(self, text: str, kind: str, width: int) -> tuple[bytes, tuple[tuple[int, ir.Symbol], ...]]:
        data = bytearray()
        pointers: list[tuple[int, ir.Symbol]] = []
        for item in re.findall(r"generic\([^)]*\)(?:\+\d+)?|[^\s,{}]+", text):
            if found := re.fullmatch(r"(?:generic\(([\w$]+)\)|([A-Za-z_$][\w$]*))(?:\+(\d+))?", item):
                pointers.append((len(data), ir.Symbol(found[1] or found[2], int(found[3] or 0))))
                value = 0
            elif item[:2] in ("0f", "0F", "0d", "0D") or (
                kind in ("f32", "f64") and re.search(r"[.eE]", item)
            ):
                value = immediate(item, kind).value
            else:
                value = integer(item)
            data += (value & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
        return bytes(data), tuple(pointers)

    # -- instructions ----------------------------------------------------------------------------

    def instruction(self, function: ir.Function, statement: str) -> None:
        plain = _BLANK.sub(" ", statement) if "/" in statement else statement
        text = " ".join(plain.split()).rstrip(" ;")
        guard = None
        negated = False
        rest = text
        if found := _GUARD.match(rest):
            negated = bool(found[1])
            guard = self.rename(found[2])
            rest = rest[found.end() :]
        opcode = _OPCODE.fullmatch(rest)
        if not opcode:
            raise self.fail(f"cannot read {text[:60]!r}.")
        if guard is not None and guard not in function.registers:
            raise self.fail(f"predicate {guard} is not declared.")
        parts = tuple(opcode[1].split("."))
        operands = tuple(self.operand(o) for o in split(opcode[2]))
        function.instructions.append(
            ir.Instruction(
                len(function.instructions),
                opcode[1],
                parts,
                operands,
                guard,
                negated,
                self.line,
                self.column,
                text,
            )
        )

    def rename(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def operand(self, text: str) -> ir.Operand | None:
        text = text.strip()
        known = self.known.get(text)
        if known is None or self.scopes:
            known = self.new_operand(text)
            if isinstance(known, ir.Register) and not self.scopes:
                self.known[text] = known
        return known

    def new_operand(self, text: str) -> ir.Operand | None:
        if text == "_":
            return None
        if not text:
            raise self.fail("an operand is missing.")
        if text[0] == "[":
            pieces = tuple(split(text[1:-1]))
            if len(pieces) > 1:  # a texture or surface and its coordinates
                return ir.Vector(tuple(self.operand(piece) for piece in pieces))
            return self.address(text[1:-1].strip())
        if text == "WARP_SZ":
            return ir.Immediate(32)
        if text[0] in "{(":
            return ir.Vector(tuple(self.operand(item) for item in split(text[1:-1])))
        if "|" in text:
            first, second = text.split("|", 1)
            return ir.Pair(self.operand(first), self.operand(second))
        if text[0] == "!":
            return ir.Register(self.rename(text[1:].strip()), True)
        if text[0].isdigit() or text[0] == "-":
            return immediate(text)
        name = self.rename(text)
        if self.function is not None and name in self.function.registers:
            return ir.Register(name)
        if text[0] == "%":
            return ir.Special(text)
        if found := re.fullmatch(r"([\w$]+)\s*\+\s*(\d+)", text):
            return ir.Symbol(self.rename(found[1]), int(found[2]))
        if not re.fullmatch(r"[\w$#]+", name):
            raise self.fail(f"cannot read operand {text!r}.")
        return ir.Symbol(name)

    def address(self, text: str) -> ir.Address:
        found = re.fullmatch(r"([%\w$]+)\s*(?:\+\s*(-?\w+))?", text)
        if not found:
            raise self.fail(f"cannot read address [{text}].")
        offset = integer(found[2]) if found[2] else 0
        base = self.operand(found[1])
        if isinstance(base, ir.Immediate):
            return ir.Address(base, offset)
        if not isinstance(base, ir.Register | ir.Symbol):
            raise self.fail(f"cannot read address [{text}].")
        return ir.Address(base, offset)

    def resolve(self, function: ir.Function) -> None:
        for instruction in list(function.instructions):
            if instruction.root in ("bra", "brx") and not instruction.operands:
                raise self.fail(f"{instruction.text!r} names no label to go to.")
            if instruction.root == "bra":
                instruction.target = self.label_index(function, instruction.operands[-1])
            elif instruction.root == "brx":
                table = instruction.operands[-1]
                names = function.branch_tables.get(table.name if isinstance(table, ir.Symbol) else "", ())
                if not names:
                    raise self.fail(f"{instruction.text!r} names no list of branch targets.")
                instruction.targets = tuple(self.label_index(function, ir.Symbol(n)) for n in names)

    def label_index(self, function: ir.Function, operand: ir.Operand | None) -> int:
        name = operand.name if isinstance(operand, ir.Symbol) else str(operand)
        if name not in function.labels:
            raise self.fail(f"label {name} of function {function.name} is not there.")
        index = function.labels[name]
        if index == len(function.instructions):  # NVRTC ends a function so after a call of a null pointer
            end = ir.Instruction(index, "ret", ("ret",), (), None, False, self.line, self.column, "ret")
            function.instructions.append(end)
        return index

"""Parser that converts PTX text to an `ir.Module`.

It supports both dialects of NVRTC, and scopes of inline assembly.
"""

from __future__ import annotations

import functools
import re

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.literals import parse_immediate, parse_integer, split_operands
from virtualgpu.compile.ptx.validate import check_module
from virtualgpu.errors import PtxError

_BLANK_PATTERN = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.S)
_LOC_PATTERN = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:\s*,\s*function_name\s+[^\s,]+\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*"
)
_FILE_PATTERN = re.compile(r"\.file\s+(\d+)\s+\"([^\"]*)\"[^\n]*")
_SECTION_PATTERN = re.compile(r"\.section\s+[^\s{]+\s*\{.*?\}", re.S)
_HEADER_PATTERN = re.compile(r"\.(version|target|address_size)\s+([^\n]+)")
_LABEL_PATTERN = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_FUNCTION_PATTERN = re.compile(
    r"(?:\.(?:visible|weak|extern|common)\s+)*\.(entry|func)\b(?:\s*\.noreturn)?\s*"
    r"(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*?)([{;])",
    re.S,
)
_STATEMENT_PATTERN = re.compile(r"[^;]*;", re.S)
_GUARD_PATTERN = re.compile(r"@(!?)\s*(%?[\w$]+)\s+")
_OPCODE_PATTERN = re.compile(r"([a-zA-Z][\w]*(?:\.[\w]+|::[\w]+)*)\s*(.*)", re.S)
_PARAM_PATTERN = re.compile(
    r"\.(?:param|reg)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+"
    r"(?:\.ptr\b(?:\s*\.(?:global|shared|local|const|param))?(?:\s*\.align\s+\d+)?\s*)?([\w$]+)(?:\[(\d*)\])?"
)
_VARIABLE_PATTERN = re.compile(
    r"(?:\.(?:visible|weak|extern|common)\s+)*\.(global|const|shared|local)\s+"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(\d+)\s+)?(?:\.v([24])\s+)?\.(\w+)\s+([\w$]+)"
    r"((?:\[\d*\])*)\s*(?:=\s*([^;]*))?;",
    re.S,
)
_REG_PATTERN = re.compile(r"\.reg\s*\.(\w+)\s+(.*);", re.S)
_REG_RANGE_PATTERN = re.compile(r"([%\w$]+)<(\d+)>")
# Above any real program: damaged text must not exhaust memory.
_MAX_REGISTERS = 1 << 20
_MAX_VARIABLE_BYTES = 1 << 40
_MAX_ALIGNMENT = 1 << 15
_CLUSTER_PATTERN = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_MAXNTID_PATTERN = re.compile(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def parse(ptx: str) -> ir.Module:
    """Parse PTX text, and return the module.

    Raises
    ------
    PtxError
        If the text is not PTX that this parser supports, or an instruction has wrong operands; the message
        contains the line.
    """
    module = _Parser(ptx).parse_module()
    check_module(module)
    return module


@functools.lru_cache(maxsize=8)
def parse_cached(ptx: str) -> ir.Module:
    """Return the parsed PTX module from a cache. The caller must not modify the module."""
    return parse(ptx)


class _Parser:
    def __init__(self, ptx: str) -> None:
        self.text = ptx
        self.offset = 0
        self.module = ir.Module()
        self.learner_file_number = 1
        self.line = self.column = 0
        # Places in headers that are inlined, with each line and column of the learner at which they are.
        self.inlined_positions: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        self.name_scopes: list[dict[str, str]] = []
        self.scope_count = 0
        self.function: ir.Function | None = None
        self.operand_cache: dict[
            str, ir.Operand
        ] = {}  # the function's registers outside scopes, by their text

    def make_error(self, message: str) -> PtxError:
        line_number = self.text.count("\n", 0, self.offset) + 1
        return PtxError(f"PTX line {line_number}: {message}")

    def skip_blanks(self) -> bool:
        if match := _BLANK_PATTERN.match(self.text, self.offset):
            self.offset = match.end()
        return self.offset < len(self.text)

    def match_pattern(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.offset)
        if match:
            self.offset = match.end()
        return match

    def parse_module(self) -> ir.Module:
        while self.skip_blanks():
            statement_start = self.offset
            if match := self.match_pattern(_HEADER_PATTERN):
                if match[1] == "version":
                    self.module.version = match[2].strip()
                elif match[1] == "target":
                    self.module.target = match[2].split(",")[0].strip()
            elif (
                self.match_pattern(_LOC_PATTERN)
                or self.match_pattern(_FILE_PATTERN)
                or self.match_pattern(_SECTION_PATTERN)
            ):
                continue
            elif match := self.match_pattern(_FUNCTION_PATTERN):
                self.read_function(match)
            elif match := self.match_pattern(_VARIABLE_PATTERN):
                variable = self.parse_variable(match)
                self.module.variables[variable.name] = variable
            elif match := self.match_pattern(_STATEMENT_PATTERN):
                statement = match[0].strip()
                if not statement.startswith((".pragma", ".alias", ".weak", ".visible")):
                    self.offset = statement_start
                    raise self.make_error(f"cannot read {statement[:60]!r}.")
            else:
                raise self.make_error(f"cannot read {self.text[self.offset : self.offset + 60]!r}.")
        if not re.fullmatch(r"\d+\.\d+", self.module.version):
            raise PtxError("This is not PTX: it has no .version line with a number such as 8.5.")
        return self.module

    # -- functions -------------------------------------------------------------------------------

    def read_function(self, match: re.Match[str]) -> None:
        function_kind, returns_text, name, params_text, attributes_text, last_character = match.groups()
        function = ir.Function(name, function_kind == "entry")
        function.returns, _ = self.parse_params(returns_text or "")
        function.params, function.param_bytes = self.parse_params(params_text or "")
        if limit_match := _MAXNTID_PATTERN.search(attributes_text or ""):
            function.max_threads = int(limit_match[1]) * int(limit_match[2] or 1) * int(limit_match[3] or 1)
        if limit_match := _CLUSTER_PATTERN.search(attributes_text or ""):
            function.cluster_blocks = (
                int(limit_match[1]) * int(limit_match[2] or 1) * int(limit_match[3] or 1)
            )
        if last_character == ";":
            self.module.externals.add(name)
            return
        self.function = function
        self.name_scopes = []
        self.operand_cache = {}
        self.line = self.column = 0
        self.parse_body(function)
        self.module.externals.discard(name)
        self.module.functions[name] = function
        self.function = None
        self.resolve_labels(function)

    def parse_params(self, text: str) -> tuple[tuple[ir.Param, ...], int]:
        parsed_params: list[ir.Param] = []
        param_offset = 0
        for declaration in _BLANK_PATTERN.sub(" ", text).split(","):
            if not declaration.strip():
                continue
            match = _PARAM_PATTERN.match(declaration.strip())
            if not match or match[2] not in ir.TYPE_BYTES:
                raise self.make_error(f"cannot read parameter {declaration.strip()!r}.")
            type_bytes = ir.TYPE_BYTES[match[2]]
            size_bytes = self.check_size(type_bytes * int(match[4] or 1), match[3])
            align = self.check_alignment(int(match[1] or type_bytes), match[3])
            param_offset = -(-param_offset // align) * align
            parsed_params.append(ir.Param(match[3], match[2], param_offset, size_bytes, align))
            param_offset += size_bytes
        return tuple(parsed_params), param_offset

    def parse_body(self, function: ir.Function) -> None:
        brace_depth = 1
        while brace_depth:
            if not self.skip_blanks():
                raise self.make_error(f"function {function.name} does not end.")
            character = self.text[self.offset]
            if character == "{":
                brace_depth += 1
                self.offset += 1
                self.name_scopes.append({})
                self.scope_count += 1
            elif character == "}":
                brace_depth -= 1
                self.offset += 1
                if self.name_scopes:
                    self.name_scopes.pop()
            elif match := self.match_pattern(_LOC_PATTERN):
                self.read_location(match)
            elif self.match_pattern(_FILE_PATTERN) or self.match_pattern(_SECTION_PATTERN):
                continue
            elif character != "." and (match := self.match_pattern(_LABEL_PATTERN)):
                self.add_label(function, match[1])
            elif match := self.match_pattern(_STATEMENT_PATTERN):
                self.parse_statement(function, match[0])
            else:
                raise self.make_error(f"cannot read {self.text[self.offset : self.offset + 60]!r}.")

    def read_location(self, match: re.Match[str]) -> None:
        """Set the source line of the following instructions. This line is the innermost source position in
        the learner's own file.

        Inlined code of headers belongs to other files. If a header's function is inlined in another one, the
        location names only the caller in the header, whose own location was given before, perhaps much
        earlier. If there were several, it is the next one in the source, or else the latest.
        """
        own_location, caller_location = (
            tuple(int(number_text) for number_text in match.groups()[i : i + 3] if number_text)
            for i in (0, 3)
        )
        file_number, line, column = own_location
        if file_number == self.learner_file_number:
            self.line = line
            self.column = column
        elif caller_location:
            is_in_learner_file = caller_location[0] == self.learner_file_number
            current_position = self.line, self.column
            inline_places = (
                [(caller_location[1], caller_location[2])]
                if is_in_learner_file
                else self.inlined_positions.get(caller_location, [])
            )
            if inline_places:
                call_position = min(
                    (call_position for call_position in inline_places if call_position >= current_position),
                    default=inline_places[-1],
                )
                call_positions = self.inlined_positions.setdefault(own_location, [])
                if call_position in call_positions:
                    call_positions.remove(call_position)
                call_positions.append(call_position)
                self.line, self.column = call_position

    def add_label(self, function: ir.Function, name: str) -> None:
        if self.name_scopes:
            unique_name = f"{name}#{self.scope_count}"
            self.name_scopes[-1][name] = unique_name
            function.labels[unique_name] = len(function.instructions)
        function.labels.setdefault(name, len(function.instructions))

    def parse_statement(self, function: ir.Function, statement: str) -> None:
        if statement.startswith(".reg"):
            self.declare_registers(function, statement)
        elif statement.startswith((".shared", ".local", ".global", ".const", ".extern")):
            match = _VARIABLE_PATTERN.match(statement)
            if not match:
                raise self.make_error(f"cannot read {statement[:60]!r}.")
            variable = self.parse_variable(match)
            variable_table = {"shared": function.shared, "local": function.local}.get(variable.space)
            (self.module.variables if variable_table is None else variable_table)[variable.name] = variable
        elif statement.startswith(".param"):
            params, _ = self.parse_params(statement.rstrip(";"))
            if len(params) != 1:
                raise self.make_error(f"cannot read {statement[:60]!r}.")
            param = params[0]
            unique_name = f"{param.name}#{self.scope_count}" if self.name_scopes else param.name
            if self.name_scopes:
                self.name_scopes[-1][param.name] = unique_name
            function.call_params[unique_name] = ir.Param(
                unique_name, param.type, 0, param.size_bytes, param.align
            )
        elif ".branchtargets" in statement:
            label_names = statement.split(".branchtargets", 1)[1].rstrip(";")
            if not function.labels:
                raise self.make_error("a list of branch targets has no label.")
            table_name = list(function.labels)[-1]
            function.branch_tables[table_name.split("#")[0]] = tuple(
                n.strip() for n in label_names.split(",")
            )
        elif (
            statement.startswith((".pragma", ".maxn", ".minn", ".callprototype")) or statement.strip() == ";"
        ):
            return
        elif statement.startswith("."):
            raise self.make_error(f"cannot read {statement[:60]!r}.")
        else:
            self.parse_instruction(function, statement)

    def declare_registers(self, function: ir.Function, statement: str) -> None:
        match = _REG_PATTERN.match(statement)
        if not match or match[1] not in ir.TYPE_BYTES:
            raise self.make_error(f"cannot read {statement!r}.")
        for declarator in (p.strip() for p in match[2].split(",")):
            if range_match := _REG_RANGE_PATTERN.fullmatch(declarator):
                if int(range_match[2]) > _MAX_REGISTERS:
                    raise self.make_error(f"{range_match[2]} registers are more than PTX allows.")
                names = [f"{range_match[1]}{i}" for i in range(int(range_match[2]))]
            else:
                names = [declarator]
            for name in names:
                unique_name = name
                if self.name_scopes:
                    unique_name = f"{name}#{self.scope_count}"
                    self.name_scopes[-1][name] = unique_name
                function.registers[unique_name] = match[1]

    def parse_variable(self, match: re.Match[str]) -> ir.Variable:
        space, align_text, vector_length_text, type_name, name, dimensions_text, initial_values_text = (
            match.groups()
        )
        if type_name not in ir.TYPE_BYTES:
            raise self.make_error(f"type .{type_name} of {name} is not known.")
        element_bytes = ir.TYPE_BYTES[type_name]
        size_bytes = element_bytes * int(vector_length_text or 1)
        is_dynamic = False
        for dimension in re.findall(r"\[(\d*)\]", dimensions_text):
            is_dynamic |= not dimension
            size_bytes *= int(dimension or 0)
        self.check_size(size_bytes, name)
        initial_bytes, initial_pointers = (
            self.parse_initial_values(initial_values_text, type_name, element_bytes)
            if initial_values_text
            else (b"", ())
        )
        if len(initial_bytes) > size_bytes and not is_dynamic:
            raise self.make_error(
                f"{name} has {size_bytes} bytes, but its initial values have {len(initial_bytes)} bytes."
            )
        alignment = self.check_alignment(int(align_text or element_bytes), name)
        return ir.Variable(name, space, size_bytes, alignment, initial_bytes, initial_pointers, is_dynamic)

    def check_size(self, size: int, name: str) -> int:
        if size > _MAX_VARIABLE_BYTES:
            raise self.make_error(f"{name} has {size} bytes, more than any GPU's memory.")
        return size

    def check_alignment(self, alignment: int, name: str) -> int:
        if not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
            raise self.make_error(
                f"{name} has the alignment {alignment}, which is not a power of two from 1 to 32768."
            )
        return alignment

    def parse_initial_values(
        self, text: str, type_name: str, width: int
    ) -> tuple[bytes, tuple[tuple[int, ir.Symbol], ...]]:
        initial_bytes = bytearray()
        pointers: list[tuple[int, ir.Symbol]] = []
        for element_text in re.findall(r"generic\([^)]*\)(?:\+\d+)?|[^\s,{}]+", text):
            if match := re.fullmatch(r"(?:generic\(([\w$]+)\)|([A-Za-z_$][\w$]*))(?:\+(\d+))?", element_text):
                pointers.append((len(initial_bytes), ir.Symbol(match[1] or match[2], int(match[3] or 0))))
                element_value = 0
            elif element_text[:2] in ("0f", "0F", "0d", "0D") or (
                type_name in ("f32", "f64") and re.search(r"[.eE]", element_text)
            ):
                element_value = parse_immediate(element_text, type_name).value
            else:
                element_value = parse_integer(element_text)
            initial_bytes += (element_value & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
        return bytes(initial_bytes), tuple(pointers)

    # -- instructions ----------------------------------------------------------------------------

    def parse_instruction(self, function: ir.Function, statement: str) -> None:
        without_comments = _BLANK_PATTERN.sub(" ", statement) if "/" in statement else statement
        text = " ".join(without_comments.split()).rstrip(" ;")
        guard = None
        is_negated = False
        unparsed_text = text
        if match := _GUARD_PATTERN.match(unparsed_text):
            is_negated = bool(match[1])
            guard = self.find_scoped_name(match[2])
            unparsed_text = unparsed_text[match.end() :]
        opcode_match = _OPCODE_PATTERN.fullmatch(unparsed_text)
        if not opcode_match:
            raise self.make_error(f"cannot read {text[:60]!r}.")
        if guard is not None and guard not in function.registers:
            raise self.make_error(f"predicate {guard} is not declared.")
        opcode_parts = tuple(opcode_match[1].split("."))
        operands = tuple(self.get_operand(operand_text) for operand_text in split_operands(opcode_match[2]))
        function.instructions.append(
            ir.Instruction(
                len(function.instructions),
                opcode_match[1],
                opcode_parts,
                operands,
                guard,
                is_negated,
                self.line,
                self.column,
                text,
            )
        )

    def find_scoped_name(self, name: str) -> str:
        for scope in reversed(self.name_scopes):
            if name in scope:
                return scope[name]
        return name

    def get_operand(self, text: str) -> ir.Operand | None:
        text = text.strip()
        parsed_operand = self.operand_cache.get(text)
        if parsed_operand is None or self.name_scopes:
            parsed_operand = self.parse_operand(text)
            if isinstance(parsed_operand, ir.Register) and not self.name_scopes:
                self.operand_cache[text] = parsed_operand
        return parsed_operand

    def parse_operand(self, text: str) -> ir.Operand | None:
        if text == "_":
            return None
        if not text:
            raise self.make_error("an operand is missing.")
        if text[0] == "[":
            operands = tuple(split_operands(text[1:-1]))
            if len(operands) > 1:  # a texture or surface and its coordinates
                return ir.Vector(tuple(self.get_operand(operand_text) for operand_text in operands))
            return self.parse_address(text[1:-1].strip())
        if text == "WARP_SZ":
            return ir.Immediate(32)
        if text[0] in "{(":
            return ir.Vector(tuple(self.get_operand(item_text) for item_text in split_operands(text[1:-1])))
        if "|" in text:
            first_text, second_text = text.split("|", 1)
            return ir.Pair(self.get_operand(first_text), self.get_operand(second_text))
        if text[0] == "!":
            return ir.Register(self.find_scoped_name(text[1:].strip()), True)
        if text[0].isdigit() or text[0] == "-":
            return parse_immediate(text)
        name = self.find_scoped_name(text)
        if self.function is not None and name in self.function.registers:
            return ir.Register(name)
        if text[0] == "%":
            return ir.Special(text)
        if match := re.fullmatch(r"([\w$]+)\s*\+\s*(\d+)", text):
            return ir.Symbol(self.find_scoped_name(match[1]), int(match[2]))
        if not re.fullmatch(r"[\w$#]+", name):
            raise self.make_error(f"cannot read operand {text!r}.")
        return ir.Symbol(name)

    def parse_address(self, text: str) -> ir.Address:
        match = re.fullmatch(r"([%\w$]+)\s*(?:\+\s*(-?\w+))?", text)
        if not match:
            raise self.make_error(f"cannot read address [{text}].")
        offset = parse_integer(match[2]) if match[2] else 0
        base_operand = self.get_operand(match[1])
        if isinstance(base_operand, ir.Immediate):
            return ir.Address(base_operand, offset)
        if not isinstance(base_operand, ir.Register | ir.Symbol):
            raise self.make_error(f"cannot read address [{text}].")
        return ir.Address(base_operand, offset)

    def resolve_labels(self, function: ir.Function) -> None:
        for instruction in list(function.instructions):
            if instruction.root in ("bra", "brx") and not instruction.operands:
                raise self.make_error(f"{instruction.text!r} has no target label.")
            if instruction.root == "bra":
                instruction.target = self.find_label_index(function, instruction.operands[-1])
            elif instruction.root == "brx":
                table_operand = instruction.operands[-1]
                label_names = function.branch_tables.get(
                    table_operand.name if isinstance(table_operand, ir.Symbol) else "", ()
                )
                if not label_names:
                    raise self.make_error(f"{instruction.text!r} has no list of branch targets.")
                instruction.targets = tuple(
                    self.find_label_index(function, ir.Symbol(n)) for n in label_names
                )

    def find_label_index(self, function: ir.Function, operand: ir.Operand | None) -> int:
        label_name = operand.name if isinstance(operand, ir.Symbol) else str(operand)
        if label_name not in function.labels:
            raise self.make_error(f"label {label_name} does not exist in function {function.name}.")
        instruction_index = function.labels[label_name]
        if instruction_index == len(
            function.instructions
        ):  # NVRTC ends a function like this after a call of a null pointer
            final_return = ir.Instruction(
                instruction_index, "ret", ("ret",), (), None, False, self.line, self.column, "ret"
            )
            function.instructions.append(final_return)
        return instruction_index

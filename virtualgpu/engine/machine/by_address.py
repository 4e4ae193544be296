"""Rewrite of a long warp function so that operations on 32 lanes become calls of shared functions.

LLVM needs a good part of a millisecond for each operation over 32 lanes that it writes out, and a long
kernel has ten thousand of them. Here each kind of operation becomes one function, which takes and returns
rows of lanes by address and is translated once. The kernel's own function keeps only calls and scalars.
 Masks (``<32 x i1>``) become 32-bit integers.Functions and constants are reached through
pointers on the stack, because LLVM's quick instruction selection does not support names that may be far away, and
its other selection takes twice as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

# A kind of value, such as <32 x float>; a value is a name or a constant.
_TYPE_REGEX = r"<\d+ x \w+>|ptr|i\d+|half|float|double"
_VALUE_REGEX = r"%[\w.]+|splat \([^)]*\)|<[^<>]*>|[\w.+-]+"
_RESULT_REGEX = r"(?:(?P<result>%[\w.]+) = )?"
_LINE_FORMS = {
    "load": rf"load(?P<modifier>(?: volatile)?) (?P<kind>{_TYPE_REGEX}), ptr (?P<a>{_VALUE_REGEX})(?P<rest>.*)",
    "store": rf"store(?P<modifier>(?: volatile)?) (?P<kind>{_TYPE_REGEX}) (?P<a>{_VALUE_REGEX}), ptr (?P<b>{_VALUE_REGEX})(?P<rest>.*)",
    "cast": rf"(?P<op>\w+) (?P<kind>{_TYPE_REGEX}) (?P<a>{_VALUE_REGEX}) to (?P<result_kind>{_TYPE_REGEX})",
    "compare": rf"(?P<op>[if]cmp \w+) (?P<kind>{_TYPE_REGEX}) (?P<a>{_VALUE_REGEX}), (?P<b>{_VALUE_REGEX})",
    "select": rf"select (?P<kind>{_TYPE_REGEX}) (?P<a>{_VALUE_REGEX}), (?P<result_kind>{_TYPE_REGEX}) (?P<b>{_VALUE_REGEX}), "
    rf"(?:{_TYPE_REGEX}) (?P<c>{_VALUE_REGEX})",
    "insert": rf"insertelement (?P<kind>{_TYPE_REGEX}) (?P<a>{_VALUE_REGEX}), (?P<result_kind>\w+) (?P<b>{_VALUE_REGEX}), "
    rf"i32 (?P<c>{_VALUE_REGEX})",
    "extract": rf"extractelement (?P<kind>{_TYPE_REGEX}) (?P<a>{_VALUE_REGEX}), i32 (?P<b>{_VALUE_REGEX})",
    "shuffle": rf"shufflevector (?P<kind>{_TYPE_REGEX}) (?P<a>{_VALUE_REGEX}), (?:{_TYPE_REGEX}) (?P<b>{_VALUE_REGEX}), "
    rf"(?P<result_kind>{_TYPE_REGEX}) (?P<c>{_VALUE_REGEX})",
    "phi": rf"phi (?P<kind>{_TYPE_REGEX}) (?P<rest>.*)",
    "unary": rf"(?P<op>fneg|freeze) (?P<kind>{_TYPE_REGEX}) (?P<a>{_VALUE_REGEX})",
    "call": rf"(?P<op>call(?: contract)?) (?P<kind>void|{_TYPE_REGEX}) (?P<a>@[\w.]+)\((?P<rest>.*)\)",
    "binary": rf"(?P<op>\w+(?: contract)?) (?P<kind>{_TYPE_REGEX}) (?P<a>{_VALUE_REGEX}), (?P<b>{_VALUE_REGEX})",
}
_LINE_PATTERNS = {name: re.compile(_RESULT_REGEX + text) for name, text in _LINE_FORMS.items()}
# Forms by the first word of the line, where it is not the form's name; all other lines are "binary".
_FORM_OF_OPCODE = {
    "icmp": "compare",
    "fcmp": "compare",
    "fneg": "unary",
    "freeze": "unary",
    "insertelement": "insert",
    "extractelement": "extract",
    "shufflevector": "shuffle",
    "bitcast": "cast",
    "inttoptr": "cast",
    "ptrtoint": "cast",
    "zext": "cast",
    "sext": "cast",
    "trunc": "cast",
    "fpext": "cast",
    "fptrunc": "cast",
    "fptosi": "cast",
    "fptoui": "cast",
    "sitofp": "cast",
    "uitofp": "cast",
}
_ARGUMENT_PATTERN = re.compile(rf"({_TYPE_REGEX})((?: align \d+)?) ({_VALUE_REGEX})(?:, |$)")
_INCOMING_PATTERN = re.compile(rf"\[({_VALUE_REGEX}), %([\w.]+)\]")
_SPLAT_PATTERN = re.compile(r"splat \(\w+ ([^)]*)\)")
_NAME_PATTERN = re.compile(r"%[\w.]+")
_BLOCK_PATTERN = re.compile(r"bb\d+")
_FAR_NAME_PATTERN = re.compile(r"@(?!llvm\.)[\w.]+")
_UNCHANGED_LINE_PATTERN = re.compile(r"label %| alloca | getelementptr (?!.*, <)")
_TARGET_PATTERN = re.compile(r"label %([\w.]+)")
_TYPE_BITS = {"half": 16, "float": 32, "double": 64, "ptr": 64}
# Scalar kinds; a constant of such a kind that is the same in all lanes is passed as one number.
_KINDS_PASSED_BY_VALUE = ("i8", "i16", "i32", "i64", "float", "double")
_REINTERPRETATIONS = ("bitcast", "inttoptr", "ptrtoint", "freeze")
MASK = "<32 x i1>"
_LANE_BITS = "<" + ", ".join(f"i32 {1 << lane}" for lane in range(32)) + ">"


class UnreadableLineError(Exception):
    """Error for a line of LLVM text that has an unknown form. The function that contains this line is left
    unchanged.
    """


def _is_row_type(llvm_type: str) -> bool:
    """Return whether values of an LLVM type are vectors of lanes, which are moved to memory here."""
    return llvm_type[0] == "<" and llvm_type != MASK


def _element_type(vector_type: str) -> str:
    """Return the type of the elements of an LLVM vector type."""
    return vector_type[1:-1].split(" x ")[1]


def _vector_bytes(vector_type: str) -> int:
    """Return the size in bytes of an LLVM vector type."""
    lane_count, scalar = vector_type[1:-1].split(" x ")
    scalar_bits = _TYPE_BITS.get(scalar) or int(scalar[1:])
    if scalar_bits % 8:
        raise UnreadableLineError(vector_type)
    return int(lane_count) * scalar_bits // 8


@dataclass(slots=True)
class RowFunctions:
    """A collection of generated functions and constants for operations on rows of lanes in memory."""

    function_names: dict[str, str] = field(
        default_factory=dict
    )  # by the operation and the kinds of its operands
    definition_texts: list[str] = field(default_factory=list)
    declarations: list[str] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)

    def add_constant(self, kind: str, value: str) -> str:
        """Return the name of a constant row of lanes. The constant is defined when it is first used."""
        return self.constants.setdefault(f"{kind} {value}", f"@row.c{len(self.constants)}")

    def make_constant_definitions(self) -> list[str]:
        """Return the LLVM text that defines the constant rows."""
        return [f"{name} = internal constant {value}, align 64" for value, name in self.constants.items()]

    def add_function(self, template: str, operands: list[tuple[str, str]], result_kind: str) -> str:
        """Return the name of the generated function for the operation `template` on rows of lanes.

        Rows are passed by address, masks as bit fields, and uniform numbers as scalars.
        """
        function_key = f"{template} {operands} {result_kind}"
        if function_key in self.function_names:
            return self.function_names[function_key]
        name = f"row.{len(self.function_names)}"
        self.function_names[function_key] = name
        body_lines: list[str] = []
        parameter_types: list[str] = ["ptr"] if _is_row_type(result_kind) else []
        parameters = [f"{llvm_type} %d" for llvm_type in parameter_types]
        for index, (llvm_type, passing_mode) in enumerate(operands):
            argument_kinds = {
                "row": "ptr",
                "mask": "i32",
                "number": _element_type(llvm_type) if llvm_type[0] == "<" else llvm_type,
            }
            parameter_types.append(argument_kinds.get(passing_mode, llvm_type))
            parameters.append(f"{parameter_types[-1]} %{'x' if passing_mode == 'plain' else 'g'}{index}")
            if passing_mode == "row":
                body_lines.append(f"%x{index} = load {llvm_type}, ptr %g{index}, align 64")
            elif passing_mode == "number":
                body_lines += _make_splat_lines(llvm_type, f"%g{index}", f"%x{index}")
            elif passing_mode == "mask":
                body_lines += _make_splat_lines("<32 x i32>", f"%g{index}", f"%s{index}")
                body_lines.append(f"%b{index} = and <32 x i32> %s{index}, {_LANE_BITS}")
                body_lines.append(f"%x{index} = icmp ne <32 x i32> %b{index}, zeroinitializer")
        operation = template.format(*(f"%x{index}" for index in range(len(operands))))
        return_kind = "void"
        if result_kind == "void":
            body_lines += [operation, "ret void"]
        elif _is_row_type(result_kind):
            body_lines += [f"%r = {operation}", f"store {result_kind} %r, ptr %d, align 64", "ret void"]
        elif result_kind == MASK:
            return_kind = "i32"
            body_lines += [f"%r = {operation}", f"%m = bitcast {MASK} %r to i32", "ret i32 %m"]
        else:
            return_kind = result_kind
            body_lines += [f"%r = {operation}", f"ret {result_kind} %r"]
        function_body = "\n  ".join(body_lines)
        self.definition_texts.append(
            f"define {return_kind} @{name}({', '.join(parameters)}) noinline {{\n  {function_body}\n}}"
        )
        self.declarations.append(f"declare {return_kind} @{name}({', '.join(parameter_types)})")
        return name


def _make_splat_lines(row_type: str, scalar: str, result: str) -> list[str]:
    """Return LLVM text that fills a vector with one number."""
    return [
        f"{result}.0 = insertelement {row_type} poison, {_element_type(row_type)} {scalar}, i32 0",
        f"{result} = shufflevector {row_type} {result}.0, {row_type} poison, <{row_type[1:].split()[0]} x i32> zeroinitializer",
    ]


@dataclass(slots=True)
class _Operand:
    """An operand of an operation: its type, its value, and how it is passed to the function."""

    kind: str
    passing_mode: str
    value: str


@dataclass(slots=True)
class _LineStep:
    """A line of the rewritten function: unchanged text, or an operation on rows of lanes."""

    text: str = ""
    result: str = ""
    result_kind: str = "void"
    template: str = ""
    operands: list[_Operand] = field(default_factory=list)
    incoming_rows: list[tuple[_Operand, str]] = field(default_factory=list)


class _WarpFunction:
    """A warp function while it is rewritten."""

    def __init__(self, lines: list[str], row_functions: RowFunctions) -> None:
        self.row_functions = row_functions
        self.lines = lines
        self.row_kinds: dict[str, str] = {}  # the kind of each name whose value is a row
        self.aliases: dict[str, str] = {}  # names whose bytes are those of another value
        self.mask_bits: dict[str, str] = {}  # the 32 bits of each mask, by its name
        self.uniform_numbers: dict[str, str] = {}  # the scalar in every lane
        self.masks_of_lane_bits: dict[str, str] = {}  # the mask from which each lane took its own bit
        self.steps: list[_LineStep] = []
        self.pointer_slots: dict[
            str, str
        ] = {}  # the stack slot with the address of each function or constant
        self.far_load_count = 0

    # -- reading -------------------------------------------------------------------------------------

    def parse_lines(self) -> None:
        """Parse every line of the function."""
        for name, row_type in self._find_row_phis():
            self.row_kinds[name] = row_type
        for line in self.lines:
            if "<" not in line or _UNCHANGED_LINE_PATTERN.search(line):
                self.steps.append(_LineStep(line))
                continue
            self._parse_line(line.strip())

    def _parse_line(self, line: str) -> None:
        opcode = line[line.find(" = ") + 3 if line[0] == "%" else 0 :].split(" ", 1)[0]
        form_name = _FORM_OF_OPCODE.get(opcode, opcode if opcode in _LINE_PATTERNS else "binary")
        match = _LINE_PATTERNS[form_name].fullmatch(line)
        if match is None:
            raise UnreadableLineError(line)
        parse_form: Callable[[re.Match[str]], None] = getattr(self, f"_parse_{form_name}")
        parse_form(match)

    def _find_row_phis(self) -> list[tuple[str, str]]:
        """Return the results of phi instructions for rows, which get names before their values are known."""
        matches = (_LINE_PATTERNS["phi"].fullmatch(line.strip()) for line in self.lines if " = phi <" in line)
        return [
            (match["result"], match["kind"])
            for match in matches
            if match is not None and _is_row_type(match["kind"])
        ]

    def _make_operand(self, kind: str, value: str) -> _Operand:
        if kind == MASK:
            return _Operand(kind, "mask", self._find_mask_bits(value))
        if not _is_row_type(kind):
            return _Operand(kind, "plain", value)
        value = self.aliases.get(value, value)
        if value in self.uniform_numbers:
            return _Operand(kind, "number", self.uniform_numbers[value])
        if value in self.row_kinds:
            return _Operand(kind, "row", value)
        if value[0] == "%":
            raise UnreadableLineError(f"{kind} {value}")
        if value == "poison" or value == "undef":
            value = "zeroinitializer"
        if _element_type(kind) in _KINDS_PASSED_BY_VALUE:
            splat = _SPLAT_PATTERN.fullmatch(value)
            if splat is not None:
                return _Operand(kind, "number", splat[1])
            if value == "zeroinitializer":
                return _Operand(kind, "number", "0.0" if _element_type(kind) in ("float", "double") else "0")
        return _Operand(kind, "row", self.row_functions.add_constant(kind, value))

    def _find_mask_bits(self, value: str) -> str:
        """Return the name of a mask as a 32-bit integer."""
        value = self.aliases.get(value, value)
        if value in self.mask_bits:
            return self.mask_bits[value]
        if value == "zeroinitializer":
            return "0"
        splat = _SPLAT_PATTERN.fullmatch(value)
        if splat is None:
            raise UnreadableLineError(f"{MASK} {value}")
        return "-1" if splat[1] in ("1", "true", "-1") else "0"

    def _add_operation(self, result: str, result_kind: str, template: str, *operands: _Operand) -> None:
        if result and _is_row_type(result_kind):
            self.row_kinds[result] = result_kind
        elif result and result_kind == MASK:
            self.mask_bits[result] = result
        self.steps.append(_LineStep("", result, result_kind, template, list(operands)))

    def _add_scalar(self, result: str, text: str) -> None:
        self.steps.append(_LineStep(f"  {result} = {text}"))

    def _parse_load(self, match: re.Match[str]) -> None:
        if match["kind"] == MASK:
            self.mask_bits[match["result"]] = match["result"]
            self._add_scalar(match["result"], f"load i32, ptr {match['a']}, align 4")
            return
        self._add_operation(
            match["result"],
            match["kind"],
            f"load{match['modifier']} {match['kind']}, ptr {{0}}{match['rest']}",
            _Operand("ptr", "plain", match["a"]),
        )

    def _parse_store(self, match: re.Match[str]) -> None:
        if match["kind"] == MASK:
            self.steps.append(
                _LineStep(f"  store i32 {self._find_mask_bits(match['a'])}, ptr {match['b']}, align 4")
            )
            return
        pointer = _Operand("ptr", "plain", match["b"])
        value = self._make_operand(match["kind"], match["a"])
        self._add_operation(
            "",
            "void",
            f"store{match['modifier']} {match['kind']} {{0}}, ptr {{1}}{match['rest']}",
            value,
            pointer,
        )

    def _parse_cast(self, match: re.Match[str]) -> None:
        source_type = match["kind"]
        result_kind = match["result_kind"]
        result = match["result"]
        if MASK in (source_type, result_kind) and match["op"] == "bitcast":
            bits = self._find_mask_bits(match["a"]) if source_type == MASK else match["a"]
            if source_type == MASK and result_kind == "i32":
                self._add_scalar(result, f"add i32 {bits}, 0")
            elif result_kind == MASK and source_type == "i32":
                self.mask_bits[result] = bits
            else:
                raise UnreadableLineError(match[0])
            return
        value = self._make_operand(source_type, match["a"])
        is_reinterpretation = (
            match["op"] in _REINTERPRETATIONS and _is_row_type(source_type) and _is_row_type(result_kind)
        )
        if is_reinterpretation and value.passing_mode == "row" and value.value[0] == "%":
            self.aliases[result] = value.value
            return
        self._add_operation(result, result_kind, f"{match['op']} {source_type} {{0}} to {result_kind}", value)

    def _parse_unary(self, match: re.Match[str]) -> None:
        self._add_operation(
            match["result"],
            match["kind"],
            f"{match['op']} {match['kind']} {{0}}",
            self._make_operand(match["kind"], match["a"]),
        )

    def _parse_compare(self, match: re.Match[str]) -> None:
        operand_type = match["kind"]
        if not _is_row_type(operand_type):
            raise UnreadableLineError(match[0])
        lane_test = {"icmp eq": _LANE_BITS, "icmp ne": "zeroinitializer"}.get(match["op"])
        if (
            match["a"] in self.masks_of_lane_bits and match["b"] == lane_test
        ):  # the lanes whose bits are set in a mask
            self.mask_bits[match["result"]] = self.masks_of_lane_bits[match["a"]]
            return
        operands = [self._make_operand(operand_type, match[operand_group]) for operand_group in "ab"]
        self._add_operation(match["result"], MASK, f"{match['op']} {operand_type} {{0}}, {{1}}", *operands)

    def _parse_select(self, match: re.Match[str]) -> None:
        result_kind = match["result_kind"]
        result = match["result"]
        if match["kind"] not in (MASK, "i1"):
            raise UnreadableLineError(match[0])
        if result_kind == MASK:
            if_true = self._find_mask_bits(match["b"])
            if_false = self._find_mask_bits(match["c"])
            self.mask_bits[result] = result
            if match["kind"] == "i1":
                self._add_scalar(result, f"select i1 {match['a']}, i32 {if_true}, i32 {if_false}")
                return
            chosen_bits = self._find_mask_bits(match["a"])
            self._add_scalar(f"{result}.y", f"and i32 {chosen_bits}, {if_true}")
            self._add_scalar(f"{result}.o", f"xor i32 {chosen_bits}, -1")
            self._add_scalar(f"{result}.n", f"and i32 {result}.o, {if_false}")
            self._add_scalar(result, f"or i32 {result}.y, {result}.n")
            return
        operands = [
            self._make_operand(match["kind"], match["a"]),
            *(self._make_operand(result_kind, match[operand_group]) for operand_group in "bc"),
        ]
        self._add_operation(
            result,
            result_kind,
            f"select {match['kind']} {{0}}, {result_kind} {{1}}, {result_kind} {{2}}",
            *operands,
        )

    def _parse_binary(self, match: re.Match[str]) -> None:
        operand_type = match["kind"]
        result = match["result"]
        if operand_type == MASK:
            self._add_scalar(
                result,
                f"{match['op']} i32 {self._find_mask_bits(match['a'])}, {self._find_mask_bits(match['b'])}",
            )
            self.mask_bits[result] = result
            if match["op"] not in ("and", "or", "xor"):
                raise UnreadableLineError(match[0])
            return
        if not _is_row_type(operand_type):
            raise UnreadableLineError(match[0])
        if match["op"] == "and" and match["b"] == _LANE_BITS and match["a"] in self.uniform_numbers:
            self.masks_of_lane_bits[result] = self.uniform_numbers[match["a"]]
        self._add_operation(
            result,
            operand_type,
            f"{match['op']} {operand_type} {{0}}, {{1}}",
            *(self._make_operand(operand_type, match[operand_group]) for operand_group in "ab"),
        )

    def _parse_insert(self, match: re.Match[str]) -> None:
        if match["a"] == "poison" and match["c"] == "0" and match["result_kind"] in _KINDS_PASSED_BY_VALUE:
            self.uniform_numbers[match["result"]] = match["b"]
            return
        operands = [
            self._make_operand(match["kind"], match["a"]),
            _Operand(match["result_kind"], "plain", match["b"]),
            _Operand("i32", "plain", match["c"]),
        ]
        self._add_operation(
            match["result"],
            match["kind"],
            f"insertelement {match['kind']} {{0}}, {match['result_kind']} {{1}}, i32 {{2}}",
            *operands,
        )

    def _parse_extract(self, match: re.Match[str]) -> None:
        if match["kind"] == MASK:
            self._add_scalar(
                f"{match['result']}.s", f"lshr i32 {self._find_mask_bits(match['a'])}, {match['b']}"
            )
            self._add_scalar(match["result"], f"trunc i32 {match['result']}.s to i1")
            return
        operands = [self._make_operand(match["kind"], match["a"]), _Operand("i32", "plain", match["b"])]
        self._add_operation(
            match["result"],
            _element_type(match["kind"]),
            f"extractelement {match['kind']} {{0}}, i32 {{1}}",
            *operands,
        )

    def _parse_shuffle(self, match: re.Match[str]) -> None:
        result_kind = f"<{match['result_kind'][1:].split()[0]} x {_element_type(match['kind'])}>"
        if match["a"] in self.uniform_numbers and match["c"] == "zeroinitializer":
            self.uniform_numbers[match["result"]] = self.uniform_numbers[match["a"]]
            return
        operands = [self._make_operand(match["kind"], match[operand_group]) for operand_group in "ab"]
        lane_order = f"{match['result_kind']} {match['c']}"
        self._add_operation(
            match["result"],
            result_kind,
            f"shufflevector {match['kind']} {{0}}, {match['kind']} {{1}}, {lane_order}",
            *operands,
        )

    def _parse_call(self, match: re.Match[str]) -> None:
        operands: list[_Operand] = []
        arguments: list[str] = []
        previous_end = 0
        for argument in _ARGUMENT_PATTERN.finditer(match["rest"]):
            if argument.start() != previous_end:
                raise UnreadableLineError(match[0])
            previous_end = argument.end()
            argument_type, attributes, value = argument.groups()
            if (
                value[0] != "%"
                and not _is_row_type(argument_type)
                and argument_type != MASK
                and match["a"].startswith("@llvm.")
            ):
                arguments.append(f"{argument_type}{attributes} {value}")  # it may have to be a constant
                continue
            arguments.append(f"{argument_type}{attributes} {{{len(operands)}}}")
            operands.append(self._make_operand(argument_type, value))
        if previous_end != len(match["rest"]):
            raise UnreadableLineError(match[0])
        self._add_operation(
            match["result"] or "",
            match["kind"],
            f"{match['op']} {match['kind']} {match['a']}({', '.join(arguments)})",
            *operands,
        )

    def _parse_phi(self, match: re.Match[str]) -> None:
        row_type = match["kind"]
        incoming_values = _INCOMING_PATTERN.findall(match["rest"])
        if row_type == MASK or match["result"].startswith(
            "%loop"
        ):  # rows that a loop carries: see `lower.loops`
            raise UnreadableLineError(match[0])
        step = _LineStep("", match["result"], row_type)
        # The value from the end of a loop is not known yet; it is resolved after all lines are parsed.
        step.incoming_rows = [(_Operand(row_type, "row", value), label) for value, label in incoming_values]
        self.steps.append(step)

    # -- writing -------------------------------------------------------------------------------------

    def make_lines(self) -> list[str]:
        """Return the lines of the function after its rows of lanes have been moved to memory."""
        self._resolve_phis()
        slot_by_row, alloca_lines = self._assign_row_slots(self._find_last_uses())
        code_lines: list[str] = []
        phi_copies: list[str] = []
        for step in self.steps:
            if not step.incoming_rows:
                code_lines += phi_copies
                phi_copies = []
            code_lines += self._make_step_lines(step, slot_by_row, phi_copies)
        for pointer_name, pointer_slot in self.pointer_slots.items():
            alloca_lines += [
                f"  {pointer_slot} = alloca ptr",
                f"  store ptr {pointer_name}, ptr {pointer_slot}",
            ]
        return [*code_lines[:2], *alloca_lines, *code_lines[2:]]  # after the function's first label

    def _rewrite_far_calls(self, line: str) -> list[str]:
        """Replace the names of functions and constants that may be far away by pointers from the stack."""
        code_lines: list[str] = []

        def load_pointer(name: re.Match[str]) -> str:
            slot = self.pointer_slots.setdefault(name[0], f"%far.{len(self.pointer_slots)}")
            self.far_load_count += 1
            code_lines.append(f"  %at.{self.far_load_count} = load ptr, ptr {slot}")
            return f"%at.{self.far_load_count}"

        call_line = _FAR_NAME_PATTERN.sub(load_pointer, line)
        return [*code_lines, call_line]

    def _assign_row_slots(self, last_uses: dict[str, int]) -> tuple[dict[str, str], list[str]]:
        """Assign a stack slot to every row, and return the allocations.

        A slot is reused after the last use of its row.
        """
        slot_by_row: dict[str, str] = {}
        alloca_lines: list[str] = []
        free_slots: dict[int, list[str]] = {}
        rows_by_last_use: dict[int, list[str]] = {}
        for position, step in enumerate(self.steps):
            if step.result and _is_row_type(step.result_kind):
                row_bytes = _vector_bytes(step.result_kind)
                size_slots = free_slots.setdefault(row_bytes, [])
                if not size_slots:
                    size_slots.append(f"%row.{len(alloca_lines)}")
                    alloca_lines.append(f"  %row.{len(alloca_lines)} = alloca [{row_bytes} x i8], align 64")
                slot_by_row[step.result] = size_slots.pop()
                rows_by_last_use.setdefault(last_uses.get(step.result, position), []).append(step.result)
            for name in rows_by_last_use.pop(position, ()):
                free_slots[_vector_bytes(self.row_kinds[name])].append(slot_by_row[name])
        return slot_by_row, alloca_lines

    def _resolve_phis(self) -> None:
        """Replace the incoming values of phi instructions by their rows, because all names are known now."""
        phis = {step.result for step in self.steps if step.incoming_rows}
        for step in self.steps:
            if not step.incoming_rows:
                continue
            for value, _ in step.incoming_rows:
                value.value = self.aliases.get(value.value, value.value)
                if value.value[0] != "%":
                    value.value = self.row_functions.add_constant(value.kind, value.value)
                elif value.value not in self.row_kinds or value.value in phis - {step.result}:
                    raise UnreadableLineError(step.result)

    def _make_step_lines(
        self, step: _LineStep, slot_by_row: dict[str, str], phi_copies: list[str]
    ) -> list[str]:
        if step.text:
            return self._rewrite_far_calls(step.text) if " call " in step.text else [step.text]
        if step.incoming_rows:
            incoming_pointers = ", ".join(
                f"[{self._find_row_pointer(value, slot_by_row)}, %{label}]"
                for value, label in step.incoming_rows
            )
            copy_function = self.row_functions.add_function(
                f"load {step.result_kind}, ptr {{0}}, align 64", [("ptr", "plain")], step.result_kind
            )
            phi_copies += self._rewrite_far_calls(
                f"  call void @{copy_function}(ptr {slot_by_row[step.result]}, ptr {step.result}.p)"
            )
            return [f"  {step.result}.p = phi ptr {incoming_pointers}"]
        name = self.row_functions.add_function(
            step.template,
            [(step_operand.kind, step_operand.passing_mode) for step_operand in step.operands],
            step.result_kind,
        )
        arguments = (
            [f"ptr {slot_by_row[step.result]}"] if step.result and _is_row_type(step.result_kind) else []
        )
        for operand in step.operands:
            argument_type = {"row": "ptr", "mask": "i32", "plain": operand.kind}.get(
                operand.passing_mode
            ) or _element_type(operand.kind)
            value = (
                self._find_row_pointer(operand, slot_by_row)
                if operand.passing_mode == "row"
                else operand.value
            )
            arguments.append(f"{argument_type} {value}")
        return_kind = (
            "void" if step.result_kind == "void" or _is_row_type(step.result_kind) else step.result_kind
        )
        return_kind = "i32" if return_kind == MASK else return_kind
        call_text = f"call {return_kind} @{name}({', '.join(arguments)})"
        return self._rewrite_far_calls(
            f"  {step.result} = {call_text}" if return_kind != "void" else f"  {call_text}"
        )

    def _find_row_pointer(self, operand: _Operand, slot_by_row: dict[str, str]) -> str:
        return slot_by_row[operand.value] if operand.value[0] == "%" else operand.value

    def _find_last_uses(self) -> dict[str, int]:
        """Return the last use of each row, also in loops; basic blocks of PTX have no rows in common."""
        step_by_label: dict[str, int] = {}
        last_steps: dict[str, int] = {}  # the last step after each label
        block_numbers: list[int] = []
        block_number = 0
        label = ""
        for position, step in enumerate(self.steps):
            if step.text.endswith(":"):
                label = step.text[:-1]
                step_by_label[label] = position
                block_number += _BLOCK_PATTERN.fullmatch(label) is not None
            block_numbers.append(block_number)
            last_steps[label] = position
        defining_steps = {
            step.result: position
            for position, step in enumerate(self.steps)
            if step.result and _is_row_type(step.result_kind)
        }
        last_uses = dict(defining_steps)
        for position, step in enumerate(self.steps):
            for operand in step.operands:
                if operand.value in defining_steps:
                    last_uses[operand.value] = max(last_uses[operand.value], position)
            for operand, label in step.incoming_rows:
                if operand.value in defining_steps:
                    last_uses[operand.value] = max(last_uses[operand.value], position, last_steps[label])
        loop_ranges = sorted(
            (position, step_by_label[target_label])
            for position, step in enumerate(self.steps)
            if step.text and "label %" in step.text
            for target_label in _TARGET_PATTERN.findall(step.text)
            if step_by_label[target_label] <= position
            and block_numbers[step_by_label[target_label]] == block_numbers[position]
        )
        for loop_end, loop_begin in loop_ranges:  # inner ones first
            for name, definition in defining_steps.items():
                is_loop_phi = loop_begin <= definition <= loop_end and self.steps[definition].incoming_rows
                if (definition < loop_begin <= last_uses[name] or is_loop_phi) and last_uses[name] < loop_end:
                    last_uses[name] = loop_end
        for name, definition in defining_steps.items():
            if block_numbers[definition] != block_numbers[last_uses[name]]:
                raise UnreadableLineError(name)
        return last_uses


def rewrite_by_address(text: list[str], row_functions: RowFunctions) -> list[str]:
    """Rewrite the lines of a warp function so that it keeps its rows of lanes in memory.

    Raises
    ------
    UnreadableLineError
        At a line that is not known here.
    """
    warp_function = _WarpFunction(text, row_functions)
    warp_function.parse_lines()
    return warp_function.make_lines()

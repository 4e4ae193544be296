"""Checks of parsed PTX: the number of operands of each instruction, their kinds, widths and types.

Instructions that are not in the table pass; the virtual GPU reports unsupported ones later. Widths
follow PTX ISA 8.x, chapters 9.4 (operands of loads, stores and conversions may be wider than their
type) and 9.7.
"""

from __future__ import annotations

from collections.abc import Sequence

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.operands import (
    COMPARISONS,
    CONVERTIBLE_TYPES,
    FLOAT_COMPARISONS,
    FLOAT_TYPES,
    INTEGER_TYPES,
    OPERANDS_BY_ROOT,
    TYPE_BITS,
    TYPED_OPERAND_CODES,
    UNSIGNED_COMPARISONS,
    WIDER_REGISTER_ROOTS,
)
from virtualgpu.errors import PtxError


def check_module(module: ir.Module) -> None:
    """Check every instruction of a PTX module, and raise an error for the first one with wrong operands.

    Raises
    ------
    PtxError
        For the first instruction with wrong operands, or a variable that points to an unknown name.
    """
    for variable in module.variables.values():
        for offset, pointer in variable.pointers:
            _check_pointer(module, variable, offset, pointer)
    for function in module.functions.values():
        function_checker = _FunctionChecker(module, function)
        for instruction in function.instructions:
            function_checker.check_instruction(instruction)


def _check_pointer(module: ir.Module, variable: ir.Variable, offset: int, pointer: ir.Symbol) -> None:
    target_variable = module.variables.get(pointer.name)
    is_known_target = (
        target_variable.space in ("global", "const") if target_variable else pointer.name in module.functions
    )
    if not is_known_target or offset + 8 > variable.size_bytes:
        raise PtxError(f"The variable {variable.name} cannot hold the address of {pointer.name}.")


class _FunctionChecker:
    def __init__(self, module: ir.Module, function: ir.Function) -> None:
        self.module = module
        self.function = function
        self.current_instruction: ir.Instruction | None = None

    def make_error(self, problem: str) -> PtxError:
        instruction = self.current_instruction
        assert instruction is not None
        location = f" (line {instruction.line})" if instruction.line else ""
        return PtxError(f"{instruction.text!r} in {self.function.name}{location}: {problem}.")

    def check_instruction(self, instruction: ir.Instruction) -> None:
        self.current_instruction = instruction
        for operand in instruction.operands:
            self.check_declaration(operand)
        if instruction.guard is not None and self.function.registers.get(instruction.guard) != "pred":
            raise self.make_error(f"the guard {instruction.guard} is not a predicate")
        special_check = _SPECIAL_CHECKS.get(instruction.root)
        if special_check is not None:
            special_check(self, instruction)
            return
        if instruction.root not in OPERANDS_BY_ROOT or self.has_lop3_operation(instruction):
            return
        operand_codes, allowed_types = OPERANDS_BY_ROOT[instruction.root]
        type_name = next((p for p in reversed(instruction.parts[1:]) if p in TYPE_BITS), "")
        if TYPED_OPERAND_CODES & set(operand_codes):
            if not type_name:
                raise self.make_error("the type of the instruction is missing")
            if type_name not in allowed_types:
                raise self.make_error(f"the instruction does not take the type .{type_name}")
        if "wide" in instruction.parts and instruction.root in ("mul", "mad"):
            if type_name not in INTEGER_TYPES or TYPE_BITS[type_name] == 64:
                raise self.make_error(f"the instruction does not take the type .{type_name}")
            operand_codes = "Wss" if instruction.root == "mul" else "Wssw"
        if instruction.root == "setp":
            self.check_comparison(instruction.parts[1], type_name, instruction.parts[2:])
        self.check_operands(instruction, operand_codes, type_name)

    @staticmethod
    def has_lop3_operation(instruction: ir.Instruction) -> bool:
        """Return whether an instruction is ``lop3`` with a Boolean operation, which is not supported."""
        return instruction.root == "lop3" and len(instruction.parts) > 2

    def check_declaration(self, operand: ir.Operand | None) -> None:
        if isinstance(operand, ir.Register):
            if operand.name not in self.function.registers:
                raise self.make_error(f"the register {operand.name} is not declared")
        elif isinstance(operand, ir.Address):
            self.check_declaration(operand.base)
        elif isinstance(operand, ir.Vector):
            for item in operand.items:
                self.check_declaration(item)
        elif isinstance(operand, ir.Pair):
            self.check_declaration(operand.first)
            self.check_declaration(operand.second)
        elif isinstance(operand, ir.Special):
            register_stem, _, axis = operand.name.partition(".")
            if register_stem in ("%tid", "%ntid", "%ctaid", "%nctaid") and axis not in ("x", "y", "z"):
                raise self.make_error(f"the special register {operand.name} does not exist")

    def check_operands(self, instruction: ir.Instruction, operand_codes: str, type_name: str) -> None:
        required_codes, _, optional_codes = operand_codes.partition("?")
        if not len(required_codes) <= len(instruction.operands) <= len(required_codes) + len(optional_codes):
            raise self.make_error(
                f"the instruction takes {len(required_codes)} operands, not {len(instruction.operands)}"
            )
        allows_wider = instruction.root in WIDER_REGISTER_ROOTS
        for operand_code, operand in zip(required_codes + optional_codes, instruction.operands, strict=False):
            self.check_operand(operand_code, operand, type_name, instruction, allows_wider)

    def check_operand(
        self,
        operand_code: str,
        operand: ir.Operand | None,
        type_name: str,
        instruction: ir.Instruction,
        allows_wider: bool,
    ) -> None:
        if operand_code == "d":
            self.check_destination(operand, type_name, allows_wider)
        elif operand_code == "s":
            self.check_source(operand, type_name, allows_wider)
        elif operand_code in "Du":
            check_register = self.check_destination if operand_code == "D" else self.check_source
            check_register(operand, "b32", False)
        elif operand_code in "Ww":
            double_width_type = f"b{2 * TYPE_BITS[type_name]}"
            check_register = self.check_destination if operand_code == "W" else self.check_source
            check_register(operand, double_width_type, False)
        elif operand_code == "P" or (operand_code == "Q" and not isinstance(operand, ir.Pair)):
            self.check_destination(operand, "pred", False)
        elif operand_code == "Q":
            assert isinstance(operand, ir.Pair)
            self.check_destination(operand.first, "pred", False)
            self.check_destination(operand.second, "pred", False)
        elif operand_code == "p":
            self.check_source(operand, "pred", False)
        elif operand_code == "i":
            if not isinstance(operand, ir.Immediate):
                raise self.make_error("a constant is missing")
        elif operand_code == "m":
            self.check_address(operand)
        elif operand_code in "vV":
            self.check_elements(operand, type_name, instruction, operand_code == "v")

    def check_address(self, operand: ir.Operand | None) -> None:
        if not isinstance(operand, ir.Address):
            raise self.make_error("an address in brackets is missing")
        if isinstance(operand.base, ir.Register):
            register_type = self.function.registers[operand.base.name]
            if TYPE_BITS[register_type] not in (32, 64) or operand.base.negated:
                raise self.make_error(f"{operand.base.name} ({register_type}) is not an address")

    def check_elements(
        self, operand: ir.Operand | None, type_name: str, instruction: ir.Instruction, is_load: bool
    ) -> None:
        """Check the number and types of the registers that a load writes or a store reads."""
        element_count = next((int(p[1:]) for p in instruction.parts[1:] if p in ("v2", "v4", "v8")), 1)
        elements = operand.items if isinstance(operand, ir.Vector) else (operand,)
        if len(elements) != element_count:
            raise self.make_error(
                f"the instruction moves {element_count} elements, but its operand has {len(elements)}"
            )
        for element in elements:
            if is_load:
                self.check_destination(element, type_name, True)
            else:
                self.check_source(element, type_name, True)

    def check_destination(self, operand: ir.Operand | None, type_name: str, allows_wider: bool) -> None:
        if operand is None:
            return
        if not isinstance(operand, ir.Register) or operand.negated:
            raise self.make_error("the result must be written to a register")
        self.check_width(operand, type_name, allows_wider)

    def check_source(self, operand: ir.Operand | None, type_name: str, allows_wider: bool) -> None:
        if isinstance(operand, ir.Register):
            if operand.negated and type_name != "pred":
                raise self.make_error(
                    f"only predicates can be negated, and {operand.name} is not a predicate"
                )
            self.check_width(operand, type_name, allows_wider)
        elif isinstance(operand, ir.Immediate):
            if type_name in ("f32", "f64") and not operand.float_bits:
                raise self.make_error(f"{operand.value} is not a floating-point constant")
            if type_name == "pred" and operand.float_bits:
                raise self.make_error("a floating-point constant is not a predicate")
        elif isinstance(operand, ir.Symbol):
            if type_name in FLOAT_TYPES or TYPE_BITS[type_name] < 32:
                raise self.make_error(f"{operand.name} is an address, not a .{type_name}")
        elif not isinstance(operand, ir.Special) or type_name == "pred":
            raise self.make_error("an operand is missing or has the wrong kind")

    def check_width(self, register: ir.Register, type_name: str, allows_wider: bool) -> None:
        register_type = self.function.registers[register.name]
        register_bits = TYPE_BITS[register_type]
        type_bits = TYPE_BITS[type_name]
        is_wide_enough = register_bits >= type_bits if allows_wider else register_bits == type_bits
        if (register_type == "pred") != (type_name == "pred") or not is_wide_enough:
            raise self.make_error(
                f"{register.name} is declared .{register_type}, which is not a .{type_name}"
            )
        is_float = type_name in ("f32", "f64")
        is_integer = type_name[0] in "us"
        if not allows_wider and (
            (is_float and register_type[0] in "us") or (is_integer and register_type in ("f32", "f64"))
        ):
            raise self.make_error(
                f"{register.name} is declared .{register_type}, which is not a .{type_name}"
            )

    def check_comparison(self, comparison_name: str, type_name: str, modifiers: Sequence[str]) -> None:
        comparisons = COMPARISONS | (FLOAT_COMPARISONS if type_name in FLOAT_TYPES else UNSIGNED_COMPARISONS)
        if comparison_name not in comparisons:
            raise self.make_error(f"values of type .{type_name} cannot be compared with .{comparison_name}")
        combines_predicate = any(p in ("and", "or", "xor") for p in modifiers)
        assert self.current_instruction is not None
        if combines_predicate != (len(self.current_instruction.operands) == 4):
            raise self.make_error(
                "the predicate that is combined with the comparison is missing, or is not allowed here"
            )

    # -- instructions with special rules -------------------------------------------------------------

    def find_last_types(self, instruction: ir.Instruction) -> tuple[str, str]:
        type_names = instruction.parts[-2:]
        if len(instruction.parts) < 3 or not all(
            type_name in TYPE_BITS and type_name != "pred" for type_name in type_names
        ):
            raise self.make_error("the instruction needs two types")
        return type_names[0], type_names[1]

    def check_conversion(self, instruction: ir.Instruction) -> None:
        if any(p.startswith(("e4m3", "e5m2", "e2m", "e3m", "tf32", "ue8", "s2f")) for p in instruction.parts):
            self.check_narrow_conversion(instruction)
            return
        if "pack" in instruction.parts:
            return  # the virtual GPU refuses it
        target_type, source_type = self.find_last_types(instruction)
        is_packing = target_type in ("f16x2", "bf16x2") and source_type == "f32"
        if len(instruction.operands) != (3 if is_packing else 2):
            raise self.make_error(
                f"the instruction takes {3 if is_packing else 2} operands, not {len(instruction.operands)}"
            )
        if not is_packing and not {target_type, source_type} <= CONVERTIBLE_TYPES:
            raise self.make_error(f"there is no conversion from .{source_type} to .{target_type}")
        self.check_destination(instruction.operands[0], target_type, True)
        for operand in instruction.operands[1:]:
            self.check_source(operand, source_type, True)

    def check_narrow_conversion(self, instruction: ir.Instruction) -> None:
        """Check a conversion to or from one of the narrow tensor-core types that virtualgpu supports."""
        register_types = {"e4m3x2": "b16", "e5m2x2": "b16", "tf32": "b32", "f32": "f32", "f16x2": "b32"}
        target_type, source_type = instruction.parts[-2:]
        if {target_type, source_type} <= register_types.keys():
            operand_count = 3 if register_types[target_type] == "b16" and source_type == "f32" else 2
            if len(instruction.operands) != operand_count:
                raise self.make_error(
                    f"the instruction takes {operand_count} operands, not {len(instruction.operands)}"
                )
            self.check_destination(instruction.operands[0], register_types[target_type], False)
            for operand in instruction.operands[1:]:
                self.check_source(operand, register_types[source_type], False)

    def check_set(self, instruction: ir.Instruction) -> None:
        target_type, source_type = self.find_last_types(instruction)
        if source_type in ("f16x2", "bf16x2"):
            return
        if TYPE_BITS[target_type] not in (16, 32) or source_type not in INTEGER_TYPES | FLOAT_TYPES:
            raise self.make_error(
                f"the instruction does not take the types .{target_type} and .{source_type}"
            )
        self.check_set_comparison(instruction, source_type)
        self.check_destination(instruction.operands[0], target_type, False)
        for operand in instruction.operands[1:3]:
            self.check_source(operand, source_type, False)
        if len(instruction.operands) == 4:
            self.check_source(instruction.operands[3], "pred", False)

    def check_set_comparison(self, instruction: ir.Instruction, source_type: str) -> None:
        if len(instruction.operands) not in (3, 4):
            raise self.make_error(f"the instruction takes 3 or 4 operands, not {len(instruction.operands)}")
        self.check_comparison(instruction.parts[1], source_type, instruction.parts[2:])

    def check_slct(self, instruction: ir.Instruction) -> None:
        type_name, test_type = self.find_last_types(instruction)
        if test_type not in ("s32", "f32") or type_name not in INTEGER_TYPES | {"f32", "f64"}:
            raise self.make_error(f"the instruction does not take the types .{type_name} and .{test_type}")
        self.check_operands(instruction, "dssa", type_name)
        self.check_source(instruction.operands[3], test_type, False)

    def check_move(self, instruction: ir.Instruction) -> None:
        type_name = instruction.type
        if type_name not in INTEGER_TYPES | {"pred", "f32", "f64", "b128"}:
            raise self.make_error(
                "the type of the instruction is missing"
                if type_name not in TYPE_BITS
                else f"the instruction does not take the type .{type_name}"
            )
        if len(instruction.operands) != 2:
            raise self.make_error(f"the instruction takes 2 operands, not {len(instruction.operands)}")
        target_operand, source_operand = instruction.operands
        for operand in (target_operand, source_operand):
            if isinstance(operand, ir.Vector):
                self.check_vector_parts(operand, type_name, operand is target_operand)
        if isinstance(target_operand, ir.Vector) and isinstance(source_operand, ir.Vector):
            raise self.make_error("one operand of the instruction must be a single register")
        if not isinstance(target_operand, ir.Vector):
            self.check_destination(target_operand, type_name, False)
        if not isinstance(source_operand, ir.Vector):
            self.check_source(source_operand, type_name, False)

    def check_vector_parts(self, operand: ir.Vector, type_name: str, is_destination: bool) -> None:
        element_count = len(operand.items)
        if element_count not in (2, 4) or TYPE_BITS[type_name] % (8 * element_count):
            raise self.make_error(f"a .{type_name} cannot be divided into {element_count} parts")
        element_type = f"b{TYPE_BITS[type_name] // element_count}"
        for element in operand.items:
            if is_destination:
                self.check_destination(element, element_type, False)
            else:
                self.check_source(element, element_type, False)

    def check_shuffle(self, instruction: ir.Instruction) -> None:
        if not any(p in ("up", "down", "bfly", "idx") for p in instruction.parts):
            raise self.make_error("the direction of the shuffle is missing")
        self.check_result_pair(instruction)
        required_operands = 5 if "sync" in instruction.parts else 4
        if len(instruction.operands) != required_operands:
            raise self.make_error(
                f"the instruction takes {required_operands} operands, not {len(instruction.operands)}"
            )
        for operand in instruction.operands[1:]:
            self.check_source(operand, "b32", False)

    def check_result_pair(self, instruction: ir.Instruction) -> None:
        destination = instruction.operands[0] if instruction.operands else None
        if isinstance(destination, ir.Pair):
            self.check_destination(destination.second, "pred", False)
            destination = destination.first
        self.check_destination(destination, "b32", False)

    def check_atomic(self, instruction: ir.Instruction) -> None:
        type_name = instruction.type
        vector_length = next((int(p[1:]) for p in instruction.parts[1:] if p in ("v2", "v4", "v8")), 1)
        if type_name not in TYPE_BITS or type_name == "pred":
            raise self.make_error("the type of the instruction is missing")
        if vector_length > 1 and (
            type_name not in _VECTOR_ATOMIC_TYPES or vector_length * TYPE_BITS[type_name] > 128
        ):
            raise self.make_error(f"no atomic operation has the type .v{vector_length}.{type_name}")
        result_count = 1 if instruction.root == "atom" else 0
        value_count = 2 if "cas" in instruction.parts else 1
        required_operands = result_count + 1 + value_count
        if (
            not required_operands
            <= len(instruction.operands)
            <= required_operands + ("L2::cache_hint" in instruction.parts)
        ):
            raise self.make_error(
                f"the instruction takes {required_operands} operands, not {len(instruction.operands)}"
            )
        if result_count:
            for element in self.list_elements(instruction.operands[0], vector_length):
                self.check_destination(element, type_name, False)
        self.check_address(instruction.operands[result_count])
        for operand in instruction.operands[result_count + 1 : required_operands]:
            for element in self.list_elements(operand, vector_length):
                self.check_source(element, type_name, False)

    def list_elements(self, operand: ir.Operand | None, width: int) -> tuple[ir.Operand | None, ...]:
        elements = operand.items if width > 1 and isinstance(operand, ir.Vector) else (operand,)
        if len(elements) != width:
            raise self.make_error(f"the instruction takes {width} elements, not {len(elements)}")
        return elements

    def check_vote(self, instruction: ir.Instruction) -> None:
        if not any(p in ("all", "any", "uni", "ballot") for p in instruction.parts):
            raise self.make_error("the mode of the vote is missing")
        required_operands = 3 if "sync" in instruction.parts else 2
        if len(instruction.operands) != required_operands:
            raise self.make_error(
                f"the instruction takes {required_operands} operands, not {len(instruction.operands)}"
            )
        self.check_destination(
            instruction.operands[0], "b32" if "ballot" in instruction.parts else "pred", False
        )
        self.check_source(instruction.operands[1], "pred", False)
        if required_operands == 3:
            self.check_source(instruction.operands[2], "b32", False)

    def check_match(self, instruction: ir.Instruction) -> None:
        if instruction.type not in ("b32", "b64") or not any(p in ("any", "all") for p in instruction.parts):
            raise self.make_error("the instruction takes .any or .all, and .b32 or .b64")
        if len(instruction.operands) != 3:
            raise self.make_error(f"the instruction takes 3 operands, not {len(instruction.operands)}")
        self.check_result_pair(instruction)
        self.check_source(instruction.operands[1], instruction.type, False)
        self.check_source(instruction.operands[2], "b32", False)

    @staticmethod
    def pop_operand_list(operands: list[ir.Operand | None]) -> tuple[ir.Operand | None, ...]:
        """Remove the first operand if it is a list in braces or parentheses, and return its items."""
        list_operand = operands[0] if operands else None
        if not isinstance(list_operand, ir.Vector):
            return ()
        operands.pop(0)
        return list_operand.items

    def check_call(self, instruction: ir.Instruction) -> None:
        operands = list(instruction.operands)
        results = self.pop_operand_list(operands)
        if not operands:
            raise self.make_error("the called function is missing")
        callee = operands.pop(0)
        arguments = self.pop_operand_list(operands)
        if not isinstance(callee, ir.Symbol) or callee.name not in self.module.functions:
            return
        function = self.module.functions[callee.name]
        if function.is_entry:
            raise self.make_error(f"{callee.name} is a kernel, not a device function")
        for list_role, actual_operands, expected_params in (
            ("arguments", arguments, function.params),
            ("results", results, function.returns),
        ):
            if len(actual_operands) != len(expected_params):
                raise self.make_error(
                    f"{callee.name} has {len(expected_params)} {list_role}, not {len(actual_operands)}"
                )


_VECTOR_ATOMIC_TYPES = {"f16", "f16x2", "bf16", "bf16x2", "f32"}
_SPECIAL_CHECKS = {
    "atom": _FunctionChecker.check_atomic,
    "red": _FunctionChecker.check_atomic,
    "cvt": _FunctionChecker.check_conversion,
    "set": _FunctionChecker.check_set,
    "slct": _FunctionChecker.check_slct,
    "mov": _FunctionChecker.check_move,
    "shfl": _FunctionChecker.check_shuffle,
    "vote": _FunctionChecker.check_vote,
    "match": _FunctionChecker.check_match,
    "call": _FunctionChecker.check_call,
}

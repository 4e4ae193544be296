"""Fusion of multiplications and additions as in ptxas: ``mul`` and ``add`` become one ``fma``.

Only instructions without a rounding mode are fused.

PTX allows it (ISA 9.7.3, "an add instruction with no rounding modifier may be contracted"), and NVVM leaves
pairs that it could have fused itself: products used by several sums, sums of two products, inline assembly.
The choice of ptxas affects a result's last bits. Its rule was found with thousands of random kernels compiled
by ptxas 13.0 and 13.5 (sm_75 to sm_120). It is the same for f64, f32, f16, bf16 and their pairs:

* A product is fused into the sums that use it if it is used by nothing else, all of them are in its basic
  block (labels and branches end one, barriers do not), and they flush subnormals as it does. A product by
  a literal or a kernel parameter, whose fusion keeps no further register alive, may be in an earlier block.
* First products with one use are fused, then the others, sum by sum in program order. Of two products in
  one sum, the one with fewer uses is fused, the first of equals. A fused use no longer counts, and a sum that
  became an ``fma`` counts as another use of its addend.

A product that is not fused into all its sums stays. ``-fmad=false``, ``__fmul_rn`` and ``__fadd_rn`` generate
``mul.rn`` and ``add.rn``, which are not fused.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg

NEGATED_PRODUCT = "neg_product"
NEGATED_ADDEND = "neg_addend"
"""Parts of a fused instruction that PTX's own ``fma`` does not have: ``c - a * b`` and ``a * b - c``."""

_FLOAT_TYPES = {"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"}
_ROUNDING_MODES = {"rn", "rz", "rm", "rp"}
_CONTROL_FLOW_ROOTS = {"bra", "brx", "ret", "exit", "trap"}


def contract_products(module: ir.Module) -> ir.Module:
    """Return a PTX module in which ``fma`` replaces each addition or subtraction that ptxas fuses with a
    multiplication.

    Instruction numbers and texts do not change, and a multiplication remains if other instructions use its
    result.
    """
    functions = {name: _contract_function(function) for name, function in module.functions.items()}
    return dataclasses.replace(module, functions=functions)


def _contract_function(function: ir.Function) -> ir.Function:
    fusions = find_fusions(function)
    if not fusions:
        return function
    instructions = list(function.instructions)
    for sum_index, (product_index, operand_index) in fusions.items():
        instructions[sum_index] = _make_fused_instruction(
            instructions[sum_index], instructions[product_index], operand_index
        )
    return dataclasses.replace(function, instructions=instructions)


def find_fusions(function: ir.Function) -> dict[int, tuple[int, int]]:
    """Return a dictionary with the index of each addition that ptxas fuses. The values are the index of the
    multiplication and the position (0 or 1) of the product among the summands.
    """
    root_by_pc = {
        instruction.pc: instruction.root for instruction in function.instructions if _is_fusible(instruction)
    }
    found_roots = set(root_by_pc.values())
    return (
        _FusionChooser(function, root_by_pc).choose_fusions()
        if "mul" in found_roots and len(found_roots) > 1
        else {}
    )


def _is_fusible(instruction: ir.Instruction) -> bool:
    """Return whether an instruction multiplies or adds without a rounding mode, so that it may be fused."""
    return (
        instruction.root in ("add", "sub", "mul")
        and instruction.type in _FLOAT_TYPES
        and _ROUNDING_MODES.isdisjoint(instruction.parts)
    )


class _FusionChooser:
    def __init__(self, function: ir.Function, operation_kinds: dict[int, str]) -> None:
        self.instructions = function.instructions
        self.sum_indices = [pc for pc, operation_kind in operation_kinds.items() if operation_kind != "mul"]
        self.unfused_sums = {pc for pc in self.sum_indices if len(set(self._list_summands(pc))) == 2}
        self.block_numbers = _number_blocks(self.instructions)
        self.writer_pcs: defaultdict[str, list[int]] = defaultdict(list)
        self.reader_pcs: defaultdict[str, list[int]] = defaultdict(list)
        for instruction in self.instructions:
            defined_names, used_names = cfg.find_definitions_and_uses(instruction)
            for name in defined_names:
                self.writer_pcs[name].append(instruction.pc)
            for name in used_names:
                self.reader_pcs[name].append(instruction.pc)
        self.literal_registers, self.constant_registers = self._find_constant_registers()
        self.product_registers = {
            self.writer_pcs[name][0]: name
            for pc, operation_kind in operation_kinds.items()
            if operation_kind == "mul"
            and (name := self._find_only_destination(pc))
            and self._is_fusible_product(self.instructions[pc])
        }
        self.product_use_counts = {
            name: len(self.reader_pcs[name]) for name in self.product_registers.values()
        }

    def choose_fusions(self) -> dict[int, tuple[int, int]]:
        fusions: dict[int, tuple[int, int]] = {}
        for max_uses in (1, len(self.instructions)):
            for sum_index in self.sum_indices:
                if sum_index not in self.unfused_sums:
                    continue
                fusion_candidates = [
                    (self.product_use_counts[name], operand_index, product_index)
                    for operand_index, name in enumerate(self._list_summands(sum_index))
                    if (product_index := self._find_product(name)) >= 0
                    and len(self.reader_pcs[name]) <= max_uses
                    and all(self._can_fuse(reader_pc, product_index) for reader_pc in self.reader_pcs[name])
                ]
                if fusion_candidates:
                    _, operand_index, product_index = min(fusion_candidates)
                    self.reader_pcs[self.product_registers[product_index]].remove(sum_index)
                    self.unfused_sums.remove(sum_index)
                    fusions[sum_index] = product_index, operand_index
        return fusions

    def _find_only_destination(self, pc: int) -> str:
        """Return the destination register of an instruction if no other instruction writes it, else ""."""
        destination = self.instructions[pc].operands[0]
        if not isinstance(destination, ir.Register) or self.instructions[pc].guard:
            return ""
        return destination.name if len(self.writer_pcs[destination.name]) == 1 else ""

    def _is_fusible_product(self, mul: ir.Instruction) -> bool:
        """Return whether a multiplication has a factor that is not constant, and does not saturate."""
        factors = mul.operands[1:3]
        is_constant = all(
            not isinstance(factor, ir.Register) or factor.name in self.literal_registers for factor in factors
        )
        return not is_constant and "sat" not in mul.parts

    def _list_summands(self, pc: int) -> list[str]:
        """Return the names of the two summands of a sum; constants get names that no register has."""
        return [
            operand.name if isinstance(operand, ir.Register) else f"={n}"
            for n, operand in enumerate(self.instructions[pc].operands[1:3])
        ]

    def _find_product(self, name: str) -> int:
        writer_indices = self.writer_pcs.get(name, ())
        return (
            writer_indices[0]
            if len(writer_indices) == 1 and writer_indices[0] in self.product_registers
            else -1
        )

    def _can_fuse(self, sum_index: int, product_index: int) -> bool:
        """Return whether the instruction at `sum_index` is a sum that may be fused with this product."""
        i = self.instructions[sum_index]
        mul = self.instructions[product_index]
        if (
            sum_index not in self.unfused_sums
            or i.type != mul.type
            or ("ftz" in i.parts) != ("ftz" in mul.parts)
        ):
            return False
        factors = [operand.name for operand in mul.operands[1:3] if isinstance(operand, ir.Register)]
        if self.block_numbers[sum_index] == self.block_numbers[product_index]:
            return product_index < sum_index and not any(
                product_index < writer_pc < sum_index
                for factor_name in factors
                for writer_pc in self.writer_pcs[factor_name]
            )
        has_constant_factor = len(factors) < 2 or not self.constant_registers.isdisjoint(factors)
        return has_constant_factor and all(len(self.writer_pcs[factor]) == 1 for factor in factors)

    def _find_constant_registers(self) -> tuple[set[str], set[str]]:
        """Return the registers that contain only literals, and the registers that contain only literals or
        kernel parameters.
        """
        literal_registers: set[str] = set()
        param_registers: set[str] = set()
        for instruction in self.instructions:
            destination = next(iter(instruction.operands), None)
            if instruction.root == "ld" and "param" in instruction.parts:
                param_registers.update(cfg.find_definitions_and_uses(instruction)[0])
            elif (
                instruction.root == "mov"
                and isinstance(destination, ir.Register)
                and len(self.writer_pcs[destination.name]) == 1
            ):
                source_operand = instruction.operands[1]
                name = source_operand.name if isinstance(source_operand, ir.Register) else ""
                if isinstance(source_operand, ir.Immediate) or name in literal_registers:
                    literal_registers.add(destination.name)
                elif name in param_registers:
                    param_registers.add(destination.name)
        constant_params = {name for name in param_registers if len(self.writer_pcs[name]) == 1}
        return literal_registers, literal_registers | constant_params


def _number_blocks(instructions: list[ir.Instruction]) -> list[int]:
    """Return the number of the basic block of each instruction, with blocks divided as in ptxas."""
    block_starts = {0}
    for instruction in instructions:
        if instruction.root in _CONTROL_FLOW_ROOTS:
            block_starts |= {instruction.target, *instruction.targets, instruction.pc + 1}
    block_number = -1
    block_numbers = []
    for pc in range(len(instructions)):
        block_number += pc in block_starts
        block_numbers.append(block_number)
    return block_numbers


def _make_fused_instruction(
    instruction: ir.Instruction, mul: ir.Instruction, operand_index: int
) -> ir.Instruction:
    """Return the ``fma`` instruction that replaces a sum, from a product and the sum's other operand."""
    modifiers = tuple(modifier for modifier in instruction.parts[1:-1] if modifier in ("ftz", "sat"))
    sign_modifiers: tuple[str, ...] = ()
    if instruction.root == "sub":
        sign_modifiers = (NEGATED_ADDEND,) if operand_index == 0 else (NEGATED_PRODUCT,)
    return dataclasses.replace(
        instruction,
        opcode=".".join(("fma", "rn", *modifiers, instruction.type)),
        parts=("fma", "rn", *modifiers, *sign_modifiers, instruction.type),
        operands=(
            instruction.operands[0],
            mul.operands[1],
            mul.operands[2],
            instruction.operands[2 - operand_index],
        ),
    )

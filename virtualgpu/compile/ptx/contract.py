"""Products and sums that ptxas fuses: ``mul`` and ``add`` without a rounding mode become one ``fma``.

PTX allows it (ISA 9.7.3, "an add instruction with no rounding modifier may be contracted"), and NVVM leaves
pairs that it could have fused itself: products of several sums, sums of two products, inline assembly.
Which of them ptxas fuses decides a result's last bits. Its rule, found by asking ptxas 13.0 and 13.5 for
thousands of random kernels (sm_75 to sm_120) and the same for f64, f32, f16, bf16 and their pairs:

* A product is fused into the sums that use it if it is used by nothing else, all of them are in its basic
  block (labels and branches end one, barriers do not), and they flush subnormals as it does. A product by
  a literal or a kernel parameter, whose fusion keeps no further register alive, may be in an earlier block.
* First products with one use take their sum, then the others, sum by sum in program order. Of two
  products in one sum, the one with fewer uses is fused, the first if that is equal. What was fused counts
  as no use any more, and a sum that became an ``fma`` counts as another use of what it adds.

A product whose sums did not all take it stays. ``-fmad=false``, ``__fmul_rn`` and ``__fadd_rn`` write
``mul.rn`` and ``add.rn``, which stay apart.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg

NEGATED_PRODUCT = "neg_product"
NEGATED_ADDEND = "neg_addend"
"""Parts of a fused instruction that PTX's own ``fma`` does not have: ``c - a * b`` and ``a * b - c``."""

_FLOATS = {"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"}
_ROUNDED = {"rn", "rz", "rm", "rp"}
_MOVES = {"bra", "brx", "ret", "exit", "trap"}


def contract(module: ir.Module) -> ir.Module:
    """The module with every ``add`` and ``sub`` that ptxas fuses with a product as an ``fma``.

    Instructions keep their number and text; the products stay where they are, for those who read them.
    """
    changed = {name: _contracted(function) for name, function in module.functions.items()}
    return dataclasses.replace(module, functions=changed)


def _contracted(function: ir.Function) -> ir.Function:
    fused = fusions(function)
    if not fused:
        return function
    code = list(function.instructions)
    for at, (product, place) in fused.items():
        code[at] = _fma(code[at], code[product], place)
    return dataclasses.replace(function, instructions=code)


def fusions(function: ir.Function) -> dict[int, tuple[int, int]]:
    """For each sum that ptxas fuses: the index of the product, and which operand of the sum (0, 1) it is."""
    kinds = {i.pc: i.root for i in function.instructions if _is_free(i)}
    there = set(kinds.values())
    return _Chooser(function, kinds).run() if "mul" in there and len(there) > 1 else {}


def _is_free(i: ir.Instruction) -> bool:
    """Whether an instruction is a product or sum that says nothing about rounding."""
    return i.root in ("add", "sub", "mul") and i.type in _FLOATS and _ROUNDED.isdisjoint(i.parts)


class _Chooser:
    def __init__(self, function: ir.Function, kinds: dict[int, str]) -> None:
        self.code = function.instructions
        self.sums = [pc for pc, kind in kinds.items() if kind != "mul"]
        self.open = {pc for pc in self.sums if len(set(self._registers(pc))) == 2}
        self.block = _blocks(self.code)
        self.written: defaultdict[str, list[int]] = defaultdict(list)
        self.read: defaultdict[str, list[int]] = defaultdict(list)
        for i in self.code:
            defined, used = cfg.definitions_and_uses(i)
            for name in defined:
                self.written[name].append(i.pc)
            for name in used:
                self.read[name].append(i.pc)
        self.literals, self.constants = self._constants()
        self.products = {
            self.written[name][0]: name
            for pc, kind in kinds.items()
            if kind == "mul" and (name := self._single(pc)) and self._is_product(self.code[pc])
        }
        self.uses = {name: len(self.read[name]) for name in self.products.values()}

    def run(self) -> dict[int, tuple[int, int]]:
        fused: dict[int, tuple[int, int]] = {}
        for most_uses in (1, len(self.code)):
            for at in self.sums:
                if at not in self.open:
                    continue
                found = [
                    (self.uses[name], place, product)
                    for place, name in enumerate(self._registers(at))
                    if (product := self._product(name)) >= 0
                    and len(self.read[name]) <= most_uses
                    and all(self._takes(user, product) for user in self.read[name])
                ]
                if found:
                    _, place, product = min(found)
                    self.read[self.products[product]].remove(at)
                    self.open.remove(at)
                    fused[at] = product, place
        return fused

    def _single(self, pc: int) -> str:
        """The register an instruction alone writes, always."""
        target = self.code[pc].operands[0]
        if not isinstance(target, ir.Register) or self.code[pc].guard:
            return ""
        return target.name if len(self.written[target.name]) == 1 else ""

    def _is_product(self, mul: ir.Instruction) -> bool:
        """Whether a product is computed, not known before, and is not clamped."""
        factors = mul.operands[1:3]
        known = all(not isinstance(o, ir.Register) or o.name in self.literals for o in factors)
        return not known and "sat" not in mul.parts

    def _registers(self, pc: int) -> list[str]:
        """What a sum adds, by register; literals and the like have names that no register has."""
        return [
            o.name if isinstance(o, ir.Register) else f"={n}"
            for n, o in enumerate(self.code[pc].operands[1:3])
        ]

    def _product(self, name: str) -> int:
        places = self.written.get(name, ())
        return places[0] if len(places) == 1 and places[0] in self.products else -1

    def _takes(self, at: int, product: int) -> bool:
        """Whether a use of a product is a sum that may be fused with it."""
        i = self.code[at]
        mul = self.code[product]
        if at not in self.open or i.type != mul.type or ("ftz" in i.parts) != ("ftz" in mul.parts):
            return False
        factors = [o.name for o in mul.operands[1:3] if isinstance(o, ir.Register)]
        if self.block[at] == self.block[product]:
            return product < at and not any(product < w < at for f in factors for w in self.written[f])
        by_constant = len(factors) < 2 or not self.constants.isdisjoint(factors)
        return by_constant and all(len(self.written[factor]) == 1 for factor in factors)

    def _constants(self) -> tuple[set[str], set[str]]:
        """Registers that only ever hold a literal, and those that hold one or a kernel parameter."""
        literals: set[str] = set()
        params: set[str] = set()
        for i in self.code:
            target = next(iter(i.operands), None)
            if i.root == "ld" and "param" in i.parts:
                params.update(cfg.definitions_and_uses(i)[0])
            elif i.root == "mov" and isinstance(target, ir.Register) and len(self.written[target.name]) == 1:
                source = i.operands[1]
                name = source.name if isinstance(source, ir.Register) else ""
                if isinstance(source, ir.Immediate) or name in literals:
                    literals.add(target.name)
                elif name in params:
                    params.add(target.name)
        once = {name for name in params if len(self.written[name]) == 1}
        return literals, literals | once


def _blocks(code: list[ir.Instruction]) -> list[int]:
    """The basic block each instruction is in, as ptxas sees them."""
    starts = {0}
    for i in code:
        if i.root in _MOVES:
            starts |= {i.target, *i.targets, i.pc + 1}
    number = -1
    out = []
    for pc in range(len(code)):
        number += pc in starts
        out.append(number)
    return out


def _fma(i: ir.Instruction, mul: ir.Instruction, place: int) -> ir.Instruction:
    """A sum as the multiply-add of a product and its other operand."""
    kept = tuple(part for part in i.parts[1:-1] if part in ("ftz", "sat"))
    signs: tuple[str, ...] = ()
    if i.root == "sub":
        signs = (NEGATED_ADDEND,) if place == 0 else (NEGATED_PRODUCT,)
    return dataclasses.replace(
        i,
        opcode=".".join(("fma", "rn", *kept, i.type)),
        parts=("fma", "rn", *kept, *signs, i.type),
        operands=(i.operands[0], mul.operands[1], mul.operands[2], i.operands[2 - place]),
    )

"""Cost of a PTX instruction on the GPU: issue slots, pipes, and the time until its result is ready.

Throughputs are those of the CUDA C++ Programming Guide, "Arithmetic Instructions" (results per clock and SM,
by compute capability). The machine instructions of each PTX instruction were counted in code for sm_90 (NVRTC
13.5 and nvdisasm). Latencies are measured with chains of one operation on an H100 (`tools.timing`) and used
for every architecture since Volta, for which published ones agree within a clock or two.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from virtualgpu.model.cost.rates import tensor_rate
from virtualgpu.records import DeviceInfo

# Pipes of an SM. ``issue`` counts every instruction; ``fma`` is all of FP32, ``imad`` the half of it that
# also multiplies integers; ``xu`` evaluates special functions and converts; ``lsu`` is the load/store unit;
# ``tensor`` multiplies matrices, counted in products of 16 x 8 by 8 x 16 halves.
PIPES = ("issue", "fma", "imad", "alu", "half", "fp64", "xu", "lsu", "uniform", "tensor")

WARP_LANES = 32


@dataclass(frozen=True, slots=True)
class InstructionCost:
    """The modelled cost of one PTX instruction.

    The field ``pipes`` maps each pipe to its number of warp instructions. The field ``latency_clk`` is the
    number of clocks until a dependent instruction can start. ``extra_instructions`` counts further
    instructions of no particular pipe. ``awaited_memory`` is the memory for which the instruction waits, if
    any.
    """

    pipes: tuple[tuple[str, float], ...] = ()
    latency_clk: float = 0.0
    extra_instructions: float = 0.0
    awaited_memory: str = ""

    @property
    def issue_slots(self) -> float:
        """Number of issue slots that the instruction occupies."""
        return self.extra_instructions + sum(pipe_slots for _, pipe_slots in self.pipes)


NO_COST = InstructionCost()
_ALU_COST = InstructionCost((("alu", 1.0),), 4.5)
_EITHER_PIPE_COST = InstructionCost((), 4.5, 1.0)  # add, shift left: ptxas chooses a free pipe
_FMA_COST = InstructionCost((("fma", 1.0),), 4.0)
_IMAD_COST = InstructionCost((("imad", 1.0),), 4.5)
_WIDE_COST = InstructionCost((("imad", 1.0),), 5.0)
_FP64_COST = InstructionCost((("fp64", 1.0),), 8.0, 1.0)  # and half of a constant, or a move
_HALF_COST = InstructionCost((("half", 1.0),), 5.0)
_MUFU_COST = InstructionCost((("xu", 1.0),), 18.0)
_CONVERT_COST = InstructionCost((("xu", 1.0),), 20.0)
_COUNT_BITS_COST = InstructionCost((("xu", 1.0),), 18.0)
_SPECIAL_REGISTER_COST = InstructionCost((("xu", 0.5),), 20.0)
_BRANCH_COST = InstructionCost((("uniform", 1.0),), 0.0)
_COPY_GROUP_COST = InstructionCost((), 0.0, 1.0)

_SLOW_INSTRUCTIONS = {
    # root, type: the fast path of the code that ptxas generates
    ("div.rn", "f32"): InstructionCost((("xu", 2.0), ("fma", 5.0)), 58.0, 7.0),
    ("div.full", "f32"): InstructionCost((("xu", 1.0), ("fma", 3.0)), 34.0, 2.0),
    ("div.approx", "f32"): InstructionCost((("xu", 1.0), ("fma", 1.0)), 22.0),
    ("rcp.rn", "f32"): InstructionCost((("xu", 1.0), ("fma", 3.0)), 36.0, 4.0),
    ("sqrt.rn", "f32"): InstructionCost((("xu", 1.0), ("fma", 4.0)), 58.0, 7.0),
    ("div.rn", "f64"): InstructionCost((("xu", 1.0), ("fp64", 8.0)), 125.0, 16.0),
    ("rcp.rn", "f64"): InstructionCost((("xu", 1.0), ("fp64", 5.0)), 70.0, 5.0),
    ("sqrt.rn", "f64"): InstructionCost((("xu", 1.0), ("fp64", 8.0)), 97.0, 18.0),
    ("div", "32"): InstructionCost((("xu", 4.4), ("imad", 5.0), ("alu", 9.0)), 135.0, 5.0),
    ("rem", "32"): InstructionCost((("xu", 4.4), ("imad", 6.0), ("alu", 8.0)), 135.0, 5.0),
    ("div", "64"): InstructionCost((("xu", 5.0), ("imad", 50.0), ("alu", 55.0)), 330.0, 30.0),
    ("rem", "64"): InstructionCost((("xu", 5.0), ("imad", 52.0), ("alu", 55.0)), 340.0, 30.0),
    ("div", "16"): InstructionCost((("xu", 3.0), ("imad", 3.0)), 60.0, 3.0),
    ("rem", "16"): InstructionCost((("xu", 3.0), ("imad", 4.0)), 64.0, 3.0),
}

# Division by a value that a loop does not change: its reciprocal is computed once.
INVARIANT_DIVISION_COST = InstructionCost((("imad", 4.0), ("alu", 8.0)), 68.0, 6.0)
# A product or a shift added to an address.
ADDRESS_SUM_COST = _WIDE_COST


@functools.lru_cache(maxsize=4096)
def instruction_cost(opcode: str) -> InstructionCost:
    """Return the modelled cost of an opcode such as ``fma.rn.ftz.f32``."""
    opcode_parts = opcode.split(".")
    root = opcode_parts[0]
    if root in ("wmma", "mma", "ldmatrix", "stmatrix"):
        return _find_matrix_cost(opcode_parts)
    if root == "cp":
        return InstructionCost((("lsu", 1.0),)) if is_copy(opcode_parts) else _COPY_GROUP_COST
    type_name = opcode_parts[-1]
    bits = type_name.lstrip("busf") if type_name.lstrip("busf").isdigit() else ""
    is_floating = type_name in ("f32", "f64")
    is_64_bit = bits == "64"
    if root in ("ld", "ldu"):
        return _find_load_cost(opcode_parts)
    if root in ("st", "red"):
        return InstructionCost((("lsu", 1.0),), 0.0)
    if root == "atom":
        return InstructionCost((("lsu", 1.0),), 0.0, 0.0, "shared" if "shared" in opcode_parts else "atomic")
    if root == "mov" and type_name == "special":
        return _SPECIAL_REGISTER_COST
    if type_name == "pred" or root in ("cvta", "mov", "isspacep", "call", "ret", "exit"):
        return NO_COST
    if root in ("bra", "brx"):
        return _BRANCH_COST if "uni" not in opcode_parts else InstructionCost((("uniform", 0.5),))
    if root in ("neg", "abs") and is_floating:
        return NO_COST
    if root in ("div", "rem", "sqrt", "rcp"):
        rounding_modifier = next(
            (modifier for modifier in opcode_parts[1:] if modifier in ("rn", "full", "approx")), ""
        )
        if is_floating and (root, rounding_modifier) in (("rcp", "approx"), ("sqrt", "approx")):
            return _MUFU_COST if root == "rcp" else InstructionCost((("xu", 2.0),), 36.0)
        return _SLOW_INSTRUCTIONS.get(
            (f"{root}.{rounding_modifier}" if is_floating else root, type_name if is_floating else bits),
            _MUFU_COST,
        )
    if root in ("sin", "cos"):
        return InstructionCost((("xu", 1.0), ("fma", 1.0)), 22.0)
    if root in ("ex2", "lg2", "rsqrt", "tanh"):
        return (
            _MUFU_COST
            if "ftz" in opcode_parts or root == "tanh"
            else InstructionCost((("xu", 1.0), ("fma", 2.0)), 26.0)
        )
    if root == "cvt":
        return _find_conversion_cost(opcode_parts)
    if root in ("popc", "clz", "brev", "bfind", "fns"):
        return _COUNT_BITS_COST if not is_64_bit else InstructionCost((("xu", 2.0),), 30.0, 1.0)
    if root in ("shfl", "match"):
        return InstructionCost((("lsu", 1.0),), 23.0)
    if root in ("vote", "activemask", "elect"):
        return InstructionCost((("alu", 1.0),), 12.0, 1.0)
    if root == "redux":
        return InstructionCost((("xu", 1.0),), 42.0, 1.0)
    if root in ("bar", "barrier"):
        return InstructionCost((("uniform", 1.0),), 0.0, 1.0, "barrier")
    if root in ("membar", "fence"):
        return InstructionCost((("lsu", 1.0),), 0.0, 1.0, "atomic")
    if type_name in ("f16", "f16x2", "bf16", "bf16x2"):
        return _HALF_COST
    if type_name == "f64":
        return _FP64_COST if root in ("add", "sub", "mul", "fma", "mad", "min", "max", "setp") else _ALU_COST
    if type_name == "f32":
        return _FMA_COST if root in ("add", "sub", "mul", "fma", "mad") else _ALU_COST
    if root in ("mul", "mad", "madc"):
        if is_64_bit:
            return InstructionCost((("imad", 4.0),), 13.0, 1.0)
        if root == "mul" and "wide" in opcode_parts:
            return NO_COST
        return _IMAD_COST if "hi" not in opcode_parts else InstructionCost((("imad", 3.0),), 9.0)
    if is_64_bit:
        if root == "shl":
            return NO_COST
        return InstructionCost(
            (("alu", 1.5 if root in ("add", "sub") else 2.0),), 5.0
        )  # sums of three are one
    if root in ("add", "sub", "shl", "selp"):
        return _EITHER_PIPE_COST
    return _ALU_COST


def is_copy(parts: Sequence[str]) -> bool:
    """Return whether an instruction copies asynchronously to shared memory (``cp.async``)."""
    return len(parts) > 2 and parts[0] == "cp" and parts[2] in ("ca", "cg")


def _find_matrix_cost(opcode_parts: list[str]) -> InstructionCost:
    """Return the cost of a tensor-core instruction, or of a load or store of its operands."""
    if "mma" not in opcode_parts[:2]:
        is_load = opcode_parts[0] == "ldmatrix" or opcode_parts[1] == "load"
        space = "shared" if any(modifier.startswith("shared") for modifier in opcode_parts) else "global"
        matrix_count = next(
            (int(modifier[1]) for modifier in opcode_parts if modifier in ("x1", "x2", "x4")), 4
        )
        if is_load and opcode_parts[-1] == "tf32":
            return InstructionCost((("lsu", WORDS_OF_TF32),), GENERIC_CLK, 2.0 * WORDS_OF_TF32, space)
        return InstructionCost((("lsu", 1.0),), MATRIX_CLK * matrix_count, 0.0, space if is_load else "")
    m, n, k = next(
        map(int, shape_match.groups())
        for modifier in opcode_parts
        if (shape_match := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", modifier))
    )
    if "f64" in opcode_parts:
        slowdown = DOUBLE_PRODUCTS * (SMALL_DOUBLE_PRODUCTS if m == 8 else 1.0)
        return InstructionCost((("tensor", slowdown * m * n * k / PRODUCT_ADDS),))
    factor_type = next((modifier for modifier in opcode_parts[-3:-1] if modifier in FACTOR_BYTES), "f16")
    k_share = k * FACTOR_BYTES[factor_type] / PRODUCT_BYTES
    product_count = m * n / 128 * (PRODUCT_FIXED_SHARE + (1 - PRODUCT_FIXED_SHARE) * k_share)
    return InstructionCost((("tensor", product_count),))


def _find_load_cost(opcode_parts: list[str]) -> InstructionCost:
    space = next(
        (
            modifier
            for modifier in opcode_parts
            if modifier in ("global", "shared", "local", "const", "param")
        ),
        "generic",
    )
    if space == "param":
        return InstructionCost((), 0.0, 0.0, "parameter")
    if space == "const":
        return InstructionCost((), 0.0, 0.5, "const")
    return InstructionCost((("lsu", 1.0),), 0.0, 0.0, "shared" if space == "shared" else "global")


def _find_conversion_cost(opcode_parts: list[str]) -> InstructionCost:
    target_type = opcode_parts[-2]
    source_type = opcode_parts[-1]
    if target_type[0] in "bus" and source_type[0] in "bus":
        return NO_COST if "sat" not in opcode_parts else _ALU_COST
    if "f64" in (target_type, source_type):
        return InstructionCost((("xu", 1.0), ("fma", 1.0)), 20.0)
    if target_type[0] == "f" and source_type[0] == "f":
        return _ALU_COST if target_type == source_type else _HALF_COST
    if source_type[0] == "f":  # to an integer
        return _CONVERT_COST
    return InstructionCost((("alu", 1.0),), 5.0)


# Tensor cores (H200). A product of 16 x 8 elements, each a sum over 32 bytes of factors, such as 16 halves,
# occupies the tensor core of a quarter of an SM for 6.7 clocks. A third of them do not depend on the bytes.
# The sum is ready after four times as long.
PRODUCT_BYTES = 32
PRODUCT_ADDS = 16 * 8 * 16  # multiply-adds of halves
PRODUCT_FIXED_SHARE = 1 / 3
PRODUCT_STEPS = 4
FACTOR_BYTES = {"f16": 2.0, "bf16": 2.0, "tf32": 4.0, "s8": 1.0, "u8": 1.0, "e4m3": 1.0, "e5m2": 1.0}
# Times of products of doubles with 16 rows, compared with halves, and of those with 8 rows, compared with
# 16 rows (recorded on an H200).
DOUBLE_PRODUCTS = 9.7
SMALL_DOUBLE_PRODUCTS = 2.03
MATRIX_CLK = 2.0  # of a load, for each 8 x 8 matrix
# Fragments of TF32 are loaded by word and generic address, which takes two additions.
WORDS_OF_TF32 = 4.0
GENERIC_CLK = 11.0
# Share of the published rate that mma.sync reaches where other instructions (wgmma, tcgen05) are faster.
MMA_SYNC_SHARES = {9: 0.64, 10: 0.64}


# Results per clock and SM by compute capability: FP32, integer multiply, other integer, half2, FP64, special
# functions and conversions, load and store. CUDA C++ Programming Guide, "Arithmetic Instructions".
_RESULTS_PER_CLK: Mapping[tuple[int, int], tuple[float, float, float, float, float, float, float]] = {
    (5, 0): (128, 16, 128, 1, 4, 32, 32),
    (6, 0): (64, 16, 64, 64, 32, 16, 32),
    (6, 1): (128, 16, 128, 1, 4, 32, 32),
    (7, 0): (64, 64, 64, 64, 32, 16, 32),
    (7, 5): (64, 64, 64, 64, 2, 16, 32),
    (8, 0): (64, 64, 64, 128, 32, 16, 32),
    (8, 6): (128, 64, 64, 64, 2, 16, 32),
    (8, 9): (128, 64, 64, 64, 2, 16, 32),
    (9, 0): (128, 64, 64, 64, 64, 16, 32),
    (10, 0): (128, 64, 64, 64, 64, 16, 32),
    (12, 0): (128, 64, 64, 64, 2, 16, 32),
}
ISSUE_PER_CLK = 4.0  # four schedulers, one warp instruction each


def pipe_clk(info: DeviceInfo) -> dict[str, float]:
    """Return the number of clocks for which one warp instruction occupies each pipe of an SM."""
    capability = info.compute_capability
    results_per_clk = _RESULTS_PER_CLK[
        max(
            (listed_capability for listed_capability in _RESULTS_PER_CLK if listed_capability <= capability),
            default=min(_RESULTS_PER_CLK),
        )
    ]
    fma_clk, imad_clk, alu_clk, half_clk, fp64_clk, xu_clk, lsu_clk = (
        WARP_LANES / rate for rate in results_per_clk
    )
    return {
        "issue": 1.0 / ISSUE_PER_CLK,
        "fma": fma_clk,
        "imad": imad_clk,
        "alu": alu_clk,
        "half": half_clk,
        "fp64": fp64_clk,
        "xu": xu_clk,
        "lsu": lsu_clk,
        "uniform": 1.0 / ISSUE_PER_CLK,
        "tensor": PRODUCT_ADDS / (tensor_rate(info) * MMA_SYNC_SHARES.get(capability[0], 1.0)),
    }

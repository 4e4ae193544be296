"""Seeded random CUDA kernels with one right answer each.

Every kernel is free of undefined behaviour and of races, so its outputs do not depend on the order
of threads, warps or blocks, nor on the compiler: integers wrap (through unsigned arithmetic),
conversions saturate, NaNs are made canonical before their bits count, warp-wide functions get the
mask of the lanes that are there, barriers stand in uniform control flow, and atomics whose old
value is used have a location for each thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.fuzz.expressions import COMMON, TYPES, Callee, Expressions, Scope
from tests.fuzz.preamble import PREAMBLE
from tests.fuzz.rng import Rng, float_words, integer_words, words
from tests.fuzz.statements import Statements
from tests.fuzz.tables import FLOATS

# Contraction is the compiler's choice, which differs between versions; fma is written where meant.
OPTIONS = ("--fmad=false", "--device-int128", "--std=c++17", "-w")
PACK = 20
INPUTS = 256
TOTALS = 64

_BLOCKS = (
    (32,),
    (64,),
    (128,),
    (1,),
    (7,),
    (31,),
    (33,),
    (48,),
    (97,),
    (8, 8),
    (5, 9),
    (16, 6),
    (32, 3),
    (3, 4, 5),
    (2, 16, 3),
    (4, 4, 4),
    (1, 1, 40),
)
_GRIDS = ((1,), (2,), (3,), (5,), (2, 2), (1, 3), (3, 2), (1, 2, 2), (2, 1, 2))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated kernel, its launch shape and how much it writes."""

    seed: int
    source: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    planes: int
    dynamic_shared_bytes: int

    @property
    def name(self) -> str:
        return f"fuzz_{self.seed}"

    @property
    def threads(self) -> int:
        return int(np.prod(self.grid) * np.prod(self.block))


@dataclass(slots=True)
class Data:
    """Arguments of a kernel in order; ``outputs`` are those it writes."""

    inputs: list[npt.NDArray[np.generic]]
    outputs: list[npt.NDArray[np.generic]]
    n: int
    scale: np.float32


def kernel(seed: int) -> Kernel:
    """The kernel of a seed."""
    rng = Rng(2027, seed)
    block = rng.choice(_BLOCKS)
    grid = rng.choice(_GRIDS)
    expressions = Expressions(rng, inputs=True)
    callees = [_function(rng, seed, number) for number in range(rng.weighted(((5, 0), (4, 1), (1, 2))))]
    scope = Scope(callees=[c for c, _ in callees])
    scope.add("gid", "u32", assignable=False)
    scope.add("tid", "u32", assignable=False)
    scope.add("n", "i32", assignable=False)
    scope.add("scale", "f32", assignable=False)
    scope.add("lane", "u32", assignable=False)
    for name in ("threadIdx.x", "threadIdx.y", "threadIdx.z", "blockIdx.x", "blockIdx.y", "gridDim.x"):
        if rng.chance(30):
            scope.add(name, "u32", assignable=False)
    statements = Statements(rng, expressions, scope, f"{seed}", threads=int(np.prod(block)))
    lines = []
    for number in range(rng.between(2, 4)):
        kind = rng.weighted(COMMON)
        lines.append(f"{kind} v{number} = {expressions.expression(kind, scope, 2)};")
        scope.add(f"v{number}", kind)
    for kind in ("u32", "f32"):
        name = f"w_{kind}"
        lines.append(f"{kind} {name} = {'in[gid & 255u]' if kind == 'u32' else 'fin[gid & 255u].x'};")
        scope.add(name, kind)
    planes = rng.between(2, 3)
    if rng.chance(8):
        lines.append("if (bid % 3u == 1u) return;")
    for plane in range(planes):
        known = len(scope.assignable)
        lines += statements.top(last=plane == planes - 1)
        old = [rng.choice(scope.assignable[:known]) for _ in range(3)]
        for name, kind in old + scope.assignable[known:]:
            if kind in FLOATS and rng.chance(40):
                lines.append(f"{name} = z_tame({name});")
            lines.append(f"h = z_mix(h, {name});")
        lines.append(f"out[{plane}u * total + gid] = h;")
    body = "\n".join(f"    {line}" for line in lines)
    source = f"""
{statements.globals_text()}{"".join(text for _, text in callees)}
extern "C" __global__ void fuzz_{seed}(const u32* __restrict__ in, const float4* __restrict__ fin,
        const longlong2* __restrict__ lin, u64* out, u32* totals, u64* wide_totals, u32* slots,
        int n, float scale) {{
    const u32 nt = blockDim.x * blockDim.y * blockDim.z;
    const u32 tid = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const u32 bid = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const u32 total = nt * gridDim.x * gridDim.y * gridDim.z;
    const u32 gid = bid * nt + tid, lane = tid & 31u;
    const u32 left = nt - (tid & ~31u), wm = left >= 32u ? 0xffffffffu : (1u << left) - 1u;
    u64 h = gid + 1u;
{statements.shared_text()}{body}
}}
"""
    shape = tuple((*block, 1, 1)[:3])
    return Kernel(seed, source, tuple((*grid, 1, 1)[:3]), shape, planes, statements.dynamic_bytes(shape))


def _function(rng: Rng, seed: int, number: int) -> tuple[Callee, str]:
    """A device function, most of them real calls; some recurse."""
    name = f"call_{seed}_{number}"
    how = "__noinline__ " if rng.chance(75) else ""
    if rng.chance(15):
        return (
            Callee(name, "u32", ("u32",)),
            f"""
static __device__ {how}u32 {name}_deep(u32 x, u32 depth) {{
    if (depth == 0u) return x ^ {rng.below(1 << 32)}u;
    if (x & {1 << rng.below(4)}u)
        return {name}_deep(x * {rng.below(1 << 16) | 1}u + depth, depth - 1u) ^ (x >> 3);
    return {name}_deep(x ^ (x << {rng.between(1, 13)}), depth - 1u) + depth;
}}
static __device__ u32 {name}(u32 x) {{ return {name}_deep(x, 1u + (x & 3u)); }}
""",
        )
    result = rng.weighted(COMMON)
    kinds = tuple(rng.weighted(COMMON) for _ in range(rng.between(1, 4)))
    scope = Scope()
    for position, kind in enumerate(kinds):
        scope.add(f"a{position}", kind)
    expressions = Expressions(rng, inputs=False)
    statements = Statements(rng, expressions, scope, f"{seed}_{number}")
    lines = [f"{result} r = {expressions.expression(result, scope, 2)};"]
    scope.add("r", result)
    outer = scope.inner()
    for _ in range(rng.between(1, 2)):
        lines += statements.divergent(scope, depth=1)
    lines += statements.fold(outer, scope)
    body = "\n".join(f"    {line}" for line in lines)
    arguments = ", ".join(f"{kind} a{position}" for position, kind in enumerate(kinds))
    text = f"""
static __device__ {how}{result} {name}({arguments}) {{
{body}
    return ({result})({expressions.expression(result, scope, 1)});
}}
"""
    return Callee(name, result, kinds), statements.globals_text() + text


def data(k: Kernel) -> Data:
    """Inputs and cleared outputs of a kernel."""
    rng = Rng(7, k.seed)
    integers = integer_words(2 * k.seed, INPUTS)
    floats = float_words(2 * k.seed + 1, 4 * INPUTS)
    wide = words(k.seed + 500_000, 2 * INPUTS)
    keep = words(k.seed + 900_000, 2 * INPUTS) % np.uint64(64)
    totals = np.zeros(TOTALS, np.uint32)
    totals[16:24] = totals[40:48] = 0xFFFFFFFF  # minima and conjunctions
    return Data(
        [integers, floats, wide >> keep],
        [
            np.zeros(k.planes * k.threads, np.uint64),
            totals,
            np.zeros(TOTALS, np.uint64),
            np.zeros(k.threads, np.uint32),
        ],
        rng.between(3, 40),
        np.float32(rng.between(-64, 64) / 8 + 0.0625),
    )


def program(seeds: Sequence[int]) -> tuple[str, list[Kernel]]:
    """One translation unit with the kernels of several seeds."""
    kernels = [kernel(seed) for seed in seeds]
    return PREAMBLE + "".join(k.source for k in kernels), kernels


def digest(outputs: Sequence[npt.NDArray[np.generic]]) -> str:
    """SHA-256 of what a kernel wrote, shortened to 12 hexadecimal digits."""
    total = hashlib.sha256()
    for array in outputs:
        total.update(array.tobytes())
    return total.hexdigest()[:12]


__all__ = ["INPUTS", "OPTIONS", "PACK", "TYPES", "Data", "Kernel", "data", "digest", "kernel", "program"]

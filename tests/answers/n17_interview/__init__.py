"""Wrong and right answers to the exercises of notebook 17."""

from __future__ import annotations

import math
from importlib import resources
from typing import Any

import numpy as np

from gpulab_course import content
from tests.answers import Right, Wrong
from tests.answers.n17_interview.claims import SETTLED

# --- 17-estimate


def napkin(work: Any, card: Any) -> dict[str, Any]:
    """As asked."""
    elements = sum(math.prod(shape) for shape in [*work["reads"], *work["writes"]])
    moved = elements * work["bytes_each"]
    operations = 2 * work["multiply_adds"] + work["others"]
    memory_us = moved / (card["gb_per_s"] * 1e3)
    compute_us = operations / (card["tflops"] * 1e6)
    bound = "memory" if memory_us > compute_us else "arithmetic"
    return {
        "bytes": moved,
        "operations": operations,
        "memory_us": memory_us,
        "compute_us": compute_us,
        "us": max(memory_us, compute_us),
        "bound": bound,
    }


def reads_only(work: Any, card: Any) -> Any:
    return napkin({**work, "writes": []}, card)


def four_bytes(work: Any, card: Any) -> Any:
    return napkin({**work, "bytes_each": 4}, card)


def in_bits(work: Any, card: Any) -> Any:
    return napkin({**work, "bytes_each": 8 * work["bytes_each"]}, card)


def binary_gigabytes(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    found["memory_us"] = found["bytes"] / (card["gb_per_s"] * 2**30) * 1e6
    return found


def fma_as_one(work: Any, card: Any) -> Any:
    return napkin({**work, "multiply_adds": work["multiply_adds"] / 2}, card)


def cancelling(work: Any, card: Any) -> Any:
    # Half the bytes over half the rate: the time is right, and nothing on the way.
    found = napkin(work, card)
    return {**found, "bytes": found["bytes"] / 2}


def cancelling_operations(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    return {**found, "operations": work["multiply_adds"] + work["others"]}


def milliseconds(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    return {**found, "memory_us": found["memory_us"] / 1e3}


def nanoseconds(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    return {**found, "compute_us": found["compute_us"] * 1e3}


def summed(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    return {**found, "us": found["memory_us"] + found["compute_us"]}


def smaller(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    return {**found, "us": min(found["memory_us"], found["compute_us"])}


def always_memory(work: Any, card: Any) -> Any:
    return {**napkin(work, card), "bound": "memory"}


def by_the_other(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    return {**found, "bound": "arithmetic" if found["bound"] == "memory" else "memory"}


def by_twenty(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    return {**found, "bound": "memory" if found["operations"] < 20 * found["bytes"] else "arithmetic"}


def only_the_time(work: Any, card: Any) -> Any:
    return napkin(work, card)["us"]


def as_text(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    return {**found, "bytes": f"{found['bytes']} bytes"}


def in_32_bits(work: Any, card: Any) -> Any:
    moved = sum(int(np.prod(shape, dtype=np.int32)) for shape in work["reads"] + work["writes"])
    return {**napkin(work, card), "bytes": moved * work["bytes_each"]}


def more_bytes_than_operations(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    return {**found, "bound": "memory" if found["bytes"] > found["operations"] else "arithmetic"}


def step_by_step(work: Any, card: Any) -> Any:
    found: dict[str, Any] = {"bytes": 0}
    for shape in (*work["reads"], *work["writes"]):
        elements = 1
        for length in shape:
            elements *= length
        found["bytes"] += elements * work["bytes_each"]
    found["operations"] = work["others"] + work["multiply_adds"] + work["multiply_adds"]
    found["memory_us"] = found["bytes"] / card["gb_per_s"] * 1e-3
    found["compute_us"] = found["operations"] / card["tflops"] * 1e-6
    found["us"] = sorted((found["memory_us"], found["compute_us"]))[1]
    found["bound"] = ["arithmetic", "memory"][found["memory_us"] >= found["compute_us"]]
    return found


def by_the_ridge(work: Any, card: Any) -> Any:
    found = napkin(work, card)
    ridge = card["tflops"] * 1e3 / card["gb_per_s"]
    found["bound"] = "memory" if found["operations"] / found["bytes"] < ridge else "arithmetic"
    return found


def with_more(work: Any, card: Any) -> Any:
    return {**napkin(work, card), "intensity": 1.0, "note": "FP32, no tensor cores"}


_NAPKINS = (
    Wrong("17-estimate", "what is read only", reads_only, "", "Count all arrays that are read or written"),
    Wrong("17-estimate", "four bytes always", four_bytes, "", "with the size of"),
    Wrong("17-estimate", "in bits", in_bits, "", "These are bits"),
    Wrong("17-estimate", "GB as 2^30 bytes", binary_gigabytes, "", "not 2³⁰"),
    Wrong("17-estimate", "a multiply-add as one", fma_as_one, "", "it should be"),
    Wrong("17-estimate", "errors that cancel, bytes", cancelling, "", "Something is counted half"),
    Wrong("17-estimate", "errors that cancel, operations", cancelling_operations, "", "it should be"),
    Wrong("17-estimate", "elements in 32 bits", in_32_bits, "", "bytes is"),
    Wrong("17-estimate", "bytes against operations", more_bytes_than_operations, "", "which takes longer"),
    Wrong("17-estimate", "in milliseconds", milliseconds, "", "These are milliseconds"),
    Wrong("17-estimate", "in nanoseconds", nanoseconds, "", "These are nanoseconds"),
    Wrong("17-estimate", "the sum of both", summed, "", "not the sum"),
    Wrong("17-estimate", "the smaller of both", smaller, "", "the larger of them"),
    Wrong("17-estimate", "always bound by memory", always_memory, "", "which takes longer"),
    Wrong("17-estimate", "20 operations a byte, whatever the card", by_twenty, "", "which takes longer"),
    Wrong("17-estimate", "bounds exchanged", by_the_other, "", "which takes longer"),
    Wrong("17-estimate", "the time alone", only_the_time, "", "Return a dict"),
    Wrong("17-estimate", "returns a string", as_text, "", "must be a number"),
    Right("17-estimate", "as asked", napkin),
    Right("17-estimate", "step by step", step_by_step),
    Right("17-estimate", "by the ridge", by_the_ridge),
    Right("17-estimate", "with more than was asked", with_more),
)

# --- 17-diagnose


def cause(seen: Any) -> str:
    """Blocks first, then what is far from its least."""
    if seen["blocks"] < seen["sms"]:
        return "grid"
    if seen["atomics"] > 0:
        return "atomics"
    if seen["wavefronts_per_shared"] > 2:
        return "bank conflicts"
    if seen["active_lanes"] < 0.6:
        return "divergence"
    if seen["sectors_per_load"] > 8:
        return "uncoalesced"
    return "nothing"


def symptom(seen: Any) -> str:
    return "memory-bound" if seen["dram_share"] > 0.15 else cause(seen)


def busy_is_bad(seen: Any) -> str:
    return "uncoalesced" if seen["dram_share"] > 0.15 else cause(seen)


def no_grid(seen: Any) -> str:
    return cause({**seen, "blocks": 10**6})


def no_lanes(seen: Any) -> str:
    return cause({**seen, "active_lanes": 1.0})


def no_banks(seen: Any) -> str:
    return cause({**seen, "wavefronts_per_shared": 1.0})


def no_atomics(seen: Any) -> str:
    return cause({**seen, "atomics": 0})


def no_sectors(seen: Any) -> str:
    return cause({**seen, "sectors_per_load": 4})


def always_uncoalesced(_seen: Any) -> str:
    return "uncoalesced"


def always_something(seen: Any) -> str:
    found = cause(seen)
    return "uncoalesced" if found == "nothing" else found


def any_sectors(seen: Any) -> str:
    # Four sectors are what 32 floats need.
    return "uncoalesced" if seen["sectors_per_load"] >= 4 else cause(seen)


def by_time(seen: Any) -> str:
    return "nothing" if seen["us"] < 150 else cause(seen)


def blocks_of_256(seen: Any) -> str:
    return "grid" if seen["blocks"] < 5000 else cause(seen)


def in_words(seen: Any) -> str:
    return f"the cause is {cause(seen)}"


def other_order(seen: Any) -> str:
    if seen["active_lanes"] < 0.5:
        return "divergence"
    if seen["wavefronts_per_shared"] > 3:
        return "bank conflicts"
    if seen["blocks"] * 2 <= seen["sms"]:
        return "grid"
    if seen["atomics"]:
        return "atomics"
    return "uncoalesced" if seen["sectors_per_load"] >= 12 else "nothing"


def by_ratios(seen: Any) -> str:
    far = {
        "grid": seen["sms"] / seen["blocks"],
        "atomics": 100.0 if seen["atomics"] else 0.0,
        "bank conflicts": seen["wavefronts_per_shared"] / 2,
        "divergence": 0.6 / seen["active_lanes"],
        "uncoalesced": seen["sectors_per_load"] / 6,
    }
    worst = max(far, key=lambda name: far[name])
    return worst if far[worst] > 1 else "nothing"


def from_a_table(seen: Any) -> str:
    rules = (
        ("grid", seen["blocks"] < seen["sms"]),
        ("atomics", seen["atomics"] >= 1),
        ("divergence", seen["active_lanes"] <= 0.55),
        ("bank conflicts", seen["wavefronts_per_shared"] >= 3),
        ("uncoalesced", seen["sectors_per_load"] >= 10),
        ("nothing", True),
    )
    return next(name for name, holds in rules if holds)


_CAUSES = (
    Wrong("17-diagnose", "names the symptom", symptom, "", "is a symptom"),
    Wrong("17-diagnose", "takes a busy DRAM for a cause", busy_is_bad, "", "the cause is 'nothing'"),
    Wrong("17-diagnose", "blocks are not looked at", no_grid, "", "the cause is 'grid'"),
    Wrong("17-diagnose", "lanes are not looked at", no_lanes, "", "the cause is 'divergence'"),
    Wrong("17-diagnose", "banks are not looked at", no_banks, "", "the cause is 'bank conflicts'"),
    Wrong("17-diagnose", "atomics are not looked at", no_atomics, "", "the cause is 'atomics'"),
    Wrong("17-diagnose", "sectors are not looked at", no_sectors, "", "the cause is 'uncoalesced'"),
    Wrong("17-diagnose", "always names the same cause", always_uncoalesced, "", "the cause is"),
    Wrong("17-diagnose", "something must be wrong", always_something, "", "the cause is 'nothing'"),
    Wrong(
        "17-diagnose",
        "eight ways or nothing",
        lambda seen: "nothing" if 2 < seen["wavefronts_per_shared"] < 8 else from_a_table(seen),
        "",
        "the cause is 'bank conflicts'",
    ),
    Wrong(
        "17-diagnose",
        "ignores fewer than 16 sectors per load",
        lambda seen: "nothing" if 8 < seen["sectors_per_load"] < 16 else from_a_table(seen),
        "",
        "the cause is 'uncoalesced'",
    ),
    Wrong("17-diagnose", "four sectors are too many", any_sectors, "", "the cause is"),
    Wrong("17-diagnose", "what is short is well", by_time, "", "the cause is"),
    Wrong("17-diagnose", "few blocks where there are enough", blocks_of_256, "", "the cause is"),
    Wrong(
        "17-diagnose",
        "few is what is below 16",
        lambda seen: "grid" if seen["blocks"] < 16 else no_grid(seen),
        "",
        "the cause is 'grid'",
    ),
    Wrong(
        "17-diagnose",
        "32 sectors or nothing",
        lambda seen: (
            cause({**seen, "sectors_per_load": 8 * (seen["sectors_per_load"] // 32)})
            if seen["sectors_per_load"] < 32
            else cause(seen)
        ),
        "",
        "the cause is 'uncoalesced'",
    ),
    Wrong(
        "17-diagnose",
        "a busy DRAM needs no mending",
        lambda seen: "nothing" if seen["dram_share"] > 0.7 else cause(seen),
        "",
        "the cause is 'uncoalesced'",
    ),
    Wrong(
        "17-diagnose",
        "half of the SMs are enough",
        lambda seen: "grid" if seen["blocks"] < seen["sms"] / 2 else no_grid(seen),
        "",
        "the cause is 'grid'",
    ),
    Wrong(
        "17-diagnose",
        "four blocks for each SM",
        lambda seen: "grid" if seen["blocks"] < 4 * seen["sms"] else cause(seen),
        "",
        "the cause is '",
    ),
    Wrong("17-diagnose", "names the cause in other words", in_words, "", "Return one of"),
    Right("17-diagnose", "blocks first", cause),
    Right("17-diagnose", "in another order", other_order),
    Right("17-diagnose", "what is furthest off", by_ratios),
    Right("17-diagnose", "from a table", from_a_table),
)

# --- 17-bug

_ARGMAX = (resources.files(content) / "n17_interview" / "kernels" / "row_argmax.cu").read_text(encoding="utf-8")


def _largest(*changes: str) -> str:
    code = _ARGMAX
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in code, old
        code = code.replace(old, new)
    return code


_BETTER = "(place[t] < 0 || best[o] > best[t] || (best[o] == best[t] && place[o] < place[t]))"
_TREE = _ARGMAX[_ARGMAX.index("    for (int n = blockDim.x") : _ARGMAX.index("    if (t == 0)")]
_SIGN = 'extern "C" __global__ void row_argmax(const int* x, int* at, int rows, int cols) {\n'
_BUGS = (
    Wrong("17-bug", "as it was handed out", _largest("most = 0, where = -1", "most = 0, where = 0",
          "where < 0 || v > most", "v > most", " || (best[o] == best[t] && place[o] < place[t])", "",
          "int o = t + (n + 1) / 2;", "int o = t + n / 2;", "n = (n + 1) / 2)", "n = n / 2)"), "results", ""),
    Wrong("17-bug", "the start value is 0", _largest("where < 0 || v > most", "v > most"), "results", "can be negative"),
    Wrong("17-bug", "ignores the smallest int", _largest("most = 0, where = -1", "most = -2147483647 - 1, where = -1", "where < 0 || v > most", "v > most"),
          "results", "even the smallest int"),
    Wrong("17-bug", "does not compare the indices of equal elements", _largest(" || (best[o] == best[t] && place[o] < place[t])", ""), "results", "the first counts"),
    Wrong("17-bug", "the last of several", _largest("place[o] < place[t]", "place[o] > place[t]", "v > most", "v >= most"), "results", "the first counts"),
    Wrong("17-bug", "an odd thread is lost", _largest("int o = t + (n + 1) / 2;", "int o = t + n / 2;", "n = (n + 1) / 2)", "n = n / 2)"), "results", ""),
    Wrong("17-bug", "no barrier in the tree", _largest("        __syncthreads();\n    }\n    if", "    }\n    if"), "results", ""),
    Wrong("17-bug", "a warp's barrier in the tree", _largest("        __syncthreads();\n    }\n    if", "        __syncwarp();\n    }\n    if"), "results", ""),
    Wrong("17-bug", "no barrier before the tree", _largest("place[t] = where;\n    __syncthreads();", "place[t] = where;"), "results", ""),
    Wrong("17-bug", "a barrier inside the branch", _largest("            place[t] = place[o];\n        }\n        __syncthreads();", "            place[t] = place[o];\n            __syncthreads();\n        }"), "results", ""),
    Wrong("17-bug", "no guard for the rows", _largest("    if (row >= rows) return;\n", ""), "results", "more blocks than there are rows"),
    Wrong("17-bug", "silenced: rows are clamped", _largest("if (row >= rows) return;", "row = min(row, rows - 1);"), "hazards", "one thread of one block"),
    Wrong("17-bug", "silenced: an atomic for each element", _SIGN + "  int row = blockIdx.x; if (row >= rows) return;\n"
          "  if (threadIdx.x == 0) at[row] = -1;\n  __syncthreads();\n  for (int c = threadIdx.x; c < cols; c += blockDim.x) {\n"
          "    int old = at[row];\n    while (old < 0 || x[row * cols + c] > x[row * cols + old] || (x[row * cols + c] == x[row * cols + old] && c < old)) {\n"
          "      int seen = atomicCAS(at + row, old, c); if (seen == old) break; old = seen; }\n  }\n}\n", "budget", "needs no atomics"),
    Wrong("17-bug", "silenced: one thread looks", _SIGN + "  int row = blockIdx.x; if (row >= rows || threadIdx.x) return;\n  int w = -1;\n"
          "  for (int c = 0; c < cols; ++c) if (w < 0 || x[row * cols + c] > x[row * cols + w]) w = c;\n  at[row] = w;\n}\n", "parallelism", ""),
    Wrong("17-bug", "a thread compares as floats", _largest("v > most", "(float)v > (float)most"), "results", "as ints"),
    Wrong("17-bug", "compared as floats", _largest("best[o] > best[t] || (best[o] == best[t]", "(float)best[o] > (float)best[t] || ((float)best[o] == (float)best[t]"), "results", ""),
    Wrong("17-bug", "0 for a row without elements", _largest("at[row] = place[0]", "at[row] = max(place[0], 0)"), "results", "For an empty row, it is -1"),
    Wrong("17-bug", "nothing for a row without elements", _largest("if (row >= rows)", "if (row >= rows || cols == 0)"), "results", "For an empty row, it is -1"),
    Wrong("17-bug", "places of 16 bits", _largest("int best[1024], place[1024]", "int best[1024]; __shared__ unsigned short place[1024]",
          "place[o] >= 0", "place[o] != 65535", "place[t] < 0", "place[t] == 65535", "at[row] = place[0]", "at[row] = place[0] == 65535 ? -1 : place[0]"), "results", ""),
    Wrong("17-bug", "all threads write", _largest("if (t == 0) at[row]", "at[row]"), "hazards", "one thread of one block"),
    Wrong("17-bug", "columns beyond the block are left out", _largest("for (int c = t; c < cols; c += blockDim.x) {", "int c = t; if (c < cols) {"), "results", ""),
    Wrong("17-bug", "256 threads at most", _largest("best[1024], place[1024]", "best[256], place[256]"), "results", ""),
    Right("17-bug", "the reference", _ARGMAX),
    Right("17-bug", "one key of value and place", _SIGN + "  __shared__ long long keys[1024]; int row = blockIdx.x, t = threadIdx.x; if (row >= rows) return;\n"
          "  long long none = -0x7fffffffffffffffll - 1, mine = none; // the place counts down, so that the first wins\n"
          "  for (int c = t; c < cols; c += blockDim.x) { long long key = (long long)x[row * cols + c] * 0x100000000ll + (0x7fffffff - c); if (key > mine) mine = key; }\n"
          "  keys[t] = mine; __syncthreads();\n"
          "  for (int n = blockDim.x; n > 1; n = (n + 1) / 2) { int o = t + (n + 1) / 2; if (o < n && keys[o] > keys[t]) keys[t] = keys[o]; __syncthreads(); }\n"
          "  if (t == 0) at[row] = keys[0] == none ? -1 : 0x7fffffff - (int)(keys[0] & 0xffffffff);\n}\n"),
    Right("17-bug", "the first power of two below", _largest(_TREE,
          "    int half = 1; while (2 * half < blockDim.x) half *= 2;\n    for (; half > 0; half /= 2) {\n        int o = t + half;\n"
          f"        if (t < half && o < blockDim.x && place[o] >= 0 && {_BETTER}) {{ best[t] = best[o]; place[t] = place[o]; }}\n        __syncthreads();\n    }}\n")),
    Right("17-bug", "cooperative groups' barrier", "#include <cooperative_groups.h>\n" + _largest("__syncthreads()", "cooperative_groups::this_thread_block().sync()")),
    Right("17-bug", "the least int to begin with", _largest("most = 0, where = -1", "most = -2147483647 - 1, where = -1", "where < 0 || v > most", "v > most || where == -1")),
)

# --- 17-capstone

_ATTEND = (resources.files(content) / "n17_interview" / "kernels" / "attend.cu").read_text(encoding="utf-8")


def _changed(code: str, *changes: str) -> str:
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in code, old
        code = code.replace(old, new)
    return code


def _attend(*changes: str) -> str:
    return _changed(_ATTEND, *changes)


def _without_parts(code: str) -> str:
    begin, end = code.index("    float* part ="), code.index("    out[head * 32 + lane]")
    return code[:begin] + code[end:]


_REDUCE = "for (int d = 16; d > 0; d /= 2) score += __shfl_xor_sync(~0u, score, d);"
_LOOP = "for (int t = blockIdx.x * warps + warp; t < tokens; t += gridDim.x * warps) {"
_FACTORS = "own = weight > 0 ? expf(top - highest) : 0, other = other_weight > 0 ? expf(other_top - highest) : 0;"
_COMBINE_WARPS = "for (int w = 1; w < warps; ++w) combine(top, weight, sum, tops[w], weights[w], sums[w][lane]);"
_TICKET = "if (__shfl_sync(~0u, ticket, 0) < gridDim.x - 1) return;"
_ONE_BLOCK = _attend("#define SPLITS 8", "")
_ALL_WARPS = _changed(_without_parts(_ONE_BLOCK), "    if (warp > 0) return;\n", "    __syncthreads();\n    top = __int_as_float(0xff800000), weight = sum = 0;\n",
                      "int w = 1; w < warps", "int w = 0; w < warps")
_STEPS = (
    Wrong("17-capstone", "does not subtract the largest score", _attend("float higher = fmaxf(top, score), old = expf(top - higher), now = expf(score - higher);",
          "float higher = 0, old = 1, now = expf(score);"), "results", "exponential that overflows"),
    Wrong("17-capstone", "the sum does not shrink", _attend("sum = sum * old + now", "sum = sum + now"), "results", "the sum and the weight so far must shrink"),
    Wrong("17-capstone", "the weights do not shrink", _attend("weight = weight * old + now", "weight = weight + now"), "results", "the sum and the weight so far must shrink"),
    Wrong("17-capstone", "combines the parts without rescaling", _attend(_FACTORS, "own = 1, other = 1;"), "results", "where warps or blocks are combined"),
    Wrong("17-capstone", "a warp without a token", _attend(_FACTORS, "own = expf(top - highest), other = expf(other_top - highest);"), "results", "has no token"),
    Wrong("17-capstone", "the scale is forgotten", _attend("[head * 32 + lane] * scale, top", "[head * 32 + lane], top"), "results", ""),
    Wrong("17-capstone", "the largest score begins at 0", _attend("top = __int_as_float(0xff800000)", "top = 0"), "results", "subtract the largest score"),
    Wrong("17-capstone", "scores are capped", _attend("fmaxf(top, score)", "fmaxf(top, fminf(score, 85))"), "results", ""),
    Wrong("17-capstone", "12,288 tokens at most", _attend("t < tokens", "t < min(tokens, 12288)"), "results", ""),
    Wrong("17-capstone", "a scale above 0", _attend("* scale, top", "* fabsf(scale), top"), "results", ""),
    Wrong("17-capstone", "the last token is left out", _attend("t < tokens; t +=", "t < tokens - 1 || t == 0; t +="), "results", ""),
    Wrong("17-capstone", "joined by the first warp's largest", _attend("? expf(other_top - highest)", "? expf(other_top - top)"), "results", "NaN and ∞ come from"),
    Wrong("17-capstone", "four warps only", _attend("w < warps; ++w) combine", "w < min(warps, 4); ++w) combine"), "results", ""),
    Wrong("17-capstone", "the first warp's tokens only", _attend(_COMBINE_WARPS, ""), "results", ""),
    Wrong("17-capstone", "no barrier", _attend("    __syncthreads();\n", ""), "results", ""),
    Wrong("17-capstone", "half of the lanes add", _attend("int d = 16; d > 0", "int d = 8; d > 0"), "results", ""),
    Wrong("17-capstone", "no guard for the heads", _attend("    if (head >= heads) return;\n", ""), "results", "can be `heads` or more"),
    Wrong("17-capstone", "keys for values", _attend("now * v[t * 32 + lane]", "now * k[t * 32 + lane]"), "results", ""),
    Wrong("17-capstone", "all warps write", _ALL_WARPS, "hazards", "Let one warp write"),
    Wrong("17-capstone", "every lane computes the whole score", _attend("float score = q * k[t * 32 + lane];",
          "float score = 0; for (int n = 0; n < 32; ++n) score += query[head * 32 + n] * scale * k[t * 32 + n];", _REDUCE, ""), "budget", ""),
    Wrong("17-capstone", "keys are read twice", _attend(_LOOP, f"{_LOOP} float s = q * k[t * 32 + lane];"
          " for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(~0u, s, d); top = fmaxf(top, s); }\n    " + _LOOP), "budget", ""),
    Wrong("17-capstone", "one warp does it all", _attend(_LOOP, "for (int t = blockIdx.x; warp == 0 && t < tokens; t += gridDim.x) {"), "parallelism", ""),
    Right("17-capstone", "the reference", _ATTEND),
    Right("17-capstone", "down, then handed round", _attend(_REDUCE, "for (int d = 16; d > 0; d /= 2) score += __shfl_down_sync(~0u, score, d);\n"
          "        score = __shfl_sync(~0u, score, 0); // no atomics, no naive pass")),
    Right("17-capstone", "two tokens at a time", _changed(_ONE_BLOCK, _LOOP, "for (int t = warp; t + warps < tokens; t += 2 * warps) {\n"
          "        float a = q * k[t * 32 + lane], b = q * k[(t + warps) * 32 + lane];\n"
          "        for (int d = 16; d > 0; d /= 2) { a += __shfl_xor_sync(~0u, a, d); b += __shfl_xor_sync(~0u, b, d); }\n"
          "        float higher = fmaxf(top, fmaxf(a, b)), old = expf(top - higher), x = expf(a - higher), y = expf(b - higher);\n"
          "        weight = weight * old + x + y;\n"
          "        sum = sum * old + x * v[t * 32 + lane] + y * v[(t + warps) * 32 + lane];\n        top = higher;\n    }\n"
          "    int rest = warp + (tokens > warp ? (tokens - warp + warps - 1) / warps / 2 * 2 * warps : 0);\n"
          "    for (int t = rest; t < tokens; t += warps) {")),
    Right("17-capstone", "a branch where the largest changes", _attend(
          "float higher = fmaxf(top, score), old = expf(top - higher), now = expf(score - higher);",
          "float higher = top, old = 1, now; if (score > top) { higher = score; old = expf(top - higher); now = 1; } else now = expf(score - top);")),
    Right("17-capstone", "a contiguous share a warp", _attend(_LOOP, "int all = warps * gridDim.x, own = blockIdx.x * warps + warp, each = (tokens + all - 1) / all;\n"
          "    for (int t = own * each; t < min(tokens, (own + 1) * each); ++t) {")),
    Wrong("17-capstone", "one block for all tokens of a head", _attend(_LOOP, "if (blockIdx.x > 0) return;\n"
          "    for (int t = warp; t < tokens; t += warps) {", "< gridDim.x - 1) return;", "!= 0) return;"), "results", ""),
    Wrong("17-capstone", "the last block number combines the parts", _attend(_TICKET, "if (blockIdx.x < gridDim.x - 1) return;"), "orders",
          "the last ticket of its head"),
    Wrong("17-capstone", "one ticket counter for all heads", _attend("&done[head]", "&done[0]"), "hazards", ""),
    Wrong("17-capstone", "no fence", _attend("    __threadfence();\n", ""), "hazards", "__threadfence()"),
    Wrong("17-capstone", "parts of a head only", _attend("(head * gridDim.x + blockIdx.x) * 34", "blockIdx.x * 34", "(head * gridDim.x + b) * 34", "b * 34"), "orders", "its own parts"),
    Wrong("17-capstone", "ticket before the results", _attend("    __threadfence();\n    __syncwarp();\n", "",
          "    float* part =", "    unsigned ticket = lane == 0 ? atomicAdd(&done[head], 1) : 0;\n    float* part =",
          "    unsigned ticket = lane == 0 ? atomicAdd(&done[head], 1) : 0;\n    if", "    if"), "hazards", "its ticket"),
    Wrong("17-capstone", "SPLITS of 0", _attend("SPLITS 8", "SPLITS 0"), "", "with a number from 1 to 64"),
    Wrong("17-capstone", "an expression as SPLITS", _attend("SPLITS 8", "SPLITS (2 * 4)"), "", "with a number from 1 to 64"),
    Wrong("17-capstone", "an atomic operation per warp", _attend("    if (warp > 0) return;\n",
          "    if (lane == 0) atomicAdd(&done[head], 0);\n    if (warp > 0) return;\n"), "budget", "One atomic operation per block"),
    Right("17-capstone", "one block per head", _ONE_BLOCK),
    Right("17-capstone", "64 blocks per head", _attend("SPLITS 8", "SPLITS 64 // as many as possible")),
    Right("17-capstone", "one block per head, without a ticket", _without_parts(_ONE_BLOCK)),
    Right("17-capstone", "three blocks, the ticket by all threads", _attend("SPLITS 8", "SPLITS 3", "__syncwarp();", "__syncwarp(); // all lanes have stored")),
    Right("17-capstone", "all results of the parts in the order of blocks", _attend(
          "    for (int b = 0; b < gridDim.x; ++b) {", "    top = __int_as_float(0xff800000), weight = sum = 0;\n    for (int b = 0; b < gridDim.x; ++b) {",
          "if (b != blockIdx.x) combine", "combine")),
    Right("17-capstone", "pairs and rows in arrays of their own", _attend(
          "float* part = parts + (head * gridDim.x + blockIdx.x) * 34;\n    part[lane] = sum;\n    if (lane == 0) { part[32] = top; part[33] = weight; }",
          ("int number = head * gridDim.x + blockIdx.x, all = heads * gridDim.x;\n    parts[number * 32 + lane] = sum;\n"
           "    if (lane == 0) ((float2*)(parts + 32 * all))[number] = make_float2(top, weight);"),
          "const float* other = parts + (head * gridDim.x + b) * 34;\n        if (b != blockIdx.x) combine(top, weight, sum, other[32], other[33], other[lane]);",
          ("int from = head * gridDim.x + b;\n        float2 pair = ((float2*)(parts + 32 * all))[from];\n"
           "        if (b != blockIdx.x) combine(top, weight, sum, pair.x, pair.y, parts[from * 32 + lane]);"))),
)

WRONG = tuple(one for one in (*_NAPKINS, *_CAUSES, *_BUGS, *SETTLED, *_STEPS) if isinstance(one, Wrong))
RIGHT = tuple(one for one in (*_NAPKINS, *_CAUSES, *_BUGS, *SETTLED, *_STEPS) if isinstance(one, Right))

"""Wrong and right answers to the exercises of notebook 14."""

from __future__ import annotations

import copy
import sys
from functools import partial
from importlib import resources
from typing import Any

from gpulab_course import content
from tests.answers import Right, Wrong


def _source(file: str, *changes: str) -> str:
    """A reference with texts in it replaced, by pairs."""
    code = (resources.files(content) / "n14_random" / "kernels" / file).read_text(encoding="utf-8")
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in code, old
        code = code.replace(old, new)
    return code


_PER_WORD = (
    'extern "C" __global__ void random_words(unsigned* words, unsigned key0, unsigned key1, long long first, int n) {\n'
    "  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {\n"
    "    unsigned long long at = first + i / 4;\n"
    "    uint4 v = philox(make_uint4((unsigned)at, (unsigned)(at >> 32), 0u, 0u), make_uint2(key0, key1));\n"
    "    words[i] = (i & 3) == 0 ? v.x : (i & 3) == 1 ? v.y : (i & 3) == 2 ? v.z : v.w;\n  }\n}\n"
)
_FUNCTION = _source("philox.cu").split('extern "C"')[0]
_WIDE = (
    "__device__ uint4 philox(uint4 c, uint2 key) {\n  for (int round = 10; round; round--) {\n"
    "    unsigned long long one = 0xD2511F53ull * c.x, two = 0xCD9E8D57ull * c.z;\n"
    "    c.x = unsigned(two >> 32) ^ c.y ^ key.x; c.y = unsigned(two);\n"
    "    c.z = unsigned(one >> 32) ^ c.w ^ key.y; c.w = unsigned(one);\n"
    "    key.x -= 0x61C88647u; key.y += 0xBB67AE85u; /* no __umulhi, no 9 rounds */\n  }\n  return c;\n}\n"
)


def _philox(*changes: str) -> str:
    return _source("philox.cu", *changes)


_WORDS = (
    Wrong("14-philox", "9 rounds", _philox("round < 10", "round < 9"), "results", "9 rounds"),
    Wrong("14-philox", "11 rounds", _philox("round < 10", "round <= 10"), "results", "11 rounds"),
    Wrong("14-philox", "the key does not grow", _philox("key.x += 0x9E3779B9u;", "", "key.y += 0xBB67AE85u;", ""), "results",
          "grow after each round"),
    Wrong("14-philox", "half of the key stays", _philox("key.y += 0xBB67AE85u;", ""), "results", ""),
    Wrong("14-philox", "the key grows first", _philox("    for (int", "    key.x += 0x9E3779B9u; key.y += 0xBB67AE85u;\n    for (int"),
          "results", "the first round uses it unchanged"),
    Wrong("14-philox", "ignores the upper 32 bits of the counter", _philox("unsigned(counter >> 32)", "0"), "results", "upper 32 bits belong"),
    Wrong("14-philox", "a counter of 32 bits", _philox("unsigned long long counter = first", "unsigned counter = unsigned(first)",
                                                     "unsigned(counter >> 32)", "unsigned(first >> 32)"), "results", "upper 32 bits belong"),
    Wrong("14-philox", "signed products", _philox("__umulhi(0xD2511F53u, c.x)", "unsigned(__mulhi(int(0xD2511F53u), int(c.x)))"),
          "results", "without signs"),
    Wrong("14-philox", "multiplies with signs", _philox("unsigned high0 = __umulhi(0xD2511F53u, c.x)",
                                                "unsigned high0 = unsigned((int(0xD2511F53u) * (long long)int(c.x)) >> 32)"), "results", "without signs"),
    Wrong("14-philox", "not crossed over", _philox("make_uint4(high1 ^ c.y ^ key.x, low1, high0 ^ c.w ^ key.y, low0)",
                                                   "make_uint4(high0 ^ c.y ^ key.x, low0, high1 ^ c.w ^ key.y, low1)"), "results", "new positions"),
    Wrong("14-philox", "the multipliers exchanged", _philox("0xD2511F53u", "0x1u", "0xCD9E8D57u", "0xD2511F53u", "0x1u", "0xCD9E8D57u"),
          "results", "new positions"),
    Wrong("14-philox", "the key's halves exchanged", _philox("make_uint2(key0, key1)", "make_uint2(key1, key0)"), "results", ""),
    Wrong("14-philox", "counter in the third word", _philox("make_uint4(unsigned(counter), unsigned(counter >> 32), 0, 0)",
                                                           "make_uint4(0, 0, unsigned(counter), unsigned(counter >> 32))"), "results", ""),
    Wrong("14-philox", "words backwards", _philox("words[i] = four.x", "words[i] = four.w", "words[i + 3] = four.w", "words[i + 3] = four.x"),
          "results", ""),
    Wrong("14-philox", "no guard within four", _philox("if (i + 3 < n) ", ""), "results", "guard each"),
    Wrong("14-philox", "whole fours only", _philox("if (i >= n) return;", "if (i + 3 >= n) return;"), "results", ""),
    Wrong("14-philox", "one word a thread, first of four", _FUNCTION + _PER_WORD.replace("(i & 3) == 0 ? v.x : (i & 3) == 1 ? v.y : (i & 3) == 2 ? v.z : v.w", "v.x"),
          "results", ""),
    Wrong("14-philox", "one thread", _FUNCTION + _PER_WORD.replace("int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x",
          "int i = 0; blockIdx.x + threadIdx.x == 0 && i < n; i++"), "parallelism", ""),
    Right("14-philox", "the reference", _philox()),
    Right("14-philox", "a word a thread, over the grid", _FUNCTION + _PER_WORD),
    Right("14-philox", "products of 64 bits", _WIDE + _PER_WORD),
    Right("14-philox", "words in an array", _philox("    words[i] = four.x;\n    if (i + 1 < n) words[i + 1] = four.y;\n    if (i + 2 < n) words[i + 2] = four.z;\n"
          "    if (i + 3 < n) words[i + 3] = four.w;\n", "    unsigned w[4] = {four.x, four.y, four.z, four.w};\n    for (int k = 0; k < 4 && i + k < n; ++k) words[i + k] = w[k];\n")),
    Right("14-philox", "unrolled", _philox("    for (int", "    #pragma unroll\n    for (int")),
)


def _sums(*changes: str) -> str:
    return _source("tile_sums.cu", *changes)


_TREE = (
    "        for (int half = 128; half > 0; half /= 2) {\n"
    "            for (int k = threadIdx.x; k < half; k += blockDim.x) s[k] += s[k + half];\n"
    "            __syncthreads();\n        }\n"
)
_HEAD = 'extern "C" __global__ void tile_sums(const float* x, float* sums, int n) {\n'
_SUMS = (
    Wrong("14-sum", "atomics", _HEAD + "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
          " atomicAdd(&sums[i / 256], x[i]); }", "results", ""),
    Wrong("14-sum", "atomics in shared memory", _sums(_TREE, "", "s[k] = i < n ? x[i] : 0;",
          "s[k] = 0; if (i < n) atomicAdd(&s[0], x[i]);"), "results", ""),
    Wrong("14-sum", "one after the other", _sums(_TREE, "        if (threadIdx.x == 0) for (int k = 1; k < 256; ++k) s[0] += s[k];\n"),
          "results", "not bit for bit"),
    Wrong("14-sum", "adds neighbouring elements first", _sums(_TREE, "        for (int step = 1; step < 256; step *= 2) {\n"
          "            for (int k = 2 * step * threadIdx.x; k < 256; k += 2 * step * blockDim.x) s[k] += s[k + step];\n"
          "            __syncthreads();\n        }\n"), "results", "not bit for bit"),
    Wrong("14-sum", "a part a thread, then a tree of blockDim", _sums(_TREE,
          "        float part = 0;\n        for (int k = threadIdx.x; k < 256; k += blockDim.x) part += s[k];\n        __syncthreads();\n"
          "        if (threadIdx.x < 256) s[threadIdx.x] = part;\n        __syncthreads();\n"
          "        if (threadIdx.x == 0) for (int k = 1; k < min(256, blockDim.x); ++k) s[0] += s[k];\n"), "results", "not bit for bit"),
    Wrong("14-sum", "in double, rounded once", _sums("__shared__ float s", "__shared__ double s"), "results", "not bit for bit"),
    Wrong("14-sum", "compensated", _sums(_TREE, "        if (threadIdx.x == 0) { float sum = s[0], lost = 0; for (int k = 1; k < 256; ++k) {"
          " float y = s[k] - lost, t = sum + y; lost = (t - sum) - y; sum = t; } s[0] = sum; }\n"), "results", ""),
    Wrong("14-sum", "tiles of blockDim", _sums("tile * 256 + k", "tile * blockDim.x + k"), "results", ""),
    Wrong("14-sum", "blocks of 256 at least", _sums("for (int k = threadIdx.x; k < 256; k += blockDim.x) {", "{ int k = threadIdx.x; if (k < 256)",
          "            int i = tile * 256 + k;\n            s[k] = i < n ? x[i] : 0;", "            s[k] = tile * 256 + k < n ? x[tile * 256 + k] : 0;"), "results", ""),
    Wrong("14-sum", "only one tile per block", _sums("for (int tile = blockIdx.x; tile < (n + 255) / 256; tile += gridDim.x) {",
          "int tile = blockIdx.x; if (tile < (n + 255) / 256) {"), "results", "each block goes on"),
    Wrong("14-sum", "no guard", _sums("i < n ? x[i] : 0", "x[i]"), "results", "may have fewer"),
    Wrong("14-sum", "-0 beyond n", _sums("x[i] : 0;", "x[i] : -0.0f;"), "results", "sign of a zero"),
    Wrong("14-sum", "0 and the sum", _sums("sums[tile] = s[0]", "sums[tile] = 0.0f + s[0]"), "results", "sign of a zero"),
    Wrong("14-sum", "a warp's number in 16 bits", _sums("if (threadIdx.x == 0) sums[tile]",
          "short warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;\n        if (threadIdx.x == 0 && warp >= 0) sums[tile]"),
          "results", "never written"),
    Wrong("14-sum", "a block's number in 16 bits", _sums("int tile = blockIdx.x", "short tile = blockIdx.x"), "results", ""),
    Wrong("14-sum", "NaN for a lone infinity", _sums("sums[tile] = s[0]", "sums[tile] = s[0] + 0 * s[1]"), "results", ""),
    Wrong("14-sum", "no barrier after loading", _sums("        }\n        __syncthreads();\n        for (int half", "        }\n        for (int half"), "results", ""),
    Wrong("14-sum", "a barrier of the warp", _sums("s[k] += s[k + half];\n            __syncthreads();", "s[k] += s[k + half];\n            __syncwarp();"), "results", ""),
    Wrong("14-sum", "all threads write", _sums("if (threadIdx.x == 0) sums", "sums"), "hazards", "One thread writes"),
    Wrong("14-sum", "thread 0 climbs the tree", _sums("for (int k = threadIdx.x; k < half; k += blockDim.x) s[k]",
          "if (threadIdx.x == 0) for (int k = 0; k < half; ++k) s[k]"), "parallelism", ""),
    Right("14-sum", "the reference", _sums()),
    Right("14-sum", "a half in registers first", _sums("            s[k] = i < n ? x[i] : 0;", "            s[k] = (i < n) ? x[i] : 0.0f;", "half = 128", "half = 256 / 2")),
    Right("14-sum", "backwards, each place the same", _sums("for (int k = threadIdx.x; k < half; k += blockDim.x) s[k] += s[k + half];",
          "for (int k = half - 1 - (int)threadIdx.x; k >= 0; k -= (int)blockDim.x) s[k] = s[k + half] + s[k];")),
    Right("14-sum", "no barrier behind the last step", _sums("sums[tile] = s[0];\n        __syncthreads();", "sums[tile] = s[0];")),
    Right("14-sum", "two boxes in turns", _sums("__shared__ float s[256];", "__shared__ float box[2][256]; int turn = 0;",
          "        for (int k = threadIdx.x; k < 256", "        float* s = box[turn]; turn ^= 1;\n        for (int k = threadIdx.x; k < 256")),
    Right("14-sum", "cooperative groups' barrier", "#include <cooperative_groups.h>\n" + _sums("__syncthreads()", "cooperative_groups::this_thread_block().sync()")),
)


def _dropout(*changes: str) -> str:
    return _source("dropout.cu", *changes)


_AT = "unsigned long long at = offset + i;"
_LOOP = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {"
_THREAD = "(blockIdx.x * blockDim.x + threadIdx.x)"
_MASKS = (
    Wrong("14-dropout", "seed + thread into an LCG", _dropout(
        "unsigned word = at % 4 == 0 ? four.x : at % 4 == 1 ? four.y : at % 4 == 2 ? four.z : four.w;",
        f"unsigned word = (key0 + {_THREAD}) * 1664525u + 1013904223u;"), "results", "must not depend on the thread"),
    Wrong("14-dropout", "the offset is left out", _dropout(_AT, "unsigned long long at = i;"), "results", "mask of offset 0"),
    Wrong("14-dropout", "the offset into the key", _dropout(_AT, "unsigned long long at = i;", "make_uint2(key0, key1)", "make_uint2(key0 + unsigned(offset), key1)"),
          "results", ""),
    Wrong("14-dropout", "the offset counts fours", _dropout(_AT, "unsigned long long at = 4 * offset + i;"), "results", ""),
    Wrong("14-dropout", "a state for each thread", _dropout(_LOOP, f"unsigned drawn = 0; {_LOOP}", _AT, "unsigned long long at = offset + drawn++;",
          "make_uint4(unsigned(at >> 2), unsigned(at >> 34), 0, 0)", f"make_uint4(unsigned(at >> 2), unsigned(at >> 34), {_THREAD}, 0)"), "results", "must not depend on the thread"),
    Wrong("14-dropout", "the thread's number instead of the element's", _dropout(_AT, f"unsigned long long at = offset + {_THREAD};"), "results", "must not depend on the thread"),
    Wrong("14-dropout", "the key depends on the block", _dropout("make_uint2(key0, key1)", "make_uint2(key0, key1 ^ blockIdx.x)"), "results", "must not depend on the thread"),
    Wrong("14-dropout", "one seed for all threads", _dropout(_AT, "unsigned long long at = offset;"), "results", ""),
    Wrong("14-dropout", "first word only", _dropout("at % 4 == 0 ? four.x : at % 4 == 1 ? four.y : at % 4 == 2 ? four.z : four.w", "four.x"), "results", ""),
    Wrong("14-dropout", "words by the element, not by the offset", _dropout("at % 4", "i % 4"), "results", ""),
    Wrong("14-dropout", "only 32 bits of the counter", _dropout("unsigned(at >> 34)", "0"), "results", "counters have 64 bits"),
    Wrong("14-dropout", "40 bits of the counter", _dropout("unsigned(at >> 34)", "unsigned(at >> 34) & 255u"), "results", ""),
    Wrong("14-dropout", "the offset in double precision", _dropout(_AT, "unsigned long long at = double(offset) + i;"), "results", ""),
    Wrong("14-dropout", "a whole scale", _dropout("x[i] * scale", "x[i] * int(scale)"), "results", ""),
    Wrong("14-dropout", "32 bits of the offset", _dropout(_AT, "unsigned at = unsigned(offset) + i;", "unsigned(at >> 34)", "0"), "results", ""),
    Wrong("14-dropout", "kept and dropped exchanged", _dropout("word < dropped", "word >= dropped"), "results", ""),
    Wrong("14-dropout", "the limit is dropped, too", _dropout("word < dropped", "word <= dropped"), "results", "unsigned integers"),
    Wrong("14-dropout", "compares floats instead of integers", _dropout("word < dropped", "word * 2.3283064e-10f < dropped * 2.3283064e-10f"), "results", "unsigned integers"),
    Wrong("14-dropout", "not scaled", _dropout("x[i] * scale", "x[i]"), "results", ""),
    Wrong("14-dropout", "multiplied by a mask", _dropout("word < dropped ? 0 : x[i] * scale", "float(word >= dropped) * x[i] * scale"), "results", ""),
    Wrong("14-dropout", "only one element per thread", _dropout(_LOOP, f"int i = {_THREAD}; if (i < n) {{"), "results", "so use a loop"),
    Wrong("14-dropout", "no guard", _dropout(_LOOP, _LOOP.replace("i < n", "i <= n")), "results", "Guard the end"),
    Right("14-dropout", "the reference", _dropout()),
    Right("14-dropout", "words in an array", _dropout("unsigned word = at % 4 == 0 ? four.x : at % 4 == 1 ? four.y : at % 4 == 2 ? four.z : four.w;",
          "unsigned four_words[4] = {four.x, four.y, four.z, four.w}; unsigned word = four_words[at & 3];")),
    Right("14-dropout", "from the last element on", _dropout(_LOOP, f"for (int i = n - 1 - {_THREAD}; i >= 0; i -= int(gridDim.x * blockDim.x)) {{")),
    Right("14-dropout", "neighbours to a thread", _dropout(_LOOP, "int all = gridDim.x * blockDim.x, each = (n + all - 1) / all, begin = "
          f"{_THREAD} * each;\n    for (int i = begin; i < min(n, begin + each); ++i) {{")),
    Right("14-dropout", "an if", _dropout("y[i] = word < dropped ? 0 : x[i] * scale;", "y[i] = 0.0f; if (!(word < dropped)) y[i] = scale * x[i];")),
)


def _twice(
    *, python: bool = True, numpy: bool = True, gpus: Any = slice(None), late: bool = False, **how: Any
) -> Any:
    """An answer to 14-state, right unless told otherwise."""

    def states(rngs: Any) -> list[Any]:
        bits = [rng.bit_generator for rng in rngs["gpus"][gpus]]
        held = [b._state if how.get("alias") else b._state.get() for b in bits]
        return [rngs["python"].getstate(), rngs["numpy"].bit_generator.state, held]

    def twice(work: Any, rngs: Any) -> Any:
        kept = None if late else states(rngs)
        first = work()
        kept = states(rngs) if late else kept
        assert kept is not None
        if python:
            rngs["python"].setstate(kept[0])
        if numpy:
            rngs["numpy"].bit_generator.state = kept[1]
        for rng, state in zip(rngs["gpus"][gpus], kept[2], strict=True):
            if how.get("alias"):
                continue
            rng.bit_generator._state.set(state)
        second = work()
        return (second, first[::-1]) if how.get("backwards") else (first, second)

    return twice


def _ran_once(work: Any, rngs: Any) -> Any:
    first = work()
    return first, first


def _reseeded(work: Any, rngs: Any) -> Any:
    def seed() -> None:
        import numpy as np

        rngs["python"].seed(1)
        rngs["numpy"].bit_generator.state = np.random.default_rng(1).bit_generator.state
        for rng in rngs["gpus"]:
            rng.bit_generator._state.set(0 * rng.bit_generator._state.get() + 7)

    seed()
    first = work()
    seed()
    return first, work()


def _other_names(work: Any, rngs: Any) -> Any:
    kept = {"python": copy.deepcopy(rngs["python"]), "numpy": copy.deepcopy(rngs["numpy"])}
    first = work()
    rngs = {**rngs, **kept}
    return first, work()


def _pickled(work: Any, rngs: Any) -> Any:
    kept = copy.deepcopy(rngs)
    first = work()
    rngs.update(kept)
    return first, work()


def _copied_in(work: Any, rngs: Any) -> Any:
    kept = copy.deepcopy(rngs["python"]), copy.deepcopy(rngs["numpy"])
    held = [rng.bit_generator._state.get() for rng in rngs["gpus"]]
    first = work()
    rngs["python"], rngs["numpy"] = kept
    for rng, state in zip(rngs["gpus"], held, strict=True):
        rng.bit_generator._state.set(state)
    return [first, work()]


def _other_arrays(work: Any, rngs: Any) -> Any:
    python, numpy = rngs["python"].getstate(), rngs["numpy"].bit_generator.state
    held = []
    for rng in rngs["gpus"]:
        with rng.bit_generator._state.device:
            held.append(rng.bit_generator._state.copy())
    first = work()
    rngs["python"].setstate(python)
    rngs["numpy"].bit_generator.state = numpy
    for rng, state in zip(rngs["gpus"], held, strict=True):
        rng.bit_generator._state = state
    return first, work()


def _half_a_state(work: Any, rngs: Any) -> Any:
    """Keeps the first half of each state only."""
    held = [rng.bit_generator._state.get() for rng in rngs["gpus"]]
    python, numpy = rngs["python"].getstate(), rngs["numpy"].bit_generator.state
    first = work()
    rngs["python"].setstate(python)
    rngs["numpy"].bit_generator.state = numpy
    for rng, state in zip(rngs["gpus"], held, strict=True):
        now = rng.bit_generator._state.get()
        now[: len(now) // 1024 * 2] = state[: len(now) // 1024 * 2]
        rng.bit_generator._state.set(now)
    return first, work()


def _three_runs(work: Any, rngs: Any) -> Any:
    work()
    return _twice()(work, rngs)


def _put_back_again(work: Any, rngs: Any) -> Any:
    """Leaves the generators where the first run began."""
    held = [rng.bit_generator._state.get() for rng in rngs["gpus"]]
    pair = _twice()(work, rngs)
    for rng, state in zip(rngs["gpus"], held, strict=True):
        rng.bit_generator._state.set(state)
    return pair


def _by_arrays(work: Any, rngs: Any) -> Any:
    kept = []
    for rng in rngs["gpus"]:
        with rng.bit_generator._state.device:
            kept.append(rng.bit_generator._state.copy())
    python, numpy = rngs["python"].getstate(), copy.deepcopy(rngs["numpy"].bit_generator.state)
    results = [work()]
    rngs["python"].setstate(python)
    rngs["numpy"].bit_generator.state = numpy
    for rng, state in zip(rngs["gpus"], kept, strict=True):
        with state.device:
            rng.bit_generator._state[...] = state
    return (*results, work())


def _by_functions(work: Any, rngs: Any) -> Any:
    numpy, python = rngs["numpy"].bit_generator, rngs["python"]
    bits = [rng.bit_generator for rng in rngs["gpus"]]
    undo = [partial(python.setstate, python.getstate()), partial(setattr, numpy, "state", numpy.state)]
    undo += [partial(b._state.set, b._state.get()) for b in bits]
    first = work()
    for step in undo:
        step()
    return first, work()


_STATES = (
    Wrong(
        "14-state",
        "nothing is kept",
        lambda work, rngs: (work(), work()),
        "",
        "restore it before the second",
    ),
    Wrong("14-state", "one device of two", _twice(gpus=slice(1)), "", "GPU 1's generator"),
    Wrong("14-state", "the last device only", _twice(gpus=slice(1, None)), "", "GPU 0's generator"),
    Wrong("14-state", "only Python's state", _twice(numpy=False, gpus=slice(0)), "", "NumPy's and GPU 0's"),
    Wrong("14-state", "only NumPy's state", _twice(python=False, gpus=slice(0)), "", "Python's and GPU 0's"),
    Wrong("14-state", "only the states of the GPUs", _twice(python=False, numpy=False), "", "Python's and NumPy's"),
    Wrong("14-state", "after instead of before", _twice(late=True), "", "before the first run"),
    Wrong("14-state", "no copy of the GPUs' states", _twice(alias=True), "", "Save a copy"),
    Wrong("14-state", "seeded before each run", _reseeded, "", "for example by seeding"),
    Wrong("14-state", "one run, told twice", _ran_once, "", "1 time, not 2 times"),
    Wrong("14-state", "a run to warm up", _three_runs, "", "3 times, not 2 times"),
    Wrong("14-state", "saves other names of the same states", _other_names, "", "restore it before the second"),
    Wrong("14-state", "copies of all objects", _pickled, "", "cannot be pickled"),
    Wrong("14-state", "two threads' states", _half_a_state, "", "does not draw the same numbers"),
    Wrong("14-state", "the second result alone", lambda work, rngs: _twice()(work, rngs)[1], "", "as a pair"),
    Wrong("14-state", "returns the results in reverse order", _twice(backwards=True), "", "two results of work()"),
    Wrong("14-state", "put back at the end, too", _put_back_again, "", "after a single run"),
    Right("14-state", "bytes on the host", _twice()),
    Right("14-state", "copies on the devices", _by_arrays),
    Right("14-state", "other arrays put in", _other_arrays),
    Right("14-state", "host generators copied", _copied_in),
    Right("14-state", "a list of functions", _by_functions),
)


def _one_off(runs: int) -> Any:
    """All on, one off at a time, so many runs each."""

    def needed(run: Any, switches: Any) -> Any:
        return {name for name in switches if len({run(set(switches) - {name}) for _ in range(runs)}) > 1}

    return needed


def _one_on(run: Any, switches: Any) -> Any:
    """Turns one on at a time: with two causes no single switch helps."""
    return {name for name in switches if len({run({name}) for _ in range(30)}) == 1}


def _until_it_agrees(run: Any, switches: Any) -> Any:
    on: list[str] = []
    for name in switches:
        if len({run(on) for _ in range(20)}) == 1:
            break
        on.append(name)
    return on


def _against_all_on(run: Any, switches: Any) -> Any:
    wanted = run(switches)
    return [
        name for name in switches if any(run([s for s in switches if s != name]) != wanted for _ in range(30))
    ]


def _dropping(run: Any, switches: Any) -> Any:
    on = list(switches)
    for name in switches:
        fewer = [s for s in on if s != name]
        if len({run(fewer) for _ in range(30)}) == 1:
            on = fewer
    return tuple(on)


def _stops_early(run: Any, switches: Any) -> Any:
    found = set()
    for name in switches:
        first = run(set(switches) - {name})
        for _ in range(35):
            if run(set(switches) - {name}) != first:
                found.add(name)
                break
    return found


_SWITCHES = (
    Wrong("14-switch", "manual_seed alone", lambda run, switches: {"seed"}, "", "leaves out 'fixed order'"),
    Wrong("14-switch", "turns all switches on", lambda run, switches: set(switches), "", "unnecessarily"),
    Wrong("14-switch", "turns no switch on", lambda run, switches: set(), "", "leaves out"),
    Wrong("14-switch", "only two runs for each set", _one_off(2), "", "agree prove nothing"),
    Wrong("14-switch", "three runs each", _one_off(3), "", "agree prove nothing"),
    Wrong("14-switch", "five runs each", _one_off(5), "", "agree prove nothing"),
    Wrong("14-switch", "one run each", _one_off(1), "", "leaves out"),
    Wrong("14-switch", "one on at a time", _one_on, "", ""),
    Wrong("14-switch", "until it agrees", _until_it_agrees, "", "unnecessarily"),
    Wrong("14-switch", "a thousand runs", _one_off(1000), "", "are enough"),
    Wrong("14-switch", "returns the number of switches", lambda run, switches: 2, "", "set of names"),
    Wrong(
        "14-switch", "a switch that is not there", lambda run, switches: run({"manual_seed"}), "", "no switch"
    ),
    Wrong("14-switch", "seed and order", lambda run, switches: ["seed", "fixed order"], "", "unnecessarily"),
    Wrong(
        "14-switch", "looks at what it was handed", lambda run, switches: set(run._cause_probabilities), "", "no attribute"
    ),
    Wrong(
        "14-switch",
        "looks at who called",
        lambda run, switches: set(sys._getframe(1).f_locals["causes"]),
        "",
        "causes",
    ),
    Right("14-switch", "one off, thirty runs", _one_off(30)),
    Right(
        "14-switch", "keys of a dict", lambda run, switches: dict.fromkeys(_one_off(30)(run, switches)).keys()
    ),
    Right("14-switch", "against all on", _against_all_on),
    Right("14-switch", "dropped one by one", _dropping),
    Right("14-switch", "stops at the first difference", _stops_early),
)

_ALL: tuple[Wrong | Right, ...] = (*_WORDS, *_SUMS, *_MASKS, *_STATES, *_SWITCHES)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]

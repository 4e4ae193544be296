"""Wrong and right answers to the exercises of notebook 18."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gpulab_course import folders
from tests.answers import Right, Wrong, kernel_text

_FOLDER = next(folder.path for folder in folders.list_folders() if folder.number == "18")


def _source(file: str) -> str:
    return (_FOLDER / "kernels" / file).read_text(encoding="utf-8")


def _changed(text: str, *changes: tuple[str, str]) -> str:
    """Return a text with replacements, each of which must apply."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def _held(name: str, row: int, column: int) -> tuple[int, int]:
    if name == "a":
        return row % 8 * 4 + column // 2 % 4, row // 8 + 2 * (column // 8)
    if name == "b":
        return column * 4 + row // 2 % 4, row // 8
    return row % 8 * 4 + column // 2, 2 * (row // 8) + column % 2


def _but(name: str, other: Any) -> Any:
    """A right function, but for one matrix."""
    return lambda m, row, column: other(row, column) if m == name else _held(m, row, column)


def _by_search(name: str, row: int, column: int) -> tuple[int, int]:
    for lane in range(32):
        g, s = divmod(lane, 4)
        for register in range(4):
            for half in range(2):
                places = {
                    "a": (g + 8 * (register & 1), 2 * s + half + 8 * (register >> 1)),
                    "b": (2 * s + half + 8 * register, g),
                    "d": (g + 8 * (register >> 1), 2 * s + (register & 1)),
                }
                if places[name] == (row, column):
                    return lane, register
    raise AssertionError


def _by_table(name: str, row: int, column: int) -> Any:
    lane, register, half = np.indices((32, 2 if name == "b" else 4, 1 if name == "d" else 2))
    g, s = lane >> 2, lane & 3
    rows, columns = {
        "a": (g + 8 * (register % 2), 2 * s + half + 8 * (register // 2)),
        "b": (2 * s + half + 8 * register, g),
        "d": (g + 8 * (register // 2), 2 * s + register % 2),
    }[name]
    return np.argwhere((rows == row) & (columns == column))[0][:2]


_FRAGMENTS = (
    Wrong("18-fragment", "rows 8 to 15 in more lanes", _but("a", lambda r, c: (r * 4 + c % 8 // 2, r // 8 + c // 8 * 2)), "",
          "a lane has elements of two rows, 8 apart"),
    Wrong("18-fragment", "registers 1 and 2 exchanged", _but("a", lambda r, c: (r % 8 * 4 + c % 8 // 2, r // 8 * 2 + c // 8)), "",
          "register 1 of a has the rows 8 below"),
    Wrong("18-fragment", "elements for registers of a", _but("a", lambda r, c: (r % 8 * 4 + c % 8 // 2, 2 * (r // 8 + c // 8 * 2) + c % 2)), "",
          "a register has two halves"),
    Wrong("18-fragment", "element numbers instead of register numbers in b", _but("b", lambda r, c: (c * 4 + r % 8 // 2, 2 * (r // 8) + r % 2)), "",
          "a register has two halves"),
    Wrong("18-fragment", "distributes b as d", _but("b", lambda r, c: (r % 8 * 4 + c // 2, r // 8)), "", "in b, the lane's group is the column"),
    Wrong("18-fragment", "two elements of d in a register", _but("d", lambda r, c: (r % 8 * 4 + c // 2, r // 8)), "", "an element of d is a float"),
    Wrong("18-fragment", "groups of eight lanes", _but("a", lambda r, c: (r % 4 * 8 + c % 8, r // 8 + c // 8 * 2)), "",
          "four neighbouring lanes share a row"),
    Wrong("18-fragment", "one element after another", lambda m, r, c: (divmod(r * (16 if m == "a" else 8) + c, 8)[0] % 32, 0), "",
          "function returned lane"),
    Wrong("18-fragment", "lane and element", lambda m, r, c: _held(m, r, c)[0], "", "Return two numbers"),
    Wrong("18-fragment", "the right register missing", lambda m, r, c: (_held(m, r, c)[0], 0), "", "the lanes of all elements of a are right"),
    Wrong("18-fragment", "as text", lambda m, r, c: f"lane {_held(m, r, c)[0]}", "", "Return two numbers"),
    Wrong("18-fragment", "only the first quarter of a", _but("a", lambda r, c: _held("a", r % 8, c % 8)), "", "the lanes of all elements of a are right"),
    Right("18-fragment", "remainders", _held),
    Right("18-fragment", "a search", _by_search),
    Right("18-fragment", "NumPy", _by_table),
    Right("18-fragment", "bits", lambda m, r, c: [((c if m == "b" else r) & 7) << 2 | ((r if m == "b" else c) >> 1 & 3),
          {"a": r >> 3 | c >> 3 << 1, "b": r >> 3, "d": r >> 3 << 1 | c & 1}[m]]),
)

_TILE = _source("tile.cu")
_LOAD_A = "for (int i = 0; i < 4; ++i) fa[i] = *(const unsigned*)(a + (g + i % 2 * 8) * 16 + s + i / 2 * 8);"
_PAIR = "__halves2half2(b[(s + 8 * i) * 8 + g], b[(s + 8 * i + 1) * 8 + g])"
_STORE = "for (int i = 0; i < 2; ++i) *(float2*)(d + (g + 8 * i) * 8 + s) = make_float2(sum[2 * i], sum[2 * i + 1]);"
_NAIVE_TILE = _source("tile_naive.cu")
_LOAD_B = f"""for (int i = 0; i < 2; ++i) {{
        half2 pair = {_PAIR};
        fb[i] = *(unsigned*)&pair;
    }}"""
_BITS = """for (int i = 0; i < 2; ++i) {
        const unsigned short* from = (const unsigned short*)b + (s + 8 * i) * 8 + g;
        fb[i] = from[0] | (unsigned)from[8] << 16;
    }"""
_TILES = (
    Wrong("18-tile", "without tensor cores", _NAIVE_TILE, "budget", "Let the tensor cores multiply"),
    Wrong("18-tile", "no guard", _changed(_TILE, ("if (warp >= n) return;", "")), "results", "if w is below n"),
    Wrong("18-tile", "registers 1 and 2 of a exchanged", _changed(_TILE, ("(g + i % 2 * 8) * 16 + s + i / 2 * 8", "(g + i / 2 * 8) * 16 + s + i % 2 * 8")),
          "results", "exchange the two"),
    Wrong("18-tile", "pairs along the rows of b", _changed(_TILE, (_PAIR, "__halves2half2(b[(g + 8 * i) * 8 + s], b[(g + 8 * i) * 8 + s + 1])")),
          "results", "two neighbours are below each other"),
    Wrong("18-tile", "the halves of a register of b exchanged", _changed(_TILE, (_PAIR, "__halves2half2(b[(s + 8 * i + 1) * 8 + g], b[(s + 8 * i) * 8 + g])")),
          "results", "in the lower 16 bits"),
    Wrong("18-tile", "half of the columns of a", _changed(_TILE, (_LOAD_A, "fa[2] = fa[3] = 0; " + _LOAD_A.replace("i < 4", "i < 2"))),
          "results", "Only the first 8 columns"),
    Wrong("18-tile", "rows below 8 stored", _changed(_TILE, (_STORE, _STORE.replace("i < 2", "i < 1"))), "results", "Some elements were never written"),
    Wrong("18-tile", "a lane's neighbours at odd columns", _changed(_TILE, ("s = lane % 4 * 2", "s = lane % 4")), "results", ""),
    Wrong("18-tile", "rounded to half", _changed(_TILE, (_STORE, "for (float& v : sum) v = __half2float(__float2half(v)); " + _STORE)), "results",
          "keep them in float"),
    Wrong("18-tile", "d by columns", _changed(_TILE, ("*(float2*)(d + (g + 8 * i) * 8 + s) = make_float2(sum[2 * i], sum[2 * i + 1])",
          "d[s * 16 + g + 8 * i] = sum[2 * i], d[(s + 1) * 16 + g + 8 * i] = sum[2 * i + 1]")), "results", ""),
    Wrong("18-tile", "every warp the first matrix", _changed(_TILE, ("a += warp * 256;", "")), "results", ""),
    Wrong("18-tile", "adds to the result", _changed(_TILE, (_STORE, _STORE.replace(
          "make_float2(sum[2 * i], sum[2 * i + 1])",
          "make_float2(sum[2 * i] + d[(g + 8 * i) * 8 + s], sum[2 * i + 1] + d[(g + 8 * i) * 8 + s + 1])"))), "results",
          "adds to the initial contents"),
    Wrong("18-tile", "multiplies twice", _changed(_TILE, ("multiply(sum, fa, fb);", ("for (int i = 0; i < 9; ++i) { for (float& v : sum) v = 0; multiply(sum, fa, fb); }"
          " if (n < 0) return; for (int i = 0; i < 40; ++i) asm volatile(\"\" :: \"f\"(sum[0] * i) : \"memory\");"))), "budget", "warp instructions"),
    Wrong("18-tile", "the first warp does all", _changed(_TILE, ("if (warp >= n) return;", "if (warp > 0) return; for (int m = 0; m < n; ++m) {"),
          ("a += warp * 256;", ""), ("b += warp * 128;", ""), ("d += warp * 128;", ""), (_STORE, f"{_STORE} a += 256; b += 128; d += 128; }}")),
          "parallelism", "few threads do the work of many"),
    Wrong("18-tile", "512 matrices at most", _changed(_TILE, ("warp >= n", "warp >= min(n, 512)")), "results", ""),
    Right("18-tile", "by the table", _TILE),
    Right("18-tile", "bits of b", _changed(_TILE, (_LOAD_B, _BITS))),
    Right("18-tile", "element by element", _changed(_TILE, (_STORE, "for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + s + i % 2] = sum[i];"))),
    Right("18-tile", "loads with half2", _changed(_TILE, (_LOAD_A, ("const half2* h = (const half2*)a; for (int i = 0; i < 4; ++i) {"
          " half2 v = h[(g + i % 2 * 8) * 8 + lane % 4 + i / 2 * 4]; fa[i] = *(unsigned*)&v; }")))),
    Right("18-tile", "the two halves of a for each step", _changed(_TILE, ("float sum[4] = {};", "float sum[4]; sum[0] = sum[1] = sum[2] = sum[3] = 0;"))),
)

_SWIZZLED = _source("fragments.cu")
_PLAIN = _source("fragments_naive.cu")
_PUT, _TAKE = "tile[row * 8 + (v ^ row % 8)] = x[i]", "&tile[row * 8 + (v ^ row % 8)]"


def _at(put: str, take: str | None = None, *more: tuple[str, str]) -> str:
    """The kernel with other positions in the tile."""
    return _changed(_SWIZZLED, (_PUT, f"tile[{put}] = x[i]"), (_TAKE, f"&tile[{take or put}]"), *more)


_SWIZZLES = (
    Wrong("18-swizzle", "the given kernel, unchanged", _PLAIN, "budget", "reads eight rows at once"),
    Wrong("18-swizzle", "stored in another order", _at("row * 8 + (v ^ row % 8)", "row * 8 + v"), "results", "compute the position of a vector"),
    Wrong("18-swizzle", "read in another order", _at("row * 8 + v", "row * 8 + (v ^ row % 8)"), "results", "compute the position of a vector"),
    Wrong("18-swizzle", "padding instead of a swizzle", _at("row * 9 + v", None, ("tile[64 * 8]", "tile[64 * 9]")), "budget", "needs no unused words"),
    Wrong("18-swizzle", "four vectors", _at("row * 8 + (v ^ row % 4)"), "budget", "2 ways in the worst"),
    Wrong("18-swizzle", "pairs of rows", _at("row * 8 + (v ^ row / 2 % 8)"), "budget", "2 ways in the worst"),
    Wrong("18-swizzle", "exclusive or with the whole row number", _at("row * 8 + (v ^ row)"), "results", "never leaves the row"),
    Wrong("18-swizzle", "rows below each other", _at("v * 64 + (row ^ row / 8)", "v * 64 + row"), "results", "compute the position of a vector"),
    Wrong("18-swizzle", "no barrier", _changed(_SWIZZLED, ("__syncthreads();", "")), "results", "must come between storing and reading"),
    Wrong("18-swizzle", "half of the tile", _changed(_SWIZZLED, ("part < 16", "part < 8")), "results", "a tile has 16 parts"),
    Wrong("18-swizzle", "columns of vectors", _at("v * 64 + row"), "budget", "Eight vectors that are stored or read at once"),
    Wrong("18-swizzle", "rows in eights", _at("row * 8 + (v ^ row / 8)"), "budget", "reads eight rows at once"),
    Wrong("18-swizzle", "each lane loads its words", _changed(_PLAIN, ("unsigned address", "const unsigned* w = (const unsigned*)tile; unsigned address"),
          ("y[(part * 4 + i) * 32 + lane] = r[i]",
           "y[(part * 4 + i) * 32 + lane] = w[(part / 4 * 16 + i % 2 * 8 + lane / 4) * 32 + part % 4 * 8 + i / 2 * 4 + lane % 4]")),
          "budget", "reads eight rows at once"),
    Wrong("18-swizzle", "without a tile", kernel_text("fragments(const uint4* x, unsigned* y)")(
          "const unsigned* w = (const unsigned*)(x + blockIdx.x * 512); y += blockIdx.x * 2048; int lane = threadIdx.x % 32;"
          "for (int i = threadIdx.x / 32; i < 64; i += blockDim.x / 32) { int part = i / 4, r = i % 4; y[32 * i + lane] ="
          " w[(part / 4 * 16 + r % 2 * 8 + lane / 4) * 32 + part % 4 * 8 + r / 2 * 4 + lane % 4]; }"), "budget", "Load each vector of x once"),
    Right("18-swizzle", "exclusive or", _SWIZZLED),
    Right("18-swizzle", "a rotation", _at("row * 8 + (v + row) % 8")),
    Right("18-swizzle", "downwards", _at("row * 8 + (v ^ (7 - row % 8))")),
    Right("18-swizzle", "a rotation by three", _at("row * 8 + (v + 3 * row) % 8")),
    Right("18-swizzle", "two dimensions", _at("0][row][v ^ row & 7", None, ("uint4 tile[64 * 8]", "uint4 tile[1][64][8]"))),
)

_STAGES = _source("stages.cu")
_ONE_BUFFER = _source("stages_naive.cu")
_WAIT = """if (k0 + 32 < k) __pipeline_wait_prior(1);
        else __pipeline_wait_prior(0);"""
_FIRST_TWO = """fetch(0);
    fetch(32);"""
_NEXT = "fetch(k0 + 64);"
_COPY_A = "__pipeline_memcpy_async(&to[0][8 * i], a + (y + i / 4) * k + k0 + i % 4 * 8, 16);"
_TWO_BUFFERS = _changed(_STAGES, ("tile[3]", "tile[2]"), ("% 3", "% 2"), (_FIRST_TWO, "fetch(0);"), (_NEXT, "fetch(k0 + 32);"),
                        (_WAIT, "__pipeline_wait_prior(0);"))
_PIPELINES = (
    Wrong("18-stages", "one buffer", _ONE_BUFFER, "budget", "one barrier per tile is enough"),
    Wrong("18-stages", "waits for all copies", _changed(_STAGES, (_WAIT, "__pipeline_wait_prior(0);")), "budget", "leave no copies pending"),
    Wrong("18-stages", "two buffers", _TWO_BUFFERS, "budget", "leave no copies pending"),
    Wrong("18-stages", "four buffers", _changed(_STAGES, ("tile[3]", "tile[4]"), ("% 3", "% 4")), "budget", "Three buffers of 4,096 bytes"),
    Wrong("18-stages", "does not wait for copies", _changed(_STAGES, (_WAIT, "")), "results", "Is tile t complete"),
    Wrong("18-stages", "waits for one tile too few", _changed(_STAGES, (_WAIT, "__pipeline_wait_prior(2);")), "results", "Is tile t complete"),
    Wrong("18-stages", "no barrier", _changed(_STAGES, ("__syncthreads();\n", "\n")), "results", "a barrier must follow the wait"),
    Wrong("18-stages", "copies before the barrier", _changed(_STAGES, (_NEXT, ""), (_WAIT, f"{_NEXT} __pipeline_wait_prior(2);")), "hazards",
          "between the use of a tile and the copies"),
    Wrong("18-stages", "copies into the buffer in use", _changed(_STAGES, (_NEXT, "fetch(k0 + 96);")), "results", "filled again only after"),
    Wrong("18-stages", "copies from k on", _changed(_STAGES, ("if (k0 < k) {", "{")), "results", "A tile from k on does not exist"),
    Wrong("18-stages", "no group for a missing tile", _changed(_STAGES, (_WAIT, "__pipeline_wait_prior(1);"),
          ("        }\n        __pipeline_commit();", "        __pipeline_commit();\n        }")), "results", "Close a group for each tile"),
    Wrong("18-stages", "the last tile missing", _changed(_STAGES, ("for (int k0 = 0; k0 < k; k0 += 32) {", "for (int k0 = 0; k0 + 32 < k; k0 += 32) {")),
          "results", "The last tile is missing"),
    Wrong("18-stages", "buffers beyond the last", _changed(_STAGES, ("k0 / 32 % 3", "k0 / 32 % 4")), "results", "tile t belongs in buffer t % 3"),
    Wrong("18-stages", "two barriers", _changed(_STAGES, ("mma_sync(sum, fa, fb, sum);\n        }", "mma_sync(sum, fa, fb, sum);\n        }\n        __syncthreads();")),
          "budget", "one barrier per tile is enough"),
    Wrong("18-stages", "ordinary copies", re.sub(r"__pipeline_memcpy_async\((.*), (.*), 16\);", r"*(uint4*)(\1) = *(const uint4*)(\2);", _STAGES),
          "budget", "Copy the tiles with __pipeline_memcpy_async"),
    Wrong("18-stages", "a and b in groups of their own, one group pending", _changed(_STAGES, (_COPY_A, f"{_COPY_A}\n            __pipeline_commit();")),
          "budget", "all copies of the next tile pending"),
    Right("18-stages", "a and b in groups of their own, two groups pending", _changed(_STAGES, (_COPY_A, f"{_COPY_A}\n            __pipeline_commit();"),
          ("__pipeline_wait_prior(1)", "__pipeline_wait_prior(2)"))),
    Right("18-stages", "cp.async in PTX", _changed(re.sub(r"__pipeline_memcpy_async\((.*), 16\);", r"copy(\1);", _STAGES),
          ('extern "C"', ("__device__ void copy(void* to, const void* from) { asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\""
           " :: \"r\"((unsigned)__cvta_generic_to_shared(to)), \"l\"(from) : \"memory\"); }\nextern \"C\"")))),
    Right("18-stages", "three buffers", _STAGES),
    Right("18-stages", "a group in each iteration", _changed(_STAGES, (_WAIT, "__pipeline_wait_prior(1);"))),
    Right("18-stages", "copies after the multiplication", _changed(_STAGES, (_NEXT, ""),
          ("mma_sync(sum, fa, fb, sum);\n        }", f"mma_sync(sum, fa, fb, sum);\n        }}\n        {_NEXT}"))),
    Right("18-stages", "counted buffers", _changed(_STAGES, ("fill_fragment(sum, 0.0f);", "fill_fragment(sum, 0.0f);\n    int now = 0;"),
          ("half(&from)[2][32 * 32] = tile[k0 / 32 % 3];", "half(&from)[2][32 * 32] = tile[now];\n        now = now < 2 ? now + 1 : 0;"))),
    Right("18-stages", "no group for a missing tile, full wait at the end", _changed(_STAGES,
          ("        }\n        __pipeline_commit();", "        __pipeline_commit();\n        }"))),
)

_DENSE = _source("dense.cu")
_BOTH = "__floats2half2_rn(gelu(d[2 * h] + add.x), gelu(d[2 * h + 1] + add.y))"
_GELU = "0.5f * v * (1.0f + erff(v * 0.70710678f))"
_OUT = "*(half2*)(y + (16 * warp + g + 8 * h) * 8 + 2 * s) = pair;"
_EPILOGUES = (
    Wrong("18-epilogue", "element by element", _source("dense_naive.cu"), "budget", "are one half2"),
    Wrong("18-epilogue", "does not add the bias", _changed(_DENSE, (_BOTH, "__floats2half2_rn(gelu(d[2 * h]), gelu(d[2 * h + 1]))")), "results", "The bias is missing"),
    Wrong("18-epilogue", "no activation", _changed(_DENSE, (_GELU, "v")), "results", "GELU is missing"),
    Wrong("18-epilogue", "bias after GELU", _changed(_DENSE, (_BOTH, "__floats2half2_rn(gelu(d[2 * h]) + add.x, gelu(d[2 * h + 1]) + add.y)")), "results",
          "The bias comes first"),
    Wrong("18-epilogue", "ReLU", _changed(_DENSE, (_GELU, "fmaxf(v, 0.0f)")), "results", "That is ReLU"),
    Wrong("18-epilogue", "GELU by tanh", _changed(_DENSE, (_GELU, "0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)))")), "results",
          "the approximation with tanh"),
    Wrong("18-epilogue", "the bias by row instead of by column", _changed(_DENSE, ("gelu(d[2 * h] + add.x), gelu(d[2 * h + 1] + add.y)",
          "gelu(d[2 * h] + bias[g]), gelu(d[2 * h + 1] + bias[g])")), "results", "to the column of an element"),
    Wrong("18-epilogue", "half of the rows", _changed(_DENSE, ("h < 2", "h < 1")), "results", "Some elements were never written"),
    Wrong("18-epilogue", "the wrong factor", _changed(_DENSE, ("0.70710678f", "1.41421356f")), "results", ""),
    Wrong("18-epilogue", "rows exchanged", _changed(_DENSE, (_OUT, _OUT.replace("8 * h", "8 * (1 - h)"))), "results", ""),
    Wrong("18-epilogue", "only the first row", _changed(_DENSE, (_OUT, _OUT.replace("16 * warp", "0 * warp"))), "results", ""),
    Wrong("18-epilogue", "without tensor cores", kernel_text("dense(const half* x, const half* w, const float* bias, half* y, int n, int k)")(
          "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= 32 * n) return; const float2 add = *(const float2*)(bias + i % 4 * 2);"
          "for (int h = 0; h < 2; ++h) { int r = i / 4 + 8 * n * h; float u = 0, v = 0; for (int j = 0; j < k; ++j) {"
          "float2 f = __half22float2(*(const half2*)(w + 8 * j + i % 4 * 2)); float e = __half2float(x[r * k + j]); u += e * f.x; v += e * f.y; }"
          f"*(half2*)(y + 8 * r + i % 4 * 2) = {_BOTH.replace('d[2 * h]', 'u').replace('d[2 * h + 1]', 'v')}; }}",
          f"#include <cuda_fp16.h>\n__device__ float gelu(float v) {{ return {_GELU}; }}"), "budget", "Let the tensor cores multiply"),
    Wrong("18-epilogue", "rounded before the bias", _changed(_DENSE, (_BOTH, _BOTH.replace("d[2 * h]", "__half2float(__float2half(d[2 * h]))"))), "results", ""),
    Wrong("18-epilogue", "bias in half", _changed(_DENSE, (_BOTH, _BOTH.replace("add.x", "__half2float(__float2half(add.x))"))), "results", ""),
    Right("18-epilogue", "erff", _DENSE),
    Right("18-epilogue", "erfcf", _changed(_DENSE, (_GELU, "0.5f * v * erfcf(-0.70710678f * v)"))),
    Right("18-epilogue", "normcdff", _changed(_DENSE, (_GELU, "v * normcdff(v)"))),
    Right("18-epilogue", "the bias first", _changed(_DENSE, ("float d[4] = {};", ("float2 first = *(const float2*)(bias + 2 * s);\n"
          "    float d[4] = {first.x, first.y, first.x, first.y};")), ("    float2 add = *(const float2*)(bias + 2 * s);\n", ""),
          ("gelu(d[2 * h] + add.x), gelu(d[2 * h + 1] + add.y)", "gelu(d[2 * h]), gelu(d[2 * h + 1])"))),
    Right("18-epilogue", "halves of its own", _changed(_DENSE, (f"half2 pair = {_BOTH};",
          "half2 pair = __halves2half2(__float2half(gelu(d[2 * h] + add.x)), __float2half(gelu(d[2 * h + 1] + add.y)));"))),
)

_ALL: tuple[Wrong | Right, ...] = (*_FRAGMENTS, *_TILES, *_SWIZZLES, *_PIPELINES, *_EPILOGUES)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]

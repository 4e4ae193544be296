"""Wrong and right answers to the exercises of notebook 02."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.answers import Right, Wrong, kernel_text

_squares = kernel_text("squares(const float* x, float* y, int n)")
_scale = kernel_text("scale2d(const float* x, float* y, int rows, int cols)")
_add = kernel_text("add_row(const float* m, const float* row, float* out, int rows, int cols)")
_address = kernel_text("address(int* warp, int* lane, int* row)")

_I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
_CR = "int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;"
_STRIDE = "int stride = gridDim.x * blockDim.x;"

_STRIDES = (
    Wrong("02-stride", "no loop over the grid", _squares(f"{_I} if (i < n) y[i] = x[i] * x[i];"), "results", "Some elements had no"),
    Wrong(
        "02-stride",
        "stride of a block",
        _squares(f"for ({_I} i < n; i += blockDim.x) y[i] = x[i] * x[i];"),
        "hazards",
        "process the same elements",
    ),
    Wrong(
        "02-stride",
        "stride of the blocks",
        _squares(f"for ({_I} i < n; i += gridDim.x) y[i] = x[i] * x[i];"),
        "hazards",
        "process the same elements",
    ),
    Wrong(
        "02-stride",
        "starts at the thread",
        _squares(f"{_STRIDE} for (int i = threadIdx.x; i < n; i += stride) y[i] = x[i] * x[i];"),
        "results",
        "Some elements had no thread",
    ),
    Wrong(
        "02-stride",
        "i <= n instead of i < n",
        _squares(f"{_STRIDE} for ({_I} i <= n; i += stride) y[i] = x[i] * x[i];"),
        "results",
        "The loop must end when i reaches n",
    ),
    Wrong(
        "02-stride",
        "a do-while loop",
        _squares(f"{_STRIDE} {_I} do {{ y[i] = x[i] * x[i]; i += stride; }} while (i < n);"),
        "results",
        "more threads than there are elements",
    ),
    Wrong(
        "02-stride",
        "64 iterations at most",
        _squares(f"{_I} {_STRIDE} for (int k = 0; k < 64; ++k, i += stride) if (i < n) y[i] = x[i] * x[i];"),
        "results",
        "Some elements had no thread",
    ),
    Wrong(
        "02-stride",
        "one block in eight",
        _squares("if (blockIdx.x % 8 == 0) for (int i = blockIdx.x / 8 * blockDim.x + threadIdx.x; i < n;"
                 " i += (gridDim.x + 7) / 8 * blockDim.x) y[i] = x[i] * x[i];"),
        "parallelism",
        "few threads do the work of many",
    ),
    Wrong("02-stride", "i does not grow", _squares(f"for ({_I} i < n; ) y[i] = x[i] * x[i];"), "results", "Does i grow"),
    Wrong(
        "02-stride",
        "a run for each thread",
        _squares(
            "int t = gridDim.x * blockDim.x, each = (n + t - 1) / t;"
            "int first = (blockIdx.x * blockDim.x + threadIdx.x) * each;"
            "for (int i = first; i < min(first + each, n); ++i) y[i] = x[i] * x[i];"
        ),
        "budget",
        "neighbouring lanes access neighbouring elements",
    ),
    Wrong(
        "02-stride",
        "one thread does all",
        _squares("if (blockIdx.x == 0 && threadIdx.x == 0) for (int i = 0; i < n; ++i) y[i] = x[i] * x[i];"),
        "parallelism",
        "few threads",
    ),
    Wrong(
        "02-stride",
        "one block does all",
        _squares("if (blockIdx.x == 0) for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] * x[i];"),
        "parallelism",
        "few threads",
    ),
    Wrong(
        "02-stride",
        "every thread does all",
        _squares("for (int i = 0; i < n; ++i) y[i] = x[i] * x[i];"),
        "hazards",
        "process the same elements",
    ),
    Wrong(
        "02-stride",
        "twice, and no more",
        _squares(f"{_I} {_STRIDE} if (i < n) y[i] = x[i] * x[i]; i += stride; if (i < n) y[i] = x[i] * x[i];"),
        "results",
        "Some elements had no thread",
    ),
    Wrong(
        "02-stride",
        "doubles instead of squaring",
        _squares(f"{_STRIDE} for ({_I} i < n; i += stride) y[i] = 2 * x[i];"),
        "results",
        "it should be",
    ),
    Right(
        "02-stride",
        "while",
        _squares("unsigned i = threadIdx.x + blockDim.x * blockIdx.x;\nwhile (i < (unsigned)n) {\n  float v = x[i];\n"
                 "  y[i] = v * v; i += blockDim.x * gridDim.x; }"),
    ),
    Right(
        "02-stride",
        "by blocks of elements",
        _squares("for (int base = blockIdx.x * blockDim.x; base < n; base += gridDim.x * blockDim.x) {"
                 " int i = base + threadIdx.x; if (i < n) y[i] = powf(x[i], 1) * x[i]; }"),
    ),
    Right(
        "02-stride",
        "cooperative groups",
        _squares("auto grid = cg::this_grid(); for (long long i = grid.thread_rank(); i < n; i += grid.size())"
                 " y[i] = x[i] * x[i];",
                 "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;"),
    ),
    Right(
        "02-stride",
        "macros and comments",
        _squares("/* no loop? yes: */ EACH(i, n) { /* i <= n would be wrong */ y[i] = SQ(x[i]); }",
                 "#define SQ(v) ((v) * (v))\n#define EACH(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; \\\n"
                 "   i < n; i += gridDim.x * blockDim.x)"),
    ),
    Right(
        "02-stride",
        "backwards",
        _squares(f"{_STRIDE} {_I} int last = i < n ? i + (n - 1 - i) / stride * stride : -1;"
                 " for (int k = last; k >= 0; k -= stride) y[k] = x[k] * x[k];"),
    ),
)

_MATRICES = (
    Wrong("02-index", "stride of rows", _scale(f"{_CR} if (r < rows && c < cols) y[r * rows + c] = 2 * x[r * rows + c];"),
          "results", ""),
    Wrong("02-index", "no guard", _scale(f"{_CR} y[r * cols + c] = 2 * x[r * cols + c];"), "results",
          "Guard both edges"),
    Wrong("02-index", "guards the rows", _scale(f"{_CR} if (r < rows) y[r * cols + c] = 2 * x[r * cols + c];"),
          "results", "Guard both edges"),
    Wrong("02-index", "guards the columns", _scale(f"{_CR} if (c < cols) y[r * cols + c] = 2 * x[r * cols + c];"),
          "results", "Guard both edges"),
    Wrong("02-index", "guards the flat index",
          _scale(f"{_CR} if (r * cols + c < rows * cols) y[r * cols + c] = 2 * x[r * cols + c];"), "hazards",
          "Guard both edges"),
    Wrong("02-index", "the row from x, the column from y",
          _scale("int r = blockIdx.x * blockDim.x + threadIdx.x, c = blockIdx.y * blockDim.y + threadIdx.y;"
                 " if (r < rows && c < cols) y[r * cols + c] = 2 * x[r * cols + c];"), "results",
          "x counts columns and y counts rows"),
    Wrong("02-index", "16 x 16 blocks",
          _scale("int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;"
                 " if (r < rows && c < cols) y[r * cols + c] = 2 * x[r * cols + c];"), "results", ""),
    Wrong("02-index", "off by one", _scale(f"{_CR} if (r <= rows && c < cols) y[r * cols + c] = 2 * x[r * cols + c];"),
          "results", "Guard both edges"),
    Wrong("02-index", "columns in 16 bits", _scale(f"{_CR} short s = c; if (r < rows && c < cols) y[r * cols + s] = 2 * x[r * cols + s];"),
          "results", ""),
    Wrong("02-index", "rows in 16 bits, unsigned",
          _scale(f"{_CR} unsigned short s = r; if (s < rows && c < cols) y[s * cols + c] = 2 * x[s * cols + c];"), "results",
          "16 bits cannot represent"),
    Wrong("02-index", "columns in 16 bits, unsigned",
          _scale(f"{_CR} unsigned short s = c; if (r < rows && s < cols) y[r * cols + s] = 2 * x[r * cols + s];"), "results",
          "16 bits cannot represent"),
    Wrong("02-index", "doubles by changing the exponent",
          _scale(f"{_CR} int i = r * cols + c; if (r < rows && c < cols) y[i] = __int_as_float(__float_as_int(x[i]) + (1 << 23));"),
          "results", "it should be"),
    Wrong("02-index", "first block only",
          _scale("int c = threadIdx.x, r = threadIdx.y; if (r < rows && c < cols) y[r * cols + c] = 2 * x[r * cols + c];"),
          "results", ""),
    Wrong("02-index", "one thread does all",
          _scale(f"{_CR} if (r == 0 && c == 0) for (int i = 0; i < rows * cols; ++i) y[i] = 2 * x[i];"),
          "parallelism", "few threads do the work"),
    Wrong("02-index", "a row for each thread",
          _scale("int r = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x * blockDim.y + threadIdx.y * blockDim.x"
                 " + threadIdx.x; if (r < rows) for (int c = 0; c < cols; ++c) y[r * cols + c] = 2 * x[r * cols + c];"),
          "parallelism", "few threads do the work"),
    Wrong("02-index", "lanes below each other",
          _scale("int wide = gridDim.x * blockDim.x, high = gridDim.y * blockDim.y;"
                 "int t = (blockIdx.y * blockDim.y + threadIdx.y) * wide + blockIdx.x * blockDim.x + threadIdx.x;"
                 "int r = t % high, c = t / high; if (r < rows && c < cols) y[r * cols + c] = 2 * x[r * cols + c];"),
          "budget", "use x, which varies fastest"),
    Wrong("02-index", "every thread does all",
          _scale("for (int i = 0; i < rows * cols; ++i) y[i] = 2 * x[i];"), "hazards", "Guard both edges"),
    Wrong("02-index", "adds to the old y", _scale(f"{_CR} if (r < rows && c < cols) y[r * cols + c] += 2 * x[r * cols + c];"),
          "results", "adds to the initial contents"),
    Wrong("02-index", "does not write zeros",
          _scale(f"{_CR} int i = r * cols + c; if (r < rows && c < cols && x[i] != 0) y[i] = 2 * x[i];"), "results",
          "needs a thread that stores its result"),
    Right("02-index", "x + x", _scale(f"{_CR} if (r < rows && c < cols) {{ int k = c + cols * r; y[k] = x[k] + x[k]; }}")),
    Right("02-index", "early return", _scale(f"{_CR}\nif (c >= cols) return;\nif (r >= rows) return;\n"
                                             "y += r * cols; x += r * cols; y[c] = x[c] * 2.f;")),
    Right("02-index", "grid stride",
          _scale("for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y)"
                 " for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < cols; c += gridDim.x * blockDim.x)"
                 " y[r * cols + c] = 2 * x[r * cols + c];")),
    Right("02-index", "flat, by all threads",
          _scale("int wide = gridDim.x * blockDim.x, i = (blockIdx.y * blockDim.y + threadIdx.y) * wide"
                 " + blockIdx.x * blockDim.x + threadIdx.x; // row * rows?\nif (i < rows * cols) y[i] = ldexpf(x[i], 1);")),
    Right("02-index", "helper and size_t",
          _scale(f"{_CR} if ((unsigned)r < (unsigned)rows & (unsigned)c < (unsigned)cols)"
                 " y[at(r, c, cols)] = 2 * x[at(r, c, cols)];",
                 "__device__ size_t at(size_t r, size_t c, size_t cols) { return r * cols + c; }")),
)

_REPAIRS = (
    Wrong("02-repair", "as given",
          _add("int r = blockIdx.x * blockDim.x + threadIdx.x, c = blockIdx.y * blockDim.y + threadIdx.y;"
               " if (r * c < rows * cols) out[r * rows + c] = m[r * rows + c] + row[c];"), "results", ""),
    Wrong("02-repair", "guard alone",
          _add("int r = blockIdx.x * blockDim.x + threadIdx.x, c = blockIdx.y * blockDim.y + threadIdx.y;"
               " if (r < rows && c < cols) out[r * rows + c] = m[r * rows + c] + row[c];"), "results", ""),
    Wrong("02-repair", "stride alone",
          _add("int r = blockIdx.x * blockDim.x + threadIdx.x, c = blockIdx.y * blockDim.y + threadIdx.y;"
               " if (r * c < rows * cols) out[r * cols + c] = m[r * cols + c] + row[c];"), "results", ""),
    Wrong("02-repair", "guard and stride, still row from x",
          _add("int r = blockIdx.x * blockDim.x + threadIdx.x, c = blockIdx.y * blockDim.y + threadIdx.y;"
               " if (r < rows && c < cols) out[r * cols + c] = m[r * cols + c] + row[c];"), "results",
          "columns in x and the rows in y"),
    Wrong("02-repair", "guards row times column", _add(f"{_CR} if (r * c < rows * cols) out[r * cols + c] = m[r * cols + c]"
                                                    " + row[c];"), "results", "Guard both edges"),
    Wrong("02-repair", "adds to the old contents", _add(f"{_CR} if (r < rows && c < cols) out[r * cols + c] += m[r * cols + c] + row[c];"),
          "results", "adds to the initial contents"),
    Wrong("02-repair", "row by row", _add(f"{_CR} if (r < rows && c < cols) out[r * cols + c] = m[r * cols + c] + row[r];"),
          "results", ""),
    Wrong("02-repair", "guards only the flat index", _add(f"{_CR} int k = r * cols + c; if (k < rows * cols) out[k] = m[k] + row[k % cols];"),
          "hazards", "Guard both edges"),
    Wrong("02-repair", "rows swapped in the guard",
          _add(f"{_CR} if (r < cols && c < rows) out[r * cols + c] = m[r * cols + c] + row[c];"), "results", ""),
    Wrong("02-repair", "right, but lanes below each other",
          _add("int wide = gridDim.x * blockDim.x, high = gridDim.y * blockDim.y;"
               "int t = (blockIdx.y * blockDim.y + threadIdx.y) * wide + blockIdx.x * blockDim.x + threadIdx.x;"
               "int r = t % high, c = t / high; if (r < rows && c < cols) out[r * cols + c] = m[r * cols + c] + row[c];"),
          "budget", "use x, which varies fastest"),
    Wrong("02-repair", "changes the input",
          _add(f"{_CR} if (r < rows && c < cols) {{ ((float*)m)[r * cols + c] += row[c]; out[r * cols + c] = "
               "m[r * cols + c]; }"), "results", "may only read"),
    Wrong("02-repair", "too little shared memory",
          _add(f"__shared__ float s[32]; {_CR} int k = threadIdx.y * blockDim.x + threadIdx.x;"
               " if (r < rows && c < cols) { s[k] = row[c]; out[r * cols + c] = m[r * cols + c] + s[k]; }"),
          "results", "large enough for every block shape"),
    Right("02-repair", "repaired", _add(f"{_CR} if (r < rows && c < cols) out[r * cols + c] = m[r * cols + c] + row[c];")),
    Right("02-repair", "row loaded first", _add(f"{_CR} if (c < cols) {{ float b = row[c]; if (r < rows) "
                                                "out[r * cols + c] = b + m[r * cols + c]; }")),
    Right("02-repair", "grid stride",
          _add(f"{_CR} for (; r < rows; r += gridDim.y * blockDim.y) for (int k = c; k < cols; k += gridDim.x * blockDim.x)"
               " out[r * cols + k] = __fadd_rn(m[r * cols + k], row[k]);")),
    Right("02-repair", "flat with division",
          _add("int i = (blockIdx.y * blockDim.y + threadIdx.y) * gridDim.x * blockDim.x + blockIdx.x * blockDim.x"
               " + threadIdx.x; if (i < rows * cols) out[i] = m[i] + row[i % cols];")),
)

_BLOCK = "int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);"
_T = "int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);"
_G = "int g = block * (blockDim.x * blockDim.y * blockDim.z) + t;"
_ROW = "row[g] = blockIdx.y * blockDim.y + threadIdx.y;"
_WRITE = f"warp[g] = t / 32; lane[g] = t % 32; {_ROW}"

_ADDRESSES = (
    Wrong("02-address", "x alone", _address("int g = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;" + _WRITE),
          "results", ""),
    Wrong("02-address", "warp of the grid", _address(f"{_BLOCK}{_T}{_G} warp[g] = g / 32; lane[g] = g % 32; {_ROW}"), "results",
          ""),
    Wrong("02-address", "16 bits for blocks", _address(f"{_BLOCK.replace('int', 'short')}{_T}{_G} {_WRITE}"), "results",
          "without gaps"),
    Wrong("02-address", "z first",
          _address(f"{_BLOCK} int t = threadIdx.z + blockDim.z * (threadIdx.y + blockDim.y * threadIdx.x); {_G}"
                   "warp[g] = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32;"
                   f"lane[g] = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; {_ROW}"),
          "results", ""),
    Wrong("02-address", "lane from x", _address(f"{_BLOCK}{_T}{_G} warp[g] = t / 32; lane[g] = threadIdx.x % 32; {_ROW}"),
          "results", ""),
    Wrong("02-address", "the lane from threadIdx.x in long rows",
          _address(f"{_BLOCK}{_T}{_G} warp[g] = t / 32; lane[g] = (blockDim.x > 32 ? threadIdx.x : t) % 32; {_ROW}"),
          "results", "lane["),
    Wrong("02-address", "blocks without z",
          _address(f"int block = blockIdx.x + gridDim.x * blockIdx.y; {_T}{_G}{_WRITE}"), "results", ""),
    Wrong("02-address", "threads without z",
          _address(f"{_BLOCK} int t = threadIdx.x + blockDim.x * threadIdx.y; int g = block * blockDim.x * blockDim.y + t;"
                   f"{_WRITE}"), "results", ""),
    Wrong("02-address", "block y before x",
          _address("int block = blockIdx.y + gridDim.y * (blockIdx.x + gridDim.x * blockIdx.z);"
                   f"{_T} int threads = blockDim.x * blockDim.y; int g = block * threads + t; {_WRITE}"),
          "results", ""),
    Wrong("02-address", "block y before x, all three dimensions",
          _address("int block = blockIdx.y + gridDim.y * (blockIdx.x + gridDim.x * blockIdx.z);"
                   f"{_T}{_G}{_WRITE}"), "results", "Blocks or threads are in another order"),
    Wrong("02-address", "blocks numbered z first",
          _address("int block = blockIdx.z + gridDim.z * (blockIdx.y + gridDim.y * blockIdx.x);"
                   f"{_T}{_G}{_WRITE}"), "results", "Blocks or threads are in another order"),
    Wrong("02-address", "blocks numbered x, z, y",
          _address("int block = blockIdx.x + gridDim.x * (blockIdx.z + gridDim.z * blockIdx.y);"
                   f"{_T}{_G}{_WRITE}"), "results", "Blocks or threads are in another order"),
    Wrong("02-address", "threads numbered x, z, y",
          _address(f"{_BLOCK} int t = threadIdx.x + blockDim.x * (threadIdx.z + blockDim.z * threadIdx.y);"
                   f"{_G}{_WRITE}"), "results", "Blocks or threads are in another order"),
    Wrong("02-address", "the hardware's warp number (%warpid)",
          _address(f"{_BLOCK}{_T}{_G} unsigned id; asm(\"mov.u32 %0, %%warpid;\" : \"=r\"(id)); warp[g] = id; lane[g] = t % 32; {_ROW}"),
          "results", "warp["),
    Wrong("02-address", "the row in one byte",
          _address(f"{_BLOCK}{_T}{_G} warp[g] = t / 32; lane[g] = t % 32; row[g] = (unsigned char)(blockIdx.y * blockDim.y + threadIdx.y);"),
          "results", "row["),
    Wrong("02-address", "row within the block", _address(f"{_BLOCK}{_T}{_G} warp[g] = t / 32; lane[g] = t % 32; row[g] = threadIdx.y;"),
          "results", "row["),
    Wrong("02-address", "lane and warp swapped", _address(f"{_BLOCK}{_T}{_G} lane[g] = t / 32; warp[g] = t % 32; {_ROW}"),
          "results", ""),
    Wrong("02-address", "warps of 16", _address(f"{_BLOCK}{_T}{_G} warp[g] = t / 16; lane[g] = t % 16; {_ROW}"), "results", ""),
    Wrong("02-address", "one thread writes its block's",
          _address(f"{_BLOCK}{_T} int n = blockDim.x * blockDim.y * blockDim.z; if (t == 0) for (int k = 0; k < n; ++k)"
                   " { warp[block * n + k] = k / 32; lane[block * n + k] = k % 32; row[block * n + k] = blockIdx.y * blockDim.y + k / blockDim.x % blockDim.y; }"), "parallelism", ""),
    Right("02-address", "by hand", _address(f"{_BLOCK}{_T}{_G}{_WRITE}")),
    Right("02-address", "cooperative groups",
          _address("auto block = cg::this_thread_block(); int t = block.thread_rank(); long long g ="
                   f" cg::this_grid().thread_rank(); {_WRITE}",
                   "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;")),
    Right("02-address", "one number after another",
          _address(f"{_BLOCK} unsigned g = ((block * blockDim.z + threadIdx.z) * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;"
                   f"unsigned t = g % (blockDim.x * blockDim.y * blockDim.z); {_WRITE}")),
    Right("02-address", "bits", _address(f"{_BLOCK}{_T}{_G} warp[g] = t >> 5; lane[g] = t & 31; {_ROW}")),
    Right("02-address", "asks the hardware",
          _address(f"{_BLOCK}{_T}{_G} unsigned id; asm(\"mov.u32 %0, %%laneid;\" : \"=r\"(id)); lane[g] = id;"
                   f" warp[g] = t / 32; {_ROW} // threadIdx.x % 32 would be wrong\n")),
)


def _right(start: Any, end: Any, warps: int, sms: int, places: int) -> float:
    if len(start) == 0:
        return 0.0
    return float(warps * (end - start).sum() / ((end.max() - start.min()) * sms * places))


def _forever(*_: Any) -> float:
    while True:
        pass


_ACHIEVED = (
    Wrong("02-achieved", "in percent", lambda *a: 100 * _right(*a), "", "not percent"),
    Wrong("02-achieved", "a place a block", lambda s, e, w, *a: _right(s, e, 1, *a), "", "each of its warps"),
    Wrong("02-achieved", "divides by the slots of one SM", lambda s, e, w, sms, p: _right(s, e, w, 1, p), "", "idle SMs also count"),
    Wrong("02-achieved", "one slot for each SM", lambda s, e, w, sms, p: _right(s, e, w, sms, 1), "", "slots of each SM as well"),
    Wrong("02-achieved", "starts at 0",
          lambda s, e, w, sms, p: w * (e - s).sum() / (e.max() * sms * p) if len(s) else 0, "", "not at 0"),
    Wrong("02-achieved", "averages",
          lambda s, e, w, sms, p: w * (e - s).mean() / ((e.max() - s.min()) * sms * p) if len(s) else 0, "",
          ""),
    Wrong("02-achieved", "counts blocks", lambda s, e, w, sms, p: w * len(s) / (sms * p), "", "weight each block by its time"),
    Wrong("02-achieved", "fails without blocks",
          lambda s, e, w, sms, p: w * (e - s).sum() / ((e.max() - s.min()) * sms * p), "", "without blocks"),
    Wrong("02-achieved", "at most one of its own", lambda *a: min(1.0, 2 * _right(*a)), "", "but it should be"),
    Wrong("02-achieved", "prints the result instead of returning it", lambda *a: print(_right(*a)), "", "returns nothing"),
    Wrong("02-achieved", "returns a string", lambda *a: f"{_right(*a):.0%}", "", "Return one number"),
    Wrong("02-achieved", "never ends", _forever, "", "of processor time"),
    Wrong("02-achieved", "not called", 0.5, "", "should be a function"),
    Wrong("02-achieved", "times of 32 bits",
          lambda s, e, *a: _right(s.astype(np.int32), e.astype(np.int32), *a) if len(s) else 0, "", "check their data type"),
    Wrong("02-achieved", "adds up in 32 bits",
          lambda s, e, w, sms, p: w * int((e - s).astype(np.int32).sum(dtype=np.int32)) / (int(e.max() - s.min()) * sms * p)
          if len(s) else 0, "", "these times do not fit into 32 bits"),
    Wrong("02-achieved", "the last of the list",
          lambda s, e, w, sms, p: w * (e - s).sum() / ((e[-1] - s[0]) * sms * p) if len(s) else 0, "", "need not end last"),
    Wrong("02-achieved", "many times as float32",
          lambda s, e, *a: _right(s.astype(np.float32), e.astype(np.float32), *a) if len(s) > 200 else _right(s, e, *a), "", ""),
    Right("02-achieved", "NumPy", _right),
    Right("02-achieved", "a loop",
          lambda s, e, w, sms, p: sum(w * (b - a) for a, b in zip(s.tolist(), e.tolist(), strict=True))
          / ((max(e) - min(s)) * sms * p) if len(s) else 0),
    Right("02-achieved", "by sweeping",
          lambda s, e, w, sms, p: float(np.trapezoid([1.0, 1.0], [0, 1])) * w * int(np.sum(e) - np.sum(s))
          / float(np.max(e) - np.min(s)) / sms / p if len(s) else 0.0),
    Right("02-achieved", "as a NumPy number",
          lambda s, e, w, sms, p: np.float64(w) * np.sum(e - s) / np.ptp(np.concatenate([s, e])) / (sms * p)
          if s.size else np.float64(0)),
)

_ALL: tuple[Wrong | Right, ...] = (*_STRIDES, *_MATRICES, *_REPAIRS, *_ADDRESSES, *_ACHIEVED)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]

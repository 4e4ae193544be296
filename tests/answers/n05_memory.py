"""Wrong and right answers to the exercises of notebook 05."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tests.answers import Right, Wrong, kernel_text

_copy = kernel_text("copy4(const float* x, float* y, int n)")
_split = kernel_text("split(const float* xyz, float* x, float* y, float* z, int n)")
_turn = kernel_text("transpose(const float* x, float* y, int rows, int cols)")
_median = kernel_text("median5(const int* x, int* y, int n)")
_product = kernel_text("matmul(const float* a, const float* b, float* c, int rows, int cols, int inner)")

_I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
_FOURS = "const float4* x4 = (const float4*)x; float4* y4 = (float4*)y;"
_WHOLE = f"{_I} {_FOURS} int whole = n / 4; if (i < whole) y4[i] = x4[i];"
_ENDS = "if (4 * whole + i < n) y[4 * whole + i] = x[4 * whole + i];"
_COPIES = (
    Wrong("05-copy4", "rounds the number of float4s up", _copy(f"{_I} {_FOURS} if (i < (n + 3) / 4) y4[i] = x4[i];"), "results",
          "n need not be a multiple of 4"),
    Wrong("05-copy4", "does not copy the end", _copy(_WHOLE), "results", "The end was never copied"),
    Wrong("05-copy4", "a float for each thread", _copy(f"{_I} if (i < n) y[i] = x[i];"), "results", "there is a thread for every"),
    Wrong("05-copy4", "float by float",
          _copy(f"{_I} int t = gridDim.x * blockDim.x; for (; i < n; i += t) y[i] = x[i];"), "budget", "copy a float4"),
    Wrong("05-copy4", "adds 0.0 to the last elements", _copy(f"{_WHOLE} {_ENDS.replace('];', '] + 0.0f;')}"), "results", "it should be"),
    Wrong("05-copy4", "float2 instead of float4", _copy(f"{_I} int t = gridDim.x * blockDim.x; for (int k = i; k < n / 2; k += t)"
          " ((float2*)y)[k] = ((const float2*)x)[k]; if (i == 0 && n % 2) y[n - 1] = x[n - 1];"), "budget", "copy a float4"),
    Wrong("05-copy4", "float4 at every float",
          _copy(f"{_I} if (i + 3 < n) *(float4*)(y + i) = *(const float4*)(x + i); else if (i < n) y[i] = x[i];"), "results",
          "must start at a multiple of 16 bytes"),
    Wrong("05-copy4", "every thread copies the end",
          _copy(f"{_WHOLE} for (int k = 4 * whole; k < n; ++k) y[k] = x[k];"), "hazards", "must be written by only one thread"),
    Wrong("05-copy4", "end by every block",
          _copy(f"{_WHOLE} int k = 4 * whole + threadIdx.x; if (k < n) y[k] = x[k];"), "results", "The end was never copied"),
    Wrong("05-copy4", "three of four", _copy(f"{_WHOLE.replace('y4[i] = x4[i]', '{ float4 v = x4[i]; v.w = 0; y4[i] = v; }')} {_ENDS}"),
          "results", ""),
    Wrong("05-copy4", "one thread does all",
          _copy(f"{_I} if (i == 0) for (int k = 0; k < n; ++k) y[k] = x[k];"), "parallelism", "few threads"),
    Right("05-copy4", "the end by the last thread",
          _copy(f"{_I} {_FOURS} if (4 * i + 3 < n) y4[i] = x4[i]; else for (int k = 4 * i; k < n; ++k) y[k] = x[k];")),
    Right("05-copy4", "grid-stride",
          _copy(f"{_I} int t = gridDim.x * blockDim.x; for (int k = i; k < n / 4; k += t) reinterpret_cast<float4*>(y)[k] ="
                " reinterpret_cast<const float4*>(x)[k];\n  for (int k = n / 4 * 4 + i; k < n; k += t) y[k] = x[k]; // ragged end")),
    Right("05-copy4", "as whole numbers", _copy(f"{_I} if (i < n / 4) ((int4*)y)[i] = __ldg((const int4*)x + i);"
          " if (i < n % 4) y[n - 1 - i] = x[n - 1 - i];")),
    Right("05-copy4", "a struct of its own",
          _copy(f"{_I} if (i < n >> 2) ((Four*)y)[i] = ((const Four*)x)[i]; else if (i == n >> 2)"
                " for (int k = n & ~3; k < n; ++k) y[k] = x[k];", "struct __align__(16) Four { float v[4]; };")),
)

_FIRST = "int t = threadIdx.x, threads = blockDim.x, first = blockIdx.x * threads;"
_BOX = f"__shared__ float box[3 * 1024]; {_FIRST}"
_IN = "for (int k = t; k < 3 * threads; k += threads) if (3 * first + k < 3 * n) box[k] = xyz[3 * first + k];"
_OUT = "if (first + t < n) { x[first + t] = box[3 * t]; y[first + t] = box[3 * t + 1]; z[first + t] = box[3 * t + 2]; }"
_SPLITS = (
    Wrong("05-split", "each thread loads its own point",
          _split(f"{_I} if (i < n) {{ x[i] = xyz[3 * i]; y[i] = xyz[3 * i + 1]; z[i] = xyz[3 * i + 2]; }}"), "budget",
          "12 bytes apart"),
    Wrong("05-split", "each its own point, as a struct",
          _split(f"{_I} if (i < n) {{ P p = ((const P*)xyz)[i]; x[i] = p.x; y[i] = p.y; z[i] = p.z; }}", "struct P { float x, y, z; };"),
          "budget", "12 bytes apart"),
    Wrong("05-split", "stores to x, y and z in turn",
          _split(f"{_FIRST} for (int k = 3 * first + t; k < min(3 * (first + threads), 3 * n); k += threads)"
                 " (k % 3 == 0 ? x : k % 3 == 1 ? y : z)[k / 3] = xyz[k];"), "budget", "side by side into shared memory"),
    Wrong("05-split", "room for 640 threads", _split(f"{_BOX.replace('1024', '640')} {_IN} __syncthreads(); {_OUT}"), "results",
          "up to 1,024 threads"),
    Wrong("05-split", "no barrier", _split(f"{_BOX} {_IN} {_OUT}"), "results", "between storing and reading"),
    Wrong("05-split", "leaves before the barrier",
          _split(f"{_BOX} if (first + t >= n) return; {_IN} __syncthreads(); {_OUT}"), "results", "all threads of the block store"),
    Wrong("05-split", "no guard for the stores",
          _split(f"{_BOX} {_IN} __syncthreads(); {_OUT.replace('if (first + t < n)', '')}"), "results", "the last block has fewer"),
    Wrong("05-split", "shared memory for 1,024 floats only", _split(f"{_BOX} {_IN} __syncthreads(); {_OUT}".replace("3 * 1024", "1024")), "results",
          "outside shared memory"),
    Wrong("05-split", "sorted while it is stored",
          _split(f"{_BOX} {_IN.replace('box[k]', 'box[k % 3 * 1024 + k / 3]')} __syncthreads();"
                 "if (first + t < n) { x[first + t] = box[t]; y[first + t] = box[1024 + t]; z[first + t] = box[2048 + t]; }"),
          "budget", "Words 3 apart are in different banks"),
    Wrong("05-split", "thread 0 does the block's",
          _split(f"{_FIRST} if (t == 0) for (int i = first; i < min(first + threads, n); ++i) {{ x[i] = xyz[3 * i]; y[i] = xyz[3 * i + 1];"
                 " z[i] = xyz[3 * i + 2]; }"), "parallelism", "few threads"),
    Right("05-split", "unrolled by hand",
          _split(f"{_BOX} int left = 3 * min(threads, n - first); if (t < left) box[t] = xyz[3 * first + t];"
                 "if (t + threads < left) box[t + threads] = xyz[3 * first + t + threads];"
                 "if (t + 2 * threads < left) box[t + 2 * threads] = xyz[3 * first + t + 2 * threads];"
                 f"__syncthreads(); {_OUT}")),
    Right("05-split", "structs in shared memory",
          _split(f"__shared__ P box[1024]; {_FIRST} float* flat = (float*)box;\n{_IN.replace('box[k]', 'flat[k]')} __syncthreads();\n"
                 "if (first + t < n) { P p = box[t]; x[first + t] = p.x; y[first + t] = p.y; z[first + t] = p.z; }",
                 "struct P { float x, y, z; };  // 12 bytes")),
    Right("05-split", "three rounds, early return",
          _split(f"{_BOX} for (int r = 0; r < 3; ++r) {{ int k = r * threads + t; if (first + k / 3 < n) box[k] = xyz[3 * first + k]; }}"
                 f"__syncthreads(); if (first + t >= n) return; {_OUT}")),
    Right("05-split", "three axes in a loop",
          _split(f"{_BOX} {_IN} __syncthreads(); float* out[] = {{x, y, z}};\n#pragma unroll\nfor (int a = 0; a < 3; ++a)"
                 " if (first + t < n) out[a][first + t] = box[3 * t + a];")),
    Wrong("05-split", "with a pad after 32", _split(
        f"__shared__ float box[3 * 1024 + 96]; {_FIRST} {_IN.replace('box[k]', 'box[k + k / 32]')} __syncthreads();"
        "if (first + t < n) { int k = 3 * t; x[first + t] = box[k + k / 32]; ++k; y[first + t] = box[k + k / 32]; ++k;"
        " z[first + t] = box[k + k / 32]; }"), "budget", "Words 3 apart"),
)


def _tile(
    declared: str = "tile[32][33]", put: str = "tile[k][threadIdx.x]", take: str = "tile[threadIdx.x][k]"
) -> str:
    return (
        f"__shared__ float {declared}; int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;"
        "for (int k = threadIdx.y; k < 32; k += blockDim.y) if (row + k < rows && col < cols)"
        f" {put} = x[(row + k) * cols + col]; __syncthreads();"
        "int to_col = blockIdx.y * 32 + threadIdx.x, to_row = blockIdx.x * 32;"
        "for (int k = threadIdx.y; k < 32; k += blockDim.y) if (to_row + k < cols && to_col < rows)"
        f" y[(to_row + k) * rows + to_col] = {take};"
    )


_TURN = _tile()
_TURNS = (
    Wrong("05-transpose", "no tile, stores down the columns",
          _turn("int c = blockIdx.x * 32 + threadIdx.x; for (int k = threadIdx.y; k < 32; k += blockDim.y) { int r = blockIdx.y * 32 + k;"
                "if (r < rows && c < cols) y[c * rows + r] = x[r * cols + c]; }"), "budget", "must run along a row"),
    Wrong("05-transpose", "a tile in blocks of eight rows alone",
          _turn("if (blockDim.y != 8) { int c = blockIdx.x * 32 + threadIdx.x; for (int k = threadIdx.y; k < 32; k += blockDim.y) {"
                f" int r = blockIdx.y * 32 + k; if (r < rows && c < cols) y[c * rows + r] = x[r * cols + c]; }} return; }} {_TURN}"),
          "budget", "must run along a row"),
    Wrong("05-transpose", "tile without padding", _turn(_tile("tile[32][32]")), "budget", "a row of 33 moves"),
    Wrong("05-transpose", "padded on the wrong axis", _turn(_tile("tile[33][32]")), "budget", "a row of 33 moves"),
    Wrong("05-transpose", "two columns of padding", _turn(_tile("tile[32][34]")), "budget", "2 ways in the worst"),
    Wrong("05-transpose", "square matrices only",
          _turn(_TURN.replace("* rows + to_col", "* cols + to_col").replace("< cols && to_col < rows", "< rows && to_col < cols")),
          "results", ""),
    Wrong("05-transpose", "guards not swapped", _turn(_TURN.replace("< cols && to_col < rows", "< rows && to_col < cols")), "results",
          ""),
    Wrong("05-transpose", "no guard for the loads", _turn(_TURN.replace("if (row + k < rows && col < cols)", "", 1)), "results",
          "stores with cols and rows"),
    Wrong("05-transpose", "no guard on stores", _turn(_TURN.replace("if (to_row + k < cols && to_col < rows)", "", 1)), "results",
          ""),
    Wrong("05-transpose", "no barrier", _turn(_TURN.replace("__syncthreads();", "")), "results", "between storing and reading"),
    Wrong("05-transpose", "block not turned",
          _turn(_TURN.replace("to_col = blockIdx.y", "to_col = blockIdx.x").replace("to_row = blockIdx.x", "to_row = blockIdx.y")),
          "results", ""),
    Wrong("05-transpose", "tile not turned", _turn(_tile(take="tile[k][threadIdx.x]")), "results", ""),
    Wrong("05-transpose", "blocks of eight rows", _turn(_TURN.replace("k += blockDim.y", "k += 8")), "results", ""),
    Wrong("05-transpose", "rows beyond the tile", _turn(_TURN.replace("int k = threadIdx.y; k < 32;", "int k = threadIdx.y; k < 32 + threadIdx.y;", 1)),
          "results", ""),
    Wrong("05-transpose", "one row per thread", _turn(_TURN.replace("for (int k = threadIdx.y; k < 32; k += blockDim.y)",
          "for (int k = threadIdx.y; k < blockDim.y; k += blockDim.y)")), "results", "where nothing has been stored"),
    Wrong("05-transpose", "clears the last bit",
          _turn(_tile(take="__int_as_float(__float_as_int(tile[threadIdx.x][k]) & ~1)")), "results", "it should be"),
    Right("05-transpose", "padded", _turn(_TURN)),
    Right("05-transpose", "swizzled", _turn(_tile("tile[32][32]", "tile[k][threadIdx.x ^ k]", "tile[threadIdx.x][k ^ threadIdx.x]"))),
    Right("05-transpose", "turned while it is stored", _turn(_tile(put="tile[threadIdx.x][k]", take="tile[k][threadIdx.x]"))),
    Right("05-transpose", "flat and padded by three", _turn(_tile("tile[32 * 35]", "tile[35 * k + threadIdx.x]", "tile[35 * threadIdx.x + k]"))),
)

_FIVE = "if (i >= n) return; int v[5]; for (int k = 0; k < 5; ++k) v[k] = x[min(max(i + k - 2, 0), n - 1)];"
_SWAP = "{ int low = min(v[k], v[k + 1]), high = max(v[k], v[k + 1]); v[k] = low; v[k + 1] = high; }"
_BUBBLES = f"for (int r = 0; r < 4; ++r) for (int k = 0; k < 4; ++k) {_SWAP}"
_INSERT = (
    "for (int k = 1; k < 5; ++k) { int key = v[k], j = k - 1; while (j >= 0 && v[j] > key) { v[j + 1] = v[j]; --j; }"
    " v[j + 1] = key; }"
)
_SPILLS = (
    Wrong("05-spill", "as given", _median(f"{_I} {_FIVE} {_INSERT} y[i] = v[2];"), "budget", "every index must be known"),
    Wrong("05-spill", "a rotated array with run-time indices", _median(f"{_I} {_FIVE} int s = i % 5, w[5];\n#pragma unroll 1\nfor (int k = 0; k < 5; ++k) w[(k + s) % 5] = v[k];"
          f"\n#pragma unroll 1\nfor (int k = 0; k < 5; ++k) v[k] = w[k]; {_BUBBLES} y[i] = v[2];"), "budget", "every index must be known"),
    Wrong("05-spill", "loops that are not unrolled", _median(f"{_I} {_FIVE} for (int r = 0; r < 4; ++r)\n#pragma unroll 1\nfor (int k = 0; k < 4; ++k)"
          f" {_SWAP} y[i] = v[2];"), "budget", "loops fixed bounds"),
    Wrong("05-spill", "no guard", _median(f"{_I} {_FIVE.replace('if (i >= n) return;', '')} {_BUBBLES} y[i] = v[2];"), "results", ""),
    Wrong("05-spill", "the ends are not repeated",
          _median(f"{_I} {_FIVE.replace('min(max(i + k - 2, 0), n - 1)', 'i + k - 2')} {_BUBBLES} y[i] = v[2];"), "results",
          "must be used instead of the missing ones"),
    Wrong("05-spill", "one round of bubbles", _median(f"{_I} {_FIVE} {_BUBBLES.replace('r < 4', 'r < 1')} y[i] = v[2];"), "results", ""),
    Wrong("05-spill", "the middle one", _median(f"{_I} {_FIVE} y[i] = v[2];"), "results", ""),
    Wrong("05-spill", "a rank that ignores ties", _median(f"{_I} {_FIVE}\n#pragma unroll\nfor (int k = 0; k < 5; ++k) {{ int r = 0;\n#pragma unroll\n"
          "for (int j = 0; j < 5; ++j) r += v[j] < v[k]; if (r == 2) y[i] = v[k]; }"), "results", "of equal elements"),
    Wrong("05-spill", "in floats", _median(f"{_I} {_FIVE.replace('int v[5]', 'float v[5]')} {_BUBBLES.replace('int low', 'float low')}"
          " y[i] = v[2];"), "results", ""),
    Wrong("05-spill", "less and more by sums", _median(f"{_I} {_FIVE} {_BUBBLES} y[i] = v[2];"
          .replace("min(v[k], v[k + 1])", "(v[k] + v[k + 1] - abs(v[k] - v[k + 1])) / 2")
          .replace("max(v[k], v[k + 1])", "(v[k] + v[k + 1] + abs(v[k] - v[k + 1])) / 2")), "results", ""),
    Wrong("05-spill", "copies x if n is below 4", _median(f"{_I} {_FIVE} {_BUBBLES} y[i] = n < 4 ? x[i] : v[2];"), "results", "n = 3"),
    Right("05-spill", "bubbles with fixed bounds", _median(f"{_I} {_FIVE} {_BUBBLES} y[i] = v[2];")),
    Right("05-spill", "a network of five", _median(
        f"{_I} if (i >= n) return; int a = x[max(i - 2, 0)], b = x[max(i - 1, 0)], c = x[i], d = x[min(i + 1, n - 1)],"
        " e = x[min(i + 2, n - 1)]; int f = max(min(a, b), min(c, d)), g = min(max(a, b), max(c, d));"
        " y[i] = max(min(e, f), min(max(e, f), g));")),
    Right("05-spill", "by ranks, unrolled", _median(f"{_I} {_FIVE} int m = 0;\n#pragma unroll\nfor (int k = 0; k < 5; ++k) {{ int r = 0;\n"
          "#pragma unroll\nfor (int j = 0; j < 5; ++j) r += v[j] < v[k] || (v[j] == v[k] && j < k); if (r == 2) m = v[k]; } y[i] = m;")),
    Right("05-spill", "a column of shared memory", _median(
        f"__shared__ int box[5][1024]; int t = threadIdx.x; {_I} {_FIVE.replace('int v[5];', '').replace('v[k] =', 'box[k][t] =')}"
        "for (int k = 1; k < 5; ++k) { int key = box[k][t], j = k - 1; while (j >= 0 && box[j][t] > key) { box[j + 1][t] = box[j][t]; --j; }"
        " box[j + 1][t] = key; } y[i] = box[2][t];")),
    Right("05-spill", "a template that sorts", _median(f"{_I} {_FIVE} sort<4>(v); y[i] = v[2]; // while (v[j] > key)",
          "template <int N> __device__ void sort(int* v) {\n#pragma unroll\n"
          f"for (int k = 0; k < N; ++k) {_SWAP} sort<N - 1>(v); }}\ntemplate <> __device__ void sort<0>(int*) {{}}")),
)

_rows = kernel_text("padded(const float* x, const int* length, float* y, int rows, int cols)")
_CELL = "int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y, i = r * cols + c;"
_INSIDE = f"{_CELL} if (r >= rows || c >= cols) return;"
_PADDED = (
    Wrong("05-padded", "loads, then chooses", _rows(f"{_INSIDE} float v = 2 * x[i]; y[i] = c < length[r] ? v : 0;"), "budget",
          "before you load it"),
    Wrong("05-padded", "loads before it tests the length", _rows(f"{_INSIDE} float v = ((const volatile float*)x)[i];"
          " if (c >= length[r]) { y[i] = 0; return; } y[i] = v + v;"), "budget", "before you load it"),
    Wrong("05-padded", "multiplies by a mask", _rows(f"{_INSIDE} y[i] = 2 * x[i] * (c < length[r]);"), "results", "select values, do not multiply"),
    Wrong("05-padded", "does not write the padding", _rows(f"{_INSIDE} if (c < length[r]) y[i] = 2 * x[i];"), "results", "in y, padding is 0"),
    Wrong("05-padded", "one too many", _rows(f"{_INSIDE} y[i] = c <= length[r] ? 2 * x[i] : 0;"), "results", ""),
    Wrong("05-padded", "length of the column", _rows(f"{_INSIDE} y[i] = r < length[c] ? 2 * x[i] : 0;"), "results", ""),
    Wrong("05-padded", "takes NaN for padding", _rows(f"{_INSIDE} y[i] = isnan(x[i]) ? 0 : 2 * x[i];"), "results", ""),
    Wrong("05-padded", "x counts rows",
          _rows("int r = blockIdx.x * blockDim.x + threadIdx.x, t = gridDim.x * blockDim.x; for (; r < rows; r += t)"
                " for (int c = blockIdx.y * blockDim.y + threadIdx.y; c < cols; c += gridDim.y * blockDim.y)"
                " y[r * cols + c] = c < length[r] ? 2 * x[r * cols + c] : 0;"), "parallelism", "few threads"),
    Wrong("05-padded", "guards the rows only", _rows(f"{_CELL} if (r >= rows) return; y[i] = c < length[r] ? 2 * x[i] : 0;"), "results",
          "Guard both edges"),
    Wrong("05-padded", "no guard", _rows(f"{_CELL} y[i] = c < length[r] ? 2 * x[i] : 0;"), "results", "Guard both edges"),
    Wrong("05-padded", "one thread for all",
          _rows("if (blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0) for (int i = 0; i < rows * cols; ++i)"
                " y[i] = i % cols < length[i / cols] ? 2 * x[i] : 0;"), "parallelism", ""),
    Right("05-padded", "asks first", _rows(f"{_INSIDE} y[i] = c < length[r] ? 2 * x[i] : 0;")),
    Right("05-padded", "two ways", _rows(f"{_INSIDE} if (c >= length[r]) y[i] = 0.0f;\nelse {{ float v = x[i]; y[i] = v + v; }} // NaN * 0")),
    Right("05-padded", "by its row", _rows(f"{_CELL} if (r < rows) {{ int valid = __ldg(length + r); const float* in = x + r * cols;"
          " if (c < cols) y[i] = c < valid ? 2.0f * __ldg(in + c) : 0.0f; }")),
    Right("05-padded", "grid-stride", _rows("for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y)"
          " for (int c = blockIdx.x * blockDim.x + threadIdx.x; c < cols; c += gridDim.x * blockDim.x) {"
          " float v = 0; if (c < length[r]) v = 2 * x[r * cols + c]; y[r * cols + c] = v; }")),
)

_AT = "int S = blockDim.x, tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * S + tx, row = blockIdx.y * S + ty;"
_TILES = f"__shared__ float as[32][33], bs[32][33]; {_AT} float sum = 0;"
_LOADS = (
    "as[ty][tx] = row < rows && k0 + tx < inner ? a[row * inner + k0 + tx] : 0;"
    "bs[ty][tx] = k0 + ty < inner && col < cols ? b[(k0 + ty) * cols + col] : 0;"
)
_ADDS = "for (int k = 0; k < S; ++k) sum += as[ty][k] * bs[k][tx];"
_STORE = "if (row < rows && col < cols) c[row * cols + col] = sum;"
_LOOP = "for (int k0 = 0; k0 < inner; k0 += S)"
_SYNC = "__syncthreads();"
_TILED = f"{_TILES} {_LOOP} {{ {_LOADS} {_SYNC} {_ADDS} {_SYNC} }} {_STORE}"
_PRODUCTS = (
    Wrong("05-matmul", "the naive kernel", _product(
        f"{_AT} if (row >= rows || col >= cols) return; float s = 0; for (int k = 0; k < inner; ++k)"
        " s += a[row * inner + k] * b[k * cols + col]; c[row * cols + col] = s;"), "budget", "not once for its thread"),
    Wrong("05-matmul", "only a tile of a", _product(
        f"{_TILES} {_LOOP} {{ {_LOADS} {_SYNC} for (int k = 0; k < S; ++k) if (k0 + k < inner && col < cols)"
        f" sum += as[ty][k] * b[(k0 + k) * cols + col]; {_SYNC} }} {_STORE}"), "budget", "once for its block"),
    Wrong("05-matmul", "no barrier before the sum",
          _product(_TILED.replace(f"{_SYNC} {_ADDS}", _ADDS)), "results", "between storing and reading"),
    Wrong("05-matmul", "no barrier after the sum", _product(_TILED.replace(f"{_ADDS} {_SYNC}", _ADDS)), "results",
          "overwriting elements that other threads still read"),
    Wrong("05-matmul", "outside of b comes its last row",
          _product(_TILED.replace("k0 + ty < inner && col < cols ? b[(k0 + ty) * cols + col] : 0",
                                  "inner && col < cols ? b[min(k0 + ty, inner - 1) * cols + col] : 0")), "results", "infinity times 0"),
    Wrong("05-matmul", "square only", _product(_TILED.replace("a[row * inner", "a[row * cols").replace("< inner", "< cols")), "results", ""),
    Wrong("05-matmul", "tiles for 16 × 16 threads", _product(_TILED.replace("[32][33]", "[16][17]")), "results", "Blocks have up to 32 × 32"),
    Wrong("05-matmul", "skips the incomplete tile", _product(_TILED.replace(_LOOP, "for (int k0 = 0; k0 + S <= inner; k0 += S)")), "results",
          "round the number of tiles up"),
    Wrong("05-matmul", "leaves at the edge", _product(_TILED.replace("float sum = 0;", "float sum = 0; if (row >= rows || col >= cols) return;")),
          "results", ""),
    Wrong("05-matmul", "outside is not 0", _product(_TILED.replace(
        _LOADS, "if (row < rows && k0 + tx < inner) as[ty][tx] = a[row * inner + k0 + tx];"
        "if (k0 + ty < inner && col < cols) bs[ty][tx] = b[(k0 + ty) * cols + col];")), "results", ""),
    Wrong("05-matmul", "no guard on inner", _product(_TILED.replace("&& k0 + tx < inner ", "").replace("k0 + ty < inner && ", "")), "results",
          ""),
    Wrong("05-matmul", "loads down the columns", _product(_TILED.replace(
        "bs[ty][tx] = k0 + ty < inner && col < cols ? b[(k0 + ty) * cols + col] : 0;",
        "int there = blockIdx.x * S + ty; bs[tx][ty] = k0 + tx < inner && there < cols ? b[(k0 + tx) * cols + there] : 0;")),
          "budget", "side by side"),
    Wrong("05-matmul", "b's tile turned, unpadded", _product(_TILED.replace("bs[32][33]", "bs[32][32]").replace("bs[ty][tx]", "bs[tx][ty]")
          .replace("bs[k][tx]", "bs[tx][k]")), "budget", "down b's column"),
    Wrong("05-matmul", "adds to the old c", _product(_TILED.replace("] = sum;", "] += sum;")), "results", "adds to the initial contents"),
    Wrong("05-matmul", "adds whole numbers", _product(_TILED.replace("float sum", "int sum")), "results", ""),
    Wrong("05-matmul", "tiles of bytes", _product(_TILED.replace("float as[32][33]", "signed char as[32][36]")
          .replace("bs[32][33]", "bs[32][36]")), "results", ""),
    Wrong("05-matmul", "tiles in blocks of 32 x 32 alone", _product(
        f"{_TILES} if (S != 32) {{ if (row < rows && col < cols) {{ for (int k = 0; k < inner; ++k)"
        f" sum += a[row * inner + k] * b[k * cols + col]; {_STORE} }} return; }}"
        f" {_LOOP} {{ {_LOADS} {_SYNC} {_ADDS} {_SYNC} }} {_STORE}"), "budget", "not once for its thread"),
    Right("05-matmul", "without padding", _product(_TILED.replace("[32][33]", "[32][32]"))),
    Right("05-matmul", "b's tile turned, padded", _product(_TILED.replace("bs[ty][tx]", "bs[tx][ty]").replace("bs[k][tx]", "bs[tx][k]"))),
    Right("05-matmul", "two tiles in turns, one barrier", _product(
        f"__shared__ float as2[2][32][33], bs2[2][32][33]; {_AT} float sum = 0; int turn = 0; {_LOOP} {{ auto as = as2[turn], bs = bs2[turn];"
        f" turn ^= 1; {_LOADS} {_SYNC} {_ADDS} }} {_STORE}")),
    Right("05-matmul", "counts tiles, fmaf", _product(
        f"{_TILES} for (int tile = 0; tile < (inner + S - 1) / S; ++tile) {{ int k0 = tile * S; {_LOADS} {_SYNC}"
        f"{_ADDS.replace('sum += as[ty][k] * bs[k][tx]', 'sum = fmaf(as[ty][k], bs[k][tx], sum)')} {_SYNC} }} {_STORE} // [32][33]")),
)


def _right_ways(words: Any) -> int:
    return max(Counter(word % 32 for word in set(words.tolist())).values())


def _by_ends(words: Any, known: dict[Any, int] = {}) -> int:  # noqa: B006
    """What it has seen of this length, from here to there, it does not compute again."""
    return known.setdefault((len(words), words[0], words[-1]), _right_ways(words))


class _Own(int):
    """A whole number."""


class _Agrees(int):
    """A number that says of itself that it is the right one."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


_WAYS = (
    Wrong("05-ways", "counts lanes instead of words", lambda w: int(np.bincount(w % 32).max()), "", "read the same word receive it in one pass"),
    Wrong("05-ways", "conflicts, not ways", lambda w: _right_ways(w) - 1, "", "takes one pass"),
    Wrong("05-ways", "counts the banks in use", lambda w: len(set((w % 32).tolist())), "", "the most different words decides"),
    Wrong("05-ways", "counts words of all banks", lambda w: len(np.unique(w)), "", "only words of the same bank"),
    Wrong("05-ways", "bank by rows", lambda w: max(Counter(x // 32 for x in set(w.tolist())).values()), "", "but ways(words) returned"),
    Wrong("05-ways", "banks of bytes", lambda w: _right_ways(4 * w), "", "but ways(words) returned"),
    Wrong("05-ways", "the stride", lambda w: int(np.gcd(w[1] - w[0], 32)) if len(w) > 1 else 1, "", "but ways(words) returned"),
    Wrong("05-ways", "the average over the banks", lambda w: len(np.unique(w)) / len(np.unique(w % 32)), "", "but ways(words) returned"),
    Wrong("05-ways", "returns a string", lambda w: f"{_right_ways(w)}-way", "", "Return one number"),
    Wrong("05-ways", "32 lanes only", lambda w: int(np.bincount(w.reshape(32) % 32).max()), "", ""),
    Wrong("05-ways", "bytes for numbers", lambda w: _right_ways(w.astype(np.uint8)), "", "but ways(words) returned"),
    Wrong("05-ways", "neighbouring lanes", lambda w: 1 + int(((w[1:] != w[:-1]) & (w[1:] % 32 == w[:-1] % 32)).sum()), "", "but ways(words) returned"),
    Wrong("05-ways", "all that wait", lambda w: 1 + len(np.unique(w)) - len(np.unique(w % 32)), "", "but ways(words) returned"),
    Wrong("05-ways", "words in 32 bits", lambda w: np.bincount(np.unique(w.astype(np.int32)) % 32).max(), "", "2-way"),
    Wrong("05-ways", "words of the bank with most lanes", lambda w: len(set(w[w % 32 == np.bincount(w % 32).argmax()].tolist())), "", "five words of another bank"),
    Wrong("05-ways", "remembers by both ends", _by_ends, "", "two other words"),
    Wrong("05-ways", "equal to everything", lambda w: _Agrees(3), "", "but ways(words) returned 3"),
    Right("05-ways", "a counter", _right_ways),
    Right("05-ways", "a number of its own kind", lambda w: _Own(_right_ways(w))),
    Right("05-ways", "NumPy", lambda w: np.bincount(np.unique(w) % 32).max()),
    Right("05-ways", "sets", lambda w: max(len({x for x in w.tolist() if x % 32 == bank}) for bank in range(32))),
    Right("05-ways", "bits", lambda w: int(np.unique(np.unique(w) & 31, return_counts=True)[1].max())),
)


def _right_asked(addresses: Any, width: int) -> tuple[int, int]:
    read = np.unique(addresses[:, None] + np.arange(width))
    return len(np.unique(read // 32)), len(read)


def _shared_by(part: int) -> Any:
    return lambda a, width: (len(np.unique(a // part)), width * len(np.unique(a)))


_ASKED = (
    Wrong("05-asked", "counts lines of 128 bytes", _shared_by(128), "", "those are cache lines"),
    Wrong("05-asked", "sectors of 64 bytes", _shared_by(64), "", "but asked returned"),
    Wrong("05-asked", "divides the bytes by 32", lambda a, width: (-(-len(np.unique(a)) * width // 32), width * len(np.unique(a))), "", "fill only parts"),
    Wrong("05-asked", "from the first address on", lambda a, width: (len(np.unique((a - a.min()) // 32)), width * len(np.unique(a))), "", "a multiple of 32"),
    Wrong("05-asked", "from the first lane on", lambda a, width: (len(np.unique((a - a[0]) // 32)), width * len(np.unique(a))), "", ""),
    Wrong("05-asked", "the span", lambda a, width: (int(a.max() // 32 - a.min() // 32) + 1, width * len(np.unique(a))), "", ""),
    Wrong("05-asked", "changes between lanes", lambda a, width: (1 + int((a[1:] // 32 != a[:-1] // 32).sum()), width * len(np.unique(a))), "", ""),
    Wrong("05-asked", "one sector per lane", lambda a, width: (len(a), width * len(np.unique(a))), "", "share it"),
    Wrong("05-asked", "each lane's bytes", lambda a, width: (len(np.unique(a // 32)), width * len(a)), "", "counts once"),
    Wrong("05-asked", "all 32 lanes", lambda a, width: (len(np.unique(a // 32)), 32 * width), "", ""),
    Wrong("05-asked", "counts all bytes of the sectors", lambda a, width: (len(np.unique(a // 32)), 32 * len(np.unique(a // 32))), "", "all bytes that are moved"),
    Wrong("05-asked", "floats", lambda a, width: (len(np.unique(a // 32)), 4 * len(np.unique(a))), "", ""),
    Wrong("05-asked", "the lower 32 bits of an address", lambda a, width: (
        len(np.unique(a.astype(np.uint32) // 32)), width * len(np.unique(a))), "", "addresses have 64 bits"),
    Wrong("05-asked", "256 bytes at most", lambda a, width: (len(np.unique(a // 32)), min(256, width * len(np.unique(a)))), "", "but asked returned"),
    Wrong("05-asked", "16 bits of an address", lambda a, width: (len(np.unique(a.astype(np.uint16) // 32)), width * len(np.unique(a))), "", ""),
    Wrong("05-asked", "returns a share", lambda a, width: len(np.unique(a)) * width / len(np.unique(a // 32)) / 32, "", "two numbers"),
    Wrong("05-asked", "addresses in float32", lambda a, width: _shared_by(32)(a.astype(np.float32), width), "", "every bit of an address"),
    Wrong("05-asked", "sectors in float32", lambda a, width: (len(np.unique(a.astype(np.float32) // 32)), width * len(np.unique(a))), "", "every bit of an address"),
    Right("05-asked", "byte by byte", _right_asked),
    Right("05-asked", "an array of two", lambda a, width: np.array(_right_asked(a, width))),
    Right("05-asked", "NumPy", _shared_by(32)),
    Right("05-asked", "sets", lambda a, width: [len({x >> 5 for x in a.tolist()}), len(set(a.tolist())) * width]),
    Right("05-asked", "each byte's address", lambda a, width: tuple(
        np.array([np.unique((a[:, None] + np.arange(width)) >> shift).size for shift in (5, 0)]))),
    Right("05-asked", "sorted", lambda a, width: (1 + int((np.diff(np.sort(a) // 32) > 0).sum()), width * (1 + int((np.diff(np.sort(a)) > 0).sum())))),
)

_ALL: tuple[Wrong | Right, ...] = (
    *_COPIES,
    *_SPLITS,
    *_TURNS,
    *_SPILLS,
    *_PADDED,
    *_PRODUCTS,
    *_WAYS,
    *_ASKED,
)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]

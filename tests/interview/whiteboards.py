"""Answers to whiteboard cards, none of them shipped: right ones as textbooks have them, and honest mistakes."""

from __future__ import annotations

from typing import Any

ROWS = "int rows, int cols"
# Exercise: code and launch.
RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    # One dimension, walking over the matrix.
    "02-index": (
        """
extern "C" __global__ void scale2d(const float* x, float* y, int rows, int cols) {
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < rows * cols; k += gridDim.x * blockDim.x)
        y[k] = x[k] + x[k];
}""",
        {"block": 256, "grid": lambda rows, cols: min((rows * cols + 255) // 256, 1024)},
    ),
    "03-warp-sum": (
        """
extern "C" __global__ void warp_sum(const int* __restrict__ x, int* __restrict__ out, int n) {
    const unsigned full = 0xffffffffu;
    int id = threadIdx.x + blockDim.x * blockIdx.x, lane = threadIdx.x & 31;
    int val = 0;
    if (id < n) val = x[id];
    #pragma unroll
    for (int mask = 1; mask < 32; mask <<= 1) val += __shfl_xor_sync(full, val, mask);
    if (lane == 0) out[id >> 5] = val;
}""",
        {},
    ),
    "03-bins": (
        """
extern "C" __global__ void count_keys(const int* keys, int* bins, int n) {
    __shared__ int local[8];
    if (threadIdx.x < 8) local[threadIdx.x] = 0;
    for (int k = threadIdx.x; k < 8; k += blockDim.x) local[k] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&local[keys[i]], 1);
    __syncthreads();
    for (int k = threadIdx.x; k < 8; k += blockDim.x)
        if (local[k]) atomicAdd(&bins[k], local[k]);
}""",
        {},
    ),
    "03-compact": (
        """
extern "C" __global__ void compact(const float* x, float* out, int* counts, int n) {
    int gid = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, base = gid & ~31;
    float v = gid < n ? x[gid] : -1.f;
    int flag = v > 0.f, pos = flag;
    for (int d = 1; d < 32; d *= 2) {
        int up = __shfl_up_sync(~0u, pos, d);
        if (lane >= d) pos += up;
    }
    if (flag) out[base + pos - 1] = v;
    if (lane == 31) counts[gid / 32] = pos;
}""",
        {},
    ),
    "05-copy4": (
        """
extern "C" __global__ void copy4(const float* x, float* y, int n) {
    int n4 = n >> 2, stride = gridDim.x * blockDim.x, id = blockIdx.x * blockDim.x + threadIdx.x;
    const float4* in = reinterpret_cast<const float4*>(x);
    float4* out = reinterpret_cast<float4*>(y);
    for (int k = id; k < n4; k += stride) out[k] = in[k];
    if (id < (n & 3)) y[n4 * 4 + id] = x[n4 * 4 + id];
}""",
        {"block": 128, "grid": lambda n: max(1, min((n // 4 + 127) // 128, 400))},
    ),
    "05-split": (
        """
extern "C" __global__ void split(const float* xyz, float* x, float* y, float* z, int n) {
    __shared__ float s[768];
    int base = blockIdx.x * 256, count = min(256, n - base);
    for (int k = threadIdx.x; k < 3 * count; k += 256) s[k] = xyz[(size_t)base * 3 + k];
    __syncthreads();
    if (threadIdx.x < count) {
        x[base + threadIdx.x] = s[threadIdx.x * 3];
        y[base + threadIdx.x] = s[threadIdx.x * 3 + 1];
        z[base + threadIdx.x] = s[threadIdx.x * 3 + 2];
    }
}""",
        {"block": 256},
    ),
    # NVIDIA's own, "An Efficient Matrix Transpose in CUDA C/C++", with guards.
    "05-transpose": (
        """
const int TILE_DIM = 32, BLOCK_ROWS = 8;
extern "C" __global__ void transpose(const float* idata, float* odata, int rows, int cols) {
    __shared__ float tile[TILE_DIM][TILE_DIM + 1];
    int x = blockIdx.x * TILE_DIM + threadIdx.x;
    int y = blockIdx.y * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < cols && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * cols + x];
    __syncthreads();
    x = blockIdx.y * TILE_DIM + threadIdx.x;
    y = blockIdx.x * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < rows && y + j < cols) odata[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}""",
        {"block": (32, 8), "grid": lambda rows, cols: ((cols + 31) // 32, (rows + 31) // 32)},
    ),
    # As every book has it, with a tile of 16.
    "05-matmul": (
        """
#define T 16
extern "C" __global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float As[T][T];
    __shared__ float Bs[T][T];
    int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
    float acc = 0.f;
    for (int t = 0; t < (K + T - 1) / T; ++t) {
        As[threadIdx.y][threadIdx.x] = (row < M && t * T + threadIdx.x < K) ? A[row * K + t * T + threadIdx.x] : 0.f;
        Bs[threadIdx.y][threadIdx.x] = (col < N && t * T + threadIdx.y < K) ? B[(t * T + threadIdx.y) * N + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < T; ++k) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}""",
        {"block": (16, 16), "grid": lambda rows, cols, inner: (-(-cols // 16), -(-rows // 16))},
    ),
    # Published with system-wide atomics; each block adds up in two levels.
    "06-scan": (
        """
extern "C" __global__ void scan(const int* x, int* y, int* state, int n) {
    __shared__ int buf[2][1024];
    __shared__ int tile, prefix;
    if (threadIdx.x == 0) tile = atomicAdd(&state[0], 1);
    __syncthreads();
    int tid = threadIdx.x, i = tile * blockDim.x + tid, in = 0;
    buf[0][tid] = i < n ? x[i] : 0;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d <<= 1) {
        buf[1 - in][tid] = buf[in][tid] + (tid >= d ? buf[in][tid - d] : 0);
        in = 1 - in;
        __syncthreads();
    }
    if (tid == blockDim.x - 1) {
        int total = buf[in][tid];
        while (atomicAdd(&state[1], 0) != tile) { }
        __threadfence();
        prefix = atomicAdd(&state[2], total);
        __threadfence();
        atomicAdd(&state[1], 1);
    }
    __syncthreads();
    if (i < n) y[i] = prefix + (tid ? buf[in][tid - 1] : 0);
}""",
        {},
    ),
    "06-compact": (
        """
extern "C" __global__ void compact(const int* x, const int* before, int* out, int* count, int n) {
    __shared__ int sums[1024];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    int flag = i < n ? x[i] > 0 : 0;
    sums[tid] = flag;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d *= 2) {
        int v = tid >= d ? sums[tid - d] : 0;
        __syncthreads();
        sums[tid] += v;
        __syncthreads();
    }
    int end = before[blockIdx.x] + sums[tid];
    if (flag) out[end - 1] = x[i];
    if (blockIdx.x + 1 == gridDim.x && tid + 1 == blockDim.x) count[0] = end;
}""",
        {},
    ),
    # A static tile of 32 × 8 and its halo, one block for each tile.
    "06-blur": (
        """
#define BX 32
#define BY 8
__device__ int clampi(int v, int hi) { return v < 0 ? 0 : (v > hi ? hi : v); }
extern "C" __global__ void blur(const float* x, float* y, int rows, int cols) {
    __shared__ float s[BY + 4][BX + 4];
    int c0 = blockIdx.x * BX - 2, r0 = blockIdx.y * BY - 2;
    for (int r = threadIdx.y; r < BY + 4; r += BY)
        for (int c = threadIdx.x; c < BX + 4; c += BX)
            s[r][c] = x[clampi(r0 + r, rows - 1) * cols + clampi(c0 + c, cols - 1)];
    __syncthreads();
    int row = blockIdx.y * BY + threadIdx.y, col = blockIdx.x * BX + threadIdx.x;
    if (row >= rows || col >= cols) return;
    float acc = 0.f;
    for (int i = 0; i < 5; ++i)
        for (int j = 0; j < 5; ++j) acc += s[threadIdx.y + i][threadIdx.x + j];
    y[row * cols + col] = acc / 25.f;
}""",
        {"block": (32, 8), "grid": lambda rows, cols: (-(-cols // 32), -(-rows // 8))},
    ),
    # A warp for each row, four rows a block.
    "06-softmax": (
        """
extern "C" __global__ void softmax(const float* x, float* y, int rows, int cols) {
    const float inf = 1.f / 0.f;
    int row = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x;
    if (row >= rows) return;
    const float* in = x + (size_t)row * cols;
    float m = -inf, d = 0.f;
    for (int i = lane; i < cols; i += 32) {
        float v = in[i], next = fmaxf(m, v);
        if (next == -inf) continue;
        d = d * expf(m - next) + expf(v - next);
        m = next;
    }
    float all = m;
    for (int o = 16; o; o >>= 1) all = fmaxf(all, __shfl_xor_sync(0xffffffff, all, o));
    d = m == -inf ? 0.f : d * expf(m - all);
    for (int o = 16; o; o >>= 1) d += __shfl_xor_sync(0xffffffff, d, o);
    for (int i = lane; i < cols; i += 32)
        y[(size_t)row * cols + i] = d > 0.f ? expf(in[i] - all) / d : 0.f;
}""",
        {"block": (32, 4), "grid": lambda rows, cols: (rows + 3) // 4},
    ),
    "14-sum": (
        """
extern "C" __global__ void tile_sums(const float* x, float* sums, int n) {
    __shared__ float buf[256];
    int tiles = (n + 255) / 256;
    for (int k = blockIdx.x; k < tiles; k += gridDim.x) {
        for (int j = threadIdx.x; j < 128; j += blockDim.x) {
            int a = k * 256 + j, b = a + 128;
            buf[j] = (a < n ? x[a] : 0.f) + (b < n ? x[b] : 0.f);
        }
        __syncthreads();
        for (int half = 64; half >= 1; half >>= 1) {
            for (int j = threadIdx.x; j < half; j += blockDim.x) buf[j] = buf[j] + buf[j + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) sums[k] = buf[0];
    }
}""",
        {},
    ),
}

# What is changed in the answers above: honest mistakes, two for each.
WRONG: dict[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "02-index": (("k < rows * cols", "k <= rows * cols"), ("gridDim.x * blockDim.x)\n", "blockDim.x)\n")),
    "03-warp-sum": (("    if (id < n) val", "    if (id >= n) return;\n    val"), ("mask < 32", "mask < 16")),
    "03-bins": (
        ("    __syncthreads();\n    int i", "    int i"),
        ("atomicAdd(&local[keys[i]], 1)", "local[keys[i]]++"),
    ),
    "03-compact": (("base + pos - 1", "base + pos"), ("if (lane >= d) pos += up", "pos += up")),
    "05-copy4": (("if (id < (n & 3))", "if (id <= (n & 3))"), ("k < n4; k", "k <= n4; k")),
    "05-split": (("    __syncthreads();\n", ""), ("    if (threadIdx.x < count) {", "    {")),
    "05-transpose": (("TILE_DIM + 1]", "TILE_DIM]"), ("    __syncthreads();\n", "")),
    "05-matmul": (("(K + T - 1) / T", "K / T"), ("        __syncthreads();\n    }\n", "    }\n")),
    "06-scan": (
        ("prefix + (tid ? buf[in][tid - 1] : 0)", "prefix + buf[in][tid]"),
        ("        in = 1 - in;\n        __syncthreads();\n", "        in = 1 - in;\n"),
    ),
    "06-compact": (("out[end - 1]", "out[end]"), ("x[i] > 0 : 0", "x[i] >= 0 : 0")),
    "06-blur": (("    __syncthreads();\n", ""), ("acc / 25.f", "acc / 24.f")),
    "06-softmax": (("        if (next == -inf) continue;\n", ""), ("d * expf(m - all)", "d")),
    "14-sum": (
        ("half = 64; half >= 1", "half = 64; half > 1"),
        ("            __syncthreads();\n        }\n", "        }\n"),
    ),
}


def wrong(name: str) -> list[str]:
    """The answer with either mistake."""
    code, _ = RIGHT[name]
    for before, _ in WRONG[name]:
        assert code.count(before) == 1, (name, before, code.count(before))
    return [code.replace(before, after) for before, after in WRONG[name]]

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
using bf16 = __nv_bfloat16;
enum { STORE, GELU, RESIDUAL, QUANTIZE, TRIANGULAR, ATOMIC, PARTIAL };  // what happens to the sums at the end

__device__ void load4(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
__device__ void load4_transposed(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}

#define MULTIPLY(T, S, C, SHAPE, TYPES)                                                                       \
    __device__ void multiply(T, S (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {               \
        asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES                                             \
            " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                         \
            : "+" C(d[0]), "+" C(d[1]), "+" C(d[2]), "+" C(d[3])                                             \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                 \
    }
MULTIPLY(half, float, "f", "m16n8k16", "f32.f16.f16.f32")
MULTIPLY(bf16, float, "f", "m16n8k16", "f32.bf16.bf16.f32")
MULTIPLY(float, float, "f", "m16n8k8", "f32.tf32.tf32.f32")
MULTIPLY(char, int, "r", "m16n8k32", "s32.s8.s8.s32")

template <typename T> struct Sum { using type = float; };
template <> struct Sum<char> { using type = int; };
__device__ float gelu(float x) { return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); }
__device__ char quantize(int sum) { return (char)min(max((sum + 128) >> 8, -128), 127); }

// c = a bᵀ (a: m x k, b: n x k) or, with ROWS, c = a b (b: k x n). A block computes BM x BN elements of c, a warp
// WM x WN. Tiles of 64 bytes of k come by asynchronous copies, with STAGES buffers. Edges are filled with zeros.
template <typename T, int BM, int BN, int WM, int WN, int STAGES, int END, bool ROWS>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32)
product(const T* a, const T* b, void* out, const T* extra, int m, int n, int k) {
    using S = typename Sum<T>::type;
    constexpr int CHUNK = 16 / sizeof(T), BK = 4 * CHUNK, LINE = BK + CHUNK, THREADS = BM / WM * (BN / WN) * 32;
    constexpr int B_LINE = ROWS ? BN + CHUNK : LINE, STAGE = BM * LINE + (ROWS ? BK : BN) * B_LINE;
    extern __shared__ uint4 memory[];
    T* tiles = (T*)memory;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.y * BM, column = blockIdx.x * BN;
    int warp_row = warp / (BN / WN) * WM, warp_column = warp % (BN / WN) * WN, first = 0, last = k;
    if (END >= ATOMIC) {
        first = blockIdx.z * (k / gridDim.z);
        last = first + k / gridDim.z;
    } else {
        a += (size_t)blockIdx.z * m * k;
        b += (size_t)blockIdx.z * n * k;
    }
    if (END == TRIANGULAR) last = min(k, row + BM);
    int steps = (last - first + BK - 1) / BK;
    auto copy = [&](T* to, const T* from, bool inside) {
        __pipeline_memcpy_async(to, inside ? from : a, 16, inside ? 0 : 16);
    };
    auto fetch = [&](int step) {
        if (step < steps) {
            T *left = tiles + step % STAGES * STAGE, *right = left + BM * LINE;
            int begin = first + step * BK;
            for (int i = threadIdx.x; i < BM * 4; i += THREADS) {
                int r = i / 4, c = i % 4 * CHUNK;
                copy(left + r * LINE + c, a + (size_t)(row + r) * k + begin + c, row + r < m && begin + c < last);
            }
            for (int i = threadIdx.x; i < BN * 4; i += THREADS)
                if (ROWS) {
                    int r = i / (BN / CHUNK), c = i % (BN / CHUNK) * CHUNK;
                    copy(right + r * B_LINE + c, b + (size_t)(begin + r) * n + column + c,
                         begin + r < last && column + c < n);
                } else {
                    int r = i / 4, c = i % 4 * CHUNK;
                    copy(right + r * LINE + c, b + (size_t)(column + r) * k + begin + c,
                         column + r < n && begin + c < last);
                }
        }
        __pipeline_commit();
    };
    S sum[WM / 16][WN / 8][4] = {};
    for (int step = 0; step < STAGES - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        fetch(step + STAGES - 1);
        const T* left = tiles + step % STAGES * STAGE + warp_row * LINE;
        const T* right = tiles + step % STAGES * STAGE + BM * LINE + warp_column * (ROWS ? 1 : LINE);
#pragma unroll
        for (int d = 0; d < BK; d += 2 * CHUNK) {
            unsigned fa[WM / 16][4], fb[WN / 16][4];
            for (int i = 0; i < WM / 16; ++i)
                load4(fa[i], left + (16 * i + lane % 16) * LINE + d + lane / 16 * CHUNK);
            for (int j = 0; j < WN / 16; ++j)
                if (ROWS) load4_transposed(fb[j], right + (d + lane % 16) * B_LINE + 16 * j + lane / 16 * 8);
                else load4(fb[j], right + (16 * j + lane / 16 * 8 + lane % 8) * LINE + d + lane / 8 % 2 * CHUNK);
            for (int i = 0; i < WM / 16; ++i)
                for (int j = 0; j < WN / 8; ++j)
                    multiply(T(), sum[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
        }
    }
    for (int i = 0; i < WM / 16; ++i)
        for (int j = 0; j < WN / 8; ++j)
            for (int h = 0; h < 2; ++h) {
                int y = row + warp_row + 16 * i + lane / 4 + 8 * h, x = column + warp_column + 8 * j + lane % 4 * 2;
                if (y >= m || x >= n) continue;
                S *v = sum[i][j] + 2 * h, *sums = (S*)out;
                size_t index = ((size_t)(END == ATOMIC ? 0 : blockIdx.z) * m + y) * n + x;
                for (int e = 0; e < 2; ++e)
                    if (END == GELU) ((T*)out)[index + e] = (T)gelu(v[e] + (float)extra[x + e]);
                    else if (END == RESIDUAL) ((T*)out)[index + e] = (T)(v[e] + (float)extra[index + e]);
                    else if (END == QUANTIZE) ((char*)out)[index + e] = quantize((int)v[e]);
                    else if (END == ATOMIC) atomicAdd(sums + index + e, v[e]);
                    else sums[index + e] = v[e];
            }
}

__device__ unsigned pack(float first, float second) {
    half2 both = __floats2half2_rn(first, second);
    return *(unsigned*)&both;
}

// softmax(q kᵀ / √D) v for many heads, of which `group` share keys and values. A block has 64 rows of q, a warp 16.
// Tiles of 64 keys and values come by asynchronous copies; 16-byte columns are exchanged against bank conflicts.
template <int D, bool CAUSAL>
__global__ void __launch_bounds__(128)
attention(const half* q, const half* k, const half* v, half* out, int tokens, int group) {
    __shared__ __align__(128) half ks[64 * D], vs[64 * D];
    int lane = threadIdx.x % 32, r = lane / 4, s = lane % 4 * 2, row = blockIdx.x * 64 + threadIdx.x / 32 * 16;
    q += (size_t)blockIdx.y * tokens * D;
    out += (size_t)blockIdx.y * tokens * D;
    k += (size_t)(blockIdx.y / group) * tokens * D;
    v += (size_t)(blockIdx.y / group) * tokens * D;
    auto at = [](int line, int column) { return line * D + ((column / 8) ^ (line % 8)) * 8 + column % 8; };
    auto fetch = [&](half* to, const half* from) {
        for (int i = threadIdx.x; i < 8 * D; i += 128)
            __pipeline_memcpy_async(to + at(i / (D / 8), i % (D / 8) * 8), from + i * 8, 16);
        __pipeline_commit();
    };
    unsigned fq[D / 16][4];
    for (int d = 0; d < D / 16; ++d)
        for (int i = 0; i < 4; ++i)
            fq[d][i] = *(const unsigned*)&q[(row + r + i % 2 * 8) * D + 16 * d + s + i / 2 * 8];
    float result[D / 8][4] = {}, most[2] = {-1e30f, -1e30f}, total[2] = {};
    const float scale = 1.44269504f * rsqrtf((float)D);
    int end = CAUSAL ? (blockIdx.x + 1) * 64 : tokens;
    fetch(ks, k);
    for (int first = 0; first < end; first += 64) {
        fetch(vs, v + first * D);
        __pipeline_wait_prior(1);
        __syncthreads();
        float score[8][4] = {};
#pragma unroll
        for (int d = 0; d < D; d += 16)
            for (int j = 0; j < 4; ++j) {
                unsigned b[4];
                load4(b, ks + at(16 * j + lane / 16 * 8 + lane % 8, d + lane / 8 % 2 * 8));
                multiply(half(), score[2 * j], fq[d / 16], b[0], b[1]);
                multiply(half(), score[2 * j + 1], fq[d / 16], b[2], b[3]);
            }
        __syncthreads();
        if (first + 64 < end) fetch(ks, k + (first + 64) * D);
        else __pipeline_commit();
        if (CAUSAL && first + 64 == end)
            for (int j = 0; j < 8; ++j)
                for (int e = 0; e < 4; ++e)
                    if (first + 8 * j + s + e % 2 > row + r + e / 2 * 8) score[j][e] = -1e30f;
        for (int h = 0; h < 2; ++h) {
            float largest = most[h], sum = 0;
            for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fmaxf(score[j][2 * h], score[j][2 * h + 1]));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
            float factor = exp2f((most[h] - largest) * scale);
            for (int j = 0; j < 8; ++j)
                for (int e = 2 * h; e < 2 * h + 2; ++e) sum += score[j][e] = exp2f((score[j][e] - largest) * scale);
            most[h] = largest;
            total[h] = total[h] * factor + sum;
            for (int j = 0; j < D / 8; ++j) result[j][2 * h] *= factor, result[j][2 * h + 1] *= factor;
        }
        __pipeline_wait_prior(1);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < 4; ++d) {
            float(*w)[4] = score + 2 * d;
            unsigned weights[4] = {pack(w[0][0], w[0][1]), pack(w[0][2], w[0][3]), pack(w[1][0], w[1][1]), pack(w[1][2], w[1][3])};
            for (int j = 0; j < D / 16; ++j) {
                unsigned b[4];
                load4_transposed(b, vs + at(16 * d + lane % 16, 16 * j + lane / 16 * 8));
                multiply(half(), result[2 * j], weights, b[0], b[1]);
                multiply(half(), result[2 * j + 1], weights, b[2], b[3]);
            }
        }
        __syncthreads();
    }
    for (int h = 0; h < 2; ++h) {
        total[h] += __shfl_xor_sync(0xffffffff, total[h], 1);
        total[h] += __shfl_xor_sync(0xffffffff, total[h], 2);
        for (int j = 0; j < D / 8; ++j)
            *(unsigned*)&out[(row + r + 8 * h) * D + 8 * j + s] =
                pack(result[j][2 * h] / total[h], result[j][2 * h + 1] / total[h]);
    }
}

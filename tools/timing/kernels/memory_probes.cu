#include <mma.h>
using namespace nvcuda;
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

// Loads that L1 contains: each lane has its own offset, which makes the pattern of lines and banks. Four are in flight.
#define LOAD_1(R, P) asm volatile("ld.global.ca.f32 %0, [%1];" : "=f"(R.x) : "l"(P))
#define LOAD_2(R, P) asm volatile("ld.global.ca.v2.f32 {%0,%1}, [%2];" : "=f"(R.x), "=f"(R.y) : "l"(P))
#define LOAD_4(R, P) asm volatile("ld.global.ca.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(R.x), "=f"(R.y), "=f"(R.z), "=f"(R.w) : "l"(P))
#define L1_LOADS(WORDS)                                                                                          \
    extern "C" __global__ void l1_loads_##WORDS(const float* in, const int* offset, float* out, int n, int mask) { \
        float4 sum = {};                                                                                          \
        for (int k = 0; k < n; ++k) {                                                                             \
            const float* from = in + offset[threadIdx.x % 32] + (k & mask) * 512;                                 \
            float4 r[4] = {};                                                                                     \
            _Pragma("unroll") for (int j = 0; j < 4; ++j) LOAD_##WORDS(r[j], from + 128 * j);                     \
            _Pragma("unroll") for (int j = 0; j < 4; ++j) sum.x += r[j].x, sum.y += r[j].y, sum.z += r[j].z, sum.w += r[j].w; \
        }                                                                                                         \
        out[AT] = sum.x + sum.y + sum.z + sum.w;                                                                  \
    }
L1_LOADS(1) L1_LOADS(2) L1_LOADS(4)

// Stores of whole tiles by each warp, n times: each lane has its own offset, eight stores follow each other in a row.
#define STORE_1(P, V) asm volatile("st.global.f32 [%0], %1;" :: "l"(P), "f"(V) : "memory")
#define STORE_2(P, V) asm volatile("st.global.v2.f32 [%0], {%1,%1};" :: "l"(P), "f"(V) : "memory")
#define STORE_4(P, V) asm volatile("st.global.v4.f32 [%0], {%1,%1,%1,%1};" :: "l"(P), "f"(V) : "memory")
#define STORES(WORDS)                                                                                            \
    extern "C" __global__ void stores_##WORDS(const int* offset, float* out, int n, int step, int tile) {         \
        float* to = out + (size_t)(AT / 32) * n * tile + offset[threadIdx.x % 32];                                \
        for (int k = 0; k < n; ++k, to += tile)                                                                   \
            _Pragma("unroll") for (int j = 0; j < 8; ++j) STORE_##WORDS(to + j * step, 1.0f);                     \
    }
STORES(1) STORES(2) STORES(4)

// Products of TF32 with fragments from shared memory, as wmma loads them: a word per lane and load.
extern "C" __global__ void wmma_tf32(const float* in, float* out, int n, int mask) {
    __shared__ float left[64][20], right[16][68];
    for (int i = threadIdx.x; i < 64 * 20; i += blockDim.x) left[0][i] = in[i];
    for (int i = threadIdx.x; i < 16 * 68; i += blockDim.x) right[0][i] = in[i];
    __syncthreads();
    int warp = threadIdx.x / 32;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum[2];
    for (int i = 0; i < 2; ++i) wmma::fill_fragment(sum[i], 0.0f);
    for (int k = 0; k < n; ++k) {
        int d = (k & mask) * 8;
        wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a;
        wmma::load_matrix_sync(a, &left[warp / 2 % 4 * 16][d], 20);
        for (int i = 0; i < 2; ++i) {
            wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> b;
            wmma::load_matrix_sync(b, &right[d][warp % 2 * 32 + 16 * i], 68);
            wmma::mma_sync(sum[i], a, b, sum[i]);
        }
    }
    for (int i = 0; i < 2; ++i) wmma::store_matrix_sync(out + (AT / 32 * 2 + i) * 256, sum[i], 16, wmma::mem_row_major);
}

// A tile of 1,024 words moves from L2 to shared memory, a word per load, with a barrier before and after its use.
template <bool ROUNDS>
__device__ void fill_words(const float* in, float* out, int n, int mask, int width) {
    __shared__ float tile[16][68];
    float sum = 0;
    for (int k = 0; k < n; ++k) {
        const float* from = in + (k & mask) * 1024;
        for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
            float value = from[i / 64 * width + i % 64];
            tile[i / 64][i % 64] = ROUNDS ? wmma::__float_to_tf32(value) : value;
        }
        __syncthreads();
        sum += tile[threadIdx.x % 16][threadIdx.x / 16];
        __syncthreads();
    }
    out[AT] = sum;
}
extern "C" __global__ void fill_words(const float* in, float* out, int n, int mask, int width) { fill_words<false>(in, out, n, mask, width); }
extern "C" __global__ void fill_tf32(const float* in, float* out, int n, int mask, int width) { fill_words<true>(in, out, n, mask, width); }

// Each thread follows its own chain through nodes of 16 bytes.
extern "C" __global__ void walk(const int4* nodes, const int* start, int* out, int steps) {
    int p = start[AT], sum = 0;
    for (int k = 0; k < steps; ++k) {
        int4 node = nodes[p];
        sum += node.y + node.z;
        p = node.x;
    }
    out[AT] = sum + p;
}

// The score of a key: a dot product in shared memory, a sum over four lanes, two powers, and a weighted sum.
extern "C" __global__ void attend_step(const float* in, float* out, int n, int mask) {
    __shared__ float keys[16][64], values[16][64];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) keys[0][i] = values[0][i] = in[i];
    __syncthreads();
    int lane = threadIdx.x % 4;
    float own[16], result[16] = {}, most = -1e30f, sum = 0;
    for (int c = 0; c < 16; ++c) own[c] = in[AT % 1024 + c];
    for (int k = 0; k < n; ++k) {
        int j = k & mask;
        float score = 0;
        for (int c = 0; c < 16; ++c) score += own[c] * keys[j][c * 4 + lane];
        for (int o = 2; o > 0; o /= 2) score += __shfl_xor_sync(0xffffffff, score, o);
        float larger = fmaxf(most, score), scale = expf(most - larger), weight = expf(score - larger);
        most = larger;
        sum = sum * scale + weight;
        for (int c = 0; c < 16; ++c) result[c] = result[c] * scale + weight * values[j][c * 4 + lane];
    }
    for (int c = 0; c < 16; ++c) sum += result[c];
    out[AT] = sum;
}

// Products with fragments from shared memory by ldmatrix, of which the addresses are computed anew for each step.
__device__ void load(unsigned (&r)[4], const uint4* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(p)) : "memory");
}
__device__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <bool SYNC>
__device__ void swizzled(float2* out, int n) {
    __shared__ uint4 tiles[3][2][64 * 8];
    for (int i = threadIdx.x; i < 3 * 1024; i += blockDim.x) tiles[0][0][i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wy = warp / 2 % 2 * 32, wx = warp % 2 * 32;
    float sum[2][4][4] = {};
    for (int k = 0; k < n; ++k) {
        if (SYNC) __syncthreads();
        const uint4(&from)[2][64 * 8] = tiles[k % 3];
        for (int d = 0; d < 64; d += 16) {
            unsigned fa[2][4], fb[2][4];
            for (int i = 0; i < 2; ++i) {
                int row = wy + 16 * i + lane % 16, v = d / 8 + lane / 16;
                load(fa[i], &from[0][row * 8 + (v ^ row % 8)]);
                row = d + lane % 16, v = wx / 8 + 2 * i + lane / 16;
                load(fb[i], &from[1][row * 8 + (v ^ row % 8)]);
            }
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 4; ++j) multiply(sum[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
        }
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) out[(AT * 2 + i) * 4 + j] = make_float2(sum[i][j][0] + sum[i][j][1], sum[i][j][2] + sum[i][j][3]);
}
extern "C" __global__ void swizzled(float2* out, int n) { swizzled<false>(out, n); }
extern "C" __global__ void swizzled_sync(float2* out, int n) { swizzled<true>(out, n); }

struct __align__(32) Sector { float values[8]; };
// Each thread reads n words, or the first words of sectors, at random places of an array, four at a time.
template <class Piece>
__device__ void gather(const Piece* in, float* out, int n, unsigned mask) {
    unsigned p = AT * 2654435761u;
    float sum = 0;
    for (int k = 0; k < n; ++k)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            p = p * 1664525u + 1013904223u;
            sum += *(const float*)&in[p >> 9 & mask];
        }
    out[AT] = sum;
}
extern "C" __global__ void gather_1(const float* in, float* out, int n, unsigned mask) { gather(in, out, n, mask); }
extern "C" __global__ void gather_8(const Sector* in, float* out, int n, unsigned mask) { gather(in, out, n, mask); }

#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda;
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

// One kind of mma.sync: number and type of the registers that a lane holds of the accumulator.
#define KIND(NAME, TYPE, COUNT, SHAPE, ...)                                                                     \
    struct NAME {                                                                                               \
        typedef TYPE element;                                                                                   \
        static const int count = COUNT;                                                                         \
        static __device__ void multiply(TYPE (&d)[COUNT], const unsigned (&a)[4], const unsigned (&b)[2]) {     \
            asm volatile("mma.sync.aligned." SHAPE __VA_ARGS__);                                                \
        }                                                                                                       \
    };
#define FOUR "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#define FLOATS "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define INTS "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
#define FACTORS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])
KIND(F16, float, 4, "m16n8k16.row.col.f32.f16.f16.f32 ", FOUR : FLOATS : FACTORS)
KIND(BF16, float, 4, "m16n8k16.row.col.f32.bf16.bf16.f32 ", FOUR : FLOATS : FACTORS)
KIND(TF32, float, 4, "m16n8k8.row.col.f32.tf32.tf32.f32 ", FOUR : FLOATS : FACTORS)
KIND(S8, int, 4, "m16n8k32.row.col.s32.s8.s8.s32 ", FOUR : INTS : FACTORS)
KIND(F16_SUM, unsigned, 2, "m16n8k16.row.col.f16.f16.f16.f16 ",
     "{%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};" : "+r"(d[0]), "+r"(d[1]) : FACTORS)
KIND(F16_K8, float, 4, "m16n8k8.row.col.f32.f16.f16.f32 ",
     "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" : FLOATS : "r"(a[0]), "r"(a[1]), "r"(b[0]))

// n times: SUMS products that do not depend on each other
template <class Kind, int SUMS>
__device__ void chain(const unsigned* in, unsigned* out, int n) {
    unsigned a[4], b[2];
    for (int i = 0; i < 4; ++i) a[i] = in[AT + i];
    for (int i = 0; i < 2; ++i) b[i] = in[AT + 4 + i];
    typename Kind::element d[SUMS][Kind::count] = {};
    for (int k = 0; k < n; ++k)
#pragma unroll
        for (int i = 0; i < SUMS; ++i) Kind::multiply(d[i], a, b);
    typename Kind::element sum = 0;
    for (int i = 0; i < SUMS; ++i)
        for (int j = 0; j < Kind::count; ++j) sum += d[i][j];
    out[AT] = (unsigned)sum;
}
#define CHAIN(NAME, KIND, SUMS)                                                          \
    extern "C" __global__ void mma_##NAME##_##SUMS(const unsigned* in, unsigned* out, int n) { \
        chain<KIND, SUMS>(in, out, n);                                                   \
    }
#define CHAINS(NAME, KIND) CHAIN(NAME, KIND, 1) CHAIN(NAME, KIND, 2) CHAIN(NAME, KIND, 4) CHAIN(NAME, KIND, 8)
CHAINS(f16, F16)
CHAINS(bf16, BF16)
CHAINS(tf32, TF32)
CHAINS(s8, S8)
CHAINS(f16_sum, F16_SUM)
CHAINS(f16_k8, F16_K8)

template <class Sum, int SUMS>
__device__ void wmma_chain(const half* in, Sum* out, int n) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, Sum> d[SUMS];
    wmma::load_matrix_sync(a, in, 16);
    wmma::load_matrix_sync(b, in, 16);
    for (int i = 0; i < SUMS; ++i) wmma::fill_fragment(d[i], (Sum)0.0f);
    for (int k = 0; k < n; ++k)
#pragma unroll
        for (int i = 0; i < SUMS; ++i) wmma::mma_sync(d[i], a, b, d[i]);
    for (int i = 0; i < SUMS; ++i) wmma::store_matrix_sync(out + AT / 32 * 256, d[i], 16, wmma::mem_row_major);
}
#define WMMA(NAME, SUM, SUMS)                                                          \
    extern "C" __global__ void wmma_##NAME##_##SUMS(const half* in, SUM* out, int n) { \
        wmma_chain<SUM, SUMS>(in, out, n);                                             \
    }
WMMA(f32, float, 1) WMMA(f32, float, 2) WMMA(f32, float, 4)
WMMA(f16, half, 1) WMMA(f16, half, 2) WMMA(f16, half, 4)

// ldmatrix: LOADS chains, in each of which an address depends on the matrix before
#define LOAD_1(R, P) asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(R[0]) : "r"(P))
#define LOAD_2(R, P) asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(R[0]), "=r"(R[1]) : "r"(P))
#define LOAD_4_OF(R, P, TRANS) asm volatile("ldmatrix.sync.aligned.m8n8.x4" TRANS ".shared.b16 {%0,%1,%2,%3}, [%4];" \
    : "=r"(R[0]), "=r"(R[1]), "=r"(R[2]), "=r"(R[3]) : "r"(P))
#define LOAD_4(R, P) LOAD_4_OF(R, P, "")
#define LOAD_4T(R, P) LOAD_4_OF(R, P, ".trans")
#define LDMATRIX(COUNT, ROW_BYTES, LOADS, NAME)                                                   \
    extern "C" __global__ void ldmatrix_##NAME##_##LOADS(unsigned* out, int n) {                  \
        __shared__ uint4 tile[256];                                                               \
        for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[i] = make_uint4(0, 0, 0, 0);     \
        __syncthreads();                                                                          \
        unsigned r[4] = {}, p[LOADS], sum = 0;                                                    \
        for (int i = 0; i < LOADS; ++i)                                                           \
            p[i] = (unsigned)__cvta_generic_to_shared(tile) + threadIdx.x % 32 * ROW_BYTES;       \
        for (int k = 0; k < n; ++k)                                                               \
            for (int i = 0; i < LOADS; ++i) { LOAD_##COUNT(r, p[i]); p[i] += r[0]; }              \
        for (int i = 0; i < LOADS; ++i) sum += p[i];                                              \
        out[AT] = sum;                                                                            \
    }
#define LDMATRICES(COUNT, ROW_BYTES, NAME) LDMATRIX(COUNT, ROW_BYTES, 1, NAME) LDMATRIX(COUNT, ROW_BYTES, 4, NAME)
LDMATRICES(1, 16, 1)
LDMATRICES(2, 16, 2)
LDMATRICES(4, 16, 4)
LDMATRICES(4T, 16, 4_trans)
LDMATRICES(4, 64, 4_conflicts)

// 16 A x 16 B elements of a warp: for each 16 of k A + B ldmatrix and 2 A B mma. The tile of step k is at
// (k & mask), which the compiler does not know; with SYNC, the block waits after each four steps.
template <int A, int B, bool SYNC>
__device__ void warp_tile(unsigned* out, int n, int mask) {
    __shared__ uint4 tile[4 * 256];
    for (int i = threadIdx.x; i < 4 * 256; i += blockDim.x) tile[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    unsigned p = (unsigned)__cvta_generic_to_shared(tile) + threadIdx.x % 32 * 16;
    float d[A][2 * B][4] = {};
    for (int start = 0; start < n; start += 4) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            unsigned a[A][4], b[B][4], from = p + (start + k & mask) * 4096;
#pragma unroll
            for (int i = 0; i < A; ++i) LOAD_4(a[i], from + 512 * i);
#pragma unroll
            for (int j = 0; j < B; ++j) LOAD_4T(b[j], from + 512 * (A + j));
#pragma unroll
            for (int i = 0; i < A; ++i)
#pragma unroll
                for (int j = 0; j < 2 * B; ++j) {
                    unsigned pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                    F16::multiply(d[i][j], a[i], pair);
                }
        }
        if (SYNC) __syncthreads();
    }
    float sum = 0;
    for (int i = 0; i < A; ++i) for (int j = 0; j < 2 * B; ++j) for (int e = 0; e < 4; ++e) sum += d[i][j][e];
    out[AT] = (unsigned)sum;
}
#define TILE(A, B)                                                                               \
    extern "C" __global__ void warp_tile_##A##_##B(unsigned* out, int n, int mask) { warp_tile<A, B, false>(out, n, mask); } \
    extern "C" __global__ void warp_tile_sync_##A##_##B(unsigned* out, int n, int mask) { warp_tile<A, B, true>(out, n, mask); }
TILE(1, 1) TILE(2, 2) TILE(4, 2) TILE(4, 4)

// The same with tiles that copies bring: a block copies 16 KiB per step, STAGES - 1 steps ahead, from an array of which it
// knows only the address, and each warp multiplies 32 x 32 elements by 64 of k.
template <int STAGES>
__device__ void pipeline(const uint4* in, unsigned* out, int n, int mask) {
    extern __shared__ uint4 tiles[];
    const uint4* from = in + blockIdx.x % 132 * 4096 + threadIdx.x;
    unsigned lane = threadIdx.x % 32 * 16, shared = (unsigned)__cvta_generic_to_shared(tiles);
    float d[2][4][4] = {};
    auto fetch = [&](int k) {
        uint4* to = tiles + k % STAGES * 1024 + threadIdx.x;
        const uint4* tile = from + (k & mask) * 1024;
        if (k < n)
            for (int i = 0; i < 1024; i += blockDim.x) __pipeline_memcpy_async(to + i, tile + i, 16);
        __pipeline_commit();
    };
    for (int k = 0; k < STAGES - 1; ++k) fetch(k);
    for (int k = 0; k < n; ++k) {
        if (STAGES == 1) fetch(k);
        __pipeline_wait_prior(STAGES > 1 ? STAGES - 2 : 0);
        __syncthreads();
        if (STAGES > 1) fetch(k + STAGES - 1);
        unsigned p = shared + k % STAGES * 16384 + lane;
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            unsigned a[2][4], b[2][4];
            LOAD_4(a[0], p + 2048 * step);
            LOAD_4(a[1], p + 2048 * step + 512);
            LOAD_4T(b[0], p + 2048 * step + 1024);
            LOAD_4T(b[1], p + 2048 * step + 1536);
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    unsigned pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                    F16::multiply(d[i][j], a[i], pair);
                }
        }
        if (STAGES == 1) __syncthreads();
    }
    float sum = 0;
    for (int i = 0; i < 2; ++i) for (int j = 0; j < 4; ++j) for (int e = 0; e < 4; ++e) sum += d[i][j][e];
    out[AT] = (unsigned)sum;
}
#define PIPELINE(STAGES)                                                                                   \
    extern "C" __global__ void pipeline_##STAGES(const uint4* in, unsigned* out, int n, int mask) {         \
        pipeline<STAGES>(in, out, n, mask);                                                                \
    }
PIPELINE(1) PIPELINE(2) PIPELINE(3)

// The same with wmma: fragments from shared or global memory
template <int A, int B>
__device__ void wmma_tile(const half* in, float* out, int n, int mask) {
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> d[A][B];
    for (int i = 0; i < A * B; ++i) wmma::fill_fragment(d[i / B][i % B], 0.0f);
    for (int k = 0; k < n; ++k) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a[A];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b[B];
        const half* from = in + (k & mask) * 16;
#pragma unroll
        for (int i = 0; i < A; ++i) wmma::load_matrix_sync(a[i], from + i * 16 * 72, 72);
#pragma unroll
        for (int j = 0; j < B; ++j) wmma::load_matrix_sync(b[j], from + j * 16 * 72, 72);
#pragma unroll
        for (int i = 0; i < A; ++i)
#pragma unroll
            for (int j = 0; j < B; ++j) wmma::mma_sync(d[i][j], a[i], b[j], d[i][j]);
    }
    for (int i = 0; i < A * B; ++i)
        wmma::store_matrix_sync(out + (AT / 32 * A * B + i) * 256, d[i / B][i % B], 16, wmma::mem_row_major);
}
#define WMMA_TILE(A, B)                                                                                     \
    extern "C" __global__ void wmma_global_##A##_##B(const half* in, float* out, int n, int mask) {         \
        wmma_tile<A, B>(in, out, n, mask);                                                                  \
    }                                                                                                       \
    extern "C" __global__ void wmma_shared_##A##_##B(const half* in, float* out, int n, int mask) {         \
        __shared__ __align__(16) half tile[64 * 72];                                                        \
        for (int i = threadIdx.x; i < 64 * 72; i += blockDim.x) tile[i] = in[i];                            \
        __syncthreads();                                                                                    \
        wmma_tile<A, B>(tile, out, n, mask);                                                                \
    }
WMMA_TILE(1, 1) WMMA_TILE(2, 2)

// mma with factors that each lane loads from shared memory, a word at a time
extern "C" __global__ void mma_words(unsigned* out, int n, int mask) {
    __shared__ unsigned tile[4096];
    for (int i = threadIdx.x; i < 4096; i += blockDim.x) tile[i] = 0;
    __syncthreads();
    const unsigned* from = tile + threadIdx.x % 32;
    float d[4][4] = {};
    for (int k = 0; k < n; ++k) {
        const unsigned* words = from + (k & mask) * 1024;
        unsigned a[4] = {words[0], words[32], words[64], words[96]};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            unsigned b[2] = {words[128 + 64 * j], words[160 + 64 * j]};
            F16::multiply(d[j], a, b);
        }
    }
    float sum = 0;
    for (int j = 0; j < 4; ++j) for (int e = 0; e < 4; ++e) sum += d[j][e];
    out[AT] = (unsigned)sum;
}

// the part of attention between its products: the largest of eight numbers of four lanes, their powers and the sum
extern "C" __global__ void softmax_step(const float* in, float* out, int n) {
    float score[8], most = -1e30f, sum = 0;
    for (int j = 0; j < 8; ++j) score[j] = in[AT % 1024 + j];
    for (int k = 0; k < n; ++k) {
        float largest = most, total = 0;
        for (int j = 0; j < 8; ++j) largest = fmaxf(largest, score[j] * 0.125f);
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
        for (int j = 0; j < 8; ++j) total += score[j] = __expf(score[j] * 0.125f - largest);
        sum = sum * __expf(most - largest) + total;
        most = largest;
    }
    out[AT] = sum + most;
}

#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda;
using bf16 = __nv_bfloat16;
using tf32 = wmma::precision::tf32;
template <typename F, int K, typename Layout> using Left = wmma::fragment<wmma::matrix_a, 16, 16, K, F, Layout>;
template <typename F, int K, typename Layout> using Right = wmma::fragment<wmma::matrix_b, 16, 16, K, F, Layout>;
template <typename S, int K> using Sums = wmma::fragment<wmma::accumulator, 16, 16, K, S>;
template <typename Fragment, typename T> __device__ void prepare(Fragment&, T) {}
template <typename Fragment> __device__ void prepare(Fragment& f, float) {
    for (int i = 0; i < f.num_elements; ++i) f.x[i] = wmma::__float_to_tf32(f.x[i]);
}

// c = a b, straight from global memory: a warp computes 32 x 32 elements, a block of 4 warps 32 x 128.
extern "C" __global__ void direct(const half* a, const half* b, float* c, int n, int k) {
    int row = blockIdx.y * 32, column = blockIdx.x * 128 + threadIdx.x / 32 * 32;
    Sums<float, 16> sum[2][2];
    for (int i = 0; i < 4; ++i) wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);
    for (int d = 0; d < k; d += 16) {
        Left<half, 16, wmma::row_major> fa[2];
        Right<half, 16, wmma::row_major> fb[2];
        for (int i = 0; i < 2; ++i) {
            wmma::load_matrix_sync(fa[i], a + (row + 16 * i) * k + d, k);
            wmma::load_matrix_sync(fb[i], b + d * n + column + 16 * i, n);
        }
        for (int i = 0; i < 4; ++i) wmma::mma_sync(sum[i / 2][i % 2], fa[i / 2], fb[i % 2], sum[i / 2][i % 2]);
    }
    for (int i = 0; i < 4; ++i)
        wmma::store_matrix_sync(c + (row + i / 2 * 16) * n + column + i % 2 * 16, sum[i / 2][i % 2], n, wmma::mem_row_major);
}

// c = a b with tiles of 64 x 64 in shared memory; each of 4 warps computes 32 x 32. Each thread keeps its part of the
// next tile in registers while the block multiplies. F: type in the fragments, T: in memory, S: of the sums.
template <typename F, typename T, typename S, int K>
__global__ void tiled(const T* a, const T* b, S* c, int n, int k) {
    constexpr int CHUNK = 16 / sizeof(T), BK = 32, A_PARTS = 64 * BK / CHUNK / 128;
    __shared__ __align__(32) T left[64][BK + CHUNK], right[BK][64 + CHUNK];
    int row = blockIdx.y * 64, column = blockIdx.x * 64, warp_row = threadIdx.x / 64 * 32, warp_column = threadIdx.x / 32 % 2 * 32;
    uint4 next_a[A_PARTS], next_b[A_PARTS];
    auto fetch = [&](int d) {
        for (int p = 0; p < A_PARTS; ++p) {
            int i = (p * 128 + threadIdx.x) * CHUNK;
            next_a[p] = *(const uint4*)&a[(size_t)(row + i / BK) * k + d + i % BK];
            next_b[p] = *(const uint4*)&b[(size_t)(d + i / 64) * n + column + i % 64];
        }
    };
    Sums<S, K> sum[2][2];
    for (int i = 0; i < 4; ++i) wmma::fill_fragment(sum[i / 2][i % 2], (S)0.0f);
    fetch(0);
    for (int d = 0; d < k; d += BK) {
        for (int p = 0; p < A_PARTS; ++p) {
            int i = (p * 128 + threadIdx.x) * CHUNK;
            *(uint4*)&left[i / BK][i % BK] = next_a[p];
            *(uint4*)&right[i / 64][i % 64] = next_b[p];
        }
        __syncthreads();
        if (d + BK < k) fetch(d + BK);
        for (int e = 0; e < BK; e += K) {
            Left<F, K, wmma::row_major> fa[2];
            Right<F, K, wmma::row_major> fb[2];
            for (int i = 0; i < 2; ++i) {
                wmma::load_matrix_sync(fa[i], &left[warp_row + 16 * i][e], BK + CHUNK);
                wmma::load_matrix_sync(fb[i], &right[e][warp_column + 16 * i], 64 + CHUNK);
                prepare(fa[i], T());
                prepare(fb[i], T());
            }
            for (int i = 0; i < 4; ++i) wmma::mma_sync(sum[i / 2][i % 2], fa[i / 2], fb[i % 2], sum[i / 2][i % 2]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        wmma::store_matrix_sync(c + (size_t)(row + warp_row + i / 2 * 16) * n + column + warp_column + i % 2 * 16,
                                sum[i / 2][i % 2], n, wmma::mem_row_major);
}

// c = xᵀ x for x: rows x n; only blocks on and below the diagonal. Two stages of 32 rows; 8 warps, each 16 x 32 elements.
extern "C" __global__ void gram(const half* x, float* c, int n, int rows) {
    __shared__ __align__(32) half left[2][32][72], right[2][32][72];
    if (blockIdx.x > blockIdx.y) return;
    int line = threadIdx.x / 8, part = threadIdx.x % 8 * 8, warp = threadIdx.x / 32;
    auto fetch = [&](int d) {
        if (d < rows) {
            __pipeline_memcpy_async(&left[d / 32 % 2][line][part], x + (size_t)(d + line) * n + blockIdx.y * 64 + part, 16);
            __pipeline_memcpy_async(&right[d / 32 % 2][line][part], x + (size_t)(d + line) * n + blockIdx.x * 64 + part, 16);
        }
        __pipeline_commit();
    };
    Sums<float, 16> sum[2];
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sum[j], 0.0f);
    fetch(0);
    for (int d = 0; d < rows; d += 32) {
        fetch(d + 32);
        __pipeline_wait_prior(1);
        __syncthreads();
        for (int e = 0; e < 32; e += 16) {
            Left<half, 16, wmma::col_major> fa;
            wmma::load_matrix_sync(fa, &left[d / 32 % 2][e][warp / 2 * 16], 72);
            for (int j = 0; j < 2; ++j) {
                Right<half, 16, wmma::row_major> fb;
                wmma::load_matrix_sync(fb, &right[d / 32 % 2][e][warp % 2 * 32 + 16 * j], 72);
                wmma::mma_sync(sum[j], fa, fb, sum[j]);
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 2; ++j)
        wmma::store_matrix_sync(c + (size_t)(blockIdx.y * 64 + warp / 2 * 16) * n + blockIdx.x * 64 + warp % 2 * 32 + 16 * j,
                                sum[j], n, wmma::mem_row_major);
}

// 3 x 3 convolution as a product: in: images x side x side x C, weights: 9 x C x n, out: images x side x side x n. A block
// computes 64 pixels x 64 channels. Its rows are gathered by asynchronous copies in 3 stages; the border is zero.
template <int C>
__global__ void convolution(const half* in, const half* weights, float* out, int side, int n) {
    __shared__ __align__(32) half left[3][64][40], right[3][32][72];
    int thread = threadIdx.x, warp_row = thread / 64 * 32, warp_column = thread / 32 % 2 * 32, first = blockIdx.y * 64;
    auto fetch = [&](int step) {
        if (step < 9 * C / 32) {
            int tap = step / (C / 32), channel = step % (C / 32) * 32;
            for (int i = thread; i < 256; i += 128) {
                int pixel = first + i / 4, y = pixel / side % side + tap / 3 - 1, x = pixel % side + tap % 3 - 1;
                bool inside = y >= 0 && y < side && x >= 0 && x < side;
                const half* from = in + ((size_t)(pixel / (side * side) * side + y) * side + x) * C + channel + i % 4 * 8;
                __pipeline_memcpy_async(&left[step % 3][i / 4][i % 4 * 8], inside ? from : in, 16, inside ? 0 : 16);
                __pipeline_memcpy_async(&right[step % 3][i / 8][i % 8 * 8],
                                        weights + (tap * C + channel + i / 8) * n + blockIdx.x * 64 + i % 8 * 8, 16);
            }
        }
        __pipeline_commit();
    };
    Sums<float, 16> sum[2][2];
    for (int i = 0; i < 4; ++i) wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);
    fetch(0);
    fetch(1);
    for (int step = 0; step < 9 * C / 32; ++step) {
        __pipeline_wait_prior(1);
        __syncthreads();
        fetch(step + 2);
        for (int e = 0; e < 32; e += 16) {
            Left<half, 16, wmma::row_major> fa[2];
            Right<half, 16, wmma::row_major> fb[2];
            for (int i = 0; i < 2; ++i) {
                wmma::load_matrix_sync(fa[i], &left[step % 3][warp_row + 16 * i][e], 40);
                wmma::load_matrix_sync(fb[i], &right[step % 3][e][warp_column + 16 * i], 72);
            }
            for (int i = 0; i < 4; ++i) wmma::mma_sync(sum[i / 2][i % 2], fa[i / 2], fb[i % 2], sum[i / 2][i % 2]);
        }
    }
    for (int i = 0; i < 4; ++i)
        wmma::store_matrix_sync(out + (size_t)(first + warp_row + i / 2 * 16) * n + blockIdx.x * 64 + warp_column + i % 2 * 16,
                                sum[i / 2][i % 2], n, wmma::mem_row_major);
}

#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void product(const half* a, const half* b, float* c, int n, int k) {
    __shared__ __align__(16) half tile[3][2][32 * 32];  // buffers, a and b
    int i = threadIdx.x, y = blockIdx.y * 32, x = blockIdx.x * 32, wy = i / 64 * 16, wx = i / 32 % 2 * 16;
    fragment<matrix_a, 16, 16, 16, half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, half, row_major> fb;
    fragment<accumulator, 16, 16, 16, float> sum; fill_fragment(sum, 0.0f);
    auto fetch = [&](int k0) {
        half(&to)[2][32 * 32] = tile[k0 / 32 % 3];
        if (k0 < k) {
            __pipeline_memcpy_async(&to[0][8 * i], a + (y + i / 4) * k + k0 + i % 4 * 8, 16);
            __pipeline_memcpy_async(&to[1][8 * i], b + (k0 + i / 4) * n + x + i % 4 * 8, 16);
        }
        __pipeline_commit();
    };
    fetch(0);
    fetch(32);
    for (int k0 = 0; k0 < k; k0 += 32) {
        if (k0 + 32 < k) __pipeline_wait_prior(1);
        else __pipeline_wait_prior(0);
        __syncthreads();
        fetch(k0 + 64);
        half(&from)[2][32 * 32] = tile[k0 / 32 % 3];
        for (int d = 0; d < 32; d += 16) {
            load_matrix_sync(fa, &from[0][32 * wy + d], 32);
            load_matrix_sync(fb, &from[1][32 * d + wx], 32);
            mma_sync(sum, fa, fb, sum);
        }
    }
    store_matrix_sync(c + (y + wy) * n + x + wx, sum, n, mem_row_major);
}

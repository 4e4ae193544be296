#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void product(const half* a, const half* b, float* c, int n, int k) {
    __shared__ __align__(16) half tile[1][2][32 * 32];  // buffers, a and b
    int i = threadIdx.x, y = blockIdx.y * 32, x = blockIdx.x * 32, wy = i / 64 * 16, wx = i / 32 % 2 * 16;
    fragment<matrix_a, 16, 16, 16, half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, half, row_major> fb;
    fragment<accumulator, 16, 16, 16, float> sum; fill_fragment(sum, 0.0f);
    for (int k0 = 0; k0 < k; k0 += 32) {
        __pipeline_memcpy_async(&tile[0][0][8 * i], a + (y + i / 4) * k + k0 + i % 4 * 8, 16);
        __pipeline_memcpy_async(&tile[0][1][8 * i], b + (k0 + i / 4) * n + x + i % 4 * 8, 16);
        __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads();
        for (int d = 0; d < 32; d += 16) {
            load_matrix_sync(fa, &tile[0][0][32 * wy + d], 32); load_matrix_sync(fb, &tile[0][1][32 * d + wx], 32);
            mma_sync(sum, fa, fb, sum);
        }
        __syncthreads();
    }
    store_matrix_sync(c + (y + wy) * n + x + wx, sum, n, mem_row_major);
}

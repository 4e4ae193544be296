#include <cuda_fp16.h>
extern "C" __global__ void tile(const half* a, const half* b, float* d, int n) {
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (warp >= n) return;
    a += warp * 256;
    b += warp * 128;
    d += warp * 128;
    for (int i = lane; i < 128; i += 32) {
        float sum = 0.0f;
        for (int k = 0; k < 16; ++k) sum += __half2float(a[i / 8 * 16 + k]) * __half2float(b[k * 8 + i % 8]);
        d[i] = sum;
    }
}

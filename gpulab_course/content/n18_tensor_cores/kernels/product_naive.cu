#include <cuda_fp16.h>
extern "C" __global__ void product_naive(const half* a, const half* b, float* c, int m, int n, int k) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += __half2float(a[(size_t)row * k + i]) * __half2float(b[(size_t)i * n + column]);
    c[(size_t)row * n + column] = sum;
}

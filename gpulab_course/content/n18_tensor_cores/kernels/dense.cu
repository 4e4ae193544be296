#include <cuda_fp16.h>
__device__ void multiply(float (&d)[4], const unsigned (&a)[2], unsigned b) {  // d += a b, m16n8k8
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b));
}
__device__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }
extern "C" __global__ void dense(const half* x, const half* w, const float* bias, half* y, int n, int k) {
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, g = threadIdx.x % 32 / 4, s = threadIdx.x % 4;
    if (warp >= n) return;
    const half* row = x + (16 * warp + g) * k + 2 * s;
    float d[4] = {};
    for (int i = 0; i < k; i += 8) {
        unsigned a[2] = {*(const unsigned*)(row + i), *(const unsigned*)(row + 8 * k + i)};
        half2 pair = __halves2half2(w[(i + 2 * s) * 8 + g], w[(i + 2 * s + 1) * 8 + g]);
        multiply(d, a, *(unsigned*)&pair);
    }
    float2 add = *(const float2*)(bias + 2 * s);
    for (int h = 0; h < 2; ++h) {
        half2 pair = __floats2half2_rn(gelu(d[2 * h] + add.x), gelu(d[2 * h + 1] + add.y));
        *(half2*)(y + (16 * warp + g + 8 * h) * 8 + 2 * s) = pair;
    }
}

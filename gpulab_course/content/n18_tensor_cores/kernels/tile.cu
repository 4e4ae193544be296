#include <cuda_fp16.h>
// d += a b for a of 16 x 16, b of 16 x 8 and d of 16 x 8, in the registers of a warp
__device__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    for (int k = 0; k < 2; ++k)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(b[k]));
#endif
}

extern "C" __global__ void tile(const half* a, const half* b, float* d, int n) {
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (warp >= n) return;
    a += warp * 256;
    b += warp * 128;
    d += warp * 128;
    int g = lane / 4, s = lane % 4 * 2;
    unsigned fa[4], fb[2];
    for (int i = 0; i < 4; ++i) fa[i] = *(const unsigned*)(a + (g + i % 2 * 8) * 16 + s + i / 2 * 8);
    for (int i = 0; i < 2; ++i) {
        half2 pair = __halves2half2(b[(s + 8 * i) * 8 + g], b[(s + 8 * i + 1) * 8 + g]);
        fb[i] = *(unsigned*)&pair;
    }
    float sum[4] = {};
    multiply(sum, fa, fb);
    for (int i = 0; i < 2; ++i) *(float2*)(d + (g + 8 * i) * 8 + s) = make_float2(sum[2 * i], sum[2 * i + 1]);
}

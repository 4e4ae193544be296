// What the cards of the interview count: one subject each, every parameter an argument.
#include <cuda_fp16.h>

// Lane i reads element i * stride.
extern "C" __global__ void strided(const float* x, float* y, int stride, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i * stride];
}

// Lane i reads word i * stride of shared memory, `times` times.
extern "C" __global__ void banks(const float* x, float* y, int stride, int times) {
    extern __shared__ float tile[];
    int words = 32 * stride, lane = threadIdx.x;
    for (int k = lane; k < words; k += 32) tile[k] = x[k];
    __syncwarp();
    float sum = 0;
    for (int r = 0; r < times; ++r) sum += ((volatile float*)tile)[lane * stride];
    y[lane] = sum;
}

// The lanes of a warp take one of `ways` branches of equal length.
extern "C" __global__ void forked(const float* x, float* y, int ways, int length) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    for (int way = 0; way < ways; ++way)
        if (i % ways == way)
            for (int k = 0; k < length; ++k) v = sqrtf(v * v + way);
    y[i] = v;
}

// One float in, one float out.
extern "C" __global__ void scaled(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = 2 * x[i];
}

// Each thread adds its element to one of `bins` totals.
extern "C" __global__ void counted(const int* keys, float* bins, int many, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(bins + keys[i] % many, 1.0f);
}

// A warp loads four 8 x 8 matrices of 16-bit elements; lane i passes row i of a tile with rows of `row_bytes`.
extern "C" __global__ void matrices(const unsigned* x, unsigned* y, int row_bytes) {
    extern __shared__ __align__(128) unsigned rows[];
    int lane = threadIdx.x;
    for (int k = lane; k < 8 * row_bytes; k += 32) rows[k] = x[k];
    __syncwarp();
    unsigned row = (unsigned)__cvta_generic_to_shared(rows) + lane * row_bytes, a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(row) : "memory");
    y[lane] = a ^ b ^ c ^ d;
}

// Dynamic shared memory, and as many threads as are asked for: nothing else.
extern "C" __global__ void resident(const float* x, float* y) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

// Adds one, again and again, in half precision.
extern "C" __global__ void ones(float* total, int times) {
    __half sum = __float2half(0.0f);
    for (int k = 0; k < times; ++k) sum = __hadd(sum, __float2half(1.0f));
    *total = __half2float(sum);
}

// Each thread reads words of a table in shared memory, `stride` apart from its neighbour's.
extern "C" __global__ void tabled(const float* x, float* y, int stride, int times) {
    extern __shared__ float tile[];
    int t = threadIdx.x;
    for (int k = t; k < blockDim.x * stride; k += blockDim.x) tile[k] = x[k];
    __syncthreads();
    float sum = 0;
    for (int r = 0; r < times; ++r) sum += tile[((t + r) & (blockDim.x - 1)) * stride];
    y[blockIdx.x * blockDim.x + t] = sum;
}

// Odd warps take one branch, even warps the other.
extern "C" __global__ void by_warp(const float* x, float* y) {
    float v = x[threadIdx.x];
    if (threadIdx.x / 32 % 2) for (int k = 0; k < 400; ++k) v = sqrtf(v * v + 1);
    else for (int k = 0; k < 400; ++k) v = sqrtf(v * v + 2);
    y[threadIdx.x] = v;
}

// Layer norm of each row of a matrix of rows x columns floats: (x - mean) / sqrt(variance + 1e-5).
#define FULL 0xffffffffu

__device__ float warp_sum(float v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        v += __shfl_xor_sync(FULL, v, step);
    return v;
}

// One thread a row: neighbouring lanes read a whole row apart.
extern "C" __global__ void layer_norm_naive(const float* in, float* out, int rows, int columns)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    const float* x = in + (size_t)row * columns;
    float mean = 0, variance = 0;
    for (int i = 0; i < columns; ++i)
        mean += x[i] / columns;
    for (int i = 0; i < columns; ++i)
        variance += (x[i] - mean) * (x[i] - mean) / columns;
    for (int i = 0; i < columns; ++i)
        out[(size_t)row * columns + i] = (x[i] - mean) * rsqrtf(variance + 1e-5f);
}

// One warp a row: coalesced, but every element is read three times.
extern "C" __global__ void layer_norm_three_pass(const float* in, float* out, int rows, int columns)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float* x = in + (size_t)row * columns;
    float mean = 0, variance = 0;
    for (int i = lane; i < columns; i += 32)
        mean += x[i];
    mean = warp_sum(mean) / columns;
    for (int i = lane; i < columns; i += 32)
        variance += (x[i] - mean) * (x[i] - mean);
    float scale = rsqrtf(warp_sum(variance) / columns + 1e-5f);
    for (int i = lane; i < columns; i += 32)
        out[(size_t)row * columns + i] = (x[i] - mean) * scale;
}

// A row stays in its warp's registers: one read, one write, in vectors of four. For rows of at most
// 128 * VECTORS floats, a multiple of 4.
#ifndef VECTORS
#define VECTORS 8
#endif
extern "C" __global__ void layer_norm_registers(const float* in, float* out, int rows, int columns)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float4* x = (const float4*)(in + (size_t)row * columns);
    float4* y = (float4*)(out + (size_t)row * columns);
    int count = columns / 4;
    float4 v[VECTORS];
    float mean = 0, variance = 0;
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        v[k] = lane + 32 * k < count ? __ldcs(x + lane + 32 * k) : make_float4(0, 0, 0, 0);
        mean += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    mean = warp_sum(mean) / columns;
#pragma unroll
    for (int k = 0; k < VECTORS; ++k)
        if (lane + 32 * k < count) {
            v[k] = make_float4(v[k].x - mean, v[k].y - mean, v[k].z - mean, v[k].w - mean);
            variance += (v[k].x * v[k].x + v[k].y * v[k].y) + (v[k].z * v[k].z + v[k].w * v[k].w);
        }
    float scale = rsqrtf(warp_sum(variance) / columns + 1e-5f);
#pragma unroll
    for (int k = 0; k < VECTORS; ++k)
        if (lane + 32 * k < count)
            __stcs(y + lane + 32 * k, make_float4(v[k].x * scale, v[k].y * scale, v[k].z * scale, v[k].w * scale));
}

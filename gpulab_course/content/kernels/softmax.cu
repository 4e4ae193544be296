// The softmax of each row of a matrix of rows x columns floats: exp(x - max) / sum, of which memory's speed
// should be the only limit.
#define FULL 0xffffffffu
#define LOWEST (-__int_as_float(0x7f800000))

__device__ float warp_max(float v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        v = fmaxf(v, __shfl_xor_sync(FULL, v, step));
    return v;
}

__device__ float warp_sum(float v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        v += __shfl_xor_sync(FULL, v, step);
    return v;
}

// One thread a row: neighbouring lanes read a whole row apart.
extern "C" __global__ void softmax_naive(const float* in, float* out, int rows, int columns)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    const float* x = in + (size_t)row * columns;
    float most = LOWEST, sum = 0;
    for (int i = 0; i < columns; ++i)
        most = fmaxf(most, x[i]);
    for (int i = 0; i < columns; ++i)
        sum += __expf(x[i] - most);
    for (int i = 0; i < columns; ++i)
        out[(size_t)row * columns + i] = __expf(x[i] - most) / sum;
}

// One warp a row, in three passes: coalesced, but every element is read three times.
extern "C" __global__ void softmax_three_pass(const float* in, float* out, int rows, int columns)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float* x = in + (size_t)row * columns;
    float most = LOWEST, sum = 0;
    for (int i = lane; i < columns; i += 32)
        most = fmaxf(most, x[i]);
    most = warp_max(most);
    for (int i = lane; i < columns; i += 32)
        sum += __expf(x[i] - most);
    sum = warp_sum(sum);
    for (int i = lane; i < columns; i += 32)
        out[(size_t)row * columns + i] = __expf(x[i] - most) / sum;
}

// Largest element and sum in one pass: when a larger one comes, the sum so far is scaled to it (Milakov and
// Gimelshein, "Online normalizer calculation for softmax").
extern "C" __global__ void softmax_online(const float* in, float* out, int rows, int columns)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float* x = in + (size_t)row * columns;
    float most = LOWEST, sum = 0;
    for (int i = lane; i < columns; i += 4 * 32) {
        float v[4], larger = most;
        for (int k = 0; k < 4; ++k) {
            v[k] = i + 32 * k < columns ? x[i + 32 * k] : LOWEST;
            larger = fmaxf(larger, v[k]);
        }
        if (larger > most) {  // seldom, once a lane has seen a few
            sum *= __expf(most - larger);
            most = larger;
        }
        for (int k = 0; k < 4; ++k)
            sum += v[k] > LOWEST ? __expf(v[k] - most) : 0;
    }
    float of_row = warp_max(most);
    sum = warp_sum(most > LOWEST ? sum * __expf(most - of_row) : 0);
    for (int i = lane; i < columns; i += 32)
        out[(size_t)row * columns + i] = __expf(x[i] - of_row) / sum;
}

// A row stays in its warp's registers: one read, one write, in vectors of four. For rows of at most
// 128 * VECTORS floats, a multiple of 4.
#ifndef VECTORS
#define VECTORS 8
#endif
extern "C" __global__ void softmax_registers(const float* in, float* out, int rows, int columns)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float4* x = (const float4*)(in + (size_t)row * columns);
    float4* y = (float4*)(out + (size_t)row * columns);
    int count = columns / 4;
    float4 v[VECTORS];
    float most = LOWEST, sum = 0;
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        v[k] = lane + 32 * k < count ? __ldcs(x + lane + 32 * k) : make_float4(LOWEST, LOWEST, LOWEST, LOWEST);
        most = fmaxf(most, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
    }
    most = warp_max(most);
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
        v[k] = make_float4(__expf(v[k].x - most), __expf(v[k].y - most), __expf(v[k].z - most),
                           __expf(v[k].w - most));
        sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    float scale = 1 / warp_sum(sum);
#pragma unroll
    for (int k = 0; k < VECTORS; ++k)
        if (lane + 32 * k < count)
            __stcs(y + lane + 32 * k, make_float4(v[k].x * scale, v[k].y * scale, v[k].z * scale, v[k].w * scale));
}

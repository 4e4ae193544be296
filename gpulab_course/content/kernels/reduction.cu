// The sum of n floats in seven versions. Each block leaves one partial sum in `out`, and a second launch of the
// same kernel sums those; the last version needs no second launch.
#define FULL 0xffffffffu
#ifndef SUM_UNROLL
#define SUM_UNROLL 8
#endif

// Every second thread, every fourth ...: all warps stay, most of their lanes idle.
extern "C" __global__ void sum_interleaved(const float* in, float* out, int n)
{
    extern __shared__ float part[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        if (t % (2 * step) == 0)
            part[t] += part[t + step];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}

// Neighbouring threads work, on elements 2, 4, 8 ... apart: full warps, but in the same banks.
extern "C" __global__ void sum_compacted(const float* in, float* out, int n)
{
    extern __shared__ float part[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        int at = 2 * step * t;
        if (at < blockDim.x)
            part[at] += part[at + step];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}

// The upper half is added to the lower: neighbouring threads, neighbouring elements.
extern "C" __global__ void sum_halves(const float* in, float* out, int n)
{
    extern __shared__ float part[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (t < step)
            part[t] += part[t + step];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}

// Each thread adds two elements as it loads them: half the blocks, none of them idle from the first step on.
extern "C" __global__ void sum_on_load(const float* in, float* out, int n)
{
    extern __shared__ float part[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + t;
    part[t] = (i < n ? in[i] : 0) + (i + blockDim.x < n ? in[i + blockDim.x] : 0);
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (t < step)
            part[t] += part[t + step];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}

__device__ float warp_sum(float v)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        v += __shfl_down_sync(FULL, v, step);
    return v;
}

// The sum of `v` over a block of at most 1,024 threads, a multiple of 32; in thread 0.
__device__ float block_sum(float v)
{
    __shared__ float of_warp[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_sum(v);
    if (lane == 0)
        of_warp[warp] = v;
    __syncthreads();
    if (warp == 0)
        v = warp_sum(lane < blockDim.x / 32 ? of_warp[lane] : 0);
    return v;
}

// Warps sum in registers, by shuffles: one barrier instead of one a step.
extern "C" __global__ void sum_shuffled(const float* in, float* out, int n)
{
    int i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
    float v = (i < n ? in[i] : 0) + (i + blockDim.x < n ? in[i + blockDim.x] : 0);
    v = block_sum(v);
    if (threadIdx.x == 0)
        out[blockIdx.x] = v;
}

// Few blocks, each of which walks over the whole array: the tree is climbed once a block, not once a tile.
extern "C" __global__ void sum_grid_stride(const float* in, float* out, int n)
{
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        v += in[i];
    v = block_sum(v);
    if (threadIdx.x == 0)
        out[blockIdx.x] = v;
}

// Vectors of four floats, several in flight; the block that comes last sums what the others left. `done`
// counts blocks and is 0 before and after.
extern "C" __global__ void sum_one_pass(const float* in, volatile float* partial, unsigned* done, float* out, int n)
{
    __shared__ bool last;
    const float4* vectors = (const float4*)in;
    int count = n / 4, step = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = 0;
    for (; i < count - (SUM_UNROLL - 1) * step; i += SUM_UNROLL * step) {
        float4 held[SUM_UNROLL];
#pragma unroll
        for (int k = 0; k < SUM_UNROLL; ++k)
            held[k] = __ldcs(vectors + i + k * step);
#pragma unroll
        for (int k = 0; k < SUM_UNROLL; ++k)
            v += (held[k].x + held[k].y) + (held[k].z + held[k].w);
    }
    for (; i < count; i += step)
        v += (vectors[i].x + vectors[i].y) + (vectors[i].z + vectors[i].w);
    if (blockIdx.x == 0 && threadIdx.x < n % 4)
        v += in[4 * count + threadIdx.x];
    v = block_sum(v);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = v;
        __threadfence();
        last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    v = 0;
    for (int k = threadIdx.x; k < gridDim.x; k += blockDim.x)
        v += partial[k];
    v = block_sum(v);
    if (threadIdx.x == 0) {
        *out = v;
        *done = 0;
    }
}

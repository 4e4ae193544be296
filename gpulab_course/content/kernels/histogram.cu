// How often each of 256 byte values occurs among n; `bins` are 0 before.
#ifndef COPIES
#define COPIES 8  // one set of bins for each warp of 256 threads
#endif

// Every byte is an atomic addition in global memory: all blocks queue for the same few bins.
extern "C" __global__ void histogram_global(const unsigned char* in, unsigned* bins, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(bins + in[i], 1);
}

// Each block counts in shared memory and adds its 256 counts once.
extern "C" __global__ void histogram_shared(const unsigned char* in, unsigned* bins, int n)
{
    __shared__ unsigned mine[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        mine[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(mine + in[i], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        atomicAdd(bins + b, mine[b]);
}

__device__ void count_4(unsigned* mine, unsigned four)
{
    atomicAdd(mine + (four & 255), 1);
    atomicAdd(mine + (four >> 8 & 255), 1);
    atomicAdd(mine + (four >> 16 & 255), 1);
    atomicAdd(mine + (four >> 24), 1);
}

// A set of bins for each warp, so that warps do not queue for each other, and 16 bytes a load.
extern "C" __global__ void __launch_bounds__(32 * COPIES)
histogram_private(const unsigned char* in, unsigned* bins, int n)
{
    __shared__ unsigned all[COPIES][256];
    unsigned* mine = all[threadIdx.x / 32];
    for (int b = threadIdx.x % 32; b < 256; b += 32)
        mine[b] = 0;
    __syncwarp();
    int vectors = n / 16, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = first; i < vectors; i += gridDim.x * blockDim.x) {
        uint4 v = __ldcs((const uint4*)in + i);
        count_4(mine, v.x);
        count_4(mine, v.y);
        count_4(mine, v.z);
        count_4(mine, v.w);
    }
    if (first < n % 16)
        atomicAdd(mine + in[16 * vectors + first], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x) {
        unsigned sum = 0;
#pragma unroll
        for (int w = 0; w < COPIES; ++w)
            sum += all[w][b];
        if (sum)
            atomicAdd(bins + b, sum);
    }
}

extern "C" __global__ void clear_bins(unsigned* bins) { bins[threadIdx.x] = 0; }

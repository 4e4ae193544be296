// Global memory: 32-, 64- and 128-bit accesses that are strided, misaligned, scattered or made by part of a warp.

#define STRIDED(NAME, TYPE)                                                                \
    extern "C" __global__ void NAME(const TYPE* in, TYPE* out, int n, int stride)          \
    {                                                                                      \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                     \
        if (i < n)                                                                         \
            out[i] = in[(long long)i * stride % n];                                        \
    }
STRIDED(strided_words, float)
STRIDED(strided_doubles, double)
STRIDED(strided_quads, float4)

// Everything lies one element later than a sector begins.
#define SHIFTED(NAME, TYPE)                                                                \
    extern "C" __global__ void NAME(const TYPE* in, TYPE* out, int n)                      \
    {                                                                                      \
        int i = blockIdx.x * blockDim.x + threadIdx.x + 1;                                 \
        if (i < n)                                                                         \
            out[i] = in[i];                                                                \
    }
SHIFTED(shifted_words, float)
SHIFTED(shifted_doubles, double)
SHIFTED(shifted_quads, float4)

// Lanes read where an index says: places repeat, and neighbours share sectors.
#define GATHER(NAME, TYPE)                                                                 \
    extern "C" __global__ void NAME(const TYPE* in, const int* index, TYPE* out, int n)    \
    {                                                                                      \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                     \
        if (i < n)                                                                         \
            out[i] = in[index[i]];                                                         \
    }
GATHER(gather_doubles, double)
GATHER(gather_quads, float4)

// Lanes write where an index says; no two write the same place.
extern "C" __global__ void scatter_doubles(const double* in, const int* index, double* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[index[i]] = in[i];
}

// `width` of every 32 lanes copy 8 bytes each.
extern "C" __global__ void part_of_warp(const double* in, double* out, int width)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if ((threadIdx.x * 5 & 31) < width)
        out[i] = in[i];
}

// An array of structures of three floats: every load touches twelve sectors.
extern "C" __global__ void triples(const float3* in, float* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float3 v = in[i];
        out[i] = v.x * v.x + v.y * v.y + v.z * v.z;
    }
}

// Atomics where an index says, with and without a use for the old value.
extern "C" __global__ void count_keys(const int* keys, unsigned* counts, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&counts[keys[i]], (unsigned)i);
}

extern "C" __global__ void take_tickets(const int* keys, unsigned* counts, unsigned* tickets, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        tickets[i] = atomicAdd(&counts[keys[i]], 1u);
}

extern "C" __global__ void sum_keys_64(const int* keys, unsigned long long* sums, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&sums[keys[i]], (unsigned long long)i * i);
}

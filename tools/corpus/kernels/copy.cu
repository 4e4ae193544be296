// Shows: how the addresses of a warp decide how many 32-byte sectors one load needs.

extern "C" __global__ void copy_strided(const float* in, float* out, int n, int stride)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[(i * stride) % n];
}

extern "C" __global__ void gather(const float* in, const int* index, float* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[index[i]];
}

// 16 bytes a thread in one instruction.
extern "C" __global__ void copy_float4(const float4* in, float4* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i];
}

// 8 bytes a thread; the addresses start `offset` elements late and so straddle sectors.
extern "C" __global__ void copy_double(const double* in, double* out, int n, int offset)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + offset < n)
        out[i] = in[i + offset];
}

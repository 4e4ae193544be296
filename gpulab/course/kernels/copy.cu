// A copy of n floats: what memory can do at best, and so the measure of every kernel that computes little.
#ifndef COPY_UNROLL
#define COPY_UNROLL 4
#endif

// One float a thread: a request of a warp asks for 128 bytes.
extern "C" __global__ void copy_floats(const float* in, float* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i];
}

// Four floats a thread: 512 bytes a request, a quarter of the requests. The last n % 4 go one by one.
extern "C" __global__ void copy_vectors(const float* in, float* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4)
        ((float4*)out)[i] = ((const float4*)in)[i];
    else if (i < n / 4 + n % 4)
        out[n / 4 * 4 + i - n / 4] = in[n / 4 * 4 + i - n / 4];
}

// Several vectors a thread, all loads before the first store: more bytes in flight for each warp that waits.
extern "C" __global__ void copy_in_flight(const float* in, float* out, int n)
{
    int vectors = n / 4;
    int first = blockIdx.x * blockDim.x * COPY_UNROLL + threadIdx.x;
    float4 held[COPY_UNROLL];
    if (first + (COPY_UNROLL - 1) * blockDim.x < vectors) {
#pragma unroll
        for (int k = 0; k < COPY_UNROLL; ++k)
            held[k] = __ldcs((const float4*)in + first + k * blockDim.x);
#pragma unroll
        for (int k = 0; k < COPY_UNROLL; ++k)
            __stcs((float4*)out + first + k * blockDim.x, held[k]);
        return;
    }
    for (int i = first; i < vectors + n % 4 && i < first + COPY_UNROLL * blockDim.x; i += blockDim.x)
        if (i < vectors)
            ((float4*)out)[i] = ((const float4*)in)[i];
        else
            out[vectors * 4 + i - vectors] = in[vectors * 4 + i - vectors];
}

// A copy of n floats: what memory can do at best, and so the measure of every kernel that computes little.
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

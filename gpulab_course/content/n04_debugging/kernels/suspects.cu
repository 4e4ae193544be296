extern "C" __global__ void load_tokens(float* x, int n, long long stray)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i + stray] = i % 7;
}
extern "C" __global__ void scale(float* x, int n, long long stray)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i + stray] *= 0.5f;
}
extern "C" __global__ void add_bias(float* x, int n, long long stray)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i + stray] += 1.0f;
}

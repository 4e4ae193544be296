// Shows: bank conflicts made to order. With `stride` words between lanes, gcd(stride, 32) lanes share a bank.
extern "C" __global__ void bank_stride(const int* in, int* out, int stride)
{
    __shared__ int words[1024];
    for (int w = threadIdx.x; w < 1024; w += blockDim.x)
        words[w] = in[w];
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < 8; k++)
        sum = 3 * sum + words[(threadIdx.x * stride + 33 * k) % 1024];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

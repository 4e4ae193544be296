extern "C" __global__ void positives(const float* x, float* sums, int* counts, int n)
{
    __shared__ float sum[32];
    __shared__ int count[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0;
    unsigned long long votes = __ballot_sync(~0ull, v > 0);
    for (int d = warpSize / 2; d > 0; d /= 2) v += __shfl_down_sync(~0ull, v, d);
    if (threadIdx.x % warpSize == 0) {
        sum[threadIdx.x / warpSize] = v;
        count[threadIdx.x / warpSize] = __popcll(votes);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / warpSize; ++w) {
            sum[0] += sum[w];
            count[0] += count[w];
        }
        sums[blockIdx.x] = sum[0];
        counts[blockIdx.x] = count[0];
    }
}

extern "C" __global__
void block_stats(const int* x, int* sums, int* largest, int n)
{
    __shared__ int sum[1024], most[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    sum[t] = i < n ? x[i] : 0;
    most[t] = i < n ? x[i] : -2147483647 - 1;
    __syncthreads();
    for (int left = blockDim.x; left > 1;) {
        int half = (left + 1) / 2;  // an odd one in the middle waits for the next step
        if (t < left / 2) {
            sum[t] += sum[t + half];
            most[t] = max(most[t], most[t + half]);
        }
        __syncthreads();
        left = half;
    }
    if (t == 0) {
        sums[blockIdx.x] = sum[0];
        largest[blockIdx.x] = most[0];
    }
}

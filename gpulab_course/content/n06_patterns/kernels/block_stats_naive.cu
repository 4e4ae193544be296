// Every second thread adds, every fourth, every eighth: no warp is ever done.
extern "C" __global__
void block_stats(const int* x, int* sums, int* largest, int n)
{
    __shared__ int sum[1024], most[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    sum[t] = i < n ? x[i] : 0;
    most[t] = i < n ? x[i] : -2147483647 - 1;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        if (t % (2 * step) == 0 && t + step < blockDim.x) {
            sum[t] += sum[t + step];
            most[t] = max(most[t], most[t + step]);
        }
        __syncthreads();
    }
    if (t == 0) {
        sums[blockIdx.x] = sum[0];
        largest[blockIdx.x] = most[0];
    }
}

extern "C" __global__
void tree_sum(const int* x, int* sums, int n)
{
    __shared__ int part[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int left = blockDim.x; left > 1;) {
        int half = (left + 1) / 2;  // an odd one in the middle waits for the next step
        if (t < left / 2) part[t] += part[t + half];
        __syncthreads();            // for all threads of the block, busy or not
        left = half;
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}

// Shows: an inclusive prefix sum in log2(blockDim.x) steps (Hillis and Steele), one block's worth at a time.
extern "C" __global__ void inclusive_scan(const int* in, int* out, int n)
{
    extern __shared__ int buffer[];  // two halves: read from one, write to the other
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int* from = buffer;
    int* to = buffer + blockDim.x;
    from[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int distance = 1; distance < blockDim.x; distance *= 2) {
        int sum = from[threadIdx.x];
        if (threadIdx.x >= distance)
            sum += from[threadIdx.x - distance];
        to[threadIdx.x] = sum;
        __syncthreads();
        int* swap = from;
        from = to;
        to = swap;
    }
    if (i < n)
        out[i] = from[threadIdx.x];
}

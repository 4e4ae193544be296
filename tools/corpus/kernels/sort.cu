// Shows: sorting networks in shared memory, one block's worth at a time.

// Bitonic sort: blockDim.x is a power of two and every thread holds one number.
extern "C" __global__ void bitonic_sort(int* data)
{
    extern __shared__ int keys[];
    int t = threadIdx.x;
    keys[t] = data[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int size = 2; size <= blockDim.x; size *= 2) {
        for (int distance = size / 2; distance > 0; distance /= 2) {
            int partner = t ^ distance;
            if (partner > t) {
                bool ascending = (t & size) == 0;
                int low = keys[t];
                int high = keys[partner];
                if ((low > high) == ascending) {
                    keys[t] = high;
                    keys[partner] = low;
                }
            }
            __syncthreads();
        }
    }
    data[blockIdx.x * blockDim.x + t] = keys[t];
}

// Odd-even transposition sort: neighbours swap, blockDim.x rounds for 2 * blockDim.x numbers, twice.
extern "C" __global__ void odd_even_sort(int* data)
{
    extern __shared__ int keys[];
    int count = 2 * blockDim.x;
    int* mine = data + blockIdx.x * count;
    keys[threadIdx.x] = mine[threadIdx.x];
    keys[threadIdx.x + blockDim.x] = mine[threadIdx.x + blockDim.x];
    __syncthreads();
    for (int round = 0; round < count; round++) {
        int left = 2 * threadIdx.x + round % 2;
        if (left + 1 < count && keys[left] > keys[left + 1]) {
            int low = keys[left + 1];
            keys[left + 1] = keys[left];
            keys[left] = low;
        }
        __syncthreads();
    }
    mine[threadIdx.x] = keys[threadIdx.x];
    mine[threadIdx.x + blockDim.x] = keys[threadIdx.x + blockDim.x];
}

// What lies before each element, in one launch: a block takes the next tile, waits for the sum of all tiles before
// it, and passes its own on. state[0] gives out tiles; behind it a sum and a flag for each, all 0 before.
extern "C" __global__
void scan(const int* x, int* y, int* state, int n)
{
    __shared__ int part[1024], tile, before;
    int t = threadIdx.x;
    if (t == 0) tile = atomicAdd(state, 1);
    __syncthreads();
    int i = tile * blockDim.x + t;
    int own = i < n ? x[i] : 0;
    part[t] = own;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        int other = t >= step ? part[t - step] : 0;
        __syncthreads();
        part[t] += other;
        __syncthreads();
    }
    int* sums = state + 1;
    int* ready = state + 1 + gridDim.x;
    if (t == 0) {
        int sum = 0;
        if (tile > 0) {
            while (atomicAdd(&ready[tile - 1], 0) == 0) { }
            __threadfence();
            sum = sums[tile - 1];
        }
        sums[tile] = sum + part[blockDim.x - 1];
        __threadfence();
        atomicExch(&ready[tile], 1);
        before = sum;
    }
    __syncthreads();
    if (i < n) y[i] = before + part[t] - own;
}

// Inclusive prefix sums within each warp, in five steps of shuffles.
extern "C" __global__
void warp_scan(const int* x, int* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    int v = i < n ? x[i] : 0;
    for (int distance = 1; distance < 32; distance *= 2) {
        int other = __shfl_up_sync(0xffffffff, v, distance);
        if (lane >= distance) v += other;
    }
    if (i < n) y[i] = v;
}

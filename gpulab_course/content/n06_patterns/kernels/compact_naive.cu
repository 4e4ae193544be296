// Each thread looks at all elements of its block before its own.
extern "C" __global__
void compact(const int* x, const int* before, int* out, int* count, int n)
{
    int first = blockIdx.x * blockDim.x, i = first + threadIdx.x;
    int place = before[blockIdx.x];
    for (int k = first; k < min(i, n); ++k) place += x[k] > 0;
    if (i < n && x[i] > 0) out[place++] = x[i];
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == blockDim.x - 1) *count = place;
}

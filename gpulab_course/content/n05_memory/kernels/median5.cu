extern "C" __global__ void median5(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v[5];
    #pragma unroll
    for (int k = 0; k < 5; ++k) v[k] = x[min(max(i + k - 2, 0), n - 1)];
    #pragma unroll
    for (int round = 0; round < 3; ++round)
        #pragma unroll
        for (int k = 0; k < 4 - round; ++k) {
            int low = min(v[k], v[k + 1]), high = max(v[k], v[k + 1]);
            v[k] = low;
            v[k + 1] = high;
        }
    y[i] = v[2];
}

extern "C" __global__
void two_rules(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i];
    if (i % 2 == 0) {
        #pragma unroll 1
        for (int k = 0; k < 32; ++k) v = v * 3 + k;
    } else {
        #pragma unroll 1
        for (int k = 0; k < 32; ++k) v = v * 5 - k;
    }
    y[i] = v;
}

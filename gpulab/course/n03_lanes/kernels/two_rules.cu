extern "C" __global__
void two_rules(const int* x, int* y, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int pair = t / 64, odd = t / 32 % 2, lane = t % 32;
    int i = 64 * pair + 2 * lane + odd;
    if (i >= n) return;
    int v = x[i];
    if (odd == 0) {
        #pragma unroll 1
        for (int k = 0; k < 32; ++k) v = v * 3 + k;
    } else {
        #pragma unroll 1
        for (int k = 0; k < 32; ++k) v = v * 5 - k;
    }
    y[i] = v;
}

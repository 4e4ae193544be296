extern "C" __global__
void two_rules(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i];
    if (i % 2 == 0) {
        for (int k = 0; k < 32; ++k) {
            v ^= v << 13; v ^= v >> 17; v ^= v << 5;
            v = v * 3 + k; v ^= v >> 9; v += v << 7;
        }
    } else {
        for (int k = 0; k < 32; ++k) {
            v = v * 5 - k; v ^= v >> 7; v = v * 9 ^ k;
            v ^= v << 11; v += v >> 6; v ^= v << 3;
        }
    }
    y[i] = v;
}

extern "C" __global__
void two_rules(const int* x, int* y, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int pair = t / 64, odd = t / 32 % 2, lane = t % 32;
    int i = 64 * pair + 2 * lane + odd;
    if (i >= n) return;
    int v = x[i];
    if (odd == 0) {
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

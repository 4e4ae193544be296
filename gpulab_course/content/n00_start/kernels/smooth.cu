extern "C" __global__ void smooth(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        if (i == 0 || i == n - 1) {
            y[i] = x[i];
        } else {
            y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3;
        }
    }
}

extern "C" __global__
void squares(const float* x, float* y, int n) {
    int threads = gridDim.x * blockDim.x;
    int each = (n + threads - 1) / threads;                     // a run of neighbours for every thread
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * each;
    for (int i = first; i < first + each && i < n; ++i)
        y[i] = x[i] * x[i];
}

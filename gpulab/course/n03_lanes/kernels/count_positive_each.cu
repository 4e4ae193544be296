extern "C" __global__ void count_positive(const float* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0.0f) {
        atomicAdd(out, 1);
    }
}

extern "C" __global__ void split(const float* xyz, float* x, float* y, float* z, int n) {
    __shared__ float box[3 * 1024];
    int t = threadIdx.x, threads = blockDim.x, first = blockIdx.x * threads;
    for (int k = t; k < 3 * threads; k += threads)
        if (3 * first + k < 3 * n) box[k] = xyz[3 * first + k];
    __syncthreads();
    if (first + t < n) {
        x[first + t] = box[3 * t];
        y[first + t] = box[3 * t + 1];
        z[first + t] = box[3 * t + 2];
    }
}

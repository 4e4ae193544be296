extern "C" __global__ void warp_sum(const int* x, int* out, int n) {
    __shared__ int s[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int d = 16; d > 0; d /= 2) {
        if (t % 32 < d) {
            s[t] += s[t + d];
        }
        __syncthreads();
    }
    if (t % 32 == 0) {
        out[i / 32] = s[t];
    }
}

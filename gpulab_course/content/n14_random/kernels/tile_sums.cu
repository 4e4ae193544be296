extern "C" __global__
void tile_sums(const float* x, float* sums, int n)
{
    __shared__ float s[256];
    for (int tile = blockIdx.x; tile < (n + 255) / 256; tile += gridDim.x) {
        for (int k = threadIdx.x; k < 256; k += blockDim.x) {
            int i = tile * 256 + k;
            s[k] = i < n ? x[i] : 0;
        }
        __syncthreads();
        for (int half = 128; half > 0; half /= 2) {
            for (int k = threadIdx.x; k < half; k += blockDim.x) s[k] += s[k + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) sums[tile] = s[0];
        __syncthreads();
    }
}

extern "C" __global__ void count_positive(const float* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned ballot = __ballot_sync(0xffffffff, i < n && x[i] > 0.0f);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(out, __popc(ballot));
    }
}

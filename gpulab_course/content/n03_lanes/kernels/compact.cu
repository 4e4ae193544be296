extern "C" __global__
void compact(const float* x, float* out, int* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % 32, w = i / 32;
    bool keep = i < n && x[i] > 0.0f;
    unsigned ballot = __ballot_sync(0xffffffff, keep);
    if (keep) out[32 * w + __popc(ballot & ((1u << lane) - 1))] = x[i];
    if (lane == 0) counts[w] = __popc(ballot);
}

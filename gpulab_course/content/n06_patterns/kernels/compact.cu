// Each block's positive elements, in order, to where its own begin: before[b] of them lie before block b.
extern "C" __global__
void compact(const int* x, const int* before, int* out, int* count, int n)
{
    __shared__ int of_warp[32];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, lane = t % 32, warp = t / 32;
    bool keep = i < n && x[i] > 0;
    unsigned votes = __ballot_sync(0xffffffff, keep);
    if (lane == 0) of_warp[warp] = __popc(votes);
    __syncthreads();
    int place = before[blockIdx.x], kept = 0;
    for (int w = 0; w < blockDim.x / 32; ++w) {
        if (w < warp) place += of_warp[w];
        kept += of_warp[w];
    }
    if (keep) out[place + __popc(votes & ((1u << lane) - 1))] = x[i];
    if (t == 0 && blockIdx.x == gridDim.x - 1) *count = before[blockIdx.x] + kept;
}

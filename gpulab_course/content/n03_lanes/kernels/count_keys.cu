extern "C" __global__
void count_keys(const int* keys, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int key = i < n ? keys[i] : -1;
    unsigned peers = __match_any_sync(0xffffffff, key);
    bool speaker = threadIdx.x % 32 == __ffs(peers) - 1;
    if (speaker && key >= 0) atomicAdd(&bins[key], __popc(peers));
}

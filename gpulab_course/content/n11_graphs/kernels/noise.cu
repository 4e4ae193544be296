// Each thread draws 32 random bits: a hash of seed, round and thread (the last steps of MurmurHash3).
extern "C" __global__ void noise(const unsigned* round, unsigned seed, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned h = seed + *round * 0x9e3779b9u + i * 0x85ebca6bu;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    out[i] = h ^ h >> 16;
}

extern "C" __global__ void advance(unsigned* round) { *round += 1; }

// One query. Each warp takes a part of the keys; the last block combines the parts.
extern "C" __global__ void decode(const float* q, const float* k, const float* v, float* mosts, float* sums,
                                  float* parts, unsigned* done, float* out, int keys)
{
    const float lowest = __int_as_float(0xff800000);  // -infinity
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    int split = blockIdx.x * warps + threadIdx.x / 32, splits = gridDim.x * warps;
    int size = (keys + splits - 1) / splits, end = min((split + 1) * size, keys);
    float2 own = ((const float2*)q)[lane], result = make_float2(0, 0);
    float most = lowest, sum = 0;
    for (int j = split * size; j < end; ++j) {
        float2 key = ((const float2*)k)[j * 32 + lane], value = ((const float2*)v)[j * 32 + lane];
        float score = (own.x * key.x + own.y * key.y) * 0.125f;
        for (int o = 16; o > 0; o /= 2) score += __shfl_xor_sync(0xffffffff, score, o);
        float larger = fmaxf(most, score), scale = expf(most - larger), weight = expf(score - larger);
        most = larger;
        sum = sum * scale + weight;
        result.x = result.x * scale + weight * value.x;
        result.y = result.y * scale + weight * value.y;
    }
    ((float2*)parts)[split * 32 + lane] = result;
    if (lane == 0) { mosts[split] = most; sums[split] = sum; }

    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (int s = 0; s < splits; ++s) most = fmaxf(most, mosts[s]);
    for (int c = threadIdx.x; c < 64; c += blockDim.x) {
        float total = 0, element = 0;
        for (int s = 0; s < splits; ++s) {
            float scale = expf(mosts[s] - most);
            total += scale * sums[s];
            element += scale * parts[s * 64 + c];
        }
        out[c] = element / total;
    }
}

// One new token: each warp has one query of 64 numbers, and the warps of a block share the keys of one head.
// Block b has the queries b * warps to b * warps + warps - 1, and reads the keys and values of head b once.
extern "C" __global__ void grouped(const float* q, const float* k, const float* v, float* out, int tokens)
{
    __shared__ float ks[16][64], vs[16][64];
    int lane = threadIdx.x % 32, query = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    float2 own = ((const float2*)q)[query * 32 + lane], result = make_float2(0, 0);
    float most = __int_as_float(0xff800000), sum = 0;  // -infinity
    for (int first = 0; first < tokens; first += 16) {
        int count = min(16, tokens - first), offset = (blockIdx.x * tokens + first) * 64;
        for (int e = threadIdx.x; e < count * 64; e += blockDim.x) {
            ks[e / 64][e % 64] = k[offset + e];
            vs[e / 64][e % 64] = v[offset + e];
        }
        __syncthreads();
        for (int j = 0; j < count; ++j) {
            float score = (own.x * ks[j][2 * lane] + own.y * ks[j][2 * lane + 1]) * 0.125f;
            for (int o = 16; o > 0; o /= 2) score += __shfl_xor_sync(0xffffffff, score, o);
            float larger = fmaxf(most, score), scale = expf(most - larger), weight = expf(score - larger);
            most = larger;
            sum = sum * scale + weight;
            result.x = result.x * scale + weight * vs[j][2 * lane];
            result.y = result.y * scale + weight * vs[j][2 * lane + 1];
        }
        __syncthreads();
    }
    ((float2*)out)[query * 32 + lane] = make_float2(result.x / sum, result.y / sum);
}

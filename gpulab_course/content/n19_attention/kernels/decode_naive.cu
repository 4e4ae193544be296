// One query: the first warp takes all keys.
extern "C" __global__ void decode(const float* q, const float* k, const float* v, float* mosts, float* sums,
                                  float* parts, unsigned* done, float* out, int keys)
{
    if (blockIdx.x > 0 || threadIdx.x >= 32) return;
    int lane = threadIdx.x;
    float2 own = ((const float2*)q)[lane], result = make_float2(0, 0);
    float most = __int_as_float(0xff800000), sum = 0;
    for (int j = 0; j < keys; ++j) {
        float2 key = ((const float2*)k)[j * 32 + lane], value = ((const float2*)v)[j * 32 + lane];
        float score = (own.x * key.x + own.y * key.y) * 0.125f;
        for (int o = 16; o > 0; o /= 2) score += __shfl_xor_sync(0xffffffff, score, o);
        float larger = fmaxf(most, score), scale = expf(most - larger), weight = expf(score - larger);
        most = larger;
        sum = sum * scale + weight;
        result.x = result.x * scale + weight * value.x;
        result.y = result.y * scale + weight * value.y;
    }
    ((float2*)out)[lane] = make_float2(result.x / sum, result.y / sum);
}

// One query for each sequence, one warp for each query. Token j of a sequence is in slot j % 16 of a page.
extern "C" __global__ void paged(const float* q, const float* k, const float* v, const int* table,
                                 const int* length, float* out, int sequences, int width)
{
    int lane = threadIdx.x % 32, s = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (s >= sequences) return;
    float2 own = ((const float2*)q)[s * 32 + lane], result = make_float2(0, 0);
    float most = __int_as_float(0xff800000), sum = 0;  // -infinity
    for (int j = 0; j < length[s]; ++j) {
        int row = table[s * width + j / 16] * 16 + j % 16;
        float2 key = ((const float2*)k)[row * 32 + lane], value = ((const float2*)v)[row * 32 + lane];
        float score = (own.x * key.x + own.y * key.y) * 0.125f;
        for (int o = 16; o > 0; o /= 2) score += __shfl_xor_sync(0xffffffff, score, o);
        float larger = fmaxf(most, score), scale = expf(most - larger), weight = expf(score - larger);
        most = larger;
        sum = sum * scale + weight;
        result.x = result.x * scale + weight * value.x;
        result.y = result.y * scale + weight * value.y;
    }
    if (sum > 0) result = make_float2(result.x / sum, result.y / sum);  // without tokens, the result is 0
    ((float2*)out)[s * 32 + lane] = result;
}

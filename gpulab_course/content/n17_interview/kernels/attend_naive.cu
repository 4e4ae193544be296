// The same with one thread for each number of the result: every thread of a head computes all scores, twice.
extern "C" __global__
void attend(const float* query, const float* keys, const float* values, float* parts, unsigned* done, float* out,
            float scale, int heads, int tokens)
{
    int head = blockIdx.y;
    if (head >= heads || blockIdx.x > 0) return;
    const float* q = query + head * 32;
    const float* k = keys + (size_t)head * tokens * 32;
    const float* v = values + (size_t)head * tokens * 32;
    for (int n = threadIdx.x; n < 32; n += blockDim.x) {
        float top = __int_as_float(0xff800000), weight = 0, sum = 0;
        for (int t = 0; t < tokens; ++t) {
            float score = 0;
            for (int d = 0; d < 32; ++d) score += q[d] * k[t * 32 + d];
            top = fmaxf(top, score * scale);
        }
        for (int t = 0; t < tokens; ++t) {
            float score = 0;
            for (int d = 0; d < 32; ++d) score += q[d] * k[t * 32 + d];
            float now = expf(score * scale - top);
            weight += now;
            sum += now * v[t * 32 + n];
        }
        out[head * 32 + n] = sum / weight;
    }
}

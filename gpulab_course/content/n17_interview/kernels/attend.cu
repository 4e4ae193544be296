// One decoding step of attention: a query for each head over all keys and values kept, 32 numbers a head.
// A block a head; each warp walks over its tokens with the softmax kept up to date, then warps are joined.
extern "C" __global__
void attend(const float* query, const float* keys, const float* values, float* out, float scale, int heads, int tokens)
{
    __shared__ float sums[32][32], tops[32], weights[32];
    int head = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (head >= heads) return;
    const float* k = keys + (size_t)head * tokens * 32;
    const float* v = values + (size_t)head * tokens * 32;
    float q = query[head * 32 + lane] * scale, top = __int_as_float(0xff800000), weight = 0, sum = 0;
    for (int t = warp; t < tokens; t += warps) {
        float score = q * k[t * 32 + lane];
        for (int d = 16; d > 0; d /= 2) score += __shfl_xor_sync(~0u, score, d);
        float higher = fmaxf(top, score), old = expf(top - higher), now = expf(score - higher);
        weight = weight * old + now;
        sum = sum * old + now * v[t * 32 + lane];
        top = higher;
    }
    sums[warp][lane] = sum;
    if (lane == 0) { tops[warp] = top; weights[warp] = weight; }
    __syncthreads();
    if (warp > 0) return;
    float highest = __int_as_float(0xff800000), all = 0, total = 0;
    for (int w = 0; w < warps; ++w) highest = fmaxf(highest, tops[w]);
    for (int w = 0; w < warps; ++w) {
        float part = weights[w] > 0 ? expf(tops[w] - highest) : 0;
        all += weights[w] * part;
        total += sums[w][lane] * part;
    }
    out[head * 32 + lane] = total / all;
}

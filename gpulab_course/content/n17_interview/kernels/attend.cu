// One decoding step of attention: a query for each head over all keys and values, 32 numbers per head.
// blockIdx.y is the head. Each warp of its SPLITS blocks has a share of the tokens, with an online softmax. The warps
// of a block are combined in shared memory, and the blocks of a head by the block that is the last one to finish.
#define SPLITS 8

// Adds the result of other tokens to (top, weight, sum); weight is 0 for a result without tokens.
__device__ void combine(float& top, float& weight, float& sum, float other_top, float other_weight, float other_sum)
{
    float highest = fmaxf(top, other_top);
    float own = weight > 0 ? expf(top - highest) : 0, other = other_weight > 0 ? expf(other_top - highest) : 0;
    weight = weight * own + other_weight * other;
    sum = sum * own + other_sum * other;
    top = highest;
}

extern "C" __global__
void attend(const float* query, const float* keys, const float* values, float* parts, unsigned* done, float* out,
            float scale, int heads, int tokens)
{
    __shared__ float sums[32][32], tops[32], weights[32];
    int head = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (head >= heads) return;
    const float* k = keys + (size_t)head * tokens * 32;
    const float* v = values + (size_t)head * tokens * 32;
    float q = query[head * 32 + lane] * scale, top = __int_as_float(0xff800000), weight = 0, sum = 0;
    for (int t = blockIdx.x * warps + warp; t < tokens; t += gridDim.x * warps) {
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
    for (int w = 1; w < warps; ++w) combine(top, weight, sum, tops[w], weights[w], sums[w][lane]);

    float* part = parts + (head * gridDim.x + blockIdx.x) * 34;
    part[lane] = sum;
    if (lane == 0) { part[32] = top; part[33] = weight; }
    __threadfence();
    __syncwarp();
    unsigned ticket = lane == 0 ? atomicAdd(&done[head], 1) : 0;
    if (__shfl_sync(~0u, ticket, 0) < gridDim.x - 1) return;
    __threadfence();
    for (int b = 0; b < gridDim.x; ++b) {
        const float* other = parts + (head * gridDim.x + b) * 34;
        if (b != blockIdx.x) combine(top, weight, sum, other[32], other[33], other[lane]);
    }
    out[head * 32 + lane] = sum / weight;
}

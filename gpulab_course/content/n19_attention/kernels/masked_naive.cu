// Row i sees the keys i - window + 1 to i. All tiles are loaded.
extern "C" __global__ void masked(const float* q, const float* k, const float* v, float* out, int n, int window)
{
    const int d = 64, tile = 16;
    __shared__ float ks[tile][d], vs[tile][d];
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    alignas(16) float own[d] = {}, result[d] = {};
    float most = __int_as_float(0xff800000), sum = 0;  // -infinity
    for (int c = 0; c < d; c += 4)
        if (row < n) *(float4*)(own + c) = *(const float4*)(q + row * d + c);
    for (int c = 0; c < d; ++c) own[c] *= 0.125f;
    for (int first = 0; first < n; first += tile) {
        int count = min(tile, n - first);
        for (int e = threadIdx.x; e < count * d; e += blockDim.x) {
            ks[e / d][e % d] = k[first * d + e];
            vs[e / d][e % d] = v[first * d + e];
        }
        __syncthreads();
        for (int j = 0; j < count; ++j) {
            if (first + j > row || first + j <= row - window) continue;
            float score = 0;
            for (int c = 0; c < d; ++c) score += own[c] * ks[j][c];
            float larger = fmaxf(most, score), scale = expf(most - larger), weight = expf(score - larger);
            most = larger;
            sum = sum * scale + weight;
            for (int c = 0; c < d; ++c) result[c] = result[c] * scale + weight * vs[j][c];
        }
        __syncthreads();
    }
    if (row < n)
        for (int c = 0; c < d; c += 4)
            *(float4*)(out + row * d + c) = make_float4(
                result[c] / sum, result[c + 1] / sum, result[c + 2] / sum, result[c + 3] / sum);
}

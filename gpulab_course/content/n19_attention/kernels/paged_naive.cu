// One thread for each element of the result, which computes all scores by itself.
extern "C" __global__ void paged(const float* q, const float* k, const float* v, const int* table,
                                 const int* length, float* out, int sequences, int width)
{
    int lane = threadIdx.x % 32, s = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (s >= sequences) return;
    for (int c = lane; c < 64; c += 32) {
        float most = __int_as_float(0xff800000), sum = 0, result = 0;
        for (int j = 0; j < length[s]; ++j) {
            int row = table[s * width + j / 16] * 16 + j % 16;
            float score = 0;
            for (int e = 0; e < 64; ++e) score += q[s * 64 + e] * k[row * 64 + e] * 0.125f;
            float larger = fmaxf(most, score), scale = expf(most - larger), weight = expf(score - larger);
            most = larger;
            sum = sum * scale + weight;
            result = result * scale + weight * v[row * 64 + c];
        }
        out[s * 64 + c] = sum > 0 ? result / sum : 0;
    }
}

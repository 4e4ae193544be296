// softmax(q k^T) v in tiles, without storing the scores: q, k, v and out have n rows of 32 floats. A block has
// a row of q for each of its threads, and reads all of k and v, 16 rows at a time; n is a multiple of both.
extern "C" __global__
void attention(const float* q, const float* k, const float* v, float* out, int n)
{
    __shared__ float keys[16][32], values[16][32];
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float own[32], result[32], most = __int_as_float(0xff800000), sum = 0;  // -infinity
    for (int c = 0; c < 32; ++c) {
        own[c] = q[row * 32 + c];
        result[c] = 0;
    }
    for (int first = 0; first < n; first += 16) {
        for (int e = threadIdx.x; e < 16 * 32; e += blockDim.x) {
            keys[e / 32][e % 32] = k[first * 32 + e];
            values[e / 32][e % 32] = v[first * 32 + e];
        }
        __syncthreads();
        for (int j = 0; j < 16; ++j) {
            float score = 0;
            for (int c = 0; c < 32; ++c) score += own[c] * keys[j][c];
            float larger = fmaxf(most, score), scale = expf(most - larger), weight = expf(score - larger);
            most = larger;
            sum = sum * scale + weight;
            for (int c = 0; c < 32; ++c) result[c] = result[c] * scale + weight * values[j][c];
        }
        __syncthreads();
    }
    for (int c = 0; c < 32; ++c) out[row * 32 + c] = result[c] / sum;
}

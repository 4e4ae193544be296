// The block's scores, softmax, second product and GELU in one kernel: out = gelu(softmax(scale h hᵀ) h). No score is
// stored. 16 lanes share a row of h, each with up to 8 numbers of it, so a row has at most 128 numbers. As query, key and
// value of a token are the same, one tile serves as keys and as values.
typedef unsigned short bf16;
__device__ float wide(bf16 v) { return __uint_as_float((unsigned)v << 16); }

extern "C" __global__ void attention(const bf16* h, float* out, int rows, int cols, float scale)
{
    __shared__ float tile[32][128];
    int lane = threadIdx.x % 16, row = (blockIdx.x * blockDim.x + threadIdx.x) / 16;
    float own[8], result[8], most = __int_as_float(0xff800000), sum = 0.0f;
    for (int c = 0; c < 8; ++c) {
        own[c] = row < rows && lane + 16 * c < cols ? scale * wide(h[row * cols + lane + 16 * c]) : 0.0f;
        result[c] = 0.0f;
    }
    for (int first = 0; first < rows; first += 32) {
#pragma unroll 8  // so that the loads do not wait for each other
        for (int e = threadIdx.x; e < 32 * 128; e += 128) {
            int token = first + e / 128, c = e % 128;
            tile[e / 128][c] = token < rows && c < cols ? wide(h[token * cols + c]) : 0.0f;
        }
        __syncthreads();
        for (int j = 0; j < min(32, rows - first); j += 8) {  // eight keys at once: their scores do not wait for each other
            float score[8], larger = most;
            for (int k = 0; k < 8; ++k) {
                score[k] = 0.0f;
                for (int c = 0; c < 8; ++c) score[k] += own[c] * tile[j + k][lane + 16 * c];
            }
            for (int step = 8; step > 0; step /= 2)
                for (int k = 0; k < 8; ++k) score[k] += __shfl_xor_sync(0xffffffff, score[k], step);
            for (int k = 0; k < 8; ++k)
                if (first + j + k < rows) larger = fmaxf(larger, score[k]);
            float factor = expf(most - larger);
            most = larger;
            sum *= factor;
            for (int c = 0; c < 8; ++c) result[c] *= factor;
            for (int k = 0; k < 8; ++k) {
                float weight = first + j + k < rows ? expf(score[k] - most) : 0.0f;
                sum += weight;
                for (int c = 0; c < 8; ++c) result[c] += weight * tile[j + k][lane + 16 * c];
            }
        }
        __syncthreads();
    }
    for (int c = 0; c < 8; ++c) {
        float v = result[c] / sum;
        v = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
        if (row < rows && lane + 16 * c < cols) out[row * cols + lane + 16 * c] = v;
    }
}
